/* attention_cudnn.c - attention in f16 and bf16 by cuDNN, which fuses a graph of this form into one
 * kernel. Problems without an engine are declined. */
#include <float.h>
#include <math.h>

#include "ops/attention/cuda/attention.h"
#include "backend/cuda/graph_cudnn.h"
#include "gradus/ops.h"

typedef cudnnBackendDescriptor_t descriptor;

enum { RANK = 4 };

/* q, y (B, H, L, D); k, v (B, H, S, D). */
typedef struct problem {
    int64_t batch, heads, rows, columns, width;
    cudnnDataType_t dtype;
    float scale;
    bool causal;
} problem;

enum {
    ID_Q = 1,
    ID_K,
    ID_V,
    ID_Y,
    ID_LSE,
    ID_GY,
    ID_GQ,
    ID_GK,
    ID_GV,
    ID_INNER,
    ID_SCALE,
    ID_MASKED,
    ID_ONE,
    ID_VIRTUAL
};

/* The scalars that the graph takes by value. */
static const float masked_score = -FLT_MAX, one = 1;

/* --- problems --------------------------------------------------------------------------------- */

static bool has_rows(const gd_view *v) {
    bool fits = v->rank == RANK && v->strides[3] == 1;
    for (int d = 0; d < 3 && fits; d++)
        fits = v->dims[d] == 1 || (v->strides[d] > 0 && v->strides[d] % 8 == 0);
    return fits;
}

/* Sequences are multiples of 128: older versions of cuDNN access memory beyond the end of others.
 * A mask, dropout and heads that share k and v are left to the other kernels. */
static bool describe_problem(const gd_kernel_call *call, int mask_at, bool causal, double scale,
                             problem *p) {
    const gd_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    if (!has_rows(q) || !has_rows(k) || !has_rows(v)) return false;
    for (int i = mask_at; i < call->n_in; i++)
        if (call->in[i].data) return false;
    *p = (problem){.batch = q->dims[0],
                   .heads = q->dims[1],
                   .rows = q->dims[2],
                   .columns = k->dims[2],
                   .width = q->dims[3]};
    p->dtype = gd_dnn_type(q->dtype);
    p->scale = (float)(isnan(scale) ? 1 / sqrt((double)p->width) : scale);
    p->causal = causal;
    return k->dims[0] == p->batch && v->dims[0] == p->batch && k->dims[1] == p->heads &&
           v->dims[1] == p->heads && v->dims[3] == p->width && p->width % 8 == 0 && p->width > 0 &&
           p->width <= 128 && p->batch > 0 && p->heads > 0 && p->rows > 0 && p->columns > 0 &&
           p->rows % 128 == 0 && p->columns % 128 == 0 &&
           p->batch * p->heads * p->rows * p->width <= INT32_MAX &&
           p->batch * p->heads * p->columns * p->width <= INT32_MAX;
}

/* --- graphs ----------------------------------------------------------------------------------- */

typedef struct builder {
    gd_dnn_graph graph;
    const problem *p;
    int64_t next_id;
} builder;

static descriptor add_operand(builder *b, int64_t id, const gd_view *v) {
    gd_dnn_tensor t = {.id = id, .dtype = b->p->dtype, .rank = RANK};
    for (int d = 0; d < RANK; d++) t.dims[d] = v->dims[d], t.strides[d] = v->strides[d];
    return gd_dnn_add_tensor(&b->graph, &t);
}
static descriptor add_transposed(builder *b, int64_t id, const gd_view *v) {
    gd_view transposed = *v;
    transposed.dims[2] = v->dims[3], transposed.dims[3] = v->dims[2];
    transposed.strides[2] = v->strides[3], transposed.strides[3] = v->strides[2];
    return add_operand(b, id, &transposed);
}

