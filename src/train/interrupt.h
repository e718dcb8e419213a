/* interrupt.h - Ctrl-C and SIGTERM during runs. */
#ifndef GRADUS_TRAIN_INTERRUPT_H
#define GRADUS_TRAIN_INTERRUPT_H

#include "gradus/status.h"

/* The counts of requests at the start of a run. */
typedef struct gd_interrupt {
    bool catches; /* signals, too; otherwise only gd_fit_interrupt */
    int requests, signals;
} gd_interrupt;

/* With `catches`, SIGINT and SIGTERM are counted until gd_interrupt_end. Runs may nest and run in
 * several threads: the first one installs the handlers, the last one restores the old ones. */
void gd_interrupt_begin(gd_interrupt *interrupt, bool catches);
void gd_interrupt_end(gd_interrupt *interrupt);

/* The reason to stop: "Ctrl-C", "SIGTERM", "gd_fit_interrupt"; NULL: none. */
const char *gd_interrupted(const gd_interrupt *interrupt);

#endif
