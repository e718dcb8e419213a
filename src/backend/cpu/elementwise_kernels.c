/* elementwise_kernels.c - the CPU kernels of all elementwise ops.
 *
 * Dims that all operands step through evenly are merged. The rows of the merged shape are divided
 * into tiles that stay in the L1 cache, and the program of the expression (elementwise_program.c)
 * computes tile after tile. Operands of another dtype or layout are converted through a buffer of
 * one tile.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/record.h"
#include "core/tile.h"
#include "core/copy.h"
#include "core/pool.h"
#include "dispatch/call.h"

typedef gd_ew_job job;
typedef gd_ew_operand operand;

enum {
    TILE = 512,            /* elements of a tile, at most, if it needs buffers */
    MIN_TILE = 64,         /* do not shrink tiles further to fit into CACHE_BYTES */
    CACHE_BYTES = 32768,   /* the L1 cache: tiles of expressions with many values are smaller */
    BUFFER_BYTES = 65536,  /* limit for all tiles of a job together */
    TASK_ELEMENTS = 16384, /* elements of a task, roughly */
};

static const size_t type_size[GD_EW_TYPES] = {4, 8, 4, 8};
static const gd_dtype type_dtype[GD_EW_TYPES] = {GD_F32, GD_F64, GD_I32, GD_I64};

/* --- operands --------------------------------------------------------------------------------- */

/* Merges dims that all operands step through evenly. Usually all dims merge into one row. */
static void merge_dims(job *j, const gd_view *in, const gd_view *out, const gd_view *shape) {
    int n = j->n_in + j->n_out;
    j->rank = 0;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dims[d] == 1) continue;
        int64_t stride[GD_EW_OPERANDS];
        bool merges = j->rank > 0; /* into the previous dim */
        for (int i = 0; i < n; i++) {
            const gd_view *v = i < j->n_in ? &in[i] : &out[i - j->n_in];
            int k = d - (shape->rank - v->rank); /* inputs are aligned at the last dim */
            stride[i] =
                k < 0 || v->dims[k] == 1 ? 0 : v->strides[k] * (int64_t)gd_dtype_size(v->dtype);
            if (merges && j->operands[i].stride[j->rank - 1] != stride[i] * shape->dims[d])
                merges = false;
        }
        if (merges) j->dims[j->rank - 1] *= shape->dims[d];
        else j->dims[j->rank++] = shape->dims[d];
        for (int i = 0; i < n; i++) j->operands[i].stride[j->rank - 1] = stride[i];
    }
    if (j->rank == 0) {
        j->rank = 1;
        j->dims[0] = 1;
        for (int i = 0; i < n; i++)
            j->operands[i].stride[0] = (int64_t)gd_dtype_size(j->operands[i].dtype);
    }
}

/* Bytes of all tiles of a job: one for each operand, and those of the evaluator. */
static size_t tiles_bytes(const job *j) {
    return (size_t)(j->n_in + j->n_out + j->program.n_slots) * (size_t)j->tile *
           type_size[j->program.type];
}

/* Joins short rows into one long row if some inputs have one row that is broadcast to all rows (a
 * bias) and the other operands are dense: the buffer of such an input holds copies of its row. */
static void join_short_rows(job *j) {
    if (j->rank != 2 || 2 * j->dims[1] > j->tile) return;
    const int64_t row = j->dims[1];
    bool any_repeated = false;
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const int64_t *stride = j->operands[i].stride;
        const bool repeated = i < j->n_in && stride[0] == 0 && stride[1] != 0;
        if (!repeated && stride[0] != stride[1] * row) return;
        any_repeated |= repeated;
    }
    if (!any_repeated) return;
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        operand *o = &j->operands[i];
        o->repeated_row = o->stride[0] == 0 && o->stride[1] != 0;
        o->stride[0] = o->stride[1];
    }
    j->period = row;
    j->tile -= j->tile % row;
    j->dims[0] *= row;
    j->rank = 1;
}

