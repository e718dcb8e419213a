/* run.c - see run.h. */
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "report.h"

bool input_is_mutated(const gd_op *op, int i) {
    int n = gd_op_input_count(op);
    const gd_op_param *p = gd_op_input(op, i < n ? i : n - 1);
    return p && (p->mutated || (i == 0 && gd_op_flags(op) & GD_OP_INPLACE));
}

int build_inputs(const run_setup *s, gd_tensor **in) {
    int n = case_tensor_count(s->c);
    for (int i = 0; i < n; i++) {
        in[i] = case_tensor(s->c, i, s->dtype, s->layouts[i], s->like_expanded[i]);
        if (in[i] && s->gradients && gd_dtype_is_float(gd_tensor_dtype(in[i])) &&
            !input_is_mutated(s->c->block->op, i))
            in[i] = gd_requires_grad(in[i]);
    }
    while (n > 0 && !in[n - 1]) n--; /* drop absent inputs at the end */
    return n;
}

gd_attrs *build_attrs(const test_case *c) {
    gd_attrs *attrs = gd_attrs_new(c->block->op);
    gd_attrs_parse(attrs, c->options);
    return attrs;
}

bool case_has_gradient(const test_case *c, gd_dtype dtype, const char **why) {
    *why = NULL;
    bool any = false;
    for (int i = 0; i < case_tensor_count(c); i++)
        any |= gd_dtype_is_float(case_dtype(c, i, dtype)) && !input_is_mutated(c->block->op, i);
    if (!gd_op_differentiable(c->block->op)) *why = "the op has no gradient";
    else if (c->block->nograd) *why = c->block->nograd;
    else if (c->nograd) *why = "marked nograd";
    else if (!any) *why = "no float input";
    return !*why;
}

/* Gradients of the weighted sum of y by each input, into `grad`. `shapes` has a tensor of the shape
 * of each y. False if no y depends on an input, or on failure. */
static bool gradients_of(gd_tensor *const *in, int n_in, gd_tensor *const *y,
                         gd_tensor *const *shapes, int n_y, int salt, bool create_graph,
                         gd_tensor **grad) {
    gd_tensor *outs[MAX_TENSORS], *weights[MAX_TENSORS], *by[MAX_TENSORS];
    int n_outs = 0, n_by = 0, input_index[MAX_TENSORS];
    for (int k = 0; k < n_y; k++)
        if (y[k] && gd_tensor_requires_grad(y[k])) {
            outs[n_outs] = y[k];
            weights[n_outs++] = loss_weights(shapes[k], salt + k);
        }
    for (int i = 0; i < n_in; i++)
        if (in[i] && gd_tensor_requires_grad(in[i])) {
            input_index[n_by] = i;
            by[n_by++] = in[i];
        }
    if (n_outs == 0 || n_by == 0) return false;
    gd_tensors g = gd_grad(((gd_tensors){outs, n_outs}), ((gd_tensors){by, n_by}),
                           .create_graph = create_graph, .gradients = (gd_tensors){weights, n_outs},
                           .allow_unused = true);
    for (int k = 0; k < n_by && k < g.count; k++) grad[input_index[k]] = g.at[k];
    return !gd_failed();
}

gd_status differentiate(const run_setup *s, gd_tensor *const *in, gd_tensor *const *y, int n_y,
                        run_result *r) {
    enum { SALT = 5 }; /* so that the second order has other weights than the first */
    r->has_grad =
        gradients_of(in, r->n_in, y, s->shapes ? s->shapes : y, n_y, 0, s->second, r->grad);
    if (s->second && r->has_grad)
        r->has_second = gradients_of(in, r->n_in, r->grad, r->grad, r->n_in, SALT, false, r->grad2);
    return gd_error_status();
}

void run_case(const run_setup *s, run_result *r) {
    const gd_op *op = s->c->block->op;
    gd_tensor *in[MAX_TENSORS];
    *r = (run_result){.status = GD_OK};
    report_at(s->c, s->dtype);
    gd_clear_error();
    gd_seed(7); /* random ops draw the same numbers in every run of a case */
    r->n_in = build_inputs(s, in);
    gd_tensors y = gd_op_call(op, (gd_tensors){in, r->n_in}, build_attrs(s->c));
    r->status = gd_error_status();
    if (r->status != GD_OK) return;
    for (int64_t k = 0; k < y.count && r->n_out < MAX_TENSORS; k++) r->out[r->n_out++] = y.at[k];
    if (s->gradients) r->status = differentiate(s, in, r->out, r->n_out, r);
    for (int i = 0; i < r->n_in && r->n_out < MAX_TENSORS; i++)
        if (in[i] && input_is_mutated(op, i)) r->out[r->n_out++] = in[i];
}

double block_tolerance(const test_block *b, gd_dtype dtype) {
    double f32 = b->tolerance_f32 / 2e-5;
    switch (dtype) {
    case GD_F64: return b->tolerance_f64;
    case GD_F32: return b->tolerance_f32;
    default: return usual_tolerance(dtype) * fmax(1, sqrt(f32)); /* f16, bf16: errors grow less */
    }
}

static bool gradients_agree(gd_tensor *const *a, gd_tensor *const *b, int n,
                            const test_block *block, char *why) {
    char difference[300];
    for (int i = 0; i < n; i++) {
        if (!a[i] && !b[i]) continue;
        double t = block ? block_tolerance(block, gd_tensor_dtype(b[i] ? b[i] : a[i])) : 0;
        if (!tensors_agree(a[i], b[i], t, difference)) {
            snprintf(why, 512, "gradient of input %d: %s", i, difference);
            return false;
        }
    }
    return true;
}

bool results_agree(const run_result *a, const run_result *b, const test_block *block, char *why) {
    char difference[300];
    if (a->n_out != b->n_out) {
        snprintf(why, 512, "%d outputs, expected %d", a->n_out, b->n_out);
        return false;
    }
    double t = 0; /* that of the narrowest output: others may be computed from it */
    for (int k = 0; block && k < b->n_out; k++)
        t = fmax(t, block_tolerance(block, gd_tensor_dtype(b->out[k])));
    for (int k = 0; k < a->n_out; k++) {
        if (!tensors_agree(a->out[k], b->out[k], t, difference)) {
            snprintf(why, 512, "output %d: %s", k, difference);
            return false;
        }
    }
    if (a->has_grad && b->has_grad && !gradients_agree(a->grad, b->grad, a->n_in, block, why))
        return false;
    if (!a->has_second && !b->has_second) return true;
    if (gradients_agree(a->grad2, b->grad2, a->n_in, block, why)) return true;
    snprintf(difference, sizeof difference, "%.*s", (int)sizeof difference - 1, why);
    snprintf(why, 512, "second order: %s", difference);
    return false;
}
