/* show.h - what the examples share: the choice of the device, the loss as a line with a bar on a
 * logarithmic scale, and the message of a failure.
 *
 * Every example takes --device NAME ("cuda", "cuda:1"): new tensors are created there, so all of it
 * runs there. Default: the CPU.
 */
#ifndef GRADUS_EXAMPLES_SHOW_H
#define GRADUS_EXAMPLES_SHOW_H

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

/* Prints the failure if a call has failed. Returns the exit status of the program. */
static inline int show_failure(void) {
    if (gd_failed()) fprintf(stderr, "%s\n", gd_error_message());
    return gd_failed() ? 1 : 0;
}

#endif
