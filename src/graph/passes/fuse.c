/* fuse.c - fuses each group of elementwise steps, and the reduction that follows them, into one
 * step.
 *
 * fuse_group.c chooses the groups. This file composes and compiles the expression of a group,
 * writes its step, and sorts the program so that every step follows those it needs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/fuse.h"
#include "dispatch/call.h"
#include "dispatch/infer.h"
#include "gradus/ops.h"

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void list_members(gd_fusing *g, int group) {
    const gd_fuse *f = g->f;
    g->reduction = -1;
    g->by_rows = gd_fuse_row_shape(f, group, &g->row_shape);
    for (int m = group; m >= 0; m = f->steps[m].next) {
        if (f->steps[m].kind == GD_FUSE_REDUCTION && !g->by_rows) g->reduction = m;
        else g->members[g->n_members++] = m;
        if (f->steps[m].type) g->model.type = f->steps[m].type;
    }
    if (!g->model.type) g->model.type = GD_I32; /* bools only */
    qsort(g->members, (size_t)g->n_members, sizeof g->members[0], ascending);
    const gd_pvalue *shape =
        g->by_rows ? g->row_shape.shape : &f->p->values[f->p->steps[g->members[0]].out[0]];
    g->options.rank = shape->rank;
    memcpy(g->options.dims, shape->dims, sizeof(int64_t) * shape->rank);
}

/* --- operands --------------------------------------------------------------------------------- */

static int find_or_add(int *list, int *count, int value) {
    for (int i = 0; i < *count; i++)
        if (list[i] == value) return i;
    list[*count] = value;
    return (*count)++;
}

static int find_or_add_constant(gd_fusing *g, gd_param number) {
    for (int i = 0; i < g->model.n_constants; i++)
        if (memcmp(&g->options.constants[i], &number, sizeof number) == 0) return i;
    g->options.constants[g->model.n_constants] = number;
    return g->model.n_constants++;
}

int gd_fusing_constant(gd_fusing *g, double number) {
    return find_or_add_constant(g, (gd_param){.real = number});
}

/* An option of a step as a constant in the group's type. */
static int option_constant(gd_fusing *g, const gd_pstep *s, int k) {
    return find_or_add_constant(g, gd_attr_param(&s->op->attrs[k], s->attrs, g->model.type));
}

/* The kinds of operands that the expression reads. */
typedef enum { INSIDE, TENSOR, SCALAR, CONSTANT, COLUMN } source_kind;

/* Whether the value is read as one value per row. Members that compute such values read no other
 * tensors. */
static bool is_column(gd_fusing *g, int member, int value) {
    const gd_pvalue *v = &g->f->p->values[value],
                    *y = &g->f->p->values[g->f->p->steps[member].out[0]];
    if (!g->by_rows || !gd_fuse_is_column(v, &g->row_shape)) return false;
    if (g->f->steps[member].kind == GD_FUSE_EACH &&
        !gd_values_have_same_dims(y, g->row_shape.shape))
        return true;
    return gd_fuse_is_row_value(v, &g->row_shape) && g->n_columns < GD_ROW_COLUMNS;
}

static source_kind find_source(gd_fusing *g, int member, int value, int *number) {
    const gd_fuse *f = g->f;
    double filled;
    const int writer = f->writer[f->p->values[value].root];
    if (writer >= 0 && f->steps[writer].group == f->steps[member].group) return INSIDE;
    if (gd_fuse_constant(f, value, &filled)) {
        *number = gd_fusing_constant(g, filled);
        return CONSTANT;
    }
    if (gd_fuse_is_scalar(f, value, g->model.type, gd_numel(g->options.rank, g->options.dims))) {
        *number = find_or_add(g->scalars, &g->model.n_scalars, value);
        return SCALAR;
    }
    if (is_column(g, member, value)) {
        *number = find_or_add(g->columns, &g->n_columns, value);
        return COLUMN;
    }
    *number = find_or_add(g->tensors, &g->model.n_tensors, value);
    return TENSOR;
}

static bool uses_param(const gd_ir *ir, int number) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code == GD_IR_PARAM && ir->nodes[i].arg[0] == number) return true;
    return false;
}

