/* file.c - the bytes of an ONNX file, and of the file beside it that holds large tensors.
 *
 * At any moment the model at PATH and the data that it refers to belong together, also when the
 * process is killed: the data get a name that follows from their contents
 * (PATH.data-0123456789abcdef), so no other data ever have that name; they are on the disk before
 * the model is renamed into place; and the data of the model before are removed after that. Data
 * that a killed save left behind are removed by the next one.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "onnx/save/save.h"

enum { SMALL = 1024, PAGE = 4096, LINE = 64 };

static const char SUFFIX[] = ".data-"; /* and the hash of the contents */
static const char OTHERS[] =
    ".data"; /* as other programs call it, and earlier versions of this one did */

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to save a graph"); }

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- which data a model refers to ------------------------------------------------------------- */

/* Whether a tensor in a message has its data in a file of this name. */
static bool refers_to(const gd_pb *message, const char *name) {
    for (int i = 0; i < message->count; i++) {
        const gd_pb_list *list = &message->lists[i];
        for (size_t k = 0; k < list->count && list->field->type == GD_PB_MESSAGE; k++) {
            const gd_pb *inner = list->messages[k];
            if (message->schema == &gd_onnx_tensor_schema &&
                strcmp(gd_pb_string(inner, "key"), "location") == 0 &&
                strcmp(last_part(gd_pb_string(inner, "value")), name) == 0)
                return true;
            if (refers_to(inner, name)) return true;
        }
    }
    return false;
}

typedef struct model_file {
    const char *path;
    const char *own; /* data that it refers to, as we know; NULL: we do not */
} model_file;

/* The same for the model that is at a path now. One that cannot be read may refer to anything; one
 * that is no model, or is not there, refers to nothing. */
static bool model_needs(void *user, const char *name) {
    const model_file *model = user;
    gd_pb_doc *doc = NULL;
    if (model->own && strcmp(last_part(model->own), last_part(name)) == 0) return true;
    const gd_status status = gd_pb_load(&doc, &gd_onnx_model_schema, model->path);
    const bool needs = status == GD_OK ? refers_to(gd_pb_root(doc), last_part(name))
                                       : status != GD_E_FORMAT && access(model->path, F_OK) == 0;
    gd_pb_free(doc);
    return needs;
}

/* --- writing ---------------------------------------------------------------------------------- */
static void put_pair(gd_pb *tensor, const char *key, const char *value) {
    gd_pb *pair = gd_pb_put_message(tensor, "external_data");
    gd_pb_put_string(pair, "key", key);
    gd_pb_put_string(pair, "value", value);
}

/* --- the file beside -------------------------------------------------------------------------- */

typedef struct data_file {
    gd_file_writer *writer; /* NULL: not begun */
    uint64_t hash;          /* of what was written */
    char *name;             /* once it is known */
} data_file;

/* Eight bytes at a time; the last ones are filled up with zeros. */
static uint64_t hash_on(uint64_t hash, const void *data, size_t bytes) {
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

/* Large ones begin at a page, so that they can be mapped. */
static gd_status write_external(data_file *f, const gd_onnx_initializer *i) {
    static const char zeros[PAGE];
    const uint64_t at = gd_file_writer_position(f->writer), step = i->bytes >= PAGE ? PAGE : LINE;
    const uint64_t begin = (at + step - 1) / step * step;
    GD_TRY(gd_file_writer_write(f->writer, zeros, (size_t)(begin - at)));
    GD_TRY(gd_file_writer_write(f->writer, i->data, i->bytes));
    f->hash = hash_on(f->hash ^ begin, i->data, i->bytes);
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)begin);
    put_pair(i->tensor, "offset", number);
    snprintf(number, sizeof number, "%zu", i->bytes);
    put_pair(i->tensor, "length", number);
    gd_pb_put_int(i->tensor, "data_location", 1);
    return GD_OK;
}

static gd_status name_data(data_file *f, const char *path) {
    const size_t bytes = strlen(path) + sizeof SUFFIX + 16;
    f->name = gd_malloc(bytes);
    if (!f->name) return no_memory();
    snprintf(f->name, bytes, "%s%s%016llx", path, SUFFIX, (unsigned long long)f->hash);
    return GD_OK;
}

/* --- both ------------------------------------------------------------------------------------- */

static gd_status write_file(void *to, const void *data, size_t bytes) {
    return gd_file_writer_write(to, data, bytes);
}

