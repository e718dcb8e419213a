/* digits.h - the shapes of digits as pens draw them. */
#ifndef GRADUS_DATA_DIGITS_H
#define GRADUS_DATA_DIGITS_H

#include <stdint.h>

/* A point that a pen goes through, in hundredths of the digit's box, y down. */
typedef enum gd_pen {
    GD_PEN_CURVE,  /* smoothly */
    GD_PEN_CORNER, /* and changes its direction */
    GD_PEN_DOWN,   /* here it starts a stroke */
} gd_pen;
typedef struct gd_pen_point {
    int8_t x, y, kind;
} gd_pen_point;

/* One way to write a digit. */
typedef struct gd_digit_style {
    const gd_pen_point *points;
    int8_t count;
    int8_t weight; /* how often, compared to the digit's other styles */
} gd_digit_style;

enum { GD_DIGIT_STYLES = 12, GD_DIGIT_POINTS = 32 };
extern const gd_digit_style gd_digit_styles[10][GD_DIGIT_STYLES];

#endif
