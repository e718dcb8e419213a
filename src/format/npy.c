/* npy.c - see npy.h.
 *
 * The file: "\x93NUMPY", two bytes of version, the length of the header (2 bytes in version 1, else
 * 4, little-endian), the header, the items. The header is a Python dictionary as text:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * padded with spaces and a line break.
 */
#include "format/npy.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC_BYTES = 8,      /* with the version */
    MAX_HEADER = 1 << 16, /* that is read; GD_NPY_MAX_RANK needs only 1 KiB */
    ALIGNMENT = 64,
};
static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
static const bool big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

/* --- the dictionary --------------------------------------------------------------------------- */

typedef struct scanner {
    const char *name;
    const char *start, *at, *end;
} scanner;

static gd_status fail_expected(const scanner *s, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: the .npy header is wrong at its byte %td: expected %s",
                   s->name, s->at - s->start, what);
}

static void skip_space(scanner *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

static bool take_char(scanner *s, char c) {
    skip_space(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool take_word(scanner *s, const char *word) {
    skip_space(s);
    size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0) return false;
    s->at += length;
    return true;
}

/* A string in single or double quotes, truncated to `room`: all known keys and types are
 * shorter. */
static gd_status scan_string(scanner *s, char *text, size_t room) {
    char quote = take_char(s, '\'') ? '\'' : '"';
    if (quote == '"' && !take_char(s, '"')) return fail_expected(s, "a string");
    size_t length = 0;
    for (; s->at < s->end && *s->at != quote; s->at++)
        if (length + 1 < room) text[length++] = *s->at;
    text[length] = '\0';
    if (s->at == s->end) return fail_expected(s, "the end of a string");
    s->at++;
    return GD_OK;
}

static gd_status scan_dim(scanner *s, int64_t *dim) {
    skip_space(s);
    const char *first = s->at;
    *dim = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (!gd_mul_i64(*dim, 10, dim) || !gd_add_i64(*dim, *s->at - '0', dim))
            return fail_expected(s, "a dimension below 2^63");
    if (s->at == first) return fail_expected(s, "a dimension");
    take_char(s, 'L'); /* long integers of Python 2 */
    return GD_OK;
}

static gd_status scan_shape(scanner *s, gd_npy_header *h) {
    if (!take_char(s, '(')) return fail_expected(s, "'(' before the shape");
    bool comma = true; /* (3) is a number in Python, (3,) a shape */
    for (h->rank = 0; !take_char(s, ')');) {
        if (!comma) return fail_expected(s, "',' or ')' in the shape");
        if (h->rank == GD_NPY_MAX_RANK)
            return gd_fail(GD_E_UNSUPPORTED, "%s: has more than %d dimensions", s->name,
                           GD_NPY_MAX_RANK);
        GD_TRY(scan_dim(s, &h->dims[h->rank++]));
        comma = take_char(s, ',');
    }
    if (h->rank == 1 && !comma) return fail_expected(s, "',' after the only dimension");
    return GD_OK;
}

/* "<f4": byte order, kind, bytes. */
static gd_status scan_descr(scanner *s, gd_npy_header *h) {
    skip_space(s);
    if (s->at < s->end && *s->at == '[')
        return gd_fail(GD_E_UNSUPPORTED, "%s: its items are structures, which are not supported",
                       s->name);
    char text[16];
    GD_TRY(scan_string(s, text, sizeof text));
    static const struct {
        char letter;
        gd_npy_kind kind;
        const char *sizes;
    } known[] = {{'f', GD_NPY_FLOAT, "248"},
                 {'i', GD_NPY_INT, "1248"},
                 {'u', GD_NPY_UINT, "1248"},
                 {'b', GD_NPY_BOOL, "1"},
                 {'V', GD_NPY_BFLOAT, "2"}};
    for (size_t i = 0; strlen(text) == 3 && i < sizeof known / sizeof *known; i++) {
        if (text[1] != known[i].letter || !strchr(known[i].sizes, text[2])) continue;
        if (!strchr("<>|=", text[0])) break;
        /* '=' is the byte order of the writer, which is assumed to be that of this machine */
        h->kind = known[i].kind;
        h->itemsize = text[2] - '0';
        h->swapped = h->itemsize > 1 && text[0] == (big_endian ? '<' : '>');
        return GD_OK;
    }
    return gd_fail(GD_E_UNSUPPORTED, "%s: items of type '%s' are not supported", s->name, text);
}

static gd_status scan_order(scanner *s, gd_npy_header *h) {
    h->fortran = take_word(s, "True");
    if (!h->fortran && !take_word(s, "False")) return fail_expected(s, "True or False");
    return GD_OK;
}

static gd_status scan_dictionary(scanner *s, gd_npy_header *h) {
    static const struct {
        const char *key;
        gd_status (*scan)(scanner *, gd_npy_header *);
    } members[3] = {{"descr", scan_descr}, {"fortran_order", scan_order}, {"shape", scan_shape}};
    bool seen[3] = {false};
    if (!take_char(s, '{')) return fail_expected(s, "'{'");
    for (bool comma = true; !take_char(s, '}'); comma = take_char(s, ',')) {
        if (!comma) return fail_expected(s, "',' or '}'");
        char key[20];
        GD_TRY(scan_string(s, key, sizeof key));
        if (!take_char(s, ':')) return fail_expected(s, "':'");
        int which = 0;
        while (which < 3 && strcmp(key, members[which].key) != 0) which++;
        if (which == 3 || seen[which])
            return fail_expected(s, "each of 'descr', 'fortran_order' and 'shape' once");
        seen[which] = true;
        GD_TRY(members[which].scan(s, h));
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return fail_expected(s, "'descr', 'fortran_order' and 'shape' before the end");
    skip_space(s);
    return s->at == s->end ? GD_OK : fail_expected(s, "nothing more than padding");
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Returns false if the number of bytes does not fit into 63 bits. */
static bool count_bytes(const gd_npy_header *h, uint64_t *bytes) {
    for (int i = 0; i < h->rank; i++)
        if (h->dims[i] == 0) {
            *bytes = 0;
            return true;
        }
    int64_t count = h->itemsize;
    for (int i = 0; i < h->rank; i++)
        if (!gd_mul_i64(count, h->dims[i], &count)) return false;
    *bytes = (uint64_t)count;
    return true;
}

static gd_status read_text(gd_npy_header *out, const char *name, char *text, size_t length,
                           gd_npy_read_fn read, void *source) {
    GD_TRY(read(source, text, length));
    scanner s = {name, text, text, text + length};
    return scan_dictionary(&s, out);
}

gd_status gd_npy_read_header(gd_npy_header *out, const char *name, uint64_t total_bytes,
                             gd_npy_read_fn read, void *source) {
    *out = (gd_npy_header){0};
    uint8_t start[MAGIC_BYTES + 4];
    if (total_bytes < MAGIC_BYTES + 2)
        return gd_fail(GD_E_FORMAT, "%s: %" PRIu64 " bytes are too few for a .npy file", name,
                       total_bytes);
    GD_TRY(read(source, start, MAGIC_BYTES));
    if (memcmp(start, magic, sizeof magic) != 0)
        return gd_fail(GD_E_FORMAT, "%s: is not a .npy file: it does not start with \\x93NUMPY",
                       name);
    int major = start[6], minor = start[7];
    if (major < 1 || major > 3 || minor != 0)
        return gd_fail(GD_E_FORMAT, "%s: has .npy version %d.%d; 1.0, 2.0 and 3.0 are supported",
                       name, major, minor);
    uint64_t size_bytes = major == 1 ? 2 : 4;
    if (total_bytes < MAGIC_BYTES + size_bytes)
        return gd_fail(GD_E_FORMAT, "%s: ends within the first %d bytes", name, MAGIC_BYTES + 4);
    GD_TRY(read(source, start + MAGIC_BYTES, (size_t)size_bytes));
    uint64_t length =
        major == 1 ? gd_get_u16(start + MAGIC_BYTES) : gd_get_u32(start + MAGIC_BYTES);
    out->data_offset = MAGIC_BYTES + size_bytes + length;
    if (length > MAX_HEADER || out->data_offset > total_bytes)
        return gd_fail(GD_E_FORMAT,
                       "%s: claims a .npy header of %" PRIu64 " bytes; it has %" PRIu64
                       " bytes in all, and %d are allowed",
                       name, length, total_bytes, MAX_HEADER);

    char *text = gd_malloc((size_t)length + 1);
    if (text == NULL) return gd_fail(GD_E_MEMORY, "%s: no memory left for its header", name);
    gd_status status = read_text(out, name, text, (size_t)length, read, source);
    gd_free(text);
    GD_TRY(status);
    if (!count_bytes(out, &out->data_bytes) || out->data_bytes > total_bytes - out->data_offset)
        return gd_fail(GD_E_FORMAT,
                       "%s: its header claims more items than the %" PRIu64
                       " bytes after it can hold (truncated?)",
                       name, total_bytes - out->data_offset);
    return GD_OK;
}

typedef struct cursor {
    const gd_file_reader *file;
    uint64_t at;
} cursor;

static gd_status cursor_read(void *source, void *buffer, size_t bytes) {
    cursor *c = source;
    GD_TRY(gd_file_reader_read_at(c->file, c->at, buffer, bytes));
    c->at += bytes;
    return GD_OK;
}

gd_status gd_npy_read_file_header(gd_npy_header *out, const gd_file_reader *file) {
    cursor c = {.file = file};
    return gd_npy_read_header(out, gd_file_reader_path(file), gd_file_reader_size(file),
                              cursor_read, &c);
}

void gd_npy_swap(void *items, size_t count, int itemsize) {
    uint8_t *p = items;
    for (size_t i = 0; i < count; i++, p += itemsize)
        for (int a = 0, b = itemsize - 1; a < b; a++, b--) {
            uint8_t t = p[a];
            p[a] = p[b];
            p[b] = t;
        }
}

/* --- writing ---------------------------------------------------------------------------------- */

static gd_status check_header(gd_npy_header *h) {
    static const char *const sizes[] = {"248", "1248", "1248", "1", "2"};
    if ((unsigned)h->kind >= sizeof sizes / sizeof *sizes || h->itemsize < 1 || h->itemsize > 8 ||
        !strchr(sizes[h->kind], '0' + h->itemsize))
        return gd_fail(GD_E_ARGUMENT, ".npy: kind %d with %d bytes cannot be written", (int)h->kind,
                       h->itemsize);
    if (h->rank < 0 || h->rank > GD_NPY_MAX_RANK)
        return gd_fail(GD_E_ARGUMENT, ".npy: rank %d cannot be written", h->rank);
    for (int i = 0; i < h->rank; i++)
        if (h->dims[i] < 0)
            return gd_fail(GD_E_ARGUMENT, ".npy: dimension %d is %" PRId64, i, h->dims[i]);
    if (!count_bytes(h, &h->data_bytes))
        return gd_fail(GD_E_OVERFLOW, ".npy: the array has more than 2^63 bytes");
    return GD_OK;
}

gd_status gd_npy_make_header(gd_npy_header *h, uint8_t out[GD_NPY_MAX_HEADER], size_t *bytes) {
    GD_TRY(check_header(h));
    static const char letters[] = "fiubV";
    const int start = MAGIC_BYTES + 2;
    char *text = (char *)out + start;
    int room = GD_NPY_MAX_HEADER - start; /* 32 dimensions of 19 digits need 772 bytes in all */
    char order = h->itemsize == 1 ? '|' : big_endian != h->swapped ? '>' : '<';
    int length = snprintf(text, (size_t)room, "{'descr': '%c%c%d', 'fortran_order': %s, 'shape': (",
                          order, letters[h->kind], h->itemsize, h->fortran ? "True" : "False");
    for (int i = 0; i < h->rank; i++)
        length += snprintf(text + length, (size_t)(room - length), "%s%" PRId64, i ? ", " : "",
                           h->dims[i]);
    length += snprintf(text + length, (size_t)(room - length), "%s), }", h->rank == 1 ? "," : "");

    int header_bytes = (start + length + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(text + length, ' ', (size_t)(header_bytes - start - length - 1));
    out[header_bytes - 1] = '\n';
    memcpy(out, magic, sizeof magic);
    out[6] = 1; /* version 1.0 is enough for a header this short */
    out[7] = 0;
    gd_put_u16(out + MAGIC_BYTES, (uint16_t)(header_bytes - start));
    h->data_offset = (uint64_t)header_bytes;
    *bytes = (size_t)header_bytes;
    return GD_OK;
}
