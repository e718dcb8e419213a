/* elementwise_kernels.c - runs elementwise ops on the CPU: any strides, any dtypes.
 *
 * A generated kernel works on contiguous runs of one compute type (f32, f64, i32 or i64). Where all
 * operands already lie like that, it runs on them directly; else short tiles of each operand are
 * gathered and converted into buffers first, and results are converted and scattered back. Where
 * no kernel was compiled for an expression (gradients of gradients, ops of the user's program), the
 * evaluator runs its primitives one after the other on the same tiles, with the same bits.
 */
#include "backend/cpu/elementwise.h"

#include <string.h>

#include "codegen/record.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/pool.h"
#include "ops/call.h"
#include "ops/op.h"

enum {
    TILE = 512,          /* elements of a tile: operands of an op stay in the first-level cache */
    PIECE = 16384,       /* elements of a piece of work for one thread */
    MAX_OPERANDS = 24,
};

static const size_t type_size[GD_EW_TYPES] = {4, 8, 4, 8};
static const gd_dtype type_dtype[GD_EW_TYPES] = {GD_F32, GD_F64, GD_I32, GD_I64};

/* The type to compute in: halves as f32, small integers as i32 (results wrap when stored). */
static int compute_type(gd_dtype dtype) {
    switch (dtype) {
    case GD_F64: return GD_EW_F64;
    case GD_F32:
    case GD_F16:
    case GD_BF16: return GD_EW_F32;
    case GD_I64: return GD_EW_I64;
    default: return GD_EW_I32;
    }
}

/* --- programs ---------------------------------------------------------------------------------- */

/* How an expression is run: by its own kernel, or primitive by primitive. */
typedef struct {
    const gd_ir *ir;
    gd_ew_fn whole;                  /* NULL: the evaluator */
    gd_ew_fn step[GD_IR_MAX_NODES];  /* the primitive at each node */
    int type;
    double params[GD_RECORD_MAX];
} program;

static const gd_ew_kernel *find(uint64_t hash) { return GD_ISA_CALL(gd_ew_find)(hash); }

static gd_ew_fn primitive(int prim, int type) {
    gd_ir_node nodes[4];
    memset(nodes, 0, sizeof nodes);
    int arity = gd_prims[prim].arity;
    for (int i = 0; i < arity; i++) nodes[i] = (gd_ir_node){.code = GD_IR_VAR, .arg = {(int16_t)i, 0, 0}};
    nodes[arity] = (gd_ir_node){.code = (int16_t)(GD_IR_PRIM + prim), .arg = {-1, -1, -1}};
    for (int i = 0; i < arity; i++) nodes[arity].arg[i] = (int16_t)i;
    gd_ir ir = {.count = arity + 1, .n_vars = arity, .n_outputs = 1, .output = {(int16_t)arity}, .nodes = nodes};
    const gd_ew_kernel *k = find(gd_ir_hash(&ir));
    return k ? k->fn[type] : NULL;
}

static gd_status prepare(const gd_kernel_call *call, int type, program *p) {
    const gd_op *op = call->op;
    p->ir = op->ir;
    p->type = type;
    for (int i = 0; i < op->n_attrs && call->attrs; i++) p->params[i] = gd_attr_number(&op->attrs[i], call->attrs);
    gd_op_state *state = op->state;
    const gd_ew_kernel *kernel = __atomic_load_n(&state->compiled[gd_cpu_isa()], __ATOMIC_ACQUIRE);
    static const gd_ew_kernel none = {0, {NULL, NULL, NULL, NULL}};
    if (!kernel) { /* looked up once for each instruction set */
        kernel = find(gd_ir_hash(op->ir));
        __atomic_store_n(&state->compiled[gd_cpu_isa()], kernel ? (const void *)kernel : &none, __ATOMIC_RELEASE);
        if (!kernel) kernel = &none;
    }
    p->whole = kernel->fn[type];
    if (p->whole) return GD_OK;
    for (int i = 0; i < p->ir->count; i++) {
        int code = p->ir->nodes[i].code;
        if (code < GD_IR_PRIM) continue;
        p->step[i] = primitive(code - GD_IR_PRIM, type);
        if (!p->step[i])
            return gd_fail(GD_E_DTYPE, "%s is not defined for %s", gd_prims[code - GD_IR_PRIM].name,
                           type >= GD_EW_I32 ? "integers" : "floats");
    }
    return GD_OK;
}

