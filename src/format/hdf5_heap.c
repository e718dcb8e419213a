/* hdf5_heap.c - fractal heaps, which hold the links and attributes of large objects. See
 * hdf5_parts.h.
 *
 * The heap is an address space of blocks in rows: `width` blocks in each, those of rows 0 and 1 of
 * the starting size, those of row r of 2^(r-1) times that. Rows of blocks up to the largest direct
 * size are direct blocks, with objects in them; later rows are indirect blocks, each with the same
 * table inside. An ID of an object is its offset and length, or (huge objects) a key of a B-tree,
 * or (tiny objects) the object itself.
 */
#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"
#include "format/bytes.h"
#include "format/hdf5_parts.h"

#include <string.h>

enum {
    HEADER_FIXED = 26, /* without 3 addresses and 12 lengths */
    FLAG_CHECKSUMS = 1 << 1,
    TREE_OF_HUGE = 1,
    TINY_SHORT = 16, /* the longest object that has its length in 4 bits */
};

typedef struct block {
    uint64_t offset, bytes;
    uint8_t *data;
} block;

typedef struct huge {
    uint64_t id, address, bytes;
} huge;

struct gd_hdf5_heap {
    gd_hdf5_walk *walk;
    uint64_t address;
    int id_bytes, offset_bytes, length_bytes;
    bool checksums;
    uint64_t width, start, direct; /* blocks in a row; the smallest and the largest direct block */
    block *blocks;                 /* the direct ones, by offset */
    huge *huges;                   /* by ID */
    uint8_t **loaded;              /* huge objects that were asked for */
    int n_blocks, block_room, n_huges, huge_room, n_loaded, loaded_room;
};

static gd_status fail_heap(const gd_hdf5_heap *heap, const char *what) {
    return gd_hdf5_fail_at(heap->walk->file, heap->address, what);
}

static bool is_power(uint64_t x) { return x && (x & (x - 1)) == 0; }
static int log2_of(uint64_t power) { return __builtin_ctzll(power); }

/* --- blocks ----------------------------------------------------------------------------------- */

static gd_status check_block(const gd_hdf5_heap *heap, uint64_t address, uint8_t *data,
                             uint64_t bytes) {
    const gd_hdf5 *file = heap->walk->file;
    const size_t sum_at = (size_t)(5 + file->offset_bytes + heap->offset_bytes);
    if (bytes < sum_at + 4 || memcmp(data, "FHDB", 4) != 0 || data[4] != 0)
        return gd_hdf5_fail_at(file, address, "expected 'FHDB'");
    if (!heap->checksums || gd_hdf5_ignores_checksums) return GD_OK;
    const uint32_t sum = gd_get_u32(data + sum_at); /* computed with zeros in its place */
    memset(data + sum_at, 0, 4);
    return sum == gd_hdf5_checksum(data, (size_t)bytes)
               ? GD_OK
               : gd_hdf5_fail_at(file, address, "the checksum of a block does not match");
}

static gd_status add_direct(gd_hdf5_heap *heap, uint64_t address, uint64_t bytes, uint64_t offset) {
    if (address == GD_HDF5_NOWHERE) return GD_OK;
    uint8_t *data;
    GD_TRY(gd_hdf5_load(heap->walk, address, bytes, &data));
    gd_status status = check_block(heap, address, data, bytes);
    if (status == GD_OK && !gd_grow(heap->blocks, heap->n_blocks, heap->block_room))
        status = gd_hdf5_no_memory(heap->walk->file);
    if (status == GD_OK) heap->blocks[heap->n_blocks++] = (block){offset, bytes, data};
    else gd_free(data);
    return status;
}

static gd_status add_indirect(gd_hdf5_heap *heap, uint64_t address, int rows, uint64_t offset);

static gd_status add_row(gd_hdf5_heap *heap, gd_hdf5_cursor *c, int row, uint64_t *offset) {
    const int shift = row > 0 ? row - 1 : 0;
    if (log2_of(heap->start) + shift + log2_of(heap->width) > 62)
        return fail_heap(heap, "a heap has too many rows");
    const uint64_t bytes = heap->start << shift;
    for (uint64_t i = 0; i < heap->width; i++, *offset += bytes) {
        const uint64_t address = gd_hdf5_take_address(c);
        if (address == GD_HDF5_NOWHERE) continue;
        if (bytes <= heap->direct) GD_TRY(add_direct(heap, address, bytes, *offset));
        else if (bytes < heap->start * heap->width)
            return fail_heap(heap, "a heap has indirect blocks that are too small");
        else
            GD_TRY(add_indirect(heap, address,
                                log2_of(bytes) - log2_of(heap->start * heap->width) + 1, *offset));
    }
    return GD_OK;
}