static void list_operands(gd_fusing *g) {
    int number;
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &g->f->p->steps[g->members[i]];
        for (int k = 0; k < s->n_in; k++) find_source(g, g->members[i], s->in[k], &number);
        if (g->f->steps[g->members[i]].kind == GD_FUSE_REDUCTION) /* the divisor of a mean */
            gd_fusing_constant(g, (double)g->row_shape.n);
        for (int k = 0; s->op->ir && k < s->op->n_attrs; k++)
            if (uses_param(s->op->ir, k)) option_constant(g, s, k);
    }
}

/* --- the expression --------------------------------------------------------------------------- */

int gd_fusing_node(gd_fusing *g, int i, int value) {
    const int params = g->model.n_scalars + g->model.n_constants;
    int number = 0;
    switch (find_source(g, g->members[i < 0 ? 0 : i], value, &number)) {
    case TENSOR: return gd_ir_var(&g->b, number);
    case SCALAR: return gd_ir_param(&g->b, number);
    case CONSTANT: return gd_ir_param(&g->b, g->model.n_scalars + number);
    case COLUMN: return gd_ir_param(&g->b, params + number);
    case INSIDE: break;
    }
    for (int m = 0; m < g->n_members; m++) {
        const gd_pstep *s = &g->f->p->steps[g->members[m]];
        for (int k = 0; k < s->n_out; k++)
            if (g->f->p->values[s->out[k]].root == g->f->p->values[value].root)
                return g->made[m][k];
    }
    return -1;
}

void gd_fusing_member(gd_fusing *g, int i) {
    const gd_pstep *s = &g->f->p->steps[g->members[i]];
    int vars[GD_FUSED_TENSORS], params[GD_FUSED_PARAMS] = {0};
    for (int k = 0; k < s->n_in; k++) vars[k] = gd_fusing_node(g, i, s->in[k]);
    for (int k = 0; k < s->op->n_attrs && k < GD_FUSED_PARAMS; k++)
        if (uses_param(s->op->ir, k))
            params[k] = gd_ir_param(&g->b, g->model.n_scalars + option_constant(g, s, k));
    for (int k = 0; k < s->n_out; k++)
        g->made[i][k] = gd_ir_inline(&g->b, s->op->ir, k, vars, params);
}

static gd_status compose_expression(gd_fusing *g) {
    int results[GD_FUSED_OUTPUTS];
    const gd_program *p = g->f->p;
    for (int i = 0; i < g->n_members; i++) gd_fusing_member(g, i);
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &p->steps[g->members[i]];
        for (int k = 0; k < s->n_out; k++) {
            if (!gd_fuse_is_wanted(g->f, s->out[k])) continue;
            results[g->n_outputs] = g->made[i][k];
            g->outputs[g->n_outputs++] = s->out[k];
        }
    }
    if (g->reduction >= 0) {
        results[g->n_outputs] = gd_fusing_node(g, -1, p->steps[g->reduction].in[0]);
        g->outputs[g->n_outputs++] = p->steps[g->reduction].out[0];
    }
    if (g->b.error[0]) return gd_fail(GD_E_STATE, "in a fused step: %s", g->b.error);
    g->model.ir = gd_ir_finish(&g->b, results, g->n_outputs, g->nodes);
    g->model.ir.n_vars = g->model.n_tensors;
    return GD_OK;
}

/* Writes a name such as "fused{sub, square, mean}", shortened if it is too long. */
static void name_fused_op(gd_fusing *g) {
    char *name = g->model.name;
    const size_t size = sizeof g->model.name, reserve = 24;
    size_t used = (size_t)snprintf(name, size, "fused{");
    const int n = g->n_members + (g->reduction >= 0);
    for (int i = 0; i < n; i++) {
        const gd_op *op = g->f->p->steps[i < g->n_members ? g->members[i] : g->reduction].op;
        if (used + strlen(op->name) + reserve > size) {
            used += (size_t)snprintf(name + used, size - used, ", %d more", n - i);
            break;
        }
        used += (size_t)snprintf(name + used, size - used, "%s%s", i ? ", " : "", op->name);
    }
    snprintf(name + used, size - used, "}");
}

/* --- the step --------------------------------------------------------------------------------- */

