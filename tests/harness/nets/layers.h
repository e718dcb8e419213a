/* layers.h - the layers of random nets. Each takes a value and returns another. */
#ifndef GRADUS_TESTS_HARNESS_NETS_LAYERS_H
#define GRADUS_TESTS_HARNESS_NETS_LAYERS_H

#include "net.h"

/* A large eps keeps the result of a norm well-conditioned where the elements hardly differ. */
#define NORM_EPS 0.02

/* layers.c: of all forms */
gd_tensor *activate(net *n, gd_tensor *x);
net_value activation_layer(net *n, net_value x);
net_value dropout_layer(net *n, net_value x);
/* x + other, x * sigmoid(other), or both of x alone. */
net_value skip_layer(net *n, net_value x);
/* Scales and shifts each channel. */
net_value affine_layer(net *n, net_value x);
/* x beside itself, its transpose, an activation of it, or an earlier value. */
net_value cat_layer(net *n, net_value x);
/* A part of an axis, sometimes joined with the rest in another order. */
net_value slice_layer(net *n, net_value x);
/* Elements in another order. */
net_value reorder_layer(net *n, net_value x);
net_value softmax_layer(net *n, net_value x);
/* Normalizes by hand: a group of steps that plans fuse over rows. */
net_value center_layer(net *n, net_value x);
/* Subtracts a running mean of the channels, which the step updates itself. */
net_value running_mean_layer(net *n, net_value x);
/* Ops of other kinds. */
net_value odd_layer(net *n, net_value x);
/* One of two functions, by a value that no input changes. */
net_value branch_layer(net *n, net_value x);

/* images.c: (N, C, ...) with one to three axes */
/* A convolution to `out` channels; 0: drawn. */
gd_tensor *conv_to(net *n, gd_tensor *x, int64_t out, bool keeps_size);
gd_tensor *batch_normed(net *n, gd_tensor *x);
net_value image_layer(net *n, net_value x);

/* rows.c: (N, C), and those of sequences that treat each step alike */
int64_t channels_of(net_value x);
int64_t draw_width(net *n, net_value x);
/* Linear layers in their different forms. */
gd_tensor *linear_to(net *n, net_value x, int64_t out);
net_value linear_layer(net *n, net_value x);
net_value linear_block(net *n, net_value x);
/* One weight in two layers, perhaps transposed in the second, as of an autoencoder. */
net_value tied_layer(net *n, net_value x);
gd_tensor *row_normed(net *n, net_value x);
net_value row_norm_layer(net *n, net_value x);
/* Columns in an order of a constant index, some twice. */
net_value select_layer(net *n, net_value x);
net_value row_layer(net *n, net_value x);

/* sequences.c: (N, T, C) */
net_value sequence_layer(net *n, net_value x);

/* losses.c */
gd_tensor *draw_loss(net *n, net_value x);

#endif
