/* fuse_steps.c - analyzes steps for the fusion pass: which can be fused, the type they compute in,
 * and their dependencies. */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/grow.h"
#include "graph/passes/fuse.h"
#include "gradus/ops.h"
#include "dispatch/call.h"
#include "dispatch/infer.h"

/* --- classification --------------------------------------------------------------------------- */

/* Whether the type represents all numbers of the dtype exactly. */
static bool reads_exactly(gd_dtype type, gd_dtype dtype) {
    switch (dtype) {
    case GD_BOOL:
    case GD_I8:
    case GD_U8: return true;
    case GD_F16:
    case GD_BF16:
    case GD_F32: return type == GD_F32 || type == GD_F64;
    case GD_F64: return type == GD_F64;
    case GD_I32: return type != GD_F32;
    case GD_I64: return type == GD_I64;
    default: return false;
    }
}

/* Whether a result that is computed in the type is stored as the op alone would store it. */
static bool writes_exactly(const gd_op *op, gd_dtype type, gd_dtype dtype) {
    if (op->flags & GD_OP_PREDICATE) return dtype == GD_BOOL;
    return gd_dtype_is_float(type) ? gd_dtype_is_float(dtype) : dtype == type;
}

static bool has_primitives_for(const gd_op *op, gd_dtype type) {
    return gd_ir_types(op->ir) & (gd_dtype_is_float(type) ? GD_PRIM_FLOAT : GD_PRIM_INT);
}

/* Whether a step can be a member, and the type it computes in. */
static bool is_member(const gd_program *p, const gd_pstep *s, const bool *rewritten,
                      gd_dtype *type) {
    const gd_op *op = s->op;
    gd_dtype dtypes[GD_FUSED_TENSORS];
    bool predicates = op->flags & GD_OP_PREDICATE;
    if (s->view || s->removed || !op->ir || op->fusion || (op->flags & GD_OP_RANDOM) ||
        s->n_in > GD_FUSED_TENSORS || s->n_out != op->n_outputs || s->n_out > GD_IR_MAX_OUTPUTS ||
        s->out[0] < 0 || op->ir->count > GD_FUSED_NODES)
        return false;
    const gd_pvalue *y = &p->values[s->out[0]];
    for (int k = 0; k < s->n_in; k++) {
        if (s->in[k] < 0 || op->inputs[k < op->n_inputs ? k : 0].mutated ||
            rewritten[p->values[s->in[k]].root])
            return false;
        dtypes[k] = (gd_dtype)p->values[s->in[k]].dtype;
        predicates &= dtypes[k] == GD_BOOL;
    }
    *type = gd_compute_dtype(gd_elementwise_dtype(op, dtypes, s->n_in, (gd_dtype)y->dtype));
    for (int k = 0; k < s->n_in; k++)
        if (!reads_exactly(*type, dtypes[k])) return false;
    for (int k = 0; k < s->n_out; k++) {
        if (s->out[k] < 0) return false;
        const gd_pvalue *v = &p->values[s->out[k]];
        if (rewritten[v->root] || p->roots[v->root].kind != GD_ROOT_TEMPORARY ||
            !gd_values_lie_alike(v, y) || v->offset != 0 ||
            !gd_is_dense(v->rank, v->dims, v->strides) ||
            !writes_exactly(op, *type, (gd_dtype)v->dtype))
            return false;
    }
    if (gd_value_elements(y) == 0 || !has_primitives_for(op, *type)) return false;
    if (predicates && s->n_in > 0 && has_primitives_for(op, GD_F32) &&
        has_primitives_for(op, GD_I32))
        *type = GD_DTYPE_NONE;
    return true;
}

static bool is_reduction(const gd_program *p, const gd_pstep *s, const bool *rewritten) {
    if (s->view || s->removed || s->n_in != 1 || s->n_out != 1 || s->in[0] < 0 || s->out[0] < 0)
        return false;
    if (s->op->facts.reduces == GD_REDUCES_NOTHING) return false;
    const gd_pvalue *x = &p->values[s->in[0]], *y = &p->values[s->out[0]];
    return x->dtype == y->dtype && gd_dtype_is_float((gd_dtype)x->dtype) &&
           gd_value_elements(x) > 1 && gd_value_elements(y) > 0 && !rewritten[x->root] &&
           !rewritten[y->root];
}

gd_status gd_fuse_axes(const gd_program *p, const gd_pstep *s, uint32_t *axes) {
    for (int i = 0; i < s->op->n_attrs; i++)
        if (strcmp(s->op->attrs[i].name, "axis") == 0 && s->op->attrs[i].type == GD_ATTR_SHAPE)
            return gd_axes_mask((const gd_shape *)((const char *)s->attrs + s->op->attrs[i].offset),
                                p->values[s->in[0]].rank, axes);
    return gd_fail(GD_E_STATE, "%s has no axes", s->op->name);
}

