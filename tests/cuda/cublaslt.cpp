/* cublaslt.cpp - an emulated cuBLASLt, libcublasLt.so.13: matrix products on the streams of the
 * emulated driver, with sums in double.
 *
 * It checks what the library requires: sizes and types that fit, pointers of the device, their
 * promised alignment, and the workspace. Heuristics propose one algorithm, which needs a workspace if
 * k is large. Products of i8 and f8, order other than columns, and pointer modes are not supported.
 */
#include <cublasLt.h>
#include <math.h>

#include <algorithm>
#include <vector>

#include "elements.h"
#include "submit.h"

namespace {

struct layout {
    element_type type;
    int64_t rows, columns, leading;
    int32_t batches;
    int64_t batch_stride;
};

struct operation {
    cublasComputeType_t compute;
    element_type scale;
    cublasOperation_t transposed[2]; /* of A and B */
    cublasLtEpilogue_t epilogue;
    const char *bias;
    int64_t bias_stride; /* between matrices of a batch */
    element_type bias_type;
    char *aux;
    int64_t aux_leading, aux_stride;
};

struct preference {
    uint64_t workspace;
    uint32_t alignment[4]; /* of A, B, C, D */
};

/* What an algorithm promises, in the bytes of cublasLtMatmulAlgo_t. */
struct algorithm {
    uint64_t magic, m, n, k, workspace;
    uint32_t alignment[3];
};
const uint64_t ALGORITHM_MAGIC = 0x616c676f72697468u;

element_type type_of(cudaDataType_t type) {
    switch (type) {
    case CUDA_R_64F: return ELEMENT_F64;
    case CUDA_R_32F: return ELEMENT_F32;
    case CUDA_R_16F: return ELEMENT_F16;
    case CUDA_R_16BF: return ELEMENT_BF16;
    default: return ELEMENT_NONE;
    }
}

bool has_bias(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_BIAS || e == CUBLASLT_EPILOGUE_RELU_AUX_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool is_relu(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_RELU_BIAS ||
           e == CUBLASLT_EPILOGUE_RELU_AUX || e == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
}
bool is_gelu(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_GELU || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool writes_aux(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_RELU_AUX || e == CUBLASLT_EPILOGUE_RELU_AUX_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool reads_aux(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_DRELU || e == CUBLASLT_EPILOGUE_DRELU_BGRAD ||
           e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}
/* The sum of the result over its columns, or of an operand, in the bias pointer. */
bool writes_bias(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_DRELU_BGRAD || e == CUBLASLT_EPILOGUE_DGELU_BGRAD ||
           e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB;
}
bool is_supported(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_DEFAULT || has_bias(e) || is_relu(e) || is_gelu(e) ||
           reads_aux(e) || writes_bias(e);
}

/* The tanh approximation, which cuBLASLt computes. */
double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
    const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(inner);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

struct problem {
    operation op;
    layout a, b, c, d;
    const char *A, *B, *C;
    char *D;
    double alpha, beta;
    int64_t m, n, k;
};

double element(const layout &x, const char *data, int64_t row, int64_t column) {
    return load_element(x.type, data + (row + column * x.leading) * (int64_t)element_bytes(x.type));
}
double operand(const layout &x, const char *data, cublasOperation_t op, int64_t i, int64_t j) {
    return op == CUBLAS_OP_N ? element(x, data, i, j) : element(x, data, j, i);
}
bool aux_bit(const char *aux, int64_t bit) { return aux[bit / 8] >> (bit % 8) & 1; }
void set_aux_bit(char *aux, int64_t bit, bool value) {
    aux[bit / 8] = (char)((aux[bit / 8] & ~(1 << bit % 8)) | (int)value << bit % 8);
}

/* One element of the result, after the epilogue. `aux` is a matrix of bits for ReLU, and of elements
 * for GELU. */
double finish_element(const problem &p, double x, int64_t i, int64_t j, const char *bias,
                      char *aux) {
    const cublasLtEpilogue_t e = p.op.epilogue;
    const int64_t at = i + j * p.op.aux_leading;
    char *value = aux + at * (int64_t)element_bytes(p.d.type);
    if (has_bias(e))
        x += load_element(p.op.bias_type, bias + i * (int64_t)element_bytes(p.op.bias_type));
    if (is_relu(e)) {
        if (writes_aux(e)) set_aux_bit(aux, at, x > 0);
        return x > 0 ? x : 0; /* 0 for NaN */
    }
    if (is_gelu(e)) {
        if (writes_aux(e)) store_element(p.d.type, value, x);
        return gelu(x);
    }
    if (e == CUBLASLT_EPILOGUE_DRELU || e == CUBLASLT_EPILOGUE_DRELU_BGRAD)
        return aux_bit(aux, at) ? x : 0;
    if (e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        return x * gelu_slope(load_element(p.d.type, value));
    return x;
}

/* Sums for gradients of biases: of the result's rows, of A's rows or of B's columns. */
void write_bias(const problem &p, const char *a, const char *b, const char *d, char *bias) {
    const cublasLtEpilogue_t e = p.op.epilogue;
    const int64_t count = e == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m,
                  terms =
                      e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB ? p.k : p.n;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t l = 0; l < terms; l++)
            sum += e == CUBLASLT_EPILOGUE_BGRADA   ? operand(p.a, a, p.op.transposed[0], i, l)
                   : e == CUBLASLT_EPILOGUE_BGRADB ? operand(p.b, b, p.op.transposed[1], l, i)
                                                   : element(p.d, d, i, l);
        store_element(p.op.bias_type, bias + i * (int64_t)element_bytes(p.op.bias_type), sum);
    }
}

void run_matrix(const problem &p, int64_t index) {
    auto at = [&](const char *data, const layout &x) {
        return data + index * x.batch_stride * (int64_t)element_bytes(x.type);
    };
    const char *a = at(p.A, p.a), *b = at(p.B, p.b), *c = p.C ? at(p.C, p.c) : nullptr;
    char *d = (char *)at(p.D, p.d);
    char *bias =
        (char *)p.op.bias + index * p.op.bias_stride * (int64_t)element_bytes(p.op.bias_type);
    char *aux = p.op.aux +
                (p.op.aux_stride ? index * p.op.aux_stride * (int64_t)element_bytes(p.d.type) : 0);
    std::vector<double> left((size_t)(p.m * p.k)), right((size_t)(p.k * p.n));
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t l = 0; l < p.k; l++)
            left[(size_t)(i * p.k + l)] = operand(p.a, a, p.op.transposed[0], i, l);
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t l = 0; l < p.k; l++)
            right[(size_t)(j * p.k + l)] = operand(p.b, b, p.op.transposed[1], l, j);
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t i = 0; i < p.m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < p.k; l++)
                sum += left[(size_t)(i * p.k + l)] * right[(size_t)(j * p.k + l)];
            sum *= p.alpha;
            if (p.beta != 0) sum += p.beta * element(p.c, c, i, j);
            store_element(p.d.type, d + (i + j * p.d.leading) * (int64_t)element_bytes(p.d.type),
                          finish_element(p, sum, i, j, bias, aux));
        }
    if (writes_bias(p.op.epilogue)) write_bias(p, a, b, d, bias);
}

