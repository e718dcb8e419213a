/* reduce_plan.h - the plan of a reduction: axes in the order in which they are traversed, leaves,
 * segments and tasks. reduce_plan.c computes it, reduce_engine.c runs it.
 *
 * There are two kinds of plans. By rows: the elements of one result are contiguous, and each result
 * has its own leaves. By columns: neighbouring results are contiguous; a leaf is a few rows, with
 * one result per column. Elements that are contiguous in neither way, or have another dtype than
 * the accumulators, are first gathered into a buffer, leaf by leaf.
 *
 * The leaves of a result are grouped into segments. One task reduces one segment (or several small
 * results). If results have several segments, the states of the segments are stored in the
 * workspace and merged at the end: a split reduction.
 */
#ifndef GRADUS_BACKEND_CPU_REDUCE_PLAN_H
#define GRADUS_BACKEND_CPU_REDUCE_PLAN_H

#include "backend/cpu/loop.h"
#include "backend/cpu/reduce.h"

enum {
    LEAF = 2048,            /* elements of a leaf by rows */
    LEAF_ROWS = 16,         /* rows of a leaf by columns */
    CHUNK_BYTES = 2048,     /* columns that are reduced at once */
    FEW_ELEMENTS = 16,      /* reductions of at most this many elements go by columns */
    SEGMENT = 65536,        /* elements of a task, roughly */
    SOURCE_SEGMENT = 16384, /* the same if a source computes them, which takes longer */
    ROWS_BATCH = 64,        /* results that a task by rows reduces at once */
    NARROW_COLUMNS = 64,    /* with at most this many columns, several rows form a wide one */
    WIDE_COLUMNS = 256,     /* columns of a wide row, at most */
    LEVELS = 20,            /* of the tree in a segment */
    STATES_BYTES = 40960,
    WIDE_BYTES = 2 * 8 * WIDE_COLUMNS, /* states of a wide row */
    BUFFER = LEAF_ROWS * CHUNK_BYTES,
    SOURCE_BYTES = 8192, /* elements per call of the source: still in L1 when they are reduced */
};

typedef struct {
    int64_t dim, x, y, y1; /* size, and strides in bytes */
} reduce_axis;

typedef struct {
    gd_reduction r;
    const gd_reducer *isa;
    const gd_view *x;
    int64_t size, x_size;            /* bytes of an element of the accumulator dtype and of x */
    gd_dtype state;                  /* dtype of the first value of a state */
    int64_t state_size, second_size; /* bytes of the two values of a state */
    reduce_axis kept[GD_MAX_RANK], reduced[GD_MAX_RANK];
    int n_kept, n_reduced;   /* without the innermost axes, `inner` and `run` */
    reduce_axis inner, run;  /* the innermost kept axis and the innermost reduced axis */
    int64_t groups;          /* there are groups * inner.dim results */
    int64_t total;           /* elements of one result */
    bool by_columns, direct; /* direct: leaves read x in place */
    int64_t leaf;            /* elements of a run (by columns: rows) in a leaf, at most */
    /* direct, by rows: */
    int64_t leaf_runs;        /* runs in a leaf, at most */
    int64_t line;             /* runs with a constant stride, which can share a leaf */
    int64_t leaves_per_line;  /* leaves of a line, or of one run if line is 1 */
    bool results_interleaved; /* results are closer than runs: a leaf reduces a chunk of results */
    /* by columns: the first grouped_leaves leaves treat row_group rows as one wide row */
    int64_t row_group, grouped_leaves;
    int64_t leaves, leaves_per_segment, segments;
    int64_t chunk, chunks; /* results that are reduced at once, and such chunks in a group */
    int64_t tasks, chunks_per_task;
    char *partial0, *partial1; /* states of segments: [groups][segments][inner.dim] */
} reduce_job;

void gd_reduce_plan(reduce_job *j, const gd_view *x, const gd_reduction *r);

#endif
