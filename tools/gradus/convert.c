/* convert.c - gradus convert-mnist, convert-images and compute-mean: databases for nets of
 * Caffe. */
#include <stdlib.h>
#include <string.h>

#include "gradus/caffe.h"
#include "tool.h"

/* Reports that `count` records are in a database; an exit code. */
static int report_database(int64_t count, const char *database) {
    if (count < 0) return failed();
    if (common.json) {
        json_begin(NULL);
        json_text("database", database);
        json_integer("records", count);
        json_end();
        json_line();
    } else {
        note("wrote %lld records to %s", (long long)count, database);
    }
    return DONE;
}

/* --- convert-mnist ---------------------------------------------------------------------------- */

static const char *part = "train";

static const option mnist_options[] = {
    {"part", TEXT, &part, "train|test", "which images (default train)"}, {0}};

static int run_mnist(int count, const char **words) {
    const bool test = strcmp(part, "test") == 0;
    if (count != 2)
        return usage_error(&convert_mnist_command,
                           "it needs a folder and a database; there are %d arguments", count);
    if (!test && strcmp(part, "train") != 0)
        return usage_error(&convert_mnist_command, "--part is '%s'; it must be train or test",
                           part);
    return report_database(gd_caffe_convert_mnist(words[0], words[1], .test = test), words[1]);
}

const command convert_mnist_command = {
    "convert-mnist",
    "gradus convert-mnist FOLDER DATABASE [options]",
    "write MNIST as an LMDB for nets of Caffe",
    "FOLDER has the files of MNIST, gzipped or not. DATABASE is a new folder; its records are "
    "those\n"
    "that Caffe's convert_mnist_data writes.\n",
    "  gradus convert-mnist mnist/ mnist_train_lmdb\n"
    "  gradus convert-mnist mnist/ mnist_test_lmdb --part test\n",
    mnist_options,
    run_mnist,
    false};

/* --- convert-images --------------------------------------------------------------------------- */

static struct {
    const char *root, *encode_type, *backend;
    int64_t height, width;
    bool gray, shuffle, check_size, encoded;
} images;

static const option images_options[] = {
    {"root", TEXT, &images.root, "FOLDER", "folder of the images (default: the paths of the list)"},
    {"resize-height", INTEGER, &images.height, "N", "in [0, 16777216]: height of all images"},
    {"resize-width", INTEGER, &images.width, "N", "in [0, 16777216]: width of all images"},
    {"gray", FLAG, &images.gray, NULL, "one channel; default: blue, green, red"},
    {"shuffle", FLAG, &images.shuffle, NULL, "in a random order, by --seed"},
    {"check-size", FLAG, &images.check_size, NULL, "fail if images have different sizes"},
    {"encoded", FLAG, &images.encoded, NULL, "store JPEG or PNG, not pixels"},
    {"encode-type", TEXT, &images.encode_type, "jpg|png",
     "format with --encoded (default: that of each file)"},
    {"backend", TEXT, &images.backend, "lmdb", "as Caffe writes it; only lmdb is there"},
    {0}};

/* Paths of the list follow the root; a folder without its last slash gets one. NULL: no memory. */
static char *complete_root(const char *root) {
    char *text = malloc(strlen(root) + 2);
    if (!text) return NULL;
    strcpy(text, root);
    if (*root && !ends_with(root, "/")) strcat(text, "/");
    return text;
}

static int run_images(int count, const char **words) {
    /* Caffe's convert_imageset has the root as the first argument */
    const char *root = count == 3 ? words[0] : images.root ? images.root : "";
    if (count != 2 && count != 3)
        return usage_error(&convert_images_command,
                           "it needs a list and a database; there are %d arguments", count);
    if (count == 3 && images.root)
        return usage_error(&convert_images_command, "the folder of the images is given twice");
    if (images.backend && strcmp(images.backend, "lmdb") != 0)
        return usage_error(&convert_images_command, "--backend is '%s'; only lmdb is written",
                           images.backend);
    char *folder = complete_root(root);
    if (!folder) return fail("no memory");
    const int64_t written = gd_caffe_convert_images(
        words[count - 2], words[count - 1], .root = folder, .height = images.height,
        .width = images.width, .gray = images.gray, .shuffle = images.shuffle,
        .seed = (uint64_t)common.seed, .check_size = images.check_size,
        .encoded = images.encoded || images.encode_type, .encode_type = images.encode_type);
    free(folder);
    return report_database(written, words[count - 1]);
}

const command convert_images_command = {
    "convert-images",
    "gradus convert-images LIST DATABASE [options]",
    "write images that a text lists as an LMDB for nets of Caffe",
    "LIST has a line for each image: its path, a space, and its label, a number. DATABASE is a "
    "new\n"
    "folder; its records are those that Caffe's convert_imageset writes. Caffe's form of the\n"
    "command works, too: convert-images ROOT/ LIST DATABASE -resize_height=256 ...\n",
    "  gradus convert-images train.txt train_lmdb --root images --resize-height 256 \\\n"
    "      --resize-width 256 --shuffle\n",
    images_options,
    run_images,
    false};

/* --- compute-mean ----------------------------------------------------------------------------- */

static const option mean_options[] = {
    {"backend", TEXT, &images.backend, "lmdb", "as Caffe writes it; only lmdb is there"}, {0}};

/* Prints the mean of each channel. */
static void print_means(const gd_tensor *mean) {
    const int64_t channels = gd_tensor_dim(mean, 1);
    const int64_t plane = gd_tensor_dim(mean, 2) * gd_tensor_dim(mean, 3);
    const float *values = gd_data(mean);
    if (common.json) {
        json_begin(NULL);
        json_begin_list("means");
    } else {
        printf("Number of channels: %lld\n", (long long)channels);
    }
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < plane; i++) sum += (double)values[c * plane + i];
        if (common.json) json_number(NULL, sum / (double)plane);
        else printf("mean_value channel [%lld]: %g\n", (long long)c, sum / (double)plane);
    }
    if (common.json) {
        json_end_list();
        json_end();
        json_line();
    }
}

static int run_mean(int count, const char **words) {
    if (count != 1 && count != 2)
        return usage_error(&compute_mean_command,
                           "it needs a database and a file; there are %d arguments", count);
    if (images.backend && strcmp(images.backend, "lmdb") != 0)
        return usage_error(&compute_mean_command, "--backend is '%s'; only lmdb is read",
                           images.backend);
    gd_tensor *mean = gd_to_device(gd_caffe_mean(words[0]), gd_device_get("cpu"));
    if (gd_failed()) return failed();
    if (count == 2 && gd_caffe_write_blob(words[1], mean) != GD_OK) return failed();
    print_means(mean);
    return DONE;
}

const command compute_mean_command = {
    "compute-mean",
    "gradus compute-mean DATABASE [FILE] [options]",
    "write the mean image of an LMDB, print that of each channel",
    "FILE is a mean_file for the transform_param of a net of Caffe.\n",
    "  gradus compute-mean train_lmdb mean.binaryproto\n",
    mean_options,
    run_mean,
    false};
