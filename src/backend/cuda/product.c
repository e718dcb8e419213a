/* product.c - matrix products by cuBLASLt.
 *
 * cuBLASLt computes with column-major matrices. A row-major y = a b is the column-major
 * y^T = b^T a^T, so b is its first operand and a its second.
 */
#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/library.h"

/* --- the library ------------------------------------------------------------------------------ */

/* clang-format off */
#define CUBLASLT_FUNCTIONS(X) \
    X(cublasLtCreate) X(cublasLtMatmul) \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)
/* clang-format on */

#define POINTER(name) __typeof__(&name) name;
static struct { CUBLASLT_FUNCTIONS(POINTER) } lt;
#undef POINTER

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    void *library = gd_cuda_open_library(names);
    loaded = library != NULL;
#define LOAD(name)                                          \
    if (loaded) *(void **)&lt.name = dlsym(library, #name); \
    loaded = loaded && lt.name;
    CUBLASLT_FUNCTIONS(LOAD)
#undef LOAD
}

static bool has_library(void) {
    pthread_once(&once, load_library);
    return loaded;
}

static cublasLtHandle_t handles[GD_CUDA_DEVICES];
static pthread_mutex_t handle_lock = PTHREAD_MUTEX_INITIALIZER;

/* The handle of a device; NULL, with the failure set, if it cannot be created. */
static cublasLtHandle_t handle_of(gd_device *d) {
    cublasLtHandle_t *handle = &handles[gd_cuda_state_of(d)->index];
    if (gd_cuda_enter_context(d) != GD_OK) return NULL;
    pthread_mutex_lock(&handle_lock);
    if (!*handle && lt.cublasLtCreate(handle) != CUBLAS_STATUS_SUCCESS) {
        *handle = NULL;
        gd_cuda_host->fail(GD_E_DEVICE, "%s: cuBLASLt cannot be initialized", d->name);
    }
    pthread_mutex_unlock(&handle_lock);
    return *handle;
}

/* --- problems --------------------------------------------------------------------------------- */

/* A matrix or a batch of them: element (n, i, j) is at n * batch + i * row + j * column. */
typedef struct matrix {
    int64_t row, column, batch;
} matrix;

typedef struct problem {
    gd_dtype dtype;
    int64_t m, n, k, batches; /* y (m, n) = a (m, k) b (k, n) */
    matrix a, b, y;
} problem;

/* The stride of a batch that is a single dim, or several that are evenly spaced; -1: they are not.
 * `dims` are the batch dims of the result. A broadcast operand has stride 0. */
static int64_t batch_stride(const gd_view *v, int matrix_dims, int rank, const int64_t *dims) {
    int64_t stride = 0, span = 1; /* of the dims so far, from the last to the first */
    bool any = false;
    for (int d = rank; d-- > 0; span *= dims[d]) {
        const int k = d - rank + v->rank - matrix_dims;
        const int64_t own = k >= 0 && v->dims[k] > 1 ? v->strides[k] : 0;
        if (dims[d] == 1) continue;
        if (!any) stride = own;
        else if (own != stride * span) return -1;
        any = true;
    }
    return any ? stride : 0;
}

