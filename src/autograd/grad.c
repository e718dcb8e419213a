/* grad.c - gd_backward, gd_grad, and the gradient rule of elementwise ops. */
#include <string.h>

#include "autograd/node.h"
#include "autograd/walker.h"
#include "core/alloc.h"
#include "gradus/ops.h"

/* The gradient of each input is one op that is derived from the expression. */
void gd_elementwise_vjp(gd_vjp *v) {
    for (int i = 0; i < v->n_in; i++) {
        if (!v->needs[i]) continue;
        const struct gd_derived *d = gd_op_derived(v->op, i);
        if (!d) {
            v->gx[i] = gd_tensor_fail(GD_E_MEMORY);
            continue;
        }
        if (d->zero) continue;
        if (d->passes >= 0) {
            v->gx[i] = v->gy[d->passes];
            continue;
        }
        gd_tensor *in[24];
        for (int k = 0; k < d->n_sources; k++) {
            int s = d->source[k];
            in[k] = s < v->n_out             ? v->gy[s]
                    : s < v->n_out + v->n_in ? v->x[s - v->n_out]
                                             : v->y[s - v->n_out - v->n_in];
        }
        v->gx[i] = gd_dispatch_one(d->op, NULL, in, d->n_sources, v->attrs);
    }
}

/* The gradient of an output: the given one, or ones. */
static gd_tensor *start_gradient(gd_tensor *y, gd_tensor *given, bool ones_fit, const char *what) {
    char a[160], b[160];
    if (!given) {
        if (!ones_fit && gd_numel(y->rank, y->dims) != 1)
            return gd_tensor_fail(
                gd_fail(GD_E_SHAPE,
                        "%s: the result is %s; pass the gradient of the result, or "
                        "reduce it to one element first",
                        what, gd_describe(y, a, sizeof a)));
        if (y->kind == GD_SYMBOL) return gd_ones_like(y);
        gd_device *before = gd_this_thread.device;
        gd_this_thread.device = y->device;
        gd_tensor *ones = gd_full(gd_shape_of(y->rank, y->dims), 1.0, .dtype = (gd_dtype)y->dtype);
        gd_this_thread.device = before;
        return ones;
    }
    if (given->kind == GD_FAILED) return given;
    bool fits = given->rank == y->rank;
    for (int i = 0; i < y->rank && fits; i++)
        fits = given->dims[i] == y->dims[i] || given->dims[i] == GD_UNKNOWN ||
               y->dims[i] == GD_UNKNOWN;
    if (!fits)
        return gd_tensor_fail(gd_fail(GD_E_SHAPE, "%s: the gradient is %s, the result %s", what,
                                      gd_describe(given, a, sizeof a),
                                      gd_describe(y, b, sizeof b)));
    return given->dtype == y->dtype ? given : gd_cast(given, (gd_dtype)y->dtype);
}

static gd_status check_result(const gd_tensor *y, const char *what) {
    char text[160];
    if (!y || y->kind == GD_FAILED || y->kind == GD_META)
        return gd_fail(GD_E_ARGUMENT, "%s: the result is %s", what,
                       gd_describe(y, text, sizeof text));
    if (!y->requires_grad && y->kind != GD_SYMBOL)
        return gd_fail(GD_E_STATE, "%s: the result does not depend on a tensor that requires grad",
                       what);
    return GD_OK;
}

static gd_status run_backward(gd_tensor *result, const gd_backward_options *o) {
    GD_TRY(check_result(result, "gd_backward"));
    const bool traced = gd_grads_are_traced();
    if (result->kind == GD_SYMBOL && !traced)
        return gd_fail(GD_E_STATE, "gd_backward: the result is a symbol of a graph; gd_grad gives "
                                   "its gradients, which are symbols, too");
    gd_scope *scope = gd_scope_open();
    gd_tensor *gradient = start_gradient(result, o->gradient, false, "gd_backward");
    gd_status status = gradient->kind == GD_FAILED ? gd_failure() : GD_OK;
    if (status == GD_OK && traced) status = gd_traced_grads.backward(result, gradient, o);
    else if (status == GD_OK)
        status = gd_walk_back(&(gd_walk){.outputs = &result,
                                         .gradients = &gradient,
                                         .n_outputs = 1,
                                         .retain_graph = o->retain_graph || o->create_graph,
                                         .create_graph = o->create_graph});
    gd_scope_close(&scope);
    return status;
}

