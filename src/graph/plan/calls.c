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
    const char *kind = plan->device->api->kind;
    const gd_kernel *kernel = call->kernel ? gd_kernel_select_next(call->op, &simple, kind)
                                           : gd_kernel_select(call->op, &simple, kind);
    gd_free(views);
    return kernel;
}

/* Chooses the kernel of the call; or, if it has one that declines, the next one. */
static gd_status choose_kernel(const gd_plan *plan, gd_kernel_call *call, gd_pcall *c) {
    const char *kind = plan->device->api->kind;
    const bool declined = call->kernel != NULL;
    if (!c->contiguous) {
        call->kernel = declined ? gd_kernel_select_next(call->op, call, kind)
                                : gd_kernel_select(call->op, call, kind);
        c->contiguous = !call->kernel;
    }
    if (c->contiguous) call->kernel = select_for_contiguous(plan, call);
    if (!call->kernel && gd_fallback_allowed(call->op)) {
        call->kernel = &gd_host_kernel;
        c->contiguous = false;
    }
    c->kernel = call->kernel;
    if (c->kernel) return GD_OK;
    if (declined && gd_this_thread.latest == GD_E_UNSUPPORTED) return GD_E_UNSUPPORTED;
    return gd_fail(GD_E_UNSUPPORTED, "no kernel on %s for %s", plan->device->name, call->op->name);
}

/* Adds the views of a step's operands. *needed: some result is neither empty nor unused. */
static gd_status add_operands(gd_plan *plan, const gd_pcall *c, bool *needed) {
    const gd_pstep *step = c->step;
    int view;
    *needed = false;
    for (int i = 0; i < step->n_in; i++) GD_TRY(gd_plan_add_value_view(plan, step->in[i], &view));
    for (int i = step->n_out - c->n_out; i < step->n_out; i++) {
        GD_TRY(gd_plan_add_value_view(plan, step->out[i], &view));
        const gd_view *v = &plan->views[view];
        if (v->data && gd_numel(v->rank, v->dims) > 0) *needed = true;
    }
    return GD_OK;
}

static void set_operands(const gd_plan *plan, const gd_pcall *c, gd_kernel_call *call) {
    call->in = plan->views + c->first;
    call->out = plan->views + c->first + c->n_in;
}

/* Stages the operands for the chosen kernel and prepares it. GD_E_UNSUPPORTED: it declines. */
static gd_status prepare_kernel(gd_plan *plan, gd_kernel_call *call, gd_pcall *c) {
    GD_TRY(stage_operands(plan, c));
    set_operands(plan, c, call);
    return c->kernel->prepare ? gd_prepared_get(call, &c->prepared) : GD_OK;
}

/* Removes the copies for a kernel that declines. */
static gd_status unstage_operands(gd_plan *plan, gd_kernel_call *call, gd_pcall *c, int n_roots) {
    bool needed;
    plan->n_views = c->first;
    plan->n_copies = c->first_copy;
    plan->program->n_roots = n_roots;
    c->n_before = c->n_after = 0;
    GD_TRY(add_operands(plan, c, &needed));
    set_operands(plan, c, call);
    return GD_OK;
}

/* Chooses the first kernel that does not decline. */
static gd_status find_kernel(gd_plan *plan, gd_kernel_call *call, gd_pcall *c) {
    const int n_roots = plan->program->n_roots;
    for (;;) {
        GD_TRY(choose_kernel(plan, call, c));
        const gd_status status = prepare_kernel(plan, call, c);
        if (status != GD_E_UNSUPPORTED || !c->kernel->prepare) return status;
        GD_TRY(unstage_operands(plan, call, c, n_roots));
    }
}

gd_status gd_plan_add_call(gd_plan *plan, const gd_pstep *step) {
    gd_pcall c = {.step = step, .first = plan->n_views, .n_in = step->n_in, .workspace = -1};
    /* outputs that repeat mutated inputs */
    const int aliases = step->op->ir && step->op->n_mutated > 0 && !step->each
                            ? step->n_out - step->op->n_mutated
                            : 0;
    bool needed;
    c.n_out = step->n_out - aliases;
    GD_TRY(add_operands(plan, &c, &needed));
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
    GD_TRY(find_kernel(plan, &call, &c));
    c.workspace_bytes = c.kernel->workspace ? c.kernel->workspace(&call) : call.workspace_bytes;
    c.scratch = c.kernel->scratch ? c.kernel->scratch(&call) : 0;
    gd_status status = GD_OK;
    if (c.workspace_bytes) {
        const gd_view bytes = {.data = gd_unbound_memory,
                               .dtype = GD_U8,
                               .rank = 1,
                               .dims = {(int64_t)c.workspace_bytes},
                               .strides = {1}};
        status = add_buffer(plan, bytes, c.workspace_bytes, &c.workspace);
    }
    if (status == GD_OK && !gd_grow(plan->calls, plan->n_calls, plan->calls_room))
        status = gd_no_memory(NULL, "to plan a run");
    if (status != GD_OK) {
        gd_prepared_release(c.prepared);
        return status;
    }
    plan->calls[plan->n_calls++] = c;
    return GD_OK;
}
