/* options.h - the options of nodes and steps: comparing and printing them. */
#ifndef GRADUS_GRAPH_BUILD_OPTIONS_H
#define GRADUS_GRAPH_BUILD_OPTIONS_H

#include <stdio.h>

#include "dispatch/op.h"

/* Whether two values of an option are equal. */
bool gd_same_option(const gd_op_attr *attr, const void *a, const void *b);

/* Mixes an option into a hash; equal options have equal hashes. */
uint64_t gd_hash_option(uint64_t hash, const gd_op_attr *attr, const void *value);

/* Prints the options that differ from their defaults, as " stride=[2,2] groups=4". */
void gd_fprint_options(FILE *out, const gd_op *op, const void *attrs);

#endif
