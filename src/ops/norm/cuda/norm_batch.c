/* norm_batch.c - batch norm and its gradient, also with an addition and ReLU after it. */
#include "ops/norm/cuda/norm_batch_args.h"

#include <stdio.h>

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"

#define PASS(name) GD_CUDA_KERNEL("norm/norm_batch", "gd_batch_norm_" name)
static gd_cuda_kernel statistics = PASS("statistics"), finish = PASS("finish"),
                      apply = PASS("apply"), apply_relu = PASS("apply_relu"),
                      apply_add = PASS("apply_add"), apply_add_relu = PASS("apply_add_relu"),
                      grad_sums = PASS("grad_sums"), grad_sums_relu = PASS("grad_sums_relu"),
                      grad_sums_add_relu = PASS("grad_sums_add_relu"),
                      grad_sums_add_relu_sum = PASS("grad_sums_add_relu_sum"),
                      grad_finish = PASS("grad_finish"), grad_apply = PASS("grad_apply"),
                      grad_apply_relu = PASS("grad_apply_relu"),
                      grad_sums_again = PASS("grad_sums_again"),
                      grad_apply_again = PASS("grad_apply_again");

/* --- layouts ---------------------------------------------------------------------------------- */

/* Whether the elements lie as (n, s, c): channels are axis 1 and the innermost axis. */
static bool is_channels_last(const gd_view *x) {
    int64_t stride = 1;
    for (int k = 0; k < x->rank; k++) { /* axes from the innermost: 1, rank - 1, ..., 2, 0 */
        const int d = k == 0 ? 1 : k == x->rank - 1 ? 0 : x->rank - k;
        if (x->rank < 2) return false;
        if (x->dims[d] > 1 && x->strides[d] != stride) return false;
        stride *= x->dims[d];
    }
    return true;
}

static gd_cuda_channel_vector channel_vector(const gd_view *v) {
    return (gd_cuda_channel_vector){v->data, (int)v->dtype};
}

/* --- the work of blocks ----------------------------------------------------------------------- */

enum {
    THREADS = GD_CUDA_NORM_THREADS,
    BLOCKS = 2 * GD_CUDA_PROCESSORS,
    LEAST_ROWS = 2,     /* of a thread */
    PIECE_VECTORS = 16, /* of a thread, in a plane that is cut */
    FINISH_THREADS = GD_CUDA_FINISH_CHANNELS * GD_CUDA_FINISH_LANES,
};

static long long at_most(long long a, long long b) { return a < b ? a : b; }
static long long divide_up(long long a, long long b) { return (a + b - 1) / b; }

/* Depends on the shape alone, so that all devices add in the same order. A vector has `width`
 * elements. */
static void divide_work(gd_cuda_batch_norm *p, int width) {
    p->pieces = 1;
    if (p->channels_last) {
        const long long vectors = p->c / width;
        p->columns = (int)at_most(vectors > 0 ? vectors : 1, THREADS);
        p->tiles = (int)divide_up(vectors > 0 ? vectors : 1, p->columns);
        p->rows = p->n * p->s;
    } else {
        const long long vectors = p->s / width;
        p->columns = 1;
        while (2 * p->columns <= at_most(vectors, THREADS)) p->columns *= 2;
        p->piece = (long long)p->columns * PIECE_VECTORS;
        if (vectors > p->piece) p->pieces = divide_up(vectors, p->piece);
        p->tiles = (int)p->c;
        p->rows = vectors > 0 ? p->n * p->pieces : 0;
    }
    const long long depth = THREADS / p->columns, most = divide_up(p->rows, depth * LEAST_ROWS);
    p->parts = p->tiles > 0 ? at_most(divide_up(BLOCKS, p->tiles), most) : 0;
    if (p->parts < 1) p->parts = 1;
}

/* With `again`, the kernels compute ReLU again from x, with vectors of 4 elements of 16 bits. */
static gd_cuda_batch_norm norm_of(const gd_kernel_call *call, const gd_view *x,
                                  const void *const *tensors, int count, bool again) {
    gd_cuda_batch_norm p = {.call = gd_cuda_call_of(call), .dtype = (int)x->dtype, .x = x->data};
    p.n = x->dims[0];
    p.c = x->rank > 1 ? x->dims[1] : 0;
    p.s = 1;
    for (int k = 2; k < x->rank; k++) p.s *= x->dims[k];
    /* an x with one channel has both layouts */
    p.channels_last = is_channels_last(x) && !(gd_cuda_is_contiguous(x) && p.s > 1);
    const int width = again ? 4 : 16 / (int)gd_cuda_element_size(x->dtype);
    p.vector = x->dtype != GD_F64 && (p.channels_last ? p.c : p.s) % width == 0;
    for (int i = 0; i < count; i++) p.vector = p.vector && gd_cuda_is_aligned(tensors[i]);
    divide_work(&p, p.vector ? width : 1);
    return p;
}

