/* recurrent_kernels.c - a recurrent layer over a whole sequence, and back through time.
 *
 * The input's part of the gates is one product for many steps: few enough for the gates to be in
 * the second-level cache still when their step comes. Each step is a product with w_hh and one pass
 * over the gates. Weights are laid out for these products once. Back, it is one pass and one
 * product a step; the gradients of the weights are products over all steps, made by the op's
 * gradient rule.
 *
 * The state runs along in the outputs h and c: a sequence that has ended stands still there.
 */
#include "backend/cpu/recurrent.h"

#include <string.h>

#include "backend/cpu/gemm_block.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "ops/op.h"

enum {
    PIECE = 2048,      /* elements of the state in a piece of work for one thread, roughly */
    PANEL_BYTES = 256, /* of a row of a panel of weights */
    CHUNK = 1 << 18,   /* gates of one product of the input, roughly; */
    CHUNK_ROWS = 64,   /* rows of it, at least */
};

/* w (G*H, columns). Packed: its transpose, in panels of a few columns of that. */
typedef struct {
    const char *data;
    char *packed; /* NULL: as it is */
    int64_t columns;
} weights;

typedef struct {
    const gd_recurrent_isa *isa;
    gd_word cell;
    bool reverse;
    gd_dtype dtype;
    int64_t size;                         /* of an element, in bytes */
    int64_t steps, batch, inputs, hidden; /* T, N, I, H */
    int64_t gates;                        /* numbers of a step: G*H */
    const int64_t *lengths;               /* NULL: all whole */
    weights w_ih, w_hh;
    char *y, *h, *c;
    int64_t rows_per_piece, pieces, t; /* of the step that is being computed */

    /* forward */
    int64_t chunk; /* steps of one product of the input */
    char *sums;    /* (N, step_size) of this step: sums of gates, then gates */
    char *cells;   /* (T, N, H), NULL: not wanted */
    bool keep;     /* gates are wanted */
    char *wide_y;  /* of halves: y in f32, for the gradient of tanh; NULL: not wanted */
    int64_t step_size;
    char *s; /* gru: (N, 3H) the state's part of the gates */

    /* back */
    const char *gy, *saved, *saved_y, *saved_c, *h0, *c0, *none;
    char *gradients; /* (T, N, step_size) */
} job;

static char *at(const job *j, const void *p, int64_t index) {
    return (char *)(uintptr_t)p + index * j->size;
}

static void shape(job *j, gd_word cell, bool reverse, const gd_view *x, const gd_view *w_hh) {
    *j = (job){.cell = cell, .reverse = reverse, .dtype = x->dtype == GD_F64 ? GD_F64 : GD_F32};
    j->size = j->dtype == GD_F64 ? 8 : 4;
    j->isa = j->dtype == GD_F64 ? GD_ISA_CALL(gd_recurrent_f64) : GD_ISA_CALL(gd_recurrent_f32);
    j->steps = x->dims[0];
    j->batch = x->dims[1];
    j->inputs = x->dims[2];
    j->hidden = w_hh->dims[1];
    j->gates = w_hh->dims[0];
    j->w_hh = (weights){w_hh->data, NULL, j->hidden};
    j->rows_per_piece = j->hidden < PIECE ? PIECE / (j->hidden > 0 ? j->hidden : 1) : 1;
    j->pieces = (j->batch + j->rows_per_piece - 1) / j->rows_per_piece;
}

static bool is_real(const job *j, int64_t n) { return !j->lengths || j->t < j->lengths[n]; }

static int64_t nth_step(const job *j, int64_t k) { return j->reverse ? j->steps - 1 - k : k; }

