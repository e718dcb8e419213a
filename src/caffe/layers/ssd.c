/* ssd.c - Normalize, Permute and PriorBox of SSD's Caffe. detection_output.c has DetectionOutput.
 *
 * What only trains detectors is refused by its name.
 */
#include <math.h>
#include <stdio.h>

#include "caffe/layer.h"
#include "core/alloc.h"
#include "core/checked.h"
#include "core/tensor.h"
#include "graph/build/graph.h"
#include "graph/build/shapes_only.h"
#include "nn/layer.h"

/* --- Normalize -------------------------------------------------------------------------------- */

typedef struct normalize {
    gd_tensor *scale; /* (), or (C) */
    double eps;
    bool across_spatial;
} normalize;

/* x (N, C, ...) divided by its norm over all of an image, or over the channels at each place. */
static gd_tensors normalize_forward(gd_tensors in, void *self) {
    const normalize *m = self;
    gd_tensor *x = in.at[0], *scale = m->scale;
    const int rank = gd_tensor_rank(x);
    gd_shape axes = {.rank = m->across_spatial ? rank - 1 : 1, .form = 1};
    gd_shape channels = {.at = {1, gd_tensor_numel(scale)}, .rank = rank, .form = 1};
    for (int i = 0; i < axes.rank; i++) axes.at[i] = i + 1;
    for (int i = 2; i < rank; i++) channels.at[i] = 1;
    if (gd_tensor_rank(scale) > 0) scale = gd_reshape(scale, channels);
    gd_tensor *sum = gd_sum(gd_square(x), .axis = axes, .keepdim = true);
    gd_tensor *norm = gd_sqrt(gd_add(sum, gd_scalar(m->eps)));
    return gd_listed(gd_mul(gd_div(x, norm), scale));
}

gd_status gd_caffe_make_Normalize(gd_caffe_layer *l) {
    static const char filler[] = "norm_param.scale_filler";
    const gd_shape *x = &l->bottoms[0];
    if (x->rank < 2)
        return gd_caffe_fail(l, "its bottom has %d axes; it takes (N, C, ...)", x->rank);
    normalize *m = gd_caffe_module(l, normalize_forward, sizeof *m);
    if (!m) return gd_failure();
    m->eps = gd_pb_float_of(l->message, "norm_param.eps");
    m->across_spatial = gd_pb_int_of(l->message, "norm_param.across_spatial");
    const bool shared = gd_pb_int_of(l->message, "norm_param.channel_shared");
    const gd_shape shape = shared ? gd_dims() : gd_dims(x->at[1]);
    if (gd_pb_has(l->message, filler))
        return gd_caffe_add_blob(l, &m->scale, "scale", shape, filler);
    GD_EAGER;
    m->scale = gd_ones(shape);
    return gd_module_add_parameter_at(NULL, l->module, "scale", m->scale, &m->scale);
}

/* --- Permute ---------------------------------------------------------------------------------- */

static gd_tensors permute_forward(gd_tensors in, void *self) {
    const gd_shape *order = self;
    return gd_listed(gd_permute(in.at[0], *order));
}

/* The axes that `order` does not name follow in their order. */
gd_status gd_caffe_make_Permute(gd_caffe_layer *l) {
    const gd_pb_list *given = gd_pb_list_of(l->message, "permute_param.order");
    const int rank = l->bottoms[0].rank;
    bool taken[GD_MAX_RANK] = {false};
    gd_shape *order = gd_caffe_module(l, permute_forward, sizeof *order);
    if (!order) return gd_failure();
    *order = (gd_shape){.form = 1};
    for (size_t i = 0; given && i < given->count; i++) {
        const int64_t axis = given->ints[i];
        if (axis >= rank)
            return gd_caffe_fail(l, "permute_param.order has %lld, but its bottom has %d axes",
                                 (long long)axis, rank);
        if (taken[axis])
            return gd_caffe_fail(l, "permute_param.order has %lld twice", (long long)axis);
        taken[axis] = true;
        order->at[order->rank++] = axis;
    }
    for (int i = 0; i < rank; i++)
        if (!taken[i]) order->at[order->rank++] = i;
    return GD_OK;
}

/* --- PriorBox --------------------------------------------------------------------------------- */

enum { MAX_PRIORS = 256 }; /* at a place of the feature map */

typedef struct prior_box {
    double width[MAX_PRIORS], height[MAX_PRIORS]; /* in pixels of the image */
    int n_priors;
    double variance[4];
    double image_width, image_height; /* 0: those of the second bottom */
    double step_width, step_height;   /* 0: the image's size by the feature map's */
    double offset;
    bool clip;
} prior_box;

static double clipped(double x, bool clip) { return clip ? fmin(fmax(x, 0), 1) : x; }

