/* layers_recurrent.c - recurrent layers over time, and their cells.
 *
 * Parameters are PyTorch's: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, the same with
 * _reverse for the backward direction, then those of layer 1. They are the list of weights that the
 * ops take (docs/guide/recurrent.md).
 */
#include <math.h>
#include <stdio.h>

#include "core/checked.h"
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"
#include "dispatch/op.h"

enum { MAX_LAYERS = 1024 };

/* The options that rnn, lstm and gru share. */
typedef struct recurrent_options {
    int64_t input, hidden, gates, layers;
    double dropout;
    bool bidirectional, bias, batch_first;
} recurrent_options;

static gd_status check_sizes(const gd_module *m, int64_t input, int64_t hidden, int64_t gates) {
    int64_t rows;
    GD_TRY(gd_layer_size(m, "input_size", input));
    GD_TRY(gd_layer_at_least(m, "hidden_size", hidden, 1));
    if (gd_mul_i64(gates, hidden, &rows)) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: hidden_size is %lld, which is too large", m->type,
                   (long long)hidden);
}

static gd_status check_recurrent(const gd_module *m, const recurrent_options *r) {
    GD_TRY(check_sizes(m, r->input, r->hidden, r->gates));
    GD_TRY(gd_layer_at_least(m, "layers", r->layers, 1));
    if (r->layers > MAX_LAYERS)
        return gd_fail(GD_E_ARGUMENT, "%s: layers is %lld; it must be at most %d", m->type,
                       (long long)r->layers, MAX_LAYERS);
    return gd_layer_within(m, "dropout", r->dropout, 0, 1, true);
}

/* Adds weight_ih (gates * hidden, features), weight_hh (gates * hidden, hidden) and two biases.
 * `end` is the end of their names. */
static gd_status add_weights(gd_module *m, const char *end, int64_t features, int64_t hidden,
                             int64_t gates, bool bias) {
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const int64_t rows = gates * hidden;
    const gd_shape dims[] = {gd_dims(rows, features), gd_dims(rows, hidden), gd_dims(rows),
                             gd_dims(rows)};
    for (int k = 0; k < (bias ? 4 : 2); k++) {
        char name[48];
        snprintf(name, sizeof name, "%s%s", names[k], end);
        GD_TRY(gd_layer_uniform(m, name, dims[k], 1 / sqrt((double)hidden)));
    }
    return GD_OK;
}

static gd_status build_recurrent(gd_module *m, const recurrent_options *r) {
    const int directions = r->bidirectional ? 2 : 1;
    int64_t features = r->input;
    for (int64_t layer = 0; layer < r->layers; layer++) {
        for (int d = 0; d < directions; d++) {
            char end[32];
            snprintf(end, sizeof end, "_l%lld%s", (long long)layer, d ? "_reverse" : "");
            GD_TRY(add_weights(m, end, features, r->hidden, r->gates, r->bias));
        }
        if (!gd_mul_i64(directions, r->hidden, &features))
            return gd_fail(GD_E_ARGUMENT, "%s: hidden_size is %lld, which is too large", m->type,
                           (long long)r->hidden);
    }
    return GD_OK;
}

/* The parameters as a list of the current scope; a list of error tensors if there is no memory. */
static gd_tensors list_weights(gd_module *m) {
    gd_tensor **list = gd_list_new(m->count);
    if (!list) {
        gd_error_record(GD_E_MEMORY);
        return gd_list_of_errors(m->count);
    }
    for (int i = 0; i < m->count; i++) list[i] = gd_layer_tensor_at(m, i);
    return (gd_tensors){list, m->count};
}

/* Checks that x has `rank` dimensions, or one less without a batch, and `input` features. */
static gd_status check_input(const gd_tensor *x, int rank, bool batch_first, int64_t input) {
    char text[160];
    const char *with = rank == 2 ? "(N, I)" : batch_first ? "(N, T, I)" : "(T, N, I)";
    if (gd_tensor_rank(x) != rank && gd_tensor_rank(x) != rank - 1)
        return gd_fail(GD_E_SHAPE, "x must be %s, or %s without a batch, not %s", with,
                       rank == 2 ? "(I)" : "(T, I)", gd_describe(x, text, sizeof text));
    const int64_t features = gd_tensor_dim(x, -1);
    if (features < 0 || features == input) return GD_OK; /* below 0: not known before a run */
    return gd_fail(GD_E_SHAPE, "x is %s, with %lld features; input_size is %lld",
                   gd_describe(x, text, sizeof text), (long long)features, (long long)input);
}

