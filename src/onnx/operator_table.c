/* operator_table.c - the table that maps ops to ONNX operators, where their records do not.
 *
 * operator_table.h and codegen/operator_text.h describe the form of a row. Order: conditions that
 * the text of a row cannot express; the table, by family; lookups.
 */
#include "onnx/operator_table.h"

#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"
#include "onnx/save/save.h"
#include "dispatch/infer.h"

/* --- conditions for saving -------------------------------------------------------------------- */

static bool has_unit_axes(const gd_onnx_call *c) {
    const gd_squeeze_options *o = c->attrs;
    for (int k = 0; k < o->axis.rank && gd_shape_is_set(&o->axis); k++) {
        const int axis = gd_onnx_nonnegative_axis(o->axis.at[k], c->in[0].rank);
        if (axis < 0 || axis >= c->in[0].rank || c->in[0].dims[axis] != 1) return false;
    }
    return gd_shape_is_set(&o->axis);
}

static bool has_known_pieces(const gd_onnx_call *c) {
    const gd_split_options *o = c->attrs;
    for (int k = 0; k < c->n_out; k++)
        if (c->out[k].dims[gd_onnx_nonnegative_axis(o->axis, c->out[k].rank)] == GD_UNKNOWN)
            return false;
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

static bool has_no_running_statistics(const gd_onnx_call *c) {
    return c->n_in < 4 || !c->in[3].present;
}

/* ONNX neither sums bools nor reduces tensors of rank 0. */
static bool is_reducible(const gd_onnx_call *c) {
    return c->out[0].dtype != GD_BOOL && c->in[0].rank > 0;
}

/* In the op, an empty list of axes means no axes. In ONNX it means all axes, unless
 * noop_with_empty_axes is set. */
static bool has_axes(const gd_onnx_call *c) {
    int64_t axes[GD_MAX_RANK];
    return is_reducible(c) &&
           gd_onnx_option_numbers(gd_onnx_find_option(c->op, "axis"), c->attrs, axes) != 0;
}
static bool has_no_axes(const gd_onnx_call *c) { return is_reducible(c) && !has_axes(c); }

static bool has_equal_ranks(const gd_onnx_call *c) {
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].rank != c->out[0].rank) return false;
    return true;
}

/* For scatters: index and src have equal shapes. */
static bool has_equal_shapes(const gd_onnx_call *c) {
    const gd_slot *index = &c->in[1], *src = &c->in[2];
    for (int i = 0; i < index->rank && index->rank == src->rank; i++)
        if (index->dims[i] != src->dims[i]) return false;
    return index->rank == src->rank && c->in[0].rank > 0;
}

/* Whether the op and ONNX have the same number of windows. With ceil_mode, the op drops a last
 * window that begins in the padding, and ONNX keeps it. */
static bool has_equal_windows(const gd_onnx_call *c) {
    const gd_op_attr *ceil_mode = gd_onnx_find_option(c->op, "ceil_mode"),
                     *dilation = gd_onnx_find_option(c->op, "dilation");
    int64_t kernel[3], stride[3], padding[3], step[3] = {1, 1, 1};
    if (!*((const bool *)((const char *)c->attrs + ceil_mode->offset))) return true;
    const int n = gd_onnx_option_numbers(gd_onnx_find_option(c->op, "kernel"), c->attrs, kernel);
    if (gd_onnx_option_numbers(gd_onnx_find_option(c->op, "stride"), c->attrs, stride) < 0)
        memcpy(stride, kernel, sizeof stride);
    gd_onnx_option_numbers(gd_onnx_find_option(c->op, "padding"), c->attrs, padding);
    if (dilation) gd_onnx_option_numbers(dilation, c->attrs, step);
    for (int i = 0; i < n; i++) {
        const int64_t size = c->in[0].dims[2 + i], windows = c->out[0].dims[2 + i];
        if (size == GD_UNKNOWN || windows == GD_UNKNOWN || stride[i] < 1) return false;
        const int64_t room = size + 2 * padding[i] - step[i] * (kernel[i] - 1) - 1;
        if (room < 0 || (room + stride[i] - 1) / stride[i] + 1 != windows) return false;
    }
    return n > 0;
}

