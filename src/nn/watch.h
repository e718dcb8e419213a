/* watch.h - an observer of calls of modules, for summaries. */
#ifndef GRADUS_NN_WATCH_H
#define GRADUS_NN_WATCH_H

#include "nn/module.h"

/* The observer of a thread. `begin` is called before each call of a module, `end` after it, with
 * the result of `begin`; `outputs` is empty if the call failed. */
typedef struct gd_module_watch {
    int (*begin)(struct gd_module_watch *watch, gd_module *module);
    void (*end)(struct gd_module_watch *watch, int row, gd_tensors outputs);
} gd_module_watch;

#endif
