/* test_autocast.c - mixed precision: GD_AUTOCAST in eager code, on the tape, in jits and in
 * graphs. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fault_walk.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static gd_tensor *make_leaf(gd_shape dims) { return gd_requires_grad(gd_randn(dims)); }

/* --- the setting ------------------------------------------------------------------------------ */

TEST(autocast_ends_with_its_block) {
    CHECK(gd_autocast_dtype() == GD_DTYPE_NONE);
    {
        GD_AUTOCAST(GD_BF16);
        CHECK(gd_autocast_dtype() == GD_BF16);
        {
            GD_AUTOCAST(GD_F16);
            CHECK(gd_autocast_dtype() == GD_F16);
            GD_AUTOCAST(GD_DTYPE_NONE);
            CHECK(gd_autocast_dtype() == GD_DTYPE_NONE);
        }
        CHECK(gd_autocast_dtype() == GD_BF16);
    }
    CHECK(gd_autocast_dtype() == GD_DTYPE_NONE);
    gd_autocast_end(NULL);
}

TEST(autocast_to_other_dtypes_fails_and_changes_nothing) {
    static const struct {
        gd_dtype dtype;
        const char *name;
    } wrong[] = {{GD_F32, "f32"}, {GD_F64, "f64"}, {GD_I32, "i32"}, {(gd_dtype)77, "unknown"}};
    GD_AUTOCAST(GD_BF16);
    for (int i = 0; i < 4; i++) {
        GD_AUTOCAST(wrong[i].dtype);
        CHECK(gd_error_status() == GD_E_DTYPE);
        CHECK(strstr(gd_error_message(), "GD_AUTOCAST") &&
              strstr(gd_error_message(), wrong[i].name));
        CHECK(gd_autocast_dtype() == GD_BF16);
        gd_clear_error();
    }
}

static void *read_setting_in_thread(void *out) {
    *(gd_dtype *)out = gd_autocast_dtype();
    return NULL;
}

TEST(autocast_is_per_thread) {
    GD_AUTOCAST(GD_BF16);
    gd_dtype other = GD_BF16;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_setting_in_thread, &other) == 0);
    pthread_join(thread, NULL);
    CHECK(other == GD_DTYPE_NONE);
}

/* --- classes ---------------------------------------------------------------------------------- */

TEST(products_run_in_low_precision_and_sums_in_f32) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(4, 6)), *w = gd_randn(gd_dims(6, 3));
    GD_AUTOCAST(GD_BF16);
    gd_tensor *y = gd_matmul(x, w);
    CHECK(gd_tensor_dtype(y) == GD_BF16);
    CHECK(gd_tensor_dtype(gd_relu(y)) == GD_BF16);
    CHECK(gd_tensor_dtype(gd_add(y, gd_randn(gd_dims(3)))) == GD_F32);
    CHECK(gd_tensor_dtype(gd_softmax(y)) == GD_F32);
    CHECK(gd_tensor_dtype(gd_sum(y)) == GD_F32);
    CHECK(gd_tensor_dtype(gd_exp(y)) == GD_F32);
    CHECK(gd_tensor_dtype(gd_sum(y, .dtype = GD_BF16)) == GD_BF16);
    CHECK(gd_tensor_dtype(gd_sum(gd_cast(y, GD_I32))) == GD_I64);
    GD_AUTOCAST(GD_F16);
    CHECK(gd_tensor_dtype(gd_matmul(y, gd_transpose(w, 0, 1))) == GD_F16); /* bf16 too */
    CHECK(!gd_failed());
}

TEST(f64_inputs_and_in_place_targets_are_not_cast) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(4, 6)), *w = gd_randn(gd_dims(6, 3), .dtype = GD_F64);
    gd_tensor *b = gd_randn(gd_dims(4), .dtype = GD_BF16), *exact = gd_matmul(x, w);
    GD_AUTOCAST(GD_BF16);
    gd_tensor *y = gd_matmul(x, w); /* x is promoted to f64 without rounding to bf16 */
    CHECK(gd_tensor_dtype(y) == GD_F64);
    CHECK(memcmp(gd_data(y), gd_data(exact), 12 * sizeof(double)) == 0);
    CHECK(gd_tensor_dtype(gd_exp_(b)) == GD_BF16);
    CHECK(!gd_failed());
}

TEST(casts_are_freed_after_the_call) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_tensor *x = gd_randn(gd_dims(4, 6)), *w = gd_randn(gd_dims(6, 3));
    GD_AUTOCAST(GD_BF16);
    const int64_t before = gd_live_objects();
    gd_matmul(x, w);
    CHECK(gd_live_objects() == before + 1);
}

