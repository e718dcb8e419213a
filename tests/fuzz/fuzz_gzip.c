/* fuzz_gzip.c - reads any bytes as a gzip file, in pieces. Also compresses them and checks that
 * they decompress to the same bytes. */
#include "format/deflate.h"
#include "format/inflate.h"
#include "format/stream.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 }; /* bytes to decompress in one run, to keep runs short */

static void read_stream(const uint8_t *data, size_t size) {
    gd_stream *s;
    uint8_t piece[1021];
    size_t got = 1;
    if (gd_stream_open_memory(&s, "fuzz", data, size) != GD_OK) return;
    while (got > 0 && gd_stream_offset(s) < MAX_BYTES) {
        const uint64_t most = gd_stream_most(s);
        if (gd_stream_read(s, piece, sizeof piece, &got) != GD_OK) break;
        if (got > most) abort(); /* the bound that formats rely on */
    }
    gd_stream_close(s);
}

typedef struct packed {
    const uint8_t *at;
    size_t left;
} packed;

static gd_status fetch_packed(void *from, uint8_t *buffer, size_t room, size_t *got) {
    packed *p = from;
    *got = room < p->left ? room : p->left;
    memcpy(buffer, p->at, *got);
    p->at += *got;
    p->left -= *got;
    return GD_OK;
}

static void pack_and_unpack(const uint8_t *data, size_t size) {
    uint8_t *out = malloc(gd_deflate_bound(size)), *back = malloc(size + 1);
    const size_t n = gd_deflate(out, data, size);
    size_t got = 0;
    if (n > gd_deflate_bound(size)) abort();
    packed p = {out, n};
    gd_inflate *z = gd_inflate_new("fuzz", fetch_packed, &p);
    if (n && z &&
        (gd_inflate_read(z, back, size + 1, &got) != GD_OK || got != size ||
         memcmp(back, data, size) != 0))
        abort();
    gd_inflate_free(z);
    free(out);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_stream(data, size);
    pack_and_unpack(data, size);
    return 0;
}
