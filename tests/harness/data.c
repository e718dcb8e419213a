/* data.c - see data.h. */
#include "data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/copy.h"
#include "draw.h"
#include "report.h"

/* --- numbers ---------------------------------------------------------------------------------- */

static double unit_at(uint64_t seed, uint64_t i) { /* in (0, 1), 24 bits */
    return (double)(draw_at(seed, i) >> 40) * 0x1p-24 + 0x1p-25;
}

static const double special_floats[] = {NAN,  INFINITY, -INFINITY, 0.0,    -0.0,  0.5,  1.5,   2.5,
                                        -0.5, 1e-40,    3e38,      -1e-40, -3e38, 1.0,  -1.0,  -1.5,
                                        -2.5, 100.0,    -100.0,    1e5,    -1e5,  20.0, -20.0, 0.1};
enum { N_SPECIAL_FLOATS = sizeof special_floats / sizeof *special_floats };

static double float_at(uint64_t seed, const case_item *item, int64_t i, int64_t n,
                       const int64_t *order) {
    double u = unit_at(seed, (uint64_t)i);
    switch (item->kind) {
    case KIND_POSITIVE: return 0.1 + 1.9 * u;
    case KIND_ABOVE1: return 1.1 + 1.9 * u;
    case KIND_UNIT: return -0.95 + 1.9 * u;
    case KIND_PROB: return 0.02 + 0.96 * u;
    case KIND_AWAY: /* at least 0.1 away from every multiple of 0.5 */
        return -2.0 + 0.5 * (double)(draw_at(seed, (uint64_t)i) & 7) + 0.1 + 0.3 * u;
    case KIND_ZEROS: return draw_at(seed, (uint64_t)i) % 3 == 0 ? 0 : -2.0 + 4.0 * u;
    case KIND_TIES: return -1.0 + 0.5 * (double)(draw_at(seed, (uint64_t)i) % 5);
    case KIND_SIGN: return u < 0.5 ? -1 : 1;
    case KIND_SPECIAL: return special_floats[i % N_SPECIAL_FLOATS];
    case KIND_DISTINCT: /* absolute values are distinct as well */
        return -2.0 + 4.0 * ((double)order[i] + 0.3) / (double)n;
    case KIND_INDEX:
    case KIND_MASK:
    case KIND_PLAIN: break;
    }
    return -2.0 + 4.0 * u;
}

static int64_t smallest_integer(gd_dtype dtype) {
    return dtype == GD_I8    ? INT8_MIN
           : dtype == GD_I32 ? INT32_MIN
           : dtype == GD_I64 ? INT64_MIN
                             : 0;
}
static int64_t largest_integer(gd_dtype dtype) {
    return dtype == GD_U8    ? UINT8_MAX
           : dtype == GD_I8  ? INT8_MAX
           : dtype == GD_I32 ? INT32_MAX
           : dtype == GD_I64 ? INT64_MAX
                             : 1;
}

static int64_t special_integer(gd_dtype dtype, int64_t i) {
    int64_t low = smallest_integer(dtype), high = largest_integer(dtype);
    const int64_t list[] = {
        low, high, 0, 1, low ? -1 : 2, 2, low ? -2 : 3, high - 1, low + 1, 7, low ? -7 : 5, 31, 63};
    return list[i % (int64_t)(sizeof list / sizeof *list)];
}

static int64_t integer_at(uint64_t seed, const case_item *item, gd_dtype dtype, int64_t i,
                          const int64_t *order) {
    uint64_t w = draw_at(seed, (uint64_t)i) >> 16;
    bool is_unsigned = dtype == GD_U8 || dtype == GD_BOOL;
    switch (item->kind) {
    case KIND_POSITIVE: return 1 + (int64_t)(w % 9);
    case KIND_ABOVE1: return 2 + (int64_t)(w % 8);
    case KIND_UNIT:
    case KIND_PROB:
    case KIND_MASK: return (int64_t)(w & 1);
    case KIND_ZEROS: return w % 3 == 0 ? 0 : (int64_t)(w % 11) - (is_unsigned ? 0 : 5);
    case KIND_TIES: return (int64_t)(w % 3) - (is_unsigned ? 0 : 1);
    case KIND_SPECIAL: return special_integer(dtype, i);
    case KIND_DISTINCT: return order[i];
    case KIND_SIGN: return w & 1 ? 1 : -1;
    case KIND_INDEX:
        return item->negative ? (int64_t)(w % (uint64_t)(2 * item->range)) - item->range
                              : (int64_t)(w % (uint64_t)item->range);
    case KIND_AWAY:
    case KIND_PLAIN: break;
    }
    return (int64_t)(w % 11) - (is_unsigned ? 0 : 5);
}

