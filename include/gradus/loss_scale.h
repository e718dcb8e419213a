/* loss_scale.h - loss scaling: gradients of f16 that would underflow.
 *
 * f16 has no numbers below 6e-8. The loss is multiplied by a large scale before gd_backward, the
 * gradients are divided by it afterwards, and a step whose gradients overflowed is skipped:
 *
 *     gd_loss_scale *scale = gd_loss_scale_new();
 *     for (...) {
 *         gd_optimizer_zero_grad(adam);
 *         gd_backward(gd_loss_scale_apply(scale, loss));
 *         gd_loss_scale_step(scale, adam);               // in place of gd_optimizer_step
 *     }
 *
 * A step with a gradient that is infinite or NaN changes no parameter, no state of the optimizer and no
 * step count, and the scale becomes smaller; after .interval good steps in a row it becomes larger. All
 * of this is tensors: no value is read by the host, and the loop above can be the function of a gd_jit.
 * In a graph: gd_minimize(adam, loss, .loss_scale = scale), with the loss as it is.
 *
 * A power of two changes no bit of a gradient, unless it overflows. So with the default options a
 * training whose gradients never overflow gives the same bits as without a scale.
 *
 * bf16 has the range of f32 and needs no loss scaling. One gd_loss_scale serves one optimizer. It has
 * state (gd_part), belongs to the current scope, and is used by one thread at a time.
 */
#ifndef GRADUS_LOSS_SCALE_H
#define GRADUS_LOSS_SCALE_H

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_loss_scale_options {
    double start GD_DEFAULT_(65536);    /* in (0, inf): the scale of the first step */
    double growth GD_DEFAULT_(2);       /* in [1, inf): times this after `interval` good steps */
    double backoff GD_DEFAULT_(0.5);    /* in (0, 1]: times this after a step that overflowed */
    int64_t interval GD_DEFAULT_(2000); /* at least 1 */
} gd_loss_scale_options;

#define gd_loss_scale_new(...)                                                               \
    GD_WITH_OPTIONS_(gd_loss_scale_new_at(                                                   \
        GD_HERE, GD_OPTIONS_(gd_loss_scale_options,                                          \
                             (.start = 65536, .growth = 2, .backoff = 0.5, .interval = 2000) \
                                 __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_loss_scale *gd_loss_scale_new_at(const char *site, const gd_loss_scale_options *options);

/* The loss times the scale: f32, or f64 where the loss is. NULL as the scale gives the loss itself. */
#define gd_loss_scale_apply(...) gd_loss_scale_apply_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_loss_scale_apply_at(const char *site, gd_loss_scale *scale, gd_tensor *loss);

/* Divides the gradients of the optimizer's parameters by the scale. gd_loss_scale_step does it; call it
 * yourself where something looks at the gradients before the step:
 *
 *     gd_loss_scale_unscale(scale, adam);
 *     gd_clip_grad_norm(parameters, 1);
 *     gd_loss_scale_step(scale, adam);
 *
 * Calling it twice before a step is an error. NULL as the scale does nothing. */
#define gd_loss_scale_unscale(...) gd_loss_scale_unscale_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_loss_scale_unscale_at(const char *site, gd_loss_scale *scale,
                                          gd_optimizer *optimizer);

typedef struct gd_loss_scale_step_options {
    /* takes a step after the optimizer's, unless that is skipped; it must be the optimizer's own */
    gd_schedule *schedule GD_DEFAULT_(nullptr);
} gd_loss_scale_step_options;

/* A step of the optimizer, or none where a gradient is not finite; then adapts the scale. NULL as the
 * scale: the step of the optimizer and of the schedule. */
#define gd_loss_scale_step(scale, optimizer, ...) \
    GD_WITH_OPTIONS_(gd_loss_scale_step_at(       \
        GD_HERE, scale, optimizer,                \
        GD_OPTIONS_(gd_loss_scale_step_options, (.schedule = NULL) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_loss_scale_step_at(const char *site, gd_loss_scale *scale,
                                       gd_optimizer *optimizer,
                                       const gd_loss_scale_step_options *options);

/* The scale (f32), and how many steps have been skipped so far (f64): tensors of rank 0, which later
 * steps change. In a graph of variables they are variables. */
#define gd_loss_scale_value(...) gd_loss_scale_value_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_loss_scale_value_at(const char *site, gd_loss_scale *scale);
#define gd_loss_scale_skipped(...) gd_loss_scale_skipped_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_loss_scale_skipped_at(const char *site, gd_loss_scale *scale);

#ifdef __cplusplus
}
#endif
#endif
