/* pool.c - max and average pooling and their gradients, for f16, bf16, f32 and f64.
 *
 * A thread computes one element, or 16 bytes of adjacent channels if channels are contiguous in all
 * operands. Large windows are shared by a warp.
 */
#include "ops/pool/cuda/pool_args.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"

enum { AXES = GD_CUDA_POOL_AXES };

/* --- options ---------------------------------------------------------------------------------- */

/* A list option: its numbers and how many. NULL: the op has no such option, or it is not given. */
static const int64_t *find_list(const gd_kernel_call *call, const char *name, int *length) {
    const gd_op_attr *a;
    for (int i = 0; (a = gd_cuda_host->op_attr_at(call->op, i)); i++) {
        if (name && strcmp(a->name, name) != 0) continue;
        const void *field = (const char *)call->attrs + a->offset;
        if (a->type == GD_ATTR_INTS) return *length = a->count, field;
        if (a->type == GD_ATTR_SHAPE && ((const gd_shape *)field)->form > 0)
            return *length = ((const gd_shape *)field)->rank, field;
        if (name) return NULL;
    }
    return NULL;
}

static bool find_flag(const gd_kernel_call *call, const char *name) {
    const gd_op_attr *a;
    for (int i = 0; (a = gd_cuda_host->op_attr_at(call->op, i)); i++)
        if (strcmp(a->name, name) == 0)
            return *(const bool *)((const char *)call->attrs + a->offset);
    return false;
}

static int64_t find_divisor(const gd_kernel_call *call) {
    const gd_op_attr *a;
    for (int i = 0; (a = gd_cuda_host->op_attr_at(call->op, i)); i++)
        if (strcmp(a->name, "divisor_override") == 0) {
            const int64_t divisor = *(const int64_t *)((const char *)call->attrs + a->offset);
            return divisor == GD_UNSET ? 0 : divisor;
        }
    return 0;
}

/* Reads a list option into the last n of three numbers; the others, and a missing list, get
 * `otherwise`. */
static void read_axes(const gd_kernel_call *call, const char *name, int n, int64_t otherwise,
                      int64_t to[AXES]) {
    int length = 0;
    const int64_t *list = find_list(call, name, &length);
    for (int a = 0; a < AXES; a++)
        to[a] = list && length == n && a >= AXES - n ? list[a - AXES + n] : otherwise;
}

/* The windows of a call, by axis. */
typedef struct pool_windows {
    bool adaptive;
    int64_t kernel[AXES], stride[AXES], padding[AXES], dilation[AXES];
} pool_windows;

static pool_windows read_windows(const gd_kernel_call *call, int n) {
    const char *name = gd_cuda_host->op_name(call->op);
    pool_windows w = {.adaptive =
                          strncmp(name, "adaptive_", 9) == 0 || find_flag(call, "adaptive")};
    read_axes(call, "kernel", n, 1, w.kernel);
    read_axes(call, "stride", n, GD_UNSET, w.stride);
    read_axes(call, "padding", n, 0, w.padding);
    read_axes(call, "dilation", n, 1, w.dilation);
    for (int a = 0; a < AXES; a++)
        if (w.stride[a] == GD_UNSET) w.stride[a] = w.kernel[a];
    return w;
}

/* Sizes that kernels compute with in 32 bits. */
static bool are_small(const pool_windows *w) {
    enum { MAX_SMALL = 1 << 28 };
    bool small = true;
    for (int a = 0; a < AXES; a++)
        small = small && w->stride[a] < MAX_SMALL && w->padding[a] < MAX_SMALL &&
                w->kernel[a] < MAX_SMALL && w->dilation[a] < MAX_SMALL &&
                (w->kernel[a] - 1) * w->dilation[a] < MAX_SMALL;
    return small;
}

/* --- operands --------------------------------------------------------------------------------- */

/* The strides of (N, C, D, H, W) for a view whose last n axes are spatial. The axes before them are
 * batch and channels, or channels. */
