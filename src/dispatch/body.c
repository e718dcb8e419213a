/* body.c - see body.h. */
#include "dispatch/body.h"

#include <stdio.h>
#include <string.h>

#include "gradus/ops.h"
#include "dispatch/intern.h"

bool gd_body_differentiates(const gd_expansion *body) {
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

gd_tensor *gd_checked_index(gd_tensor *index, int64_t size, const char *what) {
    return gd_check_range(index, 0, gd_number_of(size - 1), .what = what);
}

gd_tensor *gd_checked_axis_index(gd_tensor *index, int64_t size, int axis) {
    char text[16];
    snprintf(text, sizeof text, "axis %d", axis);
    const char *what = gd_intern(text); /* nodes of a graph keep the pointer */
    return gd_checked_index(index, size, what ? what : "an axis");
}
