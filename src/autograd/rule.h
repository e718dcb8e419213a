/* rule.h - runs the gradient rule of one node, for the backward pass (walker.c). */
#ifndef GRADUS_AUTOGRAD_RULE_H
#define GRADUS_AUTOGRAD_RULE_H

#include "autograd/node.h"
#include "autograd/walker.h"

/* The arguments of a rule; see gd_vjp. */
typedef struct gd_rule_args {
    gd_tensor **x, **y, **gy, **gx;
    bool *needs;
} gd_rule_args;

gd_status gd_rule_run(const gd_walk *walk, gd_node *node, gd_rule_args *args);

#endif
