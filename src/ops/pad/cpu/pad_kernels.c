/* pad_kernels.c - padding and its gradient row by row, on all threads.
 *
 * A row is the last padded axis with all axes after it: (left padding | kept part of x | right
 * padding), in units of the elements after the axis. The kept part is copied as one block.
 */
#include <string.h>

#include "ops/index/cpu/index_rows.h"
#include "core/copy.h"
#include "core/pool.h"
#include "ops/pad/pad.h"

enum { TASK_ELEMENTS = 32768 }; /* roughly */

typedef struct {
    gd_pad_axis axes[GD_MAX_RANK];
    gd_word mode;
    int axis;     /* the last padded axis; the axes before it count the rows */
    int64_t unit; /* bytes (pad) or elements (pad_grad) after the axis */
    const char *from;
    char *to;
    int64_t rows, rows_per_task;
    const char *value; /* pad: a row of the constant */
    /* pad_grad: for each outer axis, the positions in gy that have position j of gx as their source
     * are list[heads[j]] to list[heads[j + 1] - 1] */
    int64_t *heads[GD_MAX_RANK], *list[GD_MAX_RANK];
    bool wide; /* f64 */
} pad_job;

static void init_pad(pad_job *j, int rank, const int64_t *dims, const gd_shape *padding) {
    gd_pad_axes(rank, dims, padding, j->axes);
    j->axis = 0;
    for (int d = 0; d < rank; d++)
        if (j->axes[d].left != 0 || j->axes[d].out != j->axes[d].n) j->axis = d;
    j->unit = 1;
    for (int d = j->axis + 1; d < rank; d++) j->unit *= dims[d];
}

static int64_t task_count(pad_job *j, int64_t row_elements) {
    j->rows_per_task =
        row_elements < TASK_ELEMENTS && row_elements > 0 ? TASK_ELEMENTS / row_elements : 1;
    return (j->rows + j->rows_per_task - 1) / j->rows_per_task;
}

/* --- pad -------------------------------------------------------------------------------------- */

/* Writes positions [first, last) of a row, which are all padding. */
static void pad_edge(const pad_job *j, char *to, const char *from, int64_t first, int64_t last) {
    const gd_pad_axis *a = &j->axes[j->axis];
    if (first >= last) return;
    if (j->mode == GD_CONSTANT) {
        memcpy(to + first * j->unit, j->value, (size_t)((last - first) * j->unit));
        return;
    }
    for (int64_t i = first; i < last; i++) {
        const char *source = from + gd_pad_source(a, j->mode, i) * j->unit;
        if (j->unit == 4) memcpy(to + i * 4, source, 4);
        else memcpy(to + i * j->unit, source, (size_t)j->unit);
    }
}

static void pad_task(void *arg, int64_t task) {
    const pad_job *j = arg;
    const gd_pad_axis *a = &j->axes[j->axis];
    int64_t first = task * j->rows_per_task, last = first + j->rows_per_task;
    if (last > j->rows) last = j->rows;
    for (int64_t row = first; row < last; row++) {
        char *to = j->to + row * a->out * j->unit;
        int64_t source = 0, size = 1, rest = row;
        bool inside = true;
        for (int d = j->axis; d-- > 0;) {
            int64_t at = gd_pad_source(&j->axes[d], j->mode, rest % j->axes[d].out);
            rest /= j->axes[d].out;
            inside &= at >= 0;
            source += at * size;
            size *= j->axes[d].n;
        }
        if (!inside) {
            memcpy(to, j->value, (size_t)(a->out * j->unit));
            continue;
        }
        const char *from = j->from + source * a->n * j->unit;
        pad_edge(j, to, from, 0, a->front);
        memcpy(to + a->front * j->unit, from + a->first * j->unit, (size_t)(a->kept * j->unit));
        pad_edge(j, to, from, a->front + a->kept, a->out);
    }
}

/* Bytes of a row of y, which is filled with the constant. */
static size_t constant_row_bytes(const gd_kernel_call *k) {
    const gd_pad_options *o = k->attrs;
    pad_job j;
    init_pad(&j, k->in[0].rank, k->in[0].dims, &o->padding);
    return (size_t)(j.axes[j.axis].out * j.unit) * gd_dtype_size(k->out[0].dtype);
}

/*kernel pad.rows  rank 10  contiguous
 * Any mode and dtype; rows are copied as blocks.
 */
static bool pad_rows_match(const gd_kernel_call *k) { return k->in[0].rank > 0; }
static size_t pad_rows_workspace(const gd_kernel_call *k) {
    const gd_pad_options *o = k->attrs;
    return o->mode == GD_CONSTANT ? constant_row_bytes(k) : 0;
}
static gd_status pad_rows_run(gd_kernel_call *k) {
    const gd_pad_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    pad_job j = {.mode = o->mode, .from = x->data, .to = y->data, .value = k->workspace};
    init_pad(&j, x->rank, x->dims, &o->padding);
    int64_t row = j.axes[j.axis].out * j.unit;
    j.unit *= (int64_t)gd_dtype_size(y->dtype);
    j.rows = 1;
    for (int d = 0; d < j.axis; d++) j.rows *= j.axes[d].out;
    if (o->mode == GD_CONSTANT) {
        char value[8];
        gd_store_f64(y->dtype, value, o->value);
        gd_view line = {
            .data = k->workspace, .dtype = y->dtype, .rank = 1, .dims = {row}, .strides = {1}};
        gd_view one = {.data = value, .dtype = y->dtype, .rank = 1, .dims = {row}, .strides = {0}};
        gd_copy_elements(&line, &one);
    }
    gd_parallel_for(task_count(&j, row), pad_task, &j);
    return GD_OK;
}

