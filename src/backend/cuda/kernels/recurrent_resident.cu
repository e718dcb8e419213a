/* recurrent_resident.cu - recurrent layers in f16, bf16 and tf32 on tensor cores, with the recurrent
 * weights in registers for all steps.
 *
 * A block has the weights of some units, as fragments of its 8 warps, and some sequences of the
 * batch, which it computes in groups of 8, the width of a fragment. The operands of products are
 * rounded to 16 bits or to tf32; sums, states and gates stay in f32.
 *
 * Blocks with the same sequences exchange states, or gradients of gates, through a ring of slots in
 * global memory. No flag or counter tells that data have arrived: the data themselves do. A slot is
 * filled with EMPTY words, and a reader repeats its loads until no word is EMPTY. An exchange then
 * costs one store and one load. After half of the slots, c, a thread empties the next c that it will
 * write. In step s its block has read slot s, so all blocks have read slot s - 1 and those before,
 * and the slots of s + 3 to s + 2 + c are free. A fence follows, and after it the thread writes slot
 * s + 2, which all readers read before they read slot s + 3.
 */
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/recurrent.cuh"

enum {
    THREADS = GD_CUDA_RESIDENT_THREADS,
    WARPS = THREADS / 32,
    PAIR = GD_CUDA_RESIDENT_PAIR, /* bytes of a row that two k-tiles multiply: 16 of each lane */
};
static const uint32_t EMPTY = 0xffffffffu;

/* --- exchange --------------------------------------------------------------------------------- */

#ifdef __CUDACC__
static __device__ __forceinline__ void store_relaxed(void *to, uint32_t x) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
static __device__ __forceinline__ void store_relaxed(void *to, uint32_t x, uint32_t y) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x), "r"(y)
                 : "memory");
}
static __device__ __forceinline__ uint4 load_relaxed(const void *from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
static __device__ __forceinline__ bool any_lane(bool x) { return __any_sync(~0u, x); }
static __device__ __forceinline__ void fence_stores() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
#else
static inline void store_relaxed(void *to, uint32_t x) { *(uint32_t *)to = x; }
static inline void store_relaxed(void *to, uint32_t x, uint32_t y) {
    ((uint32_t *)to)[0] = x, ((uint32_t *)to)[1] = y;
}
static inline uint4 load_relaxed(const void *from) { return *(const uint4 *)from; }
static inline bool any_lane(bool own) { /* lanes may wait alone */
    if (own) emulated_wait();
    return own;
}
static inline void fence_stores() {}
#endif

static __device__ __forceinline__ bool has_empty(const uint4 &v) {
    return max(max(v.x, v.y), max(v.z, v.w)) == EMPTY;
}
/* A word that is not EMPTY: instead of two NaNs, or one, with all bits set it sends others. */
static __device__ __forceinline__ uint32_t sent_word(uint32_t x) {
    return x == EMPTY ? 0x7fff7fffu : x;
}

/* The ring of slots (slots, padded, row_bytes), which has less than 4 GiB. */
struct exchange_ring {
    char *base;
    uint32_t slot_bytes;
    int mask; /* slots - 1 */
};
static __device__ __forceinline__ exchange_ring exchange_ring_of(const gd_cuda_recurrent &p) {
    exchange_ring r;
    r.base = (char *)p.exchange;
    r.slot_bytes = (uint32_t)p.padded * (uint32_t)p.row_bytes;
    r.mask = p.slots - 1;
    return r;
}
static __device__ __forceinline__ char *slot_at(const exchange_ring &r, int slot,
                                                uint32_t offset) {
    return r.base + ((uint32_t)(slot & r.mask) * r.slot_bytes + offset);
}

/* Empties `words` words that this thread will write, after half of the slots at a time. */
static __device__ __forceinline__ void clear_slots(const exchange_ring &r, int s, uint32_t offset,
                                                   int words) {
    const int count = (r.mask + 1) / 2;
    if (s & (count - 1)) return;
    for (int i = 0; i < count; i++)
        for (int w = 0; w < words; w++) store_relaxed(slot_at(r, s + 3 + i, offset + w * 4), EMPTY);
    fence_stores();
}

/* Loads words of one row: word i is at from[i * PAIR] if i < count, else it is 0. */
template <int WORDS>
static __device__ __forceinline__ void receive_words(uint4 (&v)[WORDS], const char *from,
                                                     int count) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) v[i].x = v[i].y = v[i].z = v[i].w = 0;
    bool empty;
    do {
        empty = false;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            if (i < count) v[i] = load_relaxed(from + i * PAIR);
#pragma unroll
        for (int i = 0; i < WORDS; i++) empty |= has_empty(v[i]);
    } while (any_lane(empty));
}

/* --- fragments -------------------------------------------------------------------------------- */

