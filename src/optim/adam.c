/* adam.c - Adam and AdamW. */
#include "gradus/ops.h"
#include "optim/optimizer.h"

static void add_moments(bool amsgrad, gd_slot_needs *needs) {
    needs->slot[needs->count++].name = "exp_avg";
    needs->slot[needs->count++].name = "exp_avg_sq";
    if (amsgrad) needs->slot[needs->count++].name = "max_exp_avg_sq";
    needs->counts = true;
}

/* 1 - beta^t */
static gd_tensor *bias_correction(const gd_update *u, double beta) {
    return gd_sub(gd_scalar_of(1, GD_F64), gd_pow(gd_scalar_of(beta, GD_F64), gd_update_count(u)));
}

/* With eps_hat the correction of the root is a factor of the rate: a / (r / root + eps / root) is
 * root * a / (r + eps). */
static void adam_step(gd_update *u, const gd_adam_step_options *o, bool amsgrad, bool eps_hat,
                      gd_tensor *keep) {
    gd_tensor *by = gd_div(gd_update_lr(u), bias_correction(u, o->beta1)),
              *root = gd_sqrt(bias_correction(u, o->beta2));
    if (eps_hat) {
        by = gd_mul(by, root);
        root = gd_scalar_of(1, GD_F64);
    }
    const gd_amsgrad_step_options with = {.beta1 = o->beta1,
                                          .beta2 = o->beta2,
                                          .eps = o->eps,
                                          .weight_decay = o->weight_decay,
                                          .l1 = o->l1,
                                          .maximize = o->maximize};
    if (amsgrad) gd_update_each(u, "amsgrad_step", &with, gd_list(by, root, keep));
    else gd_update_each(u, "adam_step", o, gd_list(by, root, keep));
}

/*optimizer adam
 * Adam.
 *   lr float = 0.001         in [0, inf): learning rate
 *   beta1 float = 0.9        in [0, 1): of the running mean of the gradient
 *   beta2 float = 0.999      in [0, 1): of the running mean of its square
 *   eps float = 1e-8         in [0, inf): added to the root that is divided by
 *   weight_decay float = 0   in [0, inf): times the parameter, added to the gradient
 *   amsgrad bool = false     divides by the root of the largest mean so far
 *   l1 bool = false          weight_decay is times the sign of the parameter
 *   eps_hat bool = false     eps is added to the root before its correction by 1 - beta2^t, as in Caffe and TensorFlow
 *   maximize bool = false    maximizes instead of minimizing
 *   caffe Adam base_lr=lr momentum=beta1 momentum2=beta2 delta=eps weight_decay=weight_decay regularization_type=l1,false:L2,true:L1
 *        when eps_hat=true amsgrad=false maximize=false
 *   python Adam(lr, beta1, beta2, eps, weight_decay, amsgrad)
 */
static void adam_slots(const void *options, gd_slot_needs *needs) {
    add_moments(((const gd_optim_adam_options *)options)->amsgrad, needs);
}

static void adam_update(gd_update *u) {
    const gd_optim_adam_options *o = gd_update_options(u);
    const gd_adam_step_options with = {.beta1 = o->beta1,
                                       .beta2 = o->beta2,
                                       .eps = o->eps,
                                       .weight_decay = o->weight_decay,
                                       .l1 = o->l1,
                                       .maximize = o->maximize};
    adam_step(u, &with, o->amsgrad, o->eps_hat, gd_scalar_of(1, GD_F64));
}

/*optimizer adamw
 * Adam with decoupled weight decay: the parameter shrinks by lr times weight_decay in each step.
 *   lr float = 0.001          in [0, inf): learning rate
 *   beta1 float = 0.9         in [0, 1): of the running mean of the gradient
 *   beta2 float = 0.999       in [0, 1): of the running mean of its square
 *   eps float = 1e-8          in [0, inf): added to the root that is divided by
 *   weight_decay float = 0.01  in [0, inf): times lr and the parameter, subtracted from it
 *   amsgrad bool = false      divides by the root of the largest mean so far
 *   maximize bool = false     maximizes instead of minimizing
 *   python AdamW(lr, beta1, beta2, eps, weight_decay, amsgrad)
 */
static void adamw_slots(const void *options, gd_slot_needs *needs) {
    add_moments(((const gd_optim_adamw_options *)options)->amsgrad, needs);
}

static void adamw_update(gd_update *u) {
    const gd_optim_adamw_options *o = gd_update_options(u);
    const gd_adam_step_options with = {
        .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .maximize = o->maximize};
    gd_tensor *one = gd_scalar_of(1, GD_F64), *decay = gd_scalar_of(o->weight_decay, GD_F64);
    adam_step(u, &with, o->amsgrad, false, gd_sub(one, gd_mul(gd_update_lr(u), decay)));
}

#include "optim/adam.gen.h"
