/* recurrent_layer.c - one direction of one recurrent layer: rnn, lstm, gru and their cells call it.
 *
 * One kernel runs a sequence, and one its gradient. The bodies here compute the same step by step
 * in public ops. Tests compare the kernels with them, devices without these kernels run them, and
 * second derivatives are derived from them.
 *
 * Gates are adjacent blocks of H features: input, forget, cell, output (lstm); reset, update, new
 * (gru). A gru also saves a fourth block, s = w_hh h + b_hh of the new gate, because new =
 * tanh(w_ih x + b_ih + reset s). Gradients of gates have the same blocks in the same order; for a
 * gru the gradient of s is the fourth.
 */
#include <string.h>

#include "core/checked.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "dispatch/macs.h"

/*op recurrent(x, h0?, c0?, lengths?, w_ih, w_hh, b_ih?, b_hh?) -> y, h, c, gates~, cells~  internal
 * One direction of a recurrent layer: x (T,N,I), states (1,N,H), w_ih (G*H,I), w_hh (G*H,H), biases
 * (G*H) give y (T,N,H) and the final states. After the end of a sequence, given by lengths (N), x
 * must be finite, and y is zero.
 *   cell {tanh, relu, lstm, gru} = tanh
 *   reverse bool = false  from the last step to the first
 *   saves x, h0, c0, lengths, w_ih, w_hh, b_ih, b_hh, y, gates, cells
 */
enum { X, H0, C0, LENGTHS, W_IH, W_HH, B_IH, B_HH, INPUTS };

/* The inputs of a call, its options and sizes. */
typedef struct {
    gd_tensor *in[INPUTS]; /* NULL: absent */
    gd_word cell;
    bool reverse;
    gd_dtype dtype; /* of the body's computation */
    int64_t steps, batch, hidden;
} layer;

static int64_t gates_of(gd_word cell) { return cell == GD_LSTM ? 4 : cell == GD_GRU ? 3 : 1; }

/* The number of blocks of H numbers that are saved for each step. For f16 and bf16, the tanh cell
 * saves its result as f32: near 1, the slope 1 - y^2 of a rounded y would be 0. */
static int64_t saved_parts(gd_word cell, const gd_tensor *x) {
    bool half = x->dtype == GD_F16 || x->dtype == GD_BF16;
    return cell == GD_LSTM || cell == GD_GRU ? 4 : cell == GD_TANH && half ? 1 : 0;
}
/* The number of blocks that gradients of gates have. */
static int64_t gradient_parts(gd_word cell) { return cell == GD_GRU ? 4 : gates_of(cell); }

/* The dtype of saved numbers and of the body's computation: f32 for f16 and bf16. */
static gd_dtype wide_dtype(const gd_tensor *t) { return gd_wide_dtype((gd_dtype)t->dtype); }

/* Requires x's dtype and the first `rank` of the dims a, b, c. NULL is accepted. */
static gd_status need_input(const gd_tensor *t, const char *name, const gd_tensor *x, int rank,
                            int64_t a, int64_t b, int64_t c) {
    const int64_t dims[3] = {a, b, c};
    char text[128];
    if (!t) return GD_OK;
    GD_TRY(gd_need_same_dtype(x, t, "x", name));
    if (t->rank == rank && memcmp(t->dims, dims, sizeof *dims * (size_t)rank) == 0) return GD_OK;
    return gd_op_fail(GD_E_SHAPE, "'%s' must have shape %s", name,
                      gd_shape_text(rank, dims, text, sizeof text));
}

