/* scan.h - running sums, products and linear recurrences along lines.
 *
 * f32 is accumulated in f64. Lines (or columns) do not depend on each other: four lines at a time
 * hide the latency of the chain of additions that each of them is.
 */
#ifndef GRADUS_CPU_SCAN_H
#define GRADUS_CPU_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

typedef enum gd_scan_kind { GD_SCAN_SUM, GD_SCAN_PROD, GD_SCAN_LINEAR } gd_scan_kind;

enum { GD_SCAN_LINES = 4, GD_SCAN_COLUMNS = 256 };

/* A scan as kernels see it. Steps are in elements; they are negative in reverse, where pointers are
 * to the last element. */
typedef struct gd_scan {
    gd_scan_kind kind;
    bool exclusive; /* SUM, PROD: leave out the element itself */
    bool neighbour; /* LINEAR: the coefficient is that of the element before */
    int64_t n;      /* elements of a line */
} gd_scan;

typedef struct gd_scanner {
    /* Up to GD_SCAN_LINES lines, each from its own start value. `a` is the coefficients of LINEAR.
     * y may be x. */
    void (*lines)(const gd_scan *s, int count, int64_t step, const void *const *a,
                  const void *const *x, void *const *y, const void *starts);
    /* Lines that lie across `cols` neighbouring columns. */
    void (*columns)(const gd_scan *s, int64_t cols, int64_t step, const void *a, const void *x,
                    void *y);
    /* The sum or product of n neighbours, in the accumulator's type (8 bytes). */
    void (*total)(gd_scan_kind kind, const void *x, int64_t n, void *result);
    /* totals[k] becomes what stands before k; from the end if `reverse`. */
    void (*starts)(gd_scan_kind kind, int64_t n, bool reverse, void *totals);
} gd_scanner;

GD_ISA_DECLARE(extern const gd_scanner, gd_scanner_f32, [1]);
GD_ISA_DECLARE(extern const gd_scanner, gd_scanner_f64, [1]);
GD_ISA_DECLARE(extern const gd_scanner, gd_scanner_i64, [1]);

#endif
