/* hdf5_attribute.c - reads attributes: messages in the header of their object, or in a fractal heap
 * that a B-tree of version 2 lists. See hdf5_parts.h.
 */
#include "core/alloc.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <string.h>

enum {
    TREE_OF_ATTRIBUTES = 8,
    FLAG_SHARED_TYPE = 1 << 0,
    FLAG_SHARED_SHAPE = 1 << 1,
};

/* The parts of a message: name, type and shape have a length each; in version 1 they are padded. */
static gd_status read_parts(gd_hdf5_attribute *a, char **name, uint8_t **data, gd_hdf5_walk *walk,
                            uint64_t address, gd_hdf5_cursor c) {
    const gd_hdf5 *file = walk->file;
    const int version = (int)gd_hdf5_take(&c, 1), flags = (int)gd_hdf5_take(&c, 1);
    uint64_t bytes[3];
    const uint8_t *parts[3];
    for (int i = 0; i < 3; i++) bytes[i] = gd_hdf5_take(&c, 2);
    if (version == 3) gd_hdf5_take(&c, 1); /* ASCII or UTF-8 */
    for (int i = 0; i < 3; i++)
        parts[i] = gd_hdf5_take_bytes(&c, version == 1 ? (bytes[i] + 7) / 8 * 8 : bytes[i]);
    if (c.ended || version < 1 || version > 3 || bytes[0] == 0)
        return gd_hdf5_fail_at(file, address, "an attribute is damaged");
    gd_hdf5_cursor type = gd_hdf5_cursor_of(file, parts[1], (size_t)bytes[1]);
    gd_hdf5_cursor shape = gd_hdf5_cursor_of(file, parts[2], (size_t)bytes[2]);
    GD_TRY(gd_hdf5_type_read(&a->type, walk, address, &type,
                             version > 1 && (flags & FLAG_SHARED_TYPE)));
    if (version > 1 && (flags & FLAG_SHARED_SHAPE))
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: an attribute has a shared shape, which is not supported",
                       gd_file_reader_path(file->file));
    GD_TRY(gd_hdf5_shape_read(&a->shape, NULL, address, &shape, a->type.bytes));
    const uint64_t all = (uint64_t)a->shape.count * a->type.bytes;
    if (all > gd_hdf5_left(&c))
        return gd_hdf5_fail_at(file, address, "an attribute has less data than its shape");
    GD_TRY(gd_hdf5_spend(walk, address, bytes[0] + all));
    *name = gd_malloc((size_t)bytes[0] + 1);
    *data = gd_malloc((size_t)all + 1);
    if (!*name || !*data) return gd_hdf5_no_memory(file);
    memcpy(*name, parts[0], (size_t)bytes[0]);
    (*name)[bytes[0]] = '\0';
    memcpy(*data, c.at, (size_t)all);
    return GD_OK;
}

static gd_status read_attribute(gd_hdf5_attributes *list, gd_hdf5_walk *walk, uint64_t address,
                                gd_hdf5_cursor c) {
    gd_hdf5_attribute a = {0};
    char *name = NULL;
    uint8_t *data = NULL;
    gd_status status = read_parts(&a, &name, &data, walk, address, c);
    if (status == GD_OK && !gd_grow(list->at, list->count, list->room))
        status = gd_hdf5_no_memory(walk->file);
    if (status == GD_OK) {
        a.name = name;
        a.data = data;
        list->at[list->count++] = a;
    } else {
        gd_free(name);
        gd_free(data);
    }
    return status;
}

typedef struct dense {
    gd_hdf5_attributes *list;
    gd_hdf5_walk *walk;
    gd_hdf5_heap *heap;
    uint64_t address;
} dense;

static gd_status fail_shared(const gd_hdf5 *file) {
    return gd_fail(GD_E_UNSUPPORTED, "%s: an attribute is a shared message, which is not supported",
                   gd_file_reader_path(file->file));
}