/* Checks the inputs of op recurrent, which begin at input number `first`, and fills l. */
static gd_status check_layer(const gd_infer *i, int first, gd_word cell, layer *l) {
    *l = (layer){.cell = cell};
    for (int k = 0; k < INPUTS && first + k < i->n_in; k++) l->in[k] = i->in[first + k];
    const gd_tensor *x = l->in[X], *w_hh = l->in[W_HH], *lengths = l->in[LENGTHS];
    int64_t rows;
    GD_TRY(gd_need_float(x, "x"));
    GD_TRY(gd_need_rank(x, "x", 3));
    GD_TRY(gd_need_rank(w_hh, "w_hh", 2));
    l->steps = x->dims[0];
    l->batch = x->dims[1];
    l->hidden = w_hh->dims[1];
    if (!gd_mul_i64(gates_of(cell), l->hidden, &rows))
        return gd_op_fail(GD_E_SHAPE, "'w_hh' is too wide");
    GD_TRY(need_input(l->in[W_IH], "w_ih", x, 2, rows, x->dims[2], 0));
    GD_TRY(need_input(w_hh, "w_hh", x, 2, rows, l->hidden, 0));
    GD_TRY(need_input(l->in[B_IH], "b_ih", x, 1, rows, 0, 0));
    GD_TRY(need_input(l->in[B_HH], "b_hh", x, 1, rows, 0, 0));
    GD_TRY(need_input(l->in[H0], "h0", x, 3, 1, l->batch, l->hidden));
    GD_TRY(need_input(l->in[C0], "c0", x, 3, 1, l->batch, l->hidden));
    if (l->in[C0] && cell != GD_LSTM) return gd_op_fail(GD_E_ARGUMENT, "only lstm has a 'c0'");
    if (lengths && (lengths->dtype != GD_I64 || lengths->rank != 1 || lengths->dims[0] != l->batch))
        return gd_op_fail(GD_E_SHAPE, "'lengths' must be i64 of shape [%lld]", (long long)l->batch);
    return GD_OK;
}

static void meta_of_rank3(gd_meta *m, gd_dtype dtype, int64_t a, int64_t b, int64_t c) {
    m->dtype = dtype;
    m->rank = 3;
    m->dims[0] = a, m->dims[1] = b, m->dims[2] = c;
}

static gd_status recurrent_infer(gd_infer *i) {
    const gd_recurrent_options *o = i->attrs;
    layer l;
    GD_TRY(check_layer(i, 0, o->cell, &l));
    gd_dtype dtype = (gd_dtype)l.in[X]->dtype, wide = wide_dtype(l.in[X]);
    bool lstm = o->cell == GD_LSTM;
    meta_of_rank3(&i->out[0], dtype, l.steps, l.batch, l.hidden);
    meta_of_rank3(&i->out[1], dtype, 1, l.batch, l.hidden);
    meta_of_rank3(&i->out[2], dtype, lstm, l.batch, l.hidden);
    meta_of_rank3(&i->out[3], wide, l.steps, l.batch, saved_parts(o->cell, l.in[X]) * l.hidden);
    meta_of_rank3(&i->out[4], wide, l.steps, l.batch, lstm ? l.hidden : 0);
    return GD_OK;
}

/* --- parts of the bodies ---------------------------------------------------------------------- */

static layer layer_of(gd_tensor *const *in, int n, gd_word cell, bool reverse) {
    layer l = {.cell = cell, .reverse = reverse, .dtype = (gd_dtype)in[X]->dtype};
    for (int k = 0; k < INPUTS && k < n; k++) l.in[k] = in[k];
    l.steps = gd_tensor_dim(l.in[X], 0);
    l.batch = gd_tensor_dim(l.in[X], 1);
    l.hidden = gd_tensor_dim(l.in[W_HH], 1);
    return l;
}

/* The same with all inputs in the wide dtype, in which the kernels compute, too. */
static layer wide_layer_of(gd_tensor *const *in, int n, gd_word cell, bool reverse) {
    layer l = layer_of(in, n, cell, reverse);
    l.dtype = wide_dtype(in[X]);
    for (int k = 0; k < INPUTS; k++)
        if (k != LENGTHS) l.in[k] = gd_as_dtype(l.in[k], l.dtype);
    return l;
}

static gd_tensor *zero_tensor(const layer *l, gd_shape dims) {
    return gd_constant_for(l->in[X], dims, gd_number_of(0), l->dtype);
}

