/* optim.h - optimizers: what is done to parameters with their gradients.
 *
 * One optimizer serves both ways of working. With eager ops:
 *
 *     gd_optimizer *adam = gd_optim_adam(gd_list(w1, w2), .lr = 1e-3);
 *     for (...) {
 *         gd_optimizer_zero_grad(adam);
 *         gd_backward(loss);
 *         gd_optimizer_step(adam);
 *     }
 *
 * which is one plan where it is the function of a gd_jit (jit.h). In a graph, where parameters are
 * variables:
 *
 *     gd_tensor *train = gd_minimize(gd_optim_adam(gd_graph_variables(graph), .lr = 1e-3), loss);
 *
 * Parameters are leaves (gd_requires_grad), or variables of one graph, each listed once: the result
 * of an op, or a tensor that comes twice, is refused. A leaf that does not require a gradient is
 * frozen: steps skip it until gd_set_requires_grad thaws it, and keep no state for it before.
 *
 * An optimizer holds its parameters and belongs to the current scope. It is used by one thread at a
 * time.
 */
#ifndef GRADUS_OPTIM_H
#define GRADUS_OPTIM_H

#include "gradus/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_optimizer gd_optimizer;

typedef struct gd_optim_sgd_options {
    double lr GD_DEFAULT_(0.01);
    double momentum GD_DEFAULT_(0);     /* 0: none */
    double dampening GD_DEFAULT_(0);    /* of the gradient in the running sum */
    bool nesterov GD_DEFAULT_(false);   /* looks one step ahead; needs momentum */
    double weight_decay GD_DEFAULT_(0); /* times the parameter, added to the gradient */
} gd_optim_sgd_options;

/* Gradient descent, with or without momentum. */
#define gd_optim_sgd(parameters, ...)                                                                  \
    GD_WITH_OPTIONS_(gd_optim_sgd_at(GD_HERE, parameters, GD_OPTIONS_(gd_optim_sgd_options, (.lr = 0.01) \
                                     __VA_OPT__(,) __VA_ARGS__)))
GD_API gd_optimizer *gd_optim_sgd_at(const char *site, gd_tensors parameters, const gd_optim_sgd_options *options);

typedef struct gd_optim_adam_options {
    double lr GD_DEFAULT_(0.001);
    double beta1 GD_DEFAULT_(0.9), beta2 GD_DEFAULT_(0.999);
    double eps GD_DEFAULT_(1e-8);
    double weight_decay GD_DEFAULT_(0); /* times the parameter, added to the gradient */
} gd_optim_adam_options;

/* Adam. */
#define gd_optim_adam(parameters, ...)                                                           \
    GD_WITH_OPTIONS_(gd_optim_adam_at(GD_HERE, parameters, GD_OPTIONS_(gd_optim_adam_options,    \
                     (.lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0) \
                     __VA_OPT__(,) __VA_ARGS__)))
GD_API gd_optimizer *gd_optim_adam_at(const char *site, gd_tensors parameters, const gd_optim_adam_options *options);


/* Changes each parameter by its gradient (gd_tensor_grad); one that has none, or is frozen, stays
 * as it is. Does nothing, and returns it, while a failure is recorded. On the CPU a step that fails
 * has changed nothing, and the next one is the one that it would have been; on a device whose work
 * is queued, parameters before the one that failed may have been changed. */
#define gd_optimizer_step(...) gd_optimizer_step_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_optimizer_step_at(const char *site, gd_optimizer *optimizer);

/* Forgets the gradients of all parameters. */
GD_API void gd_optimizer_zero_grad(gd_optimizer *optimizer);

/* The learning rate: a tensor of rank 0, read at each step. In a graph it is a variable. A gd_jit's plan
 * reads it at each call. */
#define gd_optimizer_lr(...) gd_optimizer_lr_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_optimizer_lr_at(const char *site, gd_optimizer *optimizer);
#define gd_optimizer_set_lr(...) gd_optimizer_set_lr_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_optimizer_set_lr_at(const char *site, gd_optimizer *optimizer, double lr);

/* In a graph: a symbol that, when fetched, does one step towards a smaller loss. */
#define gd_minimize(optimizer, loss) gd_minimize_at(GD_HERE, optimizer, loss)
GD_API gd_tensor *gd_minimize_at(const char *site, gd_optimizer *optimizer, gd_tensor *loss);

#ifdef __cplusplus
}
#endif
#endif
