/* norm.h - vectorized passes of normalizations over runs of contiguous elements.
 *
 * Parameters come in two forms: one scalar for a run, or a vector with one value per element
 * (functions named _row and _each). Runs are summed in blocks, and the block sums are added in f64.
 */
#ifndef GRADUS_OPS_NORM_CPU_NORM_H
#define GRADUS_OPS_NORM_CPU_NORM_H

#include <stdint.h>

#include "backend/cpu/isa.h"

typedef struct gd_norm_isa {
    /* The mean and the sum of squared deviations from it; the sum of squares (a mean of 0). */
    void (*moments)(int64_t n, const void *x, double *mean, double *squares);
    void (*squares)(int64_t n, const void *x, double *squares);

    /* scale: y = a x + b. scale_row: y = (x - mean) a w + b with vectors w and b (NULL: 1 and 0).
     * scale_each: y = a x + b with vectors a and b. */
    void (*scale)(int64_t n, const void *x, double a, double b, void *y);
    void (*scale_row)(int64_t n, const void *x, double mean, double a, const void *w, const void *b,
                      void *y);
    void (*scale_each)(int64_t n, const void *x, const void *a, const void *b, void *y);

    /* dots: the sums of gy and of gy (x - mean). dots_row, with a vector w (NULL: 1): the sums of
     * gy w and of gy w (x - mean); also gb += gy and gw += gy (x - mean) a. */
    void (*dots)(int64_t n, const void *gy, const void *x, double mean, double *sum, double *dot);
    void (*dots_row)(int64_t n, const void *gy, const void *x, double mean, double a, const void *w,
                     void *gw, void *gb, double *sum, double *dot);
    /* sums += gy and dots += gy (x - mean), all vectors. */
    void (*dots_each)(int64_t n, const void *gy, const void *x, const void *mean, void *sums,
                      void *dots);

    /* input_grad: gx = a gy + b (x - mean) + c. input_grad_row, with a vector w (NULL: 1): gx = a w
     * gy + b (x - mean) + c. input_grad_each: as input_grad, with vectors mean, a, b and c. */
    void (*input_grad)(int64_t n, const void *gy, const void *x, double mean, double a, double b,
                       double c, void *gx);
    void (*input_grad_row)(int64_t n, const void *gy, const void *x, double mean, double a,
                           double b, double c, const void *w, void *gx);
    void (*input_grad_each)(int64_t n, const void *gy, const void *x, const void *mean,
                            const void *a, const void *b, const void *c, void *gx);

    /* y += x. */
    void (*add)(int64_t n, const void *x, void *y);
} gd_norm_isa;

GD_ISA_DECLARE(extern const gd_norm_isa, gd_norm_f32, [1]);
GD_ISA_DECLARE(extern const gd_norm_isa, gd_norm_f64, [1]);

#endif
