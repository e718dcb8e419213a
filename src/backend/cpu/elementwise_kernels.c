/* elementwise_kernels.c - every elementwise op on the CPU, by one kernel.
 *
 * Operands are lined up (dims that all step through evenly are merged), then cut into tiles that stay
 * in the first-level cache. Operands of other types or layouts go through a buffer, tile by tile. What
 * runs on a tile is the expression's program (elementwise_program.c).
 */
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/record.h"
#include "core/tile.h"
#include "core/copy.h"
#include "core/pool.h"
#include "ops/call.h"

typedef gd_ew_job job;
typedef gd_ew_operand operand;

enum {
    TILE = 512,          /* elements of a tile: operands of an op stay in the first-level cache */
    LEAST_TILE = 64,     /* of an expression with many values */
    TILES_BYTES = 32768, /* that tiles are made small for */
    PIECE = 16384,       /* elements of a piece of work for one thread */
    BUFFER = 65536,      /* bytes of tiles */
};

static const size_t type_size[GD_EW_TYPES] = {4, 8, 4, 8};
static const gd_dtype type_dtype[GD_EW_TYPES] = {GD_F32, GD_F64, GD_I32, GD_I64};

/* --- operands --------------------------------------------------------------------------------- */

/* Merges dims that all operands step through evenly; what is left is usually one row. */
static void merge_dims(job *j, const gd_view *in, const gd_view *out, const gd_view *shape) {
    int n = j->n_in + j->n_out;
    j->rank = 0;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dims[d] == 1) continue;
        int64_t step[GD_EW_OPERANDS];
        bool joins = j->rank > 0;
        for (int i = 0; i < n; i++) {
            const gd_view *v = i < j->n_in ? &in[i] : &out[i - j->n_in];
            int k = d - (shape->rank - v->rank); /* inputs are aligned at the last dim */
            step[i] =
                k < 0 || v->dims[k] == 1 ? 0 : v->strides[k] * (int64_t)gd_dtype_size(v->dtype);
            if (joins && j->operands[i].step[j->rank - 1] != step[i] * shape->dims[d])
                joins = false;
        }
        if (joins) j->dims[j->rank - 1] *= shape->dims[d];
        else j->dims[j->rank++] = shape->dims[d];
        for (int i = 0; i < n; i++) j->operands[i].step[j->rank - 1] = step[i];
    }
    if (j->rank == 0) {
        j->rank = 1;
        j->dims[0] = 1;
        for (int i = 0; i < n; i++)
            j->operands[i].step[0] = (int64_t)gd_dtype_size(j->operands[i].dtype);
    }
}

/* Bytes of all tiles of a job: one for each operand, and the program's own. */
static size_t tiles_bytes(const job *j) {
    return (size_t)(j->n_in + j->n_out + j->program.n_slots) * (size_t)j->tile *
           type_size[j->program.type];
}

/* Rows of a few elements, some operands the same in every row (a bias) and the others dense: all
 * rows become one line, and the tile of such an operand holds its row again and again. */
static void join_short_rows(job *j) {
    const int64_t row = j->dims[1];
    bool repeats = false;
    if (j->rank != 2 || 2 * row > j->tile) return;
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const int64_t *step = j->operands[i].step;
        const bool repeated = i < j->n_in && step[0] == 0 && step[1] != 0;
        if (!repeated && step[0] != step[1] * row) return;
        repeats |= repeated;
    }
    if (!repeats) return;
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        operand *o = &j->operands[i];
        o->repeated = o->step[0] == 0 && o->step[1] != 0;
        o->step[0] = o->step[1];
    }
    j->period = row;
    j->tile -= j->tile % row;
    j->dims[0] *= row;
    j->rank = 1;
}

