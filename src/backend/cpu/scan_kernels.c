/* scan_kernels.c - running sums and products on the CPU.
 *
 * A tensor is seen as [outer][n][inner] around the axis. Where inner is 1, lines are scanned four at
 * a time; a long line is cut into blocks whose totals are found first, so that threads can share it.
 * Else neighbouring lines are scanned together, as columns.
 */
#include "backend/cpu/scan.h"

#include "core/copy.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"

enum {
    BLOCK = 4096,  /* elements of a block of a long line */
    PIECE = 32768, /* elements of a piece of work for one thread, roughly */
};

typedef struct {
    gd_scan scan;
    const gd_scanner *isa;
    bool reverse;
    const char *a, *x;
    char *y;
    int64_t size, outer, inner;
    int64_t blocks;    /* of a line; 1: not cut */
    int64_t block;     /* elements of one */
    int64_t per_piece; /* blocks, or columns, of a piece of work */
    char *starts;      /* blocks > 1: [outer][blocks], totals and then start values */
} job;

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static bool typed(const gd_view *y) {
    return y->dtype == GD_F32 || y->dtype == GD_F64 || y->dtype == GD_I64;
}

static void plan(job *j, const gd_kernel_call *k, int64_t axis) {
    const gd_view *y = &k->out[0];
    int at = (int)(axis < 0 ? axis + y->rank : axis);
    *j = (job){.size = (int64_t)gd_dtype_size(y->dtype), .outer = 1, .inner = 1, .y = y->data};
    j->scan.n = 1;
    for (int d = 0; d < y->rank; d++) {
        if (d < at) j->outer *= y->dims[d];
        else if (d == at) j->scan.n = y->dims[d];
        else j->inner *= y->dims[d];
    }
    j->blocks = 1;
    j->block = j->scan.n;
}

/* Only a line that lies in a row, and is long, is cut. */
static void cut(job *j) {
    if (j->inner != 1 || j->scan.n < 4 * BLOCK || j->scan.kind == GD_SCAN_LINEAR) return;
    j->block = BLOCK;
    j->blocks = divide_up(j->scan.n, BLOCK);
}

static void total_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t end = (piece + 1) * j->per_piece;
    for (int64_t b = piece * j->per_piece; b < end && b < j->outer * j->blocks; b++) {
        int64_t first = b % j->blocks * j->block,
                n = j->scan.n - first < j->block ? j->scan.n - first : j->block;
        const char *x = j->x + (b / j->blocks * j->scan.n + first) * j->size;
        j->isa->total(j->scan.kind, x, n, j->starts + 8 * b);
    }
}

/* Blocks of lines, four at a time; the last of a line may be shorter, and is scanned alone. */
static void lines_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t end = (piece + 1) * j->per_piece, b = piece * j->per_piece;
    if (end > j->outer * j->blocks) end = j->outer * j->blocks;
    while (b < end) {
        const void *a[GD_SCAN_LINES], *x[GD_SCAN_LINES];
        void *y[GD_SCAN_LINES];
        uint64_t start[GD_SCAN_LINES];
        gd_scan s = j->scan;
        int count = 0;
        for (; b < end && count < GD_SCAN_LINES; b++, count++) {
            int64_t first = b % j->blocks * j->block,
                    n = j->scan.n - first < j->block ? j->scan.n - first : j->block;
            if (count > 0 && n != s.n) break;
            s.n = n;
            int64_t at = (b / j->blocks * j->scan.n + first + (j->reverse ? n - 1 : 0)) * j->size;
            a[count] = j->a ? j->a + at : NULL;
            x[count] = j->x + at;
            y[count] = j->y + at;
            double one = j->scan.kind == GD_SCAN_PROD;
            if (j->blocks > 1) start[count] = ((const uint64_t *)(const void *)j->starts)[b];
            else if (j->isa == GD_ISA_CALL(gd_scanner_i64)) start[count] = (uint64_t)one;
            else __builtin_memcpy(&start[count], &one, 8);
        }
        if (s.n > 0) j->isa->lines(&s, count, j->reverse ? -1 : 1, a, x, y, start);
    }
}

