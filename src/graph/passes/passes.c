/* passes.c - the table of passes, and the loop that runs it. */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

#include "dispatch/op.h"

#define ROW(name, level, phase, flags) {#name, level, GD_PHASE_##phase, flags, gd_pass_##name},
static const gd_pass passes[] = {GD_PASSES(ROW)};
enum { ROWS = sizeof passes / sizeof *passes };

/* --- the log ---------------------------------------------------------------------------------- */

static gd_status fail_unknown(const char *name, int length) {
    char known[GD_MESSAGE_MAX / 2] = "";
    for (int i = 0; i < ROWS; i++) {
        int first = 0;
        while (strcmp(passes[first].name, passes[i].name) != 0) first++;
        const size_t used = strlen(known);
        if (first == i) snprintf(known + used, sizeof known - used, "%s, ", passes[i].name);
    }
    return gd_fail(GD_E_ARGUMENT, "GRADUS_PASSES: there is no pass '%.*s'; there are %sand all",
                   length < 64 ? length : 64, name, known);
}

/* Sets logged[i] if GRADUS_PASSES, names separated by commas, names row i. */
static gd_status find_logged(bool logged[ROWS]) {
    const char *names = getenv("GRADUS_PASSES");
    while (names && *names) {
        const int length = (int)strcspn(names, ",");
        bool known = length == 0;
        for (int i = 0; i < ROWS; i++) {
            const char *const either[] = {passes[i].name, "all"};
            for (int k = 0; k < 2; k++)
                if ((int)strlen(either[k]) == length &&
                    strncmp(names, either[k], (size_t)length) == 0)
                    logged[i] = known = true;
        }
        if (!known) return fail_unknown(names, length);
        names += length + (names[length] == ',');
    }
    return GD_OK;
}

static void log_program(const gd_program *p, const char *pass, const char *when) {
    char *text = gd_program_text(p);
    if (text) gd_notice(GD_LOG_INFO, "pass %s, %s:\n%.*s", pass, when, (int)strlen(text) - 1, text);
    free(text);
}

/* --- running ---------------------------------------------------------------------------------- */

static bool has_list_steps(const gd_program *p) {
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].each && !p->steps[i].removed) return true;
    return false;
}

/* Whether the level, the device, the program and the limit allow the pass. */
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

/* One phase of a plan. */
typedef struct pass_loop {
    gd_rewrite *r;
    gd_pass_phase phase;
    bool logged[ROWS];
    int changes; /* of all passes so far */
} pass_loop;

/* Runs a row of the table if it applies. */
static gd_status run_row(pass_loop *l, int row) {
    const gd_pass *pass = &passes[row];
    char when[32];
    l->r->changes = 0;
    if (pass->phase != l->phase || !applies(pass, l->r)) return GD_OK;
    if (l->logged[row]) log_program(l->r->program, pass->name, "before");
    GD_TRY(run_pass(l->r, pass));
    snprintf(when, sizeof when, "after (changes: %d)", l->r->changes);
    if (l->logged[row]) log_program(l->r->program, pass->name, when);
    l->changes += l->r->changes;
    return GD_OK;
}

static bool repeats(int row) { return row < ROWS && (passes[row].flags & GD_PASS_REPEATS); }

gd_status gd_passes_run(gd_rewrite *r, gd_pass_phase phase) {
    pass_loop l = {.r = r, .phase = phase};
    GD_TRY(find_logged(l.logged));
    for (int i = 0, end; i < ROWS; i = end) {
        for (end = i + 1; repeats(i) && repeats(end);) end++;
        int changed; /* by row i: one change may enable another */
        do {
            GD_TRY(run_row(&l, i));
            changed = r->changes;
            for (int k = i + 1; k < end && changed; k++) GD_TRY(run_row(&l, k));
        } while (repeats(i) && changed);
    }
    r->changes = l.changes;
    return GD_OK;
}

gd_status gd_pass_run(gd_rewrite *r, const char *name) {
    for (int i = 0; i < ROWS; i++)
        if (strcmp(passes[i].name, name) == 0) return run_pass(r, &passes[i]);
    return gd_fail(GD_E_ARGUMENT, "there is no pass '%s'", name);
}
