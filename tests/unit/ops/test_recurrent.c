/* test_recurrent.c - recurrent layers beyond the case files: sizes that need several pieces and
 * panels, arbitrary values in the padding, saved values, and failed allocations.
 */
#include <math.h>

#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "dispatch/call.h"
#include "dispatch/op.h"
#include "test.h"

enum { MAX_INPUTS = 24 };

/* A call of rnn, lstm or gru, its results and gradients. */
typedef struct {
    const char *op, *options;
    int64_t steps, batch, inputs, hidden;
    bool lengths, states;
    gd_dtype dtype;
    gd_tensor *in[MAX_INPUTS];
    int n_in;
    gd_tensor *out[3], *grad[MAX_INPUTS];
    int n_out;
} layer;

static bool has_option(const layer *l, const char *option) {
    return strstr(l->options, option) != NULL;
}

static gd_tensor *small_values(gd_shape dims, gd_dtype dtype) {
    return gd_detach(gd_mul(gd_randn(dims, .dtype = dtype), gd_scalar_of(0.2, dtype)));
}

/* x, h0, (c0,) lengths, and weights with biases, according to the options. */
static void make_inputs(layer *l) {
    bool lstm = strcmp(l->op, "lstm") == 0;
    int64_t gates = lstm                        ? 4
                    : strcmp(l->op, "gru") == 0 ? 3
                                                : 1,
            directions = has_option(l, "bidirectional=true") ? 2 : 1;
    int64_t layers = has_option(l, "layers=2") ? 2 : 1;
    gd_seed(5);
    l->n_in = 0;
    l->in[l->n_in++] = small_values(gd_dims(l->steps, l->batch, l->inputs), l->dtype);
    for (int s = 0; s < 1 + lstm; s++)
        l->in[l->n_in++] =
            l->states ? small_values(gd_dims(layers * directions, l->batch, l->hidden), l->dtype)
                      : NULL;
    l->in[l->n_in++] = l->lengths ? gd_randint(gd_dims(l->batch), 0, l->steps + 2) : NULL;
    for (int64_t k = 0; k < layers * directions; k++) {
        int64_t rows = gates * l->hidden,
                from = k < directions ? l->inputs : directions * l->hidden;
        l->in[l->n_in++] = small_values(gd_dims(rows, from), l->dtype);
        l->in[l->n_in++] = small_values(gd_dims(rows, l->hidden), l->dtype);
        l->in[l->n_in++] = small_values(gd_dims(rows), l->dtype);
        l->in[l->n_in++] = small_values(gd_dims(rows), l->dtype);
    }
}

static void call_layer(layer *l) {
    const gd_op *op = gd_op_find(l->op);
    gd_attrs *attrs = gd_attrs_new(op);
    gd_attrs_parse(attrs, l->options);
    gd_tensors y = gd_op_call(op, (gd_tensors){l->in, l->n_in}, attrs);
    l->n_out = (int)y.count;
    for (int k = 0; k < l->n_out; k++) l->out[k] = y.at[k];
}

/* Also computes the gradients of the outputs' sum, weighted by position, for every float input. */
static void call_with_gradients(layer *l) {
    gd_tensor *by[MAX_INPUTS], *loss = NULL;
    int n = 0;
    for (int i = 0; i < l->n_in; i++)
        if (l->in[i] && gd_dtype_is_float(gd_tensor_dtype(l->in[i])))
            by[n++] = gd_requires_grad(l->in[i]);
    call_layer(l);
    for (int k = 0; k < l->n_out; k++) {
        int64_t count = gd_tensor_numel(l->out[k]);
        gd_tensor *weight = gd_sin(gd_arange(0, (double)count, .dtype = GD_F64));
        weight = gd_cast(gd_reshape(weight, gd_tensor_shape(l->out[k])), l->dtype);
        gd_tensor *part = gd_sum(gd_mul(l->out[k], weight));
        loss = loss ? gd_add(loss, part) : part;
    }
    gd_tensors g = gd_grad(gd_list(loss), ((gd_tensors){by, n}));
    for (int i = 0, k = 0; i < l->n_in && k < g.count; i++)
        if (l->in[i] && gd_dtype_is_float(gd_tensor_dtype(l->in[i]))) l->grad[i] = g.at[k++];
}

static const char *const ops[] = {"rnn", "lstm", "gru"};

/* Rows in several pieces; gates in several panels and a partial one. */
static layer large_layer(int op, const char *options) {
    return (layer){.op = ops[op],
                   .options = options,
                   .steps = 5,
                   .batch = 50,
                   .inputs = 40,
                   .hidden = 133,
                   .lengths = true,
                   .states = true,
                   .dtype = GD_F32};
}

/* Steps in several chunks, the last one smaller. */
static layer long_layer(int op, const char *options) {
    layer l = large_layer(op, options);
    l.batch = op == 0 ? 4000 : 1000, l.inputs = 10, l.hidden = 24;
    return l;
}

