/* errors.c - a wrong call never crashes: it gives a status and a message that names the op, and
 * leaks nothing. Each op of the table, internal ones included, is called with the inputs of the
 * first case of each of its blocks, with one input or option changed at a time. A call that is
 * accepted must also have a gradient.
 *
 * GRADUS_TEST_FULL=1 uses every case.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "suites.h"

/* A call of which one input or option is changed. */
typedef struct attempt {
    const gd_op *op;
    const test_case *c; /* NULL: the op has no case; inputs and options are guessed */
    gd_tensor *in[MAX_TENSORS];
    int n_in;
    gd_attrs *attrs;
} attempt;

/* --- guessed inputs and options of ops without cases ------------------------------------------ */

static const gd_shape guesses[] = {
    {{2, 3}, 2, 1}, {{6}, 1, 1}, {{2, 3, 4}, 3, 1}, {{2, 3, 4, 5}, 4, 1}};
enum { GUESSES = sizeof guesses / sizeof *guesses };
static int guess; /* index of the guess in use */

static void guess_inputs(attempt *a) {
    for (int i = 0; i < gd_op_input_count(a->op); i++)
        a->in[a->n_in++] = gd_full(guesses[guess], 1.0, .dtype = GD_F32);
}

/* Sets each option that has no default. */
static void guess_options(attempt *a) {
    char text[64];
    for (int k = 0; k < gd_op_attr_count(a->op); k++) {
        const gd_op_attr *at = gd_op_attr_at(a->op, k);
        if (!at->required) continue;
        snprintf(text, sizeof text, "%s",
                 at->type == GD_ATTR_BOOL    ? "true"
                 : at->type == GD_ATTR_DTYPE ? "f32"
                                             : "1");
        if (at->type == GD_ATTR_WORD)
            snprintf(text, sizeof text, "%.*s", (int)strcspn(at->words, " "), at->words);
        if (at->type == GD_ATTR_SHAPE)
            for (int d = 1; d < guesses[guess].rank; d++) strcat(text, ",1");
        gd_attrs_set_text(a->attrs, at->name, text);
    }
}

static void start_attempt(attempt *a, const gd_op *op, const test_case *c) {
    *a = (attempt){.op = op, .c = c};
    gd_clear_error();
    gd_seed(7);
    if (c) {
        run_setup s = {.c = c, .dtype = c->block->dtypes >> GD_F32 & 1 ? GD_F32 : GD_I64};
        a->n_in = build_inputs(&s, a->in);
    } else {
        guess_inputs(a);
    }
    a->attrs = gd_attrs_new(op);
    if (c) gd_attrs_parse(a->attrs, c->options);
    else guess_options(a);
    gd_clear_error();
}

static void report_wrong_call(const attempt *a, const char *what, const char *problem) {
    char text[700];
    snprintf(text, sizeof text, "%s: %s: %s [%s]", gd_op_name(a->op), what, problem,
             gd_error_message());
    report_fail(a->c, GD_DTYPE_NONE, "%s", text);
}

static bool all_errors(gd_tensors list) {
    for (int64_t i = 0; i < list.count; i++)
        if (!gd_tensor_is_error(list.at[i])) return false;
    return list.count > 0;
}

