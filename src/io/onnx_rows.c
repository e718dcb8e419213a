/* onnx_rows.c - the table: which op is which ONNX operator. The form of a row is in onnx.h. */
#include "io/onnx_load.h"
#include "io/onnx_save.h"

#include <string.h>

#include "gradus/ops.h"
#include "ops/infer.h"

static int whole_axis(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* --- what a row cannot say
 * ------------------------------------------------------------------------ */

static bool all_size_one(const gd_onnx_call *c) {
    const gd_squeeze_options *o = c->attrs;
    for (int k = 0; k < o->axis.rank && gd_shape_is_set(&o->axis); k++) {
        const int axis = whole_axis(o->axis.at[k], c->in[0].rank);
        if (axis < 0 || axis >= c->in[0].rank || c->in[0].dims[axis] != 1) return false;
    }
    return gd_shape_is_set(&o->axis);
}

static bool pieces_are_known(const gd_onnx_call *c) {
    const gd_split_options *o = c->attrs;
    for (int k = 0; k < c->n_out; k++)
        if (c->out[k].dims[whole_axis(o->axis, c->out[k].rank)] == GD_UNKNOWN) return false;
    return c->n_out > 0;
}

static bool repeats_each_axis(const gd_onnx_call *c) {
    return ((const gd_repeat_options *)c->attrs)->repeats.rank == c->in[0].rank;
}

static bool argmax_has_axis(const gd_onnx_call *c) {
    return ((const gd_argmax_options *)c->attrs)->axis != GD_UNSET;
}
static bool argmin_has_axis(const gd_onnx_call *c) {
    return ((const gd_argmin_options *)c->attrs)->axis != GD_UNSET;
}

/* ONNX adds no bools, and a number has no axes. */
static bool gives_numbers(const gd_onnx_call *c) {
    return c->out[0].dtype != GD_BOOL && c->in[0].rank > 0;
}

static bool ranks_are_equal(const gd_onnx_call *c) {
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].rank != c->out[0].rank) return false;
    return true;
}

static bool same_sizes(const gd_onnx_call *c) { /* of the indices and what is put there */
    const gd_slot *index = &c->in[1], *src = &c->in[2];
    for (int i = 0; i < index->rank && index->rank == src->rank; i++)
        if (index->dims[i] != src->dims[i]) return false;
    return index->rank == src->rank && c->in[0].rank > 0;
}

/* Windows that are not full: ours leaves out one that would begin in the padding, and ONNX does
 * not. */
static bool rounds_alike(const gd_onnx_call *c) {
    const gd_op_attr *ceil_mode = gd_onnx_option(c->op, "ceil_mode"),
                     *dilation = gd_onnx_option(c->op, "dilation");
    int64_t kernel[3], stride[3], padding[3], step[3] = {1, 1, 1};
    if (!*((const bool *)((const char *)c->attrs + ceil_mode->offset))) return true;
    const int n = gd_onnx_numbers(gd_onnx_option(c->op, "kernel"), c->attrs, kernel);
    if (gd_onnx_numbers(gd_onnx_option(c->op, "stride"), c->attrs, stride) < 0)
        memcpy(stride, kernel, sizeof stride);
    gd_onnx_numbers(gd_onnx_option(c->op, "padding"), c->attrs, padding);
    if (dilation) gd_onnx_numbers(dilation, c->attrs, step);
    for (int i = 0; i < n; i++) {
        const int64_t size = c->in[0].dims[2 + i], made = c->out[0].dims[2 + i];
        if (size == GD_UNKNOWN || made == GD_UNKNOWN || stride[i] < 1) return false;
        const int64_t room = size + 2 * padding[i] - step[i] * (kernel[i] - 1) - 1;
        if (room < 0 || (room + stride[i] - 1) / stride[i] + 1 != made) return false;
    }
    return n > 0;
}

