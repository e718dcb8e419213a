/* hdf5.h - reads and writes HDF5 files, as Caffe's HDF5 data and weights and Keras's .h5 need them.
 *
 * A file is a tree of groups with datasets (arrays) as leaves. Both can have attributes: small
 * named arrays.
 *
 * Read: superblocks 0 to 3; groups of both kinds, soft links inside the file; object headers of
 * both kinds; data that are compact, contiguous or chunked with any index, compressed by deflate,
 * with shuffle and fletcher32; numbers of 1 to 8 bytes in either byte order, also floats of other
 * formats, enumerations (h5py's bools); strings of fixed and of variable length; fill values.
 * All else, such as compound types, is listed, and reading it is GD_E_UNSUPPORTED with its name.
 *
 * Written: superblock 0, groups as symbol tables, contiguous data, attributes: what every version
 * of the HDF5 library reads.
 *
 * A damaged file is GD_E_FORMAT with the reason and the position. Sizes are checked before memory
 * is allocated.
 */
#ifndef GRADUS_FORMAT_HDF5_H
#define GRADUS_FORMAT_HDF5_H

#include "format/file.h"
#include "gradus/dtype.h"

enum { GD_HDF5_MAX_RANK = 32 }; /* the format's own limit */

/* --- what a file contains --------------------------------------------------------------------- */

typedef enum gd_hdf5_kind {
    GD_HDF5_INT,
    GD_HDF5_FLOAT,
    GD_HDF5_STRING,
    GD_HDF5_OTHER, /* cannot be read */
} gd_hdf5_kind;

/* The type of an element. */
typedef struct gd_hdf5_type {
    gd_hdf5_kind kind;
    gd_dtype dtype;  /* the closest dtype (u64 is i64); GD_DTYPE_NONE for strings and others */
    char name[24];   /* "u16", "string", "compound", for messages */
    uint32_t bytes;  /* of an element in the file */
    bool big_endian; /* numbers */
    bool is_signed;  /* integers */
    bool variable;   /* strings: elements refer to text elsewhere in the file */
    bool spaces;     /* strings of fixed length: padded with spaces, otherwise with zero bytes */
    bool implied;    /* floats: the first bit of the mantissa is not stored */
    uint8_t sign_at; /* floats: positions and lengths in bits */
    uint8_t exponent_at, exponent_bits, mantissa_at, mantissa_bits;
    uint32_t bias;        /* floats: of the exponent */
    uint16_t first, bits; /* integers: the bits that count */
} gd_hdf5_type;

/* An array's shape. Rank 0 has one element, unless it is empty. */
typedef struct gd_hdf5_shape {
    int rank;
    int64_t dims[GD_HDF5_MAX_RANK];
    int64_t count; /* of elements; times the bytes of an element it is below 2^63 */
    bool empty;    /* no elements and no dims (h5py.Empty) */
} gd_hdf5_shape;

typedef struct gd_hdf5_attribute {
    const char *name;
    gd_hdf5_type type;
    gd_hdf5_shape shape;
    const uint8_t *data; /* as in the file */
} gd_hdf5_attribute;

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct gd_hdf5 gd_hdf5;

/* The file is borrowed: it must outlive the reader. After this call nothing changes, so several
 * threads may use a reader and its objects. */
gd_status gd_hdf5_open(gd_hdf5 **out, const gd_file_reader *file);
void gd_hdf5_close(gd_hdf5 *file); /* NULL is fine; objects are closed before */

/* Whether the file begins like an HDF5 file (after up to 512 bytes of others, or 1024, ...). */
bool gd_hdf5_is(const gd_file_reader *file);

/* A group or a dataset. Groups list the names in them, sorted by their bytes. */
typedef struct gd_hdf5_object {
    const gd_hdf5 *file;
    const char *path; /* "/data/conv1/0"; the root is "/" */
    uint64_t address; /* the same for two names of one object, as loops in a file need it */
    bool is_group;    /* false: it is a dataset */
    size_t n_names;
    const char *const *names;
    gd_hdf5_type type; /* of a dataset */
    gd_hdf5_shape shape;
    size_t n_attributes;
    const gd_hdf5_attribute *attributes;
} gd_hdf5_object;

/* The group at "/". It belongs to the reader. */
const gd_hdf5_object *gd_hdf5_root(const gd_hdf5 *file);

