/* scan.isa.c - scans of f32, f64 and i64. */
#include "backend/cpu/scan.h"

#define TYPE f32
#define E    float
#define A    double
#include "backend/cpu/scan_template.h"

#define TYPE f64
#define E    double
#define A    double
#include "backend/cpu/scan_template.h"

#define TYPE i64
#define E    int64_t
#define A    uint64_t
#include "backend/cpu/scan_template.h"
