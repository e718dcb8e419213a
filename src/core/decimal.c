/* decimal.c - shortest decimal digits (decimal.h).
 *
 * The algorithm of Steele and White ("How to print floating-point numbers accurately", 1990) with
 * arbitrary-precision integers: value = r / s, and the half gaps to its neighbours are above / s
 * and below / s. Each digit is the integer part of 10 r / s. The digits are unique when the
 * remainder is within a half gap of 0 (round down) or of 1 (round up).
 */
#include "core/decimal.h"

#include <math.h>
#include <string.h>

/* --- arbitrary-precision integers ------------------------------------------------------------- */

/* The largest ones are about 2^1150, for the smallest double. */
enum { WORDS = 40 };
typedef struct bigint {
    uint32_t at[WORDS]; /* least significant first */
    int count;          /* words in use; the most significant one is not 0 */
} bigint;

static bigint bigint_from(uint64_t value) {
    bigint w = {.at = {(uint32_t)value, (uint32_t)(value >> 32)}};
    w.count = value >> 32 ? 2 : value ? 1 : 0;
    return w;
}

static void bigint_multiply(bigint *w, uint32_t factor) {
    uint64_t carry = 0;
    for (int i = 0; i < w->count; i++) {
        carry += (uint64_t)w->at[i] * factor;
        w->at[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && w->count < WORDS) w->at[w->count++] = (uint32_t)carry;
}

/* Negative exponents are treated as 0. */
static void bigint_multiply_power(bigint *w, uint32_t base, int exponent) {
    for (; exponent > 0; exponent--) bigint_multiply(w, base);
}

static void bigint_shift_left(bigint *w, int bits) {
    for (; bits >= 31; bits -= 31) bigint_multiply(w, UINT32_C(1) << 31);
    if (bits > 0) bigint_multiply(w, UINT32_C(1) << bits);
}

static int bigint_compare(const bigint *a, const bigint *b) {
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    for (int i = a->count; i-- > 0;)
        if (a->at[i] != b->at[i]) return a->at[i] < b->at[i] ? -1 : 1;
    return 0;
}

static bigint bigint_sum(const bigint *a, const bigint *b) {
    bigint s = {.count = a->count > b->count ? a->count : b->count};
    uint64_t carry = 0;
    for (int i = 0; i < s.count; i++) {
        carry += (uint64_t)(i < a->count ? a->at[i] : 0) + (i < b->count ? b->at[i] : 0);
        s.at[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && s.count < WORDS) s.at[s.count++] = (uint32_t)carry;
    return s;
}

/* a -= b, where a >= b */
static void bigint_subtract(bigint *a, const bigint *b) {
    int64_t borrow = 0;
    for (int i = 0; i < a->count; i++) {
        borrow += (int64_t)a->at[i] - (i < b->count ? b->at[i] : 0);
        a->at[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    while (a->count > 0 && a->at[a->count - 1] == 0) a->count--;
}

/* The integer part of r / s, which is below 10; r becomes the remainder. */
static int bigint_divide(bigint *r, const bigint *s) {
    int digit = 0;
    for (; bigint_compare(r, s) >= 0; digit++) bigint_subtract(r, s);
    return digit;
}

/* --- digits ----------------------------------------------------------------------------------- */

/* |value| = mantissa * 2^exponent in the precision of the dtype. */
static void split_float(gd_dtype dtype, double value, uint64_t *mantissa, int *exponent,
                        bool *uneven) {
    /* bits of the mantissa, and the exponent of the smallest subnormal */
    int bits = dtype == GD_F64 ? 53 : dtype == GD_F32 ? 24 : dtype == GD_F16 ? 11 : 8;
    int smallest = dtype == GD_F64 ? -1074 : dtype == GD_F32 ? -149 : dtype == GD_F16 ? -24 : -133;
    int e;
    frexp(value, &e); /* 2^(e-1) <= value < 2^e */
    *exponent = e - bits > smallest ? e - bits : smallest;
    *mantissa = (uint64_t)ldexp(fabs(value), -*exponent);
    /* the gap below a power of two is half of the gap above it */
    *uneven = *mantissa == UINT64_C(1) << (bits - 1) && *exponent > smallest;
}

static void round_digits_up(gd_decimal *d) {
    while (d->count > 0 && d->digits[d->count - 1] == '9') d->count--;
    if (d->count > 0) d->digits[d->count - 1]++;
    else {
        d->digits[d->count++] = '1';
        d->point++;
    }
}

gd_decimal gd_decimal_of(gd_dtype dtype, double value, bool scientific, int least, int most) {
    gd_decimal d = {.digits = "0", .count = 1, .point = 1};
    if (value == 0) return d;
    uint64_t mantissa;
    int exponent;
    bool uneven;
    split_float(dtype, value, &mantissa, &exponent, &uneven);
    bool even = mantissa % 2 == 0; /* the ends of the interval round to this number: ties to even */

    bigint r = bigint_from(mantissa), s = bigint_from(1), below = bigint_from(1);
    bigint_shift_left(&r, (exponent > 0 ? exponent : 0) + 1 + uneven);
    bigint_shift_left(&s, (exponent < 0 ? -exponent : 0) + 1 + uneven);
    bigint_shift_left(&below, exponent > 0 ? exponent : 0);
    bigint above = below;
    bigint_shift_left(&above, uneven);

    /* Scale so that r / s is in [0.1, 1); the estimate of the exponent is right or one too
     * small. */
    d.point = (int)ceil(log10(fabs(value)) - 1e-9);
    bigint_multiply_power(&s, 10, d.point);
    bigint_multiply_power(&r, 10, -d.point);
    bigint_multiply_power(&above, 10, -d.point);
    bigint_multiply_power(&below, 10, -d.point);
    if (bigint_compare(&r, &s) >= 0) {
        bigint_multiply(&s, 10);
        d.point++;
    }

    int shift = scientific ? 1 : d.point; /* the first digit has place 1 - shift */
    if (1 - shift > most) { /* below the last place: rounds to one unit of it, or to zero */
        bigint_multiply(&r, 2);
        bool one = 1 - shift == most + 1 && bigint_compare(&r, &s) > 0;
        return (gd_decimal){.digits = {one ? '1' : '0'}, .count = 1, .point = one ? 1 - most : 1};
    }
    bool low, high;
    int digit;
    for (d.count = 0;;) {
        bigint_multiply(&r, 10);
        bigint_multiply(&above, 10);
        bigint_multiply(&below, 10);
        digit = bigint_divide(&r, &s);
        d.digits[d.count++] = (char)('0' + digit);
        int to_below = bigint_compare(&r, &below);
        bigint top = bigint_sum(&r, &above);
        int to_above = bigint_compare(&top, &s);
        low = even ? to_below <= 0 : to_below < 0;
        high = even ? to_above >= 0 : to_above > 0;
        int place = d.count - shift;
        if ((low || high) && place >= least) break;
        if (place >= most || d.count >= GD_DECIMAL_DIGITS - 1) break;
    }
    if (low == high) { /* both or neither: round to the nearest */
        bigint_multiply(&r, 2);
        int half = bigint_compare(&r, &s);
        high = half > 0 || (half == 0 && digit % 2 == 1);
    }
    if (high) round_digits_up(&d);
    while (d.count > 1 && d.digits[d.count - 1] == '0') d.count--;
    return d;
}

gd_decimal gd_decimal_shortest(gd_dtype dtype, double value) {
    return gd_decimal_of(dtype, value, true, -1, GD_DECIMAL_DIGITS);
}
