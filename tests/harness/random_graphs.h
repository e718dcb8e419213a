/* random_graphs.h - shared by tests with random graphs: lists of results and their comparison.
 *
 * GRADUS_GRAPHS=10000 build/tests/test_random_NAME is a long search; GRADUS_GRAPH=4711 runs one
 * seed. */
#ifndef GRADUS_TESTS_HARNESS_RANDOM_GRAPHS_H
#define GRADUS_TESTS_HARNESS_RANDOM_GRAPHS_H

#include "gradus/gradus.h"

enum { MAX_RESULTS = 48 };

typedef struct results {
    gd_tensor *at[MAX_RESULTS];
    int count;
} results;

/* Checks that results have the same shapes and dtypes and differ by at most `tolerance` (0: same
 * bits). */
void check_same(uint64_t seed, const char *mode, const results *expected, const results *got,
                double tolerance);
const char *level_name(int level);
/* Calls `check` with seeds 1, 2, ...: `usual` seeds, or the number in GRADUS_GRAPHS. */
void for_each_seed(uint64_t usual, void (*check)(uint64_t seed));

#endif
