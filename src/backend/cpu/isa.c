/* isa.c - which instruction set the kernels use: asked once, held in one atomic. */
#include "backend/cpu/isa.h"
#include "gradus/device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int current = -1;

static gd_isa best_of_processor(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return GD_ISA_AVX512;
    /* every processor with AVX2 and FMA has F16C as well; clang 14 cannot ask for it */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GD_ISA_AVX2;
#endif
    return GD_ISA_BASE;
}

gd_isa gd_cpu_set_isa(gd_isa isa) {
    gd_isa best = best_of_processor();
    if (isa > best) isa = best;
    atomic_store(&current, (int)isa);
    return isa;
}

gd_isa gd_cpu_isa(void) {
    int isa = atomic_load_explicit(&current, memory_order_relaxed);
    if (isa >= 0) return (gd_isa)isa;
    const char *asked = getenv("GRADUS_ISA");
    gd_isa want = GD_ISA_AVX512;
    for (int i = 0; asked && i < GD_ISA_COUNT; i++)
        if (strcmp(asked, gd_isa_name((gd_isa)i)) == 0) want = (gd_isa)i;
    return gd_cpu_set_isa(want);
}

const char *gd_cpu_instruction_set(void) { return gd_isa_name(gd_cpu_isa()); }

const char *gd_isa_name(gd_isa isa) {
    static const char *const names[GD_ISA_COUNT] = {"base", "avx2", "avx512"};
    return isa >= 0 && isa < GD_ISA_COUNT ? names[isa] : "?";
}