/* Opens the object at a path such as "conv1/0", which starts at the group `from`, or with "/" at the
 * root. GD_E_ARGUMENT: there is none; the message lists what the group has. Each group on the way is
 * read: to open many objects of a large group, open it once and start from it. */
gd_status gd_hdf5_object_open(gd_hdf5_object **out, const gd_hdf5_object *from, const char *path);
void gd_hdf5_object_close(gd_hdf5_object *object); /* NULL is fine */

/* Whether a group has this name. */
bool gd_hdf5_has(const gd_hdf5_object *group, const char *name);

/* Reads `rows` rows of a dataset of numbers along axis 0, from row `first` on, as elements of
 * `dtype`: row-major, converted as gradus/dtype.h defines. A scalar is one row. */
gd_status gd_hdf5_read(const gd_hdf5_object *dataset, int64_t first, int64_t rows, gd_dtype dtype,
                       void *out);

/* GD_E_FORMAT if a dataset claims more bytes than its file can hold, even compressed: call it
 * before allocating memory for all of the dataset. */
gd_status gd_hdf5_check_size(const gd_hdf5_object *dataset);

/* The attribute of this name, or NULL. */
const gd_hdf5_attribute *gd_hdf5_find_attribute(const gd_hdf5_object *object, const char *name);

/* Reads all numbers of an attribute: `count` must be how many it has. */
gd_status gd_hdf5_read_attribute(const gd_hdf5_object *object, const char *name, gd_dtype dtype,
                                 int64_t count, void *out);

/* Strings that were read. Each ends with a zero byte. */
typedef struct gd_hdf5_strings {
    size_t count;
    const char **at;
    struct gd_hdf5_text *memory; /* of the texts */
} gd_hdf5_strings;

void gd_hdf5_strings_free(gd_hdf5_strings *strings); /* {0} is fine */

/* Reads all elements of a dataset of strings. */
gd_status gd_hdf5_read_strings(gd_hdf5_strings *out, const gd_hdf5_object *dataset);

/* Reads all strings of an attribute. If there is no attribute NAME, reads NAME0, NAME1, ... as one
 * list: Keras divides those that are too long so. */
gd_status gd_hdf5_read_attribute_strings(gd_hdf5_strings *out, const gd_hdf5_object *object,
                                         const char *name);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct gd_hdf5_writer gd_hdf5_writer;

/* The file appears at `path` with the commit: see gd_file_writer. */
gd_status gd_hdf5_writer_begin(gd_hdf5_writer **out, const char *path);

/* Adds a group; its parents, too, if they are missing. Groups may be added again. Paths are UTF-8
 * and begin with "/". */
gd_status gd_hdf5_writer_group(gd_hdf5_writer *writer, const char *path);

/* Begins a dataset (and ends the one before); its elements follow in any number of writes. Its
 * group is added if it is missing. No bf16: HDF5 has no such type. */
gd_status gd_hdf5_writer_dataset(gd_hdf5_writer *writer, const char *path, gd_dtype dtype, int rank,
                                 const int64_t *dims);
gd_status gd_hdf5_writer_write(gd_hdf5_writer *writer, const void *data, size_t bytes);

/* Adds a dataset that is one text, with the zero byte behind it. */
gd_status gd_hdf5_writer_string(gd_hdf5_writer *writer, const char *path, const char *text);

/* Adds an attribute to the group or dataset at `path`: numbers (rank 0: one), a text, a list of
 * texts. Texts may be of any length; all else in an attribute has at most 64,000 bytes. */
gd_status gd_hdf5_writer_attribute(gd_hdf5_writer *writer, const char *path, const char *name,
                                   gd_dtype dtype, int rank, const int64_t *dims, const void *data);
gd_status gd_hdf5_writer_text(gd_hdf5_writer *writer, const char *path, const char *name,
                              const char *text);
gd_status gd_hdf5_writer_texts(gd_hdf5_writer *writer, const char *path, const char *name,
                               const char *const *texts, size_t count);

/* Both free the writer, also if the commit fails. After a failure of any of the calls above, the
 * commit fails with the same status. */
gd_status gd_hdf5_writer_commit(gd_hdf5_writer *writer);
void gd_hdf5_writer_cancel(gd_hdf5_writer *writer); /* NULL is fine */

#endif
