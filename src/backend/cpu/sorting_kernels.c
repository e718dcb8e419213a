/* sorting_kernels.c - lines sorted by the bytes of their keys, on all threads.
 *
 * Every dtype maps to unsigned keys that have the wanted order: -0 is 0, NaN is above all, and for
 * a descending order the bits are turned over. Keys of up to 4 bytes travel with their position in
 * one 64-bit word. A line belongs to one thread.
 */
#include <string.h>

#include "backend/cpu/indexing_rows.h"
#include "core/pool.h"
#include "gradus/threads.h"
#include "gradus/ops.h"
#include "ops/indexing.h"

/* --- items ------------------------------------------------------------------------------------ */

/* key << 32 | position */
#define ITEM       uint64_t
#define KEY_TYPE   uint32_t
#define KEY(item)  ((uint32_t)((item) >> 32))
#define LESS(a, b) ((a) < (b))
#define NAME(name) name##_short
#include "backend/cpu/sorting_line.h"
#undef ITEM
#undef KEY
#undef KEY_TYPE
#undef LESS
#undef NAME

typedef struct {
    uint64_t key, position;
} long_item;
#define ITEM       long_item
#define KEY_TYPE   uint64_t
#define KEY(item)  ((item).key)
#define LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).position < (b).position))
#define NAME(name) name##_long
#include "backend/cpu/sorting_line.h"
#undef ITEM
#undef KEY
#undef KEY_TYPE
#undef LESS
#undef NAME

/* --- keys ------------------------------------------------------------------------------------- */

static uint32_t key_of_half(uint16_t bits, uint16_t infinity) {
    if ((bits & 0x7fff) > infinity) return 0xffff;
    if (bits == 0x8000) bits = 0;
    return (uint16_t)(bits & 0x8000 ? ~bits : bits | 0x8000);
}

static uint64_t key_of_f64(uint64_t bits) {
    if ((bits & INT64_MAX) > 0x7ff0000000000000u) return UINT64_MAX;
    if (bits == 1ull << 63) bits = 0;
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

enum { CHUNK = 256 }; /* elements whose keys are made together */

/* --- lines ------------------------------------------------------------------------------------ */

typedef struct {
    gd_view x, values, indices;
    int axis;
    int64_t n, count; /* of a line: elements, and how many of them are wanted */
    bool turned;      /* the largest first */
    int64_t lines, lines_per_piece, pieces;
    char *slots;  /* the workspace: memory for each piece that is sorted at one time */
    size_t slot;  /* bytes of one; 0: it is small enough for the stack */
    int64_t next; /* the piece that is taken next */
} job;

/* The memory of one thread. */
typedef struct {
    void *items, *spare;
    int64_t room; /* items that fit each */
} scratch;

/* The keys of elements [first, first + n) of a line, n <= CHUNK. */
static void load_short(const job *j, const char *line, int64_t first, int64_t n, uint32_t *keys) {
    int64_t step = j->x.strides[j->axis];
#define LOAD(T, key, mask)                                     \
    for (int64_t i = 0; i < n; i++) {                          \
        T v = ((const T *)line)[(first + i) * step];           \
        keys[i] = (uint32_t)(key) ^ (j->turned ? (mask) : 0u); \
    }                                                          \
    break
    switch (j->x.dtype) {
    case GD_BOOL: LOAD(uint8_t, v != 0, 0xffu);
    case GD_U8: LOAD(uint8_t, v, 0xffu);
    case GD_I8: LOAD(uint8_t, v ^ 0x80u, 0xffu);
    case GD_F16: LOAD(uint16_t, key_of_half(v, 0x7c00), 0xffffu);
    case GD_BF16: LOAD(uint16_t, key_of_half(v, 0x7f80), 0xffffu);
    case GD_I32: LOAD(uint32_t, v ^ 0x80000000u, UINT32_MAX);
    default: { /* f32 */
        float floats[CHUNK];
        const float *x = (const float *)line + first * step;
        for (int64_t i = 0; step != 1 && i < n; i++) floats[i] = x[i * step];
        GD_ISA_CALL(gd_sort_keys_f32)(step == 1 ? x : floats, n, j->turned ? UINT32_MAX : 0, keys);
    }
    }
#undef LOAD
}

static void load_long(const job *j, const char *line, int64_t first, int64_t n, uint64_t *keys) {
    int64_t step = j->x.strides[j->axis];
    uint64_t mask = j->turned ? UINT64_MAX : 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = ((const uint64_t *)line)[(first + i) * step];
        keys[i] = (j->x.dtype == GD_I64 ? v ^ 1ull << 63 : key_of_f64(v)) ^ mask;
    }
}

