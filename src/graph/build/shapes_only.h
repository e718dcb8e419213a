/* shapes_only.h - running a function on shapes alone.
 *
 *     gd_shapes_only only;
 *     gd_shapes_only_begin(&only);
 *     gd_tensor *y = forward(gd_symbol(gd_dims(1, 3, 224, 224), GD_F32, NULL));
 *     ... y's shape, gd_shapes_only_macs() ...
 *     gd_shapes_only_end(&only);
 *
 * In the block, ops of this thread infer shapes and dtypes and return symbols. They compute
 * nothing, allocate no data and write nothing; values, such as parameters, may be mixed with
 * symbols. Random ops do not advance the generator. GD_EAGER inside the block runs ops as usual,
 * for parameters that are created there. Objects created in the block are freed at its end, unless
 * they are retained.
 */
#ifndef GRADUS_GRAPH_BUILD_SHAPES_ONLY_H
#define GRADUS_GRAPH_BUILD_SHAPES_ONLY_H

#include "core/thread.h"
#include "graph/build/trace.h"
#include "gradus/random.h"

typedef struct gd_shapes_only {
    void *tracer;
    gd_rng *replay_rng, counter;
    double *macs, sum;
    bool before;
    gd_scope *scope;
} gd_shapes_only;

void gd_shapes_only_begin(gd_shapes_only *block); /* the struct must not move until the end */
void gd_shapes_only_end(gd_shapes_only *block);

/* The multiply-adds of the ops that were called in the innermost block so far (dispatch/macs.h). NAN
 * where they depend on a size that is not known. */
double gd_shapes_only_macs(void);

/* Whether this thread is in such a block. */
extern _Thread_local bool gd_is_shapes_only;

#endif