static gd_tensor *layer_scalar(const layer *l, double value) {
    return gd_scalar_of(value, l->dtype);
}

/* Step t of (T, N, F) as (N, F). */
static gd_tensor *step_of(const layer *l, gd_tensor *t, int64_t step) {
    return gd_reshape(gd_narrow(t, 0, step, 1), gd_dims(l->batch, gd_tensor_dim(t, 2)));
}

/* A state (1, N, H) as (N, H); zeros if it is absent. */
static gd_tensor *state_of(const layer *l, gd_tensor *t) {
    return t ? gd_reshape(t, gd_dims(l->batch, l->hidden))
             : zero_tensor(l, gd_dims(l->batch, l->hidden));
}
static gd_tensor *as_state(const layer *l, gd_tensor *t) {
    return gd_reshape(t, gd_dims(1, l->batch, l->hidden));
}

/* T tensors (N, F) as one (T, N, F). */
static gd_tensor *join_steps(const layer *l, gd_tensor **steps, int64_t features) {
    if (l->steps == 0) return zero_tensor(l, gd_dims(0, l->batch, features));
    for (int64_t t = 0; t < l->steps; t++)
        steps[t] = gd_reshape(steps[t], gd_dims(1, l->batch, features));
    return gd_cat(((gd_tensors){steps, l->steps}), .axis = 0);
}

/* Gate number k of all gates (..., n*H). */
static gd_tensor *gate_block(const layer *l, gd_tensor *all, int64_t k) {
    return gd_narrow(all, -1, k * l->hidden, l->hidden);
}

/* (N, 1): which sequences are longer than t; NULL: all. */
static gd_tensor *active_at(const layer *l, int64_t t) {
    gd_tensor *lengths = l->in[LENGTHS];
    return lengths ? gd_reshape(gd_gt(lengths, gd_scalar_int(t)), gd_dims(l->batch, 1)) : NULL;
}
static gd_tensor *where_active(gd_tensor *active, gd_tensor *yes, gd_tensor *no) {
    return active ? gd_where(active, yes, no) : yes;
}

static int64_t nth_step(const layer *l, int64_t k) { return l->reverse ? l->steps - 1 - k : k; }

/* --- forward ---------------------------------------------------------------------------------- */

/* One step. gx (N, G*H) is w_ih x + b_ih; h and c (N, H) are the states, which it replaces. */
static void forward_step(const layer *l, gd_tensor *gx, gd_tensor **h, gd_tensor **c) {
    gd_tensor *gh = gd_linear(*h, l->in[W_HH], l->in[B_HH]);
    if (l->cell == GD_GRU) {
        gd_tensor *reset = gd_sigmoid(gd_add(gate_block(l, gx, 0), gate_block(l, gh, 0)));
        gd_tensor *update = gd_sigmoid(gd_add(gate_block(l, gx, 1), gate_block(l, gh, 1)));
        gd_tensor *fresh =
            gd_tanh(gd_add(gate_block(l, gx, 2), gd_mul(reset, gate_block(l, gh, 2))));
        *h = gd_add(fresh, gd_mul(update, gd_sub(*h, fresh)));
        return;
    }
    gd_tensor *g = gd_add(gx, gh);
    if (l->cell == GD_LSTM) {
        gd_tensor *in = gd_mul(gd_sigmoid(gate_block(l, g, 0)), gd_tanh(gate_block(l, g, 2)));
        *c = gd_add(gd_mul(gd_sigmoid(gate_block(l, g, 1)), *c), in);
        *h = gd_mul(gd_sigmoid(gate_block(l, g, 3)), gd_tanh(*c));
    } else *h = l->cell == GD_RELU ? gd_relu(g) : gd_tanh(g);
}

