/* decimal.h - the decimal digits of a binary float, exactly.
 *
 * Printing as NumPy does needs the fewest digits that tell a number from its neighbours of the same
 * type (0.1 and not 0.100000001 for an f32), cut off and rounded at a given place. The C library
 * knows doubles only, and writes them as the program's locale says.
 */
#ifndef GRADUS_CORE_DECIMAL_H
#define GRADUS_CORE_DECIMAL_H

#include "gradus/dtype.h"

enum { GD_DECIMAL_DIGITS = 48 };

/* 0.d1 d2 d3 ... times ten to the `point`: digits "15", point 1 are 1.5. There are no zeros at the
 * end; zero is "0", point 1. */
typedef struct gd_decimal {
    char digits[GD_DECIMAL_DIGITS];
    int count;
    int point;
} gd_decimal;

/* Places are counted from the decimal point: place 2 is that of hundredths; or, with `scientific`,
 * from the first digit. Digits end when they are enough, not before place `least` and never after
 * place `most` (at most 20). value is finite, of one of the float dtypes; its sign is not looked
 * at. */
gd_decimal gd_decimal_of(gd_dtype dtype, double value, bool scientific, int least, int most);

/* The same without a limit. */
gd_decimal gd_decimal_shortest(gd_dtype dtype, double value);

#endif
