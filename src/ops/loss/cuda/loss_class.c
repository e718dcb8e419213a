/* loss_class.c - cross-entropy and negative log likelihood of class numbers, and their gradients. */
#include "ops/loss/cuda/loss_class_args.h"

#include <stdio.h>

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"
#include "ops/loss/loss_class.h"

#define LOSS_KERNEL(name) GD_CUDA_KERNEL("loss/loss_class", "gd_" name)
static gd_cuda_kernel check_targets = LOSS_KERNEL("check_targets"),
                      loss_total = LOSS_KERNEL("loss_total"),
                      entropy_block_rows = LOSS_KERNEL("cross_entropy_block_rows"),
                      entropy_warp_rows = LOSS_KERNEL("cross_entropy_warp_rows"),
                      entropy_lines = LOSS_KERNEL("cross_entropy_lines"),
                      entropy_with_grad = GD_CUDA_KERNEL_WAITING("loss/loss_class",
                                                                 "gd_cross_entropy_with_grad", 0),
                      entropy_of_threads = GD_CUDA_KERNEL_WAITING("loss/loss_class",
                                                                  "gd_cross_entropy_of_threads", 0),
                      likelihood_terms = LOSS_KERNEL("likelihood_terms"),
                      entropy_grad_rows = LOSS_KERNEL("cross_entropy_grad_rows"),
                      entropy_grad_elements = LOSS_KERNEL("cross_entropy_grad_elements"),
                      likelihood_grad_elements = LOSS_KERNEL("likelihood_grad_elements");

enum {
    ONE_BLOCK_SCORES = 1 << 14, /* a problem with fewer scores is computed by one block */
    WARP_CLASSES = 1024,        /* rows of more scores are read by a block */
    WARP_THREADS = 256,
    MAX_BLOCKS = 1 << 20,
};

/* The scores have the shape `x`: outer, classes, inner. */
static gd_cuda_class_loss scores_of(const gd_kernel_call *call, const gd_view *x,
                                    const gd_view *target, gd_view weight, int64_t ignore,
                                    gd_word reduction) {
    const gd_class_shape shape = gd_class_shape_of(x->rank, x->dims);
    return (gd_cuda_class_loss){.call = gd_cuda_call_of(call),
                                .x = x->data,
                                .dtype = (int)x->dtype,
                                .target = target->data,
                                .target_dtype = (int)target->dtype,
                                .weight = weight.data,
                                .weight_dtype = (int)weight.dtype,
                                .outer = shape.outer,
                                .classes = shape.classes,
                                .inner = shape.inner,
                                .ignore = ignore,
                                .mean = reduction == GD_MEAN,
                                .each = reduction == GD_NONE};
}

static long long position_count(const gd_cuda_class_loss *p) { return p->outer * p->inner; }

/* Kernels check the targets while they write. Outputs that existed before the call must not change
 * if it fails, so a kernel that only checks runs first. */
static gd_status check_first(const gd_kernel_call *call, const gd_cuda_class_loss *p) {
    if (!call->overwrites) return GD_OK;
    return gd_cuda_launch_each(call->device, &check_targets, position_count(p), p);
}

/* --- losses ----------------------------------------------------------------------------------- */

/* Whether one block computes all terms and adds them. */
static bool takes_one_block(const gd_view *x) { return gd_cuda_count(x) <= ONE_BLOCK_SCORES; }
static size_t loss_workspace(const gd_kernel_call *call) {
    const gd_class_shape s = gd_class_shape_of(call->in[0].rank, call->in[0].dims);
    return takes_one_block(&call->in[0]) ? 0
                                         : (size_t)(s.outer * s.inner) * 2 * sizeof(double) + 16;
}

/* Queues the kernel of the terms, for `items` items (threads or warps or blocks) of which a block
 * has `in_block`; then the one that adds them. */
static gd_status queue_loss(const gd_kernel_call *call, gd_cuda_class_loss *p,
                            gd_cuda_kernel *kernel, long long items, int in_block, int threads) {
    gd_status status = check_first(call, p);
    if (status != GD_OK) return status;
    if (takes_one_block(&call->in[0])) {
        const long long needed = items * (threads / in_block), most = GD_CUDA_TOTAL_THREADS;
        return gd_cuda_launch(
            call->device, kernel, 1,
            needed < most ? (int)(needed + 31) / 32 * 32 + 32 * (needed == 0) : (int)most, p);
    }
    p->terms = call->workspace;
    long long blocks = (items + in_block - 1) / in_block;
    status =
        gd_cuda_launch(call->device, kernel, blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, threads, p);
    if (status != GD_OK || (p->each && !p->total)) return status;
    return gd_cuda_launch(call->device, &loss_total, 1, GD_CUDA_TOTAL_THREADS, p);
}

static void set_loss(gd_cuda_class_loss *p, const gd_view *y) {
    p->y = y->data;
    p->y_dtype = (int)y->dtype;
}

/* The weights have the dtype of the scores. */
static bool match_weights(const gd_kernel_call *call, int weight, gd_dtype scores) {
    const gd_view w = gd_optional_view(call, weight);
    return !w.data || w.dtype == scores;
}

