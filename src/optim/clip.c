/* clip.c - clips gradients by norm and by value.
 *
 * Norms and factors are f64; a gradient is scaled in f32, or in f64 if it is f64. In a function
 * that a jit traces gradients are symbols, and the same ops are recorded.
 */
#include <math.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "gradus/ops.h"
#include "dispatch/call.h"
#include "optim/optimizer.h"

/* --- norms ------------------------------------------------------------------------------------ */

/* The p-norm of scalars, at most GD_MAX_VARIADIC in one op. Overwrites the list. */
static gd_tensor *norm_of_scalars(gd_tensor **scalars, int n, double p) {
    do {
        int made = 0;
        for (int from = 0; from < n; from += GD_MAX_VARIADIC) {
            const int count = n - from < GD_MAX_VARIADIC ? n - from : GD_MAX_VARIADIC;
            scalars[made++] = gd_norm(gd_stack(((gd_tensors){scalars + from, count})), .p = p);
        }
        n = made;
    } while (n > 1);
    return scalars[0];
}

gd_tensor *gd_gradients_norm(gd_tensor *const *gradients, int n, double p) {
    gd_tensor **norms = gd_malloc((size_t)n * sizeof *norms);
    if (!norms) return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory for %d norms", n));
    for (int i = 0; i < n; i++) {
        gd_tensor *norm = gd_norm(gradients[i], .p = p);
        norms[i] = norm->kind == GD_FAILED || norm->dtype == GD_F64 ? norm : gd_cast(norm, GD_F64);
    }
    gd_tensor *total = norm_of_scalars(norms, n, p);
    gd_free(norms);
    return total;
}

/* max_norm / (norm + eps), at most 1. */
static gd_tensor *clip_factor(gd_tensor *norm, double max_norm, double eps) {
    return gd_minimum(
        gd_div(gd_scalar_of(max_norm, GD_F64), gd_add(norm, gd_scalar_of(eps, GD_F64))),
        gd_scalar_of(1, GD_F64));
}

/* --- the gradients of parameters -------------------------------------------------------------- */

static gd_status find_gradients(gd_tensors parameters, const char *what, gd_tensor **gradients,
                                int *n) {
    for (int64_t i = 0; i < parameters.count; i++) {
        const gd_tensor *p = parameters.at[i];
        if (p) GD_TRY(gd_check_freed(p, what));
        if (!p || p->kind == GD_FAILED)
            return gd_fail(GD_E_ARGUMENT, "%s: parameter %lld is %s", what, (long long)i,
                           p ? "an error" : "NULL");
        if (p->kind == GD_SYMBOL && !gd_grads_are_traced())
            return gd_fail(GD_E_STATE,
                           "%s: parameter %lld is a symbol; in a graph use .clip_norm and "
                           ".clip_value of gd_minimize",
                           what, (long long)i);
        gd_tensor *g = gd_tensor_grad(p);
        if (!g) continue;
        if (g->kind == GD_FAILED) return gd_failure();
        gradients[(*n)++] = g;
    }
    return GD_OK;
}

static gd_status list_gradients(gd_tensors parameters, const char *what, gd_tensor ***gradients,
                                int *n) {
    *gradients = NULL;
    if (parameters.count < 0 || parameters.count > INT32_MAX ||
        (parameters.count > 0 && !parameters.at))
        return gd_fail(GD_E_ARGUMENT, "%s: the list of parameters is NULL, or of a negative length",
                       what);
    if (gd_this_thread.tracer && !gd_grads_are_traced())
        return gd_fail(GD_E_STATE,
                       "%s: a graph is being built; use .clip_norm and .clip_value of gd_minimize",
                       what);
    *n = 0;
    *gradients = gd_calloc((size_t)parameters.count + 1, sizeof **gradients);
    if (!*gradients)
        return gd_fail(GD_E_MEMORY, "no memory for %lld gradients", (long long)parameters.count);
    return find_gradients(parameters, what, *gradients, n);
}

