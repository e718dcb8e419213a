/* zoo.h - training steps of networks of the zoo, for bench/versus_pytorch.py. */
#ifndef GRADUS_BENCH_ZOO_H
#define GRADUS_BENCH_ZOO_H

#include <stdbool.h>

typedef struct zoo_train zoo_train;

/* "lenet", "resnet20", "resnet18", "char_lstm" or "gpt", as eager ops ("eager") or traced ("jit",
 * level 2). The file, which versus_pytorch.py writes, has the weights and a batch. The surrounding
 * scope owns the result. NULL if there is no such network or mode, or if a call has failed. */
bool zoo_has(const char *net);
zoo_train *zoo_new(const char *net, const char *mode, const char *file);

/* Runs one step and returns its loss. */
double zoo_loss(zoo_train *train);
/* One step, for bench_time. */
void zoo_step(void *train);

#endif
