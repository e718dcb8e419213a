/* pooling.c - max and average pooling and their gradients, for f16, bf16, f32 and f64.
 *
 * A thread computes one element, or 16 bytes of adjacent channels if channels are contiguous in all
 * operands. Large windows are shared by a warp.
 */
#include "backend/cuda/kernels/pooling.h"

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
static void read_axes(const gd_kernel_call *call, const char *name, int n, long long otherwise,
                      long long to[AXES]) {
    int length = 0;
    const int64_t *list = find_list(call, name, &length);
    for (int a = 0; a < AXES; a++)
        to[a] = list && length == n && a >= AXES - n ? list[a - AXES + n] : otherwise;
}

/* The options that describe windows. */
static void read_windows(const gd_kernel_call *call, int n, gd_cuda_pool *p) {
    const char *name = gd_cuda_host->op_name(call->op);
    p->adaptive = strncmp(name, "adaptive_", 9) == 0 || find_flag(call, "adaptive");
    read_axes(call, "kernel", n, 1, p->kernel);
    read_axes(call, "stride", n, GD_UNSET, p->stride);
    read_axes(call, "padding", n, 0, p->padding);
    read_axes(call, "dilation", n, 1, p->dilation);
    for (int a = 0; a < AXES; a++)
        if (p->stride[a] == GD_UNSET) p->stride[a] = p->kernel[a];
    p->count_padding = find_flag(call, "count_include_pad");
    p->divisor = find_divisor(call);
}

/* --- operands --------------------------------------------------------------------------------- */

/* The strides of (N, C, D, H, W) for a view whose last n axes are spatial. The axes before them are
 * batch and channels, or channels. */
static gd_cuda_planes planes_of(const gd_view *v, int n) {
    gd_cuda_planes planes = {.data = v->data};
    const int lead = v->rank - n;
    planes.strides[0] = lead > 1 ? v->strides[lead - 2] : 0;
    planes.strides[1] = lead > 0 ? v->strides[lead - 1] : 0;
    for (int d = 0; d < n; d++) planes.strides[5 - n + d] = v->strides[lead + d];
    return planes;
}