void gd_ew_bind_operands(job *j, const gd_view *in, const gd_view *out, const gd_view *shape) {
    const int type = j->program.type;
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const gd_view *v = i < j->n_in ? &in[i] : &out[i - j->n_in];
        j->operands[i].data = v->data;
        j->operands[i].dtype = v->dtype;
        j->operands[i].repeated_row = false;
    }
    merge_dims(j, in, out, shape);
    j->tile = TILE;
    while (j->tile > MIN_TILE && tiles_bytes(j) > CACHE_BYTES) j->tile /= 2;
    while (tiles_bytes(j) > BUFFER_BYTES) j->tile /= 2;
    j->period = 1;
    join_short_rows(j);
    j->row = j->dims[j->rank - 1];
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        operand *o = &j->operands[i];
        o->direct = !o->repeated_row && o->dtype == type_dtype[type] &&
                    (o->stride[j->rank - 1] == (int64_t)type_size[type]);
        o->scalar = i < j->n_in;
        for (int d = 0; d < j->rank; d++) o->scalar &= o->stride[d] == 0;
    }
}

/* Converts n elements, `stride` bytes apart, to a tile of the compute type. */
static void load_tile(const operand *o, const char *from, int64_t stride, int type, void *tile,
                      int64_t n) {
    gd_dtype to = type_dtype[type];
    if (stride == 0) { /* broadcast */
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
    } else gd_convert_row(to, tile, (int64_t)gd_dtype_size(to), o->dtype, from, stride, n);
}

/* Computes elements [first, first + n), at most a tile, of the row at `base` (find_row). `buffers`
 * has a tile for each operand, then the tiles of the evaluator. */
static void run_tile(const job *j, char *const *base, int64_t first, int64_t n, char *buffers) {
    const void *in[GD_EW_OPERANDS];
    void *out[GD_EW_OPERANDS];
    int type = j->program.type, last = j->rank - 1;
    size_t tile = (size_t)j->tile * type_size[type];
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const operand *o = &j->operands[i];
        char *at = base[i] + first * o->stride[last], *buffer = buffers + (size_t)i * tile;
        if (i >= j->n_in) out[i - j->n_in] = o->direct ? at : buffer;
        else if (o->direct) in[i] = at;
        else if (o->scalar) in[i] = buffer;
        else if (o->repeated_row) in[i] = buffer + (size_t)(first % j->period) * type_size[type];
        else load_tile(o, at, o->stride[last], type, buffer, n), in[i] = buffer;
    }
    if (j->program.kernel) j->program.kernel(n, in, out, j->program.params);
    else
        gd_ew_evaluate(&j->program, j->tile, n, in, out,
                       buffers + (size_t)(j->n_in + j->n_out) * tile);
    for (int i = j->n_in; i < j->n_in + j->n_out; i++) {
        const operand *o = &j->operands[i];
        if (!o->direct)
            gd_convert_row(o->dtype, base[i] + first * o->stride[last], o->stride[last],
                           type_dtype[type], out[i - j->n_in], (int64_t)type_size[type], n);
    }
}

/* Fills n elements of a tile with copies of the operand's row. */
static void fill_with_row(const job *j, const operand *o, char *tile, int64_t n) {
    const size_t bytes = (size_t)n * type_size[j->program.type];
    size_t done = (size_t)j->period * type_size[j->program.type];
    load_tile(o, o->data, o->stride[0], j->program.type, tile, j->period);
    for (; done < bytes; done *= 2)
        memcpy(tile + done, tile, done < bytes - done ? done : bytes - done);
}

/* Fills the buffers that are the same for all tiles: scalar operands, repeated rows, and the
 * constants of the evaluator. Tiles will have at most max_tile elements. */
