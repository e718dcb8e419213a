/* softmax_f64.isa.c - softmax and its gradient in f64. */
#define FOR_F64
#include "ops/softmax/cpu/softmax_template.h"
