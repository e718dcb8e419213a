/* net_build.h - a net while it is built: what net.c, net_state.c and parameters.c share. */
#ifndef GRADUS_CAFFE_NET_BUILD_H
#define GRADUS_CAFFE_NET_BUILD_H

#include "caffe/layer_text.h"
#include "caffe/net.h"
#include "core/name_map.h"

/* A blob, with the shape that it has after the last layer so far that writes it. */
typedef struct net_blob {
    const char *name; /* interned */
    gd_shape shape;
    bool is_read;       /* by a layer after that one */
    bool automatic;     /* the text does not name it: the loss of a layer without tops */
    double loss_weight; /* 0: it is no part of the loss */
} net_blob;

/* A layer with its module. Its names are those of blobs. */
typedef struct net_layer {
    const gd_pb *message;
    const char *name;
    gd_module *module; /* NULL: it computes nothing */
    const char **bottoms, **tops;
    int n_bottoms, n_tops;
} net_layer;

/* A parameter that has a name, with which further layers share it. */
typedef struct net_owner {
    gd_tensor *tensor;
    const char *layer;
    int parameter; /* its number in the net's list */
    bool has_lr_mult, has_decay_mult;
} net_owner;

typedef struct net_builder {
    gd_caffe_text_net *net;
    const gd_pb *message;
    const gd_caffe_net_settings *settings;
    net_blob *blobs;
    gd_name_map by_name; /* the numbers of the blobs */
    net_layer *layers;
    net_owner *owners;
    gd_name_map owner_numbers; /* by the names of parameters */
    gd_name_map layer_names;   /* the last numbers that were appended to them */
    int n_blobs, n_layers, n_owners;
    gd_caffe_texts *texts;
    int blobs_room, layers_room, owners_room, inputs_room, outputs_room, parameters_room;
} net_builder;

/* Adds the parameters of a layer, as its `param` fields say, to the list of the net (parameters.c): rates,
 * names that share them, and those of a net whose parameters this one shares. */
gd_status gd_caffe_take_parameters(net_builder *b, const gd_caffe_layer *l);

/* Parameters with the rate 0 get no gradient. */
gd_status gd_caffe_freeze_parameters(const gd_caffe_text_net *net);

/* Whether a layer belongs to the net in this state (net_state.c). */
gd_status gd_caffe_check_included(const gd_pb *layer, const gd_caffe_net_settings *settings,
                                  bool *included);

/* If outputs are named, drops the layers that compute none of them (net_state.c). */
gd_status gd_caffe_drop_unneeded(net_builder *b);

/* Adds the place and the name of the layer to the latest message, unless it names a layer. */
gd_status gd_caffe_add_place(const gd_caffe_layer *l, gd_status status);

#endif
