/* reduce_logsumexp.c - logsumexp over axes that follow each other, by the kernels of softmax. */
#include "gradus/ops.h"
#include "ops/softmax/cuda/softmax.h"

/* The reduced axes of x, if they follow each other: [*first, *first + *count). */
static bool reduced_range(const gd_kernel_call *call, int *first, int *count) {
    const gd_shape *axis = &((const gd_logsumexp_options *)call->attrs)->axis;
    const int rank = call->in[0].rank;
    uint32_t mask = axis->form == -1 ? (1u << rank) - 1 : 0;
    for (int i = 0; axis->form != -1 && i < axis->rank && rank > 0; i++)
        mask |= 1u << (axis->at[i] < 0 ? axis->at[i] + rank : axis->at[i]);
    *first = mask ? __builtin_ctz(mask) : 0;
    *count = __builtin_popcount(mask);
    return mask >> *first == (*count ? (1u << *count) - 1 : 0);
}
static bool logsumexp_match(const gd_kernel_call *call) {
    int first, count;
    return reduced_range(call, &first, &count);
}
static gd_cuda_softmax logsumexp_of(const gd_kernel_call *call) {
    const gd_view *x = &call->in[0];
    int first, count;
    reduced_range(call, &first, &count);
    gd_cuda_softmax p = {.dtype = (int)x->dtype,
                         .outer = 1,
                         .n = 1,
                         .inner = 1,
                         .x = x->data,
                         .out = call->out[0].data};
    for (int d = 0; d < x->rank; d++)
        *(d < first ? &p.outer : d < first + count ? &p.n : &p.inner) *= x->dims[d];
    return p;
}

static gd_status run_logsumexp(gd_kernel_call *call) {
    gd_cuda_softmax p = logsumexp_of(call);
    return gd_cuda_queue_logsumexp(call, &p);
}
static void describe_logsumexp(const gd_kernel_call *call, char *text, size_t size) {
    gd_cuda_describe_softmax(logsumexp_of(call), text, size);
}

/*kernel logsumexp.rows  dtypes f16 bf16 f32 f64  checked  contiguous  run run_logsumexp
 *        match logsumexp_match  describe describe_logsumexp
 * Axes that follow each other, by the kernels of softmax.
 */

#include "ops/reduce/cuda/reduce_logsumexp.gen.h"
