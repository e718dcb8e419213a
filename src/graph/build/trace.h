/* trace.h - symbols, and a plain executor for them.
 *
 * An op with a symbol among its inputs, or any op while a trace is open, appends a node. The node
 * is the tape's own struct, so one backward walk serves both. The executor (evaluate.c) runs nodes one
 * after the other as eager ops; plans replace it where they can.
 */
#ifndef GRADUS_GRAPH_TRACE_H
#define GRADUS_GRAPH_TRACE_H

#include "gradus/random.h"
#include "gradus/tensor.h"

/* A symbol to be fed: a shape, in which sizes may be GD_ANY, and a dtype, no data. Of no graph. */
gd_tensor *gd_symbol(gd_shape shape, gd_dtype dtype, gd_device *device);

/* From here on, every op of this thread appends a node, those without inputs too. */
void gd_trace_begin(void);
void gd_trace_end(void);

/* The values of `fetches` when each symbol in `feeds` has the value beside it; fed tensors that are
 * assigned are written at the end, if `assigns`. `noise` is added to the numbers of random ops. */
gd_tensors gd_evaluate_run(gd_tensors fetches, gd_tensors feeds, gd_tensors values, gd_rng noise,
                           bool assigns);
gd_tensors gd_evaluate_nodes(gd_tensors fetches, gd_tensors feeds, gd_tensors values); /* noise 0 */

/* The same, but the tape remembers how the results came to be, and nothing is assigned. They are in the
 * current scope. */
/* The same as ordinary ops of the program: on the tape if it is on, noted if `values` are symbols. */
gd_status gd_evaluate_as_ops(gd_tensors fetches, gd_tensors feeds, gd_tensors values, gd_rng noise,
                             gd_tensor **results);
gd_status gd_evaluate_on_tape(gd_tensors fetches, gd_tensors feeds, gd_tensors values, gd_rng noise,
                              gd_tensor **results);

#endif
