/* recurrent.c - LSTM, GRU and RNN, both ways.
 *
 * A node of ONNX is one layer in one or two directions; ours that it is saved from and becomes is
 * one direction, the op `recurrent`. ONNX's weights are W (D, G*H, I), R (D, G*H, H) and both
 * biases in one list B (D, 2*G*H), with the gates in another order:
 *
 *            ours (PyTorch's)              ONNX
 *     lstm   input forget cell output      input output forget cell
 *     gru    reset update new              update reset new
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/recurrent.h"
#include "onnx/save/save.h"

enum { MOST_GATES = GD_ONNX_MOST_GATES };
typedef gd_onnx_recurrent_kind kind;

static const kind kinds[] = {{"LSTM", 4, {0, 3, 1, 2}, 3, {"Sigmoid", "Tanh", "Tanh"}},
                             {"GRU", 3, {1, 0, 2}, 2, {"Sigmoid", "Tanh"}},
                             {"RNN", 1, {0}, 1, {"Tanh"}}};

/* --- saving ----------------------------------------------------------------------------------- */

enum { X, H0, C0, LENGTHS, W_IH, W_HH, B_IH, B_HH };

static const char *put(gd_onnx_saver *s, const gd_onnx_call *c, const char *op_type, int n,
                       const char *const *in, const char *to, gd_pb **node) {
    const char *result = to ? to : gd_onnx_unique_name(s, c->label, "/part");
    if (!result) return NULL;
    *node = gd_onnx_add_node(s, op_type, "", result);
    for (int i = 0; i < n; i++) gd_pb_put_string(*node, "input", in[i] ? in[i] : "");
    gd_pb_put_string(*node, "output", result);
    return result;
}

/* The parts of a weight or a bias, one for each gate, in ONNX's order. */
static const char *reordered(gd_onnx_saver *s, const gd_onnx_call *c, const kind *k,
                             const char *name) {
    const char *parts[MOST_GATES], *order[MOST_GATES];
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
    const char *result = put(s, c, "Concat", k->gates, order, NULL, &node);
    if (result) gd_onnx_put_int(node, "axis", 0);
    return result;
}

/* With an axis of size 1 in front: one direction. */
static const char *one_direction(gd_onnx_saver *s, const gd_onnx_call *c, const char *name) {
    const char *zero = gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){1}, &(int64_t){0});
    gd_pb *node;
    if (!name || !zero) return NULL;
    return put(s, c, "Unsqueeze", 2, (const char *const[]){name, zero}, NULL, &node);
}

static gd_status weights(gd_onnx_saver *s, const gd_onnx_call *c, const kind *k, const char **in) {
    const char *w = reordered(s, c, k, c->in_names[W_IH]),
               *r = reordered(s, c, k, c->in_names[W_HH]);
    if (!w || !r || !(in[1] = one_direction(s, c, w)) || !(in[2] = one_direction(s, c, r)))
        return GD_E_MEMORY;
    if (!c->in_names[B_IH]) return GD_OK;
    const char *both[] = {reordered(s, c, k, c->in_names[B_IH]),
                          reordered(s, c, k, c->in_names[B_HH])};
    gd_pb *node;
    const char *b = both[0] && both[1] ? put(s, c, "Concat", 2, both, NULL, &node) : NULL;
    if (!b) return GD_E_MEMORY;
    gd_onnx_put_int(node, "axis", 0);
    in[3] = one_direction(s, c, b);
    return in[3] ? GD_OK : GD_E_MEMORY;
}

/* Lengths as i32, and none beyond the end: ours stop there. */
static const char *sequence_lens(gd_onnx_saver *s, const gd_onnx_call *c) {
    const int64_t steps = c->in[X].dims[0];
    const int64_t zero = 0;
    const char *lengths = c->in_names[LENGTHS], *most;
    gd_pb *node;
    if (c->in[LENGTHS].dtype != GD_I64) {
        lengths = put(s, c, "Cast", 1, &lengths, NULL, &node);
        if (lengths) gd_onnx_put_int(node, "to", gd_onnx_type_of(GD_I64));
    }
    if (steps != GD_UNKNOWN) {
        most = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &steps);
    } else {
        most = put(s, c, "Shape", 1, &c->in_names[X], NULL, &node);
        const char *in[] = {most, gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &zero)};
        most = in[0] && in[1] ? put(s, c, "Gather", 2, in, NULL, &node) : NULL;
    }
    if (!lengths || !most) return NULL;
    lengths = put(s, c, "Min", 2, (const char *const[]){lengths, most}, NULL, &node);
    lengths = lengths ? put(s, c, "Cast", 1, &lengths, NULL, &node) : NULL;
    if (lengths) gd_onnx_put_int(node, "to", gd_onnx_type_of(GD_I32));
    return lengths;
}

