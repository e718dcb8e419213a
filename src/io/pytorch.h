/* pytorch.h - files of PyTorch: what the parts of the reader share.
 *
 *     pytorch_format.c   the forms of files: ZIP archives, the older pickles one after the other
 *     pytorch_walk.c     the objects in the pickle as a list of names
 *     pytorch_tensor.c   a call of a function that makes a tensor, as storage, shape and strides
 *     pytorch_numpy.c    arrays and scalars of NumPy
 *     pytorch_read.c     elements
 */
#ifndef GRADUS_IO_PYTORCH_H
#define GRADUS_IO_PYTORCH_H

#include "core/name_map.h"
#include "format/pickle.h"
#include "io/state_format.h"

/* A dtype of PyTorch, with the name of the class of its storages. */
typedef struct gd_torch_dtype {
    const char *name, *storage; /* "float32", "FloatStorage"; storage is NULL: untyped ones only */
    int size;
    gd_dtype dtype; /* GD_DTYPE_NONE: not supported */
} gd_torch_dtype;

/* Bytes of the file, which tensors view. */
typedef struct gd_torch_storage {
    const gd_torch_dtype *dtype; /* NULL: untyped bytes */
    uint64_t begin, bytes;       /* in the file, once found */
    bool found;
    char *key;
} gd_torch_storage;

typedef struct gd_torch {
    gd_state_list *list;
    gd_pickle pickle;   /* of the object */
    uint8_t *text;      /* the bytes of pickles */
    bool is_big_endian; /* the elements in the file */
    gd_name_map storages, entries;
    char *folder; /* of the archive, with its '/'; NULL: the older form */
    const struct gd_torch_tensor *kept;
    void *elements; /* of the kept tensor, from its first to its last one */
} gd_torch;

typedef struct gd_torch_tensor {
    gd_torch *of;
    gd_dtype dtype;          /* GD_DTYPE_NONE: not supported */
    const char *dtype_name;  /* "float32", "complex64", "a sparse tensor" */
    int rank;                /* -1: unknown */
    int size;                /* of an element */
    int64_t *dims, *strides; /* in elements */
    const uint8_t *bytes;    /* the first element, in the pickle; NULL: in the file */
    uint64_t begin;          /* the first element in the file */
    uint64_t extent;         /* bytes from there to the end of the last element */
    bool is_row_major, is_swapped;
} gd_torch_tensor;

gd_status gd_torch_no_memory(const gd_torch *t);

/* --- pytorch_tensor.c ------------------------------------------------------------------------- */

const gd_torch_dtype *gd_torch_dtype_named(gd_pickle_text name);
const gd_torch_dtype *gd_torch_dtype_of_storage(gd_pickle_text name);

/* The storage of a persistent id; NULL: it is none. */
gd_status gd_torch_storage_of(gd_torch *t, const gd_pickle_value *v, gd_torch_storage **out);

/* What stands inside wrappers without a meaning here, such as parameters. */
gd_pickle_value *gd_torch_unwrap(gd_pickle_value *v);

/* The function that an object is a call of, and its arguments; NULL: it is none. */
const gd_pickle_value *gd_torch_call(const gd_pickle_value *v, const gd_pickle_value **arguments);

/* An integer, or an index of a call's arguments that is NULL if it has fewer. */
bool gd_torch_integer(const gd_pickle_value *v, int64_t *integer);
gd_pickle_value *gd_torch_argument(const gd_pickle_value *arguments, size_t i);

/* Whether a value is a tensor: then *out is it, otherwise NULL. Fails if it is a damaged one; `name`
 * is for messages. */
gd_status gd_torch_tensor_of(gd_torch *t, const gd_pickle_value *v, const char *name,
                             gd_torch_tensor **out);

/* Sets dims and strides, and checks that all elements are in these bytes, counted from `offset`
 * elements on. NULL strides: row-major, or column-major. */
gd_status gd_torch_set_shape(gd_torch_tensor *tensor, const char *name, const gd_pickle_value *dims,
                             const gd_pickle_value *strides, bool is_fortran, int64_t offset,
                             uint64_t bytes);

/* --- pytorch_numpy.c -------------------------------------------------------------------------- */

gd_status gd_torch_array_of(gd_torch *t, const gd_pickle_value *v, const char *name,
                            gd_torch_tensor **out);

/* A scalar as text from the pickle's memory; *out is NULL if it is none. */
gd_status gd_torch_scalar_of(gd_torch *t, const gd_pickle_value *v, const char **out);

/* --- pytorch_walk.c and pytorch_read.c -------------------------------------------------------- */

/* Lists all tensors and values below the root of the pickle. */
gd_status gd_torch_walk(gd_torch *t);

gd_status gd_torch_read(const void *tensor, uint64_t begin, void *to, size_t bytes);

/* Finds the bytes of a storage of an archive. */
gd_status gd_torch_find_storage(gd_torch *t, gd_torch_storage *s);

#endif