/* Replaces the last member by the group's step. */
static gd_status write_step(gd_fusing *g) {
    gd_program *p = g->f->p;
    const int n_in = g->model.n_tensors + g->model.n_scalars + g->n_columns;
    const gd_op *op = gd_op_fused(&g->model);
    int *ids = gd_program_alloc(p, (size_t)(n_in + g->n_outputs + 1) * sizeof *ids);
    gd_fused_options *options = gd_program_alloc(p, sizeof *options);
    if (!op || !ids || !options) return GD_E_MEMORY;
    *options = g->options;
    memcpy(ids, g->tensors, (size_t)g->model.n_tensors * sizeof *ids);
    memcpy(ids + g->model.n_tensors, g->scalars, (size_t)g->model.n_scalars * sizeof *ids);
    memcpy(ids + n_in - g->n_columns, g->columns, (size_t)g->n_columns * sizeof *ids);
    memcpy(ids + n_in, g->outputs, (size_t)g->n_outputs * sizeof *ids);
    int last = g->members[g->n_members - 1];
    for (int i = 0; i < g->n_members; i++) p->steps[g->members[i]].removed = true;
    if (g->reduction >= 0) {
        p->steps[g->reduction].removed = true;
        if (g->reduction > last) last = g->reduction;
    }
    p->steps[last] = (gd_pstep){.op = op,
                                .attrs = options,
                                .node = p->steps[last].node,
                                .n_in = n_in,
                                .n_out = g->n_outputs,
                                .in = ids,
                                .out = ids + n_in};
    return GD_OK;
}

/* Composes a group: its expression, operands and name. A group of rows that is too long is
 * dissolved: n_members is 0 then. */
static gd_status compose_group(gd_fuse *f, int group, gd_fusing *g) {
    memset(g, 0, sizeof *g);
    g->f = f;
    list_members(g, group);
    list_operands(g);
    if (g->by_rows && !gd_fusing_rows(g)) {
        gd_fuse_dissolve(f, group);
        g->n_members = 0;
        return GD_OK;
    }
    if (!g->by_rows) GD_TRY(compose_expression(g));
    if (g->reduction >= 0) {
        g->model.reduction = f->p->steps[g->reduction].op;
        GD_TRY(gd_fuse_axes(f->p, &f->p->steps[g->reduction], &g->options.axes));
    }
    name_fused_op(g);
    return GD_OK;
}

/* A request for the kernel of a group, with everything that it points to. */
typedef struct kernel_request {
    gd_fusion_request request;
    gd_kernel_call call;
    gd_fused_options options;
    gd_view views[GD_FUSED_INPUTS + GD_FUSED_OUTPUTS];
    gd_dtype dtypes[GD_FUSED_INPUTS + GD_FUSED_OUTPUTS];
} kernel_request;

static int add_views(const gd_fusing *g, const int *values, int count, kernel_request *r, int n) {
    for (int i = 0; i < count; i++, n++) {
        r->views[n] = gd_program_view(&g->f->p->values[values[i]]);
        r->dtypes[n] = r->views[n].dtype;
    }
    return n;
}

static void fill_request(const gd_fusing *g, const gd_op *op, kernel_request *r) {
    int n = add_views(g, g->tensors, g->model.n_tensors, r, 0);
    n = add_views(g, g->scalars, g->model.n_scalars, r, n);
    n = add_views(g, g->columns, g->n_columns, r, n);
    add_views(g, g->outputs, g->n_outputs, r, n);
    r->options = g->options;
    gd_kernel_call_set(&r->call, &r->options, r->views, n, r->views + n, g->n_outputs);
    r->call.op = op;
    r->call.device = g->f->device;
    r->request = (gd_fusion_request){.op = op,
                                     .elements = gd_numel(g->options.rank, g->options.dims),
                                     .in = r->dtypes,
                                     .out = r->dtypes + n,
                                     .call = &r->call};
}