static void fill(void *tile, int type, double value, int64_t n) {
    switch (type) {
    case GD_EW_F32: for (int64_t i = 0; i < n; i++) ((float *)tile)[i] = (float)value; break;
    case GD_EW_F64: for (int64_t i = 0; i < n; i++) ((double *)tile)[i] = value; break;
    case GD_EW_I32: for (int64_t i = 0; i < n; i++) ((int32_t *)tile)[i] = (int32_t)value; break;
    default: for (int64_t i = 0; i < n; i++) ((int64_t *)tile)[i] = (int64_t)value; break;
    }
}

/* Bytes for the evaluator's tiles: one for each node. */
static size_t evaluator_bytes(const program *p) {
    return p->whole ? 0 : (size_t)p->ir->count * TILE * type_size[p->type];
}

/* n <= TILE elements through the evaluator. */
static void evaluate(const program *p, int64_t n, const void *const *in, void *const *out, char *tiles) {
    const gd_ir *ir = p->ir;
    size_t tile = TILE * type_size[p->type];
    const void *value[GD_IR_MAX_NODES];
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *node = &ir->nodes[i];
        void *mine = tiles + (size_t)i * tile;
        value[i] = mine;
        if (node->code == GD_IR_VAR) value[i] = in[node->arg[0]];
        else if (node->code == GD_IR_CONST) fill(mine, p->type, node->value, n);
        else if (node->code == GD_IR_PARAM) fill(mine, p->type, p->params[node->arg[0]], n);
        else {
            const void *args[3] = {NULL, NULL, NULL};
            for (int k = 0; k < 3; k++)
                if (node->arg[k] >= 0) args[k] = value[node->arg[k]];
            p->step[i](n, args, &mine, NULL);
        }
    }
    for (int k = 0; k < ir->n_outputs; k++)
        memmove(out[k], value[ir->output[k]], (size_t)n * type_size[p->type]);
}

/* --- operands ---------------------------------------------------------------------------------- */

typedef struct {
    char *data;
    gd_dtype dtype;
    int64_t step[GD_MAX_RANK]; /* bytes, for the merged dims */
    bool direct;               /* its rows can be given to the kernel as they are */
    bool single;               /* one element for all: its tile is filled once for a piece */
} operand;

typedef struct {
    program program;
    operand operands[MAX_OPERANDS];
    int n_in, n_out;
    int rank; /* merged dims; the last one is the row */
    int64_t dims[GD_MAX_RANK];
    int64_t rows, row, tiles_per_row, tiles, tiles_per_piece;
    gd_status status;
} job;

