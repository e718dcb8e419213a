/* elementwise.h - the interface of generated elementwise kernels, and how they are found. */
#ifndef GRADUS_BACKEND_CPU_ELEMENTWISE_H
#define GRADUS_BACKEND_CPU_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "core/float_to_int.h"

/* Computes n contiguous elements of each output from those of the inputs, all of the compute type.
 * An output may be the same memory as an input. */
typedef void (*gd_ew_fn)(int64_t n, const void *const *in, void *const *out,
                         const gd_param *params);

enum { GD_EW_F32, GD_EW_F64, GD_EW_I32, GD_EW_I64, GD_EW_TYPES };

/* The kernels of one expression. */
typedef struct gd_ew_kernel {
    uint64_t hash;            /* of the IR */
    gd_ew_fn fn[GD_EW_TYPES]; /* NULL: none for this compute type */
} gd_ew_kernel;

/* The kernels in the library whose expression has this hash; NULL: none. */
GD_ISA_DECLARE(const gd_ew_kernel *, gd_ew_find, (uint64_t hash));

#endif
