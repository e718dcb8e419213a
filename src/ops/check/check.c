/* check.c - checks of values: check_range and check_finite. A run that fails one changes no variable. */
#include <float.h>
#include <math.h>

#include "core/copy.h"
#include "core/integer.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "dispatch/problem.h"

/*op check_range(x, low:number, high:number) -> y  nograd fallible internal
 * x unchanged; fails if an element is not in [low, high]. `what` selects the message: elements are
 * "finite" numbers, a "probability", the number of true elements of a "mask", a "target" class, or
 * a "place" in a plane. Otherwise they are indices, and `what` names the thing that they index:
 * "axis 0", or "signed axis 0" if negative ones count from the end.
 *   but int = none      one more integer that is accepted
 *   what string = none  what the elements are
 *   saves nothing
 *   onnx Identity  when saving
 */
static gd_status check_range_infer(gd_infer *i) {
    const gd_check_range_options *o = i->attrs;
    if (!o->what || !*o->what) return gd_op_fail(GD_E_ARGUMENT, "the option 'what' is missing");
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}

/* Fails because element `number`, counted row-major, is out of range. */
static gd_status fail_element(const gd_check_range_options *o, const gd_view *x, int64_t number,
                              const char *element) {
    const int64_t integer = gd_dtype_is_float(x->dtype) ? 0 : gd_load_i64(x->dtype, element);
    const gd_data_error error = gd_range_problem(o->what, gd_number_i64(o->high), o->but, number,
                                                 integer, gd_load_f64(x->dtype, element));
    return gd_data_fail(&error, &(gd_data_operand){x->rank, x->dims, o->what});
}

static bool in_range(const gd_check_range_options *o, gd_dtype dtype, const char *element) {
    if (gd_dtype_is_float(dtype)) {
        const double value = gd_load_f64(dtype, element);
        return value >= o->low.value && value <= o->high.value;
    }
    const int64_t value = gd_load_i64(dtype, element);
    if (value >= gd_number_i64(o->low) && value <= gd_number_i64(o->high)) return true;
    return o->but != GD_UNSET && value == o->but;
}

static gd_status check_range_raw(gd_kernel_call *k) {
    const gd_check_range_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    const int64_t size = (int64_t)gd_dtype_size(x->dtype);
    for (int64_t e = 0, n = gd_numel(x->rank, x->dims); e < n; e++) {
        int64_t at = 0, rest = e;
        for (int d = x->rank; d-- > 0;) {
            at += rest % x->dims[d] * x->strides[d];
            rest /= x->dims[d];
        }
        const char *element = (const char *)x->data + at * size;
        if (!in_range(o, x->dtype, element)) return fail_element(o, x, e, element);
    }
    gd_copy_elements(&k->out[0], x);
    return GD_OK;
}

/*op check_finite(x) -> y  nograd fallible internal
 * x unchanged; fails if an element is infinite or NaN.
 *   saves nothing
 */
static gd_status check_finite_infer(gd_infer *i) {
    GD_TRY(gd_need_float(i->in[0], "x"));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void check_finite_expand(gd_expansion *e) {
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

#include "ops/check/check.gen.h"
