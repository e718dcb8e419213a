/* softmax.c - softmax, log_softmax and their gradients; see softmax.h. */
#include "ops/softmax/cuda/softmax.h"

#include <stdio.h>

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

/* How lines are computed. */
typedef enum { BY_THREADS, BY_WARPS, BY_BLOCKS, BY_LONG_BLOCKS } softmax_form;
static const char *const form_texts[] = {"a thread for each line", "a warp for each row",
                                         "a block for each row",
                                         "a block for each row, which it reads again"};

/* The form for lines of p, and the threads of a block. */
static softmax_form choose_form(gd_cuda_softmax *p, int *threads) {
    const int size = (int)gd_cuda_element_size((gd_dtype)p->dtype);
    if (p->inner > 1) return BY_THREADS;
    p->vector = p->n * size % 16 == 0 && gd_cuda_is_aligned(p->x) && gd_cuda_is_aligned(p->out) &&
                (!p->y || gd_cuda_is_aligned(p->y));
    const long long kept = p->vector ? 32 : 8; /* elements that a thread keeps */
    *threads = WARP_THREADS;
    if (p->n <= 32 * kept) return BY_WARPS;
    *threads = 64;
    while (*threads < MAX_THREADS && *threads * kept < p->n) *threads *= 2;
    if (*threads * kept >= p->n) return BY_BLOCKS;
    *threads = LONG_THREADS;
    return BY_LONG_BLOCKS;
}

static gd_status queue_lines(const gd_kernel_call *call, softmax_kernels *kernels,
                             gd_cuda_softmax *p) {
    const int size = (int)gd_cuda_element_size((gd_dtype)p->dtype), rows = WARP_THREADS / 32;
    int threads;
    p->call = gd_cuda_call_of(call);
    if (p->outer * p->inner == 0 || (p->n == 0 && p->kind != GD_CUDA_LOGSUMEXP)) return GD_OK;
    const softmax_form form = choose_form(p, &threads);
    if (form == BY_THREADS)
        return gd_cuda_launch_each(call->device, &kernels->lines, p->outer * p->inner, p);
    if (form == BY_WARPS) {
        gd_cuda_kernel *warp =
            kernels == &grad_kernels && size == 2 ? &grad_warp_rows_16 : &kernels->warp;
        return gd_cuda_launch(call->device, warp, at_most((p->outer + rows - 1) / rows, MAX_BLOCKS),
                              threads, p);
    }
    return gd_cuda_launch(call->device, form == BY_BLOCKS ? &kernels->block : &kernels->long_rows,
                          at_most(p->outer, MAX_BLOCKS), threads, p);
}

void gd_cuda_describe_softmax(gd_cuda_softmax p, char *text, size_t size) {
    int threads;
    snprintf(text, size, "%s", form_texts[choose_form(&p, &threads)]);
}

/* Lines along an axis of x. */
static gd_cuda_softmax lines_of(const gd_view *x, int64_t axis, gd_cuda_softmax_kind kind) {
    gd_cuda_softmax p = {.kind = kind, .dtype = (int)x->dtype, .outer = 1, .n = 1, .inner = 1};
    const int at = (int)(axis < 0 ? axis + x->rank : axis);
    for (int d = 0; d < x->rank; d++)
        *(d < at ? &p.outer : d == at ? &p.n : &p.inner) *= x->dims[d];
    return p;
}

/* gy, or x, is the first input; of a gradient, y is the second. */
static gd_cuda_softmax softmax_of(const gd_kernel_call *call, int64_t axis,
                                  gd_cuda_softmax_kind kind) {
    gd_cuda_softmax p = lines_of(&call->in[0], axis, kind);
    p.x = call->in[0].data;
    if (call->n_in > 1) p.y = call->in[1].data;
    p.out = call->out[0].data;
    return p;
}

/* The kernel of op `name`. */
#define SOFTMAX(name, kind, kernels)                                                               \
    static gd_status run_##name(gd_kernel_call *call) {                                            \
        gd_cuda_softmax p =                                                                        \
            softmax_of(call, ((const gd_##name##_options *)call->attrs)->axis, kind);              \
        return queue_lines(call, &kernels, &p);                                                    \
    }                                                                                              \
    static void describe_##name(const gd_kernel_call *call, char *text, size_t size) {             \
        gd_cuda_describe_softmax(                                                                  \
            softmax_of(call, ((const gd_##name##_options *)call->attrs)->axis, kind), text, size); \
    }
SOFTMAX(softmax, GD_CUDA_SOFTMAX, forward_kernels)
SOFTMAX(log_softmax, GD_CUDA_LOG_SOFTMAX, forward_kernels)
SOFTMAX(softmax_grad, GD_CUDA_SOFTMAX, grad_kernels)
SOFTMAX(log_softmax_grad, GD_CUDA_LOG_SOFTMAX, grad_kernels)

gd_status gd_cuda_queue_logsumexp(const gd_kernel_call *call, gd_cuda_softmax *p) {
    p->kind = GD_CUDA_LOGSUMEXP;
    return queue_lines(call, &forward_kernels, p);
}

/*kernel softmax.rows, log_softmax.rows, softmax_grad.rows, log_softmax_grad.rows  checked
 *        contiguous  run run_OP  describe describe_OP
 * A warp or a block computes a row, a thread a line that is not contiguous.
 */

#include "ops/softmax/cuda/softmax.gen.h"