/* The step that computes the elements of a value, through views; NULL: no step of this run. */
static const gd_pstep *find_producer_through_views(const gd_fuse *f, int value) {
    const int root = f->p->values[value].root;
    for (int producer = f->producer[value]; producer >= 0; producer = f->producer[value]) {
        const gd_pstep *s = &f->p->steps[producer];
        if (!s->view) return s;
        int k = 0;
        while (k < s->n_in && (s->in[k] < 0 || f->p->values[s->in[k]].root != root)) k++;
        if (k == s->n_in) return NULL;
        value = s->in[k];
    }
    return NULL;
}

/* The number rounded to the dtype. */
static double round_to_dtype(gd_dtype dtype, double number) {
    char bytes[16];
    gd_store_f64(dtype, bytes, number);
    return gd_load_f64(dtype, bytes);
}

/* The option that the step's result is filled with; NULL: it is not a fill. */
static const gd_op_attr *get_fill_option(const gd_pstep *s) {
    const char *name = s->op->facts.fills;
    int i = 0;
    while (name && strcmp(s->op->attrs[i].name, name) != 0) i++; /* the record was checked */
    return name ? &s->op->attrs[i] : NULL;
}

static bool find_constant(const gd_fuse *f, int value, int depth, double *number);

/* Evaluates an elementwise step whose operands are constants. */
static bool eval_constant_step(const gd_fuse *f, const gd_pstep *s, int depth, double *number) {
    double vars[GD_FUSED_TENSORS], params[GD_FUSED_PARAMS];
    if (f->steps[s - f->p->steps].kind != GD_FUSE_EACH || s->n_out != 1 ||
        s->op->n_attrs > GD_FUSED_PARAMS || s->n_in == 0)
        return false;
    for (int k = 0; k < s->n_in; k++)
        if (!find_constant(f, s->in[k], depth - 1, &vars[k])) return false;
    for (int k = 0; k < s->op->n_attrs; k++)
        params[k] = gd_attr_number(&s->op->attrs[k], s->attrs).value;
    gd_ir_eval_real(s->op->ir, vars, params, number);
    return true;
}

static bool find_constant(const gd_fuse *f, int value, int depth, double *number) {
    const gd_pstep *s = depth > 0 ? find_producer_through_views(f, value) : NULL;
    const gd_dtype dtype = (gd_dtype)f->p->values[value].dtype;
    if (!s || !gd_dtype_is_float(dtype)) return false;
    const gd_op_attr *fills = get_fill_option(s);
    if (fills) *number = gd_attr_number(fills, s->attrs).value;
    else if (!eval_constant_step(f, s, depth, number)) return false;
    *number = round_to_dtype(dtype, *number);
    return true;
}

bool gd_fuse_constant(const gd_fuse *f, int value, double *number) {
    return find_constant(f, value, 8, number);
}

bool gd_fuse_is_scalar(const gd_fuse *f, int value, gd_dtype type, int64_t count) {
    const gd_pvalue *v = &f->p->values[value];
    if (count == 1 || (type == GD_I64 && v->dtype == GD_I64)) return false;
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] != 1 && v->strides[d] != 0) return false;
    return true;
}

/* --- dependencies ----------------------------------------------------------------------------- */

/* A step that reads a root, in a linked list of the readers. */
typedef struct root_read {
    int step, before; /* before: the previous reader, in `reads`; -1: none */
} root_read;

typedef struct edge_list {
    int *from, *to;
    int count, room;
    int *last_read; /* per root: the last read since it was written, in `reads`; -1: none */
    root_read *reads;
    int n_reads, reads_room;
} edge_list;

static void free_edges(edge_list *e) {
    gd_free(e->from);
    gd_free(e->to);
    gd_free(e->last_read);
    gd_free(e->reads);
}

static gd_status add_edge(edge_list *e, int from, int to) {
    if (from < 0 || from == to) return GD_OK;
    if (e->count == e->room) {
        const int larger = e->room ? 2 * e->room : 256;
        int *a = gd_realloc(e->from, (size_t)larger * sizeof *a);
        if (a) e->from = a;
        int *b = a ? gd_realloc(e->to, (size_t)larger * sizeof *b) : NULL;
        if (!b) return gd_no_memory(NULL, "to plan a run");
        e->to = b;
        e->room = larger;
    }
    e->from[e->count] = from;
    e->to[e->count++] = to;
    return GD_OK;
}

static gd_status record_read(edge_list *e, int root, int step) {
    if (!gd_grow(e->reads, e->n_reads, e->reads_room)) return gd_no_memory(NULL, "to plan a run");
    e->reads[e->n_reads] = (root_read){step, e->last_read[root]};
    e->last_read[root] = e->n_reads++;
    return GD_OK;
}

