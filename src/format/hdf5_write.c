/* hdf5_write.c - writes HDF5 files: the calls of a program. See hdf5.h and hdf5_write.h.
 *
 * Elements of datasets are written at once, behind the room for the superblock. Groups and
 * attributes are kept in memory until the commit, which writes them (hdf5_write_tree.c).
 */
#include "format/hdf5_write.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/hdf5.h"
#include "format/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_BYTES = 64000, /* of an attribute: a message has at most 65,535 */
    ALIGNMENT = 8,
    MAX_PATH_BYTES = 1 << 16,
};

static const char *path_of(const gd_hdf5_writer *w) { return gd_file_writer_path(w->file); }

/* The first failure stays. */
static gd_status keep(gd_hdf5_writer *w, gd_status status) {
    if (status != GD_OK && w->failure == GD_OK) {
        w->failure = status;
        snprintf(w->message, sizeof w->message, "%s", gd_latest_failure());
    }
    return status;
}

static gd_status failed_before(const gd_hdf5_writer *w) {
    return gd_fail(w->failure, "%s", w->message);
}

static gd_status fail_memory(const gd_hdf5_writer *w) { return gd_file_no_memory(path_of(w)); }

gd_status gd_hdf5_writer_begin(gd_hdf5_writer **out, const char *path) {
    static const uint8_t room[GD_HDF5_SUPERBLOCK_BYTES];
    *out = NULL;
    gd_hdf5_writer *w = gd_calloc(1, sizeof *w);
    if (!w) return gd_fail(GD_E_MEMORY, "%s: no memory left to write it", path);
    gd_status status = gd_file_writer_begin(&w->file, path);
    if (status == GD_OK) status = gd_file_writer_write(w->file, room, sizeof room);
    if (status == GD_OK) *out = w;
    else gd_hdf5_writer_cancel(w);
    return status;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static void free_node(gd_hdf5_node *node) {
    for (int i = 0; i < node->n_attributes; i++) {
        gd_free(node->attributes[i].name);
        gd_free(node->attributes[i].data);
    }
    gd_free(node->attributes);
    gd_free(node->parts);
    gd_free(node->path);
    gd_free(node);
}

void gd_hdf5_writer_cancel(gd_hdf5_writer *w) {
    if (!w) return;
    gd_file_writer_cancel(w->file);
    for (int i = 0; i < w->n_nodes; i++) free_node(w->nodes[i]);
    gd_free(w->nodes);
    gd_name_map_free(&w->by_path);
    gd_free(w);
}

/* Names between slashes: UTF-8, not empty, not "." (which is the group itself). */
static gd_status check_path(const gd_hdf5_writer *w, const char *path) {
    const char *end = path + strlen(path);
    bool good = path[0] == '/' && end - path < MAX_PATH_BYTES;
    for (const char *p = path; good && p < end;) {
        const size_t bytes = gd_utf8_length(p, end);
        const bool dot = p[0] == '.' && p[-1] == '/' && (p[1] == '/' || p[1] == '\0');
        good = bytes > 0 && !dot && !(p[0] == '/' && p[1] == '/');
        p += bytes;
    }
    if (good && end - path > 1 && end[-1] == '/') good = false;
    return good ? GD_OK
                : gd_fail(GD_E_ARGUMENT,
                          "%s: '%.200s' is not a path; expected names in UTF-8, as in "
                          "\"/data/conv1\"",
                          path_of(w), path);
}

static gd_hdf5_node *find_node(const gd_hdf5_writer *w, const char *path) {
    return gd_name_map_find(&w->by_path, path);
}

/* Adds a node, which its path does not name yet, to its parent. */
static gd_status add_node(gd_hdf5_writer *w, const char *path, size_t length, gd_hdf5_node *parent,
                          gd_hdf5_node **out) {
    gd_hdf5_node *node = gd_calloc(1, sizeof *node);
    char *copy = gd_malloc(length + 1);
    if (node && copy) {
        memcpy(copy, path, length);
        copy[length] = '\0';
        node->path = copy;
        node->name = parent ? strrchr(copy, '/') + 1 : copy + 1;
        const bool room = gd_grow(w->nodes, w->n_nodes, w->node_room) &&
                          (!parent || gd_grow(parent->parts, parent->n_parts, parent->part_room));
        if (room && gd_name_map_add(&w->by_path, copy, node)) {
            w->nodes[w->n_nodes++] = node;
            if (parent) parent->parts[parent->n_parts++] = node;
            *out = node;
            return GD_OK;
        }
    }
    gd_free(copy);
    gd_free(node);
    return fail_memory(w);
}

/* Finds or adds the group whose path is the first `length` bytes of `path`. */
static gd_status need_group(gd_hdf5_writer *w, const char *path, size_t length,
                            gd_hdf5_node **out) {
    if (w->n_nodes == 0) GD_TRY(add_node(w, "/", 1, NULL, out)); /* the root is node 0 */
    *out = w->nodes[0];
    char *text = gd_malloc(length + 1); /* cut behind each name in turn */
    if (!text) return fail_memory(w);
    gd_status status = GD_OK;
    for (size_t at = 1; at < length && status == GD_OK;) {
        memcpy(text, path, length);
        text[length] = '\0';
        const size_t end = at + strcspn(text + at, "/");
        text[end] = '\0';
        gd_hdf5_node *next = find_node(w, text);
        if (!next) status = add_node(w, path, end, *out, &next);
        else if (next->is_dataset)
            status =
                gd_fail(GD_E_ARGUMENT, "%s: '%s' is a dataset; expected a group", path_of(w), text);
        *out = next;
        at = end + 1;
    }
    gd_free(text);
    return status;
}

static gd_status add_group(gd_hdf5_writer *w, const char *path) {
    gd_hdf5_node *group;
    GD_TRY(check_path(w, path));
    return need_group(w, path, strlen(path), &group);
}

gd_status gd_hdf5_writer_group(gd_hdf5_writer *w, const char *path) {
    if (w->failure) return failed_before(w);
    return keep(w, add_group(w, path));
}

/* --- datasets --------------------------------------------------------------------------------- */

/* Ends the open dataset; its elements must be complete. */
static gd_status end_dataset(gd_hdf5_writer *w) {
    const gd_hdf5_node *d = w->open;
    w->open = NULL;
    if (d && w->written != d->bytes)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: the dataset '%s' has %" PRIu64 " bytes, and %" PRIu64 " were written",
                       path_of(w), d->path, d->bytes, w->written);
    return GD_OK;
}

