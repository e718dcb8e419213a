/* state_load.c - loads objects from files of any format; see gradus/state.h.
 *
 * Order: the list of tensors and values in the files, under their final names; loading into
 * objects; reading into a gd_state.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/state_path.h"
#include "io/renames.h"
#include "io/state_format.h"
#include "io/state_io.h"

/* --- the list of tensors and values ----------------------------------------------------------- */

/* The open file of a load. The options prefix, names and rename are applied to its names. */
typedef struct load_source {
    const char *path;
    const gd_load_state_options *options;
    gd_state_list list;
    gd_renames *renames; /* of the option names */
    char **names;        /* the results of names and rename, owned */
    size_t n_names;
} load_source;

/* The name of the objects for a name of the file without the prefix; NULL: it is skipped. */
static gd_status rename_one(load_source *o, const char *from, const char **name) {
    char *own;
    if (o->renames) {
        GD_TRY(gd_renames_apply(o->renames, from, &own));
    } else {
        const char *renamed = o->options->rename(from, o->options->user);
        if (!renamed) return GD_OK;
        const size_t bytes = strlen(renamed) + 1;
        own = gd_malloc(bytes);
        if (!own) return gd_no_memory(o->path, "to save or load a state");
        memcpy(own, renamed, bytes);
    }
    if (own) o->names[o->n_names++] = own;
    *name = own;
    return GD_OK;
}

/* Applies the options to a name. *name is NULL if it is skipped. */
static gd_status final_name(load_source *o, const char *from, const char **name) {
    const char *prefix = o->options && o->options->prefix ? o->options->prefix : "";
    const size_t length = strlen(prefix);
    *name = NULL;
    if (strncmp(from, prefix, length) != 0) return GD_OK;
    from += length;
    if (o->renames || (o->options && o->options->rename)) return rename_one(o, from, name);
    *name = from;
    return GD_OK;
}

/* Leaves only the tensors and values that are loaded, under their final names. */
static gd_status apply_names(load_source *o) {
    gd_source *s = &o->list.source;
    const char *name;
    size_t kept = 0;
    o->names = gd_calloc(s->n_tensors + s->n_values + 1, sizeof *o->names);
    if (!o->names) return gd_no_memory(o->path, "to save or load a state");
    for (size_t i = 0; i < s->n_tensors; i++) {
        GD_TRY(final_name(o, s->tensors[i].name, &name));
        if (!name) continue;
        s->tensors[kept] = s->tensors[i];
        s->tensors[kept++].name = name;
    }
    s->n_tensors = kept;
    kept = 0;
    for (size_t i = 0; i < s->n_values; i++) {
        GD_TRY(final_name(o, s->values[i].name, &name));
        if (!name) continue;
        s->values[kept] = s->values[i];
        s->values[kept++].name = name;
    }
    s->n_values = kept;
    if (o->options && (o->options->prefix || o->options->names || o->options->rename))
        s->parts = NULL;
    return GD_OK;
}

static gd_status open_source(load_source *o) {
    if (o->options && o->options->names) {
        if (o->options->rename)
            return gd_fail(GD_E_ARGUMENT, "both .names and .rename are given; give one of them");
        GD_TRY(gd_renames_parse(&o->renames, o->options->names));
    }
    GD_TRY(gd_state_list_open(&o->list, o->path));
    return apply_names(o);
}

static void close_source(load_source *o) {
    for (size_t i = 0; i < o->n_names; i++) gd_free(o->names[i]);
    gd_free(o->names);
    gd_renames_free(o->renames);
    gd_state_list_close(&o->list);
}

/* --- loading into objects --------------------------------------------------------------------- */

gd_status gd_load_state_at(const char *site, const char *path, gd_state_parts parts,
                           const gd_load_state_options *options) {
    options = options ? options : GD_LOAD_STATE_OPTIONS_();
    if (options->partial) *options->partial = (gd_load_report){0};
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    load_source o = {.path = path, .options = options};
    gd_status status = path ? gd_check_traced_access(NULL, "gd_load_state", true)
                            : gd_fail(GD_E_ARGUMENT, "the path is NULL");
    if (status == GD_OK) status = gd_check_parts(parts);
    if (status == GD_OK) status = open_source(&o);
    if (status == GD_OK) status = gd_loading_load(&o.list.source, parts, options->partial);
    close_source(&o);
    if (status != GD_OK) gd_error_prefix("gd_load_state: ");
    return gd_report(site, status);
}

/* Whether a list, one name a line, has this name. */
static bool has_line(const char *lines, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = lines; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strncmp(at, name, length) == 0 && (at[length] == '\n' || at[length] == '\0'))
            return true;
    return false;
}

