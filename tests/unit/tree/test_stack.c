/* test_stack.c - a thread with 64 KiB of stack can do everything (threads.h). test_ops --suite
 * stack measures ops and their gradients; this file measures sessions, jits, files, loops and long
 * tapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "stack.h"
#include "temp.h"
#include "test.h"

static bool has_worked;
static char message[400];

/* Called by the measured function to report whether it worked. */
static void check_worked(bool worked) {
    has_worked = worked && !gd_failed();
    snprintf(message, sizeof message, "%s", gd_error_message());
}

static void check_stack(const char *what, void (*fn)(void *arg)) {
#ifdef GD_SANITIZED /* instrumented frames are larger */
    (void)what, (void)fn;
#else
    const size_t used = stack_used(fn, NULL);
    CHECK_SAYING(has_worked, "%s: %s", what, message);
    CHECK_SAYING(used > 0 && used <= STACK_ALLOWED,
                 "%s needs %zu bytes of stack; at most %d are allowed", what, used, STACK_ALLOWED);
#endif
}

/* --- graphs ----------------------------------------------------------------------------------- */

static void train_a_graph(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *loss, *train;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 1, 12, 12), .name = "x");
        y = gd_placeholder(gd_dims(GD_ANY), .name = "y", .dtype = GD_I64);
        gd_tensor *w = gd_variable(gd_randn(gd_dims(8, 1, 3, 3)));
        gd_tensor *h = gd_relu(gd_conv2d(x, w, NULL, .padding = 1));
        h = gd_gelu(gd_flatten(gd_max_pool2d(h, .kernel = 2), .start_axis = 1));
        h = gd_dense(h, 32, .activation = "tanh");
        h = gd_softmax(gd_div(h, gd_sqrt(gd_mean(gd_square(h), .axis = -1, .keepdim = true))),
                       .axis = -1);
        loss = gd_cross_entropy(gd_dense(h, 10), y);
        train = gd_minimize(gd_optim_adam(gd_graph_variables(graph), .lr = 1e-3), loss);
    }
    gd_session *session = gd_session_new(graph);
    gd_tensor *xs = gd_randn(gd_dims(4, 1, 12, 12)), *ys = gd_zeros(gd_dims(4), .dtype = GD_I64);
    for (int i = 0; i < 2; i++)
        gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss, train));
    free(gd_session_plan_text(session, gd_feed(x, xs, y, ys), gd_list(loss, train)));
    free(gd_graph_text(graph));
    free(gd_graph_dot(graph));
    gd_session *tight = gd_session_new(graph, .memory_limit = 40000);
    gd_session_run(tight, gd_feed(x, xs, y, ys), gd_list(loss, train));
    gd_clear_error(); /* the limit may be too small */
    check_worked(true);
}

static gd_tensors traced_body(gd_tensors in, void *w) {
    return gd_listed(gd_sum(gd_gelu(gd_mul(gd_matmul(in.at[0], w), gd_scalar(2))), .axis = 1));
}

static void call_jits(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_randn(gd_dims(40, 30)));
    gd_jit *jit = gd_jit_new(traced_body, w);
    for (int i = 0; i < 2; i++)
        gd_backward(gd_sum(gd_jit_call(jit, gd_list(gd_randn(gd_dims(20, 40)))).at[0]));
    check_worked(gd_tensor_grad(w) != NULL);
}

static gd_tensors below_ten(gd_tensors in, void *user) {
    return (void)user, gd_listed(gd_lt(in.at[0], gd_scalar(10)));
}
static gd_tensors add_one(gd_tensors in, void *user) {
    return (void)user, gd_listed(gd_add(in.at[0], gd_scalar(1)));
}
static gd_tensors scan_body(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_tanh(gd_add(in.at[0], in.at[1]));
    return gd_listed(y, y);
}

