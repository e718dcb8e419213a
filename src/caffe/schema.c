/* schema.c - the messages of Caffe's files: nets, layers, solvers, states, blobs. See schema.h. */
#include "caffe/own.h"
#include "caffe/schema_rows.h"

/* clang-format off */
static const gd_pb_field blob_shape_fields[] = {
    PACKED(1, "dim", INT64),
};
const gd_pb_schema gd_caffe_blob_shape_schema = GD_PB_SCHEMA("BlobShape", blob_shape_fields);

static const gd_pb_enum raw_type_words[] = {
    {"DOUBLE", 0}, {"FLOAT", 1}, {"FLOAT16", 2}, {"INT", 3}, {"UINT", 4}, {NULL, 0}};
static const gd_pb_field blob_fields[] = {
    ONE(1, "num", INT32, NULL),
    ONE(2, "channels", INT32, NULL),
    ONE(3, "height", INT32, NULL),
    ONE(4, "width", INT32, NULL),
    VIEW(5, "data", FLOAT),
    VIEW(6, "diff", FLOAT),
    MESSAGE(7, "shape", gd_caffe_blob_shape_schema),
    VIEW(8, "double_data", DOUBLE),
    VIEW(9, "double_diff", DOUBLE),
    WORD(10, "raw_data_type", raw_type_words, NULL),
    ONE(12, "raw_data", BYTES, NULL),
};
const gd_pb_schema gd_caffe_blob_schema = GD_PB_SCHEMA("BlobProto", blob_fields);

static const gd_pb_field blob_vector_fields[] = {
    MESSAGES(1, "blobs", gd_caffe_blob_schema),
};
const gd_pb_schema gd_caffe_blob_vector_schema =
    GD_PB_SCHEMA("BlobProtoVector", blob_vector_fields);

static const gd_pb_field datum_fields[] = {
    ONE(1, "channels", INT32, NULL),
    ONE(2, "height", INT32, NULL),
    ONE(3, "width", INT32, NULL),
    ONE(4, "data", BYTES, NULL),
    ONE(5, "label", INT32, NULL),
    MANY(6, "float_data", FLOAT),
    ONE(7, "encoded", BOOL, NULL),
};
const gd_pb_schema gd_caffe_datum_schema = GD_PB_SCHEMA("Datum", datum_fields);

static const gd_pb_enum variance_norm_words[] = {
    {"FAN_IN", 0}, {"FAN_OUT", 1}, {"AVERAGE", 2}, {NULL, 0}};
static const gd_pb_field filler_fields[] = {
    ONE(1, "type", STRING, "constant"),
    ONE(2, "value", FLOAT, NULL),
    ONE(3, "min", FLOAT, NULL),
    ONE(4, "max", FLOAT, "1"),
    ONE(5, "mean", FLOAT, NULL),
    ONE(6, "std", FLOAT, "1"),
    ONE(7, "sparse", INT32, "-1"),
    WORD(8, "variance_norm", variance_norm_words, "FAN_IN"),
};
const gd_pb_schema gd_caffe_filler_schema = GD_PB_SCHEMA("FillerParameter", filler_fields);

static const gd_pb_field net_fields[] = {
    ONE(1, "name", STRING, NULL),
    MESSAGES(2, "layers", gd_caffe_v1_layer_schema),
    MANY(3, "input", STRING),
    MANY(4, "input_dim", INT32),
    ONE(5, "force_backward", BOOL, NULL),
    MESSAGE(6, "state", gd_caffe_net_state_schema),
    ONE(7, "debug_info", BOOL, NULL),
    MESSAGES(8, "input_shape", gd_caffe_blob_shape_schema),
    MESSAGES(100, "layer", gd_caffe_layer_schema),
};
const gd_pb_schema gd_caffe_net_schema = GD_PB_SCHEMA("NetParameter", net_fields);

static const gd_pb_enum solver_mode_words[] = {{"CPU", 0}, {"GPU", 1}, {NULL, 0}};
static const gd_pb_enum solver_type_words[] = {
    {"SGD", 0}, {"NESTEROV", 1}, {"ADAGRAD", 2}, {"RMSPROP", 3}, {"ADADELTA", 4}, {"ADAM", 5},
    {NULL, 0}};
