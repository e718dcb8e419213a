/* dtype.h - element types, type promotion and conversion. */
#ifndef GRADUS_DTYPE_H
#define GRADUS_DTYPE_H

#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_dtype {
    GD_DTYPE_NONE = 0, /* as an option: the op chooses */
    GD_BOOL = 1,
    GD_U8 = 2,
    GD_I8 = 3,
    GD_I32 = 4,
    GD_I64 = 5,
    GD_F16 = 6,
    GD_BF16 = 7,
    GD_F32 = 8,
    GD_F64 = 9,
    GD_DTYPE_COUNT
} gd_dtype;

/* Bytes of one element; 0 for GD_DTYPE_NONE. */
GD_API size_t gd_dtype_size(gd_dtype dtype);

/* "f32", "i64", ...; gd_dtype_from_name is the inverse (GD_DTYPE_NONE for an unknown name). */
GD_API const char *gd_dtype_name(gd_dtype dtype);
GD_API gd_dtype gd_dtype_from_name(const char *name);

GD_API bool gd_dtype_is_float(gd_dtype dtype); /* f16 bf16 f32 f64 */
GD_API bool gd_dtype_is_int(gd_dtype dtype);   /* u8 i8 i32 i64, not bool */

/* The type that holds both, as in PyTorch. The table is symmetric:
 *
 *          bool  u8    i8    i32   i64   f16   bf16  f32   f64
 *   bool   bool  u8    i8    i32   i64   f16   bf16  f32   f64
 *   u8           u8    i32   i32   i64   f16   bf16  f32   f64
 *   i8                 i8    i32   i64   f16   bf16  f32   f64
 *   i32                      i32   i64   f16   bf16  f32   f64
 *   i64                            i64   f16   bf16  f32   f64
 *   f16                                  f16   f32   f32   f64
 *   bf16                                       bf16  f32   f64
 *   f32                                              f32   f64
 *   f64                                                    f64
 *
 * (u8 with i8 gives i32 here; PyTorch gives i16, a type that does not exist here.) In an op, a
 * tensor of rank 0 counts as a number: it changes the dtype of the result only if its kind (bool,
 * integer, float) is higher than that of the tensors with dimensions, so x(f16) * 2.0 stays f16. */
GD_API gd_dtype gd_promote(gd_dtype a, gd_dtype b);

/* Conversion of values, the same in gd_cast, assignments, copies, options and files, on every
 * instruction set and device:
 *
 *   float to integer   the fraction is dropped; a value beyond the integer type becomes its largest
 *                      or smallest number (300.0 to u8 is 255, -1.5 to u8 is 0); NaN becomes 0
 *   integer to integer the low bits are kept: 300 to u8 is 44, as in C and in PyTorch
 *   to bool            false for 0 and -0, true for everything else, including NaN
 *   integer to float,  rounds to the nearest number, ties to even; a number beyond the largest
 *   float to float     becomes infinity; NaN stays NaN
 *
 * In PyTorch the result for floats beyond an integer type depends on the processor. */

#ifdef __cplusplus
}
#endif
#endif
