/* distance_f32.isa.c - cdist and its gradient in f32. */
#define FOR_F32
#include "ops/distance/cpu/distance_template.h"
