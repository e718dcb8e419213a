/* attention_kernels.c - FlashAttention-style attention: memory grows with the sequence length, not
 * with its square.
 *
 * A block of rows of q is multiplied with k block by block; the scores of a block are a small
 * matrix product. The softmax is computed online: when a block has a larger maximum, the sums and
 * outputs so far are rescaled. Backward recomputes the blocks of weights from the saved
 * log-sum-exp.
 */
#include "ops/attention/cpu/attention.h"

#include <math.h>
#include <string.h>

#include "ops/matmul/cpu/gemm.h"
#include "ops/random/cpu/random.h"
#include "core/tile.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "ops/attention/attention.h"
#include "dispatch/op.h"

/* The size of a tile of scores: rows of q by rows of k. The rows of a tile are COLUMNS apart. */
enum { ROWS = 64, COLUMNS = 256 };

typedef struct {
    gd_attention s; /* matrix e of q is (rows, width), of k (columns, width), of v (columns, F);
                       F is value_width */
    const gd_view *q, *k, *v, *mask;
    float *y, *lse;                        /* forward: y (rows, F), log-sum-exp (rows) */
    const float *saved_y, *saved_lse, *gy; /* backward */
    float *gq, *gk, *gv;
    bool recompute_inner; /* saved_y was rounded to f16 or bf16: do not use it */
    bool has_dropout;     /* keep a weight with probability limit / 2^32, and scale it */
    gd_rng rng;
    uint64_t limit;
    float kept_scale;
    int64_t row_blocks; /* blocks of ROWS rows of a matrix */
    gd_status status;
} attention_job;

/* c (m, n) = scale * a (m, k) * b (k, n), or += if `add`. */

static gd_status multiply_f32(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_col,
                              const float *b, int64_t b_row, int64_t b_col, int64_t m, int64_t n,
                              int64_t k, double scale, bool add) {
    return gd_gemm_run(&(gd_gemm){.m = m,
                                  .n = n,
                                  .k = k,
                                  .a = {a, GD_F32, a_row, a_col},
                                  .b = {b, GD_F32, b_row, b_col},
                                  .c = {c, GD_F32, c_row, 1},
                                  .accumulate = add,
                                  .scaled = scale != 1,
                                  .scale = scale});
}

/* Adds the mask of row r, columns [c, c + n), to their scores. `base` is the offset of the mask of
 * this matrix. */
static void mask_row(const attention_job *j, int64_t base, int64_t r, int64_t c, int64_t n,
                     float *row) {
    const gd_view *m = j->mask;
    if (m->rank == 0 || m->dims[m->rank - 1] == 1) { /* broadcast over columns */
        float value = (float)gd_attention_mask(m, base, r, 0);
        for (int64_t t = 0; t < n; t++) row[t] += value;
        return;
    }
    if (m->rank > 1 && m->dims[m->rank - 2] > 1) base += r * m->strides[m->rank - 2];
    if (m->dtype == GD_F32)
        GD_ISA_CALL(gd_attention_mask_float)(row, n, (const float *)m->data + base + c);
    else GD_ISA_CALL(gd_attention_mask_bool)(row, n, (const uint8_t *)m->data + base + c);
}

/* Computes the masked scores of rows [r, r + nr) and columns [c, c + nc) into the tile. */
static gd_status compute_scores(const attention_job *j, int64_t e, int64_t r, int64_t nr, int64_t c,
                                int64_t nc, float *tile) {
    const gd_attention *s = &j->s;
    const float *q =
        (const float *)j->q->data + gd_attention_offset(s, j->q, e, false) + r * s->width;
    const float *k =
        (const float *)j->k->data + gd_attention_offset(s, j->k, e, true) + c * s->width;
    GD_TRY(multiply_f32(tile, COLUMNS, q, s->width, 1, k, 1, s->width, nr, nc, s->width, s->scale,
                        false));
    for (int64_t i = 0; j->mask && i < nr; i++)
        mask_row(j, gd_attention_offset(s, j->mask, e, false), r + i, c, nc, tile + i * COLUMNS);
    for (int64_t i = 0; s->causal && i < nr; i++)
        for (int64_t t = r + i + 1 > c ? r + i + 1 - c : 0; t < nc; t++)
            tile[i * COLUMNS + t] = -INFINITY;
    return GD_OK;
}

/* The dropout mask of the weights of row r, columns [c, c + n): 1 where a weight is kept. Returns
 * an address inside `buffer`, which must have room for n + 3 values, because Philox yields four
 * random numbers at a time. */
