/* variants.c - expands one text into several records. See variants.h. */
#include "codegen/opgen/variants.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The end of the record's name, with which the text begins. */
static const char *name_end(const char *text) { return text + strcspn(text, "(\n"); }

/* The brace that opens the list of variants; NULL: the name has none. */
static const char *list_begin(const char *text) {
    const char *open = strchr(text, '{');
    return open && open < name_end(text) ? open : NULL;
}

static int entry_count(const char *from, const char *to, char separator) {
    int count = 1;
    for (; from < to; from++) count += *from == separator;
    return count;
}

/* Entry k of a list. */
static const char *list_entry(const char *from, const char *to, char separator, int k,
                              size_t *length) {
    for (; k > 0; k--) from = (const char *)memchr(from, separator, (size_t)(to - from)) + 1;
    const char *end = memchr(from, separator, (size_t)(to - from));
    *length = (size_t)((end ? end : to) - from);
    return from;
}

int variant_count(const char *text) {
    const char *open = list_begin(text), *close = open ? strchr(open, '}') : NULL;
    return close ? entry_count(open + 1, close, ',') : 1;
}

char *variant_text(const char *text, int k, const char **at) {
    const char *list = list_begin(text);
    char *result = malloc(strlen(text) + 1), *to = result;
    if (!result) return NULL;
    if (!list) return strcpy(result, text);
    const char *list_end = strchr(list, '}');
    const int count = variant_count(text);
    for (const char *c = text; *c;) {
        const char *open = c + strcspn(c, "{"), *close = strchr(open, '}');
        memcpy(to, c, (size_t)(open - c));
        to += open - c;
        if (!*open) break;
        *at = open;
        if (!close) return free(result), NULL;
        const bool number = open == list || close == open + 1;
        const bool choice = !number && memchr(open, '|', (size_t)(close - open));
        const char *part = open; /* for other braces: their text, unchanged */
        size_t length = (size_t)(close + 1 - open);
        if (choice && entry_count(open + 1, close, '|') != count) return free(result), NULL;
        if (number) part = list_entry(list + 1, list_end, ',', k, &length);
        if (choice) part = list_entry(open + 1, close, '|', k, &length);
        memcpy(to, part, length);
        to += length;
        c = close + 1;
    }
    *to = 0;
    return result;
}

int variant_number(const char *text, int k) {
    const char *open = list_begin(text), *close = open ? strchr(open, '}') : NULL;
    size_t length;
    return close ? atoi(list_entry(open + 1, close, ',', k, &length)) : 0;
}

void variant_rules_name(const char *text, char *name, size_t size) {
    const char *open = list_begin(text), *close = open ? strchr(open, '}') : NULL;
    size_t n = 0;
    for (const char *c = text; c < name_end(text) && *c != ' ' && n + 1 < size; c++) {
        if (c == open && close) {
            name[n++] = 'N';
            c = close;
        } else name[n++] = *c;
    }
    name[n] = 0;
}
