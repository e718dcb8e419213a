/* attention.c - scaled dot-product attention, which never holds the whole matrix of weights.
 *
 * q is (..., L, E), k (..., S, E), v (..., S, F); leading dimensions broadcast. With grouped heads
 * the third dimension from the end of q is a multiple of that of k and v, and each head of k and v
 * serves as many neighbouring heads of q.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "ops/attention.h"
#include "ops/infer.h"

/*op scaled_dot_product_attention(q, k, v) -> y, lse~  heavy
 * softmax(scale q kT + mask) v: (..., L, E), (..., S, E), (..., S, F) give (..., L, F). A row in
 * which all is masked gives zeros.
 *   mask tensor?
 *   causal bool = false   row i sees columns up to i only
 *   scale float = none    none: 1 / sqrt(E)
 *   grouped bool = false  heads of q share heads of k and v
 *   saves q, k, v, mask, y, lse
 */

/* y = (batch..., L, F): checks the shapes and finds them. */
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
        return gd_op_fail(GD_E_SHAPE, "the last dimensions of 'q' and 'k' are %lld and %lld; they must be equal",
                          (long long)s->width, (long long)k->dims[k->rank - 1]);
    if (v->dims[v->rank - 2] != s->columns)
        return gd_op_fail(GD_E_SHAPE, "'k' has %lld places and 'v' %lld; they must be equal", (long long)s->columns,
                          (long long)v->dims[v->rank - 2]);
    const gd_view *all[4] = {q, k, v, m};
    for (int i = 0; i < 4; i++)
        if (all[i] && all[i]->rank - 2 > s->rank) s->rank = all[i]->rank - 2;
    for (int d = 0; d < s->rank; d++) { /* d-th leading dimension, from the left */
        int64_t size = 1;
        bool heads = in->grouped && d == s->rank - 1;
        for (int i = 0; i < 4; i++) {
            int at = all[i] ? d - (s->rank - (all[i]->rank - 2)) : -1;
            int64_t n = at < 0 ? 1 : all[i]->dims[at];
            if (heads && (i == 1 || i == 2)) {
                int64_t q_heads = q->rank > 2 ? q->dims[q->rank - 3] : 1;
                if (n == 0 || q_heads % n != 0 || (i == 2 && q_heads / n != s->groups))
                    return gd_op_fail(GD_E_SHAPE, "%lld heads of 'q' cannot share %lld heads of 'k' and 'v'",
                                      (long long)q_heads, (long long)n);
                s->groups = q_heads / n;
                continue;
            }
            if (n == 1 || n == size) continue;
            if (size != 1) return gd_op_fail(GD_E_SHAPE, "leading dimensions %lld and %lld do not broadcast", (long long)size, (long long)n);
            size = n;
        }
        s->batch[d] = size;
    }
    if (m) {
        int64_t mr = m->rank > 1 ? m->dims[m->rank - 2] : 1, mc = m->rank > 0 ? m->dims[m->rank - 1] : 1;
        if ((mr != 1 && mr != s->rows) || (mc != 1 && mc != s->columns))
            return gd_op_fail(GD_E_SHAPE, "'mask' ends in (%lld, %lld), which does not broadcast to (%lld, %lld)",
                              (long long)mr, (long long)mc, (long long)s->rows, (long long)s->columns);
    }
    s->count = gd_numel(s->rank, s->batch);
    s->scale = isnan(in->scale) ? 1 / sqrt((double)(s->width > 0 ? s->width : 1)) : in->scale;
    s->causal = in->causal;
    return GD_OK;
}

