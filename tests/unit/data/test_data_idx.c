/* test_data_idx.c - gzip and IDX files, and the datasets mnist and idx. */
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "data_files.h"
#include "data_gather.h"
#include "files.h"
#include "format/gzip.h"
#include "format/idx.h"
#include "gradus/gradus.h"
#include "temp.h"

/* --- gzip ------------------------------------------------------------------------------------- */

/* Decompresses a gzip file in memory; NULL: failed. gd_free() it. */
static char *unpack(const void *data, size_t bytes, size_t *size) {
    uint8_t *exact = malloc(bytes ? bytes : 1); /* so that sanitizers find reads beyond it */
    gd_stream *s;
    char *out = NULL;
    memcpy(exact, data, bytes);
    if (gd_stream_open_memory(&s, "test.gz", exact, bytes) == GD_OK) {
        if (gd_stream_read_all(s, 1 << 20, &out, size) != GD_OK) out = NULL;
        gd_stream_close(s);
    }
    free(exact);
    return out;
}

/* gzip.compress(b"abc" * 80 + b"end", 9, mtime=0) */
static const uint8_t packed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                 0x4b, 0x4c, 0x4a, 0x4e, 0x1c, 0x49, 0x28, 0x35, 0x2f, 0x05,
                                 0x00, 0x60, 0x6b, 0xa3, 0x48, 0xf3, 0x00, 0x00, 0x00};

static void check_unpacks(const void *data, size_t bytes, const char *expected, size_t length) {
    size_t size = 0;
    char *out = unpack(data, bytes, &size);
    CHECK_SAYING(out, "%s", gd_error_message());
    CHECK_SAYING(size == length, "%zu", size);
    if (out) CHECK(size == length && memcmp(out, expected, length) == 0);
    gd_free(out);
}

static size_t expected_text(char text[300]) {
    for (int i = 0; i < 80; i++) memcpy(text + 3 * i, "abc", 3);
    memcpy(text + 240, "end", 3);
    return 243;
}

CLEAN_TEST(gzip_members_are_read_one_after_the_other) {
    char text[600];
    const size_t n = expected_text(text);
    check_unpacks(packed, sizeof packed, text, n);
    uint8_t two[2 * sizeof packed + 20] = {0};
    memcpy(two, packed, sizeof packed);
    memcpy(two + sizeof packed, packed, sizeof packed);
    memcpy(text + n, text, n);
    check_unpacks(two, 2 * sizeof packed, text, 2 * n);
    check_unpacks(two, sizeof two, text, 2 * n); /* padded with zeros */
    check_unpacks("plain", 5, "plain", 5);
    check_unpacks("", 0, "", 0);
}

CLEAN_TEST(a_gzip_header_may_have_all_optional_parts) {
    uint8_t file[200] = {0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3, 2, 0, 'x', 'y'},
            *p = file + 14;
    char text[300];
    memcpy(p, "name\0comment", 13);
    p += 13;
    p = gd_put_u16(p, (uint16_t)gd_crc32(0, file, (size_t)(p - file)));
    memcpy(p, packed + 10, sizeof packed - 10);
    p += sizeof packed - 10;
    check_unpacks(file, (size_t)(p - file), text, expected_text(text));
    size_t size;
    file[16] ^= 1; /* changes the name, so that the checksum of the header is wrong */
    CHECK(!unpack(file, (size_t)(p - file), &size));
    CHECK(strstr(gd_latest_failure(), "checksum of the header"));
}

CLEAN_TEST(a_damaged_gzip_file_fails_with_its_name) {
    size_t size;
    for (size_t n = 2; n < sizeof packed; n++) {
        char *out = unpack(packed, n, &size);
        CHECK_SAYING(!out, "cut at %zu", n);
        CHECK_SAYING(strstr(gd_latest_failure(), "test.gz: "), "%s", gd_latest_failure());
        gd_free(out);
    }
    for (size_t bit = 0; bit < 8 * sizeof packed; bit++) {
        uint8_t copy[sizeof packed];
        memcpy(copy, packed, sizeof packed);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        char *out = unpack(copy, sizeof copy, &size);
        /* These bits are ignored: time, extra flags, system, the padding of the last deflated byte,
         * and bit 24 ("text"). Without its magic number the file is not gzip. */
        if (bit / 8 > 1 && (bit / 8 < 4 || bit / 8 > 9) && bit != 24 && (bit < 164 || bit > 167))
            CHECK_SAYING(!out, "bit %zu", bit);
        gd_free(out);
    }
    uint8_t more[sizeof packed + 3] = {0};
    memcpy(more, packed, sizeof packed);
    more[sizeof packed + 1] = 7;
    CHECK(!unpack(more, sizeof more, &size));
    CHECK_SAYING(strstr(gd_latest_failure(), "a gzip member was expected"), "%s",
                 gd_latest_failure());
}

