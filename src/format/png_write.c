/* png_write.c - writes PNG files without libpng; see image.h. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/adler32.h"
#include "format/crc32.h"
#include "format/deflate.h"
#include "format/file.h"
#include "format/image.h"

enum { CHUNK = 12, MAX_PART = 1 << 30 }; /* bytes of a chunk around its data; of data at most */

static void put_be32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Appends length, type, data, and the checksum of type and data. Returns the end. */
static uint8_t *put_chunk(uint8_t *to, const char *type, const uint8_t *data, size_t bytes) {
    put_be32(to, (uint32_t)bytes);
    memcpy(to + 4, type, 4);
    if (bytes) memcpy(to + 8, data, bytes);
    put_be32(to + 8 + bytes, gd_crc32(0, to + 4, bytes + 4));
    return to + bytes + CHUNK;
}

/* Filters a row. Of three filters (none, minus the left pixel, minus the pixel above) it chooses
 * the one with the smallest sum of absolute bytes. The number of the filter comes first. */
static void filter_row(uint8_t *to, const uint8_t *row, const uint8_t *above, size_t bytes,
                       size_t channels) {
    uint64_t best = UINT64_MAX;
    uint8_t choice = 0;
    for (uint8_t type = 0; type < 4; type++) {
        uint64_t sum = 0;
        const bool last = type == 3; /* the last iteration writes the chosen one */
        const uint8_t by = last ? choice : type;
        for (size_t i = 0; i < bytes; i++) {
            const uint8_t left = i >= channels ? row[i - channels] : 0, up = above ? above[i] : 0;
            const uint8_t v = (uint8_t)(row[i] - (by == 1 ? left : by == 2 ? up : 0));
            to[1 + i] = v;
            sum += (uint64_t)abs((int8_t)v);
        }
        if (!last && sum < best) best = sum, choice = type;
    }
    to[0] = choice;
}

/* Compresses the pixels to a zlib stream, from gd_malloc. */
static gd_status compress_pixels(const char *path, size_t width, size_t height, size_t channels,
                                 const uint8_t *pixels, uint8_t **packed, size_t *size) {
    const size_t row = width * channels, bytes = height * (row + 1);
    uint8_t *raw = gd_malloc(bytes), *out = gd_malloc(gd_deflate_bound(bytes) + 6);
    size_t n = 0;
    for (size_t y = 0; raw && y < height; y++)
        filter_row(raw + y * (row + 1), pixels + y * row, y ? pixels + (y - 1) * row : NULL, row,
                   channels);
    if (raw && out) n = gd_deflate(out + 2, raw, bytes);
    if (n > 0) {
        memcpy(out, "\x78\x01", 2);
        put_be32(out + 2 + n, gd_adler32(raw, bytes));
    }
    gd_free(raw);
    if (n == 0) gd_free(out);
    *packed = n ? out : NULL;
    *size = n + 6;
    return n ? GD_OK : gd_fail(GD_E_MEMORY, "%s: no memory to compress it", path);
}

/* The file with this zlib stream, from gd_malloc. */
static gd_status put_chunks(const char *name, int width, int height, int channels,
                            const uint8_t *packed, size_t size, uint8_t **data, size_t *bytes) {
    static const uint8_t types[] = {0, 0, 4, 2, 6};
    uint8_t header[13] = {[8] = 8, [9] = types[channels]};
    const size_t parts = size / MAX_PART + 1;
    uint8_t *to = *data = gd_malloc(8 + sizeof header + size + CHUNK * (parts + 2));
    if (!to) return gd_fail(GD_E_MEMORY, "%s: no memory for the file", name);
    put_be32(header, (uint32_t)width);
    put_be32(header + 4, (uint32_t)height);
    memcpy(to, "\x89PNG\r\n\x1a\n", 8);
    to = put_chunk(to + 8, "IHDR", header, sizeof header);
    for (size_t part, at = 0; at < size; at += part) {
        part = size - at < MAX_PART ? size - at : MAX_PART;
        to = put_chunk(to, "IDAT", packed + at, part);
    }
    *bytes = (size_t)(put_chunk(to, "IEND", NULL, 0) - *data);
    return GD_OK;
}

gd_status gd_bitmap_encode_png(const char *name, int width, int height, int channels,
                               const uint8_t *pixels, uint8_t **data, size_t *bytes) {
    *data = NULL;
    if (width < 1 || height < 1 || height > GD_BITMAP_MAX_PIXELS / width || channels < 1 ||
        channels > 4)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: an image of %d x %d pixels with %d channels cannot be written", name,
                       width, height, channels);
    uint8_t *packed;
    size_t size;
    GD_TRY(compress_pixels(name, (size_t)width, (size_t)height, (size_t)channels, pixels, &packed,
                           &size));
    const gd_status status = put_chunks(name, width, height, channels, packed, size, data, bytes);
    gd_free(packed);
    return status;
}

gd_status gd_bitmap_write_png(const char *path, int width, int height, int channels,
                              const uint8_t *pixels) {
    uint8_t *data;
    size_t bytes;
    gd_file_writer *file;
    GD_TRY(gd_bitmap_encode_png(path, width, height, channels, pixels, &data, &bytes));
    gd_status status = gd_file_writer_begin(&file, path);
    if (status == GD_OK) {
        status = gd_file_writer_write(file, data, bytes);
        if (status == GD_OK) status = gd_file_writer_commit(file);
        else gd_file_writer_cancel(file);
    }
    gd_free(data);
    return status;
}
