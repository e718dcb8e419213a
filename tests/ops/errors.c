/* errors.c - a wrong call never crashes: it gives a status and a message that names the op, and
 * leaks nothing. Each op is called with the inputs of its first case, one thing made wrong at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "suites.h"

/* The call that is being made wrong. */
typedef struct attempt {
    const gd_op *op;
    const test_case *c; /* NULL: the op has none; inputs are then small floats */
    gd_tensor *in[MAX_TENSORS];
    int n_in;
    gd_attrs *attrs;
} attempt;

static void start(attempt *a, const gd_op *op, const test_case *c) {
    *a = (attempt){.op = op, .c = c};
    gd_clear_error();
    gd_seed(7);
    if (c) {
        run_setup s = {.c = c, .dtype = c->block->dtypes >> GD_F32 & 1 ? GD_F32 : GD_I64};
        a->n_in = build_inputs(&s, a->in);
    } else {
        float data[6] = {1, 2, 3, 4, 5, 6};
        for (int i = 0; i < gd_op_input_count(op); i++) a->in[a->n_in++] = gd_from_array(gd_dims(2, 3), GD_F32, data);
    }
    a->attrs = gd_attrs_new(op);
    if (c) gd_attrs_parse(a->attrs, c->options);
}

static void complain(const attempt *a, const char *what, const char *problem) {
    char text[700];
    snprintf(text, sizeof text, "%s: %s: %s [%s]", gd_op_name(a->op), what, problem, gd_error_message());
    report_fail(a->c, GD_DTYPE_NONE, "%s", text);
}

/* Calls. Where `must_fail`, success is a failure of the test. */
static void call(const attempt *a, const char *what, bool must_fail) {
    gd_tensors y = gd_op_call(a->op, (gd_tensors){a->in, a->n_in}, a->attrs);
    gd_status status = gd_error_status();
    if (status == GD_OK && must_fail) complain(a, what, "was accepted");
    else if (status != GD_OK && y.count != 0) complain(a, what, "failed and yet returned tensors");
    else if (status != GD_OK && !strstr(gd_error_message(), gd_op_name(a->op))) complain(a, what, "the message does not name the op");
    else report_pass();
    gd_clear_error();
}

/* --- inputs ------------------------------------------------------------------------------------ */

static void wrong_inputs(const gd_op *op, const test_case *c) {
    char what[160];
    attempt a;
    for (int i = 0;; i++) { /* absent */
        GD_SCOPE;
        start(&a, op, c);
        if (i >= a.n_in) break;
        int last = gd_op_input_count(op) - 1;
        const gd_op_param *p = gd_op_input(op, i < last ? i : last);
        a.in[i] = NULL;
        snprintf(what, sizeof what, "input %d is NULL", i);
        call(&a, what, !p->optional || p->variadic);
    }
    {
        GD_SCOPE; /* too few, too many, none at all */
        start(&a, op, c);
        int n = a.n_in, required = 0;
        for (int k = 0; k < gd_op_input_count(op); k++) required += !gd_op_input(op, k)->optional;
        bool variadic = gd_op_input_count(op) > 0 && gd_op_input(op, gd_op_input_count(op) - 1)->variadic;
        a.n_in = 0;
        call(&a, "no inputs", required > 0);
        a.n_in = n;
        while (a.n_in < 40) a.in[a.n_in] = n ? a.in[0] : gd_scalar(1), a.n_in++;
        call(&a, "40 inputs", !variadic);
    }
    /* other shapes and dtypes: some are fine, none may crash */
    static const gd_shape shapes[] = {{.rank = 0, .form = 1}, {{7}, 1, 1}, {{7, 11, 13}, 3, 1}, {{0}, 1, 1},
                                      {{1, 1, 1, 1, 1, 1, 1, 1}, 8, 1}, {{3, 0, 5}, 3, 1}, {{2, 3, 4, 5, 6}, 5, 1}};
    for (int i = 0; i < MAX_TENSORS; i++) {
        GD_SCOPE;
        start(&a, op, c);
        if (i >= a.n_in) break;
        if (!a.in[i]) continue;
        gd_dtype dtype = gd_tensor_dtype(a.in[i]);
        gd_tensor *right = a.in[i];
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            a.in[i] = gd_full(shapes[k], 1.0, .dtype = dtype);
            snprintf(what, sizeof what, "input %d of shape number %zu", i, k);
            call(&a, what, false);
        }
        for (int d = 1; d < GD_DTYPE_COUNT; d++) {
            a.in[i] = gd_cast(right, (gd_dtype)d);
            snprintf(what, sizeof what, "input %d as %s", i, gd_dtype_name((gd_dtype)d));
            call(&a, what, false);
        }
        a.in[i] = gd_reshape(right, gd_dims(-3)); /* an error tensor passes through */
        gd_tensors y = gd_op_call(a.op, (gd_tensors){a.in, a.n_in}, a.attrs);
        if (y.count != 0 || !strstr(gd_error_message(), "reshape")) complain(&a, "an error tensor", "did not pass through");
        else report_pass();
        gd_clear_error();
    }
}