static void run_loops(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *n, *xs, *count, *scanned, *g;
    {
        GD_GRAPH(graph);
        n = gd_placeholder(gd_dims());
        xs = gd_placeholder(gd_dims(5, 3));
        count = gd_while_loop(below_ten, add_one, gd_list(n), NULL).at[0];
        scanned =
            gd_sum(gd_scan(scan_body, gd_list(gd_zeros(gd_dims(3))), gd_list(xs), NULL).ys.at[0]);
        g = gd_gradients(gd_list(scanned), gd_list(xs)).at[0];
    }
    gd_tensor *values = gd_randn(gd_dims(5, 3));
    for (int level = 0; level <= 2; level++) {
        gd_session *session = gd_session_new(graph, .level = level);
        gd_tensors r = gd_session_run(session, gd_feed(n, gd_scalar(1), xs, values),
                                      gd_list(count, scanned, g));
        check_worked(gd_item(r.at[0]) == 10);
        gd_onnx_save(temp_path("loops.onnx"), session, gd_list(n, xs), gd_list(count, scanned));
    }
    check_worked(gd_onnx_load(temp_path("loops.onnx")) != NULL);
}

/* --- nested branches -------------------------------------------------------------------------- */

static int depth, levels;
static gd_tensors innermost_branch(gd_tensors in, void *user) {
    return (void)user, gd_listed(gd_tanh(in.at[0]));
}
static gd_tensors nested_branch(gd_tensors in, void *user) {
    if (depth >= levels) return gd_listed(gd_mul(in.at[0], gd_scalar(2)));
    depth++;
    gd_tensors r =
        gd_cond(gd_gt(gd_sum(in.at[0]), gd_scalar(0)), nested_branch, innermost_branch, in, user);
    depth--;
    return r;
}

static bool run_nested(int level) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *g;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(3));
        y = nested_branch(gd_list(x), NULL).at[0];
        g = gd_gradients(gd_list(gd_sum(y)), gd_list(x)).at[0];
    }
    gd_session *session = gd_session_new(graph, .level = level);
    gd_tensors r = gd_session_run(session, gd_feed(x, gd_ones(gd_dims(3))), gd_list(y, g));
    return !gd_failed() && gd_item(gd_at(r.at[0], 0)) == 2 && gd_item(gd_at(r.at[1], 0)) == 2;
}

static void nest_eight_deep(void *unused) {
    (void)unused;
    levels = 8;
    check_worked(run_nested(0) && run_nested(1) && run_nested(2));
}

static void *nest_too_deep(void *status) {
    levels = 20;
    run_nested(2);
    *(gd_status *)status = gd_error_status();
    gd_clear_error();
    return NULL;
}

/* In a thread whose stack ends there, deeper nesting fails. */
static void check_stack_end(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    gd_status status = GD_OK;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_PROMISED);
    CHECK(pthread_create(&thread, &attributes, nest_too_deep, &status) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    depth = 0;
    CHECK_SAYING(status == GD_E_MEMORY, "%s", gd_status_name(status));
}

/* --- the tape --------------------------------------------------------------------------------- */

enum { LONG = 20000 };

static void walk_a_long_tape(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(2))), *y = x;
    for (int i = 0; i < LONG; i++) {
        GD_SCOPE;
        y = gd_keep(gd_add(y, x));
    }
    gd_backward(gd_sum(y));
    check_worked(gd_item(gd_at(gd_tensor_grad(x), 0)) == LONG + 1);
}

static void free_a_long_tape(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(2))), *y = x;
    for (int i = 0; i < LONG; i++) {
        GD_SCOPE;
        y = gd_keep(gd_mul(y, x));
    }
    check_worked(true);
}

static gd_tensor *sine_function(gd_tensors in, void *user) {
    return (void)user, gd_sum(gd_sin(gd_mul(in.at[0], in.at[0])));
}

static void use_transforms(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(4), .dtype = GD_F64)),
              *v = gd_ones_like(gd_detach(x));
    gd_jvp(sine_function, gd_list(x), gd_list(v), NULL);
    gd_jacobian(sine_function, gd_list(x), 0, NULL);
    gd_hvp(sine_function, gd_list(x), gd_list(v), NULL);
    gd_backward(gd_recompute(sine_function, gd_list(x), NULL));
    check_worked(gd_gradcheck(sine_function, gd_list(x), NULL, .second_order = true) == GD_OK);
}

