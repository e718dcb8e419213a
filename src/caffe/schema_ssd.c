/* schema_ssd.c - the messages that SSD, a branch of Caffe that detects objects, has in addition.
 * See schema.h. */
#include "caffe/schema_rows.h"

/* clang-format off */
static const gd_pb_field sampler_fields[] = {
    ONE(1, "min_scale", FLOAT, "1.0"),
    ONE(2, "max_scale", FLOAT, "1.0"),
    ONE(3, "min_aspect_ratio", FLOAT, "1.0"),
    ONE(4, "max_aspect_ratio", FLOAT, "1.0"),
};
const gd_pb_schema gd_caffe_sampler_schema = GD_PB_SCHEMA("Sampler", sampler_fields);

static const gd_pb_field sample_constraint_fields[] = {
    ONE(1, "min_jaccard_overlap", FLOAT, NULL),
    ONE(2, "max_jaccard_overlap", FLOAT, NULL),
    ONE(3, "min_sample_coverage", FLOAT, NULL),
    ONE(4, "max_sample_coverage", FLOAT, NULL),
    ONE(5, "min_object_coverage", FLOAT, NULL),
    ONE(6, "max_object_coverage", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_sample_constraint_schema =
    GD_PB_SCHEMA("SampleConstraint", sample_constraint_fields);

static const gd_pb_field batch_sampler_fields[] = {
    ONE(1, "use_original_image", BOOL, "true"),
    MESSAGE(2, "sampler", gd_caffe_sampler_schema),
    MESSAGE(3, "sample_constraint", gd_caffe_sample_constraint_schema),
    ONE(4, "max_sample", UINT32, NULL),
    ONE(5, "max_trials", UINT32, "100"),
};
const gd_pb_schema gd_caffe_batch_sampler_schema =
    GD_PB_SCHEMA("BatchSampler", batch_sampler_fields);

static const gd_pb_enum emit_type_words[] = {{"CENTER", 0}, {"MIN_OVERLAP", 1}, {NULL, 0}};
static const gd_pb_field emit_constraint_fields[] = {
    WORD(1, "emit_type", emit_type_words, "CENTER"),
    ONE(2, "emit_overlap", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_emit_constraint_schema =
    GD_PB_SCHEMA("EmitConstraint", emit_constraint_fields);

static const gd_pb_enum resize_mode_words[] = {
    {"WARP", 1}, {"FIT_SMALL_SIZE", 2}, {"FIT_LARGE_SIZE_AND_PAD", 3}, {NULL, 0}};
static const gd_pb_enum pad_mode_words[] = {
    {"CONSTANT", 1}, {"MIRRORED", 2}, {"REPEAT_NEAREST", 3}, {NULL, 0}};
static const gd_pb_enum interp_mode_words[] = {
    {"LINEAR", 1}, {"AREA", 2}, {"NEAREST", 3}, {"CUBIC", 4}, {"LANCZOS4", 5}, {NULL, 0}};
static const gd_pb_field resize_fields[] = {
    ONE(1, "prob", FLOAT, "1.0"),
    WORD(2, "resize_mode", resize_mode_words, "WARP"),
    ONE(3, "height", UINT32, NULL),
    ONE(4, "width", UINT32, NULL),
    WORD(5, "pad_mode", pad_mode_words, "CONSTANT"),
    MANY(6, "pad_value", FLOAT),
    WORDS(7, "interp_mode", interp_mode_words),
    ONE(8, "height_scale", UINT32, NULL),
    ONE(9, "width_scale", UINT32, NULL),
};
const gd_pb_schema gd_caffe_resize_schema = GD_PB_SCHEMA("ResizeParameter", resize_fields);

static const gd_pb_field salt_pepper_fields[] = {
    ONE(1, "fraction", FLOAT, NULL),
    MANY(2, "value", FLOAT),
};
const gd_pb_schema gd_caffe_salt_pepper_schema =
    GD_PB_SCHEMA("SaltPepperParameter", salt_pepper_fields);

static const gd_pb_field noise_fields[] = {
    ONE(1, "prob", FLOAT, NULL),
    ONE(2, "hist_eq", BOOL, NULL),
    ONE(3, "inverse", BOOL, NULL),
    ONE(4, "decolorize", BOOL, NULL),
    ONE(5, "gauss_blur", BOOL, NULL),
    ONE(6, "jpeg", FLOAT, "-1.0"),
    ONE(7, "posterize", BOOL, NULL),
    ONE(8, "erode", BOOL, NULL),
    ONE(9, "saltpepper", BOOL, NULL),
    MESSAGE(10, "saltpepper_param", gd_caffe_salt_pepper_schema),
    ONE(11, "clahe", BOOL, NULL),
    ONE(12, "convert_to_hsv", BOOL, NULL),
    ONE(13, "convert_to_lab", BOOL, NULL),
};
const gd_pb_schema gd_caffe_noise_schema = GD_PB_SCHEMA("NoiseParameter", noise_fields);

static const gd_pb_field distortion_fields[] = {
    ONE(1, "brightness_prob", FLOAT, NULL),
    ONE(2, "brightness_delta", FLOAT, NULL),
    ONE(3, "contrast_prob", FLOAT, NULL),
    ONE(4, "contrast_lower", FLOAT, NULL),
    ONE(5, "contrast_upper", FLOAT, NULL),
    ONE(6, "hue_prob", FLOAT, NULL),
    ONE(7, "hue_delta", FLOAT, NULL),
    ONE(8, "saturation_prob", FLOAT, NULL),
    ONE(9, "saturation_lower", FLOAT, NULL),
    ONE(10, "saturation_upper", FLOAT, NULL),
    ONE(11, "random_order_prob", FLOAT, NULL),
};
const gd_pb_schema gd_caffe_distortion_schema =
    GD_PB_SCHEMA("DistortionParameter", distortion_fields);

static const gd_pb_field expansion_fields[] = {
    ONE(1, "prob", FLOAT, "1.0"),
    ONE(2, "max_expand_ratio", FLOAT, "1.0"),
};
const gd_pb_schema gd_caffe_expansion_schema = GD_PB_SCHEMA("ExpansionParameter", expansion_fields);

static const gd_pb_enum annotation_type_words[] = {{"BBOX", 0}, {NULL, 0}};
static const gd_pb_field annotated_data_fields[] = {
    MESSAGES(1, "batch_sampler", gd_caffe_batch_sampler_schema),
    ONE(2, "label_map_file", STRING, NULL),
    WORD(3, "anno_type", annotation_type_words, NULL),
};
const gd_pb_schema gd_caffe_annotated_data_schema =
    GD_PB_SCHEMA("AnnotatedDataParameter", annotated_data_fields);

static const gd_pb_field detection_evaluate_fields[] = {
    ONE(1, "num_classes", UINT32, NULL),
    ONE(2, "background_label_id", UINT32, NULL),
    ONE(3, "overlap_threshold", FLOAT, "0.5"),
    ONE(4, "evaluate_difficult_gt", BOOL, "true"),
    ONE(5, "name_size_file", STRING, NULL),
    MESSAGE(6, "resize_param", gd_caffe_resize_schema),
};
const gd_pb_schema gd_caffe_detection_evaluate_schema =
    GD_PB_SCHEMA("DetectionEvaluateParameter", detection_evaluate_fields);

static const gd_pb_field nms_fields[] = {
    ONE(1, "nms_threshold", FLOAT, "0.3"),
    ONE(2, "top_k", INT32, NULL),
    ONE(3, "eta", FLOAT, "1.0"),
};
const gd_pb_schema gd_caffe_nms_schema = GD_PB_SCHEMA("NonMaximumSuppressionParameter", nms_fields);

static const gd_pb_field save_output_fields[] = {
    ONE(1, "output_directory", STRING, NULL),
    ONE(2, "output_name_prefix", STRING, NULL),
    ONE(3, "output_format", STRING, NULL),
    ONE(4, "label_map_file", STRING, NULL),
    ONE(5, "name_size_file", STRING, NULL),
    ONE(6, "num_test_image", UINT32, NULL),
    MESSAGE(7, "resize_param", gd_caffe_resize_schema),
};
const gd_pb_schema gd_caffe_save_output_schema =
    GD_PB_SCHEMA("SaveOutputParameter", save_output_fields);

static const gd_pb_enum code_type_words[] = {
    {"CORNER", 1}, {"CENTER_SIZE", 2}, {"CORNER_SIZE", 3}, {NULL, 0}};
static const gd_pb_field detection_output_fields[] = {
    ONE(1, "num_classes", UINT32, NULL),
    ONE(2, "share_location", BOOL, "true"),
    ONE(3, "background_label_id", INT32, NULL),
    MESSAGE(4, "nms_param", gd_caffe_nms_schema),
    MESSAGE(5, "save_output_param", gd_caffe_save_output_schema),
    WORD(6, "code_type", code_type_words, "CORNER"),
    ONE(7, "keep_top_k", INT32, "-1"),
    ONE(8, "variance_encoded_in_target", BOOL, NULL),
    ONE(9, "confidence_threshold", FLOAT, NULL),
    ONE(10, "visualize", BOOL, NULL),
    ONE(11, "visualize_threshold", FLOAT, NULL),
    ONE(12, "save_file", STRING, NULL),
};
const gd_pb_schema gd_caffe_detection_output_schema =
    GD_PB_SCHEMA("DetectionOutputParameter", detection_output_fields);

static const gd_pb_enum loc_loss_type_words[] = {{"L2", 0}, {"SMOOTH_L1", 1}, {NULL, 0}};
static const gd_pb_enum conf_loss_type_words[] = {{"SOFTMAX", 0}, {"LOGISTIC", 1}, {NULL, 0}};
static const gd_pb_enum match_type_words[] = {{"BIPARTITE", 0}, {"PER_PREDICTION", 1}, {NULL, 0}};
static const gd_pb_enum mining_type_words[] = {
    {"NONE", 0}, {"MAX_NEGATIVE", 1}, {"HARD_EXAMPLE", 2}, {NULL, 0}};
static const gd_pb_field multi_box_loss_fields[] = {
    WORD(1, "loc_loss_type", loc_loss_type_words, "SMOOTH_L1"),
    WORD(2, "conf_loss_type", conf_loss_type_words, "SOFTMAX"),
    ONE(3, "loc_weight", FLOAT, "1.0"),
    ONE(4, "num_classes", UINT32, NULL),
    ONE(5, "share_location", BOOL, "true"),
    WORD(6, "match_type", match_type_words, "PER_PREDICTION"),
    ONE(7, "overlap_threshold", FLOAT, "0.5"),
    ONE(8, "use_prior_for_matching", BOOL, "true"),
    ONE(9, "background_label_id", UINT32, NULL),
    ONE(10, "use_difficult_gt", BOOL, "true"),
    ONE(11, "do_neg_mining", BOOL, NULL),
    ONE(12, "neg_pos_ratio", FLOAT, "3.0"),
    ONE(13, "neg_overlap", FLOAT, "0.5"),
    WORD(14, "code_type", code_type_words, "CORNER"),
    ONE(16, "encode_variance_in_target", BOOL, NULL),
    ONE(17, "map_object_to_agnostic", BOOL, NULL),
    ONE(18, "ignore_cross_boundary_bbox", BOOL, NULL),
    ONE(19, "bp_inside", BOOL, NULL),
    WORD(20, "mining_type", mining_type_words, "MAX_NEGATIVE"),
    MESSAGE(21, "nms_param", gd_caffe_nms_schema),
    ONE(22, "sample_size", INT32, "64"),
    ONE(23, "use_prior_for_nms", BOOL, NULL),
};
const gd_pb_schema gd_caffe_multi_box_loss_schema =
    GD_PB_SCHEMA("MultiBoxLossParameter", multi_box_loss_fields);

static const gd_pb_field normalize_fields[] = {
    ONE(1, "across_spatial", BOOL, "true"),
    MESSAGE(2, "scale_filler", gd_caffe_filler_schema),
    ONE(3, "channel_shared", BOOL, "true"),
    ONE(4, "eps", FLOAT, "1e-10"),
};
const gd_pb_schema gd_caffe_normalize_schema = GD_PB_SCHEMA("NormalizeParameter", normalize_fields);

static const gd_pb_field permute_fields[] = {
    MANY(1, "order", UINT32),
};
const gd_pb_schema gd_caffe_permute_schema = GD_PB_SCHEMA("PermuteParameter", permute_fields);

static const gd_pb_field prior_box_fields[] = {
    MANY(1, "min_size", FLOAT),
    MANY(2, "max_size", FLOAT),
    MANY(3, "aspect_ratio", FLOAT),
    ONE(4, "flip", BOOL, "true"),
    ONE(5, "clip", BOOL, NULL),
    MANY(6, "variance", FLOAT),
    ONE(7, "img_size", UINT32, NULL),
    ONE(8, "img_h", UINT32, NULL),
    ONE(9, "img_w", UINT32, NULL),
    ONE(10, "step", FLOAT, NULL),
    ONE(11, "step_h", FLOAT, NULL),
    ONE(12, "step_w", FLOAT, NULL),
    ONE(13, "offset", FLOAT, "0.5"),
};
const gd_pb_schema gd_caffe_prior_box_schema = GD_PB_SCHEMA("PriorBoxParameter", prior_box_fields);

static const gd_pb_enum video_type_words[] = {{"WEBCAM", 0}, {"VIDEO", 1}, {NULL, 0}};
static const gd_pb_field video_data_fields[] = {
    WORD(1, "video_type", video_type_words, "WEBCAM"),
    ONE(2, "device_id", INT32, NULL),
    ONE(3, "video_file", STRING, NULL),
    ONE(4, "skip_frames", UINT32, NULL),
};
const gd_pb_schema gd_caffe_video_data_schema =
    GD_PB_SCHEMA("VideoDataParameter", video_data_fields);

/* clang-format on */
