/* recurrent_resident.cu - recurrent layers with weights in registers (see the header). */
#include "ops/recurrent/cuda/recurrent_resident.cuh"

/* A warp has M m-tiles. Tiles 2j and 2j + 1 have the four sums of 8 units: rows g and g + 8 of the
 * first are sums 0 and 1 of unit g, those of the second sums 2 and 3. So a lane has all sums of one
 * unit for two sequences. Warp i of the slices completes number i of these 2 * M / 2 results. */
template <typename T, int M, int WORDS, typename F>
static __device__ __forceinline__ void load_rows_by(const gd_cuda_recurrent &p, long long unit,
                                                    const resident_thread &own, F load_word,
                                                    uint32_t (&a)[M][2 * WORDS][4]) {
    const int k = (own.first * PAIR + own.t * 16) / (int)sizeof(T);
#pragma unroll
    for (int m = 0; m < M; m++) {
        const T *row[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int number = m % 2 * 2 + half;
            row[half] = number < columns_per_unit(p)
                            ? forward_weights<T>(p, number, unit + m / 2 * 8 + own.g, false)
                            : NULL;
        }
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            uint4 v[2];
#pragma unroll
            for (int half = 0; half < 2; half++)
                v[half] = row[half] && i < own.pairs
                              ? load_word(row[half], k + i * (PAIR / (int)sizeof(T)))
                              : uint4{0, 0, 0, 0};
            set_fragments(a[m][2 * i], a[m][2 * i + 1], v[0], v[1]);
        }
    }
}
template <typename T, int M, int WORDS>
static __device__ __forceinline__ void load_rows(const gd_cuda_recurrent &p, long long unit,
                                                 const resident_thread &own,
                                                 uint32_t (&a)[M][2 * WORDS][4]) {
    const int hidden = (int)p.hidden;
    if (hidden % (16 / (int)sizeof(T)) == 0 && (uintptr_t)p.w_hh % 16 == 0)
        load_rows_by<T, M, WORDS>(
            p, unit, own,
            [&](const T *row, int k) {
                return k < hidden ? rounded_word(row + k) : uint4{0, 0, 0, 0};
            },
            a);
    else
        load_rows_by<T, M, WORDS>(
            p, unit, own,
            [&](const T *row, int k) {
                stop_hoisting();
                return fragment_word<T>(
                    [&](long long e) {
                        T zero;
                        store_narrow(0, &zero);
                        return e < hidden ? row[e] : zero;
                    },
                    k);
            },
            a);
}

/* Sends the state of a unit. Lanes of 8 units have the same sequence. */
static __device__ __forceinline__ void send_state(char *to, float h, int, float) {
    store_relaxed(to, sent_word(round_tf32(h)));
}
template <typename T>
static __device__ __forceinline__ void send_state(char *to, float h, int unit, T) {
    T narrowed;
    store_narrow(h, &narrowed);
    const uint32_t bits = narrowed.bits, next = __shfl_xor_sync(~0u, bits, 4);
    if (unit % 2 == 0) store_relaxed(to, sent_word(bits | next << 16));
}

/* Addresses of the unit of a thread for the first sequence of the thread, in the current step. A
 * step adds strides to them: 64-bit products in each step would cost more than the arithmetic. */
template <typename T> struct forward_addresses {
    const float *sums;
    float *gates, *cells; /* or NULL */
    T *y;
    long long sums_step, gates_step, step;
    int parts; /* of gates */
};

