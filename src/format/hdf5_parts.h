/* hdf5_parts.h - the stages of the HDF5 reader, shared by the files hdf5_*.c.
 *
 *     hdf5.c              the superblock, paths, objects
 *     hdf5_bytes.c        blocks of a file, checksums
 *     hdf5_header.c       an object header: a list of messages
 *     hdf5_type.c         messages: types and shapes
 *     hdf5_group.c        the names in a group
 *     hdf5_attribute.c    attributes
 *     hdf5_tree.c         B-trees of version 2
 *     hdf5_heap.c         fractal heaps, which hold links and attributes of large objects
 *     hdf5_layout.c       messages: how the elements of a dataset are stored
 *     hdf5_chunks.c       the chunks of a dataset: B-trees and a single chunk
 *     hdf5_arrays.c       the chunks of a dataset: implicit, fixed and extensible arrays
 *     hdf5_filter.c       what is undone when a chunk is read
 *     hdf5_read.c         rows of a dataset
 *     hdf5_convert.c      numbers of the file as elements of a dtype
 *     hdf5_strings.c      strings, and the global heap, which holds those of variable length
 *
 * Damaged files: every block is read by gd_hdf5_load, which charges its bytes to a walk. Blocks of
 * a valid file do not overlap, so a walk that reads more than the file has is running in a circle.
 * That bounds time and memory of all walks.
 */
#ifndef GRADUS_FORMAT_HDF5_PARTS_H
#define GRADUS_FORMAT_HDF5_PARTS_H

#include "format/hdf5.h"

/* An address that means "nowhere": all bits of the field are 1. */
#define GD_HDF5_NOWHERE UINT64_MAX

struct gd_hdf5 {
    const gd_file_reader *file;
    uint64_t base, size;            /* addresses count from the base; there are so many */
    int offset_bytes, length_bytes; /* of addresses and lengths in this file */
    uint64_t root_address;
    struct gd_hdf5_object *root;
};

/* --- blocks ----------------------------------------------------------------------------------- */

typedef struct gd_hdf5_walk {
    const gd_hdf5 *file;
    uint64_t left; /* bytes that it may still read */
} gd_hdf5_walk;

gd_hdf5_walk gd_hdf5_walk_begin(const gd_hdf5 *file);

/* Charges bytes to a walk. */
gd_status gd_hdf5_spend(gd_hdf5_walk *walk, uint64_t address, uint64_t bytes);

/* Reads a block, from gd_malloc. */
gd_status gd_hdf5_load(gd_hdf5_walk *walk, uint64_t address, uint64_t bytes, uint8_t **out);

/* Reads a block that begins with a signature and a version, and ends with a checksum. */
gd_status gd_hdf5_load_checked(gd_hdf5_walk *walk, uint64_t address, uint64_t bytes,
                               const char *signature, uint8_t **out);

/* Fails unless a block has its checksum in the last 4 of its bytes. */
gd_status gd_hdf5_verify(const gd_hdf5 *file, uint64_t address, const uint8_t *block, size_t bytes);

/* Tests set it, because hardly a damaged block has its checksum. */
extern bool gd_hdf5_ignores_checksums;

uint32_t gd_hdf5_checksum(const void *data, size_t bytes);   /* of metadata */
uint32_t gd_hdf5_fletcher32(const void *data, size_t bytes); /* of chunks */

gd_status gd_hdf5_fail_at(const gd_hdf5 *file, uint64_t address, const char *what);
gd_status gd_hdf5_no_memory(const gd_hdf5 *file);

/* Reads numbers from a block, one after the other. Beyond the end they are 0, and `ended` is
 * set. */
typedef struct gd_hdf5_cursor {
    const uint8_t *at, *end;
    const gd_hdf5 *file;
    bool ended;
} gd_hdf5_cursor;

static inline gd_hdf5_cursor gd_hdf5_cursor_of(const gd_hdf5 *file, const uint8_t *at,
                                               size_t bytes) {
    return (gd_hdf5_cursor){at, at + bytes, file, false};
}

static inline size_t gd_hdf5_left(const gd_hdf5_cursor *c) { return (size_t)(c->end - c->at); }

/* The next bytes, or NULL. */
static inline const uint8_t *gd_hdf5_take_bytes(gd_hdf5_cursor *c, uint64_t bytes) {
    if (bytes > gd_hdf5_left(c)) {
        c->ended = true;
        c->at = c->end;
        return NULL;
    }
    c->at += bytes;
    return c->at - bytes;
}

/* A number of 1 to 8 bytes. */
static inline uint64_t gd_hdf5_take(gd_hdf5_cursor *c, int bytes) {
    const uint8_t *p = gd_hdf5_take_bytes(c, (uint64_t)bytes);
    uint64_t value = 0;
    for (int i = bytes; p && i-- > 0;) value = value << 8 | p[i];
    return value;
}

static inline uint64_t gd_hdf5_take_length(gd_hdf5_cursor *c) {
    return gd_hdf5_take(c, c->file->length_bytes);
}

