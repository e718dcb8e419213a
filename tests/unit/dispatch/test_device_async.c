/* test_device_async.c - promises of asynchronous devices, on the test device: staging, host
 * scalars, captured plans, failures that depend on data, lost devices and forks. */
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/test/device.h"
#include "gradus/gradus.h"
#include "test.h"

static gd_device *device;

__attribute__((constructor)) static void open_device(void) { device = gd_test_device(); }

static gd_test_counts counts(void) { return gd_test_device_controls(device)->counts; }

static gd_tensor *on_device(gd_shape shape, const float *data) {
    return gd_to_device(gd_from_array(shape, GD_F32, data), device);
}

static gd_tensor *indices(int64_t a, int64_t b) {
    return gd_to_device(gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){a, b})), device);
}

/* Whether the tensor, read back, has these values. */
static bool has_values(gd_tensor *t, int n, const float *values) {
    float got[16];
    if (gd_copy_to(t, got, (size_t)n * sizeof *got) != GD_OK) return false;
    return memcmp(got, values, (size_t)n * sizeof *got) == 0;
}

/* --- staging ---------------------------------------------------------------------------------- */

TEST(kernels_get_contiguous_inputs_of_their_dtype) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2, 2), (float[]){1, 2, 3, 4});
    gd_tensor *y = gd_matmul(gd_transpose(x, 0, 1), gd_cast(x, GD_BF16)); /* strided and narrow */
    CHECK(has_values(gd_cast(y, GD_F32), 4, (float[]){10, 14, 14, 20}));
    gd_graph *g = gd_graph_new();
    gd_tensor *p, *z;
    {
        GD_GRAPH(g);
        p = gd_placeholder(gd_dims(2, 2));
        z = gd_add(gd_matmul(gd_transpose(p, 0, 1), p), p);
    }
    gd_session *s = gd_session_new(g, .device = device);
    gd_tensors r = gd_session_run(s, gd_feed(p, x), gd_list(z));
    CHECK(has_values(r.at[0], 4, (float[]){11, 16, 17, 24}));
    CHECK(!gd_failed());
}

/* Ops without a kernel on the device become their bodies when the run is planned. */
static void check_other_device(int64_t rows) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *v, *y, *g;
    {
        GD_GRAPH(graph); /* the default device is the CPU */
        x = gd_placeholder(gd_dims(rows, 3));
        v = gd_variable(gd_from_array(gd_dims(3), GD_F32, ((float[]){1, 2, 4})));
        y = gd_sum(gd_logsumexp(gd_std(gd_mul(x, v), .axis = gd_dims(1), .keepdim = true)));
        g = gd_grad(gd_list(y), gd_list(v)).at[0];
    }
    gd_tensor *value = gd_from_array(gd_dims(2, 3), GD_F32, ((float[]){1, 0, 2, -1, 3, 1}));
    float got[2][4];
    for (int level = 0; level < 3; level++)
        for (int i = 0; i < 2; i++) {
            gd_session *s = gd_session_new(graph, .device = i ? device : NULL, .level = level);
            gd_tensors r = gd_session_run(s, gd_feed(x, value), gd_list(y, g));
            gd_copy_to(r.at[0], &got[i][0], sizeof(float));
            gd_copy_to(r.at[1], &got[i][1], 3 * sizeof(float));
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            gd_clear_error();
            for (int k = 0; i == 1 && k < 4; k++) CHECK(fabsf(got[0][k] - got[1][k]) < 1e-5f);
        }
}

TEST(a_graph_that_was_built_for_the_cpu_runs_on_another_device) {
    check_other_device(2);
    check_other_device(-1); /* a size that is known only when it runs */
}

/* --- failures that depend on data ------------------------------------------------------------- */

TEST(an_eager_failure_has_op_shapes_and_source_line) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(4, 2), (float[8]){0});
    gd_tensor *y = gd_index_select(x, 0, indices(1, 9));
    CHECK(!gd_failed()); /* the call is asynchronous, and nothing was read yet */
    gd_item(gd_sum(gd_exp(y)));
    CHECK(gd_error_status() == GD_E_INDEX);
    CHECK(strstr(gd_error_message(), "index_select(x f32[4,2], index i64[2]): "));
    CHECK(strstr(gd_error_message(), "9"));
    CHECK(strstr(gd_error_message(), "test_device_async.c:"));
    gd_clear_error();
    CHECK(gd_synchronize(device) == GD_OK);
}

