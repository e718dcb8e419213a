/* elementwise_list.c - an elementwise op for each entry of a list, in one parallel loop.
 *
 * The op's own kernel runs on every entry. Entries whose tensors are row-major and of the dtype
 * that is computed in are laid end to end and cut into pieces of equal size, so that many small
 * tensors make one piece, and a large one is shared by the threads. Other entries run as single
 * calls.
 */
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/record.h"
#include "core/copy.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "core/tile.h"
#include "ops/call.h"

enum {
    TILE = 512,    /* elements at a time: as many of each number are kept in a row */
    PIECE = 16384, /* elements of a piece of work for one thread */
    MOST_NUMBERS = 8,
    BUFFER = MOST_NUMBERS * TILE * 8,
};

/* A call: entry i has the inputs in[i * width] ..., the outputs out[i * written] ..., and all have
 * the numbers. */
typedef struct list {
    const gd_kernel_call *call;
    const gd_view *numbers;
    int count, width, n_numbers, written;
    gd_dtype dtype; /* f32 or f64 */
    size_t size;    /* of an element */
    gd_ew_fn fn;
    gd_param params[GD_RECORD_MAX];
    int64_t *ends; /* of each entry, in elements: where the next one begins */
} list;

static list list_of(const gd_kernel_call *call) {
    /* n_in = each * width + n_numbers, and the op has width + n_numbers inputs */
    const int count = call->each, width = (call->n_in - call->op->n_inputs) / (count - 1);
    return (list){.call = call,
                  .numbers = call->in + count * width,
                  .count = count,
                  .width = width,
                  .n_numbers = call->op->n_inputs - width,
                  .written = call->n_out / count};
}

/* The number as entry i has it. */
static gd_view number_at(const list *l, int k, int i) {
    gd_view v = l->numbers[k];
    if (v.rank == 1) v.data = (char *)v.data + i * v.strides[0] * (int64_t)gd_dtype_size(v.dtype);
    v.rank = 0;
    return v;
}

/* The call of one entry; `views` has room for all tensors of the op. */
static gd_kernel_call entry_call(const list *l, int i, gd_view *views) {
    gd_kernel_call one = *l->call;
    memcpy(views, l->call->in + i * l->width, (size_t)l->width * sizeof *views);
    for (int k = 0; k < l->n_numbers; k++) views[l->width + k] = number_at(l, k, i);
    one.each = 0;
    one.in = views;
    one.n_in = l->width + l->n_numbers;
    one.out = l->call->out + i * l->written;
    one.n_out = l->written;
    return one;
}

/* The elements of an entry that needs no conversion, or 0. */
static int64_t straight(const list *l, int i) {
    const gd_view *first = &l->call->in[i * l->width];
    if (!gd_is_row_major(first->rank, first->dims, first->strides)) return 0;
    for (int k = 0; k < l->width; k++) {
        const gd_view *v = &first[k];
        if (v->dtype != l->dtype || v->rank != first->rank) return 0;
        for (int d = 0; d < v->rank; d++)
            if (v->dims[d] != first->dims[d] || v->strides[d] != first->strides[d]) return 0;
    }
    return gd_numel(first->rank, first->dims);
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* Numbers in a row, as a kernel reads them. Entries mostly have the same ones. */
typedef struct rows {
    char *tiles;
    double value[MOST_NUMBERS];
    int64_t filled[MOST_NUMBERS];
} rows;

/* At least n times the number of entry i. */
static const void *row_of(const list *l, rows *r, int k, int i, int64_t n) {
    const gd_view *v = &l->numbers[k];
    const int64_t at = v->rank == 1 ? i * v->strides[0] : 0;
    const double value =
        gd_load_f64(v->dtype, (const char *)v->data + at * (int64_t)gd_dtype_bytes(v->dtype));
    char *tile = r->tiles + (size_t)k * TILE * l->size;
    if (memcmp(&r->value[k], &value, sizeof value) != 0) r->filled[k] = 0;
    r->value[k] = value;
    if (l->dtype == GD_F64)
        for (int64_t e = r->filled[k]; e < n; e++) ((double *)(void *)tile)[e] = value;
    else
        for (int64_t e = r->filled[k]; e < n; e++) ((float *)(void *)tile)[e] = (float)value;
    if (n > r->filled[k]) r->filled[k] = n;
    return tile;
}

/* Elements [from, to) of entry i. */
static void run_entry(const list *l, int i, int64_t from, int64_t to, rows *r) {
    const gd_view *in = l->call->in + i * l->width, *out = l->call->out + i * l->written;
    const void *at[GD_EW_OPERANDS];
    void *to_at[GD_EW_OPERANDS];
    for (int k = 0; k < l->n_numbers; k++)
        at[l->width + k] = row_of(l, r, k, i, to - from < TILE ? to - from : TILE);
    for (int64_t e = from; e < to; e += TILE) {
        for (int k = 0; k < l->width; k++) at[k] = (const char *)in[k].data + (size_t)e * l->size;
        for (int k = 0; k < l->written; k++) to_at[k] = (char *)out[k].data + (size_t)e * l->size;
        l->fn(to - e < TILE ? to - e : TILE, at, to_at, l->params);
    }
}

static void run_piece(void *arg, int64_t piece) {
    const list *l = arg;
    GD_TILE(char, tiles, BUFFER);
    rows r = {.tiles = tiles};
    const int64_t from = piece * PIECE, total = l->ends[l->count - 1],
                  to = total - from < PIECE ? total : from + PIECE;
    int low = 0, high = l->count - 1; /* the first entry that ends behind `from` */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (l->ends[middle] > from) high = middle;
        else low = middle + 1;
    }
    for (int i = low; i < l->count; i++) {
        const int64_t begin = i ? l->ends[i - 1] : 0, end = l->ends[i];
        if (begin >= to) break;
        if (begin < end)
            run_entry(l, i, from > begin ? from - begin : 0, (to < end ? to : end) - begin, &r);
    }
}

/* --- the kernel ------------------------------------------------------------------------------- */

static size_t elementwise_list_compiled_workspace(const gd_kernel_call *call) {
    return (size_t)call->each * sizeof(int64_t);
}

static bool elementwise_list_compiled_match(const gd_kernel_call *call) {
    return call->op->n_inputs + call->n_out / call->each <= GD_EW_OPERANDS &&
           list_of(call).n_numbers <= MOST_NUMBERS;
}

/*kernel elementwise_list.compiled  rank 10
 * Every elementwise op that writes its inputs, for the entries of a list.
 */
static gd_status elementwise_list_compiled_run(gd_kernel_call *call) {
    list l = list_of(call);
    gd_view views[GD_EW_OPERANDS];
    const gd_kernel_call first = entry_call(&l, 0, views);
    l.dtype = gd_ew_compute_dtype(&first);
    l.size = gd_dtype_size(l.dtype);
    l.fn = gd_dtype_is_float(l.dtype) ? gd_ew_whole(call->op, call->op->ir, gd_ew_type(l.dtype))
                                      : NULL;
    l.ends = call->workspace;
    gd_ew_params(call->op, call->attrs, gd_ew_type(l.dtype), l.params);
    int64_t total = 0;
    for (int i = 0; i < l.count; i++) {
        const int64_t n = l.fn ? straight(&l, i) : 0;
        l.ends[i] = total += n;
        gd_kernel_call one;
        if (n == 0 && (one = entry_call(&l, i, views), true)) GD_TRY(gd_ew_run(&one));
    }
    if (total > 0) gd_parallel_for((total + PIECE - 1) / PIECE, run_piece, &l);
    return GD_OK;
}

#include "elementwise_list.gen.h"
