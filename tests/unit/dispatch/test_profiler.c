/* test_profiler.c - gradus/profiler.h: counts, tables, traces and anomaly mode. */
#include <gradus/gradus.h>

#include <math.h>
#include <pthread.h>

#include "backend/test/device.h"
#include "core/device.h"
#include "format/json.h"
#include "temp.h"
#include "test.h"

static void run_ops(void) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_full(gd_dims(100, 100), 0.5));
    gd_tensor *y = gd_tanh(gd_tanh(x));
    gd_backward(gd_sum(y));
}

/* Sums the rows of an op over its kernels. */
static bool find_row(const char *op, gd_profile_row *sum) {
    gd_profile_row row;
    bool found = false;
    *sum = (gd_profile_row){.op = op};
    for (int64_t i = 0; gd_profiler_row(i, &row); i++) {
        if (strcmp(row.op, op) != 0) continue;
        found = true;
        sum->calls += row.calls;
        sum->total_ms += row.total_ms;
        sum->bytes += row.bytes;
        sum->live_bytes += row.live_bytes;
    }
    return found;
}

TEST(a_stopped_profiler_measures_nothing) {
    gd_profiler_clear();
    run_ops();
    CHECK(!gd_profiler_is_on());
    CHECK(!gd_profiler_row(0, &(gd_profile_row){.op = NULL}));
}

TEST(calls_bytes_and_memory_are_counted) {
    gd_profile_row row, last = {.total_ms = (double)INFINITY};
    CHECK(gd_profiler_start() == GD_OK && gd_profiler_is_on());
    run_ops();
    gd_profiler_stop();
    run_ops(); /* not counted */
    CHECK(find_row("tanh", &row));
    CHECK(row.calls == 2);
    CHECK(row.bytes == 2 * 2 * 40000); /* 10000 floats in and out, twice */
    CHECK(row.live_bytes >= 2 * 40000);
    CHECK(row.total_ms > 0);
    CHECK(find_row("sum", &row) && row.calls == 1);
    for (int64_t i = 0; gd_profiler_row(i, &row); i++) {
        CHECK(row.total_ms <= last.total_ms); /* slowest first */
        CHECK(row.kernel && *row.kernel && strcmp(row.device, "cpu") == 0);
        last = row;
    }
    gd_profiler_start();
    CHECK(!gd_profiler_row(0, &row)); /* a new start clears the rows */
    gd_profiler_stop();
}

TEST(the_table_has_a_line_for_each_op) {
    gd_profiler_start();
    run_ops();
    gd_profiler_stop();
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    CHECK(gd_profiler_table(f) == GD_OK);
    fclose(f);
    CHECK(strncmp(text, "op ", 3) == 0 && strstr(text, "mean us"));
    CHECK(strstr(text, "\ntanh ") && strstr(text, "\nsum ") && strstr(text, "\ntotal "));
    free(text);
    CHECK(gd_profiler_table(NULL) == GD_E_ARGUMENT);
    gd_clear_error();
}

TEST(the_trace_is_json_with_spans_calls_and_memory) {
    gd_profiler_start();
    {
        GD_PROFILE("a \"span\"");
        GD_PROFILE("inside");
        run_ops();
    }
    gd_profiler_stop();
    const char *path = temp_path("trace.json");
    CHECK(gd_profiler_save_trace(path) == GD_OK);
    gd_json_doc *doc = NULL;
    CHECK(gd_json_load(&doc, path) == GD_OK);
    const gd_json *events = doc ? gd_json_get(gd_json_root(doc), "traceEvents") : NULL;
    int spans = 0, tanhs = 0, counters = 0;
    double begin = 0, end = 0;
    for (size_t i = 0; gd_json_at(events, i); i++) {
        const gd_json *e = gd_json_at(events, i), *name = gd_json_get(e, "name");
        const char *kind = gd_json_get(e, "ph")->text;
        counters += strcmp(kind, "C") == 0;
        tanhs += strcmp(name->text, "tanh") == 0;
        if (strcmp(name->text, "a \"span\"") == 0) {
            spans++;
            begin = gd_json_get(e, "ts")->number;
            end = begin + gd_json_get(e, "dur")->number;
        }
    }
    CHECK(spans == 1 && tanhs == 2 && counters > 3);
    for (size_t i = 0; gd_json_at(events, i); i++) { /* all calls are within the span */
        double at = gd_json_get(gd_json_at(events, i), "ts")->number;
        CHECK(at >= begin && at <= end);
    }
    gd_json_free(doc);
    CHECK(gd_profiler_save_trace("/no/such/folder/trace.json") == GD_E_IO);
    gd_clear_error();
    CHECK(!gd_failed());
}

static void *run_ops_repeatedly(void *unused) {
    for (int i = 0; i < 50; i++) run_ops();
    return unused;
}

