/* image_folder.c - classifies images from a folder with one subfolder for each class.
 *
 *     image_folder DIR [EPOCHS]     your own images: DIR/cat/1.jpg, DIR/dog/7.png ...
 *     image_folder                  draws a folder of shapes first, and learns them
 */
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "show.h"

enum { SIZE = 32 };
static const char *const shapes[] = {"circle", "cross", "square"};

static bool is_inside(int shape, double x, double y) {
    if (shape == 0) return x * x + y * y < 1;
    if (shape == 1) return (fabs(x) < 0.3 || fabs(y) < 0.3) && fabs(x) < 1 && fabs(y) < 1;
    return fabs(x) < 0.85 && fabs(y) < 0.85;
}

/* Draws 300 images of each shape at random positions in random colours. Returns the folder. */
static const char *make_images(void) {
    static unsigned char pixels[3 * SIZE * SIZE];
    gd_random r = gd_random_of(1, 0);
    mkdir("shapes", 0777);
    for (int i = 0; i < 900 && !gd_failed(); i++) {
        GD_SCOPE;
        char path[80];
        const double cx = gd_random_between(&r, 10, 22), cy = gd_random_between(&r, 10, 22),
                     s = gd_random_between(&r, 5, 9);
        unsigned char ink[3], paper[3];
        for (int c = 0; c < 3; c++)
            ink[c] = (unsigned char)(156 + gd_random_below(&r, 100)),
            paper[c] = (unsigned char)gd_random_below(&r, 100);
        for (int p = 0; p < SIZE * SIZE; p++)
            for (int c = 0; c < 3; c++)
                pixels[c * SIZE * SIZE + p] =
                    is_inside(i % 3, (p % SIZE - cx) / s, (p / SIZE - cy) / s) ? ink[c] : paper[c];
        snprintf(path, sizeof path, "shapes/%s", shapes[i % 3]);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "shapes/%s/%d.png", shapes[i % 3], i / 3);
        gd_save_png(path, gd_from_array(gd_dims(3, SIZE, SIZE), GD_U8, pixels));
    }
    return "shapes";
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    const char *dir = argc > 1 ? argv[1] : make_images();
    gd_dataset *train, *test, *all = gd_dataset_image_folder(dir, .size = SIZE);
    gd_dataset_random_split(all, 0.8, &train, &test);
    train = gd_dataset_transform(train, gd_transform_flip(),
                                 gd_transform_color_jitter(.brightness = 0.1));
    gd_module *net = gd_zoo_convnet(.channels = 3, .classes = gd_dataset_class_count(all));
    gd_compile(net, .optimizer = "adamw lr=0.002", .loss = "cross_entropy", .metrics = "accuracy");
    gd_history *h = gd_fit(net, gd_loader_new(train, .batch = 32, .shuffle = true, .workers = 2),
                           .epochs = argc > 2 ? atoi(argv[2]) : 10,
                           .validation = gd_loader_new(test, .batch = 16));
    if (!h) return show_failure();
    printf("%.1f %% of %lld unseen images are classified correctly\n",
           100 * gd_history_last(h, "val_accuracy"), (long long)gd_dataset_count(test));
    return show_failure();
}
