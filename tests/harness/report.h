/* report.h - the results of a suite: counts, failures with their place, skips by reason. */
#ifndef GRADUS_TESTS_REPORT_H
#define GRADUS_TESTS_REPORT_H

#include "cases.h"

/* A suite over the cases. */
typedef struct suite {
    const char *name, *promise;
    void (*run)(const test_cases *cases);
    bool once; /* checks the entire table: runs once, not for each family */
} suite;

void report_begin(const suite *s);
/* Prints "golden: 812 passed, 0 failed" and the skips; returns the number of failures. */
int report_end(void);

void report_pass(void);
/* Prints the case's place (NULL: none) and what happened. */
void report_fail(const test_case *c, gd_dtype dtype, const char *format, ...) GD_PRINTF(3, 4);
void report_skip(const char *reason);

/* Records the running case, so that a crash can name it; NULL: none. */
void report_at(const test_case *c, gd_dtype dtype);
/* Makes a crash print the case it happened in. */
void report_crashes(void);

/* Whether GRADUS_TEST_FULL=1 is set: nothing is sampled. */
bool test_full(void);
/* Whether a case is among the sample of one in n; always when everything runs. */
bool test_sampled(const test_case *c, int n);
/* Whether the default device is not the CPU. Suites of many small calls take a sample there. */
bool test_on_device(void);

extern const char *const golden_folder; /* where the golden files are */
extern const char *only_op;             /* --op, or NULL */
extern const char *only_family;         /* --family, or NULL */

#endif
