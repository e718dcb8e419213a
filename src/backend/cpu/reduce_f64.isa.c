/* reduce_f64.isa.c - reductions computed in f64. */
#define FOR_F64
#include "backend/cpu/reduce_template.h"