CLEAN_TEST(a_stream_limits_the_size_a_header_may_claim) {
    /* an IDX header of 16 billion bytes, gzipped: nothing is allocated */
    const uint8_t claim[] = {0, 0, 8, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 4};
    size_t size;
    uint8_t *file = test_gzip(claim, sizeof claim, &size);
    const char *path = temp_write("claim", file, size);
    free(file);
    CHECK(!gd_dataset_idx(path) && says("more than the file can hold") && says("claim"));
}

/* --- IDX -------------------------------------------------------------------------------------- */

static const char *write_idx(const char *name, int type, int rank, const int64_t *dims,
                             const void *items, size_t bytes) {
    uint8_t *file = malloc(4 + 4 * (size_t)rank + bytes), *p = file + 4;
    memcpy(file, (uint8_t[]){0, 0, (uint8_t)type, (uint8_t)rank}, 4);
    for (int k = 0; k < rank; k++)
        for (int shift = 24; shift >= 0; shift -= 8) *p++ = (uint8_t)(dims[k] >> shift);
    memcpy(p, items, bytes);
    const char *path = temp_write(name, file, (size_t)(p - file) + bytes);
    free(file);
    return path;
}
#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { __VA_ARGS__ }

static void check_item(int type, const char *name, const void *items, size_t bytes, gd_dtype dtype,
                       double expected) {
    GD_SCOPE;
    const char *path = write_idx(name, type, DIMS(2), items, bytes);
    gd_dataset *d = gd_dataset_idx(path, .bytes = true);
    CHECK_SAYING(d && gd_dataset_count(d) == 2, "%s", gd_error_message());
    gd_tensor *x = gd_dataset_get(d, 1).at[0];
    CHECK(gd_tensor_dtype(x) == dtype && gd_tensor_rank(x) == 0);
    CHECK_SAYING(gd_item(x) == expected, "%s: %g", name, gd_item(x));
}

CLEAN_TEST(every_idx_type_is_read) {
    check_item(0x08, "u8", "\x01\xfe", 2, GD_U8, 254);
    check_item(0x09, "i8", "\x01\xfe", 2, GD_I8, -2);
    check_item(0x0B, "i16", "\0\x01\xff\xfe", 4, GD_I32, -2);
    check_item(0x0C, "i32", "\0\0\0\x01\x80\0\0\0", 8, GD_I32, -2147483648.0);
    check_item(0x0D, "f32", "\0\0\0\0\x3f\xc0\0\0", 8, GD_F32, 1.5);
    check_item(0x0E, "f64", "\0\0\0\0\0\0\0\0\xc0\x09\x21\xfb\x54\x44\x2d\x18", 16, GD_F64,
               -3.141592653589793);
}

CLEAN_TEST(idx_samples_have_the_shape_without_the_first_axis) {
    GD_SCOPE;
    const uint8_t pixels[24] = {0, 51, 102, 153, 204, 255, 1};
    const char *images = write_idx("images", 8, DIMS(2, 3, 4), pixels, 24);
    const char *labels = write_idx("labels", 8, DIMS(2), "\x03\x01", 2);
    gd_dataset *d = gd_dataset_idx(images, .labels = labels);
    gd_tensors first = gd_dataset_get(d, 0);
    CHECK(first.count == 2 && gd_tensor_rank(first.at[0]) == 3);
    CHECK(gd_tensor_dim(first.at[0], 0) == 1 && gd_tensor_dim(first.at[0], 2) == 4);
    float values[12];
    CHECK(gd_copy_to(first.at[0], values, sizeof values) == GD_OK);
    for (int i = 0; i < 12; i++) CHECK(values[i] == pixels[i] / 255.0f);
    CHECK(gd_item_int(first.at[1]) == 3 && gd_tensor_rank(first.at[1]) == 0);
    CHECK(gd_item_int(gd_dataset_get(d, 1).at[1]) == 1);
    check_gather(d);
    CHECK(gd_dataset_class_count(d) == 4 && strcmp(gd_dataset_class_name(d, 3), "3") == 0);
    CHECK(gd_dataset_new("idx", "images=/no/such/file") == NULL && says("/no/such/file"));
    gd_clear_error();
    CHECK(!gd_dataset_idx(NULL) && says("images is not given"));
    gd_clear_error();
    CHECK(!gd_dataset_idx(labels, .labels = images) && says("labels are integers of rank 1"));
    gd_clear_error();
    const char *three = write_idx("three", 8, DIMS(3), "\0\0\0", 3);
    CHECK(!gd_dataset_idx(images, .labels = three) && says("has 3 labels") && says("2 samples"));
}

