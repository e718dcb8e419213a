/* state_save.c - saves objects to a safetensors file; see gradus/state.h.
 *
 * Order: dtypes; one file; the contents of a save.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "io/state_io.h"

static const struct {
    gd_dtype dtype;
    const char *name;
} dtype_names[] = {{GD_BOOL, "BOOL"}, {GD_U8, "U8"},   {GD_I8, "I8"},
                   {GD_I32, "I32"},   {GD_I64, "I64"}, {GD_F16, "F16"},
                   {GD_BF16, "BF16"}, {GD_F32, "F32"}, {GD_F64, "F64"}};
enum { DTYPES = sizeof dtype_names / sizeof *dtype_names };

const char *gd_safetensors_dtype(gd_dtype dtype) {
    for (int i = 0; i < DTYPES; i++)
        if (dtype_names[i].dtype == dtype) return dtype_names[i].name;
    return NULL;
}

gd_dtype gd_safetensors_dtype_from(const char *name) {
    for (int i = 0; i < DTYPES; i++)
        if (strcmp(dtype_names[i].name, name) == 0) return dtype_names[i].dtype;
    return GD_DTYPE_NONE;
}

bool gd_is_state_index(const char *path) {
    static const char end[] = ".index.json";
    const size_t length = strlen(path);
    return length >= sizeof end && strcmp(path + length - (sizeof end - 1), end) == 0;
}

/* --- one file --------------------------------------------------------------------------------- */

uint64_t gd_state_bytes(const gd_tensor *t) {
    return (uint64_t)gd_numel(t->rank, t->dims) * gd_dtype_bytes(t->dtype);
}

/* A file that is being written, and the hash of its bytes; hash NULL: it has no checksum. */
typedef struct target {
    gd_file_writer *file;
    gd_xxh64 *hash;
} target;

static gd_status write_bytes(const target *to, const void *data, size_t bytes) {
    if (to->hash) gd_xxh64_add(to->hash, data, bytes);
    return gd_file_writer_write(to->file, data, bytes);
}

/* Writes a contiguous tensor in host memory directly, and a copy of any other. */
static gd_status write_tensor(const target *to, const gd_state_tensor *e) {
    const gd_tensor *t = e->tensor;
    const size_t bytes = (size_t)gd_state_bytes(t);
    if (bytes == 0) return GD_OK;
    if (t->device->api->host_reads && gd_is_row_major(t->rank, t->dims, t->strides))
        return write_bytes(to, gd_view_of(t).data, bytes);
    void *copy = gd_malloc(bytes);
    if (!copy)
        return gd_fail(GD_E_MEMORY, "no memory to gather the %zu bytes of '%s'", bytes, e->name);
    gd_status status = gd_copy_out(t, copy, bytes);
    if (status == GD_OK) status = write_bytes(to, copy, bytes);
    gd_free(copy);
    return status;
}

/* Orders tensors by element size, largest first. The format has no padding, so this order aligns
 * all of them. */
static size_t order_by_size(const gd_state_tensor **tensors, size_t count,
                            const gd_state_tensor **ordered) {
    size_t n = 0;
    for (size_t size = 8; size > 0; size /= 2)
        for (size_t i = 0; i < count; i++)
            if (gd_dtype_bytes(tensors[i]->tensor->dtype) == size) ordered[n++] = tensors[i];
    return n;
}

/* Writes the header. *digits_at is the position of the checksum in the file; 0: there is none. */
static gd_status write_header(target *to, const char *header, size_t bytes, uint64_t *digits_at) {
    const size_t json = 8; /* the length comes first */
    size_t at;
    const bool has_checksum = gd_checksum_find(header + json, bytes - json, &at);
    *digits_at = has_checksum ? gd_file_writer_position(to->file) + json + at : 0;
    if (!has_checksum) to->hash = NULL;
    return write_bytes(to, header, bytes);
}

/* Writes the header, the tensors in this order, and the checksum. */
static gd_status write_ordered(gd_file_writer *file, const char *path,
                               const gd_state_tensor **ordered, size_t count,
                               const gd_safetensors_value *values, size_t n_values,
                               gd_safetensors_entry *entries) {
    char *header;
    size_t bytes;
    for (size_t i = 0; i < count; i++) {
        const gd_tensor *t = ordered[i]->tensor;
        entries[i] = (gd_safetensors_entry){.name = ordered[i]->name,
                                            .dtype = gd_safetensors_dtype((gd_dtype)t->dtype),
                                            .rank = t->rank,
                                            .dims = t->dims,
                                            .bytes = gd_state_bytes(t)};
    }
    GD_TRY(gd_safetensors_make_header(path, entries, count, values, n_values, &header, &bytes));
    gd_xxh64 hash = gd_xxh64_begin();
    target to = {file, &hash};
    uint64_t digits_at;
    gd_status status = write_header(&to, header, bytes, &digits_at);
    gd_free(header);
    for (size_t i = 0; i < count && status == GD_OK; i++) status = write_tensor(&to, ordered[i]);
    if (status != GD_OK || !digits_at) return status;
    char digits[GD_CHECKSUM_DIGITS];
    gd_checksum_print(gd_xxh64_value(&hash), digits);
    return gd_file_writer_write_at(file, digits_at, digits, sizeof digits);
}

