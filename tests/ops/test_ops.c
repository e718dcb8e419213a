/* test_ops.c - runs every case of tests/cases/ in every suite.
 *
 *     test_ops                                all suites, all cases
 *     test_ops --op conv2d                    one op in all suites
 *     test_ops --family reduce --suite golden
 *     test_ops --device test --suite golden   on another device
 *     test_ops --sample 10                    of each op one case, and of the others one in 10
 *     test_ops --list                         the suites and the promise of each
 *     test_ops --dump --family reduce         the cases and their data, for tests/golden/make.py
 *
 * GRADUS_TEST_FULL=1 also runs the cases that suites skip as large or sample, and
 * GRADUS_TEST_QUICK=1 a smaller sample (variants.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/test/device.h"
#include "suites.h"

const char *const golden_folder = GRADUS_GOLDEN_DIR;
const char *only_op, *only_family;

static const suite suites[] = {
    {"golden", "results and gradients are PyTorch's", suite_golden, false},
    {"gradcheck", "gradients of first and second order are those of finite differences",
     suite_gradcheck, false},
    {"reference", "fast kernels give the reference kernels' results, in every dtype",
     suite_reference, false},
    {"strides", "strided inputs give the results of contiguous ones", suite_strides, false},
    {"threads", "the same bits for any number of threads", suite_threads, false},
    {"order", "the same bits for any order of a kernel's threads and blocks", suite_order, false},
    {"bodies", "the body of an op in other ops gives the results of its kernel", suite_bodies,
     false},
    {"scalar", "kernels of the scalar dialect give the reference kernels' results", suite_scalar,
     false},
    {"isa", "every instruction set gives the reference kernels' results", suite_isa, false},
    {"modes", "every mode (graph, plan, device) gives the eager call's results", suite_modes,
     false},
    {"onnx", "saved in an ONNX file and loaded again, an op gives the same results", suite_onnx,
     false},
    {"inplace", "in-place twins write what their base op returns", suite_inplace, false},
    {"errors", "wrong calls give a status and a message that names the op", suite_errors, false},
    {"faults", "any allocation may fail: no crash, no leak, GD_E_MEMORY", suite_faults, false},
    {"stack", "64 KiB of stack are enough", suite_stack, false},
    {"autocast", "autocast gives the results of explicit casts", suite_autocast, false},
    {"capture", "a replayed plan is one launch on the device and gives the eager call's results",
     suite_capture, false},
    {"macs", "rules count the multiply-adds of the op's body", suite_macs, false},
    {"coverage", "every op has cases, every gradient is checked", suite_coverage, true},
    {NULL, NULL, NULL, false},
};

static int run_suite(const suite *s, const test_cases *cases) {
    struct timespec from, to;
    int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    gd_device *device = gd_default_device();
    clock_gettime(CLOCK_MONOTONIC, &from);
    report_begin(s);
    s->run(cases);
    gd_clear_error();
    if (gd_live_objects() != objects || gd_memory_stats(NULL).live_bytes != bytes)
        report_fail(NULL, GD_DTYPE_NONE, "the suite leaks: %lld objects, %lld bytes",
                    (long long)(gd_live_objects() - objects),
                    (long long)(gd_memory_stats(NULL).live_bytes - bytes));
    if (gd_default_device() != device)
        report_fail(NULL, GD_DTYPE_NONE, "the suite leaves %s as the default device",
                    gd_device_name(gd_default_device()));
    clock_gettime(CLOCK_MONOTONIC, &to);
    int failed = report_end();
    printf("  %.1f s\n",
           (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    return failed;
}

/* Makes a device the default one: inputs are created there, and ops run there. */
static bool use_device(const char *kind) {
    gd_test_device(); /* sets the folder of backends */
    gd_device *device = gd_device_get(kind);
    if (!device) fprintf(stderr, "skipped: %s\n", gd_error_message());
    gd_set_default_device(device);
    return device != NULL;
}

/* The exit status if there is no such device. CTest reports the tests of GPUs as skipped then, and
 * all others as failed. */
enum { SKIPPED = 77 };

int main(int argc, char **argv) {
    const char *only_suite = NULL, *kind = NULL, *sample = NULL;
    bool dump = false;
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--op") == 0       ? &only_op
                             : strcmp(argv[i], "--family") == 0 ? &only_family
                             : strcmp(argv[i], "--suite") == 0  ? &only_suite
                             : strcmp(argv[i], "--device") == 0 ? &kind
                             : strcmp(argv[i], "--sample") == 0 ? &sample
                                                                : NULL;
        if (value && i + 1 < argc) *value = argv[++i];
        else if (strcmp(argv[i], "--dump") == 0) dump = true;
        else if (strcmp(argv[i], "--list") == 0) {
            for (const suite *s = suites; s->name; s++) printf("%-10s %s\n", s->name, s->promise);
            return 0;
        } else {
            fprintf(stderr,
                    "usage: %s [--op NAME] [--family NAME] [--suite NAME] [--device KIND] "
                    "[--sample N] [--list] [--dump]\n",
                    argv[0]);
            return 2;
        }
    }
    report_crashes();
    if (kind && !use_device(kind)) return SKIPPED;
    test_cases cases = cases_read(GRADUS_CASES_DIR, only_family, only_op);
    if (sample && atoi(sample) > 1 && !only_op && !test_full()) cases_sample(&cases, atoi(sample));
    int failed = cases.errors;
    if (dump) {
        golden_dump(&cases);
        cases_free(&cases);
        return failed != 0;
    }
    if ((only_op || only_family) && cases.n_blocks == 0) {
        fprintf(stderr, "no case of %s '%s' in %s\n", only_op ? "op" : "family",
                only_op ? only_op : only_family, GRADUS_CASES_DIR);
        cases_free(&cases);
        return 1;
    }
    bool known = !only_suite;
    for (const suite *s = suites; s->name; s++) {
        if (only_suite && strcmp(only_suite, s->name) != 0) continue;
        known = true;
        failed += run_suite(s, &cases);
    }
    if (!known) fprintf(stderr, "there is no suite '%s'; --list lists them\n", only_suite);
    cases_free(&cases);
    if (cases.errors) printf("%d bad lines in the case files\n", cases.errors);
    return failed != 0 || !known;
}
