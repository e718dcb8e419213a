/* attention_grad.c - the gradient of attention. It recomputes the weights row by row instead of
 * saving them. */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "ops/attention/attention.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "dispatch/macs.h"

/*op attention_grad(q, k, v, y, lse, gy) -> gq, gk, gv  internal heavy
 * Gradients of scaled_dot_product_attention. The weights are recomputed block by block.
 *   mask tensor?
 *   key tensor?
 *   causal bool = false
 *   scale float = none
 *   grouped bool = false
 *   dropout float = 0
 */
static gd_status attention_grad_infer(gd_infer *i) {
    const gd_attention_grad_options *o = i->attrs;
    gd_tensor *y = i->in[3], *lse = i->in[4], *gy = i->in[5];
    gd_attention s;
    GD_TRY(gd_attention_infer(i, 6, o->causal, o->grouped, o->scale, o->dropout, &s));
    int64_t want[GD_MAX_RANK];
    char text[128];
    memcpy(want, s.batch, sizeof want);
    want[s.rank] = s.rows;
    want[s.rank + 1] = s.value_width;
    for (int k = 3; k < 6; k++) {
        int rank = s.rank + (k == 4 ? 1 : 2);
        if (i->in[k]->rank != rank ||
            memcmp(i->in[k]->dims, want, sizeof *want * (size_t)rank) != 0)
            return gd_op_fail(GD_E_SHAPE, "'%s' must have shape %s", i->op->inputs[k].name,
                              gd_shape_text(rank, want, text, sizeof text));
    }
    GD_TRY(gd_need_same_dtype(i->in[0], y, "q", "y"));
    GD_TRY(gd_need_same_dtype(i->in[0], gy, "q", "gy"));
    if (lse->dtype != (y->dtype == GD_F64 ? GD_F64 : GD_F32))
        return gd_op_fail(GD_E_DTYPE, "'lse' must be f32, or f64 if 'q' is f64");
    for (int k = 0; k < 3; k++) gd_meta_like(&i->out[k], i->in[k]);
    return GD_OK;
}
static size_t attention_grad_workspace(const gd_kernel_call *c) {
    return gd_attention_reference_bytes(c);
}
static gd_status attention_grad_reference(gd_kernel_call *c) {
    const gd_attention_grad_options *o = c->attrs;
    gd_attention_reference p;
    double *w;
    GD_TRY(gd_attention_reference_begin(
        &p,
        gd_attention_call_inputs(c->in, c->n_in, 6, o->causal, o->grouped, o->scale, o->dropout), c,
        &w));
    const gd_attention *s = &p.s;
    double *gw = w + s->columns;
    const double *gy = c->in[5].data;
    for (int k = 0; k < 3; k++)
        memset(c->out[k].data, 0,
               sizeof(double) * (size_t)gd_numel(c->out[k].rank, c->out[k].dims));
    for (int64_t e = 0; e < s->count; e++) {
        gd_attention_select_matrix(&p, e);
        const double *q = (const double *)p.in.q->data + p.at_q,
                     *k = (const double *)p.in.k->data + p.at_k,
                     *v = (const double *)p.in.v->data + p.at_v;
        double *gq = (double *)c->out[0].data + p.at_q, *gk = (double *)c->out[1].data + p.at_k,
               *gv = (double *)c->out[2].data + p.at_v;
        for (int64_t i = 0; i < s->rows; i++, gy += s->value_width) {
            gd_attention_weight_row(&p, i, w);
            double inner = 0;
            for (int64_t j = 0; j < s->columns; j++) {
                double kept = gd_attention_dropout_factor(&p, i, j);
                gw[j] = 0;
                for (int64_t t = 0; t < s->value_width; t++) {
                    gw[j] += gy[t] * v[j * s->value_width + t];
                    gv[j * s->value_width + t] += w[j] * kept * gy[t];
                }
                gw[j] *= kept;
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
/* For each pair of row and column: E for the score and for the gradients of q and k, F for those
 * of v and of the weights. */
static double attention_grad_macs(const gd_op_shapes *s) {
    const gd_meta *q = &s->in[0], *k = &s->in[1], *gy = &s->in[5];
    const double F = (double)gy->dims[gy->rank - 1], E = (double)q->dims[q->rank - 1];
    gd_meta rows = *gy;
    rows.rank--;
    return gd_shape_elements(&rows) * (double)k->dims[k->rank - 2] * (3 * E + 2 * F);
}
static void attention_grad_expand(gd_expansion *e) {
    const gd_attention_grad_options *o = e->attrs;
    gd_tensor *q = gd_widen(e->x[0]), *k = gd_widen(e->x[1]), *v = gd_widen(e->x[2]);
    gd_tensor *gy = gd_widen(e->x[5]), *mask = gd_widen(gd_optional_input(e->x, e->n_in, 6));
    gd_tensor *key = gd_optional_input(e->x, e->n_in, 7);
    int64_t width = gd_tensor_dim(e->x[0], -1);
    double scale = isnan(o->scale) ? 1 / sqrt((double)(width > 0 ? width : 1)) : o->scale;
    gd_tensor *p = gd_attention_weights(q, k, mask, o->causal, o->grouped, o->scale);
    gd_tensor *vs = gd_repeat_heads(v, q, o->grouped), *ks = gd_repeat_heads(k, q, o->grouped);
    gd_tensor *factor = gd_scalar_of(scale, gd_tensor_dtype(q));
    gd_tensor *gp =
        gd_attention_dropout(gd_matmul(gy, gd_transpose(vs, -2, -1)), p, key, o->dropout);
    /* sum of gp p, not of gy y: y is saved, and a second gradient must flow through the weights */
    gd_tensor *inner = gd_sum(gd_mul(gp, p), .axis = -1, .keepdim = true);
    gd_tensor *gs = gd_mul(gd_mul(p, gd_sub(gp, inner)), factor);
    gd_tensor *kept = gd_transpose(gd_attention_dropout(p, p, key, o->dropout), -2, -1);
    gd_tensor *g[3] = {gd_matmul(gs, ks),
                       gd_sum_shared_heads(gd_matmul(gd_transpose(gs, -2, -1), q), k, o->grouped),
                       gd_sum_shared_heads(gd_matmul(kept, gy), v, o->grouped)};
    for (int i = 0; i < 3; i++)
        e->y[i] = gd_cast(gd_sum_to(g[i], gd_tensor_shape(e->x[i])), (gd_dtype)e->x[i]->dtype);
}

#include "ops/attention/attention_grad.gen.h"
