/* fuse_ways.h - runs a function of tensors eagerly, as a plan by the evaluator, and as a plan with
 * compiled kernels, and compares the results. For the tests of fused kernels. */
#ifndef GRADUS_TESTS_HARNESS_FUSE_WAYS_H
#define GRADUS_TESTS_HARNESS_FUSE_WAYS_H

#include "fuse_ways_knobs.h"
#include "gradus/gradus.h"

enum { MAX_VALUES = 24 };

/* The results of a body_fn. */
typedef struct results {
    gd_tensor *at[MAX_VALUES];
    int count;
} results;

/* The function under test: computes with values, or builds a graph from symbols. */
typedef results (*body_fn)(gd_tensor *const *x, const void *arg);

typedef struct planned {
    gd_session *session;
    gd_tensor *feeds[2 * MAX_VALUES];
    int n_feeds;
    results fetches;
} planned;

planned plan(body_fn body, const void *arg, gd_tensor *const *x, int n, int level);
gd_tensors run(planned *p);
char *text_of(planned *p);
int count(const char *text, const char *part);
/* Whether elements agree: the same bits, both NaN (with any bits), or within the tolerance. */
bool same_numbers(gd_tensor *a, gd_tensor *b, double tolerance);
/* Compares the plan, by the evaluator and compiled, with the eager results. */
void check_all_ways(const char *what, body_fn body, const void *arg, gd_tensor *const *x, int n,
                    double tolerance);
gd_tensor *noise(gd_shape dims, gd_dtype dtype);

#endif
