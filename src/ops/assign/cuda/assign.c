/* assign.c - assignments, and the result of a group. */
#include "backend/cuda/kernels.h"
#include "ops/creation/cuda/creation.h"

/* The inputs are x and the value, the outputs the new value and x. The value may be a view of x, so
 * it is copied to the first output before x is written. */
static gd_status run_assign(gd_kernel_call *call) {
    const gd_view *value = &call->in[1];
    if (call->out[0].data) {
        gd_status status = gd_cuda_queue_copy(call, &call->out[0], value);
        if (status != GD_OK) return status;
        value = &call->out[0];
    }
    return gd_cuda_queue_copy(call, &call->out[1], value);
}

/* The result is true. */
static gd_status run_group(gd_kernel_call *call) {
    return gd_cuda_queue_fill(call, &call->out[0], 1);
}

/*kernel assign.copy  checked  run run_OP
 * A copy with broadcasting and conversion.
 */
/*kernel group.fill  checked  run run_OP
 * Writes the result; its inputs are computed before.
 */

#include "ops/assign/cuda/assign.gen.h"
