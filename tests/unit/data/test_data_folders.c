/* test_data_folders.c - datasets of images in folders and lists, also from several threads. */
#include <pthread.h>

#include "clean_test.h"
#include "core/alloc.h"
#include "data_files.h"
#include "gradus/gradus.h"
#include "temp.h"

/* Writes a PPM file of one color. */
static const char *make_image(const char *name, int width, int height, int red, int green,
                              int blue) {
    char text[2000];
    size_t used = (size_t)snprintf(text, sizeof text, "P6 %d %d 255\n", width, height);
    for (int i = 0; i < width * height; i++) {
        text[used++] = (char)red;
        text[used++] = (char)green;
        text[used++] = (char)blue;
    }
    return temp_write(name, text, used);
}

static const char *make_images(void) {
    const char *folder = temp_new_folder("pets");
    temp_new_folder("pets/dogs");
    temp_new_folder("pets/cats");
    temp_new_folder("pets/cats/black");
    temp_new_folder("pets/.hidden");
    make_image("pets/dogs/2.ppm", 4, 3, 10, 20, 30);
    make_image("pets/dogs/1.PPM", 2, 2, 255, 0, 0);
    make_image("pets/cats/black/a.ppm", 5, 5, 0, 0, 51);
    make_image("pets/.hidden/x.ppm", 1, 1, 0, 0, 0);
    make_image("pets/loose.ppm", 1, 1, 0, 0, 0);
    temp_write_text("pets/dogs/notes.txt", "not a image");
    return folder;
}

static bool sample_fails(gd_dataset *d, int64_t index) {
    gd_dataset_get(d, index);
    return gd_failed();
}

static bool is_named(gd_dataset *d, int64_t index, const char *name) {
    char text[100];
    return strcmp(gd_dataset_sample_name(d, index, text, sizeof text), name) == 0;
}

CLEAN_TEST(folders_are_classes) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_image_folder(make_images());
    CHECK_SAYING(gd_dataset_count(d) == 3, "%s", gd_error_message());
    CHECK(gd_dataset_class_count(d) == 2 && strcmp(gd_dataset_class_name(d, 0), "cats") == 0);
    CHECK(is_named(d, 0, "cats/black/a.ppm") && is_named(d, 1, "dogs/1.PPM") &&
          is_named(d, 2, "dogs/2.ppm"));
    gd_tensors s = gd_dataset_get(d, 2);
    CHECK(gd_tensor_dim(s.at[0], 0) == 3 && gd_tensor_dim(s.at[0], 1) == 3 &&
          gd_tensor_dim(s.at[0], 2) == 4);
    CHECK(((float *)gd_data(s.at[0]))[12] == 20 / 255.0f && gd_item_int(s.at[1]) == 1);
    d = gd_dataset_image_folder(make_images(), .size = {6, 8}, .channels = 1, .bytes = true);
    s = gd_dataset_get(d, 0);
    CHECK(gd_tensor_dtype(s.at[0]) == GD_U8 && gd_tensor_dim(s.at[0], 0) == 1);
    CHECK(gd_tensor_dim(s.at[0], 1) == 6 && gd_tensor_dim(s.at[0], 2) == 8);
    CHECK(((uint8_t *)gd_data(s.at[0]))[47] == 6); /* 51 * 0.114 */
    CHECK(gd_tensor_dim(gd_dataset_get(gd_dataset_image_folder(make_images(), .size = 7), 0).at[0],
                        2) == 7);
    CHECK(gd_dataset_count(gd_dataset_image_folder(make_images(), .suffixes = ".png a.ppm")) == 1);
}

CLEAN_TEST(a_damaged_image_is_named) {
    GD_SCOPE;
    const char *folder = make_images();
    temp_write_text("pets/dogs/2.ppm", "P6 4 3 255\nshort");
    gd_dataset *d = gd_dataset_image_folder(folder);
    CHECK(sample_fails(d, 2));
    CHECK_SAYING(says("image_folder: dogs/2.ppm: ") && says("pets/dogs/2.ppm: damaged PNM"), "%s",
                 gd_error_message());
    gd_clear_error();
    unlink(temp_path("pets/dogs/2.ppm"));
    CHECK(sample_fails(d, 2) && says("dogs/2.ppm: cannot be opened"));
    gd_clear_error();
    CHECK(!gd_dataset_image_folder(folder, .channels = 2) && says("channels is 2"));
    gd_clear_error();
    CHECK(!gd_dataset_image_folder(folder, .suffixes = ".gif") && says("no images in them"));
    gd_clear_error();
    CHECK(!gd_dataset_image_folder(temp_path("nowhere")) &&
          says("nowhere: cannot be opened as a folder"));
}

CLEAN_TEST(a_list_has_paths_and_labels) {
    GD_SCOPE;
    make_images();
    make_image("pets/two words.ppm", 1, 1, 255, 255, 255);
    const char *list = temp_write_text(
        "pets/list.txt", "dogs/1.PPM 3\n\n  two words.ppm   0 \r\ncats/black/a.ppm\t3");
    gd_dataset *d = gd_dataset_image_list(list);
    CHECK_SAYING(gd_dataset_count(d) == 3 && gd_dataset_class_count(d) == 4, "%s",
                 gd_error_message());
    CHECK(gd_item_int(gd_dataset_get(d, 0).at[1]) == 3 &&
          gd_item_int(gd_dataset_get(d, 1).at[1]) == 0);
    CHECK(((float *)gd_data(gd_dataset_get(d, 1).at[0]))[0] == 1 &&
          is_named(d, 1, "two words.ppm"));
    list = temp_write_text("list.txt", "1.PPM dog\n../cats/black/a.ppm cat\n2.ppm dog\n");
    d = gd_dataset_image_list(list, .root = temp_path("pets/dogs"));
    CHECK_SAYING(gd_dataset_class_count(d) == 2, "%s", gd_error_message());
    CHECK(gd_item_int(gd_dataset_get(d, 2).at[1]) == 1 &&
          gd_item_int(gd_dataset_get(d, 1).at[1]) == 0);
    CHECK(!gd_dataset_image_list(temp_write_text("list.txt", "a 1\nalone\n")) &&
          says("list.txt: line 2: a path and a label"));
    gd_clear_error();
    CHECK(!gd_dataset_image_list(temp_write("list.txt", "a\0b 1\n", 6)) &&
          says("line 1: a zero byte"));
    gd_clear_error();
    CHECK(!gd_dataset_image_list(temp_write_text("list.txt", "\n \n")) && says("lists no images"));
}

/* --- threads ---------------------------------------------------------------------------------- */

static gd_dataset *shared;
static void *read_all(void *sum) {
    for (int round = 0; round < 50; round++)
        for (int64_t i = 0; i < gd_dataset_count(shared); i++) {
            GD_SCOPE;
            gd_tensors s = gd_dataset_get(shared, i);
            if (s.count == 2)
                *(double *)sum +=
                    (double)((float *)gd_data(s.at[0]))[0] + (double)gd_item_int(s.at[1]);
        }
    return NULL;
}

CLEAN_TEST(several_threads_read_concurrently) {
    GD_SCOPE;
    make_images();
    shared = gd_dataset_image_folder(temp_path("pets"), .size = 4);
    pthread_t threads[4];
    double sums[5] = {0};
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, read_all, &sums[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    read_all(&sums[4]);
    for (int i = 0; i < 4; i++) CHECK(sums[i] == sums[4] && sums[i] > 0);
}

TEST_MAIN
