/* plan.c - freeing a plan, and its properties. */
#include "graph/plan/build.h"

#include "core/alloc.h"
#include "dispatch/launch.h"

void gd_plan_free(gd_plan *plan) {
    if (!plan) return;
    if (plan->free_idle) plan->free_idle(plan);
    for (int i = 0; i < plan->n_calls; i++) gd_prepared_release(plan->calls[i].prepared);
    gd_free(plan->views);
    gd_free(plan->bindings);
    gd_free(plan->calls);
    gd_free(plan->copies);
    gd_free(plan->places);
    gd_free(plan->first_view);
    gd_free(plan->views_of);
    gd_free(plan->buffers);
    gd_free(plan->fetch_buffers);
    gd_map_free(&plan->overwritten);
    gd_free(plan->in_place);
    gd_free(plan->fed_in_place);
    gd_free(plan->slots);
    gd_free(plan->segments);
    for (int i = 0; i < plan->n_inner; i++) gd_plan_free(plan->inner[i]);
    gd_free(plan->inner);
    gd_program_free(plan->program);
    gd_free(plan);
}

/* --- properties ------------------------------------------------------------------------------- */

const gd_program *gd_plan_program(const gd_plan *plan) { return plan->program; }
size_t gd_plan_slab(const gd_plan *plan) {
    size_t bytes = plan->slab;
    for (int i = 0; i < plan->n_inner; i++)
        bytes += gd_plan_slab(plan->inner[i]) + gd_plan_fetch_bytes(plan->inner[i]);
    return bytes;
}
size_t gd_plan_live(const gd_plan *plan) {
    size_t bytes = plan->live;
    for (int i = 0; i < plan->n_inner; i++)
        bytes += gd_plan_live(plan->inner[i]) + gd_plan_fetch_bytes(plan->inner[i]);
    return bytes;
}
int gd_plan_recomputed(const gd_plan *plan) { return plan->recomputed; }
bool gd_plan_overwrites(const gd_plan *plan, const gd_storage *storage) {
    return gd_map_find(&plan->overwritten, storage) >= 0;
}

bool gd_plan_writes(const gd_plan *plan) { return plan->program->n_commits > 0; }
bool gd_plan_is_on_host(const gd_plan *plan) { return plan->on_host; }

size_t gd_plan_fetch_bytes(const gd_plan *plan) {
    size_t bytes = 0;
    for (int i = 0; i < plan->n_buffers; i++) bytes += plan->program->roots[plan->buffers[i]].bytes;
    return bytes;
}
