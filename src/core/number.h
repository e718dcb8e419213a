/* number.h - floating-point numbers as text, the same in every locale. */
#ifndef GRADUS_FORMAT_NUMBER_H
#define GRADUS_FORMAT_NUMBER_H

enum { GD_DOUBLE_TEXT = 32 };

/* Prints a finite number with the fewest digits that read back as the same number: "0.1", "1e+30",
 * "-0". Returns the length. (The C library's own conversions follow the program's locale, where
 * the decimal point may be a comma.) */
int gd_double_print(char text[GD_DOUBLE_TEXT], double value);

/* The double with the fewest decimal digits among those that round to this float: 0.1 for 0.1f,
 * where (double)0.1f is 0.10000000149011612. */
double gd_float_shortest(float value);

/* strtod() with a decimal point. */
double gd_double_parse(const char *text, char **end);

#endif
