/* compare.c - see compare.h. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/copy.h"
#include "core/tensor.h"

enum { WHY = 256 };

double usual_tolerance(gd_dtype dtype) {
    switch (dtype) {
    case GD_F64: return 1e-10;
    case GD_F32: return 2e-5;
    case GD_F16: return 4e-3;
    case GD_BF16: return 3e-2;
    default: return 0;
    }
}

bool numbers_agree(double actual, double expected, double tolerance, double scale) {
    if (isnan(actual) || isnan(expected)) return isnan(actual) && isnan(expected);
    if (isinf(actual) || isinf(expected)) return actual == expected;
    return fabs(actual - expected) <= tolerance * (fabs(expected) + scale);
}

double scale_of(const double *numbers, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(numbers[i])) largest = fmax(largest, fabs(numbers[i]));
    return fmax(fmin(largest, 1.0), 0.01);
}

size_t tensor_bytes(const gd_tensor *t) {
    return (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
}

static char *read_elements(const gd_tensor *t) {
    const size_t bytes = tensor_bytes(t);
    char *data = malloc(bytes + 1);
    if (gd_copy_to(t, data, bytes) == GD_OK) return data;
    free(data);
    return NULL;
}

double *tensor_numbers(const gd_tensor *t) {
    char *data = read_elements(t);
    if (!data) return NULL;
    int64_t n = gd_tensor_numel(t);
    gd_dtype dtype = gd_tensor_dtype(t);
    double *numbers = malloc((size_t)n * sizeof *numbers + 1);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = gd_load_f64(dtype, data + (size_t)i * gd_dtype_size(dtype));
    free(data);
    return numbers;
}

static bool same_dtype_and_dims(const gd_tensor *a, const gd_tensor *b) {
    bool same = gd_tensor_dtype(a) == gd_tensor_dtype(b) && a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++) same = a->dims[k] == b->dims[k];
    return same;
}

bool tensors_same_bits(const gd_tensor *a, const gd_tensor *b) {
    if (gd_failed() || !same_dtype_and_dims(a, b)) return false;
    char *x = read_elements(a), *y = read_elements(b);
    const bool same = x && y && memcmp(x, y, tensor_bytes(a)) == 0;
    free(x);
    free(y);
    return same;
}

double tensors_distance(const gd_tensor *a, const gd_tensor *b) {
    const int64_t n = gd_tensor_numel(a);
    double *x = tensor_numbers(a), *y = tensor_numbers(b), largest = 0;
    if (!x || !y || gd_tensor_numel(b) != n || gd_failed()) largest = (double)NAN;
    for (int64_t i = 0; i < n && !isnan(largest); i++) {
        const double difference = x[i] == y[i] ? 0 : fabs(x[i] - y[i]);
        largest = difference <= largest ? largest : difference;
    }
    free(x);
    free(y);
    return largest;
}

double tensors_relative_distance(const gd_tensor *actual, const gd_tensor *expected) {
    double *x = tensor_numbers(expected), largest = 0;
    for (int64_t i = 0; i < gd_tensor_numel(expected) && x; i++)
        largest = fmax(largest, fabs(x[i]));
    free(x);
    return tensors_distance(actual, expected) / largest;
}

static bool floats_agree(gd_dtype dtype, const char *a, const char *b, int64_t n, double tolerance,
                         char *why) {
    size_t size = gd_dtype_size(dtype);
    double *x = malloc((size_t)n * sizeof *x + 1), *y = malloc((size_t)n * sizeof *y + 1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = gd_load_f64(dtype, a + (size_t)i * size);
        y[i] = gd_load_f64(dtype, b + (size_t)i * size);
    }
    double scale = scale_of(y, n);
    bool agree = true;
    for (int64_t i = 0; i < n && agree; i++) {
        agree = tolerance > 0 ? numbers_agree(x[i], y[i], tolerance, scale)
                              : memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0 ||
                                    (isnan(x[i]) && isnan(y[i]));
        if (!agree)
            snprintf(why, WHY, "element %lld is %.17g, expected %.17g", (long long)i, x[i], y[i]);
    }
    free(x);
    free(y);
    return agree;
}

static bool is_all_zero(const gd_tensor *t, char *why) {
    double *x = tensor_numbers(t);
    bool zero = x != NULL;
    for (int64_t i = 0; i < gd_tensor_numel(t) && zero; i++)
        if (x[i] != 0) {
            snprintf(why, WHY, "element %lld is %.17g, expected 0 (the other tensor is NULL)",
                     (long long)i, x[i]);
            zero = false;
        }
    free(x);
    return zero;
}

bool tensors_agree(const gd_tensor *actual, const gd_tensor *expected, double tolerance,
                   char *why) {
    char a_text[160], b_text[160];
    snprintf(why, WHY, "cannot be read: %.200s", gd_error_message());
    if (!actual && !expected) return true;
    if (!actual || !expected) return is_all_zero(actual ? actual : expected, why);
    gd_dtype dtype = gd_tensor_dtype(actual);
    if (!same_dtype_and_dims(actual, expected)) {
        snprintf(why, WHY, "is %s, expected %s", gd_describe(actual, a_text, 100),
                 gd_describe(expected, b_text, 100));
        return false;
    }
    char *a = read_elements(actual), *b = read_elements(expected);
    int64_t n = gd_tensor_numel(actual);
    bool agree = a && b;
    if (agree && gd_dtype_is_float(dtype)) agree = floats_agree(dtype, a, b, n, tolerance, why);
    else
        for (int64_t i = 0; i < n && agree; i++) {
            size_t size = gd_dtype_size(dtype);
            long long x = gd_load_i64(dtype, a + (size_t)i * size),
                      y = gd_load_i64(dtype, b + (size_t)i * size);
            agree = x == y;
            if (!agree)
                snprintf(why, WHY, "element %lld is %lld, expected %lld", (long long)i, x, y);
        }
    free(a);
    free(b);
    return agree;
}
