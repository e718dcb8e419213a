/* recurrent.typed.isa.c - the cells of recurrent layers for one dtype (see recurrent.h). */
#include "ops/recurrent/cpu/recurrent.h"
#include "backend/cpu/simd_typed.h"
#include "core/transpose.h"

V_FN VEC sigmoid(VEC x) { return 1 / (1 + V(exp)(-x)); }
V_FN VEC sigmoid_derivative(VEC y) { return y * (1 - y); }

/* --- forward ---------------------------------------------------------------------------------- */

static void row_tanh(int64_t n, void *py, void *ph) {
    E *y = py, *h = ph;
#define FORWARD_TANH(LOAD, STORE)    \
    VEC next = V(tanh)(LOAD(y + i)); \
    STORE(y + i, next);              \
    STORE(h + i, next)
    EACH_VECTOR(n, FORWARD_TANH);
}

static void row_relu(int64_t n, void *py, void *ph) {
    E *y = py, *h = ph;
#define FORWARD_RELU(LOAD, STORE)                    \
    VEC sum = LOAD(y + i);                           \
    VEC next = V(select)(sum < 0, V(splat)(0), sum); \
    STORE(y + i, next);                              \
    STORE(h + i, next)
    EACH_VECTOR(n, FORWARD_RELU);
}

static void row_lstm(int64_t n, void *pg, void *pc, void *ph, void *py, void *pcell) {
    E *gates = pg, *c = pc, *h = ph, *y = py, *cell = pcell;
#define FORWARD_LSTM(LOAD, STORE)                                                             \
    VEC in = sigmoid(LOAD(gates + i)), forget = sigmoid(LOAD(gates + n + i));                 \
    VEC candidate = V(tanh)(LOAD(gates + 2 * n + i)), out = sigmoid(LOAD(gates + 3 * n + i)); \
    VEC state = forget * LOAD(c + i) + in * candidate, next = out * V(tanh)(state);           \
    STORE(c + i, state);                                                                      \
    STORE(h + i, next);                                                                       \
    STORE(y + i, next);                                                                       \
    if (cell) {                                                                               \
        STORE(gates + i, in);                                                                 \
        STORE(gates + n + i, forget);                                                         \
        STORE(gates + 2 * n + i, candidate);                                                  \
        STORE(gates + 3 * n + i, out);                                                        \
        STORE(cell + i, state);                                                               \
    }
    EACH_VECTOR(n, FORWARD_LSTM);
}

static void row_gru(int64_t n, void *pg, const void *ps, void *ph, void *py, int keep) {
    E *gates = pg, *h = ph, *y = py;
    const E *s = ps;
#define FORWARD_GRU(LOAD, STORE)                                           \
    VEC reset = sigmoid(LOAD(gates + i) + LOAD(s + i));                    \
    VEC update = sigmoid(LOAD(gates + n + i) + LOAD(s + n + i));           \
    VEC state_part = LOAD(s + 2 * n + i);                                  \
    VEC candidate = V(tanh)(LOAD(gates + 2 * n + i) + reset * state_part); \
    VEC next = candidate + update * (LOAD(h + i) - candidate);             \
    STORE(h + i, next);                                                    \
    STORE(y + i, next);                                                    \
    if (keep) {                                                            \
        STORE(gates + i, reset);                                           \
        STORE(gates + n + i, update);                                      \
        STORE(gates + 2 * n + i, candidate);                               \
        STORE(gates + 3 * n + i, state_part);                              \
    }
    EACH_VECTOR(n, FORWARD_GRU);
}

/* --- backward --------------------------------------------------------------------------------- */

static void row_tanh_backward(int64_t n, const void *pgy, const void *py, void *pdh, void *pg) {
    const E *gy = pgy, *y = py;
    E *dh = pdh, *gates = pg;
#define BACKWARD_TANH(LOAD, STORE)                                     \
    VEC out = LOAD(y + i);                                             \
    STORE(gates + i, (LOAD(dh + i) + LOAD(gy + i)) * (1 - out * out)); \
    STORE(dh + i, V(splat)(0))
    EACH_VECTOR(n, BACKWARD_TANH);
}

static void row_relu_backward(int64_t n, const void *pgy, const void *py, void *pdh, void *pg) {
    const E *gy = pgy, *y = py;
    E *dh = pdh, *gates = pg;
#define BACKWARD_RELU(LOAD, STORE)                                                          \
    STORE(gates + i, V(select)(LOAD(y + i) > 0, LOAD(dh + i) + LOAD(gy + i), V(splat)(0))); \
    STORE(dh + i, V(splat)(0))
    EACH_VECTOR(n, BACKWARD_RELU);
}

static void row_lstm_backward(int64_t n, const void *pgy, const void *ps, const void *pc,
                              const void *pb, void *pdh, void *pdc, void *pg) {
    const E *gy = pgy, *saved = ps, *c = pc, *c_before = pb;
    E *dh = pdh, *dc = pdc, *gates = pg;
#define BACKWARD_LSTM(LOAD, STORE)                                                 \
    VEC in = LOAD(saved + i), forget = LOAD(saved + n + i);                        \
    VEC candidate = LOAD(saved + 2 * n + i), out = LOAD(saved + 3 * n + i);        \
    VEC d = LOAD(dh + i) + LOAD(gy + i), tanh_c = V(tanh)(LOAD(c + i));            \
    VEC state = LOAD(dc + i) + d * out * (1 - tanh_c * tanh_c);                    \
    STORE(gates + i, state * candidate * sigmoid_derivative(in));                  \
    STORE(gates + n + i, state * LOAD(c_before + i) * sigmoid_derivative(forget)); \
    STORE(gates + 2 * n + i, state * in * (1 - candidate * candidate));            \
    STORE(gates + 3 * n + i, d * tanh_c * sigmoid_derivative(out));                \
    STORE(dc + i, state * forget);                                                 \
    STORE(dh + i, V(splat)(0))
    EACH_VECTOR(n, BACKWARD_LSTM);
}

static void row_gru_backward(int64_t n, const void *pgy, const void *ps, const void *pb, void *pdh,
                             void *pg) {
    const E *gy = pgy, *saved = ps, *h_before = pb;
    E *dh = pdh, *gates = pg;
#define BACKWARD_GRU(LOAD, STORE)                                                            \
    VEC reset = LOAD(saved + i), update = LOAD(saved + n + i);                               \
    VEC candidate = LOAD(saved + 2 * n + i), state_part = LOAD(saved + 3 * n + i);           \
    VEC d = LOAD(dh + i) + LOAD(gy + i);                                                     \
    VEC g = d * (1 - update) * (1 - candidate * candidate);                                  \
    STORE(gates + i, g * state_part * sigmoid_derivative(reset));                            \
    STORE(gates + n + i, d * (LOAD(h_before + i) - candidate) * sigmoid_derivative(update)); \
    STORE(gates + 2 * n + i, g);                                                             \
    STORE(gates + 3 * n + i, g * reset);                                                     \
    STORE(dh + i, d * update)
    EACH_VECTOR(n, BACKWARD_GRU);
}

static void transpose_matrix(int64_t rows, int64_t columns, const void *x, void *y) {
    gd_transpose_block(sizeof(E), y, rows * (int64_t)sizeof(E), x, columns * (int64_t)sizeof(E),
                       rows, columns);
}

const gd_recurrent_isa TYPED(gd_recurrent)[1] = {{
    row_tanh,
    row_relu,
    row_lstm,
    row_gru,
    row_tanh_backward,
    row_relu_backward,
    row_lstm_backward,
    row_gru_backward,
    transpose_matrix,
}};
