/* evaluate.h - the interpreter: runs nodes one after the other as eager ops. Sessions use plans
 * instead where they can. */
#ifndef GRADUS_GRAPH_RUN_EVALUATE_H
#define GRADUS_GRAPH_RUN_EVALUATE_H

#include "gradus/random.h"
#include "gradus/tensor.h"

/* The values of `fetches`, where symbol feeds[i] has the value values[i]. If `assigns`, fed tensors
 * that the nodes assign are written at the end. `rng_offset` is added to the call numbers of random
 * ops. */
gd_tensors gd_evaluate_run(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                           gd_rng rng_offset, bool assigns);
gd_tensors gd_evaluate_nodes(gd_tensors fetches, gd_tensors feeds,
                             gd_tensors values); /* rng_offset 0 */

/* The same as ordinary ops of the program: they are on the tape if grad mode is on, and traced if
 * `values` are symbols. */
gd_status gd_evaluate_as_ops(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                             gd_rng rng_offset, gd_tensor **results);
/* The same, always on the tape; nothing is assigned. The results belong to the current scope. */
gd_status gd_evaluate_on_tape(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                              gd_rng rng_offset, gd_tensor **results);

#endif
