/* attention.h - what the rules, bodies and kernels of attention share. */
#ifndef GRADUS_OPS_ATTENTION_H
#define GRADUS_OPS_ATTENTION_H

#include "ops/op.h"
#include "ops/random_dist.h"

typedef struct gd_attention_inputs {
    const gd_view *q, *k, *v, *mask; /* mask may be NULL */
    const gd_view *key;              /* for dropout; NULL: none */
    bool causal, grouped;
    double scale; /* NaN: 1 / sqrt(width) */
    double dropout;
} gd_attention_inputs;

typedef struct gd_attention {
    int rank; /* leading dimensions */
    int64_t batch[GD_MAX_RANK];
    int64_t count;                             /* matrices in all */
    int64_t rows, columns, width, value_width; /* L, S, E, F */
    int64_t groups;                            /* heads of q for each head of k and v */
    double scale;
    bool causal;
} gd_attention;

/* Checks the shapes, and finds those of the result. */
gd_status gd_attention_shape(const gd_attention_inputs *in, gd_attention *s);

/* The same for a rule, dtypes and options too. Input `mask_at` is the mask, the next one the key. */
gd_status gd_attention_infer(const gd_infer *i, int mask_at, bool causal, bool grouped,
                             double scale, double dropout, gd_attention *s);

/* The inputs of a kernel call; `mask` as above. */
gd_attention_inputs gd_attention_call_inputs(const gd_view *in, int n_in, int mask, bool causal,
                                             bool grouped, double scale, double dropout);

/* Where matrix number `index` begins in an operand (row-major), in elements. */
int64_t gd_attention_offset(const gd_attention *s, const gd_view *t, int64_t index,
                            bool shared_heads);

/* What the mask adds to the score at (row, column): 0 or minus infinity where it is bool. */
double gd_attention_mask(const gd_view *mask, int64_t base, int64_t row, int64_t column);

/* --- dropout: weight number i of all (batch..., L, S) is kept if element i of this call is ---- */

gd_rng gd_attention_rng(const gd_view *key);

/* What kept elements are multiplied by. */
static inline double gd_kept_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

/* --- plain kernels ---------------------------------------------------------------------------- */

typedef struct gd_attention_plain {
    gd_attention_inputs in;
    gd_attention s;
    gd_rng rng;
    int64_t matrix;                    /* the current one, */
    int64_t at_q, at_k, at_v, at_mask; /* and where it begins */
} gd_attention_plain;

/* `row` gets the workspace: a row of weights, and one of their gradients. */
gd_status gd_attention_begin(gd_attention_plain *p, gd_attention_inputs in, const gd_kernel_call *c,
                             double **row);
size_t gd_attention_plain_bytes(const gd_kernel_call *c);
void gd_attention_matrix(gd_attention_plain *p, int64_t e);
/* The weights of row i into w (S of them); returns the logarithm of the sum of exponentials. */
double gd_attention_row(const gd_attention_plain *p, int64_t i, double *w);
/* What dropout multiplies weight (i, j) by. */
double gd_attention_kept(const gd_attention_plain *p, int64_t i, int64_t j);

/* --- bodies ----------------------------------------------------------------------------------- */

/* k or v with each head repeated for the heads of q that share it. */
gd_tensor *gd_spread_heads(gd_tensor *t, gd_tensor *q, bool grouped);
/* The opposite: gradients of the heads that share one, summed. */
gd_tensor *gd_gather_heads(gd_tensor *g, const gd_tensor *like, bool grouped);
/* The weights (..., L, S): softmax of the scores, zero in rows where all is masked. */
gd_tensor *gd_attention_weights(gd_tensor *q, gd_tensor *k, gd_tensor *mask, bool causal,
                                bool grouped, double scale);
/* Dropout of t, which has the shape of the weights; t itself without a key. */
gd_tensor *gd_attention_keep(gd_tensor *t, const gd_tensor *weights, gd_tensor *key,
                             double dropout);

#endif
