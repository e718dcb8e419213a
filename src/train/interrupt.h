/* interrupt.h - Ctrl-C and SIGTERM while runs are going on. */
#ifndef GRADUS_TRAIN_INTERRUPT_H
#define GRADUS_TRAIN_INTERRUPT_H

#include "gradus/status.h"

/* What a run has seen when it began. */
typedef struct gd_interrupt {
    bool catches; /* signals, too; else gd_fit_interrupt alone */
    int requests, signals;
} gd_interrupt;

/* From here to the end SIGINT and SIGTERM are recorded, if `catches`. Runs nest, and go on in several
 * threads at once: the first one installs the handlers, the last one puts back those from before. */
void gd_interrupt_begin(gd_interrupt *interrupt, bool catches);
void gd_interrupt_end(gd_interrupt *interrupt);

/* Why the run has to stop: "Ctrl-C", "SIGTERM", "gd_fit_interrupt"; NULL: it goes on. */
const char *gd_interrupted(const gd_interrupt *interrupt);

#endif
