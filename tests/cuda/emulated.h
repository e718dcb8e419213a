/* emulated.h - counts and faults of the emulated CUDA driver, for tests.
 *
 * The driver is loaded by the backend, so a test finds it among the loaded libraries:
 *
 *     emulated_controls *cuda = emulated_cuda();   // NULL: the driver is a real one
 *     cuda->memory = 8 << 20;
 */
#ifndef GRADUS_TESTS_CUDA_EMULATED_H
#define GRADUS_TESTS_CUDA_EMULATED_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* Calls of the host so far. */
typedef struct emulated_counts {
    int64_t launches;         /* kernels and calls of libraries, outside of captures */
    int64_t library_calls;    /* of these, calls of cuBLASLt and cuDNN */
    int64_t copies;           /* copies and memsets, outside of captures */
    int64_t captured;         /* nodes that captures recorded */
    int64_t captured_to_host; /* of these, copies to the host */
    int64_t graph_launches;
    int64_t captures, instantiations, parameter_changes;
    int64_t waits;  /* of the host, for a stream or an event */
    int64_t events; /* recorded, or waited for by a stream */
    int64_t allocations, frees, pinned_allocations;
    int64_t modules;
    int64_t violations; /* calls that a capture forbids */
} emulated_counts;

typedef struct emulated_controls {
    emulated_counts counts;
    size_t memory;       /* bytes of the device */
    size_t used;         /* of these, allocated */
    int64_t lose_after;  /* kernels that still run before the device is lost; -1: never */
    int no_algorithm;    /* cuBLASLt and cuDNN find none */
    int failing_library; /* calls of cuBLASLt and cuDNN fail */
    uint64_t order;      /* in which threads and blocks run (execute.cpp) */
} emulated_controls;

/* The driver's controls; NULL: no emulated driver is loaded. */
static inline emulated_controls *emulated_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    emulated_controls *(*find)(void) = NULL;
    if (library) *(void **)&find = dlsym(library, "gradus_emulated_controls");
    return find ? find() : NULL;
}

#endif
