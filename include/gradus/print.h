/* print.h - a tensor as text, as NumPy would show it.
 *
 *     gd_print(x);                                  // [[ 1.   0.5]
 *                                                   //  [-2.   nan]]
 *     gd_print(x, .precision = 3, .describe = true);
 *
 * Columns are aligned. Floats have the fewest digits that identify them, up to the precision, and
 * an exponent if the largest and the smallest differ much. Of more than 1000 elements only the
 * corners are shown. The text is the same in every locale.
 *
 * Printing waits for the tensor's device. An error tensor is printed as its message in angle
 * brackets, a symbol as its shape.
 */
#ifndef GRADUS_PRINT_H
#define GRADUS_PRINT_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include <stdio.h>

#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_print_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int precision GD_DEFAULT_(8);     /* digits after the decimal point, 0 to 20 */
    int threshold GD_DEFAULT_(1000);  /* larger tensors are abbreviated */
    int edge_items GD_DEFAULT_(3);    /* elements shown at each end of an abbreviated dimension */
    int line_width GD_DEFAULT_(75);   /* longer lines are wrapped */
    bool describe GD_DEFAULT_(false); /* adds a line with dtype and shape: f32[2,2] */
} GD_GIVEN_BY_NAME_ gd_print_options;

#define GD_PRINT_OPTIONS_(...)                                                          \
    GD_OPTIONS_(gd_print_options,                                                       \
                (.precision = 8, .threshold = 1000, .edge_items = 3, .line_width = 75), \
                __VA_ARGS__)

/* Prints to the standard output, with a line break at the end. */
#define gd_print(t, ...) GD_WITH_OPTIONS_(gd_fprint_with(stdout, t, GD_PRINT_OPTIONS_(__VA_ARGS__)))
/* Prints to a stream. Fails with GD_E_IO if it cannot be written. */
#define gd_fprint(stream, t, ...) \
    GD_WITH_OPTIONS_(gd_fprint_with(stream, t, GD_PRINT_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_fprint_with(FILE *stream, const gd_tensor *t, const gd_print_options *options);

/* Writes the text into a buffer, without a line break at the end. Like snprintf, it truncates the
 * text to the buffer, ends it with a zero byte (for size > 0) and returns the untruncated length.
 * */
#define gd_to_text(t, buffer, size, ...) \
    GD_WITH_OPTIONS_(gd_to_text_with(t, buffer, size, GD_PRINT_OPTIONS_(__VA_ARGS__)))
GD_API size_t gd_to_text_with(const gd_tensor *t, char *buffer, size_t size,
                              const gd_print_options *options);

#ifdef __cplusplus
}
#endif
#endif
