/* show.h - how the examples show a falling loss: a line with a bar, on a logarithmic scale. */
#ifndef EXAMPLES_SHOW_H
#define EXAMPLES_SHOW_H

#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>

/* step  100   loss 3.7e+02   ######################## */
static inline void show_loss(int step, double loss) {
    int length = loss > 0 ? (int)(4 * (log10(loss) + 5)) : 0; /* 1e-5 has no bar left */
    printf("step %4d   loss %8.2e   ", step, loss);
    for (int i = 0; i < length; i++) putchar('#');
    putchar('\n');
    fflush(stdout);
}

/* Says how it ended; what main returns. */
static inline int show_end(bool right) {
    if (gd_failed()) fprintf(stderr, "%s\n", gd_error_message());
    else printf(right ? "As it should be.\n" : "That is not what it should be.\n");
    return right && !gd_failed() ? 0 : 1;
}

#endif
