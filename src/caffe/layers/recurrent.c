/* recurrent.c - RNN, LSTM and LSTMUnit: recurrence over time with sequences that begin anywhere.
 *
 * x is (T, N, ...): time, streams, features. cont (T, N) is 0 where a stream begins a new sequence and 1
 * where it goes on: the state before a step is multiplied by it. A static x (N, ...) is read at every step.
 *
 * The state after the last step is where the next call begins, in both phases, as in Caffe: a long sequence
 * can be cut into several batches, and a deploy net with T = 1 generates step by step. No gradient flows
 * back into an earlier call. The state is in buffers of the child "state", so that checkpoints have it, and
 * files of weights do not. It is for the N of the text; with another N a call begins with zeros.
 * With expose_hidden the states are bottoms and tops instead. They have no gradient, as in Caffe.
 */
#include "caffe/layer.h"
#include "gradus/control.h"
#include "graph/build/graph.h"
#include "nn/layer.h"

enum { MAX_STATES = 2 };

/* The struct of the child "state": h, for LSTM also c, (1, N, H) each. */
typedef struct memory {
    gd_tensor *at[MAX_STATES];
} memory;

typedef struct recurrent {
    gd_tensor *w_x, *b_x; /* (G H, I), (G H): G is 4 for LSTM, 1 for RNN */
    gd_tensor *w_static;  /* (G H, S); NULL: there is no static x */
    gd_tensor *w_h;       /* (G H, H) */
    gd_tensor *w_o, *b_o; /* of RNN: (H, H), (H) */
    gd_module *memory;    /* NULL: the states are bottoms and tops */
    int n_states;
} recurrent;

/* --- one step --------------------------------------------------------------------------------- */

/* The next c and h from c (..., H), the sums of the gates (..., 4H) in the order i, f, o, g, and cont,
 * which has a 1 in place of H. */
static gd_tensors lstm_unit(gd_tensor *c, gd_tensor *gates, gd_tensor *cont) {
    const int64_t hidden = gd_tensor_dim(c, -1);
    gd_tensor *part[4];
    for (int i = 0; i < 4; i++) part[i] = gd_narrow(gates, -1, i * hidden, hidden);
    gd_tensor *kept = gd_mul(gd_mul(gd_sigmoid(part[1]), cont), c);
    c = gd_add(kept, gd_mul(gd_sigmoid(part[0]), gd_tanh(part[3])));
    return gd_listed(c, gd_mul(gd_sigmoid(part[2]), gd_tanh(c)));
}

/* in: h (N, H), the input's share of the gates (N, 4H), and cont (N). */
static gd_tensor *gates_of(const recurrent *m, gd_tensor *h, gd_tensor *from_x, gd_tensor *cont) {
    return gd_add(from_x, gd_linear(gd_mul(h, cont), m->w_h, NULL));
}

static gd_tensors lstm_step(gd_tensors in, void *user) {
    gd_tensor *cont = gd_unsqueeze(in.at[3], -1);
    gd_tensor *gates = gates_of(user, in.at[0], in.at[2], cont);
    const gd_tensors next = lstm_unit(in.at[1], gates, cont);
    return gd_listed(next.at[1], next.at[0], next.at[1]);
}

static gd_tensors rnn_step(gd_tensors in, void *user) {
    gd_tensor *cont = gd_unsqueeze(in.at[2], -1);
    gd_tensor *h = gd_tanh(gates_of(user, in.at[0], in.at[1], cont));
    return gd_listed(h, h);
}

/* --- all steps -------------------------------------------------------------------------------- */

/* The axes from `first` as one. */
static gd_tensor *flat_from(gd_tensor *x, int first) {
    return gd_tensor_rank(x) > first + 1 ? gd_flatten(x, .start_axis = first) : x;
}

/* Whether the states that are kept are for this number of streams. */
static bool is_kept(const recurrent *m, const gd_tensor *x) {
    if (!m->memory) return false;
    const memory *kept = gd_module_self(m->memory);
    return gd_tensor_dim(kept->at[0], 1) == gd_tensor_dim(x, 1);
}

