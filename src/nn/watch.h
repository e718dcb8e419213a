/* watch.h - looking on while modules are called, for summaries. */
#ifndef GRADUS_NN_WATCH_H
#define GRADUS_NN_WATCH_H

#include "nn/module.h"

/* Set in the thread: `begin` before each call, and `end` after it with what `begin` returned. Outputs of a
 * call that failed are an empty list. */
typedef struct gd_module_watch {
    int (*begin)(struct gd_module_watch *watch, gd_module *module);
    void (*end)(struct gd_module_watch *watch, int row, gd_tensors outputs);
} gd_module_watch;

#endif