void gd_ew_line_up(job *j, const gd_view *in, const gd_view *out, const gd_view *shape) {
    const int type = j->program.type;
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const gd_view *v = i < j->n_in ? &in[i] : &out[i - j->n_in];
        j->operands[i].data = v->data;
        j->operands[i].dtype = v->dtype;
        j->operands[i].repeated = false;
    }
    merge_dims(j, in, out, shape);
    j->tile = TILE;
    while (j->tile > LEAST_TILE && tiles_bytes(j) > TILES_BYTES) j->tile /= 2;
    while (tiles_bytes(j) > BUFFER) j->tile /= 2;
    j->period = 1;
    join_short_rows(j);
    j->row = j->dims[j->rank - 1];
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        operand *o = &j->operands[i];
        o->direct = !o->repeated && o->dtype == type_dtype[type] &&
                    (o->step[j->rank - 1] == (int64_t)type_size[type]);
        o->single = i < j->n_in;
        for (int d = 0; d < j->rank; d++) o->single &= o->step[d] == 0;
    }
}

static void load_tile(const operand *o, const char *from, int64_t step, int type, void *tile,
                      int64_t n) {
    gd_dtype to = type_dtype[type];
    if (step == 0) { /* one element for the whole tile */
        if (type == GD_EW_I64) {
            int64_t v = gd_load_i64(o->dtype, from);
            for (int64_t i = 0; i < n; i++) ((int64_t *)tile)[i] = v;
        } else if (type == GD_EW_I32) {
            int64_t v = gd_load_i64(o->dtype, from);
            for (int64_t i = 0; i < n; i++) ((int32_t *)tile)[i] = (int32_t)v;
        } else if (type == GD_EW_F64) {
            double v = gd_load_f64(o->dtype, from);
            for (int64_t i = 0; i < n; i++) ((double *)tile)[i] = v;
        } else {
            float v = (float)gd_load_f64(o->dtype, from);
            for (int64_t i = 0; i < n; i++) ((float *)tile)[i] = v;
        }
    } else gd_convert_row(to, tile, (int64_t)gd_dtype_size(to), o->dtype, from, step, n);
}

/* One tile of a row: elements [first, first + n) of it. */
static void run_tile(const job *j, char *const *base, int64_t first, int64_t n, char *buffers) {
    const void *in[GD_EW_OPERANDS];
    void *out[GD_EW_OPERANDS];
    int type = j->program.type, last = j->rank - 1;
    size_t tile = (size_t)j->tile * type_size[type];
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const operand *o = &j->operands[i];
        char *at = base[i] + first * o->step[last], *buffer = buffers + (size_t)i * tile;
        if (i >= j->n_in) out[i - j->n_in] = o->direct ? at : buffer;
        else if (o->direct) in[i] = at;
        else if (o->single) in[i] = buffer;
        else if (o->repeated) in[i] = buffer + (size_t)(first % j->period) * type_size[type];
        else load_tile(o, at, o->step[last], type, buffer, n), in[i] = buffer;
    }
    if (j->program.integer) j->program.integer(n, in, out, j->program.params);
    else
        gd_ew_evaluate(&j->program, j->tile, n, in, out,
                       buffers + (size_t)(j->n_in + j->n_out) * tile);
    for (int i = j->n_in; i < j->n_in + j->n_out; i++) {
        const operand *o = &j->operands[i];
        if (!o->direct)
            gd_convert_row(o->dtype, base[i] + first * o->step[last], o->step[last],
                           type_dtype[type], out[i - j->n_in], (int64_t)type_size[type], n);
    }
}

/* One row of the operand again and again, n elements in all. */
static void repeat_row(const job *j, const operand *o, char *tile, int64_t n) {
    const size_t bytes = (size_t)n * type_size[j->program.type];
    size_t done = (size_t)j->period * type_size[j->program.type];
    load_tile(o, o->data, o->step[0], j->program.type, tile, j->period);
    for (; done < bytes; done *= 2)
        memcpy(tile + done, tile, done < bytes - done ? done : bytes - done);
}

/* Fills what is the same for all tiles: the expression's constants, and operands of one element or
 * of one row. Of no tile more than `most` elements will be wanted. */
