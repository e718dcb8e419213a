/* indexing_rows.isa.c - see indexing_rows.h. */
#include "backend/cpu/indexing_rows.h"

#include "backend/cpu/simd.h"

#define DEFINE_ADD_ROW(T, E, LANES)                                            \
    void GD_ISA_FN(gd_add_row_##T)(E * y, const E *x, int64_t n) {             \
        int64_t i = 0;                                                         \
        for (; i + LANES <= n; i += LANES)                                     \
            v_store_##T(y + i, v_load_##T(y + i) + v_load_##T(x + i));         \
        for (; i < n; i++) y[i] += x[i];                                       \
    }
DEFINE_ADD_ROW(f32, float, VF32_LANES)
DEFINE_ADD_ROW(f64, double, VF64_LANES)
