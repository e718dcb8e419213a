/* functional.c - transforms of functions: jvp, the Jacobian, Hessian-vector products. */
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/copy.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"

/* --- what the transforms share ---------------------------------------------------------------- */

/* The inputs for fn. An input that requires grad is used directly, so that the transform itself can
 * be differentiated; any other float input is replaced by a leaf that aliases it. `float_at` has
 * the indices of the float inputs, those that have derivatives. */
typedef struct {
    gd_tensors all;    /* in the order of the inputs */
    gd_tensors floats; /* the float ones among them */
    int64_t *float_at;
    bool graph; /* the results are differentiable themselves */
} prepared;

static gd_status prepare_inputs(gd_tensors inputs, const char *what, prepared *p) {
    *p = (prepared){.graph = false};
    if (inputs.count < 1 || !inputs.at)
        return gd_fail(GD_E_ARGUMENT, "%s: there are no inputs", what);
    gd_tensor **all = gd_list_new(inputs.count), **floats = gd_list_new(inputs.count);
    p->float_at = gd_malloc((size_t)inputs.count * sizeof *p->float_at);
    if (!all || !floats || !p->float_at)
        return gd_fail(GD_E_MEMORY, "%s: no memory for a list", what);
    int64_t n = 0;
    for (int64_t i = 0; i < inputs.count; i++) {
        gd_tensor *x = inputs.at[i];
        if (x && x->kind == GD_FAILED) return gd_failure();
        if (x && gd_dtype_is_float((gd_dtype)x->dtype)) {
            if (x->requires_grad) p->graph = true;
            else if (x->kind == GD_VALUE) x = gd_requires_grad(gd_detach(x));
            if (x->kind == GD_FAILED) return gd_failure();
            p->float_at[n] = i;
            floats[n++] = x;
        }
        all[i] = x;
    }
    if (n == 0) return gd_fail(GD_E_DTYPE, "%s: none of the inputs is a float tensor", what);
    p->graph = p->graph && gd_grad_enabled();
    p->all = (gd_tensors){all, inputs.count};
    p->floats = (gd_tensors){floats, n};
    return GD_OK;
}

/* Calls fn with the tape on. */
static gd_tensor *call_taped(gd_fn fn, gd_tensors inputs, void *user) {
    int before = gd_enable_grad_begin();
    gd_tensor *y = fn(gd_list_for(GD_READER_FN, inputs), user);
    gd_grad_mode_end(&before);
    return y;
}

static gd_status check_fn_result(const gd_tensor *y, const char *what) {
    if (!y) return gd_fail(GD_E_ARGUMENT, "%s: the function returned NULL", what);
    if (y->kind == GD_FAILED) return gd_failure();
    if (!gd_dtype_is_float((gd_dtype)y->dtype))
        return gd_fail(GD_E_DTYPE, "%s: the function's result is %s, not a float tensor", what,
                       gd_dtype_name((gd_dtype)y->dtype));
    return GD_OK;
}

static gd_tensor *zeros_like(const gd_tensor *t) {
    gd_device *before = gd_this_thread.device;
    gd_this_thread.device = t->device;
    gd_tensor *zeros = gd_full(gd_shape_of(t->rank, t->dims), 0.0, .dtype = (gd_dtype)t->dtype);
    gd_this_thread.device = before;
    return zeros;
}

/* Checks the tangent or the vector of input i. */
static gd_status check_tangent(const gd_tensor *v, const gd_tensor *x, int64_t i, const char *what,
                               const char *name) {
    char a[160], b[160];
    if (v->kind == GD_FAILED) return gd_failure();
    if (v->rank != x->rank || memcmp(v->dims, x->dims, sizeof(int64_t) * x->rank) != 0)
        return gd_fail(GD_E_SHAPE, "%s: %s %lld is %s, its input %s", what, name, (long long)i,
                       gd_describe(v, a, sizeof a), gd_describe(x, b, sizeof b));
    return GD_OK;
}