/* X, W, R, B, sequence_lens, initial_h, initial_c. */
static gd_status inputs(gd_onnx_saver *s, const gd_onnx_call *c, const kind *k, const char **in) {
    in[0] = c->in_names[X];
    GD_TRY(weights(s, c, k, in));
    if (c->in_names[LENGTHS] && !(in[4] = sequence_lens(s, c))) return GD_E_MEMORY;
    in[5] = c->in_names[H0];
    in[6] = k->gates == 4 ? c->in_names[C0] : NULL;
    return GD_OK;
}

gd_status gd_onnx_save_recurrent(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_recurrent_options *o = c->attrs;
    const kind *k = o->cell == GD_LSTM ? &kinds[0] : o->cell == GD_GRU ? &kinds[1] : &kinds[2];
    const char *in[7] = {NULL}, *y;
    const bool lstm = k->gates == 4;
    gd_pb *node;
    if (c->in[X].dtype == GD_BF16 || !c->in_names[B_IH] != !c->in_names[B_HH] ||
        (!lstm && (c->used >> 2 & 1)) || c->in[W_HH].dims[1] == GD_UNKNOWN)
        return GD_OK;
    GD_TRY(inputs(s, c, k, in));
    int n = 7;
    while (!in[n - 1]) n--;
    if (!(y = put(s, c, k->onnx, n, in, NULL, &node))) return GD_E_MEMORY;
    gd_pb_put_string(node, "output", c->out_names[1]);
    if (lstm) gd_pb_put_string(node, "output", c->out_names[2]);
    gd_onnx_put_int(node, "hidden_size", c->in[W_HH].dims[1]);
    if (o->reverse) gd_onnx_put_string(node, "direction", "reverse");
    if (k->gates == 3) gd_onnx_put_int(node, "linear_before_reset", 1);
    if (o->cell == GD_RELU) gd_onnx_put_strings(node, "activations", 1, &(const char *){"Relu"});
    const char *one = gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){1}, &(int64_t){1});
    if (!one || !put(s, c, "Squeeze", 2, (const char *const[]){y, one}, c->out_names[0], &node))
        return GD_E_MEMORY; /* (T, 1, N, H) */
    *done = true;
    return GD_OK;
}

/* --- loading ---------------------------------------------------------------------------------- */

typedef gd_onnx_layer layer;

static bool text_is(const gd_pb_bytes *s, const char *text) {
    return s->length == strlen(text) && memcmp(s->data, text, s->length) == 0;
}

static gd_status unknown(const char *attribute) {
    return gd_fail(GD_E_UNSUPPORTED, "its attribute '%s' is not what this library can do",
                   attribute);
}

static gd_status read_direction(const gd_pb *node, layer *a) {
    const gd_pb_list *s = gd_pb_get(gd_onnx_attribute_of(node, "direction"), "s");
    a->directions = 1;
    if (!s || text_is(&s->bytes[0], "forward")) return GD_OK;
    a->backward = text_is(&s->bytes[0], "reverse");
    if (a->backward) return GD_OK;
    a->directions = 2;
    return text_is(&s->bytes[0], "bidirectional") ? GD_OK : unknown("direction");
}

static gd_status read_attributes(const gd_pb *node, layer *a) {
    static const char *const known[] = {"activations",  "activation_alpha",    "activation_beta",
                                        "direction",    "hidden_size",         "layout",
                                        "input_forget", "linear_before_reset", "clip"};
    int64_t forget, reset;
    bool usual;
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++) {
        const char *name = gd_pb_string(gd_pb_message_at(node, "attribute", i), "name");
        bool found = false;
        for (size_t n = 0; n < sizeof known / sizeof *known; n++)
            found = found || strcmp(name, known[n]) == 0;
        if (!found) return unknown(name);
    }
    GD_TRY(read_direction(node, a));
    GD_TRY(gd_onnx_read_activations(node, a, &usual));
    GD_TRY(gd_onnx_float_attribute(node, "clip", INFINITY, &a->clip));
    GD_TRY(gd_onnx_int_attribute(node, "input_forget", 0, &forget));
    GD_TRY(gd_onnx_int_attribute(node, "linear_before_reset", 0, &reset));
    if (!(a->clip > 0)) return gd_fail(GD_E_FORMAT, "its clip is %g; it must be above 0", a->clip);
    a->input_forget = forget != 0;
    a->linear_before_reset = reset != 0;
    a->plain = usual && a->clip == INFINITY && !forget && (a->kind->gates != 3 || reset);
    return GD_OK;
}

static gd_status need_dims(const gd_tensor *t, const char *name, int rank, int64_t a, int64_t b,
                           int64_t c) {
    const int64_t dims[] = {a, b, c};
    char text[160], wanted[160];
    bool fits = t->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = dims[i] == GD_UNKNOWN || t->dims[i] == dims[i];
    if (fits) return GD_OK;
    return gd_fail(GD_E_SHAPE, "its %s is %s, and must be %s", name,
                   gd_describe(t, text, sizeof text),
                   gd_shape_text(rank, dims, wanted, sizeof wanted));
}

