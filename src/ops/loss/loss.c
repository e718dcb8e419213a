/* loss.c - losses that compare x and target element by element.
 *
 * Each loss is expressed as an elementwise op, NAME_terms, and a reduction. The terms are an op of
 * their own so that a graph can fuse them with the ops before, and so that their gradient is one
 * kernel. At a kink the gradients pick the same side as PyTorch's.
 *
 * x and target broadcast. Broadcasting is nearly always a mistake here: (8,1) against (8) compares
 * each element with each. The call therefore logs a warning, unless x or target is a single number.
 */
#include "core/error.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/* --- shared helpers --------------------------------------------------------------------------- */

static gd_tensor *reduce_terms(gd_tensor *terms, gd_word reduction) {
    return reduction == GD_NONE ? terms : reduction == GD_SUM ? gd_sum(terms) : gd_mean(terms);
}

/* Infers the loss: the broadcast shape of all inputs, or rank 0 after a reduction. */
static gd_status terms_infer(gd_infer *i, gd_word reduction) {
    gd_meta *y = &i->out[0];
    GD_TRY(gd_broadcast_dims(i->in, i->n_in, &y->rank, y->dims));
    y->dtype = gd_result_dtype(i->in, i->n_in);
    if (!gd_dtype_is_float(y->dtype))
        return gd_op_fail(GD_E_DTYPE, "the inputs are %s; at least one must be a float tensor",
                          gd_dtype_name(y->dtype));
    if (reduction != GD_NONE) y->rank = 0;
    return GD_OK;
}

static gd_status need_same_shape(const gd_tensor *a, const gd_tensor *b, const char *name_a,
                                 const char *name_b) {
    bool same = a->rank == b->rank;
    for (int k = 0; k < a->rank && same; k++) same = a->dims[k] == b->dims[k];
    return same ? GD_OK
                : gd_op_fail(GD_E_SHAPE, "'%s' and '%s' must have the same shape", name_a, name_b);
}

/* Logs a warning if x and target broadcast. The warning names the line of the user's program. */
static void warn_of_broadcast(const gd_expansion *e) {
    const gd_tensor *x = e->x[0], *target = e->x[1];
    gd_shape both = {.form = 1};
    char a[128], b[128], c[128];
    bool same = x->rank == target->rank;
    for (int k = 0; k < x->rank && same; k++) same = x->dims[k] == target->dims[k];
    if (same || x->rank == 0 || target->rank == 0) return;
    if (gd_broadcast_dims(e->x, 2, &both.rank, both.at) != GD_OK) return;
    const char *site = gd_this_thread.site;
    gd_notice(GD_LOG_WARNING,
              "%s: x %s and target %s broadcast to %s; give them the same shape if that is not "
              "meant%s%s%s",
              e->op->name, gd_shape_text(x->rank, x->dims, a, sizeof a),
              gd_shape_text(target->rank, target->dims, b, sizeof b),
              gd_shape_text(both.rank, both.at, c, sizeof c), site ? " (" : "", site ? site : "",
              site ? ")" : "");
}

/*op affine(x, by:float, plus:float) -> y  elementwise internal
 * x times a number, plus another.
 *   y = x * by + plus
 */

/* --- distances -------------------------------------------------------------------------------- */

/*op mse_terms(x, target) -> y  elementwise internal
 * (x - target)^2.
 *   y  = (x - target) * (x - target)
 *   gx = 2 * gy * (x - target)
 *   gtarget = -2 * gy * (x - target)
 */

/*op mse_loss(x, target) -> y  fullp
 * The mean of (x - target)^2.
 *   reduction {none, mean, sum} = mean
 *   python (x, target)
 */
static gd_status mse_loss_infer(gd_infer *i) {
    const gd_mse_loss_options *o = i->attrs;
    return terms_infer(i, o->reduction);
}
static void mse_loss_expand(gd_expansion *e) {
    const gd_mse_loss_options *o = e->attrs;
    warn_of_broadcast(e);
    e->y[0] = reduce_terms(gd_mse_terms(e->x[0], e->x[1]), o->reduction);
}

/*op l1_terms(x, target) -> y  elementwise internal
 * |x - target|.
 *   y  = abs(x - target)
 *   gx = gy * sign(x - target)
 *   gtarget = -gy * sign(x - target)
 */

/*op l1_loss(x, target) -> y  fullp
 * The mean of |x - target|.
 *   reduction {none, mean, sum} = mean
 *   python (x, target)
 */
