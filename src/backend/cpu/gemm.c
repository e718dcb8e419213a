/* gemm.c - cutting matrix products into blocks and spreading them over the threads.
 *
 * The blocks are computed by gemm_template.h, compiled for each instruction set. Which way round a
 * product is computed and where k is cut is decided from shapes, strides and types alone, for these
 * change the order of sums; how rows and columns are cut changes no bit.
 */
#include "backend/cpu/gemm_block.h"

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/pool.h"
#include "gradus/testing.h"
#include "gradus/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* --- working memory --------------------------------------------------------------------------- */

enum { SCRATCH_KINDS = 2, SCRATCH_ALIGNMENT = 4096 };

static _Thread_local struct {
    void *memory[SCRATCH_KINDS];
    size_t bytes[SCRATCH_KINDS];
} scratch;

static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key; /* its destructor frees the scratch of a thread that ends */
static bool scratch_key_made;

void gd_gemm_free_scratch(void) {
    for (int i = 0; i < SCRATCH_KINDS; i++) {
        gd_free(scratch.memory[i]);
        scratch.memory[i] = NULL;
        scratch.bytes[i] = 0;
    }
}

static void end_of_thread(void *unused) {
    (void)unused;
    gd_gemm_free_scratch();
}

static void make_scratch_key(void) {
    scratch_key_made = pthread_key_create(&scratch_key, end_of_thread) == 0;
}

/* What blocks and parts work in when there is no memory left: one of each, for whoever comes first.
 * RESERVED_BLOCK is more than any block asks for: A and C of a block, and a panel of B. */
enum {
    RESERVED_BLOCK = 6 << 20,
    RESERVED_PART = GD_GEMM_BLOCK_M * GD_GEMM_BLOCK_N * sizeof(double)
};
static _Atomic(char *) reserve; /* a block, then two parts */
static pthread_mutex_t reserve_making = PTHREAD_MUTEX_INITIALIZER,
                       reserve_block = PTHREAD_MUTEX_INITIALIZER,
                       reserve_parts = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(reserve_making)
GD_MUTEX_AT_FORK(reserve_parts)
GD_INNER_MUTEX_AT_FORK(reserve_block)

gd_status gd_gemm_reserve(void) {
    if (atomic_load(&reserve)) return GD_OK;
    pthread_mutex_lock(&reserve_making);
    if (!atomic_load(&reserve))
        atomic_store(&reserve,
                     gd_aligned_alloc(SCRATCH_ALIGNMENT, RESERVED_BLOCK + 2 * RESERVED_PART));
    pthread_mutex_unlock(&reserve_making);
    return atomic_load(&reserve)
               ? GD_OK
               : gd_fail(GD_E_MEMORY, "no memory to keep in reserve for products");
}

static void __attribute__((constructor)) set_hook(void) { gd_cpu_reserve_hook = gd_gemm_reserve; }

static void __attribute__((destructor)) free_reserve(void) {
    gd_free(atomic_exchange(&reserve, NULL));
}

static void *reserved_block(size_t bytes) {
    char *memory = atomic_load(&reserve);
    if (!memory || bytes > RESERVED_BLOCK) return NULL;
    pthread_mutex_lock(&reserve_block);
    return memory;
}

void gd_gemm_scratch_done(void *memory) {
    if (memory && memory == atomic_load_explicit(&reserve, memory_order_relaxed))
        pthread_mutex_unlock(&reserve_block);
}

static void *own_scratch(gd_gemm_scratch_kind kind, size_t bytes) {
    if (scratch.bytes[kind] < bytes || gd_faults_armed()) {
        pthread_once(&scratch_once, make_scratch_key);
        if (!scratch_key_made || pthread_setspecific(scratch_key, &scratch) != 0) return NULL;
        /* Half as much again, so that slowly growing products do not ask each time. */
        const size_t room = bytes + bytes / 2;
        gd_free(scratch.memory[kind]);
        scratch.memory[kind] = gd_aligned_alloc(SCRATCH_ALIGNMENT, room);
        scratch.bytes[kind] = scratch.memory[kind] ? room : 0;
    }
    return scratch.memory[kind];
}

void *gd_gemm_scratch(gd_gemm_scratch_kind kind, size_t bytes) {
    void *memory = own_scratch(kind, bytes);
    return memory || kind != GD_GEMM_SCRATCH_BLOCK ? memory : reserved_block(bytes);
}

/* --- which way round -------------------------------------------------------------------------- */

