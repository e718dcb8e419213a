/* attention.c - scaled dot-product attention. Its kernels never store the entire matrix of weights.
 *
 * q is (..., L, E), k is (..., S, E), v is (..., S, F); leading dimensions broadcast. With grouped
 * heads, q has `groups` times as many heads (dimension -3) as k and v, and each head of k and v is
 * shared by `groups` neighbouring heads of q.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "ops/attention/attention.h"
#include "dispatch/body.h"
#include "ops/index/index.h"
#include "dispatch/infer.h"
#include "dispatch/macs.h"

/* --- shapes ----------------------------------------------------------------------------------- */

/* Leading dimension d, of `rank`, is `size` in the first and n in a later operand. */
static gd_status fail_leading(const gd_attention_inputs *in, int rank, int d, int64_t size,
                              int64_t n) {
    const int64_t q = in->q->rank > 2 ? in->q->dims[in->q->rank - 3] : 1,
                  k = in->k->rank > 2 ? in->k->dims[in->k->rank - 3] : 1;
    if (d == rank - 1 && !in->grouped && k > 1 && q > k && q % k == 0)
        return gd_op_fail(
            GD_E_SHAPE,
            "'q' has %lld heads and 'k' %lld; with .grouped = true, %lld heads of 'q' "
            "share one of 'k' and 'v'",
            (long long)q, (long long)k, (long long)(q / k));
    return gd_op_fail(GD_E_SHAPE, "leading dimensions %lld and %lld do not broadcast",
                      (long long)size, (long long)n);
}

/* Broadcasts the leading dimensions of q, k, v and the mask to s->batch. With grouped heads, the
 * last of them is that of q, and s->groups heads of q share one head of k and v. */
static gd_status broadcast_batch(const gd_attention_inputs *in, gd_attention *s) {
    const gd_view *q = in->q;
    const gd_view *all[4] = {q, in->k, in->v, in->mask};
    for (int i = 0; i < 4; i++)
        if (all[i] && all[i]->rank - 2 > s->rank) s->rank = all[i]->rank - 2;
    for (int d = 0; d < s->rank; d++) { /* leading dimension d, counted from the left */
        int64_t size = 1;
        bool heads = in->grouped && d == s->rank - 1;
        for (int i = 0; i < 4; i++) {
            int at = all[i] ? d - (s->rank - (all[i]->rank - 2)) : -1;
            int64_t n = at < 0 ? 1 : all[i]->dims[at];
            if (heads && (i == 1 || i == 2)) {
                int64_t q_heads = q->rank > 2 ? q->dims[q->rank - 3] : 1;
                if (n == 0 || q_heads % n != 0 || (i == 2 && q_heads / n != s->groups))
                    return gd_op_fail(
                        GD_E_SHAPE,
                        "'q' has %lld heads, 'k' or 'v' has %lld; 'k' and 'v' must have equally "
                        "many, and 'q' a multiple of that",
                        (long long)q_heads, (long long)n);
                s->groups = q_heads / n;
                continue;
            }
            if (n == 1 || n == size) continue;
            if (size != 1) return fail_leading(in, s->rank, d, size, n);
            size = n;
        }
        s->batch[d] = size;
    }
    return GD_OK;
}

