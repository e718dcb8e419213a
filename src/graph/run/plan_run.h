/* plan_run.h - running plans. Each run borrows an instance of its plan: a slab, and the kernel calls
 * with the slab's addresses filled in. */
#ifndef GRADUS_GRAPH_RUN_PLAN_RUN_H
#define GRADUS_GRAPH_RUN_PLAN_RUN_H

#include "graph/plan/plan.h"

typedef struct gd_instance gd_instance;

/* An instance that no other run uses: an idle one of the plan, or a new one. */
gd_status gd_plan_borrow(gd_plan *plan, gd_instance **instance);
void gd_plan_return(gd_plan *plan, gd_instance *instance);

/* Allocates fetch buffers. gd_plan_result can be called from here on, before the run, so that
 * nothing can fail after it. */
/* The name of a step of a jit in messages: its name scope ("the loss mse"), else the op that was
 * called; its own name is not the program's. NULL: it is not a step of a jit, or the program has
 * named it. */
const char *gd_jit_step_name(const gd_pstep *step);

gd_status gd_plan_prepare(gd_plan *plan, gd_instance *instance);

/* Runs a prepared instance. `feeds` are the fed values, `variables` the session's; `rng_offset` is added
 * to the numbers of random ops. */
gd_status gd_plan_run(gd_plan *plan, gd_instance *instance, gd_tensors feeds,
                      gd_tensor *const *variables, gd_rng rng_offset);

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
