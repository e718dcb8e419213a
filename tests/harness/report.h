/* report.h - the results of a suite: counts of passed and failed checks, failures with the line of
 * their case, and skips by reason. */
#ifndef GRADUS_TESTS_HARNESS_REPORT_H
#define GRADUS_TESTS_HARNESS_REPORT_H

#include "cases.h"

/* A suite over the cases. */
typedef struct suite {
    const char *name, *promise;
    void (*run)(const test_cases *cases);
    bool once; /* covers all ops or layers: not run for a single family */
} suite;

void report_begin(const suite *s);
/* Prints "golden: 812 passed, 0 failed" and the skips; returns the number of failures. */
int report_end(void);

void report_pass(void);
/* Prints the case with its file and line (NULL: none), and the message. */
void report_fail(const test_case *c, gd_dtype dtype, const char *format, ...) GD_PRINTF(3, 4);
void report_skip(const char *reason);

/* Records the running case, which a crash report names; NULL: none. */
void report_at(const test_case *c, gd_dtype dtype);
/* Installs signal handlers that print the running case. */
void report_crashes(void);

/* Whether GRADUS_TEST_FULL=1 is set: nothing is sampled. */
bool test_full(void);
/* Whether GRADUS_TEST_QUICK=1 is set: suites run a smaller sample. False with --op. */
bool test_quick(void);
/* Whether a case belongs to the sample of one in n. Always true with --op or GRADUS_TEST_FULL=1. */
bool test_sampled(const test_case *c, int n);
/* Whether the default device is not the CPU. Suites of many small calls run only a sample there. */
bool test_on_device(void);

extern const char *const golden_folder; /* the folder of the golden files */
extern const char *only_op;             /* --op, or NULL */
extern const char *only_family;         /* --family, or NULL */

#endif