gd_status gd_attention_shape(const gd_attention_inputs *in, gd_attention *s) {
    const gd_view *q = in->q, *k = in->k, *v = in->v, *m = in->mask;
    *s = (gd_attention){.rank = 0, .groups = 1};
    if (q->rank < 2 || k->rank < 2 || v->rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'q', 'k' and 'v' must have at least 2 dimensions");
    s->rows = q->dims[q->rank - 2];
    s->width = q->dims[q->rank - 1];
    s->columns = k->dims[k->rank - 2];
    s->value_width = v->dims[v->rank - 1];
    if (k->dims[k->rank - 1] != s->width)
        return gd_op_fail(
            GD_E_SHAPE, "the last dimensions of 'q' and 'k' are %lld and %lld; they must be equal",
            (long long)s->width, (long long)k->dims[k->rank - 1]);
    if (v->dims[v->rank - 2] != s->columns)
        return gd_op_fail(GD_E_SHAPE,
                          "dimension -2 is %lld in 'k' and %lld in 'v'; they must be equal",
                          (long long)s->columns, (long long)v->dims[v->rank - 2]);
    GD_TRY(broadcast_batch(in, s));
    if (m) {
        int64_t mr = m->rank > 1 ? m->dims[m->rank - 2] : 1,
                mc = m->rank > 0 ? m->dims[m->rank - 1] : 1;
        if ((mr != 1 && mr != s->rows) || (mc != 1 && mc != s->columns))
            return gd_op_fail(
                GD_E_SHAPE, "'mask' ends in (%lld, %lld), which does not broadcast to (%lld, %lld)",
                (long long)mr, (long long)mc, (long long)s->rows, (long long)s->columns);
    }
    s->count = gd_numel(s->rank, s->batch);
    s->scale = isnan(in->scale) ? 1 / sqrt((double)(s->width > 0 ? s->width : 1)) : in->scale;
    s->causal = in->causal;
    return GD_OK;
}

int64_t gd_attention_offset(const gd_attention *s, const gd_view *t, int64_t index,
                            bool shared_heads) {
    int64_t at = 0;
    for (int d = s->rank; d-- > 0;) {
        int64_t i = index % s->batch[d];
        index /= s->batch[d];
        int k = d - (s->rank - (t->rank - 2));
        if (shared_heads && d == s->rank - 1) i /= s->groups;
        if (k >= 0 && t->dims[k] > 1) at += i * t->strides[k];
    }
    return at;
}

double gd_attention_mask(const gd_view *mask, int64_t base, int64_t row, int64_t column) {
    int r = mask->rank;
    int64_t at = base;
    if (r > 1 && mask->dims[r - 2] > 1) at += row * mask->strides[r - 2];
    if (r > 0 && mask->dims[r - 1] > 1) at += column * mask->strides[r - 1];
    switch (mask->dtype) {
    case GD_F64: return ((const double *)mask->data)[at];
    case GD_F32: return ((const float *)mask->data)[at];
    case GD_I64: return ((const int64_t *)mask->data)[at] ? 0 : -INFINITY; /* bool, staged */
    default: return ((const uint8_t *)mask->data)[at] ? 0 : -INFINITY;
    }
}

gd_attention_inputs gd_attention_call_inputs(const gd_view *in, int n_in, int mask, bool causal,
                                             bool grouped, double scale, double dropout) {
    gd_attention_inputs inputs = {&in[0], &in[1],  &in[2], NULL,   NULL,
                                  causal, grouped, scale,  dropout};
    if (n_in > mask && in[mask].data) inputs.mask = &in[mask];
    if (n_in > mask + 1 && in[mask + 1].data) inputs.key = &in[mask + 1];
    return inputs;
}

gd_rng gd_attention_rng(const gd_view *key) {
    const int64_t *words = key->data, step = key->strides[0];
    return (gd_rng){(uint64_t)words[0], (uint64_t)words[step]};
}

gd_status gd_attention_infer(const gd_infer *i, int mask_at, bool causal, bool grouped,
                             double scale, double dropout, gd_attention *s) {
    const gd_tensor *mask = i->n_in > mask_at ? i->in[mask_at] : NULL,
                    *key = i->n_in > mask_at + 1 ? i->in[mask_at + 1] : NULL;
    gd_view views[4];
    for (int k = 0; k < 3; k++) {
        GD_TRY(gd_need_float(i->in[k], i->op->inputs[k].name));
        GD_TRY(gd_need_same_dtype(i->in[0], i->in[k], "q", i->op->inputs[k].name));
        gd_view_set(&views[k], i->in[k]);
    }
    if (mask) {
        if (mask->dtype != GD_BOOL && mask->dtype != i->in[0]->dtype)
            return gd_op_fail(GD_E_DTYPE,
                              "'mask' is %s; it must be bool, where true is \"attend\" "
                              "(gd_ne(mask, 0) makes it so), or %s as 'q', which is "
                              "added to the scores",
                              gd_dtype_name((gd_dtype)mask->dtype),
                              gd_dtype_name((gd_dtype)i->in[0]->dtype));
        gd_view_set(&views[3], mask);
    }
    if (!(dropout >= 0 && dropout <= 1))
        return gd_op_fail(GD_E_ARGUMENT, "dropout is %g; it must lie between 0 and 1", dropout);
    if (key && (key->dtype != GD_I64 || key->rank != 1 || key->dims[0] != 2))
        return gd_op_fail(GD_E_SHAPE, "'key' must be two i64, as random_key gives them");
    gd_attention_inputs in = {&views[0], &views[1], &views[2], mask ? &views[3] : NULL,
                              NULL,      causal,    grouped,   scale,
                              dropout};
    return gd_attention_shape(&in, s);
}

/* y is (batch..., L, F); lse (batch..., L) has one value for each row of y. */
static void attention_outputs(const gd_attention *s, gd_dtype dtype, gd_meta *y, gd_meta *lse) {
    y->dtype = dtype;
    y->rank = s->rank + 2;
    memcpy(y->dims, s->batch, sizeof s->batch);
    y->dims[s->rank] = s->rows;
    y->dims[s->rank + 1] = s->value_width;
    if (!lse) return;
    lse->dtype = dtype == GD_F64 ? GD_F64 : GD_F32;
    lse->rank = s->rank + 1;
    memcpy(lse->dims, y->dims, sizeof lse->dims);
}

/* --- the public op ---------------------------------------------------------------------------- */

/*op scaled_dot_product_attention(q, k, v) -> y  random lowp
 * softmax(scale q kT + mask) v: q (..., L, E), k (..., S, E), v (..., S, F) give y (..., L, F). The
 * mask broadcasts to (..., L, S). As in PyTorch, true in a bool mask of this op lets row i attend to
 * column j and false hides the column, and a float is added to the score; in the masks of the layer
 * gd_nn_multihead_attention, true hides. A row of the weights in which every column is hidden is
 * zero. Dropout zeroes each weight with that
 * probability and divides the others by 1 - dropout. A call with dropout takes one number from the
 * random generator, and keeps weight i of (..., L, S), row-major, where gd_dropout keeps element i.
 * A call without dropout takes none.
 *   mask tensor?          true: attend; a float is added to the score
 *   causal bool = false   row i attends to columns 0 to i only
 *   scale float = none    none: 1 / sqrt(E)
 *   grouped bool = false  heads of q share heads of k and v
 *   dropout float = 0     the probability that a weight is zeroed, while training
 *   training bool = true  false: no dropout
 *   python (query=q, key=k, value=v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale, enable_gqa=grouped)
 */
static gd_status scaled_dot_product_attention_infer(gd_infer *i) {
    const gd_scaled_dot_product_attention_options *o = i->attrs;
    gd_attention s;
    GD_TRY(gd_attention_infer(i, 3, o->causal, o->grouped, o->scale, o->dropout, &s));
    attention_outputs(&s, (gd_dtype)i->in[0]->dtype, &i->out[0], NULL);
    return GD_OK;
}
static void scaled_dot_product_attention_expand(gd_expansion *e) {
    const gd_scaled_dot_product_attention_options *o = e->attrs;
    gd_tensor *key = o->training && o->dropout > 0 ? gd_random_key(e->x[0]) : NULL;
    e->y[0] =
        gd_attention_forward(e->x[0], e->x[1], e->x[2], .mask = gd_optional_input(e->x, e->n_in, 3),
                             .key = key, .causal = o->causal, .scale = o->scale,
                             .grouped = o->grouped, .dropout = key ? o->dropout : 0);
}

/* --- reference kernels: one row of weights at a time ------------------------------------------ */

void gd_attention_select_matrix(gd_attention_reference *p, int64_t e) {
    p->matrix = e;
    p->at_q = gd_attention_offset(&p->s, p->in.q, e, false);
    p->at_k = gd_attention_offset(&p->s, p->in.k, e, true);
    p->at_v = gd_attention_offset(&p->s, p->in.v, e, true);
    p->at_mask = p->in.mask ? gd_attention_offset(&p->s, p->in.mask, e, false) : 0;
}

double gd_attention_weight_row(const gd_attention_reference *p, int64_t i, double *w) {
    const gd_attention *s = &p->s;
    const double *q = (const double *)p->in.q->data + p->at_q + i * s->width,
                 *k = (const double *)p->in.k->data + p->at_k;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s->columns; j++) {
        double score = 0;
        for (int64_t t = 0; t < s->width; t++) score += q[t] * k[j * s->width + t];
        score *= s->scale;
        if (p->in.mask) score += gd_attention_mask(p->in.mask, p->at_mask, i, j);
        if (s->causal && j > i) score = -INFINITY;
        w[j] = score;
        if (score > most || isnan(score)) most = score;
    }
    if (most == -INFINITY) {
        for (int64_t j = 0; j < s->columns; j++) w[j] = 0; /* w is NULL if S is 0 */
        return -INFINITY;
    }
    for (int64_t j = 0; j < s->columns; j++) sum += w[j] = exp(w[j] - most);
    for (int64_t j = 0; j < s->columns; j++) w[j] /= sum;
    return most + log(sum);
}

