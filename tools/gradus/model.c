/* model.c - creates nets by name, loads and saves them with their metadata. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

void free_model_info(model_info *a) {
    for (int64_t i = 0; i < a->n_classes && a->classes; i++) free(a->classes[i]);
    free(a->classes);
    a->classes = NULL;
    a->n_classes = 0;
}

/* --- metadata --------------------------------------------------------------------------------- */

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

static void read_model_info(const char *path, model_info *a) {
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
}

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
}

/* --- files ------------------------------------------------------------------------------------ */

gd_module *load_model(const char *path, model_info *a) {
    memset(a, 0, sizeof *a);
    a->background = NAN;
    gd_module *net = gd_onnx_module(path);
    if (net) read_model_info(path, a);
    if (net) gd_module_eval(net);
    return net;
}

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
    char *classes = join_classes(a), image[80] = "", background[32] = "";
    if (a->channels)
        snprintf(image, sizeof image, "%lld %lld %lld", (long long)a->channels,
                 (long long)a->height, (long long)a->width);
    if (isfinite(a->background)) snprintf(background, sizeof background, "%.4f", a->background);
    gd_tensor *inputs[8];
    int64_t count = 0;
    for (; count < sample.count - targets && count < 8; count++)
        inputs[count] = gd_to_device(gd_unsqueeze(sample.at[count], 0), gd_default_device());
    const gd_status status = gd_onnx_save_module(
        path, net, ((gd_tensors){inputs, count}),
        .metadata = gd_names("gradus.model", a->model, "gradus.classes", classes ? classes : "",
                             "gradus.transform", a->transform, "gradus.loss", a->loss,
                             "gradus.image", image, "gradus.background", background, NULL));
    free(classes);
    return status;
}

/* --- creating nets ---------------------------------------------------------------------------- */

static bool has_option(const gd_op *record, const char *name) {
    for (int i = 0; i < gd_op_attr_count(record); i++)
        if (strcmp(gd_op_attr_at(record, i)->name, name) == 0) return true;
    return false;
}

/* Adds name=value if the record has this option and the text does not set it. */
static void add_default(char *text, size_t size, const gd_op *record, const char *name,
                        int64_t value) {
    char given[80];
    snprintf(given, sizeof given, "%s=", name);
    if (value <= 0 || !has_option(record, name) || strstr(text, given)) return;
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s%lld", n ? " " : "", given, (long long)value);
}

/* Copies the weights of `file` to `net`; false: some are missing. Integers, the batch counts of
 * batch norms, may be missing. */
static bool copy_weights(gd_module *net, gd_module *file) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_state *to = gd_state_of(net), *from = gd_state_of(file);
    for (int64_t i = 0; i < gd_state_count(to) && !gd_failed(); i++) {
        gd_tensor *t = gd_state_tensor_at(to, i),
                  *value = gd_state_find(from, gd_state_name(to, i));
        if (value) gd_assign(t, value);
        else if (gd_dtype_is_float(gd_tensor_dtype(t))) return false;
    }
    return !gd_failed();
}

/* A saved net of the zoo is created again with the weights of the file, so that its batch norms and
 * dropouts train as before. Other files are trained as graphs. */
static gd_module *load_to_train(const char *path, const data *d, model_info *a) {
    gd_module *file = load_model(path, a);
    if (!file || !*a->model || !d) return file;
    char name[64];
    const size_t length = strcspn(a->model, " ");
    snprintf(name, sizeof name, "%.*s", (int)length, a->model);
    gd_module *net = gd_net_new(name, a->model + length);
    if (net && gd_module_build(net, gd_unsqueeze(d->sample.at[0], 0)) == GD_OK &&
        copy_weights(net, file))
        return net;
    gd_clear_error();
    return file;
}

gd_module *make_model(const char *spec, const data *d, model_info *a) {
    if (ends_with(spec, ".onnx")) return load_to_train(spec, d, a);
    char name[64], text[180];
    memset(a, 0, sizeof *a);
    a->background = NAN;
    const size_t length = strcspn(spec, " ");
    snprintf(name, sizeof name, "%.*s", (int)length, spec);
    snprintf(text, sizeof text, "%s", spec + length + strspn(spec + length, " "));
    const gd_op *record = gd_record_get("net", name);
    if (record && d) {
        const gd_tensor *x = d->sample.at[0];
        const bool image = gd_tensor_rank(x) == 3;
        add_default(text, sizeof text, record, "classes", d->n_classes);
        add_default(text, sizeof text, record, "vocabulary", d->n_classes);
        add_default(text, sizeof text, record, "channels", image ? gd_tensor_dim(x, 0) : 0);
        add_default(text, sizeof text, record, "size", image ? gd_tensor_dim(x, 1) : 0);
        add_default(text, sizeof text, record, "context",
                    gd_tensor_rank(x) == 1 ? gd_tensor_dim(x, 0) : 0);
        add_default(text, sizeof text, record, "features",
                    gd_tensor_rank(x) == 1 ? gd_tensor_dim(x, 0) : 0);
        add_default(text, sizeof text, record, "outputs", d->classes ? d->n_classes : 1);
    }
    gd_module *net = gd_net_new(name, text);
    if (net) snprintf(a->model, sizeof a->model, "%s%s%s", name, *text ? " " : "", text);
    return net;
}
