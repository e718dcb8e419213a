/* norm_rows.c - layer, RMS, group and instance norm, and their gradient. */
#include "ops/norm/cuda/norm_rows_args.h"

#include <math.h>
#include <stdio.h>

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"

#define ROW_KERNEL(name) GD_CUDA_KERNEL("norm/norm_rows", "gd_" name)
static gd_cuda_kernel warp_rows = ROW_KERNEL("norm_warp_rows"),
                      block_rows = ROW_KERNEL("norm_block_rows"),
                      warp_any = ROW_KERNEL("norm_warp_any"),
                      block_any = ROW_KERNEL("norm_block_any"),
                      long_rows = ROW_KERNEL("norm_long_rows"),
                      long_any = ROW_KERNEL("norm_long_any"),
                      layer_grad_warp = ROW_KERNEL("layer_grad_warp_rows"),
                      layer_grad_block = ROW_KERNEL("layer_grad_block_rows"),
                      row_grad_warp = ROW_KERNEL("row_grad_warp_rows"),
                      row_grad_block = ROW_KERNEL("row_grad_block_rows"),
                      parameter_sums = ROW_KERNEL("norm_parameter_sums"),
                      parameter_grads = ROW_KERNEL("norm_parameter_grads"),
                      plane_sums_warp = ROW_KERNEL("plane_sums_warp"),
                      plane_sums_block = ROW_KERNEL("plane_sums_block"),
                      plane_sums_any = ROW_KERNEL("plane_sums_any"),
                      plane_grads_warp = ROW_KERNEL("plane_grads_warp"),
                      plane_grads_block = ROW_KERNEL("plane_grads_block"),
                      plane_grads_any = ROW_KERNEL("plane_grads_any"),
                      plane_grad_finish = ROW_KERNEL("plane_grad_finish"),
                      instance_running = ROW_KERNEL("instance_running");

enum {
    THREADS = GD_CUDA_ROW_NORM_THREADS,
    WARP_ROWS = THREADS / 32, /* of a block */
    MAX_BLOCKS = 1 << 20,
    GRAD_BLOCKS = 2 * GD_CUDA_PROCESSORS, /* that add gradients of parameters */
    PARAMETER_THREADS = GD_CUDA_PARAMETER_COLUMNS * GD_CUDA_PARAMETER_LANES,
};

static long long at_most(long long a, long long b) { return a < b ? a : b; }
static long long divide_up(long long a, long long b) { return (a + b - 1) / b; }
/* x as (n, c, s) with rows of c / groups * s elements. */
static gd_cuda_row_norm rows_of(const gd_kernel_call *call, const gd_view *x, long long n,
                                long long c, long long s, long long groups) {
    return (gd_cuda_row_norm){.call = gd_cuda_call_of(call),
                              .dtype = (int)x->dtype,
                              .mixed_dtype = -1,
                              .x = x->data,
                              .y = call->out[0].data,
                              .n = n,
                              .c = c,
                              .s = s,
                              .groups = groups,
                              .rows = n * groups,
                              .length = groups > 0 ? c / groups * s : 0,
                              .centered = true};
}

/* Whether rows consist of vectors of 16 aligned bytes, with one weight for all elements of a vector
 * or one for each. f64 is read in single elements. */
static bool has_vectors(const gd_cuda_row_norm *p) {
    const int width = 16 / (int)gd_cuda_element_size((gd_dtype)p->dtype);
    const bool layer = p->groups == 1 && p->s == 1;
    return p->dtype != GD_F64 && (layer ? p->length : p->s) % width == 0 &&
           gd_cuda_is_aligned(p->x) && gd_cuda_is_aligned(p->y) && gd_cuda_is_aligned(p->gy) &&
           gd_cuda_is_aligned(p->weight) && gd_cuda_is_aligned(p->bias);
}

static gd_status queue_rows(gd_device *d, const gd_cuda_row_norm *p, gd_cuda_kernel *warp,
                            gd_cuda_kernel *block) {
    return warp ? gd_cuda_launch(d, warp, at_most(divide_up(p->rows, WARP_ROWS), MAX_BLOCKS),
                                 THREADS, p)
                : gd_cuda_launch(d, block, at_most(p->rows, MAX_BLOCKS), THREADS, p);
}

/* Whether the operand has x's dtype, or is a 16-bit float beside x in f32. */
static bool match_mixed(const gd_view *x, const gd_view *other) {
    return other->dtype == x->dtype || (x->dtype == GD_F32 && gd_cuda_is_narrow(other->dtype));
}