/* Opens a damaged file: if that fails, the message names the file. */
static void check_damaged(const uint8_t *data, size_t bytes, bool must_fail) {
    GD_SCOPE;
    const char *path = temp_write("damaged", data, bytes);
    gd_dataset *d = gd_dataset_idx(path);
    if (must_fail)
        CHECK_SAYING(!d && says("damaged: "), "%zu bytes: %s", bytes, gd_error_message());
    if (!d)
        CHECK(gd_error_status() == GD_E_FORMAT || gd_error_status() == GD_E_UNSUPPORTED ||
              gd_error_status() == GD_E_SHAPE);
    gd_clear_error();
}

CLEAN_TEST(a_damaged_idx_file_fails_with_its_name) {
    const uint8_t pixels[12] = {1, 2, 3};
    size_t bytes = 0, packed_bytes;
    uint8_t *file = file_read(write_idx("sound", 8, DIMS(2, 2, 3), pixels, 12), &bytes);
    uint8_t *zipped = test_gzip(file, bytes, &packed_bytes);
    for (size_t n = 0; n < bytes; n++) check_damaged(file, n, true);
    for (size_t n = 0; n < packed_bytes; n++) check_damaged(zipped, n, true);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        check_damaged(file, bytes, bit < 16); /* a flip of type or shape may give a valid file */
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    file = realloc(file, bytes + 1);
    file[bytes] = 0;
    check_damaged(file, bytes + 1, true);
    free(file);
    free(zipped);
}

/* --- MNIST ------------------------------------------------------------------------------------ */

CLEAN_TEST(mnist_accepts_all_usual_file_names) {
    GD_SCOPE;
    uint8_t pixels[2 * 28 * 28] = {[784] = 255};
    size_t bytes = 0, packed_bytes;
    const char *folder = temp_folder();
    CHECK(!gd_dataset_mnist(folder, GD_TRAIN) && says("has no file train-images-idx3-ubyte"));
    gd_clear_error();
    write_idx("train-images.idx3-ubyte", 8, DIMS(2, 28, 28), pixels, sizeof pixels);
    uint8_t *labels = file_read(write_idx("labels", 8, DIMS(2), "\x03\x09", 2), &bytes);
    uint8_t *zipped = test_gzip(labels, bytes, &packed_bytes);
    temp_write("train-labels-idx1-ubyte.gz", zipped, packed_bytes);
    gd_dataset *d = gd_dataset_mnist(folder, GD_TRAIN, .bytes = true);
    CHECK_SAYING(d && gd_dataset_count(d) == 2, "%s", gd_error_message());
    gd_tensors sample = gd_dataset_get(d, 1);
    CHECK(gd_tensor_dtype(sample.at[0]) == GD_U8 && gd_item_int(sample.at[1]) == 9);
    uint8_t first[784];
    CHECK(gd_copy_to(sample.at[0], first, sizeof first) == GD_OK && first[0] == 255 &&
          first[1] == 0);
    CHECK(!gd_dataset_mnist(folder, GD_TEST) && says("t10k-images"));
    gd_clear_error();
    labels[9] = 10;
    temp_write("train-labels-idx1-ubyte", labels, bytes);
    CHECK(!gd_dataset_mnist(folder, GD_TRAIN) && says("label 1 (byte 9) is 10"));
    free(labels);
    free(zipped);
}

CLEAN_TEST(the_real_mnist_has_its_known_count_and_mean) {
    const char *folder = real_data("mnist");
    if (!folder) SKIP("no MNIST at $GRADUS_DATA/mnist or ../shared/data/mnist");
    GD_SCOPE;
    gd_dataset *d = gd_dataset_mnist(folder, GD_TRAIN, .bytes = true);
    CHECK_SAYING(gd_dataset_count(d) == 60000, "%s", gd_error_message());
    CHECK(gd_dataset_count(gd_dataset_mnist(folder, GD_TEST)) == 10000);
    uint8_t pixels[784];
    gd_tensors first = gd_dataset_get(d, 0);
    CHECK(gd_copy_to(first.at[0], pixels, sizeof pixels) == GD_OK);
    CHECK_SAYING(gd_crc32(0, pixels, 784) == 0x90A92752, "%08x", gd_crc32(0, pixels, 784));
    CHECK(gd_item_int(first.at[1]) == 5);
    check_gather(gd_dataset_mnist(folder, GD_TEST));
    double sum = 0;
    for (int64_t i = 0; i < gd_dataset_count(d); i++) {
        GD_SCOPE;
        CHECK(gd_copy_to(gd_dataset_get(d, i).at[0], pixels, sizeof pixels) == GD_OK);
        for (int k = 0; k < 784; k++) sum += pixels[k];
    }
    const double mean = sum / 255 / 784 / 60000;
    CHECK_SAYING(mean > 0.13065 && mean < 0.13067, "%g", mean);
}

TEST_MAIN
