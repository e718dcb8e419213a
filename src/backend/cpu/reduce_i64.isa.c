/* reduce_i64.isa.c - reductions computed in i64. */
#define FOR_I64
#include "backend/cpu/reduce.typed.isa.c"
