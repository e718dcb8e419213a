/* safetensors_format.c - states in safetensors files and in indexes of shards, for state_format.h. */
#include <string.h>

#include "core/alloc.h"
#include "format/bytes.h"
#include "io/state_format.h"
#include "io/state_io.h"

static bool matches(const gd_state_probe *p) {
    if (p->is_folder) return false;
    if (gd_is_state_index(p->path)) return true;
    return p->n_first > 8 && p->first[8] == '{' && gd_get_u64(p->first) <= p->bytes - 8;
}

/* Whether the index maps a tensor to this shard, or does not list it. */
static bool is_in_shard(const gd_state_files *files, const gd_state_file *file, const char *name) {
    if (!files->index) return true;
    const gd_json *map = gd_json_get(gd_json_root(files->index), "weight_map"),
                  *where = gd_json_get(map, name);
    return !where || strcmp(where->text, file->name) == 0;
}

static gd_status list_tensors(gd_state_list *list, const gd_state_files *files,
                              const gd_state_file *file) {
    for (size_t i = 0; i < file->header.count; i++) {
        const gd_safetensors_entry *e = &file->header.entries[i];
        if (!is_in_shard(files, file, e->name)) continue;
        GD_TRY(gd_state_list_tensor(list,
                                    (gd_source_tensor){.name = e->name,
                                                       .dtype_name = e->dtype,
                                                       .dtype = gd_safetensors_dtype_from(e->dtype),
                                                       .rank = e->rank,
                                                       .dims = e->dims,
                                                       .file = file->reader,
                                                       .begin = e->begin}));
    }
    return GD_OK;
}

static gd_status list_value(gd_state_list *list, const char *key, const char *text) {
    if (strcmp(key, GD_STATE_FORMAT) == 0 || strcmp(key, GD_CHECKSUM_KEY) == 0) return GD_OK;
    if (strcmp(key, GD_STATE_PARTS) == 0) {
        list->source.parts = text;
        return GD_OK;
    }
    return gd_state_list_value(list, key, text);
}

/* The values are in the header of the file, or in the index of shards. */
static gd_status list_values(gd_state_list *list, const gd_state_files *files) {
    const gd_safetensors *h = files->count ? &files->at[0].header : NULL;
    if (!files->index) {
        for (size_t i = 0; i < h->n_values; i++)
            GD_TRY(list_value(list, h->values[i].key, h->values[i].text));
        return GD_OK;
    }
    const gd_json *metadata = gd_json_get(gd_json_root(files->index), "metadata");
    for (size_t i = 0; metadata && metadata->type == GD_JSON_OBJECT && i < metadata->count; i++) {
        const gd_json *value = gd_json_at(metadata, i);
        if (value->type == GD_JSON_STRING) GD_TRY(list_value(list, value->key, value->text));
    }
    return GD_OK;
}

static gd_status open_files(gd_state_list *list) {
    gd_state_files *files = list->data = gd_calloc(1, sizeof *files);
    if (!files) return gd_no_memory(list->path, "to save or load a state");
    GD_TRY(gd_state_files_open(files, list->path, list->file));
    for (size_t i = 0; i < files->count; i++) GD_TRY(list_tensors(list, files, &files->at[i]));
    list->has_checksum = files->count > 0 && files->at[0].header.checksum_at != 0;
    return list_values(list, files);
}

static gd_status read_elements(const void *file, uint64_t begin, void *to, size_t bytes) {
    return gd_file_reader_read_at(file, begin, to, bytes);
}

static void close_files(void *data) {
    if (data) gd_state_files_close(data);
    gd_free(data);
}

const gd_state_format gd_safetensors_format = {"a safetensors file", matches, open_files,
                                               read_elements, close_files};
