/* elementwise.h - how generated elementwise kernels are called and found. */
#ifndef GRADUS_CPU_ELEMENTWISE_H
#define GRADUS_CPU_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "core/float_to_int.h"

/* n elements in a row of each input and output, all of the compute type. Outputs may be inputs. */
typedef void (*gd_ew_fn)(int64_t n, const void *const *in, void *const *out,
                         const gd_param *params);

enum { GD_EW_F32, GD_EW_F64, GD_EW_I32, GD_EW_I64, GD_EW_TYPES };

typedef struct gd_ew_kernel {
    uint64_t hash;            /* of the IR */
    gd_ew_fn fn[GD_EW_TYPES]; /* NULL where the expression has no such form */
} gd_ew_kernel;

GD_ISA_DECLARE(const gd_ew_kernel *, gd_ew_find, (uint64_t hash));

#endif