double gd_attention_dropout_factor(const gd_attention_reference *p, int64_t i, int64_t j) {
    if (!p->in.key) return 1;
    uint64_t number = (uint64_t)((p->matrix * p->s.rows + i) * p->s.columns + j);
    return gd_chance(1 - p->in.dropout, gd_word_at(p->rng, number)) ? gd_kept_scale(p->in.dropout)
                                                                    : 0;
}

gd_status gd_attention_reference_begin(gd_attention_reference *p, gd_attention_inputs in,
                                       const gd_kernel_call *c, double **row) {
    *p = (gd_attention_reference){.in = in};
    if (in.key) p->rng = gd_attention_rng(in.key);
    *row = c->workspace;
    return gd_attention_shape(&in, &p->s);
}

size_t gd_attention_reference_bytes(const gd_kernel_call *c) {
    return 2 * sizeof(double) * (size_t)c->in[1].dims[c->in[1].rank - 2];
}

/*op attention_forward(q, k, v) -> y, lse~  internal heavy
 * scaled_dot_product_attention with dropout by a given random key.
 *   mask tensor?
 *   key tensor?
 *   causal bool = false
 *   scale float = none
 *   grouped bool = false
 *   dropout float = 0
 *   saves q, k, v, mask, key, y, lse
 */
