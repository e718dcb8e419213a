/* reduce_engine.c - reductions over any axes of a tensor with any strides.
 *
 * There are two plans. By rows: the elements of one result are contiguous, and each result has its
 * own leaves. By columns: neighbouring results are contiguous; a leaf is a few rows, with one
 * result per column. Elements that are contiguous in neither way, or have another dtype than the
 * accumulators, are first gathered into a buffer, leaf by leaf.
 *
 * The leaves of a result are grouped into segments. One task reduces one segment (or several small
 * results). If results have several segments, the states of the segments are stored in the
 * workspace and merged at the end: a split reduction.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/reduce.h"
#include "core/tile.h"
#include "core/copy.h"
#include "core/pool.h"
#include "core/tensor.h"

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
} axis;

typedef struct {
    gd_reduction r;
    const gd_reducer *isa;
    const gd_view *x;
    int64_t size, x_size;            /* bytes of an element of the accumulator dtype and of x */
    gd_dtype state;                  /* dtype of the first number of a state */
    int64_t state_size, second_size; /* bytes of the two numbers of a state */
    axis kept[GD_MAX_RANK], reduced[GD_MAX_RANK];
    int n_kept,
        n_reduced; /* without the innermost axes, which are `inner` (kept) and `run` (reduced) */
    axis inner, run;
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

/* --- the plan --------------------------------------------------------------------------------- */

static int64_t magnitude(int64_t step) { return step < 0 ? -step : step; }

/* Orders axes from the outermost: stride 0 first, then by decreasing stride. */
static int compare_axis_strides(const void *a, const void *b) {
    int64_t p = magnitude(((const axis *)a)->x), q = magnitude(((const axis *)b)->x);
    if ((p == 0) != (q == 0)) return p == 0 ? -1 : 1;
    return p > q ? -1 : p < q;
}

/* Merges adjacent axes that have the same strides as one longer axis. */
static int merge_axes(axis *axes, int n) {
    int joined = 0;
    for (int i = 0; i < n; i++) {
        axis *last = joined ? &axes[joined - 1] : NULL, *a = &axes[i];
        if (a->dim == 1) continue;
        if (last && last->x == a->x * a->dim && last->y == a->y * a->dim &&
            last->y1 == a->y1 * a->dim) {
            int64_t dim = last->dim * a->dim;
            *last = *a;
            last->dim = dim;
        } else axes[joined++] = *a;
    }
    return joined;
}

static axis take_innermost(axis *axes, int *n, int64_t x_size) {
    if (*n > 0) return axes[--*n];
    return (axis){.dim = 1, .x = x_size};
}

