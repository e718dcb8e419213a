/* test_transforms.c - transforms: image functions against torchvision
 * (tests/golden/transforms_make.py), random parameters, options, and invalid shapes and dtypes. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>

#include "compare.h"
#include "data/image.h"
#include "fault_walk.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "gradus/transforms.h"
#include "test.h"

/* The input image of transforms_make.py. */
static gd_tensor *make_image(gd_dtype dtype, int64_t c, int64_t h, int64_t w) {
    gd_tensor *x = gd_empty(gd_dims(c, h, w), dtype);
    for (int64_t k = 0; k < c; k++)
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < w; j++) {
                const int64_t at = (k * h + i) * w + j;
                const int v = (int)(((31 * k + 7 * i + 5 * j + i * j) * 37 + j * j / 3) % 256);
                if (dtype == GD_U8) ((uint8_t *)gd_data(x))[at] = (uint8_t)v;
                else ((float *)gd_data(x))[at] = (float)v / 255;
            }
    return x;
}

static float element(gd_tensor *x, int64_t i) { return ((float *)gd_data(x))[i]; }

/* --- against torchvision ---------------------------------------------------------------------- */

enum { MAX_WORDS = 20 };

static gd_status apply_function(char **a, int n, gd_image *x, gd_image *y) {
    double v[MAX_WORDS];
    for (int i = 0; i < n; i++) v[i] = atof(a[i]);
    float fill[GD_MAX_FLOATS];
    const char *name = a[-5];
    double m[6];
    if (!strcmp(name, "resize"))
        return gd_image_resize(x, (gd_box){atoi(a[0]), atoi(a[1]), atoi(a[2]), atoi(a[3])},
                               atoi(a[4]), atoi(a[5]), gd_filter_of(gd_word_of(a[6])), v[7] != 0,
                               y);
    if (!strcmp(name, "affine")) {
        for (int i = 0; i < GD_MAX_FLOATS; i++) fill[i] = 0;
        gd_affine_matrix(v[0], v[1], v[2], v[3], v[4], v[5], m);
        return gd_image_affine(x, m, x->height, x->width, gd_filter_of(gd_word_of(a[6])), fill, y);
    }
    if (!strcmp(name, "rotate")) {
        int64_t h = x->height, w = x->width;
        for (int i = 0; i < GD_MAX_FLOATS; i++) fill[i] = (float)v[3];
        gd_affine_matrix(-v[0], 0, 0, 1, 0, 0, m);
        if (v[2] != 0) gd_affine_sizes(x, m, &h, &w);
        return gd_image_affine(x, m, h, w, gd_filter_of(gd_word_of(a[1])), fill, y);
    }
    if (!strcmp(name, "grayscale")) return gd_image_grayscale(x, atoi(a[0]), y);
    if (!strcmp(name, "pad")) {
        for (int i = 0; i < GD_MAX_FLOATS; i++) fill[i] = (float)v[5];
        return gd_image_window(x, -atoi(a[1]), -atoi(a[0]), x->height + atoi(a[1]) + atoi(a[3]),
                               x->width + atoi(a[0]) + atoi(a[2]), gd_border_of(gd_word_of(a[4])),
                               fill, y);
    }
    if (!strcmp(name, "flip")) return gd_image_flip(x, !strcmp(a[0], "horizontal"), y);
    if (!strcmp(name, "center_crop") || !strcmp(name, "normalize")) {
        gd_transform *t =
            !strcmp(name, "normalize")
                ? gd_transform_normalize(gd_floats(v[0], v[2], v[4]), gd_floats(v[1], v[3], v[5]))
                : gd_transform_center_crop(gd_dims(atoi(a[0]), atoi(a[1])));
        gd_tensor *z = gd_transform_apply(t, x->tensor, NULL);
        return gd_tensor_is_error(z) ? GD_E_ARGUMENT : gd_image_of(z, y);
    }
    *y = *x;
    if (!strcmp(name, "brightness")) gd_image_brightness(y, v[0]);
    if (!strcmp(name, "contrast")) gd_image_contrast(y, v[0]);
    if (!strcmp(name, "saturation")) gd_image_saturation(y, v[0]);
    if (!strcmp(name, "hue")) gd_image_hue(y, v[0]);
    return GD_OK;
}

static uint64_t key_of(const char *line) {
    uint64_t h = 14695981039346656037u;
    for (; *line; line++) h = (h ^ (unsigned char)*line) * 1099511628211u;
    return h;
}

/* The tolerance: torchvision computes the grid of affine maps in f32. */
static double tolerance_of(const char *name, gd_dtype dtype) {
    if (dtype == GD_U8) return 1;
    return !strcmp(name, "affine") || !strcmp(name, "rotate") ? 2e-5 : 1e-5;
}

