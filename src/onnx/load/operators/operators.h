/* operators.h - the functions that load nodes which a row cannot describe.
 *
 * Each loads one node: it reads inputs and attributes, calls ops, and sets the outputs. The table
 * (operator_table.c) names them.
 */
#ifndef GRADUS_ONNX_LOAD_OPERATORS_OPERATORS_H
#define GRADUS_ONNX_LOAD_OPERATORS_OPERATORS_H

#include "onnx/load/load.h"

/* constant.c */
gd_status gd_onnx_load_constant(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_constant_of_shape(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_shape(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_size(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_range(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_eye_like(gd_onnx_loader *loader, const gd_pb *node);

/* shape.c */
gd_status gd_onnx_load_reshape(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_flatten(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_unsqueeze(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_expand(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_transpose(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_tile(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_depth_to_space(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_space_to_depth(gd_onnx_loader *loader, const gd_pb *node);

/* slice.c */
gd_status gd_onnx_load_slice(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_split(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_pad(gd_onnx_loader *loader, const gd_pb *node);

/* elementwise.c */
gd_status gd_onnx_load_clip(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_pow(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_div(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sum(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_mean(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_max(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_min(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_cast_like(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_hard_sigmoid(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_selu(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_thresholded_relu(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_shrink(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_swish(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_bit_shift(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_isinf(gd_onnx_loader *loader, const gd_pb *node);

/* reduction.c */
gd_status gd_onnx_load_sum_square(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_log_sum(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_argmax(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_argmin(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_hardmax(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_lp_normalization(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_topk(gd_onnx_loader *loader, const gd_pb *node);

/* index.c */
gd_status gd_onnx_load_gather(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_gather_elements(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_gather_nd(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_scatter_elements(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_scatter_nd(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_nonzero(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_max_pool_indices(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_one_hot(gd_onnx_loader *loader, const gd_pb *node);

/* window.c */
gd_status gd_onnx_load_average_pool(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_conv_transpose(gd_onnx_loader *loader, const gd_pb *node);
/* Pads the first input of a Conv or MaxPool if the op has no option for the node's padding, because
 * it differs between the two sides or keeps the size. *padded is NULL if the op has an option. */
gd_status gd_onnx_pad_input(gd_onnx_loader *loader, const gd_pb *node, gd_tensor **padded);

/* layer.c */
gd_status gd_onnx_load_gemm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_attention(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_dropout(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_softmax_loss(gd_onnx_loader *loader, const gd_pb *node);

/* normalization.c */
gd_status gd_onnx_load_batch_norm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_layer_norm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_rms_norm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_mean_variance(gd_onnx_loader *loader, const gd_pb *node);

/* recurrent.c */
gd_status gd_onnx_load_lstm(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_gru(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_rnn(gd_onnx_loader *loader, const gd_pb *node);

/* resize.c */
gd_status gd_onnx_load_resize(gd_onnx_loader *loader, const gd_pb *node);
/* resize_axes.c: a Resize that the op `resize` cannot do. `numbers` are factors (scaled) or sizes
 * for all axes of x, NAN for an axis that keeps its size. */
gd_status gd_onnx_resize_axes(const gd_pb *node, gd_tensor *x, bool scaled, const double *numbers,
                              gd_tensor **y);

/* image.c */
gd_status gd_onnx_load_grid_sample(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_affine_grid(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_col2im(gd_onnx_loader *loader, const gd_pb *node);

/* sequence.c */
gd_status gd_onnx_load_sequence_construct(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_empty(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_at(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_length(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_insert(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_sequence_erase(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_concat_from_sequence(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_split_to_sequence(gd_onnx_loader *loader, const gd_pb *node);

/* control_flow.c */
gd_status gd_onnx_load_if(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_loop(gd_onnx_loader *loader, const gd_pb *node);
gd_status gd_onnx_load_scan(gd_onnx_loader *loader, const gd_pb *node);

#endif
