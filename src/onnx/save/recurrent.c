/* recurrent.c - saves the op `recurrent` as an LSTM, GRU or RNN node. onnx/recurrent.h has the
 * layout of the weights. */
#include <string.h>

#include "gradus/ops.h"
#include "onnx/recurrent.h"
#include "onnx/save/save.h"

typedef gd_onnx_recurrent_kind recurrent_kind;

/* The inputs of the op. */
enum { X, H0, C0, LENGTHS, W_IH, W_HH, B_IH, B_HH };

/* Reorders the gates of a weight or a bias: Split, then Concat. */
static const char *reorder_gates(gd_onnx_saver *s, const gd_onnx_call *c, const recurrent_kind *k,
                                 const char *name) {
    const char *parts[GD_ONNX_MAX_GATES], *order[GD_ONNX_MAX_GATES];
    gd_pb *node;
    if (k->gates == 1) return name;
    for (int i = 0; i < k->gates; i++)
        if (!(parts[i] = gd_onnx_unique_name(s, c->label, "/gate"))) return NULL;
    node = gd_onnx_add_node(s, "Split", "", parts[0]);
    gd_pb_put_string(node, "input", name);
    for (int i = 0; i < k->gates; i++) gd_pb_put_string(node, "output", parts[i]);
    gd_onnx_put_int(node, "axis", 0);
    gd_onnx_put_int(node, "num_outputs", k->gates);
    for (int i = 0; i < k->gates; i++) order[i] = parts[k->from[i]];
    const char *result = gd_onnx_put_node(s, c->label, "Concat", k->gates, order, NULL, &node);
    if (result) gd_onnx_put_int(node, "axis", 0);
    return result;
}

/* Adds the axis of directions, of size 1, as the first axis. */
static const char *add_direction_axis(gd_onnx_saver *s, const gd_onnx_call *c, const char *name) {
    const char *zero = gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){1}, &(int64_t){0});
    gd_pb *node;
    if (!name || !zero) return NULL;
    return gd_onnx_put_node(s, c->label, "Unsqueeze", 2, (const char *const[]){name, zero}, NULL,
                            &node);
}

/* The inputs W, R and B. */
static gd_status add_weights(gd_onnx_saver *s, const gd_onnx_call *c, const recurrent_kind *k,
                             const char **in) {
    const char *w = reorder_gates(s, c, k, c->in_names[W_IH]),
               *r = reorder_gates(s, c, k, c->in_names[W_HH]);
    if (!w || !r || !(in[1] = add_direction_axis(s, c, w)) ||
        !(in[2] = add_direction_axis(s, c, r)))
        return GD_E_MEMORY;
    if (!c->in_names[B_IH]) return GD_OK;
    const char *both[] = {reorder_gates(s, c, k, c->in_names[B_IH]),
                          reorder_gates(s, c, k, c->in_names[B_HH])};
    gd_pb *node;
    const char *b =
        both[0] && both[1] ? gd_onnx_put_node(s, c->label, "Concat", 2, both, NULL, &node) : NULL;
    if (!b) return GD_E_MEMORY;
    gd_onnx_put_int(node, "axis", 0);
    in[3] = add_direction_axis(s, c, b);
    return in[3] ? GD_OK : GD_E_MEMORY;
}

/* The lengths as i32, clamped to the number of steps: the op clamps them, ONNX does not. */
static const char *add_sequence_lens(gd_onnx_saver *s, const gd_onnx_call *c) {
    const int64_t steps = c->in[X].dims[0];
    const int64_t zero = 0;
    const char *lengths = c->in_names[LENGTHS], *max_length;
    gd_pb *node;
    if (c->in[LENGTHS].dtype != GD_I64)
        lengths = gd_onnx_put_cast(s, c->label, lengths, GD_I64, NULL);
    if (steps != GD_UNKNOWN) {
        max_length = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &steps);
    } else {
        max_length = gd_onnx_put_node(s, c->label, "Shape", 1, &c->in_names[X], NULL, &node);
        const char *in[] = {max_length, gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &zero)};
        max_length =
            in[0] && in[1] ? gd_onnx_put_node(s, c->label, "Gather", 2, in, NULL, &node) : NULL;
    }
    if (!lengths || !max_length) return NULL;
    lengths = gd_onnx_put_node(s, c->label, "Min", 2, (const char *const[]){lengths, max_length},
                               NULL, &node);
    return lengths ? gd_onnx_put_cast(s, c->label, lengths, GD_I32, NULL) : NULL;
}

/* X, W, R, B, sequence_lens, initial_h, initial_c. */
static gd_status add_inputs(gd_onnx_saver *s, const gd_onnx_call *c, const recurrent_kind *k,
                            const char **in) {
    in[0] = c->in_names[X];
    GD_TRY(add_weights(s, c, k, in));
    if (c->in_names[LENGTHS] && !(in[4] = add_sequence_lens(s, c))) return GD_E_MEMORY;
    in[5] = c->in_names[H0];
    in[6] = k->gates == 4 ? c->in_names[C0] : NULL;
    return GD_OK;
}

gd_status gd_onnx_save_recurrent(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_recurrent_options *o = c->attrs;
    const recurrent_kind *k = &gd_onnx_recurrent_kinds[o->cell == GD_LSTM  ? GD_ONNX_LSTM
                                                       : o->cell == GD_GRU ? GD_ONNX_GRU
                                                                           : GD_ONNX_RNN];
    const char *in[7] = {NULL}, *y;
    const bool lstm = k->gates == 4;
    gd_pb *node;
    if (c->in[X].dtype == GD_BF16 || !c->in_names[B_IH] != !c->in_names[B_HH] ||
        (!lstm && (c->used >> 2 & 1)) || c->in[W_HH].dims[1] == GD_UNKNOWN)
        return GD_OK;
    GD_TRY(add_inputs(s, c, k, in));
    int n = 7;
    while (!in[n - 1]) n--;
    if (!(y = gd_onnx_put_node(s, c->label, k->onnx, n, in, NULL, &node))) return GD_E_MEMORY;
    gd_pb_put_string(node, "output", c->out_names[1]);
    if (lstm) gd_pb_put_string(node, "output", c->out_names[2]);
    gd_onnx_put_int(node, "hidden_size", c->in[W_HH].dims[1]);
    if (o->reverse) gd_onnx_put_string(node, "direction", "reverse");
    if (k->gates == 3) gd_onnx_put_int(node, "linear_before_reset", 1);
    if (o->cell == GD_RELU) gd_onnx_put_strings(node, "activations", 1, &(const char *){"Relu"});
    const char *one = gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){1}, &(int64_t){1});
    if (!one || !gd_onnx_put_node(s, c->label, "Squeeze", 2, (const char *const[]){y, one},
                                  c->out_names[0], &node))
        return GD_E_MEMORY; /* (T, 1, N, H) */
    *done = true;
    return GD_OK;
}
