/* detection_output.c - DetectionOutput of SSD's Caffe: the boxes that a detector has found.
 *
 * The number of boxes depends on the data, and choosing them is sorting and comparing, so the layer reads its
 * bottoms on the host. The boxes of an image come in the order of their scores, as in OpenCV; SSD's Caffe
 * orders them by class first.
 *
 * The layer cannot be traced: gd_predict runs such a net eagerly, on any device, and a net for a jit or an
 * ONNX file ends at the bottoms of the layer.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caffe/layer.h"
#include "core/alloc.h"
#include "core/checked.h"
#include "core/grow.h"
#include "core/tensor.h"
#include "dispatch/intern.h"
#include "graph/build/shapes_only.h"
#include "nn/layer.h"

enum { ROW = 7 }; /* image, label, score, xmin, ymin, xmax, ymax */

typedef struct settings {
    int64_t classes, background, keep_top_k, top_k; /* top_k and keep_top_k: -1 is all */
    bool shares_location, variance_is_encoded;
    char code; /* of a box: 'c'orners, cente'r' and size, or corner and 's'ize */
    double threshold, nms_threshold, eta;
    const char *bottoms; /* their names, interned, for a message */
} settings;

typedef struct box {
    float xmin, ymin, xmax, ymax;
} box;

/* --- boxes ------------------------------------------------------------------------------------ */

/* A box from the four numbers of the net, the prior box, and its variances. */
static box decode(const settings *s, const float *code, box prior, const float *variance) {
    const float width = prior.xmax - prior.xmin, height = prior.ymax - prior.ymin;
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = s->variance_is_encoded ? code[i] : code[i] * variance[i];
    if (s->code == 'c')
        return (box){prior.xmin + v[0], prior.ymin + v[1], prior.xmax + v[2], prior.ymax + v[3]};
    if (s->code == 's')
        return (box){prior.xmin + v[0] * width, prior.ymin + v[1] * height,
                     prior.xmax + v[2] * width, prior.ymax + v[3] * height};
    const float cx = v[0] * width + (prior.xmin + prior.xmax) / 2;
    const float cy = v[1] * height + (prior.ymin + prior.ymax) / 2;
    const float w = expf(v[2]) * width, h = expf(v[3]) * height;
    return (box){cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2};
}

static float area(box b) {
    return b.xmax < b.xmin || b.ymax < b.ymin ? 0 : (b.xmax - b.xmin) * (b.ymax - b.ymin);
}

/* The area of the intersection divided by that of the union. */
static float overlap(box a, box b) {
    const float width = fminf(a.xmax, b.xmax) - fmaxf(a.xmin, b.xmin);
    const float height = fminf(a.ymax, b.ymax) - fmaxf(a.ymin, b.ymin);
    if (!(width > 0 && height > 0)) return 0;
    const float both = width * height;
    return both / (area(a) + area(b) - both);
}

/* --- choosing --------------------------------------------------------------------------------- */

typedef struct found {
    float score;
    int64_t label, prior;
    box box;
} found;

/* By score, the highest first; equal ones by their place. */
static int by_score(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return x->prior < y->prior ? -1 : x->prior > y->prior;
}

/* The inputs of the layer on the host, and what has been found so far. */
typedef struct search {
    const settings *s;
    const float *location, *confidence, *prior;
    int64_t n_priors;
    found *candidates; /* n_priors */
    found *kept;       /* of one image */
    int n_kept, room;
    float *rows;
    int n_rows, rows_room;
} search;

static box decoded(const search *w, int64_t image, int64_t label, int64_t i) {
    const settings *s = w->s;
    const int64_t per_prior = s->shares_location ? 1 : s->classes;
    const int64_t at = (image * w->n_priors + i) * per_prior + (s->shares_location ? 0 : label);
    box prior;
    memcpy(&prior, w->prior + 4 * i, sizeof prior);
    return decode(s, w->location + 4 * at, prior, w->prior + 4 * (w->n_priors + i));
}

/* Non-maximum suppression among the boxes of one class. */
static gd_status search_class(search *w, int64_t image, int64_t label) {
    const settings *s = w->s;
    const int first = w->n_kept;
    int64_t count = 0;
    float limit = (float)s->nms_threshold;
    for (int64_t i = 0; i < w->n_priors; i++) {
        const float score = w->confidence[(image * w->n_priors + i) * s->classes + label];
        if (score > (float)s->threshold)
            w->candidates[count++] = (found){.score = score, .label = label, .prior = i};
    }
    if (count > 0) qsort(w->candidates, (size_t)count, sizeof *w->candidates, by_score);
    if (s->top_k > -1 && count > s->top_k) count = s->top_k;
    for (int64_t i = 0; i < count; i++) {
        found *f = &w->candidates[i];
        bool kept = true;
        f->box = decoded(w, image, label, f->prior);
        for (int k = first; k < w->n_kept && kept; k++)
            kept = overlap(f->box, w->kept[k].box) <= limit;
        if (!kept) continue;
        if (!gd_grow(w->kept, w->n_kept, w->room)) return gd_no_memory(NULL, "for boxes");
        w->kept[w->n_kept++] = *f;
        if (s->eta < 1 && limit > 0.5f) limit *= (float)s->eta;
    }
    return GD_OK;
}

