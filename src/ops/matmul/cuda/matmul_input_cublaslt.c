/* matmul_input_cublaslt.c - see matmul_input_cublaslt.h. */
#include "ops/matmul/cuda/matmul_input_cublaslt.h"

#include <string.h>

#include "backend/cuda/library_cublaslt.h"

/* The column-major y^T (n, m) = w (n, k) x^T (k, m). */
struct gd_input_product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algorithm;
    bool wide; /* f64 */
};

static bool describe_product(const gd_kernel_call *call, gd_input_product *p, gd_dtype dtype,
                             int64_t m, int64_t n, int64_t k) {
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const bool tf32 = dtype == GD_F32 && gd_cuda_tf32(call);
    return lt->cublasLtMatmulDescCreate(&p->operation,
                                        p->wide ? CUBLAS_COMPUTE_64F
                                        : tf32  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                : CUBLAS_COMPUTE_32F,
                                        p->wide ? CUDA_R_64F : CUDA_R_32F) == 0 &&
           lt->cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                              &transposed, sizeof transposed) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&p->w, gd_cuda_cublaslt_type(dtype), (uint64_t)k,
                                          (uint64_t)n, k) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&p->x, gd_cuda_cublaslt_type(dtype), (uint64_t)k,
                                          (uint64_t)m, k) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&p->y, p->wide ? CUDA_R_64F : CUDA_R_32F, (uint64_t)n,
                                          (uint64_t)m, n) == 0;
}

static uint32_t alignment_of(const void *address) {
    const uint64_t bits = (uintptr_t)address | 256;
    return (uint32_t)(bits & -bits);
}

static bool choose_algorithm(gd_input_product *p, const void *x, const void *w, size_t *workspace) {
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    const size_t most = 32 << 20;
    const uint32_t w_bytes = alignment_of(w), x_bytes = alignment_of(x);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    if (lt->cublasLtMatmulPreferenceCreate(&preference) != 0) return false;
    lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &most, sizeof most);
    lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                             &w_bytes, sizeof w_bytes);
    lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                             &x_bytes, sizeof x_bytes);
    const cublasStatus_t status = lt->cublasLtMatmulAlgoGetHeuristic(
        p->handle, p->operation, p->w, p->x, p->y, p->y, preference, 1, &found, &count);
    lt->cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count < 1) return false;
    p->algorithm = found.algo;
    *workspace = found.workspaceSize;
    return true;
}

gd_input_product *gd_input_product_new(const gd_kernel_call *call, gd_dtype dtype, int64_t m,
                                       int64_t n, int64_t k, size_t *workspace) {
    *workspace = 0;
    if (!gd_cuda_cublaslt() || k == 0) return NULL;
    gd_input_product *p = gd_cuda_host->allocate(sizeof *p);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->wide = dtype == GD_F64;
    p->handle = gd_cuda_cublaslt_handle(call->device);
    if (p->handle && describe_product(call, p, dtype, m, n, k) &&
        choose_algorithm(p, call->in[0].data, call->in[4].data, workspace))
        return p;
    gd_input_product_free(p);
    return NULL;
}

void gd_input_product_free(gd_input_product *p) {
    if (!p) return;
    const gd_cublaslt *lt = gd_cuda_cublaslt();
    if (p->operation) lt->cublasLtMatmulDescDestroy(p->operation);
    if (p->w) lt->cublasLtMatrixLayoutDestroy(p->w);
    if (p->x) lt->cublasLtMatrixLayoutDestroy(p->x);
    if (p->y) lt->cublasLtMatrixLayoutDestroy(p->y);
    gd_cuda_host->release(p);
}

gd_status gd_input_product_queue(const gd_kernel_call *call, const gd_input_product *p,
                                 const void *x, const void *w, void *y, void *workspace,
                                 size_t workspace_bytes) {
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const cublasStatus_t status = gd_cuda_cublaslt()->cublasLtMatmul(
        p->handle, p->operation, p->wide ? (const void *)&one : &one_f32, w, p->w, x, p->x,
        p->wide ? (const void *)&zero : &zero_f32, y, p->y, y, p->y, &p->algorithm, workspace,
        workspace_bytes, (cudaStream_t)gd_cuda_state_of(call->device)->streams[GD_QUEUE_COMPUTE]);
    if (status == CUBLAS_STATUS_SUCCESS) return GD_OK;
    return gd_cuda_host->fail(GD_E_DEVICE,
                              "%s: cuBLASLt failed with status %d for a recurrent layer",
                              call->device->name, (int)status);
}
