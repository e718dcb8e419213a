/* hdf5_write_tree.c - writes headers of objects, groups as symbol tables, texts and the superblock.
 *
 * A group is a B-tree of version 1 whose leaves are lists of 8 entries, and a local heap with the
 * names. Nodes are written with the sizes that the superblock states; h5py's own files have the
 * same.
 */
#include "format/hdf5_write.h"

#include "core/alloc.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAF_K = 4, /* a leaf has up to 2 K entries, a node up to 2 K children */
    NODE_K = 16,
    LEAF_ENTRIES = 2 * LEAF_K,
    NODE_CHILDREN = 2 * NODE_K,
    ENTRY_BYTES = 40,
    LEAF_BYTES = 8 + LEAF_ENTRIES * ENTRY_BYTES,
    NODE_BYTES = 24 + (2 * NODE_CHILDREN + 1) * 8,
    COLLECTION_BYTES = 4096, /* at least */
    COLLECTION_PREFIX = 16,
    OBJECT_PREFIX = 16,
    MAX_MESSAGES = UINT16_MAX,
    FLAG_CONSTANT = 1, /* of a message: it never changes */
};

/* Bytes that are going to be written. After a failure puts do nothing. */
typedef struct buffer {
    uint8_t *data;
    size_t bytes, room;
    bool failed;
} buffer;

static uint8_t *put_room(buffer *b, size_t bytes) {
    if (b->failed || bytes == 0) return NULL;
    if (bytes > b->room - b->bytes) {
        const size_t room = 2 * b->room + bytes + 256;
        uint8_t *larger = room > bytes ? gd_realloc(b->data, room) : NULL;
        if (!larger) {
            b->failed = true;
            return NULL;
        }
        b->data = larger;
        b->room = room;
    }
    uint8_t *at = b->data + b->bytes;
    memset(at, 0, bytes);
    b->bytes += bytes;
    return at;
}

static void put_bytes(buffer *b, const void *data, size_t bytes) {
    uint8_t *at = put_room(b, bytes);
    if (at) memcpy(at, data, bytes);
}