/* --- checks --------------------------------------------------------------------------------------- */

bool find_sizes(const operation *op, const layout *a, const layout *b, const layout *c,
                const layout *d, problem *p) {
    const bool ta = op->transposed[0] != CUBLAS_OP_N, tb = op->transposed[1] != CUBLAS_OP_N;
    p->m = ta ? a->columns : a->rows;
    p->k = ta ? a->rows : a->columns;
    p->n = tb ? b->rows : b->columns;
    return p->k == (tb ? b->columns : b->rows) && d->rows == p->m && d->columns == p->n &&
           c->rows == p->m && c->columns == p->n && a->batches == b->batches &&
           a->batches == d->batches && c->batches == d->batches && p->m > 0 && p->n > 0 && p->k > 0;
}

bool types_fit(const operation *op, const layout *a, const layout *b, const layout *d) {
    const bool wide = op->compute == CUBLAS_COMPUTE_64F;
    if (a->type == ELEMENT_NONE || a->type != b->type) return false;
    if (wide != (a->type == ELEMENT_F64) || wide != (d->type == ELEMENT_F64)) return false;
    if (op->scale != (wide ? ELEMENT_F64 : ELEMENT_F32)) return false;
    return !wide || op->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
}

/* The bytes from the first to behind the last element of a batch. */
size_t span_of(const layout &x) {
    const int64_t last = (x.batches - 1) * x.batch_stride + (x.columns - 1) * x.leading + x.rows;
    return (size_t)last * element_bytes(x.type);
}

bool is_readable(const void *data, const layout &x, uint32_t alignment) {
    return emulated_is_device_memory(data, span_of(x)) && (uintptr_t)data % alignment == 0;
}

} // namespace

/* --- the functions of the library --------------------------------------------------------------- */

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    static int only;
    *handle = (cublasLtHandle_t)&only;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion(void) { return 130000; }

/* The backend creates descriptors by these functions, which the header declares. */
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *result, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    operation *op = new operation{};
    op->compute = compute;
    op->scale = type_of(scale);
    op->transposed[0] = op->transposed[1] = CUBLAS_OP_N;
    op->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    op->bias_type = ELEMENT_NONE;
    *result = (cublasLtMatmulDesc_t)op;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t op) {
    delete (operation *)op;
    return CUBLAS_STATUS_SUCCESS;
}