/* The inputs with a batch axis: a single sequence, x (T, I), becomes a batch of one. */
typedef struct batch {
    gd_tensor *x, *state[2], *lengths;
    int axis; /* the axis that was added to x; -1: x has a batch */
} batch;

static batch make_batch(gd_tensors in, int states, bool batch_first) {
    batch b = {.x = in.at[0], .axis = -1, .lengths = gd_layer_input(in, 1 + states)};
    for (int s = 0; s < states; s++) b.state[s] = gd_layer_input(in, 1 + s);
    if (gd_tensor_rank(b.x) != 2) return b;
    b.axis = batch_first ? 0 : 1;
    b.x = gd_unsqueeze(b.x, b.axis);
    for (int s = 0; s < states; s++)
        if (b.state[s]) b.state[s] = gd_unsqueeze(b.state[s], 1);
    if (b.lengths) b.lengths = gd_unsqueeze(b.lengths, 0);
    return b;
}

static gd_tensor *without_batch(gd_tensor *t, int axis) {
    return gd_squeeze(t, .axis = gd_dims(axis));
}

static gd_tensors list_outputs(const batch *b, gd_tensor *y, gd_tensor *h, gd_tensor *c) {
    if (b->axis >= 0) {
        y = without_batch(y, b->axis);
        h = without_batch(h, 1);
        if (c) c = without_batch(c, 1);
    }
    return c ? gd_listed(y, h, c) : gd_listed(y, h);
}

#define RECURRENT(GATES, o)                                   \
    ((recurrent_options){.input = (o)->input_size,            \
                         .hidden = (o)->hidden_size,          \
                         .gates = (GATES),                    \
                         .layers = (o)->layers,               \
                         .dropout = (o)->dropout,             \
                         .bidirectional = (o)->bidirectional, \
                         .bias = (o)->bias,                   \
                         .batch_first = (o)->batch_first})

/* The mode is read, and so recorded, only if there is dropout. */
static bool has_dropout(gd_module *m, const recurrent_options *r) {
    return r->dropout > 0 && r->layers > 1 && gd_layer_is_training(m);
}

/* --- layers over time ------------------------------------------------------------------------- */

/*layer rnn(x, h0?, lengths?, input_size:int, hidden_size:int) -> y, h
 * Elman recurrent layers over all steps: h = tanh(w_ih x + b_ih + w_hh h + b_hh), or relu
 * of it. x (T, N, input_size) gives y (T, N, D * hidden_size) and the last state h (layers * D, N,
 * hidden_size), for D directions. A single sequence has no N. h0 is the first state, shaped as h;
 * absent: zeros. lengths (N) are the numbers of real steps of each sequence (gd_rnn); absent: all.
 *   bias bool = true
 *   options of rnn but biases, training
 *   finds input_size x[-1]
 *   python RNN(input_size, hidden_size, num_layers=layers, nonlinearity=activation, bias, batch_first, dropout, bidirectional)
 */
static gd_status rnn_check(const gd_module *m) {
    const gd_nn_rnn_options *o = m->options;
    return check_recurrent(m, &RECURRENT(1, o));
}
static gd_status rnn_build(gd_module *m) {
    const gd_nn_rnn_options *o = m->options;
    return build_recurrent(m, &RECURRENT(1, o));
}
static gd_tensors rnn_forward(gd_module *m, gd_tensors in) {
    const gd_nn_rnn_options *o = m->options;
    const recurrent_options r = RECURRENT(1, o);
    const gd_status status = check_input(in.at[0], 3, r.batch_first, r.input);
    if (status != GD_OK) return gd_layer_fail(status);
    const batch b = make_batch(in, 1, r.batch_first);
    const gd_rnn_outputs y = gd_rnn(b.x, b.state[0], b.lengths, list_weights(m), .layers = r.layers,
                                    .activation = o->activation, .bidirectional = r.bidirectional,
                                    .batch_first = r.batch_first, .biases = r.bias,
                                    .dropout = r.dropout, .training = has_dropout(m, &r));
    return list_outputs(&b, y.y, y.h, NULL);
}

