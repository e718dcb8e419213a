/* autocast.h - how the dispatcher casts inputs under GD_AUTOCAST (gradus/autocast.h). */
#ifndef GRADUS_OPS_AUTOCAST_H
#define GRADUS_OPS_AUTOCAST_H

#include "gradus/autocast.h"
#include "ops/op.h"

/* For the rest of the block ops compute in the dtypes of their inputs: bodies, gradient rules, runs of
 * graphs, and whatever else was decided when the program's own call was made. */
static inline int gd_autocast_pause(int setting) {
    gd_thread *thread = &gd_this_thread;
    const int before = thread->autocast;
    thread->autocast = setting;
    return before;
}
static inline void gd_autocast_resume(const int *before) { gd_this_thread.autocast = *before; }
#define GD_NO_AUTOCAST                                                                \
    __attribute__((cleanup(gd_autocast_resume), unused)) const int autocast_before_ = \
        gd_autocast_pause(GD_DTYPE_NONE)

/* The dtype that the floats among the inputs are cast to, by the op's class; GD_DTYPE_NONE: no input
 * is cast. */
gd_dtype gd_autocast_target(const gd_invocation *call, gd_dtype low);
/* The inputs, cast to `target` where they are f16, bf16 or f32. New tensors belong to the scope. */
gd_status gd_autocast_inputs(const gd_invocation *call, gd_dtype target, gd_tensor **cast);

#endif
