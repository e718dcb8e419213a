/* watch.h - observes calls of modules, for summaries. */
#ifndef GRADUS_NN_WATCH_H
#define GRADUS_NN_WATCH_H

#include "nn/module.h"

/* Set for a thread: `begin` is called before each call, `end` after it with the result of `begin`.
 * A call that failed has an empty list of outputs. */
typedef struct gd_module_watch {
    int (*begin)(struct gd_module_watch *watch, gd_module *module);
    void (*end)(struct gd_module_watch *watch, int row, gd_tensors outputs);
} gd_module_watch;

#endif
