/* renames.c - names of tensors replaced by rules; see renames.h. */
#include "io/renames.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"

/* A side of a rule: the text before and after its *, if it has one. */
typedef struct side {
    const char *before, *after; /* in the copy of the text; after is NULL without a * */
} side;

typedef struct rule {
    side from, to;
} rule;

struct gd_renames {
    rule *rules;
    size_t count;
    char text[];
};

void gd_renames_free(gd_renames *r) {
    if (!r) return;
    gd_free(r->rules);
    gd_free(r);
}

/* The text without spaces around it, ended by a zero byte. */
static char *trim(char *text, char *end) {
    while (*text == ' ') text++;
    while (end > text && end[-1] == ' ') end--;
    *end = 0;
    return text;
}

static bool parse_side(char *text, side *out) {
    char *star = strchr(text, '*');
    *out = (side){text, star ? star + 1 : NULL};
    if (star) *star = 0;
    return !star || !strchr(star + 1, '*');
}

static gd_status parse_rule(gd_renames *r, char *text, char *end) {
    char shown[100];
    text = trim(text, end);
    if (!*text) return GD_OK; /* a comma at the end */
    strncpy(shown, text, sizeof shown - 1);
    shown[sizeof shown - 1] = 0;
    char *equals = strchr(text, '=');
    rule *new = &r->rules[r->count++];
    if (!equals)
        return gd_fail(GD_E_ARGUMENT, ".names: '%s' has no '='; a rule is 'old.*=new.*'", shown);
    char *to = trim(equals + 1, text + strlen(text));
    text = trim(text, equals);
    if (!*text) return gd_fail(GD_E_ARGUMENT, ".names: '%s' has nothing before its '='", shown);
    if (!parse_side(text, &new->from) || !parse_side(to, &new->to))
        return gd_fail(GD_E_ARGUMENT, ".names: '%s' has more than one * on a side", shown);
    if (new->to.after && !new->from.after)
        return gd_fail(GD_E_ARGUMENT, ".names: '%s' has a * only after its '='", shown);
    return GD_OK;
}

gd_status gd_renames_parse(gd_renames **out, const char *text) {
    const size_t bytes = strlen(text) + 1;
    size_t rules = 1;
    for (const char *p = text; *p; p++) rules += *p == ',';
    gd_renames *r = *out = gd_calloc(1, sizeof *r + bytes);
    if (!r || !(r->rules = gd_calloc(rules, sizeof *r->rules)))
        return gd_no_memory(NULL, "for the names of tensors");
    memcpy(r->text, text, bytes);
    for (char *at = r->text; at;) {
        char *comma = strchr(at, ','), *end = comma ? comma : at + strlen(at);
        GD_TRY(parse_rule(r, at, end));
        at = comma ? comma + 1 : NULL;
    }
    return GD_OK;
}

/* Whether a name matches; then the text for * is *middle of this length. */
static bool matches(const side *s, const char *name, const char **middle, size_t *length) {
    const size_t before = strlen(s->before), n = strlen(name);
    *middle = name + n;
    *length = 0;
    if (!s->after) return strcmp(s->before, name) == 0;
    const size_t after = strlen(s->after);
    if (n < before + after || memcmp(name, s->before, before) != 0 ||
        memcmp(name + n - after, s->after, after) != 0)
        return false;
    *middle = name + before;
    *length = n - before - after;
    return true;
}

gd_status gd_renames_apply(const gd_renames *r, const char *from, char **to) {
    static const side same = {"", ""};
    const side *new = &same;
    const char *middle = from;
    size_t length = strlen(from);
    *to = NULL;
    for (size_t i = 0; i < r->count; i++)
        if (matches(&r->rules[i].from, from, &middle, &length)) {
            new = &r->rules[i].to;
            break;
        } else {
            middle = from;
            length = strlen(from);
        }
    if (!new->after && !*new->before) return GD_OK; /* skipped */
    if (!new->after) length = 0;
    const size_t before = strlen(new->before), after = new->after ? strlen(new->after) : 0;
    char *name = *to = gd_malloc(before + length + after + 1);
    if (!name) return gd_no_memory(NULL, "for the names of tensors");
    memcpy(name, new->before, before);
    memcpy(name + before, middle, length);
    if (after) memcpy(name + before + length, new->after, after);
    name[before + length + after] = 0;
    return GD_OK;
}
