/* layer.h - a layer of a net from text while its module is made.
 *
 * A type of layer is a function that makes a module from the layer's message:
 *
 *     typedef struct scale_module {
 *         gd_tensor *scale;
 *         int axis;
 *     } scale_module;
 *
 *     static gd_tensors scale_forward(gd_tensors in, void *self) { ... }
 *
 *     gd_status gd_caffe_make_Scale(gd_caffe_layer *l) {
 *         int axis;
 *         GD_TRY(gd_caffe_axis(l, "scale_param.axis", &axis));
 *         scale_module *m = gd_caffe_module(l, scale_forward, sizeof *m);
 *         if (!m) return gd_failure();
 *         m->axis = axis;
 *         return gd_caffe_add_blob(l, &m->scale, "scale", shape, "scale_param.filler");
 *     }
 *
 * The module takes the bottoms as inputs and gives the tops. All of them are floats, labels too. It must
 * compute with the sizes of the tensors that it gets, because the batch may differ from that of the text.
 * The parameters and buffers of the module, in the order in which they are added, are the blobs of the layer
 * in a .caffemodel, with the same shapes. A layer without blobs that is one op is a row of the op's record.
 *
 * Fields are read by their path in the message, with Caffe's defaults: gd_pb_int_of(l->message,
 * "pooling_param.kernel_size").
 */
#ifndef GRADUS_CAFFE_LAYER_H
#define GRADUS_CAFFE_LAYER_H

#include "caffe/phase.h"
#include "core/error.h"
#include "format/protobuf.h"
#include "gradus/module.h"
#include "gradus/ops.h"

typedef struct gd_caffe_layer {
    const gd_pb *message; /* its LayerParameter, in today's fields */
    const char *name, *type;
    gd_caffe_phase phase;
    const char *file;        /* of the net: paths are looked for from there */
    const gd_shape *bottoms; /* their shapes */
    int n_bottoms, n_tops;   /* that the text names */
    bool fill;               /* false: parameters will get their values from elsewhere */
    gd_module *module;       /* is set by the function of the type */
} gd_caffe_layer;

/* A type of layer. */
typedef struct gd_caffe_type {
    const char *name;
    gd_status (*make)(gd_caffe_layer *l);
    int least_bottoms, most_bottoms; /* -1: any number */
    int least_tops, most_tops;       /* -1: any number, -2: as many as bottoms */
    unsigned flags;
    const char *family; /* of ops (src/ops), for pictures; NULL: none */
} gd_caffe_type;

enum {
    GD_CAFFE_LOSS = 1,          /* the weight of the first top in the loss is 1 by default */
    GD_CAFFE_DATA = 2,          /* its tops are inputs of the module (data.h) */
    GD_CAFFE_NO_TOP_NEEDED = 4, /* it gets a top if the text names none (losses, Accuracy) */
};

/* The type of this name: an entry of layer_table.c. NULL: there is none. */
const gd_caffe_type *gd_caffe_find_type(const char *name);

/* The name of an entry; NULL behind the last one. */
const char *gd_caffe_type_name(int index);

/* Makes the module of a layer of any type: by its entry of the table, by the record of an op or a layer, or
 * as an op of the program, and checks the numbers of bottoms and tops. */
gd_status gd_caffe_make_layer(gd_caffe_layer *l);
/* The family of ops that a type belongs to, by its entry or its row (row.c); NULL: none. */
const char *gd_caffe_family(const char *type);
/* By the record of an op or a layer (row.c). *found is false if no record has the type. */
gd_status gd_caffe_make_row(gd_caffe_layer *l, bool *found);

/* The field of LayerParameter that has the options of a type: "InnerProduct": inner_product_param. NULL:
 * there is none. */
const gd_pb_field *gd_caffe_message_of(const char *type);

/* A GD_E_FORMAT failure: "net.prototxt:41:5: layer 'conv2' (Convolution): ...". */
gd_status gd_caffe_fail(const gd_caffe_layer *l, const char *format, ...) GD_PRINTF(2, 3);

/* --- for functions of types ------------------------------------------------------------------- */

/* A module of the layer's type with a struct of `size` zero bytes, which it sets as l->module. Returns the
 * struct; NULL: the failure is recorded. */
void *gd_caffe_module(gd_caffe_layer *l, gd_forward forward, size_t size);

/* Adds a parameter of this shape and stores it in a field of the module's struct. `filler` is the path of
 * its FillerParameter in the message; NULL: zeros. */
gd_status gd_caffe_add_blob(gd_caffe_layer *l, gd_tensor **field, const char *name, gd_shape shape,
                            const char *filler);
/* The same for a blob that is not trained: a buffer with this value in all elements. */
gd_status gd_caffe_add_buffer(gd_caffe_layer *l, gd_tensor **field, const char *name,
                              gd_shape shape, double value);

/* A parameter as it is read in the forward function: with this shape, if it is shared with a layer that
 * has it with another shape of as many elements (share_mode: PERMISSIVE). */
gd_tensor *gd_caffe_shaped(gd_tensor *blob, gd_shape shape);

/* An axis of the first bottom, counted from the front: the field at a path. */
gd_status gd_caffe_axis(const gd_caffe_layer *l, const char *path, int *axis);
/* The product of the sizes from `first` to before `end`; -1 if one of them is unknown. */
int64_t gd_caffe_count(const gd_shape *shape, int first, int end);

/* Labels as class numbers: i64. */
gd_tensor *gd_caffe_labels(gd_tensor *blob);

#endif
