/* test_caffe_convert.c - databases from MNIST and from lists of images, and their means. */
#include <stdlib.h>

#include "caffe/picture.h"
#include "clean_test.h"
#include "core/error.h"
#include "fault_walk.h"
#include "files.h"
#include "format/lmdb.h"
#include "gradus/caffe.h"
#include "gradus/gradus.h"
#include "temp.h"

static bool has_record(gd_lmdb *db, int64_t i, const char *key, const void *value, size_t bytes) {
    gd_lmdb_record r;
    return gd_lmdb_read(db, i, 1, &r) == GD_OK && r.key_bytes == strlen(key) &&
           memcmp(r.key, key, r.key_bytes) == 0 && r.value_bytes == bytes &&
           memcmp(r.value, value, bytes) == 0;
}

static gd_lmdb *open_database(const char *name) {
    gd_lmdb *db = NULL;
    CHECK_SAYING(gd_lmdb_open(&db, temp_path("%s", name)) == GD_OK, "%s", gd_latest_failure());
    return db;
}

/* A name for a database that does not exist yet. */
static const char *new_database(const char *name) {
    if (file_exists(temp_path("%s", name))) folder_remove(temp_path("%s", name));
    return temp_path("%s", name);
}

/* The value of record i as a picture. */
static gd_caffe_picture read_picture(gd_lmdb *db, int64_t i, gd_caffe_colours colours) {
    gd_lmdb_record r;
    gd_caffe_picture p = {.channels = 0};
    CHECK(gd_lmdb_read(db, i, 1, &r) == GD_OK);
    CHECK_SAYING(gd_caffe_datum_read(&p, "record", r.value, r.value_bytes, colours) == GD_OK, "%s",
                 gd_latest_failure());
    return p;
}

/* --- MNIST ------------------------------------------------------------------------------------ */

static const char *write_digits(void) {
    static const char images[] = "\0\0\x08\3\0\0\0\2\0\0\0\2\0\0\0\3abcdefghijkl",
                      labels[] = "\0\0\x08\1\0\0\0\2\x07\0";
    const char *folder = temp_new_folder("mnist");
    temp_write("mnist/train-images-idx3-ubyte", images, sizeof images - 1);
    temp_write("mnist/train-labels-idx1-ubyte", labels, sizeof labels - 1);
    return folder;
}

CLEAN_TEST(mnist_becomes_the_records_that_caffe_writes) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    const char *folder = write_digits();
    CHECK(gd_caffe_convert_mnist(folder, new_database("digits")) == 2);
    gd_lmdb *db = open_database("digits");
    CHECK(gd_lmdb_count(db) == 2);
    CHECK(has_record(db, 0, "00000000", "\x08\1\x10\2\x18\3\"\6abcdef(\7", 16));
    CHECK(has_record(db, 1, "00000001", "\x08\1\x10\2\x18\3\"\6ghijkl(\0", 16));
    gd_lmdb_close(db);
    CHECK(gd_caffe_convert_mnist(folder, temp_path("digits")) == -1 &&
          says("gd_caffe_convert_mnist: ") && says("has a database already"));
    gd_clear_error();
    CHECK(gd_caffe_convert_mnist(folder, new_database("more"), .test = true) == -1 &&
          says("has no file t10k-images-idx3-ubyte"));
    gd_clear_error();
    gd_tensor *mean = gd_caffe_mean(temp_path("digits"));
    CHECK(gd_tensor_dim(mean, 0) == 1 && gd_tensor_dim(mean, 2) == 2 &&
          gd_tensor_dim(mean, 3) == 3);
    for (int i = 0; i < 6; i++) CHECK(((const float *)gd_data(mean))[i] == (float)('a' + i + 3));
}

/* --- lists of images -------------------------------------------------------------------------- */

enum { HEIGHT = 16, WIDTH = 24 };

/* Red is 5 x, green 7 y, blue 90: an image that JPEG keeps well. */
static void write_images(void) {
    char list[600] = "";
    for (int i = 0; i < 4; i++) {
        uint8_t file[20 + 3 * HEIGHT * WIDTH];
        const int head = sprintf((char *)file, "P6 %d %d 255 ", WIDTH, HEIGHT);
        for (int k = 0; k < 3 * HEIGHT * WIDTH; k++) {
            const int x = k / 3 % WIDTH, y = k / 3 / WIDTH;
            file[head + k] = (uint8_t)(k % 3 == 0 ? 5 * x : k % 3 == 1 ? 7 * y : 90 + i);
        }
        char name[40];
        snprintf(name, sizeof name, "image %d.ppm", i);
        temp_write(name, file, (size_t)head + 3 * HEIGHT * WIDTH);
        snprintf(list + strlen(list), 100, "image %d.ppm %d\n", i, i - 1);
    }
    temp_write_text("list.txt", list);
}

