/* predict_caffe.c - classifies images with a net of Caffe, or finds objects in them. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/caffe.h"
#include "tool.h"

enum { LINE = 400, MAX_MEANS = 16 };

typedef struct caffe_model {
    gd_module *net;
    gd_caffe_blob input, output; /* of the text */
    char **classes;
    int64_t n_classes;
    gd_tensor *mean; /* (C, H, W) or (C, 1, 1); NULL: none */
} caffe_model;

/* --- the model -------------------------------------------------------------------------------- */

/* Reads the names of the classes: a line for each. */
static int read_classes(const char *path, caffe_model *m) {
    char line[LINE];
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!path) return DONE;
    if (!file) return fail("--classes %s: the file cannot be read", path);
    while (fgets(line, sizeof line, file)) {
        char **more = realloc(m->classes, (size_t)(m->n_classes + 1) * sizeof *more);
        if (more) m->classes = more;
        line[strcspn(line, "\r\n")] = 0;
        char *name = more ? strdup(line) : NULL;
        if (!name) break;
        m->classes[m->n_classes++] = name;
    }
    fclose(file);
    return DONE;
}

/* "104,117,123": one number, or one for each channel. */
static int read_mean_values(const char *text, int64_t channels, gd_tensor **mean) {
    float values[MAX_MEANS];
    int64_t count = 0;
    char *end;
    for (const char *s = text; count < MAX_MEANS; s = end + 1) {
        values[count++] = strtof(s, &end);
        if (end == s || (*end && *end != ','))
            return usage_error(&predict_command, "--mean-values %s: it must be numbers with commas",
                               text);
        if (!*end) break;
    }
    if (count != 1 && count != channels)
        return usage_error(
            &predict_command,
            "--mean-values %s: it has %lld numbers, but the images have %lld channels", text,
            (long long)count, (long long)channels);
    *mean = gd_from_array(gd_dims(count, 1, 1), GD_F32, values);
    return DONE;
}

/* A mean image. If its size is not that of the input, the means of its channels are subtracted. */
static int read_mean(const char *path, const gd_shape *input, gd_tensor **mean) {
    gd_tensor *blob = gd_caffe_read_blob(path);
    if (!blob) return failed();
    const int rank = gd_tensor_rank(blob);
    if (rank < 3 || gd_tensor_dim(blob, rank - 3) != input->at[1])
        return fail("--mean %s: it has %lld channels, and the input %lld", path,
                    (long long)(rank < 3 ? 0 : gd_tensor_dim(blob, rank - 3)),
                    (long long)input->at[1]);
    gd_tensor *image = gd_reshape(
        blob, gd_dims(input->at[1], gd_tensor_dim(blob, rank - 2), gd_tensor_dim(blob, rank - 1)));
    const bool same =
        gd_tensor_dim(image, 1) == input->at[2] && gd_tensor_dim(image, 2) == input->at[3];
    *mean = same ? image : gd_mean(image, .axis = gd_dims(1, 2), .keepdim = true);
    return DONE;
}

static int open_model(const caffe_predict_options *o, caffe_model *m) {
    if (!o->weights) note("--weights is missing: the net has the values of its fillers");
    m->net = gd_caffe_net(o->model, .weights = o->weights, .outputs = o->output);
    if (!m->net) return failed();
    if (!gd_caffe_input(m->net, 0, &m->input) || !gd_caffe_output(m->net, 0, &m->output))
        return fail("%s: the net has no input", o->model);
    const gd_shape *s = &m->input.shape;
    if (s->rank != 4)
        return fail(
            "%s: the input '%s' has %d axes; for images it has 4: (1, channels, height, width)",
            o->model, m->input.name, s->rank);
    if (o->mean && o->mean_values)
        return usage_error(&predict_command, "--mean and --mean-values are two means; give one");
    int code = read_classes(o->classes, m);
    if (!code && o->mean) code = read_mean(o->mean, s, &m->mean);
    if (!code && o->mean_values) code = read_mean_values(o->mean_values, s->at[1], &m->mean);
    return code;
}

/* --- images ----------------------------------------------------------------------------------- */

/* An image as the input of the net: BGR from 0 to 255, less the mean, times the scale. */
static gd_tensor *read_input(const char *path, const caffe_model *m, double scale) {
    const gd_shape *s = &m->input.shape;
    char size[80];
    snprintf(size, sizeof size, "size=%lld,%lld antialias=false", (long long)s->at[2],
             (long long)s->at[3]);
    gd_tensor *x = gd_load_image(path, .channels = s->at[1]);
    x = gd_cast(gd_transform_apply(gd_transform_new("resize", size), x, NULL), GD_F32);
    if (s->at[1] == 3) x = gd_flip(x, gd_dims(0));
    if (m->mean) x = gd_sub(x, m->mean);
    if (scale != 1) x = gd_mul(x, gd_scalar(scale));
    return gd_unsqueeze(x, 0);
}

