/* scale.c - Scale, Bias and PReLU: a number for each channel, or for other axes, learned or a bottom. */
#include "caffe/layer.h"
#include "caffe/save/save.h"
#include "gradus/autograd.h"
#include "graph/build/graph.h"

/* Adds a blob whose elements are `value` if there is no filler. */
static gd_status add_blob(gd_caffe_layer *l, gd_tensor **field, const char *name, gd_shape shape,
                          const char *filler, double value) {
    GD_TRY(gd_caffe_add_blob(l, field, name, shape, filler));
    if (!l->fill || gd_pb_has(l->message, filler)) return GD_OK;
    GD_EAGER;
    GD_NO_GRAD;
    gd_assign(*field, gd_full(shape, value, .dtype = GD_F32));
    return gd_error_status();
}

/* --- Scale and Bias --------------------------------------------------------------------------- */

typedef struct scale_module {
    gd_tensor *scale, *bias; /* NULL: there is none */
    gd_shape shape;          /* of both */
    int axis, axes;          /* the axes of the first bottom that a blob or the second bottom has */
    bool adds;               /* Bias: the second bottom is added, not multiplied */
} scale_module;

/* A blob or the second bottom so that it broadcasts: (sizes of its axes, 1, ...). */
static gd_tensor *along_axes(const scale_module *m, gd_tensor *t, const gd_tensor *x) {
    const int rank = gd_tensor_rank(x);
    for (int i = m->axis + m->axes; i < rank; i++) t = gd_unsqueeze(t, -1);
    return t;
}

static gd_tensor *blob_along_axes(const scale_module *m, gd_tensor *t, const gd_tensor *x) {
    gd_shape to = m->shape;
    for (int i = m->axis + m->axes; i < gd_tensor_rank(x); i++) to.at[to.rank++] = 1;
    return gd_caffe_shaped(t, to);
}

static gd_tensors scale_forward(gd_tensors in, void *self) {
    const scale_module *m = self;
    gd_tensor *x = in.at[0], *y = x;
    if (in.count > 1) {
        gd_tensor *second = along_axes(m, in.at[1], x);
        y = m->adds ? gd_add(y, second) : gd_mul(y, second);
    }
    if (m->scale) y = gd_mul(y, blob_along_axes(m, m->scale, x));
    if (m->bias) y = gd_add(y, blob_along_axes(m, m->bias, x));
    return gd_listed(y);
}

/* The axes that the second bottom has. */
static gd_status read_second(gd_caffe_layer *l, scale_module *m) {
    const gd_shape *x = &l->bottoms[0], *s = &l->bottoms[1];
    m->axes = s->rank;
    if (s->rank == 0) m->axis = 0;
    if (m->axis + s->rank > x->rank)
        return gd_caffe_fail(
            l, "its second bottom has %d axes, but the first one has %d from axis %d on", s->rank,
            x->rank - m->axis, m->axis);
    for (int i = 0; i < s->rank; i++)
        if (s->at[i] != x->at[m->axis + i])
            return gd_caffe_fail(l,
                                 "axis %d of its second bottom has size %lld, but axis %d of the "
                                 "first one has %lld",
                                 i, (long long)s->at[i], m->axis + i,
                                 (long long)x->at[m->axis + i]);
    return GD_OK;
}

/* The axes of a learned blob. */
static gd_status read_axes(gd_caffe_layer *l, scale_module *m, const char *field) {
    const int64_t given = gd_pb_int_of(l->message, field);
    const int rank = l->bottoms[0].rank;
    if (given < -1 || m->axis + given > rank)
        return gd_caffe_fail(
            l, "num_axes is %lld; its bottom has %d axes from axis %d on, and -1 means all",
            (long long)given, rank - m->axis, m->axis);
    m->axes = given < 0 ? rank - m->axis : (int)given;
    return GD_OK;
}

/* The module, with the axes of a blob or of the second bottom. */
static gd_status make(gd_caffe_layer *l, const char *axis_field, const char *axes_field,
                      scale_module **out) {
    int axis = 0;
    if (l->n_bottoms < 2 || l->bottoms[1].rank > 0) GD_TRY(gd_caffe_axis(l, axis_field, &axis));
    scale_module *m = *out = gd_caffe_module(l, scale_forward, sizeof *m);
    if (!m) return gd_failure();
    m->axis = axis;
    GD_TRY(l->n_bottoms > 1 ? read_second(l, m) : read_axes(l, m, axes_field));
    m->shape = gd_shape_of(m->axes, l->bottoms[0].at + m->axis);
    return GD_OK;
}

gd_status gd_caffe_make_Scale(gd_caffe_layer *l) {
    scale_module *m;
    GD_TRY(make(l, "scale_param.axis", "scale_param.num_axes", &m));
    if (l->n_bottoms == 1)
        GD_TRY(add_blob(l, &m->scale, "scale", m->shape, "scale_param.filler", 1));
    if (!gd_pb_int_of(l->message, "scale_param.bias_term")) return GD_OK;
    return gd_caffe_add_blob(l, &m->bias, "bias", m->shape, "scale_param.bias_filler");
}

gd_status gd_caffe_make_Bias(gd_caffe_layer *l) {
    scale_module *m;
    GD_TRY(make(l, "bias_param.axis", "bias_param.num_axes", &m));
    m->adds = true;
    if (l->n_bottoms > 1) return GD_OK;
    return gd_caffe_add_blob(l, &m->bias, "bias", m->shape, "bias_param.filler");
}

