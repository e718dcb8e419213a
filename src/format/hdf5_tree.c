/* hdf5_tree.c - walks B-trees of version 2. See hdf5_parts.h.
 *
 * A node of depth 0 has records. Another one has n records and n + 1 children; for each child its
 * address, the number of records in it, and (depth 2 and more) in all nodes below it. All nodes of
 * a tree have the same size, from which the widths of these numbers follow.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "format/hdf5_parts.h"

#include <string.h>

enum {
    MAX_DEPTH = 32,
    HEADER_FIXED = 4 + 1 + 1 + 4 + 2 + 2 + 1 + 1 + 2 + 4, /* without an address and a length */
    NODE_FIXED = 4 + 1 + 1 + 4,                           /* signature ... checksum */
};

typedef struct tree {
    gd_hdf5_walk *walk;
    gd_hdf5_record_fn visit;
    void *user;
    int type;
    uint64_t node_bytes, record_bytes;
    int count_bytes;                /* of the number of records in a node */
    int total_bytes[MAX_DEPTH + 1]; /* of those below a node of this depth */
} tree;

/* Computes the widths of numbers in nodes of each depth; false: the node has no room. */
static bool find_widths(tree *t, int depth) {
    const uint64_t room = t->node_bytes - NODE_FIXED;
    uint64_t most = room / t->record_bytes, total = most;
    t->count_bytes = gd_hdf5_width_of(most);
    t->total_bytes[0] = 0;
    for (int d = 1; d <= depth; d++) {
        const uint64_t pointer = (uint64_t)t->walk->file->offset_bytes + (uint64_t)t->count_bytes +
                                 (uint64_t)t->total_bytes[d - 1];
        if (room < pointer) return false;
        most = (room - pointer) / (t->record_bytes + pointer);
        if (__builtin_mul_overflow(total, most + 1, &total) ||
            __builtin_add_overflow(total, most, &total))
            total = UINT64_MAX;
        t->total_bytes[d] = gd_hdf5_width_of(total);
    }
    return true;
}

static gd_status walk_node(tree *t, uint64_t address, uint64_t count, int depth);

/* The records and children of a node, from its first record on. */
static gd_status walk_records(tree *t, uint64_t address, gd_hdf5_cursor c, uint64_t count,
                              int depth) {
    gd_hdf5_cursor child = c;
    gd_hdf5_take_bytes(&child, count * t->record_bytes);
    for (uint64_t i = 0; i <= count; i++) {
        if (depth > 0) {
            const uint64_t at = gd_hdf5_take_address(&child);
            const uint64_t n = gd_hdf5_take(&child, t->count_bytes);
            if (depth > 1) gd_hdf5_take(&child, t->total_bytes[depth - 1]);
            if (child.ended) return gd_hdf5_fail_at(t->walk->file, address, "a node is too small");
            GD_TRY(walk_node(t, at, n, depth - 1));
        }
        if (i == count) break;
        const uint8_t *record = gd_hdf5_take_bytes(&c, t->record_bytes);
        if (!record) return gd_hdf5_fail_at(t->walk->file, address, "a node is too small");
        gd_hdf5_cursor r = gd_hdf5_cursor_of(c.file, record, (size_t)t->record_bytes);
        GD_TRY(t->visit(t->user, &r));
        if (r.ended) return gd_hdf5_fail_at(t->walk->file, address, "a record is too short");
    }
    return GD_OK;
}

/* The checksum follows the last record or child, not the end of the node. */
static gd_status walk_node(tree *t, uint64_t address, uint64_t count, int depth) {
    const gd_hdf5 *file = t->walk->file;
    const char *signature = depth ? "BTIN" : "BTLF";
    uint8_t *node;
    uint64_t used = NODE_FIXED + count * t->record_bytes;
    if (depth > 0)
        used += (count + 1) * (uint64_t)(file->offset_bytes + t->count_bytes +
                                         (depth > 1 ? t->total_bytes[depth - 1] : 0));
    if (used > t->node_bytes) return gd_hdf5_fail_at(file, address, "a node has too many records");
    GD_TRY(gd_hdf5_load(t->walk, address, t->node_bytes, &node));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, node + 6, (size_t)used - 6 - 4);
    gd_status status = GD_OK;
    if (memcmp(node, signature, 4) != 0 || node[4] != 0 || node[5] != t->type)
        status = gd_hdf5_fail_at(file, address, "there is no node of the tree here");
    if (status == GD_OK) status = gd_hdf5_verify(file, address, node, (size_t)used);
    if (status == GD_OK) status = walk_records(t, address, c, count, depth);
    gd_free(node);
    return status;
}

gd_status gd_hdf5_tree_walk(gd_hdf5_walk *walk, uint64_t address, int type, gd_hdf5_record_fn visit,
                            void *user) {
    const gd_hdf5 *file = walk->file;
    uint8_t *header;
    tree t = {.walk = walk, .visit = visit, .user = user, .type = type};
    const uint64_t bytes = (uint64_t)(HEADER_FIXED + file->offset_bytes + file->length_bytes);
    GD_TRY(gd_hdf5_load_checked(walk, address, bytes, "BTHD", &header));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, header + 5, (size_t)bytes - 5);
    const int found = (int)gd_hdf5_take(&c, 1);
    t.node_bytes = gd_hdf5_take(&c, 4);
    t.record_bytes = gd_hdf5_take(&c, 2);
    const int depth = (int)gd_hdf5_take(&c, 2);
    gd_hdf5_take(&c, 2); /* when to split and merge nodes */
    const uint64_t root = gd_hdf5_take_address(&c), count = gd_hdf5_take(&c, 2);
    gd_free(header);
    if (found != type || depth > MAX_DEPTH || t.record_bytes == 0 ||
        t.node_bytes < NODE_FIXED + t.record_bytes || !find_widths(&t, depth))
        return gd_hdf5_fail_at(file, address, "a tree is damaged");
    return root == GD_HDF5_NOWHERE || (count == 0 && depth == 0)
               ? GD_OK
               : walk_node(&t, root, count, depth);
}
