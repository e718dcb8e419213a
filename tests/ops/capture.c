/* capture.c - ops in captured plans: every op that is neither data-dependent nor control flow is
 * recorded into one capture, whose replay is a single launch without copies to the host.
 *
 * The suite counts the calls of the device's functions, so it works on every device that captures.
 */
#include <string.h>

#include "core/device.h"
#include "suites.h"

enum { UNCAPTURED, CAPTURED, REPLAYED, RUNS };

typedef struct call_counts {
    int captures, launches, kernels_of_boundaries, copies, waits, error_reads;
} call_counts;

static gd_device *device;
static const gd_device_api *original;
static gd_device_api counting;
static call_counts counts, of_run[RUNS];
static int64_t fallbacks;

/* --- the functions of the device, counted ------------------------------------------------------- */

static gd_status count_upload(gd_device *d, gd_queue queue, void *to, const void *from, size_t n) {
    counts.copies++;
    return original->upload(d, queue, to, from, n);
}
static gd_status count_download(gd_device *d, gd_queue queue, void *to, const void *from,
                                size_t n) {
    counts.copies++;
    return original->download(d, queue, to, from, n);
}
static gd_status count_wait(gd_device *d, gd_queue_event *event) {
    counts.waits++;
    return original->event_wait(d, event);
}
static gd_status count_error_read(gd_device *d, void *to) {
    counts.error_reads++;
    return original->error_read(d, to);
}
static gd_status count_enter(gd_device *d, const gd_boundary *boundary) {
    counts.kernels_of_boundaries++;
    return original->enter(d, boundary);
}
static gd_status count_leave(gd_device *d, const gd_boundary *boundary) {
    counts.kernels_of_boundaries++;
    return original->leave(d, boundary);
}
static gd_status count_begin(gd_device *d) {
    counts.captures++;
    return original->capture_begin(d);
}
static gd_status count_launch(gd_device *d, gd_capture *capture, const gd_boundary *enter,
                              const gd_boundary *leave) {
    counts.launches++;
    return original->capture_launch(d, capture, enter, leave);
}

static void start_counting(void) {
    device = gd_default_device();
    original = device->api;
    counting = *original;
    counting.upload = count_upload;
    counting.download = count_download;
    counting.event_wait = count_wait;
    counting.error_read = count_error_read;
    counting.enter = count_enter;
    counting.leave = count_leave;
    counting.capture_begin = count_begin;
    counting.capture_launch = count_launch;
    device->api = &counting;
}

/* --- checks --------------------------------------------------------------------------------------- */

static void count_run(int run) {
    if (run > 0) of_run[run - 1] = counts;
    counts = (call_counts){0};
}

static void check_counts(const test_case *c, gd_dtype dtype) {
    const call_counts *captured = &of_run[CAPTURED], *replayed = &of_run[REPLAYED];
    if (gd_host_fallbacks() != fallbacks) report_fail(c, dtype, "it runs on the host");
    else if (captured->captures != 1 || captured->launches != 1)
        report_fail(c, dtype, "the second run has %d captures and %d launches, not one",
                    captured->captures, captured->launches);
    else if (captured->copies || captured->waits || captured->error_reads)
        report_fail(c, dtype, "the captured run copies %d times and waits %d times",
                    captured->copies, captured->waits + captured->error_reads);
    else if (replayed->captures || replayed->launches != 1 || replayed->copies || replayed->waits ||
             replayed->error_reads || replayed->kernels_of_boundaries)
        report_fail(c, dtype,
                    "the replayed run has %d launches, %d captures, %d copies, %d waits and %d "
                    "boundary kernels, not one launch",
                    replayed->launches, replayed->captures, replayed->copies,
                    replayed->waits + replayed->error_reads, replayed->kernels_of_boundaries);
    else report_pass();
}

static const char *skip_reason(const test_case *c) {
    const gd_op *op = c->block->op;
    if (gd_op_flags(op) & GD_OP_DYNAMIC) return "the size of the result depends on data";
    if (gd_op_flags(op) & GD_OP_INPLACE) return "a plan has no in-place ops";
    if (gd_op_flags(op) & (GD_OP_CALLS | GD_OP_AWAITS)) return "the op calls the program";
    return NULL;
}

/* Whether every run gives the same results: the op draws no numbers and writes no inputs. */
static bool is_repeatable(const test_case *c) {
    const gd_op *op = c->block->op;
    if (gd_op_flags(op) & GD_OP_RANDOM || strstr(c->options, "dropout=")) return false;
    for (int i = 0; i < gd_op_input_count(op); i++)
        if (input_is_mutated(op, i)) return false;
    return true;
}

static void check_variant(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    const char *why_not = skip_reason(c), *no_grad;
    char why[512] = "";
    run_result eager, other;
    run_setup s = {.c = c, .dtype = dtype, .gradients = case_has_gradient(c, dtype, &no_grad)};
    if (why_not) {
        report_skip(why_not);
        return;
    }
    report_at(c, dtype);
    run_case(&s, &eager);
    s.shapes = eager.out;
    if (eager.status != GD_OK) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    fallbacks = gd_host_fallbacks();
    run_plan_repeatedly(&s, &other, RUNS, count_run);
    if (other.status != GD_OK) report_fail(c, dtype, "%s", gd_error_message());
    else if (other.unknown_sizes) report_skip("the size of the result depends on data");
    else check_counts(c, dtype);
    if (other.status == GD_OK && is_repeatable(c) && !results_agree(&other, &eager, c->block, why))
        report_fail(c, dtype, "%s", why);
}

void suite_capture(const test_cases *cases) {
    if (!gd_default_device()->api->capture_begin) {
        report_skip("the device does not capture");
        return;
    }
    start_counting();
    each_variant(cases, 1u << GD_F32 | 1u << GD_BF16 | 1u << GD_I64, check_variant);
    device->api = original;
}
