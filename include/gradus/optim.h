/* optim.h - optimizers: updates of parameters by their gradients.
 *
 * Parameters are leaves (gd_requires_grad). With eager ops:
 *
 *     gd_optimizer *adam = gd_optim_adamw(gd_list(w1, w2), .lr = 1e-3, .weight_decay = 0.01);
 *     for (...) {
 *         gd_optimizer_zero_grad(adam);
 *         gd_backward(loss);
 *         gd_optimizer_step(adam);
 *     }
 *
 * The body of this loop can be the function of a gd_jit (jit.h), which runs it as one plan. In a
 * graph:
 *
 *     gd_tensor *train = gd_minimize(adam, loss);
 *
 * All three compute the same update, with the same bits at level 0. Parameters may also be
 * variables of one graph: then the state of the optimizer consists of variables, too ("w1/exp_avg",
 * "adamw/lr"), which each session has for itself.
 *
 * An optimizer of a module, gd_optim_adamw_of(net, .lr = 1e-3), has the parameters of the module,
 * also those that are created later: layers whose sizes are GD_ANY create them in their first call,
 * and gd_module_replace brings others. Each step first takes in what is new, in the order of the
 * module. Its state is saved under the names that the module gives its parameters. It does not hold
 * the module: when the module is freed, the optimizer keeps the parameters that it has.
 *
 * A list of parameters with the result of an op, or with the same tensor twice, is an error. A leaf
 * that does not require a gradient is frozen: steps skip it and keep no state for it until
 * gd_set_requires_grad unfreezes it.
 *
 * The build generates the constructors from records: optimizers.h, and schedules.h for schedules
 * (schedule.h). An optimizer holds its parameters and belongs to the current scope. It is used by
 * one thread at a time.
 */
#ifndef GRADUS_OPTIM_H
#define GRADUS_OPTIM_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/graph.h"
#include "gradus/optimizers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- creating them ---------------------------------------------------------------------------- */

/* An optimizer by the name of its record, with options as text: gd_optimizer_new("adamw",
 * parameters, "lr=0.001 weight_decay=0.01"). */
#define gd_optimizer_new(name, parameters, options) \
    gd_optimizer_new_at(GD_HERE, name, parameters, options)
GD_API gd_optimizer *gd_optimizer_new_at(const char *site, const char *name, gd_tensors parameters,
                                         const char *options);
/* The same of a module: gd_optimizer_new_of("adamw", net, "lr=0.001"). */
#define gd_optimizer_new_of(name, module, options) \
    gd_optimizer_new_of_at(GD_HERE, name, module, options)
GD_API gd_optimizer *gd_optimizer_new_of_at(const char *site, const char *name, gd_module *module,
                                            const char *options);

/* gd_optimizer_add(adam, parameters, .lr = 1e-4, .weight_decay = 0) of optimizers.h adds a group of
 * parameters with its own options; other options are those of the first group. A parameter is in
 * one group; parameters of an optimizer's module are in the first one, unless they were added to
 * another group before. The same with options as text: gd_optimizer_add_text(adam, parameters, "lr=1e-4
 * weight_decay=0"). */
#define gd_optimizer_add_text(optimizer, parameters, options) \
    gd_optimizer_add_text_at(GD_HERE, optimizer, parameters, options)
GD_API gd_status gd_optimizer_add_text_at(const char *site, gd_optimizer *optimizer,
                                          gd_tensors parameters, const char *options);

/* Factors by which the learning rate and the weight decay of the group are multiplied for one
 * parameter (Caffe's lr_mult and decay_mult). Set them before the first step. */
typedef struct gd_factors {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    double lr GD_DEFAULT_(1);
    double weight_decay GD_DEFAULT_(1);
} GD_GIVEN_BY_NAME_ gd_factors;
#define GD_FACTORS_(...) GD_OPTIONS_(gd_factors, (.lr = 1, .weight_decay = 1), __VA_ARGS__)
#define gd_optimizer_set_factors(optimizer, parameter, ...) \
    GD_WITH_OPTIONS_(                                       \
        gd_optimizer_set_factors_at(GD_HERE, optimizer, parameter, GD_FACTORS_(__VA_ARGS__)))
GD_API gd_status gd_optimizer_set_factors_at(const char *site, gd_optimizer *optimizer,
                                             gd_tensor *parameter, const gd_factors *factors);

GD_API int gd_optimizer_group_count(const gd_optimizer *optimizer);

/* The name of its record: "adamw". */
GD_API const char *gd_optimizer_type(const gd_optimizer *optimizer);

/* --- using them ------------------------------------------------------------------------------- */

