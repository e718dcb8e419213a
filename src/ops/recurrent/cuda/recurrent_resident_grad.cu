/* recurrent_resident_grad.cu - backpropagation through time with weights in registers (see
 * recurrent_resident.cuh). */
#include "ops/recurrent/cuda/recurrent_resident.cuh"

/* The gradients of the gates of a unit are adjacent in the exchange: element 4u + k is that of gate
 * k. Cells with fewer gates send zeros. A warp has M m-tiles of 16 units. */
template <typename T>
static __device__ __forceinline__ T column_element(const gd_cuda_recurrent &p, long long k,
                                                   long long u) {
    const long long gate = k % 4, from = k / 4;
    T zero;
    store_narrow(0, &zero);
    return u < p.hidden && from < p.hidden && gate < weight_blocks(p)
               ? ((const T *)p.w_hh)[(gate * p.hidden + from) * p.hidden + u]
               : zero;
}
/* In tf32 the word of a lane has the gates of one unit. */
template <int M, int TILES>
static __device__ __forceinline__ void load_columns(const gd_cuda_recurrent &p, long long unit,
                                                    const resident_thread &own,
                                                    uint32_t (&a)[M][TILES][4], float) {
    const int hidden = (int)p.hidden, from = own.first * 4 + own.t, blocks = weight_blocks(p);
    const long long block = p.hidden * p.hidden;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const long long u = unit + m * 16 + own.g;
        const float *column = (const float *)p.w_hh + from * p.hidden + u;
#pragma unroll
        for (int i = 0; i < TILES / 2; i++, column += 4 * p.hidden) {
            uint4 v[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const bool inside = i < own.pairs && from + 4 * i < hidden && u + half * 8 < hidden;
                const float *at = column + half * 8;
                v[half].x = inside ? round_tf32(at[0]) : 0;
                v[half].y = inside && blocks > 1 ? round_tf32(at[block]) : 0;
                v[half].z = inside && blocks > 2 ? round_tf32(at[2 * block]) : 0;
                v[half].w = inside && blocks > 3 ? round_tf32(at[3 * block]) : 0;
            }
            set_fragments(a[m][2 * i], a[m][2 * i + 1], v[0], v[1]);
        }
    }
}
/* Of 16 bits: each warp transposes through shared memory the 32 rows that a pair of k-tiles
 * multiplies. */
template <typename T, int M, int TILES>
static __device__ __forceinline__ void load_columns(const gd_cuda_recurrent &p, long long unit,
                                                    const resident_thread &own,
                                                    uint32_t (&a)[M][TILES][4], T) {
    enum {
        ROWS = PAIR / 2,
        COLUMNS = 16 * M,
        STRIDE = COLUMNS + 8,
        EACH = ROWS * COLUMNS / 8 / 32, /* words of a lane */
        AHEAD = 16 / EACH,              /* pairs whose words are loaded together */
    };
    const bool aligned = p.hidden % 8 == 0 && (uintptr_t)p.w_hh % 16 == 0;
    const int row = own.lane / (COLUMNS / 8), column = own.lane % (COLUMNS / 8) * 8;
    T *rows = (T *)shared_memory + own.warp * ROWS * STRIDE;
    const T *matrix = rows + (own.lane % 8 / 2 * 8 + own.lane / 8 * 2 + own.lane % 2) * STRIDE;
#pragma unroll
    for (int first = 0; first < TILES / 2; first += AHEAD) {
        uint4 v[AHEAD][EACH];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int k = (own.first + first + i) * ROWS + e * (ROWS / EACH) + row,
                          gate = k % 4, from = k / 4;
                v[i][e] = uint4{0, 0, 0, 0};
                if (aligned && first + i < own.pairs && gate < weight_blocks(p) &&
                    from < p.hidden && unit + column < p.hidden)
                    v[i][e] = *(const uint4 *)((const T *)p.w_hh +
                                               (gate * p.hidden + from) * p.hidden + unit + column);
            }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int at = e * (ROWS / EACH) + row;
                T *to = rows + at * STRIDE + column;
                *(uint4 *)to = v[i][e];
                if (!aligned)
                    for (int c = 0; c < 8; c++)
                        to[c] = column_element<T>(p, (own.first + first + i) * ROWS + at,
                                                  unit + column + c);
            }
            __syncwarp();
#pragma unroll
            for (int m = 0; m < M; m++) { /* lane t has the rows 8t to 8t + 7 */
                uint32_t r[2][4];
                load_transposed_matrices(r[0], matrix + m * 16);
                load_transposed_matrices(r[1], matrix + m * 16 + 8);
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        a[m][2 * (first + i) + h][e] = r[e % 2][2 * h + e / 2];
            }
            __syncwarp();
        }
    }
}

