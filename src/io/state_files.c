/* state_files.c - opens a safetensors file, or the shards of an index as Hugging Face writes them:
 *
 *     {"metadata": {"total_size": 123},
 *      "weight_map": {"fc1.weight": "model-00001-of-00002.safetensors", ...}}
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/name_map.h"
#include "io/state_io.h"

static gd_status read_file(gd_state_file *file) {
    GD_TRY(gd_safetensors_read(&file->header, file->reader));
    return gd_safetensors_check(&file->header, file->reader);
}

/* --- an index --------------------------------------------------------------------------------- */

/* A shard must be in the folder of its index, so that an index cannot name other files. */
static gd_status check_shard_name(const char *path, const gd_json *where) {
    if (where->type != GD_JSON_STRING)
        return gd_fail(GD_E_FORMAT, "%s: the file of '%.200s' is %s, not a string", path,
                       where->key, gd_json_type_name(where->type));
    if (strlen(where->key) != where->key_length || strlen(where->text) != where->length)
        return gd_fail(GD_E_FORMAT, "%s: a name in \"weight_map\" has a zero byte", path);
    if (where->length == 0 || strchr(where->text, '/') || strcmp(where->text, ".") == 0 ||
        strcmp(where->text, "..") == 0)
        return gd_fail(GD_E_FORMAT,
                       "%s: '%.200s' is in '%.200s', which is not in the folder of the index", path,
                       where->key, where->text);
    return GD_OK;
}

static gd_status list_shards(const char *path, const gd_json *map, const char **names,
                             size_t *count) {
    gd_name_map seen = {0};
    gd_status status = GD_OK;
    for (size_t i = 0; i < map->count && status == GD_OK; i++) {
        const gd_json *where = gd_json_at(map, i);
        status = check_shard_name(path, where);
        if (status != GD_OK || gd_name_map_find(&seen, where->text)) continue;
        names[(*count)++] = where->text;
        if (!gd_name_map_add(&seen, where->text, &seen))
            status = gd_no_memory(path, "to save or load a state");
    }
    gd_name_map_free(&seen);
    return status;
}

/* Compares the checksum of an index, if it has one. */
static gd_status check_index_checksum(const char *path, const char *text, size_t bytes) {
    gd_file_reader *file;
    size_t digits_at;
    if (!gd_checksum_find(text, bytes, &digits_at)) return GD_OK;
    GD_TRY(gd_file_reader_open_memory(&file, path, text, bytes));
    const gd_status status = gd_checksum_check(file, digits_at);
    gd_file_reader_close(file);
    return status;
}

static gd_status load_index(const char *path, gd_json_doc **doc) {
    char *text;
    size_t bytes;
    *doc = NULL;
    GD_TRY(gd_file_read_all(path, &text, &bytes));
    gd_status status = gd_json_parse(doc, path, text, bytes);
    if (status == GD_OK) status = check_index_checksum(path, text, bytes);
    gd_free(text);
    if (status == GD_OK) return GD_OK;
    gd_json_free(*doc);
    *doc = NULL;
    return status;
}

gd_status gd_state_index_read(const char *path, gd_json_doc **doc, const char ***names,
                              size_t *count) {
    *names = NULL;
    *count = 0;
    GD_TRY(load_index(path, doc));
    const gd_json *map = gd_json_get(gd_json_root(*doc), "weight_map");
    gd_status status = GD_OK;
    if (!map || map->type != GD_JSON_OBJECT)
        status = gd_fail(GD_E_FORMAT, "%s: has no \"weight_map\" that is an object", path);
    else if (!(*names = gd_malloc((map->count + 1) * sizeof **names)))
        status = gd_no_memory(path, "to save or load a state");
    else status = list_shards(path, map, *names, count);
    if (status == GD_OK) return GD_OK;
    gd_json_free(*doc);
    gd_free(*names);
    *doc = NULL;
    *names = NULL;
    return status;
}

static gd_status open_shard(gd_state_file *file, const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - path) : 0, bytes = folder + strlen(name) + 1;
    char *full = gd_malloc(bytes);
    if (!full) return gd_no_memory(path, "to save or load a state");
    memcpy(full, path, folder);
    memcpy(full + folder, name, bytes - folder);
    file->name = name;
    gd_status status = gd_file_reader_open(&file->reader, full);
    if (status == GD_OK) status = read_file(file);
    gd_free(full);
    return status;
}

/* Checks that every tensor of the index is in its shard. */
static gd_status check_weight_map(const gd_state_files *files, const char *path) {
    const gd_json *map = gd_json_get(gd_json_root(files->index), "weight_map");
    gd_name_map present = {0};
    gd_status status = GD_OK;
    size_t found = 0;
    for (size_t i = 0; i < files->count && status == GD_OK; i++)
        for (size_t k = 0; k < files->at[i].header.count && status == GD_OK; k++) {
            const char *name = files->at[i].header.entries[k].name;
            const gd_json *where = gd_json_get(map, name);
            if (!where || strcmp(where->text, files->at[i].name) != 0) continue;
            found++;
            if (!gd_name_map_add(&present, name, &present))
                status = gd_no_memory(path, "to save or load a state");
        }
    for (size_t i = 0; i < map->count && status == GD_OK && found != map->count; i++) {
        const gd_json *where = gd_json_at(map, i);
        if (!gd_name_map_find(&present, where->key))
            status =
                gd_fail(GD_E_FORMAT, "%s: '%.200s' is not in %.200s, although the index names it",
                        path, where->key, where->text);
    }
    gd_name_map_free(&present);
    return status;
}

static gd_status open_index(gd_state_files *files, const char *path) {
    const char **names;
    size_t count;
    GD_TRY(gd_state_index_read(path, &files->index, &names, &count));
    files->at = gd_calloc(count + 1, sizeof *files->at);
    gd_status status = files->at ? GD_OK : gd_no_memory(path, "to save or load a state");
    for (size_t i = 0; i < count && status == GD_OK; i++)
        status = open_shard(&files->at[files->count++], path, names[i]);
    gd_free(names);
    return status == GD_OK ? check_weight_map(files, path) : status;
}

/* --- one file or shards ----------------------------------------------------------------------- */

gd_status gd_state_files_open(gd_state_files *files, const char *path, gd_file_reader *file) {
    gd_status status;
    if (gd_is_state_index(path)) {
        /* a save of another process removes the shards of the previous index */
        const int lock = gd_file_lock_folder(path, false);
        status = open_index(files, path);
        if (lock >= 0) close(lock);
    } else {
        files->at = gd_calloc(1, sizeof *files->at);
        if (!files->at) return gd_no_memory(path, "to save or load a state");
        files->count = 1;
        files->at->reader = file;
        status = read_file(files->at);
    }
    return status;
}

void gd_state_files_close(gd_state_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        gd_safetensors_free(&files->at[i].header);
        if (files->at[i].name) gd_file_reader_close(files->at[i].reader); /* a shard */
    }
    gd_free(files->at);
    gd_json_free(files->index);
    *files = (gd_state_files){0};
}