/* Every step multiplies each row of the batch by all weights. */
static double recurrent_macs(const gd_op_shapes *s) {
    const double rows = (double)s->in[X].dims[0] * (double)s->in[X].dims[1];
    return rows * (gd_shape_elements(&s->in[W_IH]) + gd_shape_elements(&s->in[W_HH]));
}
static void recurrent_expand(gd_expansion *e) {
    const gd_recurrent_options *o = e->attrs;
    layer l = wide_layer_of(e->x, e->n_in, o->cell, o->reverse);
    gd_tensor *gx = gd_linear(l.in[X], l.in[W_IH], l.in[B_IH]); /* all steps at once */
    gd_tensor *h = state_of(&l, l.in[H0]), *c = o->cell == GD_LSTM ? state_of(&l, l.in[C0]) : NULL,
              *zero = layer_scalar(&l, 0);
    gd_tensor **ys = gd_list_new(l.steps);
    for (int64_t k = 0; ys && k < l.steps; k++) {
        int64_t t = nth_step(&l, k);
        gd_tensor *h_before = h, *c_before = c, *active = active_at(&l, t);
        forward_step(&l, step_of(&l, gx, t), &h, &c);
        ys[t] =
            where_active(active, h, zero); /* after its end a sequence's state stays unchanged */
        h = where_active(active, h, h_before);
        if (c) c = where_active(active, c, c_before);
    }
    e->y[0] = ys ? join_steps(&l, ys, l.hidden) : gd_tensor_fail(GD_E_MEMORY);
    e->y[1] = as_state(&l, h);
    e->y[2] = c ? as_state(&l, c) : zero_tensor(&l, gd_dims(0, l.batch, l.hidden));
    for (int k = 0; k < 3; k++) e->y[k] = gd_as_dtype(e->y[k], (gd_dtype)e->x[X]->dtype);
}

/* --- gradients -------------------------------------------------------------------------------- */

/* The states before each step (T, N, H), from y, the states after it. */
static gd_tensor *states_before(const layer *l, gd_tensor *y) {
    if (l->steps == 0) return y;
    gd_tensor *first = l->in[H0] ? l->in[H0] : zero_tensor(l, gd_dims(1, l->batch, l->hidden));
    gd_tensor *others = gd_narrow(y, 0, l->reverse ? 1 : 0, l->steps - 1);
    gd_tensor *before = l->reverse ? gd_cat(gd_list(others, first), .axis = 0)
                                   : gd_cat(gd_list(first, others), .axis = 0);
    if (!l->reverse || !l->in[LENGTHS] || !l->in[H0]) return before;
    /* in reverse a shorter sequence begins at its own last step */
    gd_tensor *steps =
        gd_reshape(gd_arange(1, (double)(l->steps + 1), .dtype = GD_I64), gd_dims(l->steps, 1, 1));
    gd_tensor *begins = gd_eq(gd_reshape(l->in[LENGTHS], gd_dims(1, l->batch, 1)), steps);
    return gd_where(begins, first, before);
}

/* The transpose of a (R, F) times b (R, K): (F, K). */
static gd_tensor *transposed_product(gd_tensor *a, gd_tensor *b) {
    return gd_matmul(gd_transpose(a, 0, 1), b);
}

/* `steps` steps of (T, N, F) as (steps*N, F). */
static gd_tensor *flatten_steps(const layer *l, gd_tensor *t, int64_t first, int64_t steps) {
    return gd_reshape(gd_narrow(t, 0, first, steps),
                      gd_dims(steps * l->batch, gd_tensor_dim(t, 2)));
}

