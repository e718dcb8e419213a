/* softmax_f32.isa.c - softmax and its gradient in f32. */
#define FOR_F32
#include "core/tile.h"
#include "ops/softmax/cpu/softmax_template.h"
