/* norm_f32.isa.c - normalization passes in f32. */
#define FOR_F32
#include "ops/norm/cpu/norm_template.h"
