/* layer_table.c - the types of layers that need a function, by their names. Types that are one op are rows of
 * the ops' records; a type that is in neither is an op or a layer of the program. */
#include <string.h>

#include "caffe/layer.h"

enum { ANY = -1, SAME = -2, LOSS = GD_CAFFE_LOSS | GD_CAFFE_NO_TOP_NEEDED };

/* Name; the least and the most bottoms and tops; flags; the family of ops (src/ops) whose colour it has in
 * pictures. The function is gd_caffe_make_NAME. */
#define TYPES(T)                                         \
    T(Accuracy, 2, 2, 1, 2, 0, "loss")                   \
    T(ArgMax, 1, 1, 1, 1, 0, "reduce")                   \
    T(BatchNorm, 1, 1, 1, 1, 0, "norm")                  \
    T(BatchReindex, 2, 2, 1, 1, 0, "index")              \
    T(Bias, 1, 2, 1, 1, 0, "elementwise")                \
    T(ContrastiveLoss, 3, 3, 1, 1, LOSS, "loss")         \
    T(Convolution, 1, ANY, 1, SAME, 0, "conv")           \
    T(Crop, 2, 2, 1, 1, 0, "shape")                      \
    T(Deconvolution, 1, ANY, 1, SAME, 0, "conv")         \
    T(DetectionEvaluate, 0, ANY, 0, ANY, 0, "loss")      \
    T(DetectionOutput, 3, 3, 1, 1, 0, "sort")            \
    T(Dropout, 1, 1, 1, 1, 0, "random")                  \
    T(Eltwise, 2, ANY, 1, 1, 0, "join")                  \
    T(Embed, 1, 1, 1, 1, 0, "index")                     \
    T(EuclideanLoss, 2, 2, 1, 1, LOSS, "loss")           \
    T(Exp, 1, 1, 1, 1, 0, "elementwise")                 \
    T(Filter, 2, ANY, 1, ANY, 0, "index")                \
    T(HDF5Output, 2, 2, 0, 0, 0, "data")                 \
    T(HingeLoss, 2, 2, 1, 1, LOSS, "loss")               \
    T(Im2col, 1, 1, 1, 1, 0, "windows")                  \
    T(InfogainLoss, 2, 3, 1, 2, LOSS, "loss")            \
    T(InnerProduct, 1, 1, 1, 1, 0, "matmul")             \
    T(LRN, 1, 1, 1, 1, 0, "norm")                        \
    T(LSTM, 2, 5, 1, 3, 0, "recurrent")                  \
    T(LSTMUnit, 3, 3, 2, 2, 0, "recurrent")              \
    T(Log, 1, 1, 1, 1, 0, "elementwise")                 \
    T(MVN, 1, 1, 1, 1, 0, "norm")                        \
    T(MultiBoxLoss, 0, ANY, 0, ANY, LOSS, "loss")        \
    T(MultinomialLogisticLoss, 2, 2, 1, 1, LOSS, "loss") \
    T(Normalize, 1, 1, 1, 1, 0, "norm")                  \
    T(PReLU, 1, 1, 1, 1, 0, "elementwise")               \
    T(Parameter, 0, 0, 1, 1, 0, "creation")              \
    T(Permute, 1, 1, 1, 1, 0, "shape")                   \
    T(Pooling, 1, 1, 1, 2, 0, "pool")                    \
    T(Power, 1, 1, 1, 1, 0, "elementwise")               \
    T(PriorBox, 2, 2, 1, 1, 0, "creation")               \
    T(Python, 0, ANY, 0, ANY, 0, NULL)                   \
    T(RNN, 2, 4, 1, 2, 0, "recurrent")                   \
    T(Reduction, 1, 1, 1, 1, 0, "reduce")                \
    T(Reshape, 1, 1, 1, 1, 0, "shape")                   \
    T(SPP, 1, 1, 1, 1, 0, "pool")                        \
    T(Scale, 1, 2, 1, 1, 0, "elementwise")               \
    T(SigmoidCrossEntropyLoss, 2, 2, 1, 1, LOSS, "loss") \
    T(Silence, 1, ANY, 0, 0, 0, NULL)                    \
    T(Slice, 1, 1, 1, ANY, 0, "join")                    \
    T(SmoothL1Loss, 0, ANY, 0, ANY, LOSS, "loss")        \
    T(SoftmaxWithLoss, 2, 2, 1, 2, LOSS, "loss")         \
    T(Split, 1, 1, 1, ANY, 0, "join")                    \
    T(Swish, 1, 1, 1, 1, 0, "elementwise")               \
    T(Threshold, 1, 1, 1, 1, 0, "elementwise")           \
    T(Tile, 1, 1, 1, 1, 0, "shape")

#define DECLARE(name, ...) gd_status gd_caffe_make_##name(gd_caffe_layer *l);
TYPES(DECLARE)

#define ENTRY(name, ...) {#name, gd_caffe_make_##name, __VA_ARGS__},
static const gd_caffe_type types[] = {TYPES(ENTRY)};

const gd_caffe_type *gd_caffe_find_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const char *gd_caffe_type_name(int index) {
    return (size_t)index < sizeof types / sizeof *types ? types[index].name : NULL;
}
