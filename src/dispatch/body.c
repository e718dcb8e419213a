/* body.c - the helpers of body.h, and op check_range. */
#include "dispatch/body.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/copy.h"
#include "core/integer.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "dispatch/intern.h"
#include "dispatch/problem.h"

bool gd_body_differentiates(const gd_expand *body) {
    for (int i = 0; i < body->n_in; i++)
        if (body->x[i] && body->x[i]->kind == GD_SYMBOL) return true;
    return gd_grad_wanted(body->op, body->x, body->n_in);
}

gd_tensor *gd_as_dtype(gd_tensor *x, gd_dtype dtype) {
    return x && (gd_dtype)x->dtype != dtype ? gd_cast(x, dtype) : x;
}

gd_tensor *gd_widen(gd_tensor *x) {
    return x && (x->dtype == GD_F16 || x->dtype == GD_BF16) ? gd_cast(x, GD_F32) : x;
}

gd_tensor *gd_as_list(gd_tensor *x) { return x->rank > 0 ? x : gd_reshape(x, gd_dims(1)); }

gd_tensor *gd_constant_for(const gd_tensor *x, gd_shape dims, gd_number value, gd_dtype dtype) {
    gd_thread *thread = &gd_this_thread;
    void *before = thread->tracer;
    if (x->kind == GD_SYMBOL && !before) thread->tracer = &gd_no_graph;
    gd_tensor *y = gd_full(dims, value, .dtype = dtype);
    thread->tracer = before;
    return y;
}

/* --- positions -------------------------------------------------------------------------------- */

gd_tensor *gd_positions(int rank, int axis, int64_t first, int64_t n, int64_t step) {
    gd_tensor *line =
        gd_arange(first, first + n * step, .step = gd_number_of(step), .dtype = GD_I64);
    if (rank == 1) return line;
    gd_shape dims = {.rank = rank, .form = 1};
    for (int d = 0; d < rank; d++) dims.at[d] = d == axis ? n : 1;
    return gd_reshape(line, dims);
}

gd_tensor *gd_take_positions(gd_tensor *x, int axis, gd_tensor *index) {
    gd_shape dims = gd_tensor_shape(x);
    dims.at[axis] = gd_tensor_dim(index, axis);
    return gd_gather(x, axis, gd_expand(index, dims));
}

gd_tensor *gd_take_region(gd_tensor *x, int n, const int64_t *first, const int64_t *length) {
    if (gd_tensor_is_error(x)) return x;
    gd_shape padding = {.rank = 2 * n, .form = 1};
    bool pads = false;
    for (int d = 0; d < n; d++) {
        const int axis = x->rank - n + d;
        const int64_t size = x->dims[axis], end = first[d] + length[d];
        int64_t start = first[d] > 0 ? first[d] : 0, stop = end < size ? end : size;
        if (start >= stop) start = stop = 0; /* x has none of these positions: all are padding */
        if (stop - start != size) x = gd_narrow(x, axis, start, stop - start);
        if (gd_tensor_is_error(x)) return x;
        int64_t *pair = padding.at + 2 * (n - 1 - d);
        pair[0] = stop > start && first[d] < 0 ? -first[d] : 0;
        pair[1] = length[d] - (stop - start) - pair[0];
        pads |= pair[0] > 0 || pair[1] > 0;
    }
    return pads ? gd_pad(x, padding) : x;
}

gd_tensor *gd_take_window(gd_tensor *x, int axis, int64_t first, int64_t length) {
    const int last = x->rank - 1;
    if (axis == last) return gd_take_region(x, 1, &first, &length);
    gd_tensor *y = gd_movedim(x, gd_dims(axis), gd_dims(last));
    return gd_movedim(gd_take_region(y, 1, &first, &length), gd_dims(last), gd_dims(axis));
}

/* --- checks of data --------------------------------------------------------------------------- */

/*op check_range(x, low:number, high:number) -> y  nograd fallible internal
 * x unchanged; fails if an element is not in [low, high]. `what` selects the message: elements are
 * "finite" numbers, a "probability", the number of true elements of a "mask", a "target" class, or
 * a "place" in a plane. Otherwise they are indices, and `what` names the thing that they index:
 * "axis 0", or "signed axis 0" if negative ones count from the end.
 *   but int = none      one more integer that is accepted
 *   what string = none  what the elements are
 *   saves nothing
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

gd_tensor *gd_checked_index(gd_tensor *index, int64_t size, const char *what) {
    return gd_check_range(index, 0, gd_number_of(size - 1), .what = what);
}

gd_tensor *gd_checked_axis_index(gd_tensor *index, int64_t size, int axis) {
    char text[16];
    snprintf(text, sizeof text, "axis %d", axis);
    const char *what = gd_intern(text); /* nodes of a graph keep the pointer */
    return gd_checked_index(index, size, what ? what : "an axis");
}

#include "dispatch/body.gen.h"