static void columns_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t chunks = divide_up(j->inner, j->per_piece), col = piece % chunks * j->per_piece;
    int64_t cols = j->inner - col < j->per_piece ? j->inner - col : j->per_piece;
    int64_t step = j->reverse ? -j->inner : j->inner;
    int64_t at = (piece / chunks * j->scan.n * j->inner + col +
                  (j->reverse ? (j->scan.n - 1) * j->inner : 0)) *
                 j->size;
    j->isa->columns(&j->scan, cols, step, j->a ? j->a + at : NULL, j->x + at, j->y + at);
}

static void run(job *j, gd_dtype dtype) {
    j->isa = dtype == GD_F32   ? GD_ISA_CALL(gd_scanner_f32)
             : dtype == GD_F64 ? GD_ISA_CALL(gd_scanner_f64)
                               : GD_ISA_CALL(gd_scanner_i64);
    if (j->scan.n == 0) return;
    if (j->inner > 1) {
        j->per_piece = GD_SCAN_COLUMNS;
        gd_parallel_for(j->outer * divide_up(j->inner, j->per_piece), columns_piece, j);
        return;
    }
    j->per_piece = divide_up(PIECE, GD_SCAN_LINES * j->block) * GD_SCAN_LINES;
    int64_t pieces = divide_up(j->outer * j->blocks, j->per_piece);
    if (j->blocks > 1) {
        gd_parallel_for(pieces, total_piece, j);
        for (int64_t o = 0; o < j->outer; o++)
            j->isa->starts(j->scan.kind, j->blocks, j->reverse, j->starts + 8 * o * j->blocks);
    }
    gd_parallel_for(pieces, lines_piece, j);
}

/* Another dtype is converted into the result first, and scanned in place. */
static gd_status scan(gd_kernel_call *k, int64_t axis, gd_scan_kind kind, bool exclusive,
                      bool reverse) {
    job j;
    plan(&j, k, axis);
    j.scan.kind = kind;
    j.scan.exclusive = exclusive;
    j.reverse = reverse;
    cut(&j);
    j.starts = k->workspace;
    j.x = k->in[0].data;
    if (k->in[0].dtype != k->out[0].dtype) {
        gd_copy_elements(&k->out[0], &k->in[0]);
        j.x = k->out[0].data;
    }
    run(&j, k->out[0].dtype);
    return GD_OK;
}

static size_t scan_bytes(const gd_kernel_call *k, int64_t axis) {
    job j;
    plan(&j, k, axis);
    cut(&j);
    return j.blocks > 1 ? (size_t)(j.outer * j.blocks) * 8 : 0;
}

/*kernel cumsum.lines  rank 10  wide
 * All dtypes that are summed in f32, f64 and i64.
 */
static bool cumsum_lines_match(const gd_kernel_call *k) {
    return typed(&k->out[0]) || k->out[0].dtype == GD_F16 || k->out[0].dtype == GD_BF16;
}
static size_t cumsum_lines_workspace(const gd_kernel_call *k) {
    const gd_cumsum_options *o = k->attrs;
    return scan_bytes(k, o->axis);
}
static gd_status cumsum_lines_run(gd_kernel_call *k) {
    const gd_cumsum_options *o = k->attrs;
    return scan(k, o->axis, GD_SCAN_SUM, o->exclusive, o->reverse);
}

/*kernel cumprod.lines  rank 10  wide
 * All dtypes that are multiplied in f32, f64 and i64.
 */
static bool cumprod_lines_match(const gd_kernel_call *k) { return cumsum_lines_match(k); }
static size_t cumprod_lines_workspace(const gd_kernel_call *k) {
    const gd_cumprod_options *o = k->attrs;
    return scan_bytes(k, o->axis);
}
static gd_status cumprod_lines_run(gd_kernel_call *k) {
    const gd_cumprod_options *o = k->attrs;
    return scan(k, o->axis, GD_SCAN_PROD, o->exclusive, o->reverse);
}

/*kernel linear_scan.lines  rank 10  wide
 * All floats.
 */
static gd_status linear_scan_lines_run(gd_kernel_call *k) {
    const gd_linear_scan_options *o = k->attrs;
    job j;
    plan(&j, k, o->axis);
    j.scan.kind = GD_SCAN_LINEAR;
    j.scan.neighbour = o->neighbour;
    j.reverse = o->reverse;
    j.a = k->in[0].data;
    j.x = k->in[1].data;
    run(&j, k->out[0].dtype);
    return GD_OK;
}

#include "scan_kernels.gen.h"