static const uint8_t *dropout_mask(const attention_job *j, int64_t e, int64_t r, int64_t c,
                                   int64_t n, uint8_t *buffer) {
    uint64_t first = (uint64_t)((e * j->s.rows + r) * j->s.columns + c);
    GD_ISA_CALL(gd_random_mask)(j->rng, first / 4, n + (int64_t)(first % 4), j->limit, buffer);
    return buffer + first % 4;
}

static void record_failure(attention_job *j, gd_status status) {
    __atomic_store_n(&j->status, status, __ATOMIC_RELAXED);
}

/* Computes y and the log-sum-exp of one block of rows of one matrix. */
static void forward_task(void *arg, int64_t task) {
    attention_job *j = arg;
    const gd_attention *s = &j->s;
    int64_t e = task / j->row_blocks, r = task % j->row_blocks * ROWS, F = s->value_width;
    int64_t nr = s->rows - r < ROWS ? s->rows - r : ROWS;
    GD_TILE(float, tile, ROWS *COLUMNS);
    float max[ROWS], sum[ROWS];
    float *y = j->y + (e * s->rows + r) * F;
    const float *v = (const float *)j->v->data + gd_attention_offset(s, j->v, e, true);
    memset(y, 0, sizeof *y * (size_t)(nr * F));
    for (int i = 0; i < ROWS; i++) max[i] = -INFINITY, sum[i] = 0;
    int64_t end = s->causal && r + nr < s->columns ? r + nr : s->columns;
    for (int64_t c = 0; c < end; c += COLUMNS) {
        int64_t nc = end - c < COLUMNS ? end - c : COLUMNS;
        gd_status status = compute_scores(j, e, r, nr, c, nc, tile);
        if (status != GD_OK) return record_failure(j, status);
        for (int64_t i = 0; i < nr; i++) {
            float *row = tile + i * COLUMNS,
                  new_max = GD_ISA_CALL(gd_attention_max)(row, nc, max[i]);
            if (new_max == -INFINITY) { /* all masked so far */
                memset(row, 0, sizeof *row * (size_t)nc);
                continue;
            }
            float rescale = max[i] == new_max ? 1 : expf(max[i] - new_max);
            sum[i] = sum[i] * rescale + GD_ISA_CALL(gd_attention_exp)(row, nc, new_max);
            max[i] = new_max;
            if (rescale != 1) GD_ISA_CALL(gd_attention_scale)(y + i * F, F, rescale);
            if (!j->has_dropout) continue;
            uint8_t buffer[COLUMNS + 4];
            GD_ISA_CALL(gd_dropout_f32)
            (nc, row, dropout_mask(j, e, r + i, c, nc, buffer), j->kept_scale, row);
        }
        status = multiply_f32(y, F, tile, COLUMNS, 1, v + c * F, F, 1, nr, F, nc, 1, true);
        if (status != GD_OK) return record_failure(j, status);
    }
    for (int64_t i = 0; i < nr; i++) {
        bool all_masked = max[i] == -INFINITY;
        if (all_masked) memset(y + i * F, 0, sizeof *y * (size_t)F);
        else GD_ISA_CALL(gd_attention_scale)(y + i * F, F, 1 / sum[i]);
        if (j->lse) j->lse[e * s->rows + r + i] = all_masked ? -INFINITY : max[i] + logf(sum[i]);
    }
}

static gd_status init_attention(attention_job *j, gd_attention_inputs in) {
    *j = (attention_job){.q = in.q, .k = in.k, .v = in.v, .mask = in.mask, .has_dropout = in.key};
    if (in.key) {
        j->rng = gd_attention_rng(in.key);
        j->limit = gd_chance_limit(1 - in.dropout);
        j->kept_scale = (float)gd_kept_scale(in.dropout);
    }
    GD_TRY(gd_attention_shape(&in, &j->s));
    j->row_blocks = (j->s.rows + ROWS - 1) / ROWS;
    return GD_OK;
}

static size_t attention_scratch(const gd_kernel_call *k) {
    (void)k;
    return gd_gemm_max_scratch(GD_GEMM_ANY, GD_GEMM_ANY, GD_GEMM_ANY, GD_F32);
}

/*kernel attention_forward.blocks  rank 10  wide  dtypes f16 bf16 f32  scratch attention_scratch
 * Blocks of rows of q, with a running maximum and sum instead of the matrix of weights.
 */