static void check_case(const char *line, FILE *golden) {
    GD_SCOPE;
    char copy[200], *words[MAX_WORDS], *rest = copy;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w; n < MAX_WORDS && (w = strtok_r(rest, " ", &rest));) words[n++] = w;
    uint64_t head[4];
    const bool read = fread(head, 8, 4, golden) == 4 && head[0] == key_of(line);
    CHECK_SAYING(read, "transforms.bin does not match '%s'; run transforms_make.py", line);
    if (!read || head[1] * head[2] * head[3] > 1 << 20) return;
    const gd_dtype dtype = !strcmp(words[1], "u8") ? GD_U8 : GD_F32;
    gd_image x, y;
    CHECK(gd_image_of(make_image(dtype, atoi(words[2]), atoi(words[3]), atoi(words[4])), &x) ==
          GD_OK);
    const gd_status status = apply_function(words + 5, n - 5, &x, &y);
    CHECK_SAYING(status == GD_OK, "%s: %s", line, gd_error_message());
    const bool normal = !strcmp(words[0], "normalize"); /* gives floats for bytes, too */
    const gd_dtype result = normal ? GD_F32 : dtype;
    const size_t count = (size_t)(head[1] * head[2] * head[3]),
                 bytes = count * gd_dtype_size(result);
    void *expected = malloc(bytes);
    CHECK(fread(expected, 1, bytes, golden) == bytes);
    const bool fits = status == GD_OK && (uint64_t)y.channels == head[1] &&
                      (uint64_t)y.height == head[2] && (uint64_t)y.width == head[3] &&
                      y.dtype == result;
    CHECK_SAYING(fits, "%s gives %lld x %lld x %lld", line, (long long)y.channels,
                 (long long)y.height, (long long)y.width);
    double worst = 0;
    int off = 0;
    for (size_t i = 0; fits && i < count; i++) {
        const double d = result == GD_U8
                             ? abs(((uint8_t *)expected)[i] - ((uint8_t *)y.data)[i])
                             : fabs((double)((float *)expected)[i] - ((float *)y.data)[i]);
        worst = d > worst ? d : worst;
        off += d > 0;
    }
    CHECK_SAYING(worst <= tolerance_of(words[0], result), "%s: off by %g", line, worst);
    if (result == GD_U8)
        CHECK_SAYING(off <= 1 + (int)count / 25, "%s: %d of %zu are off by 1", line, off, count);
    free(expected);
}

TEST(image_functions_agree_with_torchvision) {
    FILE *text = fopen(GRADUS_GOLDEN "/transforms_cases.txt", "r"),
         *golden = fopen(GRADUS_GOLDEN "/transforms.bin", "rb");
    char line[200], magic[8];
    int cases = 0;
    CHECK(text && golden && fread(magic, 8, 1, golden) == 1 && !memcmp(magic, "GDTRANS1", 8));
    while (text && golden && fgets(line, sizeof line, text)) {
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#') continue;
        check_case(line, golden);
        cases++;
    }
    CHECK(cases > 60);
    if (text) fclose(text);
    if (golden) fclose(golden);
}

/* --- random transforms ------------------------------------------------------------------------ */

TEST(crop_draws_its_top_then_its_left) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_U8, 3, 12, 15);
    gd_transform *crop =
        gd_transform_crop(gd_dims(5, 6), .padding = gd_dims(1, 2), .mode = GD_REFLECT);
    for (uint64_t seed = 0; seed < 20; seed++) {
        gd_random r = gd_random_of(seed, 3), copy = r;
        gd_tensor *y = gd_transform_apply(crop, x, &r);
        const int64_t top = gd_random_below(&copy, 12 + 4 - 5 + 1),
                      left = gd_random_below(&copy, 15 + 2 - 6 + 1);
        gd_image image, expected;
        CHECK(gd_image_of(x, &image) == GD_OK);
        CHECK(gd_image_window(&image, top - 2, left - 1, 5, 6, GD_BORDER_REFLECT, NULL,
                              &expected) == GD_OK);
        CHECK(tensors_same_bits(y, expected.tensor));
        CHECK(gd_random_word(&r) == gd_random_word(&copy)); /* and draws nothing else */
    }
}

TEST(crop_pads_a_small_image_if_allowed) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_F32, 1, 4, 4);
    gd_tensor *y =
        gd_transform_apply(gd_transform_crop(6, .pad_if_needed = true, .fill = 2), x, NULL);
    CHECK(gd_tensor_dim(y, 1) == 6 && gd_tensor_dim(y, 2) == 6);
    int outside = 0;
    for (int i = 0; i < 36; i++) outside += element(y, i) == 2;
    CHECK_SAYING(outside >= 20, "%d", outside);
    y = gd_transform_apply(gd_transform_crop(6), x, NULL);
    CHECK(gd_tensor_is_error(y));
    CHECK_SAYING(strstr(gd_error_message(), "transform crop") && strstr(gd_error_message(), "4x4"),
                 "%s", gd_error_message());
    gd_clear_error();
}