static void fill_tiles(const job *j, int64_t most, char *buffers) {
    const size_t tile = (size_t)j->tile * type_size[j->program.type];
    int64_t n = j->row < j->tile ? j->row : j->tile;
    if (n > most) n = most;
    const int64_t rows =
        (n + 2 * j->period - 2) / j->period * j->period; /* a tile may begin inside a row */
    for (int i = 0; i < j->n_in; i++)
        if (j->operands[i].repeated)
            repeat_row(j, &j->operands[i], buffers + (size_t)i * tile,
                       rows < j->tile ? rows : j->tile);
    for (int i = 0; i < j->n_in; i++)
        if (j->operands[i].single)
            load_tile(&j->operands[i], j->operands[i].data, 0, j->program.type,
                      buffers + (size_t)i * tile, n);
    gd_ew_constants(&j->program, j->program.params, j->tile, n,
                    buffers + (size_t)(j->n_in + j->n_out) * tile);
}

/* Where each operand's row of this number begins. */
static void find_row(const job *j, int64_t row, char **base) {
    const int n = j->n_in + j->n_out;
    for (int i = 0; i < n; i++) base[i] = j->operands[i].data;
    for (int d = j->rank - 1; d-- > 0;) {
        int64_t index = row % j->dims[d];
        row /= j->dims[d];
        for (int i = 0; i < n; i++) base[i] += index * j->operands[i].step[d];
    }
}

/* --- a whole call ----------------------------------------------------------------------------- */

static void run_piece(void *arg, int64_t piece) {
    job *j = arg;
    GD_TILE(char, buffers, BUFFER);
    if (!j->bare) fill_tiles(j, j->tile, buffers);
    int64_t from = piece * j->tiles_per_piece, to = from + j->tiles_per_piece;
    if (to > j->tiles) to = j->tiles;
    for (int64_t t = from; t < to; t++) {
        char *base[GD_EW_OPERANDS];
        int64_t first = t % j->tiles_per_row * j->tile;
        find_row(j, t / j->tiles_per_row, base);
        run_tile(j, base, first, j->row - first < j->tile ? j->row - first : j->tile, buffers);
    }
}

/* All operands contiguous and of the compute type: whole pieces go to the kernel at once. */
static void run_direct_piece(void *arg, int64_t piece) {
    const job *j = arg;
    const void *in[GD_EW_OPERANDS];
    void *out[GD_EW_OPERANDS];
    int64_t from = piece * PIECE, size = (int64_t)type_size[j->program.type];
    int64_t n = j->row - from < PIECE ? j->row - from : PIECE;
    for (int i = 0; i < j->n_in; i++) in[i] = j->operands[i].data + from * size;
    for (int i = 0; i < j->n_out; i++) out[i] = j->operands[j->n_in + i].data + from * size;
    j->program.integer(n, in, out, j->program.params);
}

static gd_status run_job(job *j) {
    j->bare = j->program.integer != NULL;
    for (int i = 0; i < j->n_in + j->n_out; i++) j->bare &= j->operands[i].direct;
    if (j->bare && j->rank == 1) {
        gd_parallel_for((j->row + PIECE - 1) / PIECE, run_direct_piece, j);
        return GD_OK;
    }
    if (j->bare) j->tile = PIECE; /* whole rows */
    j->rows = gd_numel(j->rank - 1, j->dims);
    j->tiles_per_row = (j->row + j->tile - 1) / j->tile;
    j->tiles = j->rows * j->tiles_per_row;
    int64_t tile_elements = j->row < j->tile ? j->row : j->tile;
    j->tiles_per_piece = (PIECE + tile_elements - 1) / tile_elements;
    gd_parallel_for((j->tiles + j->tiles_per_piece - 1) / j->tiles_per_piece, run_piece, j);
    return GD_OK;
}

/* --- some of a call's elements ---------------------------------------------------------------- */

