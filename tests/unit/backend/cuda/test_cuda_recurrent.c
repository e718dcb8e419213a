/* test_cuda_recurrent.c - recurrent layers on CUDA whose blocks exchange states: several blocks of
 * units and of sequences, more steps than the exchange has slots, padding of both. */
#include <math.h>

#include "cuda_child.h"

typedef struct recurrent_case {
    const char *cell;
    int64_t steps, batch, hidden;
    gd_dtype dtype;
    bool tf32, lengths;
    double tolerance; /* of |a - b| / |b| as vectors */
} recurrent_case;

/* The emulated device runs 24 blocks together. A block has 32 units, or 16 if more would not fit
 * into its registers, and groups of 8 sequences. */
static const recurrent_case cases[] = {
    {"lstm", 19, 19, 70, GD_BF16, false, false, 6e-3}, /* 3 blocks of units */
    {"lstm", 19, 13, 40, GD_F16, false, true, 8e-4},
    {"lstm", 13, 120, 70, GD_BF16, false, false, 6e-3}, /* 2 groups in a block, some of padding */
    {"lstm", 3, 9, 300, GD_F32, true, false, 1e-3},     /* 16 units in each block */
    {"gru", 19, 19, 70, GD_BF16, false, true, 6e-3},
    {"gru", 9, 120, 33, GD_F32, true, false, 1e-3},
    {"rnn", 19, 19, 70, GD_BF16, false, true, 1e-2},
    {"rnn", 9, 5, 33, GD_F32, true, false, 1e-3},
    {"lstm", 9, 30, 50, GD_F32, false, true, 1e-5}, /* not on tensor cores */
    {"gru", 9, 30, 50, GD_F64, false, false, 1e-12},
};
enum { INPUTS = 6, RESULTS = 6 };

static gd_tensor *make_values(gd_shape shape, int number, double scale, gd_dtype dtype) {
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++) n *= shape.at[i];
    double *values = malloc((size_t)n * sizeof *values);
    for (int64_t k = 0; k < n; k++) values[k] = scale * sin(number + 1.3 * (double)(k + 1) * k);
    gd_tensor *t = gd_cast(gd_from_array(shape, GD_F64, values), dtype);
    free(values);
    return t;
}

/* y, and the gradients of x, the weights and the biases, as f64 on the CPU. */
static void compute_layer(const recurrent_case *c, gd_device *device, gd_dtype dtype,
                          gd_tensor **results) {
    const int64_t t = c->steps, n = c->batch, h = c->hidden,
                  rows = h * (c->cell[0] == 'l'   ? 4
                              : c->cell[0] == 'g' ? 3
                                                  : 1);
    const double scale = 1.5 / sqrt((double)h);
    gd_tensor *in[INPUTS] = {make_values(gd_dims(t, n, h), 1, 1, c->dtype),
                             make_values(gd_dims(rows, h), 2, scale, c->dtype),
                             make_values(gd_dims(rows, h), 3, scale, c->dtype),
                             make_values(gd_dims(rows), 4, 1, c->dtype),
                             make_values(gd_dims(rows), 5, 1, c->dtype),
                             make_values(gd_dims(t, n, h), 6, 1, c->dtype)};
    int64_t *lengths = malloc((size_t)n * sizeof *lengths);
    for (int64_t i = 0; i < n; i++) /* some are larger than the number of steps, or below 0 */
        lengths[i] = i % 11 == 3   ? ((int64_t)1 << 32) + 2
                     : i % 11 == 7 ? 2 - ((int64_t)1 << 32)
                                   : 1 + 7 * i % t;
    gd_tensor *limits =
        c->lengths ? gd_to_device(gd_from_array(gd_dims(n), GD_I64, lengths), device) : NULL;
    free(lengths);
    for (int i = 0; i < INPUTS; i++) {
        in[i] = gd_detach(gd_to_device(gd_cast(in[i], dtype), device));
        if (i < INPUTS - 1) in[i] = gd_requires_grad(in[i]);
    }
    const gd_tensors weights = {in + 1, 4};
    gd_tensor *y = c->cell[0] == 'l'   ? gd_lstm(in[0], NULL, NULL, limits, weights).y
                   : c->cell[0] == 'g' ? gd_gru(in[0], NULL, limits, weights).y
                                       : gd_rnn(in[0], NULL, limits, weights).y;
    const gd_tensors g = gd_grad(gd_list(y), ((gd_tensors){in, 5}), .gradients = gd_list(in[5]));
    results[0] = y;
    for (int i = 0; i < 5; i++) results[i + 1] = g.at[i];
    for (int i = 0; i < RESULTS; i++)
        results[i] = gd_cast(gd_to_device(gd_detach(results[i]), gd_device_get("cpu")), GD_F64);
}

static double norm_of(gd_tensor *t) { return sqrt(gd_item(gd_sum(gd_square(t)))); }

static void check_case(const recurrent_case *c) {
    GD_SCOPE;
    gd_tensor *expected[RESULTS], *found[RESULTS], *again[RESULTS];
    gd_device *cuda = gd_device_get("cuda");
    compute_layer(c, gd_device_get("cpu"), GD_F64, expected);
    gd_allow_tf32(c->tf32);
    compute_layer(c, cuda, c->dtype, found);
    compute_layer(c, cuda, c->dtype, again);
    gd_allow_tf32(false);
    for (int i = 0; i < RESULTS; i++) {
        const double off = norm_of(gd_sub(found[i], expected[i])) / norm_of(expected[i]);
        if (!(off < c->tolerance))
            fprintf(stderr, "%s of %lld units, case %d: result %d is off by %g\n", c->cell,
                    (long long)c->hidden, (int)(c - cases), i, off);
        CHECK(off < c->tolerance);
        CHECK(norm_of(gd_sub(found[i], again[i])) == 0);
    }
    CHECK(!gd_failed());
}

TEST(blocks_of_a_recurrent_layer_exchange_states) {
    IN_CHILD(EMULATED, "processors=24");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
}

/* A block of the largest devices has 227 KB of shared memory, that of many others 99 KB. */
TEST(recurrent_layers_run_with_less_shared_memory) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "processors=24,shared=101376");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!cases[i].tf32 && cases[i].dtype >= GD_F32) check_case(&cases[i]);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
