/* hdf5_arrays.c - lists the chunks of a dataset whose index is an array. See hdf5_parts.h.
 *
 * Chunks are numbered row-major in the grid of the largest shape. If one axis has no largest size,
 * it counts as the first one, so that growing appends.
 *
 *     implicit           no index: all chunks, one after the other
 *     fixed array        a header and one block of elements
 *     extensible array   a header and an index block. This has the first elements, addresses of
 *                        data blocks, and addresses of secondary blocks, which have addresses of
 *                        further data blocks. Level u stands for 2^(u/2) data blocks of
 *                        `least` * 2^((u+1)/2) elements each.
 *
 * A data block with more elements than a page has pages with a checksum each; bits say which of
 * them were written.
 */
#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/hdf5_parts.h"

#include <string.h>

enum { CHECKSUM_BYTES = 4, MAX_LEVELS = 64 };

typedef struct array {
    gd_hdf5_full_object *dataset;
    gd_hdf5_walk *walk;
    uint64_t address;                  /* of the header */
    uint64_t counts[GD_HDF5_MAX_RANK]; /* chunks along each axis, in the order of the numbers */
    int axis;                          /* that comes first */
    uint64_t total;                    /* chunks with a number, if no axis is unlimited */
    int element_bytes;
    bool filtered;
    int page_bits;
    const char *data_signature;
    uint64_t offset_bytes; /* after the address in a data block */
} array;

static gd_status fail_array(const array *a, const char *what) {
    return gd_hdf5_fail_at(a->walk->file, a->address, what);
}

/* Finds the numbers of chunks; `unlimited`: how many axes may be so. */
static gd_status find_numbers(array *a, const uint64_t *most, int unlimited) {
    const gd_hdf5_storage *s = &a->dataset->storage;
    const int rank = a->dataset->object.shape.rank;
    int at = 0, found = 0;
    a->axis = 0;
    for (int i = 0; i < rank; i++)
        if (most[i] == UINT64_MAX) a->axis = i, found++;
    if (rank == 0 || found != unlimited)
        return fail_array(a, "the index of the chunks does not fit the shape");
    a->total = 1;
    if (found) a->counts[at++] = UINT64_MAX;
    for (int i = 0; i < rank; i++) {
        if (found && i == a->axis) continue;
        const uint64_t n = most[i] / s->chunk[i] + (most[i] % s->chunk[i] != 0);
        if (n < s->grid[i] || !gd_mul_u64(a->total, n, &a->total))
            return fail_array(a, "the largest shape of a dataset is damaged");
        a->counts[at++] = n;
    }
    return GD_OK;
}

/* Adds chunk `number`. */
static gd_status add_chunk(const array *a, uint64_t number, const gd_hdf5_chunk *chunk) {
    const int rank = a->dataset->object.shape.rank;
    const bool moved = a->counts[0] == UINT64_MAX;
    uint64_t cell[GD_HDF5_MAX_RANK];
    for (int k = rank - 1; k >= 0; k--) {
        const uint64_t at = k ? number % a->counts[k] : number;
        if (k) number /= a->counts[k];
        cell[!moved ? k : k == 0 ? a->axis : k <= a->axis ? k - 1 : k] = at;
    }
    return gd_hdf5_chunk_add(a->dataset, cell, chunk);
}

/* Elements: the address of a chunk; if chunks are filtered also the size and skipped filters. */
static gd_status add_elements(const array *a, gd_hdf5_cursor *c, uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        gd_hdf5_chunk chunk = {.bytes = a->dataset->storage.chunk_bytes};
        chunk.address = gd_hdf5_take_address(c);
        if (a->filtered) {
            chunk.bytes = gd_hdf5_take(c, a->element_bytes - c->file->offset_bytes - 4);
            chunk.skipped = (uint32_t)gd_hdf5_take(c, 4);
        }
        if (c->ended) return fail_array(a, "an index of chunks is too short");
        GD_TRY(add_chunk(a, first + i, &chunk));
    }
    return GD_OK;
}