/* Where matrix number `index` of the batch begins in an operand, in elements. */
int64_t gd_attention_offset(const gd_attention *s, const gd_view *t, int64_t index, bool shared_heads) {
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

/* Types and shapes of q, k, v and the mask of a call. */
static gd_status attention_shape_of(const gd_infer *i, const gd_tensor *mask, bool causal, bool grouped, double scale,
                                    gd_attention *s) {
    gd_view views[4];
    for (int k = 0; k < 3; k++) {
        GD_TRY(gd_need_float(i->in[k], i->op->inputs[k].name));
        GD_TRY(gd_need_same_dtype(i->in[0], i->in[k], "q", i->op->inputs[k].name));
        gd_view_set(&views[k], i->in[k]);
    }
    if (mask) {
        if (mask->dtype != GD_BOOL) GD_TRY(gd_need_same_dtype(i->in[0], mask, "q", "mask"));
        gd_view_set(&views[3], mask);
    }
    gd_attention_inputs in = {&views[0], &views[1], &views[2], mask ? &views[3] : NULL, causal, grouped, scale};
    return gd_attention_shape(&in, s);
}

static gd_status scaled_dot_product_attention_infer(gd_infer *i) {
    const gd_scaled_dot_product_attention_options *o = i->attrs;
    gd_attention s;
    GD_TRY(attention_shape_of(i, i->n_in > 3 ? i->in[3] : NULL, o->causal, o->grouped, o->scale, &s));
    gd_meta *y = &i->out[0], *lse = &i->out[1];
    y->dtype = (gd_dtype)i->in[0]->dtype;
    y->rank = s.rank + 2;
    memcpy(y->dims, s.batch, sizeof s.batch);
    y->dims[s.rank] = s.rows;
    y->dims[s.rank + 1] = s.value_width;
    lse->dtype = y->dtype == GD_F64 ? GD_F64 : GD_F32;
    lse->rank = s.rank + 1;
    memcpy(lse->dims, y->dims, sizeof lse->dims);
    return GD_OK;
}

/* --- plain kernels: one row of weights at a time ----------------------------------------------- */

typedef struct {
    const gd_view *q, *k, *v, *mask;
    gd_attention s;
    int64_t at_q, at_k, at_v, at_mask; /* where the current matrix begins */
} plain;

static void plain_matrix(plain *p, int64_t e) {
    p->at_q = gd_attention_offset(&p->s, p->q, e, false);
    p->at_k = gd_attention_offset(&p->s, p->k, e, true);
    p->at_v = gd_attention_offset(&p->s, p->v, e, true);
    p->at_mask = p->mask ? gd_attention_offset(&p->s, p->mask, e, false) : 0;
}

/* The weights of row i into w (S of them); returns the logarithm of the sum of exponentials. */
static double plain_row(const plain *p, int64_t i, double *w) {
    const gd_attention *s = &p->s;
    const double *q = (const double *)p->q->data + p->at_q + i * s->width, *k = (const double *)p->k->data + p->at_k;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s->columns; j++) {
        double score = 0;
        for (int64_t t = 0; t < s->width; t++) score += q[t] * k[j * s->width + t];
        score *= s->scale;
        if (p->mask) score += gd_attention_mask(p->mask, p->at_mask, i, j);
        if (s->causal && j > i) score = -INFINITY;
        w[j] = score;
        if (score > most || isnan(score)) most = score;
    }
    if (most == -INFINITY) {
        for (int64_t j = 0; j < s->columns; j++) w[j] = 0; /* there may be none, and no w */
        return -INFINITY;
    }
    for (int64_t j = 0; j < s->columns; j++) sum += w[j] = exp(w[j] - most);
    for (int64_t j = 0; j < s->columns; j++) w[j] /= sum;
    return most + log(sum);
}

static gd_status plain_begin(plain *p, const gd_kernel_call *c, int mask, bool causal, bool grouped, double scale, double **row) {
    *p = (plain){.q = &c->in[0], .k = &c->in[1], .v = &c->in[2], .mask = c->n_in > mask && c->in[mask].data ? &c->in[mask] : NULL};
    gd_attention_inputs in = {p->q, p->k, p->v, p->mask, causal, grouped, scale};
    *row = c->workspace;
    return gd_attention_shape(&in, &p->s);
}

/* A row of weights, and one of their gradients. */
static size_t plain_bytes(const gd_kernel_call *c) { return 2 * sizeof(double) * (size_t)c->in[1].dims[c->in[1].rank - 2]; }
static size_t scaled_dot_product_attention_workspace(const gd_kernel_call *c) { return plain_bytes(c); }