static void set_mixed_dtype(gd_cuda_row_norm *p, const gd_view *other) {
    if ((int)other->dtype != p->dtype) p->mixed_dtype = (int)other->dtype;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void set_parameters(gd_cuda_row_norm *p, const gd_view *weight, const gd_view *bias) {
    p->weight = weight->data;
    p->weight_dtype = (int)weight->dtype;
    if (!bias) return;
    p->bias = bias->data;
    p->bias_dtype = (int)bias->dtype;
}

/* How rows are computed. */
typedef enum { BY_WARPS, BY_BLOCKS, BY_LONG_BLOCKS } norm_form;
static const char *const form_texts[] = {"a warp for each row", "a block for each row",
                                         "a block for each row, which it reads again"};

static norm_form choose_form(const gd_cuda_row_norm *p, bool vectors) {
    const long long kept = vectors ? 32 : 8; /* elements that a thread keeps */
    return p->length <= 32 * kept        ? BY_WARPS
           : p->length <= THREADS * kept ? BY_BLOCKS
                                         : BY_LONG_BLOCKS;
}

static gd_status queue_norm(const gd_kernel_call *call, gd_cuda_row_norm *p) {
    gd_device *d = call->device;
    set_mixed_dtype(p, &call->out[0]);
    if (p->rows == 0) return GD_OK;
    const bool vectors = has_vectors(p);
    p->eights = (int)divide_up(p->length, 8LL * (p->length <= 32 * 32 ? 32 : THREADS));
    switch (choose_form(p, vectors)) {
    case BY_WARPS: return queue_rows(d, p, vectors ? &warp_rows : &warp_any, NULL);
    case BY_BLOCKS: return queue_rows(d, p, NULL, vectors ? &block_rows : &block_any);
    default: return queue_rows(d, p, NULL, vectors ? &long_rows : &long_any);
    }
}

/* Rows of the last dimensions: as many as there are statistics in `rstd`. */
static gd_cuda_row_norm rows_of_last_dims(const gd_kernel_call *call, const gd_view *rstd) {
    const gd_view *x = &call->in[0];
    const long long rows = rstd->dims[0];
    return rows_of(call, x, rows, rows > 0 ? gd_cuda_count(x) / rows : 0, 1, 1);
}

/* Whether the views are absent or have one of the dtypes. */
static bool have_dtypes(const gd_view *views, int count, gd_dtype first, gd_dtype second) {
    for (int i = 0; i < count; i++)
        if (views[i].data && views[i].dtype != first && views[i].dtype != second) return false;
    return true;
}

/* The results of f32 rows may be 16-bit floats. */
static bool match_layer_norm(const gd_kernel_call *call) {
    const gd_view *x = &call->in[0];
    const gd_dtype wide = gd_cuda_wide_dtype(x->dtype);
    return match_mixed(x, &call->out[0]) &&
           have_dtypes(call->in + 1, call->n_in - 1, x->dtype, wide) &&
           have_dtypes(call->out + 1, call->n_out - 1, wide, wide);
}
#define match_rms_norm   match_layer_norm
#define match_group_norm match_layer_norm

static gd_cuda_row_norm layer_norm_of(const gd_kernel_call *call) {
    gd_cuda_row_norm p = rows_of_last_dims(call, &call->out[1]);
    set_parameters(&p, &call->in[1], &call->in[2]);
    return p;
}
static gd_status run_layer_norm(gd_kernel_call *call) {
    gd_cuda_row_norm p = layer_norm_of(call);
    p.mean = call->out[1].data;
    p.rstd = call->out[2].data;
    p.eps = ((const gd_layer_norm_options *)call->attrs)->eps;
    return queue_norm(call, &p);
}

static gd_cuda_row_norm rms_norm_of(const gd_kernel_call *call) {
    gd_cuda_row_norm p = rows_of_last_dims(call, &call->out[1]);
    set_parameters(&p, &call->in[1], NULL);
    return p;
}
static gd_status run_rms_norm(gd_kernel_call *call) {
    const double eps = ((const gd_rms_norm_options *)call->attrs)->eps;
    gd_cuda_row_norm p = rms_norm_of(call);
    p.rstd = call->out[1].data;
    p.eps = !isnan(eps) ? eps : call->in[0].dtype == GD_F64 ? 0x1p-52 : 0x1p-23;
    p.centered = false;
    return queue_norm(call, &p);
}

static gd_cuda_row_norm rows_of_channels(const gd_kernel_call *call, const gd_view *x,
                                         long long groups) {
    long long s = 1;
    for (int k = 2; k < x->rank; k++) s *= x->dims[k];
    return rows_of(call, x, x->dims[0], x->dims[1], s, groups);
}

static gd_cuda_row_norm group_norm_of(const gd_kernel_call *call) {
    const gd_group_norm_options *o = call->attrs;
    gd_cuda_row_norm p = rows_of_channels(call, &call->in[0], o->groups);
    set_parameters(&p, &call->in[1], &call->in[2]);
    return p;
}
static gd_status run_group_norm(gd_kernel_call *call) {
    const gd_group_norm_options *o = call->attrs;
    gd_cuda_row_norm p = group_norm_of(call);
    p.mean = call->out[1].data;
    p.rstd = call->out[2].data;
    p.eps = o->eps;
    return queue_norm(call, &p);
}

static gd_cuda_row_norm instance_norm_train_of(const gd_kernel_call *call) {
    gd_cuda_row_norm p = rows_of_channels(call, &call->in[0], call->in[0].dims[1]);
    set_parameters(&p, &call->in[1], &call->in[2]);
    return p;
}
static gd_status run_instance_norm_train(gd_kernel_call *call) {
    const gd_instance_norm_train_options *o = call->attrs;
    gd_cuda_row_norm p = instance_norm_train_of(call);
    p.mean = call->out[1].data;
    p.rstd = call->out[2].data;
    p.eps = o->eps;
    p.running_mean = call->out[3].data;
    p.running_mean_dtype = (int)call->out[3].dtype;
    p.running_var = call->out[4].data;
    p.running_var_dtype = (int)call->out[4].dtype;
    p.momentum = o->momentum;
    p.moments = call->workspace;
    const gd_status status = queue_norm(call, &p);
    if (status != GD_OK || p.n == 0) return status;
    return gd_cuda_launch_each(call->device, &instance_running, p.c, &p);
}
static size_t instance_norm_train_workspace(const gd_kernel_call *call) {
    return (size_t)(call->in[0].dims[0] * call->in[0].dims[1]) * 2 * sizeof(double) + 16;
}

#define DESCRIBE_NORM(name)                                                            \
    static void describe_##name(const gd_kernel_call *call, char *text, size_t size) { \
        const gd_cuda_row_norm p = name##_of(call);                                    \
        snprintf(text, size, "%s", form_texts[choose_form(&p, has_vectors(&p))]);      \
    }
