/* control_models.h - functions with branches and loops, for the tests of control flow. */
#ifndef GRADUS_TESTS_HARNESS_CONTROL_MODELS_H
#define GRADUS_TESTS_HARNESS_CONTROL_MODELS_H

#include "gradus/gradus.h"

typedef struct model {
    const char *name;
    gd_fn fn;
    void *user;
    gd_fn by_hand; /* the same without control.h, or NULL */
} model;

enum { INPUTS = 3 };
extern const model control_models[];
extern const int control_model_count;

/* --- parts of the models ---------------------------------------------------------------------- */

/* y_t = (y_{t-1} + x_t) * w, with a captured w. */
gd_tensor *fold_step(gd_tensors in, void *w);
/* Two states, two sequences and two results per step. */
gd_tensors two_step(gd_tensors in, void *w);
/* A branch that depends on the data. */
gd_tensors with_sine(gd_tensors in, void *w);
gd_tensors with_square(gd_tensors in, void *w);
/* Multiplies by more than 1.5 until the sum of squares reaches 1000. */
gd_tensors is_small(gd_tensors in, void *w);
gd_tensors grow(gd_tensors in, void *w);

/* Creates the inputs: y0 (4), x (3, 4) and w (4). */
void control_inputs(gd_dtype dtype, gd_tensor **in);

#endif
