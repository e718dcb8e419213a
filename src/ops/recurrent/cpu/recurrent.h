/* recurrent.h - vectorized cells of recurrent layers: the elementwise part of one sequence at one
 * step, between the matrix products, forward and backward. Every row has n = H elements per gate.
 */
#ifndef GRADUS_OPS_RECURRENT_CPU_RECURRENT_H
#define GRADUS_OPS_RECURRENT_CPU_RECURRENT_H

#include <stdint.h>

#include "backend/cpu/isa.h"

/* Forward. `gates` holds the pre-activations (i, f, g, o) and is overwritten by the activations; c
 * and h are updated to the next state, and h is also stored to y. `cell` (may be NULL) receives c.
 * For gru, `gates` holds the input's part of the pre-activations (r, z, n) and s the state's part;
 * with `keep`, (r, z, n, state's part of n) is stored in `gates`. */
typedef struct gd_recurrent_isa {
    void (*tanh)(int64_t n, void *y, void *h);
    void (*relu)(int64_t n, void *y, void *h);
    void (*lstm)(int64_t n, void *gates, void *c, void *h, void *y, void *cell);
    void (*gru)(int64_t n, void *gates, const void *s, void *h, void *y, int keep);

    /* Backward. `gates` receives the gradients of the pre-activations. dh is the gradient of the
     * state after the step; it is replaced by the part of the gradient before the step that does
     * not pass through w_hh. dc is replaced by the complete gradient of c before the step. */
    void (*tanh_backward)(int64_t n, const void *gy, const void *y, void *dh, void *gates);
    void (*relu_backward)(int64_t n, const void *gy, const void *y, void *dh, void *gates);
    void (*lstm_backward)(int64_t n, const void *gy, const void *saved, const void *c,
                          const void *c_before, void *dh, void *dc, void *gates);
    void (*gru_backward)(int64_t n, const void *gy, const void *saved, const void *h_before,
                         void *dh, void *gates);

    /* y (columns, rows) is x (rows, columns) transposed. */
    void (*transpose)(int64_t rows, int64_t columns, const void *x, void *y);
} gd_recurrent_isa;

GD_ISA_DECLARE(extern const gd_recurrent_isa, gd_recurrent_f32, [1]);
GD_ISA_DECLARE(extern const gd_recurrent_isa, gd_recurrent_f64, [1]);

#endif
