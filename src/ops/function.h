/* function.h - functions of the program (gd_apply) as ops of a graph.
 *
 * What they do is autograd's (autograd/function_op.c), which knows contexts and what they save.
 */
#ifndef GRADUS_OPS_FUNCTION_H
#define GRADUS_OPS_FUNCTION_H

#include "ops/op.h"

typedef struct gd_function_rules {
    gd_status (*infer)(gd_infer *i);
    gd_status (*forward)(gd_kernel_call *k);
    gd_status (*backward)(gd_kernel_call *k);
    void (*vjp)(gd_vjp *v);
} gd_function_rules;
extern gd_function_rules gd_function_hooks;

#endif
