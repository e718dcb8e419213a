/* matmul_cublaslt.c - matrix products by cuBLASLt: matmul and linear.
 *
 * cuBLASLt computes with column-major matrices. A row-major y = a b is the column-major
 * y^T = b^T a^T, so b is its first operand and a its second. The bias is its epilogue; its ReLU is
 * not used, because it turns NaN into 0. A problem for which it has no algorithm is declined.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/library_cublaslt.h"
#include "ops/matmul/cuda/matmul_problem.h"

/* --- operands --------------------------------------------------------------------------------- */

/* An operand as cuBLASLt sees it: column-major with a leading dimension, or the transpose of one. */
typedef struct operand {
    bool transposed;
    int64_t rows, columns, leading; /* as stored */
    int64_t batch;
} operand;

/* The transpose of a row-major (rows, columns) matrix. False: neither stride is 1. */
static bool make_operand(const gd_product_matrix *x, int64_t rows, int64_t columns, operand *o) {
    *o = (operand){.batch = x->batch};
    const int64_t row = rows > 1 ? x->row : columns, column = columns > 1 ? x->column : 1;
    if (column == 1 && row >= columns) {
        o->rows = columns, o->columns = rows, o->leading = row;
        return true;
    }
    o->transposed = true;
    o->rows = rows, o->columns = columns, o->leading = columns > 1 ? x->column : rows;
    return (rows == 1 || x->row == 1) && o->leading >= rows;
}

typedef struct operands {
    operand first, second, result; /* b, a, y */
} operands;

static bool make_operands(const gd_product_problem *q, operands *o) {
    return make_operand(&q->b, q->k, q->n, &o->first) &&
           make_operand(&q->a, q->m, q->k, &o->second) &&
           make_operand(&q->y, q->m, q->n, &o->result) && !o->result.transposed;
}

/* --- the three ops ---------------------------------------------------------------------------- */

enum { MAX_LAUNCHES = 64 }; /* one for each matrix of the outer batch */

static bool match_problem(const gd_product_problem *q) {
    operands o;
    return q->batches <= INT32_MAX && q->outer_count <= MAX_LAUNCHES && q->a.batch >= 0 &&
           q->b.batch >= 0 && q->y.batch >= 0 && make_operands(q, &o);
}

static bool match_matmul(const gd_kernel_call *call) {
    gd_product_problem q;
    return gd_cuda_cublaslt() && gd_cuda_matmul_problem(call, &q) && match_problem(&q);
}

/* The bias of linear, or NULL. */
static const gd_view *bias_of(const gd_kernel_call *call) {
    return call->n_in > 2 && call->in[2].data ? &call->in[2] : NULL;
}

/* Epilogues exist for f32 and narrower types and one matrix; a bias is contiguous. */
static bool match_linear(const gd_kernel_call *call) {
    gd_product_problem q;
    const gd_view *bias = bias_of(call);
    return gd_cuda_cublaslt() && gd_cuda_linear_problem(call, &q) && match_problem(&q) &&
           q.dtype != GD_F64 && (!bias || bias->dims[0] == 1 || bias->strides[0] == 1);
}

/* --- preparation ------------------------------------------------------------------------------ */

typedef struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* b, a, y */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    gd_product_problem problem;
    bool has_bias;
} product;

static void free_product(product *p) {
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    if (p->operation) lt->cublasLtMatmulDescDestroy(p->operation);
    if (p->first) lt->cublasLtMatrixLayoutDestroy(p->first);
    if (p->second) lt->cublasLtMatrixLayoutDestroy(p->second);
    if (p->result) lt->cublasLtMatrixLayoutDestroy(p->result);
    gd_cuda_host->release(p);
}

static bool make_layout(const operand *o, const gd_product_problem *q,
                        cublasLtMatrixLayout_t *layout) {
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    const int32_t batches = (int32_t)q->batches;
    if (lt->cublasLtMatrixLayoutCreate(layout, gd_cuda_cublaslt_type(q->dtype), (uint64_t)o->rows,
                                       (uint64_t)o->columns, o->leading) != 0)
        return false;
    return batches == 1 ||
           (lt->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                 &batches, sizeof batches) == 0 &&
            lt->cublasLtMatrixLayoutSetAttribute(*layout,
                                                 CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &o->batch, sizeof o->batch) == 0);
}

