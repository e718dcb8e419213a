/* recurrent.h - what happens between the matrix products of a recurrent layer: the gates of one
 * sequence at one step, forward and back. All rows are of n = H elements for each part.
 */
#ifndef GRADUS_CPU_RECURRENT_H
#define GRADUS_CPU_RECURRENT_H

#include <stdint.h>

#include "backend/cpu/isa.h"

/* Forward. Sums of gates (i, f, g, o) become gates; c and h become the next state, and h goes to y
 * as well. `cell` (may be NULL) gets c. For gru, gates hold the input's sums (r, z, n) and s those
 * of the state, and with `keep` the gates (r, z, n, s) are left there. */
typedef struct gd_recurrent_isa {
    void (*tanh)(int64_t n, void *y, void *h);
    void (*relu)(int64_t n, void *y, void *h);
    void (*lstm)(int64_t n, void *gates, void *c, void *h, void *y, void *cell);
    void (*gru)(int64_t n, void *gates, const void *s, void *h, void *y, int keep);

    /* Back. gates gets the gradients of the sums. dh is the gradient of the state after the step
     * and becomes the part of that before the step which does not pass w_hh; dc likewise, all of
     * it. */
    void (*tanh_back)(int64_t n, const void *gy, const void *y, void *dh, void *gates);
    void (*relu_back)(int64_t n, const void *gy, const void *y, void *dh, void *gates);
    void (*lstm_back)(int64_t n, const void *gy, const void *saved, const void *c,
                      const void *c_before, void *dh, void *dc, void *gates);
    void (*gru_back)(int64_t n, const void *gy, const void *saved, const void *h_before, void *dh,
                     void *gates);

    /* y (columns, rows) is x (rows, columns) transposed. */
    void (*turn)(int64_t rows, int64_t columns, const void *x, void *y);
} gd_recurrent_isa;

GD_ISA_DECLARE(extern const gd_recurrent_isa, gd_recurrent_f32, [1]);
GD_ISA_DECLARE(extern const gd_recurrent_isa, gd_recurrent_f64, [1]);

#endif
