/* test_npy.c - .npy headers (format/npy.h): headers of NumPy are read, damaged ones fail, and
 * written headers are read back. */
#include "core/alloc.h"
#include "core/error.h"
#include "fault_walk.h"
#include "format/npy.h"
#include "gradus/testing.h"
#include "test.h"

/* A .npy file of the given version and dictionary, followed by `items` zero bytes. */
typedef struct npy_bytes {
    uint8_t *bytes;
    size_t size;
} npy_bytes;

static npy_bytes make_npy_bytes(int version, const char *dictionary, size_t items) {
    size_t length = strlen(dictionary), start = version == 1 ? 10 : 12;
    npy_bytes m = {calloc(1, start + length + items), start + length + items};
    memcpy(m.bytes, "\x93NUMPY", 6);
    m.bytes[6] = (uint8_t)version;
    m.bytes[8] = (uint8_t)length;
    m.bytes[9] = (uint8_t)(length >> 8);
    memcpy(m.bytes + start, dictionary, length);
    return m;
}

static gd_status read_npy_bytes(const uint8_t *bytes, size_t size, gd_npy_header *h) {
    /* a heap copy of exactly this size, so that AddressSanitizer detects reads beyond it */
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    gd_file_reader *file;
    gd_status status = gd_file_reader_open_memory(&file, "t.npy", copy, size);
    if (status == GD_OK) status = gd_npy_read_file_header(h, file);
    gd_file_reader_close(file);
    free(copy);
    return status;
}

static gd_status read_dictionary(int version, const char *dictionary, size_t items,
                                 gd_npy_header *h) {
    npy_bytes m = make_npy_bytes(version, dictionary, items);
    gd_status status = read_npy_bytes(m.bytes, m.size, h);
    free(m.bytes);
    return status;
}

TEST(headers_of_every_version) {
    const char *text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n";
    for (int version = 1; version <= 3; version++) {
        gd_npy_header h;
        CHECK(read_dictionary(version, text, 48, &h) == GD_OK);
        CHECK(h.kind == GD_NPY_FLOAT && h.itemsize == 4 && !h.swapped && !h.fortran);
        CHECK(h.rank == 2 && h.dims[0] == 3 && h.dims[1] == 4);
        CHECK(h.data_bytes == 48 && h.data_offset == (version == 1 ? 10 : 12) + strlen(text));
    }
    gd_npy_header h;
    CHECK(read_dictionary(4, text, 48, &h) == GD_E_FORMAT);
    CHECK(read_dictionary(0, text, 48, &h) == GD_E_FORMAT);
}

TEST(every_item_type) {
    static const struct {
        const char *descr;
        gd_npy_kind kind;
        int itemsize;
        bool swapped;
    } cases[] = {
        {"<f2", GD_NPY_FLOAT, 2, false},  {"<f8", GD_NPY_FLOAT, 8, false},
        {">f4", GD_NPY_FLOAT, 4, true},   {"|i1", GD_NPY_INT, 1, false},
        {"|u1", GD_NPY_UINT, 1, false},   {"<i4", GD_NPY_INT, 4, false},
        {"<i8", GD_NPY_INT, 8, false},    {">i8", GD_NPY_INT, 8, true},
        {"|b1", GD_NPY_BOOL, 1, false},   {"<V2", GD_NPY_BFLOAT, 2, false},
        {"|V2", GD_NPY_BFLOAT, 2, false}, {"<u2", GD_NPY_UINT, 2, false},
    };
    const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': ()}",
                 cases[i].descr);
        gd_npy_header h;
        CHECK(read_dictionary(1, text, 8, &h) == GD_OK);
        bool swapped = cases[i].descr[0] == '|' ? false : cases[i].swapped != big;
        CHECK(h.kind == cases[i].kind && h.itemsize == cases[i].itemsize && h.swapped == swapped);
        CHECK(h.rank == 0 && h.data_bytes == (uint64_t)h.itemsize);
    }
    static const char *const unknown[] = {"<c8", "|O",  "<U5", "|S3", "<f16", "<M8[ns]", "f4",
                                          "",    "<i3", "|V4", "!f4", "<f4 ", "<f"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char text[100];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': ()}",
                 unknown[i]);
        gd_npy_header h;
        CHECK(read_dictionary(1, text, 64, &h) == GD_E_UNSUPPORTED);
    }
    gd_npy_header h;
    CHECK(read_dictionary(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 64,
                          &h) == GD_E_UNSUPPORTED);
}