static bool set_attribute(product *p, cublasLtMatmulDescAttributes_t name, const void *value,
                          size_t bytes) {
    return gd_cuda_cublaslt()->cublasLtMatmulDescSetAttribute(p->operation, name, value, bytes) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool make_operation(const gd_kernel_call *call, const operands *o, product *p) {
    const bool wide = p->problem.dtype == GD_F64,
               tf32 = p->problem.dtype == GD_F32 && gd_cuda_tf32(call);
    const cublasOperation_t first = o->first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = o->second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue =
        p->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (gd_cuda_cublaslt()->cublasLtMatmulDescCreate(&p->operation,
                                                     wide   ? CUBLAS_COMPUTE_64F
                                                     : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                            : CUBLAS_COMPUTE_32F,
                                                     wide ? CUDA_R_64F : CUDA_R_32F) != 0)
        return false;
    return set_attribute(p, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
           set_attribute(p, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
           set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!p->has_bias || set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                          &bias_of(call)->data, sizeof(void *)));
}

/* The alignment of all matrices of a batch. */
static uint32_t alignment_of(const void *address, const gd_product_matrix *x,
                             const gd_product_problem *q) {
    uint64_t bits = (uintptr_t)address | 256;
    const uint64_t size = gd_cuda_element_size(q->dtype);
    for (int i = 0; i < q->n_outer; i++) bits |= (uint64_t)x->outer[i] * size;
    return (uint32_t)(bits & -bits);
}

enum { MAX_WORKSPACE = 32 << 20 };

static cublasLtMatmulPreference_t make_preference(const gd_kernel_call *call, const product *p) {
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    const gd_product_problem *q = &p->problem;
    const size_t most = MAX_WORKSPACE;
    /* parts of a sum are never added in 16 bits */
    const uint32_t reductions =
        q->dtype == GD_F16 || q->dtype == GD_BF16
            ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
            : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE;
    const uint32_t first = alignment_of(call->in[1].data, &q->b, q),
                   second = alignment_of(call->in[0].data, &q->a, q),
                   result = alignment_of(call->out[0].data, &q->y, q),
                   bias = p->has_bias ? alignment_of(bias_of(call)->data, &q->y, q) : result,
                   stored = bias < result ? bias : result; /* the epilogue reads bias like y */
    cublasLtMatmulPreference_t made;
    if (lt->cublasLtMatmulPreferenceCreate(&made) != 0) return NULL;
#define SET(name, value)                                                                \
    lt->cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_##name, &value, \
                                             sizeof value)
    SET(MAX_WORKSPACE_BYTES, most);
    SET(REDUCTION_SCHEME_MASK, reductions);
    SET(MIN_ALIGNMENT_A_BYTES, first);
    SET(MIN_ALIGNMENT_B_BYTES, second);
    SET(MIN_ALIGNMENT_C_BYTES, result);
    SET(MIN_ALIGNMENT_D_BYTES, stored);
#undef SET
    return made;
}

/* The first heuristic: as fast as the best of many, and a pure function of the problem. */
static bool choose_algorithm(const gd_kernel_call *call, product *p, size_t *workspace) {
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    cublasLtMatmulPreference_t preference = make_preference(call, p);
    if (!preference) return false;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cublasStatus_t status =
        lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->first, p->second, p->result,
                                           p->result, preference, 1, &found, &count);
    lt->cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count < 1) return false;
    p->algorithm = found.algo;
    *workspace = p->workspace_bytes = found.workspaceSize;
    return true;
}

static gd_status prepare_product(const gd_kernel_call *call, const gd_product_problem *q,
                                 bool has_bias, void **prepared, size_t *workspace) {
    operands o;
    cublasLtHandle_t handle = gd_cuda_cublaslt_handle(call->device);
    if (!handle) return GD_E_DEVICE;
    product *p = gd_cuda_host->allocate(sizeof *p);
    if (!p) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare a product");
    memset(p, 0, sizeof *p);
    p->handle = handle;
    p->problem = *q;
    p->has_bias = has_bias;
    make_operands(q, &o);
    if (!make_operation(call, &o, p) || !make_layout(&o.first, q, &p->first) ||
        !make_layout(&o.second, q, &p->second) || !make_layout(&o.result, q, &p->result) ||
        !choose_algorithm(call, p, workspace)) {
        free_product(p);
        return GD_E_UNSUPPORTED;
    }
    *prepared = p;
    return GD_OK;
}

