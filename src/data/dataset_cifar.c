/* dataset_cifar.c - CIFAR-10 and CIFAR-100. */
#include <stdio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "data/samples.h"
#include "format/cifar.h"
#include "gradus/datasets.h"

static const char *const names_10[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                       "dog",      "frog",       "horse", "ship", "truck"};
// clang-format off
static const char *const names_fine[] = {
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger",
    "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm"};
static const char *const names_coarse[] = {
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals",
    "non-insect_invertebrates", "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2"};
// clang-format on
_Static_assert(sizeof names_fine / sizeof *names_fine == 100, "CIFAR-100 has 100 classes");
_Static_assert(sizeof names_coarse / sizeof *names_coarse == 20, "in 20 groups");

typedef struct cifar {
    gd_cifar read;
    gd_sample_array images;
    int64_t *classes;
} cifar;

/* Reads a file of the folder, or of its subfolder `inside`, gzipped or not. */
static gd_status read_file(gd_cifar *to, const char *folder, const char *inside, const char *name,
                           int labels, const int *limits) {
    gd_stream *stream;
    char file[100], *path = NULL;
    for (int form = 0; form < 4 && !path; form++) {
        snprintf(file, sizeof file, "%s%s%s%s", form & 1 ? inside : "", form & 1 ? "/" : "", name,
                 form & 2 ? ".gz" : "");
        path = gd_folder_join(folder, file);
        if (!path) return gd_no_memory(NULL, "for a path");
        if (access(path, F_OK) == 0) break;
        gd_free(path);
        path = NULL;
    }
    if (!path) return gd_fail(GD_E_IO, "%s: has no file %s or %s/%s", folder, name, inside, name);
    gd_status status = gd_stream_open(&stream, path);
    if (status == GD_OK) {
        status = gd_cifar_read(to, stream, labels, limits);
        gd_stream_close(stream);
    }
    gd_free(path);
    return status;
}

/* Called when all files are read. Of the `labels` label bytes of an image, number `label` is the
 * class. */
static gd_status finish_cifar(gd_dataset *d, int labels, int label, bool bytes,
                              const char *const *names, int count) {
    cifar *c = d->self;
    c->images = (gd_sample_array){.data = c->read.pixels,
                                  .bytes = GD_CIFAR_PIXELS,
                                  .dtype = GD_U8,
                                  .unit = !bytes,
                                  .rank = 3,
                                  .dims = {3, 32, 32}};
    c->classes = gd_malloc((size_t)c->read.count * sizeof *c->classes);
    if (!c->classes) return gd_no_memory(NULL, "for labels");
    for (int64_t i = 0; i < c->read.count; i++) c->classes[i] = c->read.labels[i * labels + label];
    d->count = c->read.count;
    return gd_dataset_set_classes(d, names, count);
}

static gd_status begin_cifar(gd_dataset *d) {
    d->self = gd_calloc(1, sizeof(cifar));
    return d->self ? GD_OK : gd_no_memory(NULL, "for a dataset");
}

static gd_status get_cifar(const gd_dataset *d, int64_t index, gd_sample *sample) {
    const cifar *c = d->self;
    GD_TRY(gd_sample_array_get(&c->images, index, sample));
    return gd_sample_add_classes(sample, c->classes + index, NULL, 1);
}

static gd_status gather_cifar(const gd_dataset *d, const int64_t *indices, int64_t count,
                              gd_sample *batch) {
    const cifar *c = d->self;
    GD_TRY(gd_sample_array_gather(&c->images, indices, count, batch));
    return gd_sample_add_classes(batch, c->classes, indices, count);
}

static void close_cifar(gd_dataset *d) {
    cifar *c = d->self;
    if (!c) return;
    gd_cifar_free(&c->read);
    gd_free(c->classes);
    gd_free(c);
}

/*dataset cifar10(path:string, part:{train, test})
 * CIFAR-10: `path` is a folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin
 * ("binary version"), gzipped or not, or with the folder cifar-10-batches-bin. Samples: the
 * image, f32 (3,32,32) in [0,1], and its class, i64.
 *   bytes bool = false   images as u8, 0 to 255
 *   python CIFAR10(path, part)
 */
static gd_status cifar10_check(const void *options) {
    return gd_check_path(((const gd_dataset_cifar10_options *)options)->path, "path");
}

static gd_status cifar10_open(gd_dataset *d) {
    const gd_dataset_cifar10_options *o = d->options;
    const int limit = 10;
    GD_TRY(begin_cifar(d));
    cifar *c = d->self;
    for (int i = 1; i <= (o->part == GD_TRAIN ? 5 : 1); i++) {
        char name[32] = "test_batch.bin";
        if (o->part == GD_TRAIN) snprintf(name, sizeof name, "data_batch_%d.bin", i);
        GD_TRY(read_file(&c->read, o->path, "cifar-10-batches-bin", name, 1, &limit));
    }
    return finish_cifar(d, 1, 0, o->bytes, names_10, 10);
}

static gd_status cifar10_get(const gd_dataset *d, int64_t index, gd_random *random,
                             gd_sample *sample) {
    (void)random;
    return get_cifar(d, index, sample);
}
static gd_status cifar10_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                                gd_sample *batch) {
    return gather_cifar(d, indices, count, batch);
}
static void cifar10_close(gd_dataset *d) { close_cifar(d); }

/*dataset cifar100(path:string, part:{train, test})
 * CIFAR-100: `path` is a folder with train.bin and test.bin ("binary version"), gzipped or not, or
 * with the folder cifar-100-binary. Samples: the image, f32 (3,32,32) in [0,1], and its class,
 * i64.
 *   labels {fine, coarse} = fine   100 classes, or the 20 groups that they are in
 *   bytes bool = false             images as u8, 0 to 255
 *   python CIFAR100(path, part)
 */
static gd_status cifar100_check(const void *options) {
    return gd_check_path(((const gd_dataset_cifar100_options *)options)->path, "path");
}

static gd_status cifar100_open(gd_dataset *d) {
    const gd_dataset_cifar100_options *o = d->options;
    const int limits[2] = {20, 100};
    GD_TRY(begin_cifar(d));
    cifar *c = d->self;
    GD_TRY(read_file(&c->read, o->path, "cifar-100-binary",
                     o->part == GD_TRAIN ? "train.bin" : "test.bin", 2, limits));
    const bool fine = o->labels == GD_FINE;
    return finish_cifar(d, 2, fine, o->bytes, fine ? names_fine : names_coarse, fine ? 100 : 20);
}

static gd_status cifar100_get(const gd_dataset *d, int64_t index, gd_random *random,
                              gd_sample *sample) {
    (void)random;
    return get_cifar(d, index, sample);
}
static gd_status cifar100_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                                 gd_sample *batch) {
    return gather_cifar(d, indices, count, batch);
}
static void cifar100_close(gd_dataset *d) { close_cifar(d); }

#include "data/dataset_cifar.gen.h"
