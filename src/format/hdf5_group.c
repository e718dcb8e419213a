/* hdf5_group.c - reads the names in a group. See hdf5_parts.h.
 *
 * Three ways to store them: a symbol table (a B-tree of version 1 whose leaves are lists of
 * entries, with the names in a local heap); link messages in the group's header; the same messages
 * in a fractal heap, which a B-tree of version 2 lists.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINK_HARD = 0,
    LINK_SOFT = 1,
    TREE_OF_NAMES = 5,
    TREE_GROUP = 0,  /* the type of a B-tree of version 1 */
    CACHED_SOFT = 2, /* the entry of a symbol table is a soft link */
    MAX_LEVEL = 32,
    HASH_BYTES = 4,
};

/* Copies a text. It is charged to the walk, because several entries may refer to the same bytes. */
static gd_status copy_text(gd_hdf5_walk *walk, const void *text, uint64_t bytes, char **out) {
    GD_TRY(gd_hdf5_spend(walk, 0, bytes));
    char *copy = gd_malloc((size_t)bytes + 1);
    if (!copy) return gd_hdf5_no_memory(walk->file);
    memcpy(copy, text, (size_t)bytes);
    copy[bytes] = '\0';
    *out = copy;
    return GD_OK;
}

/* A new link at the end of the list; its fields are empty. */
static gd_status add_link(gd_hdf5_links *links, const gd_hdf5 *file, gd_hdf5_link **out) {
    if (!gd_grow(links->at, links->count, links->room)) return gd_hdf5_no_memory(file);
    *out = &links->at[links->count++];
    **out = (gd_hdf5_link){.address = GD_HDF5_NOWHERE};
    return GD_OK;
}

/* --- symbol tables ---------------------------------------------------------------------------- */

typedef struct table {
    gd_hdf5_walk *walk;
    gd_hdf5_links *links;
    const uint8_t *heap; /* the bytes of the local heap */
    size_t heap_bytes;
} table;

static gd_status copy_from_heap(const table *t, uint64_t address, uint64_t at, char **out) {
    const uint8_t *text = at < t->heap_bytes ? t->heap + at : NULL;
    const uint8_t *zero = text ? memchr(text, '\0', t->heap_bytes - (size_t)at) : NULL;
    if (!zero) return gd_hdf5_fail_at(t->walk->file, address, "a name is outside of its heap");
    return copy_text(t->walk, text, (uint64_t)(zero - text), out);
}

static gd_status read_entry(const table *t, uint64_t address, gd_hdf5_cursor *c) {
    gd_hdf5_link *link;
    const uint64_t name = gd_hdf5_take_length(c);
    const uint64_t object = gd_hdf5_take_address(c), cached = gd_hdf5_take(c, 4);
    gd_hdf5_take(c, 4);
    const uint64_t value = gd_hdf5_take(c, 4);
    gd_hdf5_take_bytes(c, 12);
    if (c->ended) return gd_hdf5_fail_at(t->walk->file, address, "a list of names is too short");
    GD_TRY(add_link(t->links, t->walk->file, &link));
    GD_TRY(copy_from_heap(t, address, name, &link->name));
    if (cached == CACHED_SOFT) {
        link->type = LINK_SOFT;
        return copy_from_heap(t, address, value, &link->soft);
    }
    link->address = object;
    return GD_OK;
}

static gd_status read_leaf(const table *t, uint64_t address) {
    const gd_hdf5 *file = t->walk->file;
    uint8_t *node;
    GD_TRY(gd_hdf5_load(t->walk, address, 8, &node));
    const bool right = memcmp(node, "SNOD", 4) == 0 && node[4] == 1;
    const uint64_t count = gd_get_u16(node + 6);
    gd_free(node);
    if (!right) return gd_hdf5_fail_at(file, address, "expected 'SNOD'");
    const uint64_t bytes = count * (uint64_t)(file->length_bytes + file->offset_bytes + 24);
    GD_TRY(gd_hdf5_load(t->walk, address + 8, bytes, &node));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, node, (size_t)bytes);
    gd_status status = GD_OK;
    for (uint64_t i = 0; i < count && status == GD_OK; i++) status = read_entry(t, address, &c);
    gd_free(node);
    return status;
}

