/* state_report.c - the report of a load: which tensors and values do not fit. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/number.h"
#include "core/state_loading.h"

enum { NAMED = 4 }; /* how many names of each kind are listed; the others are counted */

typedef struct writer {
    char *text;
    size_t used, size;
    bool listed; /* a list of names has been written */
} writer;

static void GD_PRINTF(2, 3) put_format(writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = gd_vsnprintf(w->text + w->used, w->size - w->used, format, args);
    va_end(args);
    if (n > 0) w->used += (size_t)n;
    if (w->used >= w->size) w->used = w->size - 1;
}

/* --- names of the loaded parts ---------------------------------------------------------------- */

/* The length of a part's name if it is a prefix of `name`, otherwise -1. */
static long part_length(const char *part, size_t length, const char *name) {
    if (length == 0) return 0;
    if (strncmp(part, name, length) != 0) return -1;
    return name[length] == '.' || name[length] == 0 ? (long)length : -1;
}

/* Whether an unused name of the source belongs to a loaded part: among the loaded parts and those
 * that were saved, the part with the longest matching name owns it. */
static bool is_of_loaded_part(const gd_loading *in, const char *name) {
    long ours = -1, others = -1;
    for (int64_t i = 0; i < in->parts.count; i++) {
        const char *part = in->parts.at[i].name ? in->parts.at[i].name : "";
        const long n = part_length(part, strlen(part), name);
        if (n > ours) ours = n;
    }
    for (const char *line = in->source->parts; line && *line;) {
        const size_t length = strcspn(line, "\n");
        const long n = part_length(line, length, name);
        if (n > others) others = n;
        line += length + (line[length] != 0);
    }
    return ours >= 0 && ours >= others;
}

/* --- lists ------------------------------------------------------------------------------------ */

/* Whether the same tensor or value was found under another name. */
static bool is_satisfied(const gd_loading *in, const gd_request *w) {
    const void *target = w->tensor ? gd_state_place(w->tensor) : w->to;
    for (int i = gd_map_find(&in->by_target, target); i >= 0; i = in->requests[i].same) {
        const gd_request *other = &in->requests[i];
        const bool same = w->tensor ? other->tensor && gd_state_same(other->tensor, w->tensor)
                                    : !other->tensor && other->to == w->to;
        if (same && other->fit == GD_FITS) return true;
    }
    return false;
}

static void put_list_start(writer *w, const char *what, int64_t i) {
    if (i == 0) put_format(w, "%s %s ", w->listed ? ";" : ":", what);
    else if (i < NAMED) put_format(w, ", ");
    w->listed = true;
}

static void put_list_rest(writer *w, int64_t count) {
    if (count > NAMED) put_format(w, " and %lld more", (long long)(count - NAMED));
}

static int64_t list_missing(const gd_loading *in, writer *w) {
    int64_t n = 0;
    for (int i = 0; i < in->n_requests; i++) {
        const gd_request *request = &in->requests[i];
        if (request->fit != GD_MISSING || is_satisfied(in, request)) continue;
        put_list_start(w, "missing", n);
        if (n++ < NAMED) put_format(w, "%.100s", request->name);
    }
    put_list_rest(w, n);
    return n;
}

static int64_t list_unexpected(const gd_loading *in, writer *w) {
    const gd_source *s = in->source;
    int64_t n = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (s->tensors[i].used || !is_of_loaded_part(in, s->tensors[i].name)) continue;
        put_list_start(w, "unexpected", n);
        if (n++ < NAMED) put_format(w, "%.100s", s->tensors[i].name);
    }
    /* values in files of other programs are metadata, not state */
    for (size_t i = 0; i < s->n_values && s->parts; i++) {
        if (s->values[i].used || !is_of_loaded_part(in, s->values[i].name)) continue;
        put_list_start(w, "unexpected", n);
        if (n++ < NAMED) put_format(w, "%.100s", s->values[i].name);
    }
    put_list_rest(w, n);
    return n;
}

static void put_unfit(writer *w, const gd_request *request) {
    char here[160], there[160];
    const gd_source_tensor *from = request->from;
    if (request->fit != GD_OTHER_VALUE && from->rank < 0) {
        put_format(w, "%.100s (%.60s, %s here)", request->name, from->dtype_name,
                   gd_describe(request->tensor, here, sizeof here));
    } else if (request->fit == GD_OTHER_VALUE) {
        put_format(w, "%.100s (\"%.40s\" is no %s)", request->name, request->value->text,
                   request->kind == GD_FLOAT_VALUE ? "number" : "integer");
    } else if (from->rank > GD_MAX_RANK) {
        put_format(w, "%.100s (%d dimensions, %s here)", request->name, from->rank,
                   gd_describe(request->tensor, here, sizeof here));
    } else {
        put_format(w, "%.100s (%s%s, %s here)", request->name,
                   from->dtype ? gd_dtype_name(from->dtype) : from->dtype_name,
                   gd_shape_text(from->rank, from->dims, there, sizeof there),
                   gd_describe(request->tensor, here, sizeof here));
    }
}

