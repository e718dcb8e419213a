/* recurrent_f64.isa.c - cells of recurrent layers in f64. */
#define FOR_F64
#include "ops/recurrent/cpu/recurrent_template.h"