/* Whether shift and scale have the dtype in which the kernels compute. */
static bool match_statistics(const gd_view *statistics, gd_dtype scores) {
    const gd_dtype wide = gd_cuda_wide_dtype(scores);
    return statistics[0].dtype == wide && statistics[1].dtype == wide;
}

/* The loss of 16-bit scores may be f32. */
static bool match_index_cross_entropy(const gd_kernel_call *call) {
    const gd_dtype x = call->in[0].dtype, y = call->out[0].dtype;
    return match_weights(call, 2, x) && match_statistics(call->out + 1, x) &&
           call->out[3].dtype == GD_F64 && (y == x || (gd_cuda_is_narrow(x) && y == GD_F32));
}

/* Whether a thread reads all scores of a position. */
static bool reads_lines(const gd_cuda_class_loss *p) {
    return p->inner != 1 || p->classes <= GD_CUDA_LINE_CLASSES;
}

/* Whether a block reads the scores of a position; otherwise a warp. */
static bool reads_blocks(const gd_kernel_call *call, const gd_cuda_class_loss *p) {
    return p->classes > WARP_CLASSES && !takes_one_block(&call->in[0]);
}

static gd_cuda_class_loss cross_entropy_of(const gd_kernel_call *call) {
    const gd_index_cross_entropy_options *o = call->attrs;
    return scores_of(call, &call->in[0], &call->in[1], gd_optional_view(call, 2), o->ignore_index,
                     o->reduction);
}

static gd_status run_index_cross_entropy(gd_kernel_call *call) {
    const gd_index_cross_entropy_options *o = call->attrs;
    gd_cuda_class_loss p = cross_entropy_of(call);
    p.smoothing = o->label_smoothing;
    set_loss(&p, &call->out[0]);
    p.shift = call->out[1].data;
    p.scale = call->out[2].data;
    p.total = call->out[3].data;
    if (reads_lines(&p))
        return queue_loss(call, &p, &entropy_lines, position_count(&p), WARP_THREADS, WARP_THREADS);
    if (reads_blocks(call, &p))
        return queue_loss(call, &p, &entropy_block_rows, p.outer, 1, GD_CUDA_LOSS_THREADS);
    return queue_loss(call, &p, &entropy_warp_rows, p.outer, WARP_THREADS / 32, WARP_THREADS);
}

static void describe_index_cross_entropy(const gd_kernel_call *call, char *text, size_t size) {
    const gd_cuda_class_loss p = cross_entropy_of(call);
    snprintf(text, size, "a %s for each row%s",
             reads_lines(&p)          ? "thread"
             : reads_blocks(call, &p) ? "block"
                                      : "warp",
             takes_one_block(&call->in[0]) ? ", all in one block" : "");
}

static gd_status run_nll_loss(gd_kernel_call *call) {
    const gd_nll_loss_options *o = call->attrs;
    gd_cuda_class_loss p = scores_of(call, &call->in[0], &call->in[1], gd_optional_view(call, 2),
                                     o->ignore_index, o->reduction);
    set_loss(&p, &call->out[0]);
    p.total = call->out[1].data;
    return queue_loss(call, &p, &likelihood_terms, position_count(&p), WARP_THREADS, WARP_THREADS);
}

/* --- gradients -------------------------------------------------------------------------------- */

static void set_gradients(gd_cuda_class_loss *p, const gd_view *gy, const gd_view *total,
                          const gd_view *gx) {
    p->gy = gy->data;
    p->gy_dtype = (int)gy->dtype;
    p->total_of = total->data;
    p->total_dtype = (int)total->dtype;
    p->gx = gx->data;
}

/* gy may have any dtype. */
static bool match_index_cross_entropy_grad(const gd_kernel_call *call) {
    const gd_dtype x = call->in[1].dtype;
    return match_weights(call, 6, x) && match_statistics(call->in + 3, x) &&
           call->out[0].dtype == x;
}

static gd_cuda_class_loss cross_entropy_grad_of(const gd_kernel_call *call) {
    const gd_index_cross_entropy_grad_options *o = call->attrs;
    return scores_of(call, &call->in[1], &call->in[2], gd_optional_view(call, 6), o->ignore_index,
                     o->reduction);
}

/* Whether a block writes a row of the gradient, with vectors; otherwise a thread writes an element. */
static bool grad_reads_rows(const gd_kernel_call *call, const gd_cuda_class_loss *p) {
    const bool aligned = (((uintptr_t)call->in[1].data ^ (uintptr_t)call->out[0].data) & 15) == 0;
    return p->inner == 1 && p->classes >= GD_CUDA_LOSS_THREADS && aligned;
}

static void describe_index_cross_entropy_grad(const gd_kernel_call *call, char *text, size_t size) {
    const gd_cuda_class_loss p = cross_entropy_grad_of(call);
    snprintf(text, size, "a %s",
             grad_reads_rows(call, &p) ? "block for each row" : "thread for each element");
}

