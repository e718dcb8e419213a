/* pass_fuse.c - groups of elementwise steps, with the reduction behind them, become one step each.
 *
 * fuse_group.c says which; here a group's expression is composed, the step is written, and the
 * program put in an order in which everything comes after what it needs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/fuse.h"
#include "ops/call.h"
#include "ops/infer.h"
#include "gradus/ops.h"

/* A group on its way to a step. */
typedef struct fusing {
    gd_fuse *f;
    int members[GD_FUSED_MEMBERS], n_members; /* in the order of the program */
    int reduction;                            /* a step, or -1 */
    int tensors[GD_FUSED_TENSORS], scalars[GD_FUSED_PARAMS];
    int outputs[GD_IR_MAX_OUTPUTS], n_outputs; /* values */
    gd_fused_options options;
    gd_fusion model;
    gd_ir_builder b;
    gd_ir_node nodes[GD_IR_MAX_NODES];
} fusing;

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void list_members(fusing *g, int group) {
    const gd_fuse *f = g->f;
    g->reduction = -1;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        if (f->steps[m].kind == GD_FUSE_REDUCTION)
            g->reduction = m;
        else
            g->members[g->n_members++] = m;
        if (f->steps[m].type) g->model.type = f->steps[m].type;
    }
    if (!g->model.type) g->model.type = GD_I32; /* truths alone */
    qsort(g->members, (size_t)g->n_members, sizeof g->members[0], ascending);
    const gd_pvalue *shape = &f->p->values[f->p->steps[g->members[0]].out[0]];
    g->options.rank = shape->rank;
    memcpy(g->options.dims, shape->dims, sizeof(int64_t) * shape->rank);
}

/* --- operands ----------------------------------------------------------------------------------
 */

static int place_of(int *list, int *count, int value) {
    for (int i = 0; i < *count; i++)
        if (list[i] == value) return i;
    list[*count] = value;
    return (*count)++;
}

/* Constants of the same bits are one parameter; params are numbered behind the scalars. */
static int constant(fusing *g, double number) {
    for (int i = 0; i < g->model.n_constants; i++)
        if (memcmp(&g->options.constants[i], &number, sizeof number) == 0) return i;
    g->options.constants[g->model.n_constants] = number;
    return g->model.n_constants++;
}

/* What the expression reads: where it stands among tensors, scalars or constants. */
typedef enum { INSIDE, TENSOR, SCALAR, CONSTANT } source_kind;

static source_kind look_at(fusing *g, int value, int *number) {
    const gd_fuse *f = g->f;
    double filled;
    const int maker = f->made_by[value];
    if (maker >= 0 && f->steps[maker].group == f->steps[g->members[0]].group) return INSIDE;
    if (gd_fuse_constant(f, value, &filled)) {
        *number = constant(g, filled);
        return CONSTANT;
    }
    if (gd_fuse_is_scalar(f, value, g->model.type, gd_numel(g->options.rank, g->options.dims))) {
        *number = place_of(g->scalars, &g->model.n_scalars, value);
        return SCALAR;
    }
    *number = place_of(g->tensors, &g->model.n_tensors, value);
    return TENSOR;
}

static bool uses_param(const gd_ir *ir, int number) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code == GD_IR_PARAM && ir->nodes[i].arg[0] == number) return true;
    return false;
}

static void list_operands(fusing *g) {
    int number;
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &g->f->p->steps[g->members[i]];
        for (int k = 0; k < s->n_in; k++) look_at(g, s->in[k], &number);
        for (int k = 0; k < s->op->n_attrs; k++)
            if (uses_param(s->op->ir, k)) constant(g, gd_attr_number(&s->op->attrs[k], s->attrs));
    }
}

/* --- the expression ----------------------------------------------------------------------------
 */

/* The node of a value that a member reads. `made` are the nodes of the members' outputs. */
static int node_of(fusing *g, int value, int made[][GD_IR_MAX_OUTPUTS]) {
    int number = 0;
    switch (look_at(g, value, &number)) {
    case TENSOR: return gd_ir_var(&g->b, number);
    case SCALAR: return gd_ir_param(&g->b, number);
    case CONSTANT: return gd_ir_param(&g->b, g->model.n_scalars + number);
    case INSIDE: break;
    }
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &g->f->p->steps[g->members[i]];
        for (int k = 0; k < s->n_out; k++)
            if (g->f->p->values[s->out[k]].root == g->f->p->values[value].root) return made[i][k];
    }
    return -1;
}

static gd_status compose(fusing *g) {
    int made[GD_FUSED_MEMBERS][GD_IR_MAX_OUTPUTS], results[GD_IR_MAX_OUTPUTS];
    const gd_program *p = g->f->p;
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &p->steps[g->members[i]];
        int vars[GD_FUSED_TENSORS], params[GD_FUSED_PARAMS] = {0};
        for (int k = 0; k < s->n_in; k++) vars[k] = node_of(g, s->in[k], made);
        for (int k = 0; k < s->op->n_attrs && k < GD_FUSED_PARAMS; k++)
            if (uses_param(s->op->ir, k))
                params[k] =
                    gd_ir_param(&g->b, g->model.n_scalars +
                                           constant(g, gd_attr_number(&s->op->attrs[k], s->attrs)));
        for (int k = 0; k < s->n_out; k++)
            made[i][k] = gd_ir_inline(&g->b, s->op->ir, k, vars, params);
    }
    for (int i = 0; i < g->n_members; i++) {
        const gd_pstep *s = &p->steps[g->members[i]];
        for (int k = 0; k < s->n_out; k++) {
            if (!gd_fuse_is_wanted(g->f, s->out[k])) continue;
            results[g->n_outputs] = made[i][k];
            g->outputs[g->n_outputs++] = s->out[k];
        }
    }
    if (g->reduction >= 0) {
        results[g->n_outputs] = node_of(g, p->steps[g->reduction].in[0], made);
        g->outputs[g->n_outputs++] = p->steps[g->reduction].out[0];
    }
    if (g->b.error[0]) return gd_fail(GD_E_STATE, "in a fused step: %s", g->b.error);
    g->model.ir = gd_ir_finish(&g->b, results, g->n_outputs, g->nodes);
    g->model.ir.n_vars = g->model.n_tensors;
    return GD_OK;
}