static gd_status scaled_dot_product_attention_reference(gd_kernel_call *c) {
    const gd_scaled_dot_product_attention_options *o = c->attrs;
    plain p;
    double *w;
    GD_TRY(plain_begin(&p, c, 3, o->causal, o->grouped, o->scale, &w));
    double *y = c->out[0].data, *lse = c->out[1].data;
    int64_t F = p.s.value_width;
    for (int64_t e = 0; e < p.s.count; e++) {
        plain_matrix(&p, e);
        const double *v = (const double *)p.v->data + p.at_v;
        for (int64_t i = 0; i < p.s.rows; i++, y += F) {
            double total = plain_row(&p, i, w);
            if (lse) *lse++ = total;
            for (int64_t t = 0; t < F; t++) y[t] = 0;
            for (int64_t j = 0; j < p.s.columns; j++)
                for (int64_t t = 0; t < F; t++) y[t] += w[j] * v[j * F + t];
        }
    }
    return GD_OK;
}

/* --- the body in public ops -------------------------------------------------------------------- */

static gd_tensor *swap_last(gd_tensor *t) { return gd_transpose(t, -2, -1); }

/* k or v with each head repeated for the heads of q that share it. */
static gd_tensor *spread_heads(gd_tensor *t, gd_tensor *q, bool grouped) {
    if (!grouped || t->rank < 3 || q->rank < 3 || t->dims[t->rank - 3] == q->dims[q->rank - 3]) return t;
    int64_t heads = t->dims[t->rank - 3], groups = q->dims[q->rank - 3] / heads;
    gd_shape one = {.form = 1}, many, flat;
    for (int d = 0; d < t->rank; d++) {
        one.at[one.rank++] = t->dims[d];
        if (d == t->rank - 3) one.at[one.rank++] = 1;
    }
    many = one;
    many.at[t->rank - 2] = groups;
    flat = gd_tensor_shape(t);
    flat.at[t->rank - 3] = heads * groups;
    return gd_reshape(gd_expand(gd_reshape(t, one), many), flat);
}

/* The opposite: gradients of the heads that share one, summed. */
static gd_tensor *gather_heads(gd_tensor *g, const gd_tensor *like, bool grouped) {
    if (!grouped || like->rank < 3 || g->rank < 3 || g->dims[g->rank - 3] == like->dims[like->rank - 3]) return g;
    int64_t heads = like->dims[like->rank - 3], groups = g->dims[g->rank - 3] / heads;
    gd_shape split = {.form = 1};
    for (int d = 0; d < g->rank; d++) {
        split.at[split.rank++] = d == g->rank - 3 ? heads : g->dims[d];
        if (d == g->rank - 3) split.at[split.rank++] = groups;
    }
    return gd_sum(gd_reshape(g, split), .axis = g->rank - 2);
}

/* The weights (..., L, S): softmax of the scores, zero in rows where all is masked. */
static gd_tensor *weights_of(gd_tensor *q, gd_tensor *k, gd_tensor *mask, bool causal, bool grouped, double scale) {
    k = spread_heads(k, q, grouped);
    if (isnan(scale)) scale = 1 / sqrt((double)(q->dims[q->rank - 1] > 0 ? q->dims[q->rank - 1] : 1));
    gd_tensor *scores = gd_mul(gd_matmul(q, swap_last(k)), gd_scalar_of(scale, (gd_dtype)q->dtype));
    gd_tensor *never = gd_scalar_of(-INFINITY, (gd_dtype)q->dtype), *zero = gd_scalar_of(0, (gd_dtype)q->dtype);
    if (causal) {
        gd_device *before = gd_this_thread.device;
        gd_this_thread.device = q->device;
        gd_tensor *seen = gd_tril(gd_full(gd_dims(gd_tensor_dim(q, -2), gd_tensor_dim(k, -2)), 1, .dtype = GD_BOOL));
        gd_this_thread.device = before;
        scores = gd_where(seen, scores, never);
    }
    if (mask) scores = mask->dtype == GD_BOOL ? gd_where(mask, scores, never) : gd_add(scores, mask);
    gd_tensor *some = gd_gt(gd_sum(gd_gt(scores, never), .axis = -1, .keepdim = true), gd_scalar_int(0));
    return gd_where(some, gd_softmax(gd_where(some, scores, zero), .axis = -1), zero);
}

