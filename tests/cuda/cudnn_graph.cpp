/* cudnn_graph.cpp - interprets operation graphs of the emulated cuDNN, with numbers in double. */
#include "cudnn_graph.h"

#include <cudnn.h>
#include <math.h>

#include <algorithm>

namespace {

/* The elements of a tensor, row-major. */
struct values {
    std::vector<int64_t> dims;
    std::vector<double> at;
};

size_t count_of(const std::vector<int64_t> &dims) {
    size_t count = 1;
    for (int64_t size : dims) count *= (size_t)size;
    return count;
}

/* Calls fn(indices, number) for all indices of a shape, in row-major order. */
template <typename F> void each_index(const std::vector<int64_t> &dims, F fn) {
    std::vector<int64_t> index(dims.size(), 0);
    for (size_t n = 0, count = count_of(dims); n < count; n++) {
        fn(index, n);
        for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
    }
}

values load_tensor(const dnn_tensor &t) {
    values v = {t.dims, std::vector<double>(count_of(t.dims))};
    each_index(t.dims, [&](const std::vector<int64_t> &index, size_t n) {
        int64_t offset = 0;
        for (size_t d = 0; d < index.size(); d++) offset += index[d] * t.strides[d];
        v.at[n] = t.by_value
                      ? t.number
                      : load_element(t.type, t.data + offset * (int64_t)element_bytes(t.type));
    });
    return v;
}
void store_tensor(const dnn_tensor &t, const values &v) {
    each_index(t.dims, [&](const std::vector<int64_t> &index, size_t n) {
        int64_t offset = 0;
        for (size_t d = 0; d < index.size(); d++) offset += index[d] * t.strides[d];
        store_element(t.type, t.data + offset * (int64_t)element_bytes(t.type), v.at[n]);
    });
}

/* The element that is broadcast to an index: dims of size 1 repeat. */
double broadcast(const values &v, const std::vector<int64_t> &index) {
    size_t at = 0;
    for (size_t d = 0; d < v.dims.size(); d++)
        at = at * (size_t)v.dims[d] + (size_t)(v.dims[d] == 1 ? 0 : index[d]);
    return v.at[at];
}

/* --- convolutions ----------------------------------------------------------------------------------- */

/* Calls fn(x, w, y) with the element numbers of every product of a convolution. x (N, C, spatial),
 * w (K, C / groups, window), y (N, K, spatial). */
template <typename F>
void each_product(const dnn_operation &o, const std::vector<int64_t> &x,
                  const std::vector<int64_t> &w, const std::vector<int64_t> &y, F fn) {
    const size_t spatial = x.size() - 2;
    const int64_t groups = x[1] / w[1], out_of_group = w[0] / groups;
    const std::vector<int64_t> window(w.begin() + 2, w.end());
    each_index(y, [&](const std::vector<int64_t> &at, size_t n) {
        const int64_t first = at[1] / out_of_group * w[1];
        each_index(window, [&](const std::vector<int64_t> &tap, size_t) {
            size_t from = 0, filter = 0;
            for (size_t d = 0; d < spatial; d++) {
                const int64_t i = at[d + 2] * o.strides[d] - o.padding[d] + tap[d] * o.dilations[d];
                if (i < 0 || i >= x[d + 2]) return;
                from = from * (size_t)x[d + 2] + (size_t)i;
                const int64_t position = o.flipped ? window[d] - 1 - tap[d] : tap[d];
                filter = filter * (size_t)window[d] + (size_t)position;
            }
            const size_t plane = count_of(std::vector<int64_t>(x.begin() + 2, x.end())),
                         taps = count_of(window);
            for (int64_t c = 0; c < w[1]; c++)
                fn((size_t)(at[0] * x[1] + first + c) * plane + from,
                   (size_t)(at[1] * w[1] + c) * taps + filter, n);
        });
    });
}

void convolve(const dnn_operation &o, const values &a, const values &b, values &result) {
    if (o.kind == DNN_FORWARD)
        each_product(o, a.dims, b.dims, result.dims,
                     [&](size_t x, size_t w, size_t y) { result.at[y] += a.at[x] * b.at[w]; });
    else if (o.kind == DNN_BACKWARD_DATA)
        each_product(o, result.dims, b.dims, a.dims,
                     [&](size_t x, size_t w, size_t y) { result.at[x] += a.at[y] * b.at[w]; });
    else
        each_product(o, a.dims, result.dims, b.dims,
                     [&](size_t x, size_t w, size_t y) { result.at[w] += a.at[x] * b.at[y]; });
}

/* --- products and reductions -------------------------------------------------------------------- */

void multiply(const values &a, const values &b, values &y) {
    const size_t rank = y.dims.size();
    each_index(y.dims, [&](const std::vector<int64_t> &at, size_t n) {
        std::vector<int64_t> left = at, right = at;
        double sum = 0;
        for (int64_t k = 0; k < a.dims[rank - 1]; k++) {
            left[rank - 1] = right[rank - 2] = k;
            sum += broadcast(a, left) * broadcast(b, right);
        }
        y.at[n] = sum;
    });
}

void reduce(int mode, const values &x, values &y) {
    std::vector<double> counts(y.at.size(), 0);
    each_index(x.dims, [&](const std::vector<int64_t> &index, size_t n) {
        size_t at = 0;
        for (size_t d = 0; d < y.dims.size(); d++)
            at = at * (size_t)y.dims[d] + (size_t)(y.dims[d] == 1 ? 0 : index[d]);
        const double v = x.at[n];
        double &sum = y.at[at];
        const bool first = counts[at]++ == 0;
        switch (mode) {
        case CUDNN_REDUCE_TENSOR_MAX: sum = first ? v : std::max(sum, v); break;
        case CUDNN_REDUCE_TENSOR_MIN: sum = first ? v : std::min(sum, v); break;
        case CUDNN_REDUCE_TENSOR_AMAX: sum = first ? fabs(v) : std::max(sum, fabs(v)); break;
        case CUDNN_REDUCE_TENSOR_MUL: sum = first ? v : sum * v; break;
        case CUDNN_REDUCE_TENSOR_NORM1: sum += fabs(v); break;
        case CUDNN_REDUCE_TENSOR_NORM2: sum += v * v; break;
        default: sum += v; break;
        }
    });
    for (size_t i = 0; i < y.at.size(); i++) {
        if (mode == CUDNN_REDUCE_TENSOR_AVG) y.at[i] /= counts[i];
        if (mode == CUDNN_REDUCE_TENSOR_NORM2) y.at[i] = sqrt(y.at[i]);
    }
}

/* --- pointwise ------------------------------------------------------------------------------------ */

double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* False: the mode is not known. For backward modes a is dy and b is x. */
bool compute_pointwise(const dnn_operation &o, double a, double b, double t, double *y) {
    switch (o.mode) {
    case CUDNN_POINTWISE_ADD: *y = a + b; return true;
    case CUDNN_POINTWISE_ADD_SQUARE: *y = a + b * b; return true;
    case CUDNN_POINTWISE_SUB: *y = a - b; return true;
    case CUDNN_POINTWISE_MUL: *y = a * b; return true;
    case CUDNN_POINTWISE_DIV: *y = a / b; return true;
    case CUDNN_POINTWISE_MAX: *y = a > b || isnan(a) ? a : b; return true;
    case CUDNN_POINTWISE_MIN: *y = a < b || isnan(a) ? a : b; return true;
    case CUDNN_POINTWISE_POW: *y = pow(a, b); return true;
    case CUDNN_POINTWISE_MOD: *y = fmod(a, b); return true;
    case CUDNN_POINTWISE_ABS: *y = fabs(a); return true;
    case CUDNN_POINTWISE_NEG: *y = -a; return true;
    case CUDNN_POINTWISE_EXP: *y = exp(a); return true;
    case CUDNN_POINTWISE_LOG: *y = log(a); return true;
    case CUDNN_POINTWISE_SQRT: *y = sqrt(a); return true;
    case CUDNN_POINTWISE_RSQRT: *y = 1 / sqrt(a); return true;
    case CUDNN_POINTWISE_RECIPROCAL: *y = 1 / a; return true;
    case CUDNN_POINTWISE_SIN: *y = sin(a); return true;
    case CUDNN_POINTWISE_COS: *y = cos(a); return true;
    case CUDNN_POINTWISE_TAN: *y = tan(a); return true;
    case CUDNN_POINTWISE_ERF: *y = erf(a); return true;
    case CUDNN_POINTWISE_FLOOR: *y = floor(a); return true;
    case CUDNN_POINTWISE_CEIL: *y = ceil(a); return true;
    case CUDNN_POINTWISE_IDENTITY: *y = a; return true;
    case CUDNN_POINTWISE_RELU_FWD: *y = a > o.relu_low || isnan(a) ? a : o.relu_low; return true;
    case CUDNN_POINTWISE_TANH_FWD: *y = tanh(a); return true;
    case CUDNN_POINTWISE_SIGMOID_FWD: *y = sigmoid(a); return true;
    case CUDNN_POINTWISE_GELU_FWD: *y = 0.5 * a * (1 + erf(a * M_SQRT1_2)); return true;
    case CUDNN_POINTWISE_SWISH_FWD: *y = a * sigmoid(a); return true;
    case CUDNN_POINTWISE_RELU_BWD: *y = b > o.relu_low ? a : 0; return true;
    case CUDNN_POINTWISE_TANH_BWD: *y = a * (1 - tanh(b) * tanh(b)); return true;
    case CUDNN_POINTWISE_SIGMOID_BWD: *y = a * sigmoid(b) * (1 - sigmoid(b)); return true;
    case CUDNN_POINTWISE_CMP_EQ: *y = a == b; return true;
    case CUDNN_POINTWISE_CMP_NEQ: *y = a != b; return true;
    case CUDNN_POINTWISE_CMP_GT: *y = a > b; return true;
    case CUDNN_POINTWISE_CMP_GE: *y = a >= b; return true;
    case CUDNN_POINTWISE_CMP_LT: *y = a < b; return true;
    case CUDNN_POINTWISE_CMP_LE: *y = a <= b; return true;
    case CUDNN_POINTWISE_LOGICAL_AND: *y = a != 0 && b != 0; return true;
    case CUDNN_POINTWISE_LOGICAL_OR: *y = a != 0 || b != 0; return true;
    case CUDNN_POINTWISE_LOGICAL_NOT: *y = a == 0; return true;
    case CUDNN_POINTWISE_BINARY_SELECT: *y = t != 0 ? a : b; return true;
    default: return false;
    }
}

void apply_pointwise(const dnn_operation &o, const values *const in[3], values &y) {
    each_index(y.dims, [&](const std::vector<int64_t> &index, size_t n) {
        if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
            y.at[n] = (double)index[(size_t)o.axis];
            return;
        }
        double operand[3] = {0, 0, 0};
        for (int i = 0; i < 3; i++)
            if (in[i]) operand[i] = broadcast(*in[i], index);
        compute_pointwise(o, operand[0], operand[1], operand[2], &y.at[n]);
    });
}

