/* window_list.h - the files by which WindowData lists windows (boxes) in images:
 *
 *     # 0
 *     images/a.jpg
 *     3 375 500            channels, height, width
 *     2                    windows
 *     7 0.9 10 20 110 220  class, overlap with an object, x1, y1, x2, y2
 *     0 0.1 0 0 50 50
 *     # 1
 *     ...
 */
#ifndef GRADUS_CAFFE_WINDOW_LIST_H
#define GRADUS_CAFFE_WINDOW_LIST_H

#include "format/stream.h"

typedef struct gd_caffe_window {
    int image;          /* in `paths` */
    int32_t label;      /* 0: background */
    int x1, y1, x2, y2; /* the corners, which belong to the window */
} gd_caffe_window;

/* Windows of one kind. */
typedef struct gd_caffe_window_set {
    gd_caffe_window *at;
    int64_t count, room;
} gd_caffe_window_set;

typedef struct gd_caffe_window_list {
    char *text;
    const char **paths; /* of the images, in the text */
    int n_images;
    gd_caffe_window_set object, background;
} gd_caffe_window_list;

/* A window belongs to an object if it overlaps it by at least `object_from`, and is background if
 * its overlap is less than `background_below`. */
gd_status gd_caffe_window_list_read(gd_caffe_window_list *list, gd_stream *stream,
                                    double object_from, double background_below);
void gd_caffe_window_list_free(gd_caffe_window_list *list); /* {0} is fine */

#endif
