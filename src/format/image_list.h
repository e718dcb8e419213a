/* image_list.h - text files that list images and their labels, as in Caffe:
 *
 *     cats/1.jpg 0
 *     my dogs/2.jpg 1
 *
 * The label is the last word of a line: a number or a name. Blank lines are skipped.
 */
#ifndef GRADUS_FORMAT_IMAGE_LIST_H
#define GRADUS_FORMAT_IMAGE_LIST_H

#include "format/stream.h"

typedef struct gd_image_line {
    const char *path, *label;
    int64_t line; /* from 1 */
} gd_image_line;

typedef struct gd_image_list {
    gd_image_line *lines; /* their texts are in `text` */
    int64_t count;
    bool numbers; /* all labels are integers from 0 to 2^31 - 1 */
    char *text;
} gd_image_list;

gd_status gd_image_list_read(gd_image_list *list, gd_stream *stream);
void gd_image_list_free(gd_image_list *list); /* {0} is fine */

#endif
