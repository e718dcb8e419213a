/* predict.c - gradus predict: classifies images with a saved model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static struct {
    int64_t top;
    const char *invert;
} o = {.top = 5, .invert = "auto"};

static const option options[] = {
    {"top", INTEGER, &o.top, "N", "number of classes to show (default 5)"},
    {"invert", TEXT, &o.invert, "auto|yes|no",
     "invert images; auto: if the background is white and that of the training images was black, "
     "or the reverse"},
    {0}};

/* Mean of the pixels at the border of an image (1, H, W). */
static double image_border_mean(gd_tensor *x) {
    const int64_t h = gd_tensor_dim(x, 1), w = gd_tensor_dim(x, 2);
    gd_tensor *edges[] = {gd_slice(x, .axis = 1, .stop = 1), gd_slice(x, .axis = 1, .start = h - 1),
                          gd_slice(x, .axis = 2, .stop = 1),
                          gd_slice(x, .axis = 2, .start = w - 1)};
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += gd_item(gd_mean(edges[i])) / 4;
    return sum;
}

/* Reads an image as the input of the model, (1, C, H, W). */
static gd_tensor *read_input(const char *path, const model_info *a, bool *inverted) {
    gd_tensor *x = gd_load_image(path, .channels = (int)a->channels);
    char size[64];
    snprintf(size, sizeof size, "size=%lld,%lld", (long long)a->height, (long long)a->width);
    x = gd_transform_apply(gd_transform_new("resize", size), x, NULL);
    x = gd_mul(gd_cast(x, GD_F32), gd_scalar(1.0 / 255));
    if (gd_failed()) return NULL;
    *inverted =
        strcmp(o.invert, "yes") == 0 || (strcmp(o.invert, "auto") == 0 && isfinite(a->background) &&
                                         fabs(image_border_mean(x) - a->background) > 0.5);
    if (*inverted) x = gd_sub(gd_scalar(1), x);
    gd_dataset *one = apply_transforms(gd_dataset_tensors(gd_unsqueeze(x, 0)), a->transform);
    return one ? gd_unsqueeze(gd_dataset_get(one, 0).at[0], 0) : NULL;
}

static const char *class_name(const model_info *a, int64_t i, char *text, size_t size) {
    if (i < a->n_classes) return a->classes[i];
    snprintf(text, size, "class %lld", (long long)i);
    return text;
}

static void print_top_classes(const char *path, gd_tensor *scores, const model_info *a,
                              bool inverted, bool several) {
    const int64_t classes = gd_tensor_numel(scores);
    const int64_t n = o.top < classes ? o.top : classes;
    gd_topk_outputs best = gd_topk(gd_softmax(gd_flatten(scores), .axis = 0), n);
    char text[40];
    if (common.json) {
        json_begin(NULL);
        json_text("file", path);
        json_begin_list("top");
    } else if (several || inverted) printf("%s%s\n", path, inverted ? " (inverted)" : "");
    for (int64_t i = 0; i < n && !gd_failed(); i++) {
        const double p = gd_item(gd_select(best.values, 0, i));
        const int64_t c = gd_item_int(gd_select(best.indices, 0, i));
        const char *name = class_name(a, c, text, sizeof text);
        if (!common.json) {
            printf("%6.2f %%  %s\n", 100 * p, name);
            continue;
        }
        json_begin(NULL);
        json_text("class", name);
        json_integer("index", c);
        json_number("probability", p);
        json_end();
    }
    if (common.json) {
        json_end_list();
        json_end();
        json_line();
    }
}

static int run_predict(int count, const char **words) {
    model_info a;
    if (count < 2) return usage_error(&predict_command, "it needs a model and at least one image");
    if (o.top < 1) return usage_error(&predict_command, "--top must be at least 1");
    if (strcmp(o.invert, "auto") && strcmp(o.invert, "yes") && strcmp(o.invert, "no"))
        return usage_error(&predict_command, "--invert must be auto, yes or no");
    gd_module *net = load_model(words[0], &a);
    if (!net) return failed();
    if (!a.channels) {
        fprintf(
            stderr,
            "gradus: %s has no metadata about images; only models that gradus train has trained "
            "on images have them\n",
            words[0]);
        return FAILED;
    }
    int code = DONE;
    for (int i = 1; i < count; i++) {
        GD_SCOPE;
        bool inverted = false;
        gd_device *device = gd_default_device();
        gd_set_default_device("cpu"); /* transforms of images run there */
        gd_tensor *x = read_input(words[i], &a, &inverted);
        gd_set_default_device(device);
        gd_tensor *scores = x ? gd_module_forward(net, gd_to_device(x, device)) : NULL;
        if (scores && !gd_failed()) print_top_classes(words[i], scores, &a, inverted, count > 2);
        if (gd_failed()) {
            code = failed();
            gd_clear_error();
        }
    }
    free_model_info(&a);
    return code;
}

const command predict_command = {
    .name = "predict",
    .usage = "gradus predict MODEL.onnx IMAGE... [options]",
    .summary = "classify images",
    .about =
        "Prints the most likely classes. Images are PNG, JPEG or PPM files of any size; they are\n"
        "resized to the size of the training images.\n",
    .examples = "  gradus predict m.onnx digit.png\n"
                "  gradus predict cats.onnx *.jpg --top 1 --json\n",
    .options = options,
    .run = run_predict};