/* A state to begin with: a copy of `from`, or zeros. */
static void start(const job *j, char *to, const char *from) {
    size_t bytes = (size_t)(j->batch * j->hidden * j->size);
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Rows of a panel of weights: columns of the product that its inner loop computes together. */
static int64_t panel_width(const job *j) { return PANEL_BYTES / j->size; }

/* Products of a few rows read weights as they are; for one product, turning does not pay either. */
static bool packs(int64_t rows, int64_t products) {
    return rows > gd_gemm_thin_rows(gd_cpu_isa()) && products > 1;
}

typedef struct {
    const job *j;
    const weights *w;
} packing;

static void pack_panel(void *arg, int64_t panel) {
    const packing *p = arg;
    const job *j = p->j;
    int64_t width = panel_width(j), first = panel * width, from = first * p->w->columns;
    int64_t n = j->gates - first < width ? j->gates - first : width;
    j->isa->turn(n, p->w->columns, at(j, p->w->data, from), at(j, p->w->packed, from));
}

static void pack(const job *j, weights *w, char *to) {
    w->packed = to;
    gd_parallel_for((j->gates + panel_width(j) - 1) / panel_width(j), pack_panel, &(packing){j, w});
}

/* c (rows, G*H), rows c_row apart, = a (rows, columns of w) w^T + bias, or is added to. */
static gd_status product(const job *j, const weights *w, const char *a, int64_t rows, char *c,
                         int64_t c_row, bool add, const char *bias) {
    gd_gemm g = {.m = rows,
                 .n = j->gates,
                 .k = w->columns,
                 .a = {a, j->dtype, w->columns, 1},
                 .b = {w->data, j->dtype, 1, w->columns},
                 .c = {c, j->dtype, c_row, 1},
                 .accumulate = add};
    if (bias) g.bias = (gd_gemm_in){bias, j->dtype, 0, 1};
    if (!w->packed) return gd_gemm_run(&g);
    int64_t width = panel_width(j), whole = j->gates / width, done = whole * width;
    g.n = width;
    g.b = (gd_gemm_in){w->packed, j->dtype, width, 1};
    GD_TRY(gd_gemm_run_batch(&g, &(gd_gemm_batch){.rank = 1,
                                                  .size = {whole},
                                                  .b_step = {width * w->columns},
                                                  .c_step = {width},
                                                  .bias_step = {width}}));
    if (done == j->gates) return GD_OK;
    g.n = j->gates - done;
    g.b = (gd_gemm_in){at(j, w->packed, done * w->columns), j->dtype, g.n, 1};
    g.c.data = at(j, c, done);
    if (bias) g.bias.data = at(j, bias, done);
    return gd_gemm_run(&g);
}

static void forward_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t end = (piece + 1) * j->rows_per_piece, H = j->hidden;
    for (int64_t n = piece * j->rows_per_piece; n < end && n < j->batch; n++) {
        int64_t row = j->t * j->batch + n;
        char *y = at(j, j->y, row * H), *h = at(j, j->h, n * H),
             *gates = at(j, j->sums, n * j->step_size);
        char *cell = j->cells ? at(j, j->cells, row * H) : NULL;
        if (!is_real(j, n)) {
            memset(y, 0, (size_t)(H * j->size));
            if (j->keep) memset(gates, 0, (size_t)(j->step_size * j->size));
            if (cell) memset(cell, 0, (size_t)(H * j->size));
        } else if (j->cell == GD_LSTM) j->isa->lstm(H, gates, at(j, j->c, n * H), h, y, cell);
        else if (j->cell == GD_GRU) j->isa->gru(H, gates, at(j, j->s, n * 3 * H), h, y, j->keep);
        else if (j->cell == GD_RELU) j->isa->relu(H, y, h);
        else j->isa->tanh(H, y, h);
        if (j->wide_y) memcpy(at(j, j->wide_y, row * H), y, (size_t)(H * j->size));
    }
}

/* What a call works in, in bytes from the workspace's start; each part begins a cache line. */
typedef struct {
    size_t sums, s, bias, w_ih, w_hh, total;
} places;

static size_t take(size_t *total, int64_t elements, int64_t size) {
    size_t from = *total;
    *total += ((size_t)(elements * size) + 63) & ~(size_t)63;
    return from;
}

static bool is_gated(const job *j) { return j->cell == GD_LSTM || j->cell == GD_GRU; }

static bool packs_input(const job *j) { return packs(j->chunk * j->batch, j->steps / j->chunk); }
static bool packs_state(const job *j) { return packs(j->batch, j->steps); }

static places forward_places(const job *j, bool keep) {
    places p = {0};
    bool own_sums = !keep && is_gated(j);
    p.sums = take(&p.total, own_sums ? j->chunk * j->batch * j->gates : 0, j->size);
    p.s = take(&p.total, j->cell == GD_GRU ? j->batch * j->gates : 0, j->size);
    p.bias = take(&p.total, 2 * j->gates, j->size);
    p.w_ih = take(&p.total, packs_input(j) ? j->gates * j->inputs : 0, j->size);
    p.w_hh = take(&p.total, packs_state(j) ? j->gates * j->hidden : 0, j->size);
    return p;
}