TEST(flip_follows_its_probability) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_U8, 1, 3, 4);
    gd_transform *some = gd_transform_flip(.p = 0.25), *always = gd_transform_flip(.p = 1),
                 *never = gd_transform_flip(.p = 0);
    gd_transform *down = gd_transform_flip(.p = 1, .axis = GD_VERTICAL);
    int flipped = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        GD_SCOPE;
        gd_random r = gd_random_of(1, i);
        flipped += !tensors_same_bits(gd_transform_apply(some, x, &r), x);
    }
    CHECK_SAYING(flipped > 900 && flipped < 1100, "%d of 4000", flipped);
    CHECK(tensors_same_bits(gd_transform_apply(never, x, NULL), x));
    gd_tensor *twice = gd_transform_apply(always, gd_transform_apply(always, x, NULL), NULL);
    CHECK(tensors_same_bits(twice, x) &&
          !tensors_same_bits(gd_transform_apply(always, x, NULL), x));
    CHECK(((uint8_t *)gd_data(gd_transform_apply(down, x, NULL)))[0] == ((uint8_t *)gd_data(x))[8]);
}

TEST(noise_has_the_given_mean_and_deviation) {
    GD_SCOPE;
    gd_tensor *x = gd_full(gd_dims(1, 200, 201), 0.5);
    gd_tensor *y =
        gd_transform_apply(gd_transform_noise(.mean = 0.1, .sigma = 0.3, .clip = false), x, NULL);
    double sum = 0, squares = 0, n = 200 * 201;
    for (int i = 0; i < 200 * 201; i++)
        sum += element(y, i), squares += (double)element(y, i) * element(y, i);
    const double mean = sum / n, deviation = sqrt(squares / n - mean * mean);
    CHECK_SAYING(fabs(mean - 0.6) < 0.006 && fabs(deviation - 0.3) < 0.004, "%g %g", mean,
                 deviation);
    y = gd_transform_apply(gd_transform_noise(.sigma = 2), x, NULL);
    for (int i = 0; i < 200 * 201; i++) CHECK(element(y, i) >= 0 && element(y, i) <= 1);
    y = gd_transform_apply(gd_transform_noise(.sigma = 0.1), make_image(GD_U8, 3, 8, 8), NULL);
    CHECK(gd_tensor_dtype(y) == GD_U8);
}

TEST(erase_sets_only_a_rectangle) {
    GD_SCOPE;
    gd_tensor *x = gd_full(gd_dims(2, 20, 30), 0.5);
    gd_transform *erase = gd_transform_erase(.p = 1, .value = gd_floats(-1, -2));
    for (uint64_t seed = 0; seed < 30; seed++) {
        GD_SCOPE;
        gd_random r = gd_random_of(seed, 0);
        gd_tensor *y = gd_transform_apply(erase, x, &r);
        int low[2] = {99, 99}, high[2] = {-1, -1}, count = 0;
        for (int i = 0; i < 600; i++) {
            CHECK((element(y, i) == -1) ==
                  (element(y, 600 + i) == -2)); /* each channel has its own value */
            if (element(y, i) != -1) continue;
            const int place[2] = {i / 30, i % 30};
            count++;
            for (int k = 0; k < 2; k++) {
                low[k] = place[k] < low[k] ? place[k] : low[k];
                high[k] = place[k] > high[k] ? place[k] : high[k];
            }
        }
        CHECK_SAYING(count >= 6 && count <= 240 &&
                         (high[0] - low[0] + 1) * (high[1] - low[1] + 1) == count,
                     "%d", count);
    }
    CHECK(element(x, 0) == 0.5f); /* the sample's own tensor is unchanged */
    gd_tensor *y = gd_transform_apply(gd_transform_erase(.p = 1, .noise = true), x, NULL);
    int other = 0;
    for (int i = 0; i < 600; i++) other += element(y, i) != 0.5f;
    CHECK(other > 0);
}

