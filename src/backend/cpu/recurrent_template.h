/* recurrent_template.h - the gates of recurrent layers for one element type (see recurrent.h). */
#include "backend/cpu/recurrent.h"
#include "backend/cpu/simd_typed.h"
#include "core/transpose.h"

/* DO(LOAD, STORE) for each vector at i < n; the last may be a part. */
#define LOAD_ALL(p)      V(load)(p)
#define STORE_ALL(p, v)  V(store)(p, v)
#define LOAD_LEFT(p)     V(load_part)(p, left)
#define STORE_LEFT(p, v) V(store_part)(p, v, left)
#define EACH_VECTOR(n, DO)                     \
    do {                                       \
        int64_t i = 0;                         \
        for (; i + LANES <= (n); i += LANES) { \
            DO(LOAD_ALL, STORE_ALL);           \
        }                                      \
        if (i < (n)) {                         \
            int left = (int)((n)-i);           \
            DO(LOAD_LEFT, STORE_LEFT);         \
        }                                      \
    } while (0)

V_FN VEC sigmoid(VEC x) { return 1 / (1 + V(exp)(-x)); }
V_FN VEC sigmoid_slope(VEC y) { return y * (1 - y); }

/* --- forward ---------------------------------------------------------------------------------- */

static void row_tanh(int64_t n, void *py, void *ph) {
    E *y = py, *h = ph;
#define STEP_TANH(LOAD, STORE)       \
    VEC next = V(tanh)(LOAD(y + i)); \
    STORE(y + i, next);              \
    STORE(h + i, next)
    EACH_VECTOR(n, STEP_TANH);
}

static void row_relu(int64_t n, void *py, void *ph) {
    E *y = py, *h = ph;
#define STEP_RELU(LOAD, STORE)                       \
    VEC sum = LOAD(y + i);                           \
    VEC next = V(select)(sum < 0, V(splat)(0), sum); \
    STORE(y + i, next);                              \
    STORE(h + i, next)
    EACH_VECTOR(n, STEP_RELU);
}

static void row_lstm(int64_t n, void *pg, void *pc, void *ph, void *py, void *pcell) {
    E *gates = pg, *c = pc, *h = ph, *y = py, *cell = pcell;
#define STEP_LSTM(LOAD, STORE)                                                            \
    VEC in = sigmoid(LOAD(gates + i)), forget = sigmoid(LOAD(gates + n + i));             \
    VEC fresh = V(tanh)(LOAD(gates + 2 * n + i)), out = sigmoid(LOAD(gates + 3 * n + i)); \
    VEC state = forget * LOAD(c + i) + in * fresh, next = out * V(tanh)(state);           \
    STORE(c + i, state);                                                                  \
    STORE(h + i, next);                                                                   \
    STORE(y + i, next);                                                                   \
    if (cell) {                                                                           \
        STORE(gates + i, in);                                                             \
        STORE(gates + n + i, forget);                                                     \
        STORE(gates + 2 * n + i, fresh);                                                  \
        STORE(gates + 3 * n + i, out);                                                    \
        STORE(cell + i, state);                                                           \
    }
    EACH_VECTOR(n, STEP_LSTM);
}

static void row_gru(int64_t n, void *pg, const void *ps, void *ph, void *py, int keep) {
    E *gates = pg, *h = ph, *y = py;
    const E *s = ps;
#define STEP_GRU(LOAD, STORE)                                    \
    VEC reset = sigmoid(LOAD(gates + i) + LOAD(s + i));          \
    VEC update = sigmoid(LOAD(gates + n + i) + LOAD(s + n + i)); \
    VEC part = LOAD(s + 2 * n + i);                              \
    VEC fresh = V(tanh)(LOAD(gates + 2 * n + i) + reset * part); \
    VEC next = fresh + update * (LOAD(h + i) - fresh);           \
    STORE(h + i, next);                                          \
    STORE(y + i, next);                                          \
    if (keep) {                                                  \
        STORE(gates + i, reset);                                 \
        STORE(gates + n + i, update);                            \
        STORE(gates + 2 * n + i, fresh);                         \
        STORE(gates + 3 * n + i, part);                          \
    }
    EACH_VECTOR(n, STEP_GRU);
}

