/* schedules.c - the formulas of schedules, in ordinary ops on f64 scalars.
 *
 * `step` counts from 0, after the warm-up; `base` is the base rate of the group.
 */
#include <math.h>

#include "gradus/ops.h"
#include "optim/schedule.h"

static gd_tensor *f64_scalar(double value) { return gd_scalar_of(value, GD_F64); }

/* from + share * (to - from) */
static gd_tensor *interpolate_rate(double from, double to, gd_tensor *share) {
    return gd_add(f64_scalar(from), gd_mul(f64_scalar(to - from), share));
}

/* step / steps, at most 1. */
static gd_tensor *elapsed_share(gd_tensor *step, int64_t steps) {
    return gd_div(gd_minimum(step, f64_scalar((double)steps)), f64_scalar((double)steps));
}

/*schedule constant
 * The base rate; in the first `steps` steps it is multiplied by `factor`.
 *   factor float = 1        in [0, inf): of the rate in the first steps
 *   steps int = 0           in [0, inf): how many these are
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe fixed  when steps=0 warmup=0
 *   python ConstantLR(factor, total_iters=steps)
 */
static gd_tensor *constant_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_constant_options *o = options;
    return gd_where(gd_lt(step, f64_scalar((double)o->steps)), gd_mul(base, f64_scalar(o->factor)),
                    base);
}

/*schedule step(size:int)
 * Every `size` steps the rate is multiplied by gamma.
 *   gamma float = 0.1       in [0, inf): factor
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe step stepsize=size gamma=gamma  when warmup=0
 *   python StepLR(step_size=size, gamma)
 */
static gd_status step_check(const void *options) {
    const gd_lr_step_options *o = options;
    if (o->size >= 1) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "gd_lr_step: size is %lld; it must be in [1, inf)",
                   (long long)o->size);
}

static gd_tensor *step_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_step_options *o = options;
    return gd_mul(
        base, gd_pow(f64_scalar(o->gamma), gd_floor(gd_div(step, f64_scalar((double)o->size)))));
}

/*schedule multistep(milestones:int[])
 * At each of the milestones, which are numbers of steps, the rate is multiplied by gamma.
 *   gamma float = 0.1       in [0, inf): factor
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe multistep stepvalue=milestones gamma=gamma  when warmup=0
 *   python MultiStepLR(milestones, gamma)
 */
static gd_status multistep_check(const void *options) {
    const gd_lr_multistep_options *o = options;
    for (int i = 0; i < o->milestones.rank; i++)
        if (o->milestones.at[i] < 0)
            return gd_fail(GD_E_ARGUMENT,
                           "gd_lr_multistep: milestones has %lld; they must be in [0, inf)",
                           (long long)o->milestones.at[i]);
    return GD_OK;
}

static gd_tensor *multistep_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_multistep_options *o = options;
    gd_tensor *passed = f64_scalar(0);
    for (int i = 0; i < o->milestones.rank; i++)
        passed =
            gd_add(passed, gd_cast(gd_ge(step, f64_scalar((double)o->milestones.at[i])), GD_F64));
    return gd_mul(base, gd_pow(f64_scalar(o->gamma), passed));
}

/*schedule exponential(gamma:float)
 * In every step the rate is multiplied by gamma.
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe exp gamma=gamma  when warmup=0
 *   python ExponentialLR(gamma)
 */
static gd_status exponential_check(const void *options) {
    const gd_lr_exponential_options *o = options;
    if (o->gamma >= 0 && o->gamma < INFINITY) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "gd_lr_exponential: gamma is %g; it must be in [0, inf)",
                   o->gamma);
}

static gd_tensor *exponential_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    return gd_mul(base,
                  gd_pow(f64_scalar(((const gd_lr_exponential_options *)options)->gamma), step));
}

/*schedule inverse(gamma:float)
 * In step t the rate is the base rate times (1 + gamma t)^-power.
 *   power float = 1         in [0, inf): 1 is Keras's InverseTimeDecay
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe inv gamma=gamma power=power  when warmup=0
 *   python InverseLR(gamma, power)
 */
static gd_status inverse_check(const void *options) {
    const gd_lr_inverse_options *o = options;
    if (o->gamma >= 0 && o->gamma < INFINITY) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "gd_lr_inverse: gamma is %g; it must be in [0, inf)", o->gamma);
}

static gd_tensor *inverse_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_inverse_options *o = options;
    gd_tensor *grown = gd_add(f64_scalar(1), gd_mul(f64_scalar(o->gamma), step));
    return gd_mul(base, gd_pow(grown, f64_scalar(-o->power)));
}

/*schedule sigmoid(gamma:float, midpoint:int)
 * In step t the rate is the base rate times 1 / (1 + exp(-gamma (t - midpoint))): it goes from the
 * base rate to 0 if gamma is negative, else the other way.
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe sigmoid gamma=gamma stepsize=midpoint  when warmup=0
 *   python SigmoidLR(gamma, midpoint)
 */
static gd_status sigmoid_check(const void *options) {
    const gd_lr_sigmoid_options *o = options;
    if (!isfinite(o->gamma))
        return gd_fail(GD_E_ARGUMENT, "gd_lr_sigmoid: gamma is %g; it must be finite", o->gamma);
    if (o->midpoint >= 0) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "gd_lr_sigmoid: midpoint is %lld; it must be at least 0",
                   (long long)o->midpoint);
}