TEST(random_resized_crop_takes_parts_of_all_sizes) {
    GD_SCOPE;
    gd_tensor *x = gd_empty(gd_dims(1, 40, 60), GD_F32); /* each pixel holds its column index */
    for (int i = 0; i < 2400; i++) ((float *)gd_data(x))[i] = (float)(i % 60);
    gd_transform *t = gd_transform_random_resized_crop(gd_dims(8, 8));
    double least = 99, most = 0;
    for (uint64_t i = 0; i < 300; i++) {
        GD_SCOPE;
        gd_random r = gd_random_of(2, i);
        gd_tensor *y = gd_transform_apply(t, x, &r);
        CHECK(gd_tensor_dim(y, 1) == 8 && gd_tensor_dim(y, 2) == 8);
        const double width = element(y, 7) - element(y, 0);
        least = width < least ? width : least;
        most = width > most ? width : most;
    }
    CHECK_SAYING(least < 14 && most > 40, "%g %g", least, most);
    /* no rectangle fits: the center */
    gd_transform *thin =
        gd_transform_random_resized_crop(4, .scale = gd_floats(1, 1), .ratio = gd_floats(1, 1));
    gd_tensor *y = gd_transform_apply(thin, x, NULL);
    CHECK(element(y, 0) > 10 && element(y, 3) < 50);
}

TEST(color_jitter_applies_its_factors_in_its_order) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_U8, 3, 7, 9);
    gd_transform *t = gd_transform_color_jitter(.brightness = 0.4, .contrast = gd_floats(0.5, 0.9),
                                                .saturation = 0.3, .hue = 0.1);
    for (uint64_t seed = 0; seed < 24; seed++) {
        GD_SCOPE;
        gd_random r = gd_random_of(seed, 0), copy = r;
        gd_tensor *y = gd_transform_apply(t, x, &r);
        int order[4];
        for (int i = 0; i < 4; i++) {
            const int k = (int)gd_random_below(&copy, i + 1);
            order[i] = order[k];
            order[k] = i;
        }
        const double f[4] = {gd_random_between(&copy, 0.6, 1.4), gd_random_between(&copy, 0.5, 0.9),
                             gd_random_between(&copy, 0.7, 1.3),
                             gd_random_between(&copy, -0.1, 0.1)};
        gd_image expected;
        CHECK(gd_image_of(make_image(GD_U8, 3, 7, 9), &expected) == GD_OK);
        for (int i = 0; i < 4; i++) {
            if (order[i] == 0) gd_image_brightness(&expected, f[0]);
            if (order[i] == 1) gd_image_contrast(&expected, f[1]);
            if (order[i] == 2) gd_image_saturation(&expected, f[2]);
            if (order[i] == 3) gd_image_hue(&expected, f[3]);
        }
        CHECK(tensors_same_bits(y, expected.tensor));
    }
    CHECK(tensors_same_bits(gd_transform_apply(gd_transform_color_jitter(), x, NULL), x));
}

TEST(rotate_and_affine_draw_in_their_ranges) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_F32, 1, 11, 11);
    gd_random r = gd_random_of(5, 0), copy = r;
    gd_tensor *y = gd_transform_apply(gd_transform_rotate(gd_floats(10, 80)), x, &r);
    double m[6];
    float fill[GD_MAX_FLOATS] = {0};
    gd_image image, expected;
    CHECK(gd_image_of(x, &image) == GD_OK);
    gd_affine_matrix(-gd_random_between(&copy, 10, 80), 0, 0, 1, 0, 0, m);
    CHECK(gd_image_affine(&image, m, 11, 11, GD_FILTER_BILINEAR, fill, &expected) == GD_OK &&
          tensors_same_bits(y, expected.tensor));
    y = gd_transform_apply(gd_transform_affine(20, .translate = 0.2, .scale = gd_floats(0.8, 1.2),
                                               .shear = gd_floats(-5, 5, -3, 3)),
                           x, &r);
    const double angle = gd_random_between(&copy, -20, 20);
    const double tx = nearbyint(gd_random_between(&copy, -2.2, 2.2)),
                 ty = nearbyint(gd_random_between(&copy, -2.2, 2.2));
    const double scale = gd_random_between(&copy, 0.8, 1.2), sx = gd_random_between(&copy, -5, 5);
    gd_affine_matrix(angle, tx, ty, scale, sx, gd_random_between(&copy, -3, 3), m);
    CHECK(gd_image_affine(&image, m, 11, 11, GD_FILTER_BILINEAR, fill, &expected) == GD_OK &&
          tensors_same_bits(y, expected.tensor));
    CHECK(tensors_same_bits(gd_transform_apply(gd_transform_affine(0), x, NULL),
                            x)); /* identity parameters change nothing */
}

/* --- values ----------------------------------------------------------------------------------- */

