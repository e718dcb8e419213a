/* dense.c - gd_dense: a layer that adds its variables to a graph. */
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/graph.h"
#include "gradus/nn.h"
#include "gradus/op.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"

/* An activation is an op with one input, one output and no required options. */
static gd_status check_activation(const char *name) {
    const gd_op *op = name ? gd_op_find(name) : NULL;
    if (!name) return GD_OK;
    if (!op)
        return gd_fail(GD_E_ARGUMENT, "gd_dense: there is no op '%s' for its activation", name);
    bool fits = gd_op_input_count(op) == 1 && gd_op_output_count(op) == 1;
    for (int i = 0; i < gd_op_attr_count(op); i++) fits &= !gd_op_attr_at(op, i)->required;
    return fits ? GD_OK
                : gd_fail(
                      GD_E_ARGUMENT,
                      "gd_dense: %s is not an activation: it has more than one input or output, or "
                      "required options",
                      name);
}

/* Checks everything before the first variable is added. */
static gd_status check_arguments(const gd_tensor *x, int64_t units, const gd_dense_options *o) {
    if (!gd_graph_building())
        return gd_fail(GD_E_STATE, "gd_dense adds variables to a graph, and none is being built; "
                                   "write GD_GRAPH(graph); first");
    if (!x) return gd_fail(GD_E_ARGUMENT, "gd_dense: x is NULL");
    if (!gd_dtype_is_float((gd_dtype)x->dtype))
        return gd_fail(GD_E_DTYPE, "gd_dense: x is %s; a layer takes f32, f64, f16 or bf16",
                       gd_dtype_name((gd_dtype)x->dtype));
    if (units < 1)
        return gd_fail(GD_E_ARGUMENT, "gd_dense: units is %lld; it must be at least 1",
                       (long long)units);
    if (x->rank < 1) return gd_fail(GD_E_SHAPE, "gd_dense: x is a scalar; it takes (..., n)");
    const int64_t n = x->dims[x->rank - 1];
    if (n == GD_UNKNOWN)
        return gd_fail(GD_E_SHAPE,
                       "gd_dense: the last size of x, which is a size of the weight, is not "
                       "known before a run; give it to the placeholder");
    const gd_tensor *w = o->weight;
    if (w && (w->rank != 2 || w->dims[0] != units || w->dims[1] != n))
        return gd_fail(GD_E_SHAPE, "gd_dense: weight must be (units, n), here (%lld, %lld)",
                       (long long)units, (long long)n);
    if (w && w->dtype != x->dtype)
        return gd_fail(GD_E_DTYPE, "gd_dense: weight is %s, x %s",
                       gd_dtype_name((gd_dtype)w->dtype), gd_dtype_name((gd_dtype)x->dtype));
    return check_activation(o->activation);
}

static gd_tensor *add_variable(const char *site, gd_tensor *initial, const char *name,
                               const gd_dense_options *o) {
    return gd_variable_at(
        site, initial,
        &(gd_variable_options){.name = o->name ? name : NULL, .trainable = o->trainable});
}

gd_tensor *gd_dense_at(const char *site, gd_tensor *x, int64_t units, const gd_dense_options *o) {
    o = o ? o : GD_DENSE_OPTIONS_();
    if (x && x->kind == GD_FAILED) return x;
    if (o->weight && o->weight->kind == GD_FAILED) return o->weight;
    gd_status status = check_arguments(x, units, o);
    if (status != GD_OK) {
        gd_error_location(site);
        return gd_tensor_fail(status);
    }
    const gd_dtype dtype = (gd_dtype)x->dtype;
    gd_block scope = {NULL};
    if (o->name) scope = gd_name_scope_begin(o->name);
    gd_tensor *initial = o->weight;
    if (!initial)
        initial =
            gd_init_xavier_uniform_at(site, gd_dims(units, x->dims[x->rank - 1]),
                                      &(gd_init_xavier_uniform_options){.gain = 1, .dtype = dtype});
    gd_tensor *w = add_variable(site, initial, "weight", o), *b = NULL;
    if (o->bias)
        b = add_variable(site,
                         gd_zeros_at(site, gd_dims(units), &(gd_zeros_options){.dtype = dtype}),
                         "bias", o);
    gd_tensor *y = gd_linear_at(site, x, w, b);
    if (o->activation) y = gd_call_at(site, o->activation, gd_list(y), NULL);
    if (o->name) gd_name_scope_end(&scope);
    return y;
}
