/* csv.c - see csv.h. */
#include "format/csv.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"

enum { INPUT = 1 << 15, END = -1 };

struct gd_csv {
    gd_stream *stream;
    char separator;
    bool begun;
    int64_t line, column; /* of the next byte */
    size_t at, end;       /* in `input` */
    char *text;           /* the fields of a record; each ends with a zero byte */
    size_t used, room;
    gd_csv_field *fields; /* their `text` is set once the record is complete */
    int count, fields_room;
    uint8_t input[INPUT];
};

gd_status gd_csv_open(gd_csv **out, gd_stream *stream, char separator) {
    gd_csv *c = *out = gd_malloc(sizeof *c);
    if (!c) return gd_file_no_memory(gd_stream_path(stream));
    memset(c, 0, offsetof(gd_csv, input));
    c->stream = stream;
    c->separator = separator;
    c->line = c->column = 1;
    return GD_OK;
}

void gd_csv_close(gd_csv *c) {
    if (!c) return;
    gd_free(c->text);
    gd_free(c->fields);
    gd_free(c);
}

static gd_status fail_at(const gd_csv *c, int64_t line, int64_t column, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: line %lld, character %lld: %s", gd_stream_path(c->stream),
                   (long long)line, (long long)column, what);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static gd_status fill_input(gd_csv *c) {
    c->at = 0;
    GD_TRY(gd_stream_read(c->stream, c->input, INPUT, &c->end));
    if (!c->begun && c->end >= 3 && memcmp(c->input, "\xEF\xBB\xBF", 3) == 0) c->at = 3;
    c->begun = true;
    return GD_OK;
}

/* The next byte, without consuming it; or END. */
static inline gd_status peek_byte(gd_csv *c, int *byte) {
    if (c->at == c->end) {
        GD_TRY(fill_input(c));
        if (c->at == c->end) {
            *byte = END;
            return GD_OK;
        }
    }
    *byte = c->input[c->at];
    return *byte ? GD_OK : fail_at(c, c->line, c->column, "a zero byte, which text cannot contain");
}

/* Consumes the byte that peek_byte returned, and counts lines and columns. */
static inline void consume_byte(gd_csv *c, int byte) {
    c->at++;
    if (byte == '\n') {
        c->line++;
        c->column = 1;
    } else {
        c->column += (byte & 0xC0) != 0x80; /* a UTF-8 character is one column */
    }
}

static gd_status append_byte(gd_csv *c, int byte) {
    if (c->used == c->room) {
        if (c->room >= GD_CSV_MAX_RECORD)
            return fail_at(c, c->fields[0].line, c->fields[0].column,
                           "a record of more than 64 MiB; is a quote not closed?");
        const size_t room = c->room ? 2 * c->room : 4096;
        char *text = gd_realloc(c->text, room);
        if (!text) return gd_file_no_memory(gd_stream_path(c->stream));
        c->text = text;
        c->room = room;
    }
    c->text[c->used++] = (char)byte;
    return GD_OK;
}

/* --- fields ----------------------------------------------------------------------------------- */

static bool is_blank(const gd_csv *c, int byte) {
    return (byte == ' ' || byte == '\t') && byte != c->separator;
}
static bool ends_field(const gd_csv *c, int byte) {
    return byte == END || byte == '\n' || byte == '\r' || byte == (unsigned char)c->separator;
}

static gd_status skip_blanks(gd_csv *c, int *byte) {
    GD_TRY(peek_byte(c, byte));
    while (is_blank(c, *byte)) {
        consume_byte(c, *byte);
        GD_TRY(peek_byte(c, byte));
    }
    return GD_OK;
}

/* Consumes a line end: LF, CR or CRLF. */
static gd_status take_line_end(gd_csv *c, int byte) {
    int next = 0;
    consume_byte(c, byte);
    if (byte != '\r') return GD_OK;
    GD_TRY(peek_byte(c, &next));
    if (next == '\n') c->at++;
    c->line++;
    c->column = 1;
    return GD_OK;
}

/* Reads a quoted field after its opening quote. */
static gd_status read_quoted(gd_csv *c, gd_csv_field *f) {
    int byte;
    for (;;) {
        GD_TRY(peek_byte(c, &byte));
        if (byte == END)
            return fail_at(c, f->line, f->column, "the quote that begins here is not closed");
        consume_byte(c, byte);
        if (byte == '"') {
            GD_TRY(peek_byte(c, &byte));
            if (byte != '"') break;
            consume_byte(c, byte);
        }
        GD_TRY(append_byte(c, byte));
    }
    GD_TRY(skip_blanks(c, &byte));
    return ends_field(c, byte)
               ? GD_OK
               : fail_at(c, c->line, c->column, "text after the closing quote of a field");
}

static gd_status read_unquoted(gd_csv *c) {
    int byte;
    const size_t start = c->used;
    for (;;) {
        GD_TRY(peek_byte(c, &byte));
        if (ends_field(c, byte)) break;
        GD_TRY(append_byte(c, byte));
        consume_byte(c, byte);
    }
    while (c->used > start && is_blank(c, c->text[c->used - 1])) c->used--;
    return GD_OK;
}

static gd_status read_field(gd_csv *c) {
    int byte;
    if (c->count == GD_CSV_MAX_FIELDS)
        return fail_at(c, c->line, c->column, "too many fields in a record");
    if (!gd_grow(c->fields, c->count, c->fields_room))
        return gd_file_no_memory(gd_stream_path(c->stream));
    GD_TRY(skip_blanks(c, &byte));
    gd_csv_field *f = &c->fields[c->count++];
    const size_t start = c->used;
    *f = (gd_csv_field){.line = c->line, .column = c->column, .quoted = byte == '"'};
    if (f->quoted) {
        consume_byte(c, byte);
        GD_TRY(read_quoted(c, f));
    } else {
        GD_TRY(read_unquoted(c));
    }
    f->length = c->used - start;
    return append_byte(c, 0);
}

/* Skips lines that are empty or have only spaces. */
static gd_status skip_blank_lines(gd_csv *c, int *byte) {
    for (;;) {
        GD_TRY(skip_blanks(c, byte));
        if (*byte != '\n' && *byte != '\r') return GD_OK;
        GD_TRY(take_line_end(c, *byte));
    }
}

gd_status gd_csv_next(gd_csv *c, const gd_csv_field **fields, int *count) {
    int byte;
    c->count = 0;
    c->used = 0;
    *count = 0;
    *fields = NULL;
    GD_TRY(skip_blank_lines(c, &byte));
    if (byte == END) return GD_OK;
    for (;;) {
        GD_TRY(read_field(c));
        GD_TRY(peek_byte(c, &byte));
        if (byte != (unsigned char)c->separator) break;
        consume_byte(c, byte);
    }
    if (byte != END) GD_TRY(take_line_end(c, byte));
    const char *text = c->text;
    for (int i = 0; i < c->count; i++) {
        c->fields[i].text = text;
        text += c->fields[i].length + 1;
    }
    *fields = c->fields;
    *count = c->count;
    return GD_OK;
}
