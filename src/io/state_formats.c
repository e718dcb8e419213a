/* state_formats.c - opening a file with the one that matches. */
#include "io/state_format.h"

#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"

/* --- the list --------------------------------------------------------------------------------- */

/* An array with room for more than `count` elements; NULL if out of memory. */
static void *grown(void *array, size_t count, size_t *room, size_t size) {
    if (count < *room) return array;
    const size_t larger = *room ? 2 * *room : 64;
    void *new = gd_realloc(array, larger * size);
    if (new) *room = larger;
    return new;
}

gd_status gd_state_list_tensor(gd_state_list *list, gd_source_tensor tensor) {
    gd_source *s = &list->source;
    gd_source_tensor *at = grown(s->tensors, s->n_tensors, &list->tensors_room, sizeof *at);
    if (!at) return gd_no_memory(list->path, "to save or load a state");
    s->tensors = at;
    at[s->n_tensors++] = tensor;
    return GD_OK;
}

gd_status gd_state_list_value(gd_state_list *list, const char *name, const char *text) {
    gd_source *s = &list->source;
    gd_source_value *at = grown(s->values, s->n_values, &list->values_room, sizeof *at);
    if (!at) return gd_no_memory(list->path, "to save or load a state");
    s->values = at;
    at[s->n_values++] = (gd_source_value){.name = name, .text = text};
    return GD_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool is_zip(const gd_state_probe *p) {
    return p->n_first >= 4 &&
           (memcmp(p->first, "PK\3\4", 4) == 0 || memcmp(p->first, "PK\5\6", 4) == 0);
}

static gd_status find_format(gd_state_list *list, const gd_state_probe *p) {
    for (int i = 0; gd_state_formats[i] && !list->format; i++)
        if (gd_state_formats[i]->matches(p)) list->format = gd_state_formats[i];
    if (list->format) return GD_OK;
    GD_TRY(gd_state_unknown(p));
    list->format = &gd_safetensors_format; /* which says why it is not even that */
    return GD_OK;
}

static gd_status open_archive(gd_state_list *list) {
    const gd_status status = gd_zip_reader_open(&list->zip, list->file);
    if (status == GD_E_FORMAT)
        gd_error_suffix("; files of PyTorch and NumPy are such archives: was the download or the "
                        "copy cut? Get the file again");
    return status;
}

gd_status gd_state_list_open_file(gd_state_list *list, const char *path, gd_file_reader *file) {
    uint8_t first[GD_STATE_FIRST_BYTES];
    gd_state_probe p = {.path = path, .first = first, .file = file, .is_folder = !file};
    *list = (gd_state_list){.path = path, .file = file};
    if (file) {
        p.bytes = gd_file_reader_size(file);
        p.n_first = p.bytes < sizeof first ? (size_t)p.bytes : sizeof first;
        GD_TRY(gd_file_reader_read_at(file, 0, first, p.n_first));
        if (is_zip(&p)) GD_TRY(open_archive(list));
        p.zip = list->zip;
    }
    GD_TRY(find_format(list, &p));
    GD_TRY(list->format->open(list));
    list->source.title = path;
    list->source.read = list->format->read;
    return GD_OK;
}

gd_status gd_state_list_open(gd_state_list *list, const char *path) {
    struct stat info;
    gd_file_reader *file = NULL;
    *list = (gd_state_list){.path = path};
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) GD_TRY(gd_file_reader_open(&file, path));
    return gd_state_list_open_file(list, path, file);
}

void gd_state_list_close(gd_state_list *list) {
    if (list->format && list->format->close) list->format->close(list->data);
    gd_free(list->source.tensors);
    gd_free(list->source.values);
    gd_zip_reader_close(list->zip);
    gd_file_reader_close(list->file);
    *list = (gd_state_list){0};
}
