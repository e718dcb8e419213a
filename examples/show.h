/* show.h - what the examples share: the choice of the device, and the loss as a line with a bar on a
 * logarithmic scale.
 *
 * Every example takes --device NAME ("cuda", "cuda:1"): new tensors are created there, so all of it
 * runs there. Default: the CPU.
 */
#ifndef EXAMPLES_SHOW_H
#define EXAMPLES_SHOW_H

#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Applies --device NAME and removes it from the arguments. */
static inline void choose_device(int *argc, char **argv) {
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], "--device") != 0) continue;
        gd_device *device = gd_device_get(argv[i + 1]);
        if (!device) {
            fprintf(stderr, "%s\n", gd_error_message());
            exit(1);
        }
        gd_set_default_device(device);
        *argc -= 2;
        memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i) * sizeof *argv);
        return;
    }
}

/* step  100   loss 3.7e+02   ######################## */
static inline void show_loss(int step, double loss) {
    int length = loss > 0 ? (int)(4 * (log10(loss) + 5)) : 0; /* no bar below 1e-5 */
    printf("step %4d   loss %8.2e   ", step, loss);
    for (int i = 0; i < length; i++) putchar('#');
    putchar('\n');
    fflush(stdout);
}

/* Prints the result of the example and returns the exit code. */
static inline int show_end(bool right) {
    if (gd_failed()) fprintf(stderr, "%s\n", gd_error_message());
    else printf(right ? "The result is as expected.\n" : "The result is not as expected.\n");
    return right && !gd_failed() ? 0 : 1;
}

#endif
