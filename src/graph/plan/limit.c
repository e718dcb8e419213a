/* limit.c - builds a plan within a memory limit, by recomputing values (passes/remat.c). */
#include "core/alloc.h"
#include "graph/plan/build.h"
#include "dispatch/launch.h"

/* Adds calls for the current steps, and assigns memory. */
static gd_status build_calls(gd_plan *plan) {
    const gd_program *p = plan->program;
    gd_status status = GD_OK;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        if (p->steps[i].removed || p->steps[i].view) continue;
        status = gd_plan_add_call(plan, &p->steps[i]);
    }
    return status == GD_OK ? gd_plan_assign_memory(plan) : status;
}

/* The program before it was built, and what its calls need. */
typedef struct unbuilt_program {
    gd_pstep *steps;
    int n_steps, steps_room, n_roots, n_values;
    size_t *scratch; /* per step: bytes of staging buffers and workspace */
    bool *elsewhere; /* per root: it is computed in a variable's memory */
} unbuilt_program;

static void undo_build(gd_plan *plan, const unbuilt_program *before) {
    gd_program *p = plan->program;
    gd_free(plan->places);
    gd_free(plan->first_view);
    gd_free(plan->views_of);
    plan->places = NULL;
    plan->first_view = plan->views_of = NULL;
    for (int i = 0; i < plan->n_calls; i++) gd_prepared_release(plan->calls[i].prepared);
    plan->n_views = plan->n_calls = plan->n_copies = plan->n_commit_copies = 0;
    if (p->steps != before->steps) gd_free(p->steps);
    p->steps = before->steps;
    p->n_steps = before->n_steps;
    p->steps_room = before->steps_room;
    p->n_roots = before->n_roots;
    p->n_values = before->n_values;
}

static gd_status record_needs(const gd_plan *plan, unbuilt_program *s) {
    const gd_program *p = plan->program;
    s->scratch = gd_calloc((size_t)s->n_steps + 1, sizeof *s->scratch);
    s->elsewhere = gd_calloc((size_t)s->n_roots + 1, sizeof *s->elsewhere);
    if (!s->scratch || !s->elsewhere) return gd_no_memory(NULL, "to plan a run");
    for (int i = 0; i < plan->n_calls; i++) {
        const gd_pcall *c = &plan->calls[i];
        if (c->step < p->steps || c->step >= p->steps + s->n_steps) continue; /* of commits */
        size_t *bytes = &s->scratch[c->step - p->steps];
        for (int v = c->first; v < c->first + c->n_in + c->n_out; v++)
            if (plan->bindings[v].root >= s->n_roots)
                *bytes += p->roots[plan->bindings[v].root].bytes;
        *bytes += c->workspace_bytes;
    }
    for (int i = 0; i < p->n_commits; i++)
        if (p->commits[i].through) s->elsewhere[p->values[p->commits[i].value].root] = true;
    return GD_OK;
}

/* Builds again, with values recomputed so that at most `target` bytes are live. */
static gd_status rebuild_with_remat(gd_plan *plan, const unbuilt_program *before, size_t target) {
    const gd_remat how = {
        .target = target, .scratch = before->scratch, .elsewhere = before->elsewhere};
    undo_build(plan, before);
    plan->recomputed = gd_pass_remat(plan->program, &how);
    return plan->recomputed < 0 ? gd_this_thread.latest : build_calls(plan);
}

/* Recomputes values if the slab is larger than the limit. The slab may be larger than the bytes
 * that are live at a time, so it may take several tries with lower targets. */
static gd_status fit_limit(gd_plan *plan, unbuilt_program *before, size_t limit) {
    enum { TRIES = 6 };
    const size_t unlimited = gd_plan_slab(plan), inner = unlimited - plan->slab;
    if (limit == 0 || unlimited <= limit) return GD_OK;
    GD_TRY(record_needs(plan, before));
    size_t least = unlimited, target = limit > inner ? limit - inner : 0;
    for (int i = 0; i < TRIES && target > 0; i++) {
        GD_TRY(rebuild_with_remat(plan, before, target));
        const size_t reached = gd_plan_slab(plan);
        if (reached <= limit) return GD_OK;
        if (reached < least) least = reached;
        const size_t over = reached - limit;
        target = target > over ? target - over : 0;
    }
    return gd_fail(GD_E_MEMORY,
                   "a run needs %zu bytes for temporaries, and %zu if values are recomputed, but "
                   "the memory limit is %zu; use smaller batches, or a larger .memory_limit",
                   unlimited, least, limit);
}

gd_status gd_plan_build_within(gd_plan *plan, size_t limit) {
    gd_program *p = plan->program;
    unbuilt_program before = {.steps = p->steps,
                              .n_steps = p->n_steps,
                              .steps_room = p->steps_room,
                              .n_roots = p->n_roots,
                              .n_values = p->n_values};
    gd_status status = build_calls(plan);
    if (status == GD_OK) status = fit_limit(plan, &before, limit);
    if (p->steps != before.steps) gd_free(before.steps);
    gd_free(before.scratch);
    gd_free(before.elsewhere);
    return status;
}