/* `level`: that which the node must have; -1: any. */
static gd_status read_node(const table *t, uint64_t address, int level) {
    const gd_hdf5 *file = t->walk->file;
    const uint64_t prefix = 8 + 2 * (uint64_t)file->offset_bytes;
    uint8_t *node;
    GD_TRY(gd_hdf5_load(t->walk, address, prefix, &node));
    const bool right = memcmp(node, "TREE", 4) == 0 && node[4] == TREE_GROUP &&
                       node[5] < MAX_LEVEL && (level < 0 || node[5] == level);
    const uint64_t count = gd_get_u16(node + 6);
    level = node[5];
    gd_free(node);
    if (!right) return gd_hdf5_fail_at(file, address, "there is no node of a group here");
    const uint64_t bytes = count * (uint64_t)(file->offset_bytes + file->length_bytes);
    GD_TRY(gd_hdf5_load(t->walk, address + prefix, bytes, &node));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, node, (size_t)bytes);
    gd_status status = GD_OK;
    for (uint64_t i = 0; i < count && status == GD_OK; i++) {
        gd_hdf5_take_length(&c); /* the name before those of the child */
        const uint64_t child = gd_hdf5_take_address(&c);
        status = level ? read_node(t, child, level - 1) : read_leaf(t, child);
    }
    gd_free(node);
    return status;
}

static gd_status read_symbol_table(gd_hdf5_links *links, gd_hdf5_walk *walk,
                                   const gd_hdf5_message *m) {
    const gd_hdf5 *file = walk->file;
    gd_hdf5_cursor c = gd_hdf5_message_cursor(file, m);
    const uint64_t tree = gd_hdf5_take_address(&c), heap = gd_hdf5_take_address(&c);
    if (c.ended) return gd_hdf5_fail_at(file, m->address, "a symbol table is damaged");
    const uint64_t prefix = 8 + 2 * (uint64_t)file->length_bytes + (uint64_t)file->offset_bytes;
    uint8_t *block;
    GD_TRY(gd_hdf5_load(walk, heap, prefix, &block));
    c = gd_hdf5_cursor_of(file, block + 8, (size_t)prefix - 8);
    const uint64_t bytes = gd_hdf5_take_length(&c);
    gd_hdf5_take_length(&c); /* free bytes */
    const uint64_t data = gd_hdf5_take_address(&c);
    const bool right = memcmp(block, "HEAP", 4) == 0 && block[4] == 0;
    gd_free(block);
    if (!right) return gd_hdf5_fail_at(file, heap, "expected 'HEAP'");
    GD_TRY(gd_hdf5_load(walk, data, bytes, &block));
    const table t = {walk, links, block, (size_t)bytes};
    const gd_status status = tree == GD_HDF5_NOWHERE ? GD_OK : read_node(&t, tree, -1);
    gd_free(block);
    return status;
}

/* --- links ------------------------------------------------------------------------------------ */

static gd_status read_link(gd_hdf5_links *links, gd_hdf5_walk *walk, uint64_t address,
                           gd_hdf5_cursor c) {
    const gd_hdf5 *file = walk->file;
    gd_hdf5_link *link;
    const int version = (int)gd_hdf5_take(&c, 1), flags = (int)gd_hdf5_take(&c, 1);
    const int type = flags >> 3 & 1 ? (int)gd_hdf5_take(&c, 1) : LINK_HARD;
    if (flags >> 2 & 1) gd_hdf5_take(&c, 8); /* its number, in the order of creation */
    if (flags >> 4 & 1) gd_hdf5_take(&c, 1); /* ASCII or UTF-8 */
    const uint64_t bytes = gd_hdf5_take(&c, 1 << (flags & 3));
    const uint8_t *name = gd_hdf5_take_bytes(&c, bytes);
    if (c.ended || version != 1 || bytes == 0)
        return gd_hdf5_fail_at(file, address, "a link is damaged");
    GD_TRY(add_link(links, file, &link));
    GD_TRY(copy_text(walk, name, bytes, &link->name));
    link->type = type;
    if (type == LINK_HARD) link->address = gd_hdf5_take_address(&c);
    if (type == LINK_SOFT) {
        const uint64_t length = gd_hdf5_take(&c, 2);
        const uint8_t *path = gd_hdf5_take_bytes(&c, length);
        if (path) GD_TRY(copy_text(walk, path, length, &link->soft));
    }
    return c.ended ? gd_hdf5_fail_at(file, address, "a link is too short") : GD_OK;
}

