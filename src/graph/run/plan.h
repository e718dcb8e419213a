/* plan.h - a program placed in memory, with its kernels chosen: ready to run.
 *
 * A plan does not change once it is made. Each run borrows an instance of it: a slab, and the kernel
 * calls with the addresses in it filled in.
 */
#ifndef GRADUS_GRAPH_PLAN_H
#define GRADUS_GRAPH_PLAN_H

#include "graph/lower/program.h"

typedef struct gd_plan gd_plan;
typedef struct gd_instance gd_instance;

/* Takes the program over, also when it fails. Where more than `limit` bytes (0: any number) would be
 * needed at one time, values are computed twice. */
gd_status gd_plan_make(gd_program *program, gd_device *device, int level, size_t limit,
                       gd_plan **plan);
void gd_plan_free(gd_plan *plan); /* and its instances */

const gd_program *gd_plan_program(const gd_plan *plan);
size_t gd_plan_slab(const gd_plan *plan);           /* bytes of an instance */
size_t gd_plan_live(const gd_plan *plan);           /* the most that is alive at one time */
size_t gd_plan_fetch_bytes(const gd_plan *plan);    /* of the buffers of fetches */
size_t gd_plan_constant_bytes(const gd_plan *plan); /* of what was computed when it was made */
size_t gd_plan_scratch(const gd_plan *plan);        /* at most: what threads keep to compute in */
int gd_plan_recomputed(const gd_plan *plan);        /* steps that are there a second time */
bool gd_plan_writes(const gd_plan *plan);           /* a run assigns something */
/* Whether a run writes to a tensor outside with this storage before it is through: it must not be
 * fed. */
bool gd_plan_overwrites(const gd_plan *plan, const gd_storage *storage);

/* An instance that no other run uses, from the plan's own or a new one. */
gd_status gd_plan_borrow(gd_plan *plan, gd_instance **instance);
void gd_plan_return(gd_plan *plan, gd_instance *instance);

/* Gives the instance buffers for what is fetched. From here on gd_plan_result hands them out, so that
 * nothing is left to go wrong behind a run. */
gd_status gd_plan_prepare(gd_plan *plan, gd_instance *instance);

/* Runs it, once prepared. `feeds` are the fed tensors in their order, `variables` those of the session;
 * `noise` is added to the numbers of random ops. */
gd_status gd_plan_run(gd_plan *plan, gd_instance *instance, gd_tensors feeds,
                      gd_tensor *const *variables, gd_rng noise);

/* On an asynchronous device: the number of the instance's latest run (gd_device_log_counter). */
uint64_t gd_plan_run_number(const gd_instance *instance);

/* Both as a step of another plan: `steps` says in which steps of the loops around (gd_step_hash). */
gd_status gd_plan_run_step(gd_plan *plan, gd_instance *instance, gd_tensors feeds,
                           gd_tensor *const *variables, uint64_t run, uint64_t steps);
gd_view gd_plan_result_view(const gd_plan *plan, const gd_instance *instance,
                            int fetch); /* until the next run */

/* Hands a result out: a reference for the caller. NULL, noted, when there is no memory. */
gd_tensor *gd_plan_result(gd_plan *plan, gd_instance *instance, int fetch);

#endif
