/* scalar_call.c - source and arguments of kernels in the scalar dialect. See scalar_call.h. */
#include "dispatch/scalar_call.h"

#include <string.h>

#include "codegen/record.h"
#include "dispatch/call.h"
#include "dispatch/fused.h"
#include "dispatch/infer.h"

_Static_assert((int)GD_SCALAR_RANK >= (int)GD_MAX_RANK,
               "all dims of a tensor fit into the arguments");
_Static_assert((int)GD_SCALAR_PARAMS >= (int)GD_FUSED_PARAMS &&
                   (int)GD_SCALAR_COLUMNS >= (int)GD_ROW_COLUMNS &&
                   GD_SCALAR_OPERANDS >= GD_FUSED_TENSORS + GD_FUSED_OUTPUTS &&
                   (int)GD_SOURCE_INPUTS >= (int)GD_FUSED_INPUTS,
               "every fused op fits into the arguments");

/* The expression of a reduction: its operand. */
static const gd_ir_node operand_node = {.code = GD_IR_VAR};
static const gd_ir operand_ir = {.count = 1, .n_vars = 1, .n_outputs = 1, .nodes = &operand_node};

/* Whether the op is sum, mean, max or min itself, not fused with others. */
static bool is_reduction(const gd_op *op) {
    return !op->ir && !op->fusion && op->facts.reduces != GD_REDUCES_NOTHING;
}

static const gd_ir *expression_of(const gd_op *op) {
    return op->fusion ? &op->fusion->ir : op->ir ? op->ir : &operand_ir;
}

static int tensor_count(const gd_op *op, int n_in) {
    return op->fusion ? op->fusion->n_tensors : n_in;
}

/* The first outputs of an op that mutates inputs are those inputs. The kernel does not compute
 * them. */
static int skipped_outputs(const gd_op *op, int n_out) {
    if (!op->ir || op->fusion || n_out <= op->ir->n_outputs) return 0;
    return n_out - op->ir->n_outputs;
}

/* The dtype of the computation. Reductions of integers compute in i64. */
static gd_dtype compute_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out) {
    if (!is_reduction(op)) return gd_op_compute_dtype(op, in, n_in, out);
    return gd_dtype_is_float(out) ? gd_compute_dtype(out) : GD_I64;
}

/* Whether a reduction from `in` to `out` rounds its operand first. */
static bool rounds_operand(gd_dtype in, gd_dtype out) {
    return out == GD_BOOL || (gd_dtype_is_float(in) && !gd_dtype_is_float(out));
}

/* --- the source ------------------------------------------------------------------------------- */

bool gd_scalar_source(const gd_op *op, const gd_dtype *in, int n_in, const gd_dtype *out, int n_out,
                      gd_kernel_source *s) {
    static const char *const types[GD_DTYPE_COUNT] = {
        [GD_F32] = "f32", [GD_F64] = "f64", [GD_I32] = "i32", [GD_I64] = "i64"};
    memset(s, 0, sizeof *s);
    if (!op->fusion && !op->ir && !is_reduction(op)) return false;
    if (is_reduction(op) && rounds_operand(in[0], out[0])) return false;
    const int first = skipped_outputs(op, n_out);
    if (tensor_count(op, n_in) + n_out - first > GD_SCALAR_OPERANDS || n_in > GD_SOURCE_INPUTS ||
        n_out - first > GD_SOURCE_OUTPUTS || (!op->fusion && op->n_attrs > GD_SCALAR_PARAMS))
        return false;
    s->type = types[compute_dtype(op, in, n_in, out[first])];
    s->rows = op->fusion ? op->fusion->rows : NULL;
    s->ir = s->rows ? NULL : expression_of(op);
    if (op->fusion) s->n_scalars = op->fusion->n_scalars;
    if (is_reduction(op)) s->reduces = op->facts.reduces;
    if (op->fusion && op->fusion->reduction) s->reduces = op->fusion->reduction->facts.reduces;
    for (int i = 0; i < n_in; i++) s->in[i] = in[i] ? gd_dtype_name(in[i]) : s->type;
    for (int i = first; i < n_out; i++) s->out[i - first] = gd_dtype_name(out[i]);
    return true;
}

bool gd_scalar_source_of_request(const gd_fusion_request *r, gd_kernel_source *source) {
    return gd_scalar_source(r->op, r->in, r->op->n_inputs, r->out, r->op->n_outputs, source);
}

bool gd_scalar_source_of_call(const gd_kernel_call *call, gd_kernel_source *source) {
    gd_dtype in[GD_SOURCE_INPUTS], out[GD_SOURCE_INPUTS];
    if (call->n_in > GD_SOURCE_INPUTS || call->n_out > GD_SOURCE_INPUTS || call->each) return false;
    for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].dtype;
    for (int i = 0; i < call->n_out; i++) out[i] = call->out[i].dtype;
    return gd_scalar_source(call->op, in, call->n_in, out, call->n_out, source);
}

/* --- the arguments ---------------------------------------------------------------------------- */

/* The dims of a kernel. `order` has the outer dims, one call of the kernel for each index, and then
 * the inner dims, over which a call loops. */