/* --- PReLU ------------------------------------------------------------------------------------ */

typedef struct prelu_module {
    gd_tensor *slope; /* (channels), or one number */
} prelu_module;

static gd_tensors prelu_forward(gd_tensors in, void *self) {
    const prelu_module *m = self;
    gd_tensor *x = in.at[0];
    gd_shape to = {.rank = gd_tensor_rank(x) - 1, .form = 1};
    if (gd_tensor_rank(m->slope) == 0) return gd_listed(gd_prelu(x, m->slope));
    to.at[0] = gd_tensor_dim(x, 1);
    for (int i = 1; i < to.rank; i++) to.at[i] = 1;
    return gd_listed(gd_prelu(x, to.rank > 1 ? gd_reshape(m->slope, to) : m->slope));
}

gd_status gd_caffe_make_PReLU(gd_caffe_layer *l) {
    const gd_shape *x = &l->bottoms[0];
    if (x->rank < 2)
        return gd_caffe_fail(l, "its bottom has %d axes; it must have channels, axis 1", x->rank);
    prelu_module *m = gd_caffe_module(l, prelu_forward, sizeof *m);
    if (!m) return gd_failure();
    const bool shared = gd_pb_int_of(l->message, "prelu_param.channel_shared");
    return add_blob(l, &m->slope, "slope", shared ? gd_dims() : gd_dims(x->at[1]),
                    "prelu_param.filler", 0.25);
}

/* --- saving ----------------------------------------------------------------------------------- */

/* The axes of x that a tensor has, which broadcasts against x: from the first size that is not 1 to the
 * last one. False: it does not have the sizes of x there. */
static bool find_axes(const gd_shape *x, const gd_shape *t, int *axis, gd_shape *own) {
    const int lead = x->rank - t->rank;
    int first = 0, end = t->rank;
    while (end > 0 && t->at[end - 1] == 1) end--;
    while (first < end && t->at[first] == 1) first++;
    if (lead < 0 || first == end) return false;
    *axis = lead + first;
    *own = (gd_shape){.form = 1};
    for (int i = first; i < end; i++) {
        if (t->at[i] != x->at[lead + i]) return false;
        own->at[own->rank++] = t->at[i];
    }
    return true;
}

gd_status gd_caffe_save_with_constant(gd_caffe_call *c, int x, gd_tensor *t, bool multiplies,
                                      int to) {
    const gd_shape whole = gd_caffe_slot_shape(&c->out[0]), given = gd_tensor_shape(t);
    gd_shape own;
    int axis;
    if (!find_axes(&whole, &given, &axis, &own))
        return gd_caffe_cannot(c,
                               "a constant has other axes than neighbouring ones of its input, and "
                               "Caffe's Scale and Bias need those");
    gd_caffe_out(c, "Scale", x, to); /* OpenCV has no Bias */
    gd_caffe_put_int(c, "axis", axis);
    gd_caffe_put_int(c, "num_axes", own.rank);
    gd_caffe_put_int(c, "bias_term", !multiplies);
    if (!multiplies) GD_TRY(gd_caffe_put_weight(c, gd_caffe_full(own, 1)));
    GD_EAGER;
    return gd_caffe_put_weight(c, gd_reshape(t, own));
}

/* Of two bottoms; the smaller one loses its sizes of 1. */
gd_status gd_caffe_save_broadcast(gd_caffe_call *c, int x, int second, bool multiplies) {
    const gd_shape whole = gd_caffe_slot_shape(&c->in[x]),
                   given = gd_caffe_slot_shape(&c->in[second]);
    gd_shape own;
    int axis, value = gd_caffe_bottom(c, second);
    if (!find_axes(&whole, &given, &axis, &own))
        return gd_caffe_cannot(c,
                               "one input has other axes than neighbouring ones of the other, and "
                               "Caffe's Scale and Bias need those");
    if (own.rank != given.rank) {
        const int shaped = gd_caffe_between(c, own);
        gd_caffe_shape_as(c, value, shaped);
        value = shaped;
    }
    gd_caffe_out(c, multiplies ? "Scale" : "Bias", gd_caffe_bottom(c, x), gd_caffe_top(c, 0));
    gd_caffe_put_bottom(c->saver, value);
    gd_caffe_put_int(c, "axis", axis);
    return c->saver->status;
}

gd_status gd_caffe_save_prelu(gd_caffe_call *c) {
    gd_tensor *slope = gd_caffe_constant(c, 1);
    const gd_shape whole = gd_caffe_slot_shape(c->in);
    gd_shape own;
    int axis;
    if (!slope) return gd_caffe_put_weight(c, NULL);
    const bool shared = gd_tensor_numel(slope) == 1, fits = whole.rank > 1;
    const gd_shape given = gd_tensor_shape(slope);
    if (!fits ||
        (!shared && (!find_axes(&whole, &given, &axis, &own) || axis != 1 || own.rank != 1)))
        return gd_caffe_cannot(c, "Caffe's PReLU has one slope, or one for each channel, axis 1");
    gd_caffe_out(c, "PReLU", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    gd_caffe_put_int(c, "channel_shared", shared);
    GD_EAGER;
    return gd_caffe_put_weight(c, gd_reshape(slope, shared ? gd_dims() : gd_dims(whole.at[1])));
}
