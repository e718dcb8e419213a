/* recurrent.cu - a recurrent layer over an entire sequence, and backpropagation through time, with
 * one kernel each.
 *
 * Weights stay in shared memory. The input's part of a step does not depend on other blocks, so it
 * is computed before the block waits for the states of the step before.
 */
#include "ops/recurrent/cuda/recurrent.cuh"

enum { THREADS = GD_CUDA_RECURRENT_THREADS, PAD = GD_CUDA_RECURRENT_PAD };

template <typename T> struct alignas(sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16) four_of { T at[4]; };

/* Four elements that another block may have written. */
static __device__ __forceinline__ void load_four(const float *p, float *to) {
    const float4 v = __ldcg((const float4 *)p);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
static __device__ __forceinline__ void load_four(const double *p, double *to) {
    const double2 a = __ldcg((const double2 *)p), b = __ldcg((const double2 *)p + 1);
    to[0] = a.x, to[1] = a.y, to[2] = b.x, to[3] = b.y;
}

static __device__ __forceinline__ float multiply_add(float a, float b, float c) {
    return fmaf(a, b, c);
}
static __device__ __forceinline__ double multiply_add(double a, double b, double c) {
    return fma(a, b, c);
}

/* --- tiles ------------------------------------------------------------------------------------ */

/* The threads of a tile: `lanes` threads compute all sums for one slice of the depth. */
template <int COLUMNS, int BATCH> struct tile_shape {
    enum {
        columns = COLUMNS,
        batch = BATCH,
        lanes = COLUMNS / 8 * (BATCH / 4),
        slices = THREADS / lanes,
        row = BATCH + PAD, /* of partial sums */
        sums = COLUMNS * row,
    };
};
typedef tile_shape<GD_CUDA_FORWARD_COLUMNS, GD_CUDA_FORWARD_BATCH> forward_tile;
typedef tile_shape<GD_CUDA_BACKWARD_COLUMNS, GD_CUDA_BACKWARD_BATCH> backward_tile;

/* The position of a thread: its first column and sequence in the tile, and its slice. */
struct tile_thread {
    int column, sequence, slice;
};
template <typename S> static __device__ __forceinline__ tile_thread tile_thread_of() {
    const int lane = (int)threadIdx.x % S::lanes;
    tile_thread t;
    t.sequence = lane % (S::batch / 4) * 4;
    t.column = lane / (S::batch / 4) * 8;
    t.slice = (int)threadIdx.x / S::lanes;
    return t;
}

/* sums[c][n] += weights[k][column + c] * values[n] for one k. */
template <typename S, typename W>
static __device__ __forceinline__ void add_products(W sums[8][4], const W *weights,
                                                    const W *values) {
    const four_of<W> low = *(const four_of<W> *)weights, high = *(const four_of<W> *)(weights + 4);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            sums[c][n] = multiply_add(low.at[c], values[n], sums[c][n]);
            sums[c + 4][n] = multiply_add(high.at[c], values[n], sums[c + 4][n]);
        }
}