/* A user-defined op with a list of results: the powers x, x x, x x x ... of a matrix. */
static gd_status powers_infer(gd_infer *i) {
    const int64_t n = *(const int64_t *)i->attrs;
    const gd_status status =
        n < 1 ? gd_op_fail(GD_E_ARGUMENT, "n is %lld", (long long)n) : gd_infer_outputs(i, (int)n);
    for (int k = 0; k < n && status == GD_OK; k++) {
        i->out[k].rank = 2;
        i->out[k].dims[0] = i->out[k].dims[1] = gd_tensor_dim(i->in[0], 0);
    }
    return status;
}
static void powers_expand(gd_expansion *e) {
    for (int k = 0; k < e->n_out; k++)
        e->y[k] = k ? gd_matmul(e->y[k - 1], e->x[0]) : gd_clone(e->x[0]);
}

TEST(user_defined_ops_have_autocast_classes_and_lists_of_results) {
    GD_SCOPE;
    gd_op_define("powers(x, n:int) -> ys*  lowp\nPowers of a matrix.\n",
                 &(gd_op_rules){.infer = powers_infer, .expand = powers_expand});
    const gd_op *powers = gd_op_find("powers");
    gd_tensor *x = gd_randn(gd_dims(3, 3));
    for (int64_t n = 0; n < 4; n++) {
        GD_SCOPE;
        gd_attrs *attrs = gd_attrs_new(powers);
        gd_attrs_set_int(attrs, "n", n);
        GD_AUTOCAST(GD_F16);
        const int64_t before = gd_live_objects();
        gd_tensors y = gd_op_call(powers, gd_list(x), attrs);
        if (n > 0) {
            CHECK(y.count == n &&
                  gd_live_objects() == before + n + 1); /* the results and their list */
            for (int64_t k = 0; k < y.count; k++) CHECK(gd_tensor_dtype(y.at[k]) == GD_F16);
            CHECK(gd_item(gd_select(gd_select(y.at[0], 0, 0), 0, 0)) != 0);
        } else {
            CHECK(gd_error_status() == GD_E_ARGUMENT);
            gd_clear_error();
        }
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
}

TEST(a_thread_without_a_scope_owns_the_result_alone) {
    gd_tensor *x = gd_ones(gd_dims(2, 2));
    const int64_t before = gd_live_objects();
    {
        GD_AUTOCAST(GD_BF16);
        gd_tensor *y = gd_matmul(x, x);
        CHECK(gd_tensor_dtype(y) == GD_BF16);
        gd_release(y);
    }
    CHECK(gd_live_objects() == before);
    gd_release(x);
}

TEST(hidden_results_of_a_cast_call_are_freed_without_a_scope) {
    gd_tensor *x = gd_ones(gd_dims(3, 4), .dtype = GD_BF16), *w = gd_ones(gd_dims(4));
    gd_requires_grad(w); /* so the call computes what the gradient needs: mean and deviation */
    const int64_t before = gd_live_objects();
    {
        GD_AUTOCAST(GD_BF16);
        gd_tensor *y = gd_layer_norm(x, w, w);
        CHECK(gd_tensor_dtype(y) == GD_F32 && gd_tensor_requires_grad(y));
        gd_release(y);
    }
    CHECK_SAYING(gd_live_objects() == before, "%lld tensors are left",
                 (long long)(gd_live_objects() - before));
    gd_release(x);
    gd_release(w);
}

/* --- gradients -------------------------------------------------------------------------------- */

TEST(gradients_of_f32_parameters_are_f32) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(8, 6)), *w = make_leaf(gd_dims(6, 3)),
              *b = make_leaf(gd_dims(3));
    gd_tensor *loss;
    {
        GD_AUTOCAST(GD_BF16);
        loss = gd_mean(gd_square(gd_add(gd_matmul(x, w), b)));
    }
    gd_backward(loss);
    CHECK(gd_tensor_dtype(gd_tensor_grad(w)) == GD_F32);
    CHECK(gd_tensor_dtype(gd_tensor_grad(b)) == GD_F32);
    gd_tensor *exact =
        gd_grad(gd_list(gd_mean(gd_square(gd_add(gd_matmul(x, w), b)))), gd_list(w)).at[0];
    const double off = gd_item(gd_norm(gd_sub(gd_tensor_grad(w), exact))) / gd_item(gd_norm(exact));
    CHECK(off > 0 && off < 0.02);
    CHECK(!gd_failed());
}

