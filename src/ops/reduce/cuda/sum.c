/* sum.c - see sum.h. */
#include "ops/reduce/cuda/sum.h"

#include "ops/reduce/cuda/sum_args.h"

static gd_cuda_kernel sum_columns = GD_CUDA_KERNEL("reduce/sum", "gd_sum_columns"),
                      sum_runs = GD_CUDA_KERNEL("reduce/sum", "gd_sum_runs"),
                      sum_parts = GD_CUDA_KERNEL("reduce/sum", "gd_sum_parts");

enum {
    THREADS = GD_CUDA_SUM_THREADS,
    BLOCKS = 528,         /* four for each multiprocessor of a large device */
    TILE_COLUMNS = 32,    /* vectors of a row that a block reads */
    LEAST_ROWS = 16,      /* of a thread */
    WARP_ELEMENTS = 4096, /* longer sums are added by a block */
    PART_ELEMENTS = 8192, /* of a part, at least */
    MAX_BLOCKS = 1 << 20,
};

_Static_assert(2 * BLOCKS <= GD_CUDA_SUM_COUNTERS && PART_ELEMENTS > WARP_ELEMENTS,
               "runs with several parts have a counter for each output, and are added by blocks");

static long long at_most(long long a, long long b) { return a < b ? a : b; }
static long long at_least(long long a, long long b) { return a > b ? a : b; }
static long long divide_up(long long a, long long b) { return (a + b - 1) / b; }

static bool is_columns(const gd_cuda_reduce *r) {
    return r->kept.rank == 1 && r->kept.strides[0] == 1 && r->reduced.rank == 1;
}

/* Contiguous elements, or several runs of them at the same distance. */
static bool is_runs(const gd_cuda_reduce *r) {
    const int rank = r->reduced.rank;
    return r->kept.rank <= 1 && (rank == 1 || rank == 2) && r->reduced.strides[rank - 1] == 1;
}

bool gd_cuda_can_sum(const gd_cuda_reduce *r, const gd_view *y) {
    return gd_cuda_is_float((gd_dtype)r->dtype) && gd_cuda_is_float(y->dtype) &&
           gd_cuda_is_contiguous(y) && r->outputs > 0 && r->size > 1 &&
           (is_columns(r) || is_runs(r));
}

/* Whether all vectors are aligned: their length and the strides, in elements. */
static bool has_vectors(const gd_cuda_sum *p, long long length, long long a, long long b) {
    const int width = 16 / (int)gd_cuda_element_size((gd_dtype)p->dtype);
    return ((uintptr_t)p->x & 15) == 0 && length % width == 0 && a % width == 0 && b % width == 0;
}

/* The parts depend on the shape alone, so that all devices add in the same order. */
static gd_cuda_sum describe_columns(const gd_cuda_reduce *r) {
    gd_cuda_sum p = {.x = r->x,
                     .dtype = r->dtype,
                     .outputs = r->outputs,
                     .size = r->size,
                     .stride = r->reduced.strides[0]};
    p.vector = has_vectors(&p, p.outputs, p.stride, 0);
    const int width = p.vector ? 16 / (int)gd_cuda_element_size((gd_dtype)p.dtype) : 1;
    p.columns = (int)at_most(p.outputs / width, TILE_COLUMNS);
    p.tiles = (int)divide_up(p.outputs / width, p.columns);
    const long long depth = THREADS / p.columns;
    p.parts = at_least(1, at_most(divide_up(BLOCKS, p.tiles), p.size / (depth * LEAST_ROWS)));
    return p;
}

static gd_cuda_sum describe_runs(const gd_cuda_reduce *r) {
    const bool several = r->reduced.rank == 2;
    gd_cuda_sum p = {.x = r->x,
                     .dtype = r->dtype,
                     .outputs = r->outputs,
                     .size = r->size,
                     .runs = several ? r->reduced.dims[0] : 1,
                     .stride = several ? r->reduced.strides[0] : 0,
                     .length = r->reduced.dims[several],
                     .output_stride = r->kept.rank ? r->kept.strides[0] : 0};
    p.vector = has_vectors(&p, p.length, p.stride, p.output_stride);
    p.block = p.size > WARP_ELEMENTS;
    p.parts = at_least(1, at_most(divide_up(2 * BLOCKS, p.outputs), p.size / PART_ELEMENTS));
    return p;
}

static gd_cuda_sum describe_sum(const gd_cuda_reduce *r) {
    return is_columns(r) ? describe_columns(r) : describe_runs(r);
}

/* The number of parts depends on the alignment of x, which the workspace must not. */
size_t gd_cuda_sum_bytes(const gd_cuda_reduce *r) {
    if (r->outputs == 0 || r->size < 2 || !(is_columns(r) || is_runs(r))) return 0;
    gd_cuda_reduce aligned = *r;
    aligned.x = NULL;
    const gd_cuda_sum vectors = describe_sum(&aligned);
    aligned.x = (const void *)1;
    const gd_cuda_sum elements = describe_sum(&aligned);
    const long long parts = at_least(vectors.parts, elements.parts);
    return parts > 1 ? (size_t)(parts * r->outputs) * sizeof(double) : 0;
}

gd_status gd_cuda_queue_sum(const gd_kernel_call *call, const gd_cuda_reduce *r, const gd_view *y) {
    gd_cuda_sum p = describe_sum(r);
    p.call = gd_cuda_call_of(call);
    p.partials = call->workspace;
    p.divisor = r->divisor;
    p.y = y->data;
    p.y_dtype = (int)y->dtype;
    gd_status status;
    if (is_columns(r))
        status = gd_cuda_launch(call->device, &sum_columns, p.tiles * p.parts, THREADS, &p);
    else
        status = gd_cuda_launch(
            call->device, &sum_runs,
            at_most(divide_up(p.outputs * p.parts, p.block ? 1 : THREADS / 32), MAX_BLOCKS),
            THREADS, &p);
    if (status != GD_OK || p.parts == 1 || !is_columns(r)) return status;
    p.finish_columns = 1;
    while (p.finish_columns < 32 && p.finish_columns < p.outputs) p.finish_columns *= 2;
    return gd_cuda_launch(call->device, &sum_parts, divide_up(p.outputs, p.finish_columns),
                          GD_CUDA_SUM_FINISH_THREADS, &p);
}
