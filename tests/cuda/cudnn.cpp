/* cudnn.cpp - an emulated cuDNN, libcudnn.so.9: its graph API, interpreted on the CPU.
 *
 * Operation graphs of convolutions, matrix products, pointwise operations and reductions run on the
 * streams of the emulated driver, with numbers in double. Other operations are not supported.
 * Heuristics propose engines 1 and 2: the first is marked as nondeterministic and computes NaN, so a
 * caller that ignores the notes of engines gets wrong results. Both need a workspace.
 */
#include <cudnn.h>

#include <map>
#include <memory>
#include <vector>

#include "cudnn_graph.h"
#include "submit.h"

namespace {

enum { WORKSPACE = 1024 };

/* --- descriptors ---------------------------------------------------------------------------------- */

struct descriptor;
typedef std::shared_ptr<descriptor> shared;

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
    std::vector<shared> descriptors;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<int, attribute> attributes;
    bool nondeterministic; /* engines */

    const attribute *find(cudnnBackendAttributeName_t name) const {
        auto at = attributes.find((int)name);
        return at == attributes.end() ? nullptr : &at->second;
    }
    template <typename T> T get(cudnnBackendAttributeName_t name, T otherwise = T()) const {
        const attribute *a = find(name);
        if (!a || a->bytes.size() < sizeof(T)) return otherwise;
        T value;
        memcpy(&value, a->bytes.data(), sizeof value);
        return value;
    }
    shared linked(cudnnBackendAttributeName_t name) const {
        const attribute *a = find(name);
        return a && !a->descriptors.empty() ? a->descriptors[0] : nullptr;
    }
    std::vector<int64_t> integers(cudnnBackendAttributeName_t name) const {
        const attribute *a = find(name);
        std::vector<int64_t> values(a ? (size_t)a->count : 0);
        if (a) memcpy(values.data(), a->bytes.data(), a->bytes.size());
        return values;
    }
};

/* What a handle of the API points to. */
struct holder {
    shared held;
};
descriptor *of(cudnnBackendDescriptor_t handle) { return ((holder *)handle)->held.get(); }

struct context {
    CUstream stream;
};

size_t value_bytes(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE: return 8;
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    default: return 4; /* enums, floats, 32-bit integers */
    }
}

/* --- from descriptors to a graph --------------------------------------------------------------- */

element_type type_of(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_DOUBLE: return ELEMENT_F64;
    case CUDNN_DATA_FLOAT: return ELEMENT_F32;
    case CUDNN_DATA_HALF: return ELEMENT_F16;
    case CUDNN_DATA_BFLOAT16: return ELEMENT_BF16;
    case CUDNN_DATA_INT32: return ELEMENT_I32;
    default: return ELEMENT_NONE;
    }
}

bool read_tensor(const descriptor *d, dnn_tensor *t) {
    t->id = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t->type = type_of(d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT));
    t->dims = d->integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
    t->strides = d->integers(CUDNN_ATTR_TENSOR_STRIDES);
    t->is_virtual = d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t->by_value = d->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    t->alignment = d->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (t->dims.size() != t->strides.size() || t->dims.empty()) return false;
    for (int64_t size : t->dims)
        if (size < 1) return false;
    return t->is_virtual || t->type != ELEMENT_NONE;
}

int64_t add_tensor(dnn_graph *g, const descriptor *op, cudnnBackendAttributeName_t name) {
    const shared d = op->linked(name);
    if (!d) return DNN_NO_TENSOR;
    dnn_tensor t;
    read_tensor(d.get(), &t);
    g->tensors[t.id] = t;
    return t.id;
}

/* The settings of a convolution, which its three operations share. */
void read_convolution(const descriptor *op, cudnnBackendAttributeName_t settings,
                      dnn_operation *o) {
    const shared c = op->linked(settings);
    if (!c) return;
    o->padding = c->integers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    o->strides = c->integers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    o->dilations = c->integers(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    o->flipped = c->get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                                CUDNN_CROSS_CORRELATION) == CUDNN_CONVOLUTION;
}

