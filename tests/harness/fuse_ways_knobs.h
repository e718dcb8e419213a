/* fuse_ways_knobs.h - selects whether plans run fused kernels by the evaluator or compiled. */
#ifndef GRADUS_TESTS_FUSE_WAYS_KNOBS_H
#define GRADUS_TESTS_FUSE_WAYS_KNOBS_H

#include "backend/cpu/elementwise_job.h"
#include "backend/test/device.h"
#include "codegen/native.h"
#include "graph/passes/fuse.h"
#include "temp.h"
#include "test.h"

/* Both settings fuse as much as possible, even if that is slower. */
static void use_evaluator(void) {
    setenv("GRADUS_NATIVE", "0", 1);
    gd_ew_set_compiled(false);
    gd_fuse_set_always(true);
    gd_native_forget();
}
static void use_compiler(void) {
    setenv("GRADUS_NATIVE", "always", 1);
    gd_ew_set_compiled(true);
    gd_fuse_set_always(true);
    gd_native_forget();
}

/* Runs all tests; compiled kernels go to $GRADUS_CACHE, or to a temporary folder if it is not
 * set. */
static int run_with_cache(int argc, char **argv) {
    if (!getenv("GRADUS_CACHE")) setenv("GRADUS_CACHE", temp_new_folder("kernels"), 1);
    use_evaluator();
    return test_run_all(argc, argv);
}

#endif