template <typename T>
static __device__ __forceinline__ forward_addresses<T>
forward_addresses_of(const gd_cuda_recurrent &p, const unit_step<float> &r) {
    const long long t = p.reverse ? p.steps - 1 : 0, way = p.reverse ? -1 : 1,
                    row = t * p.batch + r.n;
    forward_addresses<T> a;
    a.parts = columns_per_unit(p);
    a.sums = (const float *)p.input_sums + row * p.depth + r.u;
    a.gates = p.gates ? (float *)p.gates + row * a.parts * p.hidden + r.u : NULL;
    a.cells = p.cells ? (float *)p.cells + row * p.hidden + r.u : NULL;
    a.y = (T *)p.y + row * p.hidden + r.u;
    a.step = way * p.batch * p.hidden;
    a.sums_step = way * p.batch * p.depth;
    a.gates_step = a.step * a.parts;
    return a;
}
template <typename T> static __device__ __forceinline__ void advance_step(forward_addresses<T> &a) {
    a.sums += a.sums_step;
    a.y += a.step;
    if (a.gates) a.gates += a.gates_step;
    if (a.cells) a.cells += a.step;
}

template <typename T, int M, int WORDS> struct resident_forward {
    enum { COPIES = 4 / M > 1 ? 4 / M : 1 };

    static __device__ __forceinline__ void place(const gd_cuda_recurrent &p, const tile_place &at,
                                                 int n, const resident_thread &own,
                                                 unit_step<float> &r) {
        r.n = at.sequence + n * 8 + 2 * own.t + own.slice % 2;
        r.u = at.unit + own.group * 4 * M + own.slice / 2 * 8 + own.g;
        r.present = own.slice < M && r.u < p.hidden && r.n < p.batch;
    }

    /* The input's part of the sums; that of a gru has three. */
    static __device__ __forceinline__ void load_parts(const gd_cuda_recurrent &p, const float *from,
                                                      unit_step<float> &r) {
        const int hidden = (int)p.hidden, depth = (int)p.depth;
        if (!r.present) return;
#pragma unroll
        for (int g = 0; g < 4; g++)
            if (g * hidden < depth) r.sums[g] = from[g * hidden];
    }

    static __device__ __forceinline__ void
    prefetch_parts(const gd_cuda_recurrent &p, const float *from, const unit_step<float> &r) {
        if (!r.present || r.u % 8 != 0) return; /* 8 units are a sector */
        for (int g = 0; g * p.hidden < p.depth; g++) prefetch_line(from + g * p.hidden);
    }

    /* The sums of the gates of the thread's unit, from the sums of all slices of the depth. The
     * partial sums (2, WARPS, M, 32) have two buffers in turn: a warp that is one step ahead does
     * not write what another one reads. */
    static __device__ __forceinline__ float4 sum_slices(const float (&sums)[M][4], int buffer,
                                                        const resident_thread &own) {
        float4 *partials = (float4 *)shared_memory + buffer * WARPS * M * 32 + own.lane;
        float4 total = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < M; i++) {
            const int j = i / 2 * 2, e = i % 2;
            const float4 part = {sums[j][e], sums[j][2 + e], sums[j + 1][e], sums[j + 1][2 + e]};
            if (i == own.slice) total = part;
            else partials[(own.warp * M + i) * 32] = part;
        }
        __syncthreads();
        if (own.slice >= M) return total;
        const float4 *from = partials + (own.group * own.slices * M + own.slice) * 32;
#pragma unroll
        for (int k = 1; k < WARPS; k++)
            if (k < own.slices) {
                const float4 part = from[(own.slice ^ k) * M * 32];
                total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
            }
        return total;
    }

    /* Writes the results of a step of group n. */
    static __device__ __forceinline__ void store_step(const gd_cuda_recurrent &p,
                                                      const forward_addresses<T> &a, int n,
                                                      const unit_step<float> &r) {
        const int hidden = (int)p.hidden, rows = n * 8 * hidden;
        const float h = r.active ? r.h : 0;
        if (!r.present) return;
        store_narrow(h, a.y + rows);
        if (a.cells) a.cells[rows] = r.active ? r.c : 0;
        if (!a.gates) return;
        if (a.parts == 1) a.gates[rows] = h;
        else
#pragma unroll
            for (int g = 0; g < 4; g++) a.gates[4 * rows + g * hidden] = r.gates[g];
    }

    static __device__ __forceinline__ void store_last(const gd_cuda_recurrent &p,
                                                      const unit_step<float> &r) {
        const long long cell = r.n * p.hidden + r.u;
        if (!r.present) return;
        if (p.h) store_narrow(r.h, (T *)p.h + cell);
        if (p.c && p.cell == GD_CUDA_CELL_LSTM) store_narrow(r.c, (T *)p.c + cell);
    }

    static __device__ void run(const gd_cuda_recurrent &p) {
        const resident_thread own = resident_thread_of(p);
        const exchange_ring ring = exchange_ring_of(p);
        const tile_place at =
            tile_place_of(p, (int)blockIdx.x, p.groups * 4 * M, p.sequence_groups * 8);
        const bool keeps = p.sequence_groups > 1, completes = own.slice < M;
        const int steps = (int)p.steps, group_bytes = 8 * p.row_bytes;
        const long long group_sums = 8 * p.depth;
        uint32_t a[M][2 * WORDS][4];
        unit_step<float> r;
        load_rows<T, M, WORDS>(p, at.unit + own.group * 4 * M, own, a);
        place(p, at, 0, own, r);
        forward_addresses<T> to = forward_addresses_of<T>(p, r);
        const uint32_t received = received_offset(p, at.sequence, own),
                       sent = (uint32_t)r.n * (uint32_t)p.row_bytes +
                              (uint32_t)r.u * (uint32_t)sizeof(T);
        for (int n = 0; n < p.sequence_groups; n++) {
            place(p, at, n, own, r);
            load_unit<T>(p, r);
            if (completes) send_state(slot_at(ring, 0, sent + n * group_bytes), r.h, (int)r.u, T{});
            if (keeps) keep_state(p, r);
        }
        if (!keeps) load_parts(p, to.sums, r);
        int length = r.n < p.batch ? (int)length_of(p, r.n) : steps, buffer = 0;
        for (int s = 0; s < steps; s++, advance_step(to))
            for (int n = 0; n < p.sequence_groups; n++, buffer ^= 1) {
                const int t = p.reverse ? steps - 1 - s : s;
                uint4 v[WORDS];
                float sums[COPIES][M][4] = {{{0}}};
                if (keeps) {
                    place(p, at, n, own, r);
                    restore_state(p, r);
                    load_parts(p, to.sums + n * group_sums, r);
                    if (r.present) length = (int)length_of(p, r.n);
                }
                receive_words(v, slot_at(ring, s, received + n * group_bytes), own.words);
                multiply_words<T, 0>(sums, a, v, own.pairs);
                add_copies(sums);
                const float4 total = sum_slices(sums[0], buffer, own);
                if (!completes) continue;
                float gates[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
                for (int g = 0; g < 4; g++) gates[g] += r.sums[g] + r.bias[g];
                if (r.present) compute_unit(p, gates, t < length, r);
                send_state(slot_at(ring, s + 1, sent + n * group_bytes), r.h, (int)r.u, T{});
                if (s + 1 == steps) store_last(p, r);
                else if (keeps) prefetch_parts(p, to.sums + to.sums_step + n * group_sums, r);
                else load_parts(p, to.sums + to.sums_step, r);
                if (keeps) keep_state(p, r);
                store_step(p, to, n, r);
                if (sizeof(T) == 4 || r.u % 2 == 0) clear_slots(ring, s, sent + n * group_bytes, 1);
            }
    }
};

#define RESIDENT_KERNELS(dtype, T)                                         \
    RECURRENT_KERNEL(resident_4x4_##dtype, resident_forward<T, 4, 4>::run) \
    RECURRENT_KERNEL(resident_2x8_##dtype, resident_forward<T, 2, 8>::run)

RESIDENT_KERNELS(f16, f16_element)
RESIDENT_KERNELS(bf16, bf16_element)
RESIDENT_KERNELS(tf32, float)