/* A call that fails because of its data. */
typedef struct bad_call {
    const char *op, *options;
    struct {
        gd_dtype dtype;
        gd_shape shape;
        double values[8];
    } in[3];
} bad_call;

#define IN(dtype, shape, ...)                                                           \
    {                                                                                   \
        GD_##dtype, {{UNWRAP shape}, sizeof((int[]){UNWRAP shape}) / sizeof(int), 1}, { \
            __VA_ARGS__                                                                 \
        }                                                                               \
    }
#define UNWRAP(...) __VA_ARGS__
static const bad_call bad_calls[] = {
    {"gather", "axis=1", {IN(F32, (2, 3), 0), IN(I64, (2, 2), 0, 1, 2, 3)}},
    {"gather", "axis=0", {IN(F32, (2, 3), 0), IN(I32, (2, 2), 0, 1, -1, 3)}},
    {"index_select", "axis=0", {IN(BF16, (4, 2), 0), IN(I64, (2), 1, 9)}},
    {"index_add", "axis=0", {IN(F32, (4, 2), 0), IN(I64, (2), 1, 4), IN(F32, (2, 2), 0)}},
    {"embedding", "", {IN(I64, (2, 2), 0, 1, 5, 2), IN(F32, (3, 2), 0)}},
    {"one_hot", "classes=3", {IN(I64, (3), 0, 3, 1)}},
    {"one_hot", "classes=-1", {IN(I64, (3), 0, -3, 1)}},
    {"scatter", "axis=1", {IN(F32, (2, 3), 0), IN(I64, (1, 2), 0, 3), IN(F32, (1, 2), 0)}},
    {"scatter_add", "axis=0", {IN(I64, (3), 0), IN(U8, (2), 0, 3), IN(I64, (2), 0)}},
    {"scatter_reduce", "axis=0 reduce=amax", {IN(F64, (3), 0), IN(I64, (1), -1), IN(F64, (1), 0)}},
    {"index_axes", "axes=0,1", {IN(F32, (2, 3), 0), IN(I64, (2), 1, -2), IN(I64, (2), -4, 0)}},
    {"pool_gather", "axes=1", {IN(F32, (1, 3), 0), IN(I64, (1, 2), -1, 3)}},
    {"pool_scatter", "dims=4", {IN(F32, (1, 2), 0), IN(I64, (1, 2), -2, 3)}},
    {"nll_loss", "", {IN(F32, (2, 3), 0), IN(I64, (2), 2, 3)}},
    {"nll_loss", "ignore_index=3", {IN(F32, (2, 3), 0), IN(I64, (2), 3, -1)}},
    {"cross_entropy", "", {IN(F32, (2, 3), 0), IN(I64, (2), 7, 0)}},
    {"bernoulli", "", {IN(F32, (2), 0.5, 1.25)}},
    {"bernoulli", "", {IN(F64, (2), NAN, 0.5)}},
    {"check_finite", "", {IN(F32, (3), 1, 2, -INFINITY)}},
    {"masked_scatter", "", {IN(F32, (3), 0), IN(BOOL, (3), 1, 0, 1), IN(F32, (1), 0)}},
    {"multinomial", "n=1", {IN(F32, (2, 3), 1, 1, 1, 1, -2, 1)}},
    {"multinomial", "n=1", {IN(F32, (2, 3), 1, 1, 1, 0, 0, 0)}},
    {"multinomial", "n=2", {IN(F32, (2, 3), 1, 1, 1, 0, 4, 0)}},
};

static gd_tensor *filled(gd_dtype dtype, gd_shape shape, const double *values) {
    return gd_cast(gd_from_array(shape, GD_F64, values), dtype);
}

/* Makes the call on a device; returns status and message. */
static gd_status bad_status(const bad_call *c, gd_device *where, char *text, size_t size) {
    GD_SCOPE;
    gd_tensor *in[3];
    int n = 0;
    for (; n < 3 && c->in[n].dtype != GD_DTYPE_NONE; n++)
        in[n] = gd_to_device(filled(c->in[n].dtype, c->in[n].shape, c->in[n].values), where);
    gd_call(c->op, ((gd_tensors){in, n}), c->options);
    gd_synchronize(where);
    snprintf(text, size, "%s", gd_error_message());
    const gd_status status = gd_error_status();
    gd_clear_error();
    return status;
}