static gd_cuda_planes planes_of(const gd_view *v, int n) {
    gd_cuda_planes planes = {.data = v->data};
    const int lead = v->rank - n;
    planes.strides[0] = lead > 1 ? (int)v->strides[lead - 2] : 0;
    planes.strides[1] = lead > 0 ? (int)v->strides[lead - 1] : 0;
    for (int d = 0; d < n; d++) planes.strides[5 - n + d] = (int)v->strides[lead + d];
    return planes;
}

/* The number of images whose offsets and numbers of elements are below 2^31 together, also with
 * several threads for each element; 0: not even one. */
static int64_t images_at_once(const gd_view *v, int n) {
    const int64_t most = INT32_MAX;
    int64_t span = 0, count = GD_CUDA_POOL_LANES, step = v->rank == n + 2 ? v->strides[0] : 0;
    for (int d = v->rank - n - 1; d < v->rank; d++) {
        const int64_t stride = v->strides[d] < 0 ? -v->strides[d] : v->strides[d];
        if (v->dims[d] == 0) return most;
        if (v->dims[d] > most || stride > most || (count *= v->dims[d]) > most ||
            (span += (v->dims[d] - 1) * stride) > most)
            return 0;
    }
    if (step < 0) step = -step;
    if (count > step) step = count;
    return step > most ? 1 : 1 + (most - span) / (step ? step : 1);
}

/* Ranks and sizes that the kernels support. */
static bool has_planes(const gd_view *x, int n) {
    return n >= 1 && n <= AXES && (x->rank == n + 1 || x->rank == n + 2) &&
           images_at_once(x, n) > 0;
}

static bool is_index(const gd_view *v) { return v->dtype == GD_I32 || v->dtype == GD_I64; }

static int spatial_axes(const gd_kernel_call *call) {
    int length = 0;
    find_list(call, NULL, &length);
    return length;
}

static bool is_aligned(const gd_cuda_planes *t, int vector, size_t size) {
    if (!t->data) return true;
    bool aligned =
        (uintptr_t)t->data % (vector * size < 16 ? vector * size : 16) == 0 && t->strides[1] == 1;
    for (int d = 0; d < 5; d++)
        if (d != 1) aligned = aligned && t->strides[d] % vector == 0;
    return aligned;
}

/* Sizes, and how threads are assigned to elements: `written` is the operand that a kernel writes,
 * of the spatial sizes `sizes`. Returns the channels of a thread. */
static int assign_threads(gd_cuda_pool *p, const gd_view *x, int n, const gd_cuda_planes *written,
                          const int *sizes) {
    const int lead = x->rank - n;
    const size_t size = gd_cuda_element_size(x->dtype);
    int vector = GD_CUDA_POOL_VECTOR / (int)size;
    p->channels = (int)x->dims[lead - 1];
    const bool results =
        is_aligned(&p->y, vector, size) && is_aligned(&p->indices, vector, p->wide_indices ? 8 : 4);
    p->scattered = written == &p->y && !results;
    if (p->channels % vector != 0 || !is_aligned(&p->x, vector, size) ||
        !is_aligned(&p->mask, vector, size) || !(results || p->scattered))
        vector = 1;
    p->channels /= vector;
    p->channels_last = p->channels > 1 && written->strides[1] == 1 && written->strides[4] != 1;
    p->by_channels = gd_cuda_divisor_of(p->channels > 0 ? p->channels : 1);
    for (int a = 0; a < AXES; a++) {
        p->by_size[a] = gd_cuda_divisor_of(sizes[a] > 0 ? sizes[a] : 1);
        p->by_stride[a] = gd_cuda_divisor_of(p->stride[a]);
    }
    return vector;
}

