/* reduce_engine.c - runs planned reductions (reduce_plan.h) over any axes of a tensor with any
 * strides.
 */
#include <string.h>

#include "backend/cpu/reduce_plan.h"
#include "core/copy.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "core/tile.h"

static size_t partial_bytes(const reduce_job *j) {
    if (j->segments == 1) return 0;
    return (size_t)(j->groups * j->segments * j->inner.dim) *
           (size_t)(j->state_size + j->second_size);
}

/* --- leaves ----------------------------------------------------------------------------------- */

/* The offset in bytes of element `index`, counted over these axes. */
static int64_t axes_offset(const reduce_axis *axes, int n, int64_t index) {
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
    const bool contiguous = run_stride == n * j->size || runs == 1; /* the runs of a result */
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
    const bool contiguous = j->n_reduced == 0 && cols == j->inner.dim && j->run.x == cols * j->size;
    if (j->r.source && contiguous) { /* one call for all rows */
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
    if (j->r.two_values) memcpy(s1, wide1, (size_t)(cols * j->second_size));
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
        if (j->r.two_values) memset(s1, 0, (size_t)(cols * j->second_size));
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
    gd_reduce_plan(&j, x, r);
    return partial_bytes(&j);
}

void gd_reduce(const gd_view *x, const gd_reduction *r, void *workspace) {
    reduce_job j;
    gd_reduce_plan(&j, x, r);
    j.isa = r->type == GD_F32   ? GD_ISA_CALL(gd_reducer_f32)
            : r->type == GD_F64 ? GD_ISA_CALL(gd_reducer_f64)
                                : GD_ISA_CALL(gd_reducer_i64);
    if (j.segments > 1) { /* the second values come first, because indices need 8-byte alignment */
        j.partial1 = workspace;
        j.partial0 = (char *)workspace + j.groups * j.segments * j.inner.dim * j.second_size;
    }
    gd_parallel_for(j.tasks, reduce_task, &j);
    if (j.segments > 1)
        gd_parallel_for(j.groups * divide_up(j.inner.dim, CHUNK_BYTES / j.size),
                        merge_segments_task, &j);
}