static const gd_pb_enum snapshot_format_words[] = {{"HDF5", 0}, {"BINARYPROTO", 1}, {NULL, 0}};
static const gd_pb_field solver_fields[] = {
    ONE(1, "train_net", STRING, NULL),
    MANY(2, "test_net", STRING),
    MANY(3, "test_iter", INT32),
    ONE(4, "test_interval", INT32, NULL),
    ONE(5, "base_lr", FLOAT, NULL),
    ONE(6, "display", INT32, NULL),
    ONE(7, "max_iter", INT32, NULL),
    ONE(8, "lr_policy", STRING, NULL),
    ONE(9, "gamma", FLOAT, NULL),
    ONE(10, "power", FLOAT, NULL),
    ONE(11, "momentum", FLOAT, NULL),
    ONE(12, "weight_decay", FLOAT, NULL),
    ONE(13, "stepsize", INT32, NULL),
    ONE(14, "snapshot", INT32, NULL),
    ONE(15, "snapshot_prefix", STRING, NULL),
    ONE(16, "snapshot_diff", BOOL, NULL),
    WORD(17, "solver_mode", solver_mode_words, "GPU"),
    ONE(18, "device_id", INT32, NULL),
    ONE(19, "test_compute_loss", BOOL, NULL),
    ONE(20, "random_seed", INT64, "-1"),
    MESSAGE(21, "train_net_param", gd_caffe_net_schema),
    MESSAGES(22, "test_net_param", gd_caffe_net_schema),
    ONE(23, "debug_info", BOOL, NULL),
    ONE(24, "net", STRING, NULL),
    MESSAGE(25, "net_param", gd_caffe_net_schema),
    MESSAGE(26, "train_state", gd_caffe_net_state_schema),
    MESSAGES(27, "test_state", gd_caffe_net_state_schema),
    ONE(28, "snapshot_after_train", BOOL, "true"),
    ONE(29, "regularization_type", STRING, "L2"),
    WORD(30, "solver_type", solver_type_words, "SGD"),
    ONE(31, "delta", FLOAT, "1e-8"),
    ONE(32, "test_initialization", BOOL, "true"),
    ONE(33, "average_loss", INT32, "1"),
    MANY(34, "stepvalue", INT32),
    ONE(35, "clip_gradients", FLOAT, "-1"),
    ONE(36, "iter_size", INT32, "1"),
    WORD(37, "snapshot_format", snapshot_format_words, "BINARYPROTO"),
    ONE(38, "rms_decay", FLOAT, "0.99"),
    ONE(39, "momentum2", FLOAT, "0.999"),
    ONE(40, "type", STRING, "SGD"),
    ONE(41, "layer_wise_reduce", BOOL, "true"),
    MANY(42, "weights", STRING),
};
const gd_pb_schema gd_caffe_solver_schema = GD_PB_SCHEMA("SolverParameter", solver_fields);

static const gd_pb_field solver_state_fields[] = {
    ONE(1, "iter", INT32, NULL),
    ONE(2, "learned_net", STRING, NULL),
    MESSAGES(3, "history", gd_caffe_blob_schema),
    ONE(4, "current_step", INT32, NULL),
    ONE(5, "minimum_loss", FLOAT, "1e+38"),
    ONE(6, "iter_last_event", INT32, NULL),
};
const gd_pb_schema gd_caffe_solver_state_schema = GD_PB_SCHEMA("SolverState", solver_state_fields);

static const gd_pb_enum phase_words[] = {{"TRAIN", 0}, {"TEST", 1}, {NULL, 0}};
static const gd_pb_field net_state_fields[] = {
    WORD(1, "phase", phase_words, "TEST"),
    ONE(2, "level", INT32, NULL),
    MANY(3, "stage", STRING),
};
const gd_pb_schema gd_caffe_net_state_schema = GD_PB_SCHEMA("NetState", net_state_fields);