void gd_ew_some(const job *j, int64_t first, int64_t n, void *to) {
    GD_TILE(char, buffers, BUFFER);
    const int64_t size = (int64_t)type_size[j->program.type];
    const int last = j->n_in + j->n_out - 1;
    /* a compiled kernel with nothing to convert needs no tiles */
    bool direct = j->program.integer;
    for (int i = 0; i < last; i++) direct &= j->operands[i].direct;
    if (direct && j->rank == 1) { /* one line of elements */
        const void *in[GD_EW_OPERANDS];
        void *out[GD_EW_OPERANDS];
        for (int i = 0; i < j->n_in; i++) in[i] = j->operands[i].data + first * size;
        for (int i = 0; i < j->n_out - 1; i++)
            out[i] = j->operands[j->n_in + i].data + first * size;
        out[j->n_out - 1] = to;
        j->program.integer(n, in, out, j->program.params);
        return;
    }
    const int64_t most = direct ? n : j->tile;
    if (!direct) fill_tiles(j, n, buffers);
    for (int64_t done = 0; done < n;) {
        char *base[GD_EW_OPERANDS];
        const int64_t row = (first + done) / j->row, at = (first + done) % j->row;
        int64_t count = j->row - at < n - done ? j->row - at : n - done;
        if (count > most) count = most;
        if (!direct && count > j->tile - at % j->period) count = j->tile - at % j->period;
        find_row(j, row, base);
        base[last] = (char *)to + (done - at) * size; /* run_tile adds `at` again */
        run_tile(j, base, at, count, buffers);
        done += count;
    }
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* The number of elements, if all operands are row-major, of one shape and of one type that is computed
 * in: the kernel can walk straight through them. Else 0. */
static int64_t straight(const gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    if (call->op->fusion || type_dtype[gd_ew_type(y->dtype)] != y->dtype) return 0;
    int64_t count = 1;
    for (int d = y->rank; d-- > 0; count *= y->dims[d])
        if (y->strides[d] != count) return 0;
    for (int i = 1 - call->n_out; i < call->n_in; i++) {
        const gd_view *v = i < 0 ? &call->out[-i] : &call->in[i];
        if (v->dtype != y->dtype || v->rank != y->rank) return 0;
        for (int d = 0; d < y->rank; d++)
            if (v->dims[d] != y->dims[d] || v->strides[d] != y->strides[d]) return 0;
    }
    return count;
}

/* A call of that kind with few elements is over sooner than a job would be set up. */
static bool run_straight(const gd_kernel_call *call) {
    const int64_t count = straight(call);
    if (count == 0 || count > PIECE) return false;
    const gd_op *op = call->op;
    const gd_ew_fn integer = gd_ew_whole(op, op->ir, gd_ew_type(call->out[0].dtype));
    if (!integer) return false;
    gd_param params[GD_RECORD_MAX];
    const void *in[GD_EW_OPERANDS];
    void *out[GD_EW_OPERANDS];
    gd_ew_params(op, call->attrs, gd_ew_type(call->out[0].dtype), params);
    for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].data;
    for (int i = 0; i < call->n_out; i++) out[i] = call->out[i].data;
    integer(count, in, out, params);
    return true;
}

/* The type to compute in: halves as f32, small integers as i32 (results wrap when stored). */
gd_dtype gd_ew_compute_dtype(const gd_kernel_call *call) {
    if (call->op->fusion) return call->op->fusion->type; /* it may have more inputs than fit here */
    gd_dtype in[GD_EW_OPERANDS];
    for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].dtype;
    return gd_op_compute_dtype(call->op, in, call->n_in, call->out[0].dtype);
}

/*kernel elementwise.compiled  rank 10  run elementwise_compiled_run  workspace elementwise_compiled_workspace
 * Every elementwise op, by its generated kernel or the evaluator.
 */
static gd_status elementwise_compiled_run(gd_kernel_call *call) { return gd_ew_run(call); }

