/* nn.h - parts of networks: what weights start as, and layers that make their own weights.
 *
 *     gd_tensor *h = gd_dense(x, 100, .activation = "relu", .name = "hidden");
 *     gd_tensor *y = gd_dense(h, 10, .name = "output");
 */
#ifndef GRADUS_NN_H
#define GRADUS_NN_H

#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- what weights start as ---------------------------------------------------------------------
 *
 * Random weights whose size keeps what goes forward, or back, from growing or vanishing with every
 * layer. `dims` are those of a weight as gd_linear and gd_conv2d take it: (outputs, inputs, ...), where
 * the sizes behind are those of a window. Such a weight has inputs * window numbers for each output
 * (`fan in`), and outputs * window for each input (`fan out`). Eager code gets a tensor, a graph that is
 * being built a symbol, which a session draws when it begins. */

typedef struct gd_init_options {
    double gain GD_DEFAULT_(1); /* weights are as many times as large */
    gd_dtype dtype GD_DEFAULT_(GD_F32);
} gd_init_options;

/* Glorot and Bengio 2010 ("Xavier"): the variance is 2 / (fan in + fan out). For tanh, sigmoid, and layers
 * with nothing behind. */
#define gd_init_xavier_uniform(dims, ...)                                                        \
    GD_WITH_OPTIONS_(gd_init_xavier_uniform_at(GD_HERE, dims, GD_OPTIONS_(gd_init_options,       \
                                               (.gain = 1, .dtype = GD_F32) __VA_OPT__(,) __VA_ARGS__)))
#define gd_init_xavier_normal(dims, ...)                                                         \
    GD_WITH_OPTIONS_(gd_init_xavier_normal_at(GD_HERE, dims, GD_OPTIONS_(gd_init_options,        \
                                              (.gain = 1, .dtype = GD_F32) __VA_OPT__(,) __VA_ARGS__)))
GD_API gd_tensor *gd_init_xavier_uniform_at(const char *site, gd_shape dims, const gd_init_options *options);
GD_API gd_tensor *gd_init_xavier_normal_at(const char *site, gd_shape dims, const gd_init_options *options);

/* He et al. 2015 ("Kaiming"): the variance is gain^2 / fan in. The gain is that of relu, the square root
 * of 2, unless it is given; with .gain = 1 it is LeCun's. */
#define GD_GAIN_RELU 1.4142135623730951
#define gd_init_kaiming_uniform(dims, ...)                                                       \
    GD_WITH_OPTIONS_(gd_init_kaiming_uniform_at(GD_HERE, dims, GD_OPTIONS_(gd_init_options,      \
                                                (.gain = GD_GAIN_RELU, .dtype = GD_F32) __VA_OPT__(,) __VA_ARGS__)))
#define gd_init_kaiming_normal(dims, ...)                                                        \
    GD_WITH_OPTIONS_(gd_init_kaiming_normal_at(GD_HERE, dims, GD_OPTIONS_(gd_init_options,       \
                                               (.gain = GD_GAIN_RELU, .dtype = GD_F32) __VA_OPT__(,) __VA_ARGS__)))
GD_API gd_tensor *gd_init_kaiming_uniform_at(const char *site, gd_shape dims, const gd_init_options *options);
GD_API gd_tensor *gd_init_kaiming_normal_at(const char *site, gd_shape dims, const gd_init_options *options);

/* --- layers of a graph --------------------------------------------------------------------------- */

typedef struct gd_dense_options {
    const char *activation GD_DEFAULT_(nullptr); /* an op of one tensor, by name: "relu", "tanh", "gelu" ... */
    bool bias GD_DEFAULT_(true);
    gd_tensor *weight GD_DEFAULT_(nullptr); /* what the weight (units, n) starts as; NULL: Xavier, uniform */
    bool trainable GD_DEFAULT_(true);
    const char *name GD_DEFAULT_(nullptr); /* variables are NAME/weight and NAME/bias; NULL: they have none */
} gd_dense_options;

/* x (..., n) -> activation(x weight^T + bias) (..., units), in the graph that is being built. It makes the
 * weight (units, n) and the bias (units), zeros at first, as variables of x's dtype, for which n must be
 * known; other sizes of x need not be. */
#define gd_dense(x, units, ...)                                                                  \
    GD_WITH_OPTIONS_(gd_dense_at(GD_HERE, x, units, GD_OPTIONS_(gd_dense_options,                \
                                 (.activation = NULL, .bias = true, .weight = NULL,              \
                                  .trainable = true, .name = NULL) __VA_OPT__(,) __VA_ARGS__)))
GD_API gd_tensor *gd_dense_at(const char *site, gd_tensor *x, int64_t units, const gd_dense_options *options);

#ifdef __cplusplus
}
#endif
#endif