/* Above how many bytes tensors go into the other file. */
static size_t threshold(const gd_onnx_saver *s, int64_t above) {
    size_t inside = 0;
    for (size_t i = 0; i < s->n_initializers; i++)
        if (s->initializers[i].bytes <= (size_t)above) inside += s->initializers[i].bytes;
    return inside > (size_t)1 << 30 && above > SMALL ? SMALL : (size_t)above;
}

typedef struct files {
    const char *path;
    gd_file_writer *model; /* NULL: not begun, or ended */
    data_file data;
    char *others; /* PATH.data, if the model before refers to it */
} files;

/* The tensors that go into the other file, and where the model says that they are. */
static gd_status write_data(gd_onnx_saver *s, files *f, size_t most) {
    data_file *data = &f->data;
    for (size_t i = 0; i < s->n_initializers; i++) {
        if (s->initializers[i].bytes <= most) continue;
        if (!data->writer) GD_TRY(gd_file_writer_begin_beside(&data->writer, f->path, OTHERS));
        GD_TRY(write_external(data, &s->initializers[i]));
    }
    if (!data->writer) return GD_OK;
    GD_TRY(name_data(data, f->path));
    for (size_t i = 0; i < s->n_initializers; i++)
        if (s->initializers[i].bytes > most)
            put_pair(s->initializers[i].tensor, "location", last_part(data->name));
    return GD_OK;
}

static gd_status write_model(gd_onnx_saver *s, files *f, size_t most) {
    for (size_t i = 0; i < s->n_initializers; i++) {
        const gd_onnx_initializer *tensor = &s->initializers[i];
        if (tensor->bytes <= most)
            gd_pb_put_bytes(tensor->tensor, "raw_data", tensor->data, tensor->bytes);
    }
    GD_TRY(gd_file_writer_begin(&f->model, f->path));
    return gd_pb_write(s->doc, write_file, f->model);
}

static gd_status put_in_place(files *f) {
    if (f->data.writer) GD_TRY(gd_file_writer_place(f->data.writer, f->data.name));
    gd_file_writer *model = f->model;
    f->model = NULL;
    return gd_file_writer_commit(model);
}

/* Removes data that the model now at the path does not refer to: those of the model before, those
 * of saves that were killed, ours if we have failed. */
static void remove_unused_data(const files *f, bool saved) {
    model_file now = {f->path, saved ? f->data.name : NULL};
    const gd_file_keep keep = {model_needs, &now};
    const size_t bytes = strlen(f->path) + 20;
    char *stem = gd_malloc(bytes);
    if (f->others) gd_file_sweep(f->others, &keep);
    if (!stem) return; /* the next save does it */
    snprintf(stem, bytes, "%s%s", f->path, SUFFIX);
    gd_file_sweep_folder(stem, &keep);
    snprintf(stem, bytes, "%s%s.tmp-", f->path, OTHERS);
    if (!f->data.name) gd_file_sweep_claims(stem); /* else the writer has done it */
    gd_free(stem);
}

static gd_status find_others(files *f) {
    const size_t bytes = strlen(f->path) + sizeof OTHERS;
    f->others = gd_malloc(bytes);
    if (!f->others) return no_memory();
    snprintf(f->others, bytes, "%s%s", f->path, OTHERS);
    if (access(f->others, F_OK) == 0 && model_needs(&(model_file){f->path, NULL}, f->others))
        return GD_OK;
    gd_free(f->others);
    f->others = NULL;
    return GD_OK;
}

/* The same after a failure, whose message stays. */
static void clean_up(const files *f, gd_status status) {
    const size_t bytes = strlen(gd_this_thread.noted_text) + 1;
    char *message = gd_malloc(bytes);
    if (!message) return; /* the next save does it */
    memcpy(message, gd_this_thread.noted_text, bytes);
    remove_unused_data(f, false);
    gd_fail(status, "%s", message);
    gd_free(message);
}

gd_status gd_onnx_write_files(gd_onnx_saver *s, const char *path, int64_t above) {
    files f = {.path = path};
    const size_t most = threshold(s, above);
    gd_status status = find_others(&f);
    if (status == GD_OK) status = write_data(s, &f, most);
    if (status == GD_OK) status = write_model(s, &f, most);
    /* another save must not see the data before the model that refers to them, and remove them */
    const int lock = gd_file_lock_folder(path, true);
    if (status == GD_OK) status = put_in_place(&f);
    gd_file_writer_cancel(f.model);
    gd_file_writer_cancel(f.data.writer); /* leaves the data if they are in place */
    if (status == GD_OK) remove_unused_data(&f, true);
    else if (f.data.name) clean_up(&f, status);
    if (lock >= 0) close(lock);
    gd_free(f.data.name);
    gd_free(f.others);
    return status;
}
