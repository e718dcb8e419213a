/* images.c - reads a folder of images through a loader and prints images per second.
 *
 *     bench_images FOLDER [WORKERS]
 *
 * bench/images_peer.py compares it with PyTorch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <gradus/gradus.h>

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    GD_SCOPE;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_images FOLDER [WORKERS]\n");
        return 2;
    }
    gd_dataset *images = gd_dataset_image_folder(argv[1], .size = 224);
    gd_loader *loader = gd_loader_new(images, .batch = 64, .shuffle = true,
                                      .workers = argc > 2 ? atoi(argv[2]) : 2);
    double start = 0, end = 0;
    int64_t seen = 0;
    for (int epoch = 0; epoch < 2; epoch++) { /* the first one fills the page cache */
        seen = 0;
        start = seconds_now();
        for (gd_tensors batch; gd_loader_next(loader, &batch);)
            seen += gd_tensor_dim(batch.at[0], 0);
        end = seconds_now();
    }
    if (gd_failed()) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    printf("%.1f\n", (double)seen / (end - start));
    return 0;
}
