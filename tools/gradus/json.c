/* json.c - machine-readable output on stdout. */
#include <math.h>
#include <string.h>

#include "tool.h"

enum { MOST_DEEP = 16 };
static bool filled[MOST_DEEP];
static int depth;

static void print_string(const char *s) {
    putchar('"');
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c == '\n') fputs("\\n", stdout);
        else if (c < 0x20) printf("\\u%04x", c);
        else putchar(c);
    }
    putchar('"');
}

static void before(const char *key) {
    if (filled[depth]) putchar(',');
    filled[depth] = true;
    if (key) {
        print_string(key);
        putchar(':');
    }
}

static void open(const char *key, char c) {
    before(key);
    putchar(c);
    if (depth + 1 < MOST_DEEP) depth++;
    filled[depth] = false;
}

static void close(char c) {
    if (depth > 0) depth--;
    putchar(c);
}

void json_begin(const char *key) { open(key, '{'); }
void json_end(void) { close('}'); }
void json_begin_list(const char *key) { open(key, '['); }
void json_end_list(void) { close(']'); }

void json_text(const char *key, const char *value) {
    before(key);
    if (value) print_string(value);
    else fputs("null", stdout);
}

void json_number(const char *key, double value) {
    before(key);
    if (isfinite(value)) printf("%.9g", value);
    else fputs("null", stdout);
}

void json_integer(const char *key, int64_t value) {
    before(key);
    printf("%lld", (long long)value);
}

void json_bool(const char *key, bool value) {
    before(key);
    fputs(value ? "true" : "false", stdout);
}

void json_line(void) {
    putchar('\n');
    depth = 0;
    filled[0] = false;
    fflush(stdout);
}
