/* test_layers.c - runs every case of tests/cases/nn in every suite.
 *
 *     test_layers                                 all suites, all cases
 *     test_layers --layer conv2d                  one layer
 *     test_layers --family conv --suite golden
 *     test_layers --dump --family conv            the cases and their data, for golden/nn_make.py
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "layer.h"

const char *const golden_folder = GRADUS_GOLDEN_DIR "/nn";
const char *only_op, *only_family;

static const suite suites[] = {
    {"golden", "names, outputs, gradients and buffers are PyTorch's, in train and eval mode",
     suite_nn_golden, false},
    {"steps", "training steps give the same bits eagerly, in a jit and in a session",
     suite_nn_steps, false},
    {"copies", "a layer with inferred sizes, a clone and a moved layer compute the same",
     suite_nn_copies, false},
    {"options", "wrong options give a message that names the layer and the option",
     suite_nn_options, false},
    {"coverage", "every layer has cases", suite_nn_coverage, true},
    {NULL, NULL, NULL, false},
};

static int run_suite(const suite *s, const test_cases *cases) {
    struct timespec from, to;
    const int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    clock_gettime(CLOCK_MONOTONIC, &from);
    report_begin(s);
    s->run(cases);
    gd_clear_error();
    if (gd_live_objects() != objects || gd_memory_stats(NULL).live_bytes != bytes)
        report_fail(NULL, GD_DTYPE_NONE, "the suite leaks: %lld objects, %lld bytes",
                    (long long)(gd_live_objects() - objects),
                    (long long)(gd_memory_stats(NULL).live_bytes - bytes));
    clock_gettime(CLOCK_MONOTONIC, &to);
    const int failed = report_end();
    printf("  %.1f s\n",
           (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    return failed;
}

int main(int argc, char **argv) {
    const char *only_suite = NULL;
    bool dump = false;
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--layer") == 0    ? &only_op
                             : strcmp(argv[i], "--family") == 0 ? &only_family
                             : strcmp(argv[i], "--suite") == 0  ? &only_suite
                                                                : NULL;
        if (value && i + 1 < argc) *value = argv[++i];
        else if (strcmp(argv[i], "--dump") == 0) dump = true;
        else if (strcmp(argv[i], "--list") == 0) {
            for (const suite *s = suites; s->name; s++) printf("%-10s %s\n", s->name, s->promise);
            return 0;
        } else {
            fprintf(stderr,
                    "usage: %s [--layer NAME] [--family NAME] [--suite NAME] [--list] [--dump]\n",
                    argv[0]);
            return 2;
        }
    }
    report_crashes();
    test_cases cases = cases_read(GRADUS_CASES_DIR "/nn", only_family, only_op);
    int failed = cases.errors;
    if (dump) {
        failed += nn_dump(&cases);
        cases_free(&cases);
        return failed != 0;
    }
    if (cases.n_blocks == 0) {
        fprintf(stderr, "no cases in %s/nn\n", GRADUS_CASES_DIR);
        failed++;
    }
    bool known = !only_suite;
    for (const suite *s = suites; s->name; s++) {
        if (only_suite ? strcmp(only_suite, s->name) != 0 : s->once && (only_op || only_family))
            continue;
        known = true;
        failed += run_suite(s, &cases);
    }
    if (!known) fprintf(stderr, "there is no suite '%s'\n", only_suite);
    if (cases.errors) printf("%d bad lines in the case files\n", cases.errors);
    cases_free(&cases);
    return failed != 0 || !known;
}
