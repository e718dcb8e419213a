/* copy.c - copies between views of any layout and dtype. */
#include "backend/cuda/copy_args.h"

#include "backend/cuda/kernels.h"
#include "backend/cuda/strided.h"

static gd_cuda_kernel copy_views = GD_CUDA_KERNEL("copy", "gd_copy_views");
static gd_cuda_kernel copy_bytes = GD_CUDA_KERNEL("copy", "gd_copy_bytes");

static bool same_dims(const gd_view *a, const gd_view *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
    return same;
}

static gd_status queue_copy(const gd_kernel_call *call, const gd_view *to, const gd_view *from,
                            bool reshapes) {
    const gd_cuda_call c = gd_cuda_call_of(call);
    if (to->dtype == from->dtype && (reshapes || same_dims(to, from)) &&
        gd_cuda_is_contiguous(to) && gd_cuda_is_contiguous(from)) {
        const gd_cuda_copy_bytes p = {c, to->data, from->data,
                                      gd_cuda_count(to) *
                                          (long long)gd_cuda_element_size(to->dtype)};
        return gd_cuda_launch_each(call->device, &copy_bytes, (p.bytes + 15) / 16, &p);
    }
    gd_status status;
    if (to->dtype == from->dtype && gd_cuda_queue_strided(call, to, from, reshapes, &status))
        return status;
    const gd_cuda_copy p = {c, gd_cuda_view_of(to), gd_cuda_view_of(from), reshapes};
    return gd_cuda_launch_each(call->device, &copy_views, p.to.count, &p);
}

gd_status gd_cuda_queue_copy(const gd_kernel_call *call, const gd_view *to, const gd_view *from) {
    return queue_copy(call, to, from, false);
}

gd_status gd_cuda_queue_reshape(const gd_kernel_call *call, const gd_view *to,
                                const gd_view *from) {
    return queue_copy(call, to, from, true);
}

static gd_status run_copy(gd_kernel_call *call) {
    return queue_copy(call, &call->out[0], &call->in[0], false);
}

/*kernel clone.views  checked  run run_copy
 * Copies between views of any strides and dtypes.
 */

#include "backend/cuda/copy.gen.h"