/* --- back ------------------------------------------------------------------------------------- */

static void row_tanh_back(int64_t n, const void *pgy, const void *py, void *pdh, void *pg) {
    const E *gy = pgy, *y = py;
    E *dh = pdh, *gates = pg;
#define BACK_TANH(LOAD, STORE)                                         \
    VEC out = LOAD(y + i);                                             \
    STORE(gates + i, (LOAD(dh + i) + LOAD(gy + i)) * (1 - out * out)); \
    STORE(dh + i, V(splat)(0))
    EACH_VECTOR(n, BACK_TANH);
}

static void row_relu_back(int64_t n, const void *pgy, const void *py, void *pdh, void *pg) {
    const E *gy = pgy, *y = py;
    E *dh = pdh, *gates = pg;
#define BACK_RELU(LOAD, STORE)                                                              \
    STORE(gates + i, V(select)(LOAD(y + i) > 0, LOAD(dh + i) + LOAD(gy + i), V(splat)(0))); \
    STORE(dh + i, V(splat)(0))
    EACH_VECTOR(n, BACK_RELU);
}

static void row_lstm_back(int64_t n, const void *pgy, const void *ps, const void *pc,
                          const void *pb, void *pdh, void *pdc, void *pg) {
    const E *gy = pgy, *saved = ps, *c = pc, *c_before = pb;
    E *dh = pdh, *dc = pdc, *gates = pg;
#define BACK_LSTM(LOAD, STORE)                                                \
    VEC in = LOAD(saved + i), forget = LOAD(saved + n + i);                   \
    VEC fresh = LOAD(saved + 2 * n + i), out = LOAD(saved + 3 * n + i);       \
    VEC d = LOAD(dh + i) + LOAD(gy + i), squashed = V(tanh)(LOAD(c + i));     \
    VEC state = LOAD(dc + i) + d * out * (1 - squashed * squashed);           \
    STORE(gates + i, state * fresh * sigmoid_slope(in));                      \
    STORE(gates + n + i, state * LOAD(c_before + i) * sigmoid_slope(forget)); \
    STORE(gates + 2 * n + i, state * in * (1 - fresh * fresh));               \
    STORE(gates + 3 * n + i, d * squashed * sigmoid_slope(out));              \
    STORE(dc + i, state * forget);                                            \
    STORE(dh + i, V(splat)(0))
    EACH_VECTOR(n, BACK_LSTM);
}

static void row_gru_back(int64_t n, const void *pgy, const void *ps, const void *pb, void *pdh,
                         void *pg) {
    const E *gy = pgy, *saved = ps, *h_before = pb;
    E *dh = pdh, *gates = pg;
#define BACK_GRU(LOAD, STORE)                                                       \
    VEC reset = LOAD(saved + i), update = LOAD(saved + n + i);                      \
    VEC fresh = LOAD(saved + 2 * n + i), part = LOAD(saved + 3 * n + i);            \
    VEC d = LOAD(dh + i) + LOAD(gy + i);                                            \
    VEC g = d * (1 - update) * (1 - fresh * fresh);                                 \
    STORE(gates + i, g * part * sigmoid_slope(reset));                              \
    STORE(gates + n + i, d * (LOAD(h_before + i) - fresh) * sigmoid_slope(update)); \
    STORE(gates + 2 * n + i, g);                                                    \
    STORE(gates + 3 * n + i, g * reset);                                            \
    STORE(dh + i, d * update)
    EACH_VECTOR(n, BACK_GRU);
}

static void turn(int64_t rows, int64_t columns, const void *x, void *y) {
    gd_transpose_block(sizeof(E), y, rows * (int64_t)sizeof(E), x, columns * (int64_t)sizeof(E),
                       rows, columns);
}

const gd_recurrent_isa TYPED(gd_recurrent)[1] = {{
    row_tanh,
    row_relu,
    row_lstm,
    row_gru,
    row_tanh_back,
    row_relu_back,
    row_lstm_back,
    row_gru_back,
    turn,
}};