gd_tensor *gd_factor_for(gd_tensor *factor, gd_dtype dtype) {
    return dtype == GD_F64 ? factor : gd_cast(factor, GD_F32); /* f16 might not hold it */
}

/* Scales all gradients of a dtype in one call. */
gd_status gd_gradients_scale(gd_tensor **gradients, int n, gd_tensor *factor, gd_view *views) {
    while (n > 0) {
        const gd_dtype dtype = (gd_dtype)gradients[0]->dtype;
        int same = 0; /* the count of this dtype, which come first */
        for (int i = 0; i < n; i++)
            if (gradients[i]->dtype == dtype) {
                gd_tensor *g = gradients[i];
                gradients[i] = gradients[same];
                gradients[same++] = g;
            }
        gd_tensor *own = gd_factor_for(factor, dtype);
        if (own->kind == GD_FAILED) return gd_failure();
        const gd_each each = {.op = gd_op_find("mul_"),
                              .in = gradients,
                              .count = same,
                              .scalars = &own,
                              .n_scalars = 1,
                              .views = views};
        GD_TRY(gd_dispatch_each(&each, NULL, NULL));
        views += gd_each_views(same, 1, 1);
        gradients += same;
        n -= same;
    }
    return GD_OK;
}

enum { FLOATS = 4 }; /* dtypes */

gd_view *gd_gradients_views(int n) {
    gd_view *views = gd_malloc((gd_each_views(n, 1, 1) + FLOATS * GD_EACH_INPUTS) * sizeof *views);
    if (!views) gd_fail(GD_E_MEMORY, "no memory for %d gradients", n);
    return views;
}

/* Changes all gradients or, after a failure, none. */
static gd_status scale_all(gd_tensor **gradients, int n, gd_tensor *factor) {
    gd_view *views = gd_gradients_views(n);
    if (!views) return GD_E_MEMORY;
    gd_transaction updates;
    gd_transaction_begin(&updates);
    const gd_status status =
        gd_transaction_end(&updates, gd_gradients_scale(gradients, n, factor, views));
    gd_free(views);
    return status;
}

static gd_status check_norm(double max_norm, const gd_clip_options *o) {
    if (!(max_norm >= 0))
        return gd_fail(GD_E_ARGUMENT, "gd_clip_grad_norm: max_norm is %g; it must be in [0, inf]",
                       max_norm);
    if (!(o->norm_type > 0))
        return gd_fail(GD_E_ARGUMENT, "gd_clip_grad_norm: norm_type is %g; it must be in (0, inf]",
                       o->norm_type);
    if (!(o->eps >= 0))
        return gd_fail(GD_E_ARGUMENT, "gd_clip_grad_norm: eps is %g; it must be in [0, inf)",
                       o->eps);
    if (o->error_if_nonfinite && gd_this_thread.tracer)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "gd_clip_grad_norm: error_if_nonfinite reads values, which a function that is "
            "traced cannot; return the norm from it instead");
    return GD_OK;
}

static gd_status clip_norm(gd_tensors parameters, double max_norm, const gd_clip_options *o,
                           gd_tensor **norm) {
    gd_tensor **gradients = NULL;
    int n = 0;
    gd_status status = check_norm(max_norm, o);
    if (status == GD_OK) status = list_gradients(parameters, "gd_clip_grad_norm", &gradients, &n);
    if (status == GD_OK)
        *norm = n ? gd_gradients_norm(gradients, n, o->norm_type) : gd_scalar_of(0, GD_F64);
    if (status == GD_OK && (*norm)->kind == GD_FAILED) status = gd_failure();
    if (status == GD_OK && o->error_if_nonfinite && !isfinite(gd_item(*norm)))
        status = gd_fail(GD_E_STATE, "gd_clip_grad_norm: the norm of the gradients is not finite");
    if (status == GD_OK && n)
        status = scale_all(gradients, n, clip_factor(*norm, max_norm, o->eps));
    gd_free(gradients);
    return status;
}