gd_status gd_hdf5_implicit_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                                const gd_hdf5_index *index) {
    const gd_hdf5_storage *s = &dataset->storage;
    array a = {.dataset = dataset, .walk = walk, .address = s->address};
    GD_TRY(find_numbers(&a, index->most, 0));
    if (s->n_filters > 0) return fail_array(&a, "filtered chunks need an index");
    uint64_t bytes;
    if (!gd_mul_u64(a.total, s->chunk_bytes, &bytes) || bytes > walk->file->size)
        return fail_array(&a, "the chunks are larger than the file (truncated?)");
    for (uint64_t i = 0; i < a.total; i++) {
        const gd_hdf5_chunk chunk = {0, s->address + i * s->chunk_bytes, s->chunk_bytes, 0};
        GD_TRY(add_chunk(&a, i, &chunk));
    }
    return GD_OK;
}

/* --- data blocks ------------------------------------------------------------------------------ */

/* Both kinds of header begin so. */
static gd_status read_header(array *a, gd_hdf5_cursor *c) {
    const int plain = a->walk->file->offset_bytes;
    const int client = (int)gd_hdf5_take(c, 1);
    a->element_bytes = (int)gd_hdf5_take(c, 1);
    a->filtered = client == 1;
    if (client > 1 || a->filtered != (a->dataset->storage.n_filters > 0) ||
        (a->filtered ? a->element_bytes < plain + 5 || a->element_bytes > plain + 12
                     : a->element_bytes != plain))
        return fail_array(a, "the index of chunks is damaged");
    return GD_OK;
}

/* Whether page `i` was written; bits count from the highest one of the first byte. */
static bool page_written(const uint8_t *bits, uint64_t i) { return bits[i / 8] & 0x80 >> i % 8; }

/* The pages of a data block, from `at` on. */
static gd_status read_pages(const array *a, uint64_t at, const uint8_t *bits, uint64_t first_bit,
                            uint64_t first, uint64_t count) {
    const uint64_t page = (uint64_t)1 << a->page_bits;
    for (uint64_t i = 0; i * page < count; i++) {
        const uint64_t n = count - i * page < page ? count - i * page : page;
        const uint64_t bytes = n * (uint64_t)a->element_bytes + CHECKSUM_BYTES;
        const uint64_t address = at + i * (page * (uint64_t)a->element_bytes + CHECKSUM_BYTES);
        uint8_t *block;
        if (!page_written(bits, first_bit + i)) continue;
        GD_TRY(gd_hdf5_load(a->walk, address, bytes, &block));
        gd_hdf5_cursor c = gd_hdf5_cursor_of(a->walk->file, block, (size_t)bytes);
        gd_status status = gd_hdf5_verify(a->walk->file, address, block, (size_t)bytes);
        if (status == GD_OK) status = add_elements(a, &c, first + i * page, n);
        gd_free(block);
        GD_TRY(status);
    }
    return GD_OK;
}

/* Whether a data block of so many elements has pages. */
static bool has_pages(const array *a, uint64_t count) {
    return count > (uint64_t)1 << a->page_bits;
}

/* A data block with elements [first, first + count). `bits`: of its pages, from first_bit on; NULL:
 * they are in the block itself (fixed arrays). */
