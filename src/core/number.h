/* number.h - parsing and printing of floats, independent of the locale.
 *
 * The C library's conversions follow the program's locale, where the decimal point may be a comma.
 * The library parses and prints floats only with these functions; a test
 * (tests/unit/tree/test_sources.c) finds other ways in the sources.
 */
#ifndef GRADUS_CORE_NUMBER_H
#define GRADUS_CORE_NUMBER_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "gradus/status.h"

/* strtod() in the C locale: correctly rounded, also hexadecimal, "inf" and "nan". */
double gd_double_parse(const char *text, char **end);

enum { GD_DOUBLE_TEXT = 32 };

/* Prints a finite number with the fewest digits that parse to the same number: "0.1", "1e+30",
 * "-0". Returns the length. */
int gd_double_print(char text[GD_DOUBLE_TEXT], double value);

/* The double with the fewest decimal digits among those that round to this float: 0.1 for 0.1f,
 * where (double)0.1f is 0.10000000149011612. */
double gd_float_shortest(float value);

/* For messages: a NaN without its sign, which a computation leaves and %g would print. */
static inline double gd_shown_number(double value) { return isnan(value) ? fabs(value) : value; }

/* The C library's functions in the C locale. Calls that print no floats may use the C library's. */
int gd_snprintf(char *text, size_t size, const char *format, ...) GD_PRINTF(3, 4);
int gd_vsnprintf(char *text, size_t size, const char *format, va_list args) GD_PRINTF(3, 0);
int gd_fprintf(FILE *out, const char *format, ...) GD_PRINTF(2, 3);
int gd_vfprintf(FILE *out, const char *format, va_list args) GD_PRINTF(2, 0);

#endif
