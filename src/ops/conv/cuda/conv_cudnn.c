/* conv_cudnn.c - convolutions and their gradients by cuDNN.
 *
 * cuDNN takes operands that are dense in one of two orders of their dims: batch, channels, axes, or
 * batch, axes, channels (channels last). An operand with other strides than its problem's order is
 * copied to the workspace, or from there. Bias and relu are part of cuDNN's graph if an engine
 * supports that, otherwise an own kernel adds them. A strided convolution of few channels runs on
 * blocks of pixels (space_to_depth.h). Problems without any engine are declined.
 */
#include <stdio.h>
#include <string.h>

#include "ops/conv/cuda/conv.h"
#include "backend/cuda/graph_cudnn.h"
#include "ops/conv/cuda/space_to_depth.h"

enum { AXES = GD_CONV_AXES, RANK = 2 + GD_CONV_AXES };

/* --- layouts ---------------------------------------------------------------------------------- */

/* The strides of a dense operand. */
static void set_dense_strides(const int64_t *dims, bool channels_last, int64_t *strides) {
    static const int orders[2][RANK] = {{4, 3, 2, 1, 0}, {1, 4, 3, 2, 0}};
    int64_t stride = 1;
    for (int i = 0; i < RANK; i++) {
        const int d = orders[channels_last][i];
        strides[d] = stride;
        stride *= dims[d];
    }
}

/* Strides of dims of size 1 do not matter. */
static bool is_dense(const gd_cuda_conv_operand *o, bool channels_last) {
    int64_t strides[RANK];
    set_dense_strides(o->dims, channels_last, strides);
    for (int d = 0; d < RANK; d++)
        if (o->dims[d] > 1 && o->strides[d] != strides[d]) return false;
    return true;
}

/* The order of a problem, which is that of its images. 16-bit engines prefer channels last. */
static bool is_channels_last(const gd_cuda_conv_problem *q) {
    const gd_cuda_conv_operand *operands[] = {&q->x, &q->y, &q->w};
    bool all_first = true, all_last = true;
    for (int i = 0; i < 3; i++) {
        all_first = all_first && is_dense(operands[i], false);
        all_last = all_last && is_dense(operands[i], true);
    }
    if (all_first && all_last) return gd_cuda_element_size(q->dtype) == 2;
    if (all_first) return false;
    return (is_dense(&q->x, true) && !is_dense(&q->x, false)) ||
           (is_dense(&q->y, true) && !is_dense(&q->y, false));
}

/* --- graphs ----------------------------------------------------------------------------------- */

enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_SUM, ID_BIASED };

/* cuDNN has no convolutions with one axis: they get a height of 1. */
static int count_axes(const gd_cuda_conv_problem *q) { return q->axes < 3 ? 2 : 3; }

