/* layer.h - a layer of a case: made from text, with known numbers in its parameters and buffers. */
#ifndef GRADUS_TESTS_NN_LAYER_H
#define GRADUS_TESTS_NN_LAYER_H

#include "compare.h"
#include "golden.h"
#include "ops/maker.h"
#include "report.h"
#include "run.h"

void suite_nn_golden(const test_cases *cases);
void suite_nn_steps(const test_cases *cases);
void suite_nn_copies(const test_cases *cases);
void suite_nn_options(const test_cases *cases);
void suite_nn_coverage(const test_cases *cases);

/* Writes everything nn_make.py needs: a line of JSON for each case and dtype, then the bytes of
 * inputs and state. */
int nn_dump(const test_cases *cases);

/* Calls fn for each case in f32 and f64. */
void each_layer_case(const test_cases *cases, void (*fn)(const test_case *c, gd_dtype dtype));

/* The layer of the case in a dtype, filled; NULL: it could not be made. */
gd_module *layer_of(const test_case *c, gd_dtype dtype);
/* The same with these options in place of the case's, and first weights as they are. */
gd_module *layer_from(const test_case *c, const char *options, gd_dtype dtype);
/* Fills parameters and float buffers with numbers that follow from the case and their names.
 * Running variances are positive. Buffers of integers become 0. */
void layer_fill(const test_case *c, gd_module *m);

/* Parameters, then buffers. */
typedef struct layer_state {
    gd_tensor *at[MAX_TENSORS];
    char name[MAX_TENSORS][96];
    int n, n_parameters;
} layer_state;
void layer_state_of(gd_module *m, layer_state *s);

/* The inputs of the case. Floats require a gradient where the case has gradients. */
int layer_inputs(const test_case *c, gd_dtype dtype, gd_tensor **in);

/* One forward and backward in a mode: `out` is the outputs, then copies of the buffers afterwards;
 * `grad` is of the inputs, then of the parameters, both as in layer_state. */
void layer_run(const test_case *c, gd_module *m, gd_dtype dtype, bool train, run_result *r);

#endif
