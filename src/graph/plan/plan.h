/* plan.h - plans: programs with kernels chosen and memory assigned, ready to run.
 *
 * A plan does not change after it is built. Each run borrows an instance of it: a slab, and the
 * kernel calls with the slab's addresses filled in.
 */
#ifndef GRADUS_GRAPH_PLAN_H
#define GRADUS_GRAPH_PLAN_H

#include "graph/lower/program.h"

typedef struct gd_plan gd_plan;
typedef struct gd_instance gd_instance;

/* Owns the program from here on, also if it fails. Recomputes values (passes/remat.c) where more
 * than `limit` bytes would be live at a time; 0: no limit. */
gd_status gd_plan_make(gd_program *program, gd_device *device, int level, size_t limit,
                       gd_plan **plan);
void gd_plan_free(gd_plan *plan); /* and its instances */

const gd_program *gd_plan_program(const gd_plan *plan);
size_t gd_plan_slab(const gd_plan *plan);           /* bytes of an instance */
size_t gd_plan_live(const gd_plan *plan);           /* the most bytes that are live at a time */
size_t gd_plan_fetch_bytes(const gd_plan *plan);    /* bytes of the fetch buffers */
size_t gd_plan_constant_bytes(const gd_plan *plan); /* bytes of values folded at planning */
size_t gd_plan_scratch(const gd_plan *plan);        /* most bytes of per-thread kernel buffers */
int gd_plan_recomputed(const gd_plan *plan);        /* number of steps that run a second time */
bool gd_plan_writes(const gd_plan *plan);           /* whether a run assigns a tensor */
/* Whether a run writes a captured tensor with this storage before its last read: do not feed it. */
bool gd_plan_overwrites(const gd_plan *plan, const gd_storage *storage);

/* An instance that no other run uses: an idle one of the plan, or a new one. */
gd_status gd_plan_borrow(gd_plan *plan, gd_instance **instance);
void gd_plan_return(gd_plan *plan, gd_instance *instance);

/* Allocates fetch buffers. gd_plan_result can be called from here on, before the run, so that
 * nothing can fail after it. */
gd_status gd_plan_prepare(gd_plan *plan, gd_instance *instance);

/* Runs a prepared instance. `feeds` are the fed values, `variables` the session's; `noise` is added
 * to the numbers of random ops. */
gd_status gd_plan_run(gd_plan *plan, gd_instance *instance, gd_tensors feeds,
                      gd_tensor *const *variables, gd_rng noise);

/* Whether the device of the plan runs kernels in the calling thread. */
bool gd_plan_is_on_host(const gd_plan *plan);
/* On an asynchronous device: the number of the instance's latest run (gd_device_log_counter). */
uint64_t gd_plan_run_number(const gd_instance *instance);

/* gd_plan_prepare and gd_plan_run for a body of a loop or branch; `steps`: see gd_step_hash. */
gd_status gd_plan_run_step(gd_plan *plan, gd_instance *instance, gd_tensors feeds,
                           gd_tensor *const *variables, uint64_t run, uint64_t steps);
gd_view gd_plan_result_view(const gd_plan *plan, const gd_instance *instance,
                            int fetch); /* until the next run */

/* A result as a tensor, retained for the caller. NULL, and the failure is recorded: no memory. */
gd_tensor *gd_plan_result(gd_plan *plan, gd_instance *instance, int fetch);

#endif
