/* hdf5_header.c - reads the header of an object: a list of messages. See hdf5_parts.h.
 *
 * Version 1: 16 bytes and the first block of messages. Version 2: "OHDR", the first block, a
 * checksum. Further blocks are where a message of type continuation says; in version 2 they begin
 * with "OCHK" and end with a checksum.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <string.h>

enum {
    PREFIX1_BYTES = 16,
    PREFIX2_MOST = 4 + 1 + 1 + 16 + 4 + 8, /* signature, version, flags, times, limits, length */
    CHECKSUM_BYTES = 4,
    FLAG_ORDER = 1 << 2,
    FLAG_LIMITS = 1 << 4,
    FLAG_TIMES = 1 << 5,
};

/* How a header's messages are written. */
typedef struct layout {
    int version;
    bool ordered; /* version 2: messages have a number */
} layout;

static gd_status add_block(gd_hdf5_header *h, const gd_hdf5 *file, uint8_t *block) {
    if (!gd_grow(h->blocks, h->n_blocks, h->block_room)) {
        gd_free(block);
        return gd_hdf5_no_memory(file);
    }
    h->blocks[h->n_blocks++] = block;
    return GD_OK;
}

static gd_status add_message(gd_hdf5_header *h, const gd_hdf5 *file, gd_hdf5_message message) {
    if ((message.flags & GD_HDF5_MESSAGE_FATAL) && message.type >= GD_HDF5_MESSAGE_LAST_KNOWN)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: an object at %" PRIu64 " needs messages of type %d, which are not "
                       "supported",
                       gd_file_reader_path(file->file), file->base + message.address, message.type);
    if (!gd_grow(h->messages, h->count, h->room)) return gd_hdf5_no_memory(file);
    h->messages[h->count++] = message;
    return GD_OK;
}

static gd_status read_messages(gd_hdf5_header *h, const gd_hdf5 *file, uint64_t address,
                               gd_hdf5_cursor c, layout l) {
    const size_t prefix = l.version == 1 ? 8 : l.ordered ? 6 : 4;
    while (gd_hdf5_left(&c) >= prefix) {
        gd_hdf5_message m = {.address = address};
        m.type = (int)gd_hdf5_take(&c, l.version == 1 ? 2 : 1);
        m.bytes = (size_t)gd_hdf5_take(&c, 2);
        m.flags = (int)gd_hdf5_take(&c, 1);
        if (l.version == 1) gd_hdf5_take(&c, 3);
        else if (l.ordered) gd_hdf5_take(&c, 2);
        m.data = gd_hdf5_take_bytes(&c, m.bytes);
        if (!m.data) return gd_hdf5_fail_at(file, address, "a message runs out of its header");
        GD_TRY(add_message(h, file, m));
    }
    return GD_OK;
}

static gd_status read_continuation(gd_hdf5_header *h, gd_hdf5_walk *walk, const gd_hdf5_message *m,
                                   layout l) {
    gd_hdf5_cursor where = gd_hdf5_message_cursor(walk->file, m);
    const uint64_t address = gd_hdf5_take_address(&where), bytes = gd_hdf5_take_length(&where);
    if (where.ended || bytes == 0)
        return gd_hdf5_fail_at(walk->file, m->address, "a continuation of a header is too short");
    uint8_t *block;
    GD_TRY(gd_hdf5_load(walk, address, bytes, &block));
    GD_TRY(add_block(h, walk->file, block));
    if (l.version == 1)
        return read_messages(h, walk->file, address,
                             gd_hdf5_cursor_of(walk->file, block, (size_t)bytes), l);
    if (bytes < 4 + CHECKSUM_BYTES || memcmp(block, "OCHK", 4) != 0)
        return gd_hdf5_fail_at(walk->file, address, "expected 'OCHK'");
    GD_TRY(gd_hdf5_verify(walk->file, address, block, (size_t)bytes));
    return read_messages(
        h, walk->file, address,
        gd_hdf5_cursor_of(walk->file, block + 4, (size_t)bytes - 4 - CHECKSUM_BYTES), l);
}