/*layer lstm(x, h0?, c0?, lengths?, input_size:int, hidden_size:int) -> y, h, c
 * Long short-term memory over all steps, as gd_lstm computes it. x (T, N, input_size) gives y (T,
 * N, D * hidden_size) and the last states h and c (layers * D, N, hidden_size), for D directions. A
 * single sequence has no N. h0 and c0 are the first states, shaped as h and c; absent: zeros.
 * lengths (N) are the numbers of real steps of each sequence; absent: all.
 *   bias bool = true
 *   options of lstm but biases, training
 *   finds input_size x[-1]
 *   python LSTM(input_size, hidden_size, num_layers=layers, bias, batch_first, dropout, bidirectional, proj_size!0)
 */
static gd_status lstm_check(const gd_module *m) {
    const gd_nn_lstm_options *o = m->options;
    return check_recurrent(m, &RECURRENT(4, o));
}
static gd_status lstm_build(gd_module *m) {
    const gd_nn_lstm_options *o = m->options;
    return build_recurrent(m, &RECURRENT(4, o));
}
static gd_tensors lstm_forward(gd_module *m, gd_tensors in) {
    const gd_nn_lstm_options *o = m->options;
    const recurrent_options r = RECURRENT(4, o);
    const gd_status status = check_input(in.at[0], 3, r.batch_first, r.input);
    if (status != GD_OK) return gd_layer_fail(status);
    const batch b = make_batch(in, 2, r.batch_first);
    const gd_lstm_outputs y =
        gd_lstm(b.x, b.state[0], b.state[1], b.lengths, list_weights(m), .layers = r.layers,
                .bidirectional = r.bidirectional, .batch_first = r.batch_first, .biases = r.bias,
                .dropout = r.dropout, .training = has_dropout(m, &r));
    return list_outputs(&b, y.y, y.h, y.c);
}

/*layer gru(x, h0?, lengths?, input_size:int, hidden_size:int) -> y, h
 * Gated recurrent units over all steps, as gd_gru computes them. x (T, N, input_size) gives
 * y (T, N, D * hidden_size) and the last state h (layers * D, N, hidden_size), for D directions. A
 * single sequence has no N. h0 is the first state, shaped as h; absent: zeros. lengths (N) are the
 * numbers of real steps of each sequence; absent: all.
 *   bias bool = true
 *   options of gru but biases, training
 *   finds input_size x[-1]
 *   python GRU(input_size, hidden_size, num_layers=layers, bias, batch_first, dropout, bidirectional)
 */
static gd_status gru_check(const gd_module *m) {
    const gd_nn_gru_options *o = m->options;
    return check_recurrent(m, &RECURRENT(3, o));
}
static gd_status gru_build(gd_module *m) {
    const gd_nn_gru_options *o = m->options;
    return build_recurrent(m, &RECURRENT(3, o));
}
static gd_tensors gru_forward(gd_module *m, gd_tensors in) {
    const gd_nn_gru_options *o = m->options;
    const recurrent_options r = RECURRENT(3, o);
    const gd_status status = check_input(in.at[0], 3, r.batch_first, r.input);
    if (status != GD_OK) return gd_layer_fail(status);
    const batch b = make_batch(in, 1, r.batch_first);
    const gd_gru_outputs y =
        gd_gru(b.x, b.state[0], b.lengths, list_weights(m), .layers = r.layers,
               .bidirectional = r.bidirectional, .batch_first = r.batch_first, .biases = r.bias,
               .dropout = r.dropout, .training = has_dropout(m, &r));
    return list_outputs(&b, y.y, y.h, NULL);
}

/* --- cells ------------------------------------------------------------------------------------ */

/* x (N, I) as a sequence of one step (1, N, I). x may be (I), a batch of one. */
static gd_tensor *one_step(gd_tensor *x) {
    return gd_unsqueeze(gd_tensor_rank(x) == 1 ? gd_unsqueeze(x, 0) : x, 0);
}
/* A state (N, H) or (H) as (1, N, H); NULL stays NULL, which the ops take as zeros. */
static gd_tensor *first_state(gd_tensor *h) { return h ? one_step(h) : NULL; }
/* The state (1, N, H) as (N, H), or (H) where x is (I). */
static gd_tensor *next_state(const gd_tensor *x, gd_tensor *h) {
    return gd_squeeze(h, .axis = gd_tensor_rank(x) == 1 ? gd_dims(0, 1) : gd_dims(0));
}