static gd_status attention_forward_infer(gd_infer *i) {
    const gd_attention_forward_options *o = i->attrs;
    gd_attention s;
    GD_TRY(gd_attention_infer(i, 3, o->causal, o->grouped, o->scale, o->dropout, &s));
    attention_outputs(&s, (gd_dtype)i->in[0]->dtype, &i->out[0], &i->out[1]);
    return GD_OK;
}
/* For each pair of row and column: E for the score, F for the sum of values. Columns that
 * `causal` masks count, too. */
static double attention_forward_macs(const gd_op_shapes *s) {
    const gd_meta *q = &s->in[0], *k = &s->in[1], *y = &s->out[0];
    const double F = (double)y->dims[y->rank - 1], E = (double)q->dims[q->rank - 1];
    gd_meta rows = *y;
    rows.rank--;
    return gd_shape_elements(&rows) * (double)k->dims[k->rank - 2] * (E + F);
}
static size_t attention_forward_workspace(const gd_kernel_call *c) {
    return gd_attention_reference_bytes(c);
}
static gd_status attention_forward_reference(gd_kernel_call *c) {
    const gd_attention_forward_options *o = c->attrs;
    gd_attention_reference p;
    double *w;
    GD_TRY(gd_attention_reference_begin(
        &p,
        gd_attention_call_inputs(c->in, c->n_in, 3, o->causal, o->grouped, o->scale, o->dropout), c,
        &w));
    double *y = c->out[0].data, *lse = c->out[1].data;
    int64_t F = p.s.value_width;
    for (int64_t e = 0; e < p.s.count; e++) {
        gd_attention_select_matrix(&p, e);
        const double *v = (const double *)p.in.v->data + p.at_v;
        for (int64_t i = 0; i < p.s.rows; i++, y += F) {
            double total = gd_attention_weight_row(&p, i, w);
            if (lse) *lse++ = total;
            for (int64_t t = 0; t < F; t++) y[t] = 0;
            for (int64_t j = 0; j < p.s.columns; j++) {
                double weight = w[j] * gd_attention_dropout_factor(&p, i, j);
                for (int64_t t = 0; t < F; t++) y[t] += weight * v[j * F + t];
            }
        }
    }
    return GD_OK;
}

