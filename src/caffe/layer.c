/* layer.c - makes the module of a layer, and what the functions of types use for it. */
#include "caffe/layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "caffe/filler.h"
#include "core/number.h"
#include "caffe/net_build.h"
#include "core/checked.h"
#include "core/nearest.h"
#include "dispatch/op.h"
#include "caffe/own.h"
#include "gradus/layers.h"
#include "graph/build/graph.h"
#include "nn/module.h"

gd_status gd_caffe_fail(const gd_caffe_layer *l, const char *format, ...) {
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gd_pb_fail(l->message, "layer '%s' (%s): %s", l->name, l->type, text);
}

/* --- the type --------------------------------------------------------------------------------- */

/* "1 bottom", "at least 2 bottoms", "1 to 3 bottoms" */
static const char *count_text(int least, int most, const char *what, char text[80]) {
    char numbers[60];
    if (least == most) snprintf(numbers, sizeof numbers, "%d", least);
    else if (most < 0) snprintf(numbers, sizeof numbers, "at least %d", least);
    else snprintf(numbers, sizeof numbers, "%d to %d", least, most);
    snprintf(text, 80, "%s %s%s", numbers, what, least == 1 && most <= 1 ? "" : "s");
    return text;
}

static gd_status check_count(const gd_caffe_layer *l, int count, int least, int most,
                             const char *what) {
    char text[80];
    if (count >= least && (most < 0 || count <= most)) return GD_OK;
    return gd_caffe_fail(l, "it takes %s, but has %d", count_text(least, most, what, text), count);
}

static gd_status check_counts(const gd_caffe_layer *l, const gd_caffe_type *t) {
    const int least_tops = t->flags & GD_CAFFE_NO_TOP_NEEDED ? 0 : t->least_tops;
    GD_TRY(check_count(l, l->n_bottoms, t->least_bottoms, t->most_bottoms, "bottom"));
    if (t->most_tops != -2) return check_count(l, l->n_tops, least_tops, t->most_tops, "top");
    return check_count(l, l->n_tops, l->n_bottoms, l->n_bottoms, "top");
}

/* An op or a layer that the program has defined, with the fields of NAME_param as options. */
static gd_status make_own(gd_caffe_layer *l, bool *found) {
    char options[2000];
    const gd_op *op = gd_caffe_own_op(l->type, strlen(l->type));
    *found = op != NULL;
    if (!*found) return GD_OK;
    GD_TRY(gd_caffe_own_options(l->message, op, options, sizeof options));
    l->module = gd_nn_op(l->type, .options = options);
    return l->module ? GD_OK : gd_failure();
}

static gd_status no_such_type(const gd_caffe_layer *l) {
    gd_nearest n = gd_nearest_to(l->type);
    const char *name;
    for (int i = 0; (name = gd_caffe_type_name(i)); i++) gd_nearest_try(&n, name);
    for (int i = 0; i < gd_op_count(); i++)
        if (gd_op_at(i)->caffe.name) gd_nearest_try(&n, gd_op_at(i)->caffe.name);
    return gd_caffe_fail(l, "there is no such type of layer%s%s%s", n.best ? "; did you mean " : "",
                         n.best ? n.best : "", n.best ? "?" : "");
}

static gd_status make_by_type(gd_caffe_layer *l) {
    const gd_caffe_type *t = gd_caffe_find_type(l->type);
    bool found = false;
    if (t) {
        GD_TRY(check_counts(l, t));
        return t->make(l);
    }
    GD_TRY(gd_caffe_make_row(l, &found));
    if (!found) GD_TRY(make_own(l, &found));
    return found ? GD_OK : no_such_type(l);
}

/* The message of an op gets the place of the layer in the text. */
gd_status gd_caffe_add_place(const gd_caffe_layer *l, gd_status status) {
    char text[GD_MESSAGE_MAX];
    snprintf(text, sizeof text, "%s", gd_latest_failure());
    if (strstr(text, "layer '")) return status;
    /* a failure of a part of the layer has the place of that part: the layer goes behind it */
    const size_t f = strlen(l->file);
    const char *place =
        strncmp(text, l->file, f) == 0 && text[f] == ':' ? strstr(text + f, ": ") : NULL;
    if (place)
        return gd_fail(status, "%.*s: layer '%s' (%s): %s", (int)(place - text), text, l->name,
                       l->type, place + 2);
    const size_t n = strlen(l->type); /* the module's type before the message of an op */
    const bool twice = strncmp(text, l->type, n) == 0 && strncmp(text + n, ": ", 2) == 0;
    gd_caffe_fail(l, "%s", text + (twice ? n + 2 : 0));
    snprintf(text, sizeof text, "%s", gd_latest_failure());
    return gd_fail(status, "%s", text);
}

gd_status gd_caffe_make_layer(gd_caffe_layer *l) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = gd_attempt_end(&attempt, make_by_type(l));
    return status == GD_OK ? GD_OK : gd_caffe_add_place(l, status);
}

/* --- modules ---------------------------------------------------------------------------------- */

void *gd_caffe_module(gd_caffe_layer *l, gd_forward forward, size_t size) {
    l->module = gd_module_new(forward, size, .type = l->type);
    return l->module ? gd_module_self(l->module) : NULL;
}

gd_status gd_caffe_add_blob(gd_caffe_layer *l, gd_tensor **field, const char *name, gd_shape shape,
                            const char *filler) {
    GD_EAGER;
    const gd_pb *f = l->fill && filler ? gd_pb_message_of(l->message, filler) : NULL;
    GD_TRY(gd_caffe_filled(f, shape, field));
    return gd_module_add_parameter_at(NULL, l->module, name, *field, field);
}

gd_status gd_caffe_add_buffer(gd_caffe_layer *l, gd_tensor **field, const char *name,
                              gd_shape shape, double value) {
    GD_EAGER;
    *field = gd_full(shape, value, .dtype = GD_F32);
    return gd_module_add_buffer_at(NULL, l->module, name, *field, field);
}

gd_tensor *gd_caffe_shaped(gd_tensor *blob, gd_shape shape) {
    const int rank = gd_tensor_rank(blob);
    bool same = rank == shape.rank;
    for (int i = 0; i < rank && same; i++) same = gd_tensor_dim(blob, i) == shape.at[i];
    return same ? blob : gd_reshape(blob, shape);
}

gd_status gd_caffe_axis(const gd_caffe_layer *l, const char *path, int *axis) {
    const int rank = l->bottoms[0].rank;
    const int64_t given = gd_pb_int_of(l->message, path);
    const char *dot = strrchr(path, '.');
    if (rank == 0) return gd_caffe_fail(l, "its bottom is a single number, without axes");
    if (given < -rank || given >= rank)
        return gd_caffe_fail(l, "%s is %lld, but its bottom has %d axes (%d to %d)",
                             dot ? dot + 1 : path, (long long)given, rank, -rank, rank - 1);
    *axis = (int)(given < 0 ? given + rank : given);
    return GD_OK;
}

int64_t gd_caffe_count(const gd_shape *shape, int first, int end) {
    int64_t count = 1;
    for (int i = first; i < end; i++) {
        if (shape->at[i] < 0) return GD_UNKNOWN;
        if (!gd_mul_i64(count, shape->at[i], &count)) return INT64_MAX;
    }
    return count;
}

gd_tensor *gd_caffe_labels(gd_tensor *blob) {
    return gd_tensor_dtype(blob) == GD_I64 ? blob : gd_cast(blob, GD_I64);
}
