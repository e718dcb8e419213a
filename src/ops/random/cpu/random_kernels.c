/* random_kernels.c - random ops on the CPU. Each task generates many Philox blocks, with the same
 * bits as the reference kernels in src/ops/random/random.c.
 */
#include "core/tile.h"
#include "ops/random/cpu/random.h"

#include "core/copy.h"
#include "core/pool.h"
#include "gradus/ops.h"
#include "dispatch/op.h"
#include "dispatch/problem.h"
#include "ops/random/random_uniform.h"

enum {
    TASK_ELEMENTS = 16384,
    TILE = 1024, /* elements that are generated at a time if they are converted afterwards */
};

static int64_t task_count(int64_t n) { return (n + TASK_ELEMENTS - 1) / TASK_ELEMENTS; }

/* --- uniform and normal ----------------------------------------------------------------------- */

typedef struct {
    gd_rng rng;
    char *y;
    gd_dtype dtype;
    int64_t n;
    bool normal;
    gd_uniform_params uniform;
    double mean, std;
} floats_job;

/* Generates elements [from, from + n) as f32; from is a multiple of 4. */
static void generate_f32(const floats_job *j, int64_t from, int64_t n, float *out) {
    uint64_t block = (uint64_t)from / 4;
    if (j->normal) GD_ISA_CALL(gd_random_normal_f32)(j->rng, block, n, j->mean, j->std, out);
    else GD_ISA_CALL(gd_random_uniform_f32)(j->rng, block, n, &j->uniform, out);
}

static void floats_task(void *arg, int64_t task) {
    const floats_job *j = arg;
    int64_t from = task * TASK_ELEMENTS,
            to = from + TASK_ELEMENTS < j->n ? from + TASK_ELEMENTS : j->n;
    if (j->dtype == GD_F32) {
        generate_f32(j, from, to - from, (float *)j->y + from);
    } else if (j->dtype == GD_F64) {
        double *out = (double *)j->y + from;
        if (j->normal) GD_ISA_CALL(gd_random_normal_f64)
        (j->rng, (uint64_t)from / 2, to - from, j->mean, j->std, out);
        else GD_ISA_CALL(gd_random_uniform_f64)(j->rng, (uint64_t)from / 2, to - from, &j->uniform,
                                                out);
    } else {
        float tile[TILE];
        for (; from < to; from += TILE) {
            int64_t n = to - from < TILE ? to - from : TILE;
            generate_f32(j, from, n, tile);
            gd_convert(j->dtype, j->y + from * 2, GD_F32, tile, n);
        }
    }
}

static gd_status run_uniform(gd_kernel_call *k, double low, double high) {
    const gd_view *y = &k->out[0];
    floats_job j = {
        .rng = k->rng, .y = y->data, .dtype = y->dtype, .n = gd_numel(y->rank, y->dims)};
    j.uniform = gd_uniform_prepare(y->dtype, low, high);
    gd_parallel_for(task_count(j.n), floats_task, &j);
    return GD_OK;
}

static gd_status run_normal(gd_kernel_call *k, gd_rng rng, double mean, double std) {
    const gd_view *y = &k->out[0];
    floats_job j = {.rng = rng,
                    .y = y->data,
                    .dtype = y->dtype,
                    .n = gd_numel(y->rank, y->dims),
                    .normal = true,
                    .mean = mean,
                    .std = std};
    gd_parallel_for(task_count(j.n), floats_task, &j);
    return GD_OK;
}

/*kernel uniform.vector  rank 10  contiguous
 * Blocks of random words, as vectors.
 */
static gd_status uniform_vector_run(gd_kernel_call *k) {
    const gd_uniform_options *o = k->attrs;
    return run_uniform(k, o->low, o->high);
}

/*kernel rand_like.vector  rank 10  contiguous
 * As uniform.
 */
static gd_status rand_like_vector_run(gd_kernel_call *k) { return run_uniform(k, 0, 1); }

/*kernel normal.vector  rank 10  contiguous
 * Pairs of normals from blocks of random words, as vectors.
 */
static gd_status normal_vector_run(gd_kernel_call *k) {
    const gd_normal_options *o = k->attrs;
    return run_normal(k, k->rng, o->mean, o->std);
}

/*kernel randn_like.vector  rank 10  contiguous
 * As normal.
 */
static gd_status randn_like_vector_run(gd_kernel_call *k) { return run_normal(k, k->rng, 0, 1); }

/* --- bernoulli and dropout -------------------------------------------------------------------- */

typedef struct {
    gd_rng rng;
    const char *p;
    char *y;
    gd_dtype dtype;
    int64_t n, first_bad; /* first_bad: the first element that is not a probability */
} bernoulli_job;

/* Atomically sets *first = min(*first, i). */
static void store_minimum(int64_t *first, int64_t i) {
    int64_t seen = __atomic_load_n(first, __ATOMIC_RELAXED);
    while (i < seen && !__atomic_compare_exchange_n(first, &seen, i, true, __ATOMIC_RELAXED,
                                                    __ATOMIC_RELAXED)) {
    }
}

