/* gemm.c - partitions matrix products into blocks of C and runs them on the threads.
 *
 * A product runs in three steps: choose whether to compute C or its transpose, partition the work
 * into tasks (blocks of C, groups of small products of a batch, or blocks of split-K), and compute
 * the tasks in parallel. gemm.typed.isa.c computes a block.
 *
 * The choice of the transpose and the split of k change the order of sums, so they depend on
 * shapes, strides and dtypes alone. The partition of rows and columns changes no bit.
 */
#include "ops/matmul/cpu/gemm_block.h"

#include "core/error.h"
#include "core/pool.h"
#include "gradus/threads.h"

#include <stdatomic.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* --- C or its transpose ----------------------------------------------------------------------- */

/* The same product as C^T = B^T * A^T. */
static gd_gemm transposed_product(const gd_gemm *g) {
    gd_gemm t = *g;
    t.m = g->n;
    t.n = g->m;
    t.a = (gd_gemm_in){g->b.data, g->b.dtype, g->b.col, g->b.row};
    t.b = (gd_gemm_in){g->a.data, g->a.dtype, g->a.col, g->a.row};
    t.c = (gd_gemm_out){g->c.data, g->c.dtype, g->c.col, g->c.row};
    t.bias = (gd_gemm_in){g->bias.data, g->bias.dtype, g->bias.col, g->bias.row};
    t.mask = (gd_gemm_in){g->mask.data, g->mask.dtype, g->mask.col, g->mask.row};
    return t;
}

/* A rough cost model in nanoseconds: of one multiply-add, and of reading, copying or transposing
 * one element of a matrix into packed order (see gemm.typed.isa.c). Only the ratios matter. */
static const double MULTIPLY_NS = 0.016;
static const double READ_A_NS = 0.02, PACK_A_NS = 0.3;
static const double READ_B_NS = 0.06, COPY_B_NS = 0.1, TRANSPOSE_B_NS = 0.25;
static const double TRANSPOSE_C_NS = 0.4;

/* A matrix A larger than this does not stay in a core's L2 cache. Every further column of blocks
 * reads A again from L3 or memory, at FETCH_A_NS per element. */
static const double LARGE_A_BYTES = 768 * 1024, FETCH_A_NS = 0.06;

/* The cost per element of an accumulated C that is partitioned by columns only. Such a C is often a
 * weight that the forward pass reads by rows: partitioned by rows, each core has its rows in
 * cache. */
static const double MOVE_C_NS = 0.05;

/* Multiply-adds, and at least one for each element of C, which has to be written. */
static double product_macs(const gd_gemm *g) {
    return (double)g->m * (double)g->n * (double)(g->k > 1 ? g->k : 1);
}

/* Reading or packing all of A once. */
static double read_a_cost(const gd_gemm *g) {
    const bool wide = g->a.dtype == GD_F32 || g->a.dtype == GD_F64;
    const bool packed = !wide || (g->a.col != 1 && g->k > GD_GEMM_LONG_K);
    return (double)g->m * (double)g->k * (packed ? PACK_A_NS : READ_A_NS);
}

/* Reading or packing all of B once, for a block with this many rows. */
static double read_b_cost(const gd_gemm *g, int64_t rows) {
    const double straight = rows > GD_GEMM_PACK_B_ROWS ? COPY_B_NS : READ_B_NS;
    return (double)g->k * (double)g->n * (g->b.col == 1 ? straight : TRANSPOSE_B_NS);
}

/* Wasted multiply-adds in the padding columns of the last vector. */
static double padding_cost(const gd_gemm *g) {
    const int64_t vector = g->c.dtype == GD_F64 ? 8 : 16;
    return (double)g->m * (double)(divide_up(g->n, vector) * vector - g->n) * (double)g->k *
           MULTIPLY_NS;
}

static double product_cost(const gd_gemm *g) {
    const double write_c = g->c.col == 1 ? 0 : (double)g->m * (double)g->n * TRANSPOSE_C_NS;
    return read_a_cost(g) + read_b_cost(g, g->m) + write_c + padding_cost(g);
}

