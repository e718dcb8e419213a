/* deferred_call.h - calls whose options are computed from sizes that are unknown yet.
 *
 * An ONNX file computes the shape of a Reshape from the sizes of other tensors, as a tensor. Here a
 * shape is an option of the call. If the sizes are known when the graph is built, so is the option.
 * If not, a node `deferred_call` stands for the call until the graph is replayed with the sizes of a
 * run's feeds.
 */
#ifndef GRADUS_OPS_DEFERRED_CALL_H
#define GRADUS_OPS_DEFERRED_CALL_H

#include "gradus/ops.h"
#include "ops/op.h"

enum { GD_DEFERRED_LISTS = 5, GD_DEFERRED_NUMBERS = 64 };

/* The numbers of a call. */
typedef struct gd_numbers {
    int count;
    int64_t at[GD_DEFERRED_NUMBERS];
} gd_numbers;

/* Which call a node `deferred_call` stands for, and what its inputs are. */
typedef enum gd_deferred_kind {
    GD_DEFERRED_RESHAPE, /* x; dims. 0 keeps a size of x, unless `zero`; -1 follows from the others */
    GD_DEFERRED_EXPAND, /* x; dims. Both shapes broadcast */
    GD_DEFERRED_SLICE,  /* x; starts, ends, axes, steps */
    GD_DEFERRED_REPEAT, /* x; times */
    GD_DEFERRED_SELECT, /* x; index along `axis` */
    GD_DEFERRED_RANGE,  /* start, end, step: integers */
    GD_DEFERRED_PAD,    /* x; what is put before each axis, then behind each. `mode`, `value` */
    GD_DEFERRED_RESIZE, /* x; sizes of all axes. `mode`, `align_corners`, `first` */
    GD_DEFERRED_KINDS
} gd_deferred_kind;

gd_tensor *gd_deferred_now(const gd_deferred_call_options *options, gd_tensor *x,
                           const gd_numbers *lists, int n_lists);

/* The numbers of a value, or of a symbol that follows from values: src/graph's. */
extern gd_status (*gd_deferred_numbers)(gd_tensor *tensor, gd_numbers *numbers);

#endif