/* An alpha or beta, which is float or double. */
double read_factor(const descriptor *op, cudnnBackendAttributeName_t name, double otherwise) {
    const attribute *a = op->find(name);
    if (!a) return otherwise;
    return a->type == CUDNN_TYPE_DOUBLE ? op->get<double>(name) : op->get<float>(name);
}

bool read_operation(const descriptor *op, dnn_graph *g) {
    dnn_operation o;
    switch (op->type) {
#define CONVOLUTION(KIND, operation_kind, first, second, result)                     \
    o.kind = operation_kind;                                                         \
    o.in[0] = add_tensor(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_##KIND##_##first);  \
    o.in[1] = add_tensor(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_##KIND##_##second); \
    o.out = add_tensor(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_##KIND##_##result);   \
    o.alpha = read_factor(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##KIND##_ALPHA, 1);   \
    o.beta = read_factor(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##KIND##_BETA, 0);     \
    read_convolution(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##KIND##_CONV_DESC, &o);   \
    break
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        CONVOLUTION(FORWARD, DNN_FORWARD, X, W, Y);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        CONVOLUTION(BWD_DATA, DNN_BACKWARD_DATA, DY, W, DX);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        CONVOLUTION(BWD_FILTER, DNN_BACKWARD_FILTER, X, DY, DW);
#undef CONVOLUTION
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        o.kind = DNN_MATMUL;
        o.in[0] = add_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
        o.in[1] = add_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
        o.out = add_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: {
        const shared settings = op->linked(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
        if (!settings) return false;
        o.kind = DNN_REDUCTION;
        o.mode = (int)settings->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
        o.in[0] = add_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        o.out = add_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        break;
    }
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
        const shared settings = op->linked(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        if (!settings) return false;
        o.kind = DNN_POINTWISE;
        o.mode = (int)settings->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        o.axis = settings->get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
        o.relu_low = read_factor(settings.get(), CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
        const bool backward = op->find(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) != nullptr;
        o.in[0] = add_tensor(g, op,
                             backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                                      : CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
        o.in[1] = add_tensor(g, op,
                             backward ? CUDNN_ATTR_OPERATION_POINTWISE_XDESC
                                      : CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        o.in[2] = add_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
        o.out = add_tensor(g, op,
                           backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                                    : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        if (!dnn_supports_pointwise(o.mode)) return false;
        break;
    }
    default: return false;
    }
    if (o.out == DNN_NO_TENSOR || o.in[0] == DNN_NO_TENSOR) return false;
    g->operations.push_back(o);
    return true;
}

bool read_graph(const descriptor *d, dnn_graph *g) {
    const attribute *ops = d->find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (!ops || ops->descriptors.empty()) return false;
    for (const shared &op : ops->descriptors)
        if (!read_operation(op.get(), g)) return false;
    return true;
}

/* What finalize checks, by the type of the descriptor. */
cudnnStatus_t check_descriptor(const descriptor *d) {
    dnn_tensor t;
    dnn_graph g;
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return read_tensor(d, &t) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!d->find(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) return CUDNN_STATUS_BAD_PARAM;
        return read_graph(d, &g) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return gradus_emulated_controls()->no_algorithm ? CUDNN_STATUS_NOT_SUPPORTED
                                                        : CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return d->linked(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) &&
                       d->find(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
                   ? CUDNN_STATUS_SUCCESS
                   : CUDNN_STATUS_BAD_PARAM;
    default: return CUDNN_STATUS_SUCCESS;
    }
}

/* A number in host memory, or an address of the device that has room for the tensor. */
cudnnStatus_t check_pointer(const dnn_tensor &t, const void *p) {
    if (t.by_value) return p ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    int64_t last = 0;
    for (size_t k = 0; k < t.dims.size(); k++) last += (t.dims[k] - 1) * t.strides[k];
    if (!emulated_is_device_memory(p, (size_t)(last + 1) * element_bytes(t.type)))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    return t.alignment > 0 && (uintptr_t)p % (size_t)t.alignment != 0
               ? CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER
               : CUDNN_STATUS_SUCCESS;
}

} // namespace

/* --- the functions of the library --------------------------------------------------------------- */

extern "C" {

size_t cudnnGetVersion(void) { return 91400; }
const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                  : "an emulated failure of cuDNN";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    *handle = (cudnnHandle_t) new context{};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete (context *)handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    ((context *)handle)->stream = (CUstream)stream;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    *stream = (cudaStream_t)((context *)handle)->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *result) {
    *result = new holder{std::make_shared<descriptor>(descriptor{type, false, {}, false})};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
    delete (holder *)handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values) {
    descriptor *d = of(handle);
    if (d->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (count < 0 || (count > 0 && !values)) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    attribute a = {type, count, {}, {}};
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t i = 0; i < count; i++) {
            holder *linked = ((holder *const *)values)[i];
            if (!linked) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
            if (!linked->held->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
            a.descriptors.push_back(linked->held);
        }
    } else
        a.bytes.assign((const char *)values,
                       (const char *)values + (size_t)count * value_bytes(type));
    d->attributes[(int)name] = a;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
    descriptor *d = of(handle);
    const cudnnStatus_t status = check_descriptor(d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* The proposals of a heuristic, in the caller's descriptors. */
static cudnnStatus_t propose_engines(const descriptor *heuristic, int64_t most, int64_t *count,
                                     holder **results) {
    enum { ENGINES = 2 };
    const shared graph = heuristic->linked(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *count = ENGINES;
    for (int64_t i = 0; i < ENGINES && i < most && results; i++) {
        shared engine = std::make_shared<descriptor>(
            descriptor{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true, {}, i == 0});
        engine->attributes[(int)CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {graph}};
        descriptor *config = results[i]->held.get();
        config->finalized = true;
        config->attributes[(int)CUDNN_ATTR_ENGINECFG_ENGINE] = {
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {engine}};
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *count, void *values) {
    const descriptor *d = of(handle);
    int64_t unused;
    if (!count) count = &unused;
    if (!d->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return propose_engines(d, most, count, (holder **)values);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        const cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        *count = d->nondeterministic;
        if (*count && most > 0) memcpy(values, &note, sizeof note);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
        const int64_t number = d->nondeterministic ? 1 : 2;
        *count = 1;
        memcpy(values, &number, sizeof number);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        const int64_t bytes = WORKSPACE;
        *count = 1;
        memcpy(values, &bytes, sizeof bytes);
        return CUDNN_STATUS_SUCCESS;
    }
    const attribute *a = d->find(name);
    if (!a || a->type != type) return CUDNN_STATUS_BAD_PARAM;
    *count = a->count;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < a->count && i < most; i++)
            ((holder **)values)[i]->held = a->descriptors[(size_t)i];
    else memcpy(values, a->bytes.data(), (size_t)std::min(most, a->count) * value_bytes(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    if (gradus_emulated_controls()->failing_library) return CUDNN_STATUS_EXECUTION_FAILED;
    if (!of(plan)->finalized || !of(pack)->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    const shared config = of(plan)->linked(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                 engine = config->linked(CUDNN_ATTR_ENGINECFG_ENGINE);
    auto graph = std::make_shared<dnn_graph>();
    read_graph(engine->linked(CUDNN_ATTR_ENGINE_OPERATION_GRAPH).get(), graph.get());
    const std::vector<int64_t> ids = of(pack)->integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                               pointers = of(pack)->integers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < ids.size() && i < pointers.size(); i++) {
        auto at = graph->tensors.find(ids[i]);
        if (at == graph->tensors.end()) return CUDNN_STATUS_BAD_PARAM;
        at->second.data = (char *)pointers[i];
        const cudnnStatus_t status = check_pointer(at->second, at->second.data);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        if (at->second.by_value) at->second.number = load_element(at->second.type, at->second.data);
    }
    for (const auto &[id, t] : graph->tensors)
        if (!t.is_virtual && !t.data) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    void *workspace = of(pack)->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!emulated_is_device_memory(workspace, WORKSPACE))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const bool spoiled = engine->nondeterministic;
    const CUresult queued =
        emulated_submit(((context *)handle)->stream, [graph, workspace, spoiled] {
            memset(workspace, 0x55, WORKSPACE);
            dnn_run_graph(*graph, spoiled);
        });
    return queued == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

} // extern "C"
