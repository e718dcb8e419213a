/* strides.c - strided inputs give the results of contiguous copies. */
#include <stdio.h>

#include "suites.h"

/* Compares input `which` (-1: all inputs) in a layout with row-major inputs of the same values. */
static void compare_layout(const test_case *c, gd_dtype dtype, int which, layout kind,
                           bool gradients) {
    GD_SCOPE;
    char why[512] = "";
    run_result strided, expected;
    run_setup s = {.c = c, .dtype = dtype, .gradients = gradients}, contiguous = s;
    int n = case_tensor_count(c), changed = 0;
    for (int i = 0; i < n && i < MAX_TENSORS; i++) {
        const char *name;
        int k;
        const case_item *item = case_item_at(c, i, &name, &k);
        if (!item || (which >= 0 && i != which) || !layout_applies(kind, item)) continue;
        if (kind == LAYOUT_EXPANDED && input_is_mutated(c->block->op, i)) continue;
        s.layouts[i] = kind;
        contiguous.like_expanded[i] = s.like_expanded[i] = kind == LAYOUT_EXPANDED;
        changed++;
    }
    if (changed == 0 || (which < 0 && changed < 2)) return;
    run_case(&contiguous, &expected);
    if (expected.status != GD_OK) { /* repeated values may be invalid for the op */
        if (kind == LAYOUT_EXPANDED) report_skip("not valid with repeated values");
        else report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    run_case(&s, &strided);
    if (strided.status != GD_OK)
        report_fail(c, dtype, "%s input %d: %s", layout_name(kind), which, gd_error_message());
    else if (results_agree(&strided, &expected, c->block, why)) report_pass();
    else report_fail(c, dtype, "%s input %d: %s", layout_name(kind), which, why);
}

static void check_variant(const test_case *c, gd_dtype dtype) {
    const char *no_grad;
    bool gradients = case_has_gradient(c, dtype, &no_grad);
    int n = case_tensor_count(c);
    for (int kind = LAYOUT_COLUMNS; kind < LAYOUT_COUNT; kind++)
        for (int i = n > 1 ? -1 : 0; i < n; i++)
            compare_layout(c, dtype, i, (layout)kind, gradients);
}

void suite_strides(const test_cases *cases) {
    each_variant_in_turn(cases,
                         1u << GD_F32 | 1u << GD_F16 | 1u << GD_I64 | 1u << GD_U8 | 1u << GD_BOOL,
                         (sampling){.share = 5, .turns = 1}, check_variant);
}
