/* bodies.c - the body of an op in other ops gives the results of its kernel, in every dtype. */
#include "gradus/testing.h"
#include "suites.h"

static void check_variant(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "";
    run_result kernel, body;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    run_case(&s, &kernel);
    if (kernel.status != GD_OK) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    gd_set_op_bodies(true);
    run_case(&s, &body);
    gd_set_op_bodies(false);
    if (body.status != GD_OK) report_fail(c, dtype, "as its body: %s", gd_error_message());
    else if (results_agree(&kernel, &body, c->block, why)) report_pass();
    else report_fail(c, dtype, "body and kernel differ: %s", why);
}

void suite_bodies(const test_cases *cases) { each_variant(cases, ~0u, check_variant); }
