/* protobuf_text.c - reads the text format of protocol buffers (prototxt).
 *
 *     name: "net"                       # a field, and a comment
 *     layer { name: 'a' 'b' dim: [1, 2] }   # a message; adjacent strings are one
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ascii.h"
#include "core/error.h"
#include "core/number.h"
#include "format/protobuf_hint.h"
#include "format/utf8.h"

typedef struct parser {
    const char *name;
    const char *at, *end;
    const char *line_start;
    int line;
    gd_pb_doc *doc;
    gd_pb_path path;
} parser;

/* --- positions and tokens --------------------------------------------------------------------- */

static int column_of(const parser *p, const char *position) {
    ptrdiff_t column = position - p->line_start + 1;
    return column < INT32_MAX ? (int)column : INT32_MAX;
}

static GD_COLD gd_status fail_parse(const parser *p, const char *position, const char *what) {
    char path[300];
    gd_pb_path_text(&p->path, path, sizeof path);
    return gd_fail(GD_E_FORMAT, "%s:%d:%d: %s%s%s", p->name, p->line, column_of(p, position), path,
                   *path ? ": " : "", what);
}

/* What stands at the position: a word, a string or a character. */
static void print_found(const parser *p, char found[60]) {
    size_t length = 0;
    const unsigned char c = p->at < p->end ? (unsigned char)*p->at : 0;
    while (p->at + length < p->end && length < 40 &&
           (gd_is_alnum(p->at[length]) || (p->at[length] && strchr("_.+-", p->at[length]))))
        length++;
    if (p->at == p->end) snprintf(found, 60, "the end");
    else if (length > 0) snprintf(found, 60, "'%.*s'", (int)length, p->at);
    else if (c == '\n') snprintf(found, 60, "the end of the line");
    else if (c == '"' || c == '\'') snprintf(found, 60, "a string in quotes");
    else snprintf(found, 60, c > ' ' && c < 0x7F ? "'%c'" : "byte 0x%02X", c);
}

/* "expected X, found Y", and what may help. */
static GD_COLD gd_status fail_with_hint(const parser *p, const char *what, const char *hint) {
    char found[60], text[700];
    print_found(p, found);
    snprintf(text, sizeof text, "expected %s, found %s%s", what, found, hint);
    return fail_parse(p, p->at, text);
}

static gd_status fail_expected(const parser *p, const char *what) {
    return fail_with_hint(p, what, "");
}

static gd_status parser_no_memory(const parser *p) {
    return gd_fail(GD_E_MEMORY, "%s:%d: no memory left for the message", p->name, p->line);
}

static void skip_space(parser *p) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#')
            while (p->at < p->end && *p->at != '\n') p->at++;
        if (p->at == p->end) return;
        if (*p->at == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r' && *p->at != '\v' &&
                   *p->at != '\f') {
            return;
        }
    }
}

static bool next_is(const parser *p, char c) { return p->at < p->end && *p->at == c; }

static bool take_char(parser *p, char c) {
    if (!next_is(p, c)) return false;
    p->at++;
    skip_space(p);
    return true;
}

static bool is_letter(char c) { return gd_is_alpha(c) || c == '_'; }

/* The length of a word or a number: letters, digits, and the signs in numbers. 0: another token. */
static size_t token_length(const parser *p) {
    const char *s = p->at;
    if (s < p->end && *s == '-') s++;
    const char *first = s;
    while (s < p->end && (is_letter(*s) || gd_is_digit(*s) || *s == '.' ||
                          ((*s == '+' || *s == '-') && s > first &&
                           (s[-1] == 'e' || s[-1] == 'E') && !is_letter(*first))))
        s++;
    return s > first ? (size_t)(s - p->at) : 0;
}

