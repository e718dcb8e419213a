/* test_data_images.c - images are decoded like Pillow does, resized and saved; damaged ones
 * fail. */
#include "clean_test.h"
#include "compare.h"
#include "core/alloc.h"
#include "core/error.h"
#include "data_files.h"
#include "files.h"
#include "format/image.h"
#include "gradus/gradus.h"
#include "temp.h"

static const char *const folder = GRADUS_GOLDEN "/images";

static const char *image_path(const char *name) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool built_for(const char *name) {
#ifndef GD_HAVE_JPEG
    if (strstr(name, ".jpg")) return false;
#endif
#ifndef GD_HAVE_PNG
    if (strstr(name, ".png")) return false;
#endif
    return name != NULL;
}

/* Entries of pixels.npz: "rgb.png", and with options "rgb.png grey", "rgb.png 8x9". */
CLEAN_TEST(images_have_the_pixels_that_pillow_decodes) {
    gd_npz *golden = gd_npz_open(image_path("pixels.npz"));
    CHECK_SAYING(golden, "%s", gd_error_message());
    int checked = 0;
    for (int64_t i = 0; i < gd_npz_count(golden); i++) {
        GD_SCOPE;
        char file[100] = "", *space;
        int width = 0, height = 0;
        snprintf(file, sizeof file, "%s", gd_npz_name(golden, i));
        if ((space = strchr(file, ' '))) *space++ = 0;
        if (!built_for(file)) continue;
        if (space && strchr(space, 'x')) sscanf(space, "%dx%d", &width, &height);
        gd_tensor *x =
            gd_load_image(image_path(file), .alpha = space && strcmp(space, "alpha") == 0,
                          .channels = !space                       ? 0
                                      : strcmp(space, "grey") == 0 ? 1
                                      : strcmp(space, "rgb") == 0  ? 3
                                                                   : 0,
                          .width = width, .height = height);
        CHECK_SAYING(!gd_tensor_is_error(x), "%s", gd_error_message());
        CHECK_SAYING(tensors_same_bits(x, gd_npz_load(golden, gd_npz_name(golden, i))), "%s",
                     gd_npz_name(golden, i));
        checked++;
    }
    CHECK_SAYING(checked >= 6, "%d", checked);
    gd_release(golden);
}

CLEAN_TEST(a_jpeg_is_decoded_at_the_smallest_sufficient_scale) {
    if (!built_for(".jpg")) SKIP("built without libjpeg");
    GD_SCOPE;
    gd_tensor *full = gd_load_image(image_path("large.jpg")); /* (3, 64, 48) */
    gd_tensor *small =
        gd_load_image(image_path("large.jpg"), .height = 16, .width = 12); /* a quarter */
    gd_tensor *odd =
        gd_load_image(image_path("large.jpg"), .height = 20, .width = 24); /* a half, resized */
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_tensor_dim(small, 1) == 16 && gd_tensor_dim(small, 2) == 12);
    CHECK(gd_tensor_dim(odd, 1) == 20 && gd_tensor_dim(odd, 2) == 24);
    double difference =
        gd_item(gd_abs(gd_sub(gd_mean(gd_cast(full, GD_F32)), gd_mean(gd_cast(small, GD_F32)))));
    CHECK_SAYING(difference < 2, "%g", difference);
    gd_tensor *grey = gd_load_image(image_path("large.jpg"), .channels = 1);
    CHECK(gd_tensor_dim(grey, 0) == 1 && gd_tensor_dim(grey, 1) == 64);
}

CLEAN_TEST(wrong_options_and_files_fail) {
    CHECK(gd_tensor_is_error(gd_load_image(image_path("text.ppm"), .channels = 2)) &&
          says("channels is 2"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_load_image(image_path("text.ppm"), .width = -1)) &&
          says("is out of range"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_load_image("/no/such.png")) && says("/no/such.png"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_load_image(temp_write_text("a.png", "text"))) &&
          says("a.png: is not a JPEG"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_load_image(temp_write_text("b.png", ""))) &&
          says("b.png: is empty"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_decode_image(NULL, 3)));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_decode_image("P5 99999999 99999999 255 ", 25)) &&
          says("at most 268435456"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_decode_image("P5 9999 9999 255 ", 17)) &&
          says("do not fit into the 0 bytes"));
    gd_clear_error();
    if (built_for(".png")) { /* a header of 2^28 pixels without data */
        uint8_t png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x40\0\0\0\x40\0\x08\x02\0\0\0....";
        const uint32_t crc = gd_crc32(0, png + 12, 17);
        for (int i = 0; i < 4; i++) png[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
        CHECK(gd_tensor_is_error(gd_decode_image(png, 33)));
        CHECK_SAYING(says("gd_decode_image: damaged PNG"), "%s", gd_error_message());
    }
}

CLEAN_TEST(a_gzipped_image_is_read) {
    GD_SCOPE;
    size_t bytes = 0, size;
    uint8_t *data = file_read(image_path("bytes.ppm"), &bytes),
            *zipped = test_gzip(data, bytes, &size);
    gd_tensor *x = gd_load_image(temp_write("x.ppm.gz", zipped, size)),
              *y = gd_decode_image(data, bytes);
    CHECK_SAYING(tensors_same_bits(x, y), "%s", gd_error_message());
    free(data);
    free(zipped);
}

/* --- damage ----------------------------------------------------------------------------------- */

