/* sort_kernels.c - sort and topk: radix sort of lines, on all threads.
 *
 * Every dtype is mapped to unsigned keys in the required order: -0 equals 0, NaN is above all, and
 * a descending order inverts the bits. A key of up to 4 bytes is packed with its position into one
 * 64-bit word. One thread sorts a line.
 */
#include <string.h>

#include "ops/index/cpu/index_rows.h"
#include "core/pool.h"
#include "gradus/threads.h"
#include "gradus/ops.h"
#include "ops/index/index.h"

/* --- items ------------------------------------------------------------------------------------ */

/* key << 32 | position */
#define ITEM       uint64_t
#define KEY_TYPE   uint32_t
#define KEY(item)  ((uint32_t)((item) >> 32))
#define LESS(a, b) ((a) < (b))
#define NAME(name) name##_short
#include "ops/sort/cpu/sort_line.h"
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
#include "ops/sort/cpu/sort_line.h"
#undef ITEM
#undef KEY
#undef KEY_TYPE
#undef LESS
#undef NAME

/* --- keys ------------------------------------------------------------------------------------- */

static uint32_t half_sort_key(uint16_t bits, uint16_t infinity) {
    if ((bits & 0x7fff) > infinity) return 0xffff;
    if (bits == 0x8000) bits = 0;
    return (uint16_t)(bits & 0x8000 ? ~bits : bits | 0x8000);
}

static uint64_t f64_sort_key(uint64_t bits) {
    if ((bits & INT64_MAX) > 0x7ff0000000000000u) return UINT64_MAX;
    if (bits == 1ull << 63) bits = 0;
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

enum { CHUNK = 256 }; /* elements whose keys are computed at once */

/* --- lines ------------------------------------------------------------------------------------ */

typedef struct {
    gd_view x, values, indices;
    int axis;
    int64_t n, count; /* elements of a line, and how many of them are returned */
    bool descending;  /* largest first */
    int64_t lines, lines_per_task, tasks;
    char *slots;  /* the workspace: memory for each task that runs concurrently */
    size_t slot;  /* bytes of a slot; 0: the stack is enough */
    int64_t next; /* the next task to run */
} line_sort;

/* The memory of one task. */
typedef struct {
    void *items, *buffer;
    int64_t capacity; /* of each, in items */
} sort_scratch;

/* Loads the keys of elements [first, first + n) of a line, n <= CHUNK. */
static void load_short_keys(const line_sort *j, const char *line, int64_t first, int64_t n,
                            uint32_t *keys) {
    int64_t step = j->x.strides[j->axis];
#define LOAD(T, key, mask)                                         \
    for (int64_t i = 0; i < n; i++) {                              \
        T v = ((const T *)line)[(first + i) * step];               \
        keys[i] = (uint32_t)(key) ^ (j->descending ? (mask) : 0u); \
    }                                                              \
    break
    switch (j->x.dtype) {
    case GD_BOOL: LOAD(uint8_t, v != 0, 0xffu);
    case GD_U8: LOAD(uint8_t, v, 0xffu);
    case GD_I8: LOAD(uint8_t, v ^ 0x80u, 0xffu);
    case GD_F16: LOAD(uint16_t, half_sort_key(v, 0x7c00), 0xffffu);
    case GD_BF16: LOAD(uint16_t, half_sort_key(v, 0x7f80), 0xffffu);
    case GD_I32: LOAD(uint32_t, v ^ 0x80000000u, UINT32_MAX);
    default: { /* f32 */
        float floats[CHUNK];
        const float *x = (const float *)line + first * step;
        for (int64_t i = 0; step != 1 && i < n; i++) floats[i] = x[i * step];
        GD_ISA_CALL(gd_sort_keys_f32)
        (step == 1 ? x : floats, n, j->descending ? UINT32_MAX : 0, keys);
    }
    }
#undef LOAD
}

static void load_long_keys(const line_sort *j, const char *line, int64_t first, int64_t n,
                           uint64_t *keys) {
    int64_t step = j->x.strides[j->axis];
    uint64_t mask = j->descending ? UINT64_MAX : 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = ((const uint64_t *)line)[(first + i) * step];
        keys[i] = (j->x.dtype == GD_I64 ? v ^ 1ull << 63 : f64_sort_key(v)) ^ mask;
    }
}

static int key_bytes(gd_dtype dtype) { return (int)gd_dtype_size(dtype); }

/* The first j->count items of the line in order. Items are collected in s->items; when it is full,
 * only the smallest j->count are kept, and only smaller keys are collected after that. */
static const void *smallest_short(const line_sort *j, const char *line, sort_scratch *s) {
    int bytes = key_bytes(j->x.dtype);
    int64_t count = 0;
    uint32_t keys[CHUNK], limit = UINT32_MAX;
    uint64_t *items = s->items;
    bool filtering = false;
    for (int64_t first = 0; first < j->n; first += CHUNK) {
        int64_t n = j->n - first < CHUNK ? j->n - first : CHUNK;
        load_short_keys(j, line, first, n, keys);
        if (filtering && !GD_ISA_CALL(gd_any_key_below)(keys, n, limit)) continue;
        for (int64_t i = 0; i < n; i++) {
            if (filtering && keys[i] >= limit) continue;
            items[count++] = (uint64_t)keys[i] << 32 | (uint64_t)(first + i);
            if (count < s->capacity || s->capacity == j->n) continue;
            limit = keep_smallest_short(items, s->buffer, &count, j->count, bytes);
            filtering = true;
        }
    }
    return radix_sort_short(items, s->buffer, count, bytes);
}