static gd_status search_image(search *w, int64_t image) {
    const settings *s = w->s;
    w->n_kept = 0;
    for (int64_t label = 0; label < s->classes; label++)
        if (label != s->background) GD_TRY(search_class(w, image, label));
    if (w->n_kept > 0) qsort(w->kept, (size_t)w->n_kept, sizeof *w->kept, by_score);
    if (s->keep_top_k > -1 && w->n_kept > s->keep_top_k) w->n_kept = (int)s->keep_top_k;
    for (int i = 0; i < w->n_kept; i++) {
        const found *f = &w->kept[i];
        const float row[ROW] = {(float)image, (float)f->label, f->score,   f->box.xmin,
                                f->box.ymin,  f->box.xmax,     f->box.ymax};
        for (int k = 0; k < ROW; k++) {
            if (!gd_grow(w->rows, w->n_rows, w->rows_room)) return gd_no_memory(NULL, "for boxes");
            w->rows[w->n_rows++] = row[k];
        }
    }
    return GD_OK;
}

/* --- the layer -------------------------------------------------------------------------------- */

/* The values of a tensor in memory from gd_malloc; NULL: the failure is recorded. */
static float *host_values(gd_tensor *t) {
    const size_t bytes = (size_t)gd_tensor_numel(t) * sizeof(float);
    float *values = gd_malloc(bytes + 1);
    if (!values) gd_no_memory(NULL, "for the values of a tensor");
    else if (gd_copy_out(gd_tensor_dtype(t) == GD_F32 ? t : gd_cast(t, GD_F32), values, bytes) ==
             GD_OK)
        return values;
    gd_free(values);
    return NULL;
}

/* Rows of -1 with the number of the image, one for each image: nothing was found. */
static gd_tensor *no_rows(int64_t images) {
    gd_tensor *numbers = gd_reshape(gd_arange(0, images, .dtype = GD_F32), gd_dims(images, 1));
    gd_tensor *rest = gd_full(gd_dims(images, ROW - 1), -1);
    return gd_reshape(gd_cat(gd_list(numbers, rest), .axis = 1), gd_dims(1, 1, images, ROW));
}

static gd_tensor *find_boxes(const settings *s, gd_tensors in) {
    float *values[3] = {NULL};
    search w = {.s = s, .n_priors = gd_tensor_dim(in.at[2], 2) / 4};
    const int64_t images = gd_tensor_dim(in.at[0], 0);
    gd_status status = GD_OK;
    for (int i = 0; i < 3 && status == GD_OK; i++)
        if (!(values[i] = host_values(in.at[i]))) status = gd_failure();
    w.location = values[0], w.confidence = values[1], w.prior = values[2];
    w.candidates = gd_calloc((size_t)w.n_priors + 1, sizeof *w.candidates);
    if (!w.candidates) status = gd_no_memory(NULL, "for boxes");
    for (int64_t n = 0; n < images && status == GD_OK; n++) status = search_image(&w, n);
    gd_tensor *t = status != GD_OK ? gd_tensor_fail(status)
                   : w.n_rows > 0
                       ? gd_from_array(gd_dims(1, 1, w.n_rows / ROW, ROW), GD_F32, w.rows)
                       : no_rows(images);
    gd_free(w.rows);
    gd_free(w.kept);
    gd_free(w.candidates);
    for (int i = 0; i < 3; i++) gd_free(values[i]);
    return t;
}

static gd_status check_sizes(const settings *s, const gd_shape *location,
                             const gd_shape *confidence, const gd_shape *prior) {
    const int64_t priors = prior->rank == 3 ? prior->at[2] / 4 : 0;
    int64_t scores, numbers; /* of an image */
    if (prior->rank != 3 || prior->at[0] != 1 || prior->at[1] != 2 || prior->at[2] % 4 != 0)
        return gd_fail(GD_E_SHAPE, "its third bottom must be (1, 2, 4 P), as PriorBox gives it");
    if (!gd_mul_i64(priors, s->classes, &scores) ||
        !gd_mul_i64(4, s->shares_location ? priors : scores, &numbers))
        return gd_fail(GD_E_SHAPE, "num_classes is %lld, which is too large",
                       (long long)s->classes);
    if (location->rank < 2 || gd_caffe_count(location, 1, location->rank) != numbers)
        return gd_fail(GD_E_SHAPE,
                       "its first bottom must have %lld numbers for each image: 4 for each of %lld "
                       "prior boxes%s",
                       (long long)numbers, (long long)priors,
                       s->shares_location ? "" : " and each class");
    if (confidence->rank < 2 || confidence->at[0] != location->at[0] ||
        gd_caffe_count(confidence, 1, confidence->rank) != scores)
        return gd_fail(GD_E_SHAPE,
                       "its second bottom must have %lld numbers for each image: one for each of "
                       "%lld prior boxes and %lld classes",
                       (long long)scores, (long long)priors, (long long)s->classes);
    return GD_OK;
}

