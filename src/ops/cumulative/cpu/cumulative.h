/* cumulative.h - cumulative sums, products and linear recurrences along lines.
 *
 * f32 is accumulated in f64. Lines (or columns) are independent of each other: computing four at a
 * time hides the latency of the serial chain of additions in each of them.
 */
#ifndef GRADUS_OPS_CUMULATIVE_CPU_CUMULATIVE_H
#define GRADUS_OPS_CUMULATIVE_CPU_CUMULATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

typedef enum gd_cumulative_kind {
    GD_CUMULATIVE_SUM,
    GD_CUMULATIVE_PROD,
    GD_CUMULATIVE_LINEAR
} gd_cumulative_kind;

enum { GD_CUMULATIVE_LINES = 4, GD_CUMULATIVE_COLUMNS = 256 };

/* What to compute. In reverse, steps are negative, and pointers point to the last element of a
 * line. */
typedef struct gd_cumulative {
    gd_cumulative_kind kind;
    bool exclusive; /* SUM, PROD: exclude the element itself */
    bool shifted;   /* LINEAR: use the coefficient of the previous element */
    int64_t n;      /* elements of a line */
} gd_cumulative;

typedef struct gd_cumulative_isa {
    /* Computes up to GD_CUMULATIVE_LINES lines, each from its own start value. `a` are the
     * coefficients of LINEAR. Steps are in elements. y may be x. */
    void (*lines)(const gd_cumulative *s, int count, int64_t step, const void *const *a,
                  const void *const *x, void *const *y, const void *starts);
    /* Computes `cols` neighbouring columns at once. */
    void (*columns)(const gd_cumulative *s, int64_t cols, int64_t step, const void *a,
                    const void *x, void *y);
    /* The sum or product of n contiguous elements, in the accumulator's dtype (8 bytes). */
    void (*total)(gd_cumulative_kind kind, const void *x, int64_t n, void *result);
    /* Replaces the totals of blocks by their exclusive cumulative sums or products; from the end if
     * `reverse`. */
    void (*starts)(gd_cumulative_kind kind, int64_t n, bool reverse, void *totals);
} gd_cumulative_isa;

GD_ISA_DECLARE(extern const gd_cumulative_isa, gd_cumulative_f32, [1]);
GD_ISA_DECLARE(extern const gd_cumulative_isa, gd_cumulative_f64, [1]);
GD_ISA_DECLARE(extern const gd_cumulative_isa, gd_cumulative_i64, [1]);

#endif