static gd_status l1_loss_infer(gd_infer *i) {
    const gd_l1_loss_options *o = i->attrs;
    return terms_infer(i, o->reduction);
}
static void l1_loss_expand(gd_expansion *e) {
    const gd_l1_loss_options *o = e->attrs;
    warn_of_broadcast(e);
    e->y[0] = reduce_terms(gd_l1_terms(e->x[0], e->x[1]), o->reduction);
}

/*op smooth_l1_terms(x, target) -> y  elementwise internal
 * Quadratic within beta of the target, linear with slope 1 beyond.
 *   beta float = 1
 *   y  = abs(x - target) < beta ? 0.5 * (x - target) * (x - target) / beta : abs(x - target) - 0.5 * beta
 *   gx = x - target >= beta ? gy : x - target <= -beta ? -gy : gy * (x - target) / beta
 *   gtarget = x - target >= beta ? -gy : x - target <= -beta ? gy : -gy * (x - target) / beta
 */

/*op smooth_l1_loss(x, target) -> y  fullp
 * The mean of d^2 / (2 beta) where d = |x - target| is less than beta, and d - beta / 2 elsewhere.
 *   beta float = 1  with 0 the loss is l1_loss
 *   reduction {none, mean, sum} = mean
 *   python (x, target)
 */
static gd_status smooth_l1_loss_infer(gd_infer *i) {
    const gd_smooth_l1_loss_options *o = i->attrs;
    if (!(o->beta >= 0))
        return gd_op_fail(GD_E_ARGUMENT, "beta is %g; it must be 0 or more", o->beta);
    return terms_infer(i, o->reduction);
}
static void smooth_l1_loss_expand(gd_expansion *e) {
    const gd_smooth_l1_loss_options *o = e->attrs;
    warn_of_broadcast(e);
    gd_tensor *x = e->x[0], *target = e->x[1];
    e->y[0] = reduce_terms(o->beta > 0 ? gd_smooth_l1_terms(x, target, .beta = o->beta)
                                       : gd_l1_terms(x, target),
                           o->reduction);
}

/*op huber_terms(x, target) -> y  elementwise internal
 * Quadratic within delta of the target, linear with slope delta beyond.
 *   delta float = 1
 *   y  = abs(x - target) <= delta ? 0.5 * (x - target) * (x - target) : delta * (abs(x - target) - 0.5 * delta)
 *   gx = x - target >= delta ? gy * delta : x - target <= -delta ? -gy * delta : gy * (x - target)
 *   gtarget = x - target >= delta ? -gy * delta : x - target <= -delta ? gy * delta : -gy * (x - target)
 */

/*op huber_loss(x, target) -> y  fullp
 * The mean of d^2 / 2 where d = |x - target| is at most delta, and delta (d - delta / 2) elsewhere.
 *   delta float = 1
 *   reduction {none, mean, sum} = mean
 *   python (x, target, reduction, delta)
 */
static gd_status huber_loss_infer(gd_infer *i) {
    const gd_huber_loss_options *o = i->attrs;
    if (!(o->delta > 0))
        return gd_op_fail(GD_E_ARGUMENT, "delta is %g; it must be above 0", o->delta);
    return terms_infer(i, o->reduction);
}
static void huber_loss_expand(gd_expansion *e) {
    const gd_huber_loss_options *o = e->attrs;
    warn_of_broadcast(e);
    e->y[0] = reduce_terms(gd_huber_terms(e->x[0], e->x[1], .delta = o->delta), o->reduction);
}

/* --- binary cross-entropy --------------------------------------------------------------------- */

/*op bce_terms(x, target) -> y  elementwise internal
 * -(target log x + (1 - target) log(1 - x)), with logarithms clamped at -100.
 *   y  = (target - 1) * max(log1p(-x), -100) - target * max(log(x), -100)
 *   gx = gy * (x - target) / max((1 - x) * x, 1e-12)
 *   gtarget = gy * (max(log1p(-x), -100) - max(log(x), -100))
 */

/*op bce_loss(x, target) -> y  fullp
 * Binary cross-entropy of probabilities: the mean of -(target log x + (1 - target) log(1 - x)).
 * Logarithms are clamped at -100. An x outside [0, 1] gives NaN. See bce_with_logits.
 *   reduction {none, mean, sum} = mean
 *   weight tensor?  multiplies the terms; broadcasts
 *   python binary_cross_entropy bce_loss(x, target, weight)
 */
