/* norm_f64.isa.c - passes of normalizations in f64. */
#define FOR_F64
#include "backend/cpu/norm_template.h"