static inline uint64_t gd_hdf5_take_address(gd_hdf5_cursor *c) {
    const int bytes = c->file->offset_bytes;
    const uint64_t address = gd_hdf5_take(c, bytes);
    return address == UINT64_MAX >> (64 - 8 * bytes) ? GD_HDF5_NOWHERE : address;
}

/* The bytes of a number up to `most`. */
static inline int gd_hdf5_width_of(uint64_t most) {
    int bytes = 1;
    while (bytes < 8 && most >> (8 * bytes)) bytes++;
    return bytes;
}

/* --- messages --------------------------------------------------------------------------------- */

enum {
    GD_HDF5_MESSAGE_SPACE = 0x01,
    GD_HDF5_MESSAGE_LINK_INFO = 0x02,
    GD_HDF5_MESSAGE_TYPE = 0x03,
    GD_HDF5_MESSAGE_OLD_FILL = 0x04,
    GD_HDF5_MESSAGE_FILL = 0x05,
    GD_HDF5_MESSAGE_LINK = 0x06,
    GD_HDF5_MESSAGE_EXTERNAL = 0x07,
    GD_HDF5_MESSAGE_LAYOUT = 0x08,
    GD_HDF5_MESSAGE_GROUP_INFO = 0x0A,
    GD_HDF5_MESSAGE_FILTERS = 0x0B,
    GD_HDF5_MESSAGE_ATTRIBUTE = 0x0C,
    GD_HDF5_MESSAGE_CONTINUATION = 0x10,
    GD_HDF5_MESSAGE_SYMBOL_TABLE = 0x11,
    GD_HDF5_MESSAGE_ATTRIBUTE_INFO = 0x15,
    GD_HDF5_MESSAGE_LAST_KNOWN = 0x18,
    GD_HDF5_MESSAGE_SHARED = 1 << 1, /* flags of a message: its body is elsewhere */
    GD_HDF5_MESSAGE_FATAL = 1 << 7,  /* a reader that does not know it must fail */
};

typedef struct gd_hdf5_message {
    int type, flags;
    uint64_t address; /* of its block, for messages */
    const uint8_t *data;
    size_t bytes;
} gd_hdf5_message;

/* The messages of an object header, and the blocks that hold them. */
typedef struct gd_hdf5_header {
    gd_hdf5_message *messages;
    uint8_t **blocks;
    int count, room, n_blocks, block_room;
} gd_hdf5_header;

gd_status gd_hdf5_header_read(gd_hdf5_header *out, gd_hdf5_walk *walk, uint64_t address);
void gd_hdf5_header_free(gd_hdf5_header *header);
const gd_hdf5_message *gd_hdf5_find_message(const gd_hdf5_header *header, int type); /* or NULL */
gd_hdf5_cursor gd_hdf5_message_cursor(const gd_hdf5 *file, const gd_hdf5_message *message);

/* Reads a type; the cursor is then after it. `shared`: the bytes say where the type is. */
gd_status gd_hdf5_type_read(gd_hdf5_type *out, gd_hdf5_walk *walk, uint64_t address,
                            gd_hdf5_cursor *c, bool shared);

/* Reads a shape for elements of this size. `most`, if not NULL, gets the largest size of each axis
 * (UINT64_MAX: none). */
gd_status gd_hdf5_shape_read(gd_hdf5_shape *out, uint64_t most[GD_HDF5_MAX_RANK], uint64_t address,
                             gd_hdf5_cursor *c, uint32_t element_bytes);

/* --- trees and heaps -------------------------------------------------------------------------- */

/* Calls `visit` with each record of a B-tree of version 2, in order. */
typedef gd_status (*gd_hdf5_record_fn)(void *user, gd_hdf5_cursor *record);
gd_status gd_hdf5_tree_walk(gd_hdf5_walk *walk, uint64_t address, int type, gd_hdf5_record_fn visit,
                            void *user);

typedef struct gd_hdf5_heap gd_hdf5_heap;

/* Reads all blocks of a fractal heap. */
gd_status gd_hdf5_heap_open(gd_hdf5_heap **out, gd_hdf5_walk *walk, uint64_t address);
void gd_hdf5_heap_close(gd_hdf5_heap *heap); /* NULL is fine */

/* Takes an ID of this heap from the cursor and gives its object, which belongs to the heap. */
gd_status gd_hdf5_heap_find(gd_hdf5_heap *heap, gd_hdf5_cursor *id, gd_hdf5_cursor *object);

/* --- objects ---------------------------------------------------------------------------------- */

/* Where a name of a group leads. */
typedef struct gd_hdf5_link {
    char *name;
    uint64_t address; /* of an object, or GD_HDF5_NOWHERE */
    char *soft;       /* the path that a soft link contains, or NULL */
    int type;         /* 0 hard, 1 soft, 64 external, others of programs */
} gd_hdf5_link;

typedef struct gd_hdf5_links {
    gd_hdf5_link *at;
    int count, room;
} gd_hdf5_links;

gd_status gd_hdf5_links_read(gd_hdf5_links *out, gd_hdf5_walk *walk, const gd_hdf5_header *header);
void gd_hdf5_links_free(gd_hdf5_links *links);

