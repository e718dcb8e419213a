/* transforms.c - the time of transforming one image; versus_torchvision.py compares it with
 * torchvision. */
#include "bench.h"
#include "gradus/datasets.h"
#include "gradus/gradus.h"
#include "gradus/transforms.h"

typedef struct chain {
    gd_dataset *dataset;
    int64_t next;
} chain;

static void get_first_sample(void *arg) {
    chain *c = arg;
    GD_SCOPE;
    gd_dataset_get(c->dataset, 0, .epoch = (uint64_t)c->next++);
}
static void get_next_sample(void *arg) {
    chain *c = arg;
    GD_SCOPE;
    gd_dataset_get(c->dataset, c->next++);
}

static void report_transform(const char *name, gd_dataset *dataset, const char *note) {
    chain c = {.dataset = dataset};
    double spread;
    const double ns = bench_time(get_first_sample, &c, &spread);
    bench_report(name, ns / 1e3, spread / 1e3, "us", note);
}

static int64_t count_one(void *self) {
    (void)self;
    return 1;
}
static gd_tensors get_image(int64_t index, gd_random *random, void *self) {
    (void)index, (void)random;
    return gd_listed(self);
}

/* A dataset of one image of random bytes, owned by the caller's scope. */
static gd_dataset *random_image(int64_t height, int64_t width) {
    gd_tensor *x = gd_empty(gd_dims(3, height, width), GD_U8);
    gd_random r = gd_random_of(1, 0);
    for (int64_t i = 0; i < 3 * height * width; i++)
        ((uint8_t *)gd_data(x))[i] = (uint8_t)gd_random_word(&r);
    return gd_dataset_from(x, .count = count_one, .get = get_image);
}

static gd_transform *imagenet_normalize(void) {
    return gd_transform_normalize(gd_floats(0.485, 0.456, 0.406), gd_floats(0.229, 0.224, 0.225));
}

static void bench_small(void) {
    GD_SCOPE;
    report_transform("transforms.small",
                     gd_dataset_transform(random_image(32, 32), gd_transform_crop(32, .padding = 4),
                                          gd_transform_flip(), imagenet_normalize()),
                     "u8 (3,32,32): crop with padding 4, flip, normalize");
}

static void bench_large(void) {
    GD_SCOPE;
    report_transform(
        "transforms.large",
        gd_dataset_transform(random_image(375, 500), gd_transform_random_resized_crop(224),
                             gd_transform_flip(),
                             gd_transform_color_jitter(.brightness = 0.4, .contrast = 0.4,
                                                       .saturation = 0.4, .hue = 0.1),
                             imagenet_normalize()),
        "u8 (3,375,500): random_resized_crop to 224, flip, color_jitter, normalize");
}

static void bench_digits(void) {
    GD_SCOPE;
    chain c = {.dataset = gd_dataset_digits(.count = INT64_MAX)};
    double spread;
    const double ns = bench_time(get_next_sample, &c, &spread);
    bench_report("transforms.digits", 1e9 / ns, 1e9 / ns * spread / ns, "images/s", "one thread");
}

const bench_entry bench_transforms[] = {{"transforms.small", bench_small},
                                        {"transforms.large", bench_large},
                                        {"transforms.digits", bench_digits},
                                        {NULL, NULL}};
