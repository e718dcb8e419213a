/* recurrent_kernels.c - a recurrent layer over an entire sequence, and backpropagation through
 * time.
 *
 * The input's part of the gates is one matrix product for a chunk of steps: as many as fit, so that
 * the gates are still in L2 when their step is computed. Each step is a product with w_hh and one
 * elementwise pass over the gates (recurrent.h). The weights are packed once per call. Backward is
 * one pass and one product per step; the gradients of the weights are products over all steps,
 * which the op's gradient rule computes.
 *
 * The outputs h and c hold the current state; the state of a sequence that has ended stays
 * unchanged.
 */
#include "ops/recurrent/cpu/recurrent.h"

#include <string.h>

#include "ops/matmul/cpu/gemm_block.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "dispatch/op.h"

enum {
    TASK_ELEMENTS = 2048,  /* elements of the state per task, roughly */
    PANEL_BYTES = 256,     /* a row of a packed panel of weights */
    CHUNK_GATES = 1 << 18, /* gates of a chunk of steps, roughly */
    MIN_CHUNK_ROWS = 64,   /* rows of the product of a chunk */
};

/* w (G*H, columns). Packed: its transpose, in panels of a few columns. */
typedef struct {
    const char *data;
    char *packed; /* NULL: not packed */
    int64_t columns;
} weights;

typedef struct {
    const gd_recurrent_isa *isa;
    gd_word cell;
    bool reverse;
    gd_dtype dtype;
    int64_t size;                         /* bytes of an element */
    int64_t steps, batch, inputs, hidden; /* T, N, I, H */
    int64_t gates;                        /* G*H */
    const int64_t *lengths;               /* of the sequences; NULL: all are complete */
    weights w_ih, w_hh;
    char *y, *h, *c;
    int64_t rows_per_task, tasks, t; /* t: the current step */

    /* forward */
    int64_t chunk; /* steps per product of the input */
    char *sums;    /* (N, step_size), current step: pre-activations, then gates */
    char *cells;   /* (T, N, H), NULL: not stored */
    bool keep;     /* store the gates for backward */
    char *wide_y;  /* for f16 and bf16: y in f32, for the gradient of tanh; NULL: not stored */
    int64_t step_size;
    char *s; /* gru: (N, 3H), the state's part of the pre-activations */

    /* backward */
    const char *gy, *saved, *saved_y, *saved_c, *h0, *c0, *zero_state;
    char *gradients; /* (T, N, step_size) */
} recurrent_job;

static char *element(const recurrent_job *j, const void *p, int64_t index) {
    return (char *)(uintptr_t)p + index * j->size;
}

static void init_recurrent(recurrent_job *j, gd_word cell, bool reverse, const gd_view *x,
                           const gd_view *w_hh) {
    *j = (recurrent_job){
        .cell = cell, .reverse = reverse, .dtype = x->dtype == GD_F64 ? GD_F64 : GD_F32};
    j->size = j->dtype == GD_F64 ? 8 : 4;
    j->isa = j->dtype == GD_F64 ? GD_ISA_CALL(gd_recurrent_f64) : GD_ISA_CALL(gd_recurrent_f32);
    j->steps = x->dims[0];
    j->batch = x->dims[1];
    j->inputs = x->dims[2];
    j->hidden = w_hh->dims[1];
    j->gates = w_hh->dims[0];
    j->w_hh = (weights){w_hh->data, NULL, j->hidden};
    j->rows_per_task =
        j->hidden < TASK_ELEMENTS ? TASK_ELEMENTS / (j->hidden > 0 ? j->hidden : 1) : 1;
    j->tasks = (j->batch + j->rows_per_task - 1) / j->rows_per_task;
}

static bool has_step(const recurrent_job *j, int64_t n) {
    return !j->lengths || j->t < j->lengths[n];
}

static int64_t nth_step(const recurrent_job *j, int64_t k) {
    return j->reverse ? j->steps - 1 - k : k;
}

