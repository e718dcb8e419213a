/* modes.c - every mode (harness/modes.c) gives the results of the eager call. */
#include "suites.h"

static const run_mode *mode;

static void check_variant(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *why_not = NULL, *no_grad;
    char why[512] = "";
    run_result eager, other;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    s.second = s.gradients && !mode->first_only && (dtype == GD_F32 || dtype == GD_F64) &&
               !c->block->nosecond && !c->nosecond;
    if (mode->available && !mode->available(c, &why_not)) {
        report_skip(why_not);
        return;
    }
    run_case(&s, &eager);
    s.shapes = eager.out;
    if (eager.status == GD_OK) mode->run(&s, &other);
    if (eager.status != GD_OK) report_fail(c, dtype, "%s", gd_error_message());
    else if (other.leaked)
        report_fail(c, dtype, "%s: leaks %lld objects", mode->name, (long long)other.leaked);
    else if (other.status != GD_OK)
        report_fail(c, dtype, "%s: %s", mode->name,
                    *other.message ? other.message : gd_error_message());
    else if (results_agree(&other, &eager, mode->same_bits ? NULL : c->block, why)) report_pass();
    else report_fail(c, dtype, "%s: %s", mode->name, why);
}

void suite_modes(const test_cases *cases) {
    sampling s = {.share = 5};
    while (modes[1 + s.turns]) s.turns++;
    for (; s.turn < s.turns; s.turn++) {
        mode = modes[1 + s.turn];
        each_variant_in_turn(
            cases, 1u << GD_F32 | 1u << GD_F64 | 1u << GD_BF16 | 1u << GD_I64 | 1u << GD_BOOL, s,
            check_variant);
    }
}
