/* decimal.h - the exact decimal digits of a binary float.
 *
 * Printing as NumPy does needs the fewest digits that distinguish a number from its neighbours of
 * the same dtype (0.1 and not 0.100000001 for an f32), truncated and rounded at a given place. The
 * C library supports only doubles, and formats them according to the program's locale.
 */
#ifndef GRADUS_CORE_DECIMAL_H
#define GRADUS_CORE_DECIMAL_H

#include "gradus/dtype.h"

enum { GD_DECIMAL_DIGITS = 48 };

/* 0.d1d2d3... * 10^point: digits "15", point 1 are 1.5. There are no trailing zeros; zero is "0",
 * point 1. */
typedef struct gd_decimal {
    char digits[GD_DECIMAL_DIGITS];
    int count;
    int point;
} gd_decimal;

/* Places are counted from the decimal point (place 2 are hundredths) or, with `scientific`, from
 * the first digit. The digits end where they are unique, but not before place `least` and not after
 * place `most` (at most 20). value is finite and of a float dtype; its sign is ignored. */
gd_decimal gd_decimal_of(gd_dtype dtype, double value, bool scientific, int least, int most);

/* The shortest digits, without a limit of places. */
gd_decimal gd_decimal_shortest(gd_dtype dtype, double value);

#endif