/* The state before the first step, (N, H). */
static gd_tensor *first_state(const recurrent *m, gd_tensors in, int i) {
    const int from = m->w_static ? 3 : 2;
    if (!m->memory) return gd_squeeze(gd_stop_gradient(in.at[from + i]), .axis = gd_dims(0));
    const memory *kept = gd_module_self(m->memory);
    if (!is_kept(m, in.at[0])) {
        const int64_t streams = gd_tensor_dim(in.at[0], 1), hidden = gd_tensor_dim(kept->at[i], 2);
        gd_tensor *one = gd_reshape(gd_narrow(kept->at[i], 1, 0, 1), gd_dims(1, hidden));
        return gd_zeros_like(gd_expand(one, gd_dims(streams, hidden)));
    }
    return gd_squeeze(gd_clone(kept->at[i]), .axis = gd_dims(0));
}

/* Keeps the states for the next call. The outputs do not wait for the writes, so that an ONNX file, which
 * cannot write a state, can have them: it begins with the states of the module. */
static void keep_states(const recurrent *m, gd_tensor *x, gd_tensors state) {
    if (!is_kept(m, x)) return;
    const memory *kept = gd_module_self(m->memory);
    for (int i = 0; i < m->n_states; i++)
        gd_layer_write(kept->at[i], gd_unsqueeze(gd_stop_gradient(state.at[i]), 0));
}

static gd_tensors recurrent_forward(gd_tensors in, void *self) {
    recurrent *m = self;
    const bool is_lstm = m->n_states == 2;
    gd_tensor *cont = gd_stop_gradient(in.at[1]);
    gd_tensor *from_x = gd_linear(flat_from(in.at[0], 2), m->w_x, m->b_x); /* (T, N, G H) */
    if (m->w_static) from_x = gd_add(from_x, gd_linear(flat_from(in.at[2], 1), m->w_static, NULL));
    gd_tensor *first[MAX_STATES];
    for (int i = 0; i < m->n_states; i++) first[i] = first_state(m, in, i);
    const gd_scanned r = gd_scan(is_lstm ? lstm_step : rnn_step, ((gd_tensors){first, m->n_states}),
                                 gd_list(from_x, cont), m);
    gd_tensor *h = r.ys.at[0];
    keep_states(m, in.at[0], r.state);
    gd_tensor *y = is_lstm ? h : gd_tanh(gd_linear(h, m->w_o, m->b_o));
    if (m->memory) return gd_listed(y);
    gd_tensor *last = gd_unsqueeze(gd_stop_gradient(r.state.at[0]), 0);
    if (!is_lstm) return gd_listed(y, last);
    return gd_listed(y, last, gd_unsqueeze(gd_stop_gradient(r.state.at[1]), 0));
}

/* --- the layers ------------------------------------------------------------------------------- */

static gd_status check_bottoms(const gd_caffe_layer *l, bool is_exposed, int n_states) {
    const gd_shape *x = &l->bottoms[0], *cont = &l->bottoms[1];
    const int least = is_exposed ? 2 + n_states : 2, tops = is_exposed ? 1 + n_states : 1;
    if (l->n_bottoms < least || l->n_bottoms > least + 1)
        return gd_caffe_fail(
            l, "it has %d bottoms; %s they are x, cont, a static x if there is one%s", l->n_bottoms,
            is_exposed ? "with expose_hidden" : "without expose_hidden",
            !is_exposed     ? ""
            : n_states == 2 ? ", and the states h and c"
                            : ", and the state h");
    if (l->n_tops != tops)
        return gd_caffe_fail(l, "it has %d tops, not %d: h%s", l->n_tops, tops,
                             !is_exposed     ? ""
                             : n_states == 2 ? ", and the last h and c"
                                             : ", and the last h");
    if (x->rank < 3)
        return gd_caffe_fail(l, "its first bottom has %d axes; x is (T, N, features ...)", x->rank);
    if (cont->rank != 2 || cont->at[0] != x->at[0] || cont->at[1] != x->at[1])
        return gd_caffe_fail(l, "its second bottom, cont, must be (T, N) = (%lld, %lld)",
                             (long long)x->at[0], (long long)x->at[1]);
    return GD_OK;
}

static gd_status check_state(const gd_caffe_layer *l, const gd_shape *state, int64_t streams,
                             int64_t hidden) {
    if (state->rank == 3 && state->at[0] == 1 && state->at[1] == streams && state->at[2] == hidden)
        return GD_OK;
    return gd_caffe_fail(l, "a bottom that is a state must be (1, N, num_output) = (1, %lld, %lld)",
                         (long long)streams, (long long)hidden);
}

