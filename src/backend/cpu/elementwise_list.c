/* elementwise_list.c - calls an elementwise op for each entry of a list, in one parallel loop.
 *
 * Entries whose tensors are contiguous and of the compute dtype are concatenated and divided into
 * tasks of equal size, so that one task computes many small tensors, and several threads share a
 * large one. The other entries run as single calls, one after the other.
 */
#include <string.h>

#include "backend/cpu/elementwise_job.h"
#include "codegen/record.h"
#include "core/copy.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "core/tile.h"
#include "dispatch/call.h"

enum {
    TILE = 512,            /* elements of one kernel call, and of the tile of a scalar */
    TASK_ELEMENTS = 16384, /* elements of a task */
    MAX_SCALARS = 8,
    BUFFER_BYTES = MAX_SCALARS * TILE * 8,
};

/* A call of an op for `count` entries (gd_each in dispatch/call.h). Entry i has the inputs
 * in[i * width], ..., in[(i + 1) * width - 1], then the scalars, and the outputs
 * out[i * written], ..., out[(i + 1) * written - 1]. */
typedef struct list_job {
    const gd_kernel_call *call;
    const gd_view *scalars; /* rank 0, or rank 1 with one element per entry */
    int count, width, n_scalars, written;
    gd_dtype dtype; /* the compute dtype; f32 or f64 if fn is set */
    size_t size;    /* bytes of an element */
    gd_ew_fn fn;    /* the op's compiled kernel; NULL: every entry runs as a single call */
    gd_param params[GD_RECORD_MAX];
    int64_t *ends; /* (count): the end of each entry in the concatenated elements */
} list_job;

static list_job list_job_of(const gd_kernel_call *call) {
    /* n_in = each * width + n_scalars, the op has width + n_scalars inputs, and each > 1. */
    const int count = call->each, width = (call->n_in - call->op->n_inputs) / (count - 1);
    return (list_job){.call = call,
                      .scalars = call->in + count * width,
                      .count = count,
                      .width = width,
                      .n_scalars = call->op->n_inputs - width,
                      .written = call->n_out / count};
}

/* Number k of entry i, as a tensor of rank 0. */
static gd_view scalar_of_entry(const list_job *l, int k, int i) {
    gd_view v = l->scalars[k];
    if (v.rank == 1) v.data = (char *)v.data + i * v.strides[0] * (int64_t)gd_dtype_size(v.dtype);
    v.rank = 0;
    return v;
}

/* The call of one entry; `views` has room for all tensors of the op. */
static gd_kernel_call entry_call(const list_job *l, int i, gd_view *views) {
    gd_kernel_call one = *l->call;
    memcpy(views, l->call->in + i * l->width, (size_t)l->width * sizeof *views);
    for (int k = 0; k < l->n_scalars; k++) views[l->width + k] = scalar_of_entry(l, k, i);
    one.each = 0;
    one.in = views;
    one.n_in = l->width + l->n_scalars;
    one.out = l->call->out + i * l->written;
    one.n_out = l->written;
    return one;
}

