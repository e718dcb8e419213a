/* files.c - writes an ONNX file, and a data file for large tensors.
 *
 * The model at PATH and its data file always belong together, even if the process is killed. The
 * name of the data file contains a hash of its contents (PATH.data-0123456789abcdef), so different
 * data have different names. The data are on the disk before the model is renamed to PATH, and the
 * data of the previous model are removed after that. The next save removes data that a killed save
 * left behind.
 *
 * Order: the data files that a model refers to; the data file; both files.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "onnx/save/save.h"

enum {
    SMALL = 1024, /* bytes of a tensor that stays in a large model */
    PAGE = 4096,  /* alignments in the data file */
    LINE = 64,
};

static const char SUFFIX[] = ".data-"; /* followed by the hash of the contents */
/* The name of the data file in other programs, and in earlier versions of this one. */
static const char OTHER_SUFFIX[] = ".data";

/* --- references to data files ----------------------------------------------------------------- */

/* Whether a tensor in a message refers to a data file of this name. */
static bool refers_to(const gd_pb *message, const char *name) {
    for (int i = 0; i < message->count; i++) {
        const gd_pb_list *list = &message->lists[i];
        for (size_t k = 0; k < list->count && list->field->type == GD_PB_MESSAGE; k++) {
            const gd_pb *inner = list->messages[k];
            if (message->schema == &gd_onnx_tensor_schema &&
                strcmp(gd_pb_string(inner, "key"), "location") == 0 &&
                strcmp(gd_file_name(gd_pb_string(inner, "value")), name) == 0)
                return true;
            if (refers_to(inner, name)) return true;
        }
    }
    return false;
}

typedef struct model_file {
    const char *path;
    const char *data; /* a data file to which it certainly refers; or NULL */
} model_file;

/* Whether the model that is at a path now refers to a data file. A file that cannot be read may
 * refer to any name; one that is not a model, or does not exist, refers to none. */
static bool model_needs(void *user, const char *name) {
    const model_file *model = user;
    gd_pb_doc *doc = NULL;
    if (model->data && strcmp(gd_file_name(model->data), gd_file_name(name)) == 0) return true;
    const gd_status status = gd_pb_load(&doc, &gd_onnx_model_schema, model->path);
    const bool needs = status == GD_OK ? refers_to(gd_pb_root(doc), gd_file_name(name))
                                       : status != GD_E_FORMAT && access(model->path, F_OK) == 0;
    gd_pb_free(doc);
    return needs;
}

/* --- the data file ---------------------------------------------------------------------------- */

static void put_pair(gd_pb *tensor, const char *key, const char *value) {
    gd_pb *pair = gd_pb_put_message(tensor, "external_data");
    gd_pb_put_string(pair, "key", key);
    gd_pb_put_string(pair, "value", value);
}

typedef struct data_file {
    gd_file_writer *writer; /* NULL: not started */
    uint64_t hash;          /* of the bytes so far */
    char *name;             /* once the hash is known */
} data_file;

/* Hashes eight bytes at a time; the last ones are padded with zeros. */
static uint64_t extend_hash(uint64_t hash, const void *data, size_t bytes) {
    const char *at = data;
    for (size_t left = bytes; left > 0;) {
        uint64_t word = 0;
        const size_t step = left < sizeof word ? left : sizeof word;
        memcpy(&word, at, step);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
        at += step;
        left -= step;
    }
    return (hash ^ bytes) * 0x9E3779B97F4A7C15u;
}

/* Aligns large tensors to a page, so that they can be mapped. */
static gd_status write_external(data_file *f, const gd_onnx_initializer *i) {
    static const char zeros[PAGE];
    const uint64_t at = gd_file_writer_position(f->writer), step = i->bytes >= PAGE ? PAGE : LINE;
    const uint64_t begin = (at + step - 1) / step * step;
    GD_TRY(gd_file_writer_write(f->writer, zeros, (size_t)(begin - at)));
    GD_TRY(gd_file_writer_write(f->writer, i->data, i->bytes));
    f->hash = extend_hash(f->hash ^ begin, i->data, i->bytes);
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)begin);
    put_pair(i->tensor, "offset", number);
    snprintf(number, sizeof number, "%zu", i->bytes);
    put_pair(i->tensor, "length", number);
    gd_pb_put_int(i->tensor, "data_location", 1);
    return GD_OK;
}

static gd_status name_data_file(data_file *f, const char *path) {
    const size_t bytes = strlen(path) + sizeof SUFFIX + 16;
    f->name = gd_malloc(bytes);
    if (!f->name) return gd_no_memory(NULL, "to save a graph");
    snprintf(f->name, bytes, "%s%s%016llx", path, SUFFIX, (unsigned long long)f->hash);
    return GD_OK;
}

/* --- both files ------------------------------------------------------------------------------- */

static gd_status write_bytes(void *to, const void *data, size_t bytes) {
    return gd_file_writer_write(to, data, bytes);
}

/* The size above which tensors go into the data file. It is lowered if the model would exceed
 * 1 GiB, since a protocol buffer has at most 2 GiB. */
