/* test_zip.c - ZIP archives, inflate and CRC-32 (format/zip.h, inflate.h, crc32.h). */
#include <unistd.h>

#include "core/alloc.h"
#include "core/error.h"
#include "fault_walk.h"
#include "files.h"
#include "format/bytes.h"
#include "format/crc32.h"
#include "format/inflate.h"
#include "format/npy.h"
#include "format/zip.h"
#include "temp.h"
#include "test.h"

/* np.savez_compressed(f, a=(np.arange(400) * 7 % 23).astype('<i4').reshape(20, 20),
 *                     b=np.array([1.5, -2.0], dtype='>f8')) */
// clang-format off
static const uint8_t compressed_npz[] = {
    0x50, 0x4b, 0x03, 0x04, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0xed, 0xb3,
    0xa8, 0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05, 0x00, 0x14, 0x00, 0x61, 0x2e,
    0x6e, 0x70, 0x79, 0x01, 0x00, 0x10, 0x00, 0xc0, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x8f,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xed, 0xcc, 0xbb, 0x0a, 0xc2, 0x30, 0x18, 0x86, 0xe1,
    0xd4, 0xf3, 0xf9, 0xac, 0x73, 0xb6, 0x28, 0x64, 0x28, 0xc5, 0xa9, 0x38, 0xbb, 0x29, 0x2e, 0x0e,
    0x4e, 0x52, 0x6c, 0x44, 0x41, 0xac, 0x24, 0xe2, 0x22, 0x5e, 0x85, 0x37, 0xec, 0x5b, 0xbc, 0x03,
    0x47, 0xc9, 0x07, 0xcf, 0x90, 0x9f, 0xf0, 0xbe, 0xd7, 0xdb, 0xd5, 0x66, 0x17, 0x88, 0x87, 0x78,
    0xaa, 0xd4, 0xb8, 0x83, 0x55, 0xb1, 0x54, 0x8b, 0xf3, 0x5c, 0x69, 0xa9, 0x8e, 0x99, 0xbd, 0xdb,
    0xe4, 0xba, 0xcf, 0x6c, 0x6a, 0xf2, 0xfb, 0x32, 0xb9, 0x38, 0xc3, 0xdd, 0x9d, 0x92, 0x9b, 0xe1,
    0x3d, 0x8d, 0x42, 0x2d, 0xa3, 0x70, 0xa6, 0xe5, 0x4b, 0xfe, 0xb8, 0x86, 0x60, 0x55, 0x74, 0x30,
    0x46, 0x19, 0x2d, 0x0c, 0x51, 0x44, 0xfe, 0xa1, 0x8f, 0x00, 0x35, 0x74, 0x31, 0x41, 0x05, 0x6d,
    0x8c, 0x50, 0x42, 0x13, 0x03, 0x14, 0x50, 0x47, 0x4f, 0x7c, 0xe7, 0xdb, 0xbe, 0xed, 0xdb, 0xbe,
    0xed, 0xdb, 0xff, 0xd9, 0xfe, 0x00, 0x50, 0x4b, 0x03, 0x04, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00,
    0x00, 0x00, 0x21, 0x00, 0x57, 0x03, 0x95, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0x05, 0x00, 0x14, 0x00, 0x62, 0x2e, 0x6e, 0x70, 0x79, 0x01, 0x00, 0x10, 0x00, 0x90, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x4d, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9b, 0xec, 0x17,
    0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50, 0xc6, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e,
    0xa5, 0xa0, 0x6e, 0x97, 0x66, 0xa1, 0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98,
    0x17, 0x9f, 0x5f, 0x94, 0x92, 0x0a, 0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67,
    0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a, 0x46, 0x3a, 0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x14, 0x00, 0x2e,
    0xfb, 0x1f, 0x0c, 0x60, 0x70, 0x00, 0x42, 0x31, 0x00, 0x00, 0x50, 0x4b, 0x01, 0x02, 0x2d, 0x03,
    0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0xed, 0xb3, 0xa8, 0x0f, 0x8f, 0x00,
    0x00, 0x00, 0xc0, 0x06, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x61, 0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x01,
    0x02, 0x2d, 0x03, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x57, 0x03, 0x95,
    0x1f, 0x4d, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0xc6, 0x00, 0x00, 0x00, 0x62, 0x2e, 0x6e, 0x70, 0x79,
    0x50, 0x4b, 0x05, 0x06, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x02, 0x00, 0x66, 0x00, 0x00, 0x00,
    0x4a, 0x01, 0x00, 0x00, 0x00, 0x00,
};
// clang-format on