static int64_t *permutation(uint64_t seed, int64_t n) {
    int64_t *order = malloc((size_t)(n > 0 ? n : 1) * sizeof *order);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n; i-- > 1;) {
        int64_t k = (int64_t)(draw_at(~seed, (uint64_t)i) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    return order;
}

void data_fill(uint64_t seed, const case_item *item, gd_dtype dtype, int64_t n, void *data) {
    int64_t *order = item->kind == KIND_DISTINCT ? permutation(seed, n) : NULL;
    size_t size = gd_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        void *to = (char *)data + (size_t)i * size;
        if (gd_dtype_is_float(dtype)) {
            /* rounded to f32 first, so that f32 and f64 get the same numbers */
            gd_store_f64(dtype, to, (double)(float)float_at(seed, item, i, n, order));
        } else {
            int64_t v = integer_at(seed, item, dtype, i, order);
            gd_store_i64(
                dtype, to,
                dtype == GD_BOOL
                    ? (item->kind == KIND_PLAIN || item->kind == KIND_AWAY ? v & 1 : v != 0)
                    : v);
        }
    }
    free(order);
}

double loss_weight(int k, int64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)k * 40503u + 12345u;
    return (double)(h >> 16) / 65536.0 - 0.5;
}

gd_tensor *loss_weights(const gd_tensor *y, int k) {
    int64_t n = gd_tensor_numel(y);
    gd_dtype dtype = gd_tensor_dtype(y);
    size_t size = gd_dtype_size(dtype);
    char *data = malloc((size_t)n * size + 1);
    for (int64_t i = 0; i < n; i++) gd_store_f64(dtype, data + (size_t)i * size, loss_weight(k, i));
    gd_tensor *w = gd_from_array(gd_tensor_shape(y), dtype, data);
    free(data);
    return w;
}

/* --- layouts ---------------------------------------------------------------------------------- */

const char *layout_name(layout kind) {
    static const char *const names[] = {"row-major", "transposed", "stepped", "expanded"};
    return names[kind];
}

/* The axis that LAYOUT_EXPANDED repeats: the smallest dim above 1, so that many distinct values
 * remain (the variance of a constant is only rounding). -1: none. */
static int expanded_axis(const gd_shape *dims) {
    int axis = -1;
    for (int k = dims->rank; k-- > 0;)
        if (dims->at[k] > 1 && (axis < 0 || dims->at[k] < dims->at[axis])) axis = k;
    return axis;
}

static int64_t numel(const gd_shape *dims) {
    int64_t n = 1;
    for (int k = 0; k < dims->rank; k++) n *= dims->at[k];
    return n;
}

bool layout_applies(layout kind, const case_item *item) {
    const gd_shape *dims = &item->dims;
    int large = 0;
    for (int k = 0; k < dims->rank; k++) large += dims->at[k] > 1;
    if (numel(dims) == 0) return kind == LAYOUT_ROWS;
    switch (kind) {
    case LAYOUT_COLUMNS: return large >= 2;
    case LAYOUT_STEPPED:
    case LAYOUT_EXPANDED: return large >= 1;
    default: return true;
    }
}

static void strides_of(layout kind, const gd_shape *dims, int64_t *strides) {
    int64_t step = kind == LAYOUT_STEPPED ? 2 : 1;
    for (int j = 0; j < dims->rank; j++) {
        int k = kind == LAYOUT_COLUMNS ? j : dims->rank - 1 - j;
        strides[k] = step;
        step *= dims->at[k] * (kind == LAYOUT_STEPPED ? 2 : 1);
    }
    if (kind == LAYOUT_EXPANDED) strides[expanded_axis(dims)] = 0;
}

static void free_buffer(void *data, void *user) {
    (void)data;
    free(user);
}

/* Copies row-major data into a new buffer with these strides and wraps the buffer as a tensor. */
static gd_tensor *strided_tensor(const gd_shape *dims, const int64_t *strides, gd_dtype dtype,
                                 const char *rows, int64_t n) {
    size_t size = gd_dtype_size(dtype);
    int64_t span = 1;
    for (int k = 0; k < dims->rank; k++) span += (dims->at[k] - 1) * strides[k];
    if (n == 0) span = 0;
    /* one extra element at each end, so that the view does not start at the start of its memory */
    size_t bytes = (size_t)(span + 2) * size;
    char *buffer = malloc(bytes);
    memset(buffer, 0x7f, bytes); /* a large number or a NaN in every dtype */
    char *data = buffer + size;
    for (int64_t e = 0; e < n; e++) {
        int64_t rest = e, at = 0;
        for (int k = dims->rank; k-- > 0;) {
            at += rest % dims->at[k] * strides[k];
            rest /= dims->at[k];
        }
        memcpy(data + (size_t)at * size, rows + (size_t)e * size, size);
    }
    gd_tensor *t = gd_from_memory(*dims, strides, dtype, data, free_buffer, buffer);
    if (gd_tensor_is_error(t)) free(buffer);
    return t;
}

