/* kernels_index.c - gather and scatter, checks of data, and ops whose result has a size that
 * depends on the data. All operands are row-major f64 or i64, except for check_range, which takes
 * any. */
#include "backend/test/kernels.h"
#include "core/integer.h"
#include "dispatch/problem.h"

/* --- gather and scatter ----------------------------------------------------------------------- */

/* Treats a tensor of rank 0 as a list of one element. */
static gd_view as_list(gd_view v) {
    if (v.rank == 0) v.rank = 1, v.dims[0] = v.strides[0] = 1;
    return v;
}

/* Reports the first index that is out of range. */
static bool check_indices(const gd_kernel_call *call, const gd_view *index, int64_t size,
                          int axis) {
    const int64_t count = count_elements(index);
    for (int64_t e = 0; e < count; e++) {
        const int64_t i = integer_at(index, e);
        if (i >= 0 && i < size) continue;
        test_report(call, GD_DATA_AXIS_INDEX, e, i, size, axis, 0);
        return false;
    }
    return true;
}

/* The offset in v of the position of element e of index, with its coordinate along the axis
 * replaced by `along` unless that is negative. */
static int64_t offset_beside(const gd_view *v, const gd_view *index, int64_t e, int axis,
                             int64_t along) {
    int64_t at = 0;
    for (int d = index->rank; d-- > 0; e /= index->dims[d])
        at += (d == axis && along >= 0 ? along : e % index->dims[d]) * v->strides[d];
    return at;
}

void test_gather(gd_kernel_call *call) {
    const gd_gather_options *o = call->attrs;
    const gd_view x = as_list(call->in[0]), index = as_list(call->in[1]), *y = &call->out[0];
    const int axis = axis_of(o->axis, x.rank);
    const int64_t count = count_elements(&index);
    if (!check_indices(call, &index, x.dims[axis], axis)) return;
    for (int64_t e = 0; e < count; e++)
        copy_element(y, e, &x, offset_beside(&x, &index, e, axis, integer_at(&index, e)));
}

typedef enum { SET, ADD, MULTIPLY, LARGEST, SMALLEST } scatter_mode;

/* NaN propagates. */
static double combine_reals(scatter_mode mode, double a, double b) {
    switch (mode) {
    case ADD: return a + b;
    case MULTIPLY: return a * b;
    case LARGEST: return a > b || isnan(a) ? a : b;
    case SMALLEST: return a < b || isnan(a) ? a : b;
    default: return b;
    }
}

static int64_t combine_integers(scatter_mode mode, int64_t a, int64_t b) {
    switch (mode) {
    case ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case MULTIPLY: return (int64_t)((uint64_t)a * (uint64_t)b);
    case LARGEST: return a > b ? a : b;
    case SMALLEST: return a < b ? a : b;
    default: return b;
    }
}

static void combine_element(scatter_mode mode, const gd_view *y, int64_t to, double real,
                            int64_t integer) {
    if (y->dtype == GD_F64)
        ((double *)y->data)[to] = combine_reals(mode, ((double *)y->data)[to], real);
    else ((int64_t *)y->data)[to] = combine_integers(mode, ((int64_t *)y->data)[to], integer);
}

/* y = x, with the elements of src combined into it at the indices. With `exclude_self`, elements of
 * x at the indices do not contribute to the result. */
static void scatter_elements(gd_kernel_call *call, int64_t given_axis, scatter_mode mode,
                             bool exclude_self) {
    const gd_view x = as_list(call->in[0]), index = as_list(call->in[1]),
                  src = as_list(call->in[2]), y = as_list(call->out[0]);
    const int axis = axis_of(given_axis, x.rank);
    const int64_t count = count_elements(&index), kept = count_elements(&x);
    if (!check_indices(call, &index, x.dims[axis], axis)) return;
    for (int64_t e = 0; e < kept; e++) copy_element(&y, e, &x, e);
    for (int64_t e = 0; e < count && exclude_self; e++) /* the identity of max or min */
        combine_element(SET, &y, offset_beside(&y, &index, e, axis, integer_at(&index, e)),
                        mode == LARGEST ? -INFINITY : INFINITY,
                        mode == LARGEST ? INT64_MIN : INT64_MAX);
    for (int64_t e = 0; e < count; e++) {
        const int64_t from = offset_beside(&src, &index, e, axis, -1);
        combine_element(mode, &y, offset_beside(&y, &index, e, axis, integer_at(&index, e)),
                        real_at(&src, from), integer_at(&src, from));
    }
}

void test_scatter(gd_kernel_call *call) {
    scatter_elements(call, ((const gd_scatter_options *)call->attrs)->axis, SET, false);
}
void test_scatter_add(gd_kernel_call *call) {
    scatter_elements(call, ((const gd_scatter_add_options *)call->attrs)->axis, ADD, false);
}
void test_scatter_mul(gd_kernel_call *call) {
    scatter_elements(call, ((const gd_scatter_mul_options *)call->attrs)->axis, MULTIPLY, false);
}
void test_scatter_extreme(gd_kernel_call *call) {
    const gd_scatter_extreme_options *o = call->attrs;
    scatter_elements(call, o->axis, o->largest ? LARGEST : SMALLEST, !o->include_self);
}