static gd_status read_data_block(const array *a, uint64_t address, const uint8_t *bits,
                                 uint64_t first_bit, uint64_t first, uint64_t count) {
    if (address == GD_HDF5_NOWHERE || count == 0) return GD_OK;
    const gd_hdf5 *file = a->walk->file;
    const bool paged = has_pages(a, count);
    const uint64_t pages = ((count - 1) >> a->page_bits) + 1;
    const uint64_t prefix = 6 + (uint64_t)file->offset_bytes + a->offset_bytes;
    const uint64_t own_bits = paged && !bits ? (pages + 7) / 8 : 0;
    if (count > file->size) return fail_array(a, "an index of chunks is larger than the file");
    const uint64_t bytes =
        prefix + own_bits + CHECKSUM_BYTES + (paged ? 0 : count * (uint64_t)a->element_bytes);
    uint8_t *block;
    GD_TRY(gd_hdf5_load_checked(a->walk, address, bytes, a->data_signature, &block));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, block + prefix, (size_t)(bytes - prefix));
    const gd_status status = paged ? read_pages(a, address + bytes, bits ? bits : block + prefix,
                                                first_bit, first, count)
                                   : add_elements(a, &c, first, count);
    gd_free(block);
    return status;
}

/* --- fixed arrays ----------------------------------------------------------------------------- */

gd_status gd_hdf5_fixed_array_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                                   const gd_hdf5_index *index) {
    const gd_hdf5 *file = walk->file;
    array a = {.dataset = dataset,
               .walk = walk,
               .address = dataset->storage.address,
               .data_signature = "FADB"};
    GD_TRY(find_numbers(&a, index->most, 0));
    const uint64_t bytes =
        4 + 1 + 1 + 1 + 1 + (uint64_t)(file->length_bytes + file->offset_bytes) + CHECKSUM_BYTES;
    uint8_t *header;
    GD_TRY(gd_hdf5_load_checked(walk, a.address, bytes, "FAHD", &header));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, header + 5, (size_t)bytes - 5);
    gd_status status = read_header(&a, &c);
    a.page_bits = (int)gd_hdf5_take(&c, 1);
    const uint64_t count = gd_hdf5_take_length(&c), block = gd_hdf5_take_address(&c);
    gd_free(header);
    GD_TRY(status);
    if (a.page_bits > 62 || count != a.total)
        return fail_array(&a, "the index of chunks does not fit the shape");
    return read_data_block(&a, block, NULL, 0, 0, count);
}

/* --- extensible arrays ------------------------------------------------------------------------ */

typedef struct levels {
    int count, direct;          /* levels in all; those whose data blocks the index block lists */
    uint64_t in_index, least;   /* elements in the index block; in the smallest data block */
    uint64_t blocks, secondary; /* addresses in the index block */
} levels;

static uint64_t blocks_of(int level) { return (uint64_t)1 << level / 2; }
static uint64_t elements_of(const levels *l, int level) { return l->least << (level + 1) / 2; }

static gd_status read_levels(array *a, gd_hdf5_cursor *c, levels *l) {
    const int count_bits = (int)gd_hdf5_take(c, 1);
    l->in_index = gd_hdf5_take(c, 1);
    l->least = gd_hdf5_take(c, 1);
    const uint64_t pointers = gd_hdf5_take(c, 1);
    a->page_bits = (int)gd_hdf5_take(c, 1);
    if (l->least == 0 || (l->least & (l->least - 1)) || pointers < 1 ||
        (pointers & (pointers - 1)) || count_bits < 1 || count_bits > 64 || a->page_bits > 62)
        return fail_array(a, "the index of chunks is damaged");
    a->offset_bytes = (uint64_t)(count_bits + 7) / 8;
    l->count = 1 + count_bits - __builtin_ctzll(l->least);
    l->direct = 2 * __builtin_ctzll(pointers);
    l->blocks = 2 * (pointers - 1);
    if (l->count < l->direct || l->count > MAX_LEVELS)
        return fail_array(a, "the index of chunks is damaged");
    l->secondary = (uint64_t)(l->count - l->direct);
    return GD_OK;
}

