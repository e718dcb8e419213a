/* execute.h - how the emulated driver runs a kernel. */
#ifndef GRADUS_TESTS_CUDA_EXECUTE_H
#define GRADUS_TESTS_CUDA_EXECUTE_H

#include "shim.h"

struct emulated_launch {
    const emulated_kernel *kernel;
    unsigned grid[3], block[3];
    unsigned shared; /* bytes of dynamic shared memory */
    bool together;   /* a cooperative launch, of (count, 1, 1) blocks */
    bool early;      /* it may start before the previous kernel has ended */
    void **parameters;
};

void emulated_execute(const emulated_launch &launch, uint64_t order);

/* What runs now, for messages: its name and the numbers of the block and thread; NULL: no kernel. */
const char *emulated_position(void);

/* The text after a word of GRADUS_EMULATED_CUDA; NULL: the word is not there. */
const char *emulated_setting(const char *word);

#endif
