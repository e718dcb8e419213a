/* fused.c - the table of fused ops of this process, and the dtypes that elementwise ops compute
 * in. */
#include "dispatch/fused.h"

#include <pthread.h>
#include <string.h>

#include "codegen/record.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/fork.h"
#include "dispatch/intern.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)
static gd_fusion *fusions;

static bool same_nodes(const gd_ir *a, const gd_ir *b) {
    if (a->count != b->count || a->n_outputs != b->n_outputs) return false;
    if (memcmp(a->output, b->output, sizeof a->output[0] * (size_t)a->n_outputs) != 0) return false;
    for (int i = 0; i < a->count; i++) {
        const gd_ir_node *x = &a->nodes[i], *y = &b->nodes[i];
        if (x->code != y->code || memcmp(x->arg, y->arg, sizeof x->arg) != 0 ||
            memcmp(&x->value, &y->value, sizeof x->value) != 0)
            return false;
    }
    return true;
}

static bool same_rows(const gd_row_program *a, const gd_row_program *b) {
    return a && b ? gd_row_program_same(a, b) : a == b;
}

static bool same_fusion(const gd_fusion *a, const gd_fusion *b) {
    return a->type == b->type && a->n_tensors == b->n_tensors && a->n_scalars == b->n_scalars &&
           a->n_constants == b->n_constants && a->reduction == b->reduction &&
           strcmp(a->name, b->name) == 0 && same_rows(a->rows, b->rows) &&
           same_nodes(&a->ir, &b->ir);
}

static gd_fusion *make_fusion(const gd_fusion *model) {
    gd_fusion *f = gd_calloc_until_exit(sizeof *f);
    if (!f) return NULL;
    *f = *model;
    if (model->rows) {
        gd_row_program *rows = gd_calloc_until_exit(sizeof *rows);
        if (!rows) return NULL;
        gd_row_program_copy(rows, model->rows);
        f->rows = rows;
    }
    memcpy(f->nodes, model->ir.nodes, sizeof f->nodes[0] * (size_t)model->ir.count);
    f->ir.nodes = f->nodes;
    f->n_slots = gd_ir_slots(&f->ir, f->slot);
    const int n_in = f->n_tensors + f->n_scalars + (f->rows ? f->rows->n_columns : 0);
    const int n_out = f->rows ? f->rows->n_results : f->ir.n_outputs;
    const bool elementwise = !f->reduction && !f->rows;
    for (int i = 0; i < n_in; i++) f->inputs[i] = (gd_op_param){.name = "operand"};
    for (int i = 0; i < n_out; i++) f->outputs[i] = (gd_op_param){.name = "y"};
    memset(&f->state, 0, sizeof f->state);
    f->op = (gd_op){.name = f->name,
                    .doc = "",
                    .flags = GD_OP_INTERNAL | (elementwise ? GD_OP_ELEMENTWISE : 0),
                    .inputs = f->inputs,
                    .n_inputs = n_in,
                    .n_required = n_in,
                    .outputs = f->outputs,
                    .n_outputs = n_out,
                    .attrs_size = sizeof(gd_fused_options),
                    .fusion = f,
                    .ir = elementwise ? &f->ir : NULL,
                    .state = &f->state};
    return f;
}

const gd_op *gd_op_fused(const gd_fusion *model) {
    pthread_mutex_lock(&lock);
    gd_fusion *f = fusions;
    while (f && !same_fusion(f, model)) f = f->next;
    if (!f && (f = make_fusion(model))) {
        f->next = fusions;
        fusions = f;
    }
    pthread_mutex_unlock(&lock);
    if (!f) gd_fail(GD_E_MEMORY, "no memory for a fused op");
    return f ? &f->op : NULL;
}

void gd_fused_params(const gd_kernel_call *call, gd_param *params) {
    const gd_fusion *f = call->op->fusion;
    const gd_fused_options *o = call->attrs;
    for (int i = 0; i < f->n_scalars; i++) {
        const gd_view *v = &call->in[f->n_tensors + i];
        if (gd_dtype_is_float(f->type)) params[i].real = gd_load_f64(v->dtype, v->data);
        else params[i].integer = gd_load_i64(v->dtype, v->data);
    }
    memcpy(params + f->n_scalars, o->constants, sizeof *params * (size_t)f->n_constants);
}

/* --- dtypes ----------------------------------------------------------------------------------- */

gd_dtype gd_elementwise_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out) {
    gd_dtype dtype = GD_DTYPE_NONE;
    const bool mutates =
        op->n_mutated > 0 && !op->fusion; /* then only the inputs that it writes count */
    for (int i = 0; i < n_in; i++)
        if (in[i] && (!mutates || op->inputs[i].mutated))
            dtype = dtype ? gd_promote(dtype, in[i]) : in[i];
    if (!dtype) return out;
    const bool to_float =
        (op->flags & GD_OP_FLOAT) || (gd_dtype_is_float(out) && !(op->flags & GD_OP_PREDICATE));
    if (to_float && !gd_dtype_is_float(dtype)) return gd_dtype_is_float(out) ? out : GD_F32;
    return dtype;
}

gd_dtype gd_compute_dtype(gd_dtype dtype) {
    switch (dtype) {
    case GD_F64: return GD_F64;
    case GD_F32:
    case GD_F16:
    case GD_BF16: return GD_F32;
    case GD_I64: return GD_I64;
    default: return GD_I32;
    }
}

gd_dtype gd_op_compute_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out) {
    if (op->fusion) return op->fusion->type;
    return gd_compute_dtype(gd_elementwise_dtype(op, in, n_in, out));
}