TEST(header_dictionaries_are_read_in_every_notation) {
    static const char *const good[] = {
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3,)}\n",
        "{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\"<i4\"}",
        "  { 'shape' : ( 2L , 3L ) ,\t'descr' : '<i4' , 'fortran_order' : True , } \n\n  ",
    };
    gd_npy_header h;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(read_dictionary(1, good[i], 24, &h) == GD_OK);
        CHECK(h.kind == GD_NPY_INT && h.fortran && h.rank == 2 && h.dims[0] == 2 && h.dims[1] == 3);
    }
    static const char *const bad[] = {
        "",
        "{}",
        "{'descr': '<i4', 'fortran_order': True}",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2 3), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (-2, 3), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2.0, 3), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (,), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': 2, }",
        "{'descr': '<i4', 'fortran_order': 1, 'shape': (2, 3), }",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), 'more': 1}",
        "{'descr': '<i4', 'descr': '<i4', 'fortran_order': True, 'shape': (2, 3)}",
        "{'descr': '<i4' 'fortran_order': True, 'shape': (2, 3)}",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3)} x",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), 'x",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 9223372036854775808)}",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 4611686018427387904)}",
        "{'descr': '<i4', 'fortran_order': True, 'shape': (4294967296, 4294967296)}",
        /* the file has 24 bytes of items, not 28 */
        "{'descr': '<i4', 'fortran_order': True, 'shape': (7,)}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gd_status status = read_dictionary(1, bad[i], 24, &h);
        if (status != GD_E_FORMAT) fprintf(stderr, "accepted: %s\n", bad[i]);
        CHECK(status == GD_E_FORMAT);
        CHECK(strncmp(gd_latest_failure(), "t.npy: ", 7) == 0);
    }
}

TEST(arrays_without_items_have_no_bytes) {
    gd_npy_header h;
    CHECK(read_dictionary(1,
                          "{'descr': '<i4', 'fortran_order': False, 'shape': (4611686018427387904, "
                          "4611686018427387904, 0), }",
                          0, &h) == GD_OK);
    CHECK(h.data_bytes == 0 && h.rank == 3);
}

TEST(ranks_have_a_limit) {
    for (int rank = GD_NPY_MAX_RANK; rank <= GD_NPY_MAX_RANK + 1; rank++) {
        char text[400] = "{'descr': '|i1', 'fortran_order': False, 'shape': (";
        for (int i = 0; i < rank; i++) strcat(text, "1, ");
        strcat(text, ")}");
        gd_npy_header h;
        CHECK(read_dictionary(1, text, 1, &h) ==
              (rank <= GD_NPY_MAX_RANK ? GD_OK : GD_E_UNSUPPORTED));
    }
}

TEST(false_lengths_allocate_nothing) {
    npy_bytes m = make_npy_bytes(2, "{'descr': '|i1', 'fortran_order': False, 'shape': (1,)}", 1);
    memset(m.bytes + 8, 0xFF, 4); /* claims a header of 4 GiB */
    gd_npy_header h;
    int64_t before = gd_fault_allocations();
    CHECK(read_npy_bytes(m.bytes, m.size, &h) == GD_E_FORMAT);
    CHECK(gd_fault_allocations() - before <= 2); /* the reader and its name */
    free(m.bytes);
}

