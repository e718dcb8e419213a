/* calls.c - turns the steps of a program into kernel calls: their views, kernels, workspaces, and
 * the copies that stage operands. */
#include "core/alloc.h"
#include "core/grow.h"
#include "graph/plan/build.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"

/* --- arrays ----------------------------------------------------------------------------------- */

static gd_status add_view(gd_plan *plan, gd_view view, gd_binding binding, int *number) {
    int views_room = plan->views_room;
    if (!gd_grow(plan->views, plan->n_views, views_room))
        return gd_no_memory(NULL, "to plan a run");
    if (!gd_grow(plan->bindings, plan->n_views, plan->views_room))
        return gd_no_memory(NULL, "to plan a run");
    plan->views[plan->n_views] = view;
    plan->bindings[plan->n_views] = binding;
    *number = plan->n_views++;
    return GD_OK;
}

gd_status gd_plan_add_copy(gd_plan *plan, int to, int from) {
    if (!gd_grow(plan->copies, plan->n_copies, plan->copies_room))
        return gd_no_memory(NULL, "to plan a run");
    plan->copies[plan->n_copies++] = (gd_pcopy){to, from};
    return GD_OK;
}

gd_status gd_plan_add_value_view(gd_plan *plan, int value, int *number) {
    if (value == -1) return add_view(plan, (gd_view){.data = NULL}, (gd_binding){-1, 0}, number);
    if (value < -1) {
        gd_view view = gd_program_view(&plan->program->values[GD_UNWANTED(value)]);
        view.data = NULL;
        return add_view(plan, view, (gd_binding){-1, 0}, number);
    }
    const gd_pvalue *v = &plan->program->values[value];
    return add_view(plan, gd_program_view(v),
                    (gd_binding){v->root, (size_t)v->offset * gd_dtype_bytes(v->dtype)}, number);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Adds a temporary that only one call uses. */
static gd_status add_buffer(gd_plan *plan, gd_view view, size_t bytes, int *number) {
    int root = gd_program_root(plan->program, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes});
    if (root < 0) return GD_E_MEMORY;
    return add_view(plan, view, (gd_binding){root, 0}, number);
}

/* Stages operands as the kernel's flags require (see launch.h): operands that are not contiguous or
 * not wide enough are copied to a buffer before the call, and results from one after it. */
static gd_status stage_operands(gd_plan *plan, gd_pcall *c) {
    const unsigned flags =
        (c->kernel->flags & GD_KERNEL_STAGED) | (c->contiguous ? GD_KERNEL_CONTIGUOUS : 0);
    c->first_copy = plan->n_copies;
    if (!flags) return GD_OK;
    const int n = c->n_in + c->n_out;
    int *original = gd_malloc((size_t)(n + 1) * sizeof *original);
    if (!original) return gd_no_memory(NULL, "to plan a run");
    gd_status status = GD_OK;
    for (int i = 0; i < n && status == GD_OK; i++) {
        const gd_view v = plan->views[c->first + i];
        original[i] = -1;
        if (gd_view_is_simple(&v, flags)) continue;
        gd_view simple = v;
        int buffer;
        simple.dtype = gd_staged_dtype(v.dtype, flags);
        gd_row_major(v.rank, v.dims, simple.strides);
        /* the operand becomes a new view; the call's view becomes the buffer */
        status = add_view(plan, v, plan->bindings[c->first + i], &original[i]);
        if (status == GD_OK)
            status =
                add_buffer(plan, simple,
                           (size_t)gd_numel(v.rank, v.dims) * gd_dtype_size(simple.dtype), &buffer);
        if (status != GD_OK) break;
        plan->views[c->first + i] = simple;
        plan->bindings[c->first + i] = plan->bindings[buffer];
        if (i >= c->n_in && !gd_output_is_read(c->step->op, i - c->n_in, c->n_out)) continue;
        status = gd_plan_add_copy(plan, c->first + i, original[i]);
        c->n_before++;
    }
    for (int i = c->n_in; i < n && status == GD_OK; i++) {
        if (original[i] < 0) continue;
        status = gd_plan_add_copy(plan, original[i], c->first + i);
        c->n_after++;
    }
    gd_free(original);
    return status;
}

