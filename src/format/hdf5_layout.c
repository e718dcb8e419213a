/* hdf5_layout.c - reads how the elements of a dataset are stored: the messages layout, filters and
 * fill value. See hdf5_parts.h.
 *
 * What cannot be read is remembered by name: the dataset still has a shape and attributes.
 */
#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <stdio.h>
#include <string.h>

enum {
    LAYOUT_COMPACT = 0,
    LAYOUT_CONTIGUOUS = 1,
    LAYOUT_CHUNKED = 2,
    LAYOUT_VIRTUAL = 3,
    FLAG_RAW_EDGES = 1 << 0, /* of a chunked layout */
    FLAG_SINGLE_FILTERED = 1 << 1,
    FIRST_NAMED_FILTER = 256, /* filters of programs, in version 2 */
    FILTER_DEFLATE = 1,
    FILTER_FLETCHER32 = 3,
};

typedef struct reader {
    gd_hdf5_full_object *dataset;
    gd_hdf5_storage *s;
    gd_hdf5_walk *walk;
    uint64_t address;
    gd_hdf5_index index;
} reader;

static gd_status fail_layout(const reader *r, const char *what) {
    return gd_hdf5_fail_at(r->walk->file, r->address, what);
}

static void set_unsupported(reader *r, const char *what) {
    if (r->s->unsupported[0] == '\0')
        snprintf(r->s->unsupported, sizeof r->s->unsupported, "%s", what);
}

/* Copies bytes of a message. */
static gd_status copy_bytes(const reader *r, const uint8_t *from, uint64_t bytes, uint8_t **out) {
    *out = gd_malloc((size_t)bytes + 1);
    if (!*out) return gd_hdf5_no_memory(r->walk->file);
    memcpy(*out, from, (size_t)bytes);
    return GD_OK;
}

static gd_status read_compact(reader *r, gd_hdf5_cursor *c, int length_bytes) {
    r->s->place = GD_HDF5_COMPACT;
    r->s->bytes = gd_hdf5_take(c, length_bytes);
    const uint8_t *data = gd_hdf5_take_bytes(c, r->s->bytes);
    return data ? copy_bytes(r, data, r->s->bytes, &r->s->compact) : GD_OK;
}

/* The sizes of a chunk; the last one is that of an element. */
static gd_status read_chunk_dims(reader *r, gd_hdf5_cursor *c, int rank, int dim_bytes) {
    const gd_hdf5_object *o = &r->dataset->object;
    gd_hdf5_storage *s = r->s;
    if (rank < 2 || rank != o->shape.rank + 1)
        return fail_layout(r, "the rank of the chunks is not that of the dataset");
    s->place = GD_HDF5_CHUNKED;
    s->chunk_bytes = o->type.bytes;
    for (int i = 0; i < rank - 1; i++) {
        s->chunk[i] = gd_hdf5_take(c, dim_bytes);
        if (s->chunk[i] == 0 || !gd_mul_u64(s->chunk_bytes, s->chunk[i], &s->chunk_bytes) ||
            s->chunk_bytes > INT64_MAX)
            return fail_layout(r, "the size of the chunks is damaged");
        const uint64_t dim = (uint64_t)o->shape.dims[i];
        s->grid[i] = dim / s->chunk[i] + (dim % s->chunk[i] != 0);
    }
    if (gd_hdf5_take(c, dim_bytes) != o->type.bytes && !c->ended)
        return fail_layout(r, "the size of an element is not that of its type");
    return GD_OK;
}

/* Versions 1 and 2: the rank, the class, and then all in a fixed order. */
static gd_status read_old_layout(reader *r, gd_hdf5_cursor *c) {
    const int rank = (int)gd_hdf5_take(c, 1), class = (int)gd_hdf5_take(c, 1);
    gd_hdf5_take(c, 5);
    if (class != LAYOUT_COMPACT) r->s->address = gd_hdf5_take_address(c);
    if (class == LAYOUT_CHUNKED) return read_chunk_dims(r, c, rank, 4);
    gd_hdf5_take_bytes(c, 4 * (uint64_t)rank);
    if (class == LAYOUT_COMPACT) return read_compact(r, c, 4);
    if (class != LAYOUT_CONTIGUOUS) return fail_layout(r, "a layout is damaged");
    r->s->place = GD_HDF5_CONTIGUOUS;
    r->s->bytes = (uint64_t)r->dataset->object.shape.count * r->dataset->object.type.bytes;
    return GD_OK;
}

