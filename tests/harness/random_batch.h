/* random_batch.h - random ops on values (N, COLUMNS) of f64, for any N. */
#ifndef GRADUS_TESTS_HARNESS_RANDOM_BATCH_H
#define GRADUS_TESTS_HARNESS_RANDOM_BATCH_H

#include "draw.h"
#include "random_graphs.h"

enum { COLUMNS = 6, PARAMETERS = 3, ALL = PARAMETERS + 2 };

gd_tensor *bounded(gd_tensor *x);
/* `p` holds the parameters: (COLUMNS), (COLUMNS, COLUMNS), (2, 2, 3), followed by the running mean
 * and variance of one batch_norm, which are not trained. */
gd_tensor *batch_norm_of(gd_tensor *x, gd_tensor *const *p, bool keeps);
/* Computes a random value from a and b. Each batch_norm updates its running statistics and counts
 * in `kept`; if that is NULL, it does not update them. */
gd_tensor *random_op(draws *d, bool by_data, int *kept, gd_tensor *a, gd_tensor *b,
                     gd_tensor *const *p);
gd_shape parameter_shape(int i);

#endif
