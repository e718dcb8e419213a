/* test_growth.c - four times the net takes at most 4.5 times the steps.
 *
 * The library is compiled a second time for this test (gradus_counted in tests/CMakeLists.txt), and
 * calls the function below at the beginning of each basic block. The counts are the same in each
 * run, on any machine. Kernels are not counted.
 */
#include <stdint.h>

#include "gradus/gradus.h"
#include "scale_parts.h"
#include "test.h"

static _Thread_local uint64_t steps;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) { steps++; }

/* The steps of the parts of one program, in the order in which they ran, at two sizes. */
enum { PARTS = 16 };
static struct {
    const char *part[PARTS];
    uint64_t steps[PARTS][2];
    int count, size;
} counted;

static uint64_t began;

void scale_begin(void) { began = steps; }

void scale_end(const char *part) {
    const uint64_t taken = steps - began;
    const int i = counted.count++;
    counted.part[i] = part;
    counted.steps[i][counted.size] = taken;
}

static void count_steps(const scale_program *p, int size) {
    GD_SCOPE;
    counted.size = size;
    counted.count = 0;
    p->run(size ? 4 * p->n : p->n);
    CHECK(!gd_failed());
    if (gd_failed()) printf("%s: %s\n", p->name, gd_error_message());
    gd_clear_error();
}

TEST(four_times_the_size_takes_at_most_four_and_a_half_times_the_steps) {
    const char *only = getenv("GRADUS_TEST_PROGRAM");
    gd_set_num_threads(1);
    for (const scale_program *p = scale_programs; p->name; p++) {
        if (only && strcmp(p->name, only) != 0) continue;
        count_steps(p, 0);
        count_steps(p, 1);
        for (int i = 0; i < counted.count; i++) {
            const double n = (double)counted.steps[i][0], four_n = (double)counted.steps[i][1];
            CHECK_SAYING(four_n <= 4.5 * n, "%s, %s: %.0f steps at %d, %.0f at %d", p->name,
                         counted.part[i], n, p->n, four_n, 4 * p->n);
            if (only) printf("  %6.2f  %s\n", four_n / n, counted.part[i]);
        }
    }
}

TEST_MAIN