typedef struct kernel_dims {
    int rank, n_outer;
    int64_t dims[GD_MAX_RANK];
    int order[GD_MAX_RANK];
} kernel_dims;

static void order_dims(kernel_dims *k, uint32_t inner) {
    int n = 0;
    for (int d = 0; d < k->rank; d++)
        if (!(inner >> d & 1)) k->order[n++] = d;
    k->n_outer = n;
    for (int d = 0; d < k->rank; d++)
        if (inner >> d & 1) k->order[n++] = d;
}

/* Sets the strides of a tensor that broadcasts to the kernel's dims. */
static void set_strides(const kernel_dims *k, const gd_view *v, gd_scalar_operand *o) {
    o->data = v->data;
    for (int n = 0; n < k->rank; n++) {
        const int d = k->order[n] - (k->rank - v->rank);
        o->strides[n] = d < 0 || v->dims[d] == 1 ? 0 : v->strides[d];
    }
}

/* Sets the strides of a result with one element for each call: its inner dims are missing or have
 * size 1. */
static void set_outer_strides(const kernel_dims *k, const gd_view *v, gd_scalar_operand *o) {
    o->data = v->data;
    for (int n = 0; n < k->rank; n++) {
        const int d = v->rank == k->rank ? k->order[n] : n;
        o->strides[n] = n >= k->n_outer || v->dims[d] == 1 ? 0 : v->strides[d];
    }
}

/* Sets the strides of a row program's result with one value for each row. The values are
 * contiguous in the order of the rows, whatever the shape of the result is. */
static void set_row_strides(const kernel_dims *k, const gd_view *v, gd_scalar_operand *o) {
    int64_t stride = 1;
    o->data = v->data;
    for (int n = k->n_outer; n-- > 0; stride *= k->dims[k->order[n]]) o->strides[n] = stride;
}

/* Whether the first n dims are row-major. */
static bool is_contiguous(const kernel_dims *k, const gd_scalar_operand *o, int n) {
    int64_t stride = 1;
    for (int i = n; i-- > 0;) {
        const int64_t dim = k->dims[k->order[i]];
        if (dim != 1 && o->strides[i] != stride) return false;
        stride *= dim;
    }
    return true;
}

/* Writes dims [from, to) of the kernel to a->dims from `rank` on. Dims of size 1 are left
 * out, and adjacent dims are merged if their strides allow it in all operands. Returns the
 * number written. */
static int merge_dims(const kernel_dims *k, int from, int to, int n_operands, int rank,
                      gd_scalar_args *a) {
    int n = 0;
    for (int i = from; i < to; i++) {
        const int64_t dim = k->dims[k->order[i]];
        if (dim == 1) continue;
        bool joins = n > 0;
        for (int o = 0; o < n_operands && joins; o++) {
            const int64_t *strides = a->operand[o].strides;
            joins = strides[rank + n - 1] == strides[i] * dim;
        }
        if (joins) a->dims[rank + n - 1] *= dim;
        else a->dims[rank + n++] = dim;
        for (int o = 0; o < n_operands; o++)
            a->operand[o].strides[rank + n - 1] = a->operand[o].strides[i];
    }
    return n;
}

static void set_dims(const kernel_dims *k, int n_operands, gd_scalar_args *a) {
    a->count = a->inner_count = 1;
    for (int i = 0; i < k->rank; i++)
        *(i < k->n_outer ? &a->count : &a->inner_count) *= k->dims[k->order[i]];
    a->rank = a->inner_rank = 0;
    if (a->contiguous == (uint32_t)((UINT64_C(1) << n_operands) - 1)) return;
    a->rank = merge_dims(k, 0, k->n_outer, n_operands, 0, a);
    a->inner_rank = merge_dims(k, k->n_outer, k->rank, n_operands, a->rank, a);
}

static void set_params(const gd_kernel_call *call, gd_scalar_args *a) {
    const gd_op *op = call->op;
    const gd_fusion *f = op->fusion;
    if (f) {
        const gd_fused_options *o = call->attrs;
        for (int i = 0; i < f->n_scalars; i++) a->scalars[i] = call->in[f->n_tensors + i].data;
        for (int i = 0; f->rows && i < f->rows->n_columns; i++)
            a->columns[i] = call->in[f->n_tensors + f->n_scalars + i].data;
        memcpy(a->params + f->n_scalars, o->constants, sizeof *a->params * (size_t)f->n_constants);
        return;
    }
    if (!is_reduction(op)) /* reductions have no parameters */
        gd_scalar_params(call, gd_scalar_compute_dtype(call), a->params);
}

/* Whether result i has one element for each call of the kernel instead of one for each element. */
static bool is_outer_result(const gd_op *op, int i, int n_results) {
    const gd_fusion *f = op->fusion;
    if (!f) return is_reduction(op);
    if (f->rows) return f->rows->value_of[i] >= 0;
    return f->reduction && i == n_results - 1;
}

