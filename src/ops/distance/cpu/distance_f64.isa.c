/* distance_f64.isa.c - cdist and its gradient in f64. */
#define FOR_F64
#include "ops/distance/cpu/distance_template.h"
