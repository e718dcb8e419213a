/* hdf5_rows.h - the rows of HDF5 files that a text lists, as Caffe's HDF5Data reads them.
 *
 * Each file has datasets of the same names, with one row for each sample along their first axis.
 * Rows are numbered through all files. They are read as f32; those of up to GD_CAFFE_ROWS_HELD
 * bytes together are held in memory. */
#ifndef GRADUS_CAFFE_HDF5_ROWS_H
#define GRADUS_CAFFE_HDF5_ROWS_H

#include "gradus/tensor.h"

enum { GD_CAFFE_ROWS_HELD = 1 << 30 };

typedef struct gd_caffe_rows {
    int n_files, n_names;
    char **paths;     /* of the files */
    int64_t *ends;    /* of each file: the number of rows in it and in those before */
    char **names;     /* of the datasets */
    gd_shape *shapes; /* of a row of each dataset */
    float **held;     /* all rows of each dataset; NULL: they are read when they are needed */
} gd_caffe_rows;

/* `path` is a text with the paths of the files, separated by spaces or line ends, which are looked
 * for from there (read.h); or a single HDF5 file. Fails if a file has not all `names`, if they have
 * different numbers of rows, or other shapes than in the first file. */
gd_status gd_caffe_rows_open(gd_caffe_rows *rows, const char *path, const char *const *names,
                             int count);
void gd_caffe_rows_close(gd_caffe_rows *rows); /* {0} is fine */

int64_t gd_caffe_rows_count(const gd_caffe_rows *rows);

/* Copies `count` rows of dataset number `name`, all of file number `file`, of which `first` is the
 * first one's number through all files. Thread-safe. */
gd_status gd_caffe_rows_read(const gd_caffe_rows *rows, int name, int file, int64_t first,
                             int64_t count, float *to);

#endif
