/* npz.c - loads and saves .npz files, archives of .npy files; see gradus/npy.h.
 *
 * Order: saving; opening; loading.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/name_map.h"
#include "io/numpy.h"

static const char suffix[] = ".npy";
enum { SUFFIX = sizeof suffix - 1 };

static gd_status write_entry(void *target, const void *data, size_t bytes) {
    return gd_zip_writer_write(target, data, bytes);
}

static gd_status save_entry(gd_zip_writer *zip, const char *name, const gd_tensor *t) {
    size_t length = strlen(name);
    char *entry = gd_malloc(length + sizeof suffix);
    if (!entry) return gd_no_memory(NULL, "for the name of an array");
    memcpy(entry, name, length);
    memcpy(entry + length, suffix, sizeof suffix);
    gd_status status = gd_zip_writer_entry(zip, entry);
    gd_free(entry);
    return status == GD_OK ? gd_npy_save_to(t, write_entry, zip) : status;
}

static gd_status check_entries(const char *path, const char *const *names, gd_tensors tensors,
                               gd_name_map *seen) {
    for (int64_t i = 0; i < tensors.count; i++) {
        if (!names[i] || !*names[i])
            return gd_fail(GD_E_ARGUMENT, "%s: tensor %" PRId64 " has no name", path, i);
        if (gd_name_map_find(seen, names[i]))
            return gd_fail(GD_E_ARGUMENT, "%s: two tensors are named '%s'", path, names[i]);
        GD_TRY(gd_npy_check_savable(tensors.at[i], names[i]));
        if (!gd_name_map_add(seen, names[i], tensors.at[i]))
            return gd_no_memory(path, "for the names of its arrays");
    }
    return GD_OK;
}

static gd_status save_npz(const char *path, const char *const *names, gd_tensors tensors) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_save_npz: path is NULL");
    if (tensors.count < 0 || (tensors.count > 0 && (!names || !tensors.at)))
        return gd_fail(GD_E_ARGUMENT,
                       "%s: the names or the tensors are NULL, or their number is negative", path);
    gd_name_map seen = {0};
    const gd_status checked = check_entries(path, names, tensors, &seen);
    gd_name_map_free(&seen);
    GD_TRY(checked);
    gd_zip_writer *zip;
    GD_TRY(gd_zip_writer_begin(&zip, path));
    gd_status status = GD_OK;
    for (int64_t i = 0; i < tensors.count && status == GD_OK; i++)
        status = save_entry(zip, names[i], tensors.at[i]);
    if (status == GD_OK) return gd_zip_writer_commit(zip);
    gd_zip_writer_cancel(zip);
    return status;
}

gd_status gd_save_npz_at(const char *site, const char *path, const char *const *names,
                         gd_tensors tensors) {
    if (gd_failed()) return gd_error_status();
    return gd_report(site, save_npz(path, names, tensors));
}

/* --- opening ---------------------------------------------------------------------------------- */

struct gd_npz {
    gd_object object;
    gd_file_reader *file;
    gd_zip_reader *zip;
    int64_t count;
    const gd_zip_entry **entries; /* those whose name ends in .npy */
    char **names;                 /* without .npy */
    gd_name_map by_name;          /* of two arrays of one name, the last, as in NumPy */
};

static void npz_destroy(gd_object *object) {
    gd_npz *npz = (gd_npz *)object;
    for (int64_t i = 0; i < npz->count; i++) gd_free(npz->names[i]);
    gd_name_map_free(&npz->by_name);
    gd_free(npz->names);
    gd_free(npz->entries);
    gd_zip_reader_close(npz->zip);
    gd_file_reader_close(npz->file);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class npz_class = {.name = ".npz file", .destroy = npz_destroy};

static gd_status list_entries(gd_npz *npz) {
    size_t all = gd_zip_reader_count(npz->zip);
    npz->entries = gd_calloc(all + 1, sizeof *npz->entries);
    npz->names = gd_calloc(all + 1, sizeof *npz->names);
    if (!npz->entries || !npz->names) return gd_fail(GD_E_MEMORY, "no memory for %zu entries", all);
    for (size_t i = 0; i < all; i++) {
        const gd_zip_entry *entry = gd_zip_reader_at(npz->zip, i);
        size_t length = strlen(entry->name);
        if (length < SUFFIX || strcmp(entry->name + length - SUFFIX, suffix) != 0) continue;
        char *name = gd_malloc(length - SUFFIX + 1);
        if (!name) return gd_fail(GD_E_MEMORY, "no memory for the names of %zu entries", all);
        memcpy(name, entry->name, length - SUFFIX);
        name[length - SUFFIX] = 0;
        npz->entries[npz->count] = entry;
        npz->names[npz->count] = name;
        if (!gd_set_entry_number(&npz->by_name, name, (int)npz->count++))
            return gd_fail(GD_E_MEMORY, "no memory for the names of %zu entries", all);
    }
    return GD_OK;
}

/* The caller owns the result; NULL: the failure is in *status. */
static gd_npz *open_npz(const char *path, gd_status *status) {
    gd_npz *npz = gd_calloc(1, sizeof *npz);
    if (!npz) {
        *status = gd_fail(GD_E_MEMORY, "%s: no memory to open it", path);
        return NULL;
    }
    gd_object_init(&npz->object, &npz_class);
    gd_object_count(1);
    *status = gd_file_reader_open(&npz->file, path);
    if (*status == GD_OK) *status = gd_zip_reader_open(&npz->zip, npz->file);
    if (*status == GD_OK) *status = list_entries(npz);
    if (*status == GD_OK) return npz;
    gd_object_release(&npz->object);
    return NULL;
}

gd_npz *gd_npz_open_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    gd_status status =
        path ? gd_scope_reserve(1) : gd_fail(GD_E_ARGUMENT, "gd_npz_open: path is NULL");
    gd_npz *npz = status == GD_OK ? open_npz(path, &status) : NULL;
    if (npz) gd_scope_adopt(&npz->object);
    else gd_error_record(status);
    return npz;
}

