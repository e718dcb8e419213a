/* difference.h - how much the results of two runs of a random net differ. */
#ifndef GRADUS_TESTS_HARNESS_NETS_DIFFERENCE_H
#define GRADUS_TESTS_HARNESS_NETS_DIFFERENCE_H

#include "trial.h"

typedef struct difference {
    double worst; /* the distance, divided by the allowed one */
    char text[400];
} difference;

typedef struct tolerance {
    double relative; /* to the size of the result */
    double common;   /* to the largest size of results of its kind: sums that cancel */
    double noise;    /* to the distance from the results in f32 */
    bool halves;
} tolerance;

/* The result of two runs that differs most, in units of what is allowed. */
difference compare_runs(const net_run *a, const net_run *b, const net_run *exact, tolerance t);

#endif