/* Elements in the form in which tensor cores multiply them. In this file float is tf32. */
static __device__ __forceinline__ uint32_t element_bits(f16_element x) { return x.bits; }
static __device__ __forceinline__ uint32_t element_bits(bf16_element x) { return x.bits; }
static __device__ __forceinline__ uint32_t element_bits(float x) { return round_tf32(x); }

/* 16 bytes of aligned elements. */
template <typename T> static __device__ __forceinline__ uint4 rounded_word(const T *from) {
    return *(const uint4 *)from;
}
template <> __device__ __forceinline__ uint4 rounded_word(const float *from) {
    const float4 v = *(const float4 *)from;
    return uint4{round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w)};
}

/* The 16 bytes of elements k, k + 1, ... of a row, which element_at returns. */
template <typename T, typename F>
static __device__ __forceinline__ uint4 fragment_word(F element_at, long long k) {
    enum { EACH = 4 / sizeof(T) }; /* of a register */
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r[i] = element_bits(element_at(k + i * EACH));
        if (EACH == 2) r[i] |= element_bits(element_at(k + i * EACH + 1)) << 16;
    }
    uint4 v;
    v.x = r[0], v.y = r[1], v.z = r[2], v.w = r[3];
    return v;
}

/* The fragments a of two k-tiles, from the words of rows g and g + 8. The order of the elements of
 * k in a fragment is free if a and b have the same: lane t has the elements of its own word. */
static __device__ __forceinline__ void set_fragments(uint32_t (&first)[4], uint32_t (&second)[4],
                                                     const uint4 &low, const uint4 &high) {
    first[0] = low.x, first[1] = high.x, first[2] = low.y, first[3] = high.y;
    second[0] = low.z, second[1] = high.z, second[2] = low.w, second[3] = high.w;
}

/* sums[c] += a times the words, for c in turn, so that successive products are independent. */
template <typename T, int FIRST, int M, int WORDS, int TILES, int COPIES>
static __device__ __forceinline__ void multiply_words(float (&sums)[COPIES][M][4],
                                                      const uint32_t (&a)[M][TILES][4],
                                                      const uint4 (&v)[WORDS], int count) {
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        if (FIRST + i < count) {
            enum { LOW = 2 * FIRST };
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply_fragments<T>(sums[2 * i % COPIES][m], a[m][LOW + 2 * i], v[i].x, v[i].y);
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply_fragments<T>(sums[(2 * i + 1) % COPIES][m], a[m][LOW + 2 * i + 1], v[i].z,
                                      v[i].w);
        }
}
template <int M, int COPIES>
static __device__ __forceinline__ void add_copies(float (&sums)[COPIES][M][4]) {
#pragma unroll
    for (int c = COPIES / 2; c > 0; c /= 2)
#pragma unroll
        for (int k = 0; k < c; k++)
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) sums[k][m][e] += sums[k + c][m][e];
}

/* The position of a thread in a block. */
struct resident_thread {
    int lane, g, t, warp;
    int group; /* of the rows of weights; the warps of a group divide the depth */
    int slice, slices;
    int pairs, first; /* of a row, that this warp multiplies */
    int words;        /* of these that the lane has */
};
static __device__ __forceinline__ resident_thread resident_thread_of(const gd_cuda_recurrent &p) {
    resident_thread r;
    r.lane = (int)threadIdx.x % 32;
    r.warp = (int)threadIdx.x / 32;
    r.g = r.lane / 4;
    r.t = r.lane % 4;
    r.slices = WARPS / p.groups;
    r.group = r.warp / r.slices;
    r.slice = r.warp % r.slices;
    const int pairs = (p.row_bytes + PAIR - 1) / PAIR, share = (pairs + r.slices - 1) / r.slices;
    r.first = r.slice * share;
    r.pairs = min(share, pairs - r.first);
    const int bytes = p.row_bytes - r.first * PAIR - r.t * 16;
    r.words = max(0, min(r.pairs, (bytes + PAIR - 16) / PAIR));
    return r;
}
/* The offset in a slot of the words of the thread for 8 sequences. */
static __device__ __forceinline__ uint32_t received_offset(const gd_cuda_recurrent &p,
                                                           long long sequence,
                                                           const resident_thread &own) {
    return (uint32_t)(sequence + own.g) * (uint32_t)p.row_bytes +
           (uint32_t)(own.first * PAIR + own.t * 16);
}

/* Keeps the compiler from moving loads of weights up, which needs more registers than there are. */
static __device__ __forceinline__ void stop_hoisting() {
#ifdef __CUDACC__
    asm volatile("" ::: "memory");
#endif
}

static __device__ __forceinline__ void prefetch_line(const void *p) {
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
    (void)p;
#endif
}

/* --- forward ---------------------------------------------------------------------------------- */

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
                        narrow(0, &zero);
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
    narrow(h, &narrowed);
    const uint32_t bits = narrowed.bits, next = __shfl_xor_sync(~0u, bits, 4);
    if (unit % 2 == 0) store_relaxed(to, sent_word(bits | next << 16));
}