/* Adds weights (depth, columns) times values (depth, padded), which other blocks have written. */
template <typename S, typename W>
static __device__ __forceinline__ void multiply_exchange(W sums[8][4], const W *weights,
                                                         const W *values, long long depth,
                                                         long long padded, const tile_thread &t) {
    const long long share = (depth + S::slices - 1) / S::slices;
    long long k = share * t.slice;
    const long long end = k + share < depth ? k + share : depth;
    const W *w = weights + t.column, *v = values + t.sequence;
    enum { AHEAD = 4 };
    for (; k + AHEAD <= end; k += AHEAD) {
        W loaded[AHEAD][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) load_four(v + (k + i) * padded, loaded[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            add_products<S, W>(sums, w + (k + i) * S::columns, loaded[i]);
    }
    for (; k < end; k++) {
        W loaded[4];
        load_four(v + k * padded, loaded);
        add_products<S, W>(sums, w + k * S::columns, loaded);
    }
}

/* Adds weights (inputs, columns) times the rows of x (batch, inputs) from `first` on. */
template <typename S, typename T, typename W>
static __device__ __forceinline__ void multiply_input(W sums[8][4], const W *weights, const T *x,
                                                      long long inputs, long long rows,
                                                      const tile_thread &t) {
    const long long share = ((inputs + S::slices - 1) / S::slices + 3) / 4 * 4;
    long long k = share * t.slice;
    const long long end = k + share < inputs ? k + share : inputs;
    const W *w = weights + t.column;
    const T *row[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const long long last = rows - 1, own = t.sequence + n;
        row[n] = x + (own < last ? own : last) * inputs; /* any row: its sums are not used */
    }
    if (inputs % 4 == 0 && (uintptr_t)x % sizeof(four_of<T>) == 0) {
#pragma unroll 2
        for (; k + 4 <= end; k += 4) {
            four_of<T> loaded[4];
#pragma unroll
            for (int n = 0; n < 4; n++) loaded[n] = *(const four_of<T> *)(row[n] + k);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                W values[4];
#pragma unroll
                for (int n = 0; n < 4; n++) values[n] = widen(loaded[n].at[i]);
                add_products<S, W>(sums, w + (k + i) * S::columns, values);
            }
        }
    }
    for (; k < end; k++) {
        W values[4];
#pragma unroll
        for (int n = 0; n < 4; n++) values[n] = widen(row[n][k]);
        add_products<S, W>(sums, w + k * S::columns, values);
    }
}

/* Writes the sums of a thread; sum_partials adds them up. */
template <typename S, typename W>
static __device__ __forceinline__ void store_partials(const W sums[8][4], W *partials,
                                                      const tile_thread &t) {
    W *to = partials + t.slice * S::sums + t.column * S::row + t.sequence;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        four_of<W> v;
#pragma unroll
        for (int n = 0; n < 4; n++) v.at[n] = sums[c][n];
        *(four_of<W> *)(to + c * S::row) = v;
    }
}
template <typename S, typename W>
static __device__ __forceinline__ W sum_partials(const W *partials, int column, int sequence) {
    W parts[4] = {0, 0, 0, 0};
    const W *p = partials + column * S::row + sequence;
#pragma unroll
    for (int s = 0; s < S::slices; s++) parts[s % 4] += p[s * S::sums];
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Column g * units + u of the packed weights has the weights of sum g of unit u: first those of the
 * inputs, then those of the states. Each thread packs parts of one column. */
template <typename T, typename W>
static __device__ void pack_forward(const gd_cuda_recurrent &p, const tile_place &at, int units,
                                    W *packed) {
    enum { COLUMNS = forward_tile::columns, RUN = 8, STEP = THREADS / COLUMNS * RUN };
    const int column = (int)threadIdx.x % COLUMNS;
    for (int input = p.input_sums ? 0 : 1; input >= 0; input--) {
        const long long depth = input ? p.inputs : p.hidden;
        const T *from = forward_weights<T>(p, column / units, at.unit + column % units, input);
        for (long long first = (int)threadIdx.x / COLUMNS * RUN; first < depth; first += STEP)
            for (long long k = first; k < first + RUN && k < depth; k++)
                packed[k * COLUMNS + column] = from ? widen(from[k]) : 0;
        packed += depth * COLUMNS;
    }
}

template <typename T> static __device__ void run_forward(const gd_cuda_recurrent &p) {
    typedef typename wide_type<T>::type W;
    typedef forward_tile S;
    const int per_unit = columns_per_unit(p), units = S::columns / per_unit;
    const int tiles = p.unit_tiles * p.batch_tiles, threads = units * S::batch;
    const bool single = tiles <= (int)gridDim.x; /* a block has one tile */
    const long long inputs = p.input_sums ? 0 : p.inputs, depth = inputs + p.hidden;
    const tile_thread own = tile_thread_of<S>();
    W *partials = (W *)shared_memory, *shared_weights = partials + S::slices * S::sums;
    unit_step<W> units_of_thread[2]; /* an rnn has more units than threads */
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const tile_place at = tile_place_of(p, tile, units, S::batch);
        pack_forward<T, W>(p, at, units,
                           p.packed ? (W *)p.packed + tile * depth * S::columns : shared_weights);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            unit_step<W> &r = units_of_thread[k];
            place_unit(p, at, units, S::batch, (int)threadIdx.x + k * THREADS, r);
            load_unit<T>(p, r);
            load_sums(p, p.reverse ? p.steps - 1 : 0, r);
            if (r.present) ((W *)p.exchange)[r.u * p.padded + r.n] = r.h;
            if (!single) keep_state(p, r);
        }
        complete_tile(at.counter);
    }
    for (long long s = 0; s < p.steps; s++) {
        const long long t = p.reverse ? p.steps - 1 - s : s, size = p.hidden * p.padded;
        const bool last = s + 1 == p.steps;
        const W *before = (const W *)p.exchange + (s & 1) * size;
        W *after = (W *)p.exchange + (~s & 1) * size;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const tile_place at = tile_place_of(p, tile, units, S::batch);
            const W *packed =
                p.packed ? (const W *)p.packed + tile * depth * S::columns : shared_weights;
            W sums[8][4] = {{0}};
            if (inputs > 0)
                multiply_input<S, T, W>(sums, packed,
                                        (const T *)p.x + (t * p.batch + at.sequence) * inputs,
                                        inputs, p.batch - at.sequence, own);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                unit_step<W> &r = units_of_thread[k];
                if (single) continue;
                place_unit(p, at, units, S::batch, (int)threadIdx.x + k * THREADS, r);
                load_unit<T>(p, r);
                restore_state(p, r);
                load_sums(p, t, r);
            }
            wait_for_tiles(at.counter, (unsigned)((s + 1) * p.unit_tiles));
            multiply_exchange<S, W>(sums, packed + inputs * S::columns, before + at.sequence,
                                    p.hidden, p.padded, own);
            store_partials<S, W>(sums, partials, own);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < 2; k++) {
                unit_step<W> &r = units_of_thread[k];
                const int i = (int)threadIdx.x + k * THREADS;
                if (k * THREADS >= threads || !r.present) continue;
                W gates[4] = {0, 0, 0, 0};
#pragma unroll
                for (int g = 0; g < 4; g++)
                    if (g < per_unit)
                        gates[g] = sum_partials<S, W>(partials, g * units + i % units, i / units) +
                                   (r.sums[g] + r.bias[g]);
                compute_unit(p, gates, is_active(p, t, r.n), r);
                after[r.u * p.padded + r.n] = r.h;
            }
            complete_tile(at.counter);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                unit_step<W> &r = units_of_thread[k];
                if (k * THREADS >= threads) continue;
                if (single && !last) load_sums(p, p.reverse ? t - 1 : t + 1, r);
                if (!single) keep_state(p, r);
                store_unit<T>(p, t, r, last);
            }
        }
    }
}

