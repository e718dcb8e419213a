/* json.c - the JSON reader: recursive descent over a text in memory. See json.h.
 *
 * Children are collected on a stack and moved into the document's memory when their list ends, so
 * that each list is an array. The document's memory is a chain of blocks, freed together.
 */
#include "format/json.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/file.h"
#include "core/number.h"
#include "format/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the document's memory -------------------------------------------------------------------- */

enum { FIRST_BLOCK = 2048, MAX_BLOCK = 1 << 20 };

typedef struct block {
    struct block *previous;
    size_t used, size;
    _Alignas(16) char bytes[];
} block;

struct gd_json_doc {
    gd_json root;
    block *blocks;
};

static void *doc_alloc(gd_json_doc *doc, size_t bytes) {
    size_t rounded;
    if (!gd_add_size(bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    block *b = doc->blocks;
    if (b == NULL || b->size - b->used < rounded) {
        size_t size = b == NULL ? FIRST_BLOCK : b->size * 2;
        if (size > MAX_BLOCK) size = MAX_BLOCK;
        if (size < rounded) size = rounded;
        size_t block_bytes;
        if (!gd_add_size(sizeof *b, size, &block_bytes)) return NULL;
        b = gd_malloc(block_bytes);
        if (b == NULL) return NULL;
        *b = (block){.previous = doc->blocks, .size = size};
        doc->blocks = b;
    }
    void *result = b->bytes + b->used;
    b->used += rounded;
    return result;
}

void gd_json_free(gd_json_doc *doc) {
    if (doc == NULL) return;
    for (block *b = doc->blocks; b != NULL;) {
        block *previous = b->previous;
        gd_free(b);
        b = previous;
    }
    gd_free(doc);
}

/* --- the parser ------------------------------------------------------------------------------- */

typedef struct parser {
    const char *name;
    const char *at, *end;
    const char *line_start;
    int line;
    int depth;
    gd_json_doc *doc;
    gd_json *stack; /* children of the open lists, outer lists first */
    size_t stacked, capacity;
} parser;

static int column_of(const parser *p, const char *position) {
    ptrdiff_t column = position - p->line_start + 1;
    return column < INT32_MAX ? (int)column : INT32_MAX;
}

static gd_status parser_no_memory(const parser *p) {
    return gd_fail(GD_E_MEMORY, "%s:%d: no memory left for the document", p->name, p->line);
}

static gd_status fail_parse(const parser *p, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s:%d:%d: %s", p->name, p->line, column_of(p, p->at), what);
}

static gd_status fail_expected(const parser *p, const char *what) {
    char found[24] = "the end";
    if (p->at < p->end) {
        unsigned char c = (unsigned char)*p->at;
        snprintf(found, sizeof found, c > ' ' && c < 0x7F ? "'%c'" : "byte 0x%02X", c);
    }
    return gd_fail(GD_E_FORMAT, "%s:%d:%d: expected %s, found %s", p->name, p->line,
                   column_of(p, p->at), what, found);
}

static void skip_space(parser *p) {
    for (; p->at < p->end; p->at++) {
        char c = *p->at;
        if (c == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

static bool next_is(const parser *p, char c) { return p->at < p->end && *p->at == c; }

static bool take_char(parser *p, char c) {
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}

static gd_status push_child(parser *p, const gd_json *child) {
    if (p->stacked == p->capacity) {
        size_t capacity, bytes;
        if (!gd_mul_size(p->capacity, 2, &capacity)) return parser_no_memory(p);
        if (capacity == 0) capacity = 32;
        if (!gd_mul_size(capacity, sizeof *child, &bytes)) return parser_no_memory(p);
        gd_json *larger = gd_realloc(p->stack, bytes);
        if (larger == NULL) return parser_no_memory(p);
        p->stack = larger;
        p->capacity = capacity;
    }
    p->stack[p->stacked++] = *child;
    return GD_OK;
}

/* --- strings ---------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The four digits after "\u". */
static gd_status parse_hex4(parser *p, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        int digit = p->at < p->end ? hex_digit(*p->at) : -1;
        if (digit < 0) return fail_expected(p, "four hexadecimal digits");
        *code = *code << 4 | (uint32_t)digit;
    }
    return GD_OK;
}

/* Parses an escape after its backslash. The result is never longer: at most 4 bytes for 6 or 12. */
static gd_status parse_escape(parser *p, char **to) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p->at < p->end && *p->at != 'u') {
        const char *name = *p->at != '\0' ? strchr(names, *p->at) : NULL;
        if (name == NULL) return fail_expected(p, "one of \"\\/bfnrtu after a backslash");
        *(*to)++ = values[name - names];
        p->at++;
        return GD_OK;
    }
    if (!take_char(p, 'u')) return fail_expected(p, "one of \"\\/bfnrtu after a backslash");
    uint32_t code, low;
    GD_TRY(parse_hex4(p, &code));
    if (code >= 0xDC00 && code <= 0xDFFF)
        return fail_parse(p, "the second half of a surrogate pair has no first half");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (!take_char(p, '\\') || !take_char(p, 'u'))
            return fail_expected(p, "\\u and the second half of a surrogate pair");
        GD_TRY(parse_hex4(p, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return fail_parse(p, "this is not the second half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    *to = gd_utf8_put(*to, code);
    return GD_OK;
}

static gd_status parse_string(parser *p, const char **text, size_t *length) {
    p->at++; /* the opening quote */
    const char *close = p->at;
    while (close < p->end && *close != '"') close += *close == '\\' && p->end - close > 1 ? 2 : 1;
    size_t room = (size_t)(close - p->at); /* the text only gets shorter */
    char *start = doc_alloc(p->doc, room + 1), *to = start;
    if (start == NULL) return parser_no_memory(p);
    while (!next_is(p, '"')) {
        if (p->at == p->end) return fail_expected(p, "a closing '\"'");
        if (take_char(p, '\\')) {
            GD_TRY(parse_escape(p, &to));
            continue;
        }
        if ((unsigned char)*p->at < 0x20)
            return fail_expected(p, "an escape for a control character");
        size_t bytes = gd_utf8_length(p->at, p->end);
        if (bytes == 0) return fail_expected(p, "UTF-8");
        for (size_t i = 0; i < bytes; i++) *to++ = *p->at++;
    }
    p->at++;
    *to = '\0';
    *text = start;
    *length = (size_t)(to - start);
    return GD_OK;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static bool skip_digits(parser *p) {
    const char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > start;
}

/* Skips a number. *digits_only: it has neither a fraction nor an exponent. JSON is stricter than
 * strtod: no "01", ".5", "5.", "+1", hexadecimal. */
static gd_status scan_number(parser *p, bool *digits_only) {
    *digits_only = true;
    take_char(p, '-');
    if (!take_char(p, '0') && !skip_digits(p)) return fail_expected(p, "a digit");
    if (take_char(p, '.')) {
        *digits_only = false;
        if (!skip_digits(p)) return fail_expected(p, "a digit after '.'");
    }
    if (take_char(p, 'e') || take_char(p, 'E')) {
        *digits_only = false;
        if (!take_char(p, '-')) take_char(p, '+');
        if (!skip_digits(p)) return fail_expected(p, "a digit of the exponent");
    }
    return GD_OK;
}

/* Parses digits with an optional sign; false if the number does not fit. */
static bool parse_integer(const char *text, int64_t *value) {
    bool negative = *text == '-';
    *value = 0;
    for (text += negative; *text != '\0'; text++) {
        /* accumulated as a negative number: INT64_MIN has no positive counterpart */
        const int digit = *text - '0';
        if (!gd_mul_i64(*value, 10, value) || !gd_add_i64(*value, -digit, value)) return false;
    }
    if (negative) return true;
    if (*value == INT64_MIN) return false;
    *value = -*value;
    return true;
}

static gd_status parse_number(parser *p, gd_json *out) {
    const char *start = p->at;
    bool digits_only;
    GD_TRY(scan_number(p, &digits_only));
    char small[64], *copy = small; /* the number may not be followed by a zero byte */
    size_t length = (size_t)(p->at - start);
    if (length >= sizeof small && (copy = gd_malloc(length + 1)) == NULL)
        return parser_no_memory(p);
    memcpy(copy, start, length);
    copy[length] = '\0';
    out->type = GD_JSON_NUMBER;
    out->number = gd_double_parse(copy, NULL);
    if (digits_only) {
        out->is_integer = parse_integer(copy, &out->integer);
    } else if (fabs(out->number) <= 0x1p53 && out->number == trunc(out->number)) {
        out->is_integer = true;
        out->integer = (int64_t)out->number;
    }
    if (copy != small) gd_free(copy);
    if (isinf(out->number)) {
        p->at = start;
        return fail_parse(p, "this number is beyond the range of a double");
    }
    return GD_OK;
}

/* --- lists ------------------------------------------------------------------------------------ */

static gd_status parse_value(parser *p, gd_json *out);

static int compare_keys(const void *a, const void *b) {
    const gd_json *x = *(const gd_json *const *)a, *y = *(const gd_json *const *)b;
    size_t shorter = x->key_length < y->key_length ? x->key_length : y->key_length;
    int order = memcmp(x->key, y->key, shorter);
    return order ? order : (x->key_length > y->key_length) - (x->key_length < y->key_length);
}

static gd_status fail_duplicate(const parser *p, const gd_json *a, const gd_json *b) {
    const gd_json *second = a > b ? a : b; /* both are in one array, in the order of the text */
    return gd_fail(GD_E_FORMAT, "%s:%d:%d: a second member with the key \"%.100s\"", p->name,
                   second->line, second->column, second->key);
}

/* Finds equal keys, and keeps a sorted index if there are too many for a linear search. */
enum { FEW_MEMBERS = 8 };
static gd_status index_members(parser *p, gd_json *object) {
    const gd_json *items = object->items;
    if (object->count <= FEW_MEMBERS) {
        for (size_t i = 0; i < object->count; i++)
            for (size_t j = 0; j < i; j++)
                if (compare_keys(&(const gd_json *){&items[i]}, &(const gd_json *){&items[j]}) == 0)
                    return fail_duplicate(p, &items[i], &items[j]);
        return GD_OK;
    }
    const gd_json **by_key = doc_alloc(p->doc, object->count * sizeof *by_key);
    if (by_key == NULL) return parser_no_memory(p);
    for (size_t i = 0; i < object->count; i++) by_key[i] = &items[i];
    qsort(by_key, object->count, sizeof *by_key, compare_keys);
    for (size_t i = 1; i < object->count; i++)
        if (compare_keys(&by_key[i - 1], &by_key[i]) == 0)
            return fail_duplicate(p, by_key[i - 1], by_key[i]);
    object->by_key = by_key;
    return GD_OK;
}

/* Moves the children from the stack into the document. */
static gd_status end_list(parser *p, gd_json *list, size_t first_child) {
    list->count = p->stacked - first_child;
    p->stacked = first_child;
    if (list->count == 0) return GD_OK;
    gd_json *items = doc_alloc(p->doc, list->count * sizeof *items);
    if (items == NULL) return parser_no_memory(p);
    memcpy(items, p->stack + first_child, list->count * sizeof *items);
    list->items = items;
    return list->type == GD_JSON_OBJECT ? index_members(p, list) : GD_OK;
}

static gd_status parse_key(parser *p, gd_json *member) {
    skip_space(p);
    if (!next_is(p, '"')) return fail_expected(p, "a key in double quotes");
    GD_TRY(parse_string(p, &member->key, &member->key_length));
    skip_space(p);
    return take_char(p, ':') ? GD_OK : fail_expected(p, "':' after the key");
}

static gd_status parse_list(parser *p, gd_json *out, gd_json_type type) {
    const bool object = type == GD_JSON_OBJECT;
    const char close = object ? '}' : ']';
    if (++p->depth > GD_JSON_MAX_DEPTH) return fail_parse(p, "nested more than 256 levels deep");
    p->at++; /* the opening bracket */
    out->type = type;
    size_t first_child = p->stacked;
    skip_space(p);
    while (!next_is(p, close)) {
        gd_json child = {0};
        if (object) GD_TRY(parse_key(p, &child));
        GD_TRY(parse_value(p, &child));
        GD_TRY(push_child(p, &child));
        skip_space(p);
        if (next_is(p, close)) break;
        if (!take_char(p, ',')) return fail_expected(p, object ? "',' or '}'" : "',' or ']'");
        skip_space(p);
        if (next_is(p, close))
            return fail_expected(p, object ? "a key in double quotes" : "a value");
    }
    p->at++;
    p->depth--;
    return end_list(p, out, first_child);
}

static bool take_word(parser *p, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
    p->at += length;
    return true;
}

static gd_status parse_value(parser *p, gd_json *out) {
    skip_space(p);
    out->line = p->line;
    out->column = column_of(p, p->at);
    if (next_is(p, '{')) return parse_list(p, out, GD_JSON_OBJECT);
    if (next_is(p, '[')) return parse_list(p, out, GD_JSON_ARRAY);
    if (next_is(p, '"')) {
        out->type = GD_JSON_STRING;
        return parse_string(p, &out->text, &out->length);
    }
    if (next_is(p, '-') || (p->at < p->end && *p->at >= '0' && *p->at <= '9'))
        return parse_number(p, out);
    if (take_word(p, "null")) {
        out->type = GD_JSON_NULL;
    } else if (take_word(p, "true")) {
        out->type = GD_JSON_BOOL;
        out->boolean = true;
    } else if (take_word(p, "false")) {
        out->type = GD_JSON_BOOL;
        out->boolean = false;
    } else {
        return fail_expected(p, "a value");
    }
    return GD_OK;
}

/* --- interface -------------------------------------------------------------------------------- */

gd_status gd_json_parse(gd_json_doc **out, const char *name, const char *text, size_t bytes) {
    *out = NULL;
    parser p = {.name = name, .at = text, .end = text + bytes, .line_start = text, .line = 1};
    p.doc = gd_calloc(1, sizeof *p.doc);
    if (p.doc == NULL) return parser_no_memory(&p);
    gd_status status = parse_value(&p, &p.doc->root);
    if (status == GD_OK) {
        skip_space(&p);
        if (p.at < p.end) status = fail_expected(&p, "nothing more");
    }
    gd_free(p.stack);
    if (status != GD_OK) {
        gd_json_free(p.doc);
        return status;
    }
    *out = p.doc;
    return GD_OK;
}

gd_status gd_json_load(gd_json_doc **out, const char *path) {
    *out = NULL;
    char *text;
    size_t bytes;
    GD_TRY(gd_file_read_all(path, &text, &bytes));
    gd_status status = gd_json_parse(out, path, text, bytes);
    gd_free(text);
    return status;
}

const gd_json *gd_json_root(const gd_json_doc *doc) { return &doc->root; }

static int compare_with_member(const void *wanted, const void *member) {
    const gd_json *key = wanted;
    return compare_keys(&key, member);
}

const gd_json *gd_json_get(const gd_json *object, const char *key) {
    if (object == NULL || object->type != GD_JSON_OBJECT) return NULL;
    const gd_json wanted = {.key = key, .key_length = strlen(key)};
    if (object->by_key != NULL) {
        const gd_json *const *found = bsearch(&wanted, object->by_key, object->count,
                                              sizeof *object->by_key, compare_with_member);
        return found ? *found : NULL;
    }
    for (size_t i = 0; i < object->count; i++)
        if (compare_with_member(&wanted, &(const gd_json *){&object->items[i]}) == 0)
            return &object->items[i];
    return NULL;
}

const gd_json *gd_json_at(const gd_json *list, size_t i) {
    if (list == NULL || (list->type != GD_JSON_ARRAY && list->type != GD_JSON_OBJECT)) return NULL;
    return i < list->count ? &list->items[i] : NULL;
}

const char *gd_json_type_name(gd_json_type type) {
    static const char *const names[] = {"null",     "a boolean", "a number",
                                        "a string", "an array",  "an object"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "nothing";
}
