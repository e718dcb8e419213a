/* cudnn_graph.h - operation graphs of the emulated cuDNN. */
#ifndef GRADUS_TESTS_CUDA_CUDNN_GRAPH_H
#define GRADUS_TESTS_CUDA_CUDNN_GRAPH_H

#include <stdint.h>

#include <map>
#include <vector>

#include "elements.h"

struct dnn_tensor {
    int64_t id;
    element_type type;
    std::vector<int64_t> dims, strides; /* strides in elements */
    bool is_virtual;                    /* an intermediate result without memory */
    bool by_value;                      /* a number of the host */
    int64_t alignment;
    char *data = nullptr;
    double number = 0; /* by value */
};

enum dnn_kind {
    DNN_FORWARD,         /* in: x, w */
    DNN_BACKWARD_DATA,   /* in: dy, w */
    DNN_BACKWARD_FILTER, /* in: x, dy */
    DNN_MATMUL,
    DNN_REDUCTION, /* mode: cudnnReduceTensorOp_t */
    DNN_POINTWISE, /* mode: cudnnPointwiseMode_t */
};

const int64_t DNN_NO_TENSOR = INT64_MIN; /* an operand that is not given */

struct dnn_operation {
    dnn_kind kind;
    int mode = 0;
    int64_t in[3] = {DNN_NO_TENSOR, DNN_NO_TENSOR, DNN_NO_TENSOR}, out = DNN_NO_TENSOR; /* ids */
    double alpha = 1, beta = 0; /* of convolutions */
    std::vector<int64_t> padding, strides, dilations;
    bool flipped = false; /* CUDNN_CONVOLUTION, not CUDNN_CROSS_CORRELATION */
    int64_t axis = -1;
    double relu_low = 0;
};

struct dnn_graph {
    std::map<int64_t, dnn_tensor> tensors;
    std::vector<dnn_operation> operations; /* in any order */
};

bool dnn_supports_pointwise(int mode);
/* Computes all operations. `spoiled`: results are NaN. */
void dnn_run_graph(const dnn_graph &graph, bool spoiled);

#endif