/* Attributes and the memory of their names and data. */
typedef struct gd_hdf5_attributes {
    gd_hdf5_attribute *at;
    int count, room;
} gd_hdf5_attributes;

gd_status gd_hdf5_attributes_read(gd_hdf5_attributes *out, gd_hdf5_walk *walk,
                                  const gd_hdf5_header *header);
void gd_hdf5_attributes_free(gd_hdf5_attributes *attributes);

/* --- storage ---------------------------------------------------------------------------------- */

enum { GD_HDF5_MAX_FILTERS = 32 };

typedef struct gd_hdf5_filter {
    int id;
    uint32_t value; /* the first of its parameters: the bytes of an element, for shuffle */
} gd_hdf5_filter;

typedef struct gd_hdf5_chunk {
    uint64_t index;   /* of its cell in the grid of chunks, row-major */
    uint64_t address; /* in the file */
    uint64_t bytes;   /* in the file */
    uint32_t skipped; /* filters that were not applied, as bits */
} gd_hdf5_chunk;

typedef enum gd_hdf5_place {
    GD_HDF5_COMPACT,
    GD_HDF5_CONTIGUOUS,
    GD_HDF5_CHUNKED,
} gd_hdf5_place;

/* How the elements of a dataset are stored. */
typedef struct gd_hdf5_storage {
    gd_hdf5_place place;
    char unsupported[64]; /* what cannot be read, or "" */
    uint8_t *fill;        /* an element that was never written; NULL: all zeros */
    uint64_t address;     /* of the elements or of the index; NOWHERE: none */
    uint8_t *compact;     /* the elements themselves */
    uint64_t bytes;       /* of all elements that are stored, unless chunked */
    uint64_t chunk[GD_HDF5_MAX_RANK], grid[GD_HDF5_MAX_RANK]; /* elements; chunks */
    uint64_t chunk_bytes;                                     /* unfiltered */
    int n_filters;
    gd_hdf5_filter filters[GD_HDF5_MAX_FILTERS]; /* in the order in which they were applied */
    bool raw_edges;        /* chunks that reach beyond the shape are not filtered */
    gd_hdf5_chunk *chunks; /* those that were written, by index */
    int n_chunks, chunk_room;
} gd_hdf5_storage;

/* An object, and what its functions need. */
typedef struct gd_hdf5_full_object {
    gd_hdf5_object object; /* first: it is what users see */
    gd_hdf5_links links;
    gd_hdf5_attributes attributes;
    gd_hdf5_storage storage;
} gd_hdf5_full_object;

gd_status gd_hdf5_storage_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                               const gd_hdf5_header *header, const uint64_t *most);
void gd_hdf5_storage_free(gd_hdf5_storage *storage);

/* How the index of chunks is stored: the message that describes it. */
typedef struct gd_hdf5_index {
    int kind; /* 0: a B-tree of version 1; then as in the file: 1 single, 2 implicit, 3 fixed array,
                 4 extensible array, 5 B-tree of version 2 */
    uint64_t single_bytes;
    uint32_t single_skipped;
    const uint64_t *most; /* the largest size of each axis */
} gd_hdf5_index;

/* Lists the chunks. */
gd_status gd_hdf5_chunks_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                              const gd_hdf5_index *index);
gd_status gd_hdf5_implicit_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                                const gd_hdf5_index *index);
gd_status gd_hdf5_fixed_array_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                                   const gd_hdf5_index *index);
gd_status gd_hdf5_extensible_array_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                                        const gd_hdf5_index *index);

/* Adds a chunk at these coordinates of the grid; none if it is outside, or was never written. */
gd_status gd_hdf5_chunk_add(gd_hdf5_full_object *dataset, const uint64_t *cell,
                            const gd_hdf5_chunk *chunk);

/* Reads a chunk and undoes its filters: chunk_bytes bytes, from gd_malloc. `edge`: it reaches
 * beyond the shape. */
gd_status gd_hdf5_chunk_load(const gd_hdf5_full_object *dataset, const gd_hdf5_chunk *chunk,
                             bool edge, uint8_t **out);

/* Reads elements [first, first + n) of a dataset that is not chunked, as in the file. */
gd_status gd_hdf5_read_raw(const gd_hdf5_full_object *dataset, uint64_t first, uint64_t n,
                           uint8_t *out);

/* Reads rows as in the file, n elements in all. */
gd_status gd_hdf5_read_rows(const gd_hdf5_full_object *dataset, int64_t first, int64_t rows,
                            uint8_t *out);

/* Fails if a dataset or attribute has elements or storage that cannot be read. `numbers`: it must
 * have numbers, otherwise strings. */
gd_status gd_hdf5_check_type(const gd_hdf5_object *object, const char *attribute,
                             const gd_hdf5_type *type, bool numbers);

/* --- elements --------------------------------------------------------------------------------- */

/* Whether elements in the file have the bits of those of a dtype. */
bool gd_hdf5_is_native(const gd_hdf5_type *type, gd_dtype dtype);

/* Converts n elements. */
void gd_hdf5_convert(const gd_hdf5_type *from, const uint8_t *in, int64_t n, gd_dtype to,
                     void *out);

#endif