static gd_tensors detection_forward(gd_tensors in, void *self) {
    const settings *s = self;
    if (gd_is_shapes_only) return gd_listed(gd_zeros(gd_dims(1, 1, 1, ROW)));
    for (int i = 0; i < 3; i++)
        if (in.at[i]->kind == GD_SYMBOL)
            return gd_layer_fail(gd_fail(
                GD_E_UNSUPPORTED,
                "DetectionOutput cannot be traced, because the number of boxes depends on the "
                "data; run the net eagerly, or end it before this layer: .outputs = \"%s\"",
                s->bottoms));
    gd_shape shapes[3];
    for (int i = 0; i < 3; i++) {
        if (in.at[i]->kind == GD_FAILED) return gd_layer_fail(gd_failure());
        shapes[i] = gd_tensor_shape(in.at[i]);
    }
    const gd_status status = check_sizes(s, &shapes[0], &shapes[1], &shapes[2]);
    if (status != GD_OK) return gd_layer_fail(status);
    GD_NO_GRAD;
    return gd_listed(gd_to_device(find_boxes(s, in), gd_tensor_device(in.at[0])));
}

static gd_status read_settings(const gd_caffe_layer *l, settings *s) {
    const gd_pb *m = gd_pb_message_of(l->message, "detection_output_param");
    s->classes = gd_pb_int_of(m, "num_classes");
    s->shares_location = gd_pb_int_of(l->message, "detection_output_param.share_location");
    s->background = gd_pb_int_of(m, "background_label_id");
    s->variance_is_encoded = gd_pb_int_of(m, "variance_encoded_in_target");
    s->keep_top_k = gd_pb_int_of(l->message, "detection_output_param.keep_top_k");
    s->threshold = gd_pb_has(m, "confidence_threshold") ? gd_pb_float_of(m, "confidence_threshold")
                                                        : -INFINITY;
    s->nms_threshold = gd_pb_float_of(l->message, "detection_output_param.nms_param.nms_threshold");
    s->eta = gd_pb_float_of(l->message, "detection_output_param.nms_param.eta");
    s->top_k = gd_pb_has(m, "nms_param.top_k") ? gd_pb_int_of(m, "nms_param.top_k") : -1;
    const char *code = gd_pb_word_of(l->message, "detection_output_param.code_type");
    s->code = strcmp(code, "CORNER") == 0 ? 'c' : strcmp(code, "CENTER_SIZE") == 0 ? 'r' : 's';
    if (s->classes < 1)
        return gd_caffe_fail(l, "detection_output_param.num_classes is %lld; it must be at least 1",
                             (long long)s->classes);
    if (!(s->nms_threshold >= 0))
        return gd_caffe_fail(l, "nms_param.nms_threshold is %g; it must be at least 0",
                             s->nms_threshold);
    if (!(s->eta > 0 && s->eta <= 1))
        return gd_caffe_fail(l, "nms_param.eta is %g; it must be above 0 and at most 1", s->eta);
    return GD_OK;
}

static gd_status keep_names(const gd_caffe_layer *l, settings *s) {
    char names[400];
    snprintf(names, sizeof names, "%.120s %.120s %.120s", gd_pb_string_at(l->message, "bottom", 0),
             gd_pb_string_at(l->message, "bottom", 1), gd_pb_string_at(l->message, "bottom", 2));
    s->bottoms = gd_intern(names);
    return s->bottoms ? GD_OK : gd_no_memory(l->file, "for a layer");
}

gd_status gd_caffe_make_DetectionOutput(gd_caffe_layer *l) {
    settings *s = gd_caffe_module(l, detection_forward, sizeof *s);
    if (!s) return gd_failure();
    GD_TRY(read_settings(l, s));
    GD_TRY(keep_names(l, s));
    if (gd_pb_has(l->message, "detection_output_param.save_output_param.output_directory"))
        gd_notice(
            GD_LOG_WARNING,
            "layer '%s' (DetectionOutput): save_output_param is ignored, no files are written",
            l->name);
    const gd_status status = check_sizes(s, &l->bottoms[0], &l->bottoms[1], &l->bottoms[2]);
    return status == GD_OK ? GD_OK : gd_caffe_fail(l, "%s", gd_latest_failure());
}