static int64_t list_unfit(const gd_loading *in, writer *w, gd_request_fit fit, const char *what) {
    int64_t n = 0;
    for (int i = 0; i < in->n_requests; i++) {
        const gd_request *request = &in->requests[i];
        if (request->fit != fit || is_satisfied(in, request)) continue;
        put_list_start(w, what, n);
        if (n++ < NAMED) put_unfit(w, request);
    }
    put_list_rest(w, n);
    return n;
}

/* --- a hint ----------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end) {
    const size_t a = strlen(name), b = strlen(end);
    return b > 0 && a > b && name[a - b - 1] == '.' && strcmp(name + a - b, end) == 0;
}

/* The length of the name of the only part, with a dot: 0 if it has none, -1 if there are several. */
static long only_part(const gd_loading *in) {
    if (in->parts.count != 1) return -1;
    const char *name = in->parts.at[0].name;
    return name && *name ? (long)strlen(name) + 1 : 0;
}

/* Whether all tensors of the part are in the source with these bytes in place of the part's name. */
static bool all_fit(const gd_loading *in, size_t part, const char *prefix, size_t length) {
    char name[1024];
    for (int i = 0; i < in->n_requests; i++) {
        const gd_request *r = &in->requests[i];
        if (!r->tensor) continue;
        const size_t n = strlen(r->name);
        if (n < part || length + n - part + 1 > sizeof name) return false;
        memcpy(name, prefix, length);
        memcpy(name + length, r->name + part, n - part + 1);
        const int at = gd_entry_number(&in->tensors, name);
        if (at < 0) return false;
        const gd_source_tensor *t = &in->source->tensors[at];
        if (t->rank != r->tensor->rank ||
            memcmp(t->dims, r->tensor->dims, sizeof *t->dims * r->tensor->rank) != 0)
            return false;
    }
    return true;
}

/* If exactly one prefix in the source fits all tensors, says so. */
static bool put_prefix(const gd_loading *in, const gd_request *first, writer *w) {
    const gd_source *s = in->source;
    const long part = only_part(in);
    const char *found = NULL;
    size_t found_length = 0;
    if (part < 0 || strlen(first->name) <= (size_t)part) return false;
    const char *local = first->name + part;
    const size_t n = strlen(local);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const char *name = s->tensors[i].name;
        const size_t length = strlen(name);
        if (length < n || strcmp(name + length - n, local) != 0) continue;
        const size_t prefix = length - n;
        if ((prefix > 0 && name[prefix - 1] != '.') || !all_fit(in, (size_t)part, name, prefix))
            continue;
        if (found) return false; /* more than one */
        found = name;
        found_length = prefix;
    }
    if (!found) return false;
    if (part == 0) put_format(w, "; all fit with .prefix = \"%.*s\"", (int)found_length, found);
    else
        put_format(w, "; all fit as gd_part(\"%.*s\", ...)", (int)found_length - (found_length > 0),
                   found);
    return true;
}

/* If no tensor was found, often one side has a prefix that the other lacks. */
static void put_hint(const gd_loading *in, writer *w) {
    const gd_source *s = in->source;
    const gd_request *first = NULL;
    for (int i = 0; i < in->n_requests; i++) {
        if (in->requests[i].tensor && in->requests[i].fit != GD_MISSING) return;
        if (in->requests[i].tensor && !first) first = &in->requests[i];
    }
    if (first && put_prefix(in, first, w)) return;
    for (size_t i = 0; first && i < s->n_tensors; i++) {
        const char *name = s->tensors[i].name;
        if (!ends_with(name, first->name) && !ends_with(first->name, name)) continue;
        put_format(
            w, "; no name fits: it has %.100s instead of %.100s (see gd_part, .prefix and .rename)",
            name, first->name);
        return;
    }
}

/* "FILE does not fit parts 'net', 'adam'" */
static void put_head(const gd_loading *in, writer *w) {
    put_format(w, "%.300s does not fit part%s ", in->source->title,
               in->parts.count == 1 ? "" : "s");
    for (int64_t i = 0; i < in->parts.count && i < NAMED; i++)
        put_format(w, "%s'%.40s'", i ? ", " : "", in->parts.at[i].name ? in->parts.at[i].name : "");
    if (in->parts.count > NAMED) put_format(w, ", ...");
}

void gd_loading_report(gd_loading *in, gd_load_report *r) {
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
    for (int i = 0; i < in->n_requests; i++)
        r->loaded += in->requests[i].fit == GD_FITS && !in->requests[i].again;
}
