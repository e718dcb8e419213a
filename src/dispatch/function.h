/* function.h - functions of the program (gd_apply) as ops of a graph.
 *
 * autograd/function_op.c implements them, since contexts and saved tensors are part of autograd.
 */
#ifndef GRADUS_DISPATCH_FUNCTION_H
#define GRADUS_DISPATCH_FUNCTION_H

#include "dispatch/op.h"

typedef struct gd_function_rules {
    gd_status (*infer)(gd_infer *i);
    gd_status (*forward)(gd_kernel_call *k);
    gd_status (*backward)(gd_kernel_call *k);
    void (*vjp)(gd_vjp *v);
} gd_function_rules;
extern gd_function_rules gd_function_hooks;

#endif