static gd_status attention_forward_blocks_run(gd_kernel_call *k) {
    const gd_attention_forward_options *o = k->attrs;
    attention_job j;
    GD_TRY(init_attention(&j, gd_attention_call_inputs(k->in, k->n_in, 3, o->causal, o->grouped,
                                                       o->scale, o->dropout)));
    j.y = k->out[0].data;
    j.lse = k->out[1].data;
    gd_parallel_for(j.s.count * j.row_blocks, forward_task, &j);
    return j.status;
}

/* --- backward --------------------------------------------------------------------------------- */

/* A tile of weights p and their gradients gp: rows [r, r + nr), columns [c, c + nc) of matrix e. */
typedef struct {
    int64_t e, r, nr, c, nc;
    const float *gy, *v; /* gy of these rows, v of these columns */
    float *p, *gp;
} grad_tile;

/* Recomputes the weights from the saved log-sum-exp, and computes their gradients gy * v^T. */
static gd_status recompute_weights(const attention_job *j, const grad_tile *t) {
    int64_t F = j->s.value_width;
    GD_TRY(compute_scores(j, t->e, t->r, t->nr, t->c, t->nc, t->p));
    GD_TRY(multiply_f32(t->gp, COLUMNS, t->gy, F, 1, t->v, 1, F, t->nr, t->nc, F, 1, false));
    for (int64_t i = 0; i < t->nr; i++) {
        float lse = j->saved_lse[t->e * j->s.rows + t->r + i], *row = t->p + i * COLUMNS;
        if (lse == -INFINITY) memset(row, 0, sizeof *row * (size_t)t->nc);
        else GD_ISA_CALL(gd_attention_exp)(row, t->nc, lse);
    }
    return GD_OK;
}

/* Replaces gp by the gradients of the scores, and p by the weights after dropout. */
static void score_gradients(const attention_job *j, const grad_tile *t, const float *inner) {
    for (int64_t i = 0; i < t->nr; i++) {
        float *p = t->p + i * COLUMNS, *gp = t->gp + i * COLUMNS;
        uint8_t buffer[COLUMNS + 4];
        const uint8_t *kept =
            j->has_dropout ? dropout_mask(j, t->e, t->r + i, t->c, t->nc, buffer) : NULL;
        if (kept) GD_ISA_CALL(gd_dropout_f32)(t->nc, gp, kept, j->kept_scale, gp);
        GD_ISA_CALL(gd_attention_score_grad)(gp, p, t->nc, inner[i]);
        if (kept) GD_ISA_CALL(gd_dropout_f32)(t->nc, p, kept, j->kept_scale, p);
    }
}

/* inner[i] = the sum of weights times their gradients in row i. It equals gy . y, but if y was
 * rounded to f16 or bf16 and one weight is nearly 1, gp - inner would consist of the rounding error
 * of y. For f16 and bf16 it is therefore summed over the weights in an additional pass. */
static gd_status inner_products(const attention_job *j, grad_tile *t, const float *y, int64_t end,
                                float *inner) {
    int64_t F = j->s.value_width;
    const float *v = t->v;
    for (int64_t i = 0; i < t->nr; i++)
        inner[i] =
            j->recompute_inner ? 0 : GD_ISA_CALL(gd_attention_dot)(t->gy + i * F, y + i * F, F);
    for (int64_t c = 0; j->recompute_inner && c < end; c += COLUMNS) {
        t->c = c;
        t->nc = end - c < COLUMNS ? end - c : COLUMNS;
        t->v = v + c * F;
        GD_TRY(recompute_weights(j, t));
        for (int64_t i = 0; i < t->nr; i++) {
            float *p = t->p + i * COLUMNS;
            uint8_t buffer[COLUMNS + 4];
            if (j->has_dropout) GD_ISA_CALL(gd_dropout_f32)
            (t->nc, p, dropout_mask(j, t->e, t->r + i, c, t->nc, buffer), j->kept_scale, p);
            inner[i] += GD_ISA_CALL(gd_attention_dot)(p, t->gp + i * COLUMNS, t->nc);
        }
    }
    t->v = v;
    return GD_OK;
}

