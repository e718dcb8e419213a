/* train.h - training steps of two small networks, as eager ops, plans and traced functions. */
#ifndef GRADUS_BENCH_TRAIN_H
#define GRADUS_BENCH_TRAIN_H

#include <stdbool.h>

typedef struct train train;

/* net: "two_layer" (1000-100-10, batch 64, mean squared error) or "mlp" (784-512-512-10, batch 128,
 * cross-entropy), both with SGD. mode: "eager", "plan" (level 0), "fused" (level 2), "jit" (the
 * eager step, traced; level 2) or "jit_forgets" (which keeps no gradients between steps);
 * "module_eager" and "module_jit" use a gd_nn_sequential. The surrounding scope owns the result.
 * NULL if there is no such network or mode. */
train *train_new(const char *net, const char *mode);

/* One step, for bench_time. */
void train_step(void *train);

/* `bench --steps NET MODE THREADS [FILE]`: for each line of input, runs as many steps as take about
 * 100 ms, and prints the nanoseconds per step. A network of the zoo (zoo.h) reads its weights and
 * its batch from FILE; then the first line of output has the losses of its first three steps. */
int train_serve(const char *net, const char *mode, int threads, const char *file);

#endif
