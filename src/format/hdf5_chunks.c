/* hdf5_chunks.c - lists the chunks of a dataset: B-trees of both versions, a single chunk. See
 * hdf5_parts.h.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    TREE_CHUNKS = 1, /* the type of a B-tree of version 1 */
    TREE_PLAIN = 10, /* types of those of version 2 */
    TREE_FILTERED = 11,
    MAX_LEVEL = 32,
};

gd_status gd_hdf5_chunk_add(gd_hdf5_full_object *dataset, const uint64_t *cell,
                            const gd_hdf5_chunk *chunk) {
    gd_hdf5_storage *s = &dataset->storage;
    const gd_hdf5 *file = dataset->object.file;
    gd_hdf5_chunk c = *chunk;
    if (c.address == GD_HDF5_NOWHERE) return GD_OK;
    c.index = 0;
    for (int i = 0; i < dataset->object.shape.rank; i++) {
        if (cell[i] >= s->grid[i]) return GD_OK; /* left over from a larger shape */
        c.index = c.index * s->grid[i] + cell[i];
    }
    if (c.address > file->size || c.bytes > file->size - c.address)
        return gd_hdf5_fail_at(file, dataset->object.address,
                               "a chunk reaches beyond the end of the file (truncated?)");
    if (!gd_grow(s->chunks, s->n_chunks, s->chunk_room)) return gd_hdf5_no_memory(file);
    s->chunks[s->n_chunks++] = c;
    return GD_OK;
}

/* --- version 1 -------------------------------------------------------------------------------- */

/* A node has entries of a key and a child; a key has the size of the chunk, the skipped filters,
 * and the position of its first element, with a 0 for the bytes in an element. `level`: that which
 * the node must have; -1: any. */
static gd_status read_node(gd_hdf5_full_object *d, gd_hdf5_walk *walk, uint64_t address,
                           int level) {
    const gd_hdf5 *file = walk->file;
    const int rank = d->object.shape.rank;
    const uint64_t prefix = 8 + 2 * (uint64_t)file->offset_bytes;
    uint8_t *node;
    GD_TRY(gd_hdf5_load(walk, address, prefix, &node));
    const bool right = memcmp(node, "TREE", 4) == 0 && node[4] == TREE_CHUNKS &&
                       node[5] < MAX_LEVEL && (level < 0 || node[5] == level);
    const uint64_t count = gd_get_u16(node + 6);
    level = node[5];
    gd_free(node);
    if (!right) return gd_hdf5_fail_at(file, address, "there is no node of chunks here");
    const uint64_t bytes = count * (uint64_t)(8 + 8 * (rank + 1) + file->offset_bytes);
    GD_TRY(gd_hdf5_load(walk, address + prefix, bytes, &node));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, node, (size_t)bytes);
    gd_status status = GD_OK;
    for (uint64_t i = 0; i < count && status == GD_OK; i++) {
        uint64_t cell[GD_HDF5_MAX_RANK];
        gd_hdf5_chunk chunk = {0};
        chunk.bytes = gd_hdf5_take(&c, 4);
        chunk.skipped = (uint32_t)gd_hdf5_take(&c, 4);
        bool fits = true;
        for (int k = 0; k < rank; k++) {
            const uint64_t at = gd_hdf5_take(&c, 8);
            cell[k] = at / d->storage.chunk[k];
            fits = fits && at % d->storage.chunk[k] == 0;
        }
        gd_hdf5_take(&c, 8);
        chunk.address = gd_hdf5_take_address(&c);
        if (level > 0) status = read_node(d, walk, chunk.address, level - 1);
        else if (!fits) status = gd_hdf5_fail_at(file, address, "a chunk is beside the grid");
        else status = gd_hdf5_chunk_add(d, cell, &chunk);
    }
    gd_free(node);
    return status;
}

/* --- version 2 -------------------------------------------------------------------------------- */

typedef struct tree {
    gd_hdf5_full_object *dataset;
    bool filtered;
} tree;

static gd_status read_record(void *user, gd_hdf5_cursor *record) {
    const tree *t = user;
    const int rank = t->dataset->object.shape.rank;
    uint64_t cell[GD_HDF5_MAX_RANK];
    gd_hdf5_chunk chunk = {.bytes = t->dataset->storage.chunk_bytes};
    chunk.address = gd_hdf5_take_address(record);
    if (t->filtered) { /* the width of the size follows from that of the record */
        const size_t others = 4 + 8 * (size_t)rank, left = gd_hdf5_left(record);
        if (left <= others || left - others > 8) {
            record->ended = true;
            return GD_OK;
        }
        chunk.bytes = gd_hdf5_take(record, (int)(left - others));
        chunk.skipped = (uint32_t)gd_hdf5_take(record, 4);
    }
    for (int i = 0; i < rank; i++) cell[i] = gd_hdf5_take(record, 8);
    return record->ended ? GD_OK : gd_hdf5_chunk_add(t->dataset, cell, &chunk);
}

/* --- all -------------------------------------------------------------------------------------- */

static int compare_chunks(const void *a, const void *b) {
    const uint64_t x = ((const gd_hdf5_chunk *)a)->index, y = ((const gd_hdf5_chunk *)b)->index;
    return (x > y) - (x < y);
}

gd_status gd_hdf5_chunks_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                              const gd_hdf5_index *index) {
    gd_hdf5_storage *s = &dataset->storage;
    const uint64_t origin[GD_HDF5_MAX_RANK] = {0};
    const gd_hdf5_chunk single = {0, s->address, index->single_bytes, index->single_skipped};
    tree t = {dataset, s->n_filters > 0};
    gd_status status = GD_OK;
    switch (index->kind) {
    case 0: status = read_node(dataset, walk, s->address, -1); break;
    case 1: status = gd_hdf5_chunk_add(dataset, origin, &single); break;
    case 2: status = gd_hdf5_implicit_read(dataset, walk, index); break;
    case 3: status = gd_hdf5_fixed_array_read(dataset, walk, index); break;
    case 4: status = gd_hdf5_extensible_array_read(dataset, walk, index); break;
    default:
        status = gd_hdf5_tree_walk(walk, s->address, t.filtered ? TREE_FILTERED : TREE_PLAIN,
                                   read_record, &t);
    }
    GD_TRY(status);
    if (s->n_chunks > 1) qsort(s->chunks, (size_t)s->n_chunks, sizeof *s->chunks, compare_chunks);
    for (int i = 1; i < s->n_chunks; i++)
        if (s->chunks[i - 1].index == s->chunks[i].index)
            return gd_hdf5_fail_at(walk->file, dataset->object.address,
                                   "two chunks have the same place");
    return GD_OK;
}
