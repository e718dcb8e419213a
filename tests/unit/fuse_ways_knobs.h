/* fuse_ways_knobs.h - whether fused kernels are run by the evaluator or compiled, for tests. */
#ifndef GRADUS_TESTS_FUSE_WAYS_KNOBS_H
#define GRADUS_TESTS_FUSE_WAYS_KNOBS_H

#include <unistd.h>

#include "backend/cpu/elementwise_job.h"
#include "backend/test/device.h"
#include "codegen/native.h"
#include "graph/passes/fuse.h"
#include "test.h"

/* How plans run: by the evaluator, or by what the compiler makes. Both fuse all they can, also
 * where that is slower. */
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

/* All tests, with a cache of their own. */
static int run_with_cache(int argc, char **argv) {
    char directory[] = "/tmp/gradus-fuse-XXXXXX", command[64];
    if (!getenv("GRADUS_CACHE")) {
        if (!mkdtemp(directory)) return 1;
        setenv("GRADUS_CACHE", directory, 1);
    }
    use_evaluator();
    int failed = test_run_all(argc, argv);
    if (strcmp(getenv("GRADUS_CACHE"), directory) == 0) {
        snprintf(command, sizeof command, "rm -rf %s", directory);
        if (system(command) != 0) failed = 1;
    }
    return failed;
}

#endif