static double number(const job *j, const void *p, int64_t i) {
    if (!p) return 0;
    return j->size == 8 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void set_number(const job *j, void *p, int64_t i, double value) {
    if (j->size == 8) ((double *)p)[i] = value;
    else ((float *)p)[i] = (float)value;
}

/* Both biases are added at once where the gates are; but for the new gate of a gru, that of the
 * state goes with the state's part, which `reset` weighs. */
static void add_biases(const job *j, const void *b_ih, const void *b_hh, char *x_bias,
                       char *s_bias) {
    for (int64_t i = 0; i < j->gates; i++) {
        bool apart = j->cell == GD_GRU && i >= 2 * j->hidden;
        set_number(j, x_bias, i, number(j, b_ih, i) + (apart ? 0 : number(j, b_hh, i)));
        set_number(j, s_bias, i, apart ? number(j, b_hh, i) : 0);
    }
}

static const void *input(const gd_kernel_call *k, int i) {
    return i < k->n_in ? k->in[i].data : NULL;
}

static void shape_forward(job *j, const gd_kernel_call *k) {
    const gd_recurrent_options *o = k->attrs;
    shape(j, o->cell, o->reverse, &k->in[0], &k->in[5]);
    j->w_ih = (weights){k->in[4].data, NULL, j->inputs};
    int64_t rows = CHUNK / (j->gates > 0 ? j->gates : 1);
    if (rows < CHUNK_ROWS) rows = CHUNK_ROWS;
    j->chunk = rows / (j->batch > 0 ? j->batch : 1);
    if (j->chunk > j->steps) j->chunk = j->steps;
    if (j->chunk < 1) j->chunk = 1;
}

/* `count` steps, after so many that are done. `first` is the earliest in time, and `sums` has room
 * for the gates of all. */
static gd_status run_chunk(job *j, const char *x, int64_t done, int64_t count, int64_t first,
                           char *sums, const char *x_bias, const char *s_bias) {
    GD_TRY(product(j, &j->w_ih, at(j, x, first * j->batch * j->inputs), count * j->batch, sums,
                   j->step_size, false, x_bias));
    for (int64_t i = done; i < done + count; i++) {
        j->t = nth_step(j, i);
        j->sums = at(j, sums, (j->t - first) * j->batch * j->step_size);
        if (j->cell == GD_GRU)
            GD_TRY(product(j, &j->w_hh, j->h, j->batch, j->s, j->gates, false, s_bias));
        else GD_TRY(product(j, &j->w_hh, j->h, j->batch, j->sums, j->step_size, true, NULL));
        gd_parallel_for(j->pieces, forward_piece, j);
    }
    return GD_OK;
}

static size_t recurrent_sequence_scratch(const gd_kernel_call *k) {
    return gd_gemm_max_scratch(GD_GEMM_ANY, GD_GEMM_ANY, GD_GEMM_ANY, k->in[0].dtype);
}

/*kernel recurrent.sequence  rank 10  wide
 * All floats.
 */
static size_t recurrent_sequence_workspace(const gd_kernel_call *k) {
    job j;
    shape_forward(&j, k);
    return forward_places(&j, k->out[3].data != NULL).total;
}
static gd_status recurrent_sequence_run(gd_kernel_call *k) {
    job j;
    shape_forward(&j, k);
    bool keep = k->out[3].data != NULL;
    places p = forward_places(&j, keep);
    char *work = k->workspace, *x_bias = work + p.bias, *s_bias = at(&j, x_bias, j.gates);
    const void *b_ih = input(k, 6), *b_hh = input(k, 7);
    j.keep = keep && is_gated(&j);
    j.wide_y = keep && !is_gated(&j) && k->out[3].dims[2] > 0 ? k->out[3].data : NULL;
    j.y = k->out[0].data;
    j.h = k->out[1].data;
    j.c = k->out[2].data;
    j.cells = j.cell == GD_LSTM ? k->out[4].data : NULL;
    j.step_size = j.keep && j.cell == GD_GRU ? 4 * j.hidden : j.gates;
    j.s = work + p.s;
    j.lengths = input(k, 3);
    if (b_ih || b_hh) add_biases(&j, b_ih, b_hh, x_bias, s_bias);
    start(&j, j.h, input(k, 1));
    if (j.cell == GD_LSTM) start(&j, j.c, input(k, 2));
    if (packs_input(&j)) pack(&j, &j.w_ih, work + p.w_ih);
    if (packs_state(&j)) pack(&j, &j.w_hh, work + p.w_hh);
    char *kept = j.keep ? k->out[3].data : j.y; /* an rnn's sums become y where they are */
    for (int64_t done = 0, count; done < j.steps; done += count) {
        count = j.steps - done < j.chunk ? j.steps - done : j.chunk;
        int64_t first = j.reverse ? j.steps - done - count : done;
        char *sums =
            j.keep || !is_gated(&j) ? at(&j, kept, first * j.batch * j.step_size) : work + p.sums;
        GD_TRY(run_chunk(&j, k->in[0].data, done, count, first, sums, b_ih || b_hh ? x_bias : NULL,
                         b_hh ? s_bias : NULL));
    }
    return GD_OK;
}

/* --- back ------------------------------------------------------------------------------------- */

/* The row of a state before step t of sequence n: that of the step before, or the first. */
static const char *row_before(const job *j, const char *states, const char *first, int64_t n) {
    int64_t length = j->lengths && j->lengths[n] < j->steps ? j->lengths[n] : j->steps;
    bool begins = j->reverse ? j->t + 1 == length : j->t == 0;
    if (begins) return first ? at(j, first, n * j->hidden) : j->none;
    return at(j, states, ((j->t + (j->reverse ? 1 : -1)) * j->batch + n) * j->hidden);
}

static void back_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int64_t end = (piece + 1) * j->rows_per_piece, H = j->hidden;
    for (int64_t n = piece * j->rows_per_piece; n < end && n < j->batch; n++) {
        int64_t row = j->t * j->batch + n;
        const char *gy = at(j, j->gy, row * H), *y = at(j, j->saved_y, row * H),
                   *saved = at(j, j->saved, row * 4 * H);
        char *gates = at(j, j->gradients, row * j->step_size), *dh = at(j, j->h, n * H);
        if (!is_real(j, n)) memset(gates, 0, (size_t)(j->step_size * j->size));
        else if (j->cell == GD_LSTM)
            j->isa->lstm_back(H, gy, saved, at(j, j->saved_c, row * H),
                              row_before(j, j->saved_c, j->c0, n), dh, at(j, j->c, n * H), gates);
        else if (j->cell == GD_GRU)
            j->isa->gru_back(H, gy, saved, row_before(j, j->saved_y, j->h0, n), dh, gates);
        else if (j->cell == GD_RELU) j->isa->relu_back(H, gy, y, dh, gates);
        else j->isa->tanh_back(H, gy, y, dh, gates);
    }
}