/* Ranks and dtypes that the kernels support. */
static bool has_planes(const gd_view *x, int n) {
    return gd_cuda_is_float(x->dtype) && n >= 1 && n <= AXES &&
           (x->rank == n + 1 || x->rank == n + 2);
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

static bool is_below_2_31(long long count) { return count < (1ll << 31); }

/* Sizes, and how threads are assigned to elements: `written` is the operand that a kernel writes,
 * of the spatial sizes `sizes`. */
static void assign_threads(gd_cuda_pool *p, const gd_view *x, int n, gd_dtype dtype,
                           const gd_cuda_planes *written, const long long *sizes, int *vector) {
    const int lead = x->rank - n;
    const size_t size = gd_cuda_element_size(dtype);
    p->batch = lead > 1 ? x->dims[0] : 1;
    p->channels = x->dims[lead - 1];
    *vector = GD_CUDA_POOL_VECTOR / (int)size;
    const bool results = is_aligned(&p->y, *vector, size) &&
                         is_aligned(&p->indices, *vector, p->wide_indices ? 8 : 4);
    p->scattered = written == &p->y && !results;
    if (p->channels % *vector != 0 || !is_aligned(&p->x, *vector, size) ||
        !(results || p->scattered))
        *vector = 1;
    p->channels /= *vector;
    p->channels_last = p->channels > 1 && written->strides[1] == 1 && written->strides[4] != 1;
    p->count = p->batch * p->channels * sizes[0] * sizes[1] * sizes[2];
    const long long plane = p->in[0] * p->in[1] * p->in[2];
    p->small = is_below_2_31(p->count * GD_CUDA_POOL_LANES) && is_below_2_31(plane);
    for (int a = 0; a < AXES; a++)
        p->small = p->small && is_below_2_31(p->stride[a]) &&
                   is_below_2_31(p->in[a] + p->padding[a] + p->stride[a]);
}

/* x has the planes that are pooled, y the results. */
static gd_cuda_pool pool_of(const gd_kernel_call *call, const gd_view *x, const gd_view *y,
                            const gd_view *indices, int n) {
    gd_cuda_pool p = {.call = gd_cuda_call_of(call), .x = planes_of(x, n), .y = planes_of(y, n)};
    if (indices && indices->data) {
        p.indices = planes_of(indices, n);
        p.wide_indices = indices->dtype == GD_I64;
    }
    for (int a = 0; a < AXES; a++) {
        const int d = a - AXES + n;
        p.in[a] = d < 0 ? 1 : x->dims[x->rank - n + d];
        p.out[a] = d < 0 ? 1 : y->dims[y->rank - n + d];
    }
    read_windows(call, n, &p);
    return p;
}

/* --- kernels ---------------------------------------------------------------------------------- */

enum { F64, F32, F16, BF16, DTYPES };

static int number_of(gd_dtype dtype) {
    return dtype == GD_F64 ? F64 : dtype == GD_F32 ? F32 : dtype == GD_F16 ? F16 : BF16;
}

#define KERNELS(before, after)                                          \
    {                                                                   \
        [F64] = GD_CUDA_KERNEL("pooling", "gd_" before "_f64" after),   \
        [F32] = GD_CUDA_KERNEL("pooling", "gd_" before "_f32" after),   \
        [F16] = GD_CUDA_KERNEL("pooling", "gd_" before "_f16" after),   \
        [BF16] = GD_CUDA_KERNEL("pooling", "gd_" before "_bf16" after), \
    }
/* Each has a kernel for single elements and one for vectors of channels. */
static gd_cuda_kernel max_kernels[2][DTYPES] = {KERNELS("max_pool", ""),
                                                KERNELS("max_pool", "_channels")};
static gd_cuda_kernel max_2_kernels[2][DTYPES] = {KERNELS("max_pool", "_2"),
                                                  KERNELS("max_pool", "_2_channels")};
static gd_cuda_kernel max_3_kernels[2][DTYPES] = {KERNELS("max_pool", "_3"),
                                                  KERNELS("max_pool", "_3_channels")};
static gd_cuda_kernel max_lanes_kernels[DTYPES] = KERNELS("max_pool", "_lanes");
static gd_cuda_kernel avg_kernels[2][DTYPES] = {KERNELS("avg_pool", ""),
                                                KERNELS("avg_pool", "_channels")};
static gd_cuda_kernel avg_lanes_kernels[2][DTYPES] = {KERNELS("avg_pool", "_lanes"),
                                                      KERNELS("avg_pool", "_channels_lanes")};
static gd_cuda_kernel avg_grad_kernels[2][DTYPES] = {KERNELS("avg_pool_grad", ""),
                                                     KERNELS("avg_pool_grad", "_channels")};
static gd_cuda_kernel max_grad_kernels[2][DTYPES] = {KERNELS("max_pool_grad", ""),
                                                     KERNELS("max_pool_grad", "_channels")};
static gd_cuda_kernel gather_kernels[DTYPES] = KERNELS("pool_gather", "");

/* The elements of the largest window. */
static long long window_elements(const gd_cuda_pool *p) {
    long long count = 1;
    for (int a = 0; a < AXES; a++)
        count *= p->adaptive               ? (p->out[a] > 0 ? p->in[a] / p->out[a] + 1 : 1)
                 : p->kernel[a] < p->in[a] ? p->kernel[a]
                                           : p->in[a];
    return count;
}

/* A warp for each window pays off if the windows are large and too few to fill the device. */
static bool needs_lanes(const gd_kernel_call *call, const gd_cuda_pool *p, int vector) {
    enum { MIN_ELEMENTS = 64, THREADS_PER_PROCESSOR = 1024 };
    const long long elements = window_elements(p);
    return elements >= MIN_ELEMENTS &&
           (elements >= 32 * MIN_ELEMENTS || (vector == 1 && !p->channels_last) ||
            p->count <
                (long long)THREADS_PER_PROCESSOR * gd_cuda_state_of(call->device)->processors);
}

/* The side of square windows without dilation; 0: others. */
static int square_side(const gd_cuda_pool *p) {
    const long long side = p->kernel[1];
    const bool flat = p->in[0] == 1 && p->out[0] == 1 && p->kernel[0] == 1;
    return flat && !p->adaptive && p->kernel[2] == side && p->dilation[1] == 1 &&
                   p->dilation[2] == 1 && p->small && is_below_2_31(p->in[1] * p->in[2])
               ? (int)side
               : 0;
}

/* --- max pooling ------------------------------------------------------------------------------ */

static bool match_forward(const gd_kernel_call *call) {
    return has_planes(&call->in[0], spatial_axes(call));
}

static gd_status run_max_pool(gd_kernel_call *call) {
    const int n = spatial_axes(call), dtype = number_of(call->in[0].dtype);
    gd_cuda_pool p = pool_of(call, &call->in[0], &call->out[0], &call->out[1], n);
    int vector;
    assign_threads(&p, &call->in[0], n, call->in[0].dtype, &p.y, p.out, &vector);
    if (needs_lanes(call, &p, vector)) {
        p.channels *= vector, p.count *= vector;
        return gd_cuda_launch_each(call->device, &max_lanes_kernels[dtype],
                                   p.count * GD_CUDA_POOL_LANES, &p);
    }
    const int side = square_side(&p);
    gd_cuda_kernel *kernel = side == 2   ? &max_2_kernels[vector > 1][dtype]
                             : side == 3 ? &max_3_kernels[vector > 1][dtype]
                                         : &max_kernels[vector > 1][dtype];
    return gd_cuda_launch_each(call->device, kernel, p.count, &p);
}

/* The gradient needs the windows, to find those of an element. */
static bool match_scatter(const gd_kernel_call *call) {
    const gd_pool_scatter_options *o = call->attrs;
    int length = 0;
    return has_planes(&call->in[0], o->dims.rank) && is_index(&call->in[1]) &&
           (o->adaptive || (find_list(call, "kernel", &length) && length == o->dims.rank));
}

/* Outputs that existed before the call must not change if it fails: the indices are checked
 * first. */
static gd_status run_scatter(gd_kernel_call *call) {
    const gd_pool_scatter_options *o = call->attrs;
    const int n = o->dims.rank, dtype = number_of(call->in[0].dtype);
    gd_cuda_pool p = pool_of(call, &call->out[0], &call->in[0], &call->in[1], n);
    int vector;
    assign_threads(&p, &call->out[0], n, call->in[0].dtype, &p.x, p.in, &vector);
    gd_cuda_kernel *kernel = &max_grad_kernels[vector > 1][dtype];
    gd_status status = GD_OK;
    if (call->overwrites) {
        gd_cuda_pool check = p;
        check.x.data = NULL;
        status = gd_cuda_launch_each(call->device, kernel, p.count, &check);
    }
    return status == GD_OK ? gd_cuda_launch_each(call->device, kernel, p.count, &p) : status;
}

static bool match_gather(const gd_kernel_call *call) {
    const gd_pool_gather_options *o = call->attrs;
    return o->axes >= 1 && o->axes <= AXES && has_planes(&call->in[0], (int)o->axes) &&
           is_index(&call->in[1]);
}

static gd_status run_gather(gd_kernel_call *call) {
    const int n = (int)((const gd_pool_gather_options *)call->attrs)->axes;
    gd_cuda_pool p = pool_of(call, &call->in[0], &call->out[0], &call->in[1], n);
    gd_cuda_kernel *kernel = &gather_kernels[number_of(call->in[0].dtype)];
    gd_status status = GD_OK;
    int vector;
    assign_threads(&p, &call->in[0], n, call->in[0].dtype, &p.y, p.out, &vector);
    p.channels *= vector, p.count *= vector;
    if (call->overwrites) {
        gd_cuda_pool check = p;
        check.y.data = NULL;
        status = gd_cuda_launch_each(call->device, kernel, p.count, &check);
    }
    return status == GD_OK ? gd_cuda_launch_each(call->device, kernel, p.count, &p) : status;
}

/* --- average pooling -------------------------------------------------------------------------- */

static gd_status run_avg_pool(gd_kernel_call *call) {
    const int n = spatial_axes(call), dtype = number_of(call->in[0].dtype);
    gd_cuda_pool p = pool_of(call, &call->in[0], &call->out[0], NULL, n);
    int vector;
    assign_threads(&p, &call->in[0], n, call->in[0].dtype, &p.y, p.out, &vector);
    if (needs_lanes(call, &p, vector))
        return gd_cuda_launch_each(call->device, &avg_lanes_kernels[vector > 1][dtype],
                                   p.count * GD_CUDA_POOL_LANES, &p);
    return gd_cuda_launch_each(call->device, &avg_kernels[vector > 1][dtype], p.count, &p);
}

static gd_status run_avg_pool_grad(gd_kernel_call *call) {
    const int n = spatial_axes(call), dtype = number_of(call->in[0].dtype);
    gd_cuda_pool p = pool_of(call, &call->out[0], &call->in[0], NULL, n);
    int vector;
    assign_threads(&p, &call->out[0], n, call->in[0].dtype, &p.x, p.in, &vector);
    return gd_cuda_launch_each(call->device, &avg_grad_kernels[vector > 1][dtype], p.count, &p);
}

#define POOL_OP(name, function, matches)                    \
    GD_CUDA_ADD(name##_kernel, {.op = #name,                \
                                .variant = "cuda",          \
                                .device = "cuda",           \
                                .rank = 10,                 \
                                .flags = GD_KERNEL_CHECKED, \
                                .match = matches,           \
                                .run = function})