static gd_status add_reads(const gd_fuse *f, edge_list *e, int i) {
    const gd_program *p = f->p;
    const gd_pstep *s = &p->steps[i];
    for (int k = 0; k < s->n_in; k++) {
        if (s->in[k] < 0) continue;
        const int root = p->values[s->in[k]].root;
        /* depend on the step that writes the root, not on a view of it */
        const int producer = f->producer[s->in[k]];
        if (producer >= 0 && (s->view || !p->steps[producer].view))
            GD_TRY(add_edge(e, producer, i));
        GD_TRY(add_edge(e, f->writer[root], i));
        GD_TRY(record_read(e, root, i));
    }
    return GD_OK;
}

static gd_status add_writes(gd_fuse *f, edge_list *e, int i) {
    const gd_pstep *s = &f->p->steps[i];
    for (int k = 0; k < s->n_out && !s->view; k++) {
        if (s->out[k] < 0) continue;
        const int root = f->p->values[s->out[k]].root;
        for (int r = e->last_read[root]; r >= 0; r = e->reads[r].before)
            GD_TRY(add_edge(e, e->reads[r].step, i));
        GD_TRY(add_edge(e, f->writer[root], i));
        f->writer[root] = i;
        e->last_read[root] = -1; /* steps after this write come after those readers */
    }
    return GD_OK;
}

/* Every read depends on the write before it; every write on the reads and writes before it. */
static gd_status find_edges(gd_fuse *f, edge_list *e) {
    const gd_program *p = f->p;
    e->last_read = gd_malloc(((size_t)p->n_roots + 1) * sizeof *e->last_read);
    if (!e->last_read) return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) e->last_read[r] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (s->removed) continue;
        GD_TRY(add_reads(f, e, i));
        GD_TRY(add_writes(f, e, i));
        for (int k = 0; k < s->n_out; k++)
            if (s->out[k] >= 0 && f->producer[s->out[k]] < 0) f->producer[s->out[k]] = i;
    }
    return GD_OK;
}

/* The result of an assign is a value that equals another one: both have the same producer. */
static void find_aliases(gd_fuse *f) {
    const gd_program *p = f->p;
    for (int v = 0; v < p->n_values; v++) {
        const gd_pvalue *x = &p->values[v];
        const gd_pstep *s =
            f->producer[v] < 0 && f->writer[x->root] >= 0 ? &p->steps[f->writer[x->root]] : NULL;
        for (int k = 0; s && k < s->n_out; k++) {
            const gd_pvalue *y = s->out[k] < 0 ? NULL : &p->values[s->out[k]];
            if (y && y->root == x->root && y->dtype == x->dtype && y->offset == x->offset &&
                gd_values_have_same_dims(x, y) &&
                memcmp(x->strides, y->strides, sizeof(int64_t) * x->rank) == 0)
                f->producer[v] = f->writer[x->root];
        }
    }
}

static gd_status index_edges(gd_fuse *f, const edge_list *e) {
    f->users = gd_malloc(((size_t)e->count + 1) * sizeof *f->users);
    f->needs = gd_malloc(((size_t)e->count + 1) * sizeof *f->needs);
    if (!f->users || !f->needs) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < e->count; i++) {
        f->steps[e->from[i]].n_users++;
        f->steps[e->to[i]].n_needs++;
    }
    for (int i = 0, users = 0, needs = 0; i < f->p->n_steps; i++) {
        gd_fuse_step *s = &f->steps[i];
        s->first_user = users;
        s->first_need = needs;
        users += s->n_users;
        needs += s->n_needs;
        s->n_users = s->n_needs = 0;
    }
    for (int i = 0; i < e->count; i++) {
        gd_fuse_step *a = &f->steps[e->from[i]], *b = &f->steps[e->to[i]];
        f->users[a->first_user + a->n_users++] = e->to[i];
        f->needs[b->first_need + b->n_needs++] = e->from[i];
    }
    return GD_OK;
}

/* Lists the readers of each root. */
static gd_status index_readers(gd_fuse *f) {
    const gd_program *p = f->p;
    size_t reads = 1;
    for (int i = 0; i < p->n_steps; i++) reads += (size_t)p->steps[i].n_in;
    f->readers = gd_malloc(reads * sizeof *f->readers);
    f->first_reader = gd_calloc((size_t)p->n_roots + 2, sizeof *f->first_reader);
    if (!f->readers || !f->first_reader) return gd_no_memory(NULL, "to plan a run");
    int *end = f->first_reader + 1; /* counts, then positions of the next reader, then ends */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < p->n_steps; i++) {
            const gd_pstep *s = &p->steps[i];
            for (int k = 0; k < s->n_in && !s->view && !s->removed; k++) {
                if (s->in[k] < 0) continue;
                const int at = end[p->values[s->in[k]].root]++;
                if (pass == 1) f->readers[at] = i;
            }
        }
        for (int r = 0, sum = 0; r < p->n_roots && pass == 0; r++) {
            sum += end[r];
            end[r] = sum - end[r];
        }
    }
    return GD_OK;
}