/* Zeros that keep the size can be counted: not everybody has SAME_UPPER with dilation. */
static bool kernel_is_known(const gd_onnx_call *c) {
    for (int i = 2; i < c->in[1].rank; i++)
        if (c->in[1].dims[i] == GD_UNKNOWN) return false;
    return true;
}

/* --- the table
 * ------------------------------------------------------------------------------------ */

/* a row is a line */
/* clang-format off */
#define REDUCE(op)                                                                                 \
    {                                                                                              \
        op, NULL, "x axes:axis", "keepdims=keepdim~1 noop_with_empty_axes!0~0", NULL, "y",         \
            gives_numbers, NULL, NULL, NULL                                                        \
    }

#define CONV_ATTRIBUTES "strides=stride dilations=dilation group=groups kernel_shape? "
#define CONV(op, rank)                                                                             \
    {op,                                                                                           \
     NULL,                                                                                         \
     NULL,                                                                                         \
     CONV_ATTRIBUTES "pads=padding*2 auto_pad!NOTSET~NOTSET",                                      \
     "pad_mode=explicit x:rank=" rank,                                                             \
     "w",                                                                                          \
     NULL,                                                                                         \
     NULL,                                                                                         \
     NULL,                                                                                         \
     NULL},                                                                                        \
        {op,                                                                                       \
         NULL,                                                                                     \
         NULL,                                                                                     \
         CONV_ATTRIBUTES "auto_pad!VALID~NOTSET",                                                  \
         "pad_mode=valid x:rank=" rank,                                                            \
         "w",                                                                                      \
         NULL,                                                                                     \
         NULL,                                                                                     \
         NULL,                                                                                     \
         NULL},                                                                                    \
        {op,                                                                                       \
         NULL,                                                                                     \
         NULL,                                                                                     \
         CONV_ATTRIBUTES "pads=padding/same auto_pad!NOTSET~NOTSET",                               \
         "pad_mode=same x:rank=" rank,                                                             \
         "w",                                                                                      \
         kernel_is_known,                                                                          \
         NULL,                                                                                     \
         NULL,                                                                                     \
         NULL},                                                                                    \
    {                                                                                              \
        op, NULL, NULL, CONV_ATTRIBUTES "auto_pad!SAME_UPPER~NOTSET",                              \
            "pad_mode=same x:rank=" rank, "w", NULL, NULL, NULL, NULL                              \
    }
#define CONV_TRANSPOSE(op, rank)                                                                   \
    {                                                                                              \
        op, NULL, NULL,                                                                            \
            CONV_ATTRIBUTES "pads=padding*2 output_padding=output_padding auto_pad!NOTSET~NOTSET", \
            "x:rank=" rank, "w", NULL, NULL, gd_onnx_load_conv_transpose, NULL                     \
    }

#define POOL_ATTRIBUTES                                                                            \
    "kernel_shape=kernel strides=stride|kernel~1 pads=padding*2 ceil_mode=ceil_mode "              \
    "auto_pad!NOTSET~NOTSET "
#define MAX_POOL(op, rank)                                                                         \
    {                                                                                              \
        op, NULL, NULL, POOL_ATTRIBUTES "dilations=dilation storage_order!0~0", "x:rank=" rank,    \
            "w", rounds_alike, NULL, NULL, NULL                                                    \
    }
#define MAX_POOL_INDICES(op, rank)                                                                 \
    {                                                                                              \
        op, "MaxPool", NULL, POOL_ATTRIBUTES "dilations=dilation storage_order!0~0",               \
            "x:rank=" rank, NULL, rounds_alike, NULL, NULL, gd_onnx_save_max_pool_indices          \
    }
#define AVG_POOL(op, rank)                                                                         \
    {                                                                                              \
        op, NULL, NULL, POOL_ATTRIBUTES "dilations!1~1 count_include_pad=count_include_pad~false", \
            "divisor_override=none x:rank=" rank, "w", rounds_alike, NULL,                         \
            gd_onnx_load_average_pool, NULL                                                        \
    }

