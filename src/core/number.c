/* number.c - see number.h. */
#define _GNU_SOURCE 1
#include "format/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The C locale is static data in the C library: newlocale() just finds it. */
static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

int gd_double_print(char text[GD_DOUBLE_TEXT], double value) {
    locale_t c = c_locale();
    locale_t before = c ? uselocale(c) : (locale_t)0;
    /* Numbers of up to DBL_DIG digits survive the way to double and back. So where DBL_DIG digits
     * (without trailing zeros, which %g drops) read back, no shorter text does. Subnormal numbers
     * have less precision than that: there, count up. */
    int digits = fabs(value) >= DBL_MIN ? DBL_DIG : 1;
    int length;
    do {
        length = snprintf(text, GD_DOUBLE_TEXT, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && ++digits <= DBL_DECIMAL_DIG);
    if (c) {
        uselocale(before);
        freelocale(c);
    }
    return length;
}

double gd_float_shortest(float value) {
    locale_t c = c_locale();
    locale_t before = c ? uselocale(c) : (locale_t)0;
    double shortest = (double)value;
    for (int digits = isfinite(value) ? 1 : FLT_DECIMAL_DIG + 1; digits <= FLT_DECIMAL_DIG;
         digits++) {
        char text[GD_DOUBLE_TEXT];
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        const double rounded = strtod(text, NULL);
        if ((float)rounded != value) continue;
        shortest = rounded;
        break;
    }
    if (c) {
        uselocale(before);
        freelocale(c);
    }
    return shortest;
}

double gd_double_parse(const char *text, char **end) {
    locale_t c = c_locale();
    if (!c) return strtod(text, end);
    double value = strtod_l(text, end, c);
    freelocale(c);
    return value;
}
