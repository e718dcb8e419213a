/* pad.c - pads as copies with a map for each padded axis. */
#include "backend/cuda/mapped_copy.h"
#include "gradus/ops.h"
#include "ops/pad/pad.h"

static gd_status run_pad(gd_kernel_call *call) {
    const gd_pad_options *o = call->attrs;
    const gd_view *x = &call->in[0], *y = &call->out[0];
    gd_pad_axis axes[GD_MAX_RANK];
    gd_cuda_mapped_axis maps[GD_MAX_RANK] = {{GD_CUDA_MAP_SAME, 0, 0, 0}};
    gd_pad_axes(x->rank, x->dims, &o->padding, axes);
    for (int d = 0; d < x->rank; d++) {
        const gd_pad_axis *a = &axes[d];
        maps[d] = (gd_cuda_mapped_axis){GD_CUDA_MAP_SAME, 0, 0, 0};
        if (a->left == 0 && a->out == a->n) continue;
        if (o->mode == GD_CIRCULAR)
            maps[d] = (gd_cuda_mapped_axis){GD_CUDA_MAP_CIRCULAR, a->front, a->kept, a->first};
        else
            maps[d] = (gd_cuda_mapped_axis){o->mode == GD_REFLECT     ? GD_CUDA_MAP_REFLECT
                                            : o->mode == GD_REPLICATE ? GD_CUDA_MAP_REPLICATE
                                                                      : GD_CUDA_MAP_SHIFT,
                                            a->left, 0, 0};
    }
    return gd_cuda_queue_mapped(call, x, y, maps, o->value);
}

/*kernel pad.mapped  checked  run run_OP
 * A copy with a map for each padded axis.
 */

#include "ops/pad/cuda/pad.gen.h"
