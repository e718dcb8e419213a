/* conv_columns.h - the columns of a convolution.
 *
 * The patch of x under one window is a column of ci * taps numbers, in the order of a row of w.
 * Columns laid side by side make a matrix (ci * taps, columns), and convolution is w times it.
 * Columns are numbered through a whole batch: image * places + place. A piece of work takes a
 * stretch of columns and a stretch of rows and lays that part of the matrix out in memory that
 * stays in the cache.
 */
#ifndef GRADUS_CPU_CONV_COLUMNS_H
#define GRADUS_CPU_CONV_COLUMNS_H

#include "backend/cpu/isa.h"
#include "ops/convolution.h"

/* Columns from one row of the output: windows (place, place + 1, ...) of that row. */
typedef struct gd_column_run {
    int64_t image;
    int64_t depth, row; /* of x, under the first tap of the window; may lie outside */
    int64_t place;      /* along the width of y */
    int64_t count;
    int64_t at; /* the first one's number in the stretch */
} gd_column_run;

/* At most this many runs make up `columns` columns. */
static inline int64_t gd_column_runs_most(const gd_conv *c, int64_t columns) {
    return columns / c->out[2] + 2;
}

/* Cuts the columns [begin, end) into runs; returns how many there are. */
int64_t gd_column_runs(const gd_conv *c, int64_t begin, int64_t end, gd_column_run *runs);

/* A part of the matrix: rows [begin, end) of it, as many columns as the runs have. Element (r, j)
 * is data[(r - begin) * step + j]. */
typedef struct gd_columns {
    const gd_conv *c;
    const gd_column_run *runs;
    int64_t count; /* of runs */
    int64_t begin, end;
    void *data;
    int64_t step;
} gd_columns;

/* Copies from x, whose first element is that of the group's first channel in image 0. */
GD_ISA_DECLARE(void, gd_columns_fill_f32, (const gd_columns *m, const float *x));
GD_ISA_DECLARE(void, gd_columns_fill_f64, (const gd_columns *m, const double *x));

/* The other way: adds to x. */
GD_ISA_DECLARE(void, gd_columns_add_f32, (const gd_columns *m, float *x));
GD_ISA_DECLARE(void, gd_columns_add_f64, (const gd_columns *m, double *x));

#endif
