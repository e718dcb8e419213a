/* fused_rows.c - runs row programs (codegen/row_program.h): several passes over each row of a
 * tensor, with reductions between them.
 *
 * All passes over a row run before the next row starts, so the row stays in the cache. A kernel
 * compiled for the expression runs them, or the evaluator, tile by tile; both give the same bits. A
 * row that is not contiguous or has another dtype is copied through a buffer. The partition of the
 * rows into tasks depends on shapes alone.
 */
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "backend/cpu/rows.h"
#include "core/tile.h"
#include "core/copy.h"
#include "core/pool.h"

enum {
    OPERANDS = GD_FUSED_TENSORS + GD_ROW_COLUMNS + GD_ROW_RESULTS,
    TASK_ELEMENTS = 16384, /* at least */
    MAX_TASKS = 64,        /* limits the workspace: each task has its own buffers */
    MIN_TILE = 32,         /* of the evaluator: expressions have at most GD_IR_MAX_NODES values */
    TILES_BYTES = 65536,
    CHUNKS_BYTES = GD_ROW_REDUCTIONS * GD_ROW_CHUNK * 8,
};

typedef struct operand {
    char *data;
    gd_dtype dtype;
    int64_t step[GD_MAX_RANK];   /* strides in bytes of the dims that count rows (merged) */
    int64_t in_row[GD_MAX_RANK]; /* strides in bytes of the dims within a row */
    bool direct;                 /* kernels read and write its rows in place */
    bool same;                   /* all rows are one row, broadcast */
    int buffer;                  /* index of its buffer, unless it is direct */
} operand;

/* The expressions of a pass, prepared for the evaluator. */
typedef struct pass_programs {
    gd_ew_program once, each;
} pass_programs;

typedef struct rows_job {
    const gd_row_program *rows;
    gd_row_fn fn;            /* NULL: the evaluator */
    pass_programs *programs; /* for the evaluator, one for each pass */
    int type;                /* GD_EW_F32 or GD_EW_F64 */
    gd_dtype dtype;          /* the same as a dtype */
    int64_t size, tile;      /* bytes of an element; elements of a tile */
    gd_param params[GD_FUSED_PARAMS];
    operand operands[OPERANDS]; /* tensors, columns, results */
    int n_in, n_out, n_buffers;
    int rank, row_rank; /* dims that count rows, merged; dims within a row */
    int64_t dims[GD_MAX_RANK], row_dims[GD_MAX_RANK];
    int64_t n_rows, n; /* rows, and elements of one */
    int64_t tasks;
    bool direct; /* all operands are direct */
    char *workspace;
    size_t task_bytes;
} rows_job;

/* Bytes of a kept row or of a buffer in the workspace, aligned to a cache line. */
static size_t row_bytes(const rows_job *j) {
    return ((size_t)j->n * (size_t)j->size + 63) / 64 * 64;
}

/* --- operands --------------------------------------------------------------------------------- */

/* The stride in bytes of a view along dim d of the shape that it is broadcast to. */
static int64_t broadcast_step(const gd_view *v, int rank, int d) {
    const int k = d - (rank - v->rank);
    return k < 0 || v->dims[k] == 1 ? 0 : v->strides[k] * (int64_t)gd_dtype_size(v->dtype);
}

/* A column has one value for each row. The values are contiguous in the order of the rows,
 * whatever the shape of the column is. */
static void set_column_steps(operand *o, const gd_view *v, const gd_fused_options *s, int outer) {
    int64_t step = (int64_t)gd_dtype_size(v->dtype);
    for (int d = outer; d-- > 0; step *= s->dims[d]) o->step[d] = s->dims[d] == 1 ? 0 : step;
}

