/* test_tf32.c - gd_allow_tf32: what kernels get in eager calls, gradients, sessions and jits. */
#include <pthread.h>

#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "test.h"

/* An op whose kernel reports the setting. Its gradient calls it again. */
static int seen, prepared[2]; /* the latest setting; calls of `prepare` by setting */

static gd_status probe_infer(gd_infer *i) {
    const gd_tensor *x = i->in[0];
    i->out[0].rank = gd_tensor_rank(x);
    for (int d = 0; d < i->out[0].rank; d++) i->out[0].dims[d] = gd_tensor_dim(x, d);
    return GD_OK;
}
static gd_status run_probe(gd_kernel_call *call) {
    seen = call->tf32;
    *(float *)call->out[0].data = call->tf32;
    return GD_OK;
}
static gd_status prepare_probe(const gd_kernel_call *call, void **value, size_t *workspace) {
    prepared[call->tf32]++;
    *value = NULL;
    *workspace = 0;
    return GD_OK;
}
static gd_tensor *probe(gd_tensor *x) { return gd_call("tf32_probe", gd_list(x), ""); }
static void probe_vjp(gd_vjp *v) { v->gx[0] = probe(v->gy[0]); }

static const gd_kernel probe_kernel = {.op = "tf32_probe",
                                       .variant = "prepared",
                                       .device = "cpu",
                                       .rank = 10,
                                       .run = run_probe,
                                       .prepare = prepare_probe};

static void define_probe(void) {
    if (gd_op_find("tf32_probe")) return;
    CHECK(gd_op_define("tf32_probe(x) -> y\nThe setting of tf32.\n",
                       &(gd_op_rules){.infer = probe_infer, .vjp = probe_vjp}) == GD_OK);
    CHECK(gd_kernel_register(&probe_kernel) == GD_OK);
}

static void *read_setting_in_thread(void *out) {
    *(bool *)out = gd_tf32_allowed();
    return NULL;
}

TEST(tf32_is_off_until_a_thread_allows_it) {
    CHECK(!gd_tf32_allowed());
    CHECK(!gd_allow_tf32(true) && gd_tf32_allowed());
    bool other = true;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_setting_in_thread, &other) == 0);
    pthread_join(thread, NULL);
    CHECK(!other);
    CHECK(gd_allow_tf32(false) && !gd_tf32_allowed());
}

TEST(eager_kernels_and_gradients_get_the_setting) {
    GD_SCOPE;
    define_probe();
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(1)));
    for (int allow = 0; allow < 2; allow++) {
        gd_allow_tf32(allow);
        gd_tensor *y = probe(x);
        CHECK(gd_item(y) == allow);
        seen = -1;
        CHECK(gd_item(gd_grad(gd_list(gd_sum(y)), gd_list(x)).at[0]) == allow && seen == allow);
    }
    gd_allow_tf32(false);
    CHECK(!gd_failed());
}

TEST(the_setting_is_part_of_a_prepared_problem) {
    GD_SCOPE;
    define_probe();
    gd_tensor *x = gd_ones(gd_dims(1, 1, 1)); /* a shape that no other test prepares */
    prepared[0] = prepared[1] = 0;
    for (int i = 0; i < 4; i++) {
        GD_SCOPE;
        gd_allow_tf32(i % 2);
        probe(x);
    }
    gd_allow_tf32(false);
    /* more than once where the results differ in alignment, as under a sanitizer */
    CHECK(prepared[0] >= 1 && prepared[1] >= 1);
}

TEST(a_session_keeps_the_setting_of_its_creation) {
    GD_SCOPE;
    define_probe();
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(1), .name = "x");
        y = probe(x);
    }
    gd_allow_tf32(true);
    gd_session *fast = gd_session_new(graph), *exact = gd_session_new(graph, .tf32 = false);
    for (int allow = 0; allow < 2; allow++) {
        gd_allow_tf32(allow);
        gd_tensors feeds = gd_feed(x, gd_ones(gd_dims(1)));
        CHECK(gd_item(gd_session_run(fast, feeds, gd_list(y)).at[0]) == 1);
        CHECK(gd_item(gd_session_run(exact, feeds, gd_list(y)).at[0]) == 0);
        CHECK(gd_tf32_allowed() == allow);
    }
    /* a plan that is built outside of a run, and runs again */
    gd_session *planned = gd_session_new(graph, .tf32 = false);
    gd_tensors feeds = gd_feed(x, gd_ones(gd_dims(1)));
    CHECK(gd_session_plan(planned, feeds, gd_list(y), NULL) == GD_OK);
    CHECK(gd_item(gd_session_run(planned, feeds, gd_list(y)).at[0]) == 0);
    gd_allow_tf32(false);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors traced_probe(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(probe(in.at[0]));
}

TEST(a_jit_has_a_plan_for_each_setting_and_its_backward_keeps_it) {
    GD_SCOPE;
    define_probe();
    gd_jit *jit = gd_jit_new(traced_probe, NULL);
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(1)));
    for (int i = 0; i < 4; i++) {
        gd_allow_tf32(i % 2);
        gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
        gd_allow_tf32(!(i % 2));
        CHECK(gd_item(y) == i % 2);
        CHECK(gd_item(gd_grad(gd_list(y), gd_list(x)).at[0]) == i % 2);
    }
    CHECK(gd_jit_traces(jit) == 2);
    gd_allow_tf32(false);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensor *recomputed_probe(gd_tensors in, void *user) {
    (void)user;
    return gd_mul(probe(in.at[0]), in.at[0]);
}

TEST(recompute_uses_the_setting_of_the_forward) {
    GD_SCOPE;
    define_probe();
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(1)));
    gd_allow_tf32(true);
    gd_tensor *y = gd_recompute(recomputed_probe, gd_list(x), NULL);
    gd_allow_tf32(false);
    /* y' = probe(x) + probe(gy): the recomputed probe(x) is 1, the gradient rule's is 0 */
    CHECK(gd_item(gd_grad(gd_list(y), gd_list(x)).at[0]) == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