TEST(any_number_of_threads_gives_the_same_bits) {
    for (int op = 0; op < 6; op++) {
        GD_SCOPE;
        layer one = op < 3 ? large_layer(op, "bidirectional=true")
                           : long_layer(op - 3, "bidirectional=true");
        layer more = one;
        gd_set_num_threads(1);
        make_inputs(&one);
        call_with_gradients(&one);
        for (int threads = 2; threads <= 5; threads++) {
            gd_set_num_threads(threads);
            make_inputs(&more);
            call_with_gradients(&more);
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            for (int k = 0; k < one.n_out; k++) CHECK(tensors_same_bits(one.out[k], more.out[k]));
            for (int i = 0; i < one.n_in; i++)
                if (one.grad[i])
                    CHECK_SAYING(tensors_same_bits(one.grad[i], more.grad[i]), "%s: gradient %d",
                                 one.op, i);
        }
        gd_set_num_threads(0);
    }
}

static void check_against_body(layer fast) {
    GD_SCOPE;
    layer slow = fast;
    make_inputs(&fast);
    make_inputs(&slow);
    call_with_gradients(&fast);
    gd_set_reference_kernels(true);
    call_with_gradients(&slow);
    gd_set_reference_kernels(false);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    for (int k = 0; k < fast.n_out; k++)
        CHECK_SAYING(tensors_distance(fast.out[k], slow.out[k]) < 1e-12, "%s %s: output %d",
                     fast.op, fast.options, k);
    for (int i = 0; i < fast.n_in; i++)
        if (fast.grad[i])
            CHECK_SAYING(tensors_distance(fast.grad[i], slow.grad[i]) < 1e-11, "%s %s: gradient %d",
                         fast.op, fast.options, i);
}

TEST(kernels_agree_with_bodies) {
    static const int64_t batches[] = {1, 3, 6, 60};
    static const char *const options[] = {"", "bidirectional=true", "layers=2"};
    for (int op = 0; op < 3; op++) {
        for (int b = 0; b < 4; b++)
            for (int o = 0; o < 3; o++) {
                layer l = large_layer(op, options[o]);
                l.steps = 3, l.inputs = 10;
                l.batch = batches[b];
                l.hidden = 21 + 12 * b;
                l.lengths = (b + o) % 2;
                l.states = o > 0;
                l.dtype = GD_F64;
                check_against_body(l);
            }
    }
}

/* Gradients of the sum of squares of the results, for one direction. */
static void square_gradients(gd_tensor *const *y, gd_tensors by, gd_tensors *gradients) {
    gd_tensor *loss = gd_add(gd_sum(gd_square(y[0])), gd_sum(gd_square(y[1])));
    *gradients = gd_grad(gd_list(loss), by);
}

TEST(kernels_agree_with_bodies_on_sequences_in_chunks) {
    static const char *const cells[] = {"tanh", "lstm", "gru"};
    const gd_op *op = gd_op_find("recurrent");
    for (int cell = 0; cell < 3; cell++)
        for (int reverse = 0; reverse < 2; reverse++) {
            GD_SCOPE;
            char options[64];
            snprintf(options, sizeof options, "cell=%s reverse=%d", cells[cell], reverse);
            layer l = long_layer(cell, "");
            l.dtype = GD_F64;
            make_inputs(&l);
            int n = 2;
            gd_tensor *in[8] = {l.in[0], l.in[1]}, *y[5] = {NULL}, *w[4];
            if (cell == 1) in[2] = l.in[n++];
            for (int i = 3; i < 8; i++) in[i] = l.in[n++];
            for (int i = 0; i < 4; i++) w[i] = gd_requires_grad(in[4 + i]);
            gd_attrs *attrs = gd_attrs_new(op);
            CHECK(gd_attrs_parse(attrs, options) == GD_OK);
            gd_tensors fast = gd_op_call(op, (gd_tensors){in, 8}, attrs), g[2];
            gd_expansion body = {op, gd_attrs_data(attrs), 8, 5, in, y};
            op->expand(&body);
            square_gradients(fast.at, (gd_tensors){w, 4}, &g[0]);
            square_gradients(y, (gd_tensors){w, 4}, &g[1]);
            CHECK_SAYING(!gd_failed(), "%s: %s", options, gd_error_message());
            for (int k = 0; k < (cell == 1 ? 3 : 2); k++)
                CHECK_SAYING(tensors_distance(fast.at[k], y[k]) < 1e-12, "%s: output %d", options,
                             k);
            for (int i = 0; i < 4 && i < g[0].count; i++) /* sums of thousands of terms */
                CHECK_SAYING(tensors_distance(g[0].at[i], g[1].at[i]) < 1e-9, "%s: gradient %d",
                             options, i);
        }
}

