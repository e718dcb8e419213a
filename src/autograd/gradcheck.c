/* gradcheck.c - compares gradients with finite differences.
 *
 * The result y of fn is projected on a fixed pseudo-random w, so that one backward pass gives the
 * gradient of <w, y>; each of its elements is compared with a central difference. The second order
 * is the same check of another function: of (x, v), the gradient of <v, fn(x)> by x, projected.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/random.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "dispatch/op.h"

typedef struct {
    gd_fn fn;
    void *user;
    gd_tensors inputs; /* copies of those that are checked */
    gd_rng rng;        /* every evaluation starts from the same random state */
    const gd_gradcheck_options *options;
    int64_t n_y;
    double *y, *w; /* the latest result, and its projection vector */
} check;

/* Values in +-(0.5, 1.5): none is so small that it would hide an error. */
static double projection_weight(uint64_t stream, int64_t i) {
    uint32_t word[4];
    gd_philox((gd_rng){0x6772616463686b00u, stream}, (uint64_t)i, word);
    double size = 0.5 + word[0] * 0x1p-32;
    return word[1] & 1 ? size : -size;
}

/* A constant of t's shape filled with weights. */
static gd_tensor *weights_like(const gd_tensor *t, uint64_t stream) {
    int64_t n = gd_numel(t->rank, t->dims);
    double *data = gd_malloc((size_t)n * sizeof *data);
    if (!data)
        return gd_tensor_fail(
            gd_fail(GD_E_MEMORY, "gd_gradcheck: no memory for %lld values", (long long)n));
    for (int64_t i = 0; i < n; i++) data[i] = projection_weight(stream, i);
    gd_tensor *w = gd_from_array(gd_shape_of(t->rank, t->dims), GD_F64, data);
    gd_free(data);
    if (w->kind != GD_FAILED && w->device != t->device) w = gd_to_device(w, t->device);
    return w;
}

/* --- one evaluation --------------------------------------------------------------------------- */

static gd_status evaluate_function(check *c, gd_tensor **result) {
    char text[160];
    gd_rng_restore(c->rng);
    gd_tensor *y = c->fn(gd_list_for(GD_READER_FN, c->inputs), c->user);
    if (!y) return gd_fail(GD_E_ARGUMENT, "gd_gradcheck: the function returned NULL");
    if (y->kind == GD_FAILED) return gd_failure();
    if (y->dtype != GD_F64)
        return gd_fail(GD_E_DTYPE, "gd_gradcheck: the function's result is %s; the check needs f64",
                       gd_describe(y, text, sizeof text));
    *result = y;
    return GD_OK;
}

/* The result's elements into c->y, evaluated without the tape. */
static gd_status evaluate_values(check *c) {
    gd_scope *scope = gd_scope_open();
    gd_tensor *y = NULL;
    int before = gd_no_grad_begin();
    gd_status status = evaluate_function(c, &y);
    gd_grad_mode_end(&before);
    if (status == GD_OK && gd_numel(y->rank, y->dims) != c->n_y)
        status = gd_fail(GD_E_SHAPE, "gd_gradcheck: the result has another shape the second time");
    if (status == GD_OK) status = gd_copy_out(y, c->y, (size_t)c->n_y * sizeof *c->y);
    gd_scope_close(&scope);
    return status;
}

static gd_status set_element(gd_tensor *x, double *host, int64_t n, int64_t e, double value) {
    host[e] = value;
    return gd_copy_in(x, host, (size_t)n * sizeof *host);
}

/* The central difference of <w, y> at element e of x. `above` has room for the result. */
static gd_status central_difference(check *c, gd_tensor *x, double *host, int64_t n, int64_t e,
                                    double *above, double *slope) {
    double at = host[e], step = c->options->step * fmax(1.0, fabs(at));
    double high = at + step, low = at - step; /* after rounding to the dtype */
    gd_status status = set_element(x, host, n, e, high);
    if (status == GD_OK) status = evaluate_values(c);
    if (status == GD_OK) memcpy(above, c->y, (size_t)c->n_y * sizeof *above);
    if (status == GD_OK) status = set_element(x, host, n, e, low);
    if (status == GD_OK) status = evaluate_values(c);
    gd_status restored = set_element(x, host, n, e, at);
    if (status == GD_OK) status = restored;
    long double sum = 0;
    for (int64_t i = 0; i < c->n_y && status == GD_OK; i++)
        sum += (long double)c->w[i] * ((long double)above[i] - (long double)c->y[i]);
    *slope = (double)(sum / ((long double)high - (long double)low));
    return status;
}

