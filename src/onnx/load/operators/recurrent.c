/* recurrent.c - LSTM, GRU and RNN nodes.
 *
 * Each direction is a call of the op `recurrent`, or, if the op cannot compute it, a scan of the
 * formula (recurrent_cell.c). onnx/recurrent.h has the layout of the weights.
 */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/recurrent.h"

typedef gd_onnx_recurrent_node recurrent_node;

static gd_status fail_unsupported(const char *attribute) {
    return gd_fail(GD_E_UNSUPPORTED, "its attribute '%s' is not supported", attribute);
}

static gd_status read_direction(const gd_pb *node, recurrent_node *a) {
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    int which;
    GD_TRY(gd_onnx_word_attribute(node, "direction", directions, 3, &which));
    a->backward = which == 1;
    a->directions = which == 2 ? 2 : 1;
    return GD_OK;
}

static gd_status read_attributes(const gd_pb *node, recurrent_node *a) {
    static const char *const known[] = {"activations",  "activation_alpha",    "activation_beta",
                                        "direction",    "hidden_size",         "layout",
                                        "input_forget", "linear_before_reset", "clip"};
    int64_t forget, reset;
    bool standard;
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++) {
        const char *name = gd_pb_string(gd_pb_message_at(node, "attribute", i), "name");
        bool found = false;
        for (size_t n = 0; n < sizeof known / sizeof *known; n++)
            found = found || strcmp(name, known[n]) == 0;
        if (!found) return fail_unsupported(name);
    }
    GD_TRY(read_direction(node, a));
    GD_TRY(gd_onnx_read_activations(node, a, &standard));
    GD_TRY(gd_onnx_float_attribute(node, "clip", INFINITY, &a->clip));
    GD_TRY(gd_onnx_int_attribute(node, "input_forget", 0, &forget));
    GD_TRY(gd_onnx_int_attribute(node, "linear_before_reset", 0, &reset));
    if (!(a->clip > 0)) return gd_fail(GD_E_FORMAT, "its clip is %g; it must be above 0", a->clip);
    a->input_forget = forget != 0;
    a->linear_before_reset = reset != 0;
    a->is_op = standard && a->clip == INFINITY && !forget && (a->kind->gates != 3 || reset);
    return GD_OK;
}

/* GD_UNKNOWN: any size. */
static gd_status check_dims(const gd_tensor *t, const char *name, int rank, int64_t a, int64_t b,
                            int64_t c) {
    const int64_t dims[] = {a, b, c};
    char text[160], expected[160];
    bool fits = t->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = dims[i] == GD_UNKNOWN || t->dims[i] == dims[i];
    if (fits) return GD_OK;
    return gd_fail(GD_E_SHAPE, "its %s is %s, and must be %s", name,
                   gd_describe(t, text, sizeof text),
                   gd_shape_text(rank, dims, expected, sizeof expected));
}

static gd_status read_inputs(gd_onnx_loader *l, const gd_pb *node, recurrent_node *a) {
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
    a->is_op = a->is_op && !a->p;
    GD_TRY(check_dims(a->w, "W", 3, a->directions, rows, GD_UNKNOWN));
    GD_TRY(check_dims(a->r, "R", 3, a->directions, rows, a->hidden));
    if (a->p) GD_TRY(check_dims(a->p, "P", 2, a->directions, 3 * a->hidden, 0));
    return a->b ? check_dims(a->b, "B", 2, a->directions, 2 * rows, 0) : GD_OK;
}

/* Rows `at` to `at` + G*H of a direction's weight or bias, with the gates in our order. */
static gd_tensor *reorder_gates(const recurrent_node *a, gd_tensor *t, int64_t at) {
    gd_tensor *parts[GD_ONNX_MAX_GATES];
    for (int i = 0; i < a->kind->gates; i++)
        parts[a->kind->from[i]] = gd_narrow(t, 0, at + i * a->hidden, a->hidden);
    return a->kind->gates == 1 ? parts[0]
                               : gd_cat(((gd_tensors){parts, a->kind->gates}), .axis = 0);
}

static gd_recurrent_outputs call_recurrent(const recurrent_node *a, int64_t d) {
    const int64_t rows = a->kind->gates * a->hidden;
    gd_tensor *b = a->b ? gd_select(a->b, 0, d) : NULL;
    return gd_recurrent(
        a->x, a->h0 ? gd_narrow(a->h0, 0, d, 1) : NULL, a->c0 ? gd_narrow(a->c0, 0, d, 1) : NULL,
        a->lengths, reorder_gates(a, gd_select(a->w, 0, d), 0),
        reorder_gates(a, gd_select(a->r, 0, d), 0), b ? reorder_gates(a, b, 0) : NULL,
        b ? reorder_gates(a, b, rows) : NULL, .cell = a->cell[d], .reverse = d == 1 || a->backward);
}

static gd_status load_recurrent(gd_onnx_loader *l, const gd_pb *node, int which) {
    const gd_onnx_recurrent_kind *k = &gd_onnx_recurrent_kinds[which];
    recurrent_node a = {.kind = k};
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
        if (a.is_op) r = call_recurrent(&a, d);
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
    return load_recurrent(l, node, GD_ONNX_LSTM);
}
gd_status gd_onnx_load_gru(gd_onnx_loader *l, const gd_pb *node) {
    return load_recurrent(l, node, GD_ONNX_GRU);
}
gd_status gd_onnx_load_rnn(gd_onnx_loader *l, const gd_pb *node) {
    return load_recurrent(l, node, GD_ONNX_RNN);
}
