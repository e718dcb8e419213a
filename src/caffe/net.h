/* net.h - a net from text as a module, and what its text says beside the module.
 *
 * The inputs of the module are the fields `input` of the text, then the tops of its data layers, in their
 * order. Its outputs are the tops that no layer reads, by their names in alphabetical order as in Caffe's
 * log, then further tops that are a part of the loss. The children of the module are the layers, with their
 * names; layers without tops (Silence) and data layers have none.
 */
#ifndef GRADUS_CAFFE_NET_H
#define GRADUS_CAFFE_NET_H

#include "caffe/data.h"
#include "caffe/layer.h"

/* A parameter of the net, as `param` of its layer describes it. */
typedef struct gd_caffe_parameter {
    gd_tensor *tensor; /* of the module; shared ones are listed once, at their first layer */
    const char *layer; /* name */
    int blob;          /* number among the layer's blobs */
    double lr_mult, decay_mult;
} gd_caffe_parameter;

/* An output of the module. */
typedef struct gd_caffe_net_output {
    const char *name;
    gd_shape shape;
    double loss_weight; /* 0: it is no part of the loss */
    bool hidden;        /* it is only there for the loss: a layer reads it */
} gd_caffe_net_output;

/* An input of the module. */
typedef struct gd_caffe_net_input {
    const char *name;
    gd_shape shape;
    bool from_text; /* an `input` of the text, not the top of a data layer */
} gd_caffe_net_input;

typedef struct gd_caffe_text_net {
    gd_module *module; /* retained */
    gd_pb_doc *doc;    /* of the text, if the net has read it */
    const char *name, *file;
    gd_caffe_phase phase;
    gd_caffe_net_input *inputs;
    gd_caffe_net_output *outputs;
    gd_caffe_parameter *parameters;
    const gd_pb **layers; /* all layers of this phase, in order */
    const char **names;   /* of each, in the module; NULL: it is not there */
    gd_caffe_data *data;  /* the stream of the data layers; NULL: there are none */
    int n_inputs, n_outputs, n_parameters, n_layers;
} gd_caffe_text_net;

typedef struct gd_caffe_net_settings {
    gd_caffe_phase phase;
    int level;
    const char *const *stages;
    int n_stages;
    /* Names of blobs, with spaces between them: the net has only the layers that these need. NULL: the
     * net's outputs, and all layers. */
    const char *outputs;
    const gd_caffe_data_options *data; /* NULL: no threads, no dummy data */
    /* A net whose parameters the new one shares, by the names of layers; NULL: none. */
    const gd_caffe_text_net *share;
    bool no_fill; /* parameters get their values from a file: they need no filler */
} gd_caffe_net_settings;

/* Reads a file, or takes a message that lives as long as the net: NetParameter in today's fields. `file`
 * names it in messages, and paths are looked for from there. */
gd_status gd_caffe_net_read(gd_caffe_text_net **out, const char *path,
                            const gd_caffe_net_settings *settings);
gd_status gd_caffe_net_build(gd_caffe_text_net **out, const gd_pb *message, const char *file,
                             const gd_caffe_net_settings *settings);
void gd_caffe_net_free(gd_caffe_text_net *net); /* NULL is fine */

/* Notes the inputs and outputs in the module, for gd_caffe_input and gd_caffe_output, and its name. */
gd_status gd_caffe_describe_module(const gd_caffe_text_net *net);
/* The name of the text; NULL: it has none, or the module is none of gd_caffe_net. */
const char *gd_caffe_net_name(const gd_module *net);

/* Fails if an input is none of a data layer; `what` needs them: "a test". And the next batch of the data,
 * which have no end (batch.c). */
gd_status gd_caffe_check_fed(const gd_caffe_text_net *net, const char *what);
gd_status gd_caffe_next_batch(const gd_caffe_text_net *net, gd_tensors *batch);

/* The loss of a call of the module: the sum of its outputs, each by its loss_weight. A tensor of rank 0. */
gd_tensor *gd_caffe_net_loss(const gd_caffe_text_net *net, gd_tensors outputs);

#endif
