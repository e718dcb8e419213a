/* softmax.c - softmax, log_softmax and their gradients; see softmax.h. */
#include "ops/softmax/cuda/softmax.h"

#include "gradus/ops.h"

/* For rows of up to 1024 elements, for longer ones that fit into registers, for all others, and for
 * lines that are not contiguous. */
typedef struct softmax_kernels {
    gd_cuda_kernel warp, block, long_rows, lines;
} softmax_kernels;
#define KERNELS(name)                                          \
    GD_CUDA_KERNEL("softmax/softmax", name "_warp_rows"),      \
        GD_CUDA_KERNEL("softmax/softmax", name "_block_rows"), \
        GD_CUDA_KERNEL("softmax/softmax", name "_long_rows"),  \
        GD_CUDA_KERNEL("softmax/softmax", name "_lines")
static gd_cuda_kernel grad_warp_rows_16 =
    GD_CUDA_KERNEL("softmax/softmax", "gd_softmax_grad_warp_rows_16"); /* f16 and bf16 */
static softmax_kernels forward_kernels = {KERNELS("gd_softmax")},
                       grad_kernels = {KERNELS("gd_softmax_grad")};

/* A block of MAX_THREADS keeps a row in registers without spilling them. */
enum { WARP_THREADS = 256, MAX_THREADS = 512, LONG_THREADS = 512, MAX_BLOCKS = 1 << 20 };

static long long at_most(long long a, long long b) { return a < b ? a : b; }

static gd_status queue_lines(const gd_kernel_call *call, softmax_kernels *kernels,
                             gd_cuda_softmax *p) {
    const int size = (int)gd_cuda_element_size((gd_dtype)p->dtype);
    p->call = gd_cuda_call_of(call);
    if (p->outer * p->inner == 0 || (p->n == 0 && p->kind != GD_CUDA_LOGSUMEXP)) return GD_OK;
    if (p->inner > 1)
        return gd_cuda_launch_each(call->device, &kernels->lines, p->outer * p->inner, p);
    p->vector = p->n * size % 16 == 0 && gd_cuda_is_aligned(p->x) && gd_cuda_is_aligned(p->out) &&
                (!p->y || gd_cuda_is_aligned(p->y));
    const long long kept = p->vector ? 32 : 8; /* elements that a thread keeps */
    if (p->n <= 32 * kept) {
        const int rows = WARP_THREADS / 32;
        gd_cuda_kernel *warp =
            kernels == &grad_kernels && size == 2 ? &grad_warp_rows_16 : &kernels->warp;
        return gd_cuda_launch(call->device, warp, at_most((p->outer + rows - 1) / rows, MAX_BLOCKS),
                              WARP_THREADS, p);
    }
    int threads = 64;
    while (threads < MAX_THREADS && threads * kept < p->n) threads *= 2;
    const bool fits = threads * kept >= p->n;
    return gd_cuda_launch(call->device, fits ? &kernels->block : &kernels->long_rows,
                          at_most(p->outer, MAX_BLOCKS), fits ? threads : LONG_THREADS, p);
}

/* Lines along an axis of x. */
static gd_cuda_softmax describe_lines(const gd_view *x, int64_t axis, gd_cuda_softmax_kind kind) {
    gd_cuda_softmax p = {.kind = kind, .dtype = (int)x->dtype, .outer = 1, .n = 1, .inner = 1};
    const int at = (int)(axis < 0 ? axis + x->rank : axis);
    for (int d = 0; d < x->rank; d++)
        *(d < at ? &p.outer : d == at ? &p.n : &p.inner) *= x->dims[d];
    return p;
}

static gd_status run_forward(const gd_kernel_call *call, int64_t axis, gd_cuda_softmax_kind kind) {
    gd_cuda_softmax p = describe_lines(&call->in[0], axis, kind);
    p.x = call->in[0].data;
    p.out = call->out[0].data;
    return queue_lines(call, &forward_kernels, &p);
}
static gd_status run_grad(const gd_kernel_call *call, int64_t axis, gd_cuda_softmax_kind kind) {
    gd_cuda_softmax p = describe_lines(&call->in[0], axis, kind);
    p.x = call->in[0].data;
    p.y = call->in[1].data;
    p.out = call->out[0].data;
    return queue_lines(call, &grad_kernels, &p);
}

static gd_status run_softmax(gd_kernel_call *call) {
    return run_forward(call, ((const gd_softmax_options *)call->attrs)->axis, GD_CUDA_SOFTMAX);
}
static gd_status run_log_softmax(gd_kernel_call *call) {
    return run_forward(call, ((const gd_log_softmax_options *)call->attrs)->axis,
                       GD_CUDA_LOG_SOFTMAX);
}
static gd_status run_softmax_grad(gd_kernel_call *call) {
    return run_grad(call, ((const gd_softmax_grad_options *)call->attrs)->axis, GD_CUDA_SOFTMAX);
}
static gd_status run_log_softmax_grad(gd_kernel_call *call) {
    return run_grad(call, ((const gd_log_softmax_grad_options *)call->attrs)->axis,
                    GD_CUDA_LOG_SOFTMAX);
}

gd_status gd_cuda_queue_logsumexp(const gd_kernel_call *call, gd_cuda_softmax *p) {
    p->kind = GD_CUDA_LOGSUMEXP;
    return queue_lines(call, &forward_kernels, p);
}

/*kernel softmax.rows, log_softmax.rows, softmax_grad.rows, log_softmax_grad.rows  checked
 *        contiguous  run run_OP
 * A warp or a block computes a row.
 */

#include "ops/softmax/cuda/softmax.gen.h"