static void bernoulli_task(void *arg, int64_t task) {
    bernoulli_job *j = arg;
    int64_t from = task * TASK_ELEMENTS,
            to = from + TASK_ELEMENTS < j->n ? from + TASK_ELEMENTS : j->n;
    int64_t size = (int64_t)gd_dtype_size(j->dtype);
    for (; from < to; from += TILE) {
        GD_TILE(uint32_t, words, TILE);
        GD_TILE(double, p, TILE);
        int64_t n = to - from < TILE ? to - from : TILE;
        GD_ISA_CALL(gd_random_words)(j->rng, (uint64_t)from / 4, n, words);
        gd_convert(GD_F64, p, j->dtype, j->p + from * size, n);
        for (int64_t i = 0; i < n; i++) {
            if (!(p[i] >= 0 && p[i] <= 1)) store_minimum(&j->first_bad, from + i);
            p[i] = gd_chance(p[i], words[i]);
        }
        gd_convert(j->dtype, j->y + from * size, GD_F64, p, n);
    }
}

/*kernel bernoulli.vector  rank 10  contiguous
 * Compares random words with the probabilities, as vectors.
 */
static gd_status bernoulli_vector_run(gd_kernel_call *k) {
    const gd_view *p = &k->in[0];
    bernoulli_job j = {.rng = k->rng,
                       .p = p->data,
                       .y = k->out[0].data,
                       .dtype = p->dtype,
                       .n = gd_numel(p->rank, p->dims),
                       .first_bad = INT64_MAX};
    gd_parallel_for(task_count(j.n), bernoulli_task, &j);
    if (j.first_bad == INT64_MAX) return GD_OK;
    const double value = gd_load_f64(j.dtype, j.p + j.first_bad * (int64_t)gd_dtype_size(j.dtype));
    return gd_data_fail(
        &(gd_data_error){.problem = GD_DATA_PROBABILITY, .element = j.first_bad, .real = value},
        &(gd_data_operand){p->rank, p->dims, NULL});
}

typedef struct {
    gd_rng rng;
    const char *x;
    char *y;
    uint8_t *mask; /* NULL: not stored */
    gd_dtype dtype;
    int64_t n;
    uint64_t limit;
    double scale;
} dropout_job;

static void dropout_task(void *arg, int64_t task) {
    const dropout_job *j = arg;
    int64_t from = task * TASK_ELEMENTS,
            to = from + TASK_ELEMENTS < j->n ? from + TASK_ELEMENTS : j->n;
    int64_t size = (int64_t)gd_dtype_size(j->dtype);
    for (; from < to; from += TILE) {
        uint8_t local_mask[TILE], *mask = j->mask ? j->mask + from : local_mask;
        int64_t n = to - from < TILE ? to - from : TILE;
        const char *x = j->x + from * size;
        char *y = j->y + from * size;
        GD_ISA_CALL(gd_random_mask)(j->rng, (uint64_t)from / 4, n, j->limit, mask);
        if (j->dtype == GD_F32) {
            GD_ISA_CALL(gd_dropout_f32)(n, (const float *)x, mask, (float)j->scale, (float *)y);
        } else if (j->dtype == GD_F64) {
            GD_ISA_CALL(gd_dropout_f64)(n, (const double *)x, mask, j->scale, (double *)y);
        } else {
            GD_TILE(float, in, TILE);
            GD_TILE(float, out, TILE);
            gd_convert(GD_F32, in, j->dtype, x, n);
            GD_ISA_CALL(gd_dropout_f32)(n, in, mask, (float)j->scale, out);
            gd_convert(j->dtype, y, GD_F32, out, n);
        }
    }
}

/*kernel dropout_train.vector  rank 10  contiguous
 * Mask and result in one pass.
 */
static gd_status dropout_train_vector_run(gd_kernel_call *k) {
    const gd_dropout_train_options *o = k->attrs;
    const gd_view *x = &k->in[0];
    dropout_job j = {.rng = k->rng,
                     .x = x->data,
                     .y = k->out[0].data,
                     .mask = k->out[1].data,
                     .dtype = x->dtype,
                     .n = gd_numel(x->rank, x->dims),
                     .limit = gd_chance_limit(1 - o->p),
                     .scale = o->p < 1 ? 1 / (1 - o->p) : 0};
    gd_parallel_for(task_count(j.n), dropout_task, &j);
    return GD_OK;
}

typedef struct {
    const float *x;
    const uint8_t *mask;
    float *y, scale;
    int64_t n;
} masked_scale_job;

static void masked_scale_task(void *arg, int64_t task) {
    const masked_scale_job *j = arg;
    int64_t from = task * TASK_ELEMENTS,
            n = j->n - from < TASK_ELEMENTS ? j->n - from : TASK_ELEMENTS;
    GD_ISA_CALL(gd_dropout_f32)(n, j->x + from, j->mask + from, j->scale, j->y + from);
}

/*kernel masked_scale.vector  rank 20  wide  dtypes f16 bf16 f32
 * The usual gradient of dropout, with a mask of the same shape.
 */
