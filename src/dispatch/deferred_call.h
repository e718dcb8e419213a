/* deferred_call.h - calls whose options depend on sizes that are still unknown.
 *
 * An ONNX file computes the shape of a Reshape as a tensor, from the sizes of other tensors. In
 * Gradus a shape is an option of the call. If the sizes are known when the graph is built, the
 * option is too. If not, a node `deferred_call` represents the call until the graph is replayed
 * with the sizes of a run's feeds.
 */
#ifndef GRADUS_DISPATCH_DEFERRED_CALL_H
#define GRADUS_DISPATCH_DEFERRED_CALL_H

#include "gradus/ops.h"
#include "dispatch/op.h"

enum { GD_DEFERRED_LISTS = 5, GD_DEFERRED_NUMBERS = 64 };

/* A list option as numbers. */
typedef struct gd_numbers {
    int count;
    int64_t at[GD_DEFERRED_NUMBERS];
} gd_numbers;

/* The call that a node `deferred_call` represents. Comments list its inputs, then its options. */
typedef enum gd_deferred_kind {
    GD_DEFERRED_RESHAPE, /* x; dims. 0 copies a size of x, unless `zero`; -1 is computed */
    GD_DEFERRED_EXPAND,  /* x; dims. Both shapes broadcast */
    GD_DEFERRED_SLICE,   /* x; starts, ends, axes, steps */
    GD_DEFERRED_REPEAT,  /* x; times */
    GD_DEFERRED_SELECT,  /* x; index along `axis` */
    GD_DEFERRED_RANGE,   /* start, end, step: integers */
    GD_DEFERRED_PAD,     /* x; padding before each axis, then after each. `mode`, `value` */
    GD_DEFERRED_RESIZE,  /* x; sizes of all axes. `mode`, `align_corners`, `first` */
    GD_DEFERRED_KINDS
} gd_deferred_kind;

/* Makes the call with known numbers. */
gd_tensor *gd_deferred_now(const gd_deferred_call_options *options, gd_tensor *x,
                           const gd_numbers *lists, int n_lists);

/* 0, 1, ... for each position of an axis of x: i64 (size), on the device of x. In a graph the size
 * may be unknown. */
gd_tensor *gd_axis_positions(gd_tensor *x, int axis);

/* Reads the numbers of a value, or of a symbol that can be computed from values. src/graph sets
 * it. */
extern gd_status (*gd_deferred_numbers)(gd_tensor *tensor, gd_numbers *numbers);

#endif
