/* random.h - reproducible random numbers.
 *
 * The generator is counter based (Philox 4x32-10). Its state is a seed and a call number. Each
 * random op takes one call number, whatever its size, and element i of call c is a pure function of
 * (seed, c, i). So the same seed gives the same numbers on every device and for any number of
 * threads. The process has one state, from which all threads take call numbers. A gd_fit has a state
 * of its own (train.h): while it runs, all functions here mean that one on its thread.
 *
 * A random op with .key takes no call number: the key, a tensor of two i64, is the seed and the call
 * number. So its numbers depend on the key alone, in every thread, plan and session, and a key may be
 * an input of a gd_jit. Calls with the same key draw the same words, so give each call its own key:
 *
 *     gd_tensor *key = gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){seed, 0}));
 *     gd_tensor *now = gd_key_fold(key, step);          // the key of a step, an integer tensor
 *     gd_tensor *keys = gd_key_split(now, 2);           // two keys (2, 2)
 *     gd_tensor *noise = gd_randn(dims, .key = gd_select(keys, 0, 0));
 *     gd_tensor *y = gd_dropout(x, .key = gd_select(keys, 0, 1));
 *
 * C does not define the order in which the arguments of a call are evaluated. If two of them are
 * random calls, as in gd_matmul(gd_randn(a), gd_randn(b)), the compiler decides which one takes the
 * first number. Write each in its own statement to get the same numbers everywhere:
 *
 *     gd_tensor *x = gd_randn(a);
 *     gd_tensor *w = gd_randn(b);
 *     gd_tensor *y = gd_matmul(x, w);
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

/* Sets the seed and restarts at call number 0. */
GD_API void gd_seed(uint64_t seed);

/* The state: the seed, and the call number of the next random call. */
GD_API gd_rng gd_rng_state(void);
GD_API void gd_rng_set_state(gd_rng state);

/* The generator as an object that can be saved and loaded (state.h): gd_part("rng",
 * gd_generator()). It needs no release. */
typedef struct gd_random_generator gd_random_generator;
GD_API gd_random_generator *gd_generator(void);

/* --- single numbers ----------------------------------------------------------------------------
 *
 * A sequence for code that draws numbers one by one, such as the corner of a crop. It depends only
 * on its seed and its stream, never on the process's generator:
 *
 *     gd_random r = gd_random_of(seed, 7);          // stream 7 of this seed
 *     double x = gd_random_uniform(&r);
 *
 * Sequences are plain structs, which may be copied. Use each from one thread at a time. */
typedef struct gd_random {
    gd_rng rng;
    uint64_t block; /* the number of the next block of four words */
    uint32_t words[4];
    int left; /* unused words of `words` */
} gd_random;

GD_API gd_random gd_random_of(uint64_t seed, uint64_t stream);
GD_API uint32_t gd_random_word(gd_random *random);
/* In [0, 1), with 53 bits. */
GD_API double gd_random_uniform(gd_random *random);
/* In [low, high). */
GD_API double gd_random_between(gd_random *random, double low, double high);
/* In [0, count), each equally likely; 0 for a count below 2. */
GD_API int64_t gd_random_below(gd_random *random, int64_t count);
/* Normally distributed with mean 0 and standard deviation 1. */
GD_API double gd_random_normal(gd_random *random);

#ifdef __cplusplus
}
#endif
#endif
