/* finite.c - finds nonfinite losses and gradients.
 *
 * The check is an op of the plan that fails. A run that fails changes nothing, so the batch can run
 * again eagerly, with the same random numbers and a hook on every module, to find the layer.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/number.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "train/run.h"

void gd_fit_check_finite(gd_event *event) { event->run->check_finite = true; }

/* --- in the plan ------------------------------------------------------------------------------ */

/* The largest absolute value of a gradient, f64 of rank 0. It is not finite if any value is not. */
static gd_tensor *largest_value(gd_tensor *g) {
    gd_tensor *most = gd_max(gd_abs(g));
    return most->kind == GD_FAILED || most->dtype == GD_F64 ? most : gd_cast(most, GD_F64);
}

enum { CHECKED_AT_ONCE = 200 }; /* values in one check */

/* Checks [loss, largest of each gradient], and takes the loss from the checked list, so that the
 * plan cannot prune the check. */
gd_status gd_run_check(gd_fit_run *r, gd_batch_result *result) {
    GD_NO_GRAD;
    gd_tensor *list[CHECKED_AT_ONCE], *sum = result->sum;
    /* f16 gradients overflow sometimes: the loss scale skips such a step */
    const int64_t count = r->training->scale ? 0 : r->parameters.count;
    int64_t i = 0;
    do {
        int n = 0;
        list[n++] = sum;
        for (; i < count && n < CHECKED_AT_ONCE; i++) {
            gd_tensor *g = gd_tensor_grad(r->parameters.at[i]);
            if (g && gd_tensor_numel(g) > 0) list[n++] = largest_value(g);
        }
        sum = gd_select(gd_check_finite(gd_stack(((gd_tensors){list, n}))), 0, 0);
        if (sum->kind == GD_FAILED) return gd_failure();
    } while (i < count);
    result->sum = sum;
    return GD_OK;
}

/* --- finding the layer ------------------------------------------------------------------------ */

typedef struct search {
    struct watch *watches;
    bool found;
    char text[GD_MESSAGE_MAX];
} search;

/* A hooked module. */
typedef struct watch {
    search *search;
    gd_module *module; /* retained */
    int64_t hook;
    char path[GD_MAX_PATH];
    struct watch *next;
} watch;

static bool is_finite(gd_tensor *t) {
    if (!t || t->kind != GD_VALUE || !gd_is_float(t->dtype) || gd_tensor_numel(t) == 0) return true;
    GD_NO_GRAD;
    GD_SCOPE;
    return isfinite(gd_item(largest_value(gd_detach(t))));
}

static bool all_finite(gd_tensors list) {
    for (int64_t i = 0; i < list.count; i++)
        if (!is_finite(list.at[i])) return false;
    return true;
}

/* max |w| of the parameters of a layer, without its children; NaN: none. */
static double largest_parameter(const gd_module *m) {
    double most = (double)NAN;
    for (int i = 0; i < m->count; i++) {
        if (m->entries[i].kind != GD_A_PARAMETER || !m->entries[i].object) continue;
        GD_NO_GRAD;
        GD_SCOPE;
        const double a = gd_item(largest_value(gd_detach((gd_tensor *)m->entries[i].object)));
        if (!(a <= most)) most = a;
    }
    return most;
}

static void describe_layer(watch *w, const gd_module *m, gd_tensors inputs) {
    search *s = w->search;
    const double most = largest_parameter(m);
    int n =
        gd_snprintf(s->text, sizeof s->text, "%s%s(%s): output is not finite (inputs are %sfinite",
                    w->path, *w->path ? " " : "", m->type, all_finite(inputs) ? "" : "not ");
    if (n > 0 && (size_t)n < sizeof s->text)
        gd_snprintf(s->text + n, sizeof s->text - (size_t)n,
                    isnan(most) ? ")" : ", max |w| = %.4g)", most);
    s->found = true;
}

/* Called after each module, inner ones first. After the first match a failure is recorded, so that
 * further ops do nothing. */
static gd_tensors check_outputs(gd_module *m, gd_tensors inputs, gd_tensors outputs, void *user) {
    watch *w = user;
    if (w->search->found || all_finite(outputs)) return (gd_tensors){NULL, 0};
    describe_layer(w, m, inputs);
    gd_report(NULL, gd_fail(GD_E_STATE, "%s", w->search->text));
    return (gd_tensors){NULL, 0};
}

static gd_status hook_module(gd_tree_walk *walk, gd_module *m) {
    search *s = walk->user;
    watch *w = gd_calloc(1, sizeof *w);
    if (!w) return gd_no_memory(NULL, "to find the layer");
    w->search = s;
    snprintf(w->path, sizeof w->path, "%s", walk->path);
    w->module = gd_retain(m);
    w->next = s->watches;
    s->watches = w;
    w->hook = gd_module_on_forward(m, check_outputs, w);
    return gd_failed() ? gd_failure() : GD_OK;
}

static void unhook_all(search *s) {
    for (watch *w; (w = s->watches);) {
        s->watches = w->next;
        gd_module_unhook(w->module, w->hook);
        gd_release(w->module);
        gd_free(w);
    }
}

/* All outputs are finite: reports the loss, or the first nonfinite gradient of the backward pass,
 * which is the last one in the order of the net. */
static void check_gradients(gd_fit_run *r, search *s, double loss) {
    if (s->found || gd_failed()) return;
    if (!isfinite(loss)) {
        s->found = true;
        gd_snprintf(s->text, sizeof s->text, "the loss is %g; all outputs of layers are finite",
                    gd_shown_number(loss));
        return;
    }
    for (int64_t i = r->parameters.count; i-- > 0 && !s->found;) {
        char name[GD_MAX_PATH];
        gd_tensor *p = r->parameters.at[i];
        if (is_finite(gd_tensor_grad(p))) continue;
        s->found = true;
        snprintf(s->text, sizeof s->text,
                 "the gradient of %s is not finite; all outputs of layers and the loss are finite",
                 gd_module_name_of(r->net, p, name, sizeof name));
    }
}

static void rerun_batch(gd_fit_run *r, gd_tensors batch, search *s) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    double loss = 0;
    gd_status status = gd_module_walk(r->net, &(gd_tree_walk){.module = hook_module, .user = s});
    if (status == GD_OK) status = gd_run_forward_backward(r, batch, &loss);
    if (status == GD_OK) check_gradients(r, s, loss);
    gd_scope_close(&scope);
    gd_attempt_end(&attempt, status);
    unhook_all(s);
}

gd_status gd_run_explain(gd_fit_run *r, gd_tensors batch, gd_status status) {
    char before[GD_MESSAGE_MAX];
    snprintf(before, sizeof before, "%s", gd_latest_failure());
    search *s =
        status == GD_E_STATE && strstr(before, "check_finite") ? gd_calloc(1, sizeof *s) : NULL;
    if (!s) return status;
    if (gd_run_save(r) == GD_OK) {
        rerun_batch(r, batch, s);
        gd_run_restore(r);
    }
    gd_undo_free(&r->undo);
    status = gd_fail(status, "gd_fit: step %lld: %s", (long long)r->step + 1,
                     s->found ? s->text : "the loss or a gradient is not finite");
    gd_free(s);
    return status;
}
