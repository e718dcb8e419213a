/* idx.c - see idx.h. */
#include "format/idx.h"

#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"

static int item_size(int type) {
    switch (type) {
    case GD_IDX_U8:
    case GD_IDX_I8: return 1;
    case GD_IDX_I16: return 2;
    case GD_IDX_I32:
    case GD_IDX_F32: return 4;
    case GD_IDX_F64: return 8;
    default: return 0;
    }
}

/* Converts big-endian items to the byte order of this machine. */
static void convert_byte_order(uint8_t *p, size_t count, int itemsize) {
    for (; count > 0; count--, p += itemsize) {
        uint64_t v = 0;
        for (int i = 0; i < itemsize; i++) v = v << 8 | p[i];
        const uint16_t v2 = (uint16_t)v;
        const uint32_t v4 = (uint32_t)v;
        if (itemsize == 2) memcpy(p, &v2, 2);
        if (itemsize == 4) memcpy(p, &v4, 4);
        if (itemsize == 8) memcpy(p, &v, 8);
    }
}

/* Reads the sizes; *bytes is the size of all items. */
static gd_status read_dims(gd_idx *idx, gd_stream *s, size_t *bytes) {
    *bytes = (size_t)idx->itemsize;
    idx->count = 1;
    for (int k = 0; k < idx->rank; k++) {
        uint8_t be[4];
        GD_TRY(gd_stream_take(s, be, 4, "the sizes of an IDX file"));
        idx->dims[k] = (int64_t)be[0] << 24 | be[1] << 16 | be[2] << 8 | be[3];
        if (!gd_mul_size(idx->count, (size_t)idx->dims[k], &idx->count) ||
            !gd_mul_size(*bytes, (size_t)idx->dims[k], bytes))
            return gd_fail(GD_E_FORMAT,
                           "%s: size %d at byte %d is impossible: the file would be too large",
                           gd_stream_path(s), k, 4 + 4 * k);
    }
    if (*bytes > gd_stream_most(s))
        return gd_fail(
            GD_E_FORMAT,
            "%s: its header claims %zu bytes from byte %llu, more than the file can hold; "
            "is it truncated?",
            gd_stream_path(s), *bytes, (unsigned long long)gd_stream_offset(s));
    return GD_OK;
}

static gd_status read_array(gd_idx *idx, gd_stream *s) {
    uint8_t magic[4];
    size_t bytes;
    GD_TRY(gd_stream_take(s, magic, 4, "the header of an IDX file"));
    idx->itemsize = item_size(magic[2]);
    if (magic[0] || magic[1] || idx->itemsize == 0)
        return gd_fail(GD_E_FORMAT, "%s: is not an IDX file: it begins with %02x %02x %02x %02x",
                       gd_stream_path(s), magic[0], magic[1], magic[2], magic[3]);
    if (magic[3] > GD_IDX_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: byte 3: its array has rank %d; at most %d is supported",
                       gd_stream_path(s), magic[3], GD_IDX_MAX_RANK);
    idx->type = (gd_idx_type)magic[2];
    idx->rank = magic[3];
    GD_TRY(read_dims(idx, s, &bytes));
    idx->items = gd_malloc(bytes ? bytes : 1);
    if (!idx->items)
        return gd_fail(GD_E_MEMORY, "%s: no memory for its %zu bytes", gd_stream_path(s), bytes);
    GD_TRY(gd_stream_take(s, idx->items, bytes, "the items of an IDX file"));
    GD_TRY(gd_stream_finish(s));
    convert_byte_order(idx->items, idx->itemsize > 1 ? idx->count : 0, idx->itemsize);
    return GD_OK;
}

gd_status gd_idx_read(gd_idx *idx, gd_stream *s) {
    *idx = (gd_idx){.rank = 0};
    const gd_status status = read_array(idx, s);
    if (status != GD_OK) gd_idx_free(idx);
    return status;
}

void gd_idx_free(gd_idx *idx) {
    gd_free(idx->items);
    *idx = (gd_idx){.rank = 0};
}