/* x has the planes that are pooled, y the results. */
static gd_cuda_pool pool_of(const gd_kernel_call *call, const gd_view *x, const gd_view *y,
                            const gd_view *indices, int n) {
    const pool_windows w = read_windows(call, n);
    gd_cuda_pool p = {.call = gd_cuda_call_of(call),
                      .x = planes_of(x, n),
                      .y = planes_of(y, n),
                      .adaptive = w.adaptive,
                      .count_padding = find_flag(call, "count_include_pad"),
                      .divisor = find_divisor(call)};
    if (indices && indices->data) {
        p.indices = planes_of(indices, n);
        p.wide_indices = indices->dtype == GD_I64;
    }
    for (int a = 0; a < AXES; a++) {
        const int d = a - AXES + n;
        p.in[a] = d < 0 ? 1 : (int)x->dims[x->rank - n + d];
        p.out[a] = d < 0 ? 1 : (int)y->dims[y->rank - n + d];
        p.kernel[a] = (int)w.kernel[a];
        p.stride[a] = (int)w.stride[a];
        p.padding[a] = (int)w.padding[a];
        p.dilation[a] = (int)w.dilation[a];
    }
    return p;
}

static void advance_images(gd_cuda_planes *t, const gd_view *v, int64_t images) {
    if (t->data)
        t->data =
            (char *)t->data + images * v->strides[0] * (int64_t)gd_cuda_element_size(v->dtype);
}

/* Launches a kernel for all images, `lanes` threads for each vector of channels of the operand of
 * the sizes `sizes` that it writes. Large batches are divided. */
static gd_status launch_pool(const gd_kernel_call *call, gd_cuda_kernel *kernel, gd_cuda_pool *p,
                             const gd_view *x, const gd_view *y, const gd_view *indices, int n,
                             const int *sizes, int lanes) {
    const int64_t images = x->rank == n + 2 ? x->dims[0] : 1,
                  each = (int64_t)p->channels * sizes[0] * sizes[1] * sizes[2];
    int64_t most = images_at_once(x, n), other = images_at_once(y, n);
    if (other < most) most = other;
    if (indices && indices->data && (other = images_at_once(indices, n)) < most) most = other;
    const gd_view *mask = p->mask.data ? &call->in[2] : NULL;
    if (mask && (other = images_at_once(mask, n)) < most) most = other;
    gd_status status = GD_OK;
    for (int64_t done = 0; done < images && each > 0 && status == GD_OK; done += most) {
        p->count = (int)((images - done < most ? images - done : most) * each);
        status = gd_cuda_launch_each(call->device, kernel, (int64_t)p->count * lanes, p);
        if (done + most >= images) break;
        advance_images(&p->x, x, most);
        advance_images(&p->y, y, most);
        if (indices) advance_images(&p->indices, indices, most);
        if (mask) advance_images(&p->mask, mask, most);
    }
    return status;
}

/* --- kernels ---------------------------------------------------------------------------------- */

#define KERNELS(before, after) GD_CUDA_FLOAT_KERNELS("pool/pool", "gd_" before, after, 0)
/* Each has a kernel for single elements and one for vectors of channels. */
static gd_cuda_kernel max_kernels[2][GD_CUDA_FLOATS] = {KERNELS("max_pool", ""),
                                                        KERNELS("max_pool", "_channels")};
static gd_cuda_kernel max_2_kernels[2][GD_CUDA_FLOATS] = {KERNELS("max_pool", "_2"),
                                                          KERNELS("max_pool", "_2_channels")};
static gd_cuda_kernel max_3_kernels[2][GD_CUDA_FLOATS] = {KERNELS("max_pool", "_3"),
                                                          KERNELS("max_pool", "_3_channels")};
static gd_cuda_kernel max_lanes_kernels[GD_CUDA_FLOATS] = KERNELS("max_pool", "_lanes");
static gd_cuda_kernel avg_kernels[2][GD_CUDA_FLOATS] = {KERNELS("avg_pool", ""),
                                                        KERNELS("avg_pool", "_channels")};
static gd_cuda_kernel avg_lanes_kernels[2][GD_CUDA_FLOATS] = {
    KERNELS("avg_pool", "_lanes"), KERNELS("avg_pool", "_channels_lanes")};
static gd_cuda_kernel avg_grad_kernels[2][GD_CUDA_FLOATS] = {KERNELS("avg_pool_grad", ""),
                                                             KERNELS("avg_pool_grad", "_channels")};
