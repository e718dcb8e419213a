/* sgd.c - gradient descent, with or without momentum. */
#include "gradus/ops.h"
#include "optim/optimizer.h"

/*optimizer sgd
 * Gradient descent, with or without momentum.
 *   lr float = 0.01          in [0, inf): learning rate
 *   momentum float = 0       in [0, inf): of the running sum of gradients; 0: no sum
 *   dampening float = 0      in (-inf, inf): of the gradient in the sum
 *   nesterov bool = false    Nesterov momentum; needs momentum, and no dampening
 *   weight_decay float = 0   in [0, inf): times the parameter, added to the gradient
 *   l1 bool = false          weight_decay is times the sign of the parameter
 *   lr_inside bool = false   the sum is of the gradients times lr, as in Caffe: a new rate changes only what is added from then on
 *   maximize bool = false    maximizes instead of minimizing
 *   caffe SGD base_lr=lr momentum=momentum weight_decay=weight_decay regularization_type=l1,false:L2,true:L1
 *        when lr_inside=true nesterov=false dampening=0 maximize=false
 *   python SGD(lr, momentum, dampening, weight_decay, nesterov)
 */
static gd_status sgd_check(const void *options) {
    const gd_optim_sgd_options *o = options;
    if (o->nesterov && !(o->momentum > 0))
        return gd_fail(GD_E_ARGUMENT, "gd_optim_sgd: nesterov needs momentum");
    if (o->nesterov && o->dampening != 0)
        return gd_fail(GD_E_ARGUMENT, "gd_optim_sgd: nesterov needs a dampening of 0");
    return GD_OK;
}

static void sgd_slots(const void *options, gd_slot_needs *needs) {
    const gd_optim_sgd_options *o = options;
    if (o->momentum == 0) return;
    needs->slot[needs->count++].name = "momentum_buffer";
    needs->counts = o->dampening != 0; /* the first step has no dampening */
}

/* 1 in the first step, 1 - dampening later; times `sign`. */
static gd_tensor *gradient_scale(const gd_update *u, double dampening, double sign) {
    gd_tensor *first = gd_scalar_of(sign, GD_F64);
    if (dampening == 0) return first;
    gd_tensor *is_first = gd_le(gd_update_count(u), gd_scalar_of(1, GD_F64));
    return gd_where(is_first, first, gd_scalar_of(sign * (1 - dampening), GD_F64));
}

/* Maximizing steps by -(g - weight_decay p), which has the same bits as -g + weight_decay p. */
static void sgd_update(gd_update *u) {
    const gd_optim_sgd_options *o = gd_update_options(u);
    const double sign = o->maximize ? -1 : 1, decay = sign * o->weight_decay;
    gd_tensor *lr = gd_update_lr(u);
    if (o->momentum == 0) {
        gd_sgd_step_options plain = {.weight_decay = decay, .l1 = o->l1};
        gd_update_each(u, "sgd_step", &plain, gd_list(o->maximize ? gd_neg(lr) : lr));
        return;
    }
    gd_momentum_step_options with = {.momentum = o->momentum,
                                     .nesterov = o->nesterov,
                                     .lr_inside = o->lr_inside,
                                     .weight_decay = decay,
                                     .l1 = o->l1};
    gd_update_each(u, "momentum_step", &with, gd_list(lr, gradient_scale(u, o->dampening, sign)));
}

#include "optim/sgd.gen.h"
