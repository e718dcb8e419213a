/* train.h - the training steps that are measured: two nets, as eager ops and as plans. */
#ifndef GRADUS_BENCH_TRAIN_H
#define GRADUS_BENCH_TRAIN_H

#include <stdbool.h>

typedef struct train train;

/* "two_layer" (1000-100-10, batch 64, mean of squares) or "mlp" (784-512-512-10, batch 128, cross
 * entropy), both with SGD; "eager", "plan" (level 0), "fused" (level 2), "jit" (the eager step,
 * traced; level 2) or "jit_forgets" (which keeps no gradients between steps). "module_eager" and
 * "module_jit": the same with a gd_nn_sequential. Belongs to the scope around. NULL if there is no
 * such one. */
train *train_new(const char *net, const char *mode);

/* One step, for bench_time. */
void train_step(void *train);

/* `bench --steps NET MODE THREADS [FILE]`: for each line of input, so many steps as take about 100
 * ms; prints the nanoseconds of one. A network of the zoo (zoo.h) takes its weights and its batch
 * from FILE, and the first line that is printed has the losses of its first three steps. */
int train_serve(const char *net, const char *mode, int threads, const char *file);

#endif
