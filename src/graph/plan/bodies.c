/* bodies.c - builds the plans of branches and loop bodies. Kernels of a later stage run them
 * (run/control_step.c). */
#include "graph/plan/bodies.h"

#include <string.h>

#include "core/grow.h"
#include "graph/plan/build.h"
#include "dispatch/subgraph.h"

static gd_status build_plan(const gd_subgraph *sub, gd_device *device, int level, gd_plan **plan) {
    gd_tensor **in = gd_list_new(sub->n_in), **out = gd_list_new(sub->n_out);
    if (!in || !out) return GD_E_MEMORY;
    for (int i = 0; i < sub->n_in; i++)
        if (!(in[i] = gd_node_symbol(sub->in[i], 0))) return GD_E_MEMORY;
    for (int k = 0; k < sub->n_out; k++)
        if (!(out[k] = gd_node_symbol(sub->out[k], sub->out_index[k]))) return GD_E_MEMORY;
    gd_program *program;
    const gd_tensors feeds = {in, sub->n_in}; /* only the shapes matter */
    GD_TRY(gd_program_make_loops((gd_tensors){out, sub->n_out}, feeds, feeds, &program));
    if (program->dynamic) {
        gd_program_free(program);
        return gd_fail(GD_E_UNSUPPORTED, "the body of a loop cannot be planned");
    }
    return gd_plan_make(program, device, level, 0, plan);
}

static gd_status keep_plan(gd_plan *plan, gd_plan *inner) {
    if (!gd_grow(plan->inner, plan->n_inner, plan->inner_room)) {
        gd_plan_free(inner);
        return gd_no_memory(NULL, "to plan a run");
    }
    plan->inner[plan->n_inner++] = inner;
    return GD_OK;
}

static gd_status add_bodies_of(gd_plan *plan, gd_pstep *step, int level) {
    gd_control_options *p = gd_program_alloc(plan->program, sizeof *p);
    if (!p) return GD_E_MEMORY;
    memcpy(&p->options, step->attrs,
           step->op->attrs_size < sizeof p->options ? step->op->attrs_size : sizeof p->options);
    for (int i = 0, n = 0; i < step->op->n_attrs; i++) {
        const gd_op_attr *a = &step->op->attrs[i];
        if (a->type != GD_ATTR_GRAPH) continue;
        GD_TRY(build_plan(*(gd_subgraph *const *)((const char *)step->attrs + a->offset),
                          plan->device, level, &p->plan[n]));
        GD_TRY(keep_plan(plan, p->plan[n++]));
    }
    step->attrs = p;
    return GD_OK;
}

gd_status gd_plan_add_bodies(gd_plan *plan, int level) {
    const gd_program *program = plan->program;
    gd_status status = GD_OK;
    gd_scope *scope = NULL;
    for (int i = 0; i < program->n_steps && status == GD_OK; i++) {
        gd_pstep *s = &program->steps[i];
        if (s->removed || !(s->op->flags & GD_OP_OPAQUE)) continue;
        if (!scope) scope = gd_scope_open();
        status = add_bodies_of(plan, s, level);
    }
    if (scope) gd_scope_close(&scope);
    return status;
}
