/* softmax_f32.isa.c - softmax and its gradient in f32. */
#define FOR_F32
#include "ops/softmax/cpu/softmax_template.h"