#define ROW(op, name, inputs, attributes, when, cast, fits)                                        \
    { op, name, inputs, attributes, when, cast, fits, NULL, NULL, NULL }
#define BODY(op, body)                                                                             \
    { op, NULL, NULL, NULL, NULL, NULL, NULL, body, NULL, NULL }
#define SAVE(op, name, save)                                                                       \
    { op, name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, save }
#define LOAD(name, load)                                                                           \
    { NULL, name, NULL, NULL, NULL, NULL, NULL, NULL, load, NULL }

const gd_onnx_row gd_onnx_rows[] = {
    /* elementwise */
    ROW("cast", NULL, NULL, "to=dtype saturate!1~1", NULL, "-", NULL),
    {"clamp", NULL, "x min=min max=max", NULL, NULL, NULL, NULL, NULL, gd_onnx_load_clip, NULL},
    LOAD("Sum", gd_onnx_load_sum),
    LOAD("Mean", gd_onnx_load_mean),
    LOAD("Max", gd_onnx_load_max),
    LOAD("Min", gd_onnx_load_min),
    LOAD("CastLike", gd_onnx_load_cast_like),
    ROW("bitwise_left_shift", "BitShift", NULL, "direction!LEFT", "a:u8 b:u8", NULL, NULL),
    ROW("bitwise_right_shift", "BitShift", NULL, "direction!RIGHT", "a:u8 b:u8", NULL, NULL),
    LOAD("BitShift", gd_onnx_load_bit_shift),
    LOAD("ThresholdedRelu", gd_onnx_load_thresholded_relu),
    LOAD("Shrink", gd_onnx_load_shrink),
    LOAD("Swish", gd_onnx_load_swish),
    ROW("where", NULL, NULL, NULL, NULL, "by", NULL),
    ROW("logical_not", NULL, NULL, NULL, NULL, "b", NULL),
    ROW("logical_and", NULL, NULL, NULL, NULL, "b", NULL),
    ROW("logical_or", NULL, NULL, NULL, NULL, "b", NULL),
    ROW("logical_xor", NULL, NULL, NULL, NULL, "b", NULL),
    ROW("bitwise_not", NULL, NULL, NULL, "x:int", NULL, NULL),
    ROW("div", NULL, NULL, NULL, "a:float b:float", NULL, NULL),
    ROW("remainder", NULL, NULL, "fmod!0~0", "a:int b:int", NULL, NULL),
    BODY("remainder", gd_onnx_remainder_body),
    ROW("fmod", "Mod", NULL, "fmod!1~0", NULL, NULL, NULL),
    {"floor_divide", "Div", NULL, NULL, "a:int b:int", NULL, NULL, NULL, NULL, gd_onnx_save_floor_divide},
    BODY("floor_divide", gd_onnx_floor_divide_body),
    LOAD("Div", gd_onnx_load_div),
    ROW("leaky_relu", NULL, NULL, "alpha=slope", NULL, NULL, NULL),
    ROW("celu", NULL, NULL, "alpha=alpha", "x:f32", NULL, NULL),
    ROW("selu", NULL, NULL, "alpha!1.6732632~1.6732632 gamma!1.050701~1.050701", NULL, NULL, NULL),
    LOAD("Selu", gd_onnx_load_selu),
    ROW("softplus", NULL, NULL, NULL, "beta=1 threshold=20", NULL, NULL),
    ROW("hardsigmoid", NULL, NULL, "alpha!0.16666667~0.2 beta!0.5~0.5", NULL, NULL, NULL),
    LOAD("HardSigmoid", gd_onnx_load_hard_sigmoid),
    ROW("gelu", NULL, NULL, "approximate!none~none", NULL, NULL, NULL),
    ROW("gelu_tanh", "Gelu", NULL, "approximate!tanh~none", NULL, NULL, NULL),
    ROW("isinf", NULL, NULL, "detect_negative!1~1 detect_positive!1~1", "x:float", NULL, NULL),
    LOAD("IsInf", gd_onnx_load_isinf),
    ROW("floor", NULL, NULL, NULL, "x:float", NULL, NULL),
    ROW("ceil", NULL, NULL, NULL, "x:float", NULL, NULL),
    ROW("round", NULL, NULL, NULL, "x:float", NULL, NULL),
    ROW("isnan", NULL, NULL, NULL, "x:float", NULL, NULL),
    ROW("contiguous", "Identity", NULL, NULL, NULL, NULL, NULL),
    ROW("stop_gradient", "Identity", NULL, NULL, NULL, NULL, NULL),

    /* products */
    ROW("matmul", NULL, NULL, NULL, NULL, "y", NULL),
    ROW("linear", NULL, NULL, "alpha!1~1 beta!1~1 transA!0~0 transB!1~0", "x:rank=2", NULL, NULL),
    LOAD("Gemm", gd_onnx_load_gemm),
    ROW("einsum", NULL, NULL, "equation=equation", NULL, "y", NULL),

    /* reductions */
    REDUCE("sum"),
    REDUCE("mean"),
    REDUCE("prod"),
    REDUCE("max"),
    REDUCE("min"),
    REDUCE("logsumexp"),
    ROW("norm", NULL, "x axes:axis", "keepdims=keepdim~1 noop_with_empty_axes!0~0", "p=2 x:rank>0", NULL, NULL),
    ROW("norm", "ReduceL1", "x axes:axis", "keepdims=keepdim~1 noop_with_empty_axes!0~0", "p=1 x:rank>0", NULL, NULL),
    LOAD("ReduceSumSquare", gd_onnx_load_sum_square),
    LOAD("ReduceLogSum", gd_onnx_load_log_sum),
    LOAD("Hardmax", gd_onnx_load_hardmax),
    LOAD("LpNormalization", gd_onnx_load_lp_normalization),
    ROW("argmax", NULL, NULL, "axis=axis~0 keepdims=keepdim~1 select_last_index!0~0", "x:rank>0", NULL, argmax_has_axis),
    BODY("argmax", gd_onnx_argmax_body),
    ROW("argmin", NULL, NULL, "axis=axis~0 keepdims=keepdim~1 select_last_index!0~0", "x:rank>0", NULL, argmin_has_axis),
    BODY("argmin", gd_onnx_argmin_body),
    ROW("cumsum", NULL, "x axis=axis", "exclusive=exclusive reverse=reverse", NULL, "y", gives_numbers),
    ROW("softmax", NULL, NULL, "axis=axis", "x:rank>0", NULL, NULL),
    ROW("log_softmax", NULL, NULL, "axis=axis", "x:rank>0", NULL, NULL),
    {"topk", NULL, "x k:k", "axis=axis largest=largest", "x:rank>0", NULL, gives_numbers, NULL, gd_onnx_load_topk, NULL},

    SAVE("sort", "TopK", gd_onnx_save_sort),

    /* shapes */
    {"reshape", NULL, "x shape:dims", "allowzero!1~0", NULL, NULL, NULL, NULL, gd_onnx_load_reshape, NULL},
    ROW("flatten", NULL, NULL, "axis!1~1", "start_axis=1 end_axis=-1 x:rank>1", NULL, NULL),
    BODY("flatten", gd_onnx_flatten_body),
    LOAD("Flatten", gd_onnx_load_flatten),
    ROW("squeeze", NULL, "x axes:axis", NULL, NULL, NULL, all_size_one),
    BODY("squeeze", gd_onnx_squeeze_body),
    {"unsqueeze", NULL, "x axes:axis", NULL, NULL, NULL, NULL, NULL, gd_onnx_load_unsqueeze, NULL},
    {"expand", NULL, "x shape:dims/keep", NULL, NULL, NULL, NULL, NULL, gd_onnx_load_expand, NULL},
    {"permute", NULL, NULL, "perm=axes/places", NULL, NULL, NULL, NULL, gd_onnx_load_transpose, NULL},
    BODY("transpose", gd_onnx_transpose_body),
    BODY("movedim", gd_onnx_movedim_body),
    {"slice", NULL, "x starts:start/first ends:stop/last axes:axis steps:step", NULL, NULL, NULL, NULL, NULL, gd_onnx_load_slice, NULL},
    BODY("narrow", gd_onnx_narrow_body),
    BODY("flip", gd_onnx_flip_body),
    ROW("cat", NULL, NULL, "axis=axis", NULL, "y", ranks_are_equal),
    BODY("cat", gd_onnx_cat_body),
    BODY("stack", gd_onnx_stack_body),
    {"split", NULL, "x split:sizes/pieces", "axis=axis", NULL, NULL, pieces_are_known, NULL, gd_onnx_load_split, NULL},
    {"repeat", NULL, "x repeats:repeats", NULL, NULL, NULL, repeats_each_axis, NULL, gd_onnx_load_tile, NULL},
    {"pad", NULL, "x pads:padding/sides constant_value=value", "mode=mode,replicate:edge,circular:wrap", NULL, NULL, NULL, NULL, gd_onnx_load_pad, NULL},
    ROW("tril", NULL, "x k=diagonal", "upper!0~1", NULL, NULL, NULL),
    ROW("triu", "Trilu", "x k=diagonal", "upper!1~1", NULL, NULL, NULL),

    /* indices */
    SAVE("one_hot", "OneHot", gd_onnx_save_one_hot),
    LOAD("OneHot", gd_onnx_load_one_hot),
    {"embedding", NULL, "weight x", "axis!0~0", "weight:rank=2 x:int x:rank>0", "i-", NULL, NULL, gd_onnx_load_gather, NULL},
    ROW("index_select", NULL, "x index", "axis=axis~0", "x:rank>0 index:rank=1 index:int", "-i", NULL),
    ROW("select", "Gather", "x indices=index", "axis=axis~0", NULL, NULL, NULL),
    {"gather", NULL, "x index", "axis=axis~0", "x:rank>0 x:as=index", "-i", NULL, NULL, gd_onnx_load_gather_elements, NULL},
    {"scatter", NULL, "x index src", "axis=axis~0 reduction!none~none", NULL, "-i-", same_sizes, NULL, gd_onnx_load_scatter_elements, NULL},
    ROW("scatter_add", "ScatterElements", "x index src", "axis=axis~0 reduction!add~none", NULL, "-i-", same_sizes),
    ROW("scatter_mul", "ScatterElements", "x index src", "axis=axis~0 reduction!mul~none", NULL, "-i-", same_sizes),
    LOAD("GatherND", gd_onnx_load_gather_nd),
    LOAD("ScatterND", gd_onnx_load_scatter_nd),
    SAVE("nonzero", "NonZero", gd_onnx_save_nonzero),
    LOAD("NonZero", gd_onnx_load_nonzero),
    BODY("masked_select", gd_onnx_masked_select_body),
    BODY("index_add", gd_onnx_index_add_body),
    BODY("diagonal", gd_onnx_diagonal_body),

    /* layers */
    CONV("conv1d", "3"),
    CONV("conv2d", "4"),
    CONV("conv3d", "5"),
    CONV_TRANSPOSE("conv_transpose1d", "3"),
    CONV_TRANSPOSE("conv_transpose2d", "4"),
    CONV_TRANSPOSE("conv_transpose3d", "5"),
    MAX_POOL("max_pool1d", "3"),
    MAX_POOL("max_pool2d", "4"),
    MAX_POOL("max_pool3d", "5"),
    LOAD("MaxPool", gd_onnx_load_max_pool_indices),
    MAX_POOL_INDICES("max_pool1d_with_indices", "3"),
    MAX_POOL_INDICES("max_pool2d_with_indices", "4"),
    MAX_POOL_INDICES("max_pool3d_with_indices", "5"),
    AVG_POOL("avg_pool1d", "3"),
    AVG_POOL("avg_pool2d", "4"),
    AVG_POOL("avg_pool3d", "5"),
    SAVE("adaptive_avg_pool1d", "GlobalAveragePool", gd_onnx_save_adaptive),
    BODY("adaptive_avg_pool1d", gd_onnx_adaptive_body),
    SAVE("adaptive_avg_pool2d", "GlobalAveragePool", gd_onnx_save_adaptive),
    BODY("adaptive_avg_pool2d", gd_onnx_adaptive_body),
    SAVE("adaptive_avg_pool3d", "GlobalAveragePool", gd_onnx_save_adaptive),
    BODY("adaptive_avg_pool3d", gd_onnx_adaptive_body),
    SAVE("adaptive_max_pool1d", "GlobalMaxPool", gd_onnx_save_adaptive),
    BODY("adaptive_max_pool1d", gd_onnx_adaptive_body),
    SAVE("adaptive_max_pool2d", "GlobalMaxPool", gd_onnx_save_adaptive),
    BODY("adaptive_max_pool2d", gd_onnx_adaptive_body),
    SAVE("adaptive_max_pool3d", "GlobalMaxPool", gd_onnx_save_adaptive),
    BODY("adaptive_max_pool3d", gd_onnx_adaptive_body),
    ROW("global_avg_pool", NULL, NULL, NULL, NULL, "w", NULL),
    ROW("global_max_pool", NULL, NULL, NULL, NULL, "w", NULL),
    {"batch_norm", NULL, "x weight|1 bias|0 running_mean running_var", "epsilon=eps momentum? spatial? training_mode!0~0", "training=false", NULL, NULL, NULL, gd_onnx_load_batch_norm, NULL},
    LOAD("RMSNormalization", gd_onnx_load_rms_norm),
    LOAD("MeanVarianceNormalization", gd_onnx_load_mean_variance),
    LOAD("Attention", gd_onnx_load_attention),
    {"layer_norm", NULL, "x weight|1 bias", "axis=normalized_dims/behind epsilon=eps stash_type!11~1", "x:f64", NULL, NULL, NULL, gd_onnx_load_layer_norm, NULL},
    {"layer_norm", NULL, "x weight|1 bias", "axis=normalized_dims/behind epsilon=eps stash_type!1~1", NULL, NULL, NULL, NULL, gd_onnx_load_layer_norm, NULL},
    ROW("group_norm", NULL, "x weight|1 bias|0", "num_groups=groups epsilon=eps stash_type!11~1", "x:f64", NULL, NULL),
    ROW("group_norm", NULL, "x weight|1 bias|0", "num_groups=groups epsilon=eps stash_type!1~1", NULL, NULL, NULL),
    ROW("instance_norm", NULL, "x weight|1 bias|0", "epsilon=eps", NULL, NULL, NULL),
    ROW("local_response_norm", NULL, NULL, "size=size alpha=alpha beta=beta bias=k", "region=across", NULL, NULL),
    ROW("dropout", NULL, "x ratio=p", "seed?", "training=false", NULL, NULL),

    SAVE("resize", "Resize", gd_onnx_save_resize),
    LOAD("Resize", gd_onnx_load_resize),
    SAVE("recurrent", "LSTM", gd_onnx_save_recurrent), /* GRU, RNN */
    LOAD("LSTM", gd_onnx_load_lstm),
    LOAD("GRU", gd_onnx_load_gru),
    LOAD("RNN", gd_onnx_load_rnn),

    /* losses */
    ROW("cross_entropy", NULL, "x target weight", "reduction=reduction ignore_index=ignore_index", "label_smoothing=0 x:rank>1 target:int", "-i-", NULL),
    ROW("index_cross_entropy", NULL, "x target weight", "reduction=reduction ignore_index=ignore_index", "label_smoothing=0 x:rank>1 target:int", "-i-", NULL),
    ROW("nll_loss", NULL, "x target weight", "reduction=reduction ignore_index=ignore_index", "x:rank>1", "-i-", NULL),

    /* constants */
    SAVE("full_like", "Expand", gd_onnx_save_full_like),
    SAVE("sizes_of", "Shape", gd_onnx_save_sizes_of),
    SAVE("late", "Reshape", gd_onnx_save_late),

    /* files of others */
    LOAD("Constant", gd_onnx_load_constant),
    LOAD("ConstantOfShape", gd_onnx_load_constant_of_shape),
    LOAD("Shape", gd_onnx_load_shape),
    LOAD("Range", gd_onnx_load_range),
    LOAD("Size", gd_onnx_load_size),
    LOAD("SequenceConstruct", gd_onnx_load_sequence_construct),
    LOAD("SequenceEmpty", gd_onnx_load_sequence_empty),
    LOAD("SequenceAt", gd_onnx_load_sequence_at),
    LOAD("SequenceLength", gd_onnx_load_sequence_length),
    LOAD("SequenceInsert", gd_onnx_load_sequence_insert),
    LOAD("SequenceErase", gd_onnx_load_sequence_erase),
    LOAD("ConcatFromSequence", gd_onnx_load_concat_from_sequence),
    LOAD("SplitToSequence", gd_onnx_load_split_to_sequence),
    LOAD("GridSample", gd_onnx_load_grid_sample),
    LOAD("AffineGrid", gd_onnx_load_affine_grid),
    LOAD("Col2Im", gd_onnx_load_col2im),
    LOAD("EyeLike", gd_onnx_load_eye_like),
    LOAD("DepthToSpace", gd_onnx_load_depth_to_space),
    LOAD("SpaceToDepth", gd_onnx_load_space_to_depth),

    /* branches and loops, which onnx_save_control.c saves */
    LOAD("If", gd_onnx_load_if),
    LOAD("Loop", gd_onnx_load_loop),
    LOAD("Scan", gd_onnx_load_scan),
};
/* clang-format on */
const int gd_onnx_row_count = sizeof gd_onnx_rows / sizeof *gd_onnx_rows;