static const char *root(void) { return temp_path("%s", ""); }

/* The largest difference to image i. */
static int difference(const gd_caffe_picture *p, int i) {
    int worst = p->channels == 3 && p->height == HEIGHT && p->width == WIDTH ? 0 : 999;
    for (int y = 0; y < HEIGHT && worst < 999; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < 3; c++) {
                const int want = c == 2 ? 5 * x : c == 1 ? 7 * y : 90 + i;
                const int got =
                    p->bytes[p->first + c * p->step[0] + y * p->step[1] + x * p->step[2]];
                if (abs(want - got) > worst) worst = abs(want - got);
            }
    return worst;
}

CLEAN_TEST(listed_images_become_records_as_pixels_or_encoded) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    static const char *const types[] = {NULL, "png", "jpg"};
    write_images();
    for (int k = 0; k < 3; k++) {
        const int64_t written =
            gd_caffe_convert_images(temp_path("list.txt"), new_database("images"), .root = root(),
                                    .encoded = k > 0, .encode_type = types[k]);
        if (written < 0 && says("built without lib")) {
            gd_clear_error();
            continue;
        }
        CHECK_SAYING(written == 4, "%s", gd_error_message());
        gd_lmdb *db = open_database("images");
        for (int i = 0; i < 4; i++) {
            gd_caffe_picture p = read_picture(db, i, GD_CAFFE_AS_STORED);
            CHECK_SAYING(difference(&p, i) <= (k == 2 ? 12 : 0), "%d", difference(&p, i));
            CHECK(p.label == i - 1);
            gd_caffe_picture_free(&p);
        }
        gd_lmdb_record r;
        CHECK(gd_lmdb_read(db, 3, 1, &r) == GD_OK && r.key_bytes == 20);
        CHECK(memcmp(r.key, "00000003_image 3.ppm", 20) == 0);
        /* the last field says whether it is encoded */
        CHECK(memcmp(r.value + r.value_bytes - 2, k ? "\x38\1" : "\x38\0", 2) == 0);
        gd_lmdb_close(db);
    }
}

CLEAN_TEST(images_are_resized_made_grey_and_shuffled) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    write_images();
    CHECK(gd_caffe_convert_images(temp_path("list.txt"), new_database("small"), .root = root(),
                                  .height = 8, .width = 12, .gray = true, .shuffle = true,
                                  .seed = 3) == 4);
    gd_lmdb *db = open_database("small");
    unsigned labels = 0;
    bool ordered = true;
    for (int i = 0; i < 4; i++) {
        gd_caffe_picture p = read_picture(db, i, GD_CAFFE_AS_STORED);
        CHECK(p.channels == 1 && p.height == 8 && p.width == 12);
        labels |= 1u << (p.label + 1);
        ordered = ordered && p.label == i - 1;
        gd_caffe_picture_free(&p);
    }
    CHECK(labels == 15 && !ordered);
    gd_lmdb_close(db);
}

CLEAN_TEST(images_that_cannot_be_read_are_left_out) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    write_images();
    temp_write_text("list.txt", "image 0.ppm 5\ngone.ppm 6\nimage 2.ppm 7\n");
    temp_write_text("broken.ppm", "P6 9 9 255 x");
    CHECK(gd_caffe_convert_images(temp_path("list.txt"), new_database("some"), .root = root()) ==
          2);
    gd_lmdb *db = open_database("some");
    gd_lmdb_record r;
    /* as in Caffe, the key has the number of the line */
    CHECK(gd_lmdb_read(db, 1, 1, &r) == GD_OK && memcmp(r.key, "00000002_image 2", 16) == 0);
    gd_lmdb_close(db);
    temp_write_text("list.txt", "broken.ppm 1");
    CHECK(gd_caffe_convert_images(temp_path("list.txt"), new_database("none"), .root = root()) ==
          -1);
    CHECK(says("none of the 1 images can be read"));
    gd_clear_error();
    CHECK(gd_caffe_convert_images(temp_path("list.txt"), new_database("none"), .height = 3) == -1);
    CHECK(says("height is 3 and width 0; give both"));
}

TEST(without_memory_conversions_fail) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    write_images();
    const char *folder = write_digits();
    for (fault_walk w = {.what = "converting", .stride = 2}; fault_next(&w);) {
        GD_SCOPE;
        const char *digits = new_database("digits"), *images = new_database("images");
        fault_begin(&w);
        bool done = gd_caffe_convert_mnist(folder, digits) == 2;
        if (done)
            done = gd_caffe_convert_images(temp_path("list.txt"), images, .root = root()) == 4;
        if (done) done = !gd_tensor_is_error(gd_caffe_mean(images));
        fault_end(&w);
        const gd_status status = done ? GD_OK : gd_error_status();
        gd_clear_error();
        CHECK_FAULT(&w, status);
    }
}

TEST_MAIN
