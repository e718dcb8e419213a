/* number.c - locale-independent numbers (number.h). */
#include "core/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

/* The thread's locale is the C locale between use_c_locale() and restore_locale(). The C locale is
 * static data in the C library, so newlocale() does not allocate. */
typedef struct c_locale {
    locale_t c, before;
} c_locale;

static c_locale use_c_locale(void) {
    c_locale l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (l.c) l.before = uselocale(l.c);
    return l;
}

static void restore_locale(c_locale l) {
    if (!l.c) return;
    uselocale(l.before);
    freelocale(l.c);
}

int gd_vsnprintf(char *text, size_t size, const char *format, va_list args) {
    const c_locale l = use_c_locale();
    const int length = vsnprintf(text, size, format, args);
    restore_locale(l);
    return length;
}

int gd_snprintf(char *text, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int length = gd_vsnprintf(text, size, format, args);
    va_end(args);
    return length;
}

int gd_vfprintf(FILE *out, const char *format, va_list args) {
    const c_locale l = use_c_locale();
    const int length = vfprintf(out, format, args);
    restore_locale(l);
    return length;
}

int gd_fprintf(FILE *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int length = gd_vfprintf(out, format, args);
    va_end(args);
    return length;
}

int gd_double_print(char text[GD_DOUBLE_TEXT], double value) {
    const c_locale l = use_c_locale();
    /* Decimal numbers of up to DBL_DIG digits survive the conversion to double and back. So if
     * DBL_DIG digits (without trailing zeros, which %g drops) parse to the value, no shorter text
     * does. Subnormal numbers have less precision, so there the number of digits is increased from
     * 1. */
    int digits = fabs(value) >= DBL_MIN ? DBL_DIG : 1;
    int length;
    do {
        length = snprintf(text, GD_DOUBLE_TEXT, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && ++digits <= DBL_DECIMAL_DIG);
    restore_locale(l);
    return length;
}

double gd_float_shortest(float value) {
    const c_locale l = use_c_locale();
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
    restore_locale(l);
    return shortest;
}

double gd_double_parse(const char *text, char **after) {
    const c_locale l = use_c_locale();
    const double value = strtod(text, after);
    restore_locale(l);
    return value;
}