static const char *path;

static gd_status open_memory(const void *data, size_t bytes, gd_file_reader **file,
                             gd_zip_reader **zip) {
    *zip = NULL;
    gd_status status = gd_file_reader_open_memory(file, "t.zip", data, bytes);
    return status == GD_OK ? gd_zip_reader_open(zip, *file) : status;
}

static gd_status read_stream(void *source, void *buffer, size_t bytes) {
    return gd_zip_stream_read(source, buffer, bytes);
}

/* Reads all entries of an archive in pieces; GD_OK if all of them are valid. */
static gd_status read_everything(const void *data, size_t bytes) {
    /* a heap copy of exactly this size, so that AddressSanitizer detects reads beyond it */
    void *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, data, bytes);
    gd_file_reader *file;
    gd_zip_reader *zip;
    gd_status status = open_memory(copy, bytes, &file, &zip);
    for (size_t i = 0; status == GD_OK && i < gd_zip_reader_count(zip); i++) {
        const gd_zip_entry *entry = gd_zip_reader_at(zip, i);
        gd_zip_stream *s;
        status = gd_zip_stream_open(&s, zip, entry);
        char piece[100];
        for (uint64_t left = entry->bytes; status == GD_OK && left > 0;) {
            size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
            status = gd_zip_stream_read(s, piece, n);
            left -= n;
        }
        gd_zip_stream_close(s);
    }
    gd_zip_reader_close(zip);
    gd_file_reader_close(file);
    free(copy);
    return status;
}

/* --- checksums and inflate -------------------------------------------------------------------- */

TEST(crc32_of_known_text_is_correct) {
    CHECK(gd_crc32(0, "", 0) == 0);
    CHECK(gd_crc32(0, "123456789", 9) == 0xCBF43926);
    const char *text = "The quick brown fox jumps over the lazy dog";
    CHECK(gd_crc32(0, text, 43) == 0x414FA339);
    for (size_t cut = 0; cut <= 43; cut++)
        CHECK(gd_crc32(gd_crc32(0, text, cut), text + cut, 43 - cut) == 0x414FA339);
}

typedef struct bytes_source {
    const uint8_t *at;
    size_t left, most; /* `most` is the largest number of bytes for each call */
} bytes_source;

static gd_status fetch_bytes(void *source, uint8_t *buffer, size_t room, size_t *got) {
    bytes_source *s = source;
    *got = room < s->left ? room : s->left;
    if (*got > s->most) *got = s->most;
    memcpy(buffer, s->at, *got);
    s->at += *got;
    s->left -= *got;
    return GD_OK;
}

static gd_status inflate_all(const uint8_t *data, size_t bytes, size_t most, size_t step,
                             char *text, size_t room, size_t *length) {
    bytes_source source = {data, bytes, most};
    gd_inflate *z = gd_inflate_new("t", fetch_bytes, &source);
    gd_status status = GD_OK;
    *length = 0;
    for (size_t got = 1; status == GD_OK && got > 0 && *length < room;) {
        size_t n = room - *length < step ? room - *length : step;
        status = gd_inflate_read(z, text + *length, n, &got);
        if (status == GD_OK) *length += got;
    }
    gd_inflate_free(z);
    return status;
}

TEST(deflate_blocks_of_every_kind_are_read) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
        size_t length;
    } cases[] = {
        {"\x03\x00", 2, "", 0},             /* fixed, empty */
        {"\x01\x00\x00\xff\xff", 5, "", 0}, /* stored, empty */
        {"\x01\x03\x00\xfc\xff"
         "abc",
         8, "abc", 3},                                 /* stored */
        {"\x4b\x4c\x4a\x06\x00", 5, "abc", 3},         /* fixed */
        {"\x4b\x4c\x84\x01\x00", 5, "aaaaaaaaaa", 10}, /* an overlapping copy */
        {"\x00\x02\x00\xfd\xff"
         "ab"
         "\x4b\x06\x00",
         10, "abc", 3}, /* two blocks */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 20; step += 19) {
            char text[32];
            size_t length;
            const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
            CHECK(inflate_all(bytes, cases[i].size, step, step, text, sizeof text, &length) ==
                  GD_OK);
            CHECK(length == cases[i].length && memcmp(text, cases[i].text, length) == 0);
        }
}