/* The sums are in f64; the largest number of parts is that of any alignment. */
static size_t sums_bytes(const gd_view *x) {
    const size_t channels = x->rank > 1 ? (size_t)x->dims[1] : 0;
    return (size_t)(BLOCKS + 1) * 2 * channels * sizeof(double);
}

static size_t workspace_bytes(const gd_view *x) {
    const size_t channels = x->rank > 1 ? (size_t)x->dims[1] : 0;
    return sums_bytes(x) + GD_CUDA_NORM_FACTORS * channels * sizeof(double);
}

static void set_workspace(gd_cuda_batch_norm *p, const gd_kernel_call *call, const gd_view *x) {
    p->partials = call->workspace;
    p->table = (char *)call->workspace + sums_bytes(x);
}

static gd_status queue_pass(gd_device *d, gd_cuda_kernel *kernel, const gd_cuda_batch_norm *p) {
    return gd_cuda_launch(d, kernel, p->tiles * p->parts, THREADS, p);
}

static gd_status queue_finish(gd_device *d, gd_cuda_kernel *kernel, const gd_cuda_batch_norm *p) {
    return gd_cuda_launch(d, kernel, divide_up(p->c, GD_CUDA_FINISH_CHANNELS), FINISH_THREADS, p);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The inputs are x, with `adds` z, then the parameters. */
static gd_status queue_batch_norm(const gd_kernel_call *call, const gd_batch_norm_options *o,
                                  bool adds, gd_cuda_kernel *last) {
    const gd_view *x = &call->in[0], *parameters = &call->in[1 + adds];
    const void *z = adds ? call->in[1].data : NULL;
    gd_device *d = call->device;
    gd_cuda_batch_norm p =
        norm_of(call, x, (const void *[]){x->data, call->out[0].data, z}, 3, false);
    set_workspace(&p, call, x);
    p.y = call->out[0].data;
    p.z = z;
    p.weight = channel_vector(&parameters[0]);
    p.bias = channel_vector(&parameters[1]);
    p.mean = channel_vector(&call->out[1]);
    p.rstd = channel_vector(&call->out[2]);
    p.running_mean = channel_vector(&call->out[3]);
    p.running_var = channel_vector(&call->out[4]);
    p.momentum = o->momentum;
    p.eps = o->eps;
    p.training = o->training;
    gd_status status = GD_OK;
    if (p.training && p.rows > 0) status = queue_pass(d, &statistics, &p);
    if (status == GD_OK) status = queue_finish(d, &finish, &p);
    return status == GD_OK && p.rows > 0 ? queue_pass(d, last, &p) : status;
}

/* The options of a fused norm as those of the norm. */
#define OPTIONS_OF(o)                                                         \
    (gd_batch_norm_options) {                                                 \
        .training = (o)->training, .momentum = (o)->momentum, .eps = (o)->eps \
    }

static gd_status run_batch_norm(gd_kernel_call *call) {
    return queue_batch_norm(call, call->attrs, false, &apply);
}
static gd_status run_batch_norm_relu(gd_kernel_call *call) {
    const gd_batch_norm_relu_options *o = call->attrs;
    return queue_batch_norm(call, &OPTIONS_OF(o), false, &apply_relu);
}
static gd_status run_batch_norm_add(gd_kernel_call *call) {
    const gd_batch_norm_add_options *o = call->attrs;
    return queue_batch_norm(call, &OPTIONS_OF(o), true, &apply_add);
}
static gd_status run_batch_norm_add_relu(gd_kernel_call *call) {
    const gd_batch_norm_add_relu_options *o = call->attrs;
    return queue_batch_norm(call, &OPTIONS_OF(o), true, &apply_add_relu);
}

/* The inputs are gy, x, weight, mean, rstd and, for ReLU, y or, with `again`, the bias; then gy2.
 * With an output gz, the first pass stores gy after the mask of ReLU, and the second one reads
 * that. */
static gd_status queue_batch_norm_grad(const gd_kernel_call *call, bool training, double eps,
                                       bool again) {
    const gd_view *gy = &call->in[0], *x = &call->in[1];
    const bool masks = call->n_in > 5 && !again, stores = call->n_out > 3, sums = call->n_in > 6;
    const void *y = masks ? call->in[5].data : NULL, *gz = stores ? call->out[3].data : NULL,
               *gy2 = sums ? call->in[6].data : NULL;
    gd_device *d = call->device;
    gd_cuda_batch_norm p = norm_of(
        call, x, (const void *[]){gy->data, x->data, call->out[0].data, y, gz, gy2}, 6, again);
    set_workspace(&p, call, x);
    p.gy = gy->data;
    p.gy2 = gy2;
    p.relu = y;
    p.gz = stores ? call->out[3].data : NULL;
    p.y = call->out[0].data;
    p.weight = channel_vector(&call->in[2]);
    p.mean = channel_vector(&call->in[3]);
    p.rstd = channel_vector(&call->in[4]);
    p.gweight = channel_vector(&call->out[1]);
    p.gbias = channel_vector(&call->out[2]);
    if (again && call->n_in > 5) p.bias = channel_vector(&call->in[5]);
    p.eps = eps;
    p.training = training;
    gd_cuda_kernel *first = again    ? &grad_sums_again
                            : sums   ? &grad_sums_add_relu_sum
                            : stores ? &grad_sums_add_relu
                            : masks  ? &grad_sums_relu
                                     : &grad_sums;
    gd_status status = queue_pass(d, first, &p);
    if (status == GD_OK) status = queue_finish(d, &grad_finish, &p);
    if (stores) p.gy = p.gz;
    if (status != GD_OK || !p.y || p.rows == 0) return status;
    if (again) return queue_pass(d, &grad_apply_again, &p);
    return queue_pass(d, masks && !stores ? &grad_apply_relu : &grad_apply, &p);
}

static gd_status run_batch_norm_grad(gd_kernel_call *call) {
    const gd_batch_norm_grad_options *o = call->attrs;
    return queue_batch_norm_grad(call, o->training, o->eps, false);
}
static gd_status run_batch_norm_relu_grad(gd_kernel_call *call) {
    const gd_batch_norm_relu_grad_options *o = call->attrs;
    return queue_batch_norm_grad(call, o->training, o->eps, false);
}
static gd_status run_batch_norm_add_relu_grad(gd_kernel_call *call) {
    const gd_batch_norm_add_relu_grad_options *o = call->attrs;
    return queue_batch_norm_grad(call, o->training, o->eps, false);
}
static gd_status run_batch_norm_add_relu_sum_grad(gd_kernel_call *call) {
    const gd_batch_norm_add_relu_sum_grad_options *o = call->attrs;
    return queue_batch_norm_grad(call, o->training, o->eps, false);
}

static gd_status run_batch_norm_relu_grad_from_x(gd_kernel_call *call) {
    const gd_batch_norm_relu_grad_from_x_options *o = call->attrs;
    return queue_batch_norm_grad(call, o->training, o->eps, true);
}

static bool same_strides(const gd_view *a, const gd_view *b) {
    for (int k = 0; k < a->rank; k++)
        if (a->dims[k] > 1 && a->strides[k] != b->strides[k]) return false;
    return true;
}

/* Whether all operands lie as the kernels need them; those of other calls are copied. Bit k of
 * `large`: input k has x's shape; the others are vectors of channels. All outputs of x's shape,
 * which are the first one and number `last`, lie as x, too. */
static bool has_fit_layout(const gd_kernel_call *call, unsigned large, int last) {
    const gd_view *x = &call->in[0];
    if (!gd_cuda_is_contiguous(x) && !is_channels_last(x)) return false;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const bool input = i < call->n_in;
        const int k = input ? i : i - call->n_in;
        const gd_view *v = input ? &call->in[k] : &call->out[k];
        const bool lies_as_x = input ? large >> k & 1 : k == 0 || k == last;
        if (v->data && (lies_as_x ? !same_strides(x, v) : !gd_cuda_is_contiguous(v))) return false;
    }
    return true;
}
static bool batch_norm_match(const gd_kernel_call *call) { return has_fit_layout(call, 1, 0); }
static bool batch_norm_add_match(const gd_kernel_call *call) { return has_fit_layout(call, 3, 0); }
static bool batch_norm_grad_match(const gd_kernel_call *call) { return has_fit_layout(call, 3, 0); }
static bool batch_norm_relu_grad_match(const gd_kernel_call *call) {
    return has_fit_layout(call, 1 | 2 | 32, 0);
}
/* The second pass reads gz, so it must have memory. */
static bool batch_norm_add_relu_grad_match(const gd_kernel_call *call) {
    return call->out[3].data && has_fit_layout(call, 1 | 2 | 32 | 64, 3);
}
static bool has_gz(const gd_kernel_call *call) { return call->out[3].data != NULL; }
static size_t batch_norm_workspace(const gd_kernel_call *call) {
    return workspace_bytes(&call->in[0]);
}