static bool is_faster_transposed(const gd_gemm *g) {
    /* Vectors and very few rows: gemm_thin.h takes the short side as rows. */
    if (g->m == 1 || g->n == 1) return g->n == 1 && g->m > 1;
    const bool k_contiguous = g->a.col == 1 && g->b.row == 1;
    const int64_t thin = gd_gemm_thin_rows(gd_cpu_isa());
    if (k_contiguous && (g->m <= thin || g->n <= thin)) return g->n < g->m;
    if (g->a.col == 1 && g->b.col == 1 && g->c.col == 1) return false;
    const gd_gemm t = transposed_product(g);
    return product_cost(&t) < product_cost(g);
}

/* --- partitioning ----------------------------------------------------------------------------- */

/* Products of at most this many multiply-adds (a few microseconds) run on one thread. */
static const double SMALL_MACS = 1 << 18;

/* A task is what one thread computes alone. Partitioning a product into p tasks saves IMBALANCE *
 * (1 - 1 / p) of its time in the cost model; it costs packing parts of A and B more than once, and
 * TASK_NS to start each task. */
static const double IMBALANCE = 0.25, TASK_NS = 1000;

/* The smallest task. Columns are partitioned in units of one cache line. */
enum { MIN_TASK_ROWS = 16, MIN_TASK_COLUMN_UNITS = 2 };

/* If that gives fewer than ENOUGH_TASKS, k is split too, into splits of at least
 * MIN_SPLIT_DEPTH. */
enum { MIN_SPLIT_DEPTH = 1024, ENOUGH_TASKS = 8 };

typedef struct gemm_job {
    gd_gemm g;                  /* the first product of the batch */
    gd_gemm_batch batch;        /* the offsets of the others */
    int64_t products;           /* in the batch */
    int64_t group;              /* products per task; 1 if products are partitioned */
    int64_t blocks_m, blocks_n; /* blocks of one product */
    int64_t unit_n;             /* columns are partitioned at multiples of this */
    int64_t k_splits;           /* split-K if more than 1; only for a single product */
    char *partials;             /* the partial products of split-K: (k_splits, m, n) */
    gd_status (*block)(const gd_gemm *g);
    _Atomic gd_status status; /* of the tasks */
} gemm_job;

static gd_status (*block_function(const gd_gemm *g))(const gd_gemm *) {
    return g->c.dtype == GD_F64 ? GD_ISA_CALL(gd_gemm_block_f64) : GD_ISA_CALL(gd_gemm_block_f32);
}

static int64_t accumulator_size(const gemm_job *j) { return j->g.c.dtype == GD_F64 ? 8 : 4; }

static double fetch_a_cost(const gd_gemm *g) {
    const double elements = (double)g->m * (double)g->k;
    return elements * (double)gd_dtype_size(g->a.dtype) > LARGE_A_BYTES ? elements * FETCH_A_NS : 0;
}

/* The cost of a partition into blocks_m x blocks_n blocks beyond the multiply-adds, for one product
 * of a batch of `count`, on one thread (`alone`) or on several. */
static double partition_cost(const gd_gemm *g, int64_t count, int64_t blocks_m, int64_t blocks_n,
                             bool alone) {
    const double tasks = (double)(count * blocks_m * blocks_n);
    const double packing = (double)(blocks_n - 1) * fetch_a_cost(g) +
                           (double)blocks_n * read_a_cost(g) +
                           (double)blocks_m * read_b_cost(g, g->m / blocks_m) +
                           TASK_NS * (double)(blocks_m * blocks_n);
    if (alone) return packing;
    const double move_c =
        blocks_m == 1 && g->accumulate ? (double)g->m * (double)g->n * MOVE_C_NS : 0;
    return packing + move_c + IMBALANCE * product_macs(g) * MULTIPLY_NS / tasks;
}

/* Chooses the cheapest partition among powers of two in each direction. */
static void partition_blocks(gemm_job *j, bool alone) {
    const gd_gemm *g = &j->g;
    const int64_t units = divide_up(g->n, j->unit_n);
    j->blocks_m = j->blocks_n = 1;
    if (product_macs(g) * (double)j->products <= SMALL_MACS) return;
    double best = -1;
    for (int64_t blocks_m = 1; blocks_m == 1 || g->m / blocks_m >= MIN_TASK_ROWS; blocks_m *= 2) {
        if (divide_up(g->m, blocks_m) > GD_GEMM_BLOCK_M) continue;
        for (int64_t blocks_n = 1; blocks_n == 1 || units / blocks_n >= MIN_TASK_COLUMN_UNITS;
             blocks_n *= 2) {
            if (divide_up(units, blocks_n) * j->unit_n > GD_GEMM_BLOCK_N) continue;
            const double cost = partition_cost(g, j->products, blocks_m, blocks_n, alone);
            if (best >= 0 && cost >= best) continue;
            best = cost;
            j->blocks_m = blocks_m;
            j->blocks_n = blocks_n;
        }
    }
}

