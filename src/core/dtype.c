/* dtype.c - the table of element types. */
#include "gradus/dtype.h"

#include <string.h>

typedef enum { NONE, BOOLEAN, INTEGER, FLOATING } kind;

static const struct {
    const char *name;
    uint8_t size;
    kind kind;
} table[GD_DTYPE_COUNT] = {
    [GD_DTYPE_NONE] = {"none", 0, NONE}, [GD_BOOL] = {"bool", 1, BOOLEAN},
    [GD_U8] = {"u8", 1, INTEGER},        [GD_I8] = {"i8", 1, INTEGER},
    [GD_I32] = {"i32", 4, INTEGER},      [GD_I64] = {"i64", 8, INTEGER},
    [GD_F16] = {"f16", 2, FLOATING},     [GD_BF16] = {"bf16", 2, FLOATING},
    [GD_F32] = {"f32", 4, FLOATING},     [GD_F64] = {"f64", 8, FLOATING},
};

static bool is_dtype(gd_dtype dtype) { return (unsigned)dtype < GD_DTYPE_COUNT; }

size_t gd_dtype_size(gd_dtype dtype) { return is_dtype(dtype) ? table[dtype].size : 0; }
const char *gd_dtype_name(gd_dtype dtype) { return is_dtype(dtype) ? table[dtype].name : "?"; }
bool gd_dtype_is_float(gd_dtype dtype) { return is_dtype(dtype) && table[dtype].kind == FLOATING; }
bool gd_dtype_is_int(gd_dtype dtype) { return is_dtype(dtype) && table[dtype].kind == INTEGER; }

gd_dtype gd_dtype_from_name(const char *name) {
    for (int i = 1; name && i < GD_DTYPE_COUNT; i++)
        if (strcmp(name, table[i].name) == 0) return (gd_dtype)i;
    return GD_DTYPE_NONE;
}

/* The types are numbered so that the larger number wins, except in the two pairs of which neither
 * type holds the values of the other. */
gd_dtype gd_promote(gd_dtype a, gd_dtype b) {
    if (a == b) return a;
    gd_dtype low = a < b ? a : b, high = a < b ? b : a;
    if (low == GD_U8 && high == GD_I8) return GD_I32;
    if (low == GD_F16 && high == GD_BF16) return GD_F32;
    return high;
}
