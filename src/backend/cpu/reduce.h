/* reduce.h - what a reduction is made of, for each element type and instruction set.
 *
 * A reduction is a tree over leaves: a leaf is a short stretch of elements (or a few rows, one
 * result for each column), small enough for the first-level cache, and has a state of one or two
 * numbers; states are merged in pairs. The tree follows from the shape alone, so that the bits do
 * not depend on the number of threads, and its depth is a logarithm, so that sums lose few digits.
 *
 * Numbers are computed as f32 (f16 and bf16 too), f64 or i64 (all integers and bools).
 */
#ifndef GRADUS_CPU_REDUCE_H
#define GRADUS_CPU_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "gradus/extend.h"

typedef enum gd_fold {
    GD_FOLD_SUM,
    GD_FOLD_PROD,
    GD_FOLD_MAX, /* NaN wins, as in all that follow */
    GD_FOLD_MIN,
    GD_FOLD_ANY, /* 1 or 0 */
    GD_FOLD_ALL,
    /* with a second number in the state, the index: the first largest or smallest element */
    GD_FOLD_ARGMAX,
    GD_FOLD_ARGMIN,
    /* floats only */
    GD_FOLD_SUM_ABS,
    GD_FOLD_SUM_SQUARE,
    GD_FOLD_SUM_POWER, /* of absolute values, to the power p */
    GD_FOLD_COUNT,     /* of what is not 0 */
    GD_FOLD_MAX_ABS,
    GD_FOLD_MIN_ABS,
    GD_FOLD_MOMENTS, /* mean, and sum of squared distances from it */
    GD_FOLD_EXP, /* largest element m, and sum of exp(x - m), or of exp(x) where m is infinite */
    GD_FOLD_COUNT_,
} gd_fold;

/* What becomes of a state at the end. `n` elements made it up. */
typedef enum gd_finish {
    GD_FINISH_NONE,
    GD_FINISH_MEAN,     /* s0 / n */
    GD_FINISH_VARIANCE, /* s1 / (n - p), p the correction */
    GD_FINISH_DEVIATION,
    GD_FINISH_LOG_EXP, /* log of the sum of exponentials */
    GD_FINISH_SQRT,
    GD_FINISH_ROOT, /* s0 to the power 1/p */
} gd_finish;

/* Leaves of one element type. A state is a pair of arrays, s0 of the type, s1 of the type or, for
 * argmax and argmin, of int64_t; s1 is not touched by folds that have no second number. Both
 * numbers of GD_FOLD_MOMENTS are doubles for f32 too: the means of two leaves differ by less than
 * an f32 near a large mean can hold, and their difference is squared. */
typedef struct gd_reducer {
    /* For each of `count` states at x, x + step, ... (bytes): `runs` runs of n > 0 elements, `apart`
     * bytes from one run to the next. `index` is that of the first element. */
    void (*rows)(gd_fold fold, double p, const void *x, int64_t n, int64_t runs, int64_t apart,
                 int64_t count, int64_t step, int64_t index, void *s0, void *s1);
    /* Rows of `cols` elements: state j is that of column j. */
    void (*columns)(gd_fold fold, double p, const void *const *rows, int n_rows, int64_t cols,
                    int64_t index, void *s0, void *s1);
    /* a becomes the state of a's elements and b's, which come after them. */
    void (*merge)(gd_fold fold, int64_t cols, int64_t count_a, void *a0, void *a1, int64_t count_b,
                  const void *b0, const void *b1);
    /* States to results, in s0. */
    void (*finish)(gd_finish finish, double p, int64_t n, int64_t cols, void *s0, void *s1);
    /* n elements at `step` bytes into a row of this type. */
    void (*load)(void *to, gd_dtype from, const void *x, int64_t step, int64_t n);
} gd_reducer;

/* A reduction as it is asked for. */
typedef struct gd_reduction {
    gd_fold fold;
    gd_finish finish;
    double p;
    gd_dtype type;   /* computed in: f32, f64 or i64 */
    uint32_t mask;   /* the axes to reduce */
    bool in_order;   /* argmax, argmin: the index counts, and axes keep their order */
    bool two;        /* the state has two numbers */
    gd_view *y, *y1; /* results, and the second numbers of the states; either may be NULL */
    /* Elements that are made while they are reduced, each once: puts [first, first + n) at `to`. x is
     * then a shape of dtype `type`, row-major, with data that is not looked at. NULL: x is there. */
    void (*source)(const void *context, int64_t first, int64_t n, void *to);
    const void *context;
} gd_reduction;

/* Bytes of memory that gd_reduce needs. */
size_t gd_reduce_bytes(const gd_view *x, const gd_reduction *r);
void gd_reduce(const gd_view *x, const gd_reduction *r, void *workspace);

/* Arrays of one, so that GD_ISA_CALL(gd_reducer_f32) is an address. */
GD_ISA_DECLARE(extern const gd_reducer, gd_reducer_f32, [1]);
GD_ISA_DECLARE(extern const gd_reducer, gd_reducer_f64, [1]);
GD_ISA_DECLARE(extern const gd_reducer, gd_reducer_i64, [1]);

#endif
