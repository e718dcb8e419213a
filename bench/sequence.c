/* sequence.c - recurrent layers and attention, forward and with gradients, on one thread. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "gradus/gradus.h"

enum { STEPS = 50, BATCH = 32, INPUTS = 128, HIDDEN = 256 };
enum { HEADS = 8, LENGTH = 512, WIDTH = 64 };

typedef struct {
    const char *op, *options;
    gd_tensor *in[8]; /* NULL: absent */
    int n_in;
    gd_tensor *gy;
} layer;

static gd_tensor *call_layer(layer *l) {
    gd_attrs *attrs = gd_attrs_new(gd_op_find(l->op));
    gd_attrs_parse(attrs, l->options);
    gd_tensors y = gd_op_call(gd_op_find(l->op), (gd_tensors){l->in, l->n_in}, attrs);
    return y.at[0];
}

static void run_forward(void *arg) {
    GD_SCOPE;
    GD_NO_GRAD;
    call_layer(arg);
}

static void run_forward_backward(void *arg) {
    GD_SCOPE;
    layer *l = arg;
    gd_tensor *wrt[8];
    int n = 0;
    for (int i = 0; i < l->n_in; i++)
        if (l->in[i] && gd_tensor_requires_grad(l->in[i])) wrt[n++] = l->in[i];
    gd_grad(gd_list(call_layer(l)), ((gd_tensors){wrt, n}), .gradients = gd_list(l->gy));
}

static void measure_layer(layer *l, const char *name, const char *note) {
    char text[80];
    double spread, ns = bench_time(run_forward, l, &spread);
    snprintf(text, sizeof text, "%s_ms", name);
    bench_report(text, ns * 1e-6, spread * 1e-6, "ms", note);
    ns = bench_time(run_forward_backward, l, &spread);
    snprintf(text, sizeof text, "%s_grad_ms", name);
    bench_report(text, ns * 1e-6, spread * 1e-6, "ms", "the same with gradients of all inputs");
}

static gd_tensor *weight(gd_shape dims) {
    return gd_requires_grad(gd_detach(gd_mul(gd_randn(dims), gd_scalar(0.06))));
}

static void bench_recurrent(void) {
    static const char *const ops[] = {"lstm", "gru", "rnn"};
    static const int64_t gates[] = {4, 3, 1};
    gd_set_num_threads(1);
    for (int k = 0; k < 3; k++) {
        GD_SCOPE;
        int64_t rows = gates[k] * HIDDEN;
        layer l = {.op = ops[k], .options = "", .gy = gd_randn(gd_dims(STEPS, BATCH, HIDDEN))};
        l.in[0] = weight(gd_dims(STEPS, BATCH, INPUTS));
        l.n_in = k == 0 ? 4 : 3; /* no states, no lengths */
        l.in[l.n_in++] = weight(gd_dims(rows, INPUTS));
        l.in[l.n_in++] = weight(gd_dims(rows, HIDDEN));
        l.in[l.n_in++] = weight(gd_dims(rows));
        l.in[l.n_in++] = weight(gd_dims(rows));
        measure_layer(&l, ops[k], "50 steps, 32 sequences, 128 inputs, 256 hidden");
    }
}

static void bench_attention(void) {
    static const char *const names[] = {"attention", "attention_causal"};
    gd_set_num_threads(1);
    for (int causal = 0; causal < 2; causal++) {
        GD_SCOPE;
        gd_shape dims = gd_dims(1, HEADS, LENGTH, WIDTH);
        layer l = {.op = "scaled_dot_product_attention",
                   .options = causal ? "causal=true" : "",
                   .n_in = 3};
        for (int i = 0; i < 3; i++) l.in[i] = gd_requires_grad(gd_randn(dims));
        l.gy = gd_randn(dims);
        measure_layer(&l, names[causal], "8 heads, 512 positions, width 64");
    }
}

const bench_entry bench_sequence[] = {
    {"recurrent", bench_recurrent}, {"attention", bench_attention}, {NULL, NULL}};