int64_t gd_npz_count(const gd_npz *npz) {
    GD_LIVE(npz);
    return npz ? npz->count : 0;
}

const char *gd_npz_name(const gd_npz *npz, int64_t i) {
    GD_LIVE(npz);
    return npz && i >= 0 && i < npz->count ? npz->names[i] : NULL;
}

/* --- loading ---------------------------------------------------------------------------------- */

bool gd_npz_has(const gd_npz *npz, const char *name) {
    GD_LIVE(npz);
    return npz && name && gd_entry_number(&npz->by_name, name) >= 0;
}

static gd_tensor *load_entry(const gd_npz *npz, int64_t i) {
    gd_npy_source s = {.bytes = npz->entries[i]->bytes};
    gd_status status = gd_zip_stream_open(&s.entry, npz->zip, npz->entries[i]);
    if (status != GD_OK) return gd_tensor_fail(status);
    s.name = gd_zip_stream_name(s.entry);
    gd_tensor *t = gd_npy_load_source(&s);
    gd_zip_stream_close(s.entry);
    return t;
}

/* "weight, bias" for a message; a long list is truncated. */
static const char *name_list(const gd_npz *npz, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int64_t i = 0; i < npz->count && used + 1 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", npz->names[i]);
    if (used >= size) memcpy(text + size - 4, "...", 4);
    return text;
}

gd_tensor *gd_npz_load_at(const char *site, const gd_npz *npz, const char *name) {
    GD_LIVE_AT(site, npz);
    GD_CALLED_FROM(site);
    char text[400];
    if (!npz) /* the failure to open it is recorded already */
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_npz_load: the npz is NULL"));
    int64_t i = name ? gd_entry_number(&npz->by_name, name) : -1;
    if (i < 0)
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "%s: has no array '%s'; it has %s",
                                      gd_file_reader_path(npz->file), name ? name : "(NULL)",
                                      npz->count ? name_list(npz, text, sizeof text) : "none"));
    return load_entry(npz, i);
}

gd_tensors gd_npz_load_all_at(const char *site, const gd_npz *npz) {
    GD_LIVE_AT(site, npz);
    GD_CALLED_FROM(site);
    gd_tensor **tensors = npz ? gd_list_new(npz->count) : NULL;
    if (!tensors) {
        gd_error_record(npz ? GD_E_MEMORY
                            : gd_fail(GD_E_ARGUMENT, "gd_npz_load_all: the npz is NULL"));
        return gd_list_of_errors(npz ? npz->count : 0);
    }
    for (int64_t i = 0; i < npz->count; i++) {
        tensors[i] = load_entry(npz, i);
        if (tensors[i]->kind != GD_FAILED) continue;
        /* without a scope nobody else would free the arrays before this one */
        if (gd_this_thread.depth == 0) gd_release_list((gd_tensors){tensors, i});
        return gd_list_of_errors(npz->count);
    }
    return (gd_tensors){tensors, npz->count};
}

gd_tensor *gd_load_npz_at(const char *site, const char *path, const char *name) {
    GD_CALLED_FROM(site);
    gd_status status;
    if (!path) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_load_npz: path is NULL"));
    gd_npz *npz = open_npz(path, &status);
    if (!npz) return gd_tensor_fail(status);
    gd_tensor *t = gd_npz_load(npz, name);
    gd_release(npz);
    return t;
}