/* Per root: it is written more than once, or it is not a temporary and is written. */
static bool *find_rewritten_roots(const gd_program *p) {
    int *writes = gd_program_writes(p);
    bool *rewritten = writes ? gd_calloc((size_t)p->n_roots + 1, sizeof *rewritten) : NULL;
    for (int r = 0; rewritten && r < p->n_roots; r++)
        rewritten[r] = writes[r] > 1 || (writes[r] && p->roots[r].kind != GD_ROOT_TEMPORARY);
    gd_free(writes);
    return rewritten;
}

static gd_status classify_steps(gd_fuse *f) {
    const gd_program *p = f->p;
    bool *rewritten = find_rewritten_roots(p);
    if (!rewritten) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < p->n_steps; i++) {
        gd_fuse_step *s = &f->steps[i];
        s->group = i;
        s->next = -1;
        if (is_member(p, &p->steps[i], rewritten, &s->type)) s->kind = GD_FUSE_EACH;
        else if (is_reduction(p, &p->steps[i], rewritten)) s->kind = GD_FUSE_REDUCTION;
    }
    gd_free(rewritten);
    return GD_OK;
}

/* A fill such as full_like reads only the shape of its input. The shape is known here, so the step
 * becomes `full`, which has no input. */
static gd_status detach_fills(gd_program *p) {
    for (int i = 0; i < p->n_steps; i++) {
        gd_pstep *s = &p->steps[i];
        const gd_op_attr *fills = get_fill_option(s);
        if (s->removed || !fills || s->n_in == 0 || s->out[0] < 0) continue;
        const gd_pvalue *v = &p->values[s->out[0]];
        gd_full_options *o = gd_program_alloc(p, sizeof *o);
        if (!o) return GD_E_MEMORY;
        o->dims = (gd_shape){.rank = v->rank, .form = 1};
        memcpy(o->dims.at, v->dims, sizeof(int64_t) * v->rank);
        o->value = gd_attr_number(fills, s->attrs);
        o->dtype = (gd_dtype)v->dtype;
        s->op = gd_op_find("full");
        s->attrs = o;
        s->n_in = 0;
    }
    return GD_OK;
}

gd_status gd_fuse_begin(gd_fuse *f, gd_program *p, gd_device *device) {
    *f = (gd_fuse){.p = p, .device = device, .rules = device->api->fusion};
    GD_TRY(detach_fills(p));
    const size_t n = (size_t)p->n_steps + 1;
    f->steps = gd_calloc(n, sizeof *f->steps);
    f->producer = gd_malloc(((size_t)p->n_values + 1) * sizeof *f->producer);
    f->kept = gd_calloc((size_t)p->n_roots + 1, sizeof *f->kept);
    f->writer = gd_malloc(((size_t)p->n_roots + 1) * sizeof *f->writer);
    f->seen = gd_calloc(n, sizeof *f->seen);
    f->stack = gd_malloc(n * sizeof *f->stack);
    f->leads = gd_calloc(n, sizeof *f->leads);
    f->gate = -1;
    f->reach = gd_malloc(n * sizeof *f->reach);
    f->undo = gd_malloc(n * sizeof *f->undo);
    f->changed = gd_calloc(n, sizeof *f->changed);
    if (!f->steps || !f->reach || !f->undo || !f->changed || !f->producer || !f->writer ||
        !f->kept || !f->seen || !f->stack || !f->leads)
        return gd_no_memory(NULL, "to plan a run");
    for (size_t i = 0; i < n; i++) f->reach[i] = -1;
    for (int v = 0; v < p->n_values; v++) f->producer[v] = -1;
    for (int r = 0; r < p->n_roots; r++) f->writer[r] = -1;
    for (int i = 0; i < p->n_fetches; i++) f->kept[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) f->kept[p->values[p->commits[i].value].root] = true;
    edge_list e = {.count = 0};
    gd_status status = find_edges(f, &e);
    if (status == GD_OK) status = index_edges(f, &e);
    if (status == GD_OK) status = index_readers(f);
    if (status == GD_OK) find_aliases(f);
    free_edges(&e);
    return status == GD_OK ? classify_steps(f) : status;
}

void gd_fuse_end(gd_fuse *f) {
    gd_free(f->steps);
    gd_free(f->users);
    gd_free(f->needs);
    gd_free(f->producer);
    gd_free(f->writer);
    gd_free(f->first_reader);
    gd_free(f->readers);
    gd_free(f->kept);
    gd_free(f->seen);
    gd_free(f->stack);
    gd_free(f->leads);
    gd_free(f->reach);
    gd_free(f->undo);
    gd_free(f->changed);
}
