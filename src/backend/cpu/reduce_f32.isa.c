/* reduce_f32.isa.c - reductions computed in f32. */
#define FOR_F32
#include "backend/cpu/reduce_template.h"
