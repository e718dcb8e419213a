/* state_report.c - what does not fit in a load, in words that name each tensor. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/number.h"
#include "core/state_take.h"

enum { NAMED = 4 }; /* names of each kind; the rest is counted */

typedef struct writer {
    char *text;
    size_t used, size;
    bool listed; /* a list of names is there already */
} writer;

static void GD_PRINTF(2, 3) put(writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = gd_vsnprintf(w->text + w->used, w->size - w->used, format, args);
    va_end(args);
    if (n > 0) w->used += (size_t)n;
    if (w->used >= w->size) w->used = w->size - 1;
}

/* --- which names a load is answerable for ----------------------------------------------------- */

/* The length of a part's name if `name` is under it, else -1. */
static long under(const char *part, size_t length, const char *name) {
    if (length == 0) return 0;
    if (strncmp(part, name, length) != 0) return -1;
    return name[length] == '.' || name[length] == 0 ? (long)length : -1;
}

/* Whether an unused name belongs to a part that is loaded: of all parts that are loaded or that the
 * file was saved from, the one with the longest name counts. */
static bool is_ours(const gd_taking *in, const char *name) {
    long ours = -1, others = -1;
    for (int64_t i = 0; i < in->parts.count; i++) {
        const char *part = in->parts.at[i].name ? in->parts.at[i].name : "";
        const long n = under(part, strlen(part), name);
        if (n > ours) ours = n;
    }
    for (const char *line = in->source->parts; line && *line;) {
        const size_t length = strcspn(line, "\n");
        const long n = under(line, length, name);
        if (n > others) others = n;
        line += length + (line[length] != 0);
    }
    return ours >= 0 && ours >= others;
}

/* --- lists ------------------------------------------------------------------------------------ */

/* Whether a want is satisfied by another name of the same tensor or value. */
static bool is_satisfied(const gd_taking *in, const gd_want *w) {
    const void *place = w->tensor ? (const void *)w->tensor->storage : w->to;
    for (int i = gd_map_find(&in->by_place, place); i >= 0; i = in->wants[i].same) {
        const gd_want *other = &in->wants[i];
        const bool same = w->tensor ? other->tensor && gd_state_same(other->tensor, w->tensor)
                                    : !other->tensor && other->to == w->to;
        if (same && other->fit == GD_FITS) return true;
    }
    return false;
}

static void put_begin(writer *w, const char *what, int64_t i) {
    if (i == 0) put(w, "%s %s ", w->listed ? ";" : ":", what);
    else if (i < NAMED) put(w, ", ");
    w->listed = true;
}

static void put_rest(writer *w, int64_t count) {
    if (count > NAMED) put(w, " and %lld more", (long long)(count - NAMED));
}

static int64_t list_missing(const gd_taking *in, writer *w) {
    int64_t n = 0;
    for (int i = 0; i < in->n_wants; i++) {
        const gd_want *want = &in->wants[i];
        if (want->fit != GD_MISSING || is_satisfied(in, want)) continue;
        put_begin(w, "missing", n);
        if (n++ < NAMED) put(w, "%.100s", want->name);
    }
    put_rest(w, n);
    return n;
}

static int64_t list_unexpected(const gd_taking *in, writer *w) {
    const gd_source *s = in->source;
    int64_t n = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (s->tensors[i].used || !is_ours(in, s->tensors[i].name)) continue;
        put_begin(w, "unexpected", n);
        if (n++ < NAMED) put(w, "%.100s", s->tensors[i].name);
    }
    /* the metadata of other programs' files are no state */
    for (size_t i = 0; i < s->n_values && s->parts; i++) {
        if (s->values[i].used || !is_ours(in, s->values[i].name)) continue;
        put_begin(w, "unexpected", n);
        if (n++ < NAMED) put(w, "%.100s", s->values[i].name);
    }
    put_rest(w, n);
    return n;
}

static void put_unfit(writer *w, const gd_want *want) {
    char here[160], there[160];
    const gd_source_tensor *from = want->from;
    if (want->fit == GD_OTHER_VALUE) {
        put(w, "%.100s (\"%.40s\" is no %s)", want->name, want->value->text,
            want->kind == GD_NUMBER_VALUE ? "number" : "integer");
    } else if (from->rank > GD_MAX_RANK) {
        put(w, "%.100s (%d dimensions, %s here)", want->name, from->rank,
            gd_describe(want->tensor, here, sizeof here));
    } else {
        put(w, "%.100s (%s%s, %s here)", want->name,
            from->dtype ? gd_dtype_name(from->dtype) : from->dtype_name,
            gd_shape_text(from->rank, from->dims, there, sizeof there),
            gd_describe(want->tensor, here, sizeof here));
    }
}

static int64_t list_unfit(const gd_taking *in, writer *w, gd_fit fit, const char *what) {
    int64_t n = 0;
    for (int i = 0; i < in->n_wants; i++) {
        const gd_want *want = &in->wants[i];
        if (want->fit != fit || is_satisfied(in, want)) continue;
        put_begin(w, what, n);
        if (n++ < NAMED) put_unfit(w, want);
    }
    put_rest(w, n);
    return n;
}

/* --- a hint ----------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end) {
    const size_t a = strlen(name), b = strlen(end);
    return b > 0 && a > b && name[a - b - 1] == '.' && strcmp(name + a - b, end) == 0;
}

/* Where no tensor was found at all, often one side has a prefix that the other lacks. */
static void put_hint(const gd_taking *in, writer *w) {
    const gd_source *s = in->source;
    const gd_want *first = NULL;
    for (int i = 0; i < in->n_wants; i++) {
        if (in->wants[i].tensor && in->wants[i].fit != GD_MISSING) return;
        if (in->wants[i].tensor && !first) first = &in->wants[i];
    }
    for (size_t i = 0; first && i < s->n_tensors; i++) {
        const char *name = s->tensors[i].name;
        if (!ends_with(name, first->name) && !ends_with(first->name, name)) continue;
        put(w, "; no name fits: it has %.100s instead of %.100s (see gd_part, .prefix and .rename)",
            name, first->name);
        return;
    }
}

/* "FILE does not fit parts 'net', 'adam'" */
static void put_head(const gd_taking *in, writer *w) {
    put(w, "%.300s does not fit part%s ", in->source->title, in->parts.count == 1 ? "" : "s");
    for (int64_t i = 0; i < in->parts.count && i < NAMED; i++)
        put(w, "%s'%.40s'", i ? ", " : "", in->parts.at[i].name ? in->parts.at[i].name : "");
    if (in->parts.count > NAMED) put(w, ", ...");
}

void gd_taking_report(gd_taking *in, gd_load_report *r) {
    *r = (gd_load_report){0};
    writer w = {.text = r->text, .size = sizeof r->text};
    put_head(in, &w);
    r->missing = list_missing(in, &w);
    r->unexpected = list_unexpected(in, &w);
    r->unfit = list_unfit(in, &w, GD_OTHER_SHAPE, "of another shape");
    r->unfit += list_unfit(in, &w, GD_OTHER_DTYPE, "of a dtype that cannot be converted");
    r->unfit += list_unfit(in, &w, GD_OTHER_VALUE, "not such a value");
    if (r->missing) put_hint(in, &w);
    if (!w.listed) r->text[0] = 0;
    for (int i = 0; i < in->n_wants; i++)
        r->loaded += in->wants[i].fit == GD_FITS && !in->wants[i].again;
}
