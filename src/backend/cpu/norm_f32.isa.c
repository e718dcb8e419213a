/* norm_f32.isa.c - passes of normalizations in f32. */
#define FOR_F32
#include "backend/cpu/norm_template.h"