/* Copies a token. One that is longer than any number is an error. */
enum { TOKEN_MAX = 400 };
static gd_status copy_token(const parser *p, char token[TOKEN_MAX], size_t length,
                            const char *what) {
    if (length == 0) return fail_expected(p, what);
    if (length >= TOKEN_MAX) return fail_parse(p, p->at, "a number or word is too long");
    memcpy(token, p->at, length);
    token[length] = '\0';
    return GD_OK;
}

/* --- strings ---------------------------------------------------------------------------------- */

static int digit_of(char c, int base) {
    int digit = gd_is_digit(c)         ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
    return digit < base ? digit : -1;
}

/* A number of `least` to `most` digits. */
static gd_status read_digits(parser *p, int base, int least, int most, uint32_t *value) {
    int n = 0;
    *value = 0;
    for (; n < most && p->at < p->end && digit_of(*p->at, base) >= 0; n++, p->at++)
        *value = *value * (uint32_t)base + (uint32_t)digit_of(*p->at, base);
    return n < least ? fail_expected(p, "a digit of an escape") : GD_OK;
}

/* Reads an escape after its backslash. The result is never longer. */
static gd_status read_escape(parser *p, char **to) {
    static const char names[] = "abfnrtv\\'\"?", values[] = "\a\b\f\n\r\t\v\\'\"?";
    if (p->at == p->end) return fail_expected(p, "an escape after the backslash");
    const char c = *p->at;
    const char *name = c ? strchr(names, c) : NULL;
    uint32_t code;
    if (name != NULL) {
        *(*to)++ = values[name - names];
        p->at++;
        return GD_OK;
    }
    if (digit_of(c, 8) >= 0) {
        GD_TRY(read_digits(p, 8, 1, 3, &code));
        *(*to)++ = (char)code;
        return GD_OK;
    }
    if (c != 'x' && c != 'X' && c != 'u' && c != 'U')
        return fail_expected(p, "an escape after the backslash");
    p->at++;
    if (c == 'x' || c == 'X') {
        GD_TRY(read_digits(p, 16, 1, 2, &code));
        *(*to)++ = (char)code;
        return GD_OK;
    }
    const int digits = c == 'u' ? 4 : 8;
    GD_TRY(read_digits(p, 16, digits, digits, &code));
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return fail_parse(p, p->at, "this code point does not exist");
    *to = gd_utf8_put(*to, code);
    return GD_OK;
}

static gd_status read_quoted(parser *p, char **to) {
    const char quote = *p->at++;
    while (!next_is(p, quote)) {
        if (p->at == p->end || *p->at == '\n') return fail_expected(p, "a closing quote");
        if (*p->at == '\\') {
            p->at++;
            GD_TRY(read_escape(p, to));
        } else {
            *(*to)++ = *p->at++;
        }
    }
    p->at++;
    skip_space(p);
    return GD_OK;
}

/* An upper bound of the bytes of adjacent strings: the length of their text. */
static size_t quoted_room(const parser *p) {
    const char *s = p->at;
    while (s < p->end && (*s == '"' || *s == '\'')) {
        const char quote = *s++;
        while (s < p->end && *s != quote) s += *s == '\\' && p->end - s > 1 ? 2 : 1;
        if (s < p->end) s++;
        parser next = {.at = s, .end = p->end};
        skip_space(&next);
        s = next.at;
    }
    return (size_t)(s - p->at);
}

static GD_COLD gd_status fail_unquoted(const parser *p) {
    const size_t length = token_length(p);
    char hint[60] = "";
    if (length > 0 && length < 40)
        snprintf(hint, sizeof hint, "; write \"%.*s\"", (int)length, p->at);
    return fail_with_hint(p, "a string in quotes", hint);
}

