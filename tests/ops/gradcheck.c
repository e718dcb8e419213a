/* gradcheck.c - compares first- and second-order gradients with finite differences. */
#include <stdio.h>

#include "suites.h"

enum {
    LARGE = 1500,     /* input elements of a case; larger ones need GRADUS_TEST_FULL=1 */
    MOVED = 1000,     /* elements of each input that gradcheck moves */
    MOVED_DEVICE = 6, /* the same on a device, where small calls are slow */
};

static bool has_narrow_result; /* not f64: finite differences would show its rounding */

/* The op as a function with one float result: its only one, or a weighted sum of all. */
static gd_tensor *call_op(gd_tensors inputs, void *user) {
    const test_case *c = user;
    gd_tensor *in[MAX_TENSORS], *sum = NULL;
    for (int64_t i = 0; i < inputs.count; i++) {
        in[i] = inputs.at[i];
        if (in[i] && input_is_mutated(c->block->op, (int)i)) in[i] = gd_clone(in[i]);
    }
    gd_tensors y = gd_op_call(c->block->op, (gd_tensors){in, inputs.count}, build_attrs(c));
    int n = 0;
    for (int64_t k = 0; k < y.count; k++) n += gd_dtype_is_float(gd_tensor_dtype(y.at[k]));
    for (int64_t k = 0; k < y.count; k++) {
        if (!gd_dtype_is_float(gd_tensor_dtype(y.at[k]))) continue;
        gd_tensor *part = n == 1 ? y.at[k] : gd_sum(gd_mul(y.at[k], loss_weights(y.at[k], (int)k)));
        if (gd_tensor_dtype(part) != GD_F64) has_narrow_result = true;
        if (gd_tensor_dtype(part) != GD_F64) part = gd_cast(part, GD_F64);
        sum = sum ? gd_add(sum, part) : part;
    }
    return sum ? sum : gd_failed() ? gd_detach(NULL) : gd_full(gd_dims(), 0.0, .dtype = GD_F64);
}

static int64_t input_elements(const test_case *c) {
    int64_t elements = 0;
    for (int i = 0; i < case_tensor_count(c); i++) {
        const char *name;
        int item;
        const case_item *x = case_item_at(c, i, &name, &item);
        int64_t n = x != NULL;
        for (int k = 0; x && k < x->dims.rank; k++) n *= x->dims.at[k];
        elements += n;
    }
    return elements;
}

/* Why the case cannot be checked; NULL: it can. */
static const char *skip_reason(const test_case *c) {
    const char *why;
    bool any = false;
    if (!case_has_gradient(c, GD_F64, &why)) return why;
    if (c->flexible && !(c->block->dtypes >> GD_F64 & 1)) return "not for f64";
    for (int i = 0; i < case_tensor_count(c); i++) {
        const char *name;
        int item;
        const case_item *x = case_item_at(c, i, &name, &item);
        if (!x) continue;
        bool checked = case_dtype(c, i, GD_F64) == GD_F64;
        any |= checked;
        if (checked && x->kind == KIND_SPECIAL) return "special values";
        if (checked && x->kind == KIND_TIES) return "ties";
    }
    if (!any) return "no f64 input";
    if (input_elements(c) > LARGE && !test_full() && !only_op)
        return "large (GRADUS_TEST_FULL=1 runs it)";
    return NULL;
}

static int64_t moved_elements(void) {
    return test_full() || !test_on_device() ? MOVED : MOVED_DEVICE;
}

static void check_case(const test_case *c) {
    GD_SCOPE;
    gd_tensor *in[MAX_TENSORS];
    run_setup s = {.c = c, .dtype = GD_F64};
    gd_clear_error();
    gd_seed(7);
    report_at(c, GD_F64);
    int n = build_inputs(&s, in);
    for (int i = 0; i < n; i++)
        if (gd_tensor_dtype(in[i]) == GD_F64 && !input_is_mutated(c->block->op, i))
            gd_requires_grad(in[i]);
    has_narrow_result = false;
    { /* skip results without a gradient, such as integers */
        GD_SCOPE;
        gd_tensor *y = call_op((gd_tensors){in, n}, (void *)c);
        if (gd_failed()) {
            report_fail(c, GD_F64, "%s", gd_error_message());
            return;
        }
        if (!gd_tensor_requires_grad(y)) {
            report_skip("the result does not require grad");
            return;
        }
        if (has_narrow_result) {
            report_skip("the result is narrower than f64");
            return;
        }
    }
    const char *no_second = c->block->nosecond ? c->block->nosecond
                            : c->nosecond      ? "second order: marked nosecond"
                                               : NULL;
    gd_status status = gd_gradcheck(call_op, ((gd_tensors){in, n}), (void *)c,
                                    .second_order = false, .elements = moved_elements());
    if (status == GD_OK) report_pass();
    else report_fail(c, GD_F64, "%s", gd_error_message());
    if (no_second) report_skip(no_second);
    if (no_second || status != GD_OK) return;
    status = gd_gradcheck(call_op, ((gd_tensors){in, n}), (void *)c, .second_order = true,
                          .elements = moved_elements());
    if (status == GD_OK) report_pass();
    else report_fail(c, GD_F64, "%s", gd_error_message());
}

/* The case of a block with the fewest input elements whose gradients are checked; NULL: none. */
static const test_case *smallest_case(const test_block *b) {
    const test_case *smallest = NULL;
    for (int k = 0; k < b->n_cases; k++)
        if (!skip_reason(&b->cases[k]) &&
            (!smallest || input_elements(&b->cases[k]) < input_elements(smallest)))
            smallest = &b->cases[k];
    return smallest;
}

/* The quick form checks one case of each op on devices. */
void suite_gradcheck(const test_cases *cases) {
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        const test_case *only = test_quick() && test_on_device() ? smallest_case(block) : NULL;
        for (int k = 0; k < block->n_cases; k++) {
            const char *why = skip_reason(&block->cases[k]);
            if (only && only != &block->cases[k]) continue;
            if (why) report_skip(why);
            else check_case(&block->cases[k]);
        }
    }
}
