/* index_mask_kernels.c - masked_select, nonzero and masked_scatter: stream compaction, on all threads.
 *
 * The elements are partitioned into blocks. A first pass counts the set elements of each block; the
 * counts determine where each block starts in the compacted list. A second pass moves the elements.
 * Both process a block in small chunks without branches on the data: branches on random masks would
 * be mispredicted half of the time.
 */
#include <string.h>

#include "core/copy.h"
#include "core/pool.h"
#include "gradus/ops.h"
#include "dispatch/op.h"
#include "dispatch/problem.h"

enum { BLOCK = 16384, CHUNK = 256 };

typedef struct {
    const gd_view *mask; /* elements that are not 0 are set */
    const char *from;    /* elements to select, or to scatter */
    char *to;
    int64_t size; /* bytes of an element */
    int64_t total, blocks;
    int64_t *starts; /* of each block in the compacted list; (blocks + 1) */
} mask_job;

/* flags[i] = 1 where element first + i is not 0. */
static void load_flags(const gd_view *v, int64_t first, int64_t n, uint8_t *flags) {
#define FLAG_EACH(T, nonzero)                  \
    for (int64_t i = 0; i < n; i++) {          \
        T x = ((const T *)v->data)[first + i]; \
        flags[i] = (nonzero) != 0;             \
    }                                          \
    break
    switch (v->dtype) {
    case GD_BOOL:
    case GD_U8:
    case GD_I8: FLAG_EACH(uint8_t, x);
    case GD_F16:
    case GD_BF16: FLAG_EACH(uint16_t, x & 0x7fff);
    case GD_I32: FLAG_EACH(uint32_t, x);
    case GD_I64: FLAG_EACH(uint64_t, x);
    case GD_F32: FLAG_EACH(float, x);
    default: FLAG_EACH(double, x);
    }
#undef FLAG_EACH
}

static int64_t block_end(const mask_job *j, int64_t block) {
    return (block + 1) * BLOCK < j->total ? (block + 1) * BLOCK : j->total;
}

static void count_block(void *arg, int64_t block) {
    const mask_job *j = arg;
    int64_t count = 0;
    uint8_t flags[CHUNK];
    for (int64_t i = block * BLOCK, end = block_end(j, block); i < end; i += CHUNK) {
        int64_t n = end - i < CHUNK ? end - i : CHUNK;
        unsigned sum = 0;
        load_flags(j->mask, i, n, flags);
        for (int64_t k = 0; k < n; k++) sum += flags[k];
        count += sum;
    }
    j->starts[block + 1] = count;
}

/* Computes where each block starts; returns the number of set elements. */
static int64_t count_set(mask_job *j) {
    j->blocks = (j->total + BLOCK - 1) / BLOCK;
    j->starts[0] = 0;
    gd_parallel_for(j->blocks, count_block, j);
    for (int64_t b = 0; b < j->blocks; b++) j->starts[b + 1] += j->starts[b];
    return j->starts[j->blocks];
}

static size_t starts_bytes(const gd_view *v) {
    return (size_t)((gd_numel(v->rank, v->dims) + BLOCK - 1) / BLOCK + 1) * sizeof(int64_t);
}

static bool is_row_major_view(const gd_view *v) {
    return gd_is_row_major(v->rank, v->dims, v->strides);
}

static bool same_dims(const gd_view *a, const gd_view *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->rank) == 0;
}

/* Lists the indices of a chunk whose flag is set; returns their number. Branch-free: it may write
 * one more entry than it returns. */
static int64_t compact_flags(const uint8_t *flags, int64_t n, uint16_t *list) {
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) {
        list[count] = (uint16_t)k;
        count += flags[k];
    }
    return count;
}

/* --- masked_select ---------------------------------------------------------------------------- */

static void select_block(void *arg, int64_t block) {
    const mask_job *j = arg;
    char *to = j->to + j->starts[block] * j->size;
    uint8_t flags[CHUNK];
    uint16_t list[CHUNK + 1];
    for (int64_t i = block * BLOCK, end = block_end(j, block); i < end; i += CHUNK) {
        int64_t n = end - i < CHUNK ? end - i : CHUNK;
        load_flags(j->mask, i, n, flags);
        int64_t m = compact_flags(flags, n, list);
        const char *from = j->from + i * j->size;
        switch (j->size) {
        case 1:
            for (int64_t k = 0; k < m; k++) to[k] = from[list[k]];
            break;
        case 2:
            for (int64_t k = 0; k < m; k++) memcpy(to + k * 2, from + list[k] * 2, 2);
            break;
        case 4:
            for (int64_t k = 0; k < m; k++) memcpy(to + k * 4, from + list[k] * 4, 4);
            break;
        default:
            for (int64_t k = 0; k < m; k++) memcpy(to + k * 8, from + list[k] * 8, 8);
            break;
        }
        to += m * j->size;
    }
}

/*kernel masked_select.blocks  rank 10
 * x and mask of one shape, row-major.
 */
