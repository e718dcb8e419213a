/* faults.c - makes every allocation of a call fail once: no crash, no leak, and GD_E_MEMORY. */
#include <stdio.h>
#include <string.h>

#include "fault_walk.h"
#include "suites.h"

enum { MAX_ALLOCATIONS = 3000 }; /* allocations of one op at which a walk stops */

/* Calls the op on existing inputs and computes its gradients. */
static gd_status forward_and_back(const run_setup *s, gd_tensor *const *in, int n_in,
                                  const gd_attrs *attrs, run_result *r) {
    gd_tensor *outs[MAX_TENSORS], *by[MAX_TENSORS];
    int n_outs = 0, n_by = 0;
    *r = (run_result){.n_in = n_in};
    gd_tensors y = gd_op_call(s->c->block->op, (gd_tensors){in, n_in}, attrs);
    if (gd_failed()) return gd_error_status();
    for (int64_t k = 0; k < y.count && k < MAX_TENSORS; k++) {
        r->out[r->n_out++] = y.at[k];
        if (gd_tensor_requires_grad(y.at[k])) outs[n_outs++] = y.at[k];
    }
    for (int i = 0; i < n_in; i++)
        if (gd_tensor_requires_grad(in[i])) by[n_by++] = in[i];
    if (n_outs == 0 || n_by == 0) return GD_OK;
    gd_tensors g =
        gd_grad(((gd_tensors){outs, n_outs}), ((gd_tensors){by, n_by}), .allow_unused = true);
    if (gd_failed()) return gd_error_status();
    for (int i = 0, k = 0; i < n_in; i++)
        if (gd_tensor_requires_grad(in[i])) r->grad[i] = g.at[k++];
    r->has_grad = true;
    return GD_OK;
}

/* Reports the objects and bytes that a round has leaked. */
static void report_leaks(const fault_walk *w, const test_case *c, gd_dtype dtype) {
    if (!fault_is_clean(w))
        report_fail(c, dtype, "%s, allocation %lld fails%s: leaks %lld objects, %lld bytes",
                    w->what, (long long)w->at, w->lasting ? " and all after" : "",
                    fault_leaked_objects(w), fault_leaked_bytes(w));
}

/* One round of the walk, with inputs that live in its scope. */
static void run_round(fault_walk *w, const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *no_grad;
    char why[512] = "";
    gd_tensor *in[MAX_TENSORS];
    run_result broken, expected;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    gd_clear_error();
    int n_in = build_inputs(&s, in);
    gd_attrs *attrs = build_attrs(c);
    gd_seed(7);
    fault_begin(w);
    gd_status status = forward_and_back(&s, in, n_in, attrs, &broken);
    fault_end(w);
    if (status != GD_OK && status != GD_E_MEMORY)
        report_fail(c, dtype, "allocation %lld fails: %s [%s]", (long long)w->at,
                    gd_status_name(status), gd_error_message());
    if (status != GD_OK && !w->fired)
        report_fail(c, dtype, "fails although no allocation failed: %s", gd_error_message());
    gd_clear_error();
    if (status != GD_OK || input_is_mutated(c->block->op, 0)) return;
    gd_seed(7); /* a call that succeeds despite the fault has the same results */
    forward_and_back(&s, in, n_in, attrs, &expected);
    if (!results_agree(&broken, &expected, NULL, why))
        report_fail(c, dtype, "allocation %lld fails, and the call succeeds with other results: %s",
                    (long long)w->at, why);
}

static void walk_case(fault_walk *w, const test_case *c, gd_dtype dtype) {
    while (fault_advance(w)) {
        run_round(w, c, dtype);
        gd_clear_error();
        report_leaks(w, c, dtype);
    }
}

static void check_case(const test_case *c, gd_dtype dtype) {
    report_at(c, dtype);
    fault_walk single = {.what = "the case", .most = MAX_ALLOCATIONS};
    walk_case(&single, c, dtype);
    fault_walk lasting_walk = {.what = "the case",
                               .lasting = true,
                               .most = MAX_ALLOCATIONS,
                               .stride = single.rounds / 40 + 1};
    walk_case(&lasting_walk, c, dtype);
    report_pass();
}

/* --- a training step -------------------------------------------------------------------------- */

typedef struct small_net {
    gd_tensor *x, *target, *w1, *b1, *w2, *b2;
} small_net;

static gd_status train_step(const small_net *m) {
    GD_SCOPE;
    gd_tensor *h = gd_tanh(gd_add(gd_call("matmul", gd_list(m->x, m->w1), NULL), m->b1));
    gd_tensor *y = gd_add(gd_call("matmul", gd_list(h, m->w2), NULL), m->b2);
    gd_tensor *loss = gd_sum(gd_square(gd_sub(y, m->target)));
    gd_tensor *const params[] = {m->w1, m->b1, m->w2, m->b2};
    gd_status status = gd_backward(loss);
    if (status != GD_OK) return status;
    GD_NO_GRAD;
    for (int i = 0; i < 4; i++)
        gd_sub_(params[i], gd_mul(gd_tensor_grad(params[i]), gd_scalar(0.01)));
    return gd_error_status();
}

static gd_tensor *make_filled(gd_shape dims, float scale) {
    float data[64];
    for (int i = 0; i < 64; i++) data[i] = scale * (float)loss_weight(0, i);
    return gd_from_array(dims, GD_F32, data);
}

static void walk_training_step(void) {
    if (!gd_op_find("matmul")) {
        report_skip("a training step: there is no matmul");
        return;
    }
    for (fault_walk w = {.what = "training step", .dense = 200}; fault_advance(&w);) {
        {
            GD_SCOPE;
            small_net m = {make_filled(gd_dims(8, 5), 1),
                           make_filled(gd_dims(8, 2), 2),
                           gd_requires_grad(make_filled(gd_dims(5, 7), 1)),
                           gd_requires_grad(make_filled(gd_dims(7), 1)),
                           gd_requires_grad(make_filled(gd_dims(7, 2), 1)),
                           gd_requires_grad(make_filled(gd_dims(2), 1))};
            fault_begin(&w);
            gd_status status = train_step(&m);
            fault_end(&w);
            if (status != (w.fired ? GD_E_MEMORY : GD_OK) && status != GD_OK)
                report_fail(NULL, GD_DTYPE_NONE, "training step, allocation %lld fails: %s [%s]",
                            (long long)w.at, gd_status_name(status), gd_error_message());
            gd_clear_error();
        }
        report_leaks(&w, NULL, GD_DTYPE_NONE);
    }
    report_pass();
}

void suite_faults(const test_cases *cases) {
    const gd_op *last = NULL;
    gd_set_num_threads(1); /* so that the n-th allocation is the same one each time */
    for (int b = 0; b < cases->n_blocks; b++) {
        const test_block *block = &cases->blocks[b];
        if (block->n_cases == 0 || (block->op == last && !test_full())) continue;
        last = block->op;
        for (int k = 0; k < (test_full() ? block->n_cases : 1); k++)
            check_case(&block->cases[k], !block->cases[k].flexible     ? GD_DTYPE_NONE
                                         : block->dtypes >> GD_F32 & 1 ? GD_F32
                                                                       : GD_I64);
    }
    if (!only_op && (!only_family || strcmp(only_family, "elementwise") == 0)) walk_training_step();
    gd_set_num_threads(0);
}