TEST(padding_after_the_end_of_a_sequence_has_no_effect) {
    for (int op = 0; op < 3; op++)
        for (int reference = 0; reference < 2; reference++) {
            GD_SCOPE;
            layer clean = large_layer(op, "layers=2 bidirectional=true");
            clean.batch = 7, clean.hidden = 5;
            layer dirty = clean;
            gd_set_reference_kernels(reference);
            make_inputs(&clean);
            make_inputs(&dirty);
            const int64_t *lengths = gd_data(clean.in[clean.n_in - 17]);
            float *x = gd_data(dirty.in[0]);
            for (int64_t t = 0; t < dirty.steps; t++)
                for (int64_t n = 0; n < dirty.batch; n++)
                    for (int64_t i = 0; i < dirty.inputs && t >= lengths[n]; i++)
                        x[(t * dirty.batch + n) * dirty.inputs + i] = i % 2 ? NAN : INFINITY;
            call_with_gradients(&clean);
            call_with_gradients(&dirty);
            gd_set_reference_kernels(false);
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            for (int k = 0; k < clean.n_out; k++)
                CHECK(tensors_same_bits(clean.out[k], dirty.out[k]));
            for (int i = 0; i < clean.n_in; i++)
                if (clean.grad[i])
                    CHECK_SAYING(tensors_same_bits(clean.grad[i], dirty.grad[i]), "%s: gradient %d",
                                 ops[op], i);
        }
}

TEST(requiring_a_gradient_changes_no_bit) {
    for (int op = 0; op < 6; op++)
        for (int half = 0; half < 2; half++) {
            GD_SCOPE;
            layer plain = op < 3 ? large_layer(op, "bidirectional=true")
                                 : long_layer(op - 3, "bidirectional=true");
            if (half) plain.dtype = GD_F16;
            layer taped = plain;
            make_inputs(&plain);
            make_inputs(&taped);
            call_layer(&plain);
            call_with_gradients(&taped);
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            for (int k = 0; k < plain.n_out; k++)
                CHECK(tensors_same_bits(plain.out[k], taped.out[k]));
        }
}

TEST(nothing_is_saved_when_no_gradient_is_required) {
    for (int op = 0; op < 3; op++) {
        GD_SCOPE;
        layer l = large_layer(op, "");
        l.lengths = false;
        make_inputs(&l);
        int64_t before = gd_memory_stats(NULL).live_bytes, outputs = 0;
        call_layer(&l);
        for (int k = 0; k < l.n_out; k++) outputs += gd_tensor_numel(l.out[k]) * 4;
        CHECK_SAYING(gd_memory_stats(NULL).live_bytes - before < outputs + outputs / 4,
                     "%s keeps %lld bytes", ops[op],
                     (long long)(gd_memory_stats(NULL).live_bytes - before));
    }
}

TEST(dropout_applies_only_between_layers_and_in_training) {
    for (int op = 0; op < 3; op++) {
        GD_SCOPE;
        layer l = large_layer(op, "layers=2");
        l.lengths = false;
        make_inputs(&l);
        call_layer(&l);
        gd_tensor *y = l.out[0], *h = l.out[1];
        l.options = "layers=2 dropout=1";
        call_layer(&l);
        CHECK(tensors_same_bits(y, l.out[0]));
        /* all results of the first layer are dropped, so its inputs have no effect */
        l.options = "layers=2 dropout=1 training=true";
        call_layer(&l);
        gd_tensor *dropped = l.out[0];
        CHECK(!tensors_same_bits(y, dropped));
        CHECK(tensors_same_bits(gd_contiguous(gd_narrow(h, 0, 0, 1)),
                                gd_contiguous(gd_narrow(l.out[1], 0, 0, 1))));
        l.in[0] = gd_neg(l.in[0]);
        call_layer(&l);
        CHECK(tensors_same_bits(dropped, l.out[0]));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
}

TEST(failed_allocations_return_a_status_in_forward_and_backward) {
    for (int op = 0; op < 3; op++) {
        for (fault_walk faults = {.what = ops[op], .dense = 40}; fault_next(&faults);) {
            GD_SCOPE;
            layer l = {.op = ops[op],
                       .options = "bidirectional=true",
                       .steps = 3,
                       .batch = 2,
                       .inputs = 2,
                       .hidden = 3,
                       .lengths = true,
                       .states = true,
                       .dtype = GD_F32};
            make_inputs(&l);
            gd_tensor *w = gd_requires_grad(l.in[l.n_in - 3]);
            gd_set_num_threads(1);
            fault_begin(&faults);
            call_layer(&l);
            gd_status status = gd_error_status();
            if (status == GD_OK) {
                gd_tensors g = gd_grad(gd_list(gd_sum(l.out[0])), gd_list(w), .create_graph = true);
                if (!gd_failed()) gd_grad(gd_list(gd_sum(gd_square(g.at[0]))), gd_list(w));
                status = gd_error_status();
            }
            fault_end(&faults);
            CHECK_FAULT(&faults, status);
        }
    }
    gd_set_num_threads(0);
}

TEST_MAIN