/* Version 4: the index is one of five. */
static gd_status read_new_chunks(reader *r, gd_hdf5_cursor *c) {
    const int flags = (int)gd_hdf5_take(c, 1), rank = (int)gd_hdf5_take(c, 1);
    const int dim_bytes = (int)gd_hdf5_take(c, 1);
    if (dim_bytes < 1 || dim_bytes > 8) return fail_layout(r, "a layout is damaged");
    r->s->raw_edges = flags & FLAG_RAW_EDGES;
    GD_TRY(read_chunk_dims(r, c, rank, dim_bytes));
    r->index.kind = (int)gd_hdf5_take(c, 1);
    /* what follows is repeated where the index is */
    static const int parameters[] = {0, 0, 0, 1, 5, 6};
    if (r->index.kind < 1 || r->index.kind > 5)
        return fail_layout(r, "the chunks have an unknown index");
    r->index.single_bytes = r->s->chunk_bytes;
    if (r->index.kind == 1 && (flags & FLAG_SINGLE_FILTERED)) {
        r->index.single_bytes = gd_hdf5_take_length(c);
        r->index.single_skipped = (uint32_t)gd_hdf5_take(c, 4);
    }
    gd_hdf5_take_bytes(c, (uint64_t)parameters[r->index.kind]);
    r->s->address = gd_hdf5_take_address(c);
    return GD_OK;
}

static gd_status read_layout(reader *r, gd_hdf5_cursor c) {
    const int version = (int)gd_hdf5_take(&c, 1);
    gd_status status = GD_OK;
    if (version == 1 || version == 2) {
        GD_TRY(read_old_layout(r, &c));
    } else if (version >= 3 && version <= 5) {
        const int class = (int)gd_hdf5_take(&c, 1);
        if (class == LAYOUT_COMPACT) status = read_compact(r, &c, 2);
        else if (class == LAYOUT_CONTIGUOUS) {
            r->s->place = GD_HDF5_CONTIGUOUS;
            r->s->address = gd_hdf5_take_address(&c);
            r->s->bytes = gd_hdf5_take_length(&c);
        } else if (class == LAYOUT_CHUNKED && version == 3) {
            const int rank = (int)gd_hdf5_take(&c, 1);
            r->s->address = gd_hdf5_take_address(&c);
            status = read_chunk_dims(r, &c, rank, 4);
        } else if (class == LAYOUT_CHUNKED) status = read_new_chunks(r, &c);
        else if (class == LAYOUT_VIRTUAL) set_unsupported(r, "a virtual layout");
        else return fail_layout(r, "a layout is damaged");
    } else return fail_layout(r, "a layout has an unknown version");
    GD_TRY(status);
    return c.ended ? fail_layout(r, "a layout is too short") : GD_OK;
}

/* --- filters ---------------------------------------------------------------------------------- */

static gd_status add_filter(reader *r, int id, const char *name, uint64_t name_bytes,
                            uint32_t value) {
    static const char *const known[] = {
        "", "deflate", "shuffle", "fletcher32", "szip filter", "nbit filter", "scaleoffset filter"};
    gd_hdf5_storage *s = r->s;
    if (id < FILTER_DEFLATE || id > FILTER_FLETCHER32) {
        char what[64];
        if (id > 0 && id < (int)(sizeof known / sizeof *known))
            snprintf(what, sizeof what, "the %s", known[id]);
        else
            snprintf(what, sizeof what, "the filter %d%s%.*s%s", id, name_bytes ? " (" : "",
                     (int)strnlen(name, name_bytes < 40 ? (size_t)name_bytes : 40), name,
                     name_bytes ? ")" : "");
        set_unsupported(r, what);
        return GD_OK;
    }
    for (int i = 0; i < s->n_filters; i++)
        if (s->filters[i].id == id && id == FILTER_DEFLATE) set_unsupported(r, "deflate twice");
    s->filters[s->n_filters++] = (gd_hdf5_filter){id, value};
    return GD_OK;
}

static gd_status read_filters(reader *r, gd_hdf5_cursor c) {
    const int version = (int)gd_hdf5_take(&c, 1), count = (int)gd_hdf5_take(&c, 1);
    if (version == 1) gd_hdf5_take(&c, 6);
    if (version < 1 || version > 2 || count > GD_HDF5_MAX_FILTERS)
        return fail_layout(r, "a list of filters is damaged");
    r->s->n_filters = 0;
    for (int i = 0; i < count; i++) {
        const int id = (int)gd_hdf5_take(&c, 2);
        const bool named = version == 1 || id >= FIRST_NAMED_FILTER;
        uint64_t name_bytes = named ? gd_hdf5_take(&c, 2) : 0;
        gd_hdf5_take(&c, 2); /* flags */
        const uint64_t values = gd_hdf5_take(&c, 2);
        if (version == 1) name_bytes = (name_bytes + 7) / 8 * 8;
        const uint8_t *name = gd_hdf5_take_bytes(&c, name_bytes);
        const uint8_t *value = gd_hdf5_take_bytes(&c, 4 * values);
        if (version == 1 && values % 2) gd_hdf5_take(&c, 4);
        if (c.ended) return fail_layout(r, "a list of filters is too short");
        GD_TRY(add_filter(r, id, (const char *)name, name_bytes, values ? gd_get_u32(value) : 0));
    }
    return GD_OK;
}