DESCRIBE_NORM(layer_norm)
DESCRIBE_NORM(rms_norm)
DESCRIBE_NORM(group_norm)
DESCRIBE_NORM(instance_norm_train)

/* --- gradients -------------------------------------------------------------------------------- */

static gd_cuda_row_norm grad_of(const gd_kernel_call *call) {
    const gd_row_norm_grad_options *o = call->attrs;
    const gd_view *x = &call->in[1];
    gd_cuda_row_norm p = rows_of(call, x, x->dims[0], x->dims[1], x->dims[2], o->groups);
    set_parameters(&p, &call->in[2], NULL);
    p.gy = call->in[0].data;
    set_mixed_dtype(&p, &call->in[0]);
    p.mean = call->in[3].data;
    p.centered = p.mean != NULL;
    p.rstd = call->in[4].data;
    p.statistics_dtype = (int)call->in[4].dtype;
    p.gweight = call->out[1].data;
    p.gbias = call->out[2].data;
    p.partials = p.gweight || p.gbias ? call->workspace : NULL;
    return p;
}

/* The parts of the samples whose sums are added by different blocks; s = 1. */
static long long count_parts(const gd_cuda_row_norm *p) {
    const long long tiles = divide_up(p->c, GD_CUDA_PARAMETER_COLUMNS),
                    most = divide_up(p->n, 4LL * GD_CUDA_PARAMETER_LANES);
    const long long parts = tiles > 0 ? at_most(divide_up(2 * GRAD_BLOCKS, tiles), most) : 1;
    return parts > 1 ? at_most(parts, GRAD_BLOCKS) : 1;
}

static gd_status queue_parameter_grads(gd_device *d, const gd_cuda_row_norm *p) {
    return gd_cuda_launch(d, &parameter_grads, divide_up(p->c, GD_CUDA_PARAMETER_COLUMNS),
                          PARAMETER_THREADS, p);
}

/* Layer norm with rows that fit into registers: one pass for all gradients. */
static gd_status queue_layer_grad(gd_device *d, gd_cuda_row_norm *p, bool warp) {
    p->eights = (int)divide_up(p->length, 8 * 32);
    p->parts = at_most(warp ? divide_up(p->rows, WARP_ROWS) : p->rows, GRAD_BLOCKS);
    gd_status status =
        gd_cuda_launch(d, warp ? &layer_grad_warp : &layer_grad_block, p->parts, THREADS, p);
    return status == GD_OK && p->partials ? queue_parameter_grads(d, p) : status;
}

/* Whether a plane is long, and read by a block. */
static bool takes_plane_blocks(const gd_cuda_row_norm *p) { return has_vectors(p) && p->s > 1024; }