static gd_status bce_loss_infer(gd_infer *i) {
    const gd_bce_loss_options *o = i->attrs;
    GD_TRY(need_same_shape(i->in[0], i->in[1], "x", "target"));
    return terms_infer(i, o->reduction);
}
static void bce_loss_expand(gd_expansion *e) {
    const gd_bce_loss_options *o = e->attrs;
    gd_tensor *terms = gd_bce_terms(e->x[0], e->x[1]),
              *weight = gd_optional_input(e->x, e->n_in, 2);
    e->y[0] = reduce_terms(weight ? gd_mul(terms, weight) : terms, o->reduction);
}

/* The terms of bce_with_logits, without and with pos_weight. Their gradients by x are ops with
 * gradient expressions written by hand: the derived ones would be inf/inf for large |x|. */

/*op bce_logits_terms(x, target) -> y  elementwise internal
 * (1 - target) x + log(1 + exp(-x)).
 *   y = (1 - target) * x + (log1p(exp(-abs(x))) + max(-x, 0))
 */
static void bce_logits_terms_vjp(gd_vjp *v) {
    gd_tensor *gy = v->gy[0], *x = v->x[0];
    if (v->needs[0]) v->gx[0] = gd_bce_logits_slope(gy, x, v->x[1]);
    if (v->needs[1]) v->gx[1] = gd_neg(gd_mul(gy, x));
}

/*op bce_logits_slope(g, x, target) -> y  elementwise internal
 * g (sigmoid(x) - target).
 *   y  = g * (1 / (1 + exp(-x)) - target)
 *   gg = gy * (1 / (1 + exp(-x)) - target)
 *   gx = gy * g * (1 / (1 + exp(-x))) * (1 / (1 + exp(x)))
 *   gtarget = -gy * g
 */

/*op bce_logits_pos_terms(x, target, pos) -> y  elementwise internal
 * (1 - target) x + (1 + (pos - 1) target) log(1 + exp(-x)).
 *   y = (1 - target) * x + (1 + (pos - 1) * target) * (log1p(exp(-abs(x))) + max(-x, 0))
 */
static void bce_logits_pos_terms_vjp(gd_vjp *v) {
    gd_tensor *gy = v->gy[0], *x = v->x[0], *target = v->x[1], *pos = v->x[2];
    if (v->needs[0]) v->gx[0] = gd_bce_logits_pos_slope(gy, x, target, pos);
    if (!v->needs[1] && !v->needs[2]) return;
    gd_tensor *softplus = gd_neg(gd_mul(gy, gd_logsigmoid(x))); /* gy log(1 + exp(-x)) */
    if (v->needs[1]) v->gx[1] = gd_sub(gd_sub(gd_mul(pos, softplus), softplus), gd_mul(gy, x));
    if (v->needs[2]) v->gx[2] = gd_mul(target, softplus);
}

/*op bce_logits_pos_slope(g, x, target, pos) -> y  elementwise internal
 * g (1 - target - (1 + (pos - 1) target) sigmoid(-x)).
 *   y  = g * (1 - target - (1 + (pos - 1) * target) / (1 + exp(x)))
 *   gg = gy * (1 - target - (1 + (pos - 1) * target) / (1 + exp(x)))
 *   gx = gy * g * (1 + (pos - 1) * target) * (1 / (1 + exp(-x))) * (1 / (1 + exp(x)))
 *   gtarget = -gy * g * (1 + (pos - 1) / (1 + exp(x)))
 *   gpos = -gy * g * target / (1 + exp(x))
 */

/*op bce_with_logits(x, target) -> y  fullp
 * Binary cross-entropy of sigmoid(x), computed without overflow.
 *   reduction {none, mean, sum} = mean
 *   weight tensor?      multiplies the terms; broadcasts
 *   pos_weight tensor?  multiplies target log sigmoid(x), the term of positive examples; broadcasts
 *   python binary_cross_entropy_with_logits bce_with_logits(x, target, weight)
 */
static gd_status bce_with_logits_infer(gd_infer *i) {
    const gd_bce_with_logits_options *o = i->attrs;
    GD_TRY(need_same_shape(i->in[0], i->in[1], "x", "target"));
    return terms_infer(i, o->reduction);
}
static void bce_with_logits_expand(gd_expansion *e) {
    const gd_bce_with_logits_options *o = e->attrs;
    gd_tensor *weight = gd_optional_input(e->x, e->n_in, 2),
              *pos = gd_optional_input(e->x, e->n_in, 3);
    gd_tensor *terms = pos ? gd_bce_logits_pos_terms(e->x[0], e->x[1], pos)
                           : gd_bce_logits_terms(e->x[0], e->x[1]);
    e->y[0] = reduce_terms(weight ? gd_mul(terms, weight) : terms, o->reduction);
}