/* Sends four gradients. */
static __device__ __forceinline__ void send_gradients(char *to, const float *g, float) {
    store_relaxed(to, sent_word(round_tf32(g[0])), sent_word(round_tf32(g[1])));
    store_relaxed(to + 8, sent_word(round_tf32(g[2])), sent_word(round_tf32(g[3])));
}
template <typename T>
static __device__ __forceinline__ void send_gradients(char *to, const float *g, T) {
    store_relaxed(to, sent_word(round_pair<T>(g[0], g[1])), sent_word(round_pair<T>(g[2], g[3])));
}

/* What the gradient of a step of one unit reads, as it is in memory: it is loaded one step before it
 * is used. */
template <typename T> struct saved_step {
    bool active;
    T gy, y; /* y: that of an rnn, or h before the step of a gru */
    float gates[4], result, before;
};

/* Addresses as in the forward kernels. */
template <typename T> struct backward_addresses {
    const T *gy, *y;
    const float *gates, *cells, *wide_y;
    T *gradients;
    long long step; /* elements of (N, H), with the sign of the direction */
};

template <typename T>
static __device__ __forceinline__ backward_addresses<T>
backward_addresses_of(const gd_cuda_recurrent &p, const unit_gradient<float> &r) {
    const long long t = p.reverse ? 0 : p.steps - 1, row = t * p.batch + r.n,
                    at = row * p.hidden + r.u;
    backward_addresses<T> a;
    a.gy = (const T *)p.gy + at;
    a.y = (const T *)p.saved_y + at;
    a.wide_y = (const float *)p.saved_y + at;
    a.gates = (const float *)p.saved + row * 4 * p.hidden + r.u;
    a.cells = (const float *)p.saved_c + at;
    a.gradients = (T *)p.gradients + row * p.parts * p.hidden + r.u;
    a.step = (p.reverse ? 1 : -1) * p.batch * p.hidden;
    return a;
}
template <typename T>
static __device__ __forceinline__ void advance_step(const gd_cuda_recurrent &p,
                                                    backward_addresses<T> &a) {
    a.gy += a.step;
    a.y += a.step;
    a.wide_y += a.step;
    a.gates += 4 * a.step;
    a.cells += a.step;
    a.gradients += p.parts * a.step;
}