/* The same product, as the transpose of C. */
static gd_gemm transposed(const gd_gemm *g) {
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

/* Roughly, in nanoseconds: what it takes to multiply and add once, and to bring one element into
 * the order in which tiles want it (see gemm_template.h). Ratios are what counts. */
static const double MULTIPLY_NS = 0.016;
static const double READ_A_NS = 0.02, PACK_A_NS = 0.3;
static const double READ_B_NS = 0.06, COPY_B_NS = 0.1, TURN_B_NS = 0.25;
static const double TURN_C_NS = 0.4;

/* From this size on A does not stay in a core's own cache: another core that reads it, too, or the
 * same once more, must fetch it again, which takes so long for an element. */
static const double LARGE_A_BYTES = 768 * 1024, FETCH_A_NS = 0.06;

/* What each element of a large C costs that is cut into columns only. It is often the weights of a
 * layer that are being trained, and is read by rows next time: then each core has had its own rows.
 */
static const double MOVE_C_NS = 0.05;

/* Multiply-adds; at least one for each element of C, which must be written. */
static double work_of(const gd_gemm *g) {
    return (double)g->m * (double)g->n * (double)(g->k > 1 ? g->k : 1);
}

/* To read all of A once for a number of columns of B. */
static double cost_of_a(const gd_gemm *g) {
    const bool wide = g->a.dtype == GD_F32 || g->a.dtype == GD_F64;
    const bool packed = !wide || (g->a.col != 1 && g->k > GD_GEMM_LONG_K);
    return (double)g->m * (double)g->k * (packed ? PACK_A_NS : READ_A_NS);
}

/* To read all of B once for so many rows of A. */
static double cost_of_b(const gd_gemm *g, int64_t rows) {
    const double straight = rows > GD_GEMM_PACK_B_ROWS ? COPY_B_NS : READ_B_NS;
    return (double)g->k * (double)g->n * (g->b.col == 1 ? straight : TURN_B_NS);
}

/* Multiplications for columns that are not there: tiles are whole vectors wide. */
static double cost_of_rest(const gd_gemm *g) {
    const int64_t vector = g->c.dtype == GD_F64 ? 8 : 16;
    return (double)g->m * (double)(divide_up(g->n, vector) * vector - g->n) * (double)g->k *
           MULTIPLY_NS;
}

static double cost_of_order(const gd_gemm *g) {
    const double cost_of_c = g->c.col == 1 ? 0 : (double)g->m * (double)g->n * TURN_C_NS;
    return cost_of_a(g) + cost_of_b(g, g->m) + cost_of_c + cost_of_rest(g);
}

static bool is_better_transposed(const gd_gemm *g) {
    /* One column, or a few: see gemm_thin.h. */
    if (g->m == 1 || g->n == 1) return g->n == 1 && g->m > 1;
    const bool along_k = g->a.col == 1 && g->b.row == 1;
    const int64_t thin = gd_gemm_thin_rows(gd_cpu_isa());
    if (along_k && (g->m <= thin || g->n <= thin)) return g->n < g->m;
    if (g->a.col == 1 && g->b.col == 1 && g->c.col == 1) return false;
    const gd_gemm t = transposed(g);
    return cost_of_order(&t) < cost_of_order(g);
}

/* --- cutting ---------------------------------------------------------------------------------- */

/* Multiply-adds that are not worth the attention of a second thread (a few microseconds). */
static const double SMALL_WORK = 1 << 18;

/* How much it is worth to have more pieces. A piece is what one thread does alone: cutting a
 * product in p pieces is taken to save IMBALANCE * (1 - 1 / p) of its time, at the price of packing
 * parts of A and B more often, and of starting p pieces. */
static const double IMBALANCE = 0.25, PIECE_NS = 1000;

/* Pieces are not made smaller than this. */
enum { PIECE_ROWS = 16, PIECE_COLUMN_UNITS = 2 };

/* Where that leaves fewer pieces than wanted, k is cut too: so deep at least. */
enum { PART_DEPTH = 1024, WANTED_PIECES = 8 };

typedef struct job {
    gd_gemm g;              /* the first product */
    gd_gemm_batch batch;    /* where the others are */
    int64_t products;       /* of the batch */
    int64_t group;          /* products in one piece; 1 when they are cut */
    int64_t cuts_m, cuts_n; /* blocks of one product */
    int64_t unit_n;         /* columns are cut at multiples of this */
    int64_t parts;          /* of k; more than 1 only for a single product */
    char *sums;             /* then: (parts, m, n) */
    gd_status (*block)(const gd_gemm *g);
    _Atomic gd_status status; /* of the pieces */
} job;

static gd_status (*block_function(const gd_gemm *g))(const gd_gemm *) {
    return g->c.dtype == GD_F64 ? GD_ISA_CALL(gd_gemm_block_f64) : GD_ISA_CALL(gd_gemm_block_f32);
}

static int64_t element_size(const job *j) { return j->g.c.dtype == GD_F64 ? 8 : 4; }

static double cost_of_fetching_a(const gd_gemm *g) {
    const double elements = (double)g->m * (double)g->k;
    return elements * (double)gd_dtype_size(g->a.dtype) > LARGE_A_BYTES ? elements * FETCH_A_NS : 0;
}

/* What cutting a product, one of `count`, into (cuts_m, cuts_n) blocks costs in one way or another
 * beyond the multiplications, on one thread (`alone`) or several. */
static double cost_of_cuts(const gd_gemm *g, int64_t count, int64_t cuts_m, int64_t cuts_n,
                           bool alone) {
    const double pieces = (double)(count * cuts_m * cuts_n);
    const double packing =
        (double)(cuts_n - 1) * cost_of_fetching_a(g) + (double)cuts_n * cost_of_a(g) +
        (double)cuts_m * cost_of_b(g, g->m / cuts_m) + PIECE_NS * (double)(cuts_m * cuts_n);
    if (alone) return packing;
    const double move_c =
        cuts_m == 1 && g->accumulate ? (double)g->m * (double)g->n * MOVE_C_NS : 0;
    return packing + move_c + IMBALANCE * work_of(g) * MULTIPLY_NS / pieces;
}

/* Halves rows and columns in the way that costs least. */
static void cut_blocks(job *j, bool alone) {
    const gd_gemm *g = &j->g;
    const int64_t units = divide_up(g->n, j->unit_n);
    j->cuts_m = j->cuts_n = 1;
    if (work_of(g) * (double)j->products <= SMALL_WORK) return;
    double best = -1;
    for (int64_t cuts_m = 1; cuts_m == 1 || g->m / cuts_m >= PIECE_ROWS; cuts_m *= 2) {
        if (divide_up(g->m, cuts_m) > GD_GEMM_BLOCK_M) continue;
        for (int64_t cuts_n = 1; cuts_n == 1 || units / cuts_n >= PIECE_COLUMN_UNITS; cuts_n *= 2) {
            if (divide_up(units, cuts_n) * j->unit_n > GD_GEMM_BLOCK_N) continue;
            const double cost = cost_of_cuts(g, j->products, cuts_m, cuts_n, alone);
            if (best >= 0 && cost >= best) continue;
            best = cost;
            j->cuts_m = cuts_m;
            j->cuts_n = cuts_n;
        }
    }
}

/* Decides what a piece is: a block of a product, a part of k of such a block, or a few products. */
static void cut_job(job *j) {
    const double work = work_of(&j->g);
    j->unit_n = 64 / element_size(j);
    j->group = 1;
    j->parts = 1;
    cut_blocks(j, false);
    const int64_t blocks = j->cuts_m * j->cuts_n;
    if (blocks == 1 && work < SMALL_WORK) {
        const double group = SMALL_WORK / work;
        j->group = group < (double)j->products ? (int64_t)group : j->products;
    }
    if (j->products == 1 && blocks < WANTED_PIECES && j->g.k >= 2 * PART_DEPTH && work > SMALL_WORK)
        j->parts = min64(divide_up(WANTED_PIECES, blocks), j->g.k / PART_DEPTH);
    /* One thread packs what blocks share only once if there are few of them. */
    if (j->parts == 1 && blocks > 1 && gd_num_threads() == 1) cut_blocks(j, true);
}

size_t gd_gemm_most_scratch(int64_t m, int64_t n, int64_t k, gd_dtype dtype) {
    enum { HIGHEST = 16, DEEPEST = 4096 /* bytes */, PAGE = 4096 };
    const int64_t size = dtype == GD_F64 ? 8 : 4;
    const bool cut = (double)m * (double)n * (double)k > SMALL_WORK;
    const int64_t rows = cut ? min64(m, GD_GEMM_BLOCK_M) : m,
                  columns = cut ? min64(n, GD_GEMM_BLOCK_N) : n;
    const int64_t depth = min64(k, DEEPEST / size) + 1,
                  high = (rows > columns ? rows : columns) + HIGHEST;
    const int64_t block =
        (high * depth + (high / 6 + 1) * 64 + GD_GEMM_PANEL_MAX * depth + rows * columns) * size +
        2 * PAGE;
    const int64_t blocks = divide_up(m, GD_GEMM_BLOCK_M) * divide_up(n, GD_GEMM_BLOCK_N);
    const bool in_parts = cut && blocks < WANTED_PIECES && k >= 2 * PART_DEPTH;
    const int64_t parts =
        in_parts ? min64(divide_up(WANTED_PIECES, blocks), k / PART_DEPTH) * m * n * size : 0;
    return (size_t)(block + block / 2 + parts + parts / 2); /* see own_scratch */
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* Product number `index` of the batch. */
static gd_gemm product_at(const job *j, int64_t index) {
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

/* Leaves of `g` what part `part` of k sums up, into its place among the sums. */
static gd_gemm part_of(const job *j, gd_gemm g, int64_t part) {
    const int64_t begin = g.k * part / j->parts, end = g.k * (part + 1) / j->parts;
    g.a = gd_gemm_in_from(g.a, 0, begin);
    g.b = gd_gemm_in_from(g.b, begin, 0);
    g.k = end - begin;
    g.c.dtype = j->g.c.dtype == GD_F64 ? GD_F64 : GD_F32;
    g.c.data = j->sums + part * g.m * g.n * element_size(j);
    g.c.row = g.n;
    g.c.col = 1;
    g.bias.data = g.mask.data = NULL;
    g.accumulate = false;
    g.act = GD_GEMM_IDENTITY;
    return g;
}

/* Block `index` of a product: those that share rows of A follow each other. */
static gd_gemm block_of(const job *j, gd_gemm g, int64_t index) {
    const int64_t in = index % j->cuts_n, im = index / j->cuts_n;
    const int64_t units = divide_up(g.n, j->unit_n);
    const int64_t i = g.m * im / j->cuts_m, n_begin = units * in / j->cuts_n * j->unit_n;
    const int64_t i_end = g.m * (im + 1) / j->cuts_m;
    const int64_t n_end = min64(units * (in + 1) / j->cuts_n * j->unit_n, g.n);
    g.a = gd_gemm_in_from(g.a, i, 0);
    g.b = gd_gemm_in_from(g.b, 0, n_begin);
    g.c = gd_gemm_out_from(g.c, i, n_begin);
    g.bias = gd_gemm_in_from(g.bias, i, n_begin);
    g.mask = gd_gemm_in_from(g.mask, i, n_begin);
    g.m = i_end - i;
    g.n = n_end - n_begin;
    return g;
}

static void run_piece(void *arg, int64_t i) {
    job *j = arg;
    const int64_t blocks = j->cuts_m * j->cuts_n;
    const int64_t first = i / (blocks * j->parts) * j->group;
    const int64_t end = min64(first + j->group, j->products);
    for (int64_t product = first; product < end; product++) {
        gd_gemm g = product_at(j, product);
        if (j->parts > 1) g = part_of(j, g, i / blocks % j->parts);
        if (blocks > 1) g = block_of(j, g, i % blocks);
        gd_status status = j->block(&g);
        if (status != GD_OK) atomic_store(&j->status, status);
    }
}

/* Adds up `count` parts, and writes C. */
static void sum_parts(const gd_gemm *g, char *parts, int64_t count) {
    if (g->c.dtype == GD_F64)
        GD_ISA_CALL(gd_gemm_sum_f64)(g, (double *)(void *)parts, count, g->m * g->n);
    else GD_ISA_CALL(gd_gemm_sum_f32)(g, (float *)(void *)parts, count, g->m * g->n);
}

static void add_part(const job *j, char *sum, const char *part, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (j->g.c.dtype == GD_F64)
            ((double *)(void *)sum)[i] += ((const double *)(const void *)part)[i];
        else ((float *)(void *)sum)[i] += ((const float *)(const void *)part)[i];
}

/* A product in parts of k where there is no memory for all of them: one block after the other, and of
 * each one part after the other, which adds up in the same order. */
static gd_status run_in_reserve(job *j) {
    char *memory = atomic_load(&reserve);
    gd_status status = memory ? GD_OK : GD_E_MEMORY;
    if (!memory) return status;
    char *sum = memory + RESERVED_BLOCK, *next = sum + RESERVED_PART;
    j->sums = sum;
    pthread_mutex_lock(&reserve_parts);
    for (int64_t i = 0; i < j->cuts_m * j->cuts_n && status == GD_OK; i++) {
        const gd_gemm c = block_of(j, j->g, i);
        for (int64_t part = 0; part < j->parts && status == GD_OK; part++) {
            gd_gemm g = block_of(j, part_of(j, j->g, part), i);
            g.c.data = part == 0 ? sum : next;
            g.c.row = g.n;
            status = j->block(&g);
            if (part > 0) add_part(j, sum, next, c.m * c.n);
        }
        if (status == GD_OK) sum_parts(&c, sum, 1);
    }
    pthread_mutex_unlock(&reserve_parts);
    return status;
}

static gd_status run_job(job *j) {
    j->block = block_function(&j->g);
    if (j->parts > 1) {
        const int64_t bytes = j->parts * j->g.m * j->g.n * element_size(j);
        j->sums = gd_gemm_scratch(GD_GEMM_SCRATCH_PARTS, (size_t)bytes);
        if (!j->sums) return run_in_reserve(j);
    }
    const int64_t groups = divide_up(j->products, j->group);
    gd_parallel_for(groups * j->parts * j->cuts_m * j->cuts_n, run_piece, j);
    gd_status status = atomic_load(&j->status);
    if (status != GD_OK || j->parts == 1) return status;
    sum_parts(&j->g, j->sums, j->parts);
    return GD_OK;
}

/* --- the calls -------------------------------------------------------------------------------- */

static bool is_narrow(gd_dtype t) { return t == GD_F32 || t == GD_F16 || t == GD_BF16; }

static bool is_known_mix(const gd_gemm *g) {
    if (g->bias.data && g->bias.dtype != g->c.dtype) return false;
    if (g->mask.data && g->mask.dtype != g->c.dtype) return false;
    if (g->c.dtype == GD_F64) return g->a.dtype == GD_F64 && g->b.dtype == GD_F64;
    return is_narrow(g->a.dtype) && is_narrow(g->b.dtype) && is_narrow(g->c.dtype);
}

/* Products that share B and whose rows follow each other are one taller product. */
static void merge_into_rows(gd_gemm *g, gd_gemm_batch *batch) {
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

static gd_status no_such_types(const gd_gemm *g) {
    return gd_fail(GD_E_DTYPE, "no matrix product of %s and %s to %s", gd_dtype_name(g->a.dtype),
                   gd_dtype_name(g->b.dtype), gd_dtype_name(g->c.dtype));
}

static gd_status no_memory(const gd_gemm *g) {
    return gd_fail(GD_E_MEMORY, "no memory to multiply (%lld, %lld) by (%lld, %lld) in",
                   (long long)g->m, (long long)g->k, (long long)g->k, (long long)g->n);
}

gd_status gd_gemm_run_batch(const gd_gemm *g, const gd_gemm_batch *batch) {
    if (!is_known_mix(g)) return no_such_types(g);
    job j = {.g = *g, .batch = *batch, .products = 1};
    merge_into_rows(&j.g, &j.batch);
    for (int d = 0; d < j.batch.rank; d++) j.products *= j.batch.size[d];
    if (j.products == 0 || j.g.m == 0 || j.g.n == 0) return GD_OK;
    if (j.g.k == 0) { /* A and B may be anywhere */
        static const double nothing = 0;
        j.g.a = (gd_gemm_in){&nothing, j.g.a.dtype, 0, 0};
        j.g.b = (gd_gemm_in){&nothing, j.g.b.dtype, 0, 0};
        memset(j.batch.a_step, 0, sizeof j.batch.a_step);
        memset(j.batch.b_step, 0, sizeof j.batch.b_step);
    }
    if (is_better_transposed(&j.g)) {
        j.g = transposed(&j.g);
        const gd_gemm_batch old = j.batch;
        memcpy(j.batch.a_step, old.b_step, sizeof old.b_step);
        memcpy(j.batch.b_step, old.a_step, sizeof old.a_step);
    }
    cut_job(&j);
    return run_job(&j) == GD_OK ? GD_OK : no_memory(g);
}

gd_status gd_gemm_run(const gd_gemm *g) {
    if (work_of(g) > SMALL_WORK || g->m == 0 || g->n == 0 || g->k == 0 || !is_known_mix(g))
        return gd_gemm_run_batch(g, &(gd_gemm_batch){.rank = 0});
    /* A small product is one block: all that is left to do is to choose its orientation. */
    gd_status (*block)(const gd_gemm *) = block_function(g);
    gd_gemm other;
    if (is_better_transposed(g)) {
        other = transposed(g);
        g = &other;
    }
    return block(g) == GD_OK ? GD_OK : no_memory(g);
}