static gd_status check_array(const gd_hdf5_writer *w, const char *path, gd_dtype dtype, int rank,
                             const int64_t *dims, uint64_t *bytes) {
    int64_t count = (int64_t)gd_dtype_size(dtype);
    bool fits = true, zero = false;
    if (count == 0 || dtype == GD_BF16)
        return gd_fail(GD_E_DTYPE, "%s: '%s' is %s, a type that HDF5 does not have; f32 would fit",
                       path_of(w), path, gd_dtype_name(dtype));
    if (rank < 0 || rank > GD_HDF5_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "%s: '%s' has rank %d; HDF5 has at most %d", path_of(w), path,
                       rank, GD_HDF5_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return gd_fail(GD_E_SHAPE, "%s: dimension %d of '%s' is %" PRId64, path_of(w), i, path,
                           dims[i]);
        zero = zero || dims[i] == 0;
    }
    for (int i = 0; i < rank && fits && !zero; i++) fits = gd_mul_i64(count, dims[i], &count);
    *bytes = zero ? 0 : (uint64_t)count;
    return fits ? GD_OK
                : gd_fail(GD_E_OVERFLOW, "%s: '%s' has more than 2^63 bytes", path_of(w), path);
}

static gd_status pad(gd_hdf5_writer *w) {
    static const uint8_t zeros[ALIGNMENT];
    const size_t over = (size_t)(gd_file_writer_position(w->file) % ALIGNMENT);
    return over ? gd_file_writer_write(w->file, zeros, ALIGNMENT - over) : GD_OK;
}

/* Begins a dataset of so many bytes. */
static gd_status begin_data(gd_hdf5_writer *w, const char *path, const gd_hdf5_array *array,
                            uint64_t bytes) {
    gd_hdf5_node *group, *d;
    if (find_node(w, path) || strcmp(path, "/") == 0)
        return gd_fail(GD_E_ARGUMENT, "%s: there are two objects named '%s'", path_of(w), path);
    const size_t parent = (size_t)(strrchr(path, '/') - path);
    GD_TRY(need_group(w, path, parent ? parent : 1, &group));
    GD_TRY(pad(w));
    GD_TRY(add_node(w, path, strlen(path), group, &d));
    d->is_dataset = true;
    d->array = *array;
    d->bytes = bytes;
    d->data_at = gd_file_writer_position(w->file);
    w->open = d;
    w->written = 0;
    return GD_OK;
}

