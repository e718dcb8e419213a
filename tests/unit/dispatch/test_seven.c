/* test_seven.c - seven ops of very different kinds, end to end.
 *
 * The op table must support an elementwise op (tanh), an op with a window (conv2d), a list of
 * outputs that are views (split), random numbers (dropout), a recurrence with a list of inputs
 * (lstm), an output with a data-dependent size (masked_select), and an op that writes its input
 * (add_). Each is called as a C function, by name, on symbols, and on a device whose memory the
 * host cannot read; the value and its gradients of first and second order agree everywhere.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/test/device.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "graph/build/trace.h"
#include "graph/run/evaluate.h"
#include "test.h"

enum { MAX_INPUTS = 8 };

typedef struct op_case {
    const char *name;
    int n_in, n_mask;          /* inputs; those from n_mask on are bool */
    gd_shape dims[MAX_INPUTS]; /* of the inputs */
    gd_tensor *(*typed)(gd_tensor **x);
    gd_tensor *(*by_name)(gd_tensor **x);
} op_case;

/* --- the ops ---------------------------------------------------------------------------------- */

static gd_tensor *tanh_typed(gd_tensor **x) { return gd_tanh(x[0]); }
static gd_tensor *tanh_named(gd_tensor **x) { return gd_call("tanh", gd_list(x[0]), ""); }

static gd_tensor *conv2d_typed(gd_tensor **x) {
    return gd_conv2d(x[0], x[1], x[2], .stride = 2, .padding = {1, 0});
}
static gd_tensor *conv2d_named(gd_tensor **x) {
    return gd_call("conv2d", gd_list(x[0], x[1], x[2]), "stride=2 padding=1,0");
}

/* Uses every output with its own weight. */
static gd_tensor *weighted_sum(gd_tensors parts) {
    gd_tensor *y = parts.at[0];
    for (int64_t i = 1; i < parts.count; i++)
        y = gd_add(gd_sin(y), gd_sum(gd_exp(parts.at[i]), .axis = 0, .keepdim = true));
    return y;
}
static gd_tensor *split_typed(gd_tensor **x) { return weighted_sum(gd_split(x[0], gd_dims(2))); }
static gd_tensor *split_named(gd_tensor **x) {
    gd_attrs *attrs = gd_attrs_new(gd_op_find("split"));
    gd_attrs_set_int(attrs, "sizes", 2);
    return weighted_sum(gd_op_call(gd_op_find("split"), gd_list(x[0]), attrs));
}

static gd_tensor *dropout_typed(gd_tensor **x) { return gd_dropout(gd_exp(x[0]), .p = 0.4); }
static gd_tensor *dropout_named(gd_tensor **x) {
    return gd_call("dropout", gd_list(gd_exp(x[0])), "p=0.4");
}

static gd_tensor *sum_of_outputs(gd_tensor *y, gd_tensor *h, gd_tensor *c) {
    return gd_add(gd_sum(gd_square(y), .axis = 0), gd_mul(h, c));
}
static gd_tensor *lstm_typed(gd_tensor **x) {
    gd_lstm_outputs o = gd_lstm(x[0], NULL, NULL, NULL, gd_list(x[1], x[2], x[3], x[4]));
    return sum_of_outputs(o.y, o.h, o.c);
}
static gd_tensor *lstm_named(gd_tensor **x) {
    gd_tensors o = gd_op_call(gd_op_find("lstm"),
                              gd_list(x[0], NULL, NULL, NULL, x[1], x[2], x[3], x[4]), NULL);
    return o.count == 3 ? sum_of_outputs(o.at[0], o.at[1], o.at[2]) : NULL;
}

static gd_tensor *masked_select_typed(gd_tensor **x) {
    return gd_masked_select(gd_exp(x[0]), x[1]);
}
static gd_tensor *masked_select_named(gd_tensor **x) {
    return gd_call("masked_select", gd_list(gd_exp(x[0]), x[1]), "");
}

static gd_tensor *add_typed(gd_tensor **x) {
    gd_tensor *y = gd_sin(x[0]);
    gd_add_(y, gd_square(x[1]));
    return gd_mul(y, x[0]);
}
static gd_tensor *add_named(gd_tensor **x) {
    gd_tensor *y = gd_call("sin", gd_list(x[0]), "");
    gd_call("add_", gd_list(y, gd_square(x[1])), "");
    return gd_mul(y, x[0]);
}

static const op_case op_cases[] = {
    {"tanh", 1, 1, {{{3, 4}, 2, 1}}, tanh_typed, tanh_named},
    {"conv2d",
     3,
     3,
     {{{2, 3, 7, 6}, 4, 1}, {{4, 3, 3, 2}, 4, 1}, {{4}, 1, 1}},
     conv2d_typed,
     conv2d_named},
    {"split", 1, 1, {{{5, 3}, 2, 1}}, split_typed, split_named},
    {"dropout", 1, 1, {{{6, 7}, 2, 1}}, dropout_typed, dropout_named},
    {"lstm",
     5,
     5,
     {{{4, 2, 3}, 3, 1}, {{20, 3}, 2, 1}, {{20, 5}, 2, 1}, {{20}, 1, 1}, {{20}, 1, 1}},
     lstm_typed,
     lstm_named},
    {"masked_select",
     2,
     1,
     {{{4, 5}, 2, 1}, {{4, 5}, 2, 1}},
     masked_select_typed,
     masked_select_named},
    {"add_", 2, 2, {{{3, 4}, 2, 1}, {{4}, 1, 1}}, add_typed, add_named},
};

/* --- value, first and second order gradients -------------------------------------------------- */

