/* listing.h - the files by which ImageData and convert-images list images: lines "path label",
 * where the label is an integer. */
#ifndef GRADUS_CAFFE_LISTING_H
#define GRADUS_CAFFE_LISTING_H

#include "format/image_list.h"

typedef struct gd_caffe_listing {
    gd_image_list list;
    int32_t *labels; /* of its lines */
} gd_caffe_listing;

/* Fails if a label is no integer, or if there are no lines. */
gd_status gd_caffe_listing_read(gd_caffe_listing *listing, const char *path);
void gd_caffe_listing_free(gd_caffe_listing *listing); /* {0} is fine */

#endif
