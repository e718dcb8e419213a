/* random.h - random numbers that can be repeated.
 *
 * The generator is counter based (Philox 4x32-10). Its state is a seed and a call number: each
 * random op takes one number whatever its size, and element i of call c is a pure function of
 * (seed, c, i). So the same seed gives the same numbers on every device and for any number of
 * threads. The state is the process's own; calls from several threads take numbers in turn.
 *
 * C evaluates the arguments of a call in no fixed order: of gd_add(gd_randn(d), gd_randn(d)) either
 * call may come first, and compilers differ. Where numbers must repeat, give each random call a
 * statement of its own.
 */
#ifndef GRADUS_RANDOM_H
#define GRADUS_RANDOM_H

#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_rng {
    uint64_t seed, call;
} gd_rng;

/* Starts again at call 0 with this seed. */
GD_API void gd_seed(uint64_t seed);

/* The state: the seed, and the number that the next random call will take. */
GD_API gd_rng gd_rng_state(void);
GD_API void gd_rng_set_state(gd_rng state);

#ifdef __cplusplus
}
#endif
#endif