static const char *name_of(const caffe_model *m, int64_t c, char text[40]) {
    if (c >= 0 && c < m->n_classes) return m->classes[c];
    snprintf(text, 40, "%lld", (long long)c);
    return text;
}

/* --- results ---------------------------------------------------------------------------------- */

static void begin_file(const char *path, const char *list, bool several) {
    if (common.json) {
        json_begin(NULL);
        json_text("file", path);
        json_begin_list(list);
    } else if (several) {
        print_safely(stdout, path);
        putchar('\n');
    }
}
static void end_file(void) {
    if (!common.json) return;
    json_end_list();
    json_end();
    json_line();
}

/* The largest values. They are probabilities if they are those of a softmax. */
static void print_classes(const caffe_model *m, gd_tensor *values, int64_t top) {
    char text[40];
    const int64_t count = gd_tensor_numel(values), n = top < count ? top : count;
    gd_topk_outputs best = gd_topk(gd_flatten(values), n);
    const double sum = gd_item(gd_sum(values)), least = gd_item(gd_min(values));
    const bool shares = least >= 0 && sum > 0.999 && sum < 1.001;
    for (int64_t i = 0; i < n && !gd_failed(); i++) {
        const double v = gd_item(gd_select(best.values, 0, i));
        const int64_t c = gd_item_int(gd_select(best.indices, 0, i));
        const char *name = name_of(m, c, text);
        if (!common.json) {
            printf(shares ? "%6.2f %%  " : "%10.4f  ", shares ? 100 * v : v);
            print_safely(stdout, name);
            putchar('\n');
            continue;
        }
        json_begin(NULL);
        json_text("class", name);
        json_integer("index", c);
        json_number(shares ? "probability" : "value", v);
        json_end();
    }
}

/* Rows (image, class, score, left, top, right, bottom), as DetectionOutput gives them. */
static void print_objects(const caffe_model *m, gd_tensor *rows, int64_t top) {
    char text[40];
    const int64_t count = gd_tensor_dim(rows, 2);
    for (int64_t i = 0; i < count && i < top && !gd_failed(); i++) {
        double v[7];
        for (int64_t k = 0; k < 7; k++)
            v[k] = gd_item(gd_select(gd_select(gd_reshape(rows, gd_dims(-1, 7)), 0, i), 0, k));
        if (v[0] < 0) continue;
        const char *name = name_of(m, (int64_t)v[1], text);
        if (!common.json) {
            printf("%6.2f %%  ", 100 * v[2]);
            print_safely(stdout, name);
            printf("  at %.3f, %.3f to %.3f, %.3f\n", v[3], v[4], v[5], v[6]);
            continue;
        }
        static const char *const sides[] = {"left", "top", "right", "bottom"};
        json_begin(NULL);
        json_text("class", name);
        json_integer("index", (int64_t)v[1]);
        json_number("probability", v[2]);
        for (int k = 0; k < 4; k++) json_number(sides[k], v[3 + k]);
        json_end();
    }
}

static int predict_file(const caffe_model *m, const char *path, const caffe_predict_options *o,
                        bool several) {
    gd_device *device = gd_default_device();
    gd_set_default_device("cpu"); /* transforms of images run there */
    gd_tensor *x = read_input(path, m, o->scale);
    gd_set_default_device(device);
    gd_tensor *y = gd_failed() ? NULL : gd_module_forward(m->net, gd_to_device(x, device));
    if (!y || gd_failed()) return failed();
    const bool objects = gd_tensor_rank(y) == 4 && gd_tensor_dim(y, 3) == 7 &&
                         gd_tensor_dim(y, 0) == 1 && gd_tensor_dim(y, 1) == 1;
    begin_file(path, objects ? "objects" : "top", several);
    if (objects) print_objects(m, y, o->top);
    else print_classes(m, y, o->top);
    end_file();
    return gd_failed() ? failed() : DONE;
}

int predict_caffe(const caffe_predict_options *o, int count, const char **images) {
    caffe_model m = {.net = NULL};
    if (count < 1) return usage_error(&predict_command, "it needs at least one image");
    int code = open_model(o, &m);
    for (int i = 0; i < count && m.net && !code; i++) {
        GD_SCOPE;
        code = predict_file(&m, images[i], o, count > 1);
        gd_clear_error();
    }
    for (int64_t i = 0; i < m.n_classes; i++) free(m.classes[i]);
    free(m.classes);
    return code;
}