static cudnnDataType_t compute_type(const gd_cuda_conv_problem *q) {
    return q->dtype == GD_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

static gd_dnn_tensor describe_tensor(const gd_cuda_conv_problem *q, int64_t id,
                                     const int64_t dims[RANK], bool channels_last) {
    gd_dnn_tensor t = {.id = id, .dtype = gd_dnn_type(q->dtype), .rank = 2 + count_axes(q)};
    int64_t strides[RANK];
    set_dense_strides(dims, channels_last, strides);
    for (int d = 0; d < t.rank; d++) {
        const int from = d < 2 ? d : RANK - t.rank + d;
        t.dims[d] = dims[from];
        t.strides[d] = strides[from];
    }
    return t;
}

static cudnnBackendDescriptor_t add_intermediate(gd_dnn_graph *g, const gd_cuda_conv_problem *q,
                                                 const gd_dnn_tensor *like, int64_t id) {
    gd_dnn_tensor t = *like;
    t.id = id;
    t.dtype = compute_type(q);
    t.is_virtual = true;
    return gd_dnn_add_tensor(g, &t);
}

/* The padding after the last element of an axis. Any number that gives the result its size will do;
 * more engines support one equal to that before the first element. False: it would be negative. */
static bool find_padding_after(const gd_cuda_conv_problem *q, int axis, int64_t *after) {
    const int64_t span = (q->w.dims[2 + axis] - 1) * q->dilation[axis] + 1,
                  reach = (q->y.dims[2 + axis] - 1) * q->stride[axis] + span,
                  least = reach - q->x.dims[2 + axis] - q->before[axis],
                  most = least + q->stride[axis] - 1;
    *after = q->before[axis] >= least && q->before[axis] <= most ? q->before[axis]
             : least > 0                                         ? least
                                                                 : 0;
    return *after <= most;
}

static cudnnBackendDescriptor_t add_settings(gd_dnn_graph *g, const gd_cuda_conv_problem *q) {
    const int n = count_axes(q), first = AXES - n;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t after[AXES];
    for (int a = first; a < AXES; a++)
        if (!find_padding_after(q, a, &after[a])) g->status = CUDNN_STATUS_NOT_SUPPORTED;
    cudnnBackendDescriptor_t settings =
        gd_dnn_add_descriptor(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    gd_dnn_set_type(g, settings, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute_type(q));
    gd_dnn_set(g, settings, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
               &mode);
    gd_dnn_set_integer(g, settings, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, n);
    gd_dnn_set(g, settings, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n,
               q->dilation + first);
    gd_dnn_set(g, settings, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n,
               q->stride + first);
    gd_dnn_set(g, settings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n,
               q->before + first);
    gd_dnn_set(g, settings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n,
               after + first);
    gd_dnn_finalize(g, settings);
    return settings;
}

/* The operation of a direction, and the names of its attributes. */
typedef struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t settings, x, w, y, alpha, beta;
} operation_names;
static const operation_names operations[] = {
    [GD_CONV_TO_OUTPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [GD_CONV_TO_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [GD_CONV_TO_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static void add_scale(gd_dnn_graph *g, const gd_cuda_conv_problem *q, cudnnBackendDescriptor_t op,
                      cudnnBackendAttributeName_t name, double value) {
    const float value_f32 = (float)value;
    if (q->dtype == GD_F64) gd_dnn_set(g, op, name, CUDNN_TYPE_DOUBLE, 1, &value);
    else gd_dnn_set(g, op, name, CUDNN_TYPE_FLOAT, 1, &value_f32);
}

/* Adds bias and relu to `sum`, an intermediate result like the tensor `result`. */
static void add_epilogue(gd_dnn_graph *g, const gd_cuda_conv_problem *q, const gd_dnn_tensor *like,
                         bool channels_last, cudnnBackendDescriptor_t sum,
                         cudnnBackendDescriptor_t result) {
    if (q->bias) {
        const int64_t dims[RANK] = {1, q->bias->dims[0], 1, 1, 1};
        const gd_dnn_tensor bias = describe_tensor(q, ID_BIAS, dims, channels_last);
        cudnnBackendDescriptor_t biased =
            q->relu ? add_intermediate(g, q, like, ID_BIASED) : result;
        gd_dnn_add_pointwise(g, CUDNN_POINTWISE_ADD, compute_type(q), sum,
                             gd_dnn_add_tensor(g, &bias), biased);
        sum = biased;
    }
    if (q->relu)
        gd_dnn_add_pointwise(g, CUDNN_POINTWISE_RELU_FWD, compute_type(q), sum, NULL, result);
}

static void add_convolution(gd_dnn_graph *g, const gd_cuda_conv_problem *q, bool channels_last,
                            bool with_epilogue) {
    const operation_names *names = &operations[q->direction];
    const gd_dnn_tensor x = describe_tensor(q, ID_X, q->x.dims, channels_last),
                        w = describe_tensor(q, ID_W, q->w.dims, channels_last),
                        y = describe_tensor(q, ID_Y, q->y.dims, channels_last);
    const gd_dnn_tensor *like = q->direction == GD_CONV_TO_INPUT ? &x : &y;
    cudnnBackendDescriptor_t tensors[] = {gd_dnn_add_tensor(g, &x), gd_dnn_add_tensor(g, &w),
                                          gd_dnn_add_tensor(g, &y)};
    cudnnBackendDescriptor_t *result = &tensors[q->direction == GD_CONV_TO_INPUT ? 0 : 2],
                             stored = *result;
    if (with_epilogue) *result = add_intermediate(g, q, like, ID_SUM);
    cudnnBackendDescriptor_t settings = add_settings(g, q), op;
    op = gd_dnn_add_descriptor(g, names->type);
    gd_dnn_set_descriptor(g, op, names->settings, settings);
    gd_dnn_set_descriptor(g, op, names->x, tensors[0]);
    gd_dnn_set_descriptor(g, op, names->w, tensors[1]);
    gd_dnn_set_descriptor(g, op, names->y, tensors[2]);
    add_scale(g, q, op, names->alpha, 1);
    add_scale(g, q, op, names->beta, 0);
    gd_dnn_add_operation(g, op);
    if (with_epilogue) add_epilogue(g, q, like, channels_last, *result, stored);
}

/* --- preparation ------------------------------------------------------------------------------ */

static const int64_t MAX_WORKSPACE = INT64_C(1) << 30;

/* A prepared convolution. Operands are x, w and y. */
typedef struct convolution {
    gd_dnn_plan *plan;
    bool channels_last;
    bool has_epilogue; /* the plan adds bias and relu */
    bool has_blocks;   /* the plan is that of gd_cuda_blocks_of, whose x and w are copies */
    bool copied[3];    /* operands with a copy in the workspace */
    size_t offsets[3]; /* of these copies; the plan's own workspace is before them */
} convolution;

static size_t align_offset(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

static gd_status make_convolution_plan(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                                       convolution *c) {
    gd_dnn_choice choice = {.forbidden = GD_DNN_NARROW, .workspace_bytes = MAX_WORKSPACE};
    if (q->dtype == GD_F32 && !gd_cuda_tf32(call))
        choice.forbidden |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    const bool bias_is_dense = !q->bias || q->bias->dims[0] == 1 || q->bias->strides[0] == 1;
    gd_status status = GD_OK;
    gd_dnn_graph g;
    if ((q->bias || q->relu) && bias_is_dense) {
        gd_dnn_begin_graph(&g);
        add_convolution(&g, q, c->channels_last, true);
        status = gd_dnn_make_plan(call->device, &g, &choice, &c->plan);
        c->has_epilogue = c->plan != NULL;
    }
    if (status == GD_OK && !c->plan) {
        gd_dnn_begin_graph(&g);
        add_convolution(&g, q, c->channels_last, false);
        status = gd_dnn_make_plan(call->device, &g, &choice, &c->plan);
    }
    return status;
}

/* Assigns parts of the workspace to copies of operands, and returns its size. */
static size_t place_copies(const gd_cuda_conv_problem *q, convolution *c) {
    const gd_cuda_conv_operand *operands[] = {&q->x, &q->w, &q->y};
    size_t bytes = align_offset(c->plan->workspace_bytes);
    for (int i = 0; i < 3; i++) {
        c->copied[i] = !is_dense(operands[i], c->channels_last) || (c->has_blocks && i < 2);
        if (!c->copied[i]) continue;
        int64_t count = 1;
        for (int d = 0; d < RANK; d++) count *= operands[i]->dims[d];
        c->offsets[i] = bytes;
        bytes += align_offset((size_t)count * gd_cuda_element_size(q->dtype));
    }
    return bytes;
}

/* Whether the operands that the plan gets as they are have the alignment that engines need. */
static bool is_aligned(const gd_cuda_conv_problem *q, const convolution *c) {
    const gd_cuda_conv_operand *operands[] = {&q->x, &q->w, &q->y};
    bool aligned = !c->has_epilogue || !q->bias || gd_cuda_is_aligned(q->bias->data);
    for (int i = 0; i < 3; i++)
        aligned = aligned && (c->copied[i] || gd_cuda_is_aligned(operands[i]->data));
    return aligned;
}

static gd_status prepare_convolution(const gd_kernel_call *call, void **prepared,
                                     size_t *workspace) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    convolution *c = gd_cuda_host->allocate(sizeof *c);
    if (!c) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare a convolution");
    *c = (convolution){.channels_last = is_channels_last(&q)};
    const gd_cuda_conv_problem blocks = gd_cuda_blocks_of(&q);
    c->has_blocks = c->channels_last && gd_cuda_blocks_pay(&q);
    gd_status status = c->has_blocks ? make_convolution_plan(call, &blocks, c) : GD_OK;
    if (status == GD_OK && !c->plan) {
        c->has_blocks = false;
        status = make_convolution_plan(call, &q, c);
    }
    if (status == GD_OK && !c->plan) status = GD_E_UNSUPPORTED;
    if (status == GD_OK) {
        *workspace = place_copies(c->has_blocks ? &blocks : &q, c);
        if (!is_aligned(&q, c)) status = GD_E_UNSUPPORTED;
    }
    if (status != GD_OK) {
        gd_dnn_free_plan(c->plan);
        gd_cuda_host->release(c);
        return status;
    }
    *prepared = c;
    return GD_OK;
}

static void release_convolution(gd_device *d, void *prepared) {
    convolution *c = prepared;
    gd_cuda_enter_context(d);
    gd_dnn_free_plan(c->plan);
    gd_cuda_host->release(c);
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* cuDNN indexes with 32 bits. Its engines for f32 without tf32, and for f64, are either slow, or not
 * deterministic, or not as precise as f32 (Winograd's algorithm with large tiles). With tf32, small
 * problems spend most of their time in the engines' conversions of layouts. */
static bool match_convolution(const gd_kernel_call *call) {
    const gd_dtype dtype = call->out[0].dtype;
    if (dtype == GD_F32 && !gd_cuda_tf32(call)) return false;
    if (!gd_cuda_has_dnn()) return false;
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    if (dtype == GD_F32 && gd_cuda_conv_products(&q) < GD_CUDA_CONV_MANY_PRODUCTS) return false;
    if (!gd_cuda_conv_is_common(&q)) return false;
    const gd_view *views[] = {&call->in[0], &call->in[1], &call->out[0]};
    for (int i = 0; i < 3; i++) {
        const long long count = gd_cuda_count(views[i]);
        if (count == 0 || count > INT32_MAX) return false;
    }
    return true;
}

static gd_view view_of(const gd_cuda_conv_operand *o, gd_dtype dtype) {
    gd_view v = {.data = o->data, .dtype = dtype, .rank = RANK};
    memcpy(v.dims, o->dims, sizeof o->dims);
    memcpy(v.strides, o->strides, sizeof o->strides);
    return v;
}

/* The copy of an operand in the workspace. */
static gd_cuda_conv_operand copy_of(const gd_kernel_call *call, const gd_cuda_conv_operand *o,
                                    const convolution *c, int i) {
    gd_cuda_conv_operand copy = *o;
    copy.data = (char *)call->workspace + c->offsets[i];
    set_dense_strides(o->dims, c->channels_last, copy.strides);
    return copy;
}

enum { OPERAND_X, OPERAND_W, OPERAND_Y, OPERANDS };

/* Queues the copy of an operand of problem q to the workspace, or back. */
static gd_status queue_operand(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                               const convolution *c, int i, const gd_cuda_conv_operand *copy,
                               bool back) {
    const gd_cuda_conv_operand *operands[] = {&q->x, &q->w, &q->y};
    const gd_view original = view_of(operands[i], q->dtype), copied = view_of(copy, q->dtype);
    if (c->has_blocks && i == OPERAND_X) return gd_cuda_queue_x_blocks(call, q, copy);
    if (c->has_blocks && i == OPERAND_W) return gd_cuda_queue_w_blocks(call, q, copy, back);
    return back ? gd_cuda_queue_copy(call, &original, &copied)
                : gd_cuda_queue_copy(call, &copied, &original);
}

/* Runs the plan with operands x, w and y, and then what it lacks of bias and relu. */
static gd_status run_plan(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                          const convolution *c, const gd_cuda_conv_operand *result) {
    const int64_t ids[] = {ID_X, ID_W, ID_Y, ID_BIAS};
    void *const pointers[] = {q->x.data, q->w.data, q->y.data, q->bias ? q->bias->data : NULL};
    gd_status status = gd_dnn_run_plan(call->device, c->plan, c->has_epilogue && q->bias ? 4 : 3,
                                       ids, pointers, call->workspace);
    if (status == GD_OK && !c->has_epilogue && (q->bias || q->relu))
        status = gd_cuda_conv_epilogue(call, q, result);
    return status;
}

static gd_status run_convolution(gd_kernel_call *call) {
    const convolution *c = call->prepared;
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    gd_cuda_conv_problem run = c->has_blocks ? gd_cuda_blocks_of(&q) : q;
    gd_cuda_conv_operand *operands[] = {&run.x, &run.w, &run.y};
    const int result = q.direction == GD_CONV_TO_OUTPUT  ? OPERAND_Y
                       : q.direction == GD_CONV_TO_INPUT ? OPERAND_X
                                                         : OPERAND_W;
    gd_status status = GD_OK;
    for (int i = 0; i < OPERANDS && status == GD_OK; i++) {
        if (!c->copied[i]) continue;
        *operands[i] = copy_of(call, operands[i], c, i);
        if (i != result) status = queue_operand(call, &q, c, i, operands[i], false);
    }
    if (status == GD_OK) status = run_plan(call, &run, c, operands[result]);
    if (status == GD_OK && c->copied[result])
        status = queue_operand(call, &q, c, result, operands[result], true);
    return status;
}

/* What costs time beside the engine: copies of operands, and a kernel for bias and relu. */
static void describe_convolution(const gd_kernel_call *call, char *text, size_t size) {
    const convolution *c = call->prepared;
    const bool is_biased = call->n_in > 2 && call->in[2].data;
    char plan[64];
    gd_dnn_describe_plan(c->plan, plan, sizeof plan);
    snprintf(text, size, "%s, channels %s%s%s%s%s%s%s", plan, c->channels_last ? "last" : "first",
             c->has_blocks ? ", blocks of pixels" : "",
             c->copied[OPERAND_X] || c->copied[OPERAND_W] || c->copied[OPERAND_Y] ? ", copies" : "",
             c->copied[OPERAND_X] ? " x" : "", c->copied[OPERAND_W] ? " w" : "",
             c->copied[OPERAND_Y] ? " y" : "", is_biased && !c->has_epilogue ? ", bias apart" : "");
}

/* Tensor cores multiply vectors of channels: engines for other layouts convert their operands. With
 * other numbers of channels, few engines read channels last. */
static bool prefers_channels_last(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const int64_t vector = 16 / (int64_t)gd_cuda_element_size(q.dtype);
    return q.axes >= 2 && q.x.dims[1] % vector == 0 && q.y.dims[1] % vector == 0;
}

/*kernel conv{1,2,3}d.cudnn, conv_transpose{1,2,3}d.cudnn, conv_forward.cudnn, conv_relu.cudnn,
 *        conv_grad_input.cudnn, conv_grad_weight.cudnn  rank 20  dtypes f16 bf16 f32  strided
 *        run run_convolution  match match_convolution  prepare prepare_convolution
 *        release release_convolution  describe describe_convolution
 *        prefers_channels_last prefers_channels_last
 * cuDNN's engine for the problem, on tensor cores: f16, bf16, and f32 if tf32 is allowed.
 */

#include "ops/conv/cuda/conv_cudnn.gen.h"