static gd_cuda_kernel max_grad_kernels[2][GD_CUDA_FLOATS] = {KERNELS("max_pool_grad", ""),
                                                             KERNELS("max_pool_grad", "_channels")};
static gd_cuda_kernel max_grad_blocks_kernels[2][GD_CUDA_FLOATS] = {
    KERNELS("max_pool_grad", "_blocks"), KERNELS("max_pool_grad", "_blocks_channels")};
static gd_cuda_kernel gather_kernels[GD_CUDA_FLOATS] = KERNELS("pool_gather", "");

/* The elements of the largest window. */
static int64_t window_elements(const gd_cuda_pool *p) {
    int64_t count = 1;
    for (int a = 0; a < AXES; a++)
        count *= p->adaptive               ? (p->out[a] > 0 ? p->in[a] / p->out[a] + 1 : 1)
                 : p->kernel[a] < p->in[a] ? p->kernel[a]
                                           : p->in[a];
    return count;
}

/* A warp for each window pays off if it reads adjacent elements, or if windows are large and too
 * few to fill the device. */
static bool needs_lanes(const gd_kernel_call *call, const gd_cuda_pool *p, int vector) {
    enum { MIN_ELEMENTS = 32, THREADS_PER_PROCESSOR = 1024 };
    const int64_t elements = window_elements(p),
                  threads = (int64_t)p->channels * p->out[0] * p->out[1] * p->out[2];
    return elements >= MIN_ELEMENTS &&
           (elements >= 64 * MIN_ELEMENTS || (vector == 1 && !p->channels_last) ||
            threads <
                (int64_t)THREADS_PER_PROCESSOR * gd_cuda_state_of(call->device)->processors / 64);
}

/* The side of square windows without dilation; 0: others. */
static int square_side(const gd_cuda_pool *p) {
    const bool flat = p->in[0] == 1 && p->out[0] == 1 && p->kernel[0] == 1;
    return flat && !p->adaptive && p->kernel[2] == p->kernel[1] && p->dilation[1] == 1 &&
                   p->dilation[2] == 1
               ? p->kernel[1]
               : 0;
}

/* One channel for each thread. */
static void use_single_channels(gd_cuda_pool *p, int vector) {
    p->channels *= vector;
    p->by_channels = gd_cuda_divisor_of(p->channels > 0 ? p->channels : 1);
}

/* --- max pooling ------------------------------------------------------------------------------ */

static bool match_planes(const gd_kernel_call *call, const gd_view *x, const gd_view *y, int n) {
    if (!has_planes(x, n) || !has_planes(y, n)) return false;
    const pool_windows w = read_windows(call, n);
    return are_small(&w);
}

static bool match_forward(const gd_kernel_call *call) {
    return match_planes(call, &call->in[0], &call->out[0], spatial_axes(call));
}

static void describe_forward(const gd_kernel_call *call, char *text, size_t size) {
    const int n = spatial_axes(call);
    gd_cuda_pool p =
        pool_of(call, &call->in[0], &call->out[0], call->n_out > 1 ? &call->out[1] : NULL, n);
    const int vector = assign_threads(&p, &call->in[0], n, &p.y, p.out);
    snprintf(text, size, "a %s for each window%s",
             needs_lanes(call, &p, vector) ? "warp" : "thread",
             vector > 1 ? ", channels in vectors" : "");
}

static gd_status run_max_pool(gd_kernel_call *call) {
    const int n = spatial_axes(call), dtype = gd_cuda_float_number(call->in[0].dtype);
    const gd_view *x = &call->in[0], *y = &call->out[0], *indices = &call->out[1];
    gd_cuda_pool p = pool_of(call, x, y, indices, n);
    const int vector = assign_threads(&p, x, n, &p.y, p.out);
    if (needs_lanes(call, &p, vector)) {
        use_single_channels(&p, vector);
        return launch_pool(call, &max_lanes_kernels[dtype], &p, x, y, indices, n, p.out,
                           GD_CUDA_POOL_LANES);
    }
    const int side = square_side(&p);
    gd_cuda_kernel *kernel = side == 2   ? &max_2_kernels[vector > 1][dtype]
                             : side == 3 ? &max_3_kernels[vector > 1][dtype]
                                         : &max_kernels[vector > 1][dtype];
    return launch_pool(call, kernel, &p, x, y, indices, n, p.out, 1);
}

