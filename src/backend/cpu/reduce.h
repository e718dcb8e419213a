/* reduce.h - reductions on the CPU: the engine (reduce_engine.c) and its vectorized leaf functions,
 * one table for each accumulator dtype and instruction set (reduce.typed.isa.c).
 *
 * A reduction is a tree. A leaf is a short run of elements (or a few rows, with one result per
 * column) that fits into L1, and has a state of one or two values; states are merged pairwise. The
 * tree depends on the shape alone, so the bits do not depend on the number of threads. Its depth is
 * logarithmic, so sums have small rounding errors (pairwise summation).
 *
 * The accumulator dtype is f32 (also for f16 and bf16), f64 or i64 (all integers and bools).
 */
#ifndef GRADUS_BACKEND_CPU_REDUCE_H
#define GRADUS_BACKEND_CPU_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "gradus/extend.h"

typedef enum gd_fold {
    GD_FOLD_SUM,
    GD_FOLD_PROD,
    GD_FOLD_MAX, /* NaN propagates, here and in all that follow */
    GD_FOLD_MIN,
    GD_FOLD_ANY, /* 1 or 0 */
    GD_FOLD_ALL,
    /* with a second value in the state, the index of the first largest or smallest element */
    GD_FOLD_ARGMAX,
    GD_FOLD_ARGMIN,
    /* floats only */
    GD_FOLD_SUM_ABS,
    GD_FOLD_SUM_SQUARE,
    GD_FOLD_SUM_POWER, /* sum of abs(x)^p */
    GD_FOLD_COUNT,     /* number of elements that are not 0 */
    GD_FOLD_MAX_ABS,
    GD_FOLD_MIN_ABS,
    GD_FOLD_MOMENTS, /* mean, and sum of squared deviations from it */
    GD_FOLD_EXP,     /* maximum m, and sum of exp(x - m), or of exp(x) if m is infinite */
    GD_FOLD_COUNT_,
} gd_fold;

/* How the result is computed from the final state of `n` elements. */
typedef enum gd_finish {
    GD_FINISH_NONE,
    GD_FINISH_MEAN,     /* s0 / n */
    GD_FINISH_VARIANCE, /* s1 / (n - p); p is the correction */
    GD_FINISH_DEVIATION,
    GD_FINISH_LOG_EXP, /* m + log(sum of exponentials) */
    GD_FINISH_SQRT,
    GD_FINISH_ROOT, /* s0 to the power 1/p */
} gd_finish;

/* The leaf functions of one accumulator dtype. A state is a pair of arrays: s0 of the dtype, and s1
 * of the dtype or, for argmax and argmin, of int64_t. Folds of one value do not access s1. Both
 * values of GD_FOLD_MOMENTS are doubles for f32 too: near a large mean, the means of two leaves
 * differ by less than f32 can represent, and merging squares their difference. */
typedef struct gd_reducer {
    /* Computes `count` states, at x, x + step, ... (bytes). Each is the state of `runs` runs of n >
     * 0 elements, `run_stride` bytes apart. `index` is the index of the first element. */
    void (*rows)(gd_fold fold, double p, const void *x, int64_t n, int64_t runs, int64_t run_stride,
                 int64_t count, int64_t step, int64_t index, void *s0, void *s1);
    /* Computes `cols` states from n_rows rows: state j is that of column j. */
    void (*columns)(gd_fold fold, double p, const void *const *rows, int n_rows, int64_t cols,
                    int64_t index, void *s0, void *s1);
    /* a = the state of a's elements followed by b's. */
    void (*merge)(gd_fold fold, int64_t cols, int64_t count_a, void *a0, void *a1, int64_t count_b,
                  const void *b0, const void *b1);
    /* Computes the results from the states, in s0. */
    void (*finish)(gd_finish finish, double p, int64_t n, int64_t cols, void *s0, void *s1);
    /* Converts n elements, `step` bytes apart, to a contiguous row of the accumulator dtype. */
    void (*load)(void *to, gd_dtype from, const void *x, int64_t step, int64_t n);
} gd_reducer;

/* The description of a reduction. */
typedef struct gd_reduction {
    gd_fold fold;
    gd_finish finish;
    double p;
    gd_dtype type;   /* accumulator dtype: f32, f64 or i64 */
    uint32_t mask;   /* bit k: axis k is reduced */
    bool in_order;   /* argmax, argmin: axes keep their order, because the index depends on it */
    bool two_values; /* the state has two values */
    gd_view *y, *y1; /* outputs: results, and second values of the states; either may be NULL */
    /* Fusion with a producer: computes elements [first, first + n) into `to`, each element once. x
     * then only has a shape and strides: contiguous, of dtype `type`, its data is not read. NULL:
     * reads x. */
    void (*source)(const void *context, int64_t first, int64_t n, void *to);
    const void *context;
} gd_reduction;

/* The workspace in bytes that gd_reduce needs. */
size_t gd_reduce_bytes(const gd_view *x, const gd_reduction *r);
void gd_reduce(const gd_view *x, const gd_reduction *r, void *workspace);

/* Arrays of one element, so that GD_ISA_CALL(gd_reducer_f32) is an address. */
GD_ISA_DECLARE(extern const gd_reducer, gd_reducer_f32, [1]);
GD_ISA_DECLARE(extern const gd_reducer, gd_reducer_f64, [1]);
GD_ISA_DECLARE(extern const gd_reducer, gd_reducer_i64, [1]);

#endif