/* Option `axis` of a reduction as a mask. */
static uint32_t reduced_axes(const gd_kernel_call *call) {
    uint32_t axes = 0;
    for (int i = 0; i < call->op->n_attrs; i++) {
        const gd_op_attr *attr = &call->op->attrs[i];
        if (strcmp(attr->name, "axis") == 0 && attr->type == GD_ATTR_SHAPE)
            gd_axes_mask((const gd_shape *)((const char *)call->attrs + attr->offset),
                         call->in[0].rank, &axes);
    }
    return axes;
}

static void set_kernel_dims(const gd_kernel_call *call, const gd_view *shape, kernel_dims *k) {
    const gd_fused_options *o = call->op->fusion ? call->attrs : NULL;
    k->rank = o ? o->rank : shape->rank;
    memcpy(k->dims, o ? o->dims : shape->dims, sizeof k->dims);
    order_dims(k, o ? o->axes : is_reduction(call->op) ? reduced_axes(call) : 0);
}

void gd_scalar_args_of_call(const gd_kernel_call *call, gd_scalar_args *a) {
    const int first = skipped_outputs(call->op, call->n_out), n_out = call->n_out - first,
              n_in = tensor_count(call->op, call->n_in);
    kernel_dims k;
    memset(a, 0, sizeof *a);
    set_kernel_dims(call, is_reduction(call->op) ? &call->in[0] : &call->out[first], &k);
    for (int i = 0; i < n_in + n_out; i++) {
        const bool outer = i >= n_in && is_outer_result(call->op, i - n_in, n_out);
        gd_scalar_operand *operand = &a->operand[i];
        const gd_view *v = i < n_in ? &call->in[i] : &call->out[first + i - n_in];
        if (outer && call->op->fusion && call->op->fusion->rows) set_row_strides(&k, v, operand);
        else if (outer) set_outer_strides(&k, v, operand);
        else set_strides(&k, v, operand);
        if (is_contiguous(&k, operand, outer ? k.n_outer : k.rank)) a->contiguous |= 1u << i;
    }
    set_dims(&k, n_in + n_out, a);
    set_params(call, a);
}

size_t gd_scalar_kept_bytes(const gd_kernel_call *call, const gd_scalar_args *a,
                            int64_t kept_rows) {
    const gd_fusion *f = call->op->fusion;
    if (!f || !f->rows) return 0;
    return (size_t)f->rows->n_kept * (size_t)kept_rows * (size_t)a->inner_count *
           gd_dtype_size(f->type);
}

/* --- calls that fill their own arguments ------------------------------------------------------ */

bool gd_scalar_expression(const gd_op *op, gd_op_expression *e) {
    if (!op->ir) return false;
    *e = (gd_op_expression){.ir = op->ir,
                            .hash = gd_ir_hash(op->ir),
                            .n_tensors = op->fusion ? op->fusion->n_tensors : op->n_inputs,
                            .n_scalars = op->fusion ? op->fusion->n_scalars : 0,
                            .is_fused = op->fusion != NULL};
    return true;
}

int gd_scalar_skipped_outputs(const gd_kernel_call *call) {
    return call->each ? 0 : skipped_outputs(call->op, call->n_out);
}

/* Whether all inputs have the same float dtype: nothing is promoted. */
static bool inputs_are_alike(const gd_kernel_call *call) {
    for (int i = 1; i < call->n_in; i++)
        if (call->in[i].dtype != call->in[0].dtype) return false;
    return call->n_in > 0 && gd_is_float(call->in[0].dtype);
}

gd_dtype gd_scalar_compute_dtype(const gd_kernel_call *call) {
    /* a shortcut for most calls */
    if (!call->op->fusion && !call->each && inputs_are_alike(call))
        return gd_compute_dtype(call->in[0].dtype);
    gd_dtype in[GD_SOURCE_INPUTS];
    int n = call->n_in, scalars = 0, width = n;
    if (call->each) { /* the tensors of the first entry, then the scalars (dispatch/call.h) */
        n = call->op->n_inputs;
        width = call->each > 1 ? (call->n_in - n) / (call->each - 1) : n;
        scalars = call->n_in - (n - width);
    }
    for (int i = 0; i < n; i++) in[i] = call->in[i < width ? i : scalars + i - width].dtype;
    return gd_op_compute_dtype(call->op, in, n, call->out[gd_scalar_skipped_outputs(call)].dtype);
}

void gd_scalar_params(const gd_kernel_call *call, gd_dtype type, gd_param *params) {
    const gd_op *op = call->op;
    if (op->fusion) {
        const gd_fused_options *o = call->attrs;
        memcpy(params + op->fusion->n_scalars, o->constants,
               sizeof *params * (size_t)op->fusion->n_constants);
        return;
    }
    for (int i = 0; i < op->n_attrs && call->attrs; i++)
        params[i] = gd_attr_param(&op->attrs[i], call->attrs, type);
}

int gd_scalar_dims(const gd_kernel_call *call, const int64_t **dims) {
    if (call->op->fusion) {
        const gd_fused_options *o = call->attrs;
        *dims = o->dims;
        return o->rank;
    }
    const gd_view *out = &call->out[gd_scalar_skipped_outputs(call)];
    *dims = out->dims;
    return out->rank;
}
