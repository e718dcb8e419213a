/* reduce_i64.isa.c - reductions computed in i64. */
#include "backend/cpu/vmath.h"

#define TYPE i64
#define E int64_t
#define MASK vi64
#define MASK_TYPE i64
#define LANES VI64_LANES
#define IS_FLOAT 0
#define OWN_DTYPE GD_I64
#include "backend/cpu/reduce_template.h"