/* --- distributions ---------------------------------------------------------------------------- */

/*op kl_div_terms(x, target) -> y  elementwise internal
 * target (log target - x); 0 log 0 is 0.
 *   y  = (target == 0 ? 0 : target * log(target)) - target * x
 *   gx = -gy * target
 *   gtarget = gy * ((target == 0 ? 0 : log(target) + 1) - x)
 */

/*op kl_div_log_terms(x, target) -> y  elementwise internal
 * exp(target) (target - x).
 *   y  = exp(target) * (target - x)
 *   gx = -gy * exp(target)
 *   gtarget = gy * exp(target) * (target - x + 1)
 */

/*op kl_div(x, target) -> y  fullp
 * Kullback-Leibler divergence: the mean of target (log target - x), where x holds
 * log-probabilities. `batchmean` divides the sum by the size of the first dimension.
 *   log_target bool = false  the target holds log-probabilities, too
 *   reduction {none, mean, sum, batchmean} = mean
 *   python (x, target)
 */
static gd_status kl_div_infer(gd_infer *i) {
    const gd_kl_div_options *o = i->attrs;
    if (o->reduction == GD_BATCHMEAN && i->in[0]->rank == 0)
        return gd_op_fail(GD_E_SHAPE,
                          "batchmean divides by the size of the first dimension; x has rank 0");
    return terms_infer(i, o->reduction);
}
static void kl_div_expand(gd_expansion *e) {
    const gd_kl_div_options *o = e->attrs;
    warn_of_broadcast(e);
    gd_tensor *x = e->x[0], *target = e->x[1];
    gd_tensor *terms = o->log_target ? gd_kl_div_log_terms(x, target) : gd_kl_div_terms(x, target);
    if (o->reduction != GD_BATCHMEAN) e->y[0] = reduce_terms(terms, o->reduction);
    else e->y[0] = gd_affine(gd_sum(terms), 1.0 / (double)gd_tensor_dim(x, 0), 0);
}

/* --- margins ---------------------------------------------------------------------------------- */

/*op hinge_terms(x, target) -> y  elementwise internal
 * max(0, margin - target x), or its square.
 *   margin float = 1
 *   squared bool = false
 *   y  = squared != 0 ? max(margin - target * x, 0) * max(margin - target * x, 0) : max(margin - target * x, 0)
 *   gx = margin - target * x >= 0 ? (squared != 0 ? -2 * gy * target * (margin - target * x) : -gy * target) : 0
 *   gtarget = margin - target * x >= 0 ? (squared != 0 ? -2 * gy * x * (margin - target * x) : -gy * x) : 0
 */

/*op hinge_loss(x, target) -> y  fullp
 * The mean of max(0, margin - target x) for targets 1 and -1: binary or one-versus-rest
 * classification.
 *   margin float = 1
 *   squared bool = false  square the terms (Caffe's norm L2, Keras' squared_hinge)
 *   reduction {none, mean, sum} = mean
 */
static gd_status hinge_loss_infer(gd_infer *i) {
    const gd_hinge_loss_options *o = i->attrs;
    return terms_infer(i, o->reduction);
}
static void hinge_loss_expand(gd_expansion *e) {
    const gd_hinge_loss_options *o = e->attrs;
    warn_of_broadcast(e);
    e->y[0] = reduce_terms(
        gd_hinge_terms(e->x[0], e->x[1], .margin = o->margin, .squared = o->squared), o->reduction);
}

/*op hinge_embedding_terms(x, target) -> y  elementwise internal
 * x where the target is 1, max(0, margin - x) where it is -1.
 *   margin float = 1
 *   y  = (target != 1 ? max(margin - x, 0) : 0) + (target != -1 ? x : 0)
 *   gx = (target != 1 && margin - x >= 0 ? -gy : 0) + (target != -1 ? gy : 0)
 *   gtarget = 0
 */

/*op hinge_embedding_loss(x, target) -> y  fullp
 * The mean of x where the target is 1, and max(0, margin - x) where it is -1. x is a distance.
 *   margin float = 1
 *   reduction {none, mean, sum} = mean
 *   python (x, target, margin)
 */
