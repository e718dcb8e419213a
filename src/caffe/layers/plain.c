/* plain.c - layers that are there without inputs or without gradients: Parameter, Dropout, Python. */
#include <string.h>

#include "caffe/layer.h"
#include "caffe/save/save.h"
#include "gradus/layers.h"

/* --- Parameter -------------------------------------------------------------------------------- */

typedef struct parameter {
    gd_tensor *value;
    gd_shape shape;
} parameter;

static gd_tensors parameter_forward(gd_tensors in, void *self) {
    const parameter *m = self;
    (void)in;
    return gd_listed(gd_caffe_shaped(m->value, m->shape));
}

gd_status gd_caffe_make_Parameter(gd_caffe_layer *l) {
    const gd_pb_list *sizes = gd_pb_list_of(l->message, "parameter_param.shape.dim");
    gd_shape shape = {.form = 1};
    if (sizes && sizes->count > GD_MAX_RANK)
        return gd_caffe_fail(l, "shape has %zu dims; %d are the most", sizes->count, GD_MAX_RANK);
    for (; sizes && shape.rank < (int)sizes->count; shape.rank++)
        if ((shape.at[shape.rank] = sizes->ints[shape.rank]) < 0)
            return gd_caffe_fail(l, "dim %d of its shape is %lld; a size is at least 0", shape.rank,
                                 (long long)sizes->ints[shape.rank]);
    parameter *m = gd_caffe_module(l, parameter_forward, sizeof *m);
    if (!m) return gd_failure();
    m->shape = shape;
    return gd_caffe_add_blob(l, &m->value, "value", shape, NULL);
}

/* --- Dropout ---------------------------------------------------------------------------------- */

typedef struct dropout {
    double ratio;
} dropout;

static gd_tensors dropout_forward(gd_tensors in, void *self) {
    const dropout *m = self;
    gd_tensor *x = in.at[0];
    return gd_listed(m->ratio > 0 && gd_module_is_training(NULL) ? gd_dropout(x, .p = m->ratio)
                                                                 : x);
}

/* In the phase TEST it drops nothing, whatever the mode of the module is. */
gd_status gd_caffe_make_Dropout(gd_caffe_layer *l) {
    const double ratio = gd_pb_float_of(l->message, "dropout_param.dropout_ratio");
    if (!(ratio >= 0 && ratio < 1))
        return gd_caffe_fail(l, "dropout_ratio is %g; it must be at least 0 and less than 1",
                             ratio);
    dropout *m = gd_caffe_module(l, dropout_forward, sizeof *m);
    if (!m) return gd_failure();
    m->ratio = l->phase == GD_CAFFE_TRAIN ? ratio : 0;
    return GD_OK;
}

/* --- Python ----------------------------------------------------------------------------------- */

gd_status gd_caffe_make_Python(gd_caffe_layer *l) {
    return gd_caffe_fail(
        l,
        "layers in Python do not run here (this one is '%s' of module '%s'); define "
        "it as an op of the program (gd_op_define, in Python gd.define_op), and use "
        "the op's name as the type of the layer",
        gd_pb_string_of(l->message, "python_param.layer"),
        gd_pb_string_of(l->message, "python_param.module"));
}

/* --- saving ----------------------------------------------------------------------------------- */

/* Blobs of Caffe are floats. */
gd_status gd_caffe_save_cast(gd_caffe_call *c) {
    if (gd_dtype_is_float((gd_dtype)c->in[0].dtype) &&
        !gd_dtype_is_float((gd_dtype)c->out[0].dtype))
        return gd_caffe_cannot(c, "it rounds numbers to integers, and Caffe has no layer for that");
    return gd_caffe_save_same(c);
}

gd_status gd_caffe_save_dropout(gd_caffe_call *c) {
    if (gd_caffe_option(c, "training") == 0) return gd_caffe_save_same(c);
    gd_caffe_out(c, "Dropout", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    gd_caffe_put_float(c, "dropout_ratio", gd_caffe_option(c, "p"));
    return c->saver->status;
}

const gd_pb *gd_caffe_dropout_text(gd_pb *net, const gd_module *module, const char *name) {
    if (!module->factory || strcmp(module->factory->record.name, "dropout") != 0) return NULL;
    const double p = ((const gd_nn_dropout_options *)module->options)->p;
    if (!(p < 1)) return NULL; /* Caffe's drops less than all */
    gd_pb *layer = gd_pb_put_message(net, "layer");
    gd_pb_put_string(layer, "type", "Dropout");
    gd_pb_put_string(layer, "top", name);
    if (p != gd_pb_float_of(layer, "dropout_param.dropout_ratio"))
        gd_pb_put_float(gd_pb_put_message(layer, "dropout_param"), "dropout_ratio", p);
    return layer;
}