/* The number of elements of an entry that needs no conversion; 0 if it needs one. */
static int64_t contiguous_elements(const list_job *l, int i) {
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

/* --- tasks ------------------------------------------------------------------------------------ */

/* A tile for each scalar, filled with its value, because kernels read all operands as arrays. Most
 * entries have the same scalars, so a tile is refilled only when the value changes. */
typedef struct scalar_tiles {
    char *tiles;
    double value[MAX_SCALARS];
    int64_t filled[MAX_SCALARS]; /* elements that have the value */
} scalar_tiles;

/* The tile of scalar k for entry i, with at least n elements filled. */
static const void *fill_scalar_tile(const list_job *l, scalar_tiles *t, int k, int i, int64_t n) {
    const gd_view scalar = scalar_of_entry(l, k, i);
    const double value = gd_load_f64(scalar.dtype, scalar.data);
    char *tile = t->tiles + (size_t)k * TILE * l->size;
    if (memcmp(&t->value[k], &value, sizeof value) != 0) t->filled[k] = 0;
    t->value[k] = value;
    if (l->dtype == GD_F64)
        for (int64_t e = t->filled[k]; e < n; e++) ((double *)(void *)tile)[e] = value;
    else
        for (int64_t e = t->filled[k]; e < n; e++) ((float *)(void *)tile)[e] = (float)value;
    if (n > t->filled[k]) t->filled[k] = n;
    return tile;
}

/* Computes elements [from, to) of entry i. */
static void run_entry(const list_job *l, int i, int64_t from, int64_t to, scalar_tiles *t) {
    const gd_view *in = l->call->in + i * l->width, *out = l->call->out + i * l->written;
    const void *inputs[GD_EW_OPERANDS];
    void *outputs[GD_EW_OPERANDS];
    for (int k = 0; k < l->n_scalars; k++)
        inputs[l->width + k] = fill_scalar_tile(l, t, k, i, to - from < TILE ? to - from : TILE);
    for (int64_t e = from; e < to; e += TILE) {
        for (int k = 0; k < l->width; k++)
            inputs[k] = (const char *)in[k].data + (size_t)e * l->size;
        for (int k = 0; k < l->written; k++) outputs[k] = (char *)out[k].data + (size_t)e * l->size;
        l->fn(to - e < TILE ? to - e : TILE, inputs, outputs, l->params);
    }
}

static void elements_task(void *arg, int64_t task) {
    const list_job *l = arg;
    GD_TILE(char, tiles, BUFFER_BYTES);
    scalar_tiles scalars = {.tiles = tiles};
    const int64_t from = task * TASK_ELEMENTS, total = l->ends[l->count - 1],
                  to = total - from < TASK_ELEMENTS ? total : from + TASK_ELEMENTS;
    int low = 0, high = l->count - 1; /* binary search: the first entry that ends after `from` */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (l->ends[middle] > from) high = middle;
        else low = middle + 1;
    }
    for (int i = low; i < l->count; i++) {
        const int64_t begin = i ? l->ends[i - 1] : 0, end = l->ends[i];
        if (begin >= to) break;
        if (begin < end)
            run_entry(l, i, from > begin ? from - begin : 0, (to < end ? to : end) - begin,
                      &scalars);
    }
}

/* --- the kernel ------------------------------------------------------------------------------- */

static size_t elementwise_list_compiled_workspace(const gd_kernel_call *call) {
    return (size_t)call->each * sizeof(int64_t);
}

static bool elementwise_list_compiled_match(const gd_kernel_call *call) {
    return call->op->n_inputs + call->n_out / call->each <= GD_EW_OPERANDS &&
           list_job_of(call).n_scalars <= MAX_SCALARS;
}

/*kernel elementwise_list.compiled  rank 10
 * Every elementwise op that writes its inputs, for the entries of a list.
 */
static gd_status elementwise_list_compiled_run(gd_kernel_call *call) {
    list_job l = list_job_of(call);
    gd_view views[GD_EW_OPERANDS];
    const gd_kernel_call first = entry_call(&l, 0, views);
    l.dtype = gd_ew_compute_dtype(&first);
    l.size = gd_dtype_size(l.dtype);
    l.fn = gd_dtype_is_float(l.dtype)
               ? gd_ew_compiled_kernel(call->op, call->op->ir, gd_ew_type(l.dtype))
               : NULL;
    l.ends = call->workspace;
    gd_ew_params(call->op, call->attrs, gd_ew_type(l.dtype), l.params);
    int64_t total = 0;
    for (int i = 0; i < l.count; i++) {
        const int64_t n = l.fn ? contiguous_elements(&l, i) : 0;
        l.ends[i] = total += n;
        if (n > 0) continue;
        gd_kernel_call single = entry_call(&l, i, views);
        GD_TRY(gd_ew_run(&single));
    }
    if (total > 0) gd_parallel_for((total + TASK_ELEMENTS - 1) / TASK_ELEMENTS, elements_task, &l);
    return GD_OK;
}

#include "backend/cpu/elementwise_list.gen.h"