TEST(several_threads_are_measured_at_once) {
    pthread_t threads[4];
    gd_profile_row row;
    gd_profiler_start();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, run_ops_repeatedly, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    gd_profiler_stop();
    CHECK(find_row("tanh", &row) && row.calls == 400);
    gd_profiler_clear();
    CHECK(!gd_profiler_row(0, &row));
}

TEST(anomaly_mode_names_the_op_that_produced_a_nan) {
    GD_SCOPE;
    gd_set_anomaly_mode(true);
    CHECK(gd_anomaly_mode());
    gd_tensor *x = gd_full(gd_dims(2, 3), -1);
    gd_tensor *fine = gd_abs(x);
    CHECK(!gd_failed());
    gd_tensor *y = gd_add(gd_log(x), fine);
    CHECK(gd_tensor_is_error(y));
    CHECK(strncmp(gd_error_message(), "log(x f32[2,3]): anomaly:", 25) == 0);
    CHECK(strstr(gd_error_message(), "element 0") &&
          strstr(gd_error_message(), "its inputs have none"));
    CHECK(strstr(gd_error_message(), "test_profiler.c:"));
    gd_clear_error();
    const float values[] = {1, NAN};
    gd_neg(gd_from_array(gd_dims(2), GD_F32, values));
    CHECK(strstr(gd_error_message(), "element 1; an input has one already"));
    gd_clear_error();
    gd_set_anomaly_mode(false);
    gd_log(x);
    CHECK(!gd_failed());
}

TEST(anomaly_mode_checks_the_backward_pass) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_full(gd_dims(2), 0));
    gd_tensor *y = gd_sum(gd_mul(gd_sqrt(x), x)); /* its gradient is 0 * inf */
    gd_set_anomaly_mode(true);
    CHECK(gd_backward(y) != GD_OK);
    CHECK(strstr(gd_error_message(), "anomaly"));
    gd_set_anomaly_mode(false);
    gd_clear_error();
}

/* --- an asynchronous device ------------------------------------------------------------------- */

static gd_tensors device_body(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sum(gd_tanh(gd_matmul(in.at[0], in.at[0]))));
}

/* The device sleeps before each kernel. The times are those of the device, and the host does not
 * wait for them. */
TEST(kernels_of_a_device_have_its_times) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensor *x = gd_to_device(gd_full(gd_dims(4, 4), 0.5), device);
    gd_profile_row row;
    gd_synchronize(device);
    gd_test_device_controls(device)->delay_us = 3000;
    CHECK(gd_profiler_start() == GD_OK);
    const int64_t before = gd_device_waits(device);
    for (int i = 0; i < 5; i++) gd_tanh(x);
    CHECK(gd_device_waits(device) == before);
    gd_profiler_stop();
    gd_test_device_controls(device)->delay_us = 0;
    CHECK(find_row("tanh", &row));
    CHECK_SAYING(row.calls == 5 && row.total_ms >= 15, "%lld calls, %g ms", (long long)row.calls,
                 row.total_ms);
    gd_profiler_clear();
    CHECK(!gd_failed());
}

/* Captured calls have no times, so a plan runs uncaptured while it is profiled. */
TEST(plans_of_a_device_are_profiled_call_by_call) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensor *x = gd_to_device(gd_full(gd_dims(4, 4), 0.5), device);
    gd_jit *jit = gd_jit_new(device_body, NULL);
    const double expected = gd_item(gd_jit_call(jit, gd_list(x)).at[0]);
    gd_profile_row row;
    for (int i = 0; i < 3; i++) gd_jit_call(jit, gd_list(x)); /* captured */
    CHECK(gd_profiler_start() == GD_OK);
    for (int i = 0; i < 4; i++) gd_jit_call(jit, gd_list(x));
    gd_profiler_stop();
    CHECK(find_row("matmul", &row) && row.calls == 4);
    gd_profiler_clear();
    CHECK(gd_item(gd_jit_call(jit, gd_list(x)).at[0]) == expected); /* captured again */
    CHECK(!gd_failed());
}

TEST(captured_plans_are_measured_as_one_call_each) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensor *x = gd_to_device(gd_full(gd_dims(4, 4), 0.5), device);
    gd_jit *jit = gd_jit_new(device_body, NULL);
    gd_profile_row row;
    for (int i = 0; i < 3; i++) gd_jit_call(jit, gd_list(x)); /* captured */
    CHECK(gd_profiler_start_plans() == GD_OK);
    for (int i = 0; i < 4; i++) gd_jit_call(jit, gd_list(x));
    gd_profiler_stop();
    CHECK(find_row("plan", &row) && row.calls == 4);
    CHECK(!find_row("matmul", &row));
    gd_profiler_start(); /* every call again */
    gd_jit_call(jit, gd_list(x));
    gd_profiler_stop();
    CHECK(find_row("matmul", &row) && !find_row("plan", &row));
    gd_profiler_clear();
    CHECK(!gd_failed());
}

TEST_MAIN