/* Group norm with s > 1: sums over planes, then over rows and channels, then gx. */
static gd_status queue_plane_grad(gd_device *d, gd_cuda_row_norm *p) {
    const bool vectors = has_vectors(p), block = takes_plane_blocks(p);
    const long long planes = p->n * p->c, groups = block ? 1 : WARP_ROWS,
                    blocks = at_most(divide_up(planes, groups), MAX_BLOCKS);
    gd_cuda_kernel *sums = !vectors ? &plane_sums_any
                           : block  ? &plane_sums_block
                                    : &plane_sums_warp,
                   *grads = !vectors ? &plane_grads_any
                            : block  ? &plane_grads_block
                                     : &plane_grads_warp;
    gd_status status = gd_cuda_launch(d, sums, blocks, THREADS, p);
    if (status == GD_OK)
        status =
            gd_cuda_launch(d, &plane_grad_finish,
                           at_most(divide_up(p->rows + p->c, WARP_ROWS), MAX_BLOCKS), THREADS, p);
    return status == GD_OK && p->y ? gd_cuda_launch(d, grads, blocks, THREADS, p) : status;
}

/* In layer norm gy may be a 16-bit float beside x in f32. */
static bool match_row_norm_grad(const gd_kernel_call *call) {
    const gd_view *gy = &call->in[0], *x = &call->in[1];
    const gd_dtype wide = gd_cuda_wide_dtype(x->dtype);
    return call->out[0].dtype == x->dtype && have_dtypes(call->out + 1, 2, wide, wide) &&
           have_dtypes(call->in + 2, 1, x->dtype, wide) &&
           (gy->dtype == x->dtype || (x->dims[2] == 1 && match_mixed(x, gy)));
}

/* Whether one pass over rows in registers computes all gradients of layer norm. */
static bool takes_one_pass(const gd_cuda_row_norm *p) {
    return p->groups == 1 && p->s == 1 && p->rows > 0 && p->length > 0 &&
           p->length <= 16 * THREADS && has_vectors(p);
}
/* Whether a row is short enough for a warp. */
static bool takes_warps(const gd_cuda_row_norm *p) { return p->length <= 32 * 32; }

static gd_status run_row_norm_grad(gd_kernel_call *call) {
    gd_cuda_row_norm p = grad_of(call);
    gd_device *d = call->device;
    p.planes = call->workspace;
    if (p.s != 1) return queue_plane_grad(d, &p);
    if (takes_one_pass(&p)) return queue_layer_grad(d, &p, takes_warps(&p));
    gd_status status = GD_OK;
    p.parts = count_parts(&p);
    if (p.y && p.rows > 0 && p.length > 0)
        status = takes_warps(&p) ? queue_rows(d, &p, &row_grad_warp, NULL)
                                 : queue_rows(d, &p, NULL, &row_grad_block);
    if (status != GD_OK || !p.partials) return status;
    const long long tiles = divide_up(p.c, GD_CUDA_PARAMETER_COLUMNS);
    status = gd_cuda_launch(d, &parameter_sums, tiles * p.parts, PARAMETER_THREADS, &p);
    return status == GD_OK ? queue_parameter_grads(d, &p) : status;
}
static void describe_row_norm_grad(const gd_kernel_call *call, char *text, size_t size) {
    const gd_cuda_row_norm p = grad_of(call);
    const bool planes = p.s != 1;
    snprintf(text, size, "a %s for each %s%s",
             (planes ? !takes_plane_blocks(&p) : takes_warps(&p)) ? "warp" : "block",
             planes ? "plane" : "row", takes_one_pass(&p) ? ", all gradients in one pass" : "");
}
static size_t row_norm_grad_workspace(const gd_kernel_call *call) {
    const gd_row_norm_grad_options *o = call->attrs;
    const gd_view *x = &call->in[1];
    const size_t partials = (size_t)x->dims[1] * GRAD_BLOCKS * 2 * sizeof(double) + 16,
                 planes = (size_t)(x->dims[0] * (x->dims[1] + o->groups)) * 2 * sizeof(double) + 16;
    return x->dims[2] != 1 ? planes : partials;
}

/*kernel layer_norm.rows, rms_norm.rows, group_norm.rows  checked  contiguous  mixed  run run_OP
 *        match match_OP  describe describe_OP
 * A warp or a block computes a row.
 */
/*kernel instance_norm_train.rows  checked  contiguous  run run_instance_norm_train
 *        workspace instance_norm_train_workspace  describe describe_OP
 * A block computes a plane; then the running statistics.
 */
/*kernel row_norm_grad.rows  checked  contiguous  mixed  run run_row_norm_grad
 *        match match_row_norm_grad  workspace row_norm_grad_workspace
 *        describe describe_OP
 * A warp or a block computes a row; then the sums of the weights' gradients.
 */

#include "ops/norm/cuda/norm_rows.gen.h"