static gd_status run_index_cross_entropy_grad(gd_kernel_call *call) {
    const gd_index_cross_entropy_grad_options *o = call->attrs;
    gd_cuda_class_loss p = cross_entropy_grad_of(call);
    set_gradients(&p, &call->in[0], &call->in[5], &call->out[0]);
    p.smoothing = o->label_smoothing;
    p.shift = call->in[3].data;
    p.scale = call->in[4].data;
    const gd_status status = check_first(call, &p);
    if (status != GD_OK) return status;
    if (grad_reads_rows(call, &p))
        return gd_cuda_launch(call->device, &entropy_grad_rows,
                              p.outer < MAX_BLOCKS ? p.outer : MAX_BLOCKS, GD_CUDA_LOSS_THREADS,
                              &p);
    return gd_cuda_launch_each(call->device, &entropy_grad_elements, gd_cuda_count(&call->out[0]),
                               &p);
}

/* Small problems, which one block computes. */
static bool match_with_grad(const gd_kernel_call *call) { return takes_one_block(&call->in[1]); }

/* The total, then shift and scale of each position, which are at most f64. */
static size_t with_grad_workspace(const gd_kernel_call *call) {
    const gd_class_shape s = gd_class_shape_of(call->in[1].rank, call->in[1].dims);
    return sizeof(double) + (size_t)(s.outer * s.inner) * 2 * sizeof(double);
}

static gd_cuda_class_loss cross_entropy_with_grad_of(const gd_kernel_call *call) {
    const gd_index_cross_entropy_with_grad_options *o = call->attrs;
    return scores_of(call, &call->in[1], &call->in[2], gd_optional_view(call, 3), o->ignore_index,
                     o->reduction);
}

/* Whether each position has a thread, which keeps its scores. */
static bool takes_threads(const gd_cuda_class_loss *p) {
    return p->classes <= GD_CUDA_LINE_CLASSES && position_count(p) > 0 &&
           position_count(p) <= GD_CUDA_LINE_THREADS;
}

static void describe_index_cross_entropy_with_grad(const gd_kernel_call *call, char *text,
                                                   size_t size) {
    const gd_cuda_class_loss p = cross_entropy_with_grad_of(call);
    snprintf(text, size, "a %s for each row",
             takes_threads(&p) || reads_lines(&p) ? "thread" : "warp");
}

static gd_status run_index_cross_entropy_with_grad(gd_kernel_call *call) {
    const gd_index_cross_entropy_with_grad_options *o = call->attrs;
    gd_cuda_class_loss p = cross_entropy_with_grad_of(call);
    double *statistics = call->workspace;
    const gd_view total = {.data = statistics, .dtype = GD_F64};
    set_gradients(&p, &call->in[0], &total, &call->out[1]);
    p.smoothing = o->label_smoothing;
    set_loss(&p, &call->out[0]);
    p.total = statistics;
    p.shift = statistics + 1;
    p.scale = statistics + 1 + position_count(&p);
    p.lines = reads_lines(&p);
    const gd_status status = check_first(call, &p);
    if (status != GD_OK) return status;
    const long long scores = gd_cuda_count(&call->in[1]), positions = position_count(&p),
                    most = GD_CUDA_TOTAL_THREADS;
    if (takes_threads(&p)) {
        p.shift = p.scale = NULL;
        p.total = NULL;
        return gd_cuda_launch(call->device, &entropy_of_threads, 1, (int)(positions + 31) / 32 * 32,
                              &p);
    }
    return gd_cuda_launch(
        call->device, &entropy_with_grad, 1,
        scores < most ? (int)(scores + 31) / 32 * 32 + 32 * (scores == 0) : (int)most, &p);
}

static gd_status run_nll_loss_grad(gd_kernel_call *call) {
    const gd_nll_loss_grad_options *o = call->attrs;
    gd_cuda_class_loss p = scores_of(call, &call->out[0], &call->in[1], gd_optional_view(call, 3),
                                     o->ignore_index, o->reduction);
    set_gradients(&p, &call->in[0], &call->in[2], &call->out[0]);
    const gd_status status = check_first(call, &p);
    if (status != GD_OK) return status;
    return gd_cuda_launch_each(call->device, &likelihood_grad_elements,
                               gd_cuda_count(&call->out[0]), &p);
}

/*kernel index_cross_entropy.rows  checked  contiguous  mixed  run run_OP  match match_OP
 *        workspace loss_workspace  describe describe_OP
 * Log-softmax and loss of a row by a warp or a block; then the sum.
 */
/*kernel nll_loss.rows  checked  contiguous  run run_OP  workspace loss_workspace
 * The losses of all rows; then the sum.
 */
/*kernel index_cross_entropy_grad.rows  checked  contiguous  mixed  run run_OP  match match_OP
 *        describe describe_OP
 * Softmax and the gradient: a block writes a row, or a thread an element.
 */
/*kernel nll_loss_grad.rows  checked  contiguous  run run_OP
 * The gradient of each row.
 */
/*kernel index_cross_entropy_with_grad.block  checked  contiguous  run run_OP  match match_with_grad
 *        workspace with_grad_workspace  describe describe_OP
 * Loss and gradient of a small batch by one block, in one launch.
 */

#include "ops/loss/cuda/loss_class.gen.h"