static gd_status read_string(parser *p, gd_pb_list *list) {
    const char *position = p->at;
    if (!next_is(p, '"') && !next_is(p, '\'')) return fail_unquoted(p);
    char *start = gd_pb_alloc(p->doc, quoted_room(p) + 1), *to = start;
    if (start == NULL) return parser_no_memory(p);
    while (next_is(p, '"') || next_is(p, '\'')) GD_TRY(read_quoted(p, &to));
    *to = '\0';
    for (const char *s = start; list->field->type == GD_PB_STRING && s < to;) {
        const size_t step = *s == '\0' ? 0 : gd_utf8_length(s, to);
        if (step == 0)
            return fail_parse(p, position, "a string is not UTF-8, or holds a zero byte");
        s += step;
    }
    gd_pb_bytes *value = gd_pb_room(p->doc, list, 1);
    if (value == NULL) return parser_no_memory(p);
    *value = (gd_pb_bytes){start, (size_t)(to - start)};
    return GD_OK;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static bool is_word(const char *token, const char *a, const char *b) {
    return strcmp(token, a) == 0 || strcmp(token, b) == 0;
}

/* Decimal, 0x... or 0...; false: no integer, or one that does not fit the type. */
static bool parse_integer(gd_pb_type type, const char *token, int64_t *value) {
    const bool negative = *token == '-';
    const char *digits = token + negative;
    if (!gd_is_digit(*digits)) return false;
    char *end;
    errno = 0;
    const unsigned long long size = strtoull(digits, &end, 0);
    if (*end != '\0' || errno != 0) return false;
    const unsigned long long most = type == GD_PB_UINT64   ? UINT64_MAX
                                    : type == GD_PB_UINT32 ? UINT32_MAX
                                    : type == GD_PB_INT64 ? (unsigned long long)INT64_MAX + negative
                                    : type == GD_PB_BOOL  ? 1
                                                         : (unsigned long long)INT32_MAX + negative;
    if (size > most) return false;
    if (negative && size > 0 &&
        (type == GD_PB_UINT32 || type == GD_PB_UINT64 || type == GD_PB_BOOL))
        return false;
    *value = (int64_t)(negative ? 0 - (uint64_t)size : (uint64_t)size);
    return true;
}

static bool parse_float(const char *token, double *value) {
    const char *digits = token + (*token == '-');
    if (is_word(digits, "inf", "infinity")) *value = *token == '-' ? -INFINITY : INFINITY;
    else if (strcmp(digits, "nan") == 0) *value = NAN;
    else {
        char *end;
        if (!gd_is_digit(*digits) && !(*digits == '.' && gd_is_digit(digits[1]))) return false;
        if (*digits == '0' && (digits[1] == 'x' || digits[1] == 'X')) return false;
        *value = gd_double_parse(token, &end);
        if (*end == 'f' || *end == 'F') end++;
        return *end == '\0';
    }
    return true;
}

static bool parse_enum(const gd_pb_field *field, const char *token, int64_t *value) {
    for (const gd_pb_enum *e = field->values; e != NULL && e->name != NULL; e++)
        if (strcmp(e->name, token) == 0) {
            *value = e->number;
            return true;
        }
    return parse_integer(GD_PB_ENUM, token, value);
}

static bool parse_bool(const char *token, int64_t *value) {
    if (is_word(token, "true", "True") || strcmp(token, "t") == 0) *value = 1;
    else if (is_word(token, "false", "False") || strcmp(token, "f") == 0) *value = 0;
    else return parse_integer(GD_PB_BOOL, token, value);
    return true;
}

static const char *const expected_types[] = {
    [GD_PB_INT32] = "an integer of 32 bits",
    [GD_PB_INT64] = "an integer of 64 bits",
    [GD_PB_UINT32] = "a nonnegative integer of 32 bits",
    [GD_PB_UINT64] = "a nonnegative integer of 64 bits",
    [GD_PB_BOOL] = "true or false",
    [GD_PB_ENUM] = "a number",
    [GD_PB_FLOAT] = "a number",
    [GD_PB_DOUBLE] = "a number",
};

static GD_COLD gd_status fail_number(const parser *p, const gd_pb_field *field) {
    char words[400], word[64], hint[400] = "";
    if (field->values == NULL) return fail_expected(p, expected_types[field->type]);
    const bool quoted = next_is(p, '"') || next_is(p, '\'');
    size_t length = 0;
    for (const char *s = p->at + quoted; s + length < p->end && length < sizeof word - 1; length++)
        if (!is_letter(s[length]) && !gd_is_digit(s[length])) break;
    memcpy(word, p->at + quoted, length);
    word[length] = '\0';
    gd_pb_hint_word(field->values, word, words, hint, sizeof words - sizeof " without quotes");
    if (quoted) strcat(words, " without quotes");
    return fail_with_hint(p, words, hint);
}

static gd_status read_number(parser *p, gd_pb_list *list) {
    const gd_pb_field *field = list->field;
    const gd_pb_type type = field->type;
    const size_t length = token_length(p);
    char token[TOKEN_MAX];
    if (length == 0) return fail_number(p, field);
    GD_TRY(copy_token(p, token, length, ""));
    int64_t integer = 0;
    double real = 0;
    const bool ok = type == GD_PB_ENUM    ? parse_enum(field, token, &integer)
                    : type == GD_PB_BOOL  ? parse_bool(token, &integer)
                    : type >= GD_PB_FLOAT ? parse_float(token, &real)
                                          : parse_integer(type, token, &integer);
    if (!ok) return fail_number(p, field);
    void *to = gd_pb_room(p->doc, list, 1);
    if (to == NULL) return parser_no_memory(p);
    if (type == GD_PB_FLOAT) *(float *)to = (float)real;
    else if (type == GD_PB_DOUBLE) *(double *)to = real;
    else *(int64_t *)to = integer;
    p->at += length;
    skip_space(p);
    return GD_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

typedef struct place {
    int line, column;
} place;

static gd_status read_fields(parser *p, gd_pb *message, char close);

/* `name` is the position of the field's name, or NULL in a list. */
static gd_status read_child(parser *p, gd_pb *message, gd_pb_list *list, const place *name) {
    const char close = next_is(p, '<') ? '>' : '}';
    if (p->path.depth >= GD_PB_MAX_DEPTH)
        return fail_parse(p, p->at, "nested more than 100 levels deep");
    gd_pb *child = gd_pb_child(message, list);
    if (child == NULL) return parser_no_memory(p);
    child->line = name ? name->line : p->line;
    child->column = name ? name->column : column_of(p, p->at);
    if (!take_char(p, '{') && !take_char(p, '<')) return fail_expected(p, "'{'");
    p->path.at[p->path.depth - 1].message = child;
    return read_fields(p, child, close);
}

static gd_status read_value(parser *p, gd_pb *message, gd_pb_list *list, const place *name) {
    p->path.at[p->path.depth - 1].index = list->count;
    switch (list->field->type) {
    case GD_PB_MESSAGE: return read_child(p, message, list, name);
    case GD_PB_STRING:
    case GD_PB_BYTES: return read_string(p, list);
    default: return read_number(p, list);
    }
}

static gd_status read_list(parser *p, gd_pb *message, const gd_pb_field *field) {
    if (!(field->flags & GD_PB_REPEATED))
        return fail_parse(p, p->at, "takes one value, not a list");
    gd_pb_list *list = gd_pb_list_for(message, field);
    if (list == NULL) return parser_no_memory(p);
    take_char(p, '[');
    while (!next_is(p, ']')) {
        GD_TRY(read_value(p, message, list, NULL));
        if (next_is(p, ']')) break;
        if (!take_char(p, ',')) return fail_expected(p, "',' or ']'");
        if (next_is(p, ']')) return fail_expected(p, "a value");
    }
    take_char(p, ']');
    return GD_OK;
}

static GD_COLD gd_status fail_unknown_field(const parser *p, const gd_pb *message,
                                            const char *name) {
    char path[300], hint[300];
    gd_pb_path_text(&p->path, path, sizeof path);
    gd_pb_hint_field(&p->path, &p->doc->root, name, hint, sizeof hint);
    return gd_fail(GD_E_FORMAT, "%s:%d:%d: %s%s has no field '%.80s'%s", p->name, p->line,
                   column_of(p, p->at), *path ? "" : "a ", *path ? path : message->schema->name,
                   name, hint);
}

static GD_COLD gd_status fail_twice(const parser *p, const gd_pb_list *had) {
    char text[60] = "is given twice";
    if (had->field->type == GD_PB_MESSAGE)
        snprintf(text, sizeof text, "is given twice, first in line %d", had->messages[0]->line);
    return fail_parse(p, p->at, text);
}

static GD_COLD gd_status fail_name(const parser *p) {
    if (p->path.depth == 0 && (next_is(p, '}') || next_is(p, '>')))
        return fail_parse(p, p->at, "this bracket closes nothing");
    if (p->at - p->line_start > 1 && p->at[-1] == ',' && gd_is_digit(p->at[-2]))
        return fail_parse(p, p->at - 1, "a number has a decimal point, not a comma");
    return fail_expected(p, "the name of a field");
}

static gd_status read_field(parser *p, gd_pb *message) {
    char text[TOKEN_MAX];
    const place name = {p->line, column_of(p, p->at)};
    size_t length = 0;
    while (p->at + length < p->end && (is_letter(p->at[length]) || gd_is_digit(p->at[length])))
        length++;
    if (length == 0 || gd_is_digit(*p->at)) return fail_name(p);
    GD_TRY(copy_token(p, text, length, "the name of a field"));
    const gd_pb_field *field = gd_pb_field_named(message->schema, text, length);
    if (field == NULL) return fail_unknown_field(p, message, text);
    p->path.at[p->path.depth].field = field;
    p->path.at[p->path.depth].message = NULL;
    p->path.at[p->path.depth++].index = 0;
    const gd_pb_list *had = gd_pb_get(message, field->name);
    if (had != NULL && !(field->flags & GD_PB_REPEATED)) return fail_twice(p, had);
    p->at += length;
    skip_space(p);
    if (!take_char(p, ':') && field->type != GD_PB_MESSAGE) return fail_expected(p, "':'");
    if (next_is(p, '[')) {
        GD_TRY(read_list(p, message, field));
    } else {
        gd_pb_list *list = gd_pb_list_for(message, field);
        if (list == NULL) return parser_no_memory(p);
        GD_TRY(read_value(p, message, list, &name));
    }
    p->path.depth--;
    if (!take_char(p, ',')) take_char(p, ';');
    return GD_OK;
}

static GD_COLD gd_status fail_open(const parser *p, const gd_pb *message, char close) {
    char text[80];
    snprintf(text, sizeof text, "'%c' for the bracket of line %d", close, message->line);
    return fail_expected(p, text);
}

/* Reads fields up to the closing bracket; `close` 0: up to the end of the text. */
static gd_status read_fields(parser *p, gd_pb *message, char close) {
    while (p->at < p->end && (close == '\0' || *p->at != close)) GD_TRY(read_field(p, message));
    if (close == '\0' || take_char(p, close)) return GD_OK;
    return fail_open(p, message, close);
}

gd_status gd_pb_read_text(gd_pb_doc **out, const gd_pb_schema *schema, const char *name,
                          const char *text, size_t bytes) {
    *out = NULL;
    parser p = {.name = name, .at = text, .end = text + bytes, .line_start = text, .line = 1};
    p.doc = gd_pb_new_named(schema, name);
    if (p.doc == NULL) return GD_E_MEMORY;
    p.doc->root.line = p.doc->root.column = 1;
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) p.line_start = p.at += 3; /* a mark */
    skip_space(&p);
    gd_status status = read_fields(&p, &p.doc->root, '\0');
    if (status != GD_OK) {
        gd_pb_free(p.doc);
        return status;
    }
    *out = p.doc;
    return GD_OK;
}