/* A value for each row: (B, H, L, 1). */
static descriptor add_row_floats(builder *b, int64_t id) {
    const problem *p = b->p;
    const gd_dnn_tensor t = {.id = id ? id : b->next_id++,
                             .dtype = CUDNN_DATA_FLOAT,
                             .rank = RANK,
                             .dims = {p->batch, p->heads, p->rows, 1},
                             .strides = {p->heads * p->rows, p->rows, 1, 1},
                             .is_virtual = id == 0};
    return gd_dnn_add_tensor(&b->graph, &t);
}
static descriptor add_scalar(builder *b, int64_t id) {
    const gd_dnn_tensor t = {.id = id,
                             .dtype = CUDNN_DATA_FLOAT,
                             .rank = RANK,
                             .dims = {1, 1, 1, 1},
                             .strides = {1, 1, 1, 1},
                             .by_value = true};
    return gd_dnn_add_tensor(&b->graph, &t);
}
/* A virtual matrix (B, H, L, S), or the transpose of one. */
static descriptor add_scores(builder *b, cudnnDataType_t dtype, bool transposed) {
    const problem *p = b->p;
    const int64_t matrix = p->rows * p->columns;
    gd_dnn_tensor t = {.id = b->next_id++,
                       .dtype = dtype,
                       .rank = RANK,
                       .dims = {p->batch, p->heads, p->rows, p->columns},
                       .strides = {p->heads * matrix, matrix, p->columns, 1},
                       .is_virtual = true};
    if (transposed) {
        t.dims[2] = p->columns, t.dims[3] = p->rows;
        t.strides[2] = 1, t.strides[3] = p->columns;
    }
    return gd_dnn_add_tensor(&b->graph, &t);
}

static descriptor compute_scores(builder *b, cudnnPointwiseMode_t mode, descriptor x,
                                 descriptor operand, cudnnDataType_t dtype) {
    descriptor y = add_scores(b, dtype, false);
    gd_dnn_add_pointwise(&b->graph, mode, CUDNN_DATA_FLOAT, x, operand, y);
    return y;
}

