/* autocast.h - how the dispatcher casts inputs under GD_AUTOCAST (gradus/autocast.h). */
#ifndef GRADUS_DISPATCH_AUTOCAST_H
#define GRADUS_DISPATCH_AUTOCAST_H

#include "gradus/autocast.h"
#include "dispatch/op.h"

/* GD_NO_AUTOCAST turns autocast off until the end of the block. Bodies, gradient rules and runs
 * of graphs use it: the dtypes of their ops were decided by the program's call. */
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

/* The dtype that float inputs are cast to, by the op's precision class. GD_DTYPE_NONE: no input is
 * cast. `low` is the dtype of GD_AUTOCAST. */
gd_dtype gd_autocast_target(const gd_invocation *call, gd_dtype low);
/* Fills `cast` with the inputs, where f16, bf16 and f32 are cast to `target`. The scope owns new
 * tensors. */
gd_status gd_autocast_inputs(const gd_invocation *call, gd_dtype target, gd_tensor **cast);

#endif
