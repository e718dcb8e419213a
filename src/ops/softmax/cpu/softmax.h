/* softmax.h - vectorized softmax, log_softmax and their gradients, along contiguous rows and along
 * strided columns. */
#ifndef GRADUS_OPS_SOFTMAX_CPU_SOFTMAX_H
#define GRADUS_OPS_SOFTMAX_CPU_SOFTMAX_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

/* `logs` selects log_softmax. Strides (`step`) are in elements. */
typedef struct gd_softmax_isa {
    /* `rows` contiguous rows of n elements each. */
    void (*rows)(bool logs, int64_t rows, int64_t n, const void *x, void *y);
    /* `cols` neighbouring columns of n elements, `step` apart. */
    void (*columns)(bool logs, int64_t cols, int64_t n, int64_t step, const void *x, void *y);
    void (*grad_rows)(bool logs, int64_t rows, int64_t n, const void *gy, const void *y, void *gx);
    void (*grad_columns)(bool logs, int64_t cols, int64_t n, int64_t step, const void *gy,
                         const void *y, void *gx);
} gd_softmax_isa;

GD_ISA_DECLARE(extern const gd_softmax_isa, gd_softmax_f32, [1]);
GD_ISA_DECLARE(extern const gd_softmax_isa, gd_softmax_f64, [1]);

#endif