/* Backward computes in the dtypes of the forward, inside the block and after it. */
TEST(backward_is_the_same_inside_and_after_the_block) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(8, 6)), *w = make_leaf(gd_dims(6, 3));
    gd_tensor *inside, *after, *loss;
    {
        GD_AUTOCAST(GD_BF16);
        loss = gd_sum(gd_square(gd_matmul(x, w)));
        inside = gd_grad(gd_list(loss), gd_list(w), .retain_graph = true).at[0];
    }
    after = gd_grad(gd_list(loss), gd_list(w)).at[0];
    CHECK(memcmp(gd_data(inside), gd_data(after), 18 * sizeof(float)) == 0);
    CHECK(!gd_failed());
}

/* The gradients of an f32 forward are f32, even if backward runs under autocast. */
TEST(backward_under_autocast_does_not_round_an_f32_forward) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(8, 6)), *w = make_leaf(gd_dims(6, 3)),
              *loss = gd_sum(gd_square(gd_matmul(x, w)));
    gd_tensor *outside = gd_grad(gd_list(loss), gd_list(w), .retain_graph = true).at[0];
    GD_AUTOCAST(GD_BF16);
    gd_tensor *inside = gd_grad(gd_list(loss), gd_list(w)).at[0];
    CHECK(memcmp(gd_data(inside), gd_data(outside), 18 * sizeof(float)) == 0);
    CHECK(!gd_failed());
}

static gd_tensor *two_products(gd_tensors in, void *w) {
    gd_tensor *h = gd_tanh(gd_matmul(in.at[0], w));
    return gd_sum(gd_matmul(h, gd_transpose(h, 0, 1)));
}

TEST(recompute_uses_the_autocast_setting_of_the_forward) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(8, 6)), *w = make_leaf(gd_dims(6, 3)), *direct, *loss;
    {
        GD_AUTOCAST(GD_BF16);
        direct = gd_grad(gd_list(two_products(gd_list(x), w)), gd_list(w)).at[0];
        loss = gd_recompute(two_products, gd_list(x), w);
    }
    gd_backward(loss);
    CHECK(!gd_failed());
    CHECK(memcmp(gd_data(direct), gd_data(gd_tensor_grad(w)), 18 * sizeof(float)) == 0);
}

/* --- user-defined functions ------------------------------------------------------------------- */

static gd_dtype seen;
static void product_forward(gd_context *c) {
    seen = gd_autocast_dtype();
    gd_save(c, c->x[0]);
    c->y[0] = gd_matmul(c->x[0], c->x[0]);
}
static void product_backward(gd_context *c) { c->gx[0] = gd_matmul(c->gy[0], gd_saved(c, 0)); }
static const gd_function product = {
    .name = "product", .forward = product_forward, .backward = product_backward};

TEST(autocast_is_off_inside_user_defined_functions) {
    GD_SCOPE;
    gd_tensor *x = make_leaf(gd_dims(3, 3));
    GD_AUTOCAST(GD_BF16);
    gd_tensor *y = gd_apply(&product, gd_list(x), NULL).at[0];
    CHECK(seen == GD_DTYPE_NONE && gd_tensor_dtype(y) == GD_F32);
    CHECK(gd_autocast_dtype() == GD_BF16);
}

/* --- jits and graphs -------------------------------------------------------------------------- */

static gd_tensors product_of(gd_tensors in, void *w) {
    return gd_listed(gd_relu(gd_matmul(in.at[0], w)));
}

TEST(a_jit_has_a_plan_for_each_setting) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(8, 6)), *w = make_leaf(gd_dims(6, 3));
    gd_jit *jit = gd_jit_new(product_of, w);
    CHECK(gd_tensor_dtype(gd_jit_call(jit, gd_list(x)).at[0]) == GD_F32);
    for (int again = 0; again < 2; again++) {
        GD_AUTOCAST(GD_BF16);
        gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0], *eager = product_of(gd_list(x), w).at[0];
        CHECK(gd_tensor_dtype(y) == GD_BF16);
        CHECK(memcmp(gd_data(y), gd_data(eager), 24 * 2) == 0);
        gd_zero_grad(w);
        gd_backward(gd_sum(y));
        CHECK(gd_tensor_dtype(gd_tensor_grad(w)) == GD_F32);
    }
    CHECK(gd_tensor_dtype(gd_jit_call(jit, gd_list(x)).at[0]) == GD_F32);
    CHECK(gd_jit_traces(jit) == 2);
    CHECK(!gd_failed());
}