static gd_tensor *sigmoid_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_sigmoid_options *o = options;
    gd_tensor *late = gd_sub(step, f64_scalar((double)o->midpoint));
    return gd_mul(base, gd_sigmoid(gd_mul(f64_scalar(o->gamma), late)));
}

/*schedule linear
 * In `steps` steps the rate changes linearly from `start` to `end` times the base rate, and stays.
 *   start float = 0.3333333333333333  in [0, inf): factor at first
 *   end float = 1           in [0, inf): factor at last
 *   steps int = 5           in [1, inf): how many steps
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   python LinearLR(start_factor=start, end_factor=end, total_iters=steps)
 */
static gd_tensor *linear_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_linear_options *o = options;
    return gd_mul(base, interpolate_rate(o->start, o->end, elapsed_share(step, o->steps)));
}

/*schedule polynomial
 * In `steps` steps the rate decreases to 0: it is the base rate times (1 - step / steps)^power.
 *   steps int = 5           in [1, inf): how many steps
 *   power float = 1         in [0, inf): 1 is a line
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   caffe poly max_iter=steps power=power  when warmup=0
 *   python PolynomialLR(total_iters=steps, power)
 */
static gd_tensor *polynomial_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_polynomial_options *o = options;
    return gd_mul(
        base, gd_pow(gd_sub(f64_scalar(1), elapsed_share(step, o->steps)), f64_scalar(o->power)));
}

/* Half a cosine: from `from` at 0 to `to` at 1. */
static gd_tensor *half_cosine(gd_tensor *from, gd_tensor *to, gd_tensor *share) {
    gd_tensor *part =
        gd_mul(gd_add(f64_scalar(1), gd_cos(gd_mul(f64_scalar(M_PI), share))), f64_scalar(0.5));
    return gd_add(to, gd_mul(gd_sub(from, to), part));
}

/*schedule cosine(steps:int)
 * Half a cosine: in `steps` steps the rate goes down to min_lr, and then up again. The steps of the
 * warm-up are not among them: with warmup, min_lr is reached after warmup + steps steps, so a run of
 * n steps has steps = n - warmup.
 *   min_lr float = 0        in [0, inf): the lowest rate
 *   warmup int = 0          in [0, inf): steps of warm-up
 *   warmup_start float = 0  in [0, 1]: the part of the base rate that warm-up starts from
 *   python CosineAnnealingLR(T_max=steps, eta_min=min_lr)
 */
static gd_status cosine_check(const void *options) {
    const gd_lr_cosine_options *o = options;
    if (o->steps >= 1) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "gd_lr_cosine: steps is %lld; it must be in [1, inf)",
                   (long long)o->steps);
}

static gd_tensor *cosine_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_cosine_options *o = options;
    return half_cosine(base, f64_scalar(o->min_lr), gd_div(step, f64_scalar((double)o->steps)));
}

/*schedule one_cycle(steps:int)
 * In `steps` steps from a low rate up to the base rate, and down to a much lower one.
 *   rise float = 0.3              in (0, 1): the part of the steps in which it rises
 *   anneal {cos, linear} = cos    the form of both halves
 *   div_factor float = 25         in (0, inf): the first rate is the base rate divided by this
 *   final_div_factor float = 1e4  in (0, inf): the last rate is the first one divided by this
 *   warmup int = 0                in [0, inf): steps of warm-up
 *   warmup_start float = 0        in [0, 1]: the part of the base rate that warm-up starts from
 *   python OneCycleLR(total_steps=steps, pct_start=rise, anneal_strategy=anneal, div_factor, final_div_factor)
 */
static gd_status one_cycle_check(const void *options) {
    const gd_lr_one_cycle_options *o = options;
    const double top = o->rise * (double)o->steps - 1;
    if (o->steps >= 2 && top > 0 && top < (double)(o->steps - 1)) return GD_OK;
    return gd_fail(GD_E_ARGUMENT,
                   "gd_lr_one_cycle: steps is %lld; it must be more than 1 / rise, which is %g",
                   (long long)o->steps, 1 / o->rise);
}

static gd_tensor *one_cycle_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    const gd_lr_one_cycle_options *o = options;
    const double last = (double)(o->steps - 1), top = o->rise * (double)o->steps - 1;
    gd_tensor *first = gd_div(base, f64_scalar(o->div_factor)),
              *end = gd_div(first, f64_scalar(o->final_div_factor));
    gd_tensor *now = gd_minimum(step, f64_scalar(last)), *up = gd_div(now, f64_scalar(top)),
              *down = gd_div(gd_sub(now, f64_scalar(top)), f64_scalar(last - top)),
              *rises = gd_le(now, f64_scalar(top));
    if (o->anneal == GD_COS)
        return gd_where(rises, half_cosine(first, base, up), half_cosine(base, end, down));
    gd_tensor *higher = gd_add(first, gd_mul(gd_sub(base, first), up)),
              *lower = gd_add(base, gd_mul(gd_sub(end, base), down));
    return gd_where(rises, higher, lower);
}

#include "optim/schedules.gen.h"