gd_status gd_backward_at(const char *site, gd_tensor *result, const gd_backward_options *options) {
    options = options ? options : GD_BACKWARD_OPTIONS_();
    if (gd_failed()) return gd_error_status(); /* after a failure nothing changes */
    GD_CALLED_FROM(site);
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = run_backward(result, options);
    return gd_report(site, gd_attempt_end(&attempt, status));
}

/* Adds a node to the graph that represents the walk until the sizes are known, for the inputs that
 * a gradient reaches. */
static gd_status defer_walk(const char *site, const gd_walk *walk, const bool *reached) {
    gd_tensor **all = gd_malloc((size_t)(2 * walk->n_outputs + walk->n_inputs) * sizeof *all);
    if (!all) return gd_no_memory(NULL, "for gradients");
    memcpy(all, walk->outputs, (size_t)walk->n_outputs * sizeof *all);
    memcpy(all + walk->n_outputs, walk->gradients, (size_t)walk->n_outputs * sizeof *all);
    int64_t n = 2 * walk->n_outputs;
    for (int64_t i = 0; i < walk->n_inputs; i++)
        if (reached[i]) all[n++] = walk->inputs[i];
    const int64_t wanted = n - 2 * walk->n_outputs;
    gd_tensors g = {NULL, 0};
    if (wanted > 0)
        g = gd_deferred_gradients_at(site, (gd_tensors){all, n},
                                     &(gd_deferred_gradients_options){.outputs = walk->n_outputs});
    gd_free(all);
    if (g.count != wanted)
        return gd_this_thread.recorded ? gd_this_thread.recorded : gd_this_thread.latest;
    for (int64_t i = 0, k = 0; i < walk->n_inputs; i++)
        if (reached[i]) walk->results[i] = gd_retain(g.at[k++]);
    return GD_OK;
}

static gd_status walk_or_defer(const char *site, const gd_walk *walk) {
    bool waits = false, *reached = NULL;
    if (walk->outputs[0]->kind != GD_SYMBOL) return gd_walk_back(walk);
    reached = gd_calloc((size_t)walk->n_inputs, sizeof *reached);
    gd_status status =
        reached ? gd_walk_is_deferred(walk, &waits, reached) : gd_no_memory(NULL, "for gradients");
    if (status == GD_OK) status = waits ? defer_walk(site, walk, reached) : gd_walk_back(walk);
    gd_free(reached);
    return status;
}

