/* picture.h - images as Caffe has them: BGR, 0 to 255; from files, and from the records of
 * databases (Datum). */
#ifndef GRADUS_CAFFE_PICTURE_H
#define GRADUS_CAFFE_PICTURE_H

#include "format/image.h"
#include "format/protobuf.h"

/* Element (c, y, x) is bytes[first + c * step[0] + y * step[1] + x * step[2]], or in floats. */
typedef struct gd_caffe_picture {
    int channels, height, width;
    int64_t label;
    const uint8_t *bytes; /* or NULL */
    const float *floats;  /* or NULL */
    int64_t first, step[3];
    gd_bitmap image; /* the decoded pixels, owned */
    gd_pb_doc *doc;  /* the record, owned */
} gd_caffe_picture;

/* Colours of decoded images: as in the file (with alpha), 3 channels, or 1. */
typedef enum gd_caffe_colours {
    GD_CAFFE_AS_STORED,
    GD_CAFFE_COLOUR,
    GD_CAFFE_GREY
} gd_caffe_colours;

/* Reads a Datum; an encoded one is decoded. The bytes of others are not copied, so `data` must
 * outlive the picture. Fails if the number of its values is not channels * height * width. Messages
 * call it `name`. */
gd_status gd_caffe_datum_read(gd_caffe_picture *picture, const char *name, const void *data,
                              size_t bytes, gd_caffe_colours colours);

/* The label of a Datum alone. */
gd_status gd_caffe_datum_label(int64_t *label, const char *name, const void *data, size_t bytes);

/* Reads an image file and, unless both are 0, resizes it to height and width. */
gd_status gd_caffe_picture_read(gd_caffe_picture *picture, const char *path, int height, int width,
                                gd_caffe_colours colours);

void gd_caffe_picture_free(gd_caffe_picture *picture); /* {0} is fine */

/* Copies the pixels of a picture of bytes as planes (channels, height, width). */
void gd_caffe_picture_planes(const gd_caffe_picture *picture, uint8_t *to);

/* Resizes by bilinear interpolation of the four nearest pixels, without antialiasing, with the
 * rounding of OpenCV's resize (weights of 11 bits), which Caffe calls. */
gd_status gd_caffe_resize(gd_bitmap *image, const char *name, int height, int width);

#endif
