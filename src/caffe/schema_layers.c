/* schema_layers.c - the messages of the options of layers. See schema.h. */
#include "caffe/schema_rows.h"

/* clang-format off */
static const gd_pb_field accuracy_fields[] = {
    ONE(1, "top_k", UINT32, "1"),
    ONE(2, "axis", INT32, "1"),
    ONE(3, "ignore_label", INT32, NULL),
};
const gd_pb_schema gd_caffe_accuracy_schema = GD_PB_SCHEMA("AccuracyParameter", accuracy_fields);

static const gd_pb_field argmax_fields[] = {
    ONE(1, "out_max_val", BOOL, NULL),
    ONE(2, "top_k", UINT32, "1"),
    ONE(3, "axis", INT32, NULL),
};
const gd_pb_schema gd_caffe_argmax_schema = GD_PB_SCHEMA("ArgMaxParameter", argmax_fields);

static const gd_pb_field clip_fields[] = {
    ONE(1, "min", FLOAT, NULL),
    ONE(2, "max", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_clip_schema = GD_PB_SCHEMA("ClipParameter", clip_fields);

static const gd_pb_field concat_fields[] = {
    ONE(1, "concat_dim", UINT32, "1"),
    ONE(2, "axis", INT32, "1"),
};
const gd_pb_schema gd_caffe_concat_schema = GD_PB_SCHEMA("ConcatParameter", concat_fields);

static const gd_pb_field batch_norm_fields[] = {
    ONE(1, "use_global_stats", BOOL, NULL),
    ONE(2, "moving_average_fraction", FLOAT, ".999"),
    ONE(3, "eps", FLOAT, "1e-5"),
};
const gd_pb_schema gd_caffe_batch_norm_schema =
    GD_PB_SCHEMA("BatchNormParameter", batch_norm_fields);

static const gd_pb_field bias_fields[] = {
    ONE(1, "axis", INT32, "1"),
    ONE(2, "num_axes", INT32, "1"),
    MESSAGE(3, "filler", gd_caffe_filler_schema),
};
const gd_pb_schema gd_caffe_bias_schema = GD_PB_SCHEMA("BiasParameter", bias_fields);

static const gd_pb_field contrastive_loss_fields[] = {
    ONE(1, "margin", FLOAT, "1.0"),
    ONE(2, "legacy_version", BOOL, NULL),
};
const gd_pb_schema gd_caffe_contrastive_loss_schema =
    GD_PB_SCHEMA("ContrastiveLossParameter", contrastive_loss_fields);

static const gd_pb_enum engine_words[] = {{"DEFAULT", 0}, {"CAFFE", 1}, {"CUDNN", 2}, {NULL, 0}};
static const gd_pb_field convolution_fields[] = {
    ONE(1, "num_output", UINT32, NULL),
    ONE(2, "bias_term", BOOL, "true"),
    MANY(3, "pad", UINT32),
    MANY(4, "kernel_size", UINT32),
    ONE(5, "group", UINT32, "1"),
    MANY(6, "stride", UINT32),
    MESSAGE(7, "weight_filler", gd_caffe_filler_schema),
    MESSAGE(8, "bias_filler", gd_caffe_filler_schema),
    ONE(9, "pad_h", UINT32, NULL),
    ONE(10, "pad_w", UINT32, NULL),
    ONE(11, "kernel_h", UINT32, NULL),
    ONE(12, "kernel_w", UINT32, NULL),
    ONE(13, "stride_h", UINT32, NULL),
    ONE(14, "stride_w", UINT32, NULL),
    WORD(15, "engine", engine_words, "DEFAULT"),
    ONE(16, "axis", INT32, "1"),
    ONE(17, "force_nd_im2col", BOOL, NULL),
    MANY(18, "dilation", UINT32),
};
const gd_pb_schema gd_caffe_convolution_schema =
    GD_PB_SCHEMA("ConvolutionParameter", convolution_fields);

static const gd_pb_field crop_fields[] = {
    ONE(1, "axis", INT32, "2"),
    MANY(2, "offset", UINT32),
};
const gd_pb_schema gd_caffe_crop_schema = GD_PB_SCHEMA("CropParameter", crop_fields);

static const gd_pb_enum db_words[] = {{"LEVELDB", 0}, {"LMDB", 1}, {NULL, 0}};
static const gd_pb_field data_fields[] = {
    ONE(1, "source", STRING, NULL),
    ONE(2, "scale", FLOAT, "1"),
    ONE(3, "mean_file", STRING, NULL),
    ONE(4, "batch_size", UINT32, NULL),
    ONE(5, "crop_size", UINT32, NULL),
    ONE(6, "mirror", BOOL, NULL),
    ONE(7, "rand_skip", UINT32, NULL),
    WORD(8, "backend", db_words, "LEVELDB"),
    ONE(9, "force_encoded_color", BOOL, NULL),
    ONE(10, "prefetch", UINT32, "4"),
};
const gd_pb_schema gd_caffe_data_schema = GD_PB_SCHEMA("DataParameter", data_fields);

static const gd_pb_field dropout_fields[] = {
    ONE(1, "dropout_ratio", FLOAT, "0.5"),
};
const gd_pb_schema gd_caffe_dropout_schema = GD_PB_SCHEMA("DropoutParameter", dropout_fields);

static const gd_pb_field dummy_data_fields[] = {
    MESSAGES(1, "data_filler", gd_caffe_filler_schema),
    MANY(2, "num", UINT32),
    MANY(3, "channels", UINT32),
    MANY(4, "height", UINT32),
    MANY(5, "width", UINT32),
    MESSAGES(6, "shape", gd_caffe_blob_shape_schema),
};
const gd_pb_schema gd_caffe_dummy_data_schema =
    GD_PB_SCHEMA("DummyDataParameter", dummy_data_fields);

static const gd_pb_enum eltwise_op_words[] = {{"PROD", 0}, {"SUM", 1}, {"MAX", 2}, {NULL, 0}};
static const gd_pb_field eltwise_fields[] = {
    WORD(1, "operation", eltwise_op_words, "SUM"),
    MANY(2, "coeff", FLOAT),
    ONE(3, "stable_prod_grad", BOOL, "true"),
};
const gd_pb_schema gd_caffe_eltwise_schema = GD_PB_SCHEMA("EltwiseParameter", eltwise_fields);

static const gd_pb_field elu_fields[] = {
    ONE(1, "alpha", FLOAT, "1"),
};
const gd_pb_schema gd_caffe_elu_schema = GD_PB_SCHEMA("ELUParameter", elu_fields);

static const gd_pb_field embed_fields[] = {
    ONE(1, "num_output", UINT32, NULL),
    ONE(2, "input_dim", UINT32, NULL),
    ONE(3, "bias_term", BOOL, "true"),
    MESSAGE(4, "weight_filler", gd_caffe_filler_schema),
    MESSAGE(5, "bias_filler", gd_caffe_filler_schema),
};
const gd_pb_schema gd_caffe_embed_schema = GD_PB_SCHEMA("EmbedParameter", embed_fields);

static const gd_pb_field exp_fields[] = {
    ONE(1, "base", FLOAT, "-1.0"),
    ONE(2, "scale", FLOAT, "1.0"),
    ONE(3, "shift", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_exp_schema = GD_PB_SCHEMA("ExpParameter", exp_fields);

static const gd_pb_field flatten_fields[] = {
    ONE(1, "axis", INT32, "1"),
    ONE(2, "end_axis", INT32, "-1"),
};
const gd_pb_schema gd_caffe_flatten_schema = GD_PB_SCHEMA("FlattenParameter", flatten_fields);

static const gd_pb_field hdf5_data_fields[] = {
    ONE(1, "source", STRING, NULL),
    ONE(2, "batch_size", UINT32, NULL),
    ONE(3, "shuffle", BOOL, NULL),
};
const gd_pb_schema gd_caffe_hdf5_data_schema = GD_PB_SCHEMA("HDF5DataParameter", hdf5_data_fields);

static const gd_pb_field hdf5_output_fields[] = {
    ONE(1, "file_name", STRING, NULL),
};
const gd_pb_schema gd_caffe_hdf5_output_schema =
    GD_PB_SCHEMA("HDF5OutputParameter", hdf5_output_fields);

static const gd_pb_enum norm_words[] = {{"L1", 1}, {"L2", 2}, {NULL, 0}};
static const gd_pb_field hinge_loss_fields[] = {
    WORD(1, "norm", norm_words, "L1"),
};
const gd_pb_schema gd_caffe_hinge_loss_schema =
    GD_PB_SCHEMA("HingeLossParameter", hinge_loss_fields);

static const gd_pb_field image_data_fields[] = {
    ONE(1, "source", STRING, NULL),
    ONE(2, "scale", FLOAT, "1"),
    ONE(3, "mean_file", STRING, NULL),
    ONE(4, "batch_size", UINT32, "1"),
    ONE(5, "crop_size", UINT32, NULL),
    ONE(6, "mirror", BOOL, NULL),
    ONE(7, "rand_skip", UINT32, NULL),
    ONE(8, "shuffle", BOOL, NULL),
    ONE(9, "new_height", UINT32, NULL),
    ONE(10, "new_width", UINT32, NULL),
    ONE(11, "is_color", BOOL, "true"),
    ONE(12, "root_folder", STRING, NULL),
};
const gd_pb_schema gd_caffe_image_data_schema =
    GD_PB_SCHEMA("ImageDataParameter", image_data_fields);

static const gd_pb_field infogain_loss_fields[] = {
    ONE(1, "source", STRING, NULL),
    ONE(2, "axis", INT32, "1"),
};
const gd_pb_schema gd_caffe_infogain_loss_schema =
    GD_PB_SCHEMA("InfogainLossParameter", infogain_loss_fields);

static const gd_pb_field inner_product_fields[] = {
    ONE(1, "num_output", UINT32, NULL),
    ONE(2, "bias_term", BOOL, "true"),
    MESSAGE(3, "weight_filler", gd_caffe_filler_schema),
    MESSAGE(4, "bias_filler", gd_caffe_filler_schema),
    ONE(5, "axis", INT32, "1"),
    ONE(6, "transpose", BOOL, NULL),
};
const gd_pb_schema gd_caffe_inner_product_schema =
    GD_PB_SCHEMA("InnerProductParameter", inner_product_fields);

static const gd_pb_field input_fields[] = {
    MESSAGES(1, "shape", gd_caffe_blob_shape_schema),
};
const gd_pb_schema gd_caffe_input_schema = GD_PB_SCHEMA("InputParameter", input_fields);

static const gd_pb_field log_fields[] = {
    ONE(1, "base", FLOAT, "-1.0"),
    ONE(2, "scale", FLOAT, "1.0"),
    ONE(3, "shift", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_log_schema = GD_PB_SCHEMA("LogParameter", log_fields);

static const gd_pb_enum norm_region_words[] = {
    {"ACROSS_CHANNELS", 0}, {"WITHIN_CHANNEL", 1}, {NULL, 0}};
static const gd_pb_field lrn_fields[] = {
    ONE(1, "local_size", UINT32, "5"),
    ONE(2, "alpha", FLOAT, "1."),
    ONE(3, "beta", FLOAT, "0.75"),
    WORD(4, "norm_region", norm_region_words, "ACROSS_CHANNELS"),
    ONE(5, "k", FLOAT, "1."),
    WORD(6, "engine", engine_words, "DEFAULT"),
};
const gd_pb_schema gd_caffe_lrn_schema = GD_PB_SCHEMA("LRNParameter", lrn_fields);

static const gd_pb_field memory_data_fields[] = {
    ONE(1, "batch_size", UINT32, NULL),
    ONE(2, "channels", UINT32, NULL),
    ONE(3, "height", UINT32, NULL),
    ONE(4, "width", UINT32, NULL),
};
const gd_pb_schema gd_caffe_memory_data_schema =
    GD_PB_SCHEMA("MemoryDataParameter", memory_data_fields);

static const gd_pb_field mvn_fields[] = {
    ONE(1, "normalize_variance", BOOL, "true"),
    ONE(2, "across_channels", BOOL, NULL),
    ONE(3, "eps", FLOAT, "1e-9"),
};
const gd_pb_schema gd_caffe_mvn_schema = GD_PB_SCHEMA("MVNParameter", mvn_fields);

static const gd_pb_field parameter_fields[] = {
    MESSAGE(1, "shape", gd_caffe_blob_shape_schema),
};
const gd_pb_schema gd_caffe_parameter_schema = GD_PB_SCHEMA("ParameterParameter", parameter_fields);

static const gd_pb_enum pool_method_words[] = {
    {"MAX", 0}, {"AVE", 1}, {"STOCHASTIC", 2}, {NULL, 0}};
static const gd_pb_enum round_mode_words[] = {{"CEIL", 0}, {"FLOOR", 1}, {NULL, 0}};
static const gd_pb_field pooling_fields[] = {
    WORD(1, "pool", pool_method_words, "MAX"),
    ONE(2, "kernel_size", UINT32, NULL),
    ONE(3, "stride", UINT32, "1"),
    ONE(4, "pad", UINT32, NULL),
    ONE(5, "kernel_h", UINT32, NULL),
    ONE(6, "kernel_w", UINT32, NULL),
    ONE(7, "stride_h", UINT32, NULL),
    ONE(8, "stride_w", UINT32, NULL),
    ONE(9, "pad_h", UINT32, NULL),
    ONE(10, "pad_w", UINT32, NULL),
    WORD(11, "engine", engine_words, "DEFAULT"),
    ONE(12, "global_pooling", BOOL, NULL),
    WORD(13, "round_mode", round_mode_words, "CEIL"),
};
const gd_pb_schema gd_caffe_pooling_schema = GD_PB_SCHEMA("PoolingParameter", pooling_fields);

static const gd_pb_field power_fields[] = {
    ONE(1, "power", FLOAT, "1.0"),
    ONE(2, "scale", FLOAT, "1.0"),
    ONE(3, "shift", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_power_schema = GD_PB_SCHEMA("PowerParameter", power_fields);

static const gd_pb_field python_fields[] = {
    ONE(1, "module", STRING, NULL),
    ONE(2, "layer", STRING, NULL),
    ONE(3, "param_str", STRING, NULL),
    ONE(4, "share_in_parallel", BOOL, NULL),
};
const gd_pb_schema gd_caffe_python_schema = GD_PB_SCHEMA("PythonParameter", python_fields);

static const gd_pb_field recurrent_fields[] = {
    ONE(1, "num_output", UINT32, NULL),
    MESSAGE(2, "weight_filler", gd_caffe_filler_schema),
    MESSAGE(3, "bias_filler", gd_caffe_filler_schema),
    ONE(4, "debug_info", BOOL, NULL),
    ONE(5, "expose_hidden", BOOL, NULL),
};
const gd_pb_schema gd_caffe_recurrent_schema = GD_PB_SCHEMA("RecurrentParameter", recurrent_fields);

static const gd_pb_enum reduction_op_words[] = {
    {"SUM", 1}, {"ASUM", 2}, {"SUMSQ", 3}, {"MEAN", 4}, {NULL, 0}};
static const gd_pb_field reduction_fields[] = {
    WORD(1, "operation", reduction_op_words, "SUM"),
    ONE(2, "axis", INT32, NULL),
    ONE(3, "coeff", FLOAT, "1.0"),
};
const gd_pb_schema gd_caffe_reduction_schema = GD_PB_SCHEMA("ReductionParameter", reduction_fields);

static const gd_pb_field relu_fields[] = {
    ONE(1, "negative_slope", FLOAT, NULL),
    WORD(2, "engine", engine_words, "DEFAULT"),
};
const gd_pb_schema gd_caffe_relu_schema = GD_PB_SCHEMA("ReLUParameter", relu_fields);

static const gd_pb_field reshape_fields[] = {
    MESSAGE(1, "shape", gd_caffe_blob_shape_schema),
    ONE(2, "axis", INT32, NULL),
    ONE(3, "num_axes", INT32, "-1"),
};
const gd_pb_schema gd_caffe_reshape_schema = GD_PB_SCHEMA("ReshapeParameter", reshape_fields);

static const gd_pb_field scale_fields[] = {
    ONE(1, "axis", INT32, "1"),
    ONE(2, "num_axes", INT32, "1"),
    MESSAGE(3, "filler", gd_caffe_filler_schema),
    ONE(4, "bias_term", BOOL, NULL),
    MESSAGE(5, "bias_filler", gd_caffe_filler_schema),
};
const gd_pb_schema gd_caffe_scale_schema = GD_PB_SCHEMA("ScaleParameter", scale_fields);

static const gd_pb_field sigmoid_fields[] = {
    WORD(1, "engine", engine_words, "DEFAULT"),
};
const gd_pb_schema gd_caffe_sigmoid_schema = GD_PB_SCHEMA("SigmoidParameter", sigmoid_fields);

static const gd_pb_field slice_fields[] = {
    ONE(1, "slice_dim", UINT32, "1"),
    MANY(2, "slice_point", UINT32),
    ONE(3, "axis", INT32, "1"),
};
const gd_pb_schema gd_caffe_slice_schema = GD_PB_SCHEMA("SliceParameter", slice_fields);

static const gd_pb_field softmax_fields[] = {
    WORD(1, "engine", engine_words, "DEFAULT"),
    ONE(2, "axis", INT32, "1"),
};
const gd_pb_schema gd_caffe_softmax_schema = GD_PB_SCHEMA("SoftmaxParameter", softmax_fields);

static const gd_pb_field swish_fields[] = {
    ONE(1, "beta", FLOAT, "1"),
};
const gd_pb_schema gd_caffe_swish_schema = GD_PB_SCHEMA("SwishParameter", swish_fields);

static const gd_pb_field tanh_fields[] = {
    WORD(1, "engine", engine_words, "DEFAULT"),
};
const gd_pb_schema gd_caffe_tanh_schema = GD_PB_SCHEMA("TanHParameter", tanh_fields);

static const gd_pb_field tile_fields[] = {
    ONE(1, "axis", INT32, "1"),
    ONE(2, "tiles", INT32, NULL),
};
const gd_pb_schema gd_caffe_tile_schema = GD_PB_SCHEMA("TileParameter", tile_fields);

static const gd_pb_field threshold_fields[] = {
    ONE(1, "threshold", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_threshold_schema = GD_PB_SCHEMA("ThresholdParameter", threshold_fields);

static const gd_pb_field window_data_fields[] = {
    ONE(1, "source", STRING, NULL),
    ONE(2, "scale", FLOAT, "1"),
    ONE(3, "mean_file", STRING, NULL),
    ONE(4, "batch_size", UINT32, NULL),
    ONE(5, "crop_size", UINT32, NULL),
    ONE(6, "mirror", BOOL, NULL),
    ONE(7, "fg_threshold", FLOAT, "0.5"),
    ONE(8, "bg_threshold", FLOAT, "0.5"),
    ONE(9, "fg_fraction", FLOAT, "0.25"),
    ONE(10, "context_pad", UINT32, NULL),
    ONE(11, "crop_mode", STRING, "warp"),
    ONE(12, "cache_images", BOOL, NULL),
    ONE(13, "root_folder", STRING, NULL),
};
const gd_pb_schema gd_caffe_window_data_schema =
    GD_PB_SCHEMA("WindowDataParameter", window_data_fields);

static const gd_pb_field spp_fields[] = {
    ONE(1, "pyramid_height", UINT32, NULL),
    WORD(2, "pool", pool_method_words, "MAX"),
    WORD(6, "engine", engine_words, "DEFAULT"),
};
const gd_pb_schema gd_caffe_spp_schema = GD_PB_SCHEMA("SPPParameter", spp_fields);

static const gd_pb_field prelu_fields[] = {
    MESSAGE(1, "filler", gd_caffe_filler_schema),
    ONE(2, "channel_shared", BOOL, NULL),
};
const gd_pb_schema gd_caffe_prelu_schema = GD_PB_SCHEMA("PReLUParameter", prelu_fields);

/* clang-format on */
