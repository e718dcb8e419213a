/* attention.h - the shapes of an attention call, for its rules and its kernels. */
#ifndef GRADUS_OPS_ATTENTION_H
#define GRADUS_OPS_ATTENTION_H

#include "gradus/extend.h"

typedef struct gd_attention_inputs {
    const gd_view *q, *k, *v, *mask; /* mask may be NULL */
    bool causal, grouped;
    double scale; /* NaN: 1 / sqrt(width) */
} gd_attention_inputs;

typedef struct gd_attention {
    int rank; /* leading dimensions */
    int64_t batch[GD_MAX_RANK];
    int64_t count; /* matrices in all */
    int64_t rows, columns, width, value_width; /* L, S, E, F */
    int64_t groups; /* heads of q for each head of k and v */
    double scale;
    bool causal;
} gd_attention;

gd_status gd_attention_shape(const gd_attention_inputs *in, gd_attention *s);

/* Where matrix number `index` begins in an operand (row-major), in elements. */
int64_t gd_attention_offset(const gd_attention *s, const gd_view *t, int64_t index, bool shared_heads);

/* What the mask adds to the score at (row, column): 0 or minus infinity where it is bool. */
double gd_attention_mask(const gd_view *mask, int64_t base, int64_t row, int64_t column);

#endif
