/* print.h - pieces of the text of graphs and plans. */
#ifndef GRADUS_GRAPH_PRINT_H
#define GRADUS_GRAPH_PRINT_H

#include <stdio.h>

#include "ops/op.h"

/* " stride=[2,2] groups=4": the options that are not the default. */
void gd_print_options(FILE *out, const gd_op *op, const void *attrs);

#endif
