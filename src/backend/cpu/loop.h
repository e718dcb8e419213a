/* loop.h - loops of kernels: how they are unrolled and divided. */
#ifndef GRADUS_BACKEND_CPU_LOOP_H
#define GRADUS_BACKEND_CPU_LOOP_H

#include <stdint.h>

/* Fully unrolls a loop whose bounds are constants after inlining. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define LOOP_FN static inline __attribute__((always_inline, unused))
LOOP_FN int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
LOOP_FN int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
