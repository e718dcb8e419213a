/* isa.h - compiling one source for several instruction sets.
 *
 * A file named *.isa.c is compiled three times: for the baseline (x86-64: SSE2), for AVX2 with FMA
 * and F16C, and for AVX-512 (F, BW, DQ, VL); on other architectures once, as the baseline.
 * GD_ISA_FN(name) expands to a different symbol each time (name_base, name_avx2, name_avx512).
 * A file named *.typed.isa.c is compiled for each of them twice, with FOR_F32 and with FOR_F64
 * defined; GD_ISA_TYPED(name) expands to name_f32_base and so on.
 * isa.c queries the processor once; the environment variable GRADUS_ISA (base, avx2, avx512) can
 * select a lower set.
 *
 * All of them are compiled with -ffp-contract=off: only explicit calls of v_fma_* and the like fuse
 * a product and a sum.
 */
#ifndef GRADUS_BACKEND_CPU_ISA_H
#define GRADUS_BACKEND_CPU_ISA_H

typedef enum gd_isa { GD_ISA_BASE, GD_ISA_AVX2, GD_ISA_AVX512, GD_ISA_COUNT } gd_isa;

/* The instruction set in use: the best one of the processor, or GRADUS_ISA if that is lower. */
gd_isa gd_cpu_isa(void);

/* For tests: limits kernels to `isa`, or to what the processor has; returns the set in use. */
gd_isa gd_cpu_set_isa(gd_isa isa);

const char *gd_isa_name(gd_isa isa);

/* Declares a function that every instruction set defines, and calls the one of the set in use:
 *     GD_ISA_DECLARE(void, gemm_f32, (const gd_gemm *g));
 *     GD_ISA_CALL(gemm_f32)(g);                                                            */
#if defined(__x86_64__)
#define GD_ISA_DECLARE(type, name, args) \
    type name##_base args;               \
    type name##_avx2 args;               \
    type name##_avx512 args
#define GD_ISA_CALL(name)                          \
    (gd_cpu_isa() == GD_ISA_AVX512 ? name##_avx512 \
     : gd_cpu_isa() == GD_ISA_AVX2 ? name##_avx2   \
                                   : name##_base)
#else
#define GD_ISA_DECLARE(type, name, args) type name##_base args
#define GD_ISA_CALL(name)                (name##_base)
#endif

/* In a *.isa.c file: the set that is being compiled. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define GD_ISA_FN(name) name##_avx512
#define GD_ISA_IS       GD_ISA_AVX512
#elif defined(__AVX2__) && defined(__FMA__)
#define GD_ISA_FN(name) name##_avx2
#define GD_ISA_IS       GD_ISA_AVX2
#else
#define GD_ISA_FN(name) name##_base
#define GD_ISA_IS       GD_ISA_BASE
#endif

/* In a *.typed.isa.c file: the set and the dtype. */
#if defined(FOR_F32)
#define GD_ISA_TYPED(name) GD_ISA_FN(name##_f32)
#elif defined(FOR_F64)
#define GD_ISA_TYPED(name) GD_ISA_FN(name##_f64)
#endif

#endif