/* The index of each element along an axis. */
static descriptor add_index(builder *b, descriptor x, int64_t axis) {
    gd_dnn_graph *g = &b->graph;
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
    descriptor y = add_scores(b, CUDNN_DATA_INT32, false);
    descriptor settings = gd_dnn_add_descriptor(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    gd_dnn_set(g, settings, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    gd_dnn_set_type(g, settings, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_INT32);
    gd_dnn_set_integer(g, settings, CUDNN_ATTR_POINTWISE_AXIS, axis);
    gd_dnn_finalize(g, settings);
    descriptor op = gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    gd_dnn_add_operation(g, op);
    return y;
}

/* x where the predicate is true, b elsewhere. */
static descriptor add_select(builder *b, descriptor x, descriptor other, descriptor predicate) {
    gd_dnn_graph *g = &b->graph;
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_BINARY_SELECT;
    descriptor y = add_scores(b, CUDNN_DATA_FLOAT, false);
    descriptor settings = gd_dnn_add_descriptor(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    gd_dnn_set(g, settings, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    gd_dnn_set_type(g, settings, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    gd_dnn_finalize(g, settings);
    descriptor op = gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, predicate);
    gd_dnn_add_operation(g, op);
    return y;
}

static void add_reshape(builder *b, descriptor x, descriptor y) {
    gd_dnn_graph *g = &b->graph;
    descriptor op = gd_dnn_add_descriptor(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    gd_dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    gd_dnn_add_operation(g, op);
}

/* Minus infinity, nearly, where the column is greater than the row. */
static descriptor mask_scores(builder *b, descriptor scores) {
    if (!b->p->causal) return scores;
    descriptor row = add_index(b, scores, 2), column = add_index(b, scores, 3),
               seen = add_scores(b, CUDNN_DATA_BOOLEAN, false);
    gd_dnn_add_pointwise(&b->graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, column, seen);
    return add_select(b, scores, add_scalar(b, ID_MASKED), seen);
}

/* softmax(scale q k^T) v, and the log-sum-exp of its rows. */
static void describe_forward(builder *b, const gd_kernel_call *call) {
    gd_dnn_graph *g = &b->graph;
    const cudnnDataType_t wide = CUDNN_DATA_FLOAT;
    descriptor q = add_operand(b, ID_Q, &call->in[0]), k = add_transposed(b, ID_K, &call->in[1]),
               v = add_operand(b, ID_V, &call->in[2]), y = add_operand(b, ID_Y, &call->out[0]);
    descriptor scores = add_scores(b, wide, false);
    gd_dnn_add_matmul(g, wide, q, k, scores);
    scores = compute_scores(b, CUDNN_POINTWISE_MUL, scores, add_scalar(b, ID_SCALE), wide);
    scores = mask_scores(b, scores);
    descriptor most = add_row_floats(b, 0), sum = add_row_floats(b, 0), log = add_row_floats(b, 0);
    gd_dnn_add_reduction(g, CUDNN_REDUCE_TENSOR_MAX, wide, scores, most);
    scores = compute_scores(b, CUDNN_POINTWISE_SUB, scores, most, wide);
    scores = compute_scores(b, CUDNN_POINTWISE_EXP, scores, NULL, wide);
    gd_dnn_add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, wide, scores, sum);
    gd_dnn_add_pointwise(g, CUDNN_POINTWISE_LOG, wide, sum, NULL, log);
    gd_dnn_add_pointwise(g, CUDNN_POINTWISE_ADD, wide, most, log, add_row_floats(b, ID_LSE));
    scores = compute_scores(b, CUDNN_POINTWISE_DIV, scores, sum, b->p->dtype);
    gd_dnn_add_matmul(g, wide, scores, v, y);
}

/* The gradients. MATMUL writes gq directly, which is deterministic; with an f32 accumulator between
 * them it would not be. */
static void describe_backward(builder *b, const gd_kernel_call *call) {
    gd_dnn_graph *g = &b->graph;
    const problem *p = b->p;
    const cudnnDataType_t wide = CUDNN_DATA_FLOAT;
    const gd_view *keys = &call->in[1];
    descriptor q = add_operand(b, ID_Q, &call->in[0]), k = add_transposed(b, ID_K, keys),
               v = add_transposed(b, ID_V, &call->in[2]), y = add_operand(b, ID_Y, &call->in[3]),
               gy = add_operand(b, ID_GY, &call->in[5]), lse = add_row_floats(b, ID_LSE),
               scale = add_scalar(b, ID_SCALE);
    /* the sums of gy y */
    const gd_dnn_tensor products = {
        .id = b->next_id++,
        .dtype = wide,
        .rank = RANK,
        .dims = {p->batch, p->heads, p->rows, p->width},
        .strides = {p->heads * p->rows * p->width, p->rows * p->width, p->heads * p->width, 1},
        .is_virtual = true};
    descriptor product = gd_dnn_add_tensor(g, &products), sum = add_row_floats(b, 0),
               inner = add_row_floats(b, ID_INNER);
    gd_dnn_add_pointwise(g, CUDNN_POINTWISE_MUL, wide, gy, y, product);
    gd_dnn_add_reduction(g, CUDNN_REDUCE_TENSOR_ADD, wide, product, sum);
    gd_dnn_add_pointwise(g, CUDNN_POINTWISE_MUL, wide, sum, add_scalar(b, ID_ONE), inner);
    /* the weights, and gv */
    descriptor weights = add_scores(b, wide, false), transposed = add_scores(b, p->dtype, true);
    gd_dnn_add_matmul(g, wide, q, k, weights);
    weights = compute_scores(b, CUDNN_POINTWISE_MUL, weights, scale, wide);
    weights = compute_scores(b, CUDNN_POINTWISE_SUB, weights, lse, wide);
    weights = mask_scores(b, weights);
    weights = compute_scores(b, CUDNN_POINTWISE_EXP, weights, NULL, wide);
    add_reshape(b, weights, transposed);
    gd_dnn_add_matmul(g, wide, transposed, gy, add_operand(b, ID_GV, &call->out[2]));
    /* the gradients of the scores, and gk */
    descriptor gradients = add_scores(b, wide, false), g_transposed = add_scores(b, p->dtype, true);
    gd_dnn_add_matmul(g, wide, gy, v, gradients);
    gradients = compute_scores(b, CUDNN_POINTWISE_SUB, gradients, inner, wide);
    gradients = compute_scores(b, CUDNN_POINTWISE_MUL, gradients, weights, wide);
    gradients = compute_scores(b, CUDNN_POINTWISE_MUL, gradients, scale, wide);
    add_reshape(b, gradients, g_transposed);
    gd_dnn_add_matmul(g, wide, g_transposed, q, add_operand(b, ID_GK, &call->out[1]));
    /* gq */
    gd_dnn_tensor rows = {.id = b->next_id++, .dtype = p->dtype, .rank = RANK, .is_virtual = true};
    for (int d = 0; d < RANK; d++) rows.dims[d] = keys->dims[d], rows.strides[d] = keys->strides[d];
    descriptor key_rows = gd_dnn_add_tensor(g, &rows);
    add_reshape(b, k, key_rows);
    gd_dnn_add_matmul(g, wide, gradients, key_rows, add_operand(b, ID_GQ, &call->out[0]));
}

/* --- kernels ---------------------------------------------------------------------------------- */

typedef struct attention_plan {
    gd_dnn_plan *plan;
    float scale;
    size_t row_floats_offset; /* of a value for each row, in the workspace */
} attention_plan;

static bool is_aligned(const gd_view *v) { return gd_cuda_is_aligned(v->data); }

static gd_status prepare_plan(const gd_kernel_call *call, const problem *p, bool backward,
                              void **prepared, size_t *workspace) {
    /* gradients of all weights, for deterministic sums */
    const gd_dnn_choice choice = {.workspace_bytes = backward ? 1 << 29 : 1 << 25};
    attention_plan *a = gd_cuda_host->allocate(sizeof *a);
    builder *b = gd_cuda_host->allocate(sizeof *b);
    gd_status status = GD_OK;
    if (!a || !b) status = gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare attention");
    if (status == GD_OK) {
        *a = (attention_plan){.scale = p->scale};
        gd_dnn_begin_graph(&b->graph);
        b->p = p;
        b->next_id = ID_VIRTUAL;
        if (backward) describe_backward(b, call);
        else describe_forward(b, call);
        status = gd_dnn_make_plan(call->device, &b->graph, &choice, &a->plan);
    }
    if (b) gd_cuda_host->release(b);
    if (status == GD_OK && !a->plan) status = GD_E_UNSUPPORTED;
    if (status != GD_OK) {
        if (a) gd_cuda_host->release(a);
        return status;
    }
    a->row_floats_offset = (a->plan->workspace_bytes + 255) & ~(size_t)255;
    *workspace = a->row_floats_offset + sizeof(float) * (size_t)(p->batch * p->heads * p->rows);
    *prepared = a;
    return GD_OK;
}

static void release_plan(gd_device *d, void *prepared) {
    attention_plan *a = prepared;
    (void)d;
    gd_dnn_free_plan(a->plan);
    gd_cuda_host->release(a);
}

static void describe_plan(const gd_kernel_call *call, char *text, size_t size) {
    gd_dnn_describe_plan(((const attention_plan *)call->prepared)->plan, text, size);
}

static bool match_forward(const gd_kernel_call *call) {
    const gd_attention_forward_options *o = call->attrs;
    problem p;
    return gd_cuda_has_dnn() && gd_cuda_match_attention(call) &&
           describe_problem(call, 3, o->causal, o->scale, &p) && has_rows(&call->out[0]) &&
           gd_cuda_is_contiguous(&call->out[1]);
}

static gd_status prepare_forward(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    const gd_attention_forward_options *o = call->attrs;
    problem p;
    if (!is_aligned(&call->in[0]) || !is_aligned(&call->in[1]) || !is_aligned(&call->in[2]) ||
        !is_aligned(&call->out[0]))
        return GD_E_UNSUPPORTED;
    describe_problem(call, 3, o->causal, o->scale, &p);
    return prepare_plan(call, &p, false, prepared, workspace);
}

static gd_status run_forward(gd_kernel_call *call) {
    const attention_plan *a = call->prepared;
    const gd_view *in = call->in, *out = call->out;
    void *lse = out[1].data ? out[1].data : (char *)call->workspace + a->row_floats_offset;
    const int64_t ids[] = {ID_Q, ID_K, ID_V, ID_Y, ID_LSE, ID_SCALE, ID_MASKED};
    void *const pointers[] = {in[0].data,
                              in[1].data,
                              in[2].data,
                              out[0].data,
                              lse,
                              (void *)(uintptr_t)&a->scale,
                              (void *)(uintptr_t)&masked_score};
    const gd_attention_forward_options *o = call->attrs;
    return gd_dnn_run_plan(call->device, a->plan, o->causal ? 7 : 6, ids, pointers,
                           call->workspace);
}

static bool match_grad(const gd_kernel_call *call) {
    const gd_attention_grad_options *o = call->attrs;
    problem p;
    if (!gd_cuda_has_dnn() || !gd_cuda_match_attention_grad(call) ||
        !describe_problem(call, 6, o->causal, o->scale, &p) || !has_rows(&call->in[3]) ||
        !gd_cuda_is_contiguous(&call->in[4]) || !has_rows(&call->in[5]))
        return false;
    for (int i = 0; i < 3; i++)
        if (!has_rows(&call->out[i])) return false;
    return true;
}

static gd_status prepare_grad(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    const gd_attention_grad_options *o = call->attrs;
    problem p;
    for (int i = 0; i < 6; i++)
        if (!is_aligned(&call->in[i])) return GD_E_UNSUPPORTED;
    for (int i = 0; i < 3; i++) /* the graph computes all three gradients */
        if (!call->out[i].data || !is_aligned(&call->out[i])) return GD_E_UNSUPPORTED;
    describe_problem(call, 6, o->causal, o->scale, &p);
    return prepare_plan(call, &p, true, prepared, workspace);
}

static gd_status run_grad(gd_kernel_call *call) {
    const attention_plan *a = call->prepared;
    const gd_view *in = call->in, *out = call->out;
    const int64_t ids[] = {ID_Q,  ID_K,  ID_V,     ID_Y,     ID_LSE, ID_GY,    ID_GQ,
                           ID_GK, ID_GV, ID_INNER, ID_SCALE, ID_ONE, ID_MASKED};
    void *const pointers[] = {in[0].data,
                              in[1].data,
                              in[2].data,
                              in[3].data,
                              in[4].data,
                              in[5].data,
                              out[0].data,
                              out[1].data,
                              out[2].data,
                              (char *)call->workspace + a->row_floats_offset,
                              (void *)(uintptr_t)&a->scale,
                              (void *)(uintptr_t)&one,
                              (void *)(uintptr_t)&masked_score};
    const gd_attention_grad_options *o = call->attrs;
    return gd_dnn_run_plan(call->device, a->plan, o->causal ? 13 : 12, ids, pointers,
                           call->workspace);
}

/*kernel attention_forward.cudnn  rank 20  dtypes f16 bf16  strided  run run_forward
 *        match match_forward  prepare prepare_forward  release release_plan  describe describe_plan
 * cuDNN's fused attention, without mask and dropout, where sequences are multiples of 128.
 */
/*kernel attention_grad.cudnn  rank 20  dtypes f16 bf16  strided  run run_grad
 *        match match_grad  prepare prepare_grad  release release_plan  describe describe_plan
 * cuDNN's gradients of attention, if all three are needed.
 */

#include "ops/attention/cuda/attention_cudnn.gen.h"