static void fill_constant_buffers(const job *j, int64_t max_tile, char *buffers) {
    const size_t tile = (size_t)j->tile * type_size[j->program.type];
    int64_t n = j->row < j->tile ? j->row : j->tile;
    if (n > max_tile) n = max_tile;
    /* A tile may start at any element of a repeated row: period - 1 more elements, rounded up. */
    const int64_t repeated = (n + 2 * j->period - 2) / j->period * j->period;
    for (int i = 0; i < j->n_in; i++)
        if (j->operands[i].repeated_row)
            fill_with_row(j, &j->operands[i], buffers + (size_t)i * tile,
                          repeated < j->tile ? repeated : j->tile);
    for (int i = 0; i < j->n_in; i++)
        if (j->operands[i].scalar)
            load_tile(&j->operands[i], j->operands[i].data, 0, j->program.type,
                      buffers + (size_t)i * tile, n);
    gd_ew_constants(&j->program, j->program.params, j->tile, n,
                    buffers + (size_t)(j->n_in + j->n_out) * tile);
}

/* Sets base[i] to the start of row number `row` of operand i. */
static void find_row(const job *j, int64_t row, char **base) {
    const int n = j->n_in + j->n_out;
    for (int i = 0; i < n; i++) base[i] = j->operands[i].data;
    for (int d = j->rank - 1; d-- > 0;) {
        int64_t index = row % j->dims[d];
        row /= j->dims[d];
        for (int i = 0; i < n; i++) base[i] += index * j->operands[i].stride[d];
    }
}

/* --- all elements of a call ------------------------------------------------------------------- */

static void tiles_task(void *arg, int64_t task) {
    job *j = arg;
    GD_TILE(char, buffers, BUFFER_BYTES);
    if (!j->all_direct) fill_constant_buffers(j, j->tile, buffers);
    int64_t from = task * j->tiles_per_task, to = from + j->tiles_per_task;
    if (to > j->tiles) to = j->tiles;
    for (int64_t t = from; t < to; t++) {
        char *base[GD_EW_OPERANDS];
        int64_t first = t % j->tiles_per_row * j->tile;
        find_row(j, t / j->tiles_per_row, base);
        run_tile(j, base, first, j->row - first < j->tile ? j->row - first : j->tile, buffers);
    }
}

/* For one row of direct operands: a task is one call of the kernel. */
static void direct_task(void *arg, int64_t task) {
    const job *j = arg;
    const void *in[GD_EW_OPERANDS];
    void *out[GD_EW_OPERANDS];
    int64_t from = task * TASK_ELEMENTS, size = (int64_t)type_size[j->program.type];
    int64_t n = j->row - from < TASK_ELEMENTS ? j->row - from : TASK_ELEMENTS;
    for (int i = 0; i < j->n_in; i++) in[i] = j->operands[i].data + from * size;
    for (int i = 0; i < j->n_out; i++) out[i] = j->operands[j->n_in + i].data + from * size;
    j->program.kernel(n, in, out, j->program.params);
}

static gd_status run_job(job *j) {
    j->all_direct = j->program.kernel != NULL;
    for (int i = 0; i < j->n_in + j->n_out; i++) j->all_direct &= j->operands[i].direct;
    if (j->all_direct && j->rank == 1) {
        gd_parallel_for((j->row + TASK_ELEMENTS - 1) / TASK_ELEMENTS, direct_task, j);
        return GD_OK;
    }
    if (j->all_direct) j->tile = TASK_ELEMENTS; /* it does not have to fit into a buffer */
    j->tiles_per_row = (j->row + j->tile - 1) / j->tile;
    j->tiles = gd_numel(j->rank - 1, j->dims) * j->tiles_per_row;
    int64_t tile_elements = j->row < j->tile ? j->row : j->tile;
    j->tiles_per_task = (TASK_ELEMENTS + tile_elements - 1) / tile_elements;
    gd_parallel_for((j->tiles + j->tiles_per_task - 1) / j->tiles_per_task, tiles_task, j);
    return GD_OK;
}

/* --- a range of elements of a call ------------------------------------------------------------ */

