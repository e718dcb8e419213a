/* compare.h - two results, and where they differ. */
#ifndef GRADUS_TESTS_COMPARE_H
#define GRADUS_TESTS_COMPARE_H

#include "gradus/gradus.h"

/* True when both have one dtype and shape and every element agrees: NaN with NaN, infinities of
 * one sign, integers exactly, floats within tolerance * (|expected| + the largest finite |expected|,
 * at most 1 and at least 0.01). A tolerance of 0 asks for the same bits, but for the sign and payload of NaN. `why`
 * (at least 256 bytes) says what differs first. NULL stands for zeros. */
bool tensors_agree(const gd_tensor *actual, const gd_tensor *expected, double tolerance, char *why);

/* The same for one number among others whose largest is `scale`. */
bool numbers_agree(double actual, double expected, double tolerance, double scale);

/* All elements as double (i64 may lose digits); the caller frees. NULL on failure. */
double *tensor_numbers(const gd_tensor *t);

/* What scale numbers_agree wants. */
double scale_of(const double *numbers, int64_t n);

/* What a dtype can be expected to keep, where nothing else is said. */
double usual_tolerance(gd_dtype dtype);

#endif
