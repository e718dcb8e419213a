/* attention.h - vector parts of the attention kernels. */
#ifndef GRADUS_CPU_ATTENTION_H
#define GRADUS_CPU_ATTENTION_H

#include <stdint.h>

#include "backend/cpu/isa.h"

GD_ISA_DECLARE(float, gd_attention_exp, (float *row, int64_t n, float most));

#endif