/* Decodes the file truncated at each byte and with each bit flipped. */
static void check_damaged_image(const char *name) {
    size_t bytes = 0;
    uint8_t *data = file_read(image_path(name), &bytes);
    const gd_bitmap_options options = {.channels = 3, .width = 5, .height = 4};
    gd_bitmap bitmap;
    char prefix[100];
    snprintf(prefix, sizeof prefix, "%s: ", name);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *part = malloc(n ? n : 1);
        memcpy(part, data, n);
        const gd_status status = gd_bitmap_decode(&bitmap, name, part, n, &options);
        /* the last byte of a text PNM may be white space or a digit, so its loss is not
         * detectable */
        if (n + 2 < bytes || !strstr(name, "text"))
            CHECK_SAYING(status != GD_OK, "%s cut at %zu", name, n);
        if (status != GD_OK)
            CHECK_SAYING(strstr(gd_latest_failure(), prefix), "%s", gd_latest_failure());
        gd_bitmap_free(&bitmap);
        free(part);
    }
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const gd_status status = gd_bitmap_decode(&bitmap, name, data, bytes, &options);
        CHECK(status != GD_E_MEMORY);
        if (status != GD_OK)
            CHECK_SAYING(strstr(gd_latest_failure(), prefix), "%s", gd_latest_failure());
        gd_bitmap_free(&bitmap);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(data);
}

CLEAN_TEST(a_damaged_jpeg_fails_with_its_name) {
    if (!built_for(".jpg")) SKIP("built without libjpeg");
    check_damaged_image("rgb420.jpg");
    check_damaged_image("progressive.jpg");
    check_damaged_image("restart.jpg");
    check_damaged_image("cmyk.jpg");
    check_damaged_image("grey.jpg");
}
CLEAN_TEST(a_damaged_png_fails_with_its_name) {
    if (!built_for(".png")) SKIP("built without libpng");
    check_damaged_image("rgb.png");
    check_damaged_image("interlaced1.png");
    check_damaged_image("palette_alpha.png");
    check_damaged_image("rgba16.png");
}
CLEAN_TEST(a_damaged_pnm_fails_with_its_name) {
    static const char *const names[] = {"text.pbm", "text.pgm", "text.ppm",
                                        "bits.pbm", "wide.pgm", "bytes.ppm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_damaged_image(names[i]);
}

CLEAN_TEST(without_its_library_an_image_fails_and_names_the_package) {
    GD_SCOPE;
    if (!built_for(".jpg")) {
        CHECK(gd_tensor_is_error(gd_load_image(image_path("grey.jpg"))) &&
              says("install libjpeg-dev"));
        CHECK(gd_error_status() == GD_E_UNSUPPORTED);
    }
    gd_clear_error();
    if (!built_for(".png")) {
        CHECK(gd_tensor_is_error(gd_load_image(image_path("grey8.png"))) &&
              says("install libpng-dev"));
        CHECK(gd_error_status() == GD_E_UNSUPPORTED);
    }
}

/* --- saving ----------------------------------------------------------------------------------- */

CLEAN_TEST(a_saved_png_is_read_back) {
    if (!built_for(".png")) SKIP("built without libpng");
    const char *path = temp_path("saved.png");
    for (int64_t channels = 1; channels <= 4; channels++)
        for (int64_t size = 1; size < 300; size = size * 3 + 1) {
            GD_SCOPE;
            gd_tensor *x = gd_cast(gd_randint(gd_dims(channels, size, 7), 0, 256), GD_U8);
            if (size > 10)
                x = gd_mul(x, gd_cast(gd_lt(x, gd_full(gd_dims(1), 20, .dtype = GD_U8)), GD_U8));
            CHECK(gd_save_png(path, x) == GD_OK);
            gd_tensor *y = gd_load_image(path, .alpha = channels % 2 == 0);
            CHECK_SAYING(tensors_same_bits(x, y), "%lld %lld %s", (long long)channels,
                         (long long)size, gd_error_message());
        }
    GD_SCOPE;
    gd_tensor *x = gd_load_image(image_path("rgb420.jpg"));
    if (!built_for(".jpg")) x = gd_load_image(image_path("rgb.png"));
    gd_clear_error();
    CHECK(gd_save_png(path, x) == GD_OK && tensors_same_bits(gd_load_image(path), x));
    size_t bytes = 0;
    CHECK(gd_save_png(path, gd_zeros(gd_dims(500, 500))) == GD_OK);
    free(file_read(path, &bytes));
    CHECK_SAYING(bytes > 50 && bytes < 5000, "%zu bytes", bytes);
}

CLEAN_TEST(floats_are_saved_from_0_to_1) {
    if (!built_for(".png")) SKIP("built without libpng");
    GD_SCOPE;
    const float values[6] = {-1, 0, 0.5f, 1, 2, NAN};
    const uint8_t expected[6] = {0, 0, 128, 255, 255, 0};
    gd_tensor *x = gd_from_array(gd_dims(2, 3), GD_F32, values);
    CHECK(gd_save_png(temp_path("f.png"), x) == GD_OK);
    gd_tensor *y = gd_load_image(temp_path("f.png"));
    CHECK_SAYING(gd_tensor_numel(y) == 6 && memcmp(gd_data(y), expected, 6) == 0, "%s",
                 gd_error_message());
    gd_tensor *transposed = gd_transpose(x, 0, 1); /* not contiguous */
    CHECK(gd_save_png(temp_path("f.png"), transposed) == GD_OK);
    y = gd_load_image(temp_path("f.png"));
    CHECK(gd_tensor_dim(y, 1) == 3 && ((uint8_t *)gd_data(y))[3] == 255);
    CHECK(gd_save_png(temp_path("f.png"), gd_zeros(gd_dims(5, 2, 2))) == GD_E_SHAPE &&
          says("1 to 4 channels"));
    gd_clear_error();
    CHECK(gd_save_png("/no/such/folder/x.png", x) == GD_E_IO);
    gd_clear_error();
    CHECK(gd_save_png(temp_path("f.png"), NULL) == GD_E_ARGUMENT);
}

TEST_MAIN
