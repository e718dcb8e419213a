/* recurrent.c - rnn, lstm and gru over sequences, and their cells.
 *
 * x is (T, N, I): time, batch, features; (N, T, I) with batch_first. The weights are one list,
 * layer by layer and, if bidirectional, forward before backward: w_ih (G*H, I), w_hh (G*H, H) and,
 * with biases, b_ih (G*H), b_hh (G*H). G is 1 for rnn, 3 for gru (reset, update, new) and 4 for
 * lstm (input, forget, cell, output). These are PyTorch's weights in PyTorch's order.
 *
 * `lengths` (N) holds the integer length of each sequence, in any order. After the end of a
 * sequence its state stays unchanged and y is zero, as with PyTorch's packed sequences.
 */
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

/* The options of rnn, lstm and gru in one form. */
typedef struct {
    int64_t layers, directions, gates, hidden;
    bool batch_first, biases, training;
    double dropout;
    int first_weight; /* number of inputs before the weights */
    int states;       /* 1 (h) or 2 (h and c) */
} stack_layout;

/* --- shapes ----------------------------------------------------------------------------------- */

static gd_status need_dims(const gd_tensor *t, const char *name, int rank, const int64_t *dims) {
    char text[128];
    if (t->rank == rank && memcmp(t->dims, dims, sizeof(int64_t) * (size_t)rank) == 0) return GD_OK;
    return gd_op_fail(GD_E_SHAPE, "%s must have shape %s", name,
                      gd_shape_text(rank, dims, text, sizeof text));
}

static gd_status check_weights(const gd_infer *i, const stack_layout *l, int64_t features) {
    int each = l->biases ? 4 : 2, at = l->first_weight;
    int64_t want, wide;
    if (!gd_mul_i64(l->layers, l->directions * each, &want) || i->n_in - at != want)
        return gd_op_fail(
            GD_E_ARGUMENT,
            "'weights' has %d tensors; it must have %d for each of %lld layers and %lld "
            "directions",
            i->n_in - at, each, (long long)l->layers, (long long)l->directions);
    if (!gd_mul_i64(l->gates, l->hidden, &wide))
        return gd_op_fail(GD_E_SHAPE, "weight 1 (w_hh) is too wide");
    for (int64_t layer = 0; layer < l->layers; layer++)
        for (int64_t d = 0; d < l->directions; d++, at += each) {
            int64_t rows = l->gates * l->hidden,
                    in = layer == 0 ? features : l->hidden * l->directions;
            char name[48];
            const int64_t shapes[4][2] = {{rows, in}, {rows, l->hidden}, {rows, 0}, {rows, 0}};
            for (int k = 0; k < each; k++) {
                snprintf(name, sizeof name, "weight %d (layer %lld)", at + k - l->first_weight,
                         (long long)layer);
                GD_TRY(need_dims(i->in[at + k], name, k < 2 ? 2 : 1, shapes[k]));
                GD_TRY(gd_need_same_dtype(i->in[0], i->in[at + k], "x", name));
            }
        }
    return GD_OK;
}

