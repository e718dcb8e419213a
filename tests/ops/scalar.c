/* scalar.c - kernels printed in the scalar dialect give the results of the reference kernels, in
 * every dtype: elementwise ops, their gradients, and reductions. */
#include <stdlib.h>

#include "gradus/testing.h"
#include "scalar_kernels.h"
#include "suites.h"

/* Whether the op may have a kernel in the dialect. */
static bool has_source(const gd_op *op) { return op->ir || op->facts.reduces; }

static void collect_sources(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *no_grad;
    run_result r;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    if (has_source(c->block->op)) run_case(&s, &r);
    gd_clear_error();
}

/* Checks the case with all inputs in a layout: strides are arguments of the same kernel. */
static void check_layout(const test_case *c, gd_dtype dtype, layout kind) {
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "";
    run_result result, expected;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    for (int i = 0; i < case_tensor_count(c); i++) s.layouts[i] = kind;
    const int64_t runs = scalar.runs;
    run_case(&s, &result);
    if (result.status != GD_OK) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    if (scalar.runs == runs) return; /* the sample has no kernel of this case */
    gd_set_reference_kernels(true);
    run_case(&s, &expected);
    gd_set_reference_kernels(false);
    if (results_agree(&result, &expected, c->block, why)) report_pass();
    else report_fail(c, dtype, "in the scalar dialect, %s inputs: %s", layout_name(kind), why);
}

static void check_variant(const test_case *c, gd_dtype dtype) {
    if (!has_source(c->block->op)) return;
    check_layout(c, dtype, LAYOUT_ROWS);
    check_layout(c, dtype, LAYOUT_COLUMNS);
    check_layout(c, dtype, LAYOUT_STEPPED);
}

void suite_scalar(const test_cases *cases) {
    enum { SAMPLE = 4 }; /* one in 4 kernels is compiled */
    const char *full = getenv("GRADUS_TEST_FULL");
    scalar_begin(full && *full == '1' ? 1 : SAMPLE);
    each_variant(cases, ~0u, collect_sources);
    const int compiled = scalar_compile();
    printf("  %d of %d kernels\n", compiled, scalar.count);
    if (compiled < 0)
        report_fail(NULL, GD_DTYPE_NONE, "some kernels of the scalar dialect do not compile");
    each_variant(cases, ~0u, check_variant);
    scalar_end();
}