/* Of x: its work is divided by shape, layout and dtype. */
static void describe_work(const gd_kernel_call *call, const gd_view *x, bool again, char *text,
                          size_t size) {
    const gd_cuda_batch_norm p = norm_of(call, x, &(const void *){x->data}, 1, again);
    snprintf(text, size, "channels %s, %lld part%s", p.channels_last ? "last" : "first", p.parts,
             p.parts == 1 ? "" : "s");
}
static void describe_forward(const gd_kernel_call *call, char *text, size_t size) {
    describe_work(call, &call->in[0], false, text, size);
}
static void describe_grad(const gd_kernel_call *call, char *text, size_t size) {
    describe_work(call, &call->in[1], false, text, size);
}
static void describe_grad_again(const gd_kernel_call *call, char *text, size_t size) {
    describe_work(call, &call->in[1], true, text, size);
}

/* Two kernels for each op: the second has its operands copied to row-major order. */

/*kernel batch_norm.channels, batch_norm_relu.channels  rank 20  checked  strided  run run_OP
 *        match batch_norm_match  workspace batch_norm_workspace  describe describe_forward
 * Images with contiguous planes or channels last; sums of channels in parts.
 */
/*kernel batch_norm_add.channels, batch_norm_add_relu.channels  rank 20  checked  strided
 *        run run_OP  match batch_norm_add_match  workspace batch_norm_workspace
 *        describe describe_forward
 * The same, with an addition and relu after it.
 */