TEST(resize_to_one_number_keeps_the_aspect_ratio) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_U8, 3, 30, 40);
    gd_tensor *y = gd_transform_apply(gd_transform_resize(15), x, NULL);
    CHECK(gd_tensor_dim(y, 1) == 15 && gd_tensor_dim(y, 2) == 20);
    y = gd_transform_apply(gd_transform_resize(15, .max_size = 18), x, NULL);
    CHECK(gd_tensor_dim(y, 1) == 13 && gd_tensor_dim(y, 2) == 18);
    y = gd_transform_apply(gd_transform_resize(gd_dims(7, 50)), x, NULL);
    CHECK(gd_tensor_dim(y, 1) == 7 && gd_tensor_dim(y, 2) == 50);
    CHECK(gd_transform_apply(gd_transform_resize(30), x, NULL) == x);
}

TEST(one_hot_and_cast_convert_the_target) {
    GD_SCOPE;
    gd_tensor *y = gd_transform_apply(gd_transform_one_hot(4), gd_scalar_int(2), NULL);
    CHECK(gd_tensor_rank(y) == 1 && element(y, 2) == 1 &&
          element(y, 0) + element(y, 1) + element(y, 3) == 0);
    y = gd_transform_apply(gd_transform_one_hot(4, .smoothing = 0.2), gd_scalar_int(2), NULL);
    CHECK(fabsf(element(y, 2) - 0.85f) < 1e-6 && fabsf(element(y, 0) - 0.05f) < 1e-6);
    y = gd_transform_apply(gd_transform_one_hot(4, .dtype = GD_I64),
                           gd_cast(gd_arange(0, 3), GD_I32), NULL);
    CHECK(gd_tensor_rank(y) == 2 && gd_tensor_dtype(y) == GD_I64 &&
          ((int64_t *)gd_data(y))[5] == 1);
    CHECK(gd_tensor_is_error(gd_transform_apply(gd_transform_one_hot(4), gd_scalar_int(4), NULL)));
    CHECK(strstr(gd_error_message(), "class is 4; it must be from 0 to below 4"));
    gd_clear_error();
    CHECK(gd_tensor_dtype(gd_transform_apply(gd_transform_cast(GD_F16), make_image(GD_U8, 1, 2, 2),
                                             NULL)) == GD_F16);
}

TEST(lists_of_floats_are_options) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_F32, 3, 2, 2);
    gd_tensor *y = gd_transform_apply(gd_transform_normalize(gd_floats(0.1, 0.2, 0.3), 2), x, NULL);
    CHECK(fabsf(element(y, 5) - (element(x, 5) - 0.2f) / 2) < 1e-6f);
    gd_tensor *z =
        gd_transform_apply(gd_transform_new("normalize", "mean=0.1,0.2,0.3 std=2"), x, NULL);
    CHECK(tensors_same_bits(y, z));
    CHECK(!gd_transform_new("normalize", "mean=0.1,x std=2"));
    CHECK(strstr(gd_error_message(), "a list of numbers"));
    gd_clear_error();
    CHECK(!gd_transform_new("normalize", "std=2"));
    gd_clear_error();
    /* a default of two numbers: not given, one number, two */
    gd_transform_random_resized_crop_options o = gd_transform_random_resized_crop_defaults();
    CHECK(o.scale.count == 2 && o.scale.at[0] == 0.08 && o.scale.at[1] == 1);
    CHECK(gd_transform_random_resized_crop(4) != NULL);
    CHECK(!gd_transform_random_resized_crop(4, .scale = 0.5));
    CHECK_SAYING(strstr(gd_error_message(), "scale has 1 numbers"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(!gd_transform_new("normalize", "mean=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 std=1"));
    gd_clear_error();
    CHECK(!gd_transform_color_jitter(.hue = 0.7));
    CHECK(strstr(gd_error_message(), "hue is 0.7; it must be in [-0.5, 0.5]"));
    gd_clear_error();
    CHECK(gd_op_define("list_op(x) -> y  elementwise\ndoc\n  a float[] = 1\n  y = x\n", NULL) !=
          GD_OK);
    CHECK_SAYING(strstr(gd_error_message(), "list of floats"), "%s", gd_error_message());
    gd_clear_error();
}

TEST(datasets_apply_transforms_to_their_field) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_transform(
        gd_dataset_new("digits", "count=20"), gd_transform_crop(28, .padding = 2),
        gd_transform_normalize(0.13, 0.31), gd_transform_one_hot(10));
    gd_tensors s = gd_dataset_get(d, 3, .seed = 7, .epoch = 2);
    CHECK(s.count == 2 && gd_tensor_dim(s.at[0], 1) == 28 && gd_tensor_dim(s.at[1], 0) == 10);
    gd_tensors again = gd_dataset_get(d, 3, .seed = 7, .epoch = 2),
               other = gd_dataset_get(d, 3, .seed = 7, .epoch = 3);
    CHECK(tensors_same_bits(s.at[0], again.at[0]) && !tensors_same_bits(s.at[0], other.at[0]));
    CHECK(fabsf(element(s.at[0], 0) + 0.13f / 0.31f) < 1e-5f);
}