static void scaled_dot_product_attention_expand(gd_expand *e) {
    const gd_scaled_dot_product_attention_options *o = e->attrs;
    gd_tensor *p = weights_of(e->x[0], e->x[1], e->n_in > 3 ? e->x[3] : NULL, o->causal, o->grouped, o->scale);
    e->y[0] = gd_matmul(p, spread_heads(e->x[2], e->x[0], o->grouped));
}

/* q, k or v with all leading dimensions of y, so that each matrix has a gradient of its own; those of
 * a matrix that was used several times are summed afterwards. */
static gd_tensor *whole_batch(gd_tensor *t, const gd_tensor *y, bool shared_heads) {
    gd_shape own = gd_tensor_shape(t), whole = gd_tensor_shape(y);
    for (int back = 1; back <= 2 + shared_heads && back <= y->rank; back++)
        whole.at[y->rank - back] = back <= t->rank ? t->dims[t->rank - back] : 1;
    bool same = own.rank == whole.rank && memcmp(own.at, whole.at, sizeof *own.at * (size_t)own.rank) == 0;
    return same ? t : gd_expand(t, whole);
}

static void scaled_dot_product_attention_vjp(gd_vjp *v) {
    const gd_scaled_dot_product_attention_options *o = v->attrs;
    gd_tensor *mask = v->n_in > 3 ? v->x[3] : NULL;
    gd_tensor *q = whole_batch(v->x[0], v->y[0], false), *keys = whole_batch(v->x[1], v->y[0], o->grouped),
              *values = whole_batch(v->x[2], v->y[0], o->grouped);
    gd_attention_grad_outputs g = gd_attention_grad(q, keys, values, v->y[0], v->y[1], v->gy[0], .mask = mask,
                                                    .causal = o->causal, .scale = o->scale, .grouped = o->grouped);
    v->gx[0] = g.gq;
    v->gx[1] = g.gk;
    v->gx[2] = g.gv;
    if (mask && v->needs[3]) {
        gd_tensor *p = weights_of(v->x[0], v->x[1], mask, o->causal, o->grouped, o->scale);
        gd_tensor *gp = gd_matmul(v->gy[0], swap_last(spread_heads(v->x[2], v->x[0], o->grouped)));
        v->gx[3] = gd_mul(p, gd_sub(gp, gd_sum(gd_mul(v->gy[0], v->y[0]), .axis = -1, .keepdim = true)));
    }
}

/*op attention_grad(q, k, v, y, lse, gy) -> gq, gk, gv  internal heavy
 * Gradients of scaled_dot_product_attention; the weights are computed again, block by block.
 *   mask tensor?
 *   causal bool = false
 *   scale float = none
 *   grouped bool = false
 */
