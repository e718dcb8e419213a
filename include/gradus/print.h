/* print.h - a tensor as text, as NumPy would show it.
 *
 *     gd_print(x);                                  // [[ 1.   0.5]
 *                                                   //  [-2.   nan]]
 *     gd_print(x, .precision = 3, .describe = true);
 *
 * Columns are aligned; floats have the fewest digits that tell them from their neighbours, up to
 * the precision, and an exponent where the largest and the smallest are far apart; of more than
 * 1000 elements only the corners are shown. The same text in every locale.
 *
 * Printing waits for the tensor's device. A failed tensor shows its message in angle brackets, a
 * symbol its shape.
 */
#ifndef GRADUS_PRINT_H
#define GRADUS_PRINT_H

#include <stdio.h>

#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_print_options {
    int precision GD_DEFAULT_(8);     /* digits behind the point, 0 to 20 */
    int threshold GD_DEFAULT_(1000);  /* more elements than this are not all shown */
    int edge_items GD_DEFAULT_(3);    /* then: so many at each end of each dimension */
    int line_width GD_DEFAULT_(75);   /* longer lines are wrapped */
    bool describe GD_DEFAULT_(false); /* a line with dtype and shape below: f32[2,2] */
} gd_print_options;

#define GD_PRINT_OPTIONS_(...)                                                         \
    GD_OPTIONS_(gd_print_options, (.precision = 8, .threshold = 1000, .edge_items = 3, \
                                   .line_width = 75) __VA_OPT__(, ) __VA_ARGS__)

/* To the standard output, with a line break at the end. */
#define gd_print(t, ...) GD_WITH_OPTIONS_(gd_fprint_with(stdout, t, GD_PRINT_OPTIONS_(__VA_ARGS__)))
/* To a stream. GD_E_IO: it could not be written. */
#define gd_fprint(stream, t, ...) \
    GD_WITH_OPTIONS_(gd_fprint_with(stream, t, GD_PRINT_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_fprint_with(FILE *stream, const gd_tensor *t, const gd_print_options *options);

/* Into a buffer, without a line break at the end; what does not fit is cut off, and there is always
 * a zero byte at the end (for size > 0). Returns the length of the whole text, like snprintf. */
#define gd_to_text(t, buffer, size, ...) \
    GD_WITH_OPTIONS_(gd_to_text_with(t, buffer, size, GD_PRINT_OPTIONS_(__VA_ARGS__)))
GD_API size_t gd_to_text_with(const gd_tensor *t, char *buffer, size_t size,
                              const gd_print_options *options);

#ifdef __cplusplus
}
#endif
#endif
