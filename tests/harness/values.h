/* values.h - creates tensors with simple known values. */
#ifndef GRADUS_TESTS_HARNESS_VALUES_H
#define GRADUS_TESTS_HARNESS_VALUES_H

#include "gradus/gradus.h"

/* An f32 tensor with the elements first, first + step, first + 2 step, ... */
static inline gd_tensor *ramp(gd_shape dims, double first, double step) {
    int64_t n = 1;
    for (int i = 0; i < dims.rank; i++) n *= dims.at[i];
    gd_tensor *x = gd_reshape(gd_arange(0, (double)n), dims);
    return gd_add(gd_mul(x, gd_scalar(step)), gd_scalar(first));
}

/* A scalar in f64; gd_scalar gives f32. */
static inline gd_tensor *scalar_f64(double x) { return gd_full(gd_dims(), x, .dtype = GD_F64); }

#endif
