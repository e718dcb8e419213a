/* json.c - prints JSON to stdout; see tool.h. */
#include <math.h>
#include <string.h>

#include "tool.h"

enum { MAX_DEPTH = 16 };
static bool has_values[MAX_DEPTH]; /* of each open object or list */
static int depth;

static void print_string(const char *s) {
    putchar('"');
    for (size_t length; *s; s += length ? length : 1) {
        const unsigned char c = (unsigned char)*s;
        length = utf8_length(s);
        if (!length) fputs("\\ufffd", stdout); /* it replaces what is no character */
        else if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c == '\n') fputs("\\n", stdout);
        else if (c < 0x20) printf("\\u%04x", c);
        else printf("%.*s", (int)length, s);
    }
    putchar('"');
}

/* Prints the comma and the key before a value. */
static void begin_value(const char *key) {
    if (has_values[depth]) putchar(',');
    has_values[depth] = true;
    if (key) {
        print_string(key);
        putchar(':');
    }
}

static void open_container(const char *key, char c) {
    begin_value(key);
    putchar(c);
    if (depth + 1 < MAX_DEPTH) depth++;
    has_values[depth] = false;
}

static void close_container(char c) {
    if (depth > 0) depth--;
    putchar(c);
}

void json_begin(const char *key) { open_container(key, '{'); }
void json_end(void) { close_container('}'); }
void json_begin_list(const char *key) { open_container(key, '['); }
void json_end_list(void) { close_container(']'); }

void json_text(const char *key, const char *value) {
    begin_value(key);
    if (value) print_string(value);
    else fputs("null", stdout);
}

void json_number(const char *key, double value) {
    begin_value(key);
    if (isfinite(value)) printf("%.9g", value);
    else fputs("null", stdout);
}

void json_integer(const char *key, int64_t value) {
    begin_value(key);
    printf("%lld", (long long)value);
}

void json_bool(const char *key, bool value) {
    begin_value(key);
    fputs(value ? "true" : "false", stdout);
}

void json_line(void) {
    putchar('\n');
    depth = 0;
    has_values[0] = false;
    fflush(stdout);
}