/* Differentiates a call that was accepted, unless the op has overwritten an input. */
static void differentiate_call(const attempt *a, const char *what) {
    gd_tensor *in[MAX_TENSORS], *by[MAX_TENSORS], *loss = NULL;
    int n_by = 0;
    if (!gd_op_differentiable(a->op) || a->n_in > MAX_TENSORS) return;
    for (int i = 0; i < a->n_in; i++) {
        if (input_is_mutated(a->op, i)) return;
        in[i] = a->in[i];
        if (in[i] && gd_dtype_is_float(gd_tensor_dtype(in[i])))
            in[i] = by[n_by++] = gd_requires_grad(gd_detach(in[i]));
    }
    if (n_by == 0) return;
    gd_tensors y = gd_op_call(a->op, (gd_tensors){in, a->n_in}, a->attrs);
    for (int k = 0; k < y.count; k++) /* a broadcast view may have any number of elements */
        if (gd_tensor_numel(y.at[k]) > 1 << 20) return;
    for (int k = 0; k < y.count; k++)
        if (gd_tensor_requires_grad(y.at[k]))
            loss = loss ? gd_add(loss, gd_sum(y.at[k])) : gd_sum(y.at[k]);
    if (!loss) return;
    gd_grad(gd_list(loss), ((gd_tensors){by, n_by}), .allow_unused = true);
    /* the forward of an empty tensor does not check indices and masks, the gradient may */
    const gd_status status = gd_error_status();
    const bool depends_on_data =
        status == GD_E_INDEX || strcmp(gd_op_name(a->op), "masked_scatter_grad") == 0;
    if (status != GD_OK && status != GD_E_MEMORY && !depends_on_data)
        report_wrong_call(a, what, "was accepted, and has no gradient");
}

/* Calls the op and checks the error. With `must_fail` the call must not succeed. */
static void call_op(const attempt *a, const char *what, bool must_fail) {
    gd_tensors y = gd_op_call(a->op, (gd_tensors){a->in, a->n_in}, a->attrs);
    gd_status status = gd_error_status();
    if (status == GD_OK && must_fail) report_wrong_call(a, what, "was accepted");
    else if (status != GD_OK && !all_errors(y))
        report_wrong_call(a, what, "failed and did not return error tensors");
    else if (status != GD_OK && !strstr(gd_error_message(), gd_op_name(a->op)))
        report_wrong_call(a, what, "the message does not name the op");
    else report_pass();
    if (status == GD_OK && !must_fail) differentiate_call(a, what);
    gd_clear_error();
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* Changes of one axis that give shapes that nearly fit. */
static const char *const other_shapes[] = {"a larger", "a smaller", "an empty", "no",
                                           "an extra axis before"};
enum { OTHER_SHAPES = sizeof other_shapes / sizeof *other_shapes };

static gd_tensor *nearly_same_shape(const gd_tensor *right, int number) {
    const int how = number % OTHER_SHAPES, axis = number / OTHER_SHAPES;
    gd_shape s = {.form = 1};
    for (int d = 0; d < gd_tensor_rank(right); d++) {
        int64_t size = gd_tensor_dim(right, d);
        if (d == axis && how == 0) size++;
        if (d == axis && how == 1 && size > 0) size--;
        if (d == axis && how == 2) size = 0;
        if (d == axis && how == 3) continue;
        if (d == axis && how == 4 && s.rank < GD_MAX_RANK) s.at[s.rank++] = 1;
        if (s.rank < GD_MAX_RANK) s.at[s.rank++] = size;
    }
    return gd_full(s, 1.0, .dtype = gd_tensor_dtype(right));
}

static void try_wrong_inputs(const gd_op *op, const test_case *c) {
    char what[160];
    attempt a;
    for (int i = 0;; i++) { /* each input absent */
        GD_SCOPE;
        start_attempt(&a, op, c);
        if (i >= a.n_in) break;
        int last = gd_op_input_count(op) - 1;
        const gd_op_param *p = gd_op_input(op, i < last ? i : last);
        a.in[i] = NULL;
        snprintf(what, sizeof what, "input %d is NULL", i);
        call_op(&a, what, !p->optional || p->variadic);
    }
    {
        GD_SCOPE; /* no inputs, too many inputs */
        start_attempt(&a, op, c);
        int n = a.n_in, required = 0;
        for (int k = 0; k < gd_op_input_count(op); k++) required += !gd_op_input(op, k)->optional;
        bool variadic =
            gd_op_input_count(op) > 0 && gd_op_input(op, gd_op_input_count(op) - 1)->variadic;
        a.n_in = 0;
        call_op(&a, "no inputs", required > 0);
        a.n_in = n;
        while (a.n_in < 40) a.in[a.n_in] = n ? a.in[0] : gd_scalar(1), a.n_in++;
        call_op(&a, "40 inputs", !variadic);
    }
    /* other shapes and dtypes: some are valid, none may crash */
    static const gd_shape shapes[] = {
        {.rank = 0, .form = 1},           {{7}, 1, 1},       {{7, 11, 13}, 3, 1},    {{0}, 1, 1},
        {{1, 1, 1, 1, 1, 1, 1, 1}, 8, 1}, {{3, 0, 5}, 3, 1}, {{2, 3, 4, 5, 6}, 5, 1}};
    for (int i = 0; i < MAX_TENSORS; i++) {
        GD_SCOPE;
        start_attempt(&a, op, c);
        if (i >= a.n_in) break;
        if (!a.in[i]) continue;
        gd_dtype dtype = gd_tensor_dtype(a.in[i]);
        gd_tensor *right = a.in[i];
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            a.in[i] = gd_full(shapes[k], 1.0, .dtype = dtype);
            snprintf(what, sizeof what, "input %d of shape number %zu", i, k);
            call_op(&a, what, false);
        }
        for (int d = 1; d < GD_DTYPE_COUNT; d++) {
            a.in[i] = gd_cast(right, (gd_dtype)d);
            snprintf(what, sizeof what, "input %d as %s", i, gd_dtype_name((gd_dtype)d));
            call_op(&a, what, false);
        }
        for (int k = 0; k < OTHER_SHAPES * gd_tensor_rank(right); k++) {
            a.in[i] = nearly_same_shape(right, k);
            snprintf(what, sizeof what, "input %d with %s axis %d", i,
                     other_shapes[k % OTHER_SHAPES], k / OTHER_SHAPES);
            call_op(&a, what, false);
        }
        a.in[i] = gd_reshape(right, gd_dims(-3)); /* an error tensor passes through */
        gd_tensors y = gd_op_call(a.op, (gd_tensors){a.in, a.n_in}, a.attrs);
        if (!all_errors(y) || !strstr(gd_error_message(), "reshape"))
            report_wrong_call(&a, "an error tensor", "did not pass through");
        else report_pass();
        gd_clear_error();
    }
}

