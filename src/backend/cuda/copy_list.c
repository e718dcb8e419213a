/* copy_list.c - copies with conversion for all entries of a list of tensors: casts of parameters,
 * and statistics of batch norms, which plans combine (gd_each in dispatch/call.h).
 *
 * Entries that lie alike in memory, or of which one has channels last, are copied by one launch for
 * GD_CUDA_COPY_ENTRIES of them. The others are single copies.
 */
#include "backend/cuda/copy_list_args.h"

#include "backend/cuda/expression.h"

static gd_cuda_kernel copy_list = GD_CUDA_KERNEL("copy_list", "gd_copy_list");

/* --- entries ---------------------------------------------------------------------------------- */

/* Whether the elements lie in this order of the axes, without gaps. */
static bool has_order(const gd_view *v, bool channels_last) {
    int64_t stride = 1;
    if (channels_last && v->rank < 3) return false;
    for (int k = 0; k < v->rank; k++) { /* axes from the innermost */
        const int d = !channels_last     ? v->rank - 1 - k
                      : k == 0           ? 1
                      : k == v->rank - 1 ? 0
                                         : v->rank - k;
        if (v->dims[d] > 1 && v->strides[d] != stride) return false;
        stride *= v->dims[d];
    }
    return true;
}

static bool same_dims(const gd_view *a, const gd_view *b) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

static bool is_short_float(gd_dtype dtype) {
    return dtype == GD_F32 || dtype == GD_BF16 || dtype == GD_F16;
}

/* Describes a copy. False: it is a single copy. */
static bool describe_entry(const gd_view *to, const gd_view *from, gd_cuda_copy_entry *e) {
    *e = (gd_cuda_copy_entry){.to = to->data,
                              .from = from->data,
                              .rows = gd_cuda_count(to),
                              .to_dtype = (unsigned char)to->dtype,
                              .from_dtype = (unsigned char)from->dtype,
                              .order = GD_CUDA_COPY_FLAT};
    if (!same_dims(to, from)) return false;
    if ((has_order(to, false) && has_order(from, false)) ||
        (has_order(to, true) && has_order(from, true)))
        return true;
    const bool to_last = has_order(from, false) && has_order(to, true);
    if (!to_last && !(has_order(from, true) && has_order(to, false))) return false;
    int64_t taps = 1;
    for (int d = 2; d < to->rank; d++) taps *= to->dims[d];
    if (!is_short_float(to->dtype) || !is_short_float(from->dtype) || taps > GD_CUDA_COPY_TILE ||
        to->dims[1] > INT32_MAX / GD_CUDA_COPY_TILE)
        return false;
    e->order = to_last ? GD_CUDA_COPY_TO_LAST : GD_CUDA_COPY_FROM_LAST;
    e->rows = to->dims[0];
    e->channels = (int)to->dims[1];
    e->taps = (int)taps;
    e->tile = GD_CUDA_COPY_TILE / e->taps;
    if (e->tile > e->channels) e->tile = e->channels;
    return true;
}

static int64_t count_blocks(const gd_cuda_copy_entry *e) {
    if (e->order == GD_CUDA_COPY_FLAT) return (e->rows + GD_CUDA_COPY_TILE - 1) / GD_CUDA_COPY_TILE;
    return e->rows * ((e->channels + e->tile - 1) / e->tile);
}

/* --- the list --------------------------------------------------------------------------------- */

/* A launch that is being filled. */
typedef struct copy_batch {
    gd_cuda_copy_list arguments;
    int64_t blocks;
} copy_batch;

static gd_status launch_batch(const gd_kernel_call *call, copy_batch *b) {
    gd_status status = GD_OK;
    if (b->arguments.count > 0)
        status = gd_cuda_launch(call->device, &copy_list, b->blocks, GD_CUDA_COPY_THREADS,
                                &b->arguments);
    b->arguments.count = 0;
    b->blocks = 0;
    return status;
}

static gd_status add_entry(const gd_kernel_call *call, copy_batch *b, gd_cuda_copy_entry e) {
    const int64_t blocks = count_blocks(&e);
    gd_status status = GD_OK;
    if (blocks == 0) return GD_OK;
    if (b->arguments.count == GD_CUDA_COPY_ENTRIES || b->blocks + blocks > INT32_MAX)
        status = launch_batch(call, b);
    e.first = (unsigned)b->blocks;
    b->arguments.entries[b->arguments.count++] = e;
    b->blocks += blocks;
    return status;
}

static gd_status run_list(gd_kernel_call *call) {
    copy_batch b = {.blocks = 0};
    gd_status status = GD_OK;
    b.arguments.call = gd_cuda_call_of(call);
    for (int i = 0; i < call->each && status == GD_OK; i++) {
        gd_cuda_copy_entry e;
        const gd_view *to = &call->out[i], *from = &call->in[i];
        const bool listed = describe_entry(to, from, &e) && count_blocks(&e) <= INT32_MAX;
        status = listed ? add_entry(call, &b, e) : gd_cuda_queue_copy(call, to, from);
    }
    return status == GD_OK ? launch_batch(call, &b) : status;
}

/* Ops whose result is their only input: clone and cast. */
static bool match_list(const gd_kernel_call *call) {
    const gd_cuda_op *x = call->each > 1 ? gd_cuda_op_of(call->op) : NULL;
    if (!x || call->n_in != call->each || call->n_out != call->each) return false;
    const gd_ir *ir = x->expression.ir;
    return ir->n_vars == 1 && ir->n_outputs == 1 && ir->nodes[ir->output[0]].code == GD_IR_VAR;
}

/*kernel elementwise_list.copies  rank 20  checked  run run_list  match match_list
 * Casts and copies of the entries of a list, many in one launch.
 */

#include "backend/cuda/copy_list.gen.h"
