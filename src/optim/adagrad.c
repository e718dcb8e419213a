/* adagrad.c - AdaGrad. */
#include "gradus/ops.h"
#include "optim/optimizer.h"

/*optimizer adagrad
 * AdaGrad: divides by the root of the sum of the gradient's squares.
 *   lr float = 0.01                in [0, inf): learning rate
 *   lr_decay float = 0             in [0, inf): in step t the rate is lr / (1 + (t - 1) lr_decay)
 *   weight_decay float = 0         in [0, inf): times the parameter, added to the gradient
 *   initial_accumulator float = 0  in [0, inf): the initial value of the sum
 *   eps float = 1e-10              in [0, inf): added to the root that is divided by
 *   l1 bool = false                weight_decay is times the sign of the parameter
 *   maximize bool = false          maximizes instead of minimizing
 *   caffe AdaGrad base_lr=lr delta=eps weight_decay=weight_decay regularization_type=l1,false:L2,true:L1
 *        when lr_decay=0 initial_accumulator=0 maximize=false
 *   python Adagrad(lr, lr_decay, weight_decay, initial_accumulator_value=initial_accumulator, eps)
 */
static void adagrad_slots(const void *options, gd_slot_needs *needs) {
    const gd_optim_adagrad_options *o = options;
    needs->slot[needs->count].name = "sum";
    needs->slot[needs->count++].start = o->initial_accumulator;
    needs->counts = o->lr_decay != 0;
}

/* lr / (1 + (t - 1) lr_decay) */
static gd_tensor *decayed_rate(const gd_update *u, double lr_decay) {
    if (lr_decay == 0) return gd_update_lr(u);
    gd_tensor *one = gd_scalar_of(1, GD_F64), *before = gd_sub(gd_update_count(u), one);
    return gd_div(gd_update_lr(u), gd_add(one, gd_mul(before, gd_scalar_of(lr_decay, GD_F64))));
}

static void adagrad_update(gd_update *u) {
    const gd_optim_adagrad_options *o = gd_update_options(u);
    const gd_adagrad_step_options with = {
        .eps = o->eps, .weight_decay = o->weight_decay, .l1 = o->l1, .maximize = o->maximize};
    gd_update_each(u, "adagrad_step", &with, gd_list(decayed_rate(u, o->lr_decay)));
}

#include "optim/adagrad.gen.h"
