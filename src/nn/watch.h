/* watch.h - an observer of calls of modules, for summaries and for files of layers. */
#ifndef GRADUS_NN_WATCH_H
#define GRADUS_NN_WATCH_H

#include "nn/module.h"

/* The observer of a thread. `begin` is called before each call of a module, `end` after it, with
 * the result of `begin`; `outputs` is empty if the call failed. */
typedef struct gd_module_watch {
    int (*begin)(struct gd_module_watch *watch, gd_module *module);
    void (*end)(struct gd_module_watch *watch, int row, gd_tensors outputs);
    /* If it returns true, *outputs are those of this call, and the module does not run. NULL: all run. */
    bool (*replace)(struct gd_module_watch *watch, gd_module *module, gd_tensors inputs,
                    gd_tensors *outputs);
} gd_module_watch;

#endif
