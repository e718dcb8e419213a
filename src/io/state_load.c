/* state_load.c - loads objects from safetensors files; see gradus/state.h.
 *
 * Order: the list of tensors and values in the files, under their final names; loading into
 * objects; reading into a gd_state.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/state_path.h"
#include "io/state_io.h"

/* --- the list of tensors and values ----------------------------------------------------------- */

/* The open files of a load. The options prefix and rename are applied to the names. */
typedef struct load_source {
    const char *path;
    const gd_load_state_options *options;
    gd_state_files files;
    gd_source source;
    char **names; /* the results of rename, owned */
    size_t n_names;
} load_source;

/* Applies the options prefix and rename to a name. *name is NULL if it is skipped. */
static gd_status final_name(load_source *o, const char *from, const char **name) {
    const char *prefix = o->options && o->options->prefix ? o->options->prefix : "";
    const size_t length = strlen(prefix);
    *name = NULL;
    if (strncmp(from, prefix, length) != 0) return GD_OK;
    from += length;
    if (!o->options || !o->options->rename) {
        *name = from;
        return GD_OK;
    }
    const char *renamed = o->options->rename(from, o->options->user);
    if (!renamed) return GD_OK;
    const size_t bytes = strlen(renamed) + 1;
    char *copy = gd_malloc(bytes);
    if (!copy) return gd_no_memory(o->path, "to save or load a state");
    o->names[o->n_names++] = copy;
    *name = memcpy(copy, renamed, bytes);
    return GD_OK;
}

static gd_status add_tensor(load_source *o, const gd_state_file *file,
                            const gd_safetensors_entry *e) {
    const char *name;
    GD_TRY(final_name(o, e->name, &name));
    if (!name) return GD_OK;
    o->source.tensors[o->source.n_tensors++] =
        (gd_source_tensor){.name = name,
                           .dtype_name = e->dtype,
                           .dtype = gd_safetensors_dtype_from(e->dtype),
                           .rank = e->rank,
                           .dims = e->dims,
                           .file = file->reader,
                           .begin = e->begin};
    return GD_OK;
}

static gd_status add_value(load_source *o, const char *key, const char *text) {
    const char *name;
    const bool renames = o->options && (o->options->prefix || o->options->rename);
    if (strcmp(key, GD_STATE_FORMAT) == 0 || strcmp(key, GD_CHECKSUM_KEY) == 0) return GD_OK;
    if (strcmp(key, GD_STATE_PARTS) == 0) {
        if (!renames) o->source.parts = text;
        return GD_OK;
    }
    GD_TRY(final_name(o, key, &name));
    if (name)
        o->source.values[o->source.n_values++] = (gd_source_value){.name = name, .text = text};
    return GD_OK;
}

/* The values are in the header of the file, or in the index of shards. */
static gd_status add_values(load_source *o) {
    const gd_safetensors *h = o->files.count ? &o->files.at[0].header : NULL;
    if (!o->files.index) {
        for (size_t i = 0; i < h->n_values; i++)
            GD_TRY(add_value(o, h->values[i].key, h->values[i].text));
        return GD_OK;
    }
    const gd_json *metadata = gd_json_get(gd_json_root(o->files.index), "metadata");
    for (size_t i = 0; metadata && metadata->type == GD_JSON_OBJECT && i < metadata->count; i++) {
        const gd_json *value = gd_json_at(metadata, i);
        if (value->type == GD_JSON_STRING) GD_TRY(add_value(o, value->key, value->text));
    }
    return GD_OK;
}

/* Whether the index maps a tensor to this shard, or does not list it. */
static bool is_in_shard(const load_source *o, const gd_state_file *file, const char *name) {
    if (!o->files.index) return true;
    const gd_json *map = gd_json_get(gd_json_root(o->files.index), "weight_map"),
                  *where = gd_json_get(map, name);
    return !where || strcmp(where->text, file->name) == 0;
}

static gd_status read_source(const void *file, uint64_t begin, void *to, size_t bytes) {
    return gd_file_reader_read_at(file, begin, to, bytes);
}

static gd_status list_source(load_source *o) {
    size_t tensors = 0, values = 0;
    const gd_json *metadata =
        o->files.index ? gd_json_get(gd_json_root(o->files.index), "metadata") : NULL;
    for (size_t i = 0; i < o->files.count; i++) {
        tensors += o->files.at[i].header.count;
        values += o->files.at[i].header.n_values;
    }
    if (metadata && metadata->type == GD_JSON_OBJECT) values += metadata->count;
    o->source.title = o->path;
    o->source.read = read_source;
    o->source.tensors = gd_calloc(tensors + 1, sizeof *o->source.tensors);
    o->source.values = gd_calloc(values + 1, sizeof *o->source.values);
    o->names = gd_calloc(tensors + values + 1, sizeof *o->names);
    if (!o->source.tensors || !o->source.values || !o->names)
        return gd_no_memory(o->path, "to save or load a state");
    for (size_t i = 0; i < o->files.count; i++) {
        const gd_state_file *file = &o->files.at[i];
        for (size_t k = 0; k < file->header.count; k++)
            if (is_in_shard(o, file, file->header.entries[k].name))
                GD_TRY(add_tensor(o, file, &file->header.entries[k]));
    }
    return add_values(o);
}

static gd_status open_source(load_source *o) {
    GD_TRY(gd_state_files_open(&o->files, o->path));
    return list_source(o);
}

static void close_source(load_source *o) {
    for (size_t i = 0; i < o->n_names; i++) gd_free(o->names[i]);
    gd_free(o->names);
    gd_free(o->source.tensors);
    gd_free(o->source.values);
    gd_state_files_close(&o->files);
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
    if (status == GD_OK) status = gd_loading_load(&o.source, parts, options->partial);
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
    if (status == GD_OK && !o.files.at[0].header.checksum_at)
        status = gd_fail(GD_E_FORMAT, "%s: has no checksum", path);
    *damaged = status == GD_E_FORMAT || status == GD_E_IO;
    if (status == GD_OK) status = load_parts(&o.source, parts, optional);
    close_source(&o);
    return status;
}

/* --- reading into a state --------------------------------------------------------------------- */

/* Adds empty tensors, which the load fills. */
static gd_status add_empty_tensors(const gd_source *source, gd_state *state) {
    for (size_t i = 0; i < source->n_tensors; i++) {
        const gd_source_tensor *from = &source->tensors[i];
        if (from->dtype == GD_DTYPE_NONE)
            return gd_fail(GD_E_UNSUPPORTED, "%s: '%s' has the dtype %s, which is not supported",
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
    GD_TRY(gd_attempt_end(&attempt, add_empty_tensors(&o->source, *state)));
    const gd_state_part part = {"", *state};
    return gd_loading_load(&o->source, (gd_state_parts){&part, 1}, NULL);
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
