/* layer.h - creates the layer of a case, fills it with known numbers, and runs it. */
#ifndef GRADUS_TESTS_NN_LAYER_H
#define GRADUS_TESTS_NN_LAYER_H

#include "compare.h"
#include "golden.h"
#include "dispatch/factory.h"
#include "report.h"
#include "run.h"

void suite_nn_golden(const test_cases *cases);
void suite_nn_steps(const test_cases *cases);
void suite_nn_copies(const test_cases *cases);
void suite_nn_options(const test_cases *cases);
void suite_nn_coverage(const test_cases *cases);

/* Writes the input of nn_make.py to stdout: a line of JSON for each case and dtype, then the bytes
 * of inputs and state. Returns the number of failures. */
int nn_dump(const test_cases *cases);

/* Calls fn for each case in f32 and f64. */
void each_layer_case(const test_cases *cases, void (*fn)(const test_case *c, gd_dtype dtype));

/* Creates the layer of the case in a dtype and fills it; NULL: failed. */
gd_module *layer_of(const test_case *c, gd_dtype dtype);
/* The same with other options than the case's, and with its initial weights. */
gd_module *layer_from(const test_case *c, const char *options, gd_dtype dtype);
/* Fills parameters and float buffers with numbers that depend on the case and their names. Running
 * variances are positive. Integer buffers become 0. */
void layer_fill(const test_case *c, gd_module *m);

/* Parameters, then buffers. */
typedef struct layer_state {
    gd_tensor *at[MAX_TENSORS];
    char name[MAX_TENSORS][96];
    int n, n_parameters;
} layer_state;
void layer_state_of(gd_module *m, layer_state *s);

/* Creates the inputs of the case. Floats require a gradient if the case has gradients. */
int layer_inputs(const test_case *c, gd_dtype dtype, gd_tensor **in);

/* Runs forward and backward in train or eval mode. r->out has the outputs, then copies of the
 * buffers; r->grad has the gradients of the inputs, then of the parameters. */
void layer_run(const test_case *c, gd_module *m, gd_dtype dtype, bool train, run_result *r);

#endif
