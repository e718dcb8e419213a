/* rmsprop.c - RMSProp. */
#include "gradus/ops.h"
#include "optim/optimizer.h"

/*optimizer rmsprop
 * RMSProp: divides by the root of a running mean of the gradient's square.
 *   lr float = 0.01          in [0, inf): learning rate
 *   alpha float = 0.99       in [0, 1): of the running means
 *   eps float = 1e-8         in [0, inf): added to the root that is divided by
 *   weight_decay float = 0   in [0, inf): times the parameter, added to the gradient
 *   momentum float = 0       in [0, inf): of the running sum of steps; 0: there is none
 *   centered bool = false    divides by the root of the variance
 *   l1 bool = false          weight_decay is times the sign of the parameter
 *   maximize bool = false    maximizes instead of minimizing
 *   caffe RMSProp base_lr=lr rms_decay=alpha delta=eps weight_decay=weight_decay regularization_type=l1,false:L2,true:L1
 *        when momentum=0 centered=false maximize=false
 *   python RMSprop(lr, alpha, eps, weight_decay, momentum, centered)
 */
static void rmsprop_slots(const void *options, gd_slot_needs *needs) {
    const gd_optim_rmsprop_options *o = options;
    needs->slot[needs->count++].name = "square_avg";
    if (o->centered) needs->slot[needs->count++].name = "grad_avg";
    if (o->momentum > 0) needs->slot[needs->count++].name = "momentum_buffer";
}

static void rmsprop_update(gd_update *u) {
    const gd_optim_rmsprop_options *o = gd_update_options(u);
    const gd_rmsprop_step_options plain = {.alpha = o->alpha,
                                           .eps = o->eps,
                                           .weight_decay = o->weight_decay,
                                           .l1 = o->l1,
                                           .maximize = o->maximize};
    const gd_rmsprop_centered_step_options centered = {.alpha = o->alpha,
                                                       .eps = o->eps,
                                                       .weight_decay = o->weight_decay,
                                                       .l1 = o->l1,
                                                       .maximize = o->maximize};
    const gd_rmsprop_momentum_step_options momentum = {.alpha = o->alpha,
                                                       .eps = o->eps,
                                                       .momentum = o->momentum,
                                                       .weight_decay = o->weight_decay,
                                                       .l1 = o->l1,
                                                       .maximize = o->maximize};
    const gd_rmsprop_centered_momentum_step_options both = {.alpha = o->alpha,
                                                            .eps = o->eps,
                                                            .momentum = o->momentum,
                                                            .weight_decay = o->weight_decay,
                                                            .l1 = o->l1,
                                                            .maximize = o->maximize};
    const gd_tensors lr = gd_list(gd_update_lr(u));
    if (o->momentum > 0 && o->centered)
        gd_update_each(u, "rmsprop_centered_momentum_step", &both, lr);
    else if (o->momentum > 0) gd_update_each(u, "rmsprop_momentum_step", &momentum, lr);
    else if (o->centered) gd_update_each(u, "rmsprop_centered_step", &centered, lr);
    else gd_update_each(u, "rmsprop_step", &plain, lr);
}

#include "optim/rmsprop.gen.h"