static int64_t axes_product(const axis *axes, int n) {
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= axes[i].dim;
    return count;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t segment_elements(const reduce_job *j) {
    return j->r.source ? SOURCE_SEGMENT : SEGMENT;
}

/* Divides a long run into several leaves, and puts several short runs with a constant stride into
 * one leaf. */
static void plan_by_rows(reduce_job *j) {
    j->direct = j->run.x == j->size && j->x->dtype == j->r.type;
    j->leaf = LEAF;
    j->leaves = divide_up(j->total, LEAF);
    if (j->direct && j->total > 0) {
        int64_t runs = j->total / j->run.dim, leaves_per_run = divide_up(j->run.dim, LEAF);
        j->line = leaves_per_run == 1 && j->n_reduced > 0 ? j->reduced[j->n_reduced - 1].dim : 1;
        j->leaf_runs = j->line > 1 ? LEAF / j->run.dim : 1;
        j->leaf = leaves_per_run > 1 ? divide_up(divide_up(j->run.dim, leaves_per_run), 128) * 128
                                     : j->run.dim;
        j->leaves_per_line = leaves_per_run > 1 ? leaves_per_run : divide_up(j->line, j->leaf_runs);
        j->leaves = runs / j->line * j->leaves_per_line;
    }
    int64_t elements = j->leaf * (j->leaf_runs > 1 ? j->leaf_runs : 1);
    j->results_interleaved = j->line > 1 && j->inner.dim > 1 &&
                             magnitude(j->inner.x) < magnitude(j->reduced[j->n_reduced - 1].x);
    if (j->results_interleaved) elements *= j->inner.dim < ROWS_BATCH ? j->inner.dim : ROWS_BATCH;
    j->leaves_per_segment = divide_up(segment_elements(j), elements > 0 ? elements : 1);
    j->segments = divide_up(j->leaves, j->leaves_per_segment);
    j->chunk = j->segments > 1 && !j->results_interleaved ? 1 : ROWS_BATCH;
    if (j->segments == 1 && !j->results_interleaved &&
        j->chunk * j->total > segment_elements(j)) /* no more than one task's work */
        j->chunk = j->total < segment_elements(j) ? segment_elements(j) / j->total : 1;
}

static void plan_by_columns(reduce_job *j) {
    j->direct = j->inner.x == j->size && j->x->dtype == j->r.type;
    j->leaf = LEAF_ROWS;
    j->leaves = divide_up(j->total, LEAF_ROWS);
    j->chunk = CHUNK_BYTES / j->size;
    if (j->chunk > j->inner.dim) j->chunk = j->inner.dim;
    j->row_group = 1;
    bool dense = j->direct && j->n_reduced == 0 && j->run.x == j->inner.dim * j->size;
    if (dense && j->inner.dim > 0 && j->inner.dim <= NARROW_COLUMNS && !j->r.in_order) {
        while (2 * j->row_group * j->inner.dim <= WIDE_COLUMNS) j->row_group *= 2;
        j->grouped_leaves = j->total / (LEAF_ROWS * j->row_group);
        j->leaves = j->grouped_leaves +
                    divide_up(j->total - j->grouped_leaves * LEAF_ROWS * j->row_group, LEAF_ROWS);
    }
    j->leaves_per_segment =
        divide_up(segment_elements(j), LEAF_ROWS * j->row_group * (j->chunk > 0 ? j->chunk : 1));
    j->segments = divide_up(j->leaves, j->leaves_per_segment);
}

static void plan_reduction(reduce_job *j, const gd_view *x, const gd_reduction *r) {
    memset(j, 0, sizeof *j);
    j->r = *r;
    j->x = x;
    j->x_size = (int64_t)gd_dtype_size(x->dtype);
    j->size = (int64_t)gd_dtype_size(r->type);
    j->state = r->fold == GD_FOLD_MOMENTS ? GD_F64 : r->type;
    j->state_size = (int64_t)gd_dtype_size(j->state);
    j->second_size = !r->two_numbers ? 0 : r->in_order ? (int64_t)sizeof(int64_t) : j->state_size;
    const gd_view *y = r->y ? r->y : r->y1, *y1 = r->y1 ? r->y1 : r->y;
    int64_t y_size = (int64_t)gd_dtype_size(y->dtype), y1_size = (int64_t)gd_dtype_size(y1->dtype);
    bool keepdim = y->rank == x->rank;
    for (int k = 0, at = 0; k < x->rank; k++) {
        bool reduces = r->mask >> k & 1;
        axis a = {.dim = x->dims[k], .x = x->strides[k] * j->x_size};
        if (reduces) {
            at += keepdim;
            j->reduced[j->n_reduced++] = a;
        } else {
            a.y = y->strides[at] * y_size;
            a.y1 = y1->strides[at++] * y1_size;
            j->kept[j->n_kept++] = a;
        }
    }
    j->groups = axes_product(j->kept, j->n_kept);
    j->total = axes_product(j->reduced, j->n_reduced);
    if (!r->in_order) qsort(j->reduced, (size_t)j->n_reduced, sizeof(axis), compare_axis_strides);
    qsort(j->kept, (size_t)j->n_kept, sizeof(axis), compare_axis_strides);
    j->n_reduced = merge_axes(j->reduced, j->n_reduced);
    j->n_kept = merge_axes(j->kept, j->n_kept);
    j->run = take_innermost(j->reduced, &j->n_reduced, j->x_size);
    j->inner = take_innermost(j->kept, &j->n_kept, j->x_size);
    if (j->inner.dim > 0) j->groups /= j->inner.dim;
    int64_t run = magnitude(j->run.x), inner = magnitude(j->inner.x);
    j->by_columns = j->inner.dim > 1 && inner > 0 && (run == 0 || inner < run || j->run.dim == 1);
    if (j->total <= FEW_ELEMENTS && j->inner.dim >= 2 * FEW_ELEMENTS && !r->source)
        j->by_columns = true;
    if (j->by_columns) plan_by_columns(j);
    else plan_by_rows(j);
    if (j->segments < 1) j->segments = 1; /* results without elements */
    j->chunks = divide_up(j->inner.dim, j->chunk > 0 ? j->chunk : 1);
    int64_t work =
        (j->chunk < j->inner.dim ? j->chunk : j->inner.dim) * (j->total > 0 ? j->total : 1);
    j->chunks_per_task = j->segments > 1 || work >= segment_elements(j)
                             ? 1
                             : segment_elements(j) / (work > 0 ? work : 1);
    j->tasks = divide_up(j->groups * j->chunks, j->chunks_per_task) * j->segments;
}

static size_t partial_bytes(const reduce_job *j) {
    if (j->segments == 1) return 0;
    return (size_t)(j->groups * j->segments * j->inner.dim) *
           (size_t)(j->state_size + j->second_size);
}

/* --- leaves ----------------------------------------------------------------------------------- */

/* The offset in bytes of element `index`, counted over these axes. */
static int64_t axes_offset(const axis *axes, int n, int64_t index) {
    int64_t at = 0;
    for (int k = n; k-- > 0;) {
        at += index % axes[k].dim * axes[k].x;
        index /= axes[k].dim;
    }
    return at;
}

/* The number of elements of a result in the leaves before this one. */
static int64_t elements_before(const reduce_job *j, int64_t leaf) {
    int64_t count;
    if (j->direct && !j->by_columns) {
        int64_t line = leaf / j->leaves_per_line, part = leaf % j->leaves_per_line;
        count = line * j->line * j->run.dim + part * j->leaf * j->leaf_runs;
    } else if (j->row_group > 1) {
        int64_t grouped = leaf < j->grouped_leaves ? leaf : j->grouped_leaves;
        count = (grouped * j->row_group + leaf - grouped) * j->leaf;
    } else count = leaf * j->leaf;
    return count < j->total ? count : j->total;
}

/* --- leaves whose elements a source computes (gd_reduction.source) ---------------------------- */

/* Computes n consecutive elements of x, from address `at` on, into `to`. */
static const char *compute_source(const reduce_job *j, const char *at, int64_t n, char *to) {
    j->r.source(j->r.context, (at - (const char *)j->x->data) / j->size, n, to);
    return to;
}

/* The same as isa->rows, for as many results at a time as the buffer holds. */
static void reduce_source_rows(const reduce_job *j, const char *x, int64_t n, int64_t runs,
                               int64_t run_stride, int64_t cols, int64_t first, char *buffer,
                               char *s0, char *s1) {
    const int64_t bytes = n * runs * j->size;
    const bool contiguous =
        run_stride == n * j->size || runs == 1; /* the runs of a result are contiguous */
    int64_t batch =
        contiguous && j->inner.x == bytes && bytes <= SOURCE_BYTES ? SOURCE_BYTES / bytes : 1;
    for (int64_t c = 0; c < cols; c += batch) {
        if (batch > cols - c) batch = cols - c;
        const char *from = x + c * j->inner.x;
        if (contiguous) compute_source(j, from, batch * n * runs, buffer);
        else
            for (int64_t r = 0; r < runs; r++)
                compute_source(j, from + r * run_stride, n, buffer + r * n * j->size);
        j->isa->rows(j->r.fold, j->r.p, buffer, n, runs, n * j->size, batch, bytes, first,
                     s0 + c * j->state_size, s1 + c * j->second_size);
    }
}

/* Reduces a direct leaf by rows, of `cols` results. */
static void reduce_rows_leaf(const reduce_job *j, const char *base, int64_t leaf, int64_t cols,
                             char *buffer, void *s0, void *s1) {
    int64_t line = leaf / j->leaves_per_line, part = leaf % j->leaves_per_line, runs = 1,
            run_stride = 0;
    int64_t first = line * j->line * j->run.dim + part * j->leaf * j->leaf_runs, n = j->leaf;
    if (j->line > 1) {
        int64_t run = part * j->leaf_runs;
        runs = j->line - run < j->leaf_runs ? j->line - run : j->leaf_runs;
        run_stride = j->reduced[j->n_reduced - 1].x;
        base += axes_offset(j->reduced, j->n_reduced, line * j->line + run);
    } else {
        if (j->run.dim - part * j->leaf < n) n = j->run.dim - part * j->leaf;
        base += axes_offset(j->reduced, j->n_reduced, line) + part * j->leaf * j->size;
    }
    if (j->r.source) reduce_source_rows(j, base, n, runs, run_stride, cols, first, buffer, s0, s1);
    else
        j->isa->rows(j->r.fold, j->r.p, base, n, runs, run_stride, cols, j->inner.x, first, s0, s1);
}

/* Reduces a leaf by rows whose elements have to be gathered. */
static void reduce_gathered_leaf(const reduce_job *j, const char *base, int64_t leaf, char *buffer,
                                 void *s0, void *s1) {
    int64_t first = leaf * j->leaf, n = j->total - first < j->leaf ? j->total - first : j->leaf;
    char *to = buffer;
    for (int64_t left = n, at = first; left > 0;) {
        int64_t in_run = at % j->run.dim, count = j->run.dim - in_run;
        if (count > left) count = left;
        const char *from =
            base + axes_offset(j->reduced, j->n_reduced, at / j->run.dim) + in_run * j->run.x;
        j->isa->load(to, j->x->dtype, from, j->run.x, count);
        to += count * j->size;
        at += count;
        left -= count;
    }
    j->isa->rows(j->r.fold, j->r.p, buffer, n, 1, 0, 1, 0, first, s0, s1);
}

/* Collects the rows of a leaf by columns: addresses in x, or gathered into the buffer. */
static int collect_leaf_rows(const reduce_job *j, const char *base, int64_t leaf, int64_t cols,
                             char *buffer, const void **rows) {
    int64_t first = elements_before(j, leaf), end = first + LEAF_ROWS;
    if (end > j->total) end = j->total;
    int64_t in_run = j->n_reduced ? first % j->run.dim : first,
            run = j->n_reduced ? first / j->run.dim : 0;
    const char *row = base + in_run * j->run.x + axes_offset(j->reduced, j->n_reduced, run);
    if (j->r.source && j->n_reduced == 0 && cols == j->inner.dim &&
        j->run.x == cols * j->size) { /* all rows at once */
        compute_source(j, row, (end - first) * cols, buffer);
        for (int64_t r = first; r < end; r++)
            rows[r - first] = buffer + (r - first) * cols * j->size;
        return (int)(end - first);
    }
    for (int64_t r = first; r < end; r++) {
        rows[r - first] = row;
        if (j->r.source)
            rows[r - first] =
                compute_source(j, row, cols, buffer + (r - first) * j->chunk * j->size);
        else if (!j->direct) {
            char *to = buffer + (r - first) * j->chunk * j->size;
            j->isa->load(to, j->x->dtype, row, j->inner.x, cols);
            rows[r - first] = to;
        }
        row += j->run.x;
        if (++in_run == j->run.dim) {
            in_run = 0;
            row = base + axes_offset(j->reduced, j->n_reduced, ++run);
        }
    }
    return (int)(end - first);
}

/* Reduces a leaf of wide rows to one state per column of the wide row, and merges those pairwise to
 * one state per column of x. */
static void reduce_wide_leaf(const reduce_job *j, const char *base, int64_t leaf, int64_t cols,
                             char *buffer, void *s0, void *s1) {
    const void *rows[LEAF_ROWS];
    char *wide0 = buffer, *wide1 = buffer + 8 * WIDE_COLUMNS;
    int64_t count = LEAF_ROWS;
    base += elements_before(j, leaf) * j->run.x;
    if (j->r.source)
        base = compute_source(j, base, LEAF_ROWS * j->row_group * cols, buffer + WIDE_BYTES);
    for (int r = 0; r < LEAF_ROWS; r++) rows[r] = base + r * j->row_group * j->run.x;
    j->isa->columns(j->r.fold, j->r.p, rows, LEAF_ROWS, cols * j->row_group, 0, wide0, wide1);
    for (int64_t half = j->row_group / 2; half > 0; half /= 2, count *= 2)
        j->isa->merge(j->r.fold, cols * half, count, wide0, wide1, count,
                      wide0 + cols * half * j->state_size, wide1 + cols * half * j->second_size);
    memcpy(s0, wide0, (size_t)(cols * j->state_size));
    if (j->r.two_numbers) memcpy(s1, wide1, (size_t)(cols * j->second_size));
}

static void reduce_leaf(const reduce_job *j, const char *base, int64_t leaf, int64_t cols,
                        char *buffer, void *s0, void *s1) {
    if (j->by_columns && leaf < j->grouped_leaves)
        reduce_wide_leaf(j, base, leaf, cols, buffer, s0, s1);
    else if (j->by_columns) {
        const void *rows[LEAF_ROWS];
        int n = collect_leaf_rows(j, base, leaf, cols, buffer, rows);
        j->isa->columns(j->r.fold, j->r.p, rows, n, cols, elements_before(j, leaf), s0, s1);
    } else if (j->direct) reduce_rows_leaf(j, base, leaf, cols, buffer, s0, s1);
    else reduce_gathered_leaf(j, base, leaf, buffer, s0, s1);
}

/* --- segments --------------------------------------------------------------------------------- */

/* The state of a reduction over no elements. */
static void store_identity(const reduce_job *j, int64_t cols, char *s0) {
    double real = 0;
    int64_t integer = 0;
    switch (j->r.fold) {
    case GD_FOLD_PROD:
    case GD_FOLD_ALL: real = 1, integer = 1; break;
    case GD_FOLD_EXP: real = -__builtin_inf(); break;
    case GD_FOLD_MOMENTS: real = __builtin_nan(""); break;
    default: break;
    }
    for (int64_t c = 0; c < cols; c++)
        if (j->r.type == GD_I64) ((int64_t *)(void *)s0)[c] = integer;
        else gd_store_f64(j->state, s0 + c * j->state_size, real);
}

/* Reduces leaves [first, end) of one result (by rows) or of `cols` results (by columns) into s0,
 * s1. The merges follow a binary counter: a state on the stack covers 2^k leaves, and two of the
 * same size are merged at once. `states` has room for the stack above its first entry, which is s0,
 * s1. */
static void reduce_segment(const reduce_job *j, const char *base, int64_t first, int64_t end,
                           int64_t cols, char *buffer, char *states, char *s0, char *s1) {
    char *level0[LEVELS], *level1[LEVELS];
    int64_t start[LEVELS + 1];
    int depth = 0;
    if (first == end) {
        store_identity(j, cols, s0);
        if (j->r.two_numbers) memset(s1, 0, (size_t)(cols * j->second_size));
        return;
    }
    if (end - first == 1) {
        reduce_leaf(j, base, first, cols, buffer, s0, s1);
        return;
    }
    for (int k = 0; k < LEVELS; k++) {
        level0[k] = k ? states + (2 * k - 2) * cols * 8 : s0;
        level1[k] = k ? states + (2 * k - 1) * cols * 8 : s1;
    }
    for (int64_t leaf = first; leaf < end; leaf++) {
        reduce_leaf(j, base, leaf, cols, buffer, level0[depth], level1[depth]);
        start[depth++] = leaf;
        int merges = __builtin_ctzll((unsigned long long)(leaf - first + 1));
        if (leaf == end - 1) merges = depth - 1; /* merge the rest of the stack */
        for (; merges > 0; merges--, depth--) {
            int64_t a = elements_before(j, start[depth - 2]),
                    b = elements_before(j, start[depth - 1]);
            j->isa->merge(j->r.fold, cols, b - a, level0[depth - 2], level1[depth - 2],
                          elements_before(j, leaf + 1) - b, level0[depth - 1], level1[depth - 1]);
        }
    }
}

/* --- results ---------------------------------------------------------------------------------- */

static void store_results(const reduce_job *j, int64_t group, int64_t col, int64_t cols, char *s0,
                          char *s1) {
    int64_t y = col * j->inner.y, y1 = col * j->inner.y1;
    for (int k = j->n_kept; k-- > 0;) {
        int64_t i = group % j->kept[k].dim;
        group /= j->kept[k].dim;
        y += i * j->kept[k].y;
        y1 += i * j->kept[k].y1;
    }
    if (j->r.finish) j->isa->finish(j->r.finish, j->r.p, j->total, cols, s0, s1);
    if (j->r.y)
        gd_convert_row(j->r.y->dtype, (char *)j->r.y->data + y, j->inner.y, j->state, s0,
                       j->state_size, cols);
    if (j->r.y1)
        gd_convert_row(j->r.y1->dtype, (char *)j->r.y1->data + y1, j->inner.y1,
                       j->r.in_order ? GD_I64 : j->state, s1, j->second_size, cols);
}

static void reduce_task(void *arg, int64_t task) {
    const reduce_job *j = arg;
    GD_TILE(char, buffer, WIDE_BYTES + BUFFER);
    GD_TILE(char, states, STATES_BYTES);
    GD_TILE(char, s0, CHUNK_BYTES / 4 * 8);
    GD_TILE(char, s1, CHUNK_BYTES / 4 * 8);
    int64_t segment = task % j->segments, from = task / j->segments * j->chunks_per_task;
    int64_t to = from + j->chunks_per_task, first = segment * j->leaves_per_segment;
    int64_t end =
        first + j->leaves_per_segment < j->leaves ? first + j->leaves_per_segment : j->leaves;
    if (to > j->groups * j->chunks) to = j->groups * j->chunks;
    for (int64_t t = from; t < to; t++) {
        int64_t group = t / j->chunks, col = t % j->chunks * j->chunk;
        int64_t cols = j->inner.dim - col < j->chunk ? j->inner.dim - col : j->chunk;
        const char *base =
            (const char *)j->x->data + axes_offset(j->kept, j->n_kept, group) + col * j->inner.x;
        char *to0 = s0, *to1 = s1;
        if (j->segments > 1) {
            int64_t at = (group * j->segments + segment) * j->inner.dim + col;
            to0 = j->partial0 + at * j->state_size;
            to1 = j->partial1 + at * j->second_size;
        }
        if (j->by_columns || j->results_interleaved || (j->direct && j->leaves == 1))
            reduce_segment(j, base, first, end, cols, buffer, states, to0, to1);
        else
            for (int64_t c = 0; c < cols; c++)
                reduce_segment(j, base + c * j->inner.x, first, end, 1, buffer, states,
                               to0 + c * j->state_size, to1 + c * j->second_size);
        if (j->segments == 1) store_results(j, group, col, cols, s0, s1);
    }
}

/* Merges the states of the segments of some results pairwise, and stores the results. */
static void merge_segments_task(void *arg, int64_t task) {
    const reduce_job *j = arg;
    int64_t chunk = CHUNK_BYTES / j->size, chunks = divide_up(j->inner.dim, chunk);
    int64_t group = task / chunks, col = task % chunks * chunk;
    int64_t cols = j->inner.dim - col < chunk ? j->inner.dim - col : chunk;
    char *s0 = j->partial0 + (group * j->segments * j->inner.dim + col) * j->state_size;
    char *s1 = j->partial1 + (group * j->segments * j->inner.dim + col) * j->second_size;
    int64_t row0 = j->inner.dim * j->state_size, row1 = j->inner.dim * j->second_size;
    for (int64_t step = 1; step < j->segments; step *= 2)
        for (int64_t a = 0; a + step < j->segments; a += 2 * step) {
            int64_t b = a + step, end = b + step < j->segments ? b + step : j->segments;
            int64_t at_a = elements_before(j, a * j->leaves_per_segment);
            int64_t at_b = elements_before(j, b * j->leaves_per_segment);
            int64_t at_end =
                end == j->segments ? j->total : elements_before(j, end * j->leaves_per_segment);
            j->isa->merge(j->r.fold, cols, at_b - at_a, s0 + a * row0, s1 + a * row1, at_end - at_b,
                          s0 + b * row0, s1 + b * row1);
        }
    store_results(j, group, col, cols, s0, s1);
}

size_t gd_reduce_bytes(const gd_view *x, const gd_reduction *r) {
    reduce_job j;
    plan_reduction(&j, x, r);
    return partial_bytes(&j);
}

void gd_reduce(const gd_view *x, const gd_reduction *r, void *workspace) {
    reduce_job j;
    plan_reduction(&j, x, r);
    j.isa = r->type == GD_F32   ? GD_ISA_CALL(gd_reducer_f32)
            : r->type == GD_F64 ? GD_ISA_CALL(gd_reducer_f64)
                                : GD_ISA_CALL(gd_reducer_i64);
    if (j.segments > 1) { /* the second numbers come first, because indices need 8-byte alignment */
        j.partial1 = workspace;
        j.partial0 = (char *)workspace + j.groups * j.segments * j.inner.dim * j.second_size;
    }
    gd_parallel_for(j.tasks, reduce_task, &j);
    if (j.segments > 1)
        gd_parallel_for(j.groups * divide_up(j.inner.dim, CHUNK_BYTES / j.size),
                        merge_segments_task, &j);
}