TEST(bad_data_gives_the_message_of_the_cpu) {
    for (size_t i = 0; i < sizeof bad_calls / sizeof *bad_calls; i++) {
        char here[512], there[512];
        const bad_call *c = &bad_calls[i];
        const gd_status status = bad_status(c, gd_device_get("cpu"), here, sizeof here);
        CHECK_SAYING(status != GD_OK, "%s %s", c->op, c->options);
        CHECK_SAYING(bad_status(c, device, there, sizeof there) == status &&
                         strcmp(here, there) == 0,
                     "%s\n  instead of %s", there, here);
    }
}

TEST(nothing_queued_after_a_failure_changes_state) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(4, 2), (float[8]){0}),
              *w = on_device(gd_dims(2), (float[]){1, 2}),
              *one = on_device(gd_dims(2), (float[]){1, 1}), *lr = gd_scalar(1);
    gd_index_select(x, 0, indices(1, 9));
    gd_add_(w, one);                                     /* in place */
    gd_call("sgd_step", gd_list(w, one, lr), "");        /* an update */
    gd_copy_from(w, (float[]){7, 7}, 2 * sizeof(float)); /* from the host */
    CHECK(!gd_failed());
    CHECK(gd_synchronize(device) == GD_E_INDEX);
    gd_clear_error();
    CHECK(has_values(w, 2, (float[]){1, 2}));
    gd_add_(w, one);
    CHECK(has_values(w, 2, (float[]){2, 3}));
}

/* A session that adds its feeds to a variable, after a lookup that may fail. */
typedef struct sum_session {
    gd_graph *g;
    gd_session *s;
    gd_tensor *table, *index, *variable, *fetch, *noise;
} sum_session;

static sum_session make_sum_session(void) {
    sum_session m = {.g = gd_graph_new()};
    GD_GRAPH(m.g);
    m.index = gd_placeholder(gd_dims(2), .dtype = GD_I64);
    m.table = gd_arange(10, 40, .step = 10);
    m.variable = gd_variable(gd_zeros(gd_dims(2)));
    m.noise = gd_rand(gd_dims(4));
    m.fetch = gd_assign(m.variable, gd_add(m.variable, gd_index_select(m.table, 0, m.index)));
    return m;
}

TEST(a_failed_run_and_later_queued_runs_change_nothing) {
    GD_SCOPE;
    gd_set_default_device(device);
    sum_session m = make_sum_session();
    m.s = gd_session_new(m.g);
    gd_set_default_device(NULL);
    gd_session_run(m.s, gd_feed(m.index, indices(0, 1)), gd_list(m.fetch));
    CHECK(has_values(gd_session_get(m.s, m.variable), 2, (float[]){10, 20}));
    gd_tensors before = gd_session_run(m.s, gd_feed(m.index, indices(0, 0)), gd_list(m.noise));
    (void)before;
    for (int bad = 0; bad < 3; bad++) { /* also when the plan has been captured */
        gd_session_run(m.s, gd_feed(m.index, indices(2, 7)), gd_list(m.fetch));
        gd_session_run(m.s, gd_feed(m.index, indices(1, 1)), gd_list(m.fetch));
        CHECK(!gd_failed());
        CHECK(gd_synchronize(device) == GD_E_INDEX);
        CHECK_SAYING(strstr(gd_error_message(), "index_select"), "%s", gd_error_message());
        gd_clear_error();
        CHECK(has_values(gd_session_get(m.s, m.variable), 2, (float[]){10, 20}));
    }
    gd_session_run(m.s, gd_feed(m.index, indices(2, 2)), gd_list(m.fetch));
    CHECK(has_values(gd_session_get(m.s, m.variable), 2, (float[]){40, 50}));
    CHECK(!gd_failed());
}

/* Reads back the numbers that a session draws in its next run. */
static bool draw_numbers(sum_session *m, float *numbers) {
    gd_tensor *r = gd_session_run(m->s, gd_feed(m->index, indices(0, 0)), gd_list(m->noise)).at[0];
    return gd_copy_to(r, numbers, 4 * sizeof *numbers) == GD_OK;
}

TEST(a_failure_resets_the_counters_of_its_own_run_only) {
    GD_SCOPE;
    gd_set_default_device(device);
    sum_session m = make_sum_session();
    float expected[3][4], got[4];
    m.s = gd_session_new(m.g);
    for (int i = 0; i < 3; i++) CHECK(draw_numbers(&m, expected[i]));
    CHECK(memcmp(expected[0], expected[1], sizeof got) != 0);
    m.s = gd_session_new(m.g);
    gd_set_default_device(NULL);
    gd_session_run(m.s, gd_feed(m.index, indices(0, 0)), gd_list(m.noise));
    gd_index_select(on_device(gd_dims(4, 2), (float[8]){0}), 0, indices(1, 9)); /* an eager call */
    CHECK(gd_synchronize(device) == GD_E_INDEX);
    gd_clear_error();
    CHECK(draw_numbers(&m, got) && memcmp(got, expected[1], sizeof got) == 0);
    gd_session_run(m.s, gd_feed(m.index, indices(2, 7)), gd_list(m.fetch)); /* a run */
    gd_session_run(m.s, gd_feed(m.index, indices(1, 1)), gd_list(m.fetch));
    CHECK(gd_synchronize(device) == GD_E_INDEX);
    gd_clear_error();
    CHECK(draw_numbers(&m, got) && memcmp(got, expected[2], sizeof got) == 0);
}