static gd_status add_indirect(gd_hdf5_heap *heap, uint64_t address, int rows, uint64_t offset) {
    const gd_hdf5 *file = heap->walk->file;
    if (address == GD_HDF5_NOWHERE) return GD_OK;
    const uint64_t prefix = (uint64_t)(5 + file->offset_bytes + heap->offset_bytes);
    const uint64_t bytes = prefix + (uint64_t)rows * heap->width * (uint64_t)file->offset_bytes + 4;
    uint8_t *data;
    GD_TRY(gd_hdf5_load_checked(heap->walk, address, bytes, "FHIB", &data));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, data + prefix, (size_t)(bytes - prefix));
    gd_status status = GD_OK;
    for (int row = 0; row < rows && status == GD_OK; row++)
        status = add_row(heap, &c, row, &offset);
    gd_free(data);
    return status;
}

/* --- the header ------------------------------------------------------------------------------- */

static gd_status add_huge(void *user, gd_hdf5_cursor *record) {
    gd_hdf5_heap *heap = user;
    huge h = {0};
    h.address = gd_hdf5_take_address(record);
    h.bytes = gd_hdf5_take_length(record);
    h.id = gd_hdf5_take_length(record);
    if (heap->n_huges > 0 && heap->huges[heap->n_huges - 1].id >= h.id)
        return fail_heap(heap, "the IDs of huge objects are not sorted");
    if (!gd_grow(heap->huges, heap->n_huges, heap->huge_room))
        return gd_hdf5_no_memory(heap->walk->file);
    heap->huges[heap->n_huges++] = h;
    return GD_OK;
}

static gd_status read_blocks(gd_hdf5_heap *heap, gd_hdf5_cursor *c) {
    gd_hdf5_walk *walk = heap->walk;
    heap->id_bytes = (int)gd_hdf5_take(c, 2);
    if (gd_hdf5_take(c, 2) != 0)
        return gd_fail(GD_E_UNSUPPORTED, "%s: it has a compressed heap, which is not supported",
                       gd_file_reader_path(walk->file->file));
    heap->checksums = gd_hdf5_take(c, 1) & FLAG_CHECKSUMS;
    const uint64_t most_managed = gd_hdf5_take(c, 4);
    gd_hdf5_take_length(c); /* the next ID of a huge object */
    const uint64_t huge_tree = gd_hdf5_take_address(c);
    gd_hdf5_take_length(c);                             /* free bytes ... */
    gd_hdf5_take_address(c);                            /* ... and where they are */
    for (int i = 0; i < 8; i++) gd_hdf5_take_length(c); /* sizes and counts */
    heap->width = gd_hdf5_take(c, 2);
    heap->start = gd_hdf5_take_length(c);
    heap->direct = gd_hdf5_take_length(c);
    const int space_bits = (int)gd_hdf5_take(c, 2);
    gd_hdf5_take(c, 2); /* the rows with which a root begins */
    const uint64_t root = gd_hdf5_take_address(c);
    const int rows = (int)gd_hdf5_take(c, 2);
    if (c->ended || !is_power(heap->width) || !is_power(heap->start) || !is_power(heap->direct) ||
        heap->start > heap->direct || heap->direct > UINT32_MAX || space_bits < 1 ||
        space_bits > 64 || rows > 64 || heap->id_bytes < 2)
        return fail_heap(heap, "a heap is damaged");
    heap->offset_bytes = (space_bits + 7) / 8;
    heap->length_bytes = (log2_of(heap->direct) + 7) / 8;
    if (gd_hdf5_width_of(most_managed) < heap->length_bytes)
        heap->length_bytes = gd_hdf5_width_of(most_managed);
    if (rows == 0) GD_TRY(add_direct(heap, root, heap->start, 0));
    else GD_TRY(add_indirect(heap, root, rows, 0));
    if (huge_tree == GD_HDF5_NOWHERE) return GD_OK;
    const gd_hdf5 *file = walk->file;
    if (heap->id_bytes > file->offset_bytes + file->length_bytes) return GD_OK; /* see find_huge */
    return gd_hdf5_tree_walk(walk, huge_tree, TREE_OF_HUGE, add_huge, heap);
}

gd_status gd_hdf5_heap_open(gd_hdf5_heap **out, gd_hdf5_walk *walk, uint64_t address) {
    const gd_hdf5 *file = walk->file;
    const uint64_t bytes =
        HEADER_FIXED + 3 * (uint64_t)file->offset_bytes + 12 * (uint64_t)file->length_bytes;
    uint8_t *header, *start;
    *out = NULL;
    /* the checksum follows a description of filters, which is refused: look for it first */
    GD_TRY(gd_hdf5_load(walk, address, 9, &start));
    const bool filtered = memcmp(start, "FRHP", 4) == 0 && gd_get_u16(start + 7) != 0;
    gd_free(start);
    if (filtered)
        return gd_fail(GD_E_UNSUPPORTED, "%s: it has a compressed heap, which is not supported",
                       gd_file_reader_path(file->file));
    GD_TRY(gd_hdf5_load_checked(walk, address, bytes, "FRHP", &header));
    gd_hdf5_heap *heap = gd_calloc(1, sizeof *heap);
    gd_status status = heap ? GD_OK : gd_hdf5_no_memory(file);
    if (heap) {
        heap->walk = walk;
        heap->address = address;
        gd_hdf5_cursor c = gd_hdf5_cursor_of(file, header + 5, (size_t)bytes - 5);
        status = read_blocks(heap, &c);
    }
    gd_free(header);
    if (status == GD_OK) *out = heap;
    else gd_hdf5_heap_close(heap);
    return status;
}