/* Loads the required parts, and the optional ones that the file has. */
static gd_status load_parts(const gd_source *source, gd_state_parts parts, const char *optional) {
    gd_state_part *kept = gd_calloc((size_t)parts.count + 1, sizeof *kept);
    int64_t n = 0;
    if (!kept) return gd_no_memory(NULL, "to load a state");
    for (int64_t i = 0; i < parts.count; i++) {
        const char *name = parts.at[i].name;
        if (!optional || strncmp(name, optional, strlen(optional)) != 0 ||
            has_line(source->parts, name))
            kept[n++] = parts.at[i];
        else
            gd_notice(GD_LOG_INFO, "%s has no '%s'; it keeps its initial state", source->title,
                      name);
    }
    const gd_status status = gd_loading_load(source, (gd_state_parts){kept, n}, NULL);
    gd_free(kept);
    return status;
}

gd_status gd_state_load_checked(const char *path, gd_state_parts parts, const char *optional,
                                bool *damaged) {
    load_source o = {.path = path};
    gd_status status = open_source(&o);
    if (status == GD_OK && !o.list.has_checksum)
        status = gd_fail(GD_E_FORMAT, "%s: has no checksum", path);
    *damaged = status == GD_E_FORMAT || status == GD_E_IO;
    if (status == GD_OK) status = load_parts(&o.list.source, parts, optional);
    close_source(&o);
    return status;
}

/* --- reading into a state --------------------------------------------------------------------- */

/* Strides of 0 and views of one storage make tensors of any size from a small file. */
static gd_status check_total(const gd_source *source) {
    uint64_t total = 0;
    for (size_t i = 0; i < source->n_tensors && source->most_bytes; i++) {
        const gd_source_tensor *t = &source->tensors[i];
        if (t->dtype == GD_DTYPE_NONE || t->rank > GD_MAX_RANK) continue;
        uint64_t bytes = gd_dtype_bytes(t->dtype);
        for (int k = 0; k < t->rank; k++)
            if (!gd_mul_u64(bytes, (uint64_t)t->dims[k], &bytes)) bytes = UINT64_MAX;
        if (!gd_add_u64(total, bytes, &total) || total > source->most_bytes)
            return gd_fail(GD_E_UNSUPPORTED,
                           "%s: its tensors up to '%s' are views that would take far more memory "
                           "than the file has; gd_load_state loads those of an object",
                           source->title, t->name);
    }
    return GD_OK;
}

/* Adds empty tensors, which the load fills. */
static gd_status add_empty_tensors(const gd_source *source, gd_state *state) {
    GD_TRY(check_total(source));
    for (size_t i = 0; i < source->n_tensors; i++) {
        const gd_source_tensor *from = &source->tensors[i];
        if (from->dtype == GD_DTYPE_NONE)
            return gd_fail(GD_E_UNSUPPORTED,
                           strncmp(from->dtype_name, "a ", 2) == 0
                               ? "%s: '%s' is %s, which is not supported"
                               : "%s: '%s' has the dtype %s, which is not supported",
                           source->title, from->name, from->dtype_name);
        if (from->rank > GD_MAX_RANK)
            return gd_fail(GD_E_UNSUPPORTED, "%s: '%s' has %d dimensions; at most %d are supported",
                           source->title, from->name, from->rank, GD_MAX_RANK);
        gd_tensor *t = gd_empty(gd_shape_of(from->rank, from->dims), from->dtype);
        if (t->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_state_put_tensor(state, from->name, t));
    }
    for (size_t i = 0; i < source->n_values; i++)
        GD_TRY(gd_state_put_text(state, source->values[i].name, source->values[i].text));
    return GD_OK;
}

static gd_status read_state(load_source *o, gd_state **state) {
    GD_TRY(open_source(o));
    GD_TRY(gd_state_new(state));
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    GD_TRY(gd_attempt_end(&attempt, add_empty_tensors(&o->list.source, *state)));
    const gd_state_part part = {"", *state};
    return gd_loading_load(&o->list.source, (gd_state_parts){&part, 1}, NULL);
}

gd_state *gd_read_state_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    load_source o = {.path = path};
    gd_state *state = NULL;
    gd_status status = path ? gd_scope_reserve(1) : gd_fail(GD_E_ARGUMENT, "the path is NULL");
    if (status == GD_OK) status = gd_check_traced_access(NULL, "gd_read_state", false);
    gd_scope *scope = gd_scope_open();
    if (status == GD_OK) status = read_state(&o, &state);
    gd_scope_close(&scope);
    close_source(&o);
    if (status == GD_OK) status = gd_scope_reserve(1);
    if (status == GD_OK) {
        gd_scope_adopt(&state->object);
        return state;
    }
    if (state) gd_object_release(&state->object);
    gd_error_prefix("gd_read_state: ");
    gd_report(site, status);
    return NULL;
}
