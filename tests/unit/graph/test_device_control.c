/* test_device_control.c - branches and loops on the test device. The host reads conditions between
 * captured segments of a plan, and bodies are separate plans. */
#include "backend/test/device.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "test.h"
#include "control_models.h"

enum { RESULTS = 1 + INPUTS, RUNS = 3 }; /* the value and its gradients */

static void add_gradients(const model *m, gd_tensors in, gd_tensor **results) {
    results[0] = m->fn(in, m->user);
    gd_tensors g = gd_grad(gd_list(gd_sum(gd_square(results[0]))), in);
    for (int i = 0; i < INPUTS; i++) results[1 + i] = g.at[i];
}

/* Runs the model as a graph on the device: uncaptured, captured, and replayed. */
static void check_model(const model *m, gd_tensor *const *values, gd_tensor *const *expected,
                        int level) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensor *in[INPUTS], *symbols[RESULTS], *feeds[2 * INPUTS];
    gd_set_default_device(device);
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        for (int i = 0; i < INPUTS; i++)
            in[i] = gd_placeholder(gd_tensor_shape(values[i]), .dtype = GD_F64);
        add_gradients(m, (gd_tensors){in, INPUTS}, symbols);
    }
    gd_session *s = gd_session_new(graph, .level = level);
    gd_set_default_device(NULL);
    for (int i = 0; i < INPUTS; i++)
        feeds[2 * i] = in[i], feeds[2 * i + 1] = gd_to_device(values[i], device);
    for (int run = 0; run < RUNS; run++) {
        gd_tensors r =
            gd_session_run(s, ((gd_tensors){feeds, 2 * INPUTS}), ((gd_tensors){symbols, RESULTS}));
        for (int i = 0; i < RESULTS; i++) {
            gd_tensor *got = gd_to_device(r.at[i], gd_device_get("cpu"));
            const double distance = tensors_relative_distance(got, expected[i]);
            CHECK_SAYING(distance <= 1e-9, "%s at level %d, run %d: result %d differs by %g; %s",
                         m->name, level, run, i, distance, gd_error_message());
        }
    }
    gd_clear_error();
}

TEST(branches_and_loops_give_the_results_of_the_cpu) {
    for (int k = 0; k < control_model_count; k++) {
        GD_SCOPE;
        gd_tensor *values[INPUTS], *in[INPUTS], *expected[RESULTS];
        control_inputs(GD_F64, values);
        for (int i = 0; i < INPUTS; i++) in[i] = gd_requires_grad(gd_detach(values[i]));
        add_gradients(&control_models[k], (gd_tensors){in, INPUTS}, expected);
        CHECK_SAYING(!gd_failed(), "%s: %s", control_models[k].name, gd_error_message());
        for (int level = 0; level < 3; level++)
            check_model(&control_models[k], values, expected, level);
    }
    CHECK(gd_host_fallbacks() == 0);
}

/* The segments around a branch are captured. */
static gd_tensors twice(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], in.at[0]));
}
static gd_tensors thrice(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], gd_add(in.at[0], in.at[0])));
}

TEST(segments_around_a_branch_are_launched) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_set_default_device(device);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2));
        gd_tensor *h = gd_cumsum(x, 0);
        gd_tensor *positive = gd_gt(gd_sum(h), gd_scalar(0));
        y = gd_cumsum(gd_cond(positive, twice, thrice, gd_list(h), NULL).at[0], 0);
    }
    gd_session *s = gd_session_new(graph, .level = 1);
    gd_set_default_device(NULL);
    int64_t kernels = 0, launches = 0;
    for (int run = 0; run < 6; run++) {
        GD_SCOPE;
        const float sign = run % 2 ? -1 : 1;
        gd_tensor *fed =
            gd_to_device(gd_from_array(gd_dims(2), GD_F32, ((float[]){sign, sign})), device);
        gd_tensor *r = gd_session_run(s, gd_feed(x, fed), gd_list(y)).at[0];
        float got[2];
        CHECK(gd_copy_to(r, got, sizeof got) == GD_OK);
        CHECK_SAYING(got[0] == (run % 2 ? -3 : 2) && got[1] == (run % 2 ? -9 : 6), "%g %g", got[0],
                     got[1]);
        const gd_test_counts *counts = &gd_test_device_controls(device)->counts;
        if (run == 4) kernels = counts->kernels, launches = counts->launches;
        if (run == 5) { /* two segments of the plan, and the taken branch */
            CHECK_SAYING(counts->launches - launches == 3, "%d",
                         (int)(counts->launches - launches));
            CHECK(counts->kernels - kernels <= 1); /* the copy of the branch's result */
        }
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