/* --- host scalars ----------------------------------------------------------------------------- */

static gd_tensors add_scaled(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(gd_mul(in.at[0], gd_scalar(3)), in.at[0]));
}

TEST(a_result_with_a_host_scalar_is_on_the_device) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2), (float[]){1, 2});
    gd_jit *jit = gd_jit_new(add_scaled, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_SAYING(has_values(gd_jit_call(jit, gd_list(x)).at[0], 2, (float[]){4, 8}), "%s",
                     gd_error_message());
    gd_clear_error();
}

static gd_tensors scale_by_captured(gd_tensors in, void *user) {
    return gd_listed(gd_mul(in.at[0], user));
}

TEST(a_captured_host_scalar_is_read_at_each_call) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2), (float[]){1, 2}), *factor = gd_scalar(3);
    gd_jit *jit = gd_jit_new(scale_by_captured, factor);
    for (int i = 0; i < 3; i++)
        CHECK_SAYING(has_values(gd_jit_call(jit, gd_list(x)).at[0], 2, (float[]){3, 6}), "%s",
                     gd_error_message());
    gd_copy_from(factor, &(float){5}, sizeof(float));
    CHECK(has_values(gd_jit_call(jit, gd_list(x)).at[0], 2, (float[]){5, 10}));
    CHECK(gd_jit_traces(jit) == 1);
}

static gd_tensors write_captured(gd_tensors in, void *user) {
    return gd_listed(gd_assign(user, gd_sum(in.at[0])));
}

TEST(a_host_scalar_is_not_written_from_the_device) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2), (float[]){1, 2}), *number = gd_scalar(3);
    gd_assign(number, gd_sum(x));
    CHECK(gd_error_status() == GD_E_DEVICE);
    gd_clear_error();
    gd_jit_call(gd_jit_new(write_captured, number), gd_list(x));
    CHECK(gd_error_status() == GD_E_DEVICE);
    gd_clear_error();
    CHECK(gd_item(number) == 3);
}

/* --- user-defined functions ------------------------------------------------------------------- */

static void twice_forward(gd_context *c) { c->y[0] = gd_mul(c->x[0], gd_scalar(2)); }
static void twice_backward(gd_context *c) { c->gx[0] = gd_mul(c->gy[0], gd_scalar(2)); }
static const gd_function twice = {
    .name = "twice", .forward = twice_forward, .backward = twice_backward};

static gd_tensors thrice(gd_tensors in, void *user) {
    return gd_listed(gd_add(gd_apply(&twice, in, user).at[0], in.at[0]));
}

TEST(a_device_plan_calls_user_defined_functions) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(on_device(gd_dims(2), (float[]){1, 2}));
    gd_jit *jit = gd_jit_new(thrice, NULL);
    for (int i = 0; i < 3; i++) {
        gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
        CHECK_SAYING(has_values(y, 2, (float[]){3, 6}), "%s", gd_error_message());
        gd_tensors g = gd_grad(gd_list(gd_sum(y)), gd_list(x));
        CHECK_SAYING(has_values(g.at[0], 2, (float[]){3, 3}), "%s", gd_error_message());
    }
}

/* --- captured plans --------------------------------------------------------------------------- */

typedef struct training {
    gd_tensor *w1, *w2;
    gd_optimizer *adam;
} training;

static gd_tensors train_step(gd_tensors in, void *user) {
    training *t = user;
    gd_tensor *h = gd_relu(gd_matmul(in.at[0], t->w1));
    gd_tensor *loss = gd_mse_loss(gd_matmul(h, t->w2), in.at[1]);
    gd_optimizer_zero_grad(t->adam);
    gd_backward(loss);
    gd_optimizer_step(t->adam);
    return gd_listed(loss);
}