/* With a known kernel, `same` padding is saved as explicit pads: not every runtime supports
 * SAME_UPPER with dilation. */
static bool has_known_kernel(const gd_onnx_call *c) {
    for (int i = 2; i < c->in[1].rank; i++)
        if (c->in[1].dims[i] == GD_UNKNOWN) return false;
    return true;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Each row is on one line, so clang-format is off. */
/* clang-format off */
#define REDUCE_WHEN(condition, ...) \
    {__VA_ARGS__, .inputs = "x axes:axis/all", .attributes = "keepdims=keepdim~1 noop_with_empty_axes?", .when = condition, .can_save = has_axes}, \
    {__VA_ARGS__, .inputs = "x axes:axis/all", .attributes = "keepdims=keepdim~1 noop_with_empty_axes!1~0", .when = condition " saving", .can_save = has_no_axes}
#define REDUCE(which) REDUCE_WHEN("", .op = which, .cast = "y")

#define CONV_ATTRIBUTES "strides=stride dilations=dilation group=groups kernel_shape? "
#define CONV(which, rank) \
    {.op = which, .attributes = CONV_ATTRIBUTES "pads=padding*2 auto_pad!NOTSET~NOTSET", .when = "pad_mode=explicit x:rank=" rank, .cast = "w"}, \
    {.op = which, .attributes = CONV_ATTRIBUTES "auto_pad!VALID~NOTSET", .when = "pad_mode=valid x:rank=" rank, .cast = "w"}, \
    {.op = which, .attributes = CONV_ATTRIBUTES "pads=padding/same_pads auto_pad!NOTSET~NOTSET", .when = "pad_mode=same saving x:rank=" rank, .cast = "w", .can_save = has_known_kernel}, \
    {.op = which, .attributes = CONV_ATTRIBUTES "auto_pad!SAME_UPPER~NOTSET", .when = "pad_mode=same x:rank=" rank, .cast = "w"}
#define CONV_TRANSPOSE(which, rank) \
    {.op = which, .attributes = CONV_ATTRIBUTES "pads=padding*2 output_padding=output_padding auto_pad!NOTSET~NOTSET", \
     .when = "x:rank=" rank, .cast = "w", .load = gd_onnx_load_conv_transpose}

#define POOL_ATTRIBUTES "kernel_shape=kernel strides=stride|kernel~1 pads=padding*2 ceil_mode=ceil_mode auto_pad!NOTSET~NOTSET "
#define MAX_POOL_ATTRIBUTES POOL_ATTRIBUTES "dilations=dilation storage_order!0~0"
#define MAX_POOL(which, rank) \
    {.op = which, .attributes = MAX_POOL_ATTRIBUTES, .when = "x:rank=" rank, .cast = "w", .can_save = has_equal_windows}
#define MAX_POOL_INDICES(which, rank) \
    {.op = which, .name = "MaxPool", .attributes = MAX_POOL_ATTRIBUTES, .when = "x:rank=" rank, .can_save = has_equal_windows, .save = gd_onnx_save_max_pool_indices}
#define AVG_POOL(which, rank) \
    {.op = which, .attributes = POOL_ATTRIBUTES "dilations!1~1 count_include_pad=count_include_pad~false", \
     .when = "divisor_override=none x:rank=" rank, .cast = "w", .can_save = has_equal_windows, .load = gd_onnx_load_average_pool}

const gd_onnx_row gd_onnx_rows[] = {
    /* elementwise */
    {.op = "clamp", .inputs = "x min=min max=max", .load = gd_onnx_load_clip},
    {.name = "Sum", .load = gd_onnx_load_sum},
    {.name = "Mean", .load = gd_onnx_load_mean},
    {.name = "Max", .load = gd_onnx_load_max},
    {.name = "Min", .load = gd_onnx_load_min},
    {.name = "CastLike", .load = gd_onnx_load_cast_like},
    {.name = "BitShift", .load = gd_onnx_load_bit_shift},
    {.name = "ThresholdedRelu", .load = gd_onnx_load_thresholded_relu},
    {.name = "Shrink", .load = gd_onnx_load_shrink},
    {.name = "Swish", .load = gd_onnx_load_swish},
    {.op = "pow", .load = gd_onnx_load_pow},
    {.op = "remainder", .attributes = "fmod!0~0", .when = "a:int b:int"},
    {.op = "remainder", .body = gd_onnx_remainder_body},
    {.op = "floor_divide", .name = "Div", .when = "a:int b:int", .save = gd_onnx_save_floor_divide},
    {.op = "floor_divide", .body = gd_onnx_floor_divide_body},
    {.name = "Div", .load = gd_onnx_load_div},
    {.name = "Selu", .load = gd_onnx_load_selu},
    {.name = "HardSigmoid", .load = gd_onnx_load_hard_sigmoid},
    {.name = "IsInf", .load = gd_onnx_load_isinf},

    /* products */
    {.op = "linear", .attributes = "alpha!1~1 beta!1~1 transA!0~0 transB!1~0", .when = "x:rank=2", .load = gd_onnx_load_gemm},

    /* reductions */
    REDUCE("sum"),
    REDUCE("mean"),
    REDUCE("prod"),
    REDUCE("max"),
    REDUCE("min"),
    REDUCE("logsumexp"),
    REDUCE_WHEN("p=2", .op = "norm"),
    REDUCE_WHEN("p=1", .op = "norm", .name = "ReduceL1"),
    {.name = "ReduceSumSquare", .load = gd_onnx_load_sum_square},
    {.name = "ReduceLogSum", .load = gd_onnx_load_log_sum},
    {.name = "Hardmax", .load = gd_onnx_load_hardmax},
    {.name = "LpNormalization", .load = gd_onnx_load_lp_normalization},
    {.op = "argmax", .attributes = "axis=axis~0 keepdims=keepdim~1 select_last_index!0~0", .when = "x:rank>0", .can_save = argmax_has_axis},
    {.name = "ArgMax", .load = gd_onnx_load_argmax},
    {.op = "argmax", .body = gd_onnx_argmax_body},
    {.op = "argmin", .attributes = "axis=axis~0 keepdims=keepdim~1 select_last_index!0~0", .when = "x:rank>0", .can_save = argmin_has_axis},
    {.name = "ArgMin", .load = gd_onnx_load_argmin},
    {.op = "argmin", .body = gd_onnx_argmin_body},
    {.op = "cumsum", .inputs = "x axis=axis", .attributes = "exclusive=exclusive reverse=reverse", .cast = "y", .can_save = is_reducible},
    {.op = "topk", .inputs = "x k:k", .attributes = "axis=axis largest=largest", .when = "x:rank>0", .can_save = is_reducible, .load = gd_onnx_load_topk},

    {.op = "sort", .name = "TopK", .save = gd_onnx_save_sort},

    /* shapes */
    {.op = "reshape", .inputs = "x shape:dims", .attributes = "allowzero!1~0", .load = gd_onnx_load_reshape},
    {.op = "flatten", .attributes = "axis!1~1", .when = "start_axis=1 end_axis=-1 x:rank>1"},
    {.op = "flatten", .name = "Reshape", .when = "saving", .save = gd_onnx_save_axes},
    {.op = "flatten", .body = gd_onnx_flatten_body},
    {.name = "Flatten", .load = gd_onnx_load_flatten},
    {.op = "unflatten", .name = "Reshape", .when = "saving", .save = gd_onnx_save_axes},
    {.op = "squeeze", .inputs = "x axes:axis", .can_save = has_unit_axes},
    {.op = "squeeze", .body = gd_onnx_squeeze_body},
    {.op = "unsqueeze", .inputs = "x axes:axis", .load = gd_onnx_load_unsqueeze},
    {.op = "expand", .inputs = "x shape:dims/broadcast", .load = gd_onnx_load_expand},
    {.op = "permute", .attributes = "perm=axes/nonnegative", .load = gd_onnx_load_transpose},
    {.op = "transpose", .body = gd_onnx_transpose_body},
    {.op = "movedim", .body = gd_onnx_movedim_body},
    {.op = "slice", .inputs = "x starts:start/first ends:stop/last axes:axis steps:step", .load = gd_onnx_load_slice},
    {.op = "narrow", .body = gd_onnx_narrow_body},
    {.op = "unbind", .body = gd_onnx_unbind_body},
    {.op = "windows", .body = gd_onnx_windows_body},
    {.op = "flip", .body = gd_onnx_flip_body},
    {.op = "cat", .attributes = "axis=axis", .cast = "y", .can_save = has_equal_ranks},
    {.op = "cat", .body = gd_onnx_cat_body},
    {.op = "stack", .body = gd_onnx_stack_body},
    {.op = "split", .inputs = "x split:sizes/output_sizes", .attributes = "axis=axis", .can_save = has_known_pieces, .load = gd_onnx_load_split},
    {.op = "repeat", .inputs = "x repeats:repeats", .can_save = repeats_each_axis, .load = gd_onnx_load_tile},
    {.op = "pad", .inputs = "x pads:padding/pads constant_value=value", .attributes = "mode=mode,replicate:edge,circular:wrap", .load = gd_onnx_load_pad},

    /* indices */
    {.op = "one_hot", .name = "OneHot", .save = gd_onnx_save_one_hot},
    {.op = "one_hot_classes", .name = "OneHot", .save = gd_onnx_save_one_hot},
    {.name = "OneHot", .load = gd_onnx_load_one_hot},
    {.op = "embedding", .inputs = "weight x", .attributes = "axis!0~0", .when = "weight:rank=2 x:int x:rank>0", .cast = "i-", .load = gd_onnx_load_gather},
    {.op = "gather", .inputs = "x index", .attributes = "axis=axis~0", .when = "x:rank>0 x:rank_of=index", .cast = "-i", .load = gd_onnx_load_gather_elements},
    {.op = "scatter", .inputs = "x index src", .attributes = "axis=axis~0 reduction!none~none", .cast = "-i-", .can_save = has_equal_shapes, .load = gd_onnx_load_scatter_elements},
    {.op = "scatter_add", .name = "ScatterElements", .inputs = "x index src", .attributes = "axis=axis~0 reduction!add~none", .when = "saving", .cast = "-i-", .can_save = has_equal_shapes},
    {.op = "scatter_mul", .name = "ScatterElements", .inputs = "x index src", .attributes = "axis=axis~0 reduction!mul~none", .when = "saving", .cast = "-i-", .can_save = has_equal_shapes},
    {.op = "scatter_extreme", .name = "ScatterElements", .inputs = "x index src", .attributes = "axis=axis~0 reduction!max~none", .when = "largest=true include_self=true saving", .cast = "-i-", .can_save = has_equal_shapes},
    {.op = "scatter_extreme", .name = "ScatterElements", .inputs = "x index src", .attributes = "axis=axis~0 reduction!min~none", .when = "largest=false include_self=true saving", .cast = "-i-", .can_save = has_equal_shapes},
    {.name = "GatherND", .load = gd_onnx_load_gather_nd},
    {.name = "ScatterND", .load = gd_onnx_load_scatter_nd},
    {.op = "nonzero", .name = "NonZero", .save = gd_onnx_save_nonzero},
    {.name = "NonZero", .load = gd_onnx_load_nonzero},
    {.op = "masked_select", .body = gd_onnx_masked_select_body},
    {.op = "index_add", .body = gd_onnx_index_add_body},
    {.op = "diagonal", .body = gd_onnx_diagonal_body},

    /* layers */
    {.op = "attention_forward", .name = "Attention", .when = "causal=true saving", .save = gd_onnx_save_causal},
    CONV("conv1d", "3"),
    CONV("conv2d", "4"),
    CONV("conv3d", "5"),
    CONV_TRANSPOSE("conv_transpose1d", "3"),
    CONV_TRANSPOSE("conv_transpose2d", "4"),
    CONV_TRANSPOSE("conv_transpose3d", "5"),
    MAX_POOL("max_pool1d", "3"),
    MAX_POOL("max_pool2d", "4"),
    MAX_POOL("max_pool3d", "5"),
    {.name = "MaxPool", .load = gd_onnx_load_max_pool_indices},
    MAX_POOL_INDICES("max_pool1d_with_indices", "3"),
    MAX_POOL_INDICES("max_pool2d_with_indices", "4"),
    MAX_POOL_INDICES("max_pool3d_with_indices", "5"),
    AVG_POOL("avg_pool1d", "3"),
    AVG_POOL("avg_pool2d", "4"),
    AVG_POOL("avg_pool3d", "5"),
    {.op = "adaptive_avg_pool1d", .name = "GlobalAveragePool", .save = gd_onnx_save_adaptive},
    {.op = "adaptive_avg_pool1d", .body = gd_onnx_adaptive_body},
    {.op = "adaptive_avg_pool2d", .name = "GlobalAveragePool", .save = gd_onnx_save_adaptive},
    {.op = "adaptive_avg_pool2d", .body = gd_onnx_adaptive_body},
    {.op = "adaptive_avg_pool3d", .name = "GlobalAveragePool", .save = gd_onnx_save_adaptive},
    {.op = "adaptive_avg_pool3d", .body = gd_onnx_adaptive_body},
    {.op = "adaptive_max_pool1d", .name = "GlobalMaxPool", .save = gd_onnx_save_adaptive},
    {.op = "adaptive_max_pool1d", .body = gd_onnx_adaptive_body},
    {.op = "adaptive_max_pool2d", .name = "GlobalMaxPool", .save = gd_onnx_save_adaptive},
    {.op = "adaptive_max_pool2d", .body = gd_onnx_adaptive_body},
    {.op = "adaptive_max_pool3d", .name = "GlobalMaxPool", .save = gd_onnx_save_adaptive},
    {.op = "adaptive_max_pool3d", .body = gd_onnx_adaptive_body},
    {.op = "batch_norm", .inputs = "x weight|1 bias|0 running_mean running_var", .attributes = "epsilon=eps momentum? spatial? training_mode!0~0", .when = "training=false x:rank>1", .load = gd_onnx_load_batch_norm},
    {.name = "RMSNormalization", .load = gd_onnx_load_rms_norm},
    {.name = "MeanVarianceNormalization", .load = gd_onnx_load_mean_variance},
    {.name = "Attention", .load = gd_onnx_load_attention},
    {.op = "layer_norm", .inputs = "x weight|1 bias", .attributes = "axis=normalized_dims/trailing_axes epsilon=eps stash_type!11~1", .when = "x:f64", .load = gd_onnx_load_layer_norm},
    {.op = "layer_norm", .inputs = "x weight|1 bias", .attributes = "axis=normalized_dims/trailing_axes epsilon=eps stash_type!1~1", .load = gd_onnx_load_layer_norm},
    {.op = "group_norm", .inputs = "x weight|1 bias|0", .attributes = "num_groups=groups epsilon=eps stash_type!11~1", .when = "x:f64"},
    {.op = "group_norm", .inputs = "x weight|1 bias|0", .attributes = "num_groups=groups epsilon=eps stash_type!1~1"},
    {.op = "instance_norm", .inputs = "x weight|1 bias|0", .attributes = "epsilon=eps", .when = "use_input_stats=true", .can_save = has_no_running_statistics},
    {.op = "instance_norm", .name = "BatchNormalization", .inputs = "x weight|1 bias|0 running_mean running_var", .attributes = "epsilon=eps", .when = "use_input_stats=false saving"},
    {.op = "dropout", .inputs = "x ratio=p", .attributes = "seed?", .when = "training=false", .load = gd_onnx_load_dropout},

    {.op = "resize", .name = "Resize", .save = gd_onnx_save_resize},
    {.name = "Resize", .load = gd_onnx_load_resize},
    {.op = "recurrent", .name = "LSTM", .save = gd_onnx_save_recurrent}, /* or GRU, RNN */
    {.name = "LSTM", .load = gd_onnx_load_lstm},
    {.name = "GRU", .load = gd_onnx_load_gru},
    {.name = "RNN", .load = gd_onnx_load_rnn},

    /* losses */
    {.op = "cross_entropy", .inputs = "x target weight", .attributes = "reduction=reduction ignore_index=ignore_index", .when = "axis=1 label_smoothing=0 x:rank>1 target:int", .cast = "-i-", .load = gd_onnx_load_softmax_loss},

    /* constants */
    {.op = "full_like", .name = "Expand", .save = gd_onnx_save_full_like},
    {.op = "sizes_of", .name = "Shape", .save = gd_onnx_save_sizes_of},
    {.op = "deferred_call", .name = "Reshape", .save = gd_onnx_save_deferred},

    /* operators that functions load */
    {.name = "Constant", .load = gd_onnx_load_constant},
    {.name = "ConstantOfShape", .load = gd_onnx_load_constant_of_shape},
    {.name = "Shape", .load = gd_onnx_load_shape},
    {.name = "Range", .load = gd_onnx_load_range},
    {.name = "Size", .load = gd_onnx_load_size},
    {.name = "SequenceConstruct", .load = gd_onnx_load_sequence_construct},
    {.name = "SequenceEmpty", .load = gd_onnx_load_sequence_empty},
    {.name = "SequenceAt", .load = gd_onnx_load_sequence_at},
    {.name = "SequenceLength", .load = gd_onnx_load_sequence_length},
    {.name = "SequenceInsert", .load = gd_onnx_load_sequence_insert},
    {.name = "SequenceErase", .load = gd_onnx_load_sequence_erase},
    {.name = "ConcatFromSequence", .load = gd_onnx_load_concat_from_sequence},
    {.name = "SplitToSequence", .load = gd_onnx_load_split_to_sequence},
    {.name = "GridSample", .load = gd_onnx_load_grid_sample},
    {.name = "AffineGrid", .load = gd_onnx_load_affine_grid},
    {.name = "Col2Im", .load = gd_onnx_load_col2im},
    {.name = "EyeLike", .load = gd_onnx_load_eye_like},
    {.name = "DepthToSpace", .load = gd_onnx_load_depth_to_space},
    {.name = "SpaceToDepth", .load = gd_onnx_load_space_to_depth},

    /* branches and loops; save/control_flow.c saves them */
    {.name = "If", .load = gd_onnx_load_if},
    {.name = "Loop", .load = gd_onnx_load_loop},
    {.name = "Scan", .load = gd_onnx_load_scan},
};
/* clang-format on */
const int gd_onnx_row_count = sizeof gd_onnx_rows / sizeof *gd_onnx_rows;

bool gd_onnx_row_loads(const gd_onnx_row *row) {
    return !row->body && !row->save && !gd_operator_only_saves(row->when);
}

const char *gd_onnx_row_name(const gd_onnx_row *row) {
    return row->name ? row->name : gd_op_onnx_name(gd_op_find(row->op));
}

static bool is_row_of(const gd_onnx_row *row, const gd_op *op) {
    return row->op && strcmp(row->op, op->name) == 0;
}

bool gd_onnx_record_row(const gd_op *op, gd_onnx_row *row) {
    const gd_operator_text *t = &op->onnx;
    bool exists = t->inputs || t->attributes || t->when || t->cast;
    if (!exists && *gd_op_onnx_name(op) && (op->flags & GD_OP_ELEMENTWISE)) {
        int i = 0;
        while (i < gd_onnx_row_count && !is_row_of(&gd_onnx_rows[i], op)) i++;
        exists = i == gd_onnx_row_count;
    }
    *row = (gd_onnx_row){.op = op->name,
                         .name = t->name,
                         .inputs = t->inputs,
                         .attributes = t->attributes,
                         .when = t->when,
                         .cast = t->cast};
    return exists;
}

bool gd_onnx_next_row(const gd_op *op, int *at, gd_onnx_row *row) {
    if (*at == 0 && ++*at && gd_onnx_record_row(op, row)) return true;
    for (int i = *at - 1; i < gd_onnx_row_count; i++) {
        if (!is_row_of(&gd_onnx_rows[i], op)) continue;
        *row = gd_onnx_rows[i];
        *at = i + 2;
        return true;
    }
    *at = gd_onnx_row_count + 1;
    return false;
}