/* Sets up an operand: a column, or a tensor whose first `outer` dims count rows. */
static void init_operand(rows_job *j, operand *o, const gd_view *v, const gd_fused_options *s,
                         int outer, bool column) {
    int64_t contiguous = j->size; /* the stride of a contiguous row */
    *o =
        (operand){.data = v->data, .dtype = v->dtype, .direct = v->dtype == j->dtype, .same = true};
    if (column) set_column_steps(o, v, s, outer);
    for (int d = s->rank; d-- > 0 && !column;) {
        const int64_t step = broadcast_step(v, s->rank, d);
        if (d < outer) {
            o->step[d] = step;
            continue;
        }
        o->in_row[d - outer] = step;
        if (s->dims[d] != 1 && step != contiguous) o->direct = false;
        contiguous *= s->dims[d];
    }
    for (int d = 0; d < outer; d++) o->same &= o->step[d] == 0 || s->dims[d] == 1;
}

/* Merges adjacent dims that count rows where every operand has a constant stride over both. */
static void merge_dims(rows_job *j, const gd_fused_options *s, int outer) {
    const int n = j->n_in + j->n_out;
    for (int d = 0; d < outer; d++) {
        if (s->dims[d] == 1) continue;
        bool joins = j->rank > 0;
        for (int i = 0; i < n && joins; i++)
            joins = j->operands[i].step[j->rank - 1] == j->operands[i].step[d] * s->dims[d];
        j->rank += !joins;
        j->dims[j->rank - 1] = joins ? j->dims[j->rank - 1] * s->dims[d] : s->dims[d];
        for (int i = 0; i < n; i++) j->operands[i].step[j->rank - 1] = j->operands[i].step[d];
    }
}

/* The axes from the first one in `axes` on form a row. */
static void init_rows_job(rows_job *j, const gd_kernel_call *k) {
    const gd_fusion *f = k->op->fusion;
    const gd_fused_options *s = k->attrs;
    const gd_row_program *rows = f->rows;
    memset(j, 0, sizeof *j);
    j->rows = rows;
    j->type = gd_ew_type(f->type);
    j->dtype = f->type;
    j->size = (int64_t)gd_dtype_size(f->type);
    j->n_in = rows->n_tensors + rows->n_columns;
    j->n_out = rows->n_results;
    int outer = 0;
    while (outer < s->rank && !(s->axes >> outer & 1)) outer++;
    j->row_rank = s->rank - outer;
    memcpy(j->row_dims, s->dims + outer, sizeof(int64_t) * (size_t)j->row_rank);
    j->n_rows = gd_numel(outer, s->dims);
    j->n = gd_numel(j->row_rank, j->row_dims);
    for (int i = 0; i < rows->n_tensors; i++)
        init_operand(j, &j->operands[i], &k->in[i], s, outer, false);
    for (int i = 0; i < rows->n_columns; i++)
        init_operand(j, &j->operands[rows->n_tensors + i], &k->in[f->n_tensors + f->n_scalars + i],
                     s, outer, true);
    for (int i = 0; i < rows->n_results; i++)
        init_operand(j, &j->operands[j->n_in + i], &k->out[i], s, outer, rows->value_of[i] >= 0);
    merge_dims(j, s, outer);
    j->direct = true;
    for (int i = 0; i < j->n_in + j->n_out; i++)
        if (!j->operands[i].direct) {
            j->operands[i].buffer = j->n_buffers++;
            j->direct = false;
        }
    j->tasks = (j->n_rows * j->n + TASK_ELEMENTS - 1) / TASK_ELEMENTS;
    if (j->tasks > j->n_rows) j->tasks = j->n_rows;
    if (j->tasks > MAX_TASKS) j->tasks = MAX_TASKS;
    j->task_bytes = (size_t)(j->n_buffers + rows->n_kept) * row_bytes(j);
}

/* --- rows that are copied through a buffer ---------------------------------------------------- */

/* Copies a row to its buffer (`in`) or back, one line of the innermost dim at a time. A column has
 * one value for each row. */