static void put(buffer *b, uint64_t value, size_t bytes) {
    uint8_t *at = put_room(b, bytes);
    for (size_t i = 0; at && i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void put_padding(buffer *b) { put_room(b, (8 - b->bytes % 8) % 8); }

/* Writes the buffer at the end of the file, and frees it. Positions are multiples of 8. */
static gd_status write_buffer(gd_hdf5_writer *w, buffer *b, uint64_t *at) {
    put_padding(b);
    *at = gd_file_writer_position(w->file);
    gd_status status = GD_OK;
    if (b->failed) status = gd_file_no_memory(gd_file_writer_path(w->file));
    else if (b->bytes > 0) status = gd_file_writer_write(w->file, b->data, b->bytes);
    gd_free(b->data);
    *b = (buffer){0};
    return status;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* The collection that has room for further texts. */
typedef struct collection {
    uint64_t at, bytes, used; /* in the file; 0: there is none */
    uint32_t count;
} collection;

static gd_status begin_collection(gd_hdf5_writer *w, collection *c, uint64_t text_bytes) {
    const uint64_t least = COLLECTION_PREFIX + OBJECT_PREFIX + (text_bytes + 7) / 8 * 8;
    const uint64_t bytes = least > COLLECTION_BYTES ? least : COLLECTION_BYTES;
    buffer b = {0};
    put_bytes(&b, "GCOL\1\0\0", 8);
    put(&b, bytes, 8);
    put(&b, 0, 8); /* object 0: the free bytes */
    put(&b, bytes - COLLECTION_PREFIX, 8);
    put_room(&b, (size_t)(bytes - b.bytes));
    GD_TRY(write_buffer(w, &b, &c->at));
    c->bytes = bytes;
    c->used = COLLECTION_PREFIX;
    c->count = 0;
    return GD_OK;
}

/* Writes a text into a collection and a reference to it into `to`. */
static gd_status put_text(gd_hdf5_writer *w, collection *c, const char *text, buffer *to) {
    const uint64_t bytes = strlen(text);
    if (bytes == 0) {
        put_room(to, GD_HDF5_REFERENCE_BYTES);
        return GD_OK;
    }
    const uint64_t needed = OBJECT_PREFIX + (bytes + 7) / 8 * 8;
    if (c->at == 0 || c->bytes - c->used < needed) GD_TRY(begin_collection(w, c, bytes));
    buffer b = {0};
    put(&b, ++c->count, 2);
    put(&b, 1, 6); /* referred to once */
    put(&b, bytes, 8);
    put_bytes(&b, text, (size_t)bytes);
    put_padding(&b);
    const uint64_t left = c->bytes - c->used - needed;
    if (left >= OBJECT_PREFIX) {
        put(&b, 0, 8);
        put(&b, left, 8);
    }
    const gd_status status =
        b.failed ? gd_file_no_memory(gd_file_writer_path(w->file))
                 : gd_file_writer_write_at(w->file, c->at + c->used, b.data, b.bytes);
    gd_free(b.data);
    c->used += needed;
    put(to, bytes, 4);
    put(to, c->at, 8);
    put(to, c->count, 4);
    return status;
}

/* --- messages --------------------------------------------------------------------------------- */

static void put_head(buffer *b, int class, uint32_t bits, size_t bytes) {
    put(b, (uint64_t)(0x10 | class), 1); /* version 1 */
    put(b, bits, 3);
    put(b, bytes, 4);
}

static void put_int(buffer *b, bool is_signed, size_t bytes) {
    put_head(b, 0, is_signed ? 8 : 0, bytes);
    put(b, 0, 2);
    put(b, 8 * bytes, 2);
}

static void put_float(buffer *b, size_t bytes, uint64_t exponent_bits) {
    const uint64_t bits = 8 * bytes, mantissa = bits - 1 - exponent_bits;
    put_head(b, 1, (uint32_t)((bits - 1) << 8 | 0x20), bytes); /* the sign; an implied bit */
    put(b, 0, 2);
    put(b, bits, 2);
    put(b, mantissa, 1);
    put(b, exponent_bits, 1);
    put(b, 0, 1);
    put(b, mantissa, 1);
    put(b, ((uint64_t)1 << (exponent_bits - 1)) - 1, 4);
}

static void put_type(buffer *b, const gd_hdf5_array *a, bool ascii) {
    const size_t size = gd_dtype_size(a->dtype);
    if (a->text == GD_HDF5_ELSEWHERE) {
        put_head(b, 9, 1 | 1 << 8, GD_HDF5_REFERENCE_BYTES); /* strings, in UTF-8 */
        put_head(b, 3, 1 << 4, 1);
    } else if (a->text > 0) put_head(b, 3, ascii ? 1 : 1 | 1 << 4, a->text); /* zeros at the end */
    else if (a->dtype == GD_F16) put_float(b, size, 5);
    else if (a->dtype == GD_F32) put_float(b, size, 8);
    else if (a->dtype == GD_F64) put_float(b, size, 11);
    else if (a->dtype == GD_BOOL) { /* as h5py does: an enumeration */ put_head(b, 8, 2, 1);
        put_int(b, true, 1);
        put_bytes(b, "FALSE\0\0\0TRUE\0\0\0\0\0\1", 18);
    } else put_int(b, a->dtype != GD_U8, size);
}

static void put_shape(buffer *b, const gd_hdf5_array *a) {
    put(b, 1, 1);
    put(b, (uint64_t)a->rank, 1);
    put(b, 0, 6);
    for (int i = 0; i < a->rank; i++) put(b, (uint64_t)a->dims[i], 8);
}

/* A header of an object: 16 bytes, then messages. */
typedef struct header {
    buffer b;
    size_t begin; /* of the open message */
    int count;
} header;

static void begin_message(header *h, int type, int flags) {
    put(&h->b, (uint64_t)type, 2);
    put(&h->b, 0, 2);
    put(&h->b, (uint64_t)flags, 4);
    h->begin = h->b.bytes;
    h->count++;
}

static void end_message(header *h) {
    put_padding(&h->b);
    if (!h->b.failed) gd_put_u16(h->b.data + h->begin - 6, (uint16_t)(h->b.bytes - h->begin));
}

static bool is_ascii(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] >= 0x80) return false;
    return true;
}

static gd_status put_attribute(gd_hdf5_writer *w, header *h, const gd_hdf5_written *a,
                               collection *texts) {
    buffer *b = &h->b;
    buffer type = {0};
    put_type(&type, &a->array, is_ascii(a->data, a->bytes));
    const size_t name_bytes = strlen(a->name) + 1, type_bytes = type.bytes;
    put_padding(&type);
    begin_message(h, GD_HDF5_MESSAGE_ATTRIBUTE, 0);
    put(b, 1, 2);
    put(b, name_bytes, 2);
    put(b, type_bytes, 2);
    put(b, 8 + 8 * (uint64_t)a->array.rank, 2);
    put_bytes(b, a->name, name_bytes);
    put_padding(b);
    put_bytes(b, type.data, type.bytes);
    b->failed = b->failed || type.failed;
    gd_free(type.data);
    put_shape(b, &a->array);
    if (a->array.text == GD_HDF5_ELSEWHERE) {
        const char *text = a->data, *end = text + a->bytes;
        for (; text < end; text += strlen(text) + 1) GD_TRY(put_text(w, texts, text, b));
    } else put_bytes(b, a->data, a->bytes);
    end_message(h);
    return GD_OK;
}

static void put_dataset(header *h, const gd_hdf5_node *d) {
    begin_message(h, GD_HDF5_MESSAGE_SPACE, 0);
    put_shape(&h->b, &d->array);
    end_message(h);
    begin_message(h, GD_HDF5_MESSAGE_TYPE, FLAG_CONSTANT);
    put_type(&h->b, &d->array, true);
    end_message(h);
    begin_message(h, GD_HDF5_MESSAGE_FILL, FLAG_CONSTANT);
    put(&h->b, 0x01020202, 8); /* version 2; allocated late, written if set, the default: zeros */
    end_message(h);
    begin_message(h, GD_HDF5_MESSAGE_LAYOUT, 0);
    put(&h->b, 0x0103, 2); /* version 3, contiguous */
    put(&h->b, d->bytes ? d->data_at : UINT64_MAX, 8);
    put(&h->b, d->bytes, 8);
    end_message(h);
}

static gd_status put_messages(gd_hdf5_writer *w, header *h, const gd_hdf5_node *node,
                              collection *texts) {
    put_room(&h->b, 16);
    if (node->is_dataset) put_dataset(h, node);
    else {
        begin_message(h, GD_HDF5_MESSAGE_SYMBOL_TABLE, 0);
        put(&h->b, node->tree_at, 8);
        put(&h->b, node->heap_at, 8);
        end_message(h);
    }
    for (int i = 0; i < node->n_attributes; i++)
        GD_TRY(put_attribute(w, h, &node->attributes[i], texts));
    if (h->count > MAX_MESSAGES || h->b.bytes > UINT32_MAX)
        return gd_fail(GD_E_UNSUPPORTED, "%s: '%s' has too many attributes, %d",
                       gd_file_writer_path(w->file), node->path, node->n_attributes);
    if (h->b.failed) return GD_OK; /* write_buffer reports it */
    h->b.data[0] = 1;
    gd_put_u16(h->b.data + 2, (uint16_t)h->count);
    gd_put_u32(h->b.data + 4, 1); /* one name refers to it */
    gd_put_u32(h->b.data + 8, (uint32_t)(h->b.bytes - 16));
    return GD_OK;
}

static gd_status write_header(gd_hdf5_writer *w, gd_hdf5_node *node, collection *texts) {
    header h = {0};
    const gd_status status = put_messages(w, &h, node, texts);
    if (status == GD_OK) return write_buffer(w, &h.b, &node->header_at);
    gd_free(h.b.data);
    return status;
}

/* --- groups ----------------------------------------------------------------------------------- */

static int compare_nodes(const void *a, const void *b) {
    return strcmp((*(gd_hdf5_node *const *)a)->name, (*(gd_hdf5_node *const *)b)->name);
}

/* The names of a group, each padded, after an empty one; `offsets` gets the position of each. */
static gd_status write_names(gd_hdf5_writer *w, gd_hdf5_node *group, uint64_t *offsets) {
    buffer b = {0};
    uint64_t data_at;
    put(&b, 0, 8);
    for (int i = 0; i < group->n_parts; i++) {
        offsets[i] = b.bytes;
        put_bytes(&b, group->parts[i]->name, strlen(group->parts[i]->name) + 1);
        put_padding(&b);
    }
    const uint64_t bytes = b.bytes;
    GD_TRY(write_buffer(w, &b, &data_at));
    put_bytes(&b, "HEAP\0\0\0", 8);
    put(&b, bytes, 8);
    put(&b, 1, 8); /* nothing is free */
    put(&b, data_at, 8);
    return write_buffer(w, &b, &group->heap_at);
}

/* The leaves: lists of entries. */
static gd_status write_leaves(gd_hdf5_writer *w, const gd_hdf5_node *group, const uint64_t *offsets,
                              uint64_t *at) {
    buffer b = {0};
    for (int i = 0; i < group->n_parts; i += LEAF_ENTRIES) {
        const int n = group->n_parts - i < LEAF_ENTRIES ? group->n_parts - i : LEAF_ENTRIES;
        put_bytes(&b, "SNOD\1", 6);
        put(&b, (uint64_t)n, 2);
        for (int k = 0; k < n; k++) {
            put(&b, offsets[i + k], 8);
            put(&b, group->parts[i + k]->header_at, 8);
            put_room(&b, ENTRY_BYTES - 16);
        }
        put_room(&b, (size_t)(LEAF_ENTRIES - n) * ENTRY_BYTES);
    }
    return write_buffer(w, &b, at);
}

/* A level of the B-tree. Its children are `count` blocks of `child_bytes` bytes from `child_at` on,
 * with `names` names below each (the last one may have fewer). A key is the last name before it. */
static gd_status write_level(gd_hdf5_writer *w, const gd_hdf5_node *group, const uint64_t *offsets,
                             int level, int64_t count, uint64_t child_at, uint64_t child_bytes,
                             int64_t names, uint64_t *at) {
    buffer b = {0};
    const uint64_t begin = gd_file_writer_position(w->file);
    for (int64_t i = 0; i == 0 || i < count; i += NODE_CHILDREN) {
        const int64_t n = count - i < NODE_CHILDREN ? count - i : NODE_CHILDREN;
        const uint64_t here = begin + b.bytes;
        const size_t end = b.bytes + NODE_BYTES;
        put_bytes(&b, "TREE", 5);
        put(&b, (uint64_t)level, 1);
        put(&b, (uint64_t)n, 2);
        put(&b, i ? here - NODE_BYTES : UINT64_MAX, 8);
        put(&b, i + n < count ? here + NODE_BYTES : UINT64_MAX, 8);
        for (int64_t k = i; k <= i + n; k++) {
            const int64_t last = k * names < group->n_parts ? k * names : group->n_parts;
            put(&b, last ? offsets[last - 1] : 0, 8);
            if (k < i + n) put(&b, child_at + (uint64_t)k * child_bytes, 8);
        }
        if (!b.failed) put_room(&b, end - b.bytes);
    }
    return write_buffer(w, &b, at);
}

static gd_status write_group(gd_hdf5_writer *w, gd_hdf5_node *group) {
    if (group->n_parts > 1)
        qsort(group->parts, (size_t)group->n_parts, sizeof(gd_hdf5_node *), compare_nodes);
    uint64_t *offsets = gd_malloc(((size_t)group->n_parts + 1) * sizeof *offsets);
    if (!offsets) return gd_file_no_memory(gd_file_writer_path(w->file));
    uint64_t at = 0, child_bytes = LEAF_BYTES;
    int64_t names = LEAF_ENTRIES, count = (group->n_parts + LEAF_ENTRIES - 1) / LEAF_ENTRIES;
    gd_status status = write_names(w, group, offsets);
    if (status == GD_OK) status = write_leaves(w, group, offsets, &at);
    for (int level = 0; status == GD_OK; level++) {
        status = write_level(w, group, offsets, level, count, at, child_bytes, names, &at);
        if (count <= NODE_CHILDREN) break;
        count = (count + NODE_CHILDREN - 1) / NODE_CHILDREN;
        names *= NODE_CHILDREN;
        child_bytes = NODE_BYTES;
    }
    group->tree_at = at;
    gd_free(offsets);
    return status;
}

/* --- all -------------------------------------------------------------------------------------- */

static gd_status write_superblock(gd_hdf5_writer *w, const gd_hdf5_node *root) {
    buffer b = {0};
    put_bytes(&b, "\x89HDF\r\n\x1a\n", 8);
    put(&b, 0, 5); /* versions */
    put(&b, 8, 1); /* bytes of an address, of a length */
    put(&b, 8, 2);
    put(&b, LEAF_K, 2);
    put(&b, NODE_K, 2);
    put(&b, 0, 4);
    put(&b, 0, 8);          /* the base */
    put(&b, UINT64_MAX, 8); /* no list of free space */
    put(&b, gd_file_writer_position(w->file), 8);
    put(&b, UINT64_MAX, 8); /* no driver */
    put(&b, 0, 8);          /* the root has no name */
    put(&b, root->header_at, 8);
    put(&b, 1, 8); /* what follows is a copy of the root's message */
    put(&b, root->tree_at, 8);
    put(&b, root->heap_at, 8);
    const gd_status status = b.failed ? gd_file_no_memory(gd_file_writer_path(w->file))
                                      : gd_file_writer_write_at(w->file, 0, b.data, b.bytes);
    gd_free(b.data);
    return status;
}

/* Parts of a group come after it in the list, and their headers have to be written before. */
gd_status gd_hdf5_write_tree(gd_hdf5_writer *w) {
    collection texts = {0};
    for (int i = w->n_nodes - 1; i >= 0; i--) {
        if (!w->nodes[i]->is_dataset) GD_TRY(write_group(w, w->nodes[i]));
        GD_TRY(write_header(w, w->nodes[i], &texts));
    }
    return write_superblock(w, w->nodes[0]);
}
