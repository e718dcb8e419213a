/* print.h - functions that the text forms of graphs and plans share. */
#ifndef GRADUS_GRAPH_PRINT_H
#define GRADUS_GRAPH_PRINT_H

#include <stdio.h>

#include "dispatch/op.h"

/* Prints the options that differ from their defaults, as " stride=[2,2] groups=4". */
void gd_print_options(FILE *out, const gd_op *op, const void *attrs);

#endif
