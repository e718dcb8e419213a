/* image_noise.c - draws many normally distributed numbers. */
#include <math.h>

#include "data/image.h"

/* The Box-Muller transform: two random words give two numbers. */
void gd_random_normals(gd_random *random, float *values, int64_t count) {
    for (int64_t i = 0; i < count; i += 2) {
        const float u = ((float)(gd_random_word(random) >> 8) + 0.5f) * 0x1p-24f;
        const float angle = (float)(gd_random_word(random) >> 8) * (6.28318531f * 0x1p-24f);
        const float r = sqrtf(-2 * logf(u));
        values[i] = r * cosf(angle);
        if (i + 1 < count) values[i + 1] = r * sinf(angle);
    }
}
