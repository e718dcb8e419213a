/* hdf5_bytes.c - blocks of an HDF5 file and their checksums. See hdf5_parts.h. */
#include "core/alloc.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <string.h>

enum { CHECKSUM_BYTES = 4 };

gd_status gd_hdf5_fail_at(const gd_hdf5 *file, uint64_t address, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: the HDF5 file is wrong at %" PRIu64 ": %s",
                   gd_file_reader_path(file->file), file->base + address, what);
}

gd_status gd_hdf5_no_memory(const gd_hdf5 *file) {
    return gd_file_no_memory(gd_file_reader_path(file->file));
}

/* What a walk copies (names, attributes) is charged, too: hence twice the size. */
gd_hdf5_walk gd_hdf5_walk_begin(const gd_hdf5 *file) {
    return (gd_hdf5_walk){file, file->size > UINT64_MAX / 4 ? UINT64_MAX : 2 * file->size + 64};
}

gd_status gd_hdf5_spend(gd_hdf5_walk *walk, uint64_t address, uint64_t bytes) {
    if (bytes > walk->left)
        return gd_hdf5_fail_at(walk->file, address, "blocks refer to each other in a circle");
    walk->left -= bytes;
    return GD_OK;
}

gd_status gd_hdf5_load(gd_hdf5_walk *walk, uint64_t address, uint64_t bytes, uint8_t **out) {
    const gd_hdf5 *file = walk->file;
    *out = NULL;
    if (address > file->size || bytes > file->size - address)
        return gd_hdf5_fail_at(file, address > file->size ? 0 : address,
                               "a block reaches beyond the end of the file (truncated?)");
    GD_TRY(gd_hdf5_spend(walk, address, bytes));
    uint8_t *block = gd_malloc((size_t)bytes + 1);
    if (!block) return gd_hdf5_no_memory(file);
    const gd_status status =
        gd_file_reader_read_at(file->file, file->base + address, block, (size_t)bytes);
    if (status == GD_OK) *out = block;
    else gd_free(block);
    return status;
}

bool gd_hdf5_ignores_checksums;

gd_status gd_hdf5_verify(const gd_hdf5 *file, uint64_t address, const uint8_t *block,
                         size_t bytes) {
    if (gd_hdf5_ignores_checksums && bytes >= CHECKSUM_BYTES) return GD_OK;
    if (bytes < CHECKSUM_BYTES || gd_hdf5_checksum(block, bytes - CHECKSUM_BYTES) !=
                                      gd_get_u32(block + bytes - CHECKSUM_BYTES))
        return gd_hdf5_fail_at(file, address, "the checksum of a block does not match");
    return GD_OK;
}

gd_status gd_hdf5_load_checked(gd_hdf5_walk *walk, uint64_t address, uint64_t bytes,
                               const char *signature, uint8_t **out) {
    GD_TRY(gd_hdf5_load(walk, address, bytes, out));
    gd_status status = GD_OK;
    if (bytes < 5 + CHECKSUM_BYTES || memcmp(*out, signature, 4) != 0)
        status =
            gd_fail(GD_E_FORMAT, "%s: the HDF5 file is wrong at %" PRIu64 ": expected '%s'",
                    gd_file_reader_path(walk->file->file), walk->file->base + address, signature);
    else if ((*out)[4] != 0)
        status = gd_fail(GD_E_UNSUPPORTED, "%s: version %d of a block '%s' is not supported",
                         gd_file_reader_path(walk->file->file), (*out)[4], signature);
    else status = gd_hdf5_verify(walk->file, address, *out, (size_t)bytes);
    if (status != GD_OK) {
        gd_free(*out);
        *out = NULL;
    }
    return status;
}

/* --- checksums -------------------------------------------------------------------------------- */

static uint32_t rotated(uint32_t x, int by) { return x << by | x >> (32 - by); }

/* Jenkins's hash lookup3 ("hashlittle") with the initial value 0. */
uint32_t gd_hdf5_checksum(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t a = 0xdeadbeef + (uint32_t)bytes, b = a, c = a;
    for (; bytes > 12; bytes -= 12, p += 12) {
        a += gd_get_u32(p);
        b += gd_get_u32(p + 4);
        c += gd_get_u32(p + 8);
        a = (a - c) ^ rotated(c, 4), c += b;
        b = (b - a) ^ rotated(a, 6), a += c;
        c = (c - b) ^ rotated(b, 8), b += a;
        a = (a - c) ^ rotated(c, 16), c += b;
        b = (b - a) ^ rotated(a, 19), a += c;
        c = (c - b) ^ rotated(b, 4), b += a;
    }
    if (bytes == 0) return c;
    uint8_t last[12] = {0};
    memcpy(last, p, bytes);
    a += gd_get_u32(last);
    b += gd_get_u32(last + 4);
    c += gd_get_u32(last + 8);
    c = (c ^ b) - rotated(b, 14);
    a = (a ^ c) - rotated(c, 11);
    b = (b ^ a) - rotated(a, 25);
    c = (c ^ b) - rotated(b, 16);
    a = (a ^ c) - rotated(c, 4);
    b = (b ^ a) - rotated(a, 14);
    return (c ^ b) - rotated(b, 24);
}

/* Two sums modulo 65535 of big-endian 16-bit numbers; a last single byte is the high half of one. 0
 * and 65535 are the same number there: only a sum of no bytes or of zeros is 0. */
uint32_t gd_hdf5_fletcher32(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t first = 0, second = 0;
    for (size_t i = 0; i < bytes; i += 2) {
        first += (uint32_t)p[i] << 8 | (i + 1 < bytes ? p[i + 1] : 0);
        first = (first & 0xffff) + (first >> 16);
        second += first;
        second = (second & 0xffff) + (second >> 16);
    }
    return second << 16 | first;
}
