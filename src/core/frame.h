/* frame.h - stack frames of functions that call functions of the program, which may nest. */
#ifndef GRADUS_CORE_FRAME_H
#define GRADUS_CORE_FRAME_H

/* Before a function with large locals: they are not to lie in the frame of its caller, which stays
 * on the stack while branches in branches are traced or read. A thread may have 64 KiB in all. */
#define GD_OWN_FRAME __attribute__((noinline))

#endif