static bool describe_problem(const gd_kernel_call *call, problem *p) {
    const gd_view *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const int left = a->rank > 1 ? 2 : 1, right = b->rank > 1 ? 2 : 1;
    const int batch_rank = y->rank - (left - 1) - (right - 1);
    *p = (problem){.dtype = y->dtype, .batches = 1};
    if (!gd_cuda_is_float(y->dtype) || a->dtype != y->dtype || b->dtype != y->dtype) return false;
    p->k = a->dims[a->rank - 1];
    p->m = left == 2 ? a->dims[a->rank - 2] : 1;
    p->n = right == 2 ? b->dims[b->rank - 1] : 1;
    for (int d = 0; d < batch_rank; d++) p->batches *= y->dims[d];
    p->a = (matrix){left == 2 ? a->strides[a->rank - 2] : 0, a->strides[a->rank - 1],
                    batch_stride(a, left, batch_rank, y->dims)};
    p->b = (matrix){b->strides[b->rank - right], right == 2 ? b->strides[b->rank - 1] : 0,
                    batch_stride(b, right, batch_rank, y->dims)};
    const int matrix_dims = left - 1 + right - 1;
    p->y =
        (matrix){left == 2 ? y->strides[batch_rank] : 0, right == 2 ? y->strides[y->rank - 1] : 0,
                 batch_stride(y, matrix_dims, batch_rank, y->dims)};
    if (p->m == 1) p->a.row = p->k, p->y.row = p->n;
    if (p->n == 1) p->b.column = 1, p->y.column = 1;
    if (p->k == 1) p->a.column = 1;
    return p->m > 0 && p->n > 0 && p->k > 0 && p->batches > 0 && p->a.batch >= 0 &&
           p->b.batch >= 0 && p->y.batch >= 0;
}

/* An operand as cuBLASLt sees it: column-major with a leading dimension, or the transpose of one. */
typedef struct operand {
    bool transposed;
    int64_t rows, columns, leading; /* as stored */
    int64_t batch;
} operand;

/* The transpose of a row-major (rows, columns) matrix. False: neither stride is 1. */
static bool make_operand(const matrix *x, int64_t rows, int64_t columns, operand *o) {
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

/* --- preparation ------------------------------------------------------------------------------ */

typedef struct product {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* b, a, y */
    cublasLtMatmulAlgo_t algorithm;
    bool wide; /* f64 */
} product;

static cudaDataType type_of(gd_dtype dtype) {
    return dtype == GD_F64    ? CUDA_R_64F
           : dtype == GD_F32  ? CUDA_R_32F
           : dtype == GD_BF16 ? CUDA_R_16BF
                              : CUDA_R_16F;
}

static void free_product(product *p) {
    if (p->operation) lt.cublasLtMatmulDescDestroy(p->operation);
    if (p->first) lt.cublasLtMatrixLayoutDestroy(p->first);
    if (p->second) lt.cublasLtMatrixLayoutDestroy(p->second);
    if (p->result) lt.cublasLtMatrixLayoutDestroy(p->result);
    gd_cuda_host->release(p);
}

static bool make_layout(const operand *o, const problem *q, cublasLtMatrixLayout_t *layout) {
    const int32_t batches = (int32_t)q->batches;
    return lt.cublasLtMatrixLayoutCreate(layout, type_of(q->dtype), (uint64_t)o->rows,
                                         (uint64_t)o->columns, o->leading) == 0 &&
           lt.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                               &batches, sizeof batches) == 0 &&
           lt.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &o->batch, sizeof o->batch) == 0;
}

static bool make_operation(const operand *first, const operand *second, const problem *q,
                           cublasLtMatmulDesc_t *operation) {
    const bool wide = q->dtype == GD_F64;
    const cublasOperation_t ops[] = {first->transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                                     second->transposed ? CUBLAS_OP_T : CUBLAS_OP_N};
    return lt.cublasLtMatmulDescCreate(operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                       wide ? CUDA_R_64F : CUDA_R_32F) == 0 &&
           lt.cublasLtMatmulDescSetAttribute(*operation, CUBLASLT_MATMUL_DESC_TRANSA, &ops[0],
                                             sizeof ops[0]) == 0 &&
           lt.cublasLtMatmulDescSetAttribute(*operation, CUBLASLT_MATMUL_DESC_TRANSB, &ops[1],
                                             sizeof ops[1]) == 0;
}

static uint32_t alignment_of(const void *p) {
    const uint32_t bit = (uint32_t)((uintptr_t)p & -(uintptr_t)p);
    return bit == 0 || bit > 256 ? 256 : bit;
}

enum { MAX_WORKSPACE = 32 << 20 };

