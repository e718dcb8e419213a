/* finite.c - check_finite: a check of values in a plan. A run that fails it changes no variable. */
#include <float.h>
#include <math.h>

#include "core/copy.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "dispatch/problem.h"

/*op check_finite(x) -> y  nograd fallible internal
 * x unchanged; fails if an element is infinite or NaN.
 *   saves nothing
 */
static gd_status check_finite_infer(gd_infer *i) {
    GD_TRY(gd_need_float(i->in[0], "x"));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void check_finite_expand(gd_expand *e) {
    e->y[0] = gd_check_range(e->x[0], -DBL_MAX, DBL_MAX, .what = "finite");
}
static gd_status check_finite_raw(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *y = &k->out[0];
    const int64_t count = gd_numel(x->rank, x->dims);
    int64_t index[GD_MAX_RANK] = {0}, from = 0, to = 0;
    const int64_t size = (int64_t)gd_dtype_size(x->dtype);
    for (int64_t n = 0; n < count; n++) {
        const double value = gd_load_f64(x->dtype, (char *)x->data + from * size);
        if (!isfinite(value))
            return gd_data_fail(
                &(gd_data_error){.problem = GD_DATA_NOT_FINITE, .element = n, .real = value},
                &(gd_data_operand){x->rank, x->dims, NULL});
        gd_store_f64(y->dtype, (char *)y->data + to * size, value);
        for (int a = x->rank; a-- > 0;) { /* advance to the next element, row-major */
            from += x->strides[a];
            to += y->strides[a];
            if (++index[a] < x->dims[a]) break;
            from -= index[a] * x->strides[a];
            to -= index[a] * y->strides[a];
            index[a] = 0;
        }
    }
    return GD_OK;
}

#include "ops/elementwise/finite.gen.h"