/* Collects the tangents of the float inputs; zeros for NULL. */
static gd_status collect_tangents(const prepared *p, gd_tensors given, const char *what,
                                  const char *name, gd_tensor **fitted) {
    if (given.count != p->all.count || !given.at)
        return gd_fail(GD_E_ARGUMENT, "%s: %lld %ss for %lld inputs", what, (long long)given.count,
                       name, (long long)p->all.count);
    for (int64_t k = 0; k < p->floats.count; k++) {
        int64_t i = p->float_at[k];
        const gd_tensor *x = p->floats.at[k];
        gd_tensor *v = given.at[i];
        if (v) GD_TRY(check_tangent(v, x, i, what, name));
        else v = zeros_like(x);
        if (v->kind == GD_VALUE && v->dtype != x->dtype) v = gd_cast(v, (gd_dtype)x->dtype);
        if (v->kind == GD_FAILED) return gd_failure();
        fitted[k] = v;
    }
    return GD_OK;
}

/* Ends a transform: passes the result to the outer scope, or records the failure. */
static gd_tensor *finish_transform(gd_scope *scope, prepared *p, gd_status status, gd_tensor *y) {
    if (status == GD_OK && (!y || y->kind == GD_FAILED)) status = gd_failure();
    if (status == GD_OK) gd_keep(y);
    gd_scope_close(&scope);
    gd_free(p->float_at);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

/* A separate handle for a result that is one of the inputs. */
static gd_tensor *separate_handle(gd_tensor *y, bool graph) {
    if (!y || y->kind == GD_FAILED) return y;
    return graph ? gd_clone(y) : gd_detach(y);
}

/* --- J v -------------------------------------------------------------------------------------- */

/* The gradient g = J^T u is linear in u, so the gradient of <g, v> with respect to u is J v. */
static gd_status compute_jvp(gd_fn fn, const prepared *p, gd_tensors tangents, void *user,
                             gd_tensor **result) {
    gd_tensor **v = gd_list_new(p->floats.count), **g_used = gd_list_new(p->floats.count),
              **v_used = gd_list_new(p->floats.count);
    if (!v || !g_used || !v_used) return gd_fail(GD_E_MEMORY, "gd_jvp: no memory for a list");
    GD_TRY(collect_tangents(p, tangents, "gd_jvp", "tangent", v));
    gd_tensor *y = call_taped(fn, p->all, user);
    GD_TRY(check_fn_result(y, "gd_jvp"));
    gd_tensor *u = zeros_like(y);
    *result = u; /* fn does not depend on its inputs */
    if (!y->requires_grad && y->kind == GD_VALUE) return GD_OK;
    if (u->kind == GD_VALUE) u = gd_requires_grad(u);
    gd_tensors g = gd_grad(gd_list(y), p->floats, .gradients = gd_list(u), .create_graph = true,
                           .allow_unused = true);
    if (g.count == 0 || gd_tensor_is_error(g.at[0])) return gd_failure();
    int64_t n = 0;
    for (int64_t k = 0; k < g.count; k++)
        if (g.at[k] && (g.at[k]->requires_grad || g.at[k]->kind == GD_SYMBOL)) {
            g_used[n] = g.at[k];
            v_used[n++] = v[k];
        }
    *result = zeros_like(y);
    if (n == 0) return GD_OK;
    bool graph = p->graph;
    for (int64_t k = 0; k < n; k++) graph |= v_used[k]->requires_grad && gd_grad_enabled();
    gd_tensors jv =
        gd_grad(((gd_tensors){g_used, n}), gd_list(u), .gradients = (gd_tensors){v_used, n},
                .create_graph = graph, .retain_graph = true, .allow_unused = true);
    if (jv.count == 0) return gd_failure();
    if (jv.at[0]) *result = separate_handle(jv.at[0], graph);
    return GD_OK;
}

gd_tensor *gd_jvp_at(const char *site, gd_fn fn, gd_tensors inputs, gd_tensors tangents,
                     void *user) {
    GD_CALLED_FROM(site);
    if (!fn) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_jvp: the function is NULL"));
    gd_scope *scope = gd_scope_open();
    prepared p;
    gd_tensor *y = NULL;
    gd_status status = prepare_inputs(inputs, "gd_jvp", &p);
    if (status == GD_OK) status = compute_jvp(fn, &p, tangents, user, &y);
    return finish_transform(scope, &p, status, y);
}

/* --- the Jacobian ----------------------------------------------------------------------------- */

enum { ROWS_AT_ONCE = 128 }; /* operands of one cat */

/* Concatenates rows of shape (n_k, ...), at most ROWS_AT_ONCE at a time. */
static gd_tensor *concatenate_rows(gd_tensor **rows, int64_t n) {
    while (n > 1) {
        int64_t joined = 0;
        for (int64_t i = 0; i < n; i += ROWS_AT_ONCE) {
            int64_t count = n - i < ROWS_AT_ONCE ? n - i : ROWS_AT_ONCE;
            rows[joined++] = gd_cat(((gd_tensors){rows + i, count}), .axis = 0);
        }
        n = joined;
    }
    return rows[0];
}

/* The gradient of element `row` of y with respect to x, of shape (1, numel of x). */
static gd_tensor *jacobian_row(gd_tensor *y, gd_tensor *x, int64_t row, char *host, bool graph) {
    size_t size = gd_dtype_size((gd_dtype)y->dtype);
    int64_t numel = gd_numel(x->rank, x->dims);
    GD_SCOPE;
    gd_tensor *e = zeros_like(y);
    if (e->kind == GD_FAILED) return e;
    gd_store_f64((gd_dtype)y->dtype, host + (size_t)row * size, 1.0);
    gd_status status = gd_copy_in(e, host, (size_t)gd_numel(y->rank, y->dims) * size);
    memset(host + (size_t)row * size, 0, size);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_tensors g = gd_grad(gd_list(y), gd_list(x), .gradients = gd_list(e), .create_graph = graph,
                           .retain_graph = true, .allow_unused = true);
    if (g.count == 0) return &gd_error_tensor;
    return gd_keep(gd_reshape(g.at[0] ? g.at[0] : zeros_like(x), gd_dims(1, numel)));
}

static gd_status compute_jacobian(gd_fn fn, const prepared *p, gd_tensor *x, void *user,
                                  gd_tensor **result) {
    char a[160], b[160];
    gd_tensor *y = call_taped(fn, p->all, user);
    GD_TRY(check_fn_result(y, "gd_jacobian"));
    if (y->kind != GD_VALUE)
        return gd_fail(GD_E_UNSUPPORTED,
                       "gd_jacobian: symbols of a graph have no elements to go through");
    gd_shape shape = {.rank = y->rank + x->rank, .form = 1};
    if (shape.rank > GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "gd_jacobian: %s by %s has more than %d dimensions",
                       gd_describe(y, a, sizeof a), gd_describe(x, b, sizeof b), GD_MAX_RANK);
    for (int k = 0; k < shape.rank; k++)
        shape.at[k] = k < y->rank ? y->dims[k] : x->dims[k - y->rank];
    int64_t rows = gd_numel(y->rank, y->dims);
    if (rows == 0 || gd_numel(x->rank, x->dims) == 0 || !y->requires_grad) {
        *result = gd_full(shape, 0.0, .dtype = (gd_dtype)x->dtype);
        return GD_OK;
    }
    char *host = gd_calloc((size_t)rows, gd_dtype_size((gd_dtype)y->dtype));
    gd_tensor **list = gd_malloc((size_t)rows * sizeof *list);
    gd_status status = host && list ? GD_OK
                                    : gd_fail(GD_E_MEMORY, "gd_jacobian: no memory for %lld rows",
                                              (long long)rows);
    for (int64_t i = 0; i < rows && status == GD_OK; i++) {
        list[i] = jacobian_row(y, x, i, host, p->graph);
        if (list[i]->kind == GD_FAILED) status = gd_failure();
    }
    if (status == GD_OK) *result = gd_reshape(concatenate_rows(list, rows), shape);
    gd_free(host);
    gd_free(list);
    return status;
}

gd_tensor *gd_jacobian_at(const char *site, gd_fn fn, gd_tensors inputs, int input, void *user) {
    GD_CALLED_FROM(site);
    if (!fn) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_jacobian: the function is NULL"));
    gd_scope *scope = gd_scope_open();
    prepared p;
    gd_tensor *y = NULL, *x = NULL;
    gd_status status = prepare_inputs(inputs, "gd_jacobian", &p);
    for (int64_t k = 0; k < p.floats.count; k++)
        if (p.float_at[k] == input) x = p.floats.at[k];
    if (status == GD_OK && !x)
        status = gd_fail(GD_E_INDEX, "gd_jacobian: there is no float input %d among %lld", input,
                         (long long)inputs.count);
    if (status == GD_OK) status = compute_jacobian(fn, &p, x, user, &y);
    return finish_transform(scope, &p, status, y);
}

/* --- Hessian times vectors -------------------------------------------------------------------- */

static gd_status compute_hvp(gd_fn fn, const prepared *p, gd_tensors vectors, void *user,
                             gd_tensor **results) {
    gd_tensor **v = gd_list_new(p->floats.count), **g_used = gd_list_new(p->floats.count),
              **v_used = gd_list_new(p->floats.count);
    char text[160];
    if (!v || !g_used || !v_used) return gd_fail(GD_E_MEMORY, "gd_hvp: no memory for a list");
    GD_TRY(collect_tangents(p, vectors, "gd_hvp", "vector", v));
    gd_tensor *y = call_taped(fn, p->all, user);
    GD_TRY(check_fn_result(y, "gd_hvp"));
    if (gd_numel(y->rank, y->dims) != 1)
        return gd_fail(GD_E_SHAPE, "gd_hvp: the function's result is %s; it must have one element",
                       gd_describe(y, text, sizeof text));
    gd_tensors g = {NULL, 0}, hv = {NULL, 0};
    int64_t n = 0;
    if (y->requires_grad || y->kind == GD_SYMBOL) {
        g = gd_grad(gd_list(y), p->floats, .create_graph = true, .allow_unused = true);
        if (g.count == 0 || gd_tensor_is_error(g.at[0])) return gd_failure();
    }
    for (int64_t k = 0; k < g.count; k++)
        if (g.at[k] && (g.at[k]->requires_grad || g.at[k]->kind == GD_SYMBOL)) {
            g_used[n] = g.at[k];
            v_used[n++] = v[k];
        }
    if (n > 0) {
        hv = gd_grad(((gd_tensors){g_used, n}), p->floats, .gradients = (gd_tensors){v_used, n},
                     .create_graph = p->graph, .retain_graph = true, .allow_unused = true);
        if (hv.count == 0 || gd_tensor_is_error(hv.at[0])) return gd_failure();
    }
    for (int64_t k = 0; k < p->floats.count; k++) {
        gd_tensor *r = hv.count && hv.at[k] ? separate_handle(hv.at[k], p->graph)
                                            : zeros_like(p->floats.at[k]);
        if (r->kind == GD_FAILED) return gd_failure();
        results[p->float_at[k]] = r;
    }
    return GD_OK;
}

gd_tensors gd_hvp_at(const char *site, gd_fn fn, gd_tensors inputs, gd_tensors vectors,
                     void *user) {
    GD_CALLED_FROM(site);
    gd_tensor **results = gd_list_new(inputs.count);
    gd_status status = !results ? GD_E_MEMORY
                       : !fn    ? gd_fail(GD_E_ARGUMENT, "gd_hvp: the function is NULL")
                                : GD_OK;
    gd_scope *scope = gd_scope_open();
    prepared p = {.float_at = NULL};
    if (status == GD_OK) status = prepare_inputs(inputs, "gd_hvp", &p);
    if (status == GD_OK) status = compute_hvp(fn, &p, vectors, user, results);
    for (int64_t i = 0; status == GD_OK && i < inputs.count; i++) gd_keep(results[i]);
    gd_scope_close(&scope);
    gd_free(p.float_at);
    if (status == GD_OK) return (gd_tensors){results, inputs.count};
    gd_error_record(status);
    for (int64_t i = 0; results && i < inputs.count; i++) results[i] = &gd_error_tensor;
    return results && inputs.count > 0 ? (gd_tensors){results, inputs.count}
                                       : gd_list_of_errors(inputs.count);
}