/* Decides what a task is: a block of a product, a block of one split of k, or a group of
 * products. */
static void partition_job(gemm_job *j) {
    const double macs = product_macs(&j->g);
    j->unit_n = 64 / accumulator_size(j);
    j->group = 1;
    j->k_splits = 1;
    partition_blocks(j, false);
    const int64_t blocks = j->blocks_m * j->blocks_n;
    if (blocks == 1 && macs < SMALL_MACS) {
        const double group = SMALL_MACS / macs;
        j->group = group < (double)j->products ? (int64_t)group : j->products;
    }
    if (j->products == 1 && blocks < ENOUGH_TASKS && j->g.k >= 2 * MIN_SPLIT_DEPTH &&
        macs > SMALL_MACS)
        j->k_splits = min64(divide_up(ENOUGH_TASKS, blocks), j->g.k / MIN_SPLIT_DEPTH);
    /* Blocks pack shared strips and panels again; one thread alone needs no balance, so it takes
     * fewer blocks. */
    if (j->k_splits == 1 && blocks > 1 && gd_num_threads() == 1) partition_blocks(j, true);
}

size_t gd_gemm_max_scratch(int64_t m, int64_t n, int64_t k, gd_dtype dtype) {
    enum { MAX_TILE_ROWS = 16, MAX_DEPTH_BYTES = 4096, PAGE = 4096 };
    const int64_t size = dtype == GD_F64 ? 8 : 4;
    const bool partitioned = (double)m * (double)n * (double)k > SMALL_MACS;
    const int64_t rows = partitioned ? min64(m, GD_GEMM_BLOCK_M) : m,
                  columns = partitioned ? min64(n, GD_GEMM_BLOCK_N) : n;
    const int64_t depth = min64(k, MAX_DEPTH_BYTES / size) + 1,
                  longer = (rows > columns ? rows : columns) + MAX_TILE_ROWS;
    const int64_t strips = longer * depth + (longer / 6 + 1) * 64,
                  panel = GD_GEMM_PANEL_MAX * depth;
    const size_t block = (size_t)((strips + panel + rows * columns) * size + 2 * PAGE);
    const int64_t blocks = divide_up(m, GD_GEMM_BLOCK_M) * divide_up(n, GD_GEMM_BLOCK_N);
    const bool split = partitioned && blocks < ENOUGH_TASKS && k >= 2 * MIN_SPLIT_DEPTH;
    const int64_t k_splits =
        split ? min64(divide_up(ENOUGH_TASKS, blocks), k / MIN_SPLIT_DEPTH) : 0;
    return gd_gemm_scratch_capacity(block) +
           gd_gemm_scratch_capacity((size_t)(k_splits * m * n * size));
}

/* --- tasks ------------------------------------------------------------------------------------ */

/* Product number `index` of the batch. */
static gd_gemm product_at(const gemm_job *j, int64_t index) {
    gd_gemm g = j->g;
    int64_t a = 0, b = 0, c = 0, bias = 0;
    for (int d = j->batch.rank - 1; d >= 0; d--) {
        const int64_t x = index % j->batch.size[d];
        index /= j->batch.size[d];
        a += x * j->batch.a_step[d];
        b += x * j->batch.b_step[d];
        c += x * j->batch.c_step[d];
        bias += x * j->batch.bias_step[d];
    }
    g.a.data = gd_gemm_at(g.a.data, g.a.dtype, a);
    g.b.data = gd_gemm_at(g.b.data, g.b.dtype, b);
    g.c.data = (void *)gd_gemm_at(g.c.data, g.c.dtype, c);
    if (g.bias.data) g.bias.data = gd_gemm_at(g.bias.data, g.bias.dtype, bias);
    return g;
}

/* Split `split` of k of product `g`, without the epilogue, written to its partial product. */
static gd_gemm split_of_product(const gemm_job *j, gd_gemm g, int64_t split) {
    const int64_t begin = g.k * split / j->k_splits, end = g.k * (split + 1) / j->k_splits;
    g.a = gd_gemm_in_at(g.a, 0, begin);
    g.b = gd_gemm_in_at(g.b, begin, 0);
    g.k = end - begin;
    g.c.dtype = j->g.c.dtype == GD_F64 ? GD_F64 : GD_F32;
    g.c.data = j->partials + split * g.m * g.n * accumulator_size(j);
    g.c.row = g.n;
    g.c.col = 1;
    g.bias.data = g.mask.data = NULL;
    g.accumulate = false;
    g.act = GD_GEMM_IDENTITY;
    return g;
}

