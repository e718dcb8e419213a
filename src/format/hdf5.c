/* hdf5.c - opens HDF5 files and the objects in them. See hdf5.h and hdf5_parts.h. */
#include "core/alloc.h"
#include "core/error.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIGNATURE_BYTES = 8,
    SUPERBLOCK_MOST = 128,    /* bytes of any superblock, with 8 bytes for each address */
    MAX_SOFT_LINKS = 16,      /* that are followed one after the other */
    MAX_PATH_BYTES = 1 << 16, /* of an object, in a file whose links run in a circle */
};
static const uint8_t signature[SIGNATURE_BYTES] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

/* --- the superblock --------------------------------------------------------------------------- */

/* Finds the signature, which is at 0, 512, 1024, 2048, ... */
static bool find_signature(const gd_file_reader *file, uint64_t *at) {
    const uint64_t size = gd_file_reader_size(file);
    for (uint64_t where = 0; where < size && size - where >= SIGNATURE_BYTES;
         where = where ? 2 * where : 512) {
        uint8_t bytes[SIGNATURE_BYTES];
        if (gd_file_reader_read_at(file, where, bytes, sizeof bytes) != GD_OK) return false;
        *at = where;
        if (memcmp(bytes, signature, sizeof bytes) == 0) return true;
        if (where > size / 2) break;
    }
    return false;
}

bool gd_hdf5_is(const gd_file_reader *file) {
    uint64_t at;
    return find_signature(file, &at);
}

/* Versions 0 and 1, up to the addresses: the base, free space, the end, a driver; then the entry of
 * the root: a name, the object. */
static void read_old(gd_hdf5 *f, gd_hdf5_cursor *c, int version) {
    gd_hdf5_take(c, 4); /* versions of parts that are 0 in all files */
    f->offset_bytes = (int)gd_hdf5_take(c, 1);
    f->length_bytes = (int)gd_hdf5_take(c, 1);
    gd_hdf5_take_bytes(c, 1 + 4 + 4); /* sizes of nodes, flags */
    if (version == 1) gd_hdf5_take(c, 4);
}

static bool is_width(int bytes) { return bytes == 2 || bytes == 4 || bytes == 8; }

static gd_status read_superblock(gd_hdf5 *f, uint64_t at) {
    const uint64_t left = gd_file_reader_size(f->file) - at;
    uint8_t block[SUPERBLOCK_MOST];
    const size_t bytes = left < sizeof block ? (size_t)left : sizeof block;
    GD_TRY(gd_file_reader_read_at(f->file, at, block, bytes));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(f, block + SIGNATURE_BYTES, bytes - SIGNATURE_BYTES);
    const int version = (int)gd_hdf5_take(&c, 1);
    f->size = left;
    f->base = at;
    if (version > 3)
        return gd_fail(GD_E_UNSUPPORTED, "%s: it has the HDF5 superblock %d; 0 to 3 are supported",
                       gd_file_reader_path(f->file), version);
    if (version < 2) read_old(f, &c, version);
    else {
        f->offset_bytes = (int)gd_hdf5_take(&c, 1);
        f->length_bytes = (int)gd_hdf5_take(&c, 1);
        gd_hdf5_take(&c, 1); /* flags */
    }
    if (!is_width(f->offset_bytes) || !is_width(f->length_bytes))
        return gd_hdf5_fail_at(f, 0, "the superblock is damaged");
    gd_hdf5_take_address(&c); /* the base; a program may have put bytes before it since */
    for (int i = 0; i < (version < 2 ? 3 : 2); i++) gd_hdf5_take_address(&c);
    if (version < 2) gd_hdf5_take_length(&c); /* where the root's name would be */
    f->root_address = gd_hdf5_take_address(&c);
    const size_t used = bytes - gd_hdf5_left(&c);
    if (c.ended) return gd_hdf5_fail_at(f, 0, "the superblock is damaged");
    if (version >= 2) GD_TRY(gd_hdf5_verify(f, 0, block, used + 4 <= bytes ? used + 4 : 0));
    return GD_OK;
}

/* --- objects ---------------------------------------------------------------------------------- */

