/* gzip.c - see gzip.h. */
#include "format/gzip.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/crc32.h"
#include "format/inflate.h"

enum {
    HEAD = 10,
    TAIL = 8,    /* checksum and size */
    HAS_CRC = 2, /* flags */
    HAS_EXTRA = 4,
    HAS_NAME = 8,
    HAS_COMMENT = 16,
    RESERVED = 0xE0,
    BEST_RATIO = 1032, /* the best possible: 258 bytes from two bits */
};

struct gd_gzip {
    const gd_file_reader *file;
    gd_inflate *inflate; /* of the current member; NULL: between members */
    uint64_t at;         /* the next compressed byte to fetch */
    uint64_t member;     /* where the member begins */
    uint32_t crc, size;  /* of its decoded bytes, the size modulo 2^32 */
    bool ended;
};

static gd_status fail_damaged(const gd_gzip *g, uint64_t at, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: damaged gzip file at byte %llu: %s",
                   gd_file_reader_path(g->file), (unsigned long long)at, what);
}

gd_status gd_gzip_is(const gd_file_reader *file, bool *is) {
    uint8_t magic[2];
    *is = false;
    if (gd_file_reader_size(file) < sizeof magic) return GD_OK;
    GD_TRY(gd_file_reader_read_at(file, 0, magic, sizeof magic));
    *is = magic[0] == 0x1F && magic[1] == 0x8B;
    return GD_OK;
}

gd_status gd_gzip_open(gd_gzip **out, const gd_file_reader *file) {
    gd_gzip *g = *out = gd_calloc(1, sizeof *g);
    if (!g) return gd_file_no_memory(gd_file_reader_path(file));
    g->file = file;
    return GD_OK;
}

void gd_gzip_close(gd_gzip *g) {
    if (!g) return;
    gd_inflate_free(g->inflate);
    gd_free(g);
}

static uint64_t bytes_left(const gd_gzip *g) { return gd_file_reader_size(g->file) - g->at; }

uint64_t gd_gzip_most(const gd_gzip *g) {
    uint64_t most;
    const uint64_t unused = g->inflate ? gd_inflate_unused(g->inflate) : 0;
    /* 2 more for a copy that is not finished, and bits of the previous byte */
    if (!gd_mul_u64(bytes_left(g) + unused + 2, BEST_RATIO, &most)) return UINT64_MAX;
    return most;
}

static gd_status take_bytes(gd_gzip *g, void *buffer, size_t bytes) {
    if (bytes_left(g) < bytes)
        return fail_damaged(g, gd_file_reader_size(g->file), "it ends too early");
    GD_TRY(gd_file_reader_read_at(g->file, g->at, buffer, bytes));
    g->at += bytes;
    return GD_OK;
}

static gd_status skip_text(gd_gzip *g) {
    uint8_t piece[256];
    for (;;) {
        const size_t n = bytes_left(g) < sizeof piece ? (size_t)bytes_left(g) : sizeof piece;
        if (n == 0) return fail_damaged(g, g->at, "it ends inside its header");
        GD_TRY(gd_file_reader_read_at(g->file, g->at, piece, n));
        for (size_t i = 0; i < n; i++)
            if (piece[i] == 0) {
                g->at += i + 1;
                return GD_OK;
            }
        g->at += n;
    }
}

static gd_status check_header_crc(gd_gzip *g) {
    uint8_t piece[256];
    uint32_t crc = 0;
    for (uint64_t at = g->member; at < g->at;) {
        const size_t n = g->at - at < sizeof piece ? (size_t)(g->at - at) : sizeof piece;
        GD_TRY(gd_file_reader_read_at(g->file, at, piece, n));
        crc = gd_crc32(crc, piece, n);
        at += n;
    }
    GD_TRY(take_bytes(g, piece, 2));
    return gd_get_u16(piece) == (crc & 0xFFFF)
               ? GD_OK
               : fail_damaged(g, g->at - 2, "the checksum of the header is wrong");
}

static gd_status fetch_bytes(void *source, uint8_t *buffer, size_t room, size_t *got) {
    gd_gzip *g = source;
    *got = bytes_left(g) < room ? (size_t)bytes_left(g) : room;
    GD_TRY(gd_file_reader_read_at(g->file, g->at, buffer, *got));
    g->at += *got;
    return GD_OK;
}

static gd_status begin_member(gd_gzip *g) {
    uint8_t head[HEAD];
    g->member = g->at;
    if (bytes_left(g) >= 2) GD_TRY(take_bytes(g, head, 2));
    if (g->at == g->member || head[0] != 0x1F || head[1] != 0x8B)
        return fail_damaged(g, g->member, "a gzip member was expected here");
    GD_TRY(take_bytes(g, head + 2, HEAD - 2));
    if (head[2] != 8) return fail_damaged(g, g->member + 2, "an unknown compression method");
    const uint8_t flags = head[3];
    if (flags & RESERVED) return fail_damaged(g, g->member + 3, "unknown flags");
    if (flags & HAS_EXTRA) {
        GD_TRY(take_bytes(g, head, 2));
        const uint16_t extra = gd_get_u16(head);
        if (bytes_left(g) < extra) return fail_damaged(g, g->at, "it ends inside its header");
        g->at += extra;
    }
    if (flags & HAS_NAME) GD_TRY(skip_text(g));
    if (flags & HAS_COMMENT) GD_TRY(skip_text(g));
    if (flags & HAS_CRC) GD_TRY(check_header_crc(g));
    g->crc = g->size = 0;
    g->inflate = gd_inflate_new(gd_file_reader_path(g->file), fetch_bytes, g);
    return g->inflate ? GD_OK
                      : gd_fail(GD_E_MEMORY, "%s: no memory to decompress it",
                                gd_file_reader_path(g->file));
}

static gd_status end_member(gd_gzip *g) {
    uint8_t tail[TAIL];
    g->at -= gd_inflate_unused(g->inflate);
    gd_inflate_free(g->inflate);
    g->inflate = NULL;
    GD_TRY(take_bytes(g, tail, TAIL));
    if (gd_get_u32(tail) != g->crc)
        return fail_damaged(g, g->at - TAIL, "the checksum does not match the data before it");
    if (gd_get_u32(tail + 4) != g->size)
        return fail_damaged(g, g->at - 4, "the size does not match the data before it");
    return GD_OK;
}

/* Starts the next member, or ends the file, which may be padded with zeros. */
static gd_status next_member(gd_gzip *g) {
    uint8_t byte = 0;
    const uint64_t start = g->at;
    while (bytes_left(g) > 0 && byte == 0) GD_TRY(take_bytes(g, &byte, 1));
    if (byte == 0 && start > 0) {
        g->ended = true;
        return GD_OK;
    }
    g->at = start;
    return begin_member(g);
}

gd_status gd_gzip_read(gd_gzip *g, void *buffer, size_t bytes, size_t *got) {
    *got = 0;
    while (*got < bytes && !g->ended) {
        if (!g->inflate) {
            GD_TRY(next_member(g));
            continue;
        }
        uint8_t *to = (uint8_t *)buffer + *got;
        size_t part;
        GD_TRY(gd_inflate_read(g->inflate, to, bytes - *got, &part));
        g->crc = gd_crc32(g->crc, to, part);
        g->size += (uint32_t)part;
        *got += part;
        if (*got < bytes) GD_TRY(end_member(g));
    }
    return GD_OK;
}