/* Block `index` of product `g`. Consecutive blocks share rows of A. */
static gd_gemm block_of_product(const gemm_job *j, gd_gemm g, int64_t index) {
    const int64_t in = index % j->blocks_n, im = index / j->blocks_n;
    const int64_t units = divide_up(g.n, j->unit_n);
    const int64_t i = g.m * im / j->blocks_m, n_begin = units * in / j->blocks_n * j->unit_n;
    const int64_t i_end = g.m * (im + 1) / j->blocks_m;
    const int64_t n_end = min64(units * (in + 1) / j->blocks_n * j->unit_n, g.n);
    g.a = gd_gemm_in_at(g.a, i, 0);
    g.b = gd_gemm_in_at(g.b, 0, n_begin);
    g.c = gd_gemm_out_at(g.c, i, n_begin);
    g.bias = gd_gemm_in_at(g.bias, i, n_begin);
    g.mask = gd_gemm_in_at(g.mask, i, n_begin);
    g.m = i_end - i;
    g.n = n_end - n_begin;
    return g;
}

static void run_gemm_task(void *arg, int64_t i) {
    gemm_job *j = arg;
    const int64_t blocks = j->blocks_m * j->blocks_n;
    const int64_t first = i / (blocks * j->k_splits) * j->group;
    const int64_t end = min64(first + j->group, j->products);
    for (int64_t product = first; product < end; product++) {
        gd_gemm g = product_at(j, product);
        if (j->k_splits > 1) g = split_of_product(j, g, i / blocks % j->k_splits);
        if (blocks > 1) g = block_of_product(j, g, i % blocks);
        gd_status status = j->block(&g);
        if (status != GD_OK) atomic_store(&j->status, status);
    }
}

/* Adds `count` partial products and writes C. */
static void reduce_partials(const gd_gemm *g, char *partials, int64_t count) {
    if (g->c.dtype == GD_F64)
        GD_ISA_CALL(gd_gemm_sum_f64)(g, (double *)(void *)partials, count, g->m * g->n);
    else GD_ISA_CALL(gd_gemm_sum_f32)(g, (float *)(void *)partials, count, g->m * g->n);
}

static void add_partial(const gemm_job *j, char *sum, const char *partial, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (j->g.c.dtype == GD_F64)
            ((double *)(void *)sum)[i] += ((const double *)(const void *)partial)[i];
        else ((float *)(void *)sum)[i] += ((const float *)(const void *)partial)[i];
}

/* Split-K without memory for all partial products: computes the blocks one after the other, and the
 * splits of each block one after the other, which adds them in the same order. */
static gd_status run_splits_in_reserve(gemm_job *j) {
    char *sum = gd_gemm_reserved_partials_lock();
    if (!sum) return GD_E_MEMORY;
    char *next = sum + GD_GEMM_RESERVED_PARTIAL;
    gd_status status = GD_OK;
    j->partials = sum;
    for (int64_t i = 0; i < j->blocks_m * j->blocks_n && status == GD_OK; i++) {
        const gd_gemm c = block_of_product(j, j->g, i);
        for (int64_t split = 0; split < j->k_splits && status == GD_OK; split++) {
            gd_gemm g = block_of_product(j, split_of_product(j, j->g, split), i);
            g.c.data = split == 0 ? sum : next;
            g.c.row = g.n;
            status = j->block(&g);
            if (split > 0) add_partial(j, sum, next, c.m * c.n);
        }
        if (status == GD_OK) reduce_partials(&c, sum, 1);
    }
    gd_gemm_reserved_partials_unlock();
    return status;
}

static gd_status run_gemm_job(gemm_job *j) {
    j->block = block_function(&j->g);
    if (j->k_splits > 1) {
        const int64_t bytes = j->k_splits * j->g.m * j->g.n * accumulator_size(j);
        j->partials = gd_gemm_scratch(GD_GEMM_SCRATCH_PARTIAL, (size_t)bytes);
        if (!j->partials) return run_splits_in_reserve(j);
    }
    const int64_t groups = divide_up(j->products, j->group);
    gd_parallel_for(groups * j->k_splits * j->blocks_m * j->blocks_n, run_gemm_task, j);
    gd_status status = atomic_load(&j->status);
    if (status != GD_OK || j->k_splits == 1) return status;
    reduce_partials(&j->g, j->partials, j->k_splits);
    return GD_OK;
}

