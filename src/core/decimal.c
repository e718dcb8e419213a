/* decimal.c - see decimal.h.
 *
 * Steele and White's way ("How to print floating-point numbers accurately", 1990) with whole
 * numbers of any size: value = r / s, and the half gaps to its neighbours are above / s and
 * below / s. Each digit is the whole part of 10 r / s. Enough digits are there when the rest is
 * within a half gap of 0 (round down) or of 1 (round up).
 */
#include "core/decimal.h"

#include <math.h>
#include <string.h>

/* --- whole numbers ---------------------------------------------------------------------------- */

/* The largest that occur are about 2^1150, from the smallest double. */
enum { WORDS = 40 };
typedef struct whole {
    uint32_t at[WORDS]; /* the lowest first */
    int count;          /* words in use; the last one is not 0 */
} whole;

static whole whole_of(uint64_t value) {
    whole w = {.at = {(uint32_t)value, (uint32_t)(value >> 32)}};
    w.count = value >> 32 ? 2 : value ? 1 : 0;
    return w;
}

static void multiply(whole *w, uint32_t factor) {
    uint64_t carry = 0;
    for (int i = 0; i < w->count; i++) {
        carry += (uint64_t)w->at[i] * factor;
        w->at[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && w->count < WORDS) w->at[w->count++] = (uint32_t)carry;
}

/* An exponent below 0 counts as 0. */
static void multiply_power(whole *w, uint32_t base, int exponent) {
    for (; exponent > 0; exponent--) multiply(w, base);
}

static void shift_left(whole *w, int bits) {
    for (; bits >= 31; bits -= 31) multiply(w, UINT32_C(1) << 31);
    if (bits > 0) multiply(w, UINT32_C(1) << bits);
}

static int compare(const whole *a, const whole *b) {
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    for (int i = a->count; i-- > 0;)
        if (a->at[i] != b->at[i]) return a->at[i] < b->at[i] ? -1 : 1;
    return 0;
}

static whole sum(const whole *a, const whole *b) {
    whole s = {.count = a->count > b->count ? a->count : b->count};
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
static void subtract(whole *a, const whole *b) {
    int64_t borrow = 0;
    for (int i = 0; i < a->count; i++) {
        borrow += (int64_t)a->at[i] - (i < b->count ? b->at[i] : 0);
        a->at[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    while (a->count > 0 && a->at[a->count - 1] == 0) a->count--;
}

/* The whole part of r / s, which is below 10; r becomes the rest. */
static int divide(whole *r, const whole *s) {
    int digit = 0;
    for (; compare(r, s) >= 0; digit++) subtract(r, s);
    return digit;
}

/* --- digits ----------------------------------------------------------------------------------- */

/* |value| = mantissa * 2^exponent, as the dtype has it. */
static void take_apart(gd_dtype dtype, double value, uint64_t *mantissa, int *exponent,
                       bool *uneven) {
    /* bits of a mantissa, and the exponent of the smallest number */
    int bits = dtype == GD_F64 ? 53 : dtype == GD_F32 ? 24 : dtype == GD_F16 ? 11 : 8;
    int smallest = dtype == GD_F64 ? -1074 : dtype == GD_F32 ? -149 : dtype == GD_F16 ? -24 : -133;
    int e;
    frexp(value, &e); /* 2^(e-1) <= value < 2^e */
    *exponent = e - bits > smallest ? e - bits : smallest;
    *mantissa = (uint64_t)ldexp(fabs(value), -*exponent);
    /* below a power of two the numbers are twice as dense */
    *uneven = *mantissa == UINT64_C(1) << (bits - 1) && *exponent > smallest;
}

static void round_up(gd_decimal *d) {
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
    take_apart(dtype, value, &mantissa, &exponent, &uneven);
    bool even = mantissa % 2 == 0; /* half gaps then belong to the number: ties go to even */

    whole r = whole_of(mantissa), s = whole_of(1), below = whole_of(1);
    shift_left(&r, (exponent > 0 ? exponent : 0) + 1 + uneven);
    shift_left(&s, (exponent < 0 ? -exponent : 0) + 1 + uneven);
    shift_left(&below, exponent > 0 ? exponent : 0);
    whole above = below;
    shift_left(&above, uneven);

    /* Scale so that r / s is in [0.1, 1): the estimate is right or one too small. */
    d.point = (int)ceil(log10(fabs(value)) - 1e-9);
    multiply_power(&s, 10, d.point);
    multiply_power(&r, 10, -d.point);
    multiply_power(&above, 10, -d.point);
    multiply_power(&below, 10, -d.point);
    if (compare(&r, &s) >= 0) {
        multiply(&s, 10);
        d.point++;
    }

    int shift = scientific ? 1 : d.point; /* place of the first digit: 1 - shift */
    if (1 - shift > most) {               /* less than one of the last place: that, or nothing */
        multiply(&r, 2);
        bool one = 1 - shift == most + 1 && compare(&r, &s) > 0;
        return (gd_decimal){.digits = {one ? '1' : '0'}, .count = 1, .point = one ? 1 - most : 1};
    }
    bool low, high;
    int digit;
    for (d.count = 0;;) {
        multiply(&r, 10);
        multiply(&above, 10);
        multiply(&below, 10);
        digit = divide(&r, &s);
        d.digits[d.count++] = (char)('0' + digit);
        int to_below = compare(&r, &below);
        whole top = sum(&r, &above);
        int to_above = compare(&top, &s);
        low = even ? to_below <= 0 : to_below < 0;
        high = even ? to_above >= 0 : to_above > 0;
        int place = d.count - shift;
        if ((low || high) && place >= least) break;
        if (place >= most || d.count >= GD_DECIMAL_DIGITS - 1) break;
    }
    if (low == high) { /* both ways are right, or the digits are cut off: to the nearer one */
        multiply(&r, 2);
        int half = compare(&r, &s);
        high = half > 0 || (half == 0 && digit % 2 == 1);
    }
    if (high) round_up(&d);
    while (d.count > 1 && d.digits[d.count - 1] == '0') d.count--;
    return d;
}

gd_decimal gd_decimal_shortest(gd_dtype dtype, double value) {
    return gd_decimal_of(dtype, value, true, -1, GD_DECIMAL_DIGITS);
}
