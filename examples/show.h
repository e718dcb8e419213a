/* show.h - prints the loss of the examples: a line with a bar on a logarithmic scale. */
#ifndef EXAMPLES_SHOW_H
#define EXAMPLES_SHOW_H

#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

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