void gd_ew_compute_range(const job *j, int64_t first, int64_t n, void *to) {
    GD_TILE(char, buffers, BUFFER_BYTES);
    const int64_t size = (int64_t)type_size[j->program.type];
    const int last = j->n_in + j->n_out - 1;
    /* As all_direct, but the last output, which is written to `to`, does not matter. */
    bool direct = j->program.kernel;
    for (int i = 0; i < last; i++) direct &= j->operands[i].direct;
    if (direct && j->rank == 1) {
        const void *in[GD_EW_OPERANDS];
        void *out[GD_EW_OPERANDS];
        for (int i = 0; i < j->n_in; i++) in[i] = j->operands[i].data + first * size;
        for (int i = 0; i < j->n_out - 1; i++)
            out[i] = j->operands[j->n_in + i].data + first * size;
        out[j->n_out - 1] = to;
        j->program.kernel(n, in, out, j->program.params);
        return;
    }
    const int64_t max_count = direct ? n : j->tile;
    if (!direct) fill_constant_buffers(j, n, buffers);
    for (int64_t done = 0; done < n;) {
        char *base[GD_EW_OPERANDS];
        const int64_t row = (first + done) / j->row, at = (first + done) % j->row;
        int64_t count = j->row - at < n - done ? j->row - at : n - done;
        if (count > max_count) count = max_count;
        if (!direct && count > j->tile - at % j->period) count = j->tile - at % j->period;
        find_row(j, row, base);
        base[last] = (char *)to + (done - at) * size; /* run_tile adds `at` again */
        run_tile(j, base, at, count, buffers);
        done += count;
    }
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* The number of elements if all operands are contiguous, of one shape and of the compute type, so
 * that one call of the kernel can compute them all; otherwise 0. */
static int64_t contiguous_elements(const gd_kernel_call *call) {
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

/* Runs a small call on contiguous operands without a job, whose setup would take longer than the
 * kernel. Returns false if the call needs a job. */
static bool run_small_contiguous(const gd_kernel_call *call) {
    const int64_t count = contiguous_elements(call);
    if (count == 0 || count > TASK_ELEMENTS) return false;
    const gd_op *op = call->op;
    const gd_ew_fn kernel = gd_ew_compiled_kernel(op, op->ir, gd_ew_type(call->out[0].dtype));
    if (!kernel) return false;
    gd_param params[GD_RECORD_MAX];
    const void *in[GD_EW_OPERANDS];
    void *out[GD_EW_OPERANDS];
    gd_ew_params(op, call->attrs, gd_ew_type(call->out[0].dtype), params);
    for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].data;
    for (int i = 0; i < call->n_out; i++) out[i] = call->out[i].data;
    kernel(count, in, out, params);
    return true;
}

/* f16 and bf16 compute in f32, small integers in i32 (results wrap when they are stored). */
gd_dtype gd_ew_compute_dtype(const gd_kernel_call *call) {
    if (call->op->fusion) return call->op->fusion->type;
    gd_dtype in[GD_EW_OPERANDS];
    for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].dtype;
    return gd_op_compute_dtype(call->op, in, call->n_in, call->out[0].dtype);
}

/* clone, cast */
static bool is_copy(const gd_kernel_call *call) {
    const gd_ir *ir = call->op->ir;
    return ir->nodes[ir->output[0]].code == GD_IR_VAR && ir->n_outputs == 1 && call->n_in == 1 &&
           call->in[0].rank == call->out[0].rank;
}

/*kernel elementwise.compiled  rank 10
 * Every elementwise op, by its generated kernel or the evaluator.
 */
static gd_status elementwise_compiled_run(gd_kernel_call *call) { return gd_ew_run(call); }

static void elementwise_compiled_describe(const gd_kernel_call *call, char *text, size_t size) {
    const int type = gd_ew_type(gd_ew_compute_dtype(call));
    if (!is_copy(call) && !gd_ew_compiled_kernel(call->op, call->op->ir, type))
        snprintf(text, size, "evaluated");
}