/* The gradient needs the windows, to find those of an element. */
static bool match_scatter(const gd_kernel_call *call) {
    int n = 0, length = 0;
    find_list(call, "dims", &n);
    return match_planes(call, &call->out[0], &call->in[0], n) && is_index(&call->in[1]) &&
           images_at_once(&call->in[1], n) > 0 &&
           (find_flag(call, "adaptive") || (find_list(call, "kernel", &length) && length == n));
}

static bool match_scatter_relu(const gd_kernel_call *call) {
    int n = 0;
    return match_scatter(call) && find_list(call, "dims", &n) &&
           images_at_once(&call->in[2], n) > 0;
}

/* Whether 2 x 2 elements of x have at most 2 x 2 windows together: see max_gradient_of_blocks. */
static bool has_small_windows(const gd_cuda_pool *p) {
    bool small = !p->adaptive && p->in[0] == 1 && p->out[0] == 1;
    for (int a = 1; a < AXES; a++)
        small = small && p->stride[a] == 2 && p->kernel[a] <= 3 && p->dilation[a] == 1;
    return small;
}

/* The gradient of max pooling, and the sizes of x in elements, or blocks of them. Returns the channels
 * of a thread. */
static int scatter_of(const gd_kernel_call *call, gd_cuda_pool *p, int n, int sizes[AXES]) {
    const gd_view *x = &call->out[0];
    *p = pool_of(call, x, &call->in[0], &call->in[1], n);
    const bool blocks = has_small_windows(p);
    for (int a = 0; a < AXES; a++) sizes[a] = blocks && a > 0 ? (p->in[a] + 1) / 2 : p->in[a];
    if (call->n_in > 2) p->mask = planes_of(&call->in[2], n);
    return assign_threads(p, x, n, &p->x, sizes);
}

/* Outputs that existed before the call must not change if it fails: the indices are checked
 * first. */
static gd_status run_scatter(gd_kernel_call *call) {
    int n = 0, sizes[AXES];
    find_list(call, "dims", &n);
    const int dtype = gd_cuda_float_number(call->in[0].dtype);
    const gd_view *x = &call->out[0], *y = &call->in[0], *indices = &call->in[1];
    gd_cuda_pool p;
    const int vector = scatter_of(call, &p, n, sizes);
    gd_cuda_kernel *kernel = has_small_windows(&p) ? &max_grad_blocks_kernels[vector > 1][dtype]
                                                   : &max_grad_kernels[vector > 1][dtype];
    gd_status status = GD_OK;
    if (call->overwrites) {
        gd_cuda_pool check = p;
        check.x.data = NULL;
        status = launch_pool(call, kernel, &check, x, y, indices, n, sizes, 1);
    }
    return status == GD_OK ? launch_pool(call, kernel, &p, x, y, indices, n, sizes, 1) : status;
}

static void describe_scatter(const gd_kernel_call *call, char *text, size_t size) {
    int n = 0, sizes[AXES];
    gd_cuda_pool p;
    find_list(call, "dims", &n);
    const int vector = scatter_of(call, &p, n, sizes);
    snprintf(text, size, "a thread for each %s%s",
             has_small_windows(&p) ? "block of 2x2 elements" : "element",
             vector > 1 ? ", channels in vectors" : "");
}

static bool match_gather(const gd_kernel_call *call) {
    const gd_pool_gather_options *o = call->attrs;
    return o->axes >= 1 && o->axes <= AXES &&
           match_planes(call, &call->in[0], &call->out[0], (int)o->axes) &&
           is_index(&call->in[1]) && images_at_once(&call->in[1], (int)o->axes) > 0;
}