enum { RESULTS = 1 + 2 * MAX_INPUTS };

/* Computes the sum of squares (so that even a linear op has a second order) and its gradients for
 * all inputs; the second order is that of the sum of squares of the first. Returns the number of
 * tensors in `out`. */
static int compute_gradients(const op_case *op, gd_tensor *(*call)(gd_tensor **), gd_tensor **x,
                             gd_tensor **out) {
    int n = 0;
    gd_tensor *loss = gd_sum(gd_square(call(x)));
    gd_tensors by = {x, op->n_mask};
    gd_tensors first = gd_grad(gd_list(loss), by, .create_graph = true);
    if (gd_failed()) return 0;
    gd_tensor *size = gd_sum(gd_square(first.at[0]));
    for (int i = 1; i < op->n_mask; i++) size = gd_add(size, gd_sum(gd_square(first.at[i])));
    gd_tensors second = gd_grad(gd_list(size), by);
    if (gd_failed()) return 0;
    out[n++] = loss;
    for (int i = 0; i < op->n_mask; i++) out[n++] = first.at[i];
    for (int i = 0; i < op->n_mask; i++) out[n++] = second.at[i];
    return n;
}

static void make_inputs(const op_case *op, gd_tensor **x) {
    gd_seed(3);
    for (int i = 0; i < op->n_in; i++) {
        x[i] = i < op->n_mask ? gd_mul(gd_randn(op->dims[i], .dtype = GD_F64), gd_scalar(0.3))
                              : gd_gt(gd_randn(op->dims[i]), gd_scalar(0));
    }
    gd_seed(11); /* the same random numbers in every mode */
}

static int run_eager(const op_case *op, gd_tensor *(*call)(gd_tensor **), gd_tensor **out) {
    gd_tensor *x[MAX_INPUTS];
    make_inputs(op, x);
    for (int i = 0; i < op->n_mask; i++) gd_requires_grad(x[i]);
    return compute_gradients(op, call, x, out);
}

static int run_as_symbols(const op_case *op, gd_tensor *(*call)(gd_tensor **), gd_tensor **out) {
    gd_tensor *x[MAX_INPUTS], *symbols[MAX_INPUTS], *fetches[RESULTS];
    make_inputs(op, x);
    for (int i = 0; i < op->n_in; i++)
        symbols[i] = gd_symbol(op->dims[i], gd_tensor_dtype(x[i]), NULL);
    int n = compute_gradients(op, call, symbols, fetches);
    gd_tensors got = gd_evaluate_nodes((gd_tensors){fetches, n}, (gd_tensors){symbols, op->n_in},
                                       (gd_tensors){x, op->n_in});
    for (int i = 0; i < n && i < got.count; i++) out[i] = got.at[i];
    return n;
}

static int run_on_device(const op_case *op, gd_tensor *(*call)(gd_tensor **), gd_tensor **out) {
    gd_tensor *x[MAX_INPUTS];
    make_inputs(op, x);
    gd_device *device = gd_test_device();
    for (int i = 0; i < op->n_in; i++) x[i] = gd_to_device(x[i], device);
    for (int i = 0; i < op->n_mask; i++) gd_requires_grad(x[i]);
    gd_set_default_device(device);
    int n = compute_gradients(op, call, x, out);
    gd_set_default_device(NULL);
    for (int i = 0; i < n; i++) out[i] = gd_to_device(gd_detach(out[i]), gd_device_get("cpu"));
    return gd_synchronize(device) == GD_OK ? n : 0;
}

/* --- the comparison --------------------------------------------------------------------------- */

/* Results have the same bits, or, on another device, differ by at most `tolerance`. */
static void compare_results(const op_case *op, const char *mode, double tolerance,
                            gd_tensor **expected, int n, gd_tensor **got, int n_got) {
    CHECK_SAYING(!gd_failed() && n_got == n, "%s %s: %s", op->name, mode, gd_error_message());
    for (int i = 0; i < n && n_got == n && !gd_failed(); i++) {
        const bool same = tolerance > 0
                              ? tensors_relative_distance(got[i], expected[i]) <= tolerance
                              : tensors_same_bits(got[i], expected[i]);
        CHECK_SAYING(gd_tensor_dtype(got[i]) == GD_F64 && same, "%s %s: result %d differs",
                     op->name, mode, i);
    }
    gd_clear_error();
}

/* A second-order gradient of zeros would prove nothing. */
static bool has_second_order(const op_case *op, gd_tensor **out) {
    return gd_item(gd_sum(gd_abs(out[1 + op->n_mask]))) > 1e-6;
}

static void check_op(const op_case *op) {
    GD_SCOPE;
    gd_tensor *expected[RESULTS], *got[RESULTS];
    int n = run_eager(op, op->typed, expected);
    CHECK_SAYING(n == 1 + 2 * op->n_mask && has_second_order(op, expected), "%s: %s", op->name,
                 gd_error_message());
    compare_results(op, "by name", 0, expected, n, got, run_eager(op, op->by_name, got));
    compare_results(op, "as symbols", 0, expected, n, got, run_as_symbols(op, op->typed, got));
    compare_results(op, "as symbols, by name", 0, expected, n, got,
                    run_as_symbols(op, op->by_name, got));
    compare_results(op, "on the test device", 1e-12, expected, n, got,
                    run_on_device(op, op->typed, got));
}

TEST(seven_ops_agree_in_every_mode_up_to_second_order) {
    int64_t objects = gd_live_objects();
    for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++) check_op(&op_cases[i]);
    CHECK(gd_live_objects() == objects);
}

TEST_MAIN