TEST(damaged_blocks_fail) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"", 0, "they end too early"},
        {"\x4b\x4c\x4a", 3, "they end too early"},
        {"\x07", 1, "a block of an unknown type"},
        {"\x01\x03\x00\xfd\xff"
         "abc",
         8, "a stored block whose two lengths differ"},
        {"\x01\x03\x00\xfc\xff"
         "ab",
         7, "they end too early"},
        {"\x03\x02", 2, "a copy from before the beginning"},
        {"\xfc\x00\x00", 3, "too many codes"},
        {"\x04\x00\x00\x00\x00\x00", 6, "a code that has no symbol"},
        {"\x04\x00\xfe\xff", 4, "impossible code lengths"},
        {"\x04\x00\x92\x04", 4, "impossible code lengths"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        size_t length;
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        gd_status status = inflate_all(bytes, cases[i].size, 1, 5, text, sizeof text, &length);
        CHECK(status == GD_E_FORMAT);
        if (strstr(gd_latest_failure(), cases[i].message) == NULL)
            fprintf(stderr, "case %zu: %s\n", i, gd_latest_failure());
        CHECK(strstr(gd_latest_failure(), cases[i].message) != NULL);
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

TEST(a_compressed_archive_of_numpy_is_read) {
    gd_file_reader *file;
    gd_zip_reader *zip;
    CHECK(open_memory(compressed_npz, sizeof compressed_npz, &file, &zip) == GD_OK);
    CHECK(gd_zip_reader_count(zip) == 2 && gd_zip_reader_at(zip, 2) == NULL);
    CHECK(gd_zip_reader_find(zip, "c.npy") == NULL);
    const gd_zip_entry *a = gd_zip_reader_find(zip, "a.npy");
    const gd_zip_entry *b = gd_zip_reader_find(zip, "b.npy");
    CHECK(a != NULL && b != NULL);
    gd_zip_stream *s;
    gd_npy_header h;
    CHECK(gd_zip_stream_open(&s, zip, a) == GD_OK);
    CHECK(strcmp(gd_zip_stream_name(s), "t.zip: a.npy") == 0);
    CHECK(gd_npy_read_header(&h, gd_zip_stream_name(s), a->bytes, read_stream, s) == GD_OK);
    CHECK(h.kind == GD_NPY_INT && h.itemsize == 4 && h.rank == 2 && h.dims[0] == 20);
    CHECK(h.data_offset + h.data_bytes == a->bytes && h.data_bytes == 1600);
    for (int i = 0; i < 400; i++) {
        uint8_t item[4];
        CHECK(gd_zip_stream_read(s, item, 4) == GD_OK);
        CHECK(gd_get_u32(item) == (uint32_t)(i * 7 % 23));
    }
    CHECK(gd_zip_stream_read(s, &h, 1) == GD_E_FORMAT); /* the stream has ended */
    gd_zip_stream_close(s);

    CHECK(gd_zip_stream_open(&s, zip, b) == GD_OK);
    CHECK(gd_npy_read_header(&h, "b", b->bytes, read_stream, s) == GD_OK);
    CHECK(h.kind == GD_NPY_FLOAT && h.itemsize == 8 && h.data_bytes == 16);
    double items[2];
    CHECK(gd_zip_stream_read(s, items, 16) == GD_OK);
    if (h.swapped) gd_npy_swap(items, 2, 8);
    CHECK(items[0] == 1.5 && items[1] == -2.0);
    gd_zip_stream_close(s);
    gd_zip_stream_close(NULL);
    gd_zip_reader_close(zip);
    gd_file_reader_close(file);
}

/* Appends a record field by field. */
typedef struct builder {
    uint8_t bytes[1000];
    uint8_t *at;
} builder;

static void put16(builder *b, uint16_t v) { b->at = gd_put_u16(b->at, v); }
static void put32(builder *b, uint32_t v) { b->at = gd_put_u32(b->at, v); }
static void put64(builder *b, uint64_t v) { b->at = gd_put_u64(b->at, v); }
static void put_text(builder *b, const char *text) {
    memcpy(b->at, text, strlen(text));
    b->at += strlen(text);
}

/* One stored entry "a" with the text "hello"; every number that Zip64 can hold is in a Zip64
 * field. */
static size_t make_zip64_archive(builder *b, uint64_t bytes, uint64_t offset, uint64_t count) {
    memset(b, 0, sizeof *b);
    b->at = b->bytes;
    put32(b, 0x04034b50), put16(b, 45), put16(b, 0), put16(b, 0), put32(b, 0);
    put32(b, gd_crc32(0, "hello", 5)), put32(b, UINT32_MAX), put32(b, UINT32_MAX);
    put16(b, 1), put16(b, 20), put_text(b, "a");
    put16(b, 1), put16(b, 16), put64(b, bytes), put64(b, bytes), put_text(b, "hello");
    uint64_t directory = (uint64_t)(b->at - b->bytes);
    put32(b, 0x02014b50), put16(b, 45), put16(b, 45), put16(b, 0), put16(b, 0), put32(b, 0);
    put32(b, gd_crc32(0, "hello", 5)), put32(b, UINT32_MAX), put32(b, UINT32_MAX);
    put16(b, 1), put16(b, 36), put16(b, 0), put16(b, 0), put16(b, 0), put32(b, 0);
    put32(b, UINT32_MAX), put_text(b, "a");
    put16(b, 0x9999), put16(b, 4), put32(b, 0); /* an extra field of another program */
    put16(b, 1), put16(b, 24), put64(b, bytes), put64(b, bytes), put64(b, offset);
    uint64_t end64 = (uint64_t)(b->at - b->bytes);
    put32(b, 0x06064b50), put64(b, 44), put16(b, 45), put16(b, 45), put32(b, 0), put32(b, 0);
    put64(b, count), put64(b, count), put64(b, end64 - directory), put64(b, directory);
    put32(b, 0x07064b50), put32(b, 0), put64(b, end64), put32(b, 1);
    put32(b, 0x06054b50), put16(b, 0), put16(b, 0), put16(b, UINT16_MAX), put16(b, UINT16_MAX);
    put32(b, UINT32_MAX), put32(b, UINT32_MAX), put16(b, 7), put_text(b, "comment");
    return (size_t)(b->at - b->bytes);
}

TEST(zip64_archives_are_read) {
    builder b;
    size_t size = make_zip64_archive(&b, 5, 0, 1);
    CHECK(read_everything(b.bytes, size) == GD_OK);
    gd_file_reader *file;
    gd_zip_reader *zip;
    gd_zip_stream *s;
    char text[5];
    CHECK(open_memory(b.bytes, size, &file, &zip) == GD_OK);
    CHECK(gd_zip_reader_at(zip, 0)->bytes == 5);
    CHECK(gd_zip_stream_open(&s, zip, gd_zip_reader_find(zip, "a")) == GD_OK);
    CHECK(gd_zip_stream_read(s, text, 5) == GD_OK && memcmp(text, "hello", 5) == 0);
    gd_zip_stream_close(s);
    gd_zip_reader_close(zip);
    gd_file_reader_close(file);
}

TEST(archives_with_false_sizes_fail) {
    builder b;
    CHECK(read_everything(b.bytes, make_zip64_archive(&b, 6, 0, 1)) == GD_E_FORMAT);
    CHECK(read_everything(b.bytes, make_zip64_archive(&b, UINT64_MAX, 0, 1)) == GD_E_FORMAT);
    CHECK(read_everything(b.bytes, make_zip64_archive(&b, 5, 1, 1)) == GD_E_FORMAT);
    CHECK(read_everything(b.bytes, make_zip64_archive(&b, 5, UINT64_MAX, 1)) == GD_E_FORMAT);
    CHECK(read_everything(b.bytes, make_zip64_archive(&b, 5, 0, 2)) == GD_E_FORMAT);
    CHECK(read_everything(b.bytes, make_zip64_archive(&b, 5, 0, UINT64_MAX)) == GD_E_FORMAT);

    /* A deflated entry that claims more than its bytes can give: the directory check fails. */
    uint8_t copy[sizeof compressed_npz];
    memcpy(copy, compressed_npz, sizeof copy);
    uint8_t *entry = memmem(copy, sizeof copy, "PK\x01\x02", 4);
    gd_put_u32(entry + 24, 0x7FFFFFFF);
    CHECK(read_everything(copy, sizeof copy) == GD_E_FORMAT);
    CHECK(strstr(gd_latest_failure(), "claims more bytes") != NULL);
    /* An entry that claims a little more, or less, than it holds: detected at its end. */
    for (int by = -1; by <= 1; by += 2) {
        memcpy(copy, compressed_npz, sizeof copy);
        gd_put_u32(entry + 24, (uint32_t)((int)gd_get_u32(entry + 24) + by));
        CHECK(read_everything(copy, sizeof copy) == GD_E_FORMAT);
        CHECK(strstr(gd_latest_failure(), "bytes than in the directory") != NULL);
    }
    memcpy(copy, compressed_npz, sizeof copy);
    entry[16] ^= 1;
    CHECK(read_everything(copy, sizeof copy) == GD_E_FORMAT);
    CHECK(strstr(gd_latest_failure(), "checksum") != NULL);
    memcpy(copy, compressed_npz, sizeof copy);
    entry[8] |= 1;
    CHECK(read_everything(copy, sizeof copy) == GD_E_UNSUPPORTED); /* encrypted */
}

TEST(truncated_or_changed_files_do_not_crash) {
    CHECK(read_everything(compressed_npz, sizeof compressed_npz) == GD_OK);
    for (size_t size = 0; size < sizeof compressed_npz; size++)
        CHECK(read_everything(compressed_npz, size) == GD_E_FORMAT);
    builder b;
    size_t zip64_size = make_zip64_archive(&b, 5, 0, 1);
    for (size_t size = 0; size < zip64_size; size++)
        CHECK(read_everything(b.bytes, size) == GD_E_FORMAT);

    static const uint8_t changes[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF};
    uint8_t copy[sizeof compressed_npz];
    memcpy(copy, compressed_npz, sizeof copy);
    for (size_t i = 0; i < sizeof copy; i++)
        for (size_t k = 0; k < sizeof changes; k++) {
            copy[i] ^= changes[k];
            gd_status status = read_everything(copy, sizeof copy);
            CHECK(status == GD_OK || status == GD_E_FORMAT || status == GD_E_UNSUPPORTED);
            copy[i] ^= changes[k];
        }
    for (size_t i = 0; i < zip64_size; i++)
        for (int value = 0; value < 256; value++) {
            uint8_t before = b.bytes[i];
            b.bytes[i] = (uint8_t)value;
            gd_status status = read_everything(b.bytes, zip64_size);
            CHECK(status == GD_OK || status == GD_E_FORMAT || status == GD_E_UNSUPPORTED);
            b.bytes[i] = before;
        }
}

TEST(failed_allocations_while_reading_return_a_status) {
    for (fault_walk w = {.what = "reading"}; fault_next(&w);) {
        fault_begin(&w);
        gd_status status = read_everything(compressed_npz, sizeof compressed_npz);
        fault_end(&w);
        CHECK_ROUND(&w, status == (w.fired ? GD_E_MEMORY : GD_OK));
    }
}

/* --- writing ---------------------------------------------------------------------------------- */

static gd_status write_example(void) {
    gd_zip_writer *zip;
    gd_status status = gd_zip_writer_begin(&zip, path);
    if (status != GD_OK) return status;
    if (status == GD_OK) status = gd_zip_writer_entry(zip, "first.npy");
    if (status == GD_OK) status = gd_zip_writer_write(zip, "123", 3);
    if (status == GD_OK) status = gd_zip_writer_write(zip, "456789", 6);
    if (status == GD_OK) status = gd_zip_writer_entry(zip, "empty");
    if (status == GD_OK) status = gd_zip_writer_entry(zip, "caf\xC3\xA9/x");
    if (status == GD_OK) status = gd_zip_writer_write(zip, "z", 1);
    if (status == GD_OK) return gd_zip_writer_commit(zip);
    gd_zip_writer_cancel(zip);
    return status;
}

TEST(written_archives_read_back) {
    CHECK(write_example() == GD_OK);
    char *data;
    size_t bytes;
    CHECK(gd_file_read_all(path, &data, &bytes) == GD_OK);
    CHECK(read_everything(data, bytes) == GD_OK);
    gd_file_reader *file;
    gd_zip_reader *zip;
    CHECK(open_memory(data, bytes, &file, &zip) == GD_OK);
    CHECK(gd_zip_reader_count(zip) == 3);
    CHECK(gd_zip_reader_find(zip, "first.npy")->crc == 0xCBF43926);
    CHECK(gd_zip_reader_find(zip, "first.npy")->bytes == 9);
    CHECK(gd_zip_reader_find(zip, "empty")->bytes == 0);
    CHECK(gd_zip_reader_find(zip, "caf\xC3\xA9/x")->bytes == 1);
    gd_zip_reader_close(zip);
    gd_file_reader_close(file);

    /* equal contents give equal bytes */
    char *again;
    size_t again_bytes;
    CHECK(write_example() == GD_OK);
    CHECK(gd_file_read_all(path, &again, &again_bytes) == GD_OK);
    CHECK(again_bytes == bytes && memcmp(again, data, bytes) == 0);
    gd_free(data);
    gd_free(again);
}

TEST(archives_may_have_more_than_65535_entries) {
    enum { COUNT = 66000 };
    gd_zip_writer *w;
    CHECK(gd_zip_writer_begin(&w, path) == GD_OK);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        CHECK(gd_zip_writer_entry(w, name) == GD_OK);
    }
    CHECK(gd_zip_writer_commit(w) == GD_OK);
    gd_file_reader *file;
    gd_zip_reader *zip;
    CHECK(gd_file_reader_open(&file, path) == GD_OK);
    CHECK(gd_zip_reader_open(&zip, file) == GD_OK);
    CHECK(gd_zip_reader_count(zip) == COUNT);
    CHECK(strcmp(gd_zip_reader_at(zip, COUNT - 1)->name, "65999") == 0);
    gd_zip_reader_close(zip);
    gd_file_reader_close(file);
}

