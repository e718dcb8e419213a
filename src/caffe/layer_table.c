/* layer_table.c - the types of layers that need a function, by their names. Types that are one op are rows of
 * the ops' records; a type that is in neither is an op or a layer of the program. */
#include <string.h>

#include "caffe/layer.h"

enum { ANY = -1, SAME = -2, LOSS = GD_CAFFE_LOSS | GD_CAFFE_NO_TOP_NEEDED };

/* Name; the least and the most bottoms and tops; flags. The function is gd_caffe_make_NAME. */
#define TYPES(T)                                 \
    T(Accuracy, 2, 2, 1, 2, 0)                   \
    T(ArgMax, 1, 1, 1, 1, 0)                     \
    T(BatchNorm, 1, 1, 1, 1, 0)                  \
    T(BatchReindex, 2, 2, 1, 1, 0)               \
    T(Bias, 1, 2, 1, 1, 0)                       \
    T(ContrastiveLoss, 3, 3, 1, 1, LOSS)         \
    T(Convolution, 1, ANY, 1, SAME, 0)           \
    T(Crop, 2, 2, 1, 1, 0)                       \
    T(Deconvolution, 1, ANY, 1, SAME, 0)         \
    T(DetectionEvaluate, 0, ANY, 0, ANY, 0)      \
    T(DetectionOutput, 3, 3, 1, 1, 0)            \
    T(Dropout, 1, 1, 1, 1, 0)                    \
    T(Eltwise, 2, ANY, 1, 1, 0)                  \
    T(Embed, 1, 1, 1, 1, 0)                      \
    T(EuclideanLoss, 2, 2, 1, 1, LOSS)           \
    T(Exp, 1, 1, 1, 1, 0)                        \
    T(Filter, 2, ANY, 1, ANY, 0)                 \
    T(HDF5Output, 2, 2, 0, 0, 0)                 \
    T(HingeLoss, 2, 2, 1, 1, LOSS)               \
    T(Im2col, 1, 1, 1, 1, 0)                     \
    T(InfogainLoss, 2, 3, 1, 2, LOSS)            \
    T(InnerProduct, 1, 1, 1, 1, 0)               \
    T(LRN, 1, 1, 1, 1, 0)                        \
    T(LSTM, 2, 5, 1, 3, 0)                       \
    T(LSTMUnit, 3, 3, 2, 2, 0)                   \
    T(Log, 1, 1, 1, 1, 0)                        \
    T(MVN, 1, 1, 1, 1, 0)                        \
    T(MultiBoxLoss, 0, ANY, 0, ANY, LOSS)        \
    T(MultinomialLogisticLoss, 2, 2, 1, 1, LOSS) \
    T(Normalize, 1, 1, 1, 1, 0)                  \
    T(PReLU, 1, 1, 1, 1, 0)                      \
    T(Parameter, 0, 0, 1, 1, 0)                  \
    T(Permute, 1, 1, 1, 1, 0)                    \
    T(Pooling, 1, 1, 1, 2, 0)                    \
    T(Power, 1, 1, 1, 1, 0)                      \
    T(PriorBox, 2, 2, 1, 1, 0)                   \
    T(Python, 0, ANY, 0, ANY, 0)                 \
    T(RNN, 2, 4, 1, 2, 0)                        \
    T(Reduction, 1, 1, 1, 1, 0)                  \
    T(Reshape, 1, 1, 1, 1, 0)                    \
    T(SPP, 1, 1, 1, 1, 0)                        \
    T(Scale, 1, 2, 1, 1, 0)                      \
    T(SigmoidCrossEntropyLoss, 2, 2, 1, 1, LOSS) \
    T(Silence, 1, ANY, 0, 0, 0)                  \
    T(Slice, 1, 1, 1, ANY, 0)                    \
    T(SmoothL1Loss, 0, ANY, 0, ANY, LOSS)        \
    T(SoftmaxWithLoss, 2, 2, 1, 2, LOSS)         \
    T(Split, 1, 1, 1, ANY, 0)                    \
    T(Swish, 1, 1, 1, 1, 0)                      \
    T(Threshold, 1, 1, 1, 1, 0)                  \
    T(Tile, 1, 1, 1, 1, 0)

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
