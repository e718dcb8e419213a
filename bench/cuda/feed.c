/* feed.c - how busy a loader with augmentation keeps a device.
 *
 *     bench_feed [DIR] [--device NAME] [--workers N] [--epochs N] [--batch N]
 *
 * Trains the net of examples/mnist.c with gd_fit: the files of MNIST in DIR, or 60000 digits that the
 * library draws, cropped at random by four worker threads. The first epoch, in which kernels are
 * loaded and plans are made, is not measured. Prints one line: images a second, and the share of
 * the time in which the device computes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gradus/gradus.h"

typedef struct settings {
    const char *folder, *device;
    int workers, epochs, batch;
} settings;

static bool read_settings(int argc, char **argv, settings *s) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (name[0] != '-') {
            s->folder = name;
            continue;
        }
        if (++i == argc) return false;
        if (strcmp(name, "--device") == 0) s->device = argv[i];
        else if (strcmp(name, "--workers") == 0) s->workers = atoi(argv[i]);
        else if (strcmp(name, "--epochs") == 0) s->epochs = atoi(argv[i]);
        else if (strcmp(name, "--batch") == 0) s->batch = atoi(argv[i]);
        else return false;
    }
    return true;
}

static gd_module *make_net(void) {
    return gd_nn_sequential(gd_nn_conv2d(1, 32, 3, .padding = 1, .bias = false),
                            gd_nn_batch_norm2d(32), gd_nn_relu(), gd_nn_max_pool2d(2),
                            gd_nn_conv2d(32, 64, 3, .padding = 1, .bias = false),
                            gd_nn_batch_norm2d(64), gd_nn_relu(), gd_nn_max_pool2d(2),
                            gd_nn_flatten(), gd_nn_linear(64 * 7 * 7, 128), gd_nn_relu(),
                            gd_nn_dropout(.p = 0.3), gd_nn_linear(128, 10));
}

/* --- measuring -------------------------------------------------------------------------------- */

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static gd_status begin_epoch(gd_event *event, void *self) {
    double *began = self;
    if (event->epoch != 1) return GD_OK;
    gd_synchronize(gd_default_device());
    *began = seconds_now();
    return gd_profiler_start_plans();
}

/* The seconds between start and stop in which the device computed. */
static double busy_seconds(void) {
    double total = 0;
    gd_profile_row row;
    for (int64_t i = 0; gd_profiler_row(i, &row); i++) total += row.total_ms;
    return total / 1e3;
}

int main(int argc, char **argv) {
    GD_SCOPE;
    settings s = {.device = "cuda", .workers = 4, .epochs = 5, .batch = 64};
    if (!read_settings(argc, argv, &s) || s.epochs < 2) {
        fprintf(stderr,
                "usage: %s [DIR] [--device NAME] [--workers N] [--epochs N, at least 2] "
                "[--batch N]\n",
                argv[0]);
        return 2;
    }
    double began = 0;
    gd_set_default_device(s.device);
    gd_seed(0);
    gd_dataset *digits = s.folder ? gd_dataset_mnist(s.folder, GD_TRAIN)
                                  : gd_dataset_digits(.count = 60000, .seed = 1);
    digits = gd_dataset_transform(digits, gd_transform_crop(28, .padding = 2));
    gd_loader *train =
        gd_loader_new(digits, .batch = s.batch, .shuffle = true, .workers = s.workers);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "adamw lr=0.002", .loss = "cross_entropy", .metrics = "accuracy");
    gd_fit(net, train, .epochs = s.epochs, .progress = GD_PROGRESS_NONE,
           .callbacks = gd_callbacks(gd_callback_from(&began, .epoch_begin = begin_epoch)));
    gd_synchronize(gd_default_device());
    const double seconds = seconds_now() - began;
    gd_profiler_stop();
    if (gd_failed()) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    printf("images/s %.0f busy %.1f %% idle %.1f %%\n",
           (double)gd_dataset_count(digits) * (s.epochs - 1) / seconds,
           100 * busy_seconds() / seconds, 100 - 100 * busy_seconds() / seconds);
    return 0;
}