/* --- entry points ----------------------------------------------------------------------------- */

static bool is_f32_or_half(gd_dtype t) { return t == GD_F32 || t == GD_F16 || t == GD_BF16; }

static bool has_supported_dtypes(const gd_gemm *g) {
    if (g->bias.data && g->bias.dtype != g->c.dtype) return false;
    if (g->mask.data && g->mask.dtype != g->c.dtype) return false;
    if (g->c.dtype == GD_F64) return g->a.dtype == GD_F64 && g->b.dtype == GD_F64;
    return is_f32_or_half(g->a.dtype) && is_f32_or_half(g->b.dtype) && is_f32_or_half(g->c.dtype);
}

/* Folds batch dimensions into m where the products share B and their rows are evenly spaced. */
static void fold_batch_into_rows(gd_gemm *g, gd_gemm_batch *batch) {
    while (batch->rank > 0) {
        const int d = batch->rank - 1;
        const int64_t a = batch->a_step[d], c = batch->c_step[d], bias = batch->bias_step[d];
        if (batch->size[d] != 1) {
            if (batch->b_step[d] != 0) return;
            if (g->m == 1) {
                g->a.row = a;
                g->c.row = c;
                g->bias.row = bias;
            } else if (a != g->m * g->a.row || c != g->m * g->c.row ||
                       (g->bias.data && bias != g->m * g->bias.row)) {
                return;
            }
            g->m *= batch->size[d];
        }
        batch->rank--;
    }
}

static gd_status fail_dtypes(const gd_gemm *g) {
    return gd_fail(GD_E_DTYPE, "no matrix product of %s by %s with a result of %s",
                   gd_dtype_name(g->a.dtype), gd_dtype_name(g->b.dtype), gd_dtype_name(g->c.dtype));
}

static gd_status fail_memory(const gd_gemm *g) {
    return gd_fail(GD_E_MEMORY,
                   "out of memory: scratch for the product of (%lld, %lld) by (%lld, %lld)",
                   (long long)g->m, (long long)g->k, (long long)g->k, (long long)g->n);
}

gd_status gd_gemm_run_batch(const gd_gemm *g, const gd_gemm_batch *batch) {
    if (!has_supported_dtypes(g)) return fail_dtypes(g);
    gemm_job j = {.g = *g, .batch = *batch, .products = 1};
    fold_batch_into_rows(&j.g, &j.batch);
    for (int d = 0; d < j.batch.rank; d++) j.products *= j.batch.size[d];
    if (j.products == 0 || j.g.m == 0 || j.g.n == 0) return GD_OK;
    if (j.g.k == 0) { /* A and B may have no data */
        static const double zero = 0;
        j.g.a = (gd_gemm_in){&zero, j.g.a.dtype, 0, 0};
        j.g.b = (gd_gemm_in){&zero, j.g.b.dtype, 0, 0};
        memset(j.batch.a_step, 0, sizeof j.batch.a_step);
        memset(j.batch.b_step, 0, sizeof j.batch.b_step);
    }
    if (is_faster_transposed(&j.g)) {
        j.g = transposed_product(&j.g);
        const gd_gemm_batch old = j.batch;
        memcpy(j.batch.a_step, old.b_step, sizeof old.b_step);
        memcpy(j.batch.b_step, old.a_step, sizeof old.a_step);
    }
    partition_job(&j);
    return run_gemm_job(&j) == GD_OK ? GD_OK : fail_memory(g);
}

gd_status gd_gemm_run(const gd_gemm *g) {
    if (product_macs(g) > SMALL_MACS || g->m == 0 || g->n == 0 || g->k == 0 ||
        !has_supported_dtypes(g))
        return gd_gemm_run_batch(g, &(gd_gemm_batch){.rank = 0});
    /* A small product is one block: only choose between it and its transpose. */
    gd_status (*block)(const gd_gemm *) = block_function(g);
    gd_gemm other;
    if (is_faster_transposed(g)) {
        other = transposed_product(g);
        g = &other;
    }
    return block(g) == GD_OK ? GD_OK : fail_memory(g);
}
