/* problem.h - errors in the data of a call, such as an index out of range, and their messages.
 *
 * The CPU's kernels fail with gd_data_fail. Kernels of an asynchronous device write the same
 * gd_data_error, and the host fails with it later. Backends do not link the library, so they may
 * use only the inline functions of this header. */
#ifndef GRADUS_DISPATCH_PROBLEM_H
#define GRADUS_DISPATCH_PROBLEM_H

#include <string.h>

#include "gradus/backend.h"

/* The operand with the bad element, for the message. */
typedef struct gd_data_operand {
    int rank;
    const int64_t *dims;
    const char *what; /* for GD_DATA_INDEX: what is indexed, such as "a table"; NULL: classes */
} gd_data_operand;

/* Fails with the message of a data error. Returns its status. */
gd_status gd_data_fail(const gd_data_error *error, const gd_data_operand *operand);

/* The error of op check_range for element number `element`, whose value is `integer` or, for
 * floats, `real`. The op's options `what`, `high` and `but` say what values are allowed. */
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
        e.problem = strcmp(what, "place") == 0 ? GD_DATA_PLANE_INDEX : GD_DATA_INDEX;
        e.values[1] = high + 1;
    }
    return e;
}

#endif