/* Computes gq of a block of rows, and adds the contributions of these rows to gk and gv. */
static gd_status backward_rows(const attention_job *j, grad_tile *t) {
    const gd_attention *s = &j->s;
    int64_t E = s->width, F = s->value_width, e = t->e, r = t->r, nr = t->nr;
    int64_t at_q = gd_attention_offset(s, j->q, e, false),
            at_k = gd_attention_offset(s, j->k, e, true),
            at_v = gd_attention_offset(s, j->v, e, true);
    const float *q = (const float *)j->q->data + at_q + r * E,
                *v = (const float *)j->v->data + at_v;
    int64_t end = s->causal && r + nr < s->columns ? r + nr : s->columns;
    float inner[ROWS];
    t->gy = j->gy + (e * s->rows + r) * F;
    t->v = v;
    GD_TRY(inner_products(j, t, j->saved_y + (e * s->rows + r) * F, end, inner));
    /* With a single block of columns, inner_products has left its weights in the tile. */
    const bool weights_ready = j->recompute_inner && !j->has_dropout && end <= COLUMNS;
    for (int64_t c = 0; c < end; c += COLUMNS) {
        const float *k = (const float *)j->k->data + at_k + c * E;
        int64_t nc = t->nc = end - c < COLUMNS ? end - c : COLUMNS;
        t->c = c;
        t->v = v + c * F;
        if (!weights_ready) GD_TRY(recompute_weights(j, t));
        score_gradients(j, t, inner);
        GD_TRY(multiply_f32(j->gv + at_v + c * F, F, t->p, 1, COLUMNS, t->gy, F, 1, nc, F, nr, 1,
                            true));
        GD_TRY(multiply_f32(j->gq + at_q + r * E, E, t->gp, COLUMNS, 1, k, E, 1, nr, E, nc,
                            s->scale, true));
        GD_TRY(multiply_f32(j->gk + at_k + c * E, E, t->gp, 1, COLUMNS, q, E, 1, nc, E, nr,
                            s->scale, true));
    }
    return GD_OK;
}

/* Computes all rows of all heads of q that share one matrix of k and v, so that no other task
 * accumulates into the gradients of that matrix. */
static void backward_task(void *arg, int64_t task) {
    attention_job *j = arg;
    const gd_attention *s = &j->s;
    GD_TILE(float, p, ROWS *COLUMNS);
    GD_TILE(float, gp, ROWS *COLUMNS);
    for (int64_t e = task * s->groups; e < (task + 1) * s->groups; e++)
        for (int64_t r = 0; r < s->rows; r += ROWS) {
            grad_tile t = {
                .e = e, .r = r, .nr = s->rows - r < ROWS ? s->rows - r : ROWS, .p = p, .gp = gp};
            gd_status status = backward_rows(j, &t);
            if (status != GD_OK) return record_failure(j, status);
        }
}

/*kernel attention_grad.blocks  rank 10  wide  dtypes f32  scratch attention_scratch
 * Without broadcasting: each matrix of k and v belongs to one task.
 */
static bool attention_grad_blocks_match(const gd_kernel_call *k) {
    const gd_view *q = &k->in[0], *key = &k->in[1], *v = &k->in[2], *gy = &k->in[5];
    if (q->rank != gy->rank || key->rank != q->rank || v->rank != q->rank) return false;
    for (int d = 0; d < q->rank - 2; d++) {
        bool heads = d == q->rank - 3;
        if (q->dims[d] != gy->dims[d] || key->dims[d] != v->dims[d] ||
            (!heads && key->dims[d] != q->dims[d]))
            return false;
        if (heads && key->dims[d] != q->dims[d] &&
            !((const gd_attention_grad_options *)k->attrs)->grouped)
            return false;
    }
    return true;
}
static gd_status run_grad(gd_kernel_call *k, bool recompute_inner) {
    const gd_attention_grad_options *o = k->attrs;
    attention_job j;
    GD_TRY(init_attention(&j, gd_attention_call_inputs(k->in, k->n_in, 6, o->causal, o->grouped,
                                                       o->scale, o->dropout)));
    j.recompute_inner = recompute_inner;
    j.saved_y = k->in[3].data;
    j.saved_lse = k->in[4].data;
    j.gy = k->in[5].data;
    j.gq = k->out[0].data;
    j.gk = k->out[1].data;
    j.gv = k->out[2].data;
    for (int i = 0; i < 3; i++)
        memset(k->out[i].data, 0, sizeof(float) * (size_t)gd_numel(k->out[i].rank, k->out[i].dims));
    gd_parallel_for(j.s.count / (j.s.groups ? j.s.groups : 1), backward_task, &j);
    return j.status;
}
static gd_status attention_grad_blocks_run(gd_kernel_call *k) { return run_grad(k, false); }

/*kernel attention_grad.half  rank 10  wide  dtypes f16 bf16  scratch attention_scratch
 * attention_grad.blocks for f16 and bf16, without the saved y, which was rounded.
 */
static bool attention_grad_half_match(const gd_kernel_call *k) {
    return attention_grad_blocks_match(k);
}
static gd_status attention_grad_half_run(gd_kernel_call *k) { return run_grad(k, true); }

#include "ops/attention/cpu/attention_kernels.gen.h"