static gd_status read_inputs(gd_onnx_loader *l, const gd_pb *node, layer *a) {
    gd_tensor **to[] = {&a->x, &a->w, &a->r, &a->b, &a->lengths, &a->h0, &a->c0, &a->p};
    const size_t n = a->kind->gates == 4 ? 8 : 6;
    gd_status status;
    for (size_t i = 0; i < n; i++) {
        *to[i] = gd_onnx_get_input(l, node, i, &status);
        GD_TRY(status);
        if (i < 3 && !*to[i]) return gd_fail(GD_E_FORMAT, "its input %zu is missing", i);
    }
    if (a->x->rank != 3 || a->r->rank != 3)
        return gd_fail(GD_E_SHAPE,
                       "its input and its weights must have 3 dimensions, not %d and %d",
                       a->x->rank, a->r->rank);
    a->hidden = a->r->dims[2];
    if (a->hidden == GD_UNKNOWN || a->hidden > INT32_MAX)
        return gd_fail(GD_E_UNSUPPORTED, "the size of its state is not known");
    const int64_t rows = a->kind->gates * a->hidden;
    a->plain = a->plain && !a->p;
    GD_TRY(need_dims(a->w, "W", 3, a->directions, rows, GD_UNKNOWN));
    GD_TRY(need_dims(a->r, "R", 3, a->directions, rows, a->hidden));
    if (a->p) GD_TRY(need_dims(a->p, "P", 2, a->directions, 3 * a->hidden, 0));
    return a->b ? need_dims(a->b, "B", 2, a->directions, 2 * rows, 0) : GD_OK;
}

/* Rows `at` to `at` + G*H of a direction's weight or bias, the gates in our order. */
static gd_tensor *own_order(const layer *a, gd_tensor *t, int64_t at) {
    gd_tensor *parts[MOST_GATES];
    for (int i = 0; i < a->kind->gates; i++)
        parts[a->kind->from[i]] = gd_narrow(t, 0, at + i * a->hidden, a->hidden);
    return a->kind->gates == 1 ? parts[0]
                               : gd_cat(((gd_tensors){parts, a->kind->gates}), .axis = 0);
}

static gd_recurrent_outputs run_direction(const layer *a, int64_t d) {
    const int64_t rows = a->kind->gates * a->hidden;
    gd_tensor *b = a->b ? gd_select(a->b, 0, d) : NULL;
    return gd_recurrent(
        a->x, a->h0 ? gd_narrow(a->h0, 0, d, 1) : NULL, a->c0 ? gd_narrow(a->c0, 0, d, 1) : NULL,
        a->lengths, own_order(a, gd_select(a->w, 0, d), 0), own_order(a, gd_select(a->r, 0, d), 0),
        b ? own_order(a, b, 0) : NULL, b ? own_order(a, b, rows) : NULL, .cell = a->cell[d],
        .reverse = d == 1 || a->backward);
}

static gd_status load(gd_onnx_loader *l, const gd_pb *node, const kind *k) {
    layer a = {.kind = k};
    int64_t batch_first;
    GD_TRY(gd_onnx_int_attribute(node, "layout", 0, &batch_first));
    GD_TRY(read_attributes(node, &a));
    GD_TRY(read_inputs(l, node, &a));
    if (batch_first) { /* (N, T, I) and (N, D, H) */
        a.x = gd_permute(a.x, gd_dims(1, 0, 2));
        if (a.h0) a.h0 = gd_permute(a.h0, gd_dims(1, 0, 2));
        if (a.c0) a.c0 = gd_permute(a.c0, gd_dims(1, 0, 2));
    }
    if (a.lengths && a.lengths->dtype != GD_I64) a.lengths = gd_cast(a.lengths, GD_I64);
    gd_tensor *out[3][2];
    for (int64_t d = 0; d < a.directions; d++) {
        gd_recurrent_outputs r = {.y = NULL};
        if (a.plain) r = run_direction(&a, d);
        else GD_TRY(gd_onnx_scan_direction(&a, d, &r.y, &r.h, &r.c));
        out[0][d] = gd_unsqueeze(r.y, 1); /* (T, 1, N, H) */
        out[1][d] = r.h;
        out[2][d] = r.c;
    }
    for (size_t i = 0; i < (k->gates == 4 ? 3 : 2) && i < gd_pb_count(node, "output"); i++) {
        gd_tensor *y = a.directions == 1
                           ? out[i][0]
                           : gd_cat(((gd_tensors){out[i], 2}), .axis = i == 0 ? 1 : 0);
        if (batch_first) y = gd_permute(y, i == 0 ? gd_dims(2, 0, 1, 3) : gd_dims(1, 0, 2));
        GD_TRY(gd_onnx_set_output(l, node, i, y));
    }
    return GD_OK;
}

gd_status gd_onnx_load_lstm(gd_onnx_loader *l, const gd_pb *node) {
    return load(l, node, &kinds[0]);
}
gd_status gd_onnx_load_gru(gd_onnx_loader *l, const gd_pb *node) {
    return load(l, node, &kinds[1]);
}
gd_status gd_onnx_load_rnn(gd_onnx_loader *l, const gd_pb *node) {
    return load(l, node, &kinds[2]);
}