static void copy_row(const rows_job *j, const operand *o, char *row, char *buffer, bool column,
                     bool in) {
    const int last = j->row_rank - 1;
    const int64_t line = column || last < 0 ? 1 : j->row_dims[last],
                  step = column || last < 0 ? 0 : o->in_row[last];
    const int64_t lines = column ? 1 : gd_numel(last < 0 ? 0 : last, j->row_dims);
    for (int64_t l = 0; l < lines; l++) {
        char *at = row;
        int64_t rest = l;
        for (int d = last; d-- > 0;) {
            at += rest % j->row_dims[d] * o->in_row[d];
            rest /= j->row_dims[d];
        }
        char *b = buffer + l * line * j->size;
        if (!in) gd_convert_row(o->dtype, at, step, j->dtype, b, j->size, line);
        else if (step) gd_convert_row(j->dtype, b, j->size, o->dtype, at, step, line);
        else
            for (int64_t i = 0; i < line; i++)
                gd_convert_row(j->dtype, b + i * j->size, j->size, o->dtype, at, 0, 1);
    }
}

static bool is_column(const rows_job *j, int i) {
    return i < j->n_in ? i >= j->rows->n_tensors : j->rows->value_of[i - j->n_in] >= 0;
}

/* --- the evaluator ---------------------------------------------------------------------------- */

static double load_one(const rows_job *j, const void *at) {
    return j->type == GD_EW_F64 ? *(const double *)at : *(const float *)at;
}

/* Adds the result of a chunk to a reduction; NaN propagates. */
static double combine_chunk(gd_row_use use, double total, double chunk) {
    if (use == GD_ROW_SUM) return total + chunk;
    if (use == GD_ROW_MAX) return total != total || total > chunk ? total : chunk;
    return total != total || total < chunk ? total : chunk;
}

/* Evaluates one pass over the elements of a row. `params` holds the parameters, then the row
 * values; the pass stores the results of its reductions there. */
static void evaluate_pass(const rows_job *j, const gd_row_pass *pass, const gd_ew_program *program,
                          char *const *in, char *const *out, char *const *kept, gd_param *params,
                          char *tiles) {
    static const double start[] = {0, -__builtin_inf(), __builtin_inf()};
    const int n_out = pass->each.n_outputs;
    const size_t chunk_bytes = (size_t)GD_ROW_CHUNK * (size_t)j->size;
    char *chunks = tiles + TILES_BYTES; /* of the reduced outputs, which are the first ones */
    double totals[GD_IR_MAX_OUTPUTS];
    for (int k = 0; k < n_out; k++)
        totals[k] = gd_row_reduces(pass->use[k]) ? start[pass->use[k]] : 0;
    gd_ew_constants(program, params, j->tile, j->n < j->tile ? j->n : j->tile, tiles);
    for (int64_t c = 0; c < j->n; c += GD_ROW_CHUNK) {
        const int64_t end = j->n - c < GD_ROW_CHUNK ? j->n : c + GD_ROW_CHUNK;
        for (int64_t at = c; at < end; at += j->tile) {
            const void *from[GD_FUSED_TENSORS + GD_ROW_KEPT];
            void *to[GD_IR_MAX_OUTPUTS];
            for (int i = 0; i < pass->each.n_vars; i++)
                from[i] =
                    (i < j->rows->n_tensors ? in[i] : kept[i - j->rows->n_tensors]) + at * j->size;
            for (int k = 0; k < n_out; k++) {
                char *base = pass->use[k] == GD_ROW_KEEP    ? kept[pass->number[k]]
                             : pass->use[k] == GD_ROW_STORE ? out[pass->number[k]]
                                                            : NULL;
                to[k] = base ? base + at * j->size
                             : chunks + (size_t)k * chunk_bytes + (at - c) * j->size;
            }
            gd_ew_evaluate(program, j->tile, end - at < j->tile ? end - at : j->tile, from, to,
                           tiles);
        }
        for (int k = 0; k < n_out; k++) {
            if (!gd_row_reduces(pass->use[k])) continue;
            const void *chunk = chunks + (size_t)k * chunk_bytes;
            const double more =
                j->type == GD_EW_F64
                    ? GD_ISA_CALL(gd_row_fold_f64)(pass->use[k], pass->ways, end - c, chunk)
                    : GD_ISA_CALL(gd_row_fold_f32)(pass->use[k], pass->ways, end - c, chunk);
            totals[k] = combine_chunk(pass->use[k], totals[k], more);
        }
    }
    for (int k = 0; k < n_out; k++)
        if (gd_row_reduces(pass->use[k]))
            params[j->rows->n_params + pass->number[k]].real =
                j->type == GD_EW_F64 ? totals[k] : (float)totals[k];
}

