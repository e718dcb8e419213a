/* reduce_f32.isa.c - reductions computed in f32. */
#include "backend/cpu/vmath.h"

#define TYPE f32
#define E float
#define MASK vi32
#define MASK_TYPE i32
#define LANES VF32_LANES
#define IS_FLOAT 1
#define OWN_DTYPE GD_F32
#include "backend/cpu/reduce_template.h"
