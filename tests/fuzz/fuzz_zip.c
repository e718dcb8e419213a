/* fuzz_zip.c - reads any bytes as a ZIP archive with all its entries, and as deflated data. */
#include "format/inflate.h"
#include "format/zip.h"

#include <string.h>

enum { MAX_BYTES = 1 << 20 }; /* bytes to decompress in one run, to keep runs short */

static size_t read_entry(const gd_zip_reader *zip, const gd_zip_entry *entry) {
    gd_zip_stream *stream;
    if (gd_zip_stream_open(&stream, zip, entry) != GD_OK) return 1;
    uint8_t piece[4093];
    size_t total = 1;
    for (uint64_t left = entry->bytes; left > 0 && total < MAX_BYTES;) {
        size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
        if (gd_zip_stream_read(stream, piece, n) != GD_OK) break;
        left -= n;
        total += n;
    }
    gd_zip_stream_close(stream);
    return total;
}

static void read_archive(const uint8_t *data, size_t size) {
    gd_file_reader *file;
    gd_zip_reader *zip;
    if (gd_file_reader_open_memory(&file, "fuzz", data, size) != GD_OK) return;
    if (gd_zip_reader_open(&zip, file) == GD_OK) {
        size_t total = 0;
        for (size_t i = 0; i < gd_zip_reader_count(zip) && total < MAX_BYTES; i++)
            total += read_entry(zip, gd_zip_reader_at(zip, i));
        gd_zip_reader_close(zip);
    }
    gd_file_reader_close(file);
}

typedef struct deflated_source {
    const uint8_t *at;
    size_t left;
} deflated_source;

static gd_status fetch_deflated(void *from, uint8_t *buffer, size_t room, size_t *got) {
    deflated_source *s = from;
    *got = room < s->left ? room : s->left;
    if (*got > 0) memcpy(buffer, s->at, *got);
    s->at += *got;
    s->left -= *got;
    return GD_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_archive(data, size);
    deflated_source s = {data, size};
    gd_inflate *z = gd_inflate_new("fuzz", fetch_deflated, &s);
    uint8_t piece[1021];
    size_t got = 1;
    for (size_t total = 0; z != NULL && got > 0 && total < MAX_BYTES; total += got)
        if (gd_inflate_read(z, piece, sizeof piece, &got) != GD_OK) break;
    gd_inflate_free(z);
    return 0;
}
