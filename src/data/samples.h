/* samples.h - helpers of datasets that read files: new tensors of a sample, and bytes as floats. */
#ifndef GRADUS_DATA_SAMPLES_H
#define GRADUS_DATA_SAMPLES_H

#include "data/dataset.h"

/* Adds a new tensor on the CPU to the sample; *data is its memory, to be filled. */
gd_status gd_sample_add(gd_sample *sample, gd_dtype dtype, int rank, const int64_t *dims,
                        void **data);

/* Adds classes of the samples `indices` of a batch: i64 (count); or for `indices` NULL the class of
 * one sample: i64 of rank 0, the first of `classes`. */
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

/* --- arrays of rows --------------------------------------------------------------------------- */

/* One tensor of each sample, as a row of an array that is in memory. */
typedef struct gd_row_program {
    const void *data; /* (count, dims...), row-major */
    size_t bytes;     /* of a row */
    gd_dtype dtype;   /* of the array */
    bool unit;        /* bytes that samples have as floats in [0, 1] */
    int rank;         /* of a sample, at most GD_MAX_RANK - 1 */
    int64_t dims[GD_MAX_RANK];
} gd_row_program;

/* Sample `index`, or a batch of samples. */
gd_status gd_rows_get(const gd_row_program *rows, int64_t index, gd_sample *sample);
gd_status gd_rows_gather(const gd_row_program *rows, const int64_t *indices, int64_t count,
                         gd_sample *batch);

#endif