gd_status gd_ew_run(gd_kernel_call *call) {
    if (call->n_in + call->n_out <= GD_EW_OPERANDS && run_straight(call)) return GD_OK;
    job j;
    if (gd_numel(call->out[0].rank, call->out[0].dims) == 0)
        return GD_OK; /* an empty tensor is written */
    j.n_in = call->op->fusion ? call->op->fusion->n_tensors : call->n_in;
    j.n_out = call->n_out;
    if (j.n_in + j.n_out > GD_EW_OPERANDS)
        return gd_fail(GD_E_UNSUPPORTED, "more than %d tensors", GD_EW_OPERANDS);
    const gd_ir *ir = call->op->ir;
    if (ir->nodes[ir->output[0]].code == GD_IR_VAR && ir->n_outputs == 1 && call->n_in == 1 &&
        call->in[0].rank == call->out[0].rank) { /* clone, cast */
        gd_copy_elements(&call->out[0], &call->in[0]);
        return GD_OK;
    }
    GD_TRY(gd_ew_prepare(call, ir, gd_ew_type(gd_ew_compute_dtype(call)), &j.program));
    gd_ew_line_up(&j, call->in, call->out, &call->out[0]);
    return run_job(&j);
}

/* No bytes; a fused op that was not compiled with the others of its plan is compiled here. */
static size_t elementwise_compiled_workspace(const gd_kernel_call *call) {
    if (call->op->fusion)
        gd_fused_compile_call(call, gd_numel(call->out[0].rank, call->out[0].dims));
    return 0;
}

/*kernel elementwise.reference  rank 0  double
 * Every elementwise op, one element after the other, in f64 or i64.
 */
static gd_status elementwise_reference_run(gd_kernel_call *call) {
    const gd_op *op = call->op;
    double params[GD_RECORD_MAX] = {0};
    int64_t whole_params[GD_RECORD_MAX] = {0};
    for (int i = 0; i < op->n_attrs && call->attrs; i++) {
        params[i] = gd_attr_number(&op->attrs[i], call->attrs).value;
        whole_params[i] = gd_attr_param(&op->attrs[i], call->attrs, GD_I64).integer;
    }
    const gd_view *shape = &call->out[0];
    bool real = op->flags & GD_OP_FLOAT || !(gd_ir_types(op->ir) & GD_PRIM_INT) ||
                (call->n_in == 0 && shape->dtype == GD_F64) ||
                (shape->dtype == GD_F64 && !(op->flags & GD_OP_TRUTH));
    for (int i = 0; i < call->n_in; i++) real |= call->in[i].dtype == GD_F64;
    int64_t total = gd_numel(shape->rank, shape->dims);
    for (int64_t e = 0; e < total; e++) {
        double reals[GD_EW_OPERANDS], real_out[GD_IR_MAX_OUTPUTS];
        int64_t wholes[GD_EW_OPERANDS], whole_out[GD_IR_MAX_OUTPUTS];
        for (int i = 0; i < call->n_in; i++) {
            const gd_view *v = &call->in[i];
            int64_t at = 0, rest = e;
            for (int d = shape->rank; d-- > 0;) {
                int64_t index = rest % shape->dims[d];
                rest /= shape->dims[d];
                int k = d - (shape->rank - v->rank);
                if (k >= 0 && v->dims[k] > 1) at += index * v->strides[k];
            }
            const char *p = (const char *)v->data + at * 8;
            reals[i] = gd_load_f64(v->dtype, p);
            if (!real) wholes[i] = gd_load_i64(v->dtype, p);
        }
        if (real) gd_ir_eval_real(op->ir, reals, params, real_out);
        else gd_ir_eval_integer(op->ir, wholes, whole_params, whole_out);
        for (int i = 0; i < call->n_out; i++) {
            char *p = (char *)call->out[i].data + e * 8;
            if (real) gd_store_f64(call->out[i].dtype, p, real_out[i]);
            else gd_store_i64(call->out[i].dtype, p, whole_out[i]);
        }
    }
    return GD_OK;
}

#include "elementwise_kernels.gen.h"
