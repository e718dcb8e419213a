/* predict_image.c - classifies an image. */
#include <math.h>
#include <string.h>

#include "tool.h"

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
static gd_tensor *read_input(const char *path, const model_info *a, const char *invert,
                             bool *inverted) {
    gd_tensor *x = gd_load_image(path, .channels = (int)a->channels);
    char size[64];
    snprintf(size, sizeof size, "size=%lld,%lld", (long long)a->height, (long long)a->width);
    x = gd_transform_apply(gd_transform_new("resize", size), x, NULL);
    x = gd_mul(gd_cast(x, GD_F32), gd_scalar(1.0 / 255));
    if (gd_failed()) return NULL;
    *inverted =
        strcmp(invert, "yes") == 0 || (strcmp(invert, "auto") == 0 && isfinite(a->background) &&
                                       fabs(image_border_mean(x) - a->background) > 0.5);
    if (*inverted) x = gd_sub(gd_scalar(1), x);
    gd_dataset *one = apply_transforms(gd_dataset_tensors(gd_unsqueeze(x, 0)), a->transform);
    return one ? gd_unsqueeze(gd_dataset_get(one, 0).at[0], 0) : NULL;
}

static void print_top_classes(const char *path, gd_tensor *scores, const model_info *a, int64_t top,
                              bool inverted, bool several) {
    const int64_t classes = gd_tensor_numel(scores);
    const int64_t n = top < classes ? top : classes;
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

int predict_image(gd_module *net, const model_info *a, const char *path, const predict_options *o,
                  bool several) {
    bool inverted = false;
    gd_device *device = gd_default_device();
    gd_set_default_device("cpu"); /* transforms of images run there */
    gd_tensor *x = read_input(path, a, o->invert, &inverted);
    gd_set_default_device(device);
    gd_tensor *scores = x ? gd_module_forward(net, gd_to_device(x, device)) : NULL;
    if (scores && !gd_failed()) print_top_classes(path, scores, a, o->top, inverted, several);
    return gd_failed() ? failed() : DONE;
}