static gd_status hinge_embedding_loss_infer(gd_infer *i) {
    const gd_hinge_embedding_loss_options *o = i->attrs;
    return terms_infer(i, o->reduction);
}
static void hinge_embedding_loss_expand(gd_expansion *e) {
    const gd_hinge_embedding_loss_options *o = e->attrs;
    warn_of_broadcast(e);
    e->y[0] =
        reduce_terms(gd_hinge_embedding_terms(e->x[0], e->x[1], .margin = o->margin), o->reduction);
}

/*op margin_ranking_terms(a, b, target) -> y  elementwise internal
 * max(0, margin - target (a - b)).
 *   margin float = 0
 *   y  = max(margin - target * (a - b), 0)
 *   ga = margin - target * (a - b) >= 0 ? -gy * target : 0
 *   gb = margin - target * (a - b) >= 0 ? gy * target : 0
 *   gtarget = margin - target * (a - b) >= 0 ? -gy * (a - b) : 0
 */

/*op margin_ranking_loss(a, b, target) -> y  fullp
 * The mean of max(0, margin - target (a - b)). a should rank above b where the target is 1, and
 * below where it is -1.
 *   margin float = 0
 *   reduction {none, mean, sum} = mean
 *   python (input1=a, input2=b, target, margin)
 */
static gd_status margin_ranking_loss_infer(gd_infer *i) {
    const gd_margin_ranking_loss_options *o = i->attrs;
    return terms_infer(i, o->reduction);
}
static void margin_ranking_loss_expand(gd_expansion *e) {
    const gd_margin_ranking_loss_options *o = e->attrs;
    e->y[0] = reduce_terms(gd_margin_ranking_terms(e->x[0], e->x[1], e->x[2], .margin = o->margin),
                           o->reduction);
}

/*op cosine_of(ab, aa, bb) -> y  elementwise internal
 * ab / sqrt(aa bb), with 1e-12 added to aa and to bb.
 *   y = ab / sqrt((aa + 1e-12) * (bb + 1e-12))
 */

/*op cosine_terms(cosine, target) -> y  elementwise internal
 * 1 - cosine where the target is 1, max(0, cosine - margin) where it is -1.
 *   margin float = 0
 *   y = target == 1 ? 1 - cosine : target == -1 ? max(cosine - margin, 0) : 0
 *   gcosine = target == 1 ? -gy : target == -1 && cosine - margin >= 0 ? gy : 0
 *   gtarget = 0
 */

/*op cosine_embedding_loss(a, b, target) -> y  fullp
 * The mean of 1 - cos(a, b) where the target is 1, and max(0, cos(a, b) - margin) where it is -1. a
 * and b are (N,D) with targets (N), or (D) with a target ().
 *   margin float = 0
 *   reduction {none, mean, sum} = mean
 *   python (input1=a, input2=b, target, margin)
 */
static gd_status cosine_embedding_loss_infer(gd_infer *i) {
    const gd_cosine_embedding_loss_options *o = i->attrs;
    const gd_tensor *a = i->in[0], *b = i->in[1], *target = i->in[2];
    GD_TRY(gd_need_float(a, "a"));
    GD_TRY(gd_need_float(b, "b"));
    GD_TRY(need_same_shape(a, b, "a", "b"));
    if (a->rank != 1 && a->rank != 2)
        return gd_op_fail(GD_E_SHAPE, "'a' and 'b' must have 1 or 2 dimensions, not %d", a->rank);
    if (target->rank != a->rank - 1 || (target->rank == 1 && target->dims[0] != a->dims[0]))
        return gd_op_fail(GD_E_SHAPE,
                          "'target' must have the shape of 'a' without its last dimension");
    i->out[0].dtype = gd_promote((gd_dtype)a->dtype, (gd_dtype)b->dtype);
    i->out[0].rank = o->reduction == GD_NONE ? target->rank : 0;
    if (i->out[0].rank) i->out[0].dims[0] = target->dims[0];
    return GD_OK;
}
static void cosine_embedding_loss_expand(gd_expansion *e) {
    const gd_cosine_embedding_loss_options *o = e->attrs;
    gd_tensor *a = e->x[0], *b = e->x[1];
    gd_tensor *cosine =
        gd_cosine_of(gd_sum(gd_mul(a, b), .axis = -1), gd_sum(gd_square(a), .axis = -1),
                     gd_sum(gd_square(b), .axis = -1));
    e->y[0] = reduce_terms(gd_cosine_terms(cosine, e->x[2], .margin = o->margin), o->reduction);
}

#include "ops/loss/loss.gen.h"