gd_status gd_state_write(gd_file_writer *file, const char *path, const gd_state_tensor **tensors,
                         size_t count, const gd_safetensors_value *values, size_t n_values) {
    const gd_state_tensor **ordered = gd_malloc((count + 1) * sizeof *ordered);
    gd_safetensors_entry *entries = gd_malloc((count + 1) * sizeof *entries);
    gd_status status = ordered && entries ? GD_OK : gd_no_memory(path, "to save or load a state");
    if (status == GD_OK) {
        order_by_size(tensors, count, ordered);
        status = write_ordered(file, path, ordered, count, values, n_values, entries);
    }
    gd_free(ordered);
    gd_free(entries);
    return status;
}

static gd_status save_file(const gd_state_contents *c) {
    gd_file_writer *file;
    GD_TRY(gd_file_writer_begin(&file, c->path));
    const gd_status status =
        gd_state_write(file, c->path, c->tensors, c->n_tensors, c->values, c->n_values);
    if (status == GD_OK) return gd_file_writer_commit(file);
    gd_file_writer_cancel(file);
    return status;
}

/* --- contents --------------------------------------------------------------------------------- */

/* The names of the parts, one a line. */
static char *list_part_names(gd_state_parts parts) {
    size_t bytes = 1;
    for (int64_t i = 0; i < parts.count; i++)
        bytes += (parts.at[i].name ? strlen(parts.at[i].name) : 0) + 1;
    char *lines = gd_malloc(bytes), *at = lines;
    for (int64_t i = 0; i < parts.count && lines; i++) {
        const char *name = parts.at[i].name ? parts.at[i].name : "";
        if (i) *at++ = '\n';
        memcpy(at, name, strlen(name));
        at += strlen(name);
    }
    if (lines) *at = 0;
    return lines;
}

static gd_status list_contents(gd_state_contents *c, const gd_state *s, const char *lines) {
    c->tensors = gd_malloc(((size_t)s->n_tensors + 1) * sizeof *c->tensors);
    c->values = gd_malloc(((size_t)s->n_values + 3) * sizeof *c->values);
    if (!c->tensors || !c->values || !lines)
        return gd_no_memory(c->path, "to save or load a state");
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].tied < 0) c->tensors[c->n_tensors++] = &s->tensors[i];
    c->values[c->n_values++] = (gd_safetensors_value){GD_STATE_FORMAT, "pt"};
    if (c->checksum)
        c->values[c->n_values++] = (gd_safetensors_value){GD_CHECKSUM_KEY, GD_CHECKSUM_BLANK};
    c->values[c->n_values++] = (gd_safetensors_value){GD_STATE_PARTS, lines};
    for (int i = 0; i < s->n_values; i++) {
        const char *name = s->values[i].name;
        if (strcmp(name, GD_STATE_FORMAT) == 0 || strcmp(name, GD_STATE_PARTS) == 0 ||
            strcmp(name, GD_CHECKSUM_KEY) == 0 || strcmp(name, "total_size") == 0)
            return gd_fail(GD_E_ARGUMENT,
                           "%s: a value cannot have the name '%s'; give its part a name", c->path,
                           name);
        c->values[c->n_values++] = (gd_safetensors_value){name, s->values[i].text};
    }
    return GD_OK;
}

static gd_status save_state(const char *path, gd_state_parts parts,
                            const gd_save_state_options *o) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "the path is NULL");
    const int64_t shard_bytes = o ? o->shard_bytes : 0;
    const bool index = gd_is_state_index(path);
    if (shard_bytes < 0)
        return gd_fail(GD_E_ARGUMENT, ".shard_bytes is %lld; it must not be negative",
                       (long long)shard_bytes);
    if (shard_bytes > 0 && !index)
        return gd_fail(
            GD_E_ARGUMENT,
            "%s: shards need an index: with .shard_bytes the path ends in \".index.json\"", path);
    GD_TRY(gd_check_traced_access(NULL, "gd_save_state", false));
    gd_state *state;
    GD_TRY(gd_state_collect(parts, &state));
    char *lines = list_part_names(parts);
    gd_state_contents c = {.path = path, .checksum = o && o->checksum};
    gd_status status = list_contents(&c, state, lines);
    if (status == GD_OK)
        status = index ? gd_state_save_shards(&c, (uint64_t)shard_bytes) : save_file(&c);
    gd_free(c.tensors);
    gd_free(c.values);
    gd_free(lines);
    gd_state_end_save(state);
    return status;
}

gd_status gd_save_state_at(const char *site, const char *path, gd_state_parts parts,
                           const gd_save_state_options *o) {
    o = o ? o : GD_SAVE_STATE_OPTIONS_();
    if (gd_failed()) return gd_error_status(); /* results after a failure are not saved */
    GD_CALLED_FROM(site);
    gd_scope *scope = gd_scope_open(); /* for tensors that objects create for the save */
    const gd_status status = save_state(path, parts, o);
    gd_scope_close(&scope);
    if (status != GD_OK) gd_error_prefix("gd_save_state: ");
    return gd_report(site, status);
}
