/* shapes_only.h - running a function on shapes alone.
 *
 *     gd_shapes_only only;
 *     gd_shapes_only_begin(&only);
 *     gd_tensor *y = forward(gd_symbol(gd_dims(1, 3, 224, 224), GD_F32, NULL));
 *     ... y's shape, gd_shapes_only_macs() ...
 *     gd_shapes_only_end(&only);
 *
 * In the block ops of this thread work out shapes and dtypes, and give symbols. They compute
 * nothing, allocate no data and write nothing; values, such as parameters, may be mixed with
 * symbols. Random ops leave the generator alone. GD_EAGER inside of it runs ops again, for
 * parameters that are made on the way. What is made belongs to the block and is gone after it,
 * unless it is held.
 */
#ifndef GRADUS_GRAPH_SHAPES_ONLY_H
#define GRADUS_GRAPH_SHAPES_ONLY_H

#include "core/thread.h"
#include "graph/build/trace.h"
#include "gradus/random.h"

typedef struct gd_shapes_only {
    void *tracer;
    gd_rng *noise, numbers;
    double *macs, sum;
    bool before;
    gd_scope *scope;
} gd_shapes_only;

void gd_shapes_only_begin(gd_shapes_only *block); /* which must stay where it is */
void gd_shapes_only_end(gd_shapes_only *block);

/* The multiply-adds of the ops that were called in the innermost block so far (ops/macs.h). NAN
 * where they depend on a size that is not known. */
double gd_shapes_only_macs(void);

/* Whether this thread is in such a block. */
extern _Thread_local bool gd_is_shapes_only;

#endif