/* y (T, N, D*H), and a final state (layers*D, N, H) for each of h and c. */
static gd_status infer_layers(gd_infer *i, stack_layout *l) {
    const gd_tensor *x = i->in[0];
    GD_TRY(gd_need_float(x, "x"));
    GD_TRY(gd_need_rank(x, "x", 3));
    if (l->layers < 1)
        return gd_op_fail(GD_E_ARGUMENT, "layers is %lld; it must be at least 1",
                          (long long)l->layers);
    if (!(l->dropout >= 0 && l->dropout <= 1))
        return gd_op_fail(GD_E_ARGUMENT, "dropout is %g; it must lie between 0 and 1", l->dropout);
    if (i->n_in <= l->first_weight + 1)
        return gd_op_fail(GD_E_ARGUMENT, "the list 'weights' is too short");
    const gd_tensor *w_hh = i->in[l->first_weight + 1];
    if (!w_hh || w_hh->rank != 2)
        return gd_op_fail(GD_E_SHAPE, "weight 1 (w_hh) must have 2 dimensions");
    l->hidden = w_hh->dims[1];
    GD_TRY(check_weights(i, l, x->dims[2]));
    int64_t batch = x->dims[l->batch_first ? 0 : 1],
            state[3] = {l->layers * l->directions, batch, l->hidden};
    for (int s = 0; s < l->states; s++)
        if (i->in[1 + s]) {
            GD_TRY(need_dims(i->in[1 + s], s ? "'c0'" : "'h0'", 3, state));
            GD_TRY(gd_need_same_dtype(x, i->in[1 + s], "x", s ? "c0" : "h0"));
        }
    const gd_tensor *lengths = i->in[l->first_weight - 1];
    if (lengths) {
        GD_TRY(gd_need_int(lengths, "lengths"));
        GD_TRY(need_dims(lengths, "'lengths'", 1, &batch));
    }
    gd_meta_like(&i->out[0], x);
    i->out[0].dims[2] = l->hidden * l->directions;
    for (int s = 0; s < l->states; s++) {
        i->out[1 + s].dtype = (gd_dtype)x->dtype;
        i->out[1 + s].rank = 3;
        memcpy(i->out[1 + s].dims, state, sizeof state);
    }
    return GD_OK;
}

/* --- layers over time ------------------------------------------------------------------------- */

/* Which steps of x (T, N, I) are before the end of each sequence: (T, N, 1). No option depends on T
 * or N, so that the body can be saved for any of them: steps are numbered by a sum of ones. */
static gd_tensor *real_steps(gd_tensor *x, gd_tensor *lengths) {
    if (x->dims[1] < 1 || x->dims[2] < 1)
        return gd_full(gd_dims(x->dims[0], x->dims[1], 1), false, .dtype = GD_BOOL);
    gd_tensor *one = gd_narrow(gd_narrow(x, 1, 0, 1), 2, 0, 1);
    gd_tensor *count = gd_cumsum(gd_full_like(one, 1, .dtype = GD_I64), 0); /* (T, 1, 1) */
    return gd_le(count, gd_unsqueeze(lengths, 1));
}

/* x (T, N, I) with zeros after the end of each sequence, so that a NaN there does no harm. */
static gd_tensor *mask_padding(gd_tensor *x, gd_tensor *lengths) {
    if (x->kind == GD_FAILED) return x;
    return gd_where(real_steps(x, lengths), x, gd_scalar_of(0, (gd_dtype)x->dtype));
}

/* The body of all three: each direction of each layer is one call of op recurrent
 * (recurrent_layer.c). */
static void expand_layers(gd_expansion *e, stack_layout *l, gd_word cell) {
    int each = l->biases ? 4 : 2;
    gd_tensor *lengths = e->x[l->first_weight - 1],
              *x = e->x[0], *const *w = e->x + l->first_weight;
    if (l->batch_first) x = gd_permute(x, gd_dims(1, 0, 2));
    if (lengths) {
        if (lengths->dtype != GD_I64) lengths = gd_cast(lengths, GD_I64);
        x = mask_padding(x, lengths);
    }
    int64_t count = l->layers * l->directions;
    gd_tensor **final[2] = {gd_list_new(count), gd_list_new(count)};
    if (!final[0] || !final[1]) {
        for (int k = 0; k < e->n_out; k++) e->y[k] = gd_tensor_fail(GD_E_MEMORY);
        return;
    }
    for (int64_t layer = 0, at = 0; layer < l->layers; layer++) {
        gd_tensor *ys[2];
        for (int64_t d = 0; d < l->directions; d++, at++, w += each) {
            gd_tensor *state[2] = {NULL, NULL};
            for (int s = 0; s < l->states; s++)
                if (e->x[1 + s]) state[s] = gd_narrow(e->x[1 + s], 0, at, 1);
            gd_recurrent_outputs r =
                gd_recurrent(x, state[0], state[1], lengths, w[0], w[1], l->biases ? w[2] : NULL,
                             l->biases ? w[3] : NULL, .cell = cell, .reverse = d == 1);
            ys[d] = r.y;
            final[0][at] = r.h;
            final[1][at] = r.c;
        }
        x = l->directions == 2 ? gd_cat(gd_list(ys[0], ys[1]), .axis = 2) : ys[0];
        if (l->dropout > 0 && l->training && layer + 1 < l->layers)
            x = gd_dropout(x, .p = l->dropout);
    }
    e->y[0] = l->batch_first ? gd_permute(x, gd_dims(1, 0, 2)) : x;
    for (int s = 0; s < l->states; s++)
        e->y[1 + s] = count == 1 ? final[s][0] : gd_cat(((gd_tensors){final[s], count}), .axis = 0);
}

