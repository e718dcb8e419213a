/* module_call.c - calls of modules: frames, hooks, checks, and the path in messages. */
#include <stdio.h>
#include <string.h>

#include "core/freed.h"
#include "core/grow.h"
#include "graph/build/graph.h"
#include "graph/build/shapes_only.h"
#include "nn/layer.h"
#include "nn/watch.h"
#include "dispatch/call.h"

/* --- paths ------------------------------------------------------------------------------------ */

/* Writes the path from `from` down to `to`, which is `depth` levels below, and returns its length;
 * -1: it is not there. *deeper: there are modules on that level. */
static int path_at_depth(const gd_module *from, const gd_module *to, char *text, size_t size,
                         int depth, bool *deeper) {
    if (depth == 1) {
        const gd_entry *e = gd_module_child_entry(from, to);
        const int n = e ? snprintf(text, size, "%s", e->name) : -1;
        *deeper |= from->n_children > 0;
        return n >= 0 && (size_t)n < size ? n : -1;
    }
    for (int i = 0; i < from->count && from->n_children > 0; i++) {
        const gd_entry *e = &from->entries[i];
        const size_t n = strlen(e->name) + 1;
        if (e->kind != GD_A_CHILD || !e->object || n + 1 >= size) continue;
        const int more =
            path_at_depth((const gd_module *)e->object, to, text + n, size - n, depth - 1, deeper);
        if (more < 0) continue;
        memcpy(text, e->name, n - 1);
        text[n - 1] = '.';
        return (int)n + more;
    }
    return -1;
}

/* Writes the shortest path from `from` down to `to`, "layer1.0", and returns its length; -1: there
 * is none. Most modules are called by the one that holds them, which knows its children. */
static int path_between(const gd_module *from, const gd_module *to, char *text, size_t size) {
    bool deeper = true;
    for (int depth = 1; depth <= GD_MAX_DEPTH && deeper; depth++) {
        deeper = false;
        const int n = path_at_depth(from, to, text, size, depth, &deeper);
        if (n >= 0) return n;
    }
    return -1;
}

static size_t frames_path(const gd_module_frame *f, char *text, size_t size) {
    if (!f->before) return 0;
    size_t used = frames_path(f->before, text, size);
    if (used + 2 >= size) return used;
    char step[GD_MAX_PATH];
    const int n = path_between(f->before->module, f->module, step, sizeof step);
    if (n < 0) return used; /* the calling module does not contain it */
    const int more = snprintf(text + used, size - used, "%s%s", used ? "." : "", step);
    return more < 0 || (size_t)more >= size - used ? used : used + (size_t)more;
}

char *gd_module_call_name(char *text, size_t size) {
    const gd_module_frame *f = gd_this_thread.module_frame;
    char step[GD_MAX_PATH];
    const bool contained =
        f->before && path_between(f->before->module, f->module, step, sizeof step) >= 0;
    snprintf(text, size, contained ? "%s (%s)" : "%.0s%s", contained ? step : "", f->module->type);
    return text;
}

char *gd_module_call_path(char *text, size_t size) {
    const gd_module_frame *f = gd_this_thread.module_frame;
    text[0] = 0;
    if (!f) return text;
    const size_t used = frames_path(f, text, size);
    snprintf(text + used, size - used, used ? " (%s)" : "%s", f->module->type);
    return text;
}

/* --- hooks ------------------------------------------------------------------------------------ */

int64_t gd_module_on_forward_at(const char *site, gd_module *m, gd_module_hook fn, void *user,
                                const gd_hook_options *o) {
    GD_LIVE_AT(site, m);
    o = o ? o : GD_HOOK_OPTIONS_();
    gd_status status = m && fn ? GD_OK
                               : gd_fail(GD_E_ARGUMENT, "gd_module_on_forward: the %s is NULL",
                                         m ? "hook" : "module");
    if (status == GD_OK && !gd_grow(m->hooks, m->n_hooks, m->hooks_room))
        status = gd_no_memory(NULL, "for a hook");
    if (status != GD_OK) {
        gd_report(site, status);
        return 0;
    }
    m->hooks[m->n_hooks++] = (gd_hooked){fn, user, ++m->hook_number, o->before, o->builds_ops};
    m->revision++;
    return m->hook_number;
}