static const gd_pb_field net_state_rule_fields[] = {
    WORD(1, "phase", phase_words, NULL),
    ONE(2, "min_level", INT32, NULL),
    ONE(3, "max_level", INT32, NULL),
    MANY(4, "stage", STRING),
    MANY(5, "not_stage", STRING),
};
const gd_pb_schema gd_caffe_net_state_rule_schema =
    GD_PB_SCHEMA("NetStateRule", net_state_rule_fields);

static const gd_pb_enum dim_check_mode_words[] = {{"STRICT", 0}, {"PERMISSIVE", 1}, {NULL, 0}};
static const gd_pb_field param_spec_fields[] = {
    ONE(1, "name", STRING, NULL),
    WORD(2, "share_mode", dim_check_mode_words, NULL),
    ONE(3, "lr_mult", FLOAT, "1.0"),
    ONE(4, "decay_mult", FLOAT, "1.0"),
};
const gd_pb_schema gd_caffe_param_spec_schema = GD_PB_SCHEMA("ParamSpec", param_spec_fields);

static const gd_pb_field layer_fields[] = {
    ONE(1, "name", STRING, NULL),
    ONE(2, "type", STRING, NULL),
    MANY(3, "bottom", STRING),
    MANY(4, "top", STRING),
    MANY(5, "loss_weight", FLOAT),
    MESSAGES(6, "param", gd_caffe_param_spec_schema),
    MESSAGES(7, "blobs", gd_caffe_blob_schema),
    MESSAGES(8, "include", gd_caffe_net_state_rule_schema),
    MESSAGES(9, "exclude", gd_caffe_net_state_rule_schema),
    WORD(10, "phase", phase_words, NULL),
    MANY(11, "propagate_down", BOOL),
    MESSAGE(100, "transform_param", gd_caffe_transform_schema),
    MESSAGE(101, "loss_param", gd_caffe_loss_schema),
    MESSAGE(102, "accuracy_param", gd_caffe_accuracy_schema),
    MESSAGE(103, "argmax_param", gd_caffe_argmax_schema),
    MESSAGE(104, "concat_param", gd_caffe_concat_schema),
    MESSAGE(105, "contrastive_loss_param", gd_caffe_contrastive_loss_schema),
    MESSAGE(106, "convolution_param", gd_caffe_convolution_schema),
    MESSAGE(107, "data_param", gd_caffe_data_schema),
    MESSAGE(108, "dropout_param", gd_caffe_dropout_schema),
    MESSAGE(109, "dummy_data_param", gd_caffe_dummy_data_schema),
    MESSAGE(110, "eltwise_param", gd_caffe_eltwise_schema),
    MESSAGE(111, "exp_param", gd_caffe_exp_schema),
    MESSAGE(112, "hdf5_data_param", gd_caffe_hdf5_data_schema),
    MESSAGE(113, "hdf5_output_param", gd_caffe_hdf5_output_schema),
    MESSAGE(114, "hinge_loss_param", gd_caffe_hinge_loss_schema),
    MESSAGE(115, "image_data_param", gd_caffe_image_data_schema),
    MESSAGE(116, "infogain_loss_param", gd_caffe_infogain_loss_schema),
    MESSAGE(117, "inner_product_param", gd_caffe_inner_product_schema),
    MESSAGE(118, "lrn_param", gd_caffe_lrn_schema),
    MESSAGE(119, "memory_data_param", gd_caffe_memory_data_schema),
    MESSAGE(120, "mvn_param", gd_caffe_mvn_schema),
    MESSAGE(121, "pooling_param", gd_caffe_pooling_schema),
    MESSAGE(122, "power_param", gd_caffe_power_schema),
    MESSAGE(123, "relu_param", gd_caffe_relu_schema),
    MESSAGE(124, "sigmoid_param", gd_caffe_sigmoid_schema),
    MESSAGE(125, "softmax_param", gd_caffe_softmax_schema),
    MESSAGE(126, "slice_param", gd_caffe_slice_schema),
    MESSAGE(127, "tanh_param", gd_caffe_tanh_schema),
    MESSAGE(128, "threshold_param", gd_caffe_threshold_schema),
    MESSAGE(129, "window_data_param", gd_caffe_window_data_schema),
    MESSAGE(130, "python_param", gd_caffe_python_schema),
    MESSAGE(131, "prelu_param", gd_caffe_prelu_schema),
    MESSAGE(132, "spp_param", gd_caffe_spp_schema),
    MESSAGE(133, "reshape_param", gd_caffe_reshape_schema),
    MESSAGE(134, "log_param", gd_caffe_log_schema),
    MESSAGE(135, "flatten_param", gd_caffe_flatten_schema),
    MESSAGE(136, "reduction_param", gd_caffe_reduction_schema),
    MESSAGE(137, "embed_param", gd_caffe_embed_schema),
    MESSAGE(138, "tile_param", gd_caffe_tile_schema),
    MESSAGE(139, "batch_norm_param", gd_caffe_batch_norm_schema),
    MESSAGE(140, "elu_param", gd_caffe_elu_schema),
    MESSAGE(141, "bias_param", gd_caffe_bias_schema),
    MESSAGE(142, "scale_param", gd_caffe_scale_schema),
    MESSAGE(143, "input_param", gd_caffe_input_schema),
    MESSAGE(144, "crop_param", gd_caffe_crop_schema),
    MESSAGE(145, "parameter_param", gd_caffe_parameter_schema),
    MESSAGE(146, "recurrent_param", gd_caffe_recurrent_schema),
    MESSAGE(147, "swish_param", gd_caffe_swish_schema),
    MESSAGE(148, "clip_param", gd_caffe_clip_schema),
    MESSAGE(200, "annotated_data_param", gd_caffe_annotated_data_schema),
    MESSAGE(201, "multibox_loss_param", gd_caffe_multi_box_loss_schema),
    MESSAGE(202, "permute_param", gd_caffe_permute_schema),
    MESSAGE(203, "prior_box_param", gd_caffe_prior_box_schema),
    MESSAGE(204, "detection_output_param", gd_caffe_detection_output_schema),
    MESSAGE(205, "detection_evaluate_param", gd_caffe_detection_evaluate_schema),
    MESSAGE(206, "norm_param", gd_caffe_normalize_schema),
    MESSAGE(207, "video_data_param", gd_caffe_video_data_schema),
};
const gd_pb_schema gd_caffe_layer_schema = {
    "LayerParameter", GD_PB_COUNTED(layer_fields), "layer", gd_caffe_own_field};