static gd_status read_dataset(gd_hdf5_full_object *d, gd_hdf5_walk *walk,
                              const gd_hdf5_header *header) {
    const gd_hdf5 *file = walk->file;
    gd_hdf5_object *o = &d->object;
    uint64_t most[GD_HDF5_MAX_RANK];
    const gd_hdf5_message *type = gd_hdf5_find_message(header, GD_HDF5_MESSAGE_TYPE);
    const gd_hdf5_message *shape = gd_hdf5_find_message(header, GD_HDF5_MESSAGE_SPACE);
    if (!type || !shape || (shape->flags & GD_HDF5_MESSAGE_SHARED))
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: '%s' is neither a group nor a dataset (a type with a name, or a "
                       "dataset with shared messages), which is not supported",
                       gd_file_reader_path(file->file), o->path);
    gd_hdf5_cursor c = gd_hdf5_message_cursor(file, type);
    GD_TRY(
        gd_hdf5_type_read(&o->type, walk, type->address, &c, type->flags & GD_HDF5_MESSAGE_SHARED));
    c = gd_hdf5_message_cursor(file, shape);
    GD_TRY(gd_hdf5_shape_read(&o->shape, most, shape->address, &c, o->type.bytes));
    return gd_hdf5_storage_read(d, walk, header, most);
}

static gd_status read_parts(gd_hdf5_full_object *full, gd_hdf5_walk *walk,
                            const gd_hdf5_header *header) {
    gd_hdf5_object *o = &full->object;
    GD_TRY(gd_hdf5_attributes_read(&full->attributes, walk, header));
    o->attributes = full->attributes.at;
    o->n_attributes = (size_t)full->attributes.count;
    o->is_group = gd_hdf5_find_message(header, GD_HDF5_MESSAGE_SYMBOL_TABLE) ||
                  gd_hdf5_find_message(header, GD_HDF5_MESSAGE_LINK_INFO) ||
                  gd_hdf5_find_message(header, GD_HDF5_MESSAGE_LINK) ||
                  gd_hdf5_find_message(header, GD_HDF5_MESSAGE_GROUP_INFO);
    if (!o->is_group) return read_dataset(full, walk, header);
    GD_TRY(gd_hdf5_links_read(&full->links, walk, header));
    const char **names = gd_malloc((size_t)full->links.count * sizeof *names + 1);
    if (!names) return gd_hdf5_no_memory(walk->file);
    for (int i = 0; i < full->links.count; i++) names[i] = full->links.at[i].name;
    o->names = names;
    o->n_names = (size_t)full->links.count;
    return GD_OK;
}

/* Opens the object at an address. Takes the path, from gd_malloc. */
static gd_status open_at(gd_hdf5_object **out, const gd_hdf5 *file, char *path, uint64_t address) {
    gd_hdf5_full_object *full = gd_calloc(1, sizeof *full);
    gd_hdf5_walk walk = gd_hdf5_walk_begin(file);
    gd_hdf5_header header = {0};
    *out = NULL;
    if (!full) {
        gd_free(path);
        return gd_hdf5_no_memory(file);
    }
    full->object.file = file;
    full->object.path = path;
    full->object.address = address;
    gd_status status = gd_hdf5_header_read(&header, &walk, address);
    if (status == GD_OK) status = read_parts(full, &walk, &header);
    gd_hdf5_header_free(&header);
    if (status == GD_OK) *out = &full->object;
    else gd_hdf5_object_close(&full->object);
    return status;
}

void gd_hdf5_object_close(gd_hdf5_object *object) {
    if (!object) return;
    gd_hdf5_full_object *full = (gd_hdf5_full_object *)object;
    gd_hdf5_links_free(&full->links);
    gd_hdf5_attributes_free(&full->attributes);
    gd_hdf5_storage_free(&full->storage);
    gd_free((void *)object->names);
    gd_free((void *)object->path);
    gd_free(full);
}

/* --- paths ------------------------------------------------------------------------------------ */