static bool masked_select_blocks_match(const gd_kernel_call *k) {
    return same_dims(&k->in[0], &k->in[1]) && is_row_major_view(&k->in[0]) &&
           is_row_major_view(&k->in[1]);
}
static size_t masked_select_blocks_workspace(const gd_kernel_call *k) {
    return starts_bytes(&k->in[1]);
}
static gd_status masked_select_blocks_run(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *mask = &k->in[1];
    mask_job j = {.mask = mask,
                  .from = x->data,
                  .size = (int64_t)gd_dtype_size(x->dtype),
                  .total = gd_numel(mask->rank, mask->dims),
                  .starts = k->workspace};
    int64_t n = count_set(&j);
    GD_TRY(gd_kernel_output(k, 0, 1, &n));
    j.to = k->out[0].data;
    gd_parallel_for(j.blocks, select_block, &j);
    return GD_OK;
}

/* --- nonzero ---------------------------------------------------------------------------------- */

static void nonzero_block(void *arg, int64_t block) {
    const mask_job *j = arg;
    const gd_view *x = j->mask;
    int rank = x->rank;
    int64_t *to = (int64_t *)j->to + j->starts[block] * rank, row = x->dims[rank - 1];
    int64_t position[GD_MAX_RANK], rest = block * BLOCK;
    uint8_t flags[CHUNK];
    uint16_t list[CHUNK + 1];
    for (int d = rank; d-- > 0;) {
        position[d] = rest % x->dims[d];
        rest /= x->dims[d];
    }
    for (int64_t i = block * BLOCK, end = block_end(j, block); i < end;) {
        int64_t n = end - i < CHUNK ? end - i : CHUNK; /* within one row */
        if (n > row - position[rank - 1]) n = row - position[rank - 1];
        load_flags(x, i, n, flags);
        int64_t m = compact_flags(flags, n, list);
        for (int64_t k = 0; k < m; k++, to += rank) {
            for (int d = 0; d < rank - 1; d++) to[d] = position[d];
            to[rank - 1] = position[rank - 1] + list[k];
        }
        i += n;
        position[rank - 1] += n;
        for (int d = rank - 1; d > 0 && position[d] == x->dims[d]; d--) {
            position[d] = 0;
            position[d - 1]++;
        }
    }
}

/*kernel nonzero.blocks  rank 10
 * x row-major.
 */
static bool nonzero_blocks_match(const gd_kernel_call *k) {
    return k->in[0].rank > 0 && is_row_major_view(&k->in[0]);
}
static size_t nonzero_blocks_workspace(const gd_kernel_call *k) { return starts_bytes(&k->in[0]); }
static gd_status nonzero_blocks_run(gd_kernel_call *k) {
    const gd_view *x = &k->in[0];
    mask_job j = {.mask = x, .total = gd_numel(x->rank, x->dims), .starts = k->workspace};
    int64_t n = count_set(&j);
    GD_TRY(gd_kernel_output(k, 0, 2, (int64_t[]){n, x->rank}));
    j.to = k->out[0].data;
    gd_parallel_for(j.blocks, nonzero_block, &j);
    return GD_OK;
}

/* --- masked_scatter --------------------------------------------------------------------------- */

static void scatter_block(void *arg, int64_t block) {
    const mask_job *j = arg;
    const char *from = j->from + j->starts[block] * j->size;
    uint8_t flags[CHUNK];
    uint16_t list[CHUNK + 1];
    for (int64_t i = block * BLOCK, end = block_end(j, block); i < end; i += CHUNK) {
        int64_t n = end - i < CHUNK ? end - i : CHUNK;
        load_flags(j->mask, i, n, flags);
        int64_t m = compact_flags(flags, n, list);
        char *to = j->to + i * j->size;
        switch (j->size) {
        case 1:
            for (int64_t k = 0; k < m; k++) to[list[k]] = from[k];
            break;
        case 2:
            for (int64_t k = 0; k < m; k++) memcpy(to + list[k] * 2, from + k * 2, 2);
            break;
        case 4:
            for (int64_t k = 0; k < m; k++) memcpy(to + list[k] * 4, from + k * 4, 4);
            break;
        default:
            for (int64_t k = 0; k < m; k++) memcpy(to + list[k] * 8, from + k * 8, 8);
            break;
        }
        from += m * j->size;
    }
}

/*kernel masked_scatter.blocks  rank 10
 * mask of the result's shape; mask, src and result row-major.
 */
static bool masked_scatter_blocks_match(const gd_kernel_call *k) {
    return same_dims(&k->in[1], &k->out[0]) && same_dims(&k->in[0], &k->out[0]) &&
           is_row_major_view(&k->in[1]) && is_row_major_view(&k->in[2]) &&
           is_row_major_view(&k->out[0]);
}
static size_t masked_scatter_blocks_workspace(const gd_kernel_call *k) {
    return starts_bytes(&k->in[1]);
}
static gd_status masked_scatter_blocks_run(gd_kernel_call *k) {
    const gd_view *mask = &k->in[1], *src = &k->in[2], *y = &k->out[0];
    mask_job j = {.mask = mask,
                  .from = src->data,
                  .to = y->data,
                  .size = (int64_t)gd_dtype_size(y->dtype),
                  .total = gd_numel(mask->rank, mask->dims),
                  .starts = k->workspace};
    int64_t n = count_set(&j), given = gd_numel(src->rank, src->dims);
    if (n > given)
        return gd_data_fail(&(gd_data_error){.problem = GD_DATA_TOO_FEW, .values = {n, given}},
                            &(gd_data_operand){mask->rank, mask->dims, NULL});
    gd_copy_elements(y, &k->in[0]);
    gd_parallel_for(j.blocks, scatter_block, &j);
    return GD_OK;
}

#include "ops/index/cpu/index_mask_kernels.gen.h"
