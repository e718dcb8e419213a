/* metadata.c - what a saved model knows about its data: classes, transforms, sizes, tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

void free_model_info(model_info *a) {
    for (int64_t i = 0; i < a->n_classes && a->classes; i++) free(a->classes[i]);
    free(a->classes);
    free(a->layout);
    a->classes = NULL;
    a->layout = NULL;
    a->n_classes = 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The value of a key, to be freed with free(); NULL: it is missing. */
static char *read_metadata(const char *path, const char *key) {
    const int64_t length = gd_onnx_metadata(path, key, NULL, 0);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (text) gd_onnx_metadata(path, key, text, (size_t)length + 1);
    return text;
}

static void copy_metadata(const char *path, const char *key, char *into, size_t size) {
    char *text = read_metadata(path, key);
    snprintf(into, size, "%s", text ? text : "");
    free(text);
}

/* Decodes \n and \\ in place; see join_classes. */
static void unescape(char *text) {
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (*c == '\\' && c[1]) *to++ = *++c == 'n' ? '\n' : *c;
        else *to++ = *c;
    }
    *to = '\0';
}

/* Reads names of classes, one on each line. */
static void split_classes(model_info *a, char *text) {
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        unescape(line);
        char **grown = realloc(a->classes, (size_t)(a->n_classes + 1) * sizeof *grown);
        if (!grown) return;
        a->classes = grown;
        if (!(a->classes[a->n_classes] = strdup(line))) return;
        a->n_classes++;
        line = end ? end + 1 : NULL;
    }
}

void read_model_info(const char *path, model_info *a) {
    char text[128], *classes = read_metadata(path, "gradus.classes");
    memset(a, 0, sizeof *a);
    copy_metadata(path, "gradus.model", a->model, sizeof a->model);
    copy_metadata(path, "gradus.transform", a->transform, sizeof a->transform);
    copy_metadata(path, "gradus.loss", a->loss, sizeof a->loss);
    split_classes(a, classes);
    free(classes);
    copy_metadata(path, "gradus.image", text, sizeof text);
    long long c, h, w;
    if (sscanf(text, "%lld %lld %lld", &c, &h, &w) == 3)
        a->channels = c, a->height = h, a->width = w;
    copy_metadata(path, "gradus.background", text, sizeof text);
    a->background = *text ? strtod(text, NULL) : NAN;
    copy_metadata(path, "gradus.text", text, sizeof text);
    a->length = strtoll(text, NULL, 10);
    a->layout = read_metadata(path, "gradus.table");
    if (a->layout && !*a->layout) {
        free(a->layout);
        a->layout = NULL;
    }
}

/* --- describing data -------------------------------------------------------------------------- */

/* Mean of the border of some images: distinguishes a white background from a black one. */
static double border_mean(gd_dataset *dataset) {
    double sum = 0, count = 0;
    for (int64_t i = 0; i < 32 && i < gd_dataset_count(dataset); i++) {
        GD_SCOPE;
        gd_tensor *x = gd_cast(gd_dataset_get(dataset, i).at[0], GD_F32);
        const int64_t h = gd_tensor_dim(x, 1), w = gd_tensor_dim(x, 2);
        float *pixels = malloc(sizeof(float) * (size_t)(h * w));
        if (!pixels ||
            gd_copy_to(gd_contiguous(x), pixels, sizeof(float) * (size_t)(h * w)) != GD_OK) {
            free(pixels);
            gd_clear_error();
            return NAN;
        }
        for (int64_t y = 0; y < h; y++)
            for (int64_t k = 0; k < w; k++)
                if (y == 0 || k == 0 || y == h - 1 || k == w - 1) sum += pixels[y * w + k], count++;
        free(pixels);
    }
    return count ? sum / count : NAN;
}

void describe_data(model_info *a, const data *d, const char *transform, const char *loss) {
    free_model_info(a);
    snprintf(a->transform, sizeof a->transform, "%s", transform ? transform : "");
    snprintf(a->loss, sizeof a->loss, "%s", loss ? loss : "");
    const int64_t n = gd_dataset_class_count(d->train);
    a->classes = n ? calloc((size_t)n, sizeof *a->classes) : NULL;
    for (; a->classes && a->n_classes < n; a->n_classes++)
        if (!(a->classes[a->n_classes] = strdup(gd_dataset_class_name(d->train, a->n_classes))))
            break;
    const gd_tensor *x = d->sample.at[0];
    const bool image = gd_tensor_rank(x) == 3 && gd_dtype_is_float(gd_tensor_dtype(x)) &&
                       (gd_tensor_dim(x, 0) == 1 || gd_tensor_dim(x, 0) == 3);
    a->channels = image ? gd_tensor_dim(x, 0) : 0;
    a->height = image ? gd_tensor_dim(x, 1) : 0;
    a->width = image ? gd_tensor_dim(x, 2) : 0;
    a->background = image && a->channels == 1 && !*a->transform ? border_mean(d->train) : NAN;
    a->length = d->text ? gd_tensor_dim(x, 0) : 0;
    a->layout = layout_of(d->train);
}

/* --- saving ----------------------------------------------------------------------------------- */

static char *join_classes(const model_info *a) {
    size_t size = 1;
    for (int64_t i = 0; i < a->n_classes; i++) size += 2 * strlen(a->classes[i]) + 1;
    char *text = calloc(size, 1), *at = text;
    for (int64_t i = 0; text && i < a->n_classes; i++) {
        if (i) *at++ = '\n';
        for (const char *c = a->classes[i]; *c; c++) {
            if (*c == '\n' || *c == '\\') *at++ = '\\'; /* a class of a text may be a newline */
            *at++ = *c == '\n' ? 'n' : *c;
        }
    }
    return text;
}

gd_status save_model(const char *path, gd_module *net, gd_tensors sample, int64_t targets,
                     const model_info *a) {
    if (ends_with(path, ".safetensors")) return gd_save_state(path, gd_part("", net));
    char *classes = join_classes(a), image[80] = "", background[32] = "", length[32] = "";
    if (a->channels)
        snprintf(image, sizeof image, "%lld %lld %lld", (long long)a->channels,
                 (long long)a->height, (long long)a->width);
    if (isfinite(a->background)) snprintf(background, sizeof background, "%.4f", a->background);
    if (a->length) snprintf(length, sizeof length, "%lld", (long long)a->length);
    gd_tensor *inputs[8];
    int64_t count = 0;
    for (; count < sample.count - targets && count < 8; count++)
        inputs[count] = gd_to_device(gd_unsqueeze(sample.at[count], 0), gd_default_device());
    const gd_status status = gd_onnx_save_module(
        path, net, ((gd_tensors){inputs, count}),
        .metadata = gd_names("gradus.model", a->model, "gradus.classes", classes ? classes : "",
                             "gradus.transform", a->transform, "gradus.loss", a->loss,
                             "gradus.image", image, "gradus.background", background, "gradus.text",
                             length, "gradus.table", a->layout ? a->layout : "", NULL));
    free(classes);
    return status;
}