static gd_status read_first1(gd_hdf5_header *h, gd_hdf5_walk *walk, uint64_t address) {
    uint8_t *block;
    GD_TRY(gd_hdf5_load(walk, address, PREFIX1_BYTES, &block));
    const uint64_t bytes = gd_get_u32(block + 8);
    gd_free(block);
    GD_TRY(gd_hdf5_load(walk, address + PREFIX1_BYTES, bytes, &block));
    GD_TRY(add_block(h, walk->file, block));
    return read_messages(h, walk->file, address,
                         gd_hdf5_cursor_of(walk->file, block, (size_t)bytes), (layout){1, false});
}

/* The checksum covers the signature, too. */
static gd_status read_first2(gd_hdf5_header *h, gd_hdf5_walk *walk, uint64_t address, layout *l) {
    const gd_hdf5 *file = walk->file;
    const uint64_t after = file->size - address;
    uint64_t bytes = after < PREFIX2_MOST ? after : PREFIX2_MOST;
    uint8_t *block;
    GD_TRY(gd_hdf5_load(walk, address, bytes, &block));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, block, (size_t)bytes);
    gd_hdf5_take(&c, 4);
    const int version = (int)gd_hdf5_take(&c, 1), flags = (int)gd_hdf5_take(&c, 1);
    if (flags & FLAG_TIMES) gd_hdf5_take_bytes(&c, 16);
    if (flags & FLAG_LIMITS) gd_hdf5_take(&c, 4);
    const uint64_t length = gd_hdf5_take(&c, 1 << (flags & 3));
    const size_t prefix = (size_t)bytes - gd_hdf5_left(&c);
    const bool whole = !c.ended && version == 2 && length <= after;
    gd_free(block);
    if (!whole) return gd_hdf5_fail_at(file, address, "the header of an object is damaged");
    bytes = prefix + length + CHECKSUM_BYTES;
    GD_TRY(gd_hdf5_load(walk, address, bytes, &block));
    GD_TRY(add_block(h, file, block));
    GD_TRY(gd_hdf5_verify(file, address, block, (size_t)bytes));
    *l = (layout){2, flags & FLAG_ORDER};
    return read_messages(h, file, address, gd_hdf5_cursor_of(file, block + prefix, (size_t)length),
                         *l);
}

static gd_status read_all(gd_hdf5_header *h, gd_hdf5_walk *walk, uint64_t address) {
    uint8_t *start;
    layout l = {1, false};
    GD_TRY(gd_hdf5_load(walk, address, 4, &start));
    const bool second = memcmp(start, "OHDR", 4) == 0, first = start[0] == 1;
    gd_free(start);
    if (!first && !second) return gd_hdf5_fail_at(walk->file, address, "there is no object here");
    if (first) GD_TRY(read_first1(h, walk, address));
    else GD_TRY(read_first2(h, walk, address, &l));
    for (int i = 0; i < h->count; i++) { /* the list grows */
        const gd_hdf5_message m = h->messages[i];
        if (m.type == GD_HDF5_MESSAGE_CONTINUATION) GD_TRY(read_continuation(h, walk, &m, l));
    }
    return GD_OK;
}

gd_status gd_hdf5_header_read(gd_hdf5_header *out, gd_hdf5_walk *walk, uint64_t address) {
    *out = (gd_hdf5_header){0};
    const gd_status status = read_all(out, walk, address);
    if (status != GD_OK) gd_hdf5_header_free(out);
    return status;
}

void gd_hdf5_header_free(gd_hdf5_header *h) {
    for (int i = 0; i < h->n_blocks; i++) gd_free(h->blocks[i]);
    gd_free(h->blocks);
    gd_free(h->messages);
    *h = (gd_hdf5_header){0};
}

const gd_hdf5_message *gd_hdf5_find_message(const gd_hdf5_header *h, int type) {
    for (int i = 0; i < h->count; i++)
        if (h->messages[i].type == type) return &h->messages[i];
    return NULL;
}

gd_hdf5_cursor gd_hdf5_message_cursor(const gd_hdf5 *file, const gd_hdf5_message *message) {
    return gd_hdf5_cursor_of(file, message->data, message->bytes);
}
