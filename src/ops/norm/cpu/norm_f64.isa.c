/* norm_f64.isa.c - normalization passes in f64. */
#define FOR_F64
#include "ops/norm/cpu/norm_template.h"