static gd_status compute_grad(const char *site, gd_tensors outputs, gd_tensors inputs,
                              const gd_grad_options *o, gd_tensor **results) {
    if (outputs.count < 1 || !outputs.at || inputs.count < 1)
        return gd_fail(GD_E_ARGUMENT, "gd_grad: no outputs or no inputs");
    if (o->gradients.count != 0 && o->gradients.count != outputs.count)
        return gd_fail(GD_E_ARGUMENT, "gd_grad: %lld gradients for %lld outputs",
                       (long long)o->gradients.count, (long long)outputs.count);
    for (int64_t i = 0; i < outputs.count; i++) GD_TRY(check_result(outputs.at[i], "gd_grad"));
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *x = inputs.at[i];
        if (!x || (!x->requires_grad && x->kind != GD_SYMBOL))
            return gd_fail(GD_E_STATE, "gd_grad: input %lld does not require grad", (long long)i);
        if (x->kind == GD_SYMBOL && !gd_dtype_is_float((gd_dtype)x->dtype))
            return gd_fail(GD_E_DTYPE, "gd_grad: input %lld is %s; floats have gradients",
                           (long long)i, gd_dtype_name((gd_dtype)x->dtype));
    }
    gd_tensor **gradients = gd_malloc((size_t)outputs.count * sizeof *gradients);
    if (!gradients) return gd_no_memory(NULL, "for gradients");
    gd_status status = GD_OK;
    for (int64_t i = 0; i < outputs.count && status == GD_OK; i++) {
        gradients[i] = start_gradient(outputs.at[i], o->gradients.count ? o->gradients.at[i] : NULL,
                                      true, "gd_grad");
        if (gradients[i]->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK)
        status = walk_or_defer(site, &(gd_walk){.outputs = outputs.at,
                                                .gradients = gradients,
                                                .n_outputs = outputs.count,
                                                .inputs = inputs.at,
                                                .n_inputs = inputs.count,
                                                .results = results,
                                                .retain_graph = o->retain_graph || o->create_graph,
                                                .create_graph = o->create_graph});
    gd_free(gradients);
    return status;
}

/* Eager code gets gradients without history unless it requests it; traced code always gets
 * history. */
static gd_status detach_results(gd_tensor **results, int64_t count) {
    GD_NO_GRAD;
    for (int64_t i = 0; i < count; i++) {
        gd_tensor *own = results[i] ? gd_clone(results[i]) : NULL;
        if (own && own->kind == GD_FAILED) return gd_failure();
        gd_retain(own);
        gd_release(results[i]);
        results[i] = own;
    }
    return GD_OK;
}

/* compute_grad() in its own scope and attempt. */
static gd_status attempt_grad(const char *site, gd_tensors outputs, gd_tensors inputs,
                              const gd_grad_options *o, gd_tensor **results) {
    if (gd_failed()) return gd_error_status();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = compute_grad(site, outputs, inputs, o, results);
    if (status == GD_OK && !o->create_graph && gd_grads_are_traced())
        status = detach_results(results, inputs.count);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

static gd_status fail_unused(const gd_tensor *x, int64_t i) {
    char text[200] = "";
    return gd_fail(GD_E_STATE,
                   "gd_grad: the outputs do not depend on input %lld%s%s (.allow_unused = true "
                   "gives NULL instead)",
                   (long long)i, x->kind == GD_SYMBOL ? ", " : "",
                   x->kind == GD_SYMBOL ? gd_symbol_text_hook(x, text, sizeof text) : "");
}

gd_tensors gd_grad_at(const char *site, gd_tensors outputs, gd_tensors inputs,
                      const gd_grad_options *options) {
    options = options ? options : GD_GRAD_OPTIONS_();
    GD_CALLED_FROM(site);
    if (inputs.count < 0 || !inputs.at) inputs.count = 0;
    gd_tensor **results = gd_list_new(inputs.count);
    gd_status status =
        results ? attempt_grad(site, outputs, inputs, options, results) : GD_E_MEMORY;
    for (int64_t i = 0; i < inputs.count && results; i++) {
        if (!results[i]) {
            if (status == GD_OK && !options->allow_unused) status = fail_unused(inputs.at[i], i);
            continue;
        }
        gd_status taken = gd_scope_take(&results[i]->object);
        if (taken != GD_OK) results[i] = NULL;
        if (status == GD_OK) status = taken;
    }
    if (status == GD_OK) return (gd_tensors){results, inputs.count};
    gd_report(site, status);
    for (int64_t i = 0; i < inputs.count && results; i++) {
        if (results[i] && gd_this_thread.depth == 0) gd_release(results[i]);
        results[i] = &gd_error_tensor;
    }
    /* a list of error tensors, so that the program can pass result.at[0] on */
    return results && inputs.count ? (gd_tensors){results, inputs.count}
                                   : gd_list_of_errors(inputs.count);
}