/* Computes the row values that depend on other row values: an expression of one element. */
static void evaluate_once(const rows_job *j, const gd_row_pass *pass, const gd_ew_program *program,
                          gd_param *params, char *tiles) {
    double results[GD_IR_MAX_OUTPUTS];
    void *to[GD_IR_MAX_OUTPUTS];
    for (int k = 0; k < pass->once.n_outputs; k++) to[k] = &results[k];
    gd_ew_constants(program, params, 1, 1, tiles);
    gd_ew_evaluate(program, 1, 1, NULL, to, tiles);
    for (int k = 0; k < pass->once.n_outputs; k++)
        params[j->rows->n_params + pass->once_to[k]].real = load_one(j, &results[k]);
}

static void evaluate_row(const rows_job *j, char *const *in, char *const *out, char *const *kept,
                         gd_param *params, char *tiles) {
    const gd_row_program *rows = j->rows;
    for (int i = 0; i < rows->n_columns; i++)
        params[rows->n_params + i].real = load_one(j, in[rows->n_tensors + i]);
    for (int p = 0; p < rows->n_passes; p++) {
        const gd_row_pass *pass = &rows->pass[p];
        if (pass->once.n_outputs) evaluate_once(j, pass, &j->programs[p].once, params, tiles);
        if (pass->each.n_outputs)
            evaluate_pass(j, pass, &j->programs[p].each, in, out, kept, params, tiles);
    }
    for (int i = 0; i < rows->n_results; i++) {
        if (rows->value_of[i] < 0) continue;
        const double value = params[rows->n_params + rows->value_of[i]].real;
        if (j->type == GD_EW_F64) *(double *)out[i] = value;
        else *(float *)out[i] = (float)value;
    }
}

/* Prepares all passes for the evaluator and chooses a tile size: all tiles of a pass fit into
 * TILES_BYTES. */
static gd_status prepare_evaluator(rows_job *j) {
    int max_slots = 1;
    for (int p = 0; p < j->rows->n_passes; p++) {
        GD_TRY(gd_ew_prepare_ir(&j->rows->pass[p].once, j->type, &j->programs[p].once));
        GD_TRY(gd_ew_prepare_ir(&j->rows->pass[p].each, j->type, &j->programs[p].each));
        if (j->programs[p].each.n_slots > max_slots) max_slots = j->programs[p].each.n_slots;
    }
    j->tile = GD_ROW_CHUNK;
    while (j->tile > MIN_TILE && (int64_t)max_slots * j->tile * j->size > TILES_BYTES / 2)
        j->tile /= 2;
    return GD_OK;
}

/* --- tasks ------------------------------------------------------------------------------------ */

/* The addresses of all operands at a row. */
static void locate_row(const rows_job *j, int64_t row, char **base) {
    const int n = j->n_in + j->n_out;
    for (int i = 0; i < n; i++) base[i] = j->operands[i].data;
    for (int d = j->rank; d-- > 0;) {
        const int64_t index = row % j->dims[d];
        row /= j->dims[d];
        for (int i = 0; i < n; i++) base[i] += index * j->operands[i].step[d];
    }
}

/* Runs the compiled kernel over rows [first, end) in place. One call takes all rows of the
 * innermost dim, which have a constant stride. */