typedef struct dense {
    gd_hdf5_links *links;
    gd_hdf5_walk *walk;
    gd_hdf5_heap *heap;
    uint64_t address;
} dense;

static gd_status read_record(void *user, gd_hdf5_cursor *record) {
    const dense *d = user;
    gd_hdf5_cursor object;
    gd_hdf5_take(record, HASH_BYTES);
    GD_TRY(gd_hdf5_heap_find(d->heap, record, &object));
    return read_link(d->links, d->walk, d->address, object);
}

static gd_status read_dense(gd_hdf5_links *links, gd_hdf5_walk *walk, const gd_hdf5_message *m) {
    const gd_hdf5 *file = walk->file;
    gd_hdf5_cursor c = gd_hdf5_message_cursor(file, m);
    const int version = (int)gd_hdf5_take(&c, 1), flags = (int)gd_hdf5_take(&c, 1);
    if (flags & 1) gd_hdf5_take(&c, 8); /* the next number, in the order of creation */
    const uint64_t heap = gd_hdf5_take_address(&c), tree = gd_hdf5_take_address(&c);
    if (c.ended || version != 0) return gd_hdf5_fail_at(file, m->address, "a group is damaged");
    if (heap == GD_HDF5_NOWHERE || tree == GD_HDF5_NOWHERE) return GD_OK;
    dense d = {links, walk, NULL, heap};
    GD_TRY(gd_hdf5_heap_open(&d.heap, walk, heap));
    const gd_status status = gd_hdf5_tree_walk(walk, tree, TREE_OF_NAMES, read_record, &d);
    gd_hdf5_heap_close(d.heap);
    return status;
}

/* --- all -------------------------------------------------------------------------------------- */

static int compare_links(const void *a, const void *b) {
    return strcmp(((const gd_hdf5_link *)a)->name, ((const gd_hdf5_link *)b)->name);
}

static gd_status read_all(gd_hdf5_links *links, gd_hdf5_walk *walk, const gd_hdf5_header *header) {
    for (int i = 0; i < header->count; i++) {
        const gd_hdf5_message *m = &header->messages[i];
        if (m->flags & GD_HDF5_MESSAGE_SHARED) continue;
        if (m->type == GD_HDF5_MESSAGE_SYMBOL_TABLE) GD_TRY(read_symbol_table(links, walk, m));
        if (m->type == GD_HDF5_MESSAGE_LINK)
            GD_TRY(read_link(links, walk, m->address, gd_hdf5_message_cursor(walk->file, m)));
        if (m->type == GD_HDF5_MESSAGE_LINK_INFO) GD_TRY(read_dense(links, walk, m));
    }
    if (links->count > 1) qsort(links->at, (size_t)links->count, sizeof *links->at, compare_links);
    for (int i = 1; i < links->count; i++)
        if (strcmp(links->at[i - 1].name, links->at[i].name) == 0)
            return gd_fail(GD_E_FORMAT, "%s: a group has two objects named '%.200s'",
                           gd_file_reader_path(walk->file->file), links->at[i].name);
    return GD_OK;
}

gd_status gd_hdf5_links_read(gd_hdf5_links *out, gd_hdf5_walk *walk, const gd_hdf5_header *header) {
    *out = (gd_hdf5_links){0};
    const gd_status status = read_all(out, walk, header);
    if (status != GD_OK) gd_hdf5_links_free(out);
    return status;
}

void gd_hdf5_links_free(gd_hdf5_links *links) {
    for (int i = 0; i < links->count; i++) {
        gd_free(links->at[i].name);
        gd_free(links->at[i].soft);
    }
    gd_free(links->at);
    *links = (gd_hdf5_links){0};
}