static const gd_hdf5_link *find_link(const gd_hdf5_object *group, const char *name, size_t length) {
    const gd_hdf5_links *links = &((const gd_hdf5_full_object *)group)->links;
    int low = 0, high = links->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        const char *other = links->at[middle].name;
        int order = strncmp(other, name, length);
        if (order == 0) order = other[length] != '\0';
        if (order == 0) return &links->at[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

bool gd_hdf5_has(const gd_hdf5_object *group, const char *name) {
    return group->is_group && find_link(group, name, strlen(name)) != NULL;
}

static gd_status fail_missing(const gd_hdf5_object *group, const char *name, size_t length) {
    char names[400] = "";
    size_t used = 0, shown = 0;
    const char *path = gd_file_reader_path(group->file->file);
    for (; shown < group->n_names && used < sizeof names - 100; shown++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s'%.60s'", shown ? ", " : "",
                                 group->names[shown]);
    if (!group->is_group)
        return gd_fail(GD_E_ARGUMENT, "%s: '%s' is a dataset, which has no '%.*s' in it", path,
                       group->path, (int)length, name);
    return gd_fail(GD_E_ARGUMENT, "%s: the group '%s' has no '%.*s'; it has %s%s", path,
                   group->path, (int)length, name, group->n_names ? names : "nothing",
                   shown < group->n_names ? ", ..." : "");
}

static gd_status open_path(gd_hdf5_object **out, const gd_hdf5_object *from, const char *path,
                           int links_left);

/* Opens what a link of a group leads to. */
static gd_status open_link(gd_hdf5_object **out, const gd_hdf5_object *group,
                           const gd_hdf5_link *link, int links_left) {
    const char *file = gd_file_reader_path(group->file->file);
    const char *slash = strcmp(group->path, "/") == 0 ? "" : "/";
    const size_t bytes = strlen(group->path) + 1 + strlen(link->name) + 1;
    if (link->soft) {
        if (links_left == 0)
            return gd_fail(GD_E_FORMAT, "%s: the links at '%s%s%.200s' run in a circle", file,
                           group->path, slash, link->name);
        return open_path(out, group, link->soft, links_left - 1);
    }
    if (link->type != 0)
        return gd_fail(GD_E_UNSUPPORTED, "%s: '%s%s%.200s' is %s, which is not supported", file,
                       group->path, slash, link->name,
                       link->type == 64 ? "a link to another file" : "a link of a program");
    if (bytes > MAX_PATH_BYTES)
        return gd_fail(GD_E_UNSUPPORTED, "%s: a path of %zu bytes is not supported", file, bytes);
    char *path = gd_malloc(bytes);
    if (!path) return gd_hdf5_no_memory(group->file);
    snprintf(path, bytes, "%s%s%s", group->path, slash, link->name);
    return open_at(out, group->file, path, link->address);
}

/* Follows a path name by name; each group on the way is closed again. */
static gd_status open_path(gd_hdf5_object **out, const gd_hdf5_object *from, const char *path,
                           int links_left) {
    const gd_hdf5_object *group = path[0] == '/' ? from->file->root : from;
    gd_hdf5_object *opened = NULL;
    *out = NULL;
    for (;;) {
        path += strspn(path, "/");
        const size_t length = strcspn(path, "/");
        if (length == 0) break;
        if (length == 1 && path[0] == '.') { /* the group itself */
            path += length;
            continue;
        }
        const gd_hdf5_link *link = group->is_group ? find_link(group, path, length) : NULL;
        gd_hdf5_object *next = NULL;
        const gd_status status =
            link ? open_link(&next, group, link, links_left) : fail_missing(group, path, length);
        gd_hdf5_object_close(opened);
        GD_TRY(status);
        group = opened = next;
        path += length;
    }
    if (opened) {
        *out = opened;
        return GD_OK;
    }
    char *copy = gd_malloc(strlen(group->path) + 1);
    if (!copy) return gd_hdf5_no_memory(from->file);
    strcpy(copy, group->path);
    return open_at(out, group->file, copy, group->address);
}

gd_status gd_hdf5_object_open(gd_hdf5_object **out, const gd_hdf5_object *from, const char *path) {
    return open_path(out, from, path, MAX_SOFT_LINKS);
}

/* --- files ------------------------------------------------------------------------------------ */

static gd_status open_root(gd_hdf5 *f) {
    uint64_t at;
    if (!find_signature(f->file, &at))
        return gd_fail(GD_E_FORMAT, "%s: is not an HDF5 file", gd_file_reader_path(f->file));
    GD_TRY(read_superblock(f, at));
    char *path = gd_malloc(2);
    if (!path) return gd_hdf5_no_memory(f);
    strcpy(path, "/");
    GD_TRY(open_at(&f->root, f, path, f->root_address));
    return f->root->is_group ? GD_OK : gd_hdf5_fail_at(f, f->root_address, "the root is no group");
}

gd_status gd_hdf5_open(gd_hdf5 **out, const gd_file_reader *file) {
    *out = NULL;
    gd_hdf5 *f = gd_calloc(1, sizeof *f);
    if (!f) return gd_file_no_memory(gd_file_reader_path(file));
    f->file = file;
    const gd_status status = open_root(f);
    if (status == GD_OK) *out = f;
    else gd_hdf5_close(f);
    return status;
}

void gd_hdf5_close(gd_hdf5 *f) {
    if (!f) return;
    gd_hdf5_object_close(f->root);
    gd_free(f);
}

const gd_hdf5_object *gd_hdf5_root(const gd_hdf5 *f) { return f->root; }
