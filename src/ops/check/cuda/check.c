/* check.c - checks that all elements are in a range. */
#include "ops/check/cuda/check_args.h"

#include "backend/cuda/walk.h"
#include "core/integer.h"
#include "gradus/ops.h"
#include "dispatch/problem.h"

static gd_cuda_kernel check_elements = GD_CUDA_KERNEL("check/check", "gd_check_elements");

static gd_status run_check_range(gd_kernel_call *call) {
    const gd_check_range_options *o = call->attrs;
    const gd_view *x = &call->in[0], *y = &call->out[0];
    const gd_data_error report = gd_range_problem(o->what, gd_number_i64(o->high), o->but, 0, 0, 0);
    gd_cuda_check_range p = {
        .call = gd_cuda_call_of(call),
        .walk = gd_cuda_walk_over(x->rank, x->dims, -1, (const gd_view *[]){x, y, NULL}),
        .x = x->data,
        .dtype = (int)x->dtype,
        .bytes = (int)gd_cuda_element_size(x->dtype),
        .low = o->low.value,
        .high = o->high.value,
        .integer_low = gd_number_i64(o->low),
        .integer_high = gd_number_i64(o->high),
        .but = o->but,
        .has_but = o->but != GD_UNSET,
        .problem = report.problem,
        .values = {report.values[1], report.values[2]},
    };
    if (gd_cuda_checks_first(call)) {
        gd_status status = gd_cuda_launch_each(call->device, &check_elements, p.walk.count, &p);
        if (status != GD_OK) return status;
    }
    p.y = y->data;
    return gd_cuda_launch_each(call->device, &check_elements, p.walk.count, &p);
}

/*kernel check_range.elements  checked  run run_OP
 * Reports the first element out of range in the error word.
 */

#include "ops/check/cuda/check.gen.h"