static bool masked_scale_vector_match(const gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *mask = &k->in[1];
    bool same = x->rank == mask->rank && mask->dtype == GD_BOOL;
    for (int d = 0; d < x->rank && same; d++) same = x->dims[d] == mask->dims[d];
    return same && k->out[0].dtype == x->dtype;
}
static gd_status masked_scale_vector_run(gd_kernel_call *k) {
    const gd_masked_scale_options *o = k->attrs;
    masked_scale_job j = {.x = k->in[0].data,
                          .mask = k->in[1].data,
                          .y = k->out[0].data,
                          .scale = (float)o->scale,
                          .n = gd_numel(k->in[0].rank, k->in[0].dims)};
    gd_parallel_for(task_count(j.n), masked_scale_task, &j);
    return GD_OK;
}

/* --- keys ------------------------------------------------------------------------------------- */

static gd_rng rng_of_key(const gd_kernel_call *k) {
    const int64_t *key = k->in[0].data;
    return (gd_rng){(uint64_t)key[0], (uint64_t)key[1]};
}

typedef struct {
    gd_rng rng;
    void *y;
    int64_t n;
    uint64_t limit;
} key_job;

static void key_words_task(void *arg, int64_t task) {
    const key_job *j = arg;
    int64_t from = task * TASK_ELEMENTS,
            to = from + TASK_ELEMENTS < j->n ? from + TASK_ELEMENTS : j->n;
    for (; from < to; from += TILE) {
        GD_TILE(uint32_t, words, TILE);
        int64_t n = to - from < TILE ? to - from : TILE, *out = (int64_t *)j->y + from;
        GD_ISA_CALL(gd_random_words)(j->rng, (uint64_t)from / 4, n, words);
        for (int64_t i = 0; i < n; i++) out[i] = words[i];
    }
}

/*kernel key_words.vector  rank 10  contiguous
 * Blocks of random words, as vectors.
 */
static gd_status key_words_vector_run(gd_kernel_call *k) {
    const gd_view *y = &k->out[0];
    key_job j = {.rng = rng_of_key(k), .y = y->data, .n = gd_numel(y->rank, y->dims)};
    gd_parallel_for(task_count(j.n), key_words_task, &j);
    return GD_OK;
}

/*kernel key_normals.vector  rank 10  contiguous
 * As normal.
 */
static gd_status key_normals_vector_run(gd_kernel_call *k) {
    return run_normal(k, rng_of_key(k), 0, 1);
}

static void key_mask_task(void *arg, int64_t task) {
    const key_job *j = arg;
    const int64_t from = task * TASK_ELEMENTS,
                  n = j->n - from < TASK_ELEMENTS ? j->n - from : TASK_ELEMENTS;
    GD_ISA_CALL(gd_random_mask)(j->rng, (uint64_t)from / 4, n, j->limit, (uint8_t *)j->y + from);
}

/*kernel key_mask.vector  rank 10  contiguous
 * Compares blocks of random words with the probability, as vectors.
 */
static gd_status key_mask_vector_run(gd_kernel_call *k) {
    const gd_key_mask_options *o = k->attrs;
    const gd_view *y = &k->out[0];
    key_job j = {.rng = rng_of_key(k),
                 .y = y->data,
                 .n = gd_numel(y->rank, y->dims),
                 .limit = gd_chance_limit(o->p)};
    gd_parallel_for(task_count(j.n), key_mask_task, &j);
    return GD_OK;
}

/* --- integers --------------------------------------------------------------------------------- */

typedef struct {
    gd_rng rng;
    char *y;
    gd_dtype dtype;
    int64_t n;
    uint64_t low, range;
} randint_job;

static void randint_task(void *arg, int64_t task) {
    const randint_job *j = arg;
    int64_t from = task * TASK_ELEMENTS,
            to = from + TASK_ELEMENTS < j->n ? from + TASK_ELEMENTS : j->n;
    for (; from < to; from += TILE) {
        GD_TILE(uint32_t, words, 2 * TILE);
        GD_TILE(int64_t, integers, TILE);
        int64_t n = to - from < TILE ? to - from : TILE;
        GD_ISA_CALL(gd_random_words)(j->rng, (uint64_t)from / 2, 2 * n, words);
        for (int64_t i = 0; i < n; i++) {
            uint64_t bits = (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
            integers[i] = (int64_t)(j->low + gd_below(bits, j->range));
        }
        gd_convert(j->dtype, j->y + from * (int64_t)gd_dtype_size(j->dtype), GD_I64, integers, n);
    }
}

/*kernel randint.vector  rank 10  contiguous
 * Blocks of random words, as vectors.
 */
static gd_status randint_vector_run(gd_kernel_call *k) {
    const gd_randint_options *o = k->attrs;
    const gd_view *y = &k->out[0];
    randint_job j = {.rng = k->rng,
                     .y = y->data,
                     .dtype = y->dtype,
                     .n = gd_numel(y->rank, y->dims),
                     .low = (uint64_t)o->low,
                     .range = (uint64_t)o->high - (uint64_t)o->low};
    gd_parallel_for(task_count(j.n), randint_task, &j);
    return GD_OK;
}

#include "ops/random/cpu/random_kernels.gen.h"
