/* reduce_f64.isa.c - reductions computed in f64. */
#include "backend/cpu/vmath.h"

#define TYPE f64
#define E double
#define MASK vi64
#define MASK_TYPE i64
#define LANES VF64_LANES
#define IS_FLOAT 1
#define OWN_DTYPE GD_F64
#include "backend/cpu/reduce_template.h"