/* "fused{sub, square, mean}", as far as there is room. */
static void name_it(fusing *g) {
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

/* --- the reduction -----------------------------------------------------------------------------
 */

static gd_status axes_of(const gd_pstep *s, int rank, uint32_t *axes) {
    const gd_shape *list;
    if (strcmp(s->op->name, "sum") == 0)
        list = &((const gd_sum_options *)s->attrs)->axis;
    else if (strcmp(s->op->name, "mean") == 0)
        list = &((const gd_mean_options *)s->attrs)->axis;
    else if (strcmp(s->op->name, "max") == 0)
        list = &((const gd_max_options *)s->attrs)->axis;
    else
        list = &((const gd_min_options *)s->attrs)->axis;
    return gd_axes_mask(list, rank, axes);
}

/* --- the step ----------------------------------------------------------------------------------
 */

/* Writes the group's step in the place of its last member. */
static gd_status write_step(fusing *g) {
    gd_program *p = g->f->p;
    const int n_in = g->model.n_tensors + g->model.n_scalars;
    const gd_op *op = gd_op_fused(&g->model);
    int *ids = gd_program_alloc(p, (size_t)(n_in + g->n_outputs + 1) * sizeof *ids);
    gd_fused_options *options = gd_program_alloc(p, sizeof *options);
    if (!op || !ids || !options) return GD_E_MEMORY;
    *options = g->options;
    memcpy(ids, g->tensors, (size_t)g->model.n_tensors * sizeof *ids);
    memcpy(ids + g->model.n_tensors, g->scalars, (size_t)g->model.n_scalars * sizeof *ids);
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

static gd_status fuse_group(gd_fuse *f, int group, fusing *g) {
    memset(g, 0, sizeof *g);
    g->f = f;
    list_members(g, group);
    list_operands(g);
    GD_TRY(compose(g));
    if (g->reduction >= 0) {
        g->model.reduction = f->p->steps[g->reduction].op;
        GD_TRY(axes_of(&f->p->steps[g->reduction], g->options.rank, &g->options.axes));
    }
    name_it(g);
    return write_step(g);
}

/* --- the order ---------------------------------------------------------------------------------
 */

typedef struct ordering {
    const gd_fuse *f;
    int *order, count;
    bool *done; /* groups */
} ordering;

/* What the group needs, then its step. */
static void put(ordering *o, int group) {
    int last = group;
    if (o->done[group]) return;
    o->done[group] = true;
    for (int m = group; m >= 0; m = o->f->steps[m].next) {
        if (m > last) last = m;
        for (int k = 0; k < o->f->steps[m].n_needs; k++) {
            const int need = o->f->needs[o->f->steps[m].first_need + k];
            if (o->f->steps[need].group != group) put(o, o->f->steps[need].group);
        }
    }
    o->order[o->count++] = last;
}

static bool is_last(const gd_fuse *f, int step) {
    for (int m = f->steps[step].group; m >= 0; m = f->steps[m].next)
        if (m > step) return false;
    return true;
}

static gd_status reorder(const gd_fuse *f) {
    gd_program *p = f->p;
    const size_t n = (size_t)p->n_steps + 1;
    ordering o = {.f = f, .order = gd_malloc(n * sizeof(int)), .done = gd_calloc(n, sizeof(bool))};
    gd_pstep *steps = gd_malloc(n * sizeof *steps);
    gd_status status =
        o.order && o.done && steps ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to plan a run");
    if (status == GD_OK) {
        for (int i = 0; i < p->n_steps; i++)
            if (is_last(f, i)) put(&o, f->steps[i].group);
        for (int i = 0; i < o.count; i++) steps[i] = p->steps[o.order[i]];
        memcpy(p->steps, steps, (size_t)o.count * sizeof *steps);
        p->n_steps = o.count;
    }
    gd_free(o.order);
    gd_free(o.done);
    gd_free(steps);
    return status;
}

int gd_pass_fuse(gd_program *p) {
    gd_fuse f;
    gd_status status = gd_fuse_begin(&f, p);
    const int groups = status == GD_OK ? gd_fuse_group(&f) : 0;
    fusing *g = groups ? gd_malloc(sizeof *g) : NULL;
    if (groups && !g) status = gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int i = 0; groups && i < p->n_steps && status == GD_OK; i++)
        if (gd_fuse_is_group(&f, i)) status = fuse_group(&f, i, g);
    if (groups && status == GD_OK) status = reorder(&f);
    gd_free(g);
    gd_fuse_end(&f);
    if (status != GD_OK) return -1;
    return groups && gd_pass_prune(p) < 0 ? -1 : groups; /* constants that nobody reads any more */
}
