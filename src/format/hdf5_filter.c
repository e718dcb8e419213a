/* hdf5_filter.c - reads a chunk and undoes its filters, the last one first. See hdf5_parts.h. */
#include "core/alloc.h"
#include "core/error.h"
#include "format/adler32.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"
#include "format/inflate.h"

#include <string.h>

enum {
    FILTER_DEFLATE = 1,
    FILTER_SHUFFLE = 2,
    FILTER_FLETCHER32 = 3,
    ZLIB_HEADER = 2,
    ZLIB_CHECKSUM = 4,
    SUM_BYTES = 4,
    DEFLATE_RATIO = 1032, /* the best possible: 258 bytes from two bits */
};

/* A chunk between two filters. */
typedef struct piece {
    const gd_hdf5 *file;
    uint64_t address; /* for messages */
    uint8_t *data;
    size_t bytes;
} piece;

static gd_status fail_piece(const piece *p, const char *what) {
    return gd_hdf5_fail_at(p->file, p->address, what);
}

static void replace_data(piece *p, uint8_t *data, size_t bytes) {
    gd_free(p->data);
    p->data = data;
    p->bytes = bytes;
}

/* --- deflate ---------------------------------------------------------------------------------- */

typedef struct source {
    const uint8_t *at;
    size_t left;
} source;

static gd_status fetch_bytes(void *from, uint8_t *buffer, size_t room, size_t *got) {
    source *s = from;
    *got = room < s->left ? room : s->left;
    memcpy(buffer, s->at, *got);
    s->at += *got;
    s->left -= *got;
    return GD_OK;
}

/* Inflates all of a zlib stream into `bytes` bytes. */
static gd_status inflate_into(const piece *p, uint8_t *out, size_t bytes) {
    const uint8_t *in = p->data;
    source s = {in + ZLIB_HEADER, p->bytes - ZLIB_HEADER};
    if ((in[0] & 15) != 8 || (in[0] << 8 | in[1]) % 31 != 0 || in[1] >> 5 & 1)
        return fail_piece(p, "a chunk is not a zlib stream");
    gd_inflate *z = gd_inflate_new(gd_file_reader_path(p->file->file), fetch_bytes, &s);
    if (!z) return gd_hdf5_no_memory(p->file);
    size_t got = 0, more = 0;
    uint8_t beyond;
    gd_status status = gd_inflate_read(z, out, bytes, &got);
    if (status == GD_OK && got == bytes) status = gd_inflate_read(z, &beyond, 1, &more);
    const size_t unused = gd_inflate_unused(z) + s.left;
    gd_inflate_free(z);
    GD_TRY(status);
    if (got < bytes || more > 0)
        return fail_piece(p, "a chunk decompresses to another size than its shape has");
    const uint8_t *sum = in + p->bytes - unused;
    if (unused < ZLIB_CHECKSUM ||
        gd_adler32(out, bytes) !=
            ((uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3]))
        return fail_piece(p, "the checksum of a compressed chunk does not match");
    return GD_OK;
}

static gd_status undo_deflate(piece *p, size_t bytes) {
    if (p->bytes < ZLIB_HEADER + ZLIB_CHECKSUM || bytes / DEFLATE_RATIO > p->bytes)
        return fail_piece(p, "a chunk claims more bytes than it can hold");
    uint8_t *out = gd_malloc(bytes + 1);
    if (!out) return gd_hdf5_no_memory(p->file);
    const gd_status status = inflate_into(p, out, bytes);
    if (status == GD_OK) replace_data(p, out, bytes);
    else gd_free(out);
    return status;
}

/* --- the others ------------------------------------------------------------------------------- */

/* Shuffled: the first bytes of all elements, then the second ones, ...; bytes that are no whole
 * element are at the end. */
static gd_status undo_shuffle(piece *p, size_t element) {
    const size_t count = element ? p->bytes / element : 0;
    if (element <= 1 || count <= 1) return GD_OK;
    uint8_t *out = gd_malloc(p->bytes + 1);
    if (!out) return gd_hdf5_no_memory(p->file);
    for (size_t b = 0; b < element; b++) {
        const uint8_t *in = p->data + b * count;
        for (size_t i = 0; i < count; i++) out[i * element + b] = in[i];
    }
    memcpy(out + count * element, p->data + count * element, p->bytes - count * element);
    replace_data(p, out, p->bytes);
    return GD_OK;
}

/* Old writers stored the halves of the checksum with their bytes swapped. */
static gd_status undo_fletcher32(piece *p) {
    if (p->bytes < SUM_BYTES) return fail_piece(p, "a chunk is too short for its checksum");
    p->bytes -= SUM_BYTES;
    const uint32_t sum = gd_hdf5_fletcher32(p->data, p->bytes);
    const uint32_t swapped = (sum & 0xff00ff00) >> 8 | (sum & 0x00ff00ff) << 8;
    const uint32_t stored = gd_get_u32(p->data + p->bytes);
    return stored == sum || stored == swapped
               ? GD_OK
               : fail_piece(p, "the checksum of a chunk does not match");
}

/* --- all -------------------------------------------------------------------------------------- */

static gd_status undo_filters(piece *p, const gd_hdf5_storage *s, uint32_t skipped) {
    /* the size before a filter is that of the chunk and of the checksums so far */
    uint64_t bytes[GD_HDF5_MAX_FILTERS + 1] = {s->chunk_bytes};
    for (int i = 0; i < s->n_filters; i++) {
        const bool sum = s->filters[i].id == FILTER_FLETCHER32 && !(skipped >> i & 1);
        bytes[i + 1] = bytes[i] + (sum ? SUM_BYTES : 0);
    }
    for (int i = s->n_filters - 1; i >= 0; i--) {
        if (skipped >> i & 1) continue;
        switch (s->filters[i].id) {
        case FILTER_DEFLATE: GD_TRY(undo_deflate(p, (size_t)bytes[i])); break;
        case FILTER_SHUFFLE: GD_TRY(undo_shuffle(p, s->filters[i].value)); break;
        default: GD_TRY(undo_fletcher32(p)); break;
        }
    }
    return p->bytes == s->chunk_bytes ? GD_OK
                                      : fail_piece(p, "a chunk has another size than its shape");
}

gd_status gd_hdf5_chunk_load(const gd_hdf5_full_object *dataset, const gd_hdf5_chunk *chunk,
                             bool edge, uint8_t **out) {
    const gd_hdf5_storage *s = &dataset->storage;
    gd_hdf5_walk walk = gd_hdf5_walk_begin(dataset->object.file);
    piece p = {dataset->object.file, chunk->address, NULL, (size_t)chunk->bytes};
    const uint32_t skipped = edge && s->raw_edges ? UINT32_MAX : chunk->skipped;
    *out = NULL;
    GD_TRY(gd_hdf5_load(&walk, chunk->address, chunk->bytes, &p.data));
    const gd_status status = undo_filters(&p, s, skipped);
    if (status == GD_OK) *out = p.data;
    else gd_free(p.data);
    return status;
}
