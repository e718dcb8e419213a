/* adadelta.c - AdaDelta. */
#include "gradus/ops.h"
#include "optim/optimizer.h"

/*optimizer adadelta
 * AdaDelta: the root of a running mean of the steps' squares, divided by that of the gradient's, is
 * the rate of each element.
 *   lr float = 1             in [0, inf): multiplies the steps
 *   rho float = 0.9          in [0, 1): of the running means
 *   eps float = 1e-6         in [0, inf): added to both means before their roots
 *   weight_decay float = 0   in [0, inf): times the parameter, added to the gradient
 *   l1 bool = false          weight_decay is times the sign of the parameter
 *   maximize bool = false    maximizes instead of minimizing
 *   caffe AdaDelta base_lr=lr momentum=rho delta=eps weight_decay=weight_decay regularization_type=l1,false:L2,true:L1
 *        when maximize=false
 *   python Adadelta(lr, rho, eps, weight_decay)
 */
static void adadelta_slots(const void *options, gd_slot_needs *needs) {
    (void)options;
    needs->slot[needs->count++].name = "square_avg";
    needs->slot[needs->count++].name = "acc_delta";
}

static void adadelta_update(gd_update *u) {
    const gd_optim_adadelta_options *o = gd_update_options(u);
    const gd_adadelta_step_options with = {.rho = o->rho,
                                           .eps = o->eps,
                                           .weight_decay = o->weight_decay,
                                           .l1 = o->l1,
                                           .maximize = o->maximize};
    gd_update_each(u, "adadelta_step", &with, gd_list(gd_update_lr(u)));
}

#include "optim/adadelta.gen.h"
