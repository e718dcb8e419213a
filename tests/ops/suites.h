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
 * dtypes of all inputs, calls it once with GD_DTYPE_NONE. */
void each_variant(const test_cases *cases, unsigned mask,
                  void (*fn)(const test_case *c, gd_dtype dtype));

#endif