static bool close_enough(double a, double b, const gd_gradcheck_options *o) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= o->tolerance_absolute + o->tolerance_relative * fmax(fabs(a), fabs(b));
}

/* Checks every element of an input, or one random element of each of options->elements parts. */
static gd_status check_input(check *c, int64_t input, gd_tensor *gradient) {
    gd_tensor *x = c->inputs.at[input];
    int64_t n = gd_numel(x->rank, x->dims);
    char text[160];
    double *host = gd_calloc((size_t)(2 * n + c->n_y) + 1, sizeof *host), *analytic = host + n,
           *above = host + 2 * n;
    if (!host) return gd_fail(GD_E_MEMORY, "gd_gradcheck: no memory for %lld values", (long long)n);
    gd_status status = gd_copy_out(x, host, (size_t)n * sizeof *host);
    if (status == GD_OK && gradient)
        status = gd_copy_out(gradient, analytic, (size_t)n * sizeof *analytic);
    const int64_t most = c->options->elements, parts = most > 0 && most < n ? most : n;
    for (int64_t part = 0; part < parts && status == GD_OK; part++) {
        const int64_t from = part * n / parts, size = (part + 1) * n / parts - from;
        const int64_t e = from + (int64_t)((fabs(projection_weight(9, part)) - 0.5) * (double)size);
        double slope = 0;
        status = central_difference(c, x, host, n, e, above, &slope);
        if (status == GD_OK && !close_enough(analytic[e], slope, c->options))
            status =
                gd_fail(GD_E_ARGUMENT,
                        "gd_gradcheck: input %lld (%s), element %lld%s: the gradient is %.10g, "
                        "finite differences give %.10g",
                        (long long)input, gd_describe(x, text, sizeof text), (long long)e,
                        c->options->twice ? ", second order" : "", analytic[e], slope);
    }
    gd_free(host);
    return status;
}

/* --- the first order -------------------------------------------------------------------------- */

/* Copies the inputs that are checked, since their elements are changed. */
static gd_status copy_inputs(gd_tensors inputs, gd_tensor **copies, gd_tensor **checked,
                             int64_t *n_checked) {
    char text[160];
    *n_checked = 0;
    for (int64_t i = 0; i < inputs.count; i++) {
        gd_tensor *x = inputs.at[i];
        copies[i] = x;
        if (x && x->kind == GD_FAILED) return gd_failure();
        if (!x || !x->requires_grad) continue;
        if (x->dtype != GD_F64 || x->kind != GD_VALUE)
            return gd_fail(
                GD_E_DTYPE,
                "gd_gradcheck: input %lld is %s; those that require grad must be f64 values",
                (long long)i, gd_describe(x, text, sizeof text));
        copies[i] = gd_requires_grad(gd_clone(gd_detach(x)));
        if (copies[i]->kind == GD_FAILED) return gd_failure();
        checked[(*n_checked)++] = copies[i];
    }
    if (*n_checked == 0) return gd_fail(GD_E_STATE, "gd_gradcheck: no input requires grad");
    return GD_OK;
}

static gd_status check_first_order(check *c, gd_tensors checked) {
    gd_tensor *y = NULL;
    int before = gd_enable_grad_begin();
    gd_status status = evaluate_function(c, &y);
    gd_grad_mode_end(&before);
    GD_TRY(status);
    gd_tensors g = {NULL, 0};
    if (y->requires_grad) {
        gd_tensor *w = weights_like(y, 0);
        if (w->kind == GD_FAILED) return gd_failure();
        g = gd_grad(gd_list(y), checked, .gradients = gd_list(w), .allow_unused = true);
        if (g.count != checked.count || gd_tensor_is_error(g.at[0])) return gd_failure();
    } else if (!c->options->twice) { /* a gradient may be constant */
        return gd_fail(GD_E_STATE,
                       "gd_gradcheck: the result does not depend on an input that requires grad");
    }
    c->n_y = gd_numel(y->rank, y->dims);
    c->y = gd_malloc((size_t)c->n_y * 2 * sizeof *c->y);
    if (!c->y)
        return gd_fail(GD_E_MEMORY, "gd_gradcheck: no memory for %lld values", (long long)c->n_y);
    c->w = c->y + c->n_y;
    for (int64_t i = 0; i < c->n_y; i++) c->w[i] = projection_weight(0, i);
    for (int64_t i = 0, k = 0; i < c->inputs.count && status == GD_OK; i++)
        if (k < checked.count && c->inputs.at[i] == checked.at[k]) {
            status = check_input(c, i, g.count ? g.at[k] : NULL);
            k++;
        }
    gd_free(c->y);
    return status;
}