/* dh += the gates' gradients, from part `from` on, times rows of w_hh from `row` on. */
static gd_status back_product(const job *j, int64_t from, int64_t row, int64_t depth) {
    const char *gates = at(j, j->gradients, j->t * j->batch * j->step_size + from);
    return gd_gemm_run(
        &(gd_gemm){.m = j->batch,
                   .n = j->hidden,
                   .k = depth,
                   .a = {gates, j->dtype, j->step_size, 1},
                   .b = {at(j, j->w_hh.data, row * j->hidden), j->dtype, j->hidden, 1},
                   .c = {j->h, j->dtype, j->hidden, 1},
                   .accumulate = true});
}

/*kernel recurrent_grad.sequence  rank 10  wide  scratch recurrent_sequence_scratch
 * All floats.
 */
static size_t recurrent_grad_sequence_workspace(const gd_kernel_call *k) {
    return (size_t)k->out[1].dims[2] * (k->in[3].dtype == GD_F64 ? 8 : 4);
}
static gd_status recurrent_grad_sequence_run(gd_kernel_call *k) {
    const gd_recurrent_grad_options *o = k->attrs;
    job j;
    shape(&j, o->cell, o->reverse, &k->in[3], &k->in[8]);
    j.gy = k->in[0].data;
    j.h0 = k->in[4].data;
    j.c0 = k->in[5].data;
    j.lengths = k->in[6].data;
    j.saved_y = k->in[11].data;
    j.saved = k->in[12].data;
    if (j.cell == GD_TANH && k->in[12].dims[2] > 0) j.saved_y = j.saved;
    j.saved_c = k->in[13].data;
    j.none = k->workspace;
    j.gradients = k->out[0].data;
    j.step_size = k->out[0].dims[2];
    j.h = k->out[1].data; /* the gradients of the states run along in those of the first */
    j.c = k->out[2].data;
    memset(k->workspace, 0, k->workspace_bytes);
    start(&j, j.h, k->in[1].data);
    if (j.cell == GD_LSTM) start(&j, j.c, k->in[2].data);
    for (int64_t i = j.steps; i-- > 0;) {
        j.t = nth_step(&j, i);
        gd_parallel_for(j.pieces, back_piece, &j);
        if (j.cell != GD_GRU) {
            GD_TRY(back_product(&j, 0, 0, j.gates));
            continue;
        }
        GD_TRY(back_product(&j, 0, 0, 2 * j.hidden));
        GD_TRY(back_product(&j, 3 * j.hidden, 2 * j.hidden, j.hidden));
    }
    return GD_OK;
}

#include "recurrent_kernels.gen.h"
