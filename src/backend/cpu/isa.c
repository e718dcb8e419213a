/* isa.c - selects the instruction set of the kernels once per process. */
#include "backend/cpu/isa.h"
#include "gradus/device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int current_isa = -1;

static gd_isa best_supported_isa(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return GD_ISA_AVX512;
    /* every processor with AVX2 and FMA has F16C as well; clang 14 has no test for it */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GD_ISA_AVX2;
#endif
    return GD_ISA_BASE;
}

gd_isa gd_cpu_set_isa(gd_isa isa) {
    gd_isa best = best_supported_isa();
    if (isa > best) isa = best;
    atomic_store(&current_isa, (int)isa);
    return isa;
}

gd_isa gd_cpu_isa(void) {
    int isa = atomic_load_explicit(&current_isa, memory_order_relaxed);
    if (isa >= 0) return (gd_isa)isa;
    const char *requested = getenv("GRADUS_ISA");
    gd_isa isa_limit = GD_ISA_AVX512;
    for (int i = 0; requested && i < GD_ISA_COUNT; i++)
        if (strcmp(requested, gd_isa_name((gd_isa)i)) == 0) isa_limit = (gd_isa)i;
    return gd_cpu_set_isa(isa_limit);
}

const char *gd_cpu_instruction_set(void) { return gd_isa_name(gd_cpu_isa()); }

const char *gd_isa_name(gd_isa isa) {
    static const char *const names[GD_ISA_COUNT] = {"base", "avx2", "avx512"};
    return isa >= 0 && isa < GD_ISA_COUNT ? names[isa] : "?";
}