gd_status gd_ew_run(gd_kernel_call *call) {
    if (call->n_in + call->n_out <= GD_EW_OPERANDS && run_small_contiguous(call)) return GD_OK;
    job j;
    if (gd_numel(call->out[0].rank, call->out[0].dims) == 0) return GD_OK;
    j.n_in = call->op->fusion ? call->op->fusion->n_tensors : call->n_in;
    j.n_out = call->n_out;
    if (j.n_in + j.n_out > GD_EW_OPERANDS)
        return gd_fail(GD_E_UNSUPPORTED, "%d inputs and outputs; at most %d are supported",
                       j.n_in + j.n_out, GD_EW_OPERANDS);
    const gd_ir *ir = call->op->ir;
    if (is_copy(call)) {
        gd_copy_elements(&call->out[0], &call->in[0]);
        return GD_OK;
    }
    GD_TRY(gd_ew_prepare(call, ir, gd_ew_type(gd_ew_compute_dtype(call)), &j.program));
    gd_ew_bind_operands(&j, call->in, call->out, &call->out[0]);
    return run_job(&j);
}

/* Needs no workspace. Compiles a fused op that was not compiled together with its plan. */
static size_t elementwise_compiled_workspace(const gd_kernel_call *call) {
    if (call->op->fusion)
        gd_fused_compile_call(call, gd_numel(call->out[0].rank, call->out[0].dims));
    return 0;
}

/* The offset in v of the element that is broadcast to element e of the shape. */
static int64_t broadcast_offset(const gd_view *v, const gd_view *shape, int64_t e) {
    int64_t offset = 0;
    for (int d = shape->rank; d-- > 0; e /= shape->dims[d]) {
        const int k = d - (shape->rank - v->rank); /* inputs are aligned at the last dim */
        if (k >= 0 && v->dims[k] > 1) offset += e % shape->dims[d] * v->strides[k];
    }
    return offset;
}

/*kernel elementwise.reference  rank 0  double
 * Every elementwise op, one element after the other, in f64 or i64.
 */
static gd_status elementwise_reference_run(gd_kernel_call *call) {
    const gd_op *op = call->op;
    double params[GD_RECORD_MAX] = {0};
    int64_t integer_params[GD_RECORD_MAX] = {0};
    for (int i = 0; i < op->n_attrs && call->attrs; i++) {
        params[i] = gd_attr_number(&op->attrs[i], call->attrs).value;
        integer_params[i] = gd_attr_param(&op->attrs[i], call->attrs, GD_I64).integer;
    }
    const gd_view *shape = &call->out[0];
    bool real = op->flags & GD_OP_FLOAT || !(gd_ir_types(op->ir) & GD_PRIM_INT) ||
                (call->n_in == 0 && shape->dtype == GD_F64) ||
                (shape->dtype == GD_F64 && !(op->flags & GD_OP_PREDICATE));
    for (int i = 0; i < call->n_in; i++) real |= call->in[i].dtype == GD_F64;
    int64_t total = gd_numel(shape->rank, shape->dims);
    for (int64_t e = 0; e < total; e++) {
        double reals[GD_EW_OPERANDS], real_out[GD_IR_MAX_OUTPUTS];
        int64_t integers[GD_EW_OPERANDS], integer_out[GD_IR_MAX_OUTPUTS];
        for (int i = 0; i < call->n_in; i++) {
            const gd_view *v = &call->in[i];
            const char *p = (const char *)v->data + broadcast_offset(v, shape, e) * 8;
            reals[i] = gd_load_f64(v->dtype, p);
            if (!real) integers[i] = gd_load_i64(v->dtype, p);
        }
        if (real) gd_ir_eval_real(op->ir, reals, params, real_out);
        else gd_ir_eval_integer(op->ir, integers, integer_params, integer_out);
        for (int i = 0; i < call->n_out; i++) {
            char *p = (char *)call->out[i].data + e * 8;
            if (real) gd_store_f64(call->out[i].dtype, p, real_out[i]);
            else gd_store_i64(call->out[i].dtype, p, integer_out[i]);
        }
    }
    return GD_OK;
}

#include "backend/cpu/elementwise_kernels.gen.h"