/* Initializes a state: a copy of `from`, or zeros. */
static void init_state(const recurrent_job *j, char *to, const char *from) {
    size_t bytes = (size_t)(j->batch * j->hidden * j->size);
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* The width of a packed panel of weights: the columns that the micro-kernel computes together. */
static int64_t panel_width(const recurrent_job *j) { return PANEL_BYTES / j->size; }

/* Products of very few rows read unpacked weights (gemm_thin.h), and packing does not pay off for a
 * single product. */
static bool should_pack(int64_t rows, int64_t products) {
    return rows > gd_gemm_thin_rows(gd_cpu_isa()) && products > 1;
}

typedef struct {
    const recurrent_job *j;
    const weights *w;
} pack_job;

static void pack_panel(void *arg, int64_t panel) {
    const pack_job *p = arg;
    const recurrent_job *j = p->j;
    int64_t width = panel_width(j), first = panel * width, from = first * p->w->columns;
    int64_t n = j->gates - first < width ? j->gates - first : width;
    j->isa->transpose(n, p->w->columns, element(j, p->w->data, from),
                      element(j, p->w->packed, from));
}

static void pack_weights(const recurrent_job *j, weights *w, char *to) {
    w->packed = to;
    gd_parallel_for((j->gates + panel_width(j) - 1) / panel_width(j), pack_panel,
                    &(pack_job){j, w});
}

/* c (rows, G*H) = a (rows, columns of w) * w^T + bias, with leading dimension c_row; or adds to
 * c. */
static gd_status multiply_gates(const recurrent_job *j, const weights *w, const char *a,
                                int64_t rows, char *c, int64_t c_row, bool add, const char *bias) {
    gd_gemm g = {.m = rows,
                 .n = j->gates,
                 .k = w->columns,
                 .a = {a, j->dtype, w->columns, 1},
                 .b = {w->data, j->dtype, 1, w->columns},
                 .c = {c, j->dtype, c_row, 1},
                 .accumulate = add};
    if (bias) g.bias = (gd_gemm_in){bias, j->dtype, 0, 1};
    if (!w->packed) return gd_gemm_run(&g);
    int64_t width = panel_width(j), full = j->gates / width, done = full * width;
    g.n = width;
    g.b = (gd_gemm_in){w->packed, j->dtype, width, 1};
    GD_TRY(gd_gemm_run_batch(&g, &(gd_gemm_batch){.rank = 1,
                                                  .size = {full},
                                                  .b_step = {width * w->columns},
                                                  .c_step = {width},
                                                  .bias_step = {width}}));
    if (done == j->gates) return GD_OK;
    g.n = j->gates - done;
    g.b = (gd_gemm_in){element(j, w->packed, done * w->columns), j->dtype, g.n, 1};
    g.c.data = element(j, c, done);
    if (bias) g.bias.data = element(j, bias, done);
    return gd_gemm_run(&g);
}

static void forward_task(void *arg, int64_t task) {
    const recurrent_job *j = arg;
    int64_t end = (task + 1) * j->rows_per_task, H = j->hidden;
    for (int64_t n = task * j->rows_per_task; n < end && n < j->batch; n++) {
        int64_t row = j->t * j->batch + n;
        char *y = element(j, j->y, row * H), *h = element(j, j->h, n * H),
             *gates = element(j, j->sums, n * j->step_size);
        char *cell = j->cells ? element(j, j->cells, row * H) : NULL;
        if (!has_step(j, n)) {
            memset(y, 0, (size_t)(H * j->size));
            if (j->keep) memset(gates, 0, (size_t)(j->step_size * j->size));
            if (cell) memset(cell, 0, (size_t)(H * j->size));
        } else if (j->cell == GD_LSTM) j->isa->lstm(H, gates, element(j, j->c, n * H), h, y, cell);
        else if (j->cell == GD_GRU)
            j->isa->gru(H, gates, element(j, j->s, n * 3 * H), h, y, j->keep);
        else if (j->cell == GD_RELU) j->isa->relu(H, y, h);
        else j->isa->tanh(H, y, h);
        if (j->wide_y) memcpy(element(j, j->wide_y, row * H), y, (size_t)(H * j->size));
    }
}

/* The layout of the workspace: byte offsets, each aligned to a cache line. */
typedef struct {
    size_t sums, s, bias, w_ih, w_hh, total;
} workspace_layout;

static size_t reserve_bytes(size_t *total, int64_t elements, int64_t size) {
    size_t from = *total;
    *total += ((size_t)(elements * size) + 63) & ~(size_t)63;
    return from;
}

static bool is_gated(const recurrent_job *j) { return j->cell == GD_LSTM || j->cell == GD_GRU; }

static bool should_pack_input(const recurrent_job *j) {
    return should_pack(j->chunk * j->batch, j->steps / j->chunk);
}
static bool should_pack_state(const recurrent_job *j) { return should_pack(j->batch, j->steps); }

static workspace_layout forward_layout(const recurrent_job *j, bool keep) {
    workspace_layout p = {0};
    bool own_sums = !keep && is_gated(j);
    p.sums = reserve_bytes(&p.total, own_sums ? j->chunk * j->batch * j->gates : 0, j->size);
    p.s = reserve_bytes(&p.total, j->cell == GD_GRU ? j->batch * j->gates : 0, j->size);
    p.bias = reserve_bytes(&p.total, 2 * j->gates, j->size);
    p.w_ih = reserve_bytes(&p.total, should_pack_input(j) ? j->gates * j->inputs : 0, j->size);
    p.w_hh = reserve_bytes(&p.total, should_pack_state(j) ? j->gates * j->hidden : 0, j->size);
    return p;
}

static double load_float(const recurrent_job *j, const void *p, int64_t i) {
    if (!p) return 0;
    return j->size == 8 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void store_float(const recurrent_job *j, void *p, int64_t i, double value) {
    if (j->size == 8) ((double *)p)[i] = value;
    else ((float *)p)[i] = (float)value;
}

/* Adds both biases to the input's part of the gates. Except for the candidate gate of a gru: there
 * the reset gate scales the state's part, so the state's bias stays with that part. */
static void combine_biases(const recurrent_job *j, const void *b_ih, const void *b_hh, char *x_bias,
                           char *s_bias) {
    for (int64_t i = 0; i < j->gates; i++) {
        bool separate = j->cell == GD_GRU && i >= 2 * j->hidden;
        store_float(j, x_bias, i, load_float(j, b_ih, i) + (separate ? 0 : load_float(j, b_hh, i)));
        store_float(j, s_bias, i, separate ? load_float(j, b_hh, i) : 0);
    }
}

static const void *optional_input(const gd_kernel_call *k, int i) {
    return i < k->n_in ? k->in[i].data : NULL;
}

static void init_forward(recurrent_job *j, const gd_kernel_call *k) {
    const gd_recurrent_options *o = k->attrs;
    init_recurrent(j, o->cell, o->reverse, &k->in[0], &k->in[5]);
    j->w_ih = (weights){k->in[4].data, NULL, j->inputs};
    int64_t rows = CHUNK_GATES / (j->gates > 0 ? j->gates : 1);
    if (rows < MIN_CHUNK_ROWS) rows = MIN_CHUNK_ROWS;
    j->chunk = rows / (j->batch > 0 ? j->batch : 1);
    if (j->chunk > j->steps) j->chunk = j->steps;
    if (j->chunk < 1) j->chunk = 1;
}

/* Computes `count` steps after the first `done` ones. `first` is the earliest of them in time, and
 * `sums` has room for the gates of all of them. */
static gd_status run_chunk(recurrent_job *j, const char *x, int64_t done, int64_t count,
                           int64_t first, char *sums, const char *x_bias, const char *s_bias) {
    GD_TRY(multiply_gates(j, &j->w_ih, element(j, x, first * j->batch * j->inputs),
                          count * j->batch, sums, j->step_size, false, x_bias));
    for (int64_t i = done; i < done + count; i++) {
        j->t = nth_step(j, i);
        j->sums = element(j, sums, (j->t - first) * j->batch * j->step_size);
        if (j->cell == GD_GRU)
            GD_TRY(multiply_gates(j, &j->w_hh, j->h, j->batch, j->s, j->gates, false, s_bias));
        else GD_TRY(multiply_gates(j, &j->w_hh, j->h, j->batch, j->sums, j->step_size, true, NULL));
        gd_parallel_for(j->tasks, forward_task, j);
    }
    return GD_OK;
}

static size_t recurrent_sequence_scratch(const gd_kernel_call *k) {
    return gd_gemm_max_scratch(GD_GEMM_ANY, GD_GEMM_ANY, GD_GEMM_ANY, k->in[0].dtype);
}

/*kernel recurrent.sequence  rank 10  wide
 * All floats; one product for the inputs of a chunk of steps, and one for each step.
 */
static size_t recurrent_sequence_workspace(const gd_kernel_call *k) {
    recurrent_job j;
    init_forward(&j, k);
    return forward_layout(&j, k->out[3].data != NULL).total;
}
static gd_status recurrent_sequence_run(gd_kernel_call *k) {
    recurrent_job j;
    init_forward(&j, k);
    bool keep = k->out[3].data != NULL;
    workspace_layout p = forward_layout(&j, keep);
    char *work = k->workspace, *x_bias = work + p.bias, *s_bias = element(&j, x_bias, j.gates);
    const void *b_ih = optional_input(k, 6), *b_hh = optional_input(k, 7);
    j.keep = keep && is_gated(&j);
    j.wide_y = keep && !is_gated(&j) && k->out[3].dims[2] > 0 ? k->out[3].data : NULL;
    j.y = k->out[0].data;
    j.h = k->out[1].data;
    j.c = k->out[2].data;
    j.cells = j.cell == GD_LSTM ? k->out[4].data : NULL;
    j.step_size = j.keep && j.cell == GD_GRU ? 4 * j.hidden : j.gates;
    j.s = work + p.s;
    j.lengths = optional_input(k, 3);
    if (b_ih || b_hh) combine_biases(&j, b_ih, b_hh, x_bias, s_bias);
    init_state(&j, j.h, optional_input(k, 1));
    if (j.cell == GD_LSTM) init_state(&j, j.c, optional_input(k, 2));
    if (should_pack_input(&j)) pack_weights(&j, &j.w_ih, work + p.w_ih);
    if (should_pack_state(&j)) pack_weights(&j, &j.w_hh, work + p.w_hh);
    /* An rnn computes y in place, over its pre-activations. */
    char *kept = j.keep ? k->out[3].data : j.y;
    for (int64_t done = 0, count; done < j.steps; done += count) {
        count = j.steps - done < j.chunk ? j.steps - done : j.chunk;
        int64_t first = j.reverse ? j.steps - done - count : done;
        char *sums = j.keep || !is_gated(&j) ? element(&j, kept, first * j.batch * j.step_size)
                                             : work + p.sums;
        GD_TRY(run_chunk(&j, k->in[0].data, done, count, first, sums, b_ih || b_hh ? x_bias : NULL,
                         b_hh ? s_bias : NULL));
    }
    return GD_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

/* The state of sequence n before step t: that of the previous step, or the initial one. */
static const char *previous_state(const recurrent_job *j, const char *states, const char *first,
                                  int64_t n) {
    int64_t length = j->lengths && j->lengths[n] < j->steps ? j->lengths[n] : j->steps;
    bool begins = j->reverse ? j->t + 1 == length : j->t == 0;
    if (begins) return first ? element(j, first, n * j->hidden) : j->zero_state;
    return element(j, states, ((j->t + (j->reverse ? 1 : -1)) * j->batch + n) * j->hidden);
}

static void backward_task(void *arg, int64_t task) {
    const recurrent_job *j = arg;
    int64_t end = (task + 1) * j->rows_per_task, H = j->hidden;
    for (int64_t n = task * j->rows_per_task; n < end && n < j->batch; n++) {
        int64_t row = j->t * j->batch + n;
        const char *gy = element(j, j->gy, row * H), *y = element(j, j->saved_y, row * H),
                   *saved = element(j, j->saved, row * 4 * H);
        char *gates = element(j, j->gradients, row * j->step_size), *dh = element(j, j->h, n * H);
        if (!has_step(j, n)) memset(gates, 0, (size_t)(j->step_size * j->size));
        else if (j->cell == GD_LSTM)
            j->isa->lstm_backward(H, gy, saved, element(j, j->saved_c, row * H),
                                  previous_state(j, j->saved_c, j->c0, n), dh,
                                  element(j, j->c, n * H), gates);
        else if (j->cell == GD_GRU)
            j->isa->gru_backward(H, gy, saved, previous_state(j, j->saved_y, j->h0, n), dh, gates);
        else if (j->cell == GD_RELU) j->isa->relu_backward(H, gy, y, dh, gates);
        else j->isa->tanh_backward(H, gy, y, dh, gates);
    }
}

/* dh += the gradients of the gates from column `from` on, times `depth` rows of w_hh from `row`
 * on. */
static gd_status accumulate_state_grad(const recurrent_job *j, int64_t from, int64_t row,
                                       int64_t depth) {
    const char *gates = element(j, j->gradients, j->t * j->batch * j->step_size + from);
    return gd_gemm_run(
        &(gd_gemm){.m = j->batch,
                   .n = j->hidden,
                   .k = depth,
                   .a = {gates, j->dtype, j->step_size, 1},
                   .b = {element(j, j->w_hh.data, row * j->hidden), j->dtype, j->hidden, 1},
                   .c = {j->h, j->dtype, j->hidden, 1},
                   .accumulate = true});
}

/*kernel recurrent_grad.sequence  rank 10  wide  scratch recurrent_sequence_scratch
 * All floats; one product for each step, from the last to the first.
 */
static size_t recurrent_grad_sequence_workspace(const gd_kernel_call *k) {
    return (size_t)k->out[1].dims[2] * (k->in[3].dtype == GD_F64 ? 8 : 4);
}
static gd_status recurrent_grad_sequence_run(gd_kernel_call *k) {
    const gd_recurrent_grad_options *o = k->attrs;
    recurrent_job j;
    init_recurrent(&j, o->cell, o->reverse, &k->in[3], &k->in[8]);
    j.gy = k->in[0].data;
    j.h0 = k->in[4].data;
    j.c0 = k->in[5].data;
    j.lengths = k->in[6].data;
    j.saved_y = k->in[11].data;
    j.saved = k->in[12].data;
    if (j.cell == GD_TANH && k->in[12].dims[2] > 0) j.saved_y = j.saved;
    j.saved_c = k->in[13].data;
    j.zero_state = k->workspace;
    j.gradients = k->out[0].data;
    j.step_size = k->out[0].dims[2];
    j.h = k->out[1].data; /* current gradients of the states; at the end, of the first */
    j.c = k->out[2].data;
    memset(k->workspace, 0, k->workspace_bytes);
    init_state(&j, j.h, k->in[1].data);
    if (j.cell == GD_LSTM) init_state(&j, j.c, k->in[2].data);
    for (int64_t i = j.steps; i-- > 0;) {
        j.t = nth_step(&j, i);
        gd_parallel_for(j.tasks, backward_task, &j);
        if (j.cell != GD_GRU) {
            GD_TRY(accumulate_state_grad(&j, 0, 0, j.gates));
            continue;
        }
        GD_TRY(accumulate_state_grad(&j, 0, 0, 2 * j.hidden));
        GD_TRY(accumulate_state_grad(&j, 3 * j.hidden, 2 * j.hidden, j.hidden));
    }
    return GD_OK;
}

#include "ops/recurrent/cpu/recurrent_kernels.gen.h"