/* --- options ---------------------------------------------------------------------------------- */

static bool takes_any_text(gd_attr_type type) { return type == GD_ATTR_STRING; }

static void try_wrong_options(const gd_op *op, const test_case *c) {
    static const char *const garbage[] = {
        "", "abc", "1,2,3,4,5,6,7,8,9,10", "@", "1;2", "0x", "--1", "1e999x", "nonesuch"};
    static const char *const numbers[] = {"-1",
                                          "0",
                                          "1",
                                          "3",
                                          "-7",
                                          "99",
                                          "-99",
                                          "1099511627776",
                                          "9223372036854775807",
                                          "-9223372036854775807",
                                          "-9223372036854775808",
                                          "99999999999999999999"};
    static const char *const lists[] = {"-1",
                                        "0",
                                        "99",
                                        "0,0",
                                        "-1,-1",
                                        "5,-5",
                                        "1,2,3",
                                        "7,7,7,7,7,7,7,7",
                                        "3,1099511627776",
                                        "4611686018427387904,4",
                                        "9223372036854775807",
                                        "2147483648,2147483648,2147483648"};
    static const char *const floats[] = {"nan", "inf", "-inf", "-1", "0", "1e300", "-1e-300"};
    char what[160];
    attempt a;
    {
        GD_SCOPE;
        start_attempt(&a, op, c);
        gd_status s = gd_attrs_parse(a.attrs, "no_such_option=1");
        if (s == GD_OK || !strstr(gd_error_message(), gd_op_name(op)))
            report_wrong_call(&a, "an unknown option",
                              "did not fail, or the message does not name the op");
        else report_pass();
        s = gd_attrs_parse(a.attrs, "just words");
        if (s == GD_OK || !strstr(gd_error_message(), gd_op_name(op)))
            report_wrong_call(
                &a, "options without =", "did not fail, or the message does not name the op");
        else report_pass();
    }
    for (int k = 0; k < gd_op_attr_count(op); k++) {
        const gd_op_attr *at = gd_op_attr_at(op, k);
        if (at->required) {
            GD_SCOPE;
            start_attempt(&a, op, c);
            a.attrs = gd_attrs_new(op);
            snprintf(what, sizeof what, "without %s", at->name);
            call_op(&a, what, true);
        }
        for (size_t g = 0; g < sizeof garbage / sizeof *garbage; g++) {
            GD_SCOPE;
            start_attempt(&a, op, c);
            gd_clear_error();
            gd_status s = gd_attrs_set_text(a.attrs, at->name, garbage[g]);
            snprintf(what, sizeof what, "%s=%s", at->name, garbage[g]);
            bool empty_list = !*garbage[g] && at->type == GD_ATTR_SHAPE;
            if (s == GD_OK && !takes_any_text(at->type) && !empty_list)
                report_wrong_call(&a, what, "was accepted");
            else if (s != GD_OK && !strstr(gd_error_message(), gd_op_name(op)))
                report_wrong_call(&a, what, "the message does not name the op");
            else report_pass();
        }
        bool list = at->type == GD_ATTR_SHAPE || at->type == GD_ATTR_INTS;
        const char *const *values = at->type == GD_ATTR_INT ? numbers
                                    : list                  ? lists
                                    : at->type == GD_ATTR_FLOAT || at->type == GD_ATTR_NUMBER
                                        ? floats
                                        : NULL;
        size_t n = at->type == GD_ATTR_INT ? sizeof numbers / sizeof *numbers
                   : list                  ? sizeof lists / sizeof *lists
                                           : sizeof floats / sizeof *floats;
        for (size_t v = 0; values && v < n; v++) {
            GD_SCOPE;
            start_attempt(&a, op, c);
            snprintf(what, sizeof what, "%s=%s", at->name, values[v]);
            if (gd_attrs_set_text(a.attrs, at->name, values[v]) == GD_OK) call_op(&a, what, false);
            gd_clear_error();
        }
    }
}

