/* caffe_run.h - runs a net from text with given inputs, blobs and gradients of its tops.
 *
 * Tensors have names that say what they are:
 *
 *     given    in:NAME           an input
 *              blob:LAYER:I      blob I of a layer, replaces its first value
 *              grad:NAME         the gradient of an output
 *     results  top:NAME          an output
 *              gin:NAME          the gradient of an input
 *              gblob:LAYER:I     of a blob that is a parameter
 *              after:LAYER:I     the value of blob I after the run
 *
 * Outputs without a gradient are no part of the backward pass; without any there is none. What has no
 * gradient is not among the results.
 */
#ifndef GRADUS_TESTS_HARNESS_CAFFE_RUN_H
#define GRADUS_TESTS_HARNESS_CAFFE_RUN_H

#include <stdbool.h>

#include "gradus/gradus.h"

enum { NAMED_MAX = 256, NAMED_LENGTH = 200 };

typedef struct named_tensors {
    char names[NAMED_MAX][NAMED_LENGTH];
    gd_tensor *at[NAMED_MAX];
    int count;
} named_tensors;

/* The tensor of this name; NULL: there is none. The name is a printf format. */
gd_tensor *named_find(const named_tensors *from, const char *name, ...)
    __attribute__((format(printf, 2, 3)));
void named_add(named_tensors *to, gd_tensor *tensor, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

/* Runs the net of a file in a mode: "eager", "jit" (with
 * its gradients), "test" (the test device), "f64", "saved" (saved as a prototxt with its weights, and read
 * back), or "onnx" (saved as ONNX and loaded; outputs only). The results belong to the
 * scope and are on the CPU. */
gd_status caffe_run(const char *path, bool train, const char *mode, const named_tensors *given,
                    named_tensors *results);

#endif
