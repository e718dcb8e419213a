/* macs.c - an op's rule for the number of multiply-adds (MACs) agrees with its body. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/call.h"
#include "dispatch/macs.h"
#include "suites.h"

extern const char *only_op, *only_family;

/* Compares rule and body; returns a description of the difference, or NULL. */
static const char *compare_macs(const gd_op *op, const gd_attrs *attrs, gd_tensor *const *in,
                                int n_in, gd_tensor *const *out, int n_out, double recomputed) {
    static char why[300];
    double macs, body_macs;
    if (gd_tensor_macs(op, gd_attrs_data(attrs), in, n_in, out, n_out, &macs) != GD_OK)
        return gd_latest_failure();
    snprintf(why, sizeof why, "%g multiply-adds", macs);
    if (!(macs >= 0) || macs != floor(macs)) return why;
    /* the body of a transposed convolution multiplies the zeros that it inserts */
    if (!op->macs || !op->expand || strncmp(op->name, "conv_", 5) == 0) return NULL;
    gd_op without_rule = *op;
    without_rule.macs = NULL;
    if (gd_tensor_macs(&without_rule, gd_attrs_data(attrs), in, n_in, out, n_out, &body_macs) !=
        GD_OK)
        return gd_latest_failure();
    snprintf(why, sizeof why, "the rule gives %g multiply-adds, the body has %g", macs, body_macs);
    return macs + recomputed == body_macs ? NULL : why;
}

static void check_case(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const run_setup setup = {.c = c, .dtype = dtype};
    run_result r;
    gd_tensor *in[MAX_TENSORS];
    run_case(&setup, &r);
    const int n_in = build_inputs(&setup, in);
    const char *why = r.status != GD_OK
                          ? gd_error_message()
                          : compare_macs(c->block->op, build_attrs(c), in, n_in, r.out, r.n_out, 0);
    if (why) report_fail(c, dtype, "%s", why);
    else report_pass();
}

/* Internal ops without cases. "2,3" is a tensor of that shape, "." a scalar, "-" absent. */
#define LAYER(I, G, h0, c0) "7,2," I " " h0 " " c0 " - " G "," I " " G ",5 " G " " G
#define BACK(gc, I, G, h0, c0, saved, cells) \
    "7,2,5 1,2,5 " gc ",2,5 " LAYER(I, G, h0, c0) " 7,2,5 7,2," saved " 7,2," cells
static const struct example {
    const char *op, *shapes, *options;
    double recomputed; /* MACs of values that the body recomputes and the op has saved */
} examples[] = {
    {"linear_relu", "4,3 5,3 5", "", 0},
    {"linear_relu", "2,4,3 5,3", "", 0},
    {"matmul_relu_grad", "4,3 3,5 4,5", "", 0},
    {"matmul_step", "4,5 4,3 3,5 .", "", 0},
    {"linear_grad", "4,3 4,5", "", 0},
    {"linear_step", "3,5 3 4,3 4,5 .", "", 0},
    {"attention_grad", "2,4,6,8 2,4,9,8 2,4,9,16 2,4,6,16 2,4,6 2,4,6,16", "", 0},
    {"attention_grad", "2,4,6,8 2,2,9,8 2,2,9,16 2,4,6,16 2,4,6 2,4,6,16",
     "grouped=true causal=true", 0},
    {"recurrent", LAYER("3", "5", "-", "-"), "cell=tanh", 0},
    {"recurrent", LAYER("3", "20", "1,2,5", "1,2,5"), "cell=lstm reverse=true", 0},
    {"recurrent", LAYER("3", "15", "1,2,5", "-"), "cell=gru", 0},
    {"recurrent_grad", BACK("0", "3", "5", "-", "-", "0", "0"), "cell=relu", 0},
    {"recurrent_grad", BACK("1", "3", "20", "1,2,5", "1,2,5", "20", "5"), "cell=lstm",
     7 * 2 * 20 * (3 + 5)},
    {"recurrent_grad", BACK("0", "3", "15", "1,2,5", "-", "20", "0"), "cell=gru",
     7 * 2 * 15 * (3 + 5)},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static int read_shapes(const char *text, gd_tensor **in) {
    int n = 0;
    for (char *end; *text; text = end + (*end == ' ')) {
        gd_shape shape = {.form = 1};
        end = (char *)(uintptr_t)text;
        if (*text == '-' || *text == '.') end++;
        else
            for (shape.at[shape.rank++] = strtoll(text, &end, 10); *end == ',';)
                shape.at[shape.rank++] = strtoll(end + 1, &end, 10);
        in[n++] = *text == '-' ? NULL : gd_zeros(shape);
    }
    return n;
}

static void check_example(const struct example *x) {
    GD_SCOPE;
    gd_tensor *in[MAX_TENSORS];
    const gd_op *op = gd_op_find(x->op);
    const int n_in = read_shapes(x->shapes, in);
    gd_attrs *attrs = gd_attrs_new(op);
    gd_attrs_parse(attrs, x->options);
    const gd_tensors y = gd_op_call(op, ((gd_tensors){in, n_in}), attrs);
    const char *why = gd_failed()
                          ? gd_error_message()
                          : compare_macs(op, attrs, in, n_in, y.at, (int)y.count, x->recomputed);
    if (why) report_fail(NULL, GD_F32, "%s %s: %s", x->op, x->options, why);
    else report_pass();
    gd_clear_error();
}

/* Every op with a rule and a body has a case or an example. */
static void check_covered(const test_cases *cases, const gd_op *op) {
    if (!op->macs || !op->expand) return;
    for (int b = 0; b < cases->n_blocks; b++)
        if (cases->blocks[b].op == op) return;
    for (int i = 0; i < EXAMPLES; i++)
        if (strcmp(examples[i].op, gd_op_name(op)) == 0) return;
    report_fail(NULL, GD_DTYPE_NONE,
                "%s_macs is compared with no body: the op has no case, and no example in macs.c",
                gd_op_name(op));
}

void suite_macs(const test_cases *cases) {
    each_variant(cases, 1u << GD_F32, check_case);
    if (only_op || only_family) return;
    for (int i = 0; i < EXAMPLES; i++) check_example(&examples[i]);
    for (int i = 0; i < gd_op_count(); i++) check_covered(cases, gd_op_at(i));
}