/* --- checks ----------------------------------------------------------------------------------- */

static bool is_in_range(const gd_check_range_options *o, gd_dtype dtype, const void *element) {
    if (element_is_float(dtype)) {
        const double value = load_real(dtype, element);
        return value >= o->low.value && value <= o->high.value;
    }
    const int64_t value = load_integer(dtype, element);
    return (value >= gd_number_i64(o->low) && value <= gd_number_i64(o->high)) ||
           (o->but != GD_UNSET && value == o->but);
}

void test_check_range(gd_kernel_call *call) {
    const gd_check_range_options *o = call->attrs;
    const gd_view *x = &call->in[0];
    const int64_t count = count_elements(x);
    for (int64_t e = 0; e < count; e++) {
        const char *element = element_at(x, x->rank, x->dims, e);
        if (is_in_range(o, x->dtype, element)) continue;
        const gd_data_error error =
            gd_range_problem(o->what, gd_number_i64(o->high), o->but, e,
                             element_is_float(x->dtype) ? 0 : load_integer(x->dtype, element),
                             load_real(x->dtype, element));
        test_report(call, error.problem, e, error.values[0], error.values[1], error.values[2],
                    error.real);
        return;
    }
    test_copy(call);
}

/* --- results of unknown size ------------------------------------------------------------------ */

/* These kernels wait until the device is idle and run on the calling thread. */

/* Waits for the input and resolves its address. NULL if an earlier kernel failed or the address is
 * invalid: the kernel must not read the data then. */
static gd_view *wait_for_input(const gd_kernel_call *call, gd_view *x) {
    *x = call->in[0];
    test_drain();
    if (test_error.number) return NULL;
    const size_t bytes = (size_t)count_elements(x) * 8;
    if (bytes) x->data = test_resolve(x->data, bytes);
    return x->data ? x : NULL;
}

/* Allocates output 0 and resolves its address. The memory may have been in use before, so this
 * waits for kernels that were queued before it was freed and may still write it. */
static gd_status allocate_output(gd_kernel_call *call, int rank, const int64_t *dims, gd_view *y) {
    gd_status status = test_host->kernel_output(call, 0, rank, dims);
    if (status != GD_OK) return status;
    test_drain();
    *y = call->out[0];
    const int64_t count = count_elements(y);
    if (count > 0) y->data = test_resolve(y->data, (size_t)(count * element_size(y->dtype)));
    return GD_OK;
}

gd_status test_nonzero(gd_kernel_call *call) {
    gd_view input, y;
    const gd_view *x = wait_for_input(call, &input);
    const int rank = input.rank;
    const int64_t count = x ? count_elements(x) : 0;
    int64_t found = 0, at = 0;
    for (int64_t e = 0; e < count; e++) found += real_at(x, e) != 0;
    gd_status status = allocate_output(call, 2, (int64_t[]){found, rank}, &y);
    for (int64_t e = 0; e < count && status == GD_OK; e++) {
        if (real_at(x, e) == 0) continue;
        int64_t rest = e, *position = (int64_t *)y.data + rank * at++;
        for (int d = rank; d-- > 0; rest /= x->dims[d]) position[d] = rest % x->dims[d];
    }
    return status;
}

gd_status test_one_hot_found(gd_kernel_call *call) {
    gd_view input, y;
    const gd_view *x = wait_for_input(call, &input);
    const int64_t count = count_elements(&input);
    int64_t most = 0, dims[GD_MAX_RANK];
    if (count == 0)
        return test_host->fail(GD_E_SHAPE,
                               "'x' is empty: it does not say how many classes there are");
    for (int64_t e = 0; e < count && x; e++)
        if (integer_at(x, e) > most) most = integer_at(x, e);
    if (most == INT64_MAX)
        return test_host->fail(GD_E_OVERFLOW, "'x' names class %lld", (long long)most);
    memcpy(dims, input.dims, sizeof dims);
    dims[input.rank] = most + 1;
    gd_status status = allocate_output(call, input.rank + 1, dims, &y);
    if (status != GD_OK || !x) return status;
    const int64_t size = element_size(y.dtype);
    memset(y.data, 0, (size_t)(count * (most + 1) * size));
    for (int64_t e = 0; e < count; e++) {
        const int64_t class = integer_at(x, e);
        char *p = (char *)y.data + (e * (most + 1) + class) * size;
        if (class < 0) test_report(call, GD_DATA_INDEX, e, class, most + 1, 0, 0);
        else if (element_is_float(y.dtype)) store_real(y.dtype, p, 1);
        else store_integer(y.dtype, p, 1);
    }
    return GD_OK;
}