static const gd_pb_field transform_fields[] = {
    ONE(1, "scale", FLOAT, "1"),
    ONE(2, "mirror", BOOL, NULL),
    ONE(3, "crop_size", UINT32, NULL),
    ONE(4, "mean_file", STRING, NULL),
    MANY(5, "mean_value", FLOAT),
    ONE(6, "force_color", BOOL, NULL),
    ONE(7, "force_gray", BOOL, NULL),
    MESSAGE(8, "resize_param", gd_caffe_resize_schema),
    MESSAGE(9, "noise_param", gd_caffe_noise_schema),
    MESSAGE(10, "emit_constraint", gd_caffe_emit_constraint_schema),
    ONE(11, "crop_h", UINT32, NULL),
    ONE(12, "crop_w", UINT32, NULL),
    MESSAGE(13, "distort_param", gd_caffe_distortion_schema),
    MESSAGE(14, "expand_param", gd_caffe_expansion_schema),
};
const gd_pb_schema gd_caffe_transform_schema =
    GD_PB_SCHEMA("TransformationParameter", transform_fields);

static const gd_pb_enum normalization_mode_words[] = {
    {"FULL", 0}, {"VALID", 1}, {"BATCH_SIZE", 2}, {"NONE", 3}, {NULL, 0}};
static const gd_pb_field loss_fields[] = {
    ONE(1, "ignore_label", INT32, NULL),
    ONE(2, "normalize", BOOL, NULL),
    WORD(3, "normalization", normalization_mode_words, "VALID"),
};
const gd_pb_schema gd_caffe_loss_schema = GD_PB_SCHEMA("LossParameter", loss_fields);

/* clang-format on */