void gd_module_unhook(gd_module *m, int64_t number) {
    GD_LIVE(m);
    for (int i = 0; m && i < m->n_hooks; i++)
        if (m->hooks[i].number == number) {
            memmove(&m->hooks[i], &m->hooks[i + 1], (size_t)(--m->n_hooks - i) * sizeof *m->hooks);
            m->revision++;
            return;
        }
}

static gd_status call_hooks(gd_module *m, bool before, gd_tensors in, gd_tensors out,
                            gd_tensors *subject) {
    const gd_status failed = gd_error_status();
    for (int i = 0; i < m->n_hooks; i++) {
        const gd_hooked h = m->hooks[i];
        if (h.before != before) continue;
        if (gd_is_shapes_only && !h.builds_ops)
            continue; /* a hook must not see a shapes-only call */
        if (gd_this_thread.tracer && !h.builds_ops)
            return gd_fail(GD_E_STATE, "it has a hook, which would be called only once, when the "
                                       "function is traced or the graph is built, and not in "
                                       "runs; add a hook that only builds ops with "
                                       ".builds_ops = true");
        const gd_tensors y = h.fn(m, gd_list_for(GD_READER_MODULE, before ? *subject : in),
                                  gd_list_for(GD_READER_HOOK, before ? out : *subject), h.user);
        if (gd_error_status() != failed) return gd_failure();
        GD_TRY(gd_check_returned(y, __builtin_frame_address(0)));
        if (y.count > 0) *subject = y;
    }
    return GD_OK;
}

/* --- a call ----------------------------------------------------------------------------------- */

static gd_status check_inputs(const gd_module *m, gd_tensors in) {
    if (in.count < 0 || (in.count > 0 && !in.at))
        return gd_fail(GD_E_ARGUMENT, "the list of inputs is NULL");
    if (!m->factory) return GD_OK;
    const gd_op *r = &m->factory->record;
    const bool list = r->n_inputs > 0 && r->inputs[r->n_inputs - 1].variadic;
    if (in.count < r->n_required || (in.count > r->n_inputs && !list)) {
        char names[200] = "";
        for (int i = 0; i < r->n_inputs && strlen(names) < 150; i++) {
            if (i) strcat(names, ", ");
            strncat(names, r->inputs[i].name, 30);
            if (r->inputs[i].optional) strcat(names, "?");
        }
        return gd_fail(GD_E_ARGUMENT, "it takes %d input%s (%s), not %lld", r->n_inputs,
                       r->n_inputs == 1 ? "" : "s", names, (long long)in.count);
    }
    for (int i = 0; i < r->n_required; i++)
        if (!in.at[i]) return gd_fail(GD_E_ARGUMENT, "its input '%s' is NULL", r->inputs[i].name);
    return GD_OK;
}

static const char *missing_text(int position, char *text, size_t size) {
    const gd_module_frame *f = gd_this_thread.module_frame;
    if (!f) snprintf(text, size, "input %d of a module that is not running any more", position);
    else
        snprintf(text, size,
                 "input %d (counted from 0) of the module '%s', which was called with %lld input%s",
                 position, f->module->type, (long long)f->n_in, f->n_in == 1 ? "" : "s");
    return text;
}
static void __attribute__((constructor)) set_missing_hook(void) {
    gd_missing_text_hook = missing_text;
}

/* The function of the program may read more inputs than the call has: behind the end of the list
 * are error tensors, whose use fails with a message that says so. */
static gd_tensors call_function(gd_module *m, gd_tensors in) {
    return m->forward(gd_list_for(GD_READER_MODULE, in), m->self);
}

/* The outputs without the program's function. */
static gd_tensors own_outputs(gd_module *m, gd_tensors in) {
    const gd_layer_rules *rules = m->factory ? m->factory->rules : NULL;
    if (rules) return rules->forward ? rules->forward(m, in) : gd_layer_call_op(m, in);
    if (m->contained) return m->contained(m, in);
    gd_report(NULL,
              gd_fail(GD_E_STATE,
                      "it only contains modules and has no forward function; call its parts"));
    return gd_list_of_errors(1);
}

static gd_tensors compute_outputs(gd_module *m, gd_tensors in) {
    return m->forward ? call_function(m, in) : own_outputs(m, in);
}

gd_tensors gd_module_base_forward_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    gd_status status = m ? check_inputs(m, in) : gd_fail(GD_E_ARGUMENT, "the module is NULL");
    if (status == GD_OK && !m->built) status = gd_layer_build_for(m, in);
    if (status == GD_OK) return own_outputs(m, in);
    gd_report(site, status);
    return gd_list_of_errors(0);
}

