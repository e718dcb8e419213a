/* loss_scale.h - loss scaling, which keeps f16 gradients from underflowing.
 *
 * f16 has no positive numbers below 6e-8. Loss scaling multiplies the loss by a large scale before
 * gd_backward, divides the gradients by it afterwards, and skips a step whose gradients overflowed:
 *
 *     gd_loss_scale *scale = gd_loss_scale_new();
 *     for (...) {
 *         gd_optimizer_zero_grad(adam);
 *         gd_backward(gd_loss_scale_apply(scale, loss));
 *         gd_loss_scale_step(scale, adam);               // in place of gd_optimizer_step
 *     }
 *
 * A step with an infinite or NaN gradient changes no parameter, no optimizer state and no step
 * count, and decreases the scale. After .interval good steps in a row the scale increases. All of
 * this is computed with tensors: the host reads no value, and the loop above can be the function of
 * a gd_jit. In a graph: gd_minimize(adam, loss, .loss_scale = scale), with the unscaled loss.
 *
 * Scaling by a power of two changes no bit of a gradient, unless it overflows. So with the default
 * options, training whose gradients never overflow gives the same bits as without a scale.
 *
 * bf16 has the range of f32 and needs no loss scaling. A gd_loss_scale belongs to one optimizer and
 * to the current scope, has state (gd_part), and is used by one thread at a time.
 */
#ifndef GRADUS_LOSS_SCALE_H
#define GRADUS_LOSS_SCALE_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_loss_scale_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    double start GD_DEFAULT_(65536);    /* in (0, inf): the scale of the first step */
    double growth GD_DEFAULT_(2);       /* in [1, inf): factor after `interval` good steps */
    double backoff GD_DEFAULT_(0.5);    /* in (0, 1]: factor after a step that overflowed */
    int64_t interval GD_DEFAULT_(2000); /* at least 1 */
} GD_GIVEN_BY_NAME_ gd_loss_scale_options;
#define GD_LOSS_SCALE_OPTIONS_(...)    \
    GD_OPTIONS_(gd_loss_scale_options, \
                (.start = 65536, .growth = 2, .backoff = 0.5, .interval = 2000), __VA_ARGS__)

#define gd_loss_scale_new(...) \
    GD_WITH_OPTIONS_(gd_loss_scale_new_at(GD_HERE, GD_LOSS_SCALE_OPTIONS_(__VA_ARGS__)))
GD_API gd_loss_scale *gd_loss_scale_new_at(const char *site, const gd_loss_scale_options *options);

/* The loss times the scale: f64 if the loss is f64, otherwise f32. A NULL scale returns the loss.
 * */
#define gd_loss_scale_apply(...) gd_loss_scale_apply_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_loss_scale_apply_at(const char *site, gd_loss_scale *scale, gd_tensor *loss);

/* Divides the gradients of the optimizer's parameters by the scale. gd_loss_scale_step does this;
 * call it before code that reads the gradients:
 *
 *     gd_loss_scale_unscale(scale, adam);
 *     gd_clip_grad_norm(parameters, 1);
 *     gd_loss_scale_step(scale, adam);
 *
 * Calling it twice before a step is an error. A NULL scale does nothing. */
#define gd_loss_scale_unscale(...) gd_loss_scale_unscale_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_loss_scale_unscale_at(const char *site, gd_loss_scale *scale,
                                          gd_optimizer *optimizer);

typedef struct gd_loss_scale_step_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* a schedule of this optimizer, which takes a step after the optimizer's unless it is skipped
     * */
    gd_schedule *schedule GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_loss_scale_step_options;
#define GD_LOSS_SCALE_STEP_OPTIONS_(...) \
    GD_OPTIONS_(gd_loss_scale_step_options, (.schedule = NULL), __VA_ARGS__)

/* Takes a step of the optimizer, or skips it if a gradient is not finite, and then adapts the
 * scale. With a NULL scale it takes the steps of the optimizer and the schedule. */
#define gd_loss_scale_step(scale, optimizer, ...)                     \
    GD_WITH_OPTIONS_(gd_loss_scale_step_at(GD_HERE, scale, optimizer, \
                                           GD_LOSS_SCALE_STEP_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_loss_scale_step_at(const char *site, gd_loss_scale *scale,
                                       gd_optimizer *optimizer,
                                       const gd_loss_scale_step_options *options);

/* The scale (f32) and the number of skipped steps so far (f64): tensors of rank 0, which later
 * steps change. For parameters that are variables of a graph they are variables, too. */
#define gd_loss_scale_value(...) gd_loss_scale_value_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_loss_scale_value_at(const char *site, gd_loss_scale *scale);
#define gd_loss_scale_skipped(...) gd_loss_scale_skipped_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_loss_scale_skipped_at(const char *site, gd_loss_scale *scale);

#ifdef __cplusplus
}
#endif
#endif