/* --- the second order ------------------------------------------------------------------------- */

typedef struct {
    gd_fn fn;
    void *user;
} inner;

/* (x..., v) -> the sum of <u_i, gradient of <v, fn(x)> with respect to x_i>. */
static gd_tensor *gradient_function(gd_tensors inputs, void *user) {
    const inner *f = user;
    int64_t n = inputs.count - 1, n_checked = 0;
    bool graph = gd_grad_enabled();
    gd_tensor **checked = gd_list_new(n), *sum = gd_full(gd_dims(), 0.0, .dtype = GD_F64);
    if (!checked) return gd_tensor_fail(GD_E_MEMORY);
    for (int64_t i = 0; i < n; i++)
        if (inputs.at[i] && inputs.at[i]->requires_grad) checked[n_checked++] = inputs.at[i];
    int before = gd_enable_grad_begin();
    gd_tensor *y = f->fn(gd_list_for(GD_READER_FN, (gd_tensors){inputs.at, n}), f->user);
    gd_grad_mode_end(&before);
    if (!y || y->kind == GD_FAILED || !y->requires_grad) return y && y->kind == GD_FAILED ? y : sum;
    gd_tensors g =
        gd_grad(gd_list(y), ((gd_tensors){checked, n_checked}), .gradients = gd_list(inputs.at[n]),
                .create_graph = graph, .allow_unused = true);
    if (g.count == 0) return &gd_error_tensor;
    for (int64_t k = 0; k < g.count; k++)
        if (g.at[k])
            sum = gd_add(sum, gd_sum(gd_mul(g.at[k], weights_like(g.at[k], (uint64_t)k + 2))));
    return sum;
}

static gd_status check_second_order(gd_fn fn, gd_tensors copies, void *user,
                                    const gd_gradcheck_options *options, const gd_tensor *y) {
    gd_tensor **with_v = gd_list_new(copies.count + 1);
    if (!with_v) return GD_E_MEMORY;
    for (int64_t i = 0; i < copies.count; i++) with_v[i] = copies.at[i];
    with_v[copies.count] = gd_requires_grad(weights_like(y, 1));
    if (with_v[copies.count]->kind == GD_FAILED) return gd_failure();
    gd_gradcheck_options again = *options;
    again.second_order = false;
    again.twice = true;
    inner f = {fn, user};
    return gd_gradcheck_at(NULL, gradient_function, (gd_tensors){with_v, copies.count + 1}, &f,
                           &again);
}

/* --- the call --------------------------------------------------------------------------------- */

static gd_status check_gradients(gd_fn fn, gd_tensors inputs, void *user,
                                 const gd_gradcheck_options *options) {
    if (!fn || inputs.count < 1 || !inputs.at)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_gradcheck: the function or the list of inputs is missing");
    if (!(options->step > 0))
        return gd_fail(GD_E_ARGUMENT, "gd_gradcheck: the step must be above 0");
    gd_tensor **copies = gd_list_new(inputs.count), **checked = gd_list_new(inputs.count);
    int64_t n_checked;
    if (!copies || !checked) return GD_E_MEMORY;
    GD_TRY(copy_inputs(inputs, copies, checked, &n_checked));
    check c = {.fn = fn,
               .user = user,
               .inputs = {copies, inputs.count},
               .rng = gd_rng_state(),
               .options = options};
    gd_status status = check_first_order(&c, (gd_tensors){checked, n_checked});
    if (status == GD_OK && options->second_order) {
        gd_tensor *y = NULL;
        status = evaluate_function(&c, &y);
        if (status == GD_OK) status = check_second_order(fn, c.inputs, user, options, y);
    }
    return status;
}

gd_status gd_gradcheck_at(const char *site, gd_fn fn, gd_tensors inputs, void *user,
                          const gd_gradcheck_options *options) {
    options = options ? options : GD_GRADCHECK_OPTIONS_();
    if (gd_failed()) return gd_error_status();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_rng before = gd_rng_state();
    gd_status status = check_gradients(fn, inputs, user, options);
    gd_rng_restore(before);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    return gd_report(site, status);
}