static gd_status prepare_matmul(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    gd_product_problem q;
    gd_cuda_matmul_problem(call, &q);
    return prepare_product(call, &q, false, prepared, workspace);
}
static gd_status prepare_linear(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    gd_product_problem q;
    gd_cuda_linear_problem(call, &q);
    return prepare_product(call, &q, bias_of(call) != NULL, prepared, workspace);
}

static void release_product(gd_device *d, void *prepared) {
    (void)d;
    free_product(prepared);
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* The offset, in bytes, of matrix number `index` of the outer batch. */
static int64_t outer_offset(const gd_product_problem *q, const gd_product_matrix *x,
                            int64_t index) {
    int64_t at = 0;
    for (int i = 0; i < q->n_outer; i++) { /* the innermost outer dim comes first */
        at += index % q->outer_dims[i] * x->outer[i];
        index /= q->outer_dims[i];
    }
    return at * (int64_t)gd_cuda_element_size(q->dtype);
}

static cublasStatus_t queue_product(const gd_kernel_call *call, const product *p, int64_t index) {
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const gd_product_problem *q = &p->problem;
    const bool wide = q->dtype == GD_F64;
    const char *a = (const char *)call->in[0].data + outer_offset(q, &q->a, index),
               *b = (const char *)call->in[1].data + outer_offset(q, &q->b, index);
    char *y = (char *)call->out[0].data + outer_offset(q, &q->y, index);
    return gd_cuda_cublaslt()->cublasLtMatmul(
        p->handle, p->operation, wide ? (const void *)&one : &one_f32, b, p->first, a, p->second,
        wide ? (const void *)&zero : &zero_f32, y, p->result, y, p->result, &p->algorithm,
        call->workspace, call->workspace_bytes,
        (cudaStream_t)gd_cuda_state_of(call->device)->streams[GD_QUEUE_COMPUTE]);
}

/* The device's lock is held, so that a product that several threads run has one bias at a time. */
static gd_status run_product(gd_kernel_call *call) {
    product *p = call->prepared;
    gd_status entered = gd_cuda_enter_context(call->device);
    if (entered != GD_OK) return entered;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (p->has_bias &&
        !set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_of(call)->data, sizeof(void *)))
        status = CUBLAS_STATUS_INVALID_VALUE;
    for (int64_t i = 0; i < p->problem.outer_count && status == CUBLAS_STATUS_SUCCESS; i++)
        status = queue_product(call, p, i);
    if (status == CUBLAS_STATUS_SUCCESS) return GD_OK;
    const gd_product_problem *q = &p->problem;
    return gd_cuda_host->fail(
        GD_E_DEVICE, "%s: cuBLASLt failed with status %d for the product (%lld, %lld) (%lld, %lld)",
        call->device->name, (int)status, (long long)q->m, (long long)q->k, (long long)q->k,
        (long long)q->n);
}

/* A number of the algorithm's configuration; -1: unknown. */
static int read_config(const product *p, cublasLtMatmulAlgoConfigAttributes_t name) {
    int32_t value = -1;
    size_t written;
    const cublasStatus_t status = gd_cuda_cublaslt()->cublasLtMatmulAlgoConfigGetAttribute(
        &p->algorithm, name, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS ? value : -1;
}

/* The tile is a cublasLtMatmulTile_t. */
static void describe_product(const gd_kernel_call *call, char *text, size_t size) {
    const product *p = call->prepared;
    char workspace[32], launches[32] = "";
    if (p->problem.outer_count > 1)
        snprintf(launches, sizeof launches, ", %lld launches", (long long)p->problem.outer_count);
    snprintf(text, size, "algorithm %d, tile %d, split %d%s%s",
             read_config(p, CUBLASLT_ALGO_CONFIG_ID), read_config(p, CUBLASLT_ALGO_CONFIG_TILE_ID),
             read_config(p, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), launches,
             gd_cuda_workspace_text(p->workspace_bytes, workspace, sizeof workspace));
}

/*kernel matmul.cublaslt, linear.cublaslt  rank 20  dtypes f16 bf16 f32 f64  run run_product
 *        match match_OP  prepare prepare_OP  release release_product  describe describe_product
 * cuBLASLt's first proposal for matrices with contiguous rows or columns; f32 in tf32 if that is
 * allowed.
 */

#include "ops/matmul/cuda/matmul_cublaslt.gen.h"