gd_tensor *gd_clip_grad_norm_at(const char *site, gd_tensors parameters, double max_norm,
                                const gd_clip_options *options) {
    options = options ? options : GD_CLIP_OPTIONS_();
    if (gd_failed()) return &gd_error_tensor;
    GD_CALLED_FROM(site);
    GD_NO_GRAD;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_tensor *norm = NULL;
    gd_status status = clip_norm(parameters, max_norm, options, &norm);
    if (status == GD_OK) gd_keep(norm);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    return status == GD_OK ? norm : gd_tensor_fail(status);
}

static gd_status clip_value(gd_tensors parameters, double value) {
    gd_tensor **gradients = NULL;
    int n = 0;
    if (!(value >= 0))
        return gd_fail(GD_E_ARGUMENT, "gd_clip_grad_value: value is %g; it must be in [0, inf]",
                       value);
    gd_status status = list_gradients(parameters, "gd_clip_grad_value", &gradients, &n);
    gd_clamp_options bounds = gd_clamp_defaults();
    bounds.min = gd_number_of(-value);
    bounds.max = gd_number_of(value);
    gd_view *views = gd_malloc(gd_each_views(n, 1, 1) * sizeof *views);
    if (!views && status == GD_OK) status = gd_fail(GD_E_MEMORY, "no memory for %d gradients", n);
    const gd_each each = {
        .op = gd_op_find("clamp_"), .attrs = &bounds, .in = gradients, .count = n, .views = views};
    gd_transaction updates;
    gd_transaction_begin(&updates);
    if (status == GD_OK) status = gd_dispatch_each(&each, NULL, NULL);
    status = gd_transaction_end(&updates, status);
    gd_free(views);
    gd_free(gradients);
    return status;
}

gd_status gd_clip_grad_value_at(const char *site, gd_tensors parameters, double value) {
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    GD_NO_GRAD;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = clip_value(parameters, value);
    gd_scope_close(&scope);
    return gd_report(site, gd_attempt_end(&attempt, status));
}

/* --- gradients that are symbols of a graph ---------------------------------------------------- */

int gd_optimizer_gradients(const gd_optimizer *o, gd_tensor ***at) {
    int n = 0;
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++)
                if (o->groups[g].parts[k].gradients[i])
                    at[n++] = &o->groups[g].parts[k].gradients[i];
    return n;
}

static gd_status clip_gradients(gd_tensor ***at, gd_tensor **gradients, int n, double max_norm,
                                double eps, double value) {
    for (int i = 0; i < n; i++) gradients[i] = *at[i];
    gd_tensor *factor =
        max_norm > 0 ? clip_factor(gd_gradients_norm(gradients, n, 2), max_norm, eps) : NULL;
    for (int i = 0; i < n; i++) {
        gd_tensor *g = gradients[i];
        if (factor) g = gd_mul(g, gd_factor_for(factor, (gd_dtype)g->dtype));
        if (value > 0) g = gd_clamp(g, .min = -value, .max = value);
        if (g->kind == GD_FAILED) return gd_failure();
        *at[i] = g;
    }
    return GD_OK;
}

gd_status gd_clip_symbols(gd_optimizer *o, double max_norm, double eps, double value) {
    if (max_norm == 0 && value == 0) return GD_OK;
    gd_tensor ***at = gd_calloc((size_t)o->n_parameters, sizeof *at);
    gd_tensor **gradients = gd_calloc((size_t)o->n_parameters, sizeof *gradients);
    const int n = at && gradients ? gd_optimizer_gradients(o, at) : 0;
    gd_status status = at && gradients ? GD_OK : gd_no_memory(NULL, "for a step");
    if (n > 0) status = clip_gradients(at, gradients, n, max_norm, eps, value);
    gd_free(at);
    gd_free(gradients);
    return status;
}