/*layer rnn_cell(x, h?, input_size:int, hidden_size:int) -> y
 * One step of rnn: x (N, input_size) and h (N, hidden_size) give the next h. Without h it begins
 * with zeros. N may be missing.
 *   bias bool = true
 *   options of rnn_cell
 *   finds input_size x[-1]
 *   python RNNCell(input_size, hidden_size, bias, nonlinearity=activation)
 */
static gd_status rnn_cell_check(const gd_module *m) {
    const gd_nn_rnn_cell_options *o = m->options;
    return check_sizes(m, o->input_size, o->hidden_size, 1);
}
static gd_status rnn_cell_build(gd_module *m) {
    const gd_nn_rnn_cell_options *o = m->options;
    return add_weights(m, "", o->input_size, o->hidden_size, 1, o->bias);
}
static gd_tensors rnn_cell_forward(gd_module *m, gd_tensors in) {
    const gd_nn_rnn_cell_options *o = m->options;
    gd_tensor *x = in.at[0];
    const gd_status status = check_input(x, 2, false, o->input_size);
    if (status != GD_OK) return gd_layer_fail(status);
    const gd_rnn_outputs y =
        gd_rnn(one_step(x), first_state(gd_layer_input(in, 1)), NULL, list_weights(m),
               .activation = o->activation, .biases = o->bias);
    return gd_listed(next_state(x, y.h));
}

/*layer lstm_cell(x, h?, c?, input_size:int, hidden_size:int) -> h_next, c_next
 * One step of lstm: x (N, input_size), h and c (N, hidden_size) give the next h and c. Without h
 * and c it begins with zeros. N may be missing.
 *   bias bool = true
 *   finds input_size x[-1]
 *   python LSTMCell(input_size, hidden_size, bias)
 */
static gd_status lstm_cell_check(const gd_module *m) {
    const gd_nn_lstm_cell_options *o = m->options;
    return check_sizes(m, o->input_size, o->hidden_size, 4);
}
static gd_status lstm_cell_build(gd_module *m) {
    const gd_nn_lstm_cell_options *o = m->options;
    return add_weights(m, "", o->input_size, o->hidden_size, 4, o->bias);
}
static gd_tensors lstm_cell_forward(gd_module *m, gd_tensors in) {
    const gd_nn_lstm_cell_options *o = m->options;
    gd_tensor *x = in.at[0];
    const gd_status status = check_input(x, 2, false, o->input_size);
    if (status != GD_OK) return gd_layer_fail(status);
    const gd_lstm_outputs y =
        gd_lstm(one_step(x), first_state(gd_layer_input(in, 1)), first_state(gd_layer_input(in, 2)),
                NULL, list_weights(m), .biases = o->bias);
    return gd_listed(next_state(x, y.h), next_state(x, y.c));
}

/*layer gru_cell(x, h?, input_size:int, hidden_size:int) -> y
 * One step of gru: x (N, input_size) and h (N, hidden_size) give the next h. Without h it begins
 * with zeros. N may be missing.
 *   bias bool = true
 *   finds input_size x[-1]
 *   python GRUCell(input_size, hidden_size, bias)
 */
static gd_status gru_cell_check(const gd_module *m) {
    const gd_nn_gru_cell_options *o = m->options;
    return check_sizes(m, o->input_size, o->hidden_size, 3);
}
static gd_status gru_cell_build(gd_module *m) {
    const gd_nn_gru_cell_options *o = m->options;
    return add_weights(m, "", o->input_size, o->hidden_size, 3, o->bias);
}
static gd_tensors gru_cell_forward(gd_module *m, gd_tensors in) {
    const gd_nn_gru_cell_options *o = m->options;
    gd_tensor *x = in.at[0];
    const gd_status status = check_input(x, 2, false, o->input_size);
    if (status != GD_OK) return gd_layer_fail(status);
    const gd_gru_outputs y = gd_gru(one_step(x), first_state(gd_layer_input(in, 1)), NULL,
                                    list_weights(m), .biases = o->bias);
    return gd_listed(next_state(x, y.h));
}

#include "nn/layers_recurrent.gen.h"
