/* nn.h - modules (module.h), layers (layers.h), initializers (inits.h), and a shorthand for graphs
 * whose weights are variables:
 *
 *     gd_tensor *h = gd_dense(x, 100, .activation = "relu", .name = "hidden");
 *     gd_tensor *y = gd_dense(h, 10, .name = "output");
 */
#ifndef GRADUS_NN_H
#define GRADUS_NN_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/inits.h"
#include "gradus/layers.h"
#include "gradus/module.h"
#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- layers of a graph ------------------------------------------------------------------------ */

typedef struct gd_dense_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *activation
        GD_DEFAULT_(nullptr); /* the name of an op of one tensor: "relu", "tanh", "gelu" ... */
    bool bias GD_DEFAULT_(true);
    gd_tensor *weight GD_DEFAULT_(nullptr); /* initial weight (units, n); NULL: Xavier, uniform */
    bool trainable GD_DEFAULT_(true);
    const char *name
        GD_DEFAULT_(nullptr); /* names the variables NAME/weight and NAME/bias; NULL: no names */
} GD_GIVEN_BY_NAME_ gd_dense_options;
#define GD_DENSE_OPTIONS_(...)                                                               \
    GD_OPTIONS_(                                                                             \
        gd_dense_options,                                                                    \
        (.activation = NULL, .bias = true, .weight = NULL, .trainable = true, .name = NULL), \
        __VA_ARGS__)

/* x (..., n) -> activation(x weight^T + bias) (..., units), in the graph that is being built.
 * Creates the weight (units, n) and the bias (units), initially 0, as variables of x's dtype. n
 * must be known; the other sizes of x may be unknown. */
#define gd_dense(x, units, ...) \
    GD_WITH_OPTIONS_(gd_dense_at(GD_HERE, x, units, GD_DENSE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_dense_at(const char *site, gd_tensor *x, int64_t units,
                              const gd_dense_options *options);

#ifdef __cplusplus
}
#endif
#endif