static gd_status begin_dataset(gd_hdf5_writer *w, const char *path, gd_dtype dtype, int rank,
                               const int64_t *dims) {
    uint64_t bytes;
    gd_hdf5_array array = {.dtype = dtype, .rank = rank};
    GD_TRY(end_dataset(w));
    GD_TRY(check_path(w, path));
    GD_TRY(check_array(w, path, dtype, rank, dims, &bytes));
    if (rank > 0) memcpy(array.dims, dims, (size_t)rank * sizeof *dims);
    return begin_data(w, path, &array, bytes);
}

gd_status gd_hdf5_writer_dataset(gd_hdf5_writer *w, const char *path, gd_dtype dtype, int rank,
                                 const int64_t *dims) {
    if (w->failure) return failed_before(w);
    return keep(w, begin_dataset(w, path, dtype, rank, dims));
}

gd_status gd_hdf5_writer_write(gd_hdf5_writer *w, const void *data, size_t bytes) {
    if (w->failure) return failed_before(w);
    if (!w->open || bytes > w->open->bytes - w->written)
        return keep(w, gd_fail(GD_E_ARGUMENT, "%s: more bytes than the dataset '%s' has",
                               path_of(w), w->open ? w->open->path : ""));
    w->written += bytes;
    return keep(w, gd_file_writer_write(w->file, data, bytes));
}

static gd_status begin_string(gd_hdf5_writer *w, const char *path, size_t bytes) {
    const gd_hdf5_array array = {.text = (uint32_t)bytes};
    GD_TRY(end_dataset(w));
    GD_TRY(check_path(w, path));
    if (bytes < GD_HDF5_ELSEWHERE) return begin_data(w, path, &array, bytes);
    return gd_fail(GD_E_UNSUPPORTED, "%s: '%s' has more than 4 GB", path_of(w), path);
}

gd_status gd_hdf5_writer_string(gd_hdf5_writer *w, const char *path, const char *text) {
    const size_t bytes = strlen(text) + 1;
    if (w->failure) return failed_before(w);
    const gd_status status = keep(w, begin_string(w, path, bytes));
    return status == GD_OK ? gd_hdf5_writer_write(w, text, bytes) : status;
}

/* --- attributes ------------------------------------------------------------------------------- */

/* Adds an attribute with a copy of its bytes to the object at a path. */
static gd_status add_attribute(gd_hdf5_writer *w, const char *path, const char *name,
                               gd_hdf5_array array, const void *data, size_t bytes) {
    gd_hdf5_node *node = find_node(w, path);
    if (!node && strcmp(path, "/") == 0) GD_TRY(need_group(w, path, 1, &node));
    if (!node)
        return gd_fail(GD_E_ARGUMENT, "%s: there is no group or dataset '%.200s' for '%.200s'",
                       path_of(w), path, name);
    const size_t length = strlen(name);
    if (length == 0 || length > 1000)
        return gd_fail(GD_E_ARGUMENT, "%s: the name of an attribute cannot have %zu bytes",
                       path_of(w), length);
    for (int i = 0; i < node->n_attributes; i++)
        if (strcmp(node->attributes[i].name, name) == 0)
            return gd_fail(GD_E_ARGUMENT, "%s: '%s' has two attributes named '%s'", path_of(w),
                           path, name);
    if (!gd_grow(node->attributes, node->n_attributes, node->attribute_room)) return fail_memory(w);
    gd_hdf5_written a = {.array = array, .bytes = bytes};
    a.name = gd_malloc(length + 1);
    a.data = gd_malloc(bytes + 1);
    if (!a.name || !a.data) {
        gd_free(a.name);
        gd_free(a.data);
        return fail_memory(w);
    }
    memcpy(a.name, name, length + 1);
    memcpy(a.data, data, bytes);
    node->attributes[node->n_attributes++] = a;
    return GD_OK;
}

