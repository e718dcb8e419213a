/* containers.c - modules that contain others: sequential, list and residual. */
#include <stdio.h>

#include "core/freed.h"
#include "gradus/ops.h"
#include "nn/module.h"

static gd_tensors run_sequence(gd_module *m, gd_tensors in) {
    for (int i = 0; i < m->count; i++) {
        if (m->entries[i].kind != GD_A_CHILD) continue; /* of the program */
        in = gd_module_run((gd_module *)m->entries[i].object, in);
        if (in.at[0]->kind == GD_FAILED) break;
    }
    return in;
}

static gd_tensors run_residual(gd_module *m, gd_tensors in) {
    gd_module *shortcut = (gd_module *)m->entries[1].object;
    gd_tensor *y = gd_module_run((gd_module *)m->entries[0].object, in).at[0];
    gd_tensor *x = shortcut ? gd_module_run(shortcut, in).at[0] : in.count > 0 ? in.at[0] : NULL;
    return gd_listed(gd_add(y, x));
}

static gd_module *fail_container(const char *site, gd_status status) {
    gd_report(site, status);
    return NULL;
}

static gd_status append_child(gd_module *m, gd_module *child) {
    char name[16];
    snprintf(name, sizeof name, "%d", m->n_children);
    if (!child || gd_report_freed(NULL, child, m->type))
        return gd_failed() ? gd_failure()
                           : gd_fail(GD_E_ARGUMENT, "%s: module %s is NULL", m->type, name);
    return gd_module_put(m, GD_A_CHILD, name, child, NULL);
}

static gd_module *make_container(const char *site, const char *type, gd_modules list) {
    gd_scope *scope = gd_scope_open();
    gd_module *m = gd_module_bare(type);
    gd_status status = m ? GD_OK : GD_E_MEMORY;
    if (status == GD_OK && (list.count < 0 || (list.count > 0 && !list.at)))
        status =
            gd_fail(GD_E_ARGUMENT, "%s: the list of modules is NULL or has a negative count", type);
    for (int64_t i = 0; status == GD_OK && i < list.count; i++)
        status = append_child(m, list.at[i]);
    if (status == GD_OK) gd_keep(m);
    gd_scope_close(&scope);
    return status == GD_OK ? m : fail_container(site, status);
}

gd_module *gd_nn_sequential_at(const char *site, gd_modules modules) {
    gd_module *m = make_container(site, "sequential", modules);
    if (m) m->contained = run_sequence;
    return m;
}

gd_module *gd_nn_list_at(const char *site, gd_modules modules) {
    return make_container(site, "list", modules);
}

gd_module *gd_nn_residual_at(const char *site, gd_module *inside, gd_module *shortcut) {
    GD_LIVE_AT(site, inside);
    GD_LIVE_AT(site, shortcut);
    if (!inside)
        return fail_container(
            site, gd_failed() ? gd_failure()
                              : gd_fail(GD_E_ARGUMENT, "residual: the module inside is NULL"));
    gd_scope *scope = gd_scope_open();
    gd_module *m = gd_module_bare("residual");
    gd_status status = m ? gd_module_put(m, GD_A_CHILD, "inside", inside, NULL) : GD_E_MEMORY;
    if (status == GD_OK) status = gd_module_put(m, GD_A_CHILD, "shortcut", shortcut, NULL);
    if (status == GD_OK) m->contained = run_residual;
    if (status == GD_OK) gd_module_own_parts(m, 0);
    if (status == GD_OK) gd_keep(m);
    gd_scope_close(&scope);
    return status == GD_OK ? m : fail_container(site, status);
}

gd_status gd_module_append_at(const char *site, gd_module *m, gd_module *child) {
    GD_LIVE_AT(site, m);
    GD_LIVE_AT(site, child);
    if (!m)
        return gd_report(
            site, gd_failed() ? gd_failure()
                              : gd_fail(GD_E_ARGUMENT, "gd_module_append: the module is NULL"));
    if (m->factory || (m->self && !m->contained) || m->net)
        return gd_report(site, gd_fail(GD_E_ARGUMENT,
                                       "gd_module_append: %s is neither a sequential nor a list; "
                                       "use gd_module_add with a name",
                                       m->type));
    return gd_report(site, append_child(m, child));
}