/* The same by views of a tensor on the default device, where host memory cannot be wrapped. */
static gd_tensor *strided_tensor_on_device(layout kind, const gd_shape *dims, gd_dtype dtype,
                                           const char *rows, int64_t n) {
    const int64_t step = kind == LAYOUT_STEPPED ? 2 : 1;
    const size_t size = gd_dtype_size(dtype);
    const int expanded = kind == LAYOUT_EXPANDED ? expanded_axis(dims) : -1;
    gd_shape outer = *dims, order = *dims; /* shape of the viewed tensor; axes of the permute */
    int64_t strides[GD_MAX_RANK], total = 1;
    for (int j = dims->rank; j-- > 0;) {
        const int k = kind == LAYOUT_COLUMNS ? dims->rank - 1 - j : j;
        order.at[j] = dims->rank - 1 - j;
        outer.at[j] = k == expanded ? 1 : dims->at[k] * step;
        strides[k] = k == expanded ? 0 : total * step;
        total *= outer.at[j];
    }
    char *buffer = malloc((size_t)total * size + 1);
    memset(buffer, 0x7f, (size_t)total * size);
    const int64_t offset = kind == LAYOUT_STEPPED && total > 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t rest = e, at = 0;
        for (int k = dims->rank; k-- > 0;) {
            at += (rest % dims->at[k]) * strides[k] + (offset ? strides[k] / step : 0);
            rest /= dims->at[k];
        }
        memcpy(buffer + (size_t)at * size, rows + (size_t)e * size, size);
    }
    gd_tensor *t = gd_from_array(outer, dtype, buffer);
    free(buffer);
    if (kind == LAYOUT_COLUMNS) t = gd_permute(t, order);
    for (int k = 0; k < dims->rank && kind == LAYOUT_STEPPED; k++)
        t = gd_slice(t, .axis = k, .start = 1, .step = 2);
    return kind == LAYOUT_EXPANDED ? gd_expand(t, *dims) : t;
}

/* Copies the values at index 0 of the expanded axis to all its other indices. */
static void repeat_first_index(const gd_shape *dims, size_t size, char *rows, int64_t n) {
    int axis = expanded_axis(dims);
    int64_t inner = 1;
    if (axis < 0) return;
    for (int k = axis + 1; k < dims->rank; k++) inner *= dims->at[k];
    for (int64_t e = 0; e < n; e++) {
        int64_t index = e / inner % dims->at[axis];
        memcpy(rows + (size_t)e * size, rows + (size_t)(e - index * inner) * size, size);
    }
}

gd_dtype case_dtype(const test_case *c, int i, gd_dtype dtype) {
    const char *name;
    int k;
    const case_item *item = case_item_at(c, i, &name, &k);
    return !item ? GD_DTYPE_NONE : item->dtype ? item->dtype : dtype;
}

gd_tensor *case_tensor(const test_case *c, int i, gd_dtype dtype, layout kind, bool like_expanded) {
    const char *name;
    int k;
    const case_item *item = case_item_at(c, i, &name, &k);
    if (!item) return NULL;
    if (item->dtype) dtype = item->dtype;
    int64_t n = numel(&item->dims), strides[GD_MAX_RANK];
    size_t size = gd_dtype_size(dtype);
    char *rows = malloc((size_t)n * size + 1);
    uint64_t seed =
        text_hash(text_hash(text_hash((uint64_t)k, gd_op_name(c->block->op)), c->text), name);
    data_fill(seed, item, dtype, n, rows);
    if (kind == LAYOUT_EXPANDED || like_expanded) repeat_first_index(&item->dims, size, rows, n);
    strides_of(layout_applies(kind, item) ? kind : LAYOUT_ROWS, &item->dims, strides);
    gd_tensor *t = kind == LAYOUT_ROWS ? gd_from_array(item->dims, dtype, rows)
                   : test_on_device()  ? strided_tensor_on_device(kind, &item->dims, dtype, rows, n)
                                       : strided_tensor(&item->dims, strides, dtype, rows, n);
    free(rows);
    return t;
}
