/* npy.h - reads and writes the header of NumPy's .npy files (versions 1.0, 2.0 and 3.0).
 *
 * The items follow the header as in memory. The caller reads data_bytes bytes from data_offset on,
 * calls gd_npy_swap() if `swapped` is set, and transposes if `fortran` is set.
 *
 * NumPy itself has no bfloat16. Other libraries (ml_dtypes, JAX) save such arrays as '<V2', two
 * bytes of unknown meaning, so here V2 is bfloat16, both for reading and for writing.
 * In Python: np.load(path).view(ml_dtypes.bfloat16).
 */
#ifndef GRADUS_FORMAT_NPY_H
#define GRADUS_FORMAT_NPY_H

#include "gradus/status.h"
#include "format/file.h"

typedef enum gd_npy_kind {
    GD_NPY_FLOAT,  /* 'f' of 2, 4, 8 bytes */
    GD_NPY_INT,    /* 'i' of 1, 2, 4, 8 */
    GD_NPY_UINT,   /* 'u' of 1, 2, 4, 8 */
    GD_NPY_BOOL,   /* 'b' of 1 */
    GD_NPY_BFLOAT, /* 'V' of 2 */
} gd_npy_kind;

enum {
    GD_NPY_MAX_RANK = 32,    /* NumPy's limit before version 2, which allows 64 */
    GD_NPY_MAX_HEADER = 1024 /* bytes that gd_npy_make_header() writes at most */
};

typedef struct gd_npy_header {
    gd_npy_kind kind;
    int itemsize;
    bool swapped; /* items have the other byte order than this machine */
    bool fortran; /* column-major: the first index varies fastest; else row-major */
    int rank;
    int64_t dims[GD_NPY_MAX_RANK];
    uint64_t data_offset; /* from the beginning of the file */
    uint64_t data_bytes;  /* of all items; checked against the size of the source */
} gd_npy_header;

/* Reads the next `bytes` bytes of a source: a file, or an entry of a .npz. */
typedef gd_status (*gd_npy_read_fn)(void *source, void *buffer, size_t bytes);

/* Reads the header and leaves the source at the first item. `name` is for messages; `total_bytes`
 * is the length of the source, and bounds the sizes in the header. GD_E_FORMAT: not a .npy
 * file; GD_E_UNSUPPORTED: a rank or items (structures, strings, Python objects, complex numbers)
 * that no tensor can have. */
gd_status gd_npy_read_header(gd_npy_header *out, const char *name, uint64_t total_bytes,
                             gd_npy_read_fn read, void *source);

/* The same for a file. */
gd_status gd_npy_read_file_header(gd_npy_header *out, const gd_file_reader *file);

/* Builds the bytes before the items, padded so that the items are aligned to 64 bytes.
 * Sets data_offset and data_bytes. GD_E_ARGUMENT: an invalid kind, size, rank or dimension;
 * GD_E_OVERFLOW: too many bytes. */
gd_status gd_npy_make_header(gd_npy_header *header, uint8_t out[GD_NPY_MAX_HEADER], size_t *bytes);

/* Reverses the bytes of each item in place. */
void gd_npy_swap(void *items, size_t count, int itemsize);

#endif
