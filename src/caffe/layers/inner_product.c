/* inner_product.c - InnerProduct, and Embed, which is an InnerProduct of one-hot vectors. */
#include "caffe/layer.h"
#include "caffe/save/save.h"

typedef struct inner_product_module {
    gd_tensor *weight, *bias; /* (outputs, inputs), or transposed (inputs, outputs); (outputs) */
    int64_t inputs, outputs;
    int axis;
    bool transposed;
} inner_product_module;

/* The bottom is flattened from the axis on. */
static gd_tensors inner_product_forward(gd_tensors in, void *self) {
    const inner_product_module *m = self;
    gd_tensor *x = in.at[0], *w = m->weight;
    if (gd_tensor_rank(x) > m->axis + 1) x = gd_flatten(x, .start_axis = m->axis);
    w = gd_caffe_shaped(w, m->transposed ? gd_dims(m->inputs, m->outputs)
                                         : gd_dims(m->outputs, m->inputs));
    if (m->transposed) w = gd_transpose(w, 0, 1);
    return gd_listed(
        gd_linear(x, w, m->bias ? gd_caffe_shaped(m->bias, gd_dims(m->outputs)) : NULL));
}

gd_status gd_caffe_make_InnerProduct(gd_caffe_layer *l) {
    int axis;
    const int64_t outputs = gd_pb_int_of(l->message, "inner_product_param.num_output");
    GD_TRY(gd_caffe_axis(l, "inner_product_param.axis", &axis));
    if (outputs < 1) return gd_caffe_fail(l, "it has no num_output, the number of its outputs");
    inner_product_module *m = gd_caffe_module(l, inner_product_forward, sizeof *m);
    if (!m) return gd_failure();
    m->axis = axis;
    m->outputs = outputs;
    m->inputs = gd_caffe_count(&l->bottoms[0], axis, l->bottoms[0].rank);
    m->transposed = gd_pb_int_of(l->message, "inner_product_param.transpose");
    const gd_shape shape =
        m->transposed ? gd_dims(m->inputs, outputs) : gd_dims(outputs, m->inputs);
    GD_TRY(gd_caffe_add_blob(l, &m->weight, "weight", shape, "inner_product_param.weight_filler"));
    if (!gd_pb_int_of(l->message, "inner_product_param.bias_term")) return GD_OK;
    return gd_caffe_add_blob(l, &m->bias, "bias", gd_dims(outputs),
                             "inner_product_param.bias_filler");
}

/* --- Embed ------------------------------------------------------------------------------------ */

typedef struct embed_module {
    gd_tensor *weight, *bias; /* (rows, outputs), (outputs) */
    int64_t rows, outputs;
} embed_module;

static gd_tensors embed_forward(gd_tensors in, void *self) {
    const embed_module *m = self;
    gd_tensor *w = gd_caffe_shaped(m->weight, gd_dims(m->rows, m->outputs));
    gd_tensor *y = gd_embedding(gd_caffe_labels(in.at[0]), w);
    if (m->bias) y = gd_add(y, gd_caffe_shaped(m->bias, gd_dims(m->outputs)));
    return gd_listed(y);
}

gd_status gd_caffe_make_Embed(gd_caffe_layer *l) {
    const int64_t outputs = gd_pb_int_of(l->message, "embed_param.num_output"),
                  rows = gd_pb_int_of(l->message, "embed_param.input_dim");
    if (outputs < 1) return gd_caffe_fail(l, "it has no num_output, the number of its outputs");
    if (rows < 1) return gd_caffe_fail(l, "it has no input_dim, the number of different inputs");
    embed_module *m = gd_caffe_module(l, embed_forward, sizeof *m);
    if (!m) return gd_failure();
    m->outputs = outputs;
    m->rows = rows;
    GD_TRY(gd_caffe_add_blob(l, &m->weight, "weight", gd_dims(rows, outputs),
                             "embed_param.weight_filler"));
    if (!gd_pb_int_of(l->message, "embed_param.bias_term")) return GD_OK;
    return gd_caffe_add_blob(l, &m->bias, "bias", gd_dims(outputs), "embed_param.bias_filler");
}

/* --- saving ----------------------------------------------------------------------------------- */

/* The weight of gd_linear is that of the layer, which keeps the axes before the last one. */
gd_status gd_caffe_save_linear(gd_caffe_call *c) {
    const bool has_bias = c->n_in > 2 && c->in[2].present;
    gd_caffe_out(c, "InnerProduct", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    gd_caffe_put_int(c, "num_output", c->in[1].dims[0]);
    gd_caffe_put_int(c, "bias_term", has_bias);
    gd_caffe_put_int(c, "axis", c->in[0].rank - 1);
    GD_TRY(gd_caffe_put_weight(c, gd_caffe_constant(c, 1)));
    return has_bias ? gd_caffe_put_weight(c, gd_caffe_constant(c, 2)) : GD_OK;
}

gd_status gd_caffe_save_embedding(gd_caffe_call *c) {
    gd_caffe_out(c, "Embed", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    gd_caffe_put_int(c, "input_dim", c->in[1].dims[0]);
    gd_caffe_put_int(c, "num_output", c->in[1].dims[1]);
    gd_caffe_put_int(c, "bias_term", false);
    return gd_caffe_put_weight(c, gd_caffe_constant(c, 1));
}