static bool take_value(void *to, size_t bytes, const void *from, size_t given) {
    if (given != bytes || !from) return false;
    memcpy(to, from, bytes);
    return true;
}
#define TAKE(field)                                                                  \
    return take_value(&(field), sizeof(field), value, bytes) ? CUBLAS_STATUS_SUCCESS \
                                                             : CUBLAS_STATUS_INVALID_VALUE

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    operation *op = (operation *)handle;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: TAKE(op->transposed[0]);
    case CUBLASLT_MATMUL_DESC_TRANSB: TAKE(op->transposed[1]);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: TAKE(op->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: TAKE(op->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: TAKE(op->bias_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: TAKE(op->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: TAKE(op->aux_leading);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: TAKE(op->aux_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: {
        cudaDataType_t type;
        if (!take_value(&type, sizeof type, value, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
        op->bias_type = type_of(type);
        return CUBLAS_STATUS_SUCCESS;
    }
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *result, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
    *result = (cublasLtMatrixLayout_t) new layout{
        type_of(type), (int64_t)rows, (int64_t)columns, leading, 1, 0};
    return leading < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
    delete (layout *)x;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes) {
    layout *x = (layout *)handle;
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: TAKE(x->batches);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: TAKE(x->batch_stride);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *result) {
    *result = (cublasLtMatmulPreference_t) new preference{0, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete (preference *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes) {
    preference *p = (preference *)handle;
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: TAKE(p->workspace);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: TAKE(p->alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: TAKE(p->alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: TAKE(p->alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: TAKE(p->alignment[3]);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return bytes == 4 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

enum { LONG_SUM = 512 }; /* sums of more terms need a workspace */

/* The only algorithm is number 7, with tile 15 (64x64). */
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    void *value, size_t bytes, size_t *written) {
    if (((const algorithm *)algo)->magic != ALGORITHM_MAGIC || bytes != 4)
        return CUBLAS_STATUS_INVALID_VALUE;
    const int32_t number = name == CUBLASLT_ALGO_CONFIG_ID           ? 7
                           : name == CUBLASLT_ALGO_CONFIG_TILE_ID    ? CUBLASLT_MATMUL_TILE_64x64
                           : name == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1
                                                                     : -1;
    memcpy(value, &number, sizeof number);
    *written = sizeof number;
    return number < 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preferred, int most,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *count) {
    problem p = {};
    const preference *wish = (preference *)preferred;
    *count = 0;
    if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (gradus_emulated_controls()->no_algorithm) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!find_sizes((operation *)op, (layout *)a, (layout *)b, (layout *)c, (layout *)d, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit((operation *)op, (layout *)a, (layout *)b, (layout *)d) ||
        !is_supported(((operation *)op)->epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm chosen = {ALGORITHM_MAGIC, (uint64_t)p.m, (uint64_t)p.n, (uint64_t)p.k, 0, {}};
    static_assert(sizeof chosen <= sizeof results->algo, "an algorithm has 64 bytes");
    if (p.k > LONG_SUM) chosen.workspace = (uint64_t)(p.m * p.n) * 4;
    if (chosen.workspace > wish->workspace) chosen.workspace = 0;
    for (int i = 0; i < 3; i++) chosen.alignment[i] = wish->alignment[i];
    chosen.alignment[2] = std::min(wish->alignment[2], wish->alignment[3]);
    *results = {};
    memcpy(&results->algo, &chosen, sizeof chosen);
    results->workspaceSize = chosen.workspace;
    results->state = CUBLAS_STATUS_SUCCESS;
    results->wavesCount = 1;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream) {
    if (!handle || !op || !algo) return CUBLAS_STATUS_INVALID_VALUE;
    if (gradus_emulated_controls()->failing_library) return CUBLAS_STATUS_EXECUTION_FAILED;
    problem p = {*(operation *)op, *(layout *)a,    *(layout *)b,    *(layout *)c, *(layout *)d,
                 (const char *)A,  (const char *)B, (const char *)C, (char *)D};
    algorithm chosen;
    memcpy(&chosen, algo, sizeof chosen);
    if (!find_sizes(&p.op, &p.a, &p.b, &p.c, &p.d, &p) || chosen.magic != ALGORITHM_MAGIC ||
        chosen.m != (uint64_t)p.m || chosen.n != (uint64_t)p.n || chosen.k != (uint64_t)p.k)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_readable(A, p.a, chosen.alignment[0]) || !is_readable(B, p.b, chosen.alignment[1]) ||
        !is_readable(D, p.d, chosen.alignment[2]))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes < chosen.workspace ||
        (chosen.workspace && !emulated_is_device_memory(workspace, chosen.workspace)))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.alpha = load_element(p.op.scale, alpha);
    p.beta = load_element(p.op.scale, beta);
    if (p.op.bias_type == ELEMENT_NONE) p.op.bias_type = p.d.type;
    const int64_t biases = p.op.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
    if ((has_bias(p.op.epilogue) || writes_bias(p.op.epilogue)) &&
        !emulated_is_device_memory(p.op.bias, (size_t)biases * element_bytes(p.op.bias_type)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((writes_aux(p.op.epilogue) || reads_aux(p.op.epilogue)) &&
        (!emulated_is_device_memory(p.op.aux, 1) || p.op.aux_leading < p.m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.beta != 0 && !is_readable(C, p.c, 1)) return CUBLAS_STATUS_INVALID_VALUE;
    const CUresult queued = emulated_submit((CUstream)stream, [p, workspace, chosen] {
        if (chosen.workspace) memset(workspace, 0x55, chosen.workspace); /* it is really used */
        for (int64_t i = 0; i < p.d.batches; i++) run_matrix(p, i);
    });
    return queued == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
