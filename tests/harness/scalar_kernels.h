/* scalar_kernels.h - runs kernels of the scalar dialect (codegen/dialect.h) instead of the CPU's.
 *
 * First the program runs calls as usual while their kernel sources are collected. Then one run of
 * the compiler compiles many sources, and later calls use the compiled kernels: a kernel is called
 * once for each element, output of a reduction, or row.
 *
 *     scalar_begin(1);                // sources are collected from here on
 *     ... calls ...
 *     scalar_compile();               // calls use scalar kernels from here on
 *     ... the same calls ...
 *     scalar_end();
 */
#ifndef GRADUS_TESTS_HARNESS_SCALAR_KERNELS_H
#define GRADUS_TESTS_HARNESS_SCALAR_KERNELS_H

#include "codegen/native.h"
#include "dispatch/op.h"
#include "dispatch/scalar_call.h"

typedef struct scalar_kernel {
    uint64_t hash;
    gd_kernel_source source;
    gd_scalar_fn fn; /* NULL: not compiled */
} scalar_kernel;

struct scalar_state {
    enum { SCALAR_OFF, SCALAR_COLLECT, SCALAR_RUN } phase;
    scalar_kernel *kernels;
    int count, room;
    int sample; /* one in `sample` sources is compiled; 1: all */
    int64_t runs, runs_of_rows, runs_of_reductions;
};

extern struct scalar_state scalar;

/* Starts to collect sources. One in `sample` of them will be compiled. */
void scalar_begin(int sample);
/* Returns the number of compiled kernels; -1: some did not compile. */
int scalar_compile(void);
void scalar_end(void);
const gd_native_target *scalar_target(void);
void scalar_collect(const gd_kernel_source *source, uint64_t hash);
scalar_kernel *scalar_find(uint64_t hash);

#endif
