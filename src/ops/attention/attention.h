/* attention.h - shapes, masks and dropout of attention, shared by its infer rules, bodies and
 * kernels. */
#ifndef GRADUS_OPS_ATTENTION_ATTENTION_H
#define GRADUS_OPS_ATTENTION_ATTENTION_H

#include "dispatch/op.h"
#include "ops/random/random_dist.h"

typedef struct gd_attention_inputs {
    const gd_view *q, *k, *v, *mask; /* mask may be NULL */
    const gd_view *key;              /* the random key of dropout; NULL: no dropout */
    bool causal, grouped;
    double scale; /* NaN: 1 / sqrt(width) */
    double dropout;
} gd_attention_inputs;

typedef struct gd_attention {
    int rank; /* number of leading (batch) dimensions */
    int64_t batch[GD_MAX_RANK];
    int64_t count;                             /* product of batch: the number of matrices */
    int64_t rows, columns, width, value_width; /* L, S, E, F */
    int64_t groups;                            /* heads of q that share one head of k and v */
    double scale;
    bool causal;
} gd_attention;

/* Checks the shapes of the inputs and computes those of the problem. */
gd_status gd_attention_shape(const gd_attention_inputs *in, gd_attention *s);

/* The same for an infer rule; checks dtypes and options too. Input `mask_at` is the mask, the
 * next one the key. */
gd_status gd_attention_infer(const gd_infer *i, int mask_at, bool causal, bool grouped,
                             double scale, double dropout, gd_attention *s);

/* The inputs of a kernel call. Input `mask` is the mask, the next one the key. */
gd_attention_inputs gd_attention_call_inputs(const gd_view *in, int n_in, int mask, bool causal,
                                             bool grouped, double scale, double dropout);

/* The offset, in elements, of matrix number `index` (row-major over the batch) in an operand.
 * `shared_heads`: the operand is k or v, whose heads are shared by `groups` heads of q. */
int64_t gd_attention_offset(const gd_attention *s, const gd_view *t, int64_t index,
                            bool shared_heads);

/* The value that the mask adds to the score at (row, column). A bool mask adds 0 where it is
 * true and minus infinity where it is false. */
double gd_attention_mask(const gd_view *mask, int64_t base, int64_t row, int64_t column);

/* --- dropout ---------------------------------------------------------------------------------- */

/* The random numbers of the key. Dropout keeps weight i of (batch..., L, S), counted row-major, if
 * gd_dropout with the same key keeps element i. */
gd_rng gd_attention_rng(const gd_view *key);

/* The factor of elements that dropout with probability p keeps. */
static inline double gd_kept_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

/* --- reference kernels ------------------------------------------------------------------------ */

typedef struct gd_attention_reference {
    gd_attention_inputs in;
    gd_attention s;
    gd_rng rng;
    int64_t matrix;                    /* the number of the current matrix */
    int64_t at_q, at_k, at_v, at_mask; /* its offsets in the operands */
} gd_attention_reference;

/* `row` points to the workspace afterwards: a row of weights, then a row of their gradients. */
gd_status gd_attention_reference_begin(gd_attention_reference *p, gd_attention_inputs in,
                                       const gd_kernel_call *c, double **row);
size_t gd_attention_reference_bytes(const gd_kernel_call *c);
void gd_attention_select_matrix(gd_attention_reference *p, int64_t e);
/* Writes the weights of row i to w (S of them). Returns the logarithm of the sum of
 * exponentials. */
double gd_attention_weight_row(const gd_attention_reference *p, int64_t i, double *w);
/* The factor that dropout applies to weight (i, j): 0 or gd_kept_scale. */
double gd_attention_dropout_factor(const gd_attention_reference *p, int64_t i, int64_t j);

/* --- bodies ----------------------------------------------------------------------------------- */

/* k or v with each head repeated once for every head of q that shares it. */
gd_tensor *gd_repeat_heads(gd_tensor *t, gd_tensor *q, bool grouped);
/* The adjoint: sums the gradients of heads that share one head of `like`. */
gd_tensor *gd_sum_shared_heads(gd_tensor *g, const gd_tensor *like, bool grouped);
/* The weights (..., L, S): softmax of the scores; zero in rows where every column is masked. */
gd_tensor *gd_attention_weights(gd_tensor *q, gd_tensor *k, gd_tensor *mask, bool causal,
                                bool grouped, double scale);
/* Dropout of t, which has the shape of the weights. Returns t itself if key is NULL. */
gd_tensor *gd_attention_dropout(gd_tensor *t, const gd_tensor *weights, gd_tensor *key,
                                double dropout);

#endif
