/* transforms.c - what transforms of one image cost; versus_torchvision.py compares them. */
#include "bench.h"
#include "gradus/datasets.h"
#include "gradus/gradus.h"
#include "gradus/transforms.h"

typedef struct chain {
    gd_dataset *dataset;
    int64_t next;
} chain;

static void sample(void *arg) {
    chain *c = arg;
    GD_SCOPE;
    gd_dataset_get(c->dataset, 0, .epoch = (uint64_t)c->next++);
}
static void next_sample(void *arg) {
    chain *c = arg;
    GD_SCOPE;
    gd_dataset_get(c->dataset, c->next++);
}

static void report(const char *name, gd_dataset *dataset, const char *note) {
    chain c = {.dataset = dataset};
    double spread;
    const double ns = bench_time(sample, &c, &spread);
    bench_report(name, ns / 1e3, spread / 1e3, "us", note);
}

static int64_t one(void *self) {
    (void)self;
    return 1;
}
static gd_tensors get(int64_t index, gd_random *random, void *self) {
    (void)index, (void)random;
    return gd_listed(self);
}

/* One image of random bytes, which the caller's scope has. */
static gd_dataset *images(int64_t height, int64_t width) {
    gd_tensor *x = gd_empty(gd_dims(3, height, width), GD_U8);
    gd_random r = gd_random_of(1, 0);
    for (int64_t i = 0; i < 3 * height * width; i++)
        ((uint8_t *)gd_data(x))[i] = (uint8_t)gd_random_word(&r);
    return gd_dataset_from(x, .count = one, .get = get);
}

static gd_transform *imagenet(void) {
    return gd_transform_normalize(gd_floats(0.485, 0.456, 0.406), gd_floats(0.229, 0.224, 0.225));
}

static void small(void) {
    GD_SCOPE;
    report("transforms.small",
           gd_dataset_transform(images(32, 32), gd_transform_crop(32, .padding = 4),
                                gd_transform_flip(), imagenet()),
           "u8 (3,32,32): crop with padding 4, flip, normalize");
}

static void large(void) {
    GD_SCOPE;
    report("transforms.large",
           gd_dataset_transform(images(375, 500), gd_transform_random_resized_crop(224),
                                gd_transform_flip(),
                                gd_transform_color_jitter(.brightness = 0.4, .contrast = 0.4,
                                                          .saturation = 0.4, .hue = 0.1),
                                imagenet()),
           "u8 (3,375,500): random_resized_crop to 224, flip, color_jitter, normalize");
}

static void digits(void) {
    GD_SCOPE;
    chain c = {.dataset = gd_dataset_digits(.count = INT64_MAX)};
    double spread;
    const double ns = bench_time(next_sample, &c, &spread);
    bench_report("transforms.digits", 1e9 / ns, 1e9 / ns * spread / ns, "images/s", "one thread");
}

const bench_entry bench_transforms[] = {{"transforms.small", small},
                                        {"transforms.large", large},
                                        {"transforms.digits", digits},
                                        {NULL, NULL}};