static void recurrent_vjp(gd_vjp *v) {
    const gd_recurrent_options *o = v->attrs;
    layer l = layer_of(v->x, v->n_in, o->cell, o->reverse);
    gd_recurrent_grad_outputs g =
        gd_recurrent_grad(v->gy[0], v->gy[1], v->gy[2], l.in[X], l.in[H0], l.in[C0], l.in[LENGTHS],
                          l.in[W_IH], l.in[W_HH], l.in[B_IH], l.in[B_HH], v->y[0], v->y[3], v->y[4],
                          .cell = o->cell, .reverse = o->reverse);
    int64_t rows = gates_of(o->cell) * l.hidden,
            shared = o->cell == GD_GRU ? rows - l.hidden : rows;
    gd_tensor *all = flatten_steps(&l, g.gates, 0, l.steps), *by_x = gd_narrow(all, 1, 0, rows);
    if (v->needs[X]) v->gx[X] = gd_reshape(gd_matmul(by_x, l.in[W_IH]), gd_tensor_shape(l.in[X]));
    if (v->needs[W_IH])
        v->gx[W_IH] = transposed_product(by_x, flatten_steps(&l, l.in[X], 0, l.steps));
    if (v->needs[H0]) v->gx[H0] = g.gh0;
    if (v->needs[C0]) v->gx[C0] = g.gc0;
    if (v->needs[W_HH]) {
        gd_tensor *after = all, *before;
        if (!l.in[H0] && l.steps > 0) { /* the state before the first step is zero: leave it out */
            after = flatten_steps(&l, g.gates, o->reverse ? 0 : 1, l.steps - 1);
            before = flatten_steps(&l, v->y[0], o->reverse ? 1 : 0, l.steps - 1);
        } else before = flatten_steps(&l, states_before(&l, v->y[0]), 0, l.steps);
        v->gx[W_HH] = transposed_product(gd_narrow(after, 1, 0, shared), before);
        if (o->cell == GD_GRU)
            v->gx[W_HH] =
                gd_cat(gd_list(v->gx[W_HH],
                               transposed_product(gd_narrow(after, 1, rows, l.hidden), before)),
                       .axis = 0);
    }
    bool biases = (v->n_in > B_IH && v->needs[B_IH]) || (v->n_in > B_HH && v->needs[B_HH]);
    gd_tensor *sum = biases ? gd_sum(all, .axis = 0) : NULL;
    if (v->n_in > B_IH && v->needs[B_IH]) v->gx[B_IH] = gd_narrow(sum, 0, 0, rows);
    if (v->n_in > B_HH && v->needs[B_HH])
        v->gx[B_HH] =
            o->cell == GD_GRU
                ? gd_cat(gd_list(gd_narrow(sum, 0, 0, shared), gd_narrow(sum, 0, rows, l.hidden)),
                         .axis = 0)
                : gd_narrow(sum, 0, 0, rows);
}

/*op recurrent_grad(gy, gh, gc, x, h0?, c0?, lengths?, w_ih, w_hh, b_ih?, b_hh?, y, saved, cells) -> gates, gh0, gc0  internal
 * Backpropagation through time: the gradients of the gates before their activations (T,N,G*H; for a
 * gru that of s follows), and of the initial states. The gradients of x and the weights are
 * products of the gates' gradients.
 *   cell {tanh, relu, lstm, gru} = tanh
 *   reverse bool = false
 */
enum { GY, GH, GC, LAYER, Y = LAYER + INPUTS, SAVED, CELLS };

static gd_status recurrent_grad_infer(gd_infer *i) {
    const gd_recurrent_grad_options *o = i->attrs;
    layer l;
    GD_TRY(check_layer(i, LAYER, o->cell, &l));
    const gd_tensor *x = l.in[X];
    bool lstm = o->cell == GD_LSTM;
    gd_dtype wide = wide_dtype(x);
    GD_TRY(need_input(i->in[GY], "gy", x, 3, l.steps, l.batch, l.hidden));
    GD_TRY(need_input(i->in[GH], "gh", x, 3, 1, l.batch, l.hidden));
    GD_TRY(need_input(i->in[GC], "gc", x, 3, lstm, l.batch, l.hidden));
    GD_TRY(need_input(i->in[Y], "y", x, 3, l.steps, l.batch, l.hidden));
    for (int k = SAVED; k <= CELLS; k++) {
        int64_t features = k == SAVED ? saved_parts(o->cell, x) * l.hidden : lstm ? l.hidden : 0;
        if (i->in[k]->dtype != wide || i->in[k]->rank != 3 || i->in[k]->dims[0] != l.steps ||
            i->in[k]->dims[1] != l.batch || i->in[k]->dims[2] != features)
            return gd_op_fail(GD_E_SHAPE, "'%s' must have the shape and dtype that recurrent saves",
                              i->op->inputs[k].name);
    }
    meta_of_rank3(&i->out[0], (gd_dtype)x->dtype, l.steps, l.batch,
                  gradient_parts(o->cell) * l.hidden);
    meta_of_rank3(&i->out[1], (gd_dtype)x->dtype, 1, l.batch, l.hidden);
    meta_of_rank3(&i->out[2], (gd_dtype)x->dtype, lstm, l.batch, l.hidden);
    return GD_OK;
}

