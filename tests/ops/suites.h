/* suites.h - the suites over tests/cases/, one function each. */
#ifndef GRADUS_TESTS_OPS_SUITES_H
#define GRADUS_TESTS_OPS_SUITES_H

#include "compare.h"
#include "golden.h"
#include "report.h"
#include "run.h"

void suite_golden(const test_cases *cases);
void suite_gradcheck(const test_cases *cases);
void suite_reference(const test_cases *cases);
void suite_bodies(const test_cases *cases);
void suite_strides(const test_cases *cases);
void suite_threads(const test_cases *cases);
void suite_order(const test_cases *cases);
void suite_scalar(const test_cases *cases);
void suite_isa(const test_cases *cases);
void suite_modes(const test_cases *cases);
void suite_onnx(const test_cases *cases);
void suite_inplace(const test_cases *cases);
void suite_errors(const test_cases *cases);
void suite_faults(const test_cases *cases);
void suite_stack(const test_cases *cases);
void suite_macs(const test_cases *cases);
void suite_autocast(const test_cases *cases);
void suite_capture(const test_cases *cases);
void suite_coverage(const test_cases *cases);

/* Checks that docs/guide/onnx.md lists the ops that can be saved; a part of suite_coverage. */
void check_onnx_page(void);

/* Calls fn for each case and each dtype of its block that is in `mask`. For a case that gives the
 * dtypes of all inputs, calls it once with GD_DTYPE_NONE. In the quick form of a test run, only for
 * a sample, which has a variant of each op. */
void each_variant(const test_cases *cases, unsigned mask,
                  void (*fn)(const test_case *c, gd_dtype dtype));

/* The same for a suite that runs one variant in `share` on devices, and of each op at least one: an
 * op of which the sample has none keeps it in one of the `turns` in which the suite calls this. */
typedef struct sampling {
    int share, turn, turns;
} sampling;
void each_variant_in_turn(const test_cases *cases, unsigned mask, sampling s,
                          void (*fn)(const test_case *c, gd_dtype dtype));

#endif