/* --- options ----------------------------------------------------------------------------------- */

static bool takes_any_text(gd_attr_type type) { return type == GD_ATTR_STRING; }

static void wrong_options(const gd_op *op, const test_case *c) {
    static const char *const garbage[] = {"", "abc", "1,2,3,4,5,6,7,8,9,10", "@", "1;2", "0x", "--1", "1e999x", "nonesuch"};
    static const char *const numbers[] = {"-1", "0", "1", "3", "-7", "99", "-99", "1099511627776", "9223372036854775807",
                                          "-9223372036854775807", "-9223372036854775808", "99999999999999999999"};
    static const char *const lists[] = {"-1", "0", "99", "0,0", "-1,-1", "5,-5", "1,2,3", "7,7,7,7,7,7,7,7", "3,1099511627776",
                                        "4611686018427387904,4", "9223372036854775807", "2147483648,2147483648,2147483648"};
    static const char *const floats[] = {"nan", "inf", "-inf", "-1", "0", "1e300", "-1e-300"};
    char what[160];
    attempt a;
    {
        GD_SCOPE;
        start(&a, op, c);
        gd_status s = gd_attrs_parse(a.attrs, "no_such_option=1");
        if (s == GD_OK || !strstr(gd_error_message(), gd_op_name(op))) complain(&a, "an unknown option", "was not refused by name");
        else report_pass();
        s = gd_attrs_parse(a.attrs, "just words");
        if (s == GD_OK || !strstr(gd_error_message(), gd_op_name(op))) complain(&a, "options without =", "were not refused by name");
        else report_pass();
    }
    for (int k = 0; k < gd_op_attr_count(op); k++) {
        const gd_op_attr *at = gd_op_attr_at(op, k);
        if (at->required) {
            GD_SCOPE;
            start(&a, op, c);
            a.attrs = gd_attrs_new(op);
            snprintf(what, sizeof what, "without %s", at->name);
            call(&a, what, true);
        }
        for (size_t g = 0; g < sizeof garbage / sizeof *garbage; g++) {
            GD_SCOPE;
            start(&a, op, c);
            gd_clear_error();
            gd_status s = gd_attrs_set_text(a.attrs, at->name, garbage[g]);
            snprintf(what, sizeof what, "%s=%s", at->name, garbage[g]);
            bool empty_list = !*garbage[g] && at->type == GD_ATTR_SHAPE;
            if (s == GD_OK && !takes_any_text(at->type) && !empty_list) complain(&a, what, "was accepted");
            else if (s != GD_OK && !strstr(gd_error_message(), gd_op_name(op))) complain(&a, what, "the message does not name the op");
            else report_pass();
        }
        bool list = at->type == GD_ATTR_SHAPE || at->type == GD_ATTR_INTS;
        const char *const *values = at->type == GD_ATTR_INT ? numbers : list ? lists : at->type == GD_ATTR_FLOAT ? floats : NULL;
        size_t n = at->type == GD_ATTR_INT ? sizeof numbers / sizeof *numbers
                   : list                  ? sizeof lists / sizeof *lists
                                           : sizeof floats / sizeof *floats;
        for (size_t v = 0; values && v < n; v++) {
            GD_SCOPE;
            start(&a, op, c);
            snprintf(what, sizeof what, "%s=%s", at->name, values[v]);
            if (gd_attrs_set_text(a.attrs, at->name, values[v]) == GD_OK) call(&a, what, false);
            gd_clear_error();
        }
    }
}

/* --- the suite --------------------------------------------------------------------------------- */

static void check_op(const gd_op *op, const test_case *c) {
    int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    report_at(c, GD_DTYPE_NONE);
    wrong_inputs(op, c);
    wrong_options(op, c);
    gd_clear_error();
    if (gd_live_objects() != objects || gd_memory_stats(NULL).live_bytes != bytes)
        report_fail(c, GD_DTYPE_NONE, "%s: wrong calls leak %lld objects, %lld bytes", gd_op_name(op),
                    (long long)(gd_live_objects() - objects), (long long)(gd_memory_stats(NULL).live_bytes - bytes));
}

void suite_errors(const test_cases *cases) {
#ifndef GD_SANITIZED
    /* a size that is merely large shall fail, not fill the machine */
    struct rlimit before, less;
    getrlimit(RLIMIT_AS, &before);
    less = before;
    less.rlim_cur = (rlim_t)6 << 30;
    setrlimit(RLIMIT_AS, &less);
#endif
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i), *base = op;
        const test_case *c = NULL;
        if (only_op && strcmp(only_op, gd_op_name(op)) != 0) continue;
        if (gd_op_flags(op) & GD_OP_USER) continue;
        for (int b = 0; b < cases->n_blocks && !c; b++)
            if (cases->blocks[b].op == base && cases->blocks[b].n_cases > 0) c = &cases->blocks[b].cases[0];
        /* with a family given, only its ops; those without cases go with no family */
        if (only_family && !c) continue;
        check_op(op, c);
    }
#ifndef GD_SANITIZED
    setrlimit(RLIMIT_AS, &before);
#endif
}