TEST(misuse_fails) {
    unlink(path);
    gd_zip_writer *zip;
    CHECK(gd_zip_writer_begin(&zip, path) == GD_OK);
    CHECK(gd_zip_writer_write(zip, "x", 1) == GD_E_STATE);
    CHECK(gd_zip_writer_entry(zip, "") == GD_E_ARGUMENT);
    CHECK(gd_zip_writer_entry(zip, "\xFF") == GD_E_ARGUMENT);
    CHECK(gd_zip_writer_entry(zip, "twice") == GD_OK);
    CHECK(gd_zip_writer_entry(zip, "twice") == GD_OK);
    CHECK(gd_zip_writer_commit(zip) == GD_E_ARGUMENT);
    CHECK(!file_exists(path)); /* no file was created */
    CHECK(gd_zip_writer_begin(&zip, path) == GD_OK);
    CHECK(gd_zip_writer_commit(zip) == GD_OK); /* an empty archive is valid */
    char *data;
    size_t bytes;
    CHECK(gd_file_read_all(path, &data, &bytes) == GD_OK);
    CHECK(bytes == 22 && read_everything(data, bytes) == GD_OK);
    gd_free(data);
    gd_zip_writer_cancel(NULL);
}

TEST(failed_allocations_while_writing_return_a_status) {
    for (fault_walk w = {.what = "writing"}; fault_next(&w);) {
        unlink(path);
        fault_begin(&w);
        gd_status status = write_example();
        fault_end(&w);
        CHECK_FAULT(&w, status);
        CHECK_ROUND(&w, file_exists(path) == (status == GD_OK));
    }
    CHECK(folder_count(temp_folder()) == 1); /* and no temporary file of the library */
}

int main(int argc, char **argv) {
    path = temp_path("archive.zip");
    return test_run_all(argc, argv);
}
