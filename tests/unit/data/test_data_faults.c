/* test_data_faults.c - makes each allocation of reading a dataset fail once. The call fails with
 * GD_E_MEMORY or succeeds, and nothing leaks. */
#include "clean_test.h"
#include "data_files.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "temp.h"

static const char *folder;

/* Opens a dataset. */
typedef gd_dataset *(*open_fn)(void);

static gd_dataset *open_idx(void) {
    return gd_dataset_idx(temp_path("x.idx"), .labels = temp_path("y.idx.gz"));
}
static gd_dataset *open_mnist(void) { return gd_dataset_mnist(folder, GD_TRAIN); }
static gd_dataset *open_cifar(void) { return gd_dataset_cifar10(folder, GD_TEST); }
static gd_dataset *open_csv(void) {
    return gd_dataset_csv(temp_path("t.csv"), .target = "c", .missing = GD_MEAN,
                          .like = temp_path("t.csv"));
}
static gd_dataset *open_numpy(void) { return gd_dataset_numpy(temp_path("a.npz"), .names = "x"); }
static gd_dataset *open_text(void) { return gd_dataset_text(temp_path("t.csv"), 3); }
static gd_dataset *open_tokens(void) { return gd_dataset_tokens(temp_path("*.bin"), 3); }
static gd_dataset *open_folder(void) {
    return gd_dataset_image_folder(temp_path("pets"), .size = {3, 2});
}
static gd_dataset *open_list(void) { return gd_dataset_image_list(temp_path("pets/list.txt")); }

static void make_files(void) {
    GD_SCOPE;
    if (folder) return;
    folder = temp_folder();
    static const uint8_t x[] = {0, 0, 0x0B, 2, 0, 0, 0, 2, 0, 0, 0, 1, 1, 2, 3, 4},
                         y[] = {0, 0, 8, 1, 0, 0, 0, 2, 5, 6};
    static uint8_t images[16 + 2 * 784] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28},
                                   cifar[2 * 3073];
    size_t size;
    uint8_t *zipped = test_gzip(y, sizeof y, &size);
    temp_write("x.idx", x, sizeof x);
    temp_write("y.idx.gz", zipped, size);
    temp_write("train-images-idx3-ubyte", images, sizeof images);
    temp_write("train-labels-idx1-ubyte.gz", zipped, size);
    free(zipped);
    temp_write("test_batch.bin", cifar, sizeof cifar);
    temp_write_text("t.csv", "a,b,c\n1,u,x\n2,v,y\n,u,x\n");
    CHECK(gd_save_npz(temp_path("a.npz"), gd_names("x", "y"),
                      gd_list(gd_ones(gd_dims(3, 2)), gd_ones(gd_dims(3)))) == GD_OK);
    temp_new_folder("pets");
    temp_new_folder("pets/cats");
    temp_write_text("pets/cats/1.ppm", "P6 2 1 255 abcdef");
    temp_write_text("pets/cats/2.pgm", "P5 2 1 255 ab");
    temp_write_text("pets/list.txt", "cats/1.ppm cat\ncats/2.pgm dog\n");
}

static void walk_opening(const char *name, open_fn open) {
    make_files();
    for (fault_walk w = {.what = name}; fault_next(&w);) {
        GD_SCOPE;
        fault_begin(&w);
        gd_dataset *d = open();
        gd_tensors sample = gd_dataset_get(d, gd_dataset_count(d) - 1);
        fault_end(&w);
        CHECK_ROUND(&w, gd_failed() || sample.count > 0);
        CHECK_FAULT(&w, gd_error_status());
    }
}

TEST(idx_survives_any_failed_allocation) { walk_opening("idx", open_idx); }
TEST(mnist_survives_any_failed_allocation) { walk_opening("mnist", open_mnist); }
TEST(cifar_survives_any_failed_allocation) { walk_opening("cifar10", open_cifar); }
TEST(csv_survives_any_failed_allocation) { walk_opening("csv", open_csv); }
TEST(numpy_survives_any_failed_allocation) { walk_opening("numpy", open_numpy); }
TEST(text_survives_any_failed_allocation) { walk_opening("text", open_text); }
TEST(tokens_survive_any_failed_allocation) { walk_opening("tokens", open_tokens); }
TEST(folders_survive_any_failed_allocation) { walk_opening("image_folder", open_folder); }
TEST(lists_survive_any_failed_allocation) { walk_opening("image_list", open_list); }

TEST(images_survive_any_failed_allocation) {
    static const char *const names[] = {"rgb420.jpg",     "progressive.jpg",   "cmyk.jpg",
                                        "interlaced.png", "palette_alpha.png", "wide.pgm"};
    char path[600];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
#ifndef GD_HAVE_JPEG
        if (strstr(names[i], ".jpg")) continue;
#endif
#ifndef GD_HAVE_PNG
        if (strstr(names[i], ".png")) continue;
#endif
        snprintf(path, sizeof path, "%s/images/%s", GRADUS_GOLDEN, names[i]);
        for (fault_walk w = {.what = names[i]}; fault_next(&w);) {
            GD_SCOPE;
            fault_begin(&w);
            gd_tensor *x = gd_load_image(path, .height = 5, .width = 6, .channels = 3);
            if (!gd_failed()) gd_save_png(temp_path("copy.png"), x);
            fault_end(&w);
            CHECK_FAULT(&w, gd_error_status());
        }
    }
}

TEST_MAIN