/* --- the body --------------------------------------------------------------------------------- */

gd_tensor *gd_repeat_heads(gd_tensor *t, gd_tensor *q, bool grouped) {
    if (!grouped || t->rank < 3 || q->rank < 3 || t->dims[t->rank - 3] == q->dims[q->rank - 3])
        return t;
    const int heads =
        t->rank - 3; /* (.., H, S, E) to (.., H, 1, S, E), (.., H, G, S, E), (.., H G, ..) */
    gd_shape repeated = {.rank = t->rank + 1, .form = 1};
    for (int d = 0; d < repeated.rank; d++) repeated.at[d] = -1; /* other sizes may be unknown */
    repeated.at[heads + 1] = q->dims[q->rank - 3] / t->dims[heads];
    return gd_flatten(gd_expand(gd_unsqueeze(t, heads + 1), repeated), .start_axis = heads,
                      .end_axis = heads + 1);
}

gd_tensor *gd_sum_shared_heads(gd_tensor *g, const gd_tensor *like, bool grouped) {
    if (!grouped || like->rank < 3 || g->rank < 3 ||
        g->dims[g->rank - 3] == like->dims[like->rank - 3])
        return g;
    int64_t heads = like->dims[like->rank - 3], groups = g->dims[g->rank - 3] / heads;
    gd_shape split = {.form = 1};
    for (int d = 0; d < g->rank; d++) {
        split.at[split.rank++] = d == g->rank - 3 ? heads : g->dims[d];
        if (d == g->rank - 3) split.at[split.rank++] = groups;
    }
    return gd_sum(gd_reshape(g, split), .axis = g->rank - 2);
}

gd_tensor *gd_attention_weights(gd_tensor *q, gd_tensor *k, gd_tensor *mask, bool causal,
                                bool grouped, double scale) {
    k = gd_repeat_heads(k, q, grouped);
    if (isnan(scale))
        scale = 1 / sqrt((double)(q->dims[q->rank - 1] > 0 ? q->dims[q->rank - 1] : 1));
    gd_tensor *scores =
        gd_mul(gd_matmul(q, gd_transpose(k, -2, -1)), gd_scalar_of(scale, (gd_dtype)q->dtype));
    gd_tensor *masked = gd_scalar_of(-INFINITY, (gd_dtype)q->dtype),
              *zero = gd_scalar_of(0, (gd_dtype)q->dtype);
    if (causal) {
        gd_shape dims = gd_dims(gd_tensor_dim(q, -2), gd_tensor_dim(k, -2));
        gd_tensor *seen = gd_tril(gd_expand(gd_scalar_on(q, 1, GD_BOOL), dims));
        scores = gd_where(seen, scores, masked);
    }
    if (mask)
        scores = mask->dtype == GD_BOOL ? gd_where(mask, scores, masked) : gd_add(scores, mask);
    gd_tensor *row_has_scores =
        gd_gt(gd_sum(gd_gt(scores, masked), .axis = -1, .keepdim = true), gd_scalar_int(0));
    return gd_where(row_has_scores, gd_softmax(gd_where(row_has_scores, scores, zero), .axis = -1),
                    zero);
}