#define STACK_LAYOUT(o, n_gates, n_states)                                                   \
    {                                                                                        \
        .layers = (o)->layers, .directions = (o)->bidirectional ? 2 : 1, .gates = (n_gates), \
        .batch_first = (o)->batch_first, .biases = (o)->biases, .training = (o)->training,   \
        .dropout = (o)->dropout, .first_weight = 2 + (n_states), .states = (n_states)        \
    }

/*op rnn(x, h0?, lengths?, weights*) -> y, h  heavy lowp
 * An Elman recurrent layer over all steps: h = tanh(w_ih x + b_ih + w_hh h + b_hh), or relu instead
 * of tanh. H hidden units in D directions (2 if bidirectional, else 1); docs/guide/recurrent.md has
 * an example.
 * - x: (T, N, I), which is time, batch, features; (N, T, I) with batch_first
 * - h0: the state before the first step, (layers * D, N, H), in the order of the weights;
 * NULL: zeros
 * - lengths: (N) integers, the length of each sequence, in any order. After its end, a sequence's
 * state stays unchanged, y is 0 and x is ignored. NULL: all have length T
 * - weights: for each layer, forward before backward: w_ih (H, I), w_hh (H, H) and, with
 * biases, b_ih (H), b_hh (H). From the second layer on, I is D * H. These are PyTorch's weights in
 * PyTorch's order
 * - y: (T, N, D * H), h of the last layer at each step, forward before backward; (N, T, D * H)
 * with batch_first
 * - h: the state after the last step of each sequence (backward: after step 0), shaped as h0
 *   layers int = 1  number of stacked layers; each takes the y of the layer before
 *   activation {tanh, relu} = tanh
 *   bidirectional bool = false  a second direction, from the last step to the first
 *   batch_first bool = false  x and y have the batch first
 *   biases bool = true        false: no b_ih and b_hh among the weights
 *   dropout float = 0         probability of dropout between layers, in training
 *   training bool = false     apply dropout
 *   onnx RNN
 */
static gd_status rnn_infer(gd_infer *i) {
    stack_layout l = STACK_LAYOUT((const gd_rnn_options *)i->attrs, 1, 1);
    return infer_layers(i, &l);
}
static void rnn_expand(gd_expansion *e) {
    const gd_rnn_options *o = e->attrs;
    stack_layout l = STACK_LAYOUT(o, 1, 1);
    expand_layers(e, &l, o->activation);
}

