/* schema.h - the messages of Caffe's files, by the names in caffe.proto: gd_caffe_net_schema is
 * NetParameter. Each is a table of fields with their defaults, which gd_pb_int_of and its siblings
 * (format/protobuf.h) return where a file does not set a field.
 *
 * Fields of files of any age are there: concat_dim beside axis, data_param.mean_file beside
 * transform_param.mean_file, V1 layers. read.h moves those that have a successor.
 */
#ifndef GRADUS_CAFFE_SCHEMA_H
#define GRADUS_CAFFE_SCHEMA_H

#include "format/protobuf.h"

/* Files, or their parts. */
extern const gd_pb_schema gd_caffe_blob_shape_schema, gd_caffe_blob_schema,
    gd_caffe_blob_vector_schema, gd_caffe_datum_schema, gd_caffe_filler_schema, gd_caffe_net_schema,
    gd_caffe_solver_schema, gd_caffe_solver_state_schema, gd_caffe_net_state_schema,
    gd_caffe_net_state_rule_schema, gd_caffe_param_spec_schema, gd_caffe_layer_schema,
    gd_caffe_transform_schema, gd_caffe_loss_schema;

/* The options of layers. */
extern const gd_pb_schema gd_caffe_accuracy_schema, gd_caffe_argmax_schema, gd_caffe_clip_schema,
    gd_caffe_concat_schema, gd_caffe_batch_norm_schema, gd_caffe_bias_schema,
    gd_caffe_contrastive_loss_schema, gd_caffe_convolution_schema, gd_caffe_crop_schema,
    gd_caffe_data_schema, gd_caffe_dropout_schema, gd_caffe_dummy_data_schema,
    gd_caffe_eltwise_schema, gd_caffe_elu_schema, gd_caffe_embed_schema, gd_caffe_exp_schema,
    gd_caffe_flatten_schema, gd_caffe_hdf5_data_schema, gd_caffe_hdf5_output_schema,
    gd_caffe_hinge_loss_schema, gd_caffe_image_data_schema, gd_caffe_infogain_loss_schema,
    gd_caffe_inner_product_schema, gd_caffe_input_schema, gd_caffe_log_schema, gd_caffe_lrn_schema,
    gd_caffe_memory_data_schema, gd_caffe_mvn_schema, gd_caffe_parameter_schema,
    gd_caffe_pooling_schema, gd_caffe_power_schema, gd_caffe_python_schema,
    gd_caffe_recurrent_schema, gd_caffe_reduction_schema, gd_caffe_relu_schema,
    gd_caffe_reshape_schema, gd_caffe_scale_schema, gd_caffe_sigmoid_schema, gd_caffe_slice_schema,
    gd_caffe_softmax_schema, gd_caffe_swish_schema, gd_caffe_tanh_schema, gd_caffe_tile_schema,
    gd_caffe_threshold_schema, gd_caffe_window_data_schema, gd_caffe_spp_schema,
    gd_caffe_prelu_schema;

/* Layers of older versions. */
extern const gd_pb_schema gd_caffe_v1_layer_schema, gd_caffe_v0_layer_schema;

/* What SSD adds. */
extern const gd_pb_schema gd_caffe_sampler_schema, gd_caffe_sample_constraint_schema,
    gd_caffe_batch_sampler_schema, gd_caffe_emit_constraint_schema, gd_caffe_resize_schema,
    gd_caffe_salt_pepper_schema, gd_caffe_noise_schema, gd_caffe_distortion_schema,
    gd_caffe_expansion_schema, gd_caffe_annotated_data_schema, gd_caffe_detection_evaluate_schema,
    gd_caffe_nms_schema, gd_caffe_save_output_schema, gd_caffe_detection_output_schema,
    gd_caffe_multi_box_loss_schema, gd_caffe_normalize_schema, gd_caffe_permute_schema,
    gd_caffe_prior_box_schema, gd_caffe_video_data_schema;

#endif