/* --- shapes and dtypes ------------------------------------------------------------------------ */

/* Every transform, with options. */
static const struct {
    const char *name, *options;
} all_transforms[] = {
    {"scale", ""},
    {"normalize", "mean=0.5 std=0.25"},
    {"cast", "dtype=f32"},
    {"noise", ""},
    {"pad", "padding=1,2 mode=symmetric"},
    {"crop", "size=3 padding=2"},
    {"center_crop", "size=4,5"},
    {"flip", "p=1"},
    {"erase", "p=1"},
    {"resize", "size=5,4"},
    {"random_resized_crop", "size=4"},
    {"rotate", "degrees=30"},
    {"affine", "degrees=10 translate=0.1 scale=0.9,1.1 shear=5"},
    {"color_jitter", "brightness=0.5 contrast=0.5 saturation=0.5 hue=0.2"},
    {"grayscale", ""},
};

TEST(every_transform_is_tested) {
    for (int i = 0; gd_record_at("transform", i); i++) {
        bool found = !strcmp(gd_op_name(gd_record_at("transform", i)), "one_hot");
        for (size_t k = 0; k < sizeof all_transforms / sizeof *all_transforms; k++)
            found |= !strcmp(all_transforms[k].name, gd_op_name(gd_record_at("transform", i)));
        CHECK_SAYING(found, "%s is not tested", gd_op_name(gd_record_at("transform", i)));
    }
}

/* Other float dtypes give nearly the result of f32, and keep their dtype. */
TEST(other_floats_work_as_f32) {
    static const gd_dtype dtypes[] = {GD_F64, GD_F16, GD_BF16};
    for (size_t i = 0; i < sizeof all_transforms / sizeof *all_transforms; i++)
        for (size_t k = 0; k < 3; k++) {
            GD_SCOPE;
            gd_tensor *x = make_image(GD_F32, 3, 7, 6);
            gd_transform *t = gd_transform_new(all_transforms[i].name, all_transforms[i].options);
            gd_tensor *expected = gd_transform_apply(t, x, NULL),
                      *y = gd_transform_apply(t, gd_cast(x, dtypes[k]), NULL);
            CHECK_SAYING(!gd_tensor_is_error(y), "%s: %s", all_transforms[i].name,
                         gd_error_message());
            CHECK_SAYING(gd_tensor_dtype(y) ==
                             (!strcmp(all_transforms[i].name, "cast") ? GD_F32 : dtypes[k]),
                         "%s", all_transforms[i].name);
            y = gd_contiguous(gd_cast(y, GD_F32));
            double worst = 0;
            for (int64_t e = 0; e < gd_tensor_numel(expected); e++)
                worst = fmax(worst, fabs((double)element(expected, e) - element(y, e)));
            CHECK_SAYING(worst < (dtypes[k] == GD_BF16 ? 0.05 : 0.01), "%s: %g",
                         all_transforms[i].name, worst);
        }
    gd_clear_error();
}

TEST(views_and_other_ranks_work) {
    for (size_t i = 0; i < sizeof all_transforms / sizeof *all_transforms; i++) {
        GD_SCOPE;
        gd_tensor *x = make_image(GD_F32, 3, 7, 6);
        gd_transform *t = gd_transform_new(all_transforms[i].name, all_transforms[i].options);
        gd_tensor *expected = gd_transform_apply(t, x, NULL);
        gd_tensor *view = gd_transpose(gd_contiguous(gd_transpose(x, 1, 2)), 1, 2);
        CHECK(!gd_tensor_is_contiguous(view));
        CHECK_SAYING(tensors_same_bits(gd_contiguous(gd_transform_apply(t, view, NULL)), expected),
                     "%s of a view", all_transforms[i].name);
        gd_tensor *plain = gd_transform_apply(t, make_image(GD_F32, 1, 7, 6), NULL);
        gd_tensor *flat =
            gd_transform_apply(t, gd_reshape(make_image(GD_F32, 1, 7, 6), gd_dims(7, 6)), NULL);
        CHECK_SAYING(!gd_tensor_is_error(flat), "%s: %s", all_transforms[i].name,
                     gd_error_message());
        CHECK_SAYING(tensors_same_bits(gd_reshape(flat, gd_tensor_shape(plain)), plain),
                     "%s of (H, W)", all_transforms[i].name);
        gd_tensor *video =
            gd_transform_apply(t, gd_reshape(gd_cat(gd_list(x, x)), gd_dims(2, 3, 7, 6)), NULL);
        CHECK_SAYING(gd_tensor_rank(video) == 4 && gd_tensor_dim(video, 0) == 2, "%s of a video",
                     all_transforms[i].name);
    }
    gd_clear_error();
}

