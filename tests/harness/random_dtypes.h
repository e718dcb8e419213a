/* random_dtypes.h - random ops on values (rows, columns) of all dtypes. */
#ifndef GRADUS_TESTS_HARNESS_RANDOM_DTYPES_H
#define GRADUS_TESTS_HARNESS_RANDOM_DTYPES_H

#include "draw.h"
#include "random_graphs.h"

enum { INPUTS = 4 };

enum kind { ALL_DTYPES, INTEGERS, FLOATS, KINDS };

/* Excludes f16 and bf16 from ALL_DTYPES. */
extern bool without_half_precision;

enum kind dtype_inputs(uint64_t seed, gd_tensor **x);
results dtype_graph(uint64_t seed, enum kind kind, gd_tensor *const *in);

#endif