const char *gd_onnx_row_name(const gd_onnx_row *row) {
    const gd_op *op = row->name ? NULL : gd_op_find(row->op);
    return row->name ? row->name : op ? op->onnx : "";
}

bool gd_onnx_own_row(const gd_op *op, gd_onnx_row *row) {
    if (!(op->flags & GD_OP_ELEMENTWISE) || !op->onnx || !*op->onnx || op->base) return false;
    for (int i = 0; i < gd_onnx_row_count; i++)
        if (gd_onnx_rows[i].op && strcmp(gd_onnx_rows[i].op, op->name) == 0) return false;
    *row = (gd_onnx_row){.op = op->name};
    return true;
}

/* --- reading rows
 * --------------------------------------------------------------------------------- */

/* The next word, without the separators that end it; false at the end. */
static bool next_word(const char **text, char *word, size_t size) {
    const char *s = *text ? *text : "";
    while (*s == ' ') s++;
    const size_t length = strcspn(s, " ");
    *text = s + length;
    if (length == 0 || length >= size) return false;
    memcpy(word, s, length);
    word[length] = '\0';
    return true;
}

/* Cuts the part behind `mark` off, into `part`. */
static bool cut(char *word, char mark, char *part, size_t size) {
    char *at = strchr(word, mark);
    part[0] = '\0';
    if (!at) return false;
    *at = '\0';
    const size_t length = strlen(at + 1);
    if (length < size) memcpy(part, at + 1, length + 1);
    return true;
}

