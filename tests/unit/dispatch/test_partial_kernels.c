/* test_partial_kernels.c - an op with a body and a kernel that matches only some calls: the others run
 * as the body, in eager calls, gradients, graphs and jits. */
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "test.h"

static int kernel_runs;

/* y = 3 x */
static gd_status triple_infer(gd_infer *i) {
    i->out[0].rank = gd_tensor_rank(i->in[0]);
    for (int d = 0; d < i->out[0].rank; d++) i->out[0].dims[d] = gd_tensor_dim(i->in[0], d);
    return GD_OK;
}
static void triple_vjp(gd_vjp *v) { v->gx[0] = gd_mul(v->gy[0], gd_scalar(3)); }
static void triple_expand(gd_expansion *e) { e->y[0] = gd_add(e->x[0], gd_add(e->x[0], e->x[0])); }
static bool match_vector(const gd_kernel_call *call) {
    return call->in[0].rank == 1 && call->out[0].rank == 1 && call->out[0].dtype == GD_F32;
}
static gd_status run_triple(gd_kernel_call *call) {
    kernel_runs++;
    for (int64_t i = 0; i < call->in[0].dims[0]; i++)
        ((float *)call->out[0].data)[i] =
            3 * ((const float *)call->in[0].data)[i * call->in[0].strides[0]];
    return GD_OK;
}
static const gd_kernel triple_kernel = {.op = "triple",
                                        .variant = "vectors",
                                        .device = "cpu",
                                        .rank = 10,
                                        .match = match_vector,
                                        .run = run_triple};

static void define_triple(void) {
    if (gd_op_find("triple")) return;
    CHECK(gd_op_define(
              "triple(x) -> y\nThree times x.\n",
              &(gd_op_rules){.infer = triple_infer, .vjp = triple_vjp, .expand = triple_expand}) ==
          GD_OK);
    CHECK(gd_kernel_register(&triple_kernel) == GD_OK);
}

static gd_tensor *triple(gd_tensor *x) { return gd_call("triple", gd_list(x), ""); }
static gd_tensors traced_triple(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(triple(in.at[0]));
}

/* Checks sum(triple(x)) and its gradient in all modes; `kernels`: of forward calls. */
static void check_all_modes(gd_tensor *x, double sum, bool kernel) {
    GD_SCOPE;
    kernel_runs = 0;
    gd_tensor *y = triple(x);
    CHECK(gd_item(gd_sum(y)) == sum && kernel_runs == kernel);
    gd_tensor *g = gd_grad(gd_list(gd_sum(y)), gd_list(x)).at[0];
    CHECK(gd_item(gd_max(g)) == 3 && gd_item(gd_min(g)) == 3);
    gd_jit *jit = gd_jit_new(traced_triple, NULL);
    kernel_runs = 0;
    {
        GD_NO_GRAD;
        CHECK(gd_item(gd_sum(gd_jit_call(jit, gd_list(x)).at[0])) == sum && kernel_runs == kernel);
    }
    for (int level = 0; level < 3; level++) {
        gd_graph *graph = gd_graph_new();
        gd_tensor *in, *out;
        {
            GD_GRAPH(graph);
            in = gd_placeholder(gd_tensor_shape(x), .dtype = gd_tensor_dtype(x));
            out = triple(in);
        }
        gd_session *s = gd_session_new(graph, .level = level);
        kernel_runs = 0;
        gd_tensor *got = gd_session_run(s, gd_feed(in, x), gd_list(out)).at[0];
        CHECK(gd_item(gd_sum(got)) == sum && kernel_runs == kernel);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_clear_error();
}

TEST(calls_that_match_run_the_kernel) {
    GD_SCOPE;
    define_triple();
    check_all_modes(gd_requires_grad(gd_ones(gd_dims(5))), 15, true);
}

TEST(other_calls_run_as_the_body) {
    GD_SCOPE;
    define_triple();
    check_all_modes(gd_requires_grad(gd_ones(gd_dims(2, 3))), 18, false);
    check_all_modes(gd_requires_grad(gd_ones(gd_dims(4), .dtype = GD_F64)), 12, false);
}

TEST(the_gradient_of_a_body_has_a_gradient) {
    GD_SCOPE;
    define_triple();
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(2, 3)));
    gd_tensor *y = gd_square(triple(x)); /* 9 x^2, 18 x, 18 */
    gd_tensor *g = gd_grad(gd_list(gd_sum(y)), gd_list(x), .create_graph = true).at[0];
    gd_tensor *h = gd_grad(gd_list(gd_sum(g)), gd_list(x)).at[0];
    CHECK(gd_item(gd_max(g)) == 18 && gd_item(gd_min(h)) == 18);
}

TEST_MAIN
