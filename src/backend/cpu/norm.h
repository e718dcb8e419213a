/* norm.h - the passes that normalizations are made of, over runs of neighbouring elements.
 *
 * Parameters come in two forms: one number for a whole run, or a vector with one for each element.
 * Sums are in f64 from block to block.
 */
#ifndef GRADUS_CPU_NORM_H
#define GRADUS_CPU_NORM_H

#include <stdint.h>

#include "backend/cpu/isa.h"

typedef struct gd_norm_isa {
    /* Mean, and sum of squared distances from it; the same with a mean of 0. */
    void (*moments)(int64_t n, const void *x, double *mean, double *squares);
    void (*squares)(int64_t n, const void *x, double *squares);

    /* y = a x + b; y = (x - mean) a w + b with vectors w and b (NULL: 1 and 0); y = a x + b with
     * vectors a and b. */
    void (*scale)(int64_t n, const void *x, double a, double b, void *y);
    void (*scale_row)(int64_t n, const void *x, double mean, double a, const void *w, const void *b,
                      void *y);
    void (*scale_each)(int64_t n, const void *x, const void *a, const void *b, void *y);

    /* The sums of gy and of gy (x - mean). With a vector w (NULL: 1), those of gy w and
     * gy w (x - mean), and gy and gy (x - mean) a are added to gb and gw. */
    void (*dots)(int64_t n, const void *gy, const void *x, double mean, double *sum, double *dot);
    void (*dots_row)(int64_t n, const void *gy, const void *x, double mean, double a, const void *w,
                     void *gw, void *gb, double *sum, double *dot);
    /* sums += gy, dots += gy (x - mean), with vectors all. */
    void (*dots_each)(int64_t n, const void *gy, const void *x, const void *mean, void *sums,
                      void *dots);

    /* gx = a gy + b (x - mean) + c; with a vector w (NULL: 1), a w gy + ...; with vectors all. */
    void (*pull)(int64_t n, const void *gy, const void *x, double mean, double a, double b,
                 double c, void *gx);
    void (*pull_row)(int64_t n, const void *gy, const void *x, double mean, double a, double b,
                     double c, const void *w, void *gx);
    void (*pull_each)(int64_t n, const void *gy, const void *x, const void *mean, const void *a,
                      const void *b, const void *c, void *gx);

    /* y += x. */
    void (*add)(int64_t n, const void *x, void *y);
} gd_norm_isa;

GD_ISA_DECLARE(extern const gd_norm_isa, gd_norm_f32, [1]);
GD_ISA_DECLARE(extern const gd_norm_isa, gd_norm_f64, [1]);

#endif
