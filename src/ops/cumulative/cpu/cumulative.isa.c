/* cumulative.isa.c - cumulative ops of f32, f64 and i64. */
#include "ops/cumulative/cpu/cumulative.h"

#define TYPE f32
#define E    float
#define A    double
#include "ops/cumulative/cpu/cumulative_template.h"

#define TYPE f64
#define E    double
#define A    double
#include "ops/cumulative/cpu/cumulative_template.h"

#define TYPE i64
#define E    int64_t
#define A    uint64_t
#include "ops/cumulative/cpu/cumulative_template.h"