bool gd_onnx_next_input(const char **text, gd_onnx_input *i) {
    char word[3 * GD_ONNX_WORD], part[3 * GD_ONNX_WORD];
    if (!next_word(text, word, sizeof word)) return false;
    *i = (gd_onnx_input){.kind = GD_ONNX_TENSOR};
    cut(word, '/', i->how, sizeof i->how);
    if (cut(word, '|', part, sizeof part)) {
        i->filled = true;
        i->fill = part[0] - '0';
    }
    if (cut(word, ':', part, sizeof part))
        i->kind = GD_ONNX_LIST;
    else if (cut(word, '=', part, sizeof part))
        i->kind = GD_ONNX_NUMBER;
    if (i->kind != GD_ONNX_TENSOR) memcpy(i->onnx, word, sizeof i->onnx);
    memcpy(i->ours, i->kind == GD_ONNX_TENSOR ? word : part, sizeof i->ours);
    return true;
}

bool gd_onnx_next_attribute(const char **text, gd_onnx_attribute *a) {
    char word[4 * GD_ONNX_WORD], part[4 * GD_ONNX_WORD];
    if (!next_word(text, word, sizeof word)) return false;
    *a = (gd_onnx_attribute){.twice = false};
    char *comma = strchr(word, ',');
    if (comma) {
        memcpy(a->words, comma, strlen(comma) + 1);
        *comma = '\0';
    }
    cut(word, '~', a->otherwise, sizeof a->otherwise);
    cut(word, '|', a->instead, sizeof a->instead);
    cut(word, '/', a->how, sizeof a->how);
    a->twice = cut(word, '*', part, sizeof part);
    if (!cut(word, '!', a->fixed, sizeof a->fixed) && !cut(word, '=', a->ours, sizeof a->ours))
        cut(word, '?', part, sizeof part);
    memcpy(a->onnx, word, sizeof a->onnx);
    return true;
}

