/* recurrent_cell.c - LSTM, GRU and RNN nodes that the op `recurrent` cannot compute, as a scan of
 * their formula: a GRU that resets its state before the product, peepholes, clip, input_forget, and
 * other activations.
 *
 * Order: activations; one step; one direction.
 */
#include <math.h>
#include <string.h>

#include "core/ascii.h"
#include "gradus/control.h"
#include "gradus/ops.h"
#include "onnx/load/operators/recurrent.h"

/* --- activations ------------------------------------------------------------------------------ */

static gd_tensor *apply_linear(gd_tensor *x, double scale, double offset) {
    const gd_dtype dtype = (gd_dtype)x->dtype;
    return gd_add(gd_mul(x, gd_scalar_of(scale, dtype)), gd_scalar_of(offset, dtype));
}

#define ACTIVATION(name, result)                               \
    static gd_tensor *name(gd_tensor *x, double a, double b) { \
        (void)a, (void)b;                                      \
        return result;                                         \
    }
ACTIVATION(apply_sigmoid, gd_sigmoid(x))
ACTIVATION(apply_tanh, gd_tanh(x))
ACTIVATION(apply_relu, gd_relu(x))
ACTIVATION(apply_softsign, gd_softsign(x))
ACTIVATION(apply_softplus, gd_softplus(x))
ACTIVATION(apply_affine, apply_linear(x, a, b))
ACTIVATION(apply_leaky_relu, gd_leaky_relu(x, .slope = a))
ACTIVATION(apply_thresholded, gd_threshold(x, a, 0))
ACTIVATION(apply_elu, gd_elu(x, .alpha = a))
ACTIVATION(apply_hard_sigmoid, gd_clamp(apply_linear(x, a, b), .min = 0, .max = 1))
ACTIVATION(apply_scaled_tanh, apply_linear(gd_tanh(apply_linear(x, b, 0)), a, 0))

/* The activations by name, with the defaults of alpha and beta; NAN: it has no such parameter. */
static const struct {
    const char *name;
    gd_onnx_activation activation;
} activations[] = {{"Sigmoid", {apply_sigmoid, NAN, NAN}},
                   {"Tanh", {apply_tanh, NAN, NAN}},
                   {"Relu", {apply_relu, NAN, NAN}},
                   {"Softsign", {apply_softsign, NAN, NAN}},
                   {"Softplus", {apply_softplus, NAN, NAN}},
                   {"Affine", {apply_affine, 1, 0}},
                   {"LeakyRelu", {apply_leaky_relu, 0.01, NAN}},
                   {"ThresholdedRelu", {apply_thresholded, 1, NAN}},
                   {"Elu", {apply_elu, 1, NAN}},
                   {"HardSigmoid", {apply_hard_sigmoid, 0.2, 0.5}},
                   {"ScaledTanh", {apply_scaled_tanh, 1, 1}}};

/* The lists activation_alpha and activation_beta have a number only for each activation that has
 * such a parameter. Takes the next one. */
static void take_parameter(const gd_pb_list *list, size_t *next, double *number) {
    if (isnan(*number) || !list || *next >= list->count) return;
    *number = (double)list->floats[(*next)++];
}

/* Compares names as ONNX Runtime does, without regard to case. */
static gd_status find_activation(const char *name, size_t length, gd_onnx_activation *f) {
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strlen(activations[i].name) == length &&
            gd_is_same_word(activations[i].name, name, length)) {
            *f = activations[i].activation;
            return GD_OK;
        }
    return gd_fail(GD_E_UNSUPPORTED, "its activation '%.*s' is not supported",
                   (int)(length < 40 ? length : 40), name);
}

