/* cdist_f64.isa.c - cdist and its gradient in f64. */
#define FOR_F64
#include "backend/cpu/cdist_template.h"