/* Values of all steps that the backward steps read, (T, N, H) each. The states before each step
 * come from y, so that a second derivative flows through it. */
typedef struct {
    gd_tensor *before, *y;
    gd_tensor *gate[4]; /* after their activations; gru: r, z, n, s */
    gd_tensor **c;      /* lstm: (N, H) after step t, and before it at [T + t] */
} history;

static gd_tensor *one_minus_square(const layer *l, gd_tensor *t) {
    return gd_sub(layer_scalar(l, 1), gd_square(t));
}
static gd_tensor *sigmoid_slope(const layer *l, gd_tensor *t) {
    return gd_mul(t, gd_sub(layer_scalar(l, 1), t));
}

static gd_status recompute_history(const layer *l, gd_tensor *y, history *m) {
    *m = (history){.y = y};
    if (l->cell != GD_LSTM && l->cell != GD_GRU) return GD_OK;
    m->before = states_before(l, y);
    gd_tensor *gx = gd_linear(l->in[X], l->in[W_IH], l->in[B_IH]),
              *gh = gd_linear(m->before, l->in[W_HH], l->in[B_HH]);
    if (l->cell == GD_GRU) {
        for (int k = 0; k < 2; k++)
            m->gate[k] = gd_sigmoid(gd_add(gate_block(l, gx, k), gate_block(l, gh, k)));
        m->gate[3] = gate_block(l, gh, 2);
        m->gate[2] = gd_tanh(gd_add(gate_block(l, gx, 2), gd_mul(m->gate[0], m->gate[3])));
        return GD_OK;
    }
    gd_tensor *sum = gd_add(gx, gh), *c = state_of(l, l->in[C0]);
    for (int k = 0; k < 4; k++)
        m->gate[k] = k == 2 ? gd_tanh(gate_block(l, sum, k)) : gd_sigmoid(gate_block(l, sum, k));
    m->c = gd_list_new(2 * l->steps);
    if (!m->c) return GD_E_MEMORY;
    gd_tensor *in = gd_mul(m->gate[0], m->gate[2]);
    for (int64_t k = 0; k < l->steps; k++) {
        int64_t t = nth_step(l, k);
        m->c[l->steps + t] = c;
        c = where_active(active_at(l, t),
                         gd_add(gd_mul(step_of(l, m->gate[1], t), c), step_of(l, in, t)), c);
        m->c[t] = c;
    }
    return GD_OK;
}

/* One step of backpropagation. d (N, H) is the gradient of the state after step t. Returns the
 * gradient of the gates. The gradient of the state before the step is *dh + *by_h w_hh. *dc, the
 * gradient of the lstm's c after the step, becomes that before it. */