TEST(written_headers_read_back) {
    static const struct {
        gd_npy_header h;
        const char *text;
    } cases[] = {
        {{.kind = GD_NPY_FLOAT, .itemsize = 4, .rank = 2, .dims = {3, 4}},
         "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"},
        {{.kind = GD_NPY_BFLOAT, .itemsize = 2, .rank = 1, .dims = {5}},
         "{'descr': '<V2', 'fortran_order': False, 'shape': (5,), }"},
        {{.kind = GD_NPY_BOOL, .itemsize = 1, .rank = 0},
         "{'descr': '|b1', 'fortran_order': False, 'shape': (), }"},
        {{.kind = GD_NPY_INT, .itemsize = 8, .fortran = true, .rank = 3, .dims = {0, 1, 2}},
         "{'descr': '<i8', 'fortran_order': True, 'shape': (0, 1, 2), }"},
        {{.kind = GD_NPY_UINT, .itemsize = 2, .swapped = true, .rank = 1, .dims = {2}},
         "{'descr': '>u2', 'fortran_order': False, 'shape': (2,), }"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gd_npy_header h = cases[i].h, again;
        uint8_t bytes[GD_NPY_MAX_HEADER + 100] = {0};
        size_t size;
        CHECK(gd_npy_make_header(&h, bytes, &size) == GD_OK);
        CHECK(size % 64 == 0 && h.data_offset == size && bytes[size - 1] == '\n');
        if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
            CHECK(memcmp(bytes + 10, cases[i].text, strlen(cases[i].text)) == 0);
        CHECK(read_npy_bytes(bytes, size + h.data_bytes, &again) == GD_OK);
        CHECK(again.kind == h.kind && again.itemsize == h.itemsize && again.fortran == h.fortran &&
              again.swapped == h.swapped && again.rank == h.rank &&
              memcmp(again.dims, h.dims, sizeof h.dims) == 0 &&
              again.data_offset == h.data_offset && again.data_bytes == h.data_bytes);
    }
    gd_npy_header longest = {.kind = GD_NPY_INT, .itemsize = 8, .rank = 32};
    for (int i = 0; i < 32; i++) longest.dims[i] = i ? INT64_MAX : 0;
    uint8_t bytes[GD_NPY_MAX_HEADER];
    size_t size;
    gd_npy_header again;
    CHECK(gd_npy_make_header(&longest, bytes, &size) == GD_OK);
    CHECK(size <= sizeof bytes && read_npy_bytes(bytes, size, &again) == GD_OK);
}

TEST(impossible_headers_are_not_written) {
    uint8_t bytes[GD_NPY_MAX_HEADER];
    size_t size;
    gd_npy_header h = {.kind = GD_NPY_FLOAT, .itemsize = 3};
    CHECK(gd_npy_make_header(&h, bytes, &size) == GD_E_ARGUMENT);
    h = (gd_npy_header){.kind = GD_NPY_FLOAT, .itemsize = 4, .rank = 33};
    CHECK(gd_npy_make_header(&h, bytes, &size) == GD_E_ARGUMENT);
    h = (gd_npy_header){.kind = GD_NPY_FLOAT, .itemsize = 4, .rank = 1, .dims = {-1}};
    CHECK(gd_npy_make_header(&h, bytes, &size) == GD_E_ARGUMENT);
    h = (gd_npy_header){.kind = GD_NPY_FLOAT, .itemsize = 4, .rank = 1, .dims = {INT64_MAX}};
    CHECK(gd_npy_make_header(&h, bytes, &size) == GD_E_OVERFLOW);
}

TEST(big_endian_items_are_swapped) {
    uint8_t bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    gd_npy_swap(bytes, 2, 4);
    CHECK(memcmp(bytes, (uint8_t[]){3, 2, 1, 0, 7, 6, 5, 4, 8, 9}, 10) == 0);
    gd_npy_swap(bytes + 8, 1, 8);
    CHECK(bytes[8] == 15 && bytes[15] == 8);
    gd_npy_swap(bytes, 4, 1);
    CHECK(bytes[0] == 3);
}

TEST(truncated_or_changed_files_do_not_crash) {
    npy_bytes m =
        make_npy_bytes(2, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }   \n", 32);
    gd_npy_header h;
    CHECK(read_npy_bytes(m.bytes, m.size, &h) == GD_OK);
    for (size_t size = 0; size < m.size; size++)
        CHECK(read_npy_bytes(m.bytes, size, &h) == GD_E_FORMAT);
    for (size_t i = 0; i < m.size - 32; i++) {
        uint8_t before = m.bytes[i];
        for (int value = 0; value < 256; value++) {
            m.bytes[i] = (uint8_t)value;
            gd_status status = read_npy_bytes(m.bytes, m.size, &h);
            CHECK(status == GD_OK || status == GD_E_FORMAT || status == GD_E_UNSUPPORTED);
            if (status == GD_OK) CHECK(h.data_offset + h.data_bytes <= m.size);
        }
        m.bytes[i] = before;
    }
    fault_walk w = {.what = "reading"};
    while (fault_next(&w)) {
        fault_begin(&w);
        const gd_status status = read_npy_bytes(m.bytes, m.size, &h);
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
    CHECK(w.failures >= 3); /* the reader, its name, the text of the header */
    free(m.bytes);
}

TEST_MAIN
