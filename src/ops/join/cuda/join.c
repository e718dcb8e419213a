/* join.c - concatenation: cat and stack. */
#include "ops/join/cuda/join_args.h"

#include "backend/cuda/walk.h"
#include "gradus/ops.h"

static gd_cuda_kernel join_pieces = GD_CUDA_KERNEL("join/join", "gd_join_pieces");

/* --- cat and stack ---------------------------------------------------------------------------- */

/* The bytes of x in a row of y: its dimensions from `axis` on. */
static long long row_bytes(const gd_view *x, int axis) {
    long long bytes = (long long)gd_cuda_element_size(x->dtype);
    for (int d = axis; d < x->rank; d++) bytes *= x->dims[d];
    return bytes;
}

/* Whether the inputs can be copied as rows of bytes: contiguous and of the dtype of y. */
static bool are_rows(const gd_kernel_call *call, int rank) {
    const gd_view *y = &call->out[0];
    bool rows = gd_cuda_is_contiguous(y);
    for (int i = 0; i < call->n_in && rows; i++)
        rows = call->in[i].rank != rank ||
               (call->in[i].dtype == y->dtype && gd_cuda_is_contiguous(&call->in[i]));
    return rows;
}

/* Copies inputs of this rank to adjacent columns of y. The rows are the dimensions before `axis`.
 */
static gd_status queue_rows(const gd_kernel_call *call, int rank, int axis) {
    const gd_view *y = &call->out[0];
    long long rows = 1, total = 0, mixed = (long long)(uintptr_t)y->data;
    for (int d = 0; d < axis; d++) rows *= y->dims[d];
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].rank != rank) continue;
        const long long bytes = row_bytes(&call->in[i], axis);
        if (bytes > 0) mixed |= (long long)(uintptr_t)call->in[i].data | bytes;
        total += bytes;
    }
    if (rows == 0 || total == 0) return GD_OK;
    gd_cuda_join p = {.call = gd_cuda_call_of(call), .y = y->data, .rows = rows};
    p.unit = gd_cuda_copy_unit(mixed);
    p.row = total / p.unit;
    long long start = 0, largest = 0; /* units of the largest piece */
    gd_status status = GD_OK;
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        const long long units =
            call->in[i].rank == rank ? row_bytes(&call->in[i], axis) / p.unit : 0;
        if (units > 0) {
            p.pieces[p.count].x = call->in[i].data;
            p.pieces[p.count].start = start;
            p.pieces[p.count].small = rows * units < INT32_MAX;
            if (p.pieces[p.count].small) p.pieces[p.count].by = gd_cuda_divisor_of(units);
            p.pieces[p.count++].end = start += units;
            if (rows * units > largest) largest = rows * units;
        }
        if (p.count == 0 || (p.count < GD_CUDA_PIECES && i + 1 < call->n_in)) continue;
        status = gd_cuda_launch_each(call->device, &join_pieces, largest, &p);
        p.count = 0;
        largest = 0;
    }
    return status;
}

static gd_status run_cat(gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    const gd_cat_options *o = call->attrs;
    const int axis = gd_cuda_axis(o->axis, y->rank);
    if (are_rows(call, y->rank)) return queue_rows(call, y->rank, axis);
    gd_view part = *y;
    gd_status status = GD_OK;
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        const gd_view *x = &call->in[i];
        if (x->rank != y->rank) continue; /* an empty tensor */
        part.dims[axis] = x->dims[axis];
        if (gd_cuda_count(x) > 0) status = gd_cuda_queue_copy(call, &part, x);
        part.data = (char *)part.data +
                    x->dims[axis] * part.strides[axis] * (int64_t)gd_cuda_element_size(y->dtype);
    }
    return status;
}

static gd_status run_stack(gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    const gd_stack_options *o = call->attrs;
    const int axis = gd_cuda_axis(o->axis, y->rank);
    if (are_rows(call, y->rank - 1)) return queue_rows(call, y->rank - 1, axis);
    gd_view part = *y; /* y without the new axis */
    gd_status status = GD_OK;
    part.rank--;
    for (int d = axis; d < part.rank; d++) {
        part.dims[d] = y->dims[d + 1];
        part.strides[d] = y->strides[d + 1];
    }
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        if (gd_cuda_count(&part) > 0) status = gd_cuda_queue_copy(call, &part, &call->in[i]);
        part.data = (char *)part.data + y->strides[axis] * (int64_t)gd_cuda_element_size(y->dtype);
    }
    return status;
}

/*kernel cat.rows  checked  strided  run run_OP
 * Copies the operands, as vectors where they are aligned; one launch for many.
 */
/*kernel stack.rows  checked  run run_OP
 * As cat, along a new axis.
 */

#include "ops/join/cuda/join.gen.h"