TEST(one_number_applies_to_all_channels) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_F32, 20, 4, 4);
    gd_tensor *y = gd_transform_apply(gd_transform_pad(1, .fill = 3), x, NULL);
    CHECK(gd_tensor_dim(y, 0) == 20 && element(y, 36 * 19) == 3 &&
          element(y, 36 * 19 + 7) == element(x, 16 * 19));
    y = gd_transform_apply(gd_transform_normalize(1, 2), x, NULL);
    CHECK(fabsf(element(y, 16 * 19) - (element(x, 16 * 19) - 1) / 2) < 1e-6);
}

#define CHECK_FAILS(what, ...)                                                    \
    do {                                                                          \
        GD_SCOPE;                                                                 \
        const gd_tensor *y_ = (__VA_ARGS__);                                      \
        CHECK(gd_tensor_is_error(y_));                                            \
        CHECK_SAYING(strstr(gd_error_message(), what), "%s", gd_error_message()); \
        gd_clear_error();                                                         \
    } while (0)

TEST(unsuitable_samples_fail) {
    GD_SCOPE;
    gd_tensor *x = make_image(GD_F32, 3, 4, 4);
    CHECK_FAILS("this is f32[3]",
                gd_transform_apply(gd_transform_flip(.p = 1), gd_ones(gd_dims(3)), NULL));
    CHECK_FAILS("has no pixels",
                gd_transform_apply(gd_transform_flip(), gd_ones(gd_dims(3, 0, 2)), NULL));
    CHECK_FAILS("mean has 2 numbers and the image 3 channels",
                gd_transform_apply(gd_transform_normalize(gd_floats(1, 2), 1), x, NULL));
    CHECK_FAILS("u8 or floats",
                gd_transform_apply(gd_transform_resize(2), gd_cast(x, GD_I32), NULL));
    CHECK_FAILS("(3, H, W)",
                gd_transform_apply(gd_transform_grayscale(), gd_ones(gd_dims(4, 2, 2)), NULL));
    CHECK_FAILS("classes are integers", gd_transform_apply(gd_transform_one_hot(3), x, NULL));
    CHECK_FAILS("NULL", gd_transform_apply(NULL, x, NULL));
}

