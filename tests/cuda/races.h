/* races.h - finds accesses of a kernel that are not ordered, in kernels that were compiled for it.
 *
 * GCC's -fsanitize=thread calls a function before each access to memory. These functions are here,
 * not in GCC's library: they know the barriers of CUDA. Two accesses to the same byte, one of them a
 * write, by different threads, are a race unless one of these is between them:
 *
 *     __syncthreads                   in the same block
 *     __syncwarp                      in the same warp; shuffles do not order memory
 *     fence, atomic, atomic, fence    in different blocks: the first two after the first access, the
 *                                     others before the second one; or add_release and load_acquire
 *
 * Atomics and relaxed accesses are never a part of a race. A kernel that may start before the previous
 * one has ended must not access the device's memory before it has waited for that.
 *
 * The folder emulated_cuda/checked of the build has a driver with such kernels. It prints each pair
 * of code addresses once, and the process ends with status 66.
 */
#ifndef GRADUS_TESTS_CUDA_RACES_H
#define GRADUS_TESTS_CUDA_RACES_H

#include <cstddef>
#include <cstdint>

/* The thread that runs: who it is, and how many barriers it has passed. */
struct emulated_place {
    uint32_t block;
    uint32_t phase; /* __syncthreads of the block */
    uint16_t thread;
    uint16_t syncs; /* __syncwarp of the thread */
};
emulated_place emulated_this_place(void); /* execute.cpp */
/* Whether a variable is in shared memory. */
bool emulated_is_static_shared(const unsigned char *address);

/* A launch begins. `early`: the previous kernel may still run until a thread has waited for it. */
void emulated_races_begin(const char *kernel, bool early);
void emulated_races_end(void);
/* A barrier of the block: what its threads know of other blocks, all know. */
void emulated_races_barrier(void);
/* A write of the thread that runs, by code of the emulator. */
extern "C" void emulated_write(const void *address, size_t bytes);

#endif
