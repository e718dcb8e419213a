/* passes.c - the table of passes, and the loop that runs it. */
#include "graph/passes/passes.h"

#include "ops/launch.h"

#define ROW(name, level, phase, flags) {#name, level, GD_PHASE_##phase, flags, gd_pass_##name},
static const gd_pass passes[] = {GD_PASSES(ROW)};
enum { COUNT = sizeof passes / sizeof *passes };

static bool has_list_steps(const gd_program *p) {
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].each && !p->steps[i].removed) return true;
    return false;
}

/* Whether the pass applies to this program, device and limit. */
static bool applies(const gd_pass *pass, const gd_rewrite *r) {
    const gd_device_api *api = r->device->api;
    if (r->level < pass->level) return false;
    if ((pass->flags & GD_PASS_ASYNC) && api->host_reads) return false;
    if ((pass->flags & GD_PASS_FUSION) && (!api->fusion || gd_reference_only())) return false;
    if ((pass->flags & GD_PASS_LISTS) && !gd_list_kernel_exists(api->kind)) return false;
    if ((pass->flags & GD_PASS_NO_LISTS) && has_list_steps(r->program)) return false;
    return !(pass->flags & GD_PASS_NO_LIMIT) || r->limit == 0;
}

/* Runs a pass; r->changes is then the number of its own changes. */
static gd_status run_pass(gd_rewrite *r, const gd_pass *pass) {
    r->changes = 0;
    GD_TRY(pass->run(r));
    gd_rewrite after = *r;
    return r->changes > 0 && (pass->flags & GD_PASS_PRUNES) ? gd_pass_prune(&after) : GD_OK;
}

/* Runs a row of the table if it applies, and adds its changes to the total. */
static gd_status run_row(gd_rewrite *r, gd_pass_phase phase, int row, int *total) {
    r->changes = 0;
    if (passes[row].phase != phase || !applies(&passes[row], r)) return GD_OK;
    GD_TRY(run_pass(r, &passes[row]));
    *total += r->changes;
    return GD_OK;
}

static bool repeats(int row) { return row < COUNT && (passes[row].flags & GD_PASS_REPEATS); }

gd_status gd_passes_run(gd_rewrite *r, gd_pass_phase phase) {
    int total = 0;
    for (int i = 0, end; i < COUNT; i = end) {
        for (end = i + 1; repeats(i) && repeats(end);) end++;
        int changed; /* by row i: one change may enable another */
        do {
            GD_TRY(run_row(r, phase, i, &total));
            changed = r->changes;
            for (int k = i + 1; k < end && changed; k++) GD_TRY(run_row(r, phase, k, &total));
        } while (repeats(i) && changed);
    }
    r->changes = total;
    return GD_OK;
}

gd_status gd_pass_run(gd_rewrite *r, const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (strcmp(passes[i].name, name) == 0) return run_pass(r, &passes[i]);
    return gd_fail(GD_E_ARGUMENT, "there is no pass '%s'", name);
}
