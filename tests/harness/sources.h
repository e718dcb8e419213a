/* sources.h - reads the project's own sources, for tests of the sources. */
#ifndef GRADUS_TESTS_HARNESS_SOURCES_H
#define GRADUS_TESTS_HARNESS_SOURCES_H

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>

#include "test.h"

/* --- files ------------------------------------------------------------------------------------ */

/* Reads a file as a string; the caller frees it. NULL: it cannot be read. */
static inline char *read_file(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    size_t length = 0, room = 1 << 16;
    char *text = malloc(room);
    for (size_t got; text && (got = fread(text + length, 1, room - length - 1, f)) > 0;) {
        length += got;
        if (room - length < 2) text = realloc(text, room *= 2);
    }
    fclose(f);
    if (text) text[length] = 0;
    return text;
}

typedef void visitor(const char *path, const char *text, void *user);

static inline bool has_ending(const char *name, const char *const *endings) {
    for (; *endings; endings++)
        if (strlen(name) > strlen(*endings) &&
            strcmp(name + strlen(name) - strlen(*endings), *endings) == 0)
            return true;
    return false;
}

/* Visits each file in a folder and below it whose name has one of these endings; returns their
 * number. */
static inline int each_file(const char *folder, const char *const *endings, visitor *visit,
                            void *user) {
    DIR *d = opendir(folder);
    int count = 0;
    CHECK_SAYING(d, "%s", folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4096];
        if (e->d_name[0] == '.') continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path) continue;
        if (e->d_type == DT_DIR) {
            count += each_file(path, endings, visit, user);
            continue;
        }
        if (!has_ending(e->d_name, endings)) continue;
        char *text = read_file(path);
        CHECK_SAYING(text, "%s", path);
        if (text) visit(path, text, user);
        free(text);
        count++;
    }
    if (d) closedir(d);
    return count;
}

/* The same for each .c and .h file. */
static inline int each_source(const char *folder, visitor *visit, void *user) {
    return each_file(folder, (const char *const[]){".c", ".h", NULL}, visit, user);
}

/* --- tokens of C ------------------------------------------------------------------------------ */

typedef enum { END, NAME, STRING, OTHER } token_kind;
typedef struct token {
    token_kind kind;
    const char *at;
    size_t length;
    int line;
} token;

/* Returns the token at or after *at and moves *at behind it. Comments are not tokens. */
static inline token next_token(const char **at, int *line) {
    const char *s = *at;
    for (;;) {
        if (*s == '\n') (*line)++;
        if (isspace((unsigned char)*s)) s++;
        else if (s[0] == '/' && s[1] == '/') s += strcspn(s, "\n");
        else if (s[0] == '/' && s[1] == '*') {
            const char *end = strstr(s + 2, "*/");
            for (; *s && s != end; s++) *line += *s == '\n';
            if (end) s += 2;
        } else break;
    }
    token t = {.kind = *s ? OTHER : END, .at = s, .length = *s != 0, .line = *line};
    if (isalpha((unsigned char)*s) || *s == '_') {
        t.kind = NAME;
        while (isalnum((unsigned char)s[t.length]) || s[t.length] == '_') t.length++;
    } else if (*s == '"' || *s == '\'') {
        if (*s == '"') t.kind = STRING;
        while (s[t.length] && s[t.length] != *s)
            t.length += s[t.length] == '\\' && s[t.length + 1] ? 2 : 1;
        t.length += s[t.length] != 0;
    }
    *at = s + t.length;
    return t;
}

static inline bool token_is(token t, const char *text) {
    return strlen(text) == t.length && memcmp(t.at, text, t.length) == 0;
}

static inline bool is_one_of(token t, const char *const *words) {
    for (; *words; words++)
        if (token_is(t, *words)) return true;
    return false;
}

#endif