/* A secondary block: bits of the pages of its data blocks, then their addresses. */
static gd_status read_secondary(const array *a, const levels *l, uint64_t address, int level,
                                uint64_t first) {
    if (address == GD_HDF5_NOWHERE) return GD_OK;
    const gd_hdf5 *file = a->walk->file;
    const uint64_t blocks = blocks_of(level), elements = elements_of(l, level);
    const uint64_t pages = has_pages(a, elements) ? elements >> a->page_bits : 0;
    const uint64_t prefix = 6 + (uint64_t)file->offset_bytes + a->offset_bytes;
    uint64_t bits;
    if (!gd_mul_u64(blocks, (pages + 7) / 8, &bits) || bits > file->size || blocks > file->size)
        return fail_array(a, "an index of chunks is larger than the file");
    const uint64_t bytes = prefix + bits + blocks * (uint64_t)file->offset_bytes + CHECKSUM_BYTES;
    uint8_t *block;
    GD_TRY(gd_hdf5_load_checked(a->walk, address, bytes, "EASB", &block));
    gd_hdf5_cursor c =
        gd_hdf5_cursor_of(file, block + prefix + bits, (size_t)(bytes - prefix - bits));
    gd_status status = GD_OK;
    for (uint64_t i = 0; i < blocks && status == GD_OK; i++)
        status = read_data_block(a, gd_hdf5_take_address(&c), block + prefix, i * pages,
                                 first + i * elements, elements);
    gd_free(block);
    return status;
}

static gd_status read_index_block(const array *a, const levels *l, gd_hdf5_cursor *c) {
    uint64_t first = l->in_index;
    GD_TRY(add_elements(a, c, 0, l->in_index));
    for (int level = 0; level < l->count; level++) {
        const uint64_t elements = elements_of(l, level);
        if (level >= l->direct) GD_TRY(read_secondary(a, l, gd_hdf5_take_address(c), level, first));
        for (uint64_t i = 0; level < l->direct && i < blocks_of(level); i++) {
            const uint64_t address = gd_hdf5_take_address(c);
            if (address != GD_HDF5_NOWHERE && has_pages(a, elements))
                return fail_array(a, "a data block of the index block has pages");
            GD_TRY(read_data_block(a, address, NULL, 0, first + i * elements, elements));
        }
        first += blocks_of(level) * elements;
    }
    return GD_OK;
}

gd_status gd_hdf5_extensible_array_read(gd_hdf5_full_object *dataset, gd_hdf5_walk *walk,
                                        const gd_hdf5_index *index) {
    const gd_hdf5 *file = walk->file;
    levels l = {0};
    array a = {.dataset = dataset,
               .walk = walk,
               .address = dataset->storage.address,
               .data_signature = "EADB"};
    GD_TRY(find_numbers(&a, index->most, 1));
    uint64_t bytes =
        5 + 7 + 6 * (uint64_t)file->length_bytes + (uint64_t)file->offset_bytes + CHECKSUM_BYTES;
    uint8_t *block;
    GD_TRY(gd_hdf5_load_checked(walk, a.address, bytes, "EAHD", &block));
    gd_hdf5_cursor c = gd_hdf5_cursor_of(file, block + 5, (size_t)bytes - 5);
    gd_status status = read_header(&a, &c);
    if (status == GD_OK) status = read_levels(&a, &c, &l);
    for (int i = 0; i < 6; i++) gd_hdf5_take_length(&c); /* sizes and counts of blocks */
    const uint64_t at = gd_hdf5_take_address(&c);
    gd_free(block);
    GD_TRY(status);
    if (at == GD_HDF5_NOWHERE) return GD_OK;
    const uint64_t prefix = 6 + (uint64_t)file->offset_bytes;
    bytes = prefix + l.in_index * (uint64_t)a.element_bytes +
            (l.blocks + l.secondary) * (uint64_t)file->offset_bytes + CHECKSUM_BYTES;
    GD_TRY(gd_hdf5_load_checked(walk, at, bytes, "EAIB", &block));
    c = gd_hdf5_cursor_of(file, block + prefix, (size_t)(bytes - prefix));
    status = read_index_block(&a, &l, &c);
    gd_free(block);
    return status;
}