static gd_tensor *backward_step(const layer *l, const history *m, int64_t t, gd_tensor *d,
                                gd_tensor **dh, gd_tensor **dc, gd_tensor **by_h) {
    gd_tensor *gates[4], *at[4];
    for (int k = 0; k < 4; k++) at[k] = m->gate[k] ? step_of(l, m->gate[k], t) : NULL;
    *dh = zero_tensor(l, gd_dims(l->batch, l->hidden));
    if (l->cell == GD_LSTM) {
        gd_tensor *i = at[0], *f = at[1], *g = at[2], *o = at[3], *squashed = gd_tanh(m->c[t]);
        gd_tensor *cell = gd_add(*dc, gd_mul(gd_mul(d, o), one_minus_square(l, squashed)));
        gates[0] = gd_mul(gd_mul(cell, g), sigmoid_slope(l, i));
        gates[1] = gd_mul(gd_mul(cell, m->c[l->steps + t]), sigmoid_slope(l, f));
        gates[2] = gd_mul(gd_mul(cell, i), one_minus_square(l, g));
        gates[3] = gd_mul(gd_mul(d, squashed), sigmoid_slope(l, o));
        *dc = gd_mul(cell, f);
        return *by_h = gd_cat(((gd_tensors){gates, 4}), .axis = 1);
    }
    if (l->cell == GD_GRU) {
        gd_tensor *r = at[0], *z = at[1], *n = at[2], *s = at[3];
        gates[1] = gd_mul(gd_mul(d, gd_sub(step_of(l, m->before, t), n)), sigmoid_slope(l, z));
        gates[2] = gd_mul(gd_mul(d, gd_sub(layer_scalar(l, 1), z)), one_minus_square(l, n));
        gates[0] = gd_mul(gd_mul(gates[2], s), sigmoid_slope(l, r));
        gates[3] = gd_mul(gates[2], r);
        *dh = gd_mul(d, z);
        *by_h = gd_cat(gd_list(gates[0], gates[1], gates[3]), .axis = 1);
        return gd_cat(((gd_tensors){gates, 4}), .axis = 1);
    }
    gd_tensor *y = step_of(l, m->y, t);
    return *by_h = l->cell == GD_RELU
                       ? gd_where(gd_gt(y, layer_scalar(l, 0)), d, layer_scalar(l, 0))
                       : gd_mul(d, one_minus_square(l, y));
}

/* Each step multiplies the gradients of the gates by w_hh. */
static double recurrent_grad_macs(const gd_op_shapes *s) {
    const gd_meta *x = &s->in[LAYER + X];
    return (double)x->dims[0] * (double)x->dims[1] * gd_shape_elements(&s->in[LAYER + W_HH]);
}
static void recurrent_grad_expand(gd_expansion *e) {
    const gd_recurrent_grad_options *o = e->attrs;
    layer l = wide_layer_of(e->x + LAYER, INPUTS, o->cell, o->reverse);
    bool lstm = o->cell == GD_LSTM;
    gd_dtype wide = wide_dtype(e->x[GY]);
    gd_tensor *gy = gd_as_dtype(e->x[GY], wide), *gh = gd_as_dtype(e->x[GH], wide),
              *gc = gd_as_dtype(e->x[GC], wide);
    gd_tensor *dh = state_of(&l, gh), *dc = lstm ? state_of(&l, gc) : NULL,
              *zero = layer_scalar(&l, 0);
    gd_tensor **gates = gd_list_new(l.steps);
    history m;
    if (!gates || recompute_history(&l, gd_as_dtype(e->x[Y], wide), &m) != GD_OK) {
        for (int k = 0; k < e->n_out; k++) e->y[k] = gd_tensor_fail(GD_E_MEMORY);
        return;
    }
    for (int64_t k = l.steps; k-- > 0;) {
        int64_t t = nth_step(&l, k);
        gd_tensor *active = active_at(&l, t), *d = gd_add(dh, step_of(&l, gy, t)), *by_h,
                  *dh_direct, *dc_before = dc;
        gates[t] = where_active(active, backward_step(&l, &m, t, d, &dh_direct, &dc, &by_h), zero);
        dh = where_active(active, gd_add(dh_direct, gd_matmul(by_h, l.in[W_HH])), dh);
        if (lstm) dc = where_active(active, dc, dc_before);
    }
    e->y[0] = join_steps(&l, gates, gradient_parts(o->cell) * l.hidden);
    e->y[1] = as_state(&l, dh);
    e->y[2] = lstm ? as_state(&l, dc) : zero_tensor(&l, gd_dims(0, l.batch, l.hidden));
    for (int k = 0; k < 3; k++) e->y[k] = gd_as_dtype(e->y[k], (gd_dtype)e->x[GY]->dtype);
}

#include "ops/recurrent/recurrent_layer.gen.h"