/* Addresses of the unit of a thread for the first sequence of the thread, in the current step. A
 * step adds strides to them: 64-bit products in each step would cost more than the arithmetic. */
template <typename T>
struct forward_addresses {
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
template <typename T>
static __device__ __forceinline__ void advance_step(forward_addresses<T> &a) {
    a.sums += a.sums_step;
    a.y += a.step;
    if (a.gates) a.gates += a.gates_step;
    if (a.cells) a.cells += a.step;
}

template <typename T, int M, int WORDS>
struct resident_forward {
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

    static __device__ __forceinline__ void prefetch_parts(const gd_cuda_recurrent &p,
                                                          const float *from,
                                                          const unit_step<float> &r) {
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
        narrow(h, a.y + rows);
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
        if (p.h) narrow(r.h, (T *)p.h + cell);
        if (p.c && p.cell == GD_CUDA_CELL_LSTM) narrow(r.c, (T *)p.c + cell);
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
        int length = p.lengths && r.n < p.batch ? (int)p.lengths[r.n] : steps, buffer = 0;
        for (int s = 0; s < steps; s++, advance_step(to))
            for (int n = 0; n < p.sequence_groups; n++, buffer ^= 1) {
                const int t = p.reverse ? steps - 1 - s : s;
                uint4 v[WORDS];
                float sums[COPIES][M][4] = {{{0}}};
                if (keeps) {
                    place(p, at, n, own, r);
                    restore_state(p, r);
                    load_parts(p, to.sums + n * group_sums, r);
                    if (p.lengths && r.present) length = (int)p.lengths[r.n];
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
                if (sizeof(T) == 4 || r.u % 2 == 0)
                    clear_slots(ring, s, sent + n * group_bytes, 1);
            }
    }
};

/* --- backward --------------------------------------------------------------------------------- */

/* The gradients of the gates of a unit are adjacent in the exchange: element 4u + k is that of gate
 * k. Cells with fewer gates send zeros. A warp has M m-tiles of 16 units. */
template <typename T>
static __device__ __forceinline__ T column_element(const gd_cuda_recurrent &p, long long k,
                                                   long long u) {
    const long long gate = k % 4, from = k / 4;
    T zero;
    narrow(0, &zero);
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
                const bool inside =
                    i < own.pairs && from + 4 * i < hidden && u + half * 8 < hidden;
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
template <typename T>
struct saved_step {
    bool active;
    T gy, y; /* y: that of an rnn, or h before the step of a gru */
    float gates[4], result, before;
};

/* Addresses as in the forward kernels. */
template <typename T>
struct backward_addresses {
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

template <typename T, int M, int WORDS>
struct resident_backward {
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
            narrow(0, &v.y);
            if (!begins) v.y = a.y[rows + a.step];
            else if (p.h0) v.y = ((const T *)p.h0)[r.n * p.hidden + r.u];
        } else if (p.wide_y) v.result = a.wide_y[rows];
        else v.y = a.y[rows];
    }
    static __device__ __forceinline__ void set_step(const gd_cuda_recurrent &p,
                                                    const saved_step<T> &v,
                                                    unit_gradient<float> &r) {
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
        for (int i = 0; i < 4 * M; i++)
            partials[(own.warp * 4 * M + i) * 32] = sums[i / 4][i % 4];
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
            if (k < p.parts) narrow(r.g[k], a.gradients + (n * 8 * p.parts + k) * hidden);
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
        if (p.lengths && r.present) length = min(steps, (int)p.lengths[r.n]);
        if (!keeps) load_saved(p, from, p.reverse ? 0 : steps - 1, 0, length, r, saved);
        __syncthreads(); /* load_columns has used the memory of the partial sums */
        for (int s = 0; s <= steps; s++, advance_step(p, from)) /* the last one computes gh0 */
            for (int n = 0; n < p.sequence_groups; n++, buffer ^= 1) {
                const int t = p.reverse ? s : steps - 1 - s;
                if (keeps) {
                    place(p, at, n, own, r);
                    restore_gradients(p, r);
                    if (p.lengths && r.present) length = min(steps, (int)p.lengths[r.n]);
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

/* --- kernels ---------------------------------------------------------------------------------- */

#define RESIDENT_KERNELS(dtype, T)                                                       \
    RECURRENT_KERNEL(resident_4x4_##dtype, resident_forward<T, 4, 4>::run)               \
    RECURRENT_KERNEL(resident_2x8_##dtype, resident_forward<T, 2, 8>::run)               \
    RECURRENT_KERNEL(resident_grad_2x8_##dtype, resident_backward<T, 2, 8>::run)         \
    RECURRENT_KERNEL(resident_grad_1x16_##dtype, resident_backward<T, 1, 16>::run)

RESIDENT_KERNELS(f16, f16_element)
RESIDENT_KERNELS(bf16, bf16_element)
RESIDENT_KERNELS(tf32, float)