POOL_OP(max_pool1d, run_max_pool, match_forward)
POOL_OP(max_pool2d, run_max_pool, match_forward)
POOL_OP(max_pool3d, run_max_pool, match_forward)
POOL_OP(max_pool1d_with_indices, run_max_pool, match_forward)
POOL_OP(max_pool2d_with_indices, run_max_pool, match_forward)
POOL_OP(max_pool3d_with_indices, run_max_pool, match_forward)
POOL_OP(adaptive_max_pool1d, run_max_pool, match_forward)
POOL_OP(adaptive_max_pool2d, run_max_pool, match_forward)
POOL_OP(adaptive_max_pool3d, run_max_pool, match_forward)
POOL_OP(adaptive_max_pool1d_with_indices, run_max_pool, match_forward)
POOL_OP(adaptive_max_pool2d_with_indices, run_max_pool, match_forward)
POOL_OP(adaptive_max_pool3d_with_indices, run_max_pool, match_forward)
POOL_OP(avg_pool1d, run_avg_pool, match_forward)
POOL_OP(avg_pool2d, run_avg_pool, match_forward)
POOL_OP(avg_pool3d, run_avg_pool, match_forward)
POOL_OP(adaptive_avg_pool1d, run_avg_pool, match_forward)
POOL_OP(adaptive_avg_pool2d, run_avg_pool, match_forward)
POOL_OP(adaptive_avg_pool3d, run_avg_pool, match_forward)
POOL_OP(avg_pool_grad, run_avg_pool_grad, match_forward)
POOL_OP(adaptive_avg_pool_grad, run_avg_pool_grad, match_forward)
POOL_OP(pool_scatter, run_scatter, match_scatter)
POOL_OP(pool_gather, run_gather, match_gather)