/* The returned list must not be a local array of the forward function. */
static gd_status check_outputs(const gd_module *m, gd_tensors out, gd_status before) {
    if (gd_error_status() != before) return gd_failure();
    if (m->forward) GD_TRY(gd_check_returned(out, __builtin_frame_address(0)));
    if (out.count < 1 || !out.at)
        return gd_fail(GD_E_STATE, "its forward function returned no tensor; return gd_listed(y)");
    for (int64_t i = 0; i < out.count; i++)
        if (out.at[i] && gd_is_missing(out.at[i])) return gd_check_freed(out.at[i], "its result");
        else if (out.at[i] && out.at[i]->kind == GD_FAILED) return gd_failure();
    return out.at[0] ? GD_OK
                     : gd_fail(GD_E_STATE, "the first output of its forward function is NULL");
}

static gd_status run_in_frame(gd_module *m, gd_tensors in, gd_tensors *out) {
    GD_TRY(gd_check_stack());
    GD_TRY(gd_trace_record_value(&m->object, &m->revision));
    const bool own = !m->forward; /* another function may take other inputs */
    if (own) GD_TRY(check_inputs(m, in));
    gd_this_thread.module_frame->n_in = in.count;
    if (m->n_hooks) GD_TRY(call_hooks(m, true, in, (gd_tensors){NULL, 0}, &in));
    if (own && !m->built) GD_TRY(gd_layer_build_for(m, in));
    const gd_status failed = gd_error_status(); /* a failure before this call */
    gd_module_watch *watch = gd_this_thread.module_watch;
    if (!watch || !watch->replace || !watch->replace(watch, m, in, out))
        *out = compute_outputs(m, in);
    GD_TRY(check_outputs(m, *out, failed));
    if (m->n_hooks) GD_TRY(call_hooks(m, false, in, *out, out));
    return GD_OK;
}

/* Adds the path of the module to the message. Only the innermost call does. */
static void prefix_path(gd_status status) {
    char path[GD_MAX_PATH];
    gd_error_record(status);
    gd_error_within(gd_module_call_path(path, sizeof path));
}

gd_tensors gd_module_run(gd_module *m, gd_tensors in) {
    gd_thread *thread = &gd_this_thread;
    gd_module_frame frame = {.module = m, .before = thread->module_frame};
    gd_scope *scope = gd_scope_open();
    thread->module_frame = &frame;
    gd_tensors out;
    gd_module_watch *watch = thread->module_watch;
    const int row = watch ? watch->begin(watch, m) : 0;
    const bool failed = gd_failed();
    gd_status status = run_in_frame(m, in, &out);
    if (status != GD_OK && !failed) prefix_path(status);
    if (watch) watch->end(watch, row, status == GD_OK ? out : (gd_tensors){NULL, 0});
    thread->module_frame = frame.before;
    if (status == GD_OK) status = gd_hand_out_list(&out);
    gd_scope_close(&scope);
    return status == GD_OK ? out : gd_list_of_errors(0);
}

/* Error tensors among the inputs make the outputs error tensors, as in ops. */
static bool passes_errors(gd_module *m, gd_tensors in, const char *what) {
    for (int64_t i = 0; in.at && i < in.count; i++)
        if (in.at[i] && in.at[i]->kind == GD_FAILED) {
            gd_check_freed(in.at[i], what);
            return true;
        }
    if (m) return false;
    if (!gd_failed()) gd_report(NULL, gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", what));
    return true;
}

gd_tensors gd_module_call_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    return passes_errors(m, in, "gd_module_call") ? gd_list_of_errors(0) : gd_module_run(m, in);
}

gd_tensor *gd_module_forward_at(const char *site, gd_module *m, gd_tensors in) {
    GD_LIVE_AT(site, m);
    GD_CALLED_FROM(site);
    if (passes_errors(m, in, "gd_module_forward")) return &gd_error_tensor;
    gd_scope *scope = gd_scope_open();
    const gd_tensors out = gd_module_run(m, in);
    gd_tensor *y = out.at[0];
    if (y->kind != GD_FAILED) gd_scope_hand_out(&y->object);
    gd_scope_close(&scope);
    return y;
}

bool gd_module_is_training(gd_module *m) {
    GD_LIVE(m);
    const gd_module_frame *f = gd_this_thread.module_frame;
    if (!m && f) m = f->module;
    return m ? gd_layer_is_training(m) : false;
}
