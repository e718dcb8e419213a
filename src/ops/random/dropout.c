/* dropout.c - dropout. In training it is dropout_train, which saves its mask for the gradient. */
#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "ops/random/random_ops.h"

/*op word_below(word, limit:int) -> y  elementwise predicate internal
 * Whether a random word is below a limit.
 *   y = word < limit
 */

/*op masked_scale(x, mask) -> y  elementwise internal
 * x * scale where the mask is true, x * 0 elsewhere: the last part of dropout, and its gradient.
 *   scale float = 1
 *   y  = x * (mask != 0 ? scale : 0)
 *   gx = gy * (mask != 0 ? scale : 0)
 *   gmask = 0
 */
static gd_status masked_scale_infer(gd_infer *i) {
    GD_TRY(gd_infer_elementwise(i));
    i->out[0].dtype = (gd_dtype)i->in[0]->dtype;
    return GD_OK;
}

/*op dropout(x) -> y  random
 * In training, sets each element to 0 with probability p and divides the others by 1 - p. Otherwise
 * it returns x itself and takes no random number.
 *   p float = 0.5
 *   training bool = true
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   onnx Dropout
 *   python (x, p, training)
 */
static gd_status dropout_infer(gd_infer *i) {
    const gd_dropout_options *o = i->attrs;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(gd_need_key(i, 1));
    GD_TRY(gd_check_probability(o->p));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void dropout_expand(gd_expansion *e) {
    const gd_dropout_options *o = e->attrs;
    e->y[0] = o->training
                  ? gd_dropout_train(e->x[0], .p = o->p, .key = gd_optional_input(e->x, e->n_in, 1))
                  : e->x[0];
}

/*op dropout_train(x) -> y, mask~  random internal
 * Dropout in training. The mask is true for elements that are kept.
 *   p float = 0.5
 *   key tensor?
 *   saves mask
 *   onnx Dropout
 */
static double kept_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

static gd_status dropout_train_infer(gd_infer *i) {
    const gd_dropout_train_options *o = i->attrs;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(gd_need_key(i, 1));
    GD_TRY(gd_check_probability(o->p));
    gd_meta_like(&i->out[0], i->in[0]);
    gd_meta_like(&i->out[1], i->in[0]);
    i->out[1].dtype = GD_BOOL;
    return GD_OK;
}
static void dropout_train_vjp(gd_vjp *v) {
    const gd_dropout_train_options *o = v->attrs;
    v->gx[0] = gd_masked_scale(v->gy[0], v->y[1], .scale = kept_scale(o->p));
}
static void dropout_train_expand(gd_expansion *e) {
    const gd_dropout_train_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    e->y[1] = gd_key_mask(gd_call_key(e, 1, x), gd_tensor_shape(x), 1 - o->p);
    e->y[0] = gd_masked_scale(x, e->y[1], .scale = kept_scale(o->p));
}
static gd_status dropout_train_raw(gd_kernel_call *k) {
    const gd_dropout_train_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0], *mask = &k->out[1];
    double scale = kept_scale(o->p);
    if (y->dtype != GD_F64) scale = (float)scale;
    for (int64_t i = 0, n = gd_view_count(y); i < n; i++) {
        bool keep = gd_chance(1 - o->p, gd_word_at(k->rng, (uint64_t)i));
        double v = gd_load_f64(x->dtype, gd_view_element(x, i)), kept = v * (keep ? scale : 0);
        gd_store_f64(y->dtype, gd_view_element(y, i), y->dtype == GD_F64 ? kept : (float)kept);
        if (mask->data) *(bool *)gd_view_element(mask, i) = keep;
    }
    return GD_OK;
}

#include "ops/random/dropout.gen.h"