TEST(a_session_runs_the_graph_as_it_was_built) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *low, *full, *value = gd_randn(gd_dims(4, 6)), *w = gd_randn(gd_dims(6, 3));
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(GD_ANY, 6));
        full = gd_matmul(x, w);
        GD_AUTOCAST(GD_BF16);
        low = gd_matmul(x, w);
    }
    CHECK(gd_tensor_dtype(low) == GD_BF16 && gd_tensor_dtype(full) == GD_F32);
    for (int level = 0; level < 3; level++) {
        gd_session *s = gd_session_new(g, .level = level);
        GD_AUTOCAST(level == 1 ? GD_F16 : GD_DTYPE_NONE);
        gd_tensors y = gd_session_run(s, gd_list(x, value), gd_list(low, full));
        CHECK(gd_tensor_dtype(y.at[0]) == GD_BF16 && gd_tensor_dtype(y.at[1]) == GD_F32);
    }
    CHECK(!gd_failed());
}

/* The ONNX file contains the casts and gives the same results. */
TEST(a_graph_with_casts_is_saved_as_onnx) {
    GD_SCOPE;
    static const gd_dtype lows[] = {GD_BF16, GD_F16};
    for (int i = 0; i < 2; i++) {
        gd_graph *g = gd_graph_new();
        gd_tensor *x, *y, *value = gd_randn(gd_dims(4, 6)), *w = gd_randn(gd_dims(5, 6)),
                          *b = gd_randn(gd_dims(5));
        {
            GD_GRAPH(g);
            x = gd_placeholder(gd_dims(4, 6), .name = "x");
            GD_AUTOCAST(lows[i]);
            y = gd_named(gd_softmax(gd_relu(gd_linear(x, w, b))), "y");
        }
        CHECK(gd_tensor_dtype(y) == GD_F32);
        gd_session *s = gd_session_new(g);
        const char *path = temp_path("autocast.onnx");
        CHECK(gd_onnx_save(path, s, gd_list(x), gd_list(y)) == GD_OK);
        gd_tensor *before = gd_session_run(s, gd_list(x, value), gd_list(y)).at[0], *after;
        {
            GD_AUTOCAST(GD_BF16); /* loading adds no casts */
            gd_graph *loaded = gd_onnx_load(path);
            gd_tensor *in = gd_graph_find(loaded, "x"), *out = gd_graph_find(loaded, "y");
            after = gd_session_run(gd_session_new(loaded), gd_list(in, value), gd_list(out)).at[0];
        }
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        if (gd_failed()) return;
        CHECK(memcmp(gd_data(before), gd_data(after), 20 * sizeof(float)) == 0);
    }
}

/* --- threads ---------------------------------------------------------------------------------- */

typedef struct caller {
    gd_jit *jit;
    gd_tensor *x;
    gd_dtype dtype;
    bool right;
} caller;

static void *call_often(void *arg) {
    caller *c = arg;
    c->right = true;
    for (int i = 0; i < 50 && c->right; i++) {
        GD_SCOPE;
        GD_AUTOCAST(c->dtype);
        const gd_dtype y = gd_tensor_dtype(gd_jit_call(c->jit, gd_list(c->x)).at[0]),
                       expected = c->dtype == GD_DTYPE_NONE ? GD_F32 : c->dtype;
        c->right =
            y == expected && gd_tensor_dtype(gd_matmul(c->x, c->x)) == expected && !gd_failed();
    }
    return NULL;
}

TEST(threads_call_one_jit_under_different_settings) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(6, 6));
    gd_jit *jit = gd_jit_new(product_of, x);
    static const gd_dtype dtypes[] = {GD_DTYPE_NONE, GD_BF16, GD_F16, GD_BF16};
    caller callers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        callers[i] = (caller){jit, x, dtypes[i], false};
        CHECK(pthread_create(&threads[i], NULL, call_often, &callers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(callers[i].right);
    }
    CHECK(gd_jit_traces(jit) == 3);
}

/* --- failing allocations ---------------------------------------------------------------------- */

TEST(any_allocation_may_fail) {
    gd_tensor *x = gd_ones(gd_dims(4, 4));
    for (int way = 0; way < 2; way++) {
        fault_walk w = {.what = way ? "matmul and softmax" : "einsum", .most = 500};
        while (fault_next(&w)) {
            GD_SCOPE;
            GD_AUTOCAST(GD_BF16);
            fault_begin(&w);
            gd_tensor *y =
                way ? gd_softmax(gd_matmul(x, x)) : gd_einsum("ij,jk->ik", gd_list(x, x));
            fault_end(&w);
            CHECK_ROUND(&w, gd_failed() || gd_tensor_dtype(y) == (way ? GD_F32 : GD_BF16));
            CHECK_FAULT(&w, gd_error_status());
        }
        CHECK(w.failures > 2);
    }
    gd_release(x);
}

