/* late.h - calls whose numbers follow from sizes that are not known yet.
 *
 * ONNX has them as tensors: the shape of a Reshape, worked out from the sizes of an input. Here such a
 * list is an option of the call. Where the sizes are known when a graph is built, so are the numbers.
 * Where they are not, a node stands for the call until the graph is noted once more with the sizes of a
 * run's feeds.
 */
#ifndef GRADUS_OPS_LATE_H
#define GRADUS_OPS_LATE_H

#include "gradus/ops.h"
#include "ops/op.h"

enum { GD_LATE_LISTS = 5, GD_LATE_NUMBERS = 64 };

/* The numbers of a call. */
typedef struct gd_numbers {
    int count;
    int64_t at[GD_LATE_NUMBERS];
} gd_numbers;

/* What a node `late` stands for, and what its tensors are. */
typedef enum gd_late_kind {
    GD_LATE_RESHAPE, /* x; dims. 0 keeps a size of x, unless `zero`; -1 follows from the others */
    GD_LATE_EXPAND,  /* x; dims. Both shapes broadcast */
    GD_LATE_SLICE,   /* x; starts, ends, axes, steps */
    GD_LATE_REPEAT,  /* x; times */
    GD_LATE_SELECT,  /* x; index along `axis` */
    GD_LATE_RANGE,   /* start, end, step: whole numbers */
    GD_LATE_PAD,     /* x; what is put before each axis, then behind each. `mode`, `value` */
    GD_LATE_RESIZE,  /* x; sizes of all axes. `mode`, `align_corners`, `first` */
    GD_LATE_KINDS
} gd_late_kind;

gd_tensor *gd_late_now(const gd_late_options *options, gd_tensor *x, const gd_numbers *lists,
                       int n_lists);

/* The numbers of a value, or of a symbol that follows from values: src/graph's. */
extern gd_status (*gd_late_numbers)(gd_tensor *tensor, gd_numbers *numbers);

#endif
