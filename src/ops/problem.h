/* problem.h - which problem a value out of range is. The CPU's kernels and those of backends, which
 * link nothing of the library, share it. */
#ifndef GRADUS_OPS_PROBLEM_H
#define GRADUS_OPS_PROBLEM_H

#include <string.h>

#include "gradus/backend.h"

/* The error of op check_range: element number `element` is `integer`, or `real`, and what it checks
 * is `what` up to `high`, or `but`. */
static inline gd_data_error gd_range_problem(const char *what, int64_t high, int64_t but,
                                             int64_t element, int64_t integer, double real) {
    gd_data_error e = {.element = element, .real = real};
    e.values[0] = integer;
    if (strcmp(what, "finite") == 0) e.problem = GD_DATA_NOT_FINITE;
    else if (strcmp(what, "probability") == 0) e.problem = GD_DATA_PROBABILITY;
    else if (strcmp(what, "mask") == 0) {
        e.problem = GD_DATA_TOO_FEW;
        e.values[1] = high;
    } else if (strcmp(what, "target") == 0) {
        e.problem = GD_DATA_CLASS;
        e.values[1] = high + 1;
        e.values[2] = but;
    } else {
        e.problem = GD_DATA_INDEX;
        e.values[1] = high + 1;
    }
    return e;
}

#endif