/* Updates each parameter by its gradient (gd_tensor_grad). Parameters without a gradient and frozen
 * ones do not change. While a failure is recorded, it does nothing and returns that failure. On the
 * CPU a step that fails changes nothing. On an asynchronous device it may have changed parameters
 * before the one that failed. */
#define gd_optimizer_step(...) gd_optimizer_step_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_optimizer_step_at(const char *site, gd_optimizer *optimizer);

/* Drops the gradients of all parameters. */
GD_API void gd_optimizer_zero_grad(gd_optimizer *optimizer);

typedef struct gd_group_number {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int group GD_DEFAULT_(0);
} GD_GIVEN_BY_NAME_ gd_group_number;
#define GD_GROUP_NUMBER_(...) GD_OPTIONS_(gd_group_number, (.group = 0), __VA_ARGS__)

/* The learning rate of the first group, or of group number .group: an f64 tensor of rank 0, which
 * each step reads, as does each run of a jit or a session. For parameters that are variables it is
 * a variable. */
#define gd_optimizer_lr(optimizer, ...) \
    GD_WITH_OPTIONS_(gd_optimizer_lr_at(GD_HERE, optimizer, GD_GROUP_NUMBER_(__VA_ARGS__)))
GD_API gd_tensor *gd_optimizer_lr_at(const char *site, gd_optimizer *optimizer,
                                     const gd_group_number *number);
#define gd_optimizer_set_lr(optimizer, lr, ...) \
    GD_WITH_OPTIONS_(gd_optimizer_set_lr_at(GD_HERE, optimizer, lr, GD_GROUP_NUMBER_(__VA_ARGS__)))
GD_API gd_status gd_optimizer_set_lr_at(const char *site, gd_optimizer *optimizer, double lr,
                                        const gd_group_number *number);

/* The parameters of a group, in the current scope: those that it has by now. */
#define gd_optimizer_parameters(optimizer, ...) \
    GD_WITH_OPTIONS_(gd_optimizer_parameters_at(GD_HERE, optimizer, GD_GROUP_NUMBER_(__VA_ARGS__)))
GD_API gd_tensors gd_optimizer_parameters_at(const char *site, gd_optimizer *optimizer,
                                             const gd_group_number *number);

/* The options of the optimizer's record: the name of number `index`, NULL beyond the last; the
 * value of a group, of a bool 0 or 1, which is NaN if there is no such option or group. The value of
 * "lr" is the one that was given; gd_optimizer_lr is the rate of the next step. */
GD_API const char *gd_optimizer_option_name(const gd_optimizer *optimizer, int index);
GD_API double gd_optimizer_option(const gd_optimizer *optimizer, const char *name, int group);
/* The tensors that a group keeps for each parameter, under the names with which they are saved:
 * "exp_avg", "exp_avg_sq", "step"; NULL beyond the last. */
GD_API const char *gd_optimizer_slot_name(const gd_optimizer *optimizer, int group, int index);

/* Changes options of a group: gd_optimizer_set_options(adam, "weight_decay=0.1", .group = 1). An
 * option that decides what is kept for each parameter (momentum of 0 or not) can change before the
 * first step only. A jit whose function takes a step is traced again. */
#define gd_optimizer_set_options(optimizer, options, ...) \
    GD_WITH_OPTIONS_(                                     \
        gd_optimizer_set_options_at(GD_HERE, optimizer, options, GD_GROUP_NUMBER_(__VA_ARGS__)))
GD_API gd_status gd_optimizer_set_options_at(const char *site, gd_optimizer *optimizer,
                                             const char *options, const gd_group_number *number);

typedef struct gd_minimize_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    double clip_norm GD_DEFAULT_(0);   /* max_norm of gd_clip_grad_norm; 0: no clipping */
    double clip_eps GD_DEFAULT_(1e-6); /* eps of gd_clip_grad_norm */
    double clip_value GD_DEFAULT_(0);  /* then: value of gd_clip_grad_value; 0: no clipping */
    gd_schedule *schedule GD_DEFAULT_(nullptr); /* takes a step after the optimizer's */
    /* scales the loss; a step whose gradients overflow is skipped (loss_scale.h) */
    gd_loss_scale *loss_scale GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_minimize_options;
#define GD_MINIMIZE_OPTIONS_(...)                                                                  \
    GD_OPTIONS_(                                                                                   \
        gd_minimize_options,                                                                       \
        (.clip_norm = 0, .clip_eps = 1e-6, .clip_value = 0, .schedule = NULL, .loss_scale = NULL), \
        __VA_ARGS__)