static void run_rows_direct(const rows_job *j, int64_t first, int64_t end, char *const *kept) {
    const int n = j->n_in + j->n_out;
    const int64_t line = j->rank ? j->dims[j->rank - 1] : 1;
    char *base[OPERANDS];
    int64_t step[OPERANDS] = {0};
    for (int i = 0; i < n && j->rank; i++) step[i] = j->operands[i].step[j->rank - 1];
    for (int64_t row = first; row < end;) {
        int64_t count = line - row % line;
        if (count > end - row) count = end - row;
        locate_row(j, row, base);
        j->fn(count, j->n, base, step, base + j->n_in, step + j->n_in, kept, j->params);
        row += count;
    }
}

/* Runs rows [first, end) one by one, with the compiled kernel or the evaluator, and copies operands
 * that are not direct through buffers. */
static void run_rows_staged(const rows_job *j, int64_t first, int64_t end, char *const *kept,
                            char *buffers) {
    static const int64_t no_step[OPERANDS];
    const int n = j->n_in + j->n_out;
    /* for the evaluator: its tiles, then a chunk for each reduction */
    GD_TILE(char, tiles, TILES_BYTES + CHUNKS_BYTES);
    gd_param params[GD_FUSED_PARAMS + GD_ROW_VALUES];
    memcpy(params, j->params, sizeof j->params);
    for (int64_t row = first; row < end; row++) {
        char *base[OPERANDS], *at[OPERANDS];
        locate_row(j, row, base);
        for (int i = 0; i < n; i++) {
            const operand *o = &j->operands[i];
            at[i] = o->direct ? base[i] : buffers + (size_t)o->buffer * row_bytes(j);
            if (!o->direct && i < j->n_in && (row == first || !o->same))
                copy_row(j, o, base[i], at[i], is_column(j, i), true);
        }
        if (j->fn) j->fn(1, j->n, at, no_step, at + j->n_in, no_step, kept, j->params);
        else evaluate_row(j, at, at + j->n_in, kept, params, tiles);
        for (int i = j->n_in; i < n; i++)
            if (!j->operands[i].direct)
                copy_row(j, &j->operands[i], base[i], at[i], is_column(j, i), false);
    }
}

static void run_rows_task(void *arg, int64_t task) {
    const rows_job *j = arg;
    const int64_t first = j->n_rows * task / j->tasks, end = j->n_rows * (task + 1) / j->tasks;
    char *memory = j->workspace + (size_t)task * j->task_bytes, *kept[GD_ROW_KEPT];
    for (int i = 0; i < j->rows->n_kept; i++) kept[i] = memory + (size_t)i * row_bytes(j);
    char *buffers = memory + (size_t)j->rows->n_kept * row_bytes(j);
    if (j->fn && j->direct) run_rows_direct(j, first, end, kept);
    else run_rows_staged(j, first, end, kept, buffers);
}

/*kernel fused_reduction.rows  rank 20
 * Reductions of rows whose results are used element by element; all floats.
 */
static bool fused_reduction_rows_match(const gd_kernel_call *k) {
    return k->op->fusion->rows != NULL;
}

static size_t fused_reduction_rows_workspace(const gd_kernel_call *k) {
    rows_job j;
    init_rows_job(&j, k);
    gd_fused_compile_call(k, j.n_rows * j.n);
    return j.task_bytes ? (size_t)j.tasks * j.task_bytes + 64 : 0;
}

static gd_status fused_reduction_rows_run(gd_kernel_call *k) {
    rows_job j;
    GD_TILE(pass_programs, programs, GD_ROW_PASSES);
    init_rows_job(&j, k);
    gd_fused_params(k, j.params);
    j.fn = gd_ew_uses_compiled() ? (gd_row_fn)gd_fused_rows_kernel(k->op) : NULL;
    j.programs = programs;
    char nothing; /* a valid address if the workspace is empty */
    j.workspace = k->workspace ? (char *)(((uintptr_t)k->workspace + 63) / 64 * 64) : &nothing;
    if (!j.fn) GD_TRY(prepare_evaluator(&j));
    gd_parallel_for(j.tasks, run_rows_task, &j);
    return GD_OK;
}

#include "backend/cpu/fused_rows.gen.h"