static size_t external_threshold(const gd_onnx_saver *s, int64_t above) {
    size_t inside = 0;
    for (size_t i = 0; i < s->n_initializers; i++)
        if (s->initializers[i].bytes <= (size_t)above) inside += s->initializers[i].bytes;
    return inside > (size_t)1 << 30 && above > SMALL ? SMALL : (size_t)above;
}

typedef struct files {
    const char *path;
    gd_file_writer *model; /* NULL: not started, or committed */
    data_file data;
    char *other_data; /* PATH.data, if the previous model refers to it */
} files;

/* Writes the tensors of more than `most` bytes to the data file, and its name into the model. */
static gd_status write_data(gd_onnx_saver *s, files *f, size_t most) {
    data_file *data = &f->data;
    for (size_t i = 0; i < s->n_initializers; i++) {
        if (s->initializers[i].bytes <= most) continue;
        if (!data->writer)
            GD_TRY(gd_file_writer_begin_beside(&data->writer, f->path, OTHER_SUFFIX));
        GD_TRY(write_external(data, &s->initializers[i]));
    }
    if (!data->writer) return GD_OK;
    GD_TRY(name_data_file(data, f->path));
    for (size_t i = 0; i < s->n_initializers; i++)
        if (s->initializers[i].bytes > most)
            put_pair(s->initializers[i].tensor, "location", gd_file_name(data->name));
    return GD_OK;
}

static gd_status write_model(gd_onnx_saver *s, files *f, size_t most) {
    for (size_t i = 0; i < s->n_initializers; i++) {
        const gd_onnx_initializer *tensor = &s->initializers[i];
        if (tensor->bytes <= most)
            gd_pb_put_bytes(tensor->tensor, "raw_data", tensor->data, tensor->bytes);
    }
    GD_TRY(gd_file_writer_begin(&f->model, f->path));
    return gd_pb_write(s->doc, write_bytes, f->model);
}

static gd_status commit_files(files *f) {
    if (f->data.writer) GD_TRY(gd_file_writer_place(f->data.writer, f->data.name));
    gd_file_writer *model = f->model;
    f->model = NULL;
    return gd_file_writer_commit(model);
}

/* Removes data files that the model at the path does not refer to: those of the previous model, of
 * killed saves, and of this save if it failed. */
static void remove_unused_data(const files *f, bool saved) {
    model_file model = {f->path, saved ? f->data.name : NULL};
    const gd_file_keep keep = {model_needs, &model};
    const size_t bytes = strlen(f->path) + 20;
    char *stem = gd_malloc(bytes);
    if (f->other_data) gd_file_sweep(f->other_data, &keep);
    if (!stem) return; /* the next save removes them */
    snprintf(stem, bytes, "%s%s", f->path, SUFFIX);
    gd_file_sweep_folder(stem, &keep);
    snprintf(stem, bytes, "%s%s.tmp-", f->path, OTHER_SUFFIX);
    if (!f->data.name) gd_file_sweep_claims(stem); /* otherwise the writer has removed them */
    gd_free(stem);
}

static gd_status find_other_data(files *f) {
    const size_t bytes = strlen(f->path) + sizeof OTHER_SUFFIX;
    f->other_data = gd_malloc(bytes);
    if (!f->other_data) return gd_no_memory(NULL, "to save a graph");
    snprintf(f->other_data, bytes, "%s%s", f->path, OTHER_SUFFIX);
    if (access(f->other_data, F_OK) == 0 &&
        model_needs(&(model_file){f->path, NULL}, f->other_data))
        return GD_OK;
    gd_free(f->other_data);
    f->other_data = NULL;
    return GD_OK;
}

/* Removes unused data after a failure, and keeps the message of the failure. */
static void clean_up_failure(const files *f, gd_status status) {
    const size_t bytes = strlen(gd_this_thread.latest_text) + 1;
    char *message = gd_malloc(bytes);
    if (!message) return; /* the next save removes them */
    memcpy(message, gd_this_thread.latest_text, bytes);
    remove_unused_data(f, false);
    gd_fail(status, "%s", message);
    gd_free(message);
}

gd_status gd_onnx_write_files(gd_onnx_saver *s, const char *path, int64_t above) {
    files f = {.path = path};
    const size_t most = external_threshold(s, above);
    gd_status status = find_other_data(&f);
    if (status == GD_OK) status = write_data(s, &f, most);
    if (status == GD_OK) status = write_model(s, &f, most);
    /* another save must not remove the new data before the model refers to them */
    const int lock = gd_file_lock_folder(path, true);
    if (status == GD_OK) status = commit_files(&f);
    gd_file_writer_cancel(f.model);
    gd_file_writer_cancel(f.data.writer); /* keeps data that are in place */
    if (status == GD_OK) remove_unused_data(&f, true);
    else if (f.data.name) clean_up_failure(&f, status);
    if (lock >= 0) close(lock);
    gd_free(f.data.name);
    gd_free(f.other_data);
    return status;
}
