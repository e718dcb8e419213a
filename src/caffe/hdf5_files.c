/* hdf5_files.c - see hdf5_files.h. */
#include "caffe/hdf5_files.h"

#include <stdio.h>
#include <string.h>

#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/map.h"
#include "format/hdf5.h"
#include "format/protobuf_tree.h"

bool gd_caffe_is_hdf5(const char *path) {
    const size_t n = strlen(path);
    return n >= 3 && strcmp(path + n - 3, ".h5") == 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef gd_status (*put_fn)(gd_hdf5_writer *w, const gd_pb *message);

static gd_status write_file(const gd_pb *message, const char *path, put_fn put) {
    gd_hdf5_writer *w;
    GD_TRY(gd_hdf5_writer_begin(&w, path));
    const gd_status status = put(w, message);
    if (status == GD_OK) return gd_hdf5_writer_commit(w);
    gd_hdf5_writer_cancel(w);
    return status;
}

/* A dataset with the values of a field of a blob. */
static gd_status put_values(gd_hdf5_writer *w, const char *path, const gd_pb *blob,
                            const char *field) {
    char double_field[30];
    snprintf(double_field, sizeof double_field, "double_%s", field);
    const gd_pb_list *dims = gd_pb_list_of(blob, "shape.dim"), *values = gd_pb_get(blob, field),
                     *doubles = gd_pb_get(blob, double_field);
    GD_TRY(gd_hdf5_writer_dataset(w, path, doubles ? GD_F64 : GD_F32, dims ? (int)dims->count : 0,
                                  dims ? dims->ints : NULL));
    if (doubles) return gd_hdf5_writer_write(w, doubles->items, doubles->count * sizeof(double));
    return values ? gd_hdf5_writer_write(w, values->items, values->count * sizeof(float)) : GD_OK;
}

/* "/data/conv1/0" */
static gd_status put_layer(gd_hdf5_writer *w, const char *group, const gd_pb *layer,
                           const char *field) {
    const char *name = gd_pb_string(layer, "name");
    const gd_pb_list *blobs = gd_pb_get(layer, "blobs");
    const size_t room = strlen(name) + 60;
    char *path = gd_malloc(room);
    if (!path) return gd_no_memory(NULL, "for weights");
    snprintf(path, room, "/%s/%s", group, name);
    gd_status status = gd_hdf5_writer_group(w, path);
    for (size_t i = 0; blobs && i < blobs->count && status == GD_OK; i++) {
        if (!gd_pb_has(blobs->messages[i], field) && strcmp(field, "diff") == 0) continue;
        snprintf(path, room, "/%s/%s/%zu", group, name, i);
        status = put_values(w, path, blobs->messages[i], field);
    }
    gd_free(path);
    return status;
}

/* Whether a blob of the net has its latest change. */
static bool has_diffs(const gd_pb_list *layers) {
    for (size_t i = 0; layers && i < layers->count; i++) {
        const gd_pb_list *blobs = gd_pb_get(layers->messages[i], "blobs");
        for (size_t k = 0; blobs && k < blobs->count; k++)
            if (gd_pb_has(blobs->messages[k], "diff")) return true;
    }
    return false;
}

static gd_status put_net(gd_hdf5_writer *w, const gd_pb *net) {
    const gd_pb_list *layers = gd_pb_get(net, "layer");
    GD_TRY(gd_hdf5_writer_group(w, "/data"));
    for (size_t i = 0; layers && i < layers->count; i++)
        GD_TRY(put_layer(w, "data", layers->messages[i], "data"));
    for (size_t i = 0; has_diffs(layers) && i < layers->count; i++)
        GD_TRY(put_layer(w, "diff", layers->messages[i], "diff"));
    return GD_OK;
}

gd_status gd_caffe_net_save_hdf5(const gd_pb *net, const char *path) {
    return write_file(net, path, put_net);
}

static gd_status put_number(gd_hdf5_writer *w, const char *path, int64_t value) {
    const int32_t number = (int32_t)value;
    GD_TRY(gd_hdf5_writer_dataset(w, path, GD_I32, 1, (int64_t[]){1}));
    return gd_hdf5_writer_write(w, &number, sizeof number);
}

static gd_status put_state(gd_hdf5_writer *w, const gd_pb *state) {
    const gd_pb_list *history = gd_pb_get(state, "history");
    char path[60];
    GD_TRY(put_number(w, "/iter", gd_pb_int_of(state, "iter")));
    GD_TRY(gd_hdf5_writer_string(w, "/learned_net", gd_pb_string(state, "learned_net")));
    GD_TRY(put_number(w, "/current_step", gd_pb_int_of(state, "current_step")));
    GD_TRY(gd_hdf5_writer_group(w, "/history"));
    for (size_t i = 0; history && i < history->count; i++) {
        snprintf(path, sizeof path, "/history/%zu", i);
        GD_TRY(put_values(w, path, history->messages[i], "data"));
    }
    return GD_OK;
}

gd_status gd_caffe_state_save_hdf5(const gd_pb *state, const char *path) {
    return write_file(state, path, put_state);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A file while it is read. Each object in it is read once: a small file could name one thousands of times. */
typedef struct reading {
    const gd_hdf5_object *root;
    gd_pb *message;
    gd_map seen; /* addresses of objects */
} reading;

/* Whether an object is read for the first time. */
static gd_status see(reading *r, const gd_hdf5_object *o, bool *first) {
    const void *key = (const void *)(uintptr_t)(o->address + 1);
    *first = gd_map_find(&r->seen, key) < 0;
    return !*first || gd_map_put(&r->seen, key, 1) ? GD_OK : gd_no_memory(NULL, "for weights");
}

typedef gd_status (*take_fn)(reading *r);

static gd_status take_root(const gd_file_reader *reader, gd_pb *message, take_fn take) {
    gd_hdf5 *file;
    GD_TRY(gd_hdf5_open(&file, reader));
    reading r = {.root = gd_hdf5_root(file), .message = message};
    const gd_status status = take(&r);
    gd_map_free(&r.seen);
    gd_hdf5_close(file);
    return status;
}

/* Messages name the file. */
static gd_status read_file(gd_pb_doc **out, const gd_pb_schema *schema, const gd_file_reader *file,
                           take_fn take) {
    const char *path = gd_file_reader_path(file);
    gd_pb_doc *doc = gd_pb_new(schema);
    gd_status status = doc ? take_root(file, gd_pb_root(doc), take) : gd_failure();
    if (status == GD_OK) status = gd_pb_check(doc);
    *out = status == GD_OK ? doc : NULL;
    if (status == GD_OK) return GD_OK;
    gd_pb_free(doc);
    if (!strstr(gd_latest_failure(), path)) gd_error_prefix("%s: ", path);
    return status;
}

typedef gd_status (*read_fn)(gd_pb_doc **out, const gd_file_reader *file);

static gd_status load_file(gd_pb_doc **out, const char *path, read_fn read) {
    gd_file_reader *file;
    *out = NULL;
    GD_TRY(gd_file_reader_open(&file, path));
    const gd_status status = read(out, file);
    gd_file_reader_close(file);
    return status;
}

/* The values of a dataset as a new blob in a field. */
static gd_status take_blob(reading *r, const gd_hdf5_object *d, gd_pb *to, const char *field) {
    bool first;
    if (d->is_group) return gd_fail(GD_E_FORMAT, "'%s' is not a dataset", d->path);
    GD_TRY(see(r, d, &first));
    if (!first) return gd_fail(GD_E_FORMAT, "'%s' is a second name of another dataset", d->path);
    GD_TRY(gd_hdf5_check_size(d));
    gd_pb *blob = gd_pb_put_message(to, field), *shape = gd_pb_put_message(blob, "shape");
    for (int i = 0; i < d->shape.rank; i++) gd_pb_put_int(shape, "dim", d->shape.dims[i]);
    const size_t count = (size_t)d->shape.count;
    float *values = gd_pb_alloc(blob->doc, count * sizeof *values);
    if (!values) return gd_no_memory(NULL, "for weights");
    GD_TRY(gd_hdf5_read(d, 0, d->shape.rank > 0 ? d->shape.dims[0] : 1, GD_F32, values));
    gd_pb_put_numbers(blob, "data", values, count);
    return gd_pb_check(blob->doc);
}

/* The datasets "0", "1", ... of a group. */
static gd_status take_blobs(reading *r, const gd_hdf5_object *group, gd_pb *to, const char *field) {
    char name[24] = "0";
    for (int i = 1; gd_hdf5_has(group, name); i++) {
        gd_hdf5_object *d;
        GD_TRY(gd_hdf5_object_open(&d, group, name));
        const gd_status status = take_blob(r, d, to, field);
        gd_hdf5_object_close(d);
        GD_TRY(status);
        snprintf(name, sizeof name, "%d", i);
    }
    return GD_OK;
}

/* Whether a group is a layer with blobs. A group "0" is a part of names: of "layer1/0/conv1". */
static gd_status check_blobs(const gd_hdf5_object *group, bool *has) {
    gd_hdf5_object *part;
    *has = gd_hdf5_has(group, "0");
    if (!*has) return GD_OK;
    GD_TRY(gd_hdf5_object_open(&part, group, "0"));
    *has = !part->is_group;
    gd_hdf5_object_close(part);
    return GD_OK;
}

enum { MAX_DEPTH = 50 }; /* of groups in groups */

static gd_status take_layers(reading *r, const gd_hdf5_object *group, int depth);

/* A group in the group data, which may be a layer, a part of the names of some, or both. */
static gd_status take_layer(reading *r, const gd_hdf5_object *group, int depth) {
    bool first, has_blobs;
    if (!group->is_group) return GD_OK;
    GD_TRY(see(r, group, &first));
    if (!first) return GD_OK;
    GD_TRY(check_blobs(group, &has_blobs));
    if (has_blobs) {
        gd_pb *layer = gd_pb_put_message(r->message, "layer");
        gd_pb_put_string(layer, "name", group->path + strlen("/data/"));
        GD_TRY(take_blobs(r, group, layer, "blobs"));
    }
    return take_layers(r, group, depth + 1);
}

static gd_status take_layers(reading *r, const gd_hdf5_object *group, int depth) {
    if (depth > MAX_DEPTH)
        return gd_fail(GD_E_FORMAT, "'%.100s' is more than %d groups deep", group->path, MAX_DEPTH);
    for (size_t i = 0; i < group->n_names; i++) {
        gd_hdf5_object *part;
        GD_TRY(gd_hdf5_object_open(&part, group, group->names[i]));
        const gd_status status = take_layer(r, part, depth);
        gd_hdf5_object_close(part);
        GD_TRY(status);
    }
    return GD_OK;
}

/* Opens a group of the root. */
static gd_status open_group(const reading *r, const char *name, const char *what,
                            gd_hdf5_object **out) {
    if (!gd_hdf5_has(r->root, name))
        return gd_fail(GD_E_FORMAT, "it has no group '%s'; %s one", name, what);
    GD_TRY(gd_hdf5_object_open(out, r->root, name));
    if ((*out)->is_group) return GD_OK;
    gd_hdf5_object_close(*out);
    return gd_fail(GD_E_FORMAT, "'/%s' is not a group", name);
}

static gd_status take_net(reading *r) {
    gd_hdf5_object *data;
    GD_TRY(open_group(r, "data", "the weights of a net have", &data));
    const gd_status status = take_layers(r, data, 0);
    gd_hdf5_object_close(data);
    return status;
}

gd_status gd_caffe_net_read_hdf5(gd_pb_doc **out, const gd_file_reader *file) {
    return read_file(out, &gd_caffe_net_schema, file, take_net);
}

gd_status gd_caffe_net_load_hdf5(gd_pb_doc **out, const char *path) {
    return load_file(out, path, gd_caffe_net_read_hdf5);
}

/* A dataset of one integer; one that is not there is 0. */
static gd_status take_number(const reading *r, const char *name) {
    gd_hdf5_object *d;
    int64_t value = 0;
    if (!gd_hdf5_has(r->root, name)) return GD_OK;
    GD_TRY(gd_hdf5_object_open(&d, r->root, name));
    const gd_status status = d->is_group || d->shape.count != 1
                                 ? gd_fail(GD_E_FORMAT, "'%s' is not one number", d->path)
                                 : gd_hdf5_read(d, 0, 1, GD_I64, &value);
    gd_hdf5_object_close(d);
    if (status == GD_OK) gd_pb_put_int(r->message, name, value);
    return status;
}

static gd_status take_text(const reading *r, const char *name) {
    gd_hdf5_object *d;
    gd_hdf5_strings text = {0};
    if (!gd_hdf5_has(r->root, name)) return GD_OK;
    GD_TRY(gd_hdf5_object_open(&d, r->root, name));
    const gd_status status = d->is_group ? gd_fail(GD_E_FORMAT, "'%s' is not a text", d->path)
                                         : gd_hdf5_read_strings(&text, d);
    if (status == GD_OK && text.count == 1) gd_pb_put_string(r->message, name, text.at[0]);
    gd_hdf5_strings_free(&text);
    gd_hdf5_object_close(d);
    return status;
}

static gd_status take_state(reading *r) {
    gd_hdf5_object *history;
    GD_TRY(take_number(r, "iter"));
    GD_TRY(take_number(r, "current_step"));
    GD_TRY(take_text(r, "learned_net"));
    GD_TRY(open_group(r, "history", "the state of a solver has", &history));
    const gd_status status = take_blobs(r, history, r->message, "history");
    gd_hdf5_object_close(history);
    return status;
}

gd_status gd_caffe_state_read_hdf5(gd_pb_doc **out, const gd_file_reader *file) {
    return read_file(out, &gd_caffe_solver_state_schema, file, take_state);
}

gd_status gd_caffe_state_load_hdf5(gd_pb_doc **out, const char *path) {
    return load_file(out, path, gd_caffe_state_read_hdf5);
}