/* The first heuristic: as fast as the best of many, and a pure function of the problem. */
static bool choose_algorithm(cublasLtHandle_t handle, const gd_kernel_call *call, product *p,
                             size_t *workspace) {
    cublasLtMatmulPreference_t preference;
    const size_t most = MAX_WORKSPACE;
    const uint32_t aligned[] = {alignment_of(call->in[1].data), alignment_of(call->in[0].data),
                                alignment_of(call->out[0].data)};
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    if (lt.cublasLtMatmulPreferenceCreate(&preference) != 0) return false;
    lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &most, sizeof most);
    for (int i = 0; i < 3; i++)
        lt.cublasLtMatmulPreferenceSetAttribute(preference, names[i], &aligned[i],
                                                sizeof aligned[i]);
    lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                            &aligned[2], sizeof aligned[2]);
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cublasStatus_t status =
        lt.cublasLtMatmulAlgoGetHeuristic(handle, p->operation, p->first, p->second, p->result,
                                          p->result, preference, 1, &found, &count);
    lt.cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count < 1) return false;
    p->algorithm = found.algo;
    *workspace = found.workspaceSize;
    return true;
}

static bool match_product(const gd_kernel_call *call) {
    problem q;
    operand first, second, result;
    return has_library() && describe_problem(call, &q) && q.batches <= INT32_MAX &&
           make_operand(&q.b, q.k, q.n, &first) && make_operand(&q.a, q.m, q.k, &second) &&
           make_operand(&q.y, q.m, q.n, &result) && !result.transposed;
}

static gd_status prepare_product(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    problem q;
    operand first, second, result;
    cublasLtHandle_t handle = handle_of(call->device);
    if (!handle) return GD_E_DEVICE;
    product *p = gd_cuda_host->allocate(sizeof *p);
    if (!p) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare a product");
    memset(p, 0, sizeof *p);
    describe_problem(call, &q);
    make_operand(&q.b, q.k, q.n, &first);
    make_operand(&q.a, q.m, q.k, &second);
    make_operand(&q.y, q.m, q.n, &result);
    p->wide = q.dtype == GD_F64;
    if (make_operation(&first, &second, &q, &p->operation) && make_layout(&first, &q, &p->first) &&
        make_layout(&second, &q, &p->second) && make_layout(&result, &q, &p->result) &&
        choose_algorithm(handle, call, p, workspace)) {
        *prepared = p;
        return GD_OK;
    }
    free_product(p);
    return gd_cuda_host->fail(GD_E_UNSUPPORTED,
                              "cuBLASLt has no algorithm for the product (%lld, %lld) (%lld, %lld)",
                              (long long)q.m, (long long)q.k, (long long)q.k, (long long)q.n);
}

static void release_product(gd_device *d, void *prepared) {
    (void)d;
    free_product(prepared);
}

/* --- the kernel ------------------------------------------------------------------------------- */

static gd_status run_product(gd_kernel_call *call) {
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const product *p = call->prepared;
    const void *alpha = p->wide ? (const void *)&one : &one_f32,
               *beta = p->wide ? (const void *)&zero : &zero_f32;
    gd_cuda_state *s = gd_cuda_state_of(call->device);
    cublasLtHandle_t handle = handle_of(call->device);
    if (!handle) return GD_E_DEVICE;
    const cublasStatus_t status = lt.cublasLtMatmul(
        handle, p->operation, alpha, call->in[1].data, p->first, call->in[0].data, p->second, beta,
        call->out[0].data, p->result, call->out[0].data, p->result, &p->algorithm, call->workspace,
        call->workspace_bytes, (cudaStream_t)s->streams[GD_QUEUE_COMPUTE]);
    return status == CUBLAS_STATUS_SUCCESS
               ? GD_OK
               : gd_cuda_host->fail(GD_E_DEVICE, "%s: cuBLASLt failed with status %d",
                                    call->device->name, (int)status);
}

GD_CUDA_ADD(product_kernel, {.op = "matmul",
                             .variant = "cublaslt",
                             .device = "cuda",
                             .rank = 20,
                             .match = match_product,
                             .run = run_product,
                             .prepare = prepare_product,
                             .release = release_product})
