/* trace_hook.c - hooks on gradients that are symbols, in graphs and in functions of jits.
 *
 * Such a hook runs once, when the gradient is added to the graph. The ops that it calls become part
 * of the graph. Anything else would happen only in the trace and not in later calls, so in a jit it
 * fails.
 */
#include "graph/build/trace_grad.h"

/* The place in the program that added the hook that is being traced for a jit; NULL: none is. */
static _Thread_local const char *hooked_at;

static const char *hook_site(const gd_hook *h) { return h->site ? h->site : "(unknown place)"; }

gd_status gd_traced_hook(const gd_hook *h, gd_tensor *gradient, gd_tensor **other) {
    const gd_graph *graph = gradient->node->origin ? gradient->node->origin->graph : NULL;
    if (!graph || !graph->jit) {
        *other = h->fn(gradient, h->user);
        return GD_OK;
    }
    const char *before = hooked_at;
    const int count = graph->count;
    hooked_at = hook_site(h);
    *other = h->fn(gradient, h->user);
    hooked_at = before;
    if (gd_failed()) return gd_failure();
    if ((*other && *other != gradient) || graph->count > count) return GD_OK;
    return gd_fail(
        GD_E_UNSUPPORTED,
        "the hook of %s calls no ops. In a gd_jit it would run when the function is traced, and "
        "not in later calls; return its gradient from the function, or call the function without "
        "its jit",
        hook_site(h));
}

gd_status gd_check_hook(const gd_tensor *symbol) {
    const gd_origin *o = symbol->node->origin;
    if (!o || !o->graph || !o->graph->body) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED,
                   "gd_tensor_hook: '%s' is in a branch or in the body of a loop, where hooks "
                   "cannot be called; hook its inputs or its results",
                   o->name);
}

gd_status gd_check_hook_access(const char *what) {
    if (!hooked_at) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED,
                   "%s in the hook of %s, which is traced for a gd_jit: it would be done once, and "
                   "not in later calls; a hook can call ops",
                   what, hooked_at);
}

gd_status gd_check_hook_writes(const gd_graph *graph, const char *input) {
    if (!hooked_at || !graph || graph->traces_writes) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED,
                   "'%s' is written in the hook of %s, which is part of the gradient of a gd_jit; "
                   "call gd_backward in the jit's function, or write it outside",
                   input, hooked_at);
}
