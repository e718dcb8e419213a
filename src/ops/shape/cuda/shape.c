/* shape.c - reshapes that copy, flip, roll and the gradient of slices. */
#include "backend/cuda/mapped_copy.h"
#include "backend/cuda/walk.h"
#include "gradus/ops.h"

/* The same elements in row-major order: a reshape that cannot be a view. */
static gd_status run_reshape(gd_kernel_call *call) {
    return gd_cuda_queue_reshape(call, &call->out[0], &call->in[0]);
}

static gd_status run_slice_grad(gd_kernel_call *call) {
    const gd_slice_grad_options *o = call->attrs;
    const gd_view *gy = &call->in[0], *gx = &call->out[0];
    const int axis = gd_cuda_axis(o->axis, gx->rank);
    gd_cuda_mapped_axis maps[GD_MAX_RANK];
    for (int d = 0; d < gx->rank; d++) maps[d] = (gd_cuda_mapped_axis){GD_CUDA_MAP_SAME, 0, 0, 0};
    if (gx->rank > 0)
        maps[axis] = o->step == 1
                         ? (gd_cuda_mapped_axis){GD_CUDA_MAP_SHIFT, o->start, 0, 0}
                         : (gd_cuda_mapped_axis){GD_CUDA_MAP_STRIDED, o->start, o->step, 0};
    return gd_cuda_queue_mapped(call, gy, gx, maps, 0);
}

/* A copy from the last element, with negative strides. */
static gd_status run_flip(gd_kernel_call *call) {
    const gd_flip_options *o = call->attrs;
    gd_view x = call->in[0];
    if (gd_cuda_count(&x) == 0) return GD_OK;
    for (int k = 0; k < o->axes.rank && x.rank > 0; k++) {
        const int d = gd_cuda_axis(o->axes.at[k], x.rank);
        x.data = (char *)x.data +
                 (x.dims[d] - 1) * x.strides[d] * (int64_t)gd_cuda_element_size(x.dtype);
        x.strides[d] = -x.strides[d];
    }
    return gd_cuda_queue_copy(call, &call->out[0], &x);
}

/* A roll of the flattened tensor runs as its body. */
static bool match_roll(const gd_kernel_call *call) {
    const gd_roll_options *o = call->attrs;
    return o->axis.form > 0;
}
static gd_status run_roll(gd_kernel_call *call) {
    const gd_roll_options *o = call->attrs;
    const gd_view *x = &call->in[0];
    gd_cuda_mapped_axis maps[GD_MAX_RANK];
    for (int d = 0; d < x->rank; d++) maps[d] = (gd_cuda_mapped_axis){GD_CUDA_MAP_SAME, 0, 0, 0};
    for (int k = 0; k < o->axis.rank; k++) {
        const int d = gd_cuda_axis(o->axis.at[k], x->rank);
        const int64_t size = x->dims[d] > 0 ? x->dims[d] : 1, shift = o->shifts.at[k] % size;
        maps[d] =
            (gd_cuda_mapped_axis){GD_CUDA_MAP_CIRCULAR, (maps[d].first + shift) % size, size, 0};
    }
    return gd_cuda_queue_mapped(call, x, &call->out[0], maps, 0);
}

/*kernel contiguous.copy, flatten.copy, reshape.copy  checked  run run_reshape
 * A copy, where no view is possible.
 */
/*kernel slice_grad.mapped  checked  run run_OP
 * A copy into zeros with a map for each axis.
 */
/*kernel flip.copy  checked  run run_OP
 * A copy with negative strides.
 */
/*kernel roll.mapped  checked  run run_OP  match match_OP
 * A copy with a map for each axis.
 */

#include "ops/shape/cuda/shape.gen.h"