gd_status gd_onnx_read_activations(const gd_pb *node, gd_onnx_recurrent_node *a, bool *standard) {
    const gd_onnx_recurrent_kind *k = a->kind;
    const gd_pb_list *names = gd_pb_get(gd_onnx_find_attribute(node, "activations"), "strings"),
                     *alphas =
                         gd_pb_get(gd_onnx_find_attribute(node, "activation_alpha"), "floats"),
                     *betas = gd_pb_get(gd_onnx_find_attribute(node, "activation_beta"), "floats");
    const size_t count = (size_t)(k->n_activations * a->directions);
    size_t next_alpha = 0, next_beta = 0;
    *standard = true;
    if (names && names->count != count)
        return gd_fail(GD_E_FORMAT, "it has %zu activations, and should have %zu", names->count,
                       count);
    for (size_t i = 0; i < count; i++) {
        const size_t d = i / (size_t)k->n_activations, n = i % (size_t)k->n_activations;
        const char *expected = k->activations[n];
        gd_onnx_activation *f = &a->activations[d][n];
        GD_TRY(names ? find_activation(names->bytes[i].data, names->bytes[i].length, f)
                     : find_activation(expected, strlen(expected), f));
        take_parameter(alphas, &next_alpha, &f->alpha);
        take_parameter(betas, &next_beta, &f->beta);
        gd_onnx_activation by_default;
        GD_TRY(find_activation(expected, strlen(expected), &by_default));
        a->cell[d] = k->gates == 4 ? GD_LSTM : k->gates == 3 ? GD_GRU : GD_TANH;
        if (k->gates == 1 && f->apply == apply_relu) a->cell[d] = GD_RELU;
        else *standard = *standard && f->apply == by_default.apply;
    }
    return GD_OK;
}

/* --- one step --------------------------------------------------------------------------------- */

/* The weights of a direction: r (G*H, H), rb (G*H) or NULL, p (3*H) or NULL. */
typedef struct direction {
    const gd_onnx_recurrent_node *a;
    int64_t d;
    gd_tensor *r, *rb, *p, *lengths;
    bool has_c; /* the state of an LSTM */
} direction;

static gd_tensor *gate_slice(const direction *x, gd_tensor *all, int k) {
    return gd_narrow(all, -1, k * x->a->hidden, x->a->hidden);
}

static gd_tensor *apply_activation(const direction *x, int which, gd_tensor *t) {
    const gd_onnx_activation *f = &x->a->activations[x->d][which];
    if (isfinite(x->a->clip)) t = gd_clamp(t, .min = -x->a->clip, .max = x->a->clip);
    return f->apply(t, f->alpha, f->beta);
}

/* h r^T + rb, for `count` gates from `first` on. */
static gd_tensor *recurrent_product(const direction *x, gd_tensor *h, int first, int count) {
    const int64_t at = first * x->a->hidden, rows = count * x->a->hidden;
    return gd_linear(h, gd_narrow(x->r, 0, at, rows), x->rb ? gd_narrow(x->rb, 0, at, rows) : NULL);
}

/* Adds peephole k of c to a gate. */
static gd_tensor *add_peephole(const direction *x, gd_tensor *t, int k, gd_tensor *c) {
    return x->p ? gd_add(t, gd_mul(gate_slice(x, x->p, k), c)) : t;
}

static gd_tensor *one_minus(gd_tensor *t) { return gd_sub(gd_scalar_of(1, (gd_dtype)t->dtype), t); }

/* Gates: input, output, forget, cell. Peepholes: input, output, forget. */
static void lstm_step(const direction *x, gd_tensor *xw, gd_tensor **h, gd_tensor **c) {
    gd_tensor *all = gd_add(xw, recurrent_product(x, *h, 0, 4));
    gd_tensor *i = apply_activation(x, 0, add_peephole(x, gate_slice(x, all, 0), 0, *c));
    gd_tensor *f = x->a->input_forget
                       ? one_minus(i)
                       : apply_activation(x, 0, add_peephole(x, gate_slice(x, all, 2), 2, *c));
    *c = gd_add(gd_mul(f, *c), gd_mul(i, apply_activation(x, 1, gate_slice(x, all, 3))));
    gd_tensor *o = apply_activation(x, 0, add_peephole(x, gate_slice(x, all, 1), 1, *c));
    *h = gd_mul(o, apply_activation(x, 2, *c));
}