static gd_status read_record(void *user, gd_hdf5_cursor *record) {
    const dense *d = user;
    gd_hdf5_cursor object;
    GD_TRY(gd_hdf5_heap_find(d->heap, record, &object));
    if (gd_hdf5_take(record, 1) & GD_HDF5_MESSAGE_SHARED) return fail_shared(d->walk->file);
    return read_attribute(d->list, d->walk, d->address, object);
}

static gd_status read_dense(gd_hdf5_attributes *list, gd_hdf5_walk *walk,
                            const gd_hdf5_message *m) {
    const gd_hdf5 *file = walk->file;
    gd_hdf5_cursor c = gd_hdf5_message_cursor(file, m);
    const int version = (int)gd_hdf5_take(&c, 1), flags = (int)gd_hdf5_take(&c, 1);
    if (flags & 1) gd_hdf5_take(&c, 2); /* the next number, in the order of creation */
    const uint64_t heap = gd_hdf5_take_address(&c), tree = gd_hdf5_take_address(&c);
    if (c.ended || version != 0)
        return gd_hdf5_fail_at(file, m->address, "the list of attributes is damaged");
    if (heap == GD_HDF5_NOWHERE || tree == GD_HDF5_NOWHERE) return GD_OK;
    dense d = {list, walk, NULL, heap};
    GD_TRY(gd_hdf5_heap_open(&d.heap, walk, heap));
    const gd_status status = gd_hdf5_tree_walk(walk, tree, TREE_OF_ATTRIBUTES, read_record, &d);
    gd_hdf5_heap_close(d.heap);
    return status;
}

static gd_status read_all(gd_hdf5_attributes *list, gd_hdf5_walk *walk,
                          const gd_hdf5_header *header) {
    for (int i = 0; i < header->count; i++) {
        const gd_hdf5_message *m = &header->messages[i];
        if (m->type == GD_HDF5_MESSAGE_ATTRIBUTE) {
            if (m->flags & GD_HDF5_MESSAGE_SHARED) return fail_shared(walk->file);
            GD_TRY(read_attribute(list, walk, m->address, gd_hdf5_message_cursor(walk->file, m)));
        }
        if (m->type == GD_HDF5_MESSAGE_ATTRIBUTE_INFO) GD_TRY(read_dense(list, walk, m));
    }
    return GD_OK;
}

gd_status gd_hdf5_attributes_read(gd_hdf5_attributes *out, gd_hdf5_walk *walk,
                                  const gd_hdf5_header *header) {
    *out = (gd_hdf5_attributes){0};
    const gd_status status = read_all(out, walk, header);
    if (status != GD_OK) gd_hdf5_attributes_free(out);
    return status;
}

void gd_hdf5_attributes_free(gd_hdf5_attributes *list) {
    for (int i = 0; i < list->count; i++) {
        gd_free((void *)list->at[i].name);
        gd_free((void *)list->at[i].data);
    }
    gd_free(list->at);
    *list = (gd_hdf5_attributes){0};
}

/* --- for users -------------------------------------------------------------------------------- */

const gd_hdf5_attribute *gd_hdf5_find_attribute(const gd_hdf5_object *object, const char *name) {
    for (size_t i = 0; i < object->n_attributes; i++)
        if (strcmp(object->attributes[i].name, name) == 0) return &object->attributes[i];
    return NULL;
}

gd_status gd_hdf5_read_attribute(const gd_hdf5_object *object, const char *name, gd_dtype dtype,
                                 int64_t count, void *out) {
    const gd_hdf5_attribute *a = gd_hdf5_find_attribute(object, name);
    const char *path = gd_file_reader_path(object->file->file);
    if (!a)
        return gd_fail(GD_E_ARGUMENT, "%s: '%s' has no attribute '%s'", path, object->path, name);
    GD_TRY(gd_hdf5_check_type(object, name, &a->type, true));
    if (a->shape.count != count)
        return gd_fail(GD_E_SHAPE,
                       "%s: the attribute '%s' of '%s' has %" PRId64 " numbers; expected %" PRId64,
                       path, name, object->path, a->shape.count, count);
    gd_hdf5_convert(&a->type, a->data, count, dtype, out);
    return GD_OK;
}