/* The child "state": (1, N, H) zeros for each state. */
static gd_status add_memory(gd_caffe_layer *l, recurrent *m, int64_t streams, int64_t hidden) {
    static const char *const names[MAX_STATES] = {"h", "c"};
    GD_EAGER;
    gd_module *child = gd_module_new(NULL, sizeof(memory), .type = "state");
    if (!child) return gd_failure();
    memory *kept = gd_module_self(child);
    for (int i = 0; i < m->n_states; i++) {
        kept->at[i] = gd_zeros(gd_dims(1, streams, hidden));
        GD_TRY(gd_module_add_buffer_at(NULL, child, names[i], kept->at[i], &kept->at[i]));
    }
    m->memory = child;
    return gd_module_add_at(NULL, l->module, "state", child, &m->memory);
}

static gd_status make_recurrent(gd_caffe_layer *l, int n_gates, int n_states) {
    const bool is_exposed = gd_pb_int_of(l->message, "recurrent_param.expose_hidden");
    const int64_t hidden = gd_pb_int_of(l->message, "recurrent_param.num_output");
    const char *weights = "recurrent_param.weight_filler", *biases = "recurrent_param.bias_filler";
    if (hidden < 1 || hidden > INT32_MAX)
        return gd_caffe_fail(l, "recurrent_param.num_output is %lld; it must be at least 1",
                             (long long)hidden);
    GD_TRY(check_bottoms(l, is_exposed, n_states));
    const gd_shape *x = &l->bottoms[0];
    const int n_before = l->n_bottoms - (is_exposed ? n_states : 0);
    const int64_t rows = n_gates * hidden, streams = x->at[1];
    for (int i = n_before; i < l->n_bottoms; i++)
        GD_TRY(check_state(l, &l->bottoms[i], streams, hidden));
    recurrent *m = gd_caffe_module(l, recurrent_forward, sizeof *m);
    if (!m) return gd_failure();
    m->n_states = n_states;
    const int64_t features = gd_caffe_count(x, 2, x->rank);
    GD_TRY(gd_caffe_add_blob(l, &m->w_x, "weight_x", gd_dims(rows, features), weights));
    GD_TRY(gd_caffe_add_blob(l, &m->b_x, "bias", gd_dims(rows), biases));
    if (n_before > 2) {
        const gd_shape *fixed = &l->bottoms[2];
        if (fixed->rank < 1 || fixed->at[0] != streams)
            return gd_caffe_fail(l,
                                 "its third bottom, the static x, must be (N, ...), and N is %lld",
                                 (long long)streams);
        const int64_t width = gd_caffe_count(fixed, 1, fixed->rank);
        GD_TRY(gd_caffe_add_blob(l, &m->w_static, "weight_static", gd_dims(rows, width), weights));
    }
    GD_TRY(gd_caffe_add_blob(l, &m->w_h, "weight_h", gd_dims(rows, hidden), weights));
    if (n_states == 1) {
        GD_TRY(gd_caffe_add_blob(l, &m->w_o, "weight_o", gd_dims(hidden, hidden), weights));
        GD_TRY(gd_caffe_add_blob(l, &m->b_o, "bias_o", gd_dims(hidden), biases));
    }
    return is_exposed ? GD_OK : add_memory(l, m, streams, hidden);
}

gd_status gd_caffe_make_LSTM(gd_caffe_layer *l) { return make_recurrent(l, 4, 2); }
gd_status gd_caffe_make_RNN(gd_caffe_layer *l) { return make_recurrent(l, 1, 1); }

/* --- LSTMUnit: one step whose gates are given -------------------------------------------------- */

/* in: c (1, N, H), the sums of the gates (1, N, 4H), cont (1, N). */
static gd_tensors unit_forward(gd_tensors in, void *self) {
    (void)self;
    return lstm_unit(in.at[0], in.at[1], gd_unsqueeze(gd_stop_gradient(in.at[2]), -1));
}

gd_status gd_caffe_make_LSTMUnit(gd_caffe_layer *l) {
    const gd_shape *c = &l->bottoms[0], *gates = &l->bottoms[1], *cont = &l->bottoms[2];
    const bool fits = c->rank == 3 && gates->rank == 3 && cont->rank == 2 && c->at[0] == 1 &&
                      gates->at[0] == 1 && cont->at[0] == 1 && gates->at[1] == c->at[1] &&
                      cont->at[1] == c->at[1] && gates->at[2] / 4 == c->at[2] &&
                      gates->at[2] % 4 == 0;
    if (!fits)
        return gd_caffe_fail(l,
                             "its bottoms must be c (1, N, H), gates (1, N, 4 H) and cont (1, N)");
    return gd_caffe_module(l, unit_forward, 0) ? GD_OK : gd_failure();
}