TEST(a_replayed_training_step_is_one_launch) {
    GD_SCOPE;
    gd_seed(1);
    training t = {gd_requires_grad(gd_to_device(gd_randn(gd_dims(3, 4)), device)),
                  gd_requires_grad(gd_to_device(gd_randn(gd_dims(4, 2)), device)), NULL};
    t.adam = gd_optim_adam(gd_list(t.w1, t.w2), .lr = 0.05);
    gd_tensor *x = gd_to_device(gd_randn(gd_dims(5, 3)), device),
              *y = gd_to_device(gd_randn(gd_dims(5, 2)), device);
    gd_jit *jit = gd_jit_new(train_step, &t);
    double first = 0, last = 0;
    for (int i = 0; i < 4; i++) {
        GD_SCOPE;
        last = gd_item(gd_jit_call(jit, gd_list(x, y)).at[0]);
        if (i == 0) first = last;
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(last < first);
    gd_synchronize(device);
    const gd_test_counts before = counts();
    for (int i = 0; i < 5; i++) {
        GD_SCOPE;
        gd_jit_call(jit, gd_list(x, y));
    }
    const gd_test_counts after = counts();
    CHECK(!gd_failed());
    CHECK(after.launches - before.launches == 5);
    CHECK(after.kernels == before.kernels); /* the host queues nothing else and does not wait */
    CHECK(after.boundaries == before.boundaries);
    CHECK(after.uploads == before.uploads && after.downloads == before.downloads);
    CHECK(after.waits == before.waits);
    CHECK(after.allocs == before.allocs);
    CHECK(gd_item(gd_jit_call(jit, gd_list(x, y)).at[0]) < last);
    CHECK(gd_jit_traces(jit) == 1);
}

/* --- the end of a device ---------------------------------------------------------------------- */

TEST(the_child_of_a_fork_gets_a_status) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2), (float[]){1, 2}), *host = gd_ones(gd_dims(2));
    const pid_t child = fork();
    if (child == 0) {
        const bool device_fails = gd_failed() == false && gd_add(x, x) && gd_failed() &&
                                  gd_error_status() == GD_E_DEVICE &&
                                  strstr(gd_error_message(), "fork");
        gd_clear_error();
        const bool host_works = gd_item(gd_sum(host)) == 2;
        _exit(device_fails && host_works ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(has_values(x, 2, (float[]){1, 2}));
}

TEST(the_child_of_a_fork_frees_a_captured_plan) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2), (float[]){1, 2}), *factor = gd_scalar(3);
    gd_jit *jit = gd_jit_new(scale_by_captured, factor);
    for (int i = 0; i < 3; i++) gd_jit_call(jit, gd_list(x));
    gd_keep(jit);
    const pid_t child = fork();
    if (child == 0) {
        gd_release(jit);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(has_values(gd_jit_call(jit, gd_list(x)).at[0], 2, (float[]){3, 6}));
    gd_release(jit);
}

TEST(out_of_memory_reports_the_size_and_the_program_continues) {
    GD_SCOPE;
    gd_memory_trim(device);
    gd_test_device_controls(device)->fail_alloc_after = 0;
    gd_tensor *x = gd_to_device(gd_zeros(gd_dims(1 << 20)), device);
    (void)x;
    CHECK(gd_error_status() == GD_E_MEMORY);
    CHECK(strstr(gd_error_message(), "no memory for 4194304 bytes on test:0"));
    gd_clear_error();
    gd_test_device_controls(device)->fail_alloc_after = -1;
    CHECK(gd_item(gd_sum(gd_to_device(gd_ones(gd_dims(1 << 20)), device))) == 1 << 20);
}

/* Runs last: the device stays lost. */
TEST(a_lost_device_stays_lost_and_host_tensors_work) {
    GD_SCOPE;
    gd_tensor *x = on_device(gd_dims(2), (float[]){1, 2}), *host = gd_ones(gd_dims(2));
    gd_synchronize(device);
    gd_exp(x); /* the first call since the host has waited */
    gd_neg(x);
    gd_test_device_controls(device)->lose = true;
    gd_item(gd_sum(x));
    CHECK(gd_error_status() == GD_E_DEVICE);
    CHECK_SAYING(strstr(gd_error_message(), "the cause is exp (") &&
                     strstr(gd_error_message(), "test_device_async.c") &&
                     strstr(gd_error_message(), "or one of the 2 calls after it"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_add(x, x);
    CHECK(gd_error_status() == GD_E_DEVICE && strstr(gd_error_message(), "lost"));
    gd_clear_error();
    CHECK(gd_item(gd_sum(host)) == 2);
}

TEST_MAIN
