/* fuse_ways_knobs.h - selects whether plans run fused kernels by the evaluator or compiled. */
#ifndef GRADUS_TESTS_HARNESS_FUSE_WAYS_KNOBS_H
#define GRADUS_TESTS_HARNESS_FUSE_WAYS_KNOBS_H

/* Both settings fuse as much as possible, even if that is slower. */
void use_evaluator(void);
void use_compiler(void);
/* Runs all tests; compiled kernels go to $GRADUS_CACHE, or to a temporary folder if it is not
 * set. */
int run_with_cache(int argc, char **argv);

#endif