static gd_status attention_grad_infer(gd_infer *i) {
    const gd_attention_grad_options *o = i->attrs;
    gd_tensor *mask = i->n_in > 6 ? i->in[6] : NULL, *y = i->in[3], *lse = i->in[4], *gy = i->in[5];
    gd_attention s;
    GD_TRY(attention_shape_of(i, mask, o->causal, o->grouped, o->scale, &s));
    int64_t want[GD_MAX_RANK];
    char text[128];
    memcpy(want, s.batch, sizeof want);
    want[s.rank] = s.rows;
    want[s.rank + 1] = s.value_width;
    for (int k = 3; k < 6; k++) {
        int rank = s.rank + (k == 4 ? 1 : 2);
        if (i->in[k]->rank != rank || memcmp(i->in[k]->dims, want, sizeof *want * (size_t)rank) != 0)
            return gd_op_fail(GD_E_SHAPE, "'%s' must have shape %s", i->op->inputs[k].name, gd_shape_text(rank, want, text, sizeof text));
    }
    GD_TRY(gd_need_same_dtype(i->in[0], y, "q", "y"));
    GD_TRY(gd_need_same_dtype(i->in[0], gy, "q", "gy"));
    if (lse->dtype != (y->dtype == GD_F64 ? GD_F64 : GD_F32)) return gd_op_fail(GD_E_DTYPE, "'lse' must be f32, or f64 where 'q' is");
    for (int k = 0; k < 3; k++) gd_meta_like(&i->out[k], i->in[k]);
    return GD_OK;
}
static size_t attention_grad_workspace(const gd_kernel_call *c) { return plain_bytes(c); }
static gd_status attention_grad_reference(gd_kernel_call *c) {
    const gd_attention_grad_options *o = c->attrs;
    plain p;
    double *w;
    GD_TRY(plain_begin(&p, c, 6, o->causal, o->grouped, o->scale, &w));
    const gd_attention *s = &p.s;
    double *gw = w + s->columns;
    const double *gy = c->in[5].data;
    for (int k = 0; k < 3; k++) memset(c->out[k].data, 0, sizeof(double) * (size_t)gd_numel(c->out[k].rank, c->out[k].dims));
    for (int64_t e = 0; e < s->count; e++) {
        plain_matrix(&p, e);
        const double *q = (const double *)p.q->data + p.at_q, *k = (const double *)p.k->data + p.at_k,
                     *v = (const double *)p.v->data + p.at_v;
        double *gq = (double *)c->out[0].data + p.at_q, *gk = (double *)c->out[1].data + p.at_k,
               *gv = (double *)c->out[2].data + p.at_v;
        for (int64_t i = 0; i < s->rows; i++, gy += s->value_width) {
            plain_row(&p, i, w);
            double inner = 0;
            for (int64_t j = 0; j < s->columns; j++) {
                gw[j] = 0;
                for (int64_t t = 0; t < s->value_width; t++) {
                    gw[j] += gy[t] * v[j * s->value_width + t];
                    gv[j * s->value_width + t] += w[j] * gy[t];
                }
                inner += gw[j] * w[j];
            }
            for (int64_t j = 0; j < s->columns; j++) {
                double gs = w[j] * (gw[j] - inner) * s->scale;
                for (int64_t t = 0; t < s->width; t++) {
                    gq[i * s->width + t] += gs * k[j * s->width + t];
                    gk[j * s->width + t] += gs * q[i * s->width + t];
                }
            }
        }
    }
    return GD_OK;
}
static void attention_grad_expand(gd_expand *e) {
    const gd_attention_grad_options *o = e->attrs;
    gd_tensor *q = e->x[0], *k = e->x[1], *v = e->x[2], *gy = e->x[5], *mask = e->n_in > 6 ? e->x[6] : NULL;
    double scale = isnan(o->scale) ? 1 / sqrt((double)(q->dims[q->rank - 1] > 0 ? q->dims[q->rank - 1] : 1)) : o->scale;
    gd_tensor *p = weights_of(q, k, mask, o->causal, o->grouped, o->scale);
    gd_tensor *vs = spread_heads(v, q, o->grouped), *ks = spread_heads(k, q, o->grouped);
    gd_tensor *gp = gd_matmul(gy, swap_last(vs)), *factor = gd_scalar_of(scale, (gd_dtype)q->dtype);
    /* y is said again by the weights, so that a further gradient flows through it */
    gd_tensor *inner = gd_sum(gd_mul(gp, p), .axis = -1, .keepdim = true);
    gd_tensor *gs = gd_mul(gd_mul(p, gd_sub(gp, inner)), factor);
    e->y[0] = gd_sum_to(gd_matmul(gs, ks), gd_tensor_shape(q));
    e->y[1] = gd_sum_to(gather_heads(gd_matmul(swap_last(gs), q), k, o->grouped), gd_tensor_shape(k));
    e->y[2] = gd_sum_to(gather_heads(gd_matmul(swap_last(p), gy), v, o->grouped), gd_tensor_shape(v));
}

#include "attention.gen.h"