/*op lstm(x, h0?, c0?, lengths?, weights*) -> y, h, c  heavy lowp
 * Long short-term memory over all steps: i, f, g, o are the parts of w_ih x + b_ih + w_hh h + b_hh,
 * then c = sigmoid(f) c + sigmoid(i) tanh(g) and h = sigmoid(o) tanh(c). H hidden units in D
 * directions (2 if bidirectional, else 1); docs/guide/recurrent.md has an example.
 * - x: (T, N, I), which is time, batch, features; (N, T, I) with batch_first
 * - h0, c0: the states before the first step, (layers * D, N, H), in the order of the weights;
 * NULL: zeros
 * - lengths: (N) integers, the length of each sequence, in any order. After its end, a sequence's
 * state stays unchanged, y is 0 and x is ignored. NULL: all have length T
 * - weights: for each layer, forward before backward: w_ih (4H, I), w_hh (4H, H) and, with
 * biases, b_ih (4H), b_hh (4H). Their rows belong to the input, forget, cell and output gate (i, f,
 * g, o). From the second layer on, I is D * H. These are PyTorch's weights in PyTorch's order
 * - y: (T, N, D * H), h of the last layer at each step, forward before backward; (N, T, D * H)
 * with batch_first
 * - h, c: the states after the last step of each sequence (backward: after step 0), shaped as h0
 *   layers int = 1  number of stacked layers; each takes the y of the layer before
 *   bidirectional bool = false  a second direction, from the last step to the first
 *   batch_first bool = false  x and y have the batch first
 *   biases bool = true        false: no b_ih and b_hh among the weights
 *   dropout float = 0         probability of dropout between layers, in training
 *   training bool = false     apply dropout
 *   onnx LSTM
 */
static gd_status lstm_infer(gd_infer *i) {
    stack_layout l = STACK_LAYOUT((const gd_lstm_options *)i->attrs, 4, 2);
    return infer_layers(i, &l);
}
static void lstm_expand(gd_expansion *e) {
    stack_layout l = STACK_LAYOUT((const gd_lstm_options *)e->attrs, 4, 2);
    expand_layers(e, &l, GD_LSTM);
}

/*op gru(x, h0?, lengths?, weights*) -> y, h  heavy lowp
 * Gated recurrent units over all steps: r = sigmoid(w_ir x + b_ir + w_hr h + b_hr), z likewise,
 * n = tanh(w_in x + b_in + r (w_hn h + b_hn)), then h = (1 - z) n + z h. H hidden units in D
 * directions (2 if bidirectional, else 1); docs/guide/recurrent.md has an example.
 * - x: (T, N, I), which is time, batch, features; (N, T, I) with batch_first
 * - h0: the state before the first step, (layers * D, N, H), in the order of the weights;
 * NULL: zeros
 * - lengths: (N) integers, the length of each sequence, in any order. After its end, a sequence's
 * state stays unchanged, y is 0 and x is ignored. NULL: all have length T
 * - weights: for each layer, forward before backward: w_ih (3H, I), w_hh (3H, H) and, with
 * biases, b_ih (3H), b_hh (3H). Their rows belong to the reset, update and new gate (r, z, n).
 * From the second layer on, I is D * H. These are PyTorch's weights in PyTorch's order
 * - y: (T, N, D * H), h of the last layer at each step, forward before backward; (N, T, D * H)
 * with batch_first
 * - h: the state after the last step of each sequence (backward: after step 0), shaped as h0
 *   layers int = 1  number of stacked layers; each takes the y of the layer before
 *   bidirectional bool = false  a second direction, from the last step to the first
 *   batch_first bool = false  x and y have the batch first
 *   biases bool = true        false: no b_ih and b_hh among the weights
 *   dropout float = 0         probability of dropout between layers, in training
 *   training bool = false     apply dropout
 *   onnx GRU
 */
static gd_status gru_infer(gd_infer *i) {
    stack_layout l = STACK_LAYOUT((const gd_gru_options *)i->attrs, 3, 1);
    return infer_layers(i, &l);
}
static void gru_expand(gd_expansion *e) {
    stack_layout l = STACK_LAYOUT((const gd_gru_options *)e->attrs, 3, 1);
    expand_layers(e, &l, GD_GRU);
}

/* --- cells ------------------------------------------------------------------------------------ */