/* Merges dims that all operands step through evenly; what is left is usually one row. */
static void merge_dims(job *j, const gd_kernel_call *call) {
    const gd_view *shape = &call->out[0];
    int n = j->n_in + j->n_out;
    j->rank = 0;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dims[d] == 1) continue;
        int64_t step[MAX_OPERANDS];
        bool joins = j->rank > 0;
        for (int i = 0; i < n; i++) {
            const gd_view *v = i < j->n_in ? &call->in[i] : &call->out[i - j->n_in];
            int k = d - (shape->rank - v->rank); /* inputs are aligned at the last dim */
            step[i] = k < 0 || v->dims[k] == 1 ? 0 : v->strides[k] * (int64_t)gd_dtype_size(v->dtype);
            if (joins && j->operands[i].step[j->rank - 1] != step[i] * shape->dims[d]) joins = false;
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

static void load_tile(const operand *o, const char *from, int64_t step, int type, void *tile, int64_t n) {
    gd_dtype to = type_dtype[type];
    if (step == 0) { /* one element for the whole tile */
        if (type >= GD_EW_I32) {
            int64_t v = gd_load_i64(o->dtype, from);
            if (type == GD_EW_I64) for (int64_t i = 0; i < n; i++) ((int64_t *)tile)[i] = v;
            else for (int64_t i = 0; i < n; i++) ((int32_t *)tile)[i] = (int32_t)v;
        } else fill(tile, type, gd_load_f64(o->dtype, from), n);
    } else gd_convert_row(to, tile, (int64_t)gd_dtype_size(to), o->dtype, from, step, n);
}

/* One tile of a row: elements [first, first + n) of it. */
static void run_tile(const job *j, char *const *base, int64_t first, int64_t n, char *buffers) {
    const void *in[MAX_OPERANDS];
    void *out[MAX_OPERANDS];
    int type = j->program.type, last = j->rank - 1;
    size_t tile = TILE * type_size[type];
    for (int i = 0; i < j->n_in + j->n_out; i++) {
        const operand *o = &j->operands[i];
        char *at = base[i] + first * o->step[last], *buffer = buffers + (size_t)i * tile;
        if (i >= j->n_in) out[i - j->n_in] = o->direct ? at : buffer;
        else if (o->direct) in[i] = at;
        else if (o->single) in[i] = buffer;
        else load_tile(o, at, o->step[last], type, buffer, n), in[i] = buffer;
    }
    if (j->program.whole) j->program.whole(n, in, out, j->program.params);
    else evaluate(&j->program, n, in, out, buffers + (size_t)(j->n_in + j->n_out) * tile);
    for (int i = j->n_in; i < j->n_in + j->n_out; i++) {
        const operand *o = &j->operands[i];
        if (!o->direct)
            gd_convert_row(o->dtype, base[i] + first * o->step[last], o->step[last], type_dtype[type],
                           out[i - j->n_in], (int64_t)type_size[type], n);
    }
}

static void run_piece(void *arg, int64_t piece) {
    job *j = arg;
    size_t bytes = (size_t)(j->n_in + j->n_out) * TILE * type_size[j->program.type] + evaluator_bytes(&j->program);
    _Alignas(64) char few[32768];
    char *buffers = few;
    if (bytes > sizeof few && !(buffers = gd_malloc(bytes))) {
        __atomic_store_n(&j->status, GD_E_MEMORY, __ATOMIC_RELAXED);
        return;
    }
    int n = j->n_in + j->n_out, last = j->rank - 1;
    int64_t from = piece * j->tiles_per_piece, to = from + j->tiles_per_piece;
    if (to > j->tiles) to = j->tiles;
    const size_t tile = TILE * type_size[j->program.type];
    for (int i = 0; i < j->n_in; i++)
        if (j->operands[i].single)
            load_tile(&j->operands[i], j->operands[i].data, 0, j->program.type, buffers + (size_t)i * tile, j->row < TILE ? j->row : TILE);
    for (int64_t t = from; t < to; t++) {
        char *base[MAX_OPERANDS];
        int64_t row = t / j->tiles_per_row, first = t % j->tiles_per_row * TILE;
        for (int i = 0; i < n; i++) base[i] = j->operands[i].data;
        for (int d = last; d-- > 0;) {
            int64_t index = row % j->dims[d];
            row /= j->dims[d];
            for (int i = 0; i < n; i++) base[i] += index * j->operands[i].step[d];
        }
        int64_t count = j->row - first < TILE ? j->row - first : TILE;
        run_tile(j, base, first, count, buffers);
    }
    if (buffers != few) gd_free(buffers);
}

/* All operands contiguous and of the compute type: whole pieces go to the kernel at once. */
static void run_direct_piece(void *arg, int64_t piece) {
    const job *j = arg;
    const void *in[MAX_OPERANDS];
    void *out[MAX_OPERANDS];
    int64_t from = piece * PIECE, size = (int64_t)type_size[j->program.type];
    int64_t n = j->row - from < PIECE ? j->row - from : PIECE;
    for (int i = 0; i < j->n_in; i++) in[i] = j->operands[i].data + from * size;
    for (int i = 0; i < j->n_out; i++) out[i] = j->operands[j->n_in + i].data + from * size;
    j->program.whole(n, in, out, j->program.params);
}

/* --- the kernel -------------------------------------------------------------------------------- */

/* Outputs that are a written input under its own name come first, and are nothing to compute. */
static void skip_views(gd_kernel_call *call) {
    const int views = call->n_out - call->op->ir->n_outputs;
    if (views <= 0) return;
    call->out += views;
    call->n_out -= views;
}

/*kernel elementwise.compiled  rank 10
 * Every elementwise op, by its generated kernel or the evaluator.
 */
static gd_status elementwise_compiled_run(gd_kernel_call *call) {
    job j;
    skip_views(call);
    if (gd_numel(call->out[0].rank, call->out[0].dims) == 0) return GD_OK; /* an empty tensor is written */
    j.n_in = call->n_in;
    j.n_out = call->n_out;
    j.status = GD_OK;
    if (j.n_in + j.n_out > MAX_OPERANDS) return gd_fail(GD_E_UNSUPPORTED, "more than %d tensors", MAX_OPERANDS);
    const gd_ir *ir = call->op->ir;
    if (ir->nodes[ir->output[0]].code == GD_IR_VAR && ir->n_outputs == 1 && call->n_in == 1 &&
        call->in[0].rank == call->out[0].rank) { /* clone, cast */
        gd_copy_elements(&call->out[0], &call->in[0]);
        return GD_OK;
    }
    /* The compute type is that of what is read; an op without inputs computes what it writes. */
    gd_dtype dtype = GD_DTYPE_NONE;
    for (int i = 0; i < j.n_in; i++) dtype = dtype ? gd_promote(dtype, call->in[i].dtype) : call->in[i].dtype;
    if (!dtype) dtype = call->out[0].dtype;
    bool to_float = (call->op->flags & GD_OP_FLOAT) || (gd_dtype_is_float(call->out[0].dtype) && !(call->op->flags & GD_OP_TRUTH));
    if (to_float && !gd_dtype_is_float(dtype)) dtype = gd_dtype_is_float(call->out[0].dtype) ? call->out[0].dtype : GD_F32;
    GD_TRY(prepare(call, compute_type(dtype), &j.program));
    int type = j.program.type;
    for (int i = 0; i < j.n_in + j.n_out; i++) {
        const gd_view *v = i < j.n_in ? &call->in[i] : &call->out[i - j.n_in];
        j.operands[i].data = v->data;
        j.operands[i].dtype = v->dtype;
    }
    merge_dims(&j, call);
    j.row = j.dims[j.rank - 1];
    bool all_direct = j.rank == 1 && j.program.whole;
    for (int i = 0; i < j.n_in + j.n_out; i++) {
        operand *o = &j.operands[i];
        o->direct = o->dtype == type_dtype[type] && (o->step[j.rank - 1] == (int64_t)type_size[type]);
        o->single = i < j.n_in;
        for (int d = 0; d < j.rank; d++) o->single &= o->step[d] == 0;
        all_direct &= o->direct;
    }
    if (all_direct) {
        gd_parallel_for((j.row + PIECE - 1) / PIECE, run_direct_piece, &j);
        return GD_OK;
    }
    j.rows = gd_numel(j.rank - 1, j.dims);
    j.tiles_per_row = (j.row + TILE - 1) / TILE;
    j.tiles = j.rows * j.tiles_per_row;
    int64_t tile_elements = j.row < TILE ? j.row : TILE;
    j.tiles_per_piece = (PIECE + tile_elements - 1) / tile_elements;
    gd_parallel_for((j.tiles + j.tiles_per_piece - 1) / j.tiles_per_piece, run_piece, &j);
    return j.status == GD_OK ? GD_OK : gd_fail(j.status, "no memory for tiles");
}

/*kernel elementwise.reference  rank 0  double
 * Every elementwise op, one element after the other, in f64 or i64.
 */
static gd_status elementwise_reference_run(gd_kernel_call *call) {
    const gd_op *op = call->op;
    skip_views(call);
    double params[GD_RECORD_MAX] = {0};
    for (int i = 0; i < op->n_attrs && call->attrs; i++) params[i] = gd_attr_number(&op->attrs[i], call->attrs);
    const gd_view *shape = &call->out[0];
    bool real = op->flags & GD_OP_FLOAT || !(gd_ir_types(op->ir) & GD_PRIM_INT) ||
                (call->n_in == 0 && shape->dtype == GD_F64) ||
                (shape->dtype == GD_F64 && !(op->flags & GD_OP_TRUTH));
    for (int i = 0; i < call->n_in; i++) real |= call->in[i].dtype == GD_F64;
    int64_t total = gd_numel(shape->rank, shape->dims);
    for (int64_t e = 0; e < total; e++) {
        double reals[MAX_OPERANDS], real_out[GD_IR_MAX_OUTPUTS];
        int64_t wholes[MAX_OPERANDS], whole_out[GD_IR_MAX_OUTPUTS];
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
        else gd_ir_eval_whole(op->ir, wholes, params, whole_out);
        for (int i = 0; i < call->n_out; i++) {
            char *p = (char *)call->out[i].data + e * 8;
            if (real) gd_store_f64(call->out[i].dtype, p, real_out[i]);
            else gd_store_i64(call->out[i].dtype, p, whole_out[i]);
        }
    }
    return GD_OK;
}

#include "elementwise_kernels.gen.h"
