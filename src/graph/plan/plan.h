/* plan.h - plans: programs with kernels chosen and memory assigned, ready to run.
 *
 * A plan does not change after it is built. Runs have the addresses (run/plan_run.h).
 */
#ifndef GRADUS_GRAPH_PLAN_PLAN_H
#define GRADUS_GRAPH_PLAN_PLAN_H

#include "graph/lower/program.h"

typedef struct gd_plan gd_plan;

/* Owns the program from here on, also if it fails. Recomputes values (passes/remat.c) where more
 * than `limit` bytes would be live at a time; 0: no limit. */
gd_status gd_plan_make(gd_program *program, gd_device *device, int level, size_t limit,
                       gd_plan **plan);
void gd_plan_free(gd_plan *plan); /* and its instances */

const gd_program *gd_plan_program(const gd_plan *plan);
/* The program as text, with the kernel of each step and the copies that it needs; free() it. */
char *gd_plan_text(const gd_plan *plan);
size_t gd_plan_slab(const gd_plan *plan);           /* bytes of an instance */
size_t gd_plan_live(const gd_plan *plan);           /* the most bytes that are live at a time */
size_t gd_plan_fetch_bytes(const gd_plan *plan);    /* bytes of the fetch buffers */
size_t gd_plan_constant_bytes(const gd_plan *plan); /* bytes of values folded at planning */
size_t gd_plan_scratch(const gd_plan *plan);        /* most bytes of per-thread kernel buffers */
int gd_plan_recomputed(const gd_plan *plan);        /* number of steps that run a second time */
bool gd_plan_writes(const gd_plan *plan);           /* whether a run assigns a tensor */
/* Whether a run writes a captured tensor with this storage before its last read: do not feed it. */
bool gd_plan_overwrites(const gd_plan *plan, const gd_storage *storage);
/* Whether the device of the plan runs kernels in the calling thread. */
bool gd_plan_is_on_host(const gd_plan *plan);

#endif