static int key_bytes(gd_dtype dtype) { return (int)gd_dtype_size(dtype); }

/* The first j->count items of the line, in order. Items go to s->items while there is room; when it
 * is full, all but the smallest j->count go, and only what is below them gets in after that. */
static const void *order_short(const job *j, const char *line, scratch *s) {
    int bytes = key_bytes(j->x.dtype);
    int64_t count = 0;
    uint32_t keys[CHUNK], limit = UINT32_MAX;
    uint64_t *items = s->items;
    bool limited = false;
    for (int64_t first = 0; first < j->n; first += CHUNK) {
        int64_t n = j->n - first < CHUNK ? j->n - first : CHUNK;
        load_short(j, line, first, n, keys);
        if (limited && !GD_ISA_CALL(gd_any_key_below)(keys, n, limit)) continue;
        for (int64_t i = 0; i < n; i++) {
            if (limited && keys[i] >= limit) continue;
            items[count++] = (uint64_t)keys[i] << 32 | (uint64_t)(first + i);
            if (count < s->room || s->room == j->n) continue;
            limit = keep_smallest_short(items, s->spare, &count, j->count, bytes);
            limited = true;
        }
    }
    return sort_short(items, s->spare, count, bytes);
}

static const void *order_long(const job *j, const char *line, scratch *s) {
    int bytes = key_bytes(j->x.dtype);
    int64_t count = 0;
    uint64_t keys[CHUNK], limit = UINT64_MAX;
    long_item *items = s->items;
    bool limited = false;
    for (int64_t first = 0; first < j->n; first += CHUNK) {
        int64_t n = j->n - first < CHUNK ? j->n - first : CHUNK;
        load_long(j, line, first, n, keys);
        for (int64_t i = 0; i < n; i++) {
            if (limited && keys[i] >= limit) continue;
            items[count++] = (long_item){keys[i], (uint64_t)(first + i)};
            if (count < s->room || s->room == j->n) continue;
            limit = keep_smallest_long(items, s->spare, &count, j->count, bytes);
            limited = true;
        }
    }
    return sort_long(items, s->spare, count, bytes);
}

static void write_line(const job *j, const char *line, const void *items, char *values,
                       int64_t *indices) {
    int64_t size = (int64_t)gd_dtype_size(j->x.dtype), step = j->x.strides[j->axis] * size;
    int64_t value_step = j->values.strides[j->axis] * size,
            index_step = j->indices.strides[j->axis];
    bool is_long = size == 8;
    for (int64_t i = 0; i < j->count; i++) {
        int64_t at = is_long ? (int64_t)((const long_item *)items)[i].position
                             : (int64_t)(uint32_t)((const uint64_t *)items)[i];
        indices[i * index_step] = at;
        char *to = values + i * value_step;
        const char *from = line + at * step;
        switch (size) {
        case 1: *to = *from; break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, 8); break;
        }
    }
}

/* Few wanted of many: a line is sifted. Else it is sorted. */
static int64_t room_needed(const job *j) {
    int64_t sift = 2 * j->count > 32 ? 2 * j->count : 32;
    return j->count < j->n / 8 && sift < j->n ? sift : j->n;
}

static size_t item_size(const job *j) {
    return key_bytes(j->x.dtype) == 8 ? sizeof(long_item) : sizeof(uint64_t);
}

