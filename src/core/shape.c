/* shape.c - sizes, strides and axes. */
#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "core/checked.h"
#include "core/tensor.h"

gd_shape gd_shape_of(int rank, const int64_t *sizes) {
    /* a call with rank -1 fails */
    gd_shape shape = {.rank = rank > 0 && !sizes ? -1 : rank, .form = 1};
    for (int i = 0; i < shape.rank && i < GD_MAX_RANK; i++) shape.at[i] = sizes[i];
    return shape;
}

/* Products wrap: the sizes of values are checked when they are allocated, but shapes that are only
 * probed (dispatch/probe.c) may be too large for any value. */
int64_t gd_numel(int rank, const int64_t *dims) {
    uint64_t n = 1;
    for (int i = 0; i < rank; i++) n *= (uint64_t)dims[i];
    return (int64_t)n;
}

void gd_row_major(int rank, const int64_t *dims, int64_t *strides) {
    uint64_t step = 1;
    for (int i = rank; i-- > 0;) {
        strides[i] = (int64_t)step;
        if (dims[i] > 1) step *= (uint64_t)dims[i];
    }
}

/* Strides of dims of size 1 do not matter, and an empty tensor is always row-major. */
bool gd_is_row_major(int rank, const int64_t *dims, const int64_t *strides) {
    uint64_t step = 1;
    bool fits = true;
    for (int i = rank; i-- > 0;) {
        if (dims[i] == 0) return true;
        if (dims[i] == 1) continue;
        if ((uint64_t)strides[i] != step) fits = false;
        step *= (uint64_t)dims[i];
    }
    return fits;
}

gd_status gd_dims_bytes(int rank, const int64_t *dims, gd_dtype dtype, size_t *bytes) {
    char text[128];
    if (rank < 0 || rank > GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "a tensor has 0 to %d dimensions, not %d", GD_MAX_RANK, rank);
    size_t total = gd_dtype_size(dtype);
    if (total == 0) return gd_fail(GD_E_DTYPE, "there is no element type number %d", (int)dtype);
    bool empty = false, overflow = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return gd_fail(GD_E_SHAPE, "dimension %d of %s is negative", i,
                           gd_numbers_text(rank, dims, text, sizeof text));
        if (dims[i] == 0) empty = true;
        else if (!gd_mul_size(total, (size_t)dims[i], &total)) overflow = true;
    }
    if (overflow || total > INT64_MAX)
        return gd_fail(GD_E_OVERFLOW, "a tensor of shape %s is too large to count its bytes",
                       gd_numbers_text(rank, dims, text, sizeof text));
    *bytes = empty ? 0 : total;
    return GD_OK;
}

gd_status gd_shape_bytes(gd_shape shape, gd_dtype dtype, size_t *bytes) {
    if (shape.form == 0 && shape.rank == 0 && shape.at[0] != 0)
        return gd_fail(GD_E_ARGUMENT,
                       "the length of a list in braces is unknown; write gd_dims(...)");
    return gd_dims_bytes(shape.rank, shape.at, dtype, bytes);
}

gd_status gd_axis(int64_t axis, int rank, int *result) {
    int64_t n = rank > 0 ? rank : 1;
    if (axis < -n || axis >= n)
        return gd_fail(GD_E_INDEX, "axis %lld is out of range for %d dimension%s (%lld to %lld)",
                       (long long)axis, rank, rank == 1 ? "" : "s", (long long)-n,
                       (long long)(n - 1));
    *result = (int)(axis < 0 ? axis + n : axis);
    return GD_OK;
}

static char *list_text(int count, const int64_t *numbers, bool sizes, char *buffer, size_t size) {
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < count && used < size; i++) {
        const char *comma = i ? "," : "";
        if (sizes && numbers[i] == GD_UNKNOWN)
            used += (size_t)snprintf(buffer + used, size - used, "%s?", comma);
        else
            used += (size_t)snprintf(buffer + used, size - used, "%s%lld", comma,
                                     (long long)numbers[i]);
    }
    if (used < size) snprintf(buffer + used, size - used, "]");
    return buffer;
}

char *gd_shape_text(int rank, const int64_t *dims, char *buffer, size_t size) {
    return list_text(rank, dims, true, buffer, size);
}

char *gd_numbers_text(int count, const int64_t *numbers, char *buffer, size_t size) {
    return list_text(count, numbers, false, buffer, size);
}

char *gd_describe(const gd_tensor *t, char *buffer, size_t size) {
    if (!t) snprintf(buffer, size, "NULL");
    else if (gd_is_freed(t)) gd_freed_text(t, buffer, size);
    else if (t->kind == GD_FAILED) snprintf(buffer, size, "error");
    else {
        char text[128];
        snprintf(buffer, size, "%s%s", gd_dtype_name((gd_dtype)t->dtype),
                 gd_shape_text(t->rank, t->dims, text, sizeof text));
    }
    return buffer;
}