/* --- pad_grad --------------------------------------------------------------------------------- */

static void add_row(const pad_job *j, char *to, const char *from, int64_t n) {
    if (j->wide) GD_ISA_CALL(gd_add_row_f64)((double *)to, (const double *)from, n);
    else GD_ISA_CALL(gd_add_row_f32)((float *)to, (const float *)from, n);
}

/* Adds one row of gy to a row of gx. */
static void accumulate_row(const pad_job *j, char *gx, const char *gy, bool first) {
    const gd_pad_axis *a = &j->axes[j->axis];
    int64_t unit = j->unit, size = j->wide ? 8 : 4, bytes = unit * size;
    char *kept = gx + a->first * bytes;
    if (first) {
        memset(gx, 0, (size_t)(a->first * bytes));
        memcpy(kept, gy + a->front * bytes, (size_t)(a->kept * bytes));
        memset(kept + a->kept * bytes, 0, (size_t)((a->n - a->first - a->kept) * bytes));
    } else add_row(j, kept, gy + a->front * bytes, a->kept * unit);
    for (int64_t i = 0; i < a->out; i++) {
        if (i == a->front) i += a->kept; /* the kept part is done */
        if (i >= a->out) break;
        char *to = gx + gd_pad_source(a, j->mode, i) * bytes;
        const char *from = gy + i * bytes;
        if (unit > 1) add_row(j, to, from, unit);
        else if (j->wide) *(double *)to += *(const double *)from;
        else *(float *)to += *(const float *)from;
    }
}

static void pad_grad_task(void *arg, int64_t task) {
    const pad_job *j = arg;
    const gd_pad_axis *a = &j->axes[j->axis];
    int64_t size = j->wide ? 8 : 4, gx_row = a->n * j->unit * size,
            gy_row = a->out * j->unit * size;
    int64_t start = task * j->rows_per_task, stop = start + j->rows_per_task;
    if (stop > j->rows) stop = j->rows;
    for (int64_t row = start; row < stop; row++) {
        int64_t at[GD_MAX_RANK], begin[GD_MAX_RANK], end[GD_MAX_RANK], rest = row;
        bool any = true;
        for (int d = j->axis; d-- > 0;) {
            int64_t position = rest % j->axes[d].n;
            rest /= j->axes[d].n;
            at[d] = begin[d] = j->heads[d][position];
            end[d] = j->heads[d][position + 1];
            any &= begin[d] < end[d];
        }
        char *gx = j->to + row * gx_row;
        if (!any) {
            memset(gx, 0, (size_t)gx_row);
            continue;
        }
        for (bool first = true, more = true; more; first = false) { /* rows of gy, in order */
            int64_t source = 0;
            for (int d = 0; d < j->axis; d++) source = source * j->axes[d].out + j->list[d][at[d]];
            accumulate_row(j, gx, j->from + source * gy_row, first);
            more = false;
            for (int d = j->axis; d-- > 0 && !more;) {
                if (++at[d] < end[d]) more = true;
                else at[d] = begin[d];
            }
        }
    }
}

/* Lists the positions in gy by their source position in gx, in ascending order (counting sort). */
static void invert_sources(const gd_pad_axis *a, gd_word mode, int64_t *heads, int64_t *list) {
    memset(heads, 0, (size_t)(a->n + 1) * sizeof *heads);
    for (int64_t i = 0; i < a->out; i++) heads[gd_pad_source(a, mode, i) + 1]++;
    for (int64_t i = 0; i < a->n; i++) heads[i + 1] += heads[i];
    for (int64_t i = 0; i < a->out; i++) list[heads[gd_pad_source(a, mode, i)]++] = i;
    /* heads[i] has advanced to the start of i + 1. */
    memmove(heads + 1, heads, (size_t)a->n * sizeof *heads);
    heads[0] = 0;
}

/*kernel pad_grad.rows  rank 10  wide
 * Every row of gx sums the rows of gy that were copied from it.
 */
static bool pad_grad_rows_match(const gd_kernel_call *k) { return k->in[0].rank > 0; }
static size_t pad_grad_rows_workspace(const gd_kernel_call *k) {
    size_t numbers = 0;
    for (int d = 0; d < k->out[0].rank; d++)
        numbers += (size_t)(k->out[0].dims[d] + 1 + k->in[0].dims[d]);
    return numbers * sizeof(int64_t);
}
static gd_status pad_grad_rows_run(gd_kernel_call *k) {
    const gd_pad_grad_options *o = k->attrs;
    const gd_view *gy = &k->in[0], *gx = &k->out[0];
    pad_job j = {.mode = o->mode, .from = gy->data, .to = gx->data, .wide = gx->dtype == GD_F64};
    int64_t *numbers = k->workspace;
    init_pad(&j, gx->rank, gx->dims, &o->padding);
    j.rows = 1;
    for (int d = 0; d < j.axis; d++) {
        j.rows *= j.axes[d].n;
        j.heads[d] = numbers;
        j.list[d] = numbers += j.axes[d].n + 1;
        numbers += j.axes[d].out;
        invert_sources(&j.axes[d], o->mode, j.heads[d], j.list[d]);
    }
    gd_parallel_for(task_count(&j, j.axes[j.axis].out * j.unit), pad_grad_task, &j);
    return GD_OK;
}

#include "ops/pad/cpu/pad_kernels.gen.h"