TEST(wrong_options_fail) {
    static const struct {
        const char *name, *options, *says;
    } wrong[] = {
        {"crop", "size=0", "gd_transform_crop: size is 0"},
        {"crop", "size=3 padding=1,2,3", "padding has 3 numbers"},
        {"crop", "size=3 padding=-1", "padding is -1"},
        {"crop", "size=3 mode=circular", "mode"},
        {"pad", "padding=99999999999", "padding"},
        {"resize", "size=1,2,3", "size has 3 numbers"},
        {"resize", "size=8 max_size=4", "max_size is 4"},
        {"flip", "p=1.5", "p is 1.5"},
        {"flip", "axis=diagonal", "axis"},
        {"rotate", "degrees=5,-5", "degrees is 5 to -5"},
        {"rotate", "degrees=nan", "degrees"},
        {"affine", "degrees=1 translate=2", "translate is 2"},
        {"affine", "degrees=1 scale=0", "scale"},
        {"affine", "degrees=1 shear=1,2,3", "shear has 3 numbers"},
        {"erase", "scale=0.5,0.1", "scale is 0.5 to 0.1"},
        {"erase", "ratio=0,1", "ratio"},
        {"random_resized_crop", "size=4 scale=0.5,2", "scale is 0.5 to 2"},
        {"color_jitter", "contrast=-1", "contrast"},
        {"grayscale", "channels=2", "channels is 2"},
        {"normalize", "mean=1 std=0", "std is 0"},
        {"normalize", "mean=1,2 std=1,2,3", "mean has 2 numbers and std has 3"},
        {"one_hot", "classes=0", "classes is 0"},
        {"noise", "sigma=-1", "sigma is -1"},
        {"scale", "field=-1", "field is -1"},
        {"blur", "", "there is no transform 'blur'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        GD_SCOPE;
        CHECK_SAYING(!gd_transform_new(wrong[i].name, wrong[i].options), "%s %s", wrong[i].name,
                     wrong[i].options);
        CHECK_SAYING(gd_failed() && strstr(gd_error_message(), wrong[i].says), "%s %s: %s",
                     wrong[i].name, wrong[i].options, gd_error_message());
        gd_clear_error();
    }
}

/* Unusual sizes and options give an image of the requested size, or fail. */
TEST(random_sizes_never_crash) {
    gd_random r = gd_random_of(11, 0);
    static const char *const modes[] = {"constant", "edge", "reflect", "symmetric"},
                             *const filters[] = {"bilinear", "nearest", "bicubic"};
    for (int i = 0; i < 3000; i++) {
        GD_SCOPE;
        char text[200];
        const int64_t c = gd_random_below(&r, 2) ? 3 : 1, h = 1 + gd_random_below(&r, 12),
                      w = 1 + gd_random_below(&r, 12);
        const int oh = 1 + (int)gd_random_below(&r, 20), ow = 1 + (int)gd_random_below(&r, 20);
        const char *name = "crop";
        switch (gd_random_below(&r, 6)) {
        case 0:
            snprintf(text, sizeof text, "size=%d,%d padding=%d,%d,%d,%d pad_if_needed=true mode=%s",
                     oh, ow, (int)gd_random_below(&r, 30), (int)gd_random_below(&r, 3),
                     (int)gd_random_below(&r, 9), (int)gd_random_below(&r, 9),
                     modes[gd_random_below(&r, 4)]);
            break;
        case 1:
            name = "resize";
            snprintf(text, sizeof text, "size=%d,%d interpolation=%s antialias=%d", oh, ow,
                     filters[gd_random_below(&r, 3)], (int)gd_random_below(&r, 2));
            break;
        case 2:
            name = "random_resized_crop";
            snprintf(text, sizeof text, "size=%d,%d interpolation=%s", oh, ow,
                     filters[gd_random_below(&r, 3)]);
            break;
        case 3:
            name = "center_crop";
            snprintf(text, sizeof text, "size=%d,%d", oh, ow);
            break;
        case 4:
            name = "affine";
            snprintf(text, sizeof text,
                     "degrees=180 translate=1 scale=0.01,9 shear=-80,80,-80,80 interpolation=%s",
                     filters[gd_random_below(&r, 2)]);
            break;
        default:
            name = "rotate";
            snprintf(text, sizeof text, "degrees=360 expand=%d interpolation=%s",
                     (int)gd_random_below(&r, 2), filters[gd_random_below(&r, 2)]);
        }
        gd_tensor *y =
            gd_transform_apply(gd_transform_new(name, text),
                               make_image(gd_random_below(&r, 2) ? GD_U8 : GD_F32, c, h, w), &r);
        CHECK_SAYING(!gd_tensor_is_error(y), "%s %s: %s", name, text, gd_error_message());
        if (strstr(text, "size=")) CHECK(gd_tensor_dim(y, 1) == oh && gd_tensor_dim(y, 2) == ow);
        for (int64_t e = 0; gd_tensor_dtype(y) == GD_F32 && e < gd_tensor_numel(y); e++)
            CHECK(fabsf(element(y, e)) < 2);
        gd_clear_error();
    }
}

/* Whichever allocation fails, the transform fails with a message and leaks nothing. */
TEST(failed_allocations_are_reported) {
    for (size_t i = 0; i < sizeof all_transforms / sizeof *all_transforms; i++)
        for (fault_walk w = {.what = all_transforms[i].name, .most = 200}; fault_next(&w);) {
            GD_SCOPE;
            gd_tensor *x = make_image(GD_U8, 3, 9, 8);
            gd_transform *t = gd_transform_new(all_transforms[i].name, all_transforms[i].options);
            const int64_t before = gd_live_objects();
            fault_begin(&w);
            gd_tensor *y = gd_transform_apply(t, x, NULL);
            fault_end(&w);
            CHECK_ROUND(&w, gd_failed() == gd_tensor_is_error(y));
            CHECK_ROUND(&w, !gd_failed() || (*gd_error_message() && gd_live_objects() == before));
            gd_clear_error();
        }
}

/* All threads with equal seeds get the same results. */
static void *hash_all(void *out) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof all_transforms / sizeof *all_transforms; i++) {
        GD_SCOPE;
        gd_random r = gd_random_of(9, i);
        gd_tensor *y =
            gd_transform_apply(gd_transform_new(all_transforms[i].name, all_transforms[i].options),
                               make_image(GD_U8, 3, 31, 33), &r);
        const unsigned char *bytes = gd_data(y);
        const size_t n = tensor_bytes(y);
        for (size_t k = 0; bytes && k < n; k++) h = (h ^ bytes[k]) * 1099511628211u;
    }
    *(uint64_t *)out = h;
    return NULL;
}

TEST(every_thread_gives_the_same_bits) {
    pthread_t threads[4];
    uint64_t hash[5];
    hash_all(&hash[4]);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, hash_all, &hash[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(hash[i] == hash[4]);
}

TEST_MAIN