/* `memory` has room for twice the items that are needed at one time. */
static void sort_piece(const job *j, int64_t piece, char *memory) {
    int64_t first = piece * j->lines_per_piece, last = first + j->lines_per_piece;
    if (last > j->lines) last = j->lines;
    scratch s = {.items = memory, .room = room_needed(j)};
    s.spare = memory + (size_t)s.room * item_size(j);
    int64_t size = (int64_t)gd_dtype_size(j->x.dtype);
    for (int64_t e = first; e < last; e++) {
        int64_t from = 0, to = 0, to_index = 0, rest = e;
        for (int d = j->x.rank; d-- > 0;) {
            if (d == j->axis) continue;
            int64_t i = rest % j->x.dims[d];
            rest /= j->x.dims[d];
            from += i * j->x.strides[d];
            to += i * j->values.strides[d];
            to_index += i * j->indices.strides[d];
        }
        const char *line = (const char *)j->x.data + from * size;
        write_line(j, line, size == 8 ? order_long(j, line, &s) : order_short(j, line, &s),
                   (char *)j->values.data + to * size, (int64_t *)j->indices.data + to_index);
    }
}

/* --- pieces ----------------------------------------------------------------------------------- */

enum { STACK = 2 * 128 * sizeof(long_item), CACHE_LINE = 64 };

static void sort_on_stack(void *arg, int64_t piece) {
    _Alignas(16) char memory[STACK];
    sort_piece(arg, piece, memory);
}

/* Whoever has a slot takes pieces until none is left. */
static void sort_in_slot(void *arg, int64_t i) {
    job *j = arg;
    int64_t piece;
    while ((piece = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->pieces)
        sort_piece(j, piece, j->slots + (size_t)i * j->slot);
}

static job job_of(const gd_kernel_call *k, int64_t axis, int64_t count, bool turned) {
    enum { PIECE = 8192 };
    job j = {.x = gd_at_least_1d(k->in[0]),
             .values = gd_at_least_1d(k->out[0]),
             .indices = gd_at_least_1d(k->out[1]),
             .turned = turned,
             .lines = 1};
    j.axis = (int)(axis < 0 ? axis + j.x.rank : axis);
    j.n = j.x.dims[j.axis];
    j.count = count < 0 ? j.n : count;
    for (int d = 0; d < j.x.rank; d++)
        if (d != j.axis) j.lines *= j.x.dims[d];
    j.lines_per_piece = j.n > 0 && j.n < PIECE ? PIECE / j.n : 1;
    j.pieces = (j.lines + j.lines_per_piece - 1) / j.lines_per_piece;
    const size_t bytes = 2 * (size_t)room_needed(&j) * item_size(&j);
    j.slot = bytes <= STACK ? 0 : (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return j;
}

static size_t slots_bytes(const job *j) {
    const int64_t threads = gd_num_threads();
    return j->slot * (size_t)(j->pieces < threads ? j->pieces : threads);
}

static gd_status order_lines(const gd_kernel_call *k, job j) {
    j.slots = k->workspace;
    if (j.slot == 0) gd_parallel_for(j.pieces, sort_on_stack, &j);
    else gd_parallel_for((int64_t)(k->workspace_bytes / j.slot), sort_in_slot, &j);
    return GD_OK;
}

/* Positions fit 32 bits. */
static bool short_lines(const gd_kernel_call *k) {
    for (int d = 0; d < k->in[0].rank; d++)
        if (k->in[0].dims[d] > UINT32_MAX) return false;
    return true;
}

/*kernel sort.radix  rank 10  match short_lines
 * Any strides and dtype.
 */
static job sort_job(const gd_kernel_call *k) {
    const gd_sort_options *o = k->attrs;
    return job_of(k, o->axis, -1, o->descending);
}
static size_t sort_radix_workspace(const gd_kernel_call *k) {
    const job j = sort_job(k);
    return slots_bytes(&j);
}
static gd_status sort_radix_run(gd_kernel_call *k) { return order_lines(k, sort_job(k)); }

/*kernel topk.radix  rank 10  match short_lines
 */
static job topk_job(const gd_kernel_call *k) {
    const gd_topk_options *o = k->attrs;
    return job_of(k, o->axis, k->in[0].rank ? o->k : 1, o->largest);
}
static size_t topk_radix_workspace(const gd_kernel_call *k) {
    const job j = topk_job(k);
    return slots_bytes(&j);
}
static gd_status topk_radix_run(gd_kernel_call *k) { return order_lines(k, topk_job(k)); }

#include "sorting_kernels.gen.h"