void gd_hdf5_heap_close(gd_hdf5_heap *heap) {
    if (!heap) return;
    for (int i = 0; i < heap->n_blocks; i++) gd_free(heap->blocks[i].data);
    for (int i = 0; i < heap->n_loaded; i++) gd_free(heap->loaded[i]);
    gd_free(heap->blocks);
    gd_free(heap->huges);
    gd_free(heap->loaded);
    gd_free(heap);
}

/* --- objects ---------------------------------------------------------------------------------- */

static gd_status find_managed(gd_hdf5_heap *heap, gd_hdf5_cursor *id, gd_hdf5_cursor *object) {
    const uint64_t offset = gd_hdf5_take(id, heap->offset_bytes);
    const uint64_t bytes = gd_hdf5_take(id, heap->length_bytes);
    int low = 0, high = heap->n_blocks;
    while (low < high) { /* to the first block that begins after the offset */
        const int middle = (low + high) / 2;
        if (heap->blocks[middle].offset <= offset) low = middle + 1;
        else high = middle;
    }
    const block *b = low > 0 ? &heap->blocks[low - 1] : NULL;
    if (id->ended || !b || offset - b->offset > b->bytes || bytes > b->bytes - (offset - b->offset))
        return fail_heap(heap, "an object is in no block of its heap");
    GD_TRY(gd_hdf5_spend(heap->walk, heap->address, bytes));
    *object = gd_hdf5_cursor_of(heap->walk->file, b->data + (offset - b->offset), (size_t)bytes);
    return GD_OK;
}

static gd_status find_huge(gd_hdf5_heap *heap, gd_hdf5_cursor *id, gd_hdf5_cursor *object) {
    const gd_hdf5 *file = heap->walk->file;
    uint64_t address = 0, bytes = 0;
    if (heap->id_bytes > file->offset_bytes + file->length_bytes) { /* the ID says where it is */
        address = gd_hdf5_take_address(id);
        bytes = gd_hdf5_take_length(id);
    } else {
        const uint64_t key = gd_hdf5_take(id, heap->id_bytes - 1 < 8 ? heap->id_bytes - 1 : 8);
        int low = 0, high = heap->n_huges;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (heap->huges[middle].id < key) low = middle + 1;
            else high = middle;
        }
        if (low == heap->n_huges || heap->huges[low].id != key)
            return fail_heap(heap, "a heap has no huge object of an ID");
        address = heap->huges[low].address;
        bytes = heap->huges[low].bytes;
    }
    if (!gd_grow(heap->loaded, heap->n_loaded, heap->loaded_room)) return gd_hdf5_no_memory(file);
    uint8_t *data;
    GD_TRY(gd_hdf5_load(heap->walk, address, bytes, &data));
    heap->loaded[heap->n_loaded++] = data;
    *object = gd_hdf5_cursor_of(file, data, (size_t)bytes);
    return GD_OK;
}

gd_status gd_hdf5_heap_find(gd_hdf5_heap *heap, gd_hdf5_cursor *c, gd_hdf5_cursor *object) {
    const uint8_t *p = gd_hdf5_take_bytes(c, (uint64_t)heap->id_bytes);
    if (!p) return fail_heap(heap, "an ID of an object is too short");
    gd_hdf5_cursor id = gd_hdf5_cursor_of(c->file, p, (size_t)heap->id_bytes);
    const int first = (int)gd_hdf5_take(&id, 1);
    switch (first >> 4) { /* 2 bits of version, then the kind */
    case 0: return find_managed(heap, &id, object);
    case 1: return find_huge(heap, &id, object);
    case 2: {
        uint64_t bytes = (uint64_t)(first & 15);
        if (heap->id_bytes - 1 > TINY_SHORT) bytes = bytes << 8 | gd_hdf5_take(&id, 1);
        const uint8_t *data = gd_hdf5_take_bytes(&id, bytes + 1);
        if (!data) return fail_heap(heap, "a tiny object is too long");
        *object = gd_hdf5_cursor_of(c->file, data, (size_t)bytes + 1);
        return GD_OK;
    }
    default: return fail_heap(heap, "an ID of an object is damaged");
    }
}
