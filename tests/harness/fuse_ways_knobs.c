/* fuse_ways_knobs.c - selects whether plans run fused kernels by the evaluator or compiled. */
#include "fuse_ways_knobs.h"

#include <stdlib.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/native.h"
#include "graph/passes/fuse.h"
#include "temp.h"
#include "test.h"

void use_evaluator(void) {
    setenv("GRADUS_NATIVE", "0", 1);
    gd_ew_set_compiled(false);
    gd_fuse_set_always(true);
    gd_native_forget();
}
void use_compiler(void) {
    setenv("GRADUS_NATIVE", "always", 1);
    gd_ew_set_compiled(true);
    gd_fuse_set_always(true);
    gd_native_forget();
}

int run_with_cache(int argc, char **argv) {
    if (!getenv("GRADUS_CACHE")) setenv("GRADUS_CACHE", temp_new_folder("kernels"), 1);
    use_evaluator();
    return test_run_all(argc, argv);
}
