/* caffe_golden.h - cases with results of Caffe, as tests/caffe/against_caffe.py --record writes them.
 *
 *     case Pooling 10003 TEST 1e-05             type, seed, phase, tolerance
 *     | layer { ... }                           the lines of the net
 *     given in:x 2,3 draw 17 2                  values from seed 17 in [-2, 2)
 *     given in:label 2 : 1 0                    these values
 *     want top:y 2,300 25 : 0.25 ...           every 25th value of a result
 *     end
 *
 * Names are those of caffe_run.h; "-" is the shape of a number.
 */
#ifndef GRADUS_TESTS_HARNESS_CAFFE_GOLDEN_H
#define GRADUS_TESTS_HARNESS_CAFFE_GOLDEN_H

#include <stdio.h>

#include "caffe_run.h"

typedef struct caffe_case {
    char type[64], net[16384];
    int seed;
    bool train;
    double tolerance;
    named_tensors given, wanted; /* wanted: the stored values, as vectors */
    gd_shape shapes[NAMED_MAX];  /* of the wanted tensors */
    int steps[NAMED_MAX];
} caffe_case;

/* Reads the next case; its tensors belong to the scope. Returns false at the end of the file, or with a
 * message on stderr if a line is wrong. */
bool caffe_case_read(FILE *file, caffe_case *c);

/* Runs a case in a mode; returns the number of differences and prints them. */
int caffe_case_run(const caffe_case *c, const char *mode);

#endif
