/* numpy.h - arrays in NumPy's format: shared by npy.c and npz.c. */
#ifndef GRADUS_IO_NUMPY_H
#define GRADUS_IO_NUMPY_H

#include "core/tensor.h"
#include "format/npy.h"
#include "format/stream.h"
#include "format/zip.h"
#include "gradus/npy.h"
#include "dispatch/op.h"

/* Where an array is read from: a file, or an entry of an archive. */
typedef struct gd_npy_source {
    const char *name;
    uint64_t bytes;       /* its length; of a gzip file, an upper bound */
    gd_stream *file;      /* or NULL */
    gd_zip_stream *entry; /* or NULL */
} gd_npy_source;

/* The dtype that can hold all values of a file. Values of uint64 are checked one by one. */
gd_dtype gd_npy_dtype(const gd_npy_header *h);

/* Read the header, and after it the elements: row-major, of this dtype. */
gd_status gd_npy_open(gd_npy_source *source, gd_npy_header *h);
gd_status gd_npy_read_elements(gd_npy_source *source, const gd_npy_header *h, void *elements);

/* Reads the array as a tensor of the caller's scope; the error tensor if that fails. */
gd_tensor *gd_npy_load_source(gd_npy_source *source);

/* Fails if a tensor has no value; `what` names it in the message. */
gd_status gd_npy_check_savable(const gd_tensor *t, const char *what);
/* Writes the header and the elements. */
gd_status gd_npy_save_to(const gd_tensor *t,
                         gd_status (*write)(void *target, const void *data, size_t bytes),
                         void *target);

#endif