/* The boxes (height * width * n_priors, 4) as xmin, ymin, xmax, ymax in parts of the image, then their
 * variances. */
static void write_boxes(const prior_box *m, int64_t height, int64_t width, double image_height,
                        double image_width, float *to) {
    const double step_x = m->step_width > 0 ? m->step_width : image_width / (double)width;
    const double step_y = m->step_height > 0 ? m->step_height : image_height / (double)height;
    const int64_t count = height * width * m->n_priors * 4;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            for (int i = 0; i < m->n_priors; i++, to += 4) {
                const double cx = ((double)x + m->offset) * step_x;
                const double cy = ((double)y + m->offset) * step_y;
                to[0] = (float)clipped((cx - m->width[i] / 2) / image_width, m->clip);
                to[1] = (float)clipped((cy - m->height[i] / 2) / image_height, m->clip);
                to[2] = (float)clipped((cx + m->width[i] / 2) / image_width, m->clip);
                to[3] = (float)clipped((cy + m->height[i] / 2) / image_height, m->clip);
            }
    for (int64_t i = 0; i < count; i++) to[i] = (float)m->variance[i % 4];
}

/* (1, 2, height * width * n_priors * 4): the boxes and their variances, which depend on shapes alone. */
static gd_tensors prior_box_forward(gd_tensors in, void *self) {
    const prior_box *m = self;
    const int64_t height = gd_tensor_dim(in.at[0], 2), width = gd_tensor_dim(in.at[0], 3);
    const double image_height =
        m->image_height > 0 ? m->image_height : (double)gd_tensor_dim(in.at[1], 2);
    const double image_width =
        m->image_width > 0 ? m->image_width : (double)gd_tensor_dim(in.at[1], 3);
    int64_t count, bytes;
    if (height < 0 || width < 0 || !gd_mul_i64(height, width, &count) ||
        !gd_mul_i64(count, (int64_t)m->n_priors * 4, &count) || !gd_mul_i64(count, 8, &bytes))
        return gd_listed(gd_tensor_fail(gd_fail(GD_E_SHAPE, "the feature map is too large")));
    const gd_shape shape = gd_dims(1, 2, count);
    if (gd_is_shapes_only) return gd_listed(gd_zeros(shape));
    float *boxes = gd_malloc((size_t)bytes + 1);
    if (!boxes) return gd_listed(gd_tensor_fail(gd_no_memory(NULL, "for the boxes")));
    write_boxes(m, height, width, image_height, image_width, boxes);
    gd_tensor *t = gd_from_array(shape, GD_F32, boxes);
    gd_free(boxes);
    return gd_listed(gd_to_device(t, gd_tensor_device(in.at[0])));
}

static gd_status add_prior(const gd_caffe_layer *l, prior_box *m, double width, double height) {
    if (m->n_priors == MAX_PRIORS)
        return gd_caffe_fail(l, "it has more than %d boxes at each place", MAX_PRIORS);
    m->width[m->n_priors] = width;
    m->height[m->n_priors++] = height;
    return GD_OK;
}

static bool is_near(double a, double b) { return fabs(a - b) < 1e-6; }

/* The aspect ratios other than 1, each once, with their inverses if `flip` is set. */
static gd_status read_ratios(const gd_caffe_layer *l, double *ratios, int *count) {
    const gd_pb_list *given = gd_pb_list_of(l->message, "prior_box_param.aspect_ratio");
    const bool flip = gd_pb_int_of(l->message, "prior_box_param.flip");
    *count = 0;
    for (size_t i = 0; given && i < given->count; i++) {
        const double ratio = given->floats[i];
        if (!(ratio > 0))
            return gd_caffe_fail(l, "prior_box_param.aspect_ratio is %g; it must be above 0",
                                 ratio);
        bool known = is_near(ratio, 1);
        for (int k = 0; k < *count; k++) known |= is_near(ratio, ratios[k]);
        if (known) continue;
        if (*count + 2 > MAX_PRIORS)
            return gd_caffe_fail(l, "it has more than %d boxes at each place", MAX_PRIORS);
        ratios[(*count)++] = ratio;
        if (flip) ratios[(*count)++] = 1 / ratio;
    }
    return GD_OK;
}