/* In a graph: a symbol; fetching it takes one step of the optimizer for this loss. */
#define gd_minimize(optimizer, loss, ...) \
    GD_WITH_OPTIONS_(gd_minimize_at(GD_HERE, optimizer, loss, GD_MINIMIZE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_minimize_at(const char *site, gd_optimizer *optimizer, gd_tensor *loss,
                                 const gd_minimize_options *options);

/* --- clipping --------------------------------------------------------------------------------- */

typedef struct gd_clip_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    double norm_type GD_DEFAULT_(2); /* p of the p-norm; INFINITY: the largest absolute value */
    double eps GD_DEFAULT_(1e-6); /* added to the norm that max_norm is divided by, as in PyTorch */
    bool error_if_nonfinite
        GD_DEFAULT_(false); /* fails if the norm is infinite or NaN; not in a jit */
} GD_GIVEN_BY_NAME_ gd_clip_options;
#define GD_CLIP_OPTIONS_(...)                                                                \
    GD_OPTIONS_(gd_clip_options, (.norm_type = 2, .eps = 1e-6, .error_if_nonfinite = false), \
                __VA_ARGS__)

/* Scales the gradients of the parameters so that the norm of all of them, as one vector, is at most
 * max_norm. Returns the norm before scaling, an f64 tensor of rank 0. Parameters without a gradient
 * are skipped. */
#define gd_clip_grad_norm(parameters, max_norm, ...) \
    GD_WITH_OPTIONS_(                                \
        gd_clip_grad_norm_at(GD_HERE, parameters, max_norm, GD_CLIP_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_clip_grad_norm_at(const char *site, gd_tensors parameters, double max_norm,
                                       const gd_clip_options *options);

/* Clamps every element of the gradients to [-value, value]. */
#define gd_clip_grad_value(parameters, value) gd_clip_grad_value_at(GD_HERE, parameters, value)
GD_API gd_status gd_clip_grad_value_at(const char *site, gd_tensors parameters, double value);

/* --- user-defined optimizers ------------------------------------------------------------------ */

/* An optimizer is a record (CONTRIBUTING.md has the form) and rules. The record has an option `lr`.
 * An option `weight_decay` is multiplied by the factor of each parameter.
 *
 *     gd_op_define("sign_step(p!, g, lr) -> p  elementwise nograd\n"
 *                  "One step by the sign of the gradient.\n"
 *                  "  p = p - lr * sign(g)\n", NULL);
 *
 *     static void sign_update(gd_update *u) {
 *         gd_update_each(u, "sign_step", NULL, gd_list(gd_update_lr(u)));
 *     }
 *
 *     gd_optimizer_define("signs\nSign descent.\n  lr float = 0.01   in [0, inf)\n",
 *                         (gd_optimizer_rules){.update = sign_update});
 *     gd_optimizer *o = gd_optimizer_new("signs", parameters, "lr=0.1");
 */
enum { GD_MAX_SLOTS = 4 };

/* The state that an optimizer keeps for each parameter between steps. */
typedef struct gd_slot_needs {
    struct {
        const char *name; /* "exp_avg" */
        double start;     /* initial value of all elements */
    } slot[GD_MAX_SLOTS]; /* tensors with the shape and dtype of the parameter */
    int count;
    bool counts; /* also keeps the number of steps */
} gd_slot_needs;

/* The argument of an update rule: one step of a list of parameters. */
typedef struct gd_update gd_update;

typedef struct gd_optimizer_rules {
    gd_status (*check)(const void *options); /* checks combinations of options; may be NULL */
    void (*slots)(const void *options, gd_slot_needs *needs); /* NULL: no state */
    void (*update)(gd_update *update);                        /* calls gd_update_each */
} gd_optimizer_rules;

/* The options struct, with the fields in the order of the record. */
GD_API const void *gd_update_options(const gd_update *update);
/* The learning rate, an f64 tensor of rank 0. */
GD_API gd_tensor *gd_update_lr(const gd_update *update);
/* The number of this step, from 1, for each parameter: an f64 tensor of rank 1. Only with .counts.
 * */
GD_API gd_tensor *gd_update_count(const gd_update *update);
/* Runs an elementwise op for each parameter. Its inputs are the parameter, the slots in their
 * order, the gradient, and `scalars`: tensors that the rule computes from the two above, with their
 * shapes. `options` is the options struct of the op; NULL: defaults. */
GD_API void gd_update_each(gd_update *update, const char *op, const void *options,
                           gd_tensors scalars);

#define gd_optimizer_define(...) gd_optimizer_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_optimizer_define_at(const char *site, const char *record,
                                        gd_optimizer_rules rules);

#ifdef __cplusplus
}
#endif
#endif
