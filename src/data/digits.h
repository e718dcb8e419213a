/* digits.h - the shapes of digits: strokes of a pen through points. */
#ifndef GRADUS_DATA_DIGITS_H
#define GRADUS_DATA_DIGITS_H

#include <stdint.h>

/* A point of a stroke, in hundredths of the box of the digit; y points down. */
typedef enum gd_pen {
    GD_PEN_CURVE,  /* a smooth point */
    GD_PEN_CORNER, /* the direction changes abruptly */
    GD_PEN_DOWN,   /* the first point of a stroke */
} gd_pen;
typedef struct gd_pen_point {
    int8_t x, y, kind;
} gd_pen_point;

/* One way to write a digit. */
typedef struct gd_digit_style {
    const gd_pen_point *points;
    int8_t count;
    int8_t weight; /* relative frequency among the styles of the digit */
} gd_digit_style;

enum { GD_DIGIT_STYLES = 12, GD_DIGIT_POINTS = 32 };
extern const gd_digit_style gd_digit_styles[10][GD_DIGIT_STYLES];

#endif