/* Compiles the kernels of all groups together, so that the compiler is started once. */
static gd_status compile_all(gd_fuse *f, int groups, gd_fusing *g) {
    kernel_request *kernels = gd_malloc(((size_t)groups + 1) * sizeof *kernels);
    gd_fusion_request *requests = gd_malloc(((size_t)groups + 1) * sizeof *requests);
    gd_status status = kernels && requests ? GD_OK : gd_no_memory(NULL, "to plan a run");
    int n = 0;
    for (int i = 0; i < f->p->n_steps && n < groups && status == GD_OK; i++) {
        if (!gd_fuse_is_group(f, i)) continue;
        status = compose_group(f, i, g);
        if (status != GD_OK || g->n_members == 0) continue;
        const gd_op *op = gd_op_fused(&g->model);
        if (!op) status = GD_E_MEMORY;
        fill_request(g, op, &kernels[n]);
        requests[n] = kernels[n].request;
        n++;
    }
    if (status == GD_OK) f->rules->compile(f->device, requests, n);
    gd_free(kernels);
    gd_free(requests);
    return status;
}

/* Writes the step of a group, unless it has no compiled kernel and is slower without one. */
static gd_status write_group(gd_fuse *f, int group, gd_fusing *g) {
    kernel_request kernel;
    GD_TRY(compose_group(f, group, g));
    const gd_op *op = g->n_members ? gd_op_fused(&g->model) : NULL;
    if (!op) return g->n_members ? GD_E_MEMORY : GD_OK;
    fill_request(g, op, &kernel);
    if (f->rules->has_kernel(f->device, &kernel.request) || gd_fuse_is_worth_evaluating(f, group))
        return write_step(g);
    gd_fuse_dissolve(f, group);
    return GD_OK;
}

/* --- the order -------------------------------------------------------------------------------- */

typedef struct ordering {
    const gd_fuse *f;
    int *order, count;
    bool *done; /* per group */
} ordering;

/* Appends the groups that this one needs, then its own step. */
static void put_group(ordering *o, int group) {
    int last = group;
    if (o->done[group]) return;
    o->done[group] = true;
    for (int m = group; m >= 0; m = o->f->steps[m].next) {
        if (m > last) last = m;
        for (int k = 0; k < o->f->steps[m].n_needs; k++) {
            const int need = o->f->needs[o->f->steps[m].first_need + k];
            if (o->f->steps[need].group != group) put_group(o, o->f->steps[need].group);
        }
    }
    o->order[o->count++] = last;
}

static bool is_last_member(const gd_fuse *f, int step) {
    for (int m = f->steps[step].group; m >= 0; m = f->steps[m].next)
        if (m > step) return false;
    return true;
}

static gd_status reorder_steps(const gd_fuse *f) {
    gd_program *p = f->p;
    const size_t n = (size_t)p->n_steps + 1;
    ordering o = {.f = f, .order = gd_malloc(n * sizeof(int)), .done = gd_calloc(n, sizeof(bool))};
    gd_pstep *steps = gd_malloc(n * sizeof *steps);
    gd_status status = o.order && o.done && steps ? GD_OK : gd_no_memory(NULL, "to plan a run");
    if (status == GD_OK) {
        for (int i = 0; i < p->n_steps; i++)
            if (is_last_member(f, i)) put_group(&o, f->steps[i].group);
        for (int i = 0; i < o.count; i++) steps[i] = p->steps[o.order[i]];
        memcpy(p->steps, steps, (size_t)o.count * sizeof *steps);
        p->n_steps = o.count;
    }
    gd_free(o.order);
    gd_free(o.done);
    gd_free(steps);
    return status;
}

gd_status gd_pass_fuse(gd_rewrite *r) {
    gd_program *p = r->program;
    gd_fuse f;
    gd_status status = gd_fuse_begin(&f, p, r->device);
    const int groups = status == GD_OK ? gd_fuse_group(&f) : 0;
    gd_fusing *g = groups ? gd_malloc(sizeof *g) : NULL;
    if (groups && !g) status = gd_no_memory(NULL, "to plan a run");
    if (groups && status == GD_OK) status = compile_all(&f, groups, g);
    for (int i = 0; groups && i < p->n_steps && status == GD_OK; i++)
        if (gd_fuse_is_group(&f, i)) status = write_group(&f, i, g);
    if (groups && status == GD_OK) status = reorder_steps(&f);
    gd_free(g);
    gd_fuse_end(&f);
    r->changes += groups; /* constants may be unused now */
    return status;
}
