/* hdf5_convert.c - converts numbers of an HDF5 file to elements of a dtype. See hdf5_parts.h.
 *
 * Elements that are those of a dtype of the library are converted by it. Others are first made i64
 * or f64, which hold them exactly; only unsigned numbers from 2^63 on and floats with more than 53
 * bits of mantissa need care.
 */
#include "core/copy.h"
#include "format/hdf5_parts.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 256,       /* elements that are converted at a time */
    MAX_SCALE = 10000, /* exponents beyond it give 0 or infinity */
};

__extension__ typedef unsigned __int128 u128;

/* The bits of an element. */
static u128 load_bits(const gd_hdf5_type *t, const uint8_t *p) {
    u128 bits = 0;
    for (uint32_t i = 0; i < t->bytes; i++)
        bits = bits << 8 | p[t->big_endian ? i : t->bytes - 1 - i];
    return bits;
}

static uint64_t field(u128 bits, int at, int count) {
    const uint64_t value = (uint64_t)(bits >> at);
    return count >= 64 ? value : value & (((uint64_t)1 << count) - 1);
}

/* Signed numbers are extended to 64 bits. */
static uint64_t load_int(const gd_hdf5_type *t, const uint8_t *p) {
    const uint64_t value = field(load_bits(t, p), t->first, t->bits);
    const uint64_t sign = (uint64_t)1 << (t->bits - 1);
    return t->is_signed ? (value ^ sign) - sign : value;
}

static double load_float(const gd_hdf5_type *t, const uint8_t *p) {
    const u128 bits = load_bits(t, p);
    const int largest = (1 << t->exponent_bits) - 1, width = t->mantissa_bits;
    const uint64_t mantissa = field(bits, t->mantissa_at, width);
    const int exponent = (int)field(bits, t->exponent_at, t->exponent_bits);
    const double sign = field(bits, t->sign_at, 1) ? -1 : 1;
    /* where the first bit is stored, it says nothing in an infinity */
    const uint64_t payload = t->implied ? mantissa : mantissa & ~((uint64_t)1 << (width - 1));
    if (exponent == largest) return payload ? (double)NAN : sign * (double)INFINITY;
    const uint64_t whole = t->implied && exponent ? (uint64_t)1 << width : 0;
    /* the mantissa times 2^(exponent - bias), less its bits after the point */
    int64_t scale = (int64_t)(exponent ? exponent : 1) - t->bias - (width - !t->implied);
    if (scale < -MAX_SCALE) scale = -MAX_SCALE;
    return sign * ldexp((double)(mantissa | whole), (int)(scale < MAX_SCALE ? scale : MAX_SCALE));
}

/* Whether an element has the bits of its dtype. */
static bool is_exact(const gd_hdf5_type *t) {
    const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    static const struct {
        gd_dtype dtype;
        uint8_t sign, exponent, width;
        uint32_t bias;
    } floats[] = {{GD_F16, 15, 10, 5, 15},
                  {GD_BF16, 15, 7, 8, 127},
                  {GD_F32, 31, 23, 8, 127},
                  {GD_F64, 63, 52, 11, 1023}};
    if (t->bytes != gd_dtype_size(t->dtype) || (t->bytes > 1 && t->big_endian != big)) return false;
    if (t->kind == GD_HDF5_INT)
        return t->first == 0 && t->bits == 8 * t->bytes && t->dtype != GD_BOOL &&
               t->is_signed == (t->dtype != GD_U8);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (t->dtype == floats[i].dtype)
            return t->implied && t->bias == floats[i].bias && t->sign_at == floats[i].sign &&
                   t->exponent_at == floats[i].exponent && t->exponent_bits == floats[i].width &&
                   t->mantissa_at == 0 && t->mantissa_bits == floats[i].exponent;
    return false;
}

bool gd_hdf5_is_native(const gd_hdf5_type *type, gd_dtype dtype) {
    return type->dtype == dtype && is_exact(type);
}

/* Converts an unsigned number from 2^63 on, which i64 cannot hold, to a float: all but the 24 or 53
 * first bits only matter as "some bit is set". */
static void store_large(gd_dtype to, void *out, uint64_t value) {
    if (to == GD_F64) {
        const double x = (double)value;
        memcpy(out, &x, sizeof x);
        return;
    }
    const int drop = to == GD_F32 ? 1 : 40;
    const uint64_t rest = value & (((uint64_t)1 << drop) - 1);
    const float x = ldexpf((float)(int64_t)(value >> drop | (rest != 0)), drop);
    gd_convert(to, out, GD_F32, &x, 1);
}

static void convert_ints(const gd_hdf5_type *from, const uint8_t *in, int64_t n, gd_dtype to,
                         uint8_t *out) {
    int64_t piece[PIECE];
    const size_t size = gd_dtype_size(to);
    for (int64_t i = 0; i < n; i++) piece[i] = (int64_t)load_int(from, in + i * from->bytes);
    gd_convert(to, out, GD_I64, piece, n);
    if (from->is_signed || from->bits < 64 || !gd_dtype_is_float(to)) return;
    for (int64_t i = 0; i < n; i++)
        if (piece[i] < 0) store_large(to, out + (size_t)i * size, (uint64_t)piece[i]);
}

void gd_hdf5_convert(const gd_hdf5_type *from, const uint8_t *in, int64_t n, gd_dtype to,
                     void *out) {
    if (is_exact(from)) {
        gd_convert(to, out, from->dtype, in, n);
        return;
    }
    uint8_t *next = out;
    for (int64_t done = 0; done < n; done += PIECE) {
        const int64_t count = n - done < PIECE ? n - done : PIECE;
        if (from->kind == GD_HDF5_INT) convert_ints(from, in, count, to, next);
        else {
            double piece[PIECE];
            for (int64_t i = 0; i < count; i++) piece[i] = load_float(from, in + i * from->bytes);
            gd_convert(to, next, GD_F64, piece, count);
        }
        in += count * from->bytes;
        next += (size_t)count * gd_dtype_size(to);
    }
}