/* x (N, I), states (N, H), w_ih (G*H, I), w_hh (G*H, H), biases (G*H). */
static gd_status infer_cell(gd_infer *i, int gates, int states) {
    const gd_tensor *x = i->in[0], *w_ih = i->in[1 + states], *w_hh = i->in[2 + states];
    GD_TRY(gd_need_float(x, "x"));
    GD_TRY(gd_need_rank(x, "x", 2));
    GD_TRY(gd_need_rank(w_hh, "w_hh", 2));
    int64_t hidden = w_hh->dims[1], rows;
    if (!gd_mul_i64(gates, hidden, &rows)) return gd_op_fail(GD_E_SHAPE, "'w_hh' is too wide");
    const int64_t state[2] = {x->dims[0], hidden}, ih[2] = {rows, x->dims[1]},
                  hh[2] = {rows, hidden};
    for (int s = 0; s < states; s++) GD_TRY(need_dims(i->in[1 + s], s ? "'c'" : "'h'", 2, state));
    GD_TRY(need_dims(w_ih, "'w_ih'", 2, ih));
    GD_TRY(need_dims(w_hh, "'w_hh'", 2, hh));
    for (int k = 3 + states; k < i->n_in; k++)
        if (i->in[k]) GD_TRY(need_dims(i->in[k], k == 3 + states ? "'b_ih'" : "'b_hh'", 1, &rows));
    for (int k = 1; k < i->n_in; k++)
        if (i->in[k]) GD_TRY(gd_need_same_dtype(x, i->in[k], "x", "every other tensor"));
    for (int s = 0; s < states; s++) {
        i->out[s].dtype = (gd_dtype)x->dtype;
        i->out[s].rank = 2;
        memcpy(i->out[s].dims, state, sizeof state);
    }
    return GD_OK;
}

/* The body of a cell: a sequence of one step. */
static void expand_cell(gd_expansion *e, int states, gd_word cell) {
    gd_tensor *x = e->x[0], *h = e->x[1], *c = states > 1 ? e->x[2] : NULL;
    int64_t batch = gd_tensor_dim(x, 0), hidden = gd_tensor_dim(h, 1);
    gd_shape state = gd_dims(1, batch, hidden), flat = gd_dims(batch, hidden);
    gd_recurrent_outputs r =
        gd_recurrent(gd_reshape(x, gd_dims(1, batch, gd_tensor_dim(x, 1))), gd_reshape(h, state),
                     c ? gd_reshape(c, state) : NULL, NULL, e->x[1 + states], e->x[2 + states],
                     gd_optional_input(e->x, e->n_in, 3 + states),
                     gd_optional_input(e->x, e->n_in, 4 + states), .cell = cell);
    e->y[0] = gd_reshape(r.h, flat);
    if (c) e->y[1] = gd_reshape(r.c, flat);
}

/*op rnn_cell(x, h, w_ih, w_hh, b_ih?, b_hh?) -> y  heavy lowp
 * One step of rnn: x (N, I) and h (N, H) give the next h. w_ih (H, I), w_hh (H, H), biases (H).
 *   activation {tanh, relu} = tanh
 */
static gd_status rnn_cell_infer(gd_infer *i) { return infer_cell(i, 1, 1); }
static void rnn_cell_expand(gd_expansion *e) {
    expand_cell(e, 1, ((const gd_rnn_cell_options *)e->attrs)->activation);
}

/*op lstm_cell(x, h, c, w_ih, w_hh, b_ih?, b_hh?) -> h_next, c_next  heavy lowp
 * One step of lstm: x (N, I), h and c (N, H) give the next h and c. w_ih (4H, I), w_hh (4H, H),
 * biases (4H), with the gates in the order of lstm.
 */
static gd_status lstm_cell_infer(gd_infer *i) { return infer_cell(i, 4, 2); }
static void lstm_cell_expand(gd_expansion *e) { expand_cell(e, 2, GD_LSTM); }

/*op gru_cell(x, h, w_ih, w_hh, b_ih?, b_hh?) -> y  heavy lowp
 * One step of gru: x (N, I) and h (N, H) give the next h. w_ih (3H, I), w_hh (3H, H), biases (3H),
 * with the gates in the order of gru.
 */
static gd_status gru_cell_infer(gd_infer *i) { return infer_cell(i, 3, 1); }
static void gru_cell_expand(gd_expansion *e) { expand_cell(e, 1, GD_GRU); }

#include "ops/recurrent/recurrent.gen.h"
