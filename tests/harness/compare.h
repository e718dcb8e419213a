/* compare.h - compares tensors: within a tolerance, bit by bit, or by their largest difference. */
#ifndef GRADUS_TESTS_HARNESS_COMPARE_H
#define GRADUS_TESTS_HARNESS_COMPARE_H

#include "gradus/gradus.h"

/* True when both have the same dtype and shape and every element agrees: NaN with NaN,
 * infinities of the same sign, integers exactly, floats within tolerance * (|expected| + the
 * largest finite |expected|, at most 1 and at least 0.01). A tolerance of 0 requires the same
 * bits, except for the sign and payload of NaN. `why` (at least 256 bytes) names the first
 * difference. NULL stands for zeros. */
bool tensors_agree(const gd_tensor *actual, const gd_tensor *expected, double tolerance, char *why);

/* The same for one number; `scale` is scale_of all expected numbers of the tensor. */
bool numbers_agree(double actual, double expected, double tolerance, double scale);

/* True when both have the same dtype, shape and bits. Strides may differ. False after a failure. */
bool tensors_same_bits(const gd_tensor *a, const gd_tensor *b);

/* The largest |a - b| of all elements, computed in f64. NaN where an element is NaN, where the
 * tensors differ in their number of elements, and after a failure. */
double tensors_distance(const gd_tensor *a, const gd_tensor *b);

/* The same, divided by the largest |expected|. */
double tensors_relative_distance(const gd_tensor *actual, const gd_tensor *expected);

/* The number of bytes of all elements. */
size_t tensor_bytes(const gd_tensor *t);

/* All elements as double (i64 may lose digits). free() it. NULL on failure. */
double *tensor_numbers(const gd_tensor *t);

/* The scale for numbers_agree: the largest finite |number|, at most 1 and at least 0.01. */
double scale_of(const double *numbers, int64_t n);

/* The default tolerance of results of a dtype. */
double usual_tolerance(gd_dtype dtype);

#endif
