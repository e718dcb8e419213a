/* inplace.c - an in-place twin writes what its base op returns, and has the same gradient. */
#include <stdio.h>
#include <string.h>

#include "suites.h"

static const gd_op *twin_of(const gd_op *op) {
    char name[128];
    snprintf(name, sizeof name, "%s_", gd_op_name(op));
    const gd_op *twin = gd_op_find(name);
    return twin && gd_op_flags(twin) & GD_OP_INPLACE ? twin : NULL;
}

static bool same_shape(const gd_tensor *a, const gd_tensor *b) {
    gd_shape x = gd_tensor_shape(a), y = gd_tensor_shape(b);
    return x.rank == y.rank && memcmp(x.at, y.at, sizeof(int64_t) * (size_t)x.rank) == 0;
}

/* The options of the case as options of the twin. */
static gd_attrs *attrs_of_twin(const gd_op *twin, const test_case *c) {
    gd_attrs *attrs = gd_attrs_new(twin);
    gd_attrs_parse(attrs, c->options);
    return attrs;
}

/* Calls the twin on a copy of input 0: the tape does not allow writes into a leaf. */
static void run_twin(const gd_op *twin, const run_setup *s, run_result *r, bool *returned_input) {
    gd_tensor *in[MAX_TENSORS], *leaves[MAX_TENSORS];
    *r = (run_result){.status = GD_OK};
    gd_clear_error();
    gd_seed(7);
    r->n_in = build_inputs(s, leaves);
    memcpy(in, leaves, sizeof in);
    in[0] = gd_clone(leaves[0]);
    gd_tensors y = gd_op_call(twin, (gd_tensors){in, r->n_in}, attrs_of_twin(twin, s->c));
    r->status = gd_error_status();
    if (r->status != GD_OK) return;
    *returned_input = y.count == 1 && y.at[0] == in[0];
    r->out[r->n_out++] = y.at[0];
    if (!s->gradients || !gd_tensor_requires_grad(y.at[0])) return;
    for (int i = 0; i < r->n_in; i++) {
        if (!gd_tensor_requires_grad(leaves[i])) continue;
        gd_tensors g = gd_grad(gd_list(y.at[0]), gd_list(leaves[i]),
                               .gradients = gd_list(loss_weights(y.at[0], 0)), .retain_graph = true,
                               .allow_unused = true);
        if (gd_failed()) break;
        r->grad[i] = g.at[0];
    }
    r->status = gd_error_status();
    r->has_grad = true;
}

static void check_variant(const test_case *c, gd_dtype dtype) {
    const gd_op *twin = twin_of(c->block->op);
    const char *no_grad;
    char why[512] = "";
    if (!twin) return;
    GD_SCOPE;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    run_result base, written;
    run_case(&s, &base);
    gd_tensor *x = case_tensor(c, 0, dtype, LAYOUT_ROWS, false);
    if (base.status != GD_OK || base.n_out != 1) return; /* other suites report it */
    bool same_form =
             same_shape(base.out[0], x) && gd_tensor_dtype(base.out[0]) == gd_tensor_dtype(x),
         returned_input = false;
    run_twin(twin, &s, &written, &returned_input);
    if (!same_form) { /* another shape is an error, another dtype may be cast */
        if (!same_shape(base.out[0], x) && written.status != GD_E_SHAPE)
            report_fail(c, dtype, "%s wrote a result of another shape", gd_op_name(twin));
        else report_pass();
        return;
    }
    if (written.status == GD_E_STATE && strstr(gd_error_message(), "overwritten"))
        report_skip("gradient: the op overwrites a value that its gradient needs, and reports it");
    else if (written.status != GD_OK)
        report_fail(c, dtype, "%s: %s", gd_op_name(twin), gd_error_message());
    else if (!returned_input)
        report_fail(c, dtype, "%s did not return its first input", gd_op_name(twin));
    else if (results_agree(&written, &base, NULL, why)) report_pass();
    else report_fail(c, dtype, "%s: %s", gd_op_name(twin), why);
}

void suite_inplace(const test_cases *cases) {
    each_variant(cases, 1u << GD_F32 | 1u << GD_F64 | 1u << GD_BF16 | 1u << GD_I64, check_variant);
}
