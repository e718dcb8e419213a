/* reference.c - fast kernels give the results of the reference kernels, in every dtype of the
 * block. */
#include "gradus/testing.h"
#include "suites.h"

static void check_variant(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "";
    run_result fast, slow;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    run_case(&s, &fast);
    if (fast.status != GD_OK) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    gd_set_reference_kernels(true);
    run_case(&s, &slow);
    gd_set_reference_kernels(false);
    if (slow.status != GD_OK)
        report_fail(c, dtype, "with reference kernels: %s", gd_error_message());
    else if (results_agree(&fast, &slow, c->block, why)) report_pass();
    else report_fail(c, dtype, "differs from the reference kernels: %s", why);
}

void suite_reference(const test_cases *cases) { each_variant(cases, ~0u, check_variant); }