/* --- the suite -------------------------------------------------------------------------------- */

static void check_op(const gd_op *op, const test_case *c) {
    int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    report_at(c, GD_DTYPE_NONE);
    try_wrong_inputs(op, c);
    try_wrong_options(op, c);
    gd_clear_error();
    if (gd_live_objects() != objects || gd_memory_stats(NULL).live_bytes != bytes)
        report_fail(c, GD_DTYPE_NONE, "%s: wrong calls leak %lld objects, %lld bytes",
                    gd_op_name(op), (long long)(gd_live_objects() - objects),
                    (long long)(gd_memory_stats(NULL).live_bytes - bytes));
}

void suite_errors(const test_cases *cases) {
#ifndef GD_SANITIZED
    /* a large size fails at this limit instead of filling the machine's memory */
    struct rlimit before, lower;
    getrlimit(RLIMIT_AS, &before);
    lower = before;
    lower.rlim_cur = (rlim_t)6 << 30;
    setrlimit(RLIMIT_AS, &lower);
#endif
    const bool full = getenv("GRADUS_TEST_FULL") != NULL;
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        bool found = false;
        if (only_op && strcmp(only_op, gd_op_name(op)) != 0) continue;
        if (gd_op_flags(op) & GD_OP_USER) continue;
        if (test_on_device() && !full && !only_op && i % (test_quick() ? 40 : 8) != 0) continue;
        for (int b = 0; b < cases->n_blocks; b++) {
            const test_block *block = &cases->blocks[b];
            if (block->op != op) continue;
            for (int k = 0; k < block->n_cases && (k == 0 || full); k++, found = true)
                check_op(op, &block->cases[k]);
        }
        /* ops without cases have no family: they run only if no family is given */
        for (guess = 0; !found && !only_family && guess < GUESSES; guess++) check_op(op, NULL);
    }
#ifndef GD_SANITIZED
    setrlimit(RLIMIT_AS, &before);
#endif
}