static gd_status run_gather(gd_kernel_call *call) {
    const int n = (int)((const gd_pool_gather_options *)call->attrs)->axes;
    const gd_view *x = &call->in[0], *y = &call->out[0], *indices = &call->in[1];
    gd_cuda_pool p = pool_of(call, x, y, indices, n);
    gd_cuda_kernel *kernel = &gather_kernels[gd_cuda_float_number(x->dtype)];
    gd_status status = GD_OK;
    use_single_channels(&p, assign_threads(&p, x, n, &p.y, p.out));
    if (call->overwrites) {
        gd_cuda_pool check = p;
        check.y.data = NULL;
        status = launch_pool(call, kernel, &check, x, y, indices, n, p.out, 1);
    }
    return status == GD_OK ? launch_pool(call, kernel, &p, x, y, indices, n, p.out, 1) : status;
}

/* --- average pooling -------------------------------------------------------------------------- */

static gd_status run_avg_pool(gd_kernel_call *call) {
    const int n = spatial_axes(call), dtype = gd_cuda_float_number(call->in[0].dtype);
    const gd_view *x = &call->in[0], *y = &call->out[0];
    gd_cuda_pool p = pool_of(call, x, y, NULL, n);
    const int vector = assign_threads(&p, x, n, &p.y, p.out);
    const bool lanes = needs_lanes(call, &p, vector);
    return launch_pool(
        call, lanes ? &avg_lanes_kernels[vector > 1][dtype] : &avg_kernels[vector > 1][dtype], &p,
        x, y, NULL, n, p.out, lanes ? GD_CUDA_POOL_LANES : 1);
}

static bool match_avg_pool_grad(const gd_kernel_call *call) {
    return match_planes(call, &call->out[0], &call->in[0], spatial_axes(call));
}

static gd_status run_avg_pool_grad(gd_kernel_call *call) {
    const int n = spatial_axes(call), dtype = gd_cuda_float_number(call->in[0].dtype);
    const gd_view *x = &call->out[0], *y = &call->in[0];
    gd_cuda_pool p = pool_of(call, x, y, NULL, n);
    const int vector = assign_threads(&p, x, n, &p.x, p.in);
    return launch_pool(call, &avg_grad_kernels[vector > 1][dtype], &p, x, y, NULL, n, p.in, 1);
}

/*kernel max_pool{1,2,3}d.windows, max_pool{1,2,3}d_with_indices.windows,
 *        adaptive_max_pool{1,2,3}d.windows, adaptive_max_pool{1,2,3}d_with_indices.windows
 *        dtypes f16 bf16 f32 f64  checked  strided  run run_max_pool  match match_forward
 *        describe describe_forward
 * A thread computes an element, or a vector of channels; a warp shares a large window.
 */
/*kernel avg_pool{1,2,3}d.windows, adaptive_avg_pool{1,2,3}d.windows  dtypes f16 bf16 f32 f64
 *        checked  strided  run run_avg_pool  match match_forward  describe describe_forward
 * A thread computes an element, or a vector of channels; a warp shares a large window.
 */
/*kernel avg_pool_grad.windows, adaptive_avg_pool_grad.windows  dtypes f16 bf16 f32 f64  checked
 *        strided  run run_avg_pool_grad  match match_avg_pool_grad
 * A thread adds the gradients of all windows of an element.
 */
/*kernel pool_scatter.windows  dtypes f16 bf16 f32 f64  checked  strided  run run_scatter
 *        match match_scatter  describe describe_scatter
 * A thread adds the gradients of all windows whose index is its element.
 */
/*kernel pool_scatter_relu.windows  dtypes f16 bf16 f32 f64  checked  strided  run run_scatter
 *        match match_scatter_relu  describe describe_scatter
 * The same, where relu let the element through.
 */
/*kernel pool_gather.windows  dtypes f16 bf16 f32 f64  checked  strided  run run_gather
 *        match match_gather
 * A thread reads the element of its index.
 */

#include "ops/pool/cuda/pool.gen.h"