/* --- backward --------------------------------------------------------------------------------- */

/* w_hh (G*H, H): columns of the tile's units. */
template <typename T, typename W>
static __device__ void pack_backward(const gd_cuda_recurrent &p, const tile_place &at, W *packed) {
    for (long long i = threadIdx.x; i < p.depth * backward_tile::columns; i += THREADS) {
        const long long u = at.unit + i % backward_tile::columns, k = i / backward_tile::columns;
        packed[i] = u < p.hidden ? widen(((const T *)p.w_hh)[k * p.hidden + u]) : 0;
    }
}

template <typename S, typename W>
static __device__ __forceinline__ void place_gradient(const gd_cuda_recurrent &p,
                                                      const tile_place &at, unit_gradient<W> &r) {
    const int i = (int)threadIdx.x;
    r.n = at.sequence + i / S::columns;
    r.u = at.unit + i % S::columns;
    r.present = i < S::columns * S::batch && r.u < p.hidden && r.n < p.batch;
}

template <typename T> static __device__ void run_backward(const gd_cuda_recurrent &p) {
    typedef typename wide_type<T>::type W;
    typedef backward_tile S;
    const int tiles = p.unit_tiles * p.batch_tiles, i = (int)threadIdx.x;
    const bool single = tiles <= (int)gridDim.x; /* a block has one tile */
    const tile_thread own = tile_thread_of<S>();
    W *partials = (W *)shared_memory, *shared_weights = partials + S::slices * S::sums;
    unit_gradient<W> r;
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const tile_place at = tile_place_of(p, tile, S::columns, S::batch);
        pack_backward<T, W>(
            p, at, p.packed ? (W *)p.packed + tile * p.depth * S::columns : shared_weights);
        place_gradient<S>(p, at, r);
        load_gradients<T>(p, r);
        if (!single) keep_gradients(p, r);
    }
    __syncthreads();
    for (long long s = 0; s <= p.steps; s++) { /* the last one computes gh0 */
        const long long t = p.reverse ? s : p.steps - 1 - s, size = p.depth * p.padded;
        const W *before = (const W *)p.exchange + (s & 1) * size;
        W *after = (W *)p.exchange + (~s & 1) * size;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const tile_place at = tile_place_of(p, tile, S::columns, S::batch);
            if (!single) {
                place_gradient<S>(p, at, r);
                restore_gradients(p, r);
            }
            if (s < p.steps) load_step<T>(p, t, r);
            if (s > 0) {
                W sums[8][4] = {{0}};
                wait_for_tiles(at.counter, (unsigned)(s * p.unit_tiles));
                multiply_exchange<S, W>(sums,
                                        p.packed ? (const W *)p.packed + tile * p.depth * S::columns
                                                 : shared_weights,
                                        before + at.sequence, p.depth, p.padded, own);
                store_partials<S, W>(sums, partials, own);
            }
            __syncthreads();
            if (r.present) {
                W dh = r.carry;
                if (s > 0) dh += sum_partials<S, W>(partials, i % S::columns, i / S::columns);
                if (s == p.steps) store_last_gradient<T>(p, dh, r);
                else {
                    compute_gradient(p, dh, r);
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (k < weight_blocks(p))
                            after[(k * p.hidden + r.u) * p.padded + r.n] =
                                block_gradient(p, r.g, k);
                }
            }
            complete_tile(at.counter);
            if (!single) keep_gradients(p, r);
            if (s < p.steps) store_gradients<T>(p, t, r);
        }
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

#define RECURRENT_KERNELS(dtype, T)         \
    RECURRENT_KERNEL(dtype, run_forward<T>) \
    RECURRENT_KERNEL(grad_##dtype, run_backward<T>)

RECURRENT_KERNELS(f64, double)
RECURRENT_KERNELS(f32, float)
RECURRENT_KERNELS(f16, f16_element)
RECURRENT_KERNELS(bf16, bf16_element)