static const void *smallest_long(const line_sort *j, const char *line, sort_scratch *s) {
    int bytes = key_bytes(j->x.dtype);
    int64_t count = 0;
    uint64_t keys[CHUNK], limit = UINT64_MAX;
    long_item *items = s->items;
    bool filtering = false;
    for (int64_t first = 0; first < j->n; first += CHUNK) {
        int64_t n = j->n - first < CHUNK ? j->n - first : CHUNK;
        load_long_keys(j, line, first, n, keys);
        for (int64_t i = 0; i < n; i++) {
            if (filtering && keys[i] >= limit) continue;
            items[count++] = (long_item){keys[i], (uint64_t)(first + i)};
            if (count < s->capacity || s->capacity == j->n) continue;
            limit = keep_smallest_long(items, s->buffer, &count, j->count, bytes);
            filtering = true;
        }
    }
    return radix_sort_long(items, s->buffer, count, bytes);
}

static void write_line(const line_sort *j, const char *line, const void *items, char *values,
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

/* topk of a small part of a line filters it through a small buffer; otherwise the line is
 * sorted. */
static int64_t items_capacity(const line_sort *j) {
    int64_t filter = 2 * j->count > 32 ? 2 * j->count : 32;
    return j->count < j->n / 8 && filter < j->n ? filter : j->n;
}

static size_t item_size(const line_sort *j) {
    return key_bytes(j->x.dtype) == 8 ? sizeof(long_item) : sizeof(uint64_t);
}

/* `memory` has room for two buffers of items_capacity items. */
static void sort_lines_task(const line_sort *j, int64_t task, char *memory) {
    int64_t first = task * j->lines_per_task, last = first + j->lines_per_task;
    if (last > j->lines) last = j->lines;
    sort_scratch s = {.items = memory, .capacity = items_capacity(j)};
    s.buffer = memory + (size_t)s.capacity * item_size(j);
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
        write_line(j, line, size == 8 ? smallest_long(j, line, &s) : smallest_short(j, line, &s),
                   (char *)j->values.data + to * size, (int64_t *)j->indices.data + to_index);
    }
}

/* --- tasks ------------------------------------------------------------------------------------ */

enum { STACK_BYTES = 2 * 128 * sizeof(long_item), CACHE_LINE = 64 };

static void sort_task_on_stack(void *arg, int64_t task) {
    _Alignas(16) char memory[STACK_BYTES];
    sort_lines_task(arg, task, memory);
}

/* Runs tasks with the memory of slot i until none is left. */
static void sort_tasks_in_slot(void *arg, int64_t i) {
    line_sort *j = arg;
    int64_t task;
    while ((task = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->tasks)
        sort_lines_task(j, task, j->slots + (size_t)i * j->slot);
}

static line_sort init_sort(const gd_kernel_call *k, int64_t axis, int64_t count, bool descending) {
    enum { TASK_ELEMENTS = 8192 };
    line_sort j = {.x = gd_at_least_1d(k->in[0]),
                   .values = gd_at_least_1d(k->out[0]),
                   .indices = gd_at_least_1d(k->out[1]),
                   .descending = descending,
                   .lines = 1};
    j.axis = (int)(axis < 0 ? axis + j.x.rank : axis);
    j.n = j.x.dims[j.axis];
    j.count = count < 0 ? j.n : count;
    for (int d = 0; d < j.x.rank; d++)
        if (d != j.axis) j.lines *= j.x.dims[d];
    j.lines_per_task = j.n > 0 && j.n < TASK_ELEMENTS ? TASK_ELEMENTS / j.n : 1;
    j.tasks = (j.lines + j.lines_per_task - 1) / j.lines_per_task;
    const size_t bytes = 2 * (size_t)items_capacity(&j) * item_size(&j);
    j.slot = bytes <= STACK_BYTES ? 0 : (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return j;
}

static size_t sort_slots_bytes(const line_sort *j) {
    const int64_t threads = gd_num_threads();
    return j->slot * (size_t)(j->tasks < threads ? j->tasks : threads);
}

static gd_status run_sort(const gd_kernel_call *k, line_sort j) {
    j.slots = k->workspace;
    if (j.slot == 0) gd_parallel_for(j.tasks, sort_task_on_stack, &j);
    else gd_parallel_for((int64_t)(k->workspace_bytes / j.slot), sort_tasks_in_slot, &j);
    return GD_OK;
}

/* Whether positions fit into 32 bits. */
static bool has_32bit_positions(const gd_kernel_call *k) {
    for (int d = 0; d < k->in[0].rank; d++)
        if (k->in[0].dims[d] > UINT32_MAX) return false;
    return true;
}

/*kernel sort.radix  rank 10  match has_32bit_positions
 * Any strides and dtype; a task sorts lines by radix, digit by digit.
 */
static line_sort sort_job(const gd_kernel_call *k) {
    const gd_sort_options *o = k->attrs;
    return init_sort(k, o->axis, -1, o->descending);
}
static size_t sort_radix_workspace(const gd_kernel_call *k) {
    const line_sort j = sort_job(k);
    return sort_slots_bytes(&j);
}
static gd_status sort_radix_run(gd_kernel_call *k) { return run_sort(k, sort_job(k)); }

/*kernel topk.radix  rank 10  match has_32bit_positions
 * As sort; the first elements of each line are the result.
 */
static line_sort topk_job(const gd_kernel_call *k) {
    const gd_topk_options *o = k->attrs;
    return init_sort(k, o->axis, k->in[0].rank ? o->k : 1, o->largest);
}
static size_t topk_radix_workspace(const gd_kernel_call *k) {
    const line_sort j = topk_job(k);
    return sort_slots_bytes(&j);
}
static gd_status topk_radix_run(gd_kernel_call *k) { return run_sort(k, topk_job(k)); }

#include "ops/sort/cpu/sort_kernels.gen.h"