/*kernel batch_norm_grad.channels  rank 20  checked  strided  run run_OP
 *        match batch_norm_grad_match  workspace batch_norm_workspace  describe describe_grad
 * The gradients, for the same layouts.
 */
/*kernel batch_norm_relu_grad_from_x.channels  rank 20  checked  strided  run run_OP
 *        match batch_norm_grad_match  workspace batch_norm_workspace  describe describe_grad_again
 * The same, with that of relu, whose result is computed again.
 */
/*kernel batch_norm_relu_grad.channels  rank 20  checked  strided  run run_OP
 *        match batch_norm_relu_grad_match  workspace batch_norm_workspace  describe describe_grad
 * The gradients with that of relu, for the same layouts.
 */
/*kernel batch_norm_add_relu_grad.channels, batch_norm_add_relu_sum_grad.channels  rank 20  checked
 *        strided  run run_OP  match batch_norm_add_relu_grad_match  workspace batch_norm_workspace
 *        describe describe_grad
 * The gradients with those of addition and relu, for the same layouts.
 */
/*kernel batch_norm.row_major, batch_norm_relu.row_major, batch_norm_add.row_major,
 *        batch_norm_add_relu.row_major  rank 10  checked  contiguous  run run_OP
 *        workspace batch_norm_workspace  describe describe_forward
 * All other layouts, by row-major copies.
 */
/*kernel batch_norm_grad.row_major, batch_norm_relu_grad.row_major  rank 10  checked  contiguous
 *        run run_OP  workspace batch_norm_workspace  describe describe_grad
 * All other layouts, by row-major copies.
 */
/*kernel batch_norm_relu_grad_from_x.row_major  rank 10  checked  contiguous  run run_OP
 *        workspace batch_norm_workspace  describe describe_grad_again
 * All other layouts, by row-major copies.
 */
/*kernel batch_norm_add_relu_grad.row_major, batch_norm_add_relu_sum_grad.row_major  rank 10
 *        checked  contiguous  run run_OP  match has_gz  workspace batch_norm_workspace
 *        describe describe_grad
 * All other layouts, by row-major copies.
 */

#include "ops/norm/cuda/norm_batch.gen.h"