/* --- files and text --------------------------------------------------------------------------- */

static void use_files(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(20, 30));
    gd_save_npy(temp_path("x.npy"), x);
    gd_load_npy(temp_path("x.npy"));
    gd_save_npz(temp_path("x.npz"), gd_names("x"), gd_list(x));
    gd_load_npz(temp_path("x.npz"), "x");
    check_worked(true);
}

static void use_states(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(20, 30)), *wide = gd_zeros(gd_dims(20, 30), .dtype = GD_F64);
    gd_load_report report;
    gd_save_state(temp_path("x.safetensors"), gd_part("x", x), gd_part("rng", gd_generator()));
    gd_load_state_with(temp_path("x.safetensors"), gd_parts(gd_part("x", wide), gd_part("y", x)),
                       .partial = &report);
    gd_load_state(temp_path("x.safetensors"), gd_part("x", gd_ones(gd_dims(3))), gd_part("y", x));
    const bool failed = gd_failed();
    gd_clear_error();
    gd_save_state_with(temp_path("x.index.json"), gd_parts(gd_part("x", x), gd_part("y", wide)),
                       .shard_bytes = 10);
    check_worked(gd_read_state(temp_path("x.index.json")) != NULL && failed);
}

static void fail_and_print(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(20, 30));
    char text[200];
    gd_to_text(x, text, sizeof text);
    gd_cross_entropy(gd_ones(gd_dims(2, 3)), gd_full(gd_dims(2), 9, .dtype = GD_I64));
    gd_einsum("ij,jk->ik", gd_list(x, x));
    const bool failed = gd_failed();
    gd_clear_error();
    gd_profiler_start();
    gd_matmul(x, gd_transpose(x, 0, 1));
    gd_profiler_stop();
    gd_profiler_save_trace(temp_path("trace.json"));
    gd_profiler_clear();
    check_worked(failed);
}

static void define_an_op(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_op_define("stack_swish(x) -> y  elementwise float\nx times the sigmoid of beta x.\n"
                 "  beta float = 1\n  y = x / (1 + exp(-beta*x))\n",
                 NULL);
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(30)));
    gd_tensor *y = gd_sum(gd_call("stack_swish", gd_list(x), "beta=2"));
    gd_tensor *g = gd_grad(gd_list(y), gd_list(x), .create_graph = true).at[0];
    gd_backward(gd_sum(g));
    check_worked(gd_tensor_grad(x) != NULL);
}

TEST(all_work_fits_in_64_kib_of_stack) {
#ifdef GD_SANITIZED
    SKIP("frames are larger under a sanitizer");
#endif
    gd_set_num_threads(1);
    check_stack("training a graph", train_a_graph);
    check_stack("a jit", call_jits);
    check_stack("loops", run_loops);
    check_stack("branches in branches", nest_eight_deep);
    check_stack_end();
    check_stack("walking a long tape", walk_a_long_tape);
    check_stack("freeing a long tape", free_a_long_tape);
    check_stack("transforms", use_transforms);
    check_stack("files", use_files);
    check_stack("states", use_states);
    check_stack("failures and printing", fail_and_print);
    check_stack("an op from text", define_an_op);
    CHECK(folder_count(temp_folder()) == 8); /* and no temporary file of the library */
}

/* Checks the measurement itself with a function that needs too much stack. */
static void use_large_frame(void *unused) {
    (void)unused;
    volatile char much[100 << 10];
    for (size_t i = 0; i < sizeof much; i++) much[i] = 1;
    check_worked(much[5] == 1);
}
TEST(the_stack_measurement_detects_large_frames) {
    CHECK(stack_used(use_large_frame, NULL) > 100 << 10);
}

TEST_MAIN