bool gd_onnx_next_condition(const char **text, gd_onnx_condition *c) {
    char word[3 * GD_ONNX_WORD], part[3 * GD_ONNX_WORD];
    if (!next_word(text, word, sizeof word)) return false;
    *c = (gd_onnx_condition){.kind = GD_ONNX_OPTION};
    if (!cut(word, ':', part, sizeof part))
        cut(word, '=', c->value, sizeof c->value);
    else if (strcmp(part, "int") == 0)
        c->kind = GD_ONNX_IS_INT;
    else if (strcmp(part, "float") == 0)
        c->kind = GD_ONNX_IS_FLOAT;
    else if (cut(part, '=', c->value, sizeof c->value) && strcmp(part, "as") == 0)
        c->kind = GD_ONNX_SAME_RANK;
    else if (c->value[0])
        c->kind = GD_ONNX_RANK_IS;
    else if (cut(part, '>', c->value, sizeof c->value))
        c->kind = GD_ONNX_RANK_ABOVE;
    else {
        c->kind = GD_ONNX_IS_DTYPE;
        memcpy(c->value, part, sizeof c->value);
    }
    memcpy(c->name, word, sizeof c->name);
    return true;
}

/* --- records
 * -------------------------------------------------------------------------------------- */

const gd_op_attr *gd_onnx_option(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

int gd_onnx_input_index(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_inputs; i++)
        if (strcmp(op->inputs[i].name, name) == 0) return i;
    return -1;
}

const char *gd_onnx_word(const gd_op_attr *attr, gd_word value, char word[GD_ONNX_WORD]) {
    const char *words = attr->words;
    while (next_word(&words, word, GD_ONNX_WORD))
        if (gd_word_of(word) == value) return word;
    word[0] = '\0';
    return word;
}

int gd_onnx_numbers(const gd_op_attr *attr, const void *attrs, int64_t *numbers) {
    const char *field = (const char *)attrs + attr->offset;
    int count = 1;
    if (attr->type == GD_ATTR_SHAPE) {
        const gd_shape *list = (const gd_shape *)field;
        if (!gd_shape_is_set(list)) return -1;
        count = list->rank;
        memcpy(numbers, list->at, (size_t)count * sizeof *numbers);
        return count;
    }
    if (attr->type == GD_ATTR_INTS)
        count = attr->count;
    else if (attr->type != GD_ATTR_INT)
        return -1;
    memcpy(numbers, field, (size_t)count * sizeof *numbers);
    return numbers[0] == GD_UNSET ? -1 : count;
}