/* Gates: update, reset, hidden. */
static void gru_step(const direction *x, gd_tensor *xw, gd_tensor **h) {
    gd_tensor *both = recurrent_product(x, *h, 0, 2);
    gd_tensor *z = apply_activation(x, 0, gd_add(gate_slice(x, xw, 0), gate_slice(x, both, 0)));
    gd_tensor *r = apply_activation(x, 0, gd_add(gate_slice(x, xw, 1), gate_slice(x, both, 1)));
    gd_tensor *part = x->a->linear_before_reset ? gd_mul(r, recurrent_product(x, *h, 2, 1))
                                                : recurrent_product(x, gd_mul(r, *h), 2, 1);
    gd_tensor *next = apply_activation(x, 1, gd_add(gate_slice(x, xw, 2), part));
    *h = gd_add(gd_mul(one_minus(z), next), gd_mul(z, *h));
}

/* in: the state (h, and c of an LSTM), then x w^T + wb (N, G*H), and the number of the step.
 * Returns the next state and y. After the end of a sequence the state does not change, and y is
 * 0. */
static gd_tensors scan_step(gd_tensors in, void *user) {
    const direction *x = user;
    gd_tensor *h = in.at[0], *c = x->has_c ? in.at[1] : NULL, *xw = in.at[x->has_c ? 2 : 1];
    if (x->has_c) lstm_step(x, xw, &h, &c);
    else if (x->a->kind->gates == 3) gru_step(x, xw, &h);
    else h = apply_activation(x, 0, gd_add(xw, recurrent_product(x, h, 0, 1)));
    gd_tensor *y = h;
    if (x->lengths) {
        gd_tensor *is_inside = gd_unsqueeze(gd_lt(in.at[in.count - 1], x->lengths), -1);
        y = gd_where(is_inside, h, gd_scalar_of(0, (gd_dtype)h->dtype));
        h = gd_where(is_inside, h, in.at[0]);
        if (c) c = gd_where(is_inside, c, in.at[1]);
    }
    return c ? gd_listed(h, c, y) : gd_listed(h, y);
}

/* --- a direction ------------------------------------------------------------------------------ */

gd_status gd_onnx_scan_direction(const gd_onnx_recurrent_node *a, int64_t d, gd_tensor **y,
                                 gd_tensor **h, gd_tensor **c) {
    const int64_t rows = a->kind->gates * a->hidden;
    gd_tensor *b = a->b ? gd_select(a->b, 0, d) : NULL;
    direction x = {.a = a,
                   .d = d,
                   .r = gd_select(a->r, 0, d),
                   .rb = b ? gd_narrow(b, 0, rows, rows) : NULL,
                   .p = a->p ? gd_select(a->p, 0, d) : NULL,
                   .lengths = a->lengths,
                   .has_c = a->kind->gates == 4};
    gd_tensor *xw = gd_linear(a->x, gd_select(a->w, 0, d), b ? gd_narrow(b, 0, 0, rows) : NULL);
    gd_tensor *ones = gd_ones_like(gd_narrow(gd_sum(xw, .axis = 1), -1, 0, 1), .dtype = GD_I64);
    gd_tensor *steps = gd_reshape(gd_sub(gd_cumsum(ones, 0), ones), gd_dims(-1)); /* 0, 1, ... */
    gd_tensor *zeros = gd_zeros_like(gd_narrow(gd_sum(xw, .axis = 0), -1, 0, a->hidden));
    gd_tensor *state[] = {a->h0 ? gd_select(a->h0, 0, d) : zeros,
                          a->c0 ? gd_select(a->c0, 0, d) : zeros};
    gd_scanned out =
        gd_scan_at(NULL, scan_step, (gd_tensors){state, x.has_c ? 2 : 1}, gd_list(xw, steps), &x,
                   &(gd_scan_options){.reverse = d == 1 || a->backward});
    if (gd_failed()) return gd_failure();
    *y = out.ys.at[0];
    *h = gd_unsqueeze(out.state.at[0], 0);
    *c = x.has_c ? gd_unsqueeze(out.state.at[1], 0) : NULL;
    return GD_OK;
}