TEST(a_failed_call_names_the_op_and_the_source_line) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(4, 3));
    GD_AUTOCAST(GD_BF16);
    CHECK(gd_tensor_is_error(gd_matmul(x, x)));
    CHECK(strstr(gd_error_message(), "matmul(a bf16[4,3]") &&
          strstr(gd_error_message(), "test_autocast.c"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_matmul(x, NULL)));
    gd_clear_error();
    CHECK(gd_autocast_dtype() == GD_BF16);
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct training {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_loss_scale *scale;
    gd_dtype dtype;
} training;

static gd_tensors train_step(gd_tensors in, void *user) {
    training *t = user;
    gd_optimizer_zero_grad(t->optimizer);
    gd_tensor *loss;
    {
        GD_AUTOCAST(t->dtype);
        gd_tensor *y = gd_module_forward(t->net, in.at[0]);
        loss = gd_cross_entropy(gd_reshape(y, gd_dims(-1, gd_tensor_dim(y, -1))),
                                gd_reshape(in.at[1], gd_dims(-1)));
    }
    gd_backward(gd_loss_scale_apply(t->scale, loss));
    gd_loss_scale_step(t->scale, t->optimizer);
    return gd_listed(loss);
}

enum { STEPS = 50, LAST = 10 };

typedef struct losses {
    double all, last; /* means of all steps, and of the last ones */
} losses;

/* The same weights and batches in each dtype. */
static losses train_net(const char *net, const char *options, bool tokens, gd_dtype dtype,
                        bool jit) {
    GD_SCOPE;
    gd_seed(3);
    training t = {.net = gd_net_new(net, options), .dtype = dtype};
    t.optimizer = gd_optim_adamw(gd_module_parameters(t.net), .lr = 2e-3);
    if (dtype == GD_F16) t.scale = gd_loss_scale_new();
    gd_jit *plan = jit ? gd_jit_new(train_step, &t) : NULL;
    gd_tensor *patterns = gd_randn(gd_dims(10, 1, 28, 28));
    losses sum = {0, 0};
    for (int i = 0; i < STEPS && !gd_failed(); i++) {
        GD_SCOPE;
        gd_tensor *x, *y;
        if (tokens) { /* counting upwards, modulo 17 */
            gd_tensor *start = gd_randint(gd_dims(8, 1), 0, 17);
            gd_tensor *all =
                gd_remainder(gd_add(start, gd_arange(0, 17, .dtype = GD_I64)), gd_scalar_int(17));
            x = gd_contiguous(gd_narrow(all, 1, 0, 16)),
            y = gd_contiguous(gd_narrow(all, 1, 1, 16));
        } else {
            y = gd_randint(gd_dims(32), 0, 10);
            x = gd_add(gd_index_select(patterns, 0, y), gd_randn(gd_dims(32, 1, 28, 28)));
        }
        gd_tensor *loss =
            jit ? gd_jit_call(plan, gd_list(x, y)).at[0] : train_step(gd_list(x, y), &t).at[0];
        sum.all += gd_item(loss) / STEPS;
        if (i >= STEPS - LAST) sum.last += gd_item(loss) / LAST;
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_tensors parameters = gd_module_parameters(t.net);
    for (int64_t i = 0; i < parameters.count; i++)
        CHECK(gd_tensor_dtype(parameters.at[i]) == GD_F32);
    gd_clear_error();
    return sum;
}

/* In PyTorch the mean losses with and without autocast differ by up to 0.013 of the first loss. */
static void compare_training(const char *net, const char *options, bool tokens, double first) {
    const losses exact = train_net(net, options, tokens, GD_DTYPE_NONE, true);
    static const gd_dtype lows[] = {GD_BF16, GD_F16};
    CHECK_SAYING(exact.last < first / 2, "f32 ends at %g", exact.last);
    for (int i = 0; i < 2; i++)
        for (int jit = 0; jit < 2; jit++) {
            const losses low = train_net(net, options, tokens, lows[i], jit);
            CHECK_SAYING(fabs(low.all - exact.all) < 0.02 * first && low.last < first / 2,
                         "%s%s: %g and %g at the end; f32 %g and %g", gd_dtype_name(lows[i]),
                         jit ? ", jit" : "", low.all, low.last, exact.all, exact.last);
        }
}

TEST(lenet_learns_as_well_as_in_f32) { compare_training("lenet", "", false, log(10)); }
TEST(gpt_learns_as_well_as_in_f32) {
    compare_training("gpt", "vocabulary=17 context=16 layers=2 heads=2 width=32 dropout=0", true,
                     log(17));
}

TEST_MAIN