/* For each min_size a square, a larger one if there is a max_size, then a box for each ratio. */
static gd_status read_sizes(const gd_caffe_layer *l, prior_box *m) {
    const gd_pb_list *least = gd_pb_list_of(l->message, "prior_box_param.min_size"),
                     *most = gd_pb_list_of(l->message, "prior_box_param.max_size");
    double ratios[MAX_PRIORS];
    int n_ratios;
    GD_TRY(read_ratios(l, ratios, &n_ratios));
    if (!least || least->count == 0) return gd_caffe_fail(l, "prior_box_param has no min_size");
    if (most && most->count > 0 && most->count != least->count)
        return gd_caffe_fail(l,
                             "prior_box_param has %zu min_size and %zu max_size; there must be one "
                             "max_size for each min_size, or none",
                             least->count, most->count);
    for (size_t i = 0; i < least->count; i++) {
        const double size = least->floats[i];
        if (!(size > 0))
            return gd_caffe_fail(l, "prior_box_param.min_size is %g; it must be above 0", size);
        GD_TRY(add_prior(l, m, size, size));
        if (most && most->count > 0) {
            if (!(most->floats[i] > size))
                return gd_caffe_fail(l,
                                     "prior_box_param.max_size is %g; it must be greater than "
                                     "min_size, %g",
                                     (double)most->floats[i], size);
            const double larger = sqrt(size * most->floats[i]);
            GD_TRY(add_prior(l, m, larger, larger));
        }
        for (int k = 0; k < n_ratios; k++)
            GD_TRY(add_prior(l, m, size * sqrt(ratios[k]), size / sqrt(ratios[k])));
    }
    return GD_OK;
}

/* One number for all, or four. */
static gd_status read_variances(const gd_caffe_layer *l, prior_box *m) {
    const gd_pb_list *given = gd_pb_list_of(l->message, "prior_box_param.variance");
    const size_t count = given ? given->count : 0;
    if (count > 1 && count != 4)
        return gd_caffe_fail(l, "prior_box_param has %zu variance; there must be 4, 1 or none",
                             count);
    for (size_t i = 0; i < 4; i++) {
        m->variance[i] = count == 0 ? 0.1 : given->floats[count == 4 ? i : 0];
        if (!(m->variance[i] > 0))
            return gd_caffe_fail(l, "prior_box_param.variance is %g; it must be above 0",
                                 m->variance[i]);
    }
    return GD_OK;
}

/* A field that is an integer or a float. */
static double number_of(const gd_caffe_layer *l, const char *path) {
    return gd_pb_float_of(l->message, path) + (double)gd_pb_int_of(l->message, path);
}

/* A pair of fields, or one that stands for both: "step", or "step_h" and "step_w". 0: not given. */
static gd_status read_pair(const gd_caffe_layer *l, const char *both, const char *high,
                           const char *wide, double *height, double *width) {
    char paths[3][60];
    const char *const names[] = {both, high, wide};
    bool has[3];
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "prior_box_param.%s", names[i]);
        has[i] = gd_pb_has(l->message, paths[i]);
    }
    if (has[0] && (has[1] || has[2]))
        return gd_caffe_fail(l, "prior_box_param has %s beside %s", both, has[1] ? high : wide);
    if (has[1] != has[2])
        return gd_caffe_fail(l, "prior_box_param has %s without %s", has[1] ? high : wide,
                             has[1] ? wide : high);
    *height = number_of(l, paths[has[0] ? 0 : 1]);
    *width = number_of(l, paths[has[0] ? 0 : 2]);
    for (int i = 0; i < 3; i++)
        if (has[i] && !(number_of(l, paths[i]) > 0))
            return gd_caffe_fail(l, "%s must be above 0", paths[i]);
    return GD_OK;
}

gd_status gd_caffe_make_PriorBox(gd_caffe_layer *l) {
    prior_box *m = gd_caffe_module(l, prior_box_forward, sizeof *m);
    double height = 0, width = 0;
    if (!m) return gd_failure();
    for (int i = 0; i < 2; i++)
        if (l->bottoms[i].rank != 4)
            return gd_caffe_fail(l, "its bottom %d has %d axes; it takes (N, C, height, width)", i,
                                 l->bottoms[i].rank);
    GD_TRY(read_sizes(l, m));
    GD_TRY(read_variances(l, m));
    GD_TRY(read_pair(l, "img_size", "img_h", "img_w", &height, &width));
    m->image_height = height, m->image_width = width;
    GD_TRY(read_pair(l, "step", "step_h", "step_w", &m->step_height, &m->step_width));
    m->offset = gd_pb_float_of(l->message, "prior_box_param.offset");
    m->clip = gd_pb_int_of(l->message, "prior_box_param.clip");
    return GD_OK;
}

/* --- what is not there ------------------------------------------------------------------------ */

#define REFUSED(name)                                                                     \
    gd_status gd_caffe_make_##name(gd_caffe_layer *l) {                                   \
        return gd_caffe_fail(l, "SSD's layers that train or evaluate a detector are not " \
                                "supported; a deploy net of it runs");                    \
    }
REFUSED(DetectionEvaluate)
REFUSED(MultiBoxLoss)
REFUSED(SmoothL1Loss)
