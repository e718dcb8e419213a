/* recurrent_f32.isa.c - cells of recurrent layers in f32. */
#define FOR_F32
#include "ops/recurrent/cpu/recurrent_template.h"
