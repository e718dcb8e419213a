/* samples.h - helpers for datasets that read files: adding tensors to a sample, bytes as floats. */
#ifndef GRADUS_DATA_SAMPLES_H
#define GRADUS_DATA_SAMPLES_H

#include "data/dataset.h"

/* Adds a new tensor on the CPU to the sample; *data is its memory, to be filled. */
gd_status gd_sample_add(gd_sample *sample, gd_dtype dtype, int rank, const int64_t *dims,
                        void **data);

/* Adds classes[indices[i]] for a batch: i64 (count). With `indices` NULL: classes[0] for one
 * sample, i64 of rank 0. */
gd_status gd_sample_add_classes(gd_sample *sample, const int64_t *classes, const int64_t *indices,
                                int64_t count);

/* Bytes as floats in [0, 1]: b / 255. */
void gd_bytes_to_unit(float *to, const uint8_t *from, size_t count);

/* Pixels (plane, channels) as planes (channels, plane): bytes, or floats in [0, 1]. */
void gd_pixels_to_bytes(uint8_t *to, const uint8_t *from, size_t plane, size_t channels);
void gd_pixels_to_unit(float *to, const uint8_t *from, size_t plane, size_t channels);

/* Fails if a path is not given. */
gd_status gd_check_path(const char *path, const char *option);
/* "folder/name" from gd_malloc; NULL: no memory. */
char *gd_folder_join(const char *folder, const char *name);

/* --- samples as rows of an array -------------------------------------------------------------- */

/* An array in memory. Row i is a tensor of sample i. */
typedef struct gd_sample_array {
    const void *data; /* (count, dims...), row-major */
    size_t bytes;     /* of a row */
    gd_dtype dtype;   /* of the array */
    bool unit;        /* samples have the bytes as floats in [0, 1] */
    int rank;         /* of a sample, at most GD_MAX_RANK - 1 */
    int64_t dims[GD_MAX_RANK];
} gd_sample_array;

/* Adds the row of sample `index`, or those of a batch of samples. */
gd_status gd_sample_array_get(const gd_sample_array *array, int64_t index, gd_sample *sample);
gd_status gd_sample_array_gather(const gd_sample_array *array, const int64_t *indices,
                                 int64_t count, gd_sample *batch);

#endif