/* The kernel for the call with row-major operands; NULL: none. Passes may have given an operand
 * strides that the op's kernels do not support. */
static const gd_kernel *select_for_contiguous(const gd_plan *plan, const gd_kernel_call *call) {
    const int n = call->n_in + call->n_out;
    gd_view *views = gd_malloc(((size_t)n + 1) * sizeof *views);
    if (!views) return NULL;
    for (int i = 0; i < n; i++) {
        views[i] = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        gd_row_major(views[i].rank, views[i].dims, views[i].strides);
    }
    gd_kernel_call simple = *call;
    simple.in = views;
    simple.out = views + call->n_in;
    const gd_kernel *kernel = gd_kernel_select(call->op, &simple, plan->device->api->kind);
    gd_free(views);
    return kernel;
}

gd_status gd_plan_add_call(gd_plan *plan, const gd_pstep *step) {
    gd_pcall c = {.step = step, .first = plan->n_views, .n_in = step->n_in, .workspace = -1};
    /* outputs that repeat mutated inputs */
    const int aliases = step->op->ir && step->op->n_mutated > 0 && !step->each
                            ? step->n_out - step->op->n_mutated
                            : 0;
    bool needed = false;
    int view;
    c.n_out = step->n_out - aliases;
    for (int i = 0; i < step->n_in; i++) GD_TRY(gd_plan_add_value_view(plan, step->in[i], &view));
    for (int i = aliases; i < step->n_out; i++) {
        GD_TRY(gd_plan_add_value_view(plan, step->out[i], &view));
        const gd_view *v = &plan->views[view];
        if (v->data && gd_numel(v->rank, v->dims) > 0) needed = true;
    }
    if (!needed) { /* all outputs are empty or unused */
        plan->n_views = c.first;
        return GD_OK;
    }
    gd_kernel_call call;
    gd_kernel_call_set(&call, step->attrs, plan->views + c.first, c.n_in,
                       plan->views + c.first + c.n_in, c.n_out);
    call.op = step->op;
    call.each = step->each;
    call.device = plan->device;
    call.kernel = c.kernel = gd_kernel_select(step->op, &call, plan->device->api->kind);
    if (!c.kernel) {
        call.kernel = c.kernel = select_for_contiguous(plan, &call);
        c.contiguous = c.kernel != NULL;
    }
    if (!c.kernel && gd_fallback_allowed(step->op)) call.kernel = c.kernel = &gd_host_kernel;
    if (!c.kernel)
        return gd_fail(GD_E_UNSUPPORTED, "no kernel on %s for %s", plan->device->name,
                       step->op->name);
    GD_TRY(stage_operands(plan, &c));
    call.in = plan->views + c.first;
    call.out = plan->views + c.first + c.n_in;
    if (c.kernel->prepare) GD_TRY(gd_prepared_get(&call, &c.prepared));
    c.workspace_bytes = c.kernel->workspace ? c.kernel->workspace(&call) : call.workspace_bytes;
    c.scratch = c.kernel->scratch ? c.kernel->scratch(&call) : 0;
    if (c.workspace_bytes) {
        const gd_view bytes = {.data = gd_unbound_memory,
                               .dtype = GD_U8,
                               .rank = 1,
                               .dims = {(int64_t)c.workspace_bytes},
                               .strides = {1}};
        GD_TRY(add_buffer(plan, bytes, c.workspace_bytes, &c.workspace));
    }
    if (!gd_grow(plan->calls, plan->n_calls, plan->calls_room)) {
        gd_prepared_release(c.prepared);
        return gd_no_memory(NULL, "to plan a run");
    }
    plan->calls[plan->n_calls++] = c;
    return GD_OK;
}