/* --- the fill value --------------------------------------------------------------------------- */

static gd_status read_fill(reader *r, gd_hdf5_cursor c, bool old) {
    uint64_t bytes = 0;
    const uint64_t version = old ? 0 : gd_hdf5_take(&c, 1);
    if (version > 3) return fail_layout(r, "a fill value is damaged");
    if (version == 1 || version == 2) gd_hdf5_take(&c, 2); /* when it is written */
    const uint64_t flags = old ? 0 : gd_hdf5_take(&c, 1);
    if (version == 0 || version == 1 || (version == 2 && flags) || (version == 3 && flags >> 5 & 1))
        bytes = gd_hdf5_take(&c, 4);
    if (bytes == UINT32_MAX) bytes = 0; /* -1: undefined */
    const uint8_t *fill = gd_hdf5_take_bytes(&c, bytes);
    if (c.ended) return fail_layout(r, "a fill value is too short");
    if (bytes == 0) return GD_OK;
    if (bytes != r->dataset->object.type.bytes)
        return fail_layout(r, "the size of the fill value is not that of an element");
    gd_free(r->s->fill);
    return copy_bytes(r, fill, bytes, &r->s->fill);
}

/* --- all -------------------------------------------------------------------------------------- */

static gd_status check_bytes(const reader *r) {
    const gd_hdf5_object *o = &r->dataset->object;
    const uint64_t needed = (uint64_t)o->shape.count * o->type.bytes;
    const gd_hdf5 *file = r->walk->file;
    const gd_hdf5_storage *s = r->s;
    if (s->place == GD_HDF5_CHUNKED || s->unsupported[0] || needed == 0) return GD_OK;
    if (s->place == GD_HDF5_CONTIGUOUS && s->address == GD_HDF5_NOWHERE) return GD_OK;
    if (s->bytes < needed) return fail_layout(r, "a dataset has less data than its shape");
    if (s->place == GD_HDF5_CONTIGUOUS &&
        (s->address > file->size || needed > file->size - s->address))
        return fail_layout(r, "a dataset reaches beyond the end of the file (truncated?)");
    return GD_OK;
}

static gd_status read_storage(reader *r, const gd_hdf5_header *header) {
    const gd_hdf5 *file = r->walk->file;
    const gd_hdf5_message *layout = gd_hdf5_find_message(header, GD_HDF5_MESSAGE_LAYOUT);
    if (!layout) return fail_layout(r, "a dataset has no layout");
    for (int i = 0; i < header->count; i++) {
        const gd_hdf5_message *m = &header->messages[i];
        r->address = m->address;
        const bool ours = m->type == GD_HDF5_MESSAGE_LAYOUT || m->type == GD_HDF5_MESSAGE_FILTERS ||
                          m->type == GD_HDF5_MESSAGE_FILL || m->type == GD_HDF5_MESSAGE_OLD_FILL;
        if (ours && (m->flags & GD_HDF5_MESSAGE_SHARED)) {
            set_unsupported(r, "a shared message");
            continue;
        }
        const gd_hdf5_cursor c = gd_hdf5_message_cursor(file, m);
        if (m == layout) GD_TRY(read_layout(r, c));
        if (m->type == GD_HDF5_MESSAGE_FILTERS) GD_TRY(read_filters(r, c));
        if (m->type == GD_HDF5_MESSAGE_EXTERNAL) set_unsupported(r, "data in another file");
        if (m->type == GD_HDF5_MESSAGE_FILL) GD_TRY(read_fill(r, c, false));
        if (m->type == GD_HDF5_MESSAGE_OLD_FILL && !r->s->fill) GD_TRY(read_fill(r, c, true));
    }
    r->address = layout->address;
    GD_TRY(check_bytes(r));
    const bool written = r->s->place == GD_HDF5_CHUNKED && r->s->address != GD_HDF5_NOWHERE &&
                         r->dataset->object.shape.count > 0 && r->s->unsupported[0] == '\0';
    return written ? gd_hdf5_chunks_read(r->dataset, r->walk, &r->index) : GD_OK;
}

gd_status gd_hdf5_storage_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                               const gd_hdf5_header *header, const uint64_t *most) {
    gd_hdf5_storage *s = &dataset->storage;
    s->address = GD_HDF5_NOWHERE;
    reader r = {.dataset = dataset, .s = s, .walk = walk, .address = dataset->object.address};
    r.index.most = most;
    return read_storage(&r, header);
}

void gd_hdf5_storage_free(gd_hdf5_storage *s) {
    gd_free(s->fill);
    gd_free(s->compact);
    gd_free(s->chunks);
    *s = (gd_hdf5_storage){0};
}