static gd_status add_numbers(gd_hdf5_writer *w, const char *path, const char *name, gd_dtype dtype,
                             int rank, const int64_t *dims, const void *data) {
    uint64_t bytes;
    gd_hdf5_array array = {.dtype = dtype, .rank = rank};
    GD_TRY(check_array(w, name, dtype, rank, dims, &bytes));
    if (bytes > MOST_BYTES)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: the attribute '%s' of '%s' has %" PRIu64
                       " bytes, and at most %d are allowed; a dataset would fit",
                       path_of(w), name, path, bytes, MOST_BYTES);
    if (rank > 0) memcpy(array.dims, dims, (size_t)rank * sizeof *dims);
    return add_attribute(w, path, name, array, data, (size_t)bytes);
}

gd_status gd_hdf5_writer_attribute(gd_hdf5_writer *w, const char *path, const char *name,
                                   gd_dtype dtype, int rank, const int64_t *dims,
                                   const void *data) {
    if (w->failure) return failed_before(w);
    return keep(w, add_numbers(w, path, name, dtype, rank, dims, data));
}

static bool is_utf8(const char *text) {
    for (const char *end = text + strlen(text); text < end;) {
        const size_t bytes = gd_utf8_length(text, end);
        if (bytes == 0) return false;
        text += bytes;
    }
    return true;
}

/* A text of any length is elsewhere in the file (hdf5_write_tree.c): the data are the text. */
static gd_status add_text(gd_hdf5_writer *w, const char *path, const char *name, const char *text) {
    const gd_hdf5_array array = {.text = GD_HDF5_ELSEWHERE};
    if (!is_utf8(text))
        return gd_fail(GD_E_ARGUMENT, "%s: the attribute '%s' of '%s' is not UTF-8", path_of(w),
                       name, path);
    if (strlen(text) > UINT32_MAX - 64)
        return gd_fail(GD_E_UNSUPPORTED, "%s: the attribute '%s' of '%s' has more than 4 GB",
                       path_of(w), name, path);
    return add_attribute(w, path, name, array, text, strlen(text) + 1);
}

gd_status gd_hdf5_writer_text(gd_hdf5_writer *w, const char *path, const char *name,
                              const char *text) {
    if (w->failure) return failed_before(w);
    return keep(w, add_text(w, path, name, text));
}

/* Lists have strings of the length of the longest, as Keras writes names. If that is too large,
 * they are elsewhere in the file: the data are the texts, one after the other. */
static gd_status add_texts(gd_hdf5_writer *w, const char *path, const char *name,
                           const char *const *texts, size_t count) {
    size_t longest = 1, all = 0, fixed = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(texts[i]);
        if (!is_utf8(texts[i]))
            return gd_fail(GD_E_ARGUMENT, "%s: text %zu of the attribute '%s' of '%s' is not UTF-8",
                           path_of(w), i, name, path);
        if (length > longest) longest = length;
        all += length + 1;
    }
    const bool fits = gd_mul_size(longest, count, &fixed) && fixed <= MOST_BYTES;
    if (!fits && count > MOST_BYTES / GD_HDF5_REFERENCE_BYTES)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: the attribute '%s' of '%s' has %zu texts, more than an attribute can "
                       "hold; divide the list",
                       path_of(w), name, path, count);
    const gd_hdf5_array array = {
        .text = fits ? (uint32_t)longest : GD_HDF5_ELSEWHERE, .rank = 1, .dims = {(int64_t)count}};
    char *data = gd_calloc(1, (fits ? fixed : all) + 1), *at = data;
    if (!data) return fail_memory(w);
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(texts[i]);
        memcpy(at, texts[i], length);
        at += fits ? longest : length + 1;
    }
    const gd_status status = add_attribute(w, path, name, array, data, fits ? fixed : all);
    gd_free(data);
    return status;
}

gd_status gd_hdf5_writer_texts(gd_hdf5_writer *w, const char *path, const char *name,
                               const char *const *texts, size_t count) {
    if (w->failure) return failed_before(w);
    return keep(w, add_texts(w, path, name, texts, count));
}

/* --- the end ---------------------------------------------------------------------------------- */

static gd_status finish(gd_hdf5_writer *w) {
    gd_hdf5_node *root;
    if (w->failure) return failed_before(w);
    GD_TRY(end_dataset(w));
    GD_TRY(need_group(w, "/", 1, &root));
    GD_TRY(pad(w));
    return gd_hdf5_write_tree(w);
}

gd_status gd_hdf5_writer_commit(gd_hdf5_writer *w) {
    gd_status status = finish(w);
    if (status == GD_OK) {
        status = gd_file_writer_commit(w->file);
        w->file = NULL;
    }
    gd_hdf5_writer_cancel(w);
    return status;
}