gd_tensor *gd_attention_dropout(gd_tensor *t, const gd_tensor *weights, gd_tensor *key,
                                double dropout) {
    if (!key) return t;
    return gd_masked_scale(t, gd_key_mask(key, gd_tensor_shape(weights), 1 - dropout),
                           .scale = gd_kept_scale(dropout));
}

static void attention_forward_expand(gd_expansion *e) {
    const gd_attention_forward_options *o = e->attrs;
    gd_tensor *q = gd_widen(e->x[0]), *k = gd_widen(e->x[1]), *v = gd_widen(e->x[2]);
    gd_tensor *mask = gd_widen(gd_optional_input(e->x, e->n_in, 3)),
              *key = gd_optional_input(e->x, e->n_in, 4);
    gd_tensor *p = gd_attention_weights(q, k, mask, o->causal, o->grouped, o->scale);
    v = gd_repeat_heads(v, q, o->grouped);
    gd_tensor *y = gd_matmul(gd_attention_dropout(p, p, key, o->dropout), v);
    e->y[0] = gd_cast(y, (gd_dtype)e->x[0]->dtype);
}

/* q, k or v expanded to the leading dimensions of y, so that each matrix gets its own gradient. The
 * backward walker sums the gradients of a matrix that was used several times. */
static gd_tensor *expand_batch(gd_tensor *t, const gd_tensor *y, bool shared_heads) {
    gd_shape own = gd_tensor_shape(t), expanded = gd_tensor_shape(y);
    for (int back = 1; back <= 2 + shared_heads && back <= y->rank; back++)
        expanded.at[y->rank - back] = back <= t->rank ? t->dims[t->rank - back] : 1;
    bool same = own.rank == expanded.rank &&
                memcmp(own.at, expanded.at, sizeof *own.at * (size_t)own.rank) == 0;
    return same ? t : gd_expand(t, expanded);
}

/* The gradient of an additive mask is that of the scores: p (gp - sum of gp p). It is computed
 * in f32 or f64, because where one weight is nearly 1 the difference is far smaller than its
 * terms. */
static gd_tensor *mask_gradient(const gd_vjp *v, gd_tensor *mask, gd_tensor *key) {
    const gd_attention_forward_options *o = v->attrs;
    gd_tensor *q = gd_widen(v->x[0]), *k = gd_widen(v->x[1]), *values = gd_widen(v->x[2]);
    gd_tensor *p = gd_attention_weights(q, k, gd_widen(mask), o->causal, o->grouped, o->scale);
    gd_tensor *gp =
        gd_matmul(gd_widen(v->gy[0]), gd_transpose(gd_repeat_heads(values, q, o->grouped), -2, -1));
    gp = gd_attention_dropout(gp, p, key, o->dropout);
    return gd_mul(p, gd_sub(gp, gd_sum(gd_mul(gp, p), .axis = -1, .keepdim = true)));
}

static void attention_forward_vjp(gd_vjp *v) {
    const gd_attention_forward_options *o = v->attrs;
    gd_tensor *mask = gd_optional_input(v->x, v->n_in, 3),
              *key = gd_optional_input(v->x, v->n_in, 4);
    gd_tensor *q = expand_batch(v->x[0], v->y[0], false),
              *keys = expand_batch(v->x[1], v->y[0], o->grouped),
              *values = expand_batch(v->x[2], v->y[0], o->grouped);
    gd_attention_grad_outputs g = gd_attention_grad(
        q, keys, values, v->y[0], v->y[1], v->gy[0], .mask = mask, .key = key, .causal = o->causal,
        .scale = o->scale, .grouped = o->grouped, .dropout = o->dropout);
    v->gx[0] = g.gq;
    v->gx[1] = g.gk;
    v->gx[2] = g.gv;
    if (mask && v->needs[3]) v->gx[3] = mask_gradient(v, mask, key);
}

#include "ops/attention/attention.gen.h"