template <typename T, int M, int WORDS> struct resident_backward {
    enum { COPIES = 4 / M };

    static __device__ __forceinline__ void place(const gd_cuda_recurrent &p, const tile_place &at,
                                                 int n, const resident_thread &own,
                                                 unit_gradient<float> &r) {
        const int value = own.warp % 4; /* of a fragment c */
        r.n = at.sequence + n * 8 + 2 * own.t + value % 2;
        r.u = at.unit + own.warp / 4 * 16 + value / 2 * 8 + own.g;
        r.present = own.warp < 4 * M && r.u < p.hidden && r.n < p.batch;
    }

    /* Loads step t of group n, if it is one. The step before, in the order of the forward pass, is
     * the next one here. */
    static __device__ __forceinline__ void load_saved(const gd_cuda_recurrent &p,
                                                      const backward_addresses<T> &a, int t, int n,
                                                      int length, const unit_gradient<float> &r,
                                                      saved_step<T> &v) {
        const int hidden = (int)p.hidden, rows = n * 8 * hidden;
        v.active = r.present && t < length && t >= 0;
        if (!v.active) return;
        const bool begins = p.reverse ? t + 1 == length : t == 0;
        v.gy = a.gy[rows];
        if (p.parts == 4)
#pragma unroll
            for (int g = 0; g < 4; g++) v.gates[g] = a.gates[4 * rows + g * hidden];
        if (p.cell == GD_CUDA_CELL_LSTM) {
            v.result = a.cells[rows];
            if (!begins) v.before = a.cells[rows + a.step];
            else v.before = optional_element<T>(p.c0, r.n * p.hidden + r.u);
        } else if (p.cell == GD_CUDA_CELL_GRU) {
            store_narrow(0, &v.y);
            if (!begins) v.y = a.y[rows + a.step];
            else if (p.h0) v.y = ((const T *)p.h0)[r.n * p.hidden + r.u];
        } else if (p.wide_y) v.result = a.wide_y[rows];
        else v.y = a.y[rows];
    }
    static __device__ __forceinline__ void
    set_step(const gd_cuda_recurrent &p, const saved_step<T> &v, unit_gradient<float> &r) {
        r.active = v.active;
        r.gy = widen(v.gy);
#pragma unroll
        for (int g = 0; g < 4; g++) r.gates[g] = v.gates[g];
        r.result = v.result;
        r.before = v.before;
        if (p.cell == GD_CUDA_CELL_GRU) r.before = widen(v.y);
        else if (p.cell != GD_CUDA_CELL_LSTM && !p.wide_y) r.result = widen(v.y);
    }

    /* The sum of all warps of the value that this thread completes. The partial sums are
     * (2, WARPS, 4 * M, 32). */
    static __device__ __forceinline__ float sum_warps(const float (&sums)[M][4], int buffer,
                                                      const resident_thread &own) {
        float *partials = (float *)shared_memory + buffer * WARPS * 4 * M * 32 + own.lane;
        float total[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 4 * M; i++) partials[(own.warp * 4 * M + i) * 32] = sums[i / 4][i % 4];
        __syncthreads();
        if (own.warp >= 4 * M) return 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total[w % 2] += partials[(w * 4 * M + own.warp) * 32];
        return total[0] + total[1];
    }

    /* Computes the gradients of the gates of a unit and sends them. */
    static __device__ __forceinline__ void send_step(const gd_cuda_recurrent &p, float dh, char *to,
                                                     unit_gradient<float> &r) {
        float sent[4] = {0, 0, 0, 0};
        if (r.present) {
            compute_gradient(p, dh, r);
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < weight_blocks(p)) sent[k] = block_gradient(p, r.g, k);
        }
        send_gradients(to, sent, T{});
    }

    static __device__ __forceinline__ void store_step(const gd_cuda_recurrent &p,
                                                      const backward_addresses<T> &a, int n,
                                                      const unit_gradient<float> &r) {
        const int hidden = (int)p.hidden;
        if (!r.present) return;
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (k < p.parts) store_narrow(r.g[k], a.gradients + (n * 8 * p.parts + k) * hidden);
    }

    static __device__ void run(const gd_cuda_recurrent &p) {
        const resident_thread own = resident_thread_of(p);
        const exchange_ring ring = exchange_ring_of(p);
        const tile_place at = tile_place_of(p, (int)blockIdx.x, 16 * M, p.sequence_groups * 8);
        const bool keeps = p.sequence_groups > 1, completes = own.warp < 4 * M;
        const int steps = (int)p.steps, group_bytes = 8 * p.row_bytes;
        uint32_t a[M][2 * WORDS][4];
        unit_gradient<float> r;
        saved_step<T> saved = {};
        load_columns(p, at.unit, own, a, T{});
        place(p, at, 0, own, r);
        backward_addresses<T> from = backward_addresses_of<T>(p, r);
        const uint32_t received = received_offset(p, at.sequence, own),
                       sent = (uint32_t)r.n * (uint32_t)p.row_bytes +
                              (uint32_t)r.u * 4 * (uint32_t)sizeof(T);
        for (int n = 0; n < p.sequence_groups; n++) {
            place(p, at, n, own, r);
            load_gradients<T>(p, r);
            if (keeps) keep_gradients(p, r);
        }
        int length = steps, buffer = 0;
        if (r.present) length = (int)length_of(p, r.n);
        if (!keeps) load_saved(p, from, p.reverse ? 0 : steps - 1, 0, length, r, saved);
        __syncthreads(); /* load_columns has used the memory of the partial sums */
        for (int s = 0; s <= steps; s++, advance_step(p, from)) /* the last one computes gh0 */
            for (int n = 0; n < p.sequence_groups; n++, buffer ^= 1) {
                const int t = p.reverse ? s : steps - 1 - s;
                if (keeps) {
                    place(p, at, n, own, r);
                    restore_gradients(p, r);
                    if (r.present) length = (int)length_of(p, r.n);
                    load_saved(p, from, t, n, length, r, saved);
                }
                float dh = r.carry;
                if (s > 0) {
                    uint4 v[8]; /* more words would need too many registers */
                    float sums[COPIES][M][4] = {{{0}}};
                    const char *words = slot_at(ring, s, received + n * group_bytes);
                    receive_words(v, words, own.words);
                    multiply_words<T, 0>(sums, a, v, own.pairs);
                    if (WORDS > 8) {
                        receive_words(v, words + 8 * PAIR, own.words - 8);
                        multiply_words<T, WORDS - 8>(sums, a, v, own.pairs);
                    }
                    add_copies(sums);
                    dh += sum_warps(sums[0], buffer, own);
                }
                if (!completes) continue;
                if (s == steps) {
                    store_last_gradient<T>(p, dh, r);
                    continue;
                }
                set_step(p, saved, r);
                send_step(p, dh, slot_at(ring, s + 1, sent + n * group_bytes), r);
                store_step(p, from, n, r);
                if (keeps) keep_gradients(p, r);
                else {
                    backward_addresses<T> next = from;
                    advance_step(p, next);
                    load_saved(p, next, p.reverse ? t + 1 : t - 1, 0, length, r, saved);
                }
                clear_slots(ring, s, sent + n * group_bytes, (int)sizeof(T));
            }
    }
};

#define RESIDENT_KERNELS(dtype, T)                                               \
    RECURRENT_KERNEL(resident_grad_2x8_##dtype, resident_backward<T, 2, 8>::run) \
    RECURRENT_KERNEL(resident_grad_1x16_##dtype, resident_backward<T, 1, 16>::run)

RESIDENT_KERNELS(f16, f16_element)
RESIDENT_KERNELS(bf16, bf16_element)
RESIDENT_KERNELS(tf32, float)
