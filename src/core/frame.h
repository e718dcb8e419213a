/* frame.h - keeps stack frames small in functions that may be called recursively. */
#ifndef GRADUS_CORE_FRAME_H
#define GRADUS_CORE_FRAME_H

/* For a function with large locals: it is not inlined, so its locals are not in the frame of its
 * caller, which stays on the stack while nested branches are traced. A thread may have only 64 KiB.
 * */
#define GD_OWN_FRAME __attribute__((noinline))

#endif