/* --- graphs --------------------------------------------------------------------------------------- */

typedef std::map<int64_t, values> known_values;

/* Loads a tensor that no operation computes. False: it is computed later. */
bool find_value(const dnn_graph &g, int64_t id, known_values &known) {
    if (id == DNN_NO_TENSOR || known.count(id)) return true;
    for (const dnn_operation &o : g.operations)
        if (o.out == id) return false;
    known[id] = load_tensor(g.tensors.at(id));
    return true;
}

void run_operation(const dnn_graph &g, const dnn_operation &o, known_values &known) {
    const values *in[3];
    for (int i = 0; i < 3; i++) in[i] = o.in[i] == DNN_NO_TENSOR ? nullptr : &known.at(o.in[i]);
    const dnn_tensor &out = g.tensors.at(o.out);
    values y = {out.dims, std::vector<double>(count_of(out.dims), 0)};
    if (o.kind == DNN_MATMUL) multiply(*in[0], *in[1], y);
    else if (o.kind == DNN_REDUCTION) reduce(o.mode, *in[0], y);
    else if (o.kind == DNN_POINTWISE) apply_pointwise(o, in, y);
    else {
        convolve(o, *in[0], *in[1], y);
        const values before = o.beta != 0 ? load_tensor(out) : y;
        for (size_t i = 0; i < y.at.size(); i++)
            y.at[i] = o.alpha * y.at[i] + (o.beta != 0 ? o.beta * before.at[i] : 0);
    }
    known[o.out] = y;
}

} // namespace

bool dnn_supports_pointwise(int mode) {
    dnn_operation o;
    double y;
    o.mode = mode;
    return mode == CUDNN_POINTWISE_GEN_INDEX || compute_pointwise(o, 1, 1, 1, &y);
}

void dnn_run_graph(const dnn_graph &g, bool spoiled) {
    known_values known;
    std::vector<bool> done(g.operations.size(), false);
    for (bool any = true; any;) {
        any = false;
        for (size_t i = 0; i < g.operations.size(); i++) {
            const dnn_operation &o = g.operations[i];
            bool ready = !done[i];
            for (int k = 0; k < 3 && ready; k++) ready = find_value(g, o.in[k], known);
            if (!ready) continue;
            run_operation(g, o, known);
            done[i] = any = true;
        }
    }
    for (auto &[id, v] : known) {
        const dnn_tensor &t = g.tensors.at(id);
        bool computed = false;
        for (const dnn_operation &o : g.operations) computed = computed || o.out == id;
        if (!computed || t.is_virtual) continue;
        if (spoiled) std::fill(v.at.begin(), v.at.end(), NAN);
        store_tensor(t, v);
    }
}
