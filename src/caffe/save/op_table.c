/* op_table.c - the ops that are saved by a function, which stands beside the one that makes the layer. All
 * other ops are saved by the word `caffe` of their records. */
#include <string.h>

#include "caffe/save/save.h"

/* The function gd_caffe_save_NAME, and the ops that it saves. */
#define FUNCTIONS(F)                                                             \
    F(same, "clone", "contiguous", "stop_gradient")                              \
    F(cast, "cast")                                                              \
    F(dropout, "dropout")                                                        \
    F(convolution, "conv1d", "conv2d", "conv3d")                                 \
    F(deconvolution, "conv_transpose1d", "conv_transpose2d", "conv_transpose3d") \
    F(linear, "linear")                                                          \
    F(embedding, "embedding")                                                    \
    F(max_pool, "max_pool2d")                                                    \
    F(avg_pool, "avg_pool2d")                                                    \
    F(adaptive_max_pool, "adaptive_max_pool2d", "global_max_pool")               \
    F(adaptive_avg_pool, "adaptive_avg_pool2d", "global_avg_pool")               \
    F(reduction, "mean", "sum")                                                  \
    F(batch_norm, "batch_norm")                                                  \
    F(lrn, "response_norm")                                                      \
    F(prelu, "prelu")                                                            \
    F(arithmetic, "add", "sub", "mul", "div", "maximum")                         \
    F(power, "affine", "neg", "square", "sqrt", "rsqrt", "reciprocal", "pow")    \
    F(exp, "exp")                                                                \
    F(log, "log")                                                                \
    F(silu, "silu")                                                              \
    F(reshape, "reshape", "squeeze", "unsqueeze", "unflatten", "expand")         \
    F(permute, "permute", "transpose", "movedim")                                \
    F(split, "split")                                                            \
    F(narrow, "narrow")

#define DECLARE(name, ...) gd_status gd_caffe_save_##name(gd_caffe_call *c);
FUNCTIONS(DECLARE)

enum { MOST = 8 };
#define ENTRY(name, ...) {gd_caffe_save_##name, {__VA_ARGS__}},
static const struct {
    gd_caffe_save_fn save;
    const char *ops[MOST];
} functions[] = {FUNCTIONS(ENTRY)};

gd_caffe_save_fn gd_caffe_find_save(const gd_op *op) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (int k = 0; k < MOST && functions[i].ops[k]; k++)
            if (strcmp(functions[i].ops[k], op->name) == 0) return functions[i].save;
    return NULL;
}

/* The sums of response_norm are a part of the layer. */
bool gd_caffe_reads(const gd_op *op, int i) {
    return i == 0 || !op || strcmp(op->name, "response_norm") != 0;
}
