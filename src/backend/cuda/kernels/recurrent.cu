/* recurrent.cu - a recurrent layer over an entire sequence, and backpropagation through time, with
 * one kernel each.
 *
 * Weights stay in shared memory. The input's part of a step does not depend on other blocks, so it
 * is computed before the block waits for the states of the step before.
 */
#include "backend/cuda/kernels/recurrent.h"
#include "backend/cuda/kernels/typed.cuh"

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char shared_memory[];
#else
#define shared_memory emulated_shared
#endif

enum { THREADS = GD_CUDA_RECURRENT_THREADS, PAD = GD_CUDA_RECURRENT_PAD };

template <typename T>
struct alignas(sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16) four_of {
    T at[4];
};

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

static __device__ __forceinline__ void narrow(double x, double *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, float *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, f16_element *y) {
    y->bits = gd_f32_to_f16(x);
}
static __device__ __forceinline__ void narrow(float x, bf16_element *y) {
    y->bits = gd_f32_to_bf16(x);
}

static __device__ __forceinline__ float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
static __device__ __forceinline__ double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static __device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
static __device__ __forceinline__ double tanh_of(double x) { return tanh(x); }
template <typename W>
static __device__ __forceinline__ W sigmoid_slope(W y) {
    return y * (1 - y);
}

/* --- tiles ------------------------------------------------------------------------------------ */

/* The threads of a tile: `lanes` threads compute all sums for one slice of the depth. */
template <int COLUMNS, int BATCH>
struct tile_shape {
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
template <typename S>
static __device__ __forceinline__ tile_thread tile_thread_of() {
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
    for (; k + 8 <= end; k += 8) {
        W loaded[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++) load_four(v + (k + i) * padded, loaded[i]);
#pragma unroll
        for (int i = 0; i < 8; i++) add_products<S, W>(sums, w + (k + i) * S::columns, loaded[i]);
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

/* --- order of the blocks ---------------------------------------------------------------------- */

/* Waits until `count` tiles are complete. */
static __device__ __forceinline__ void wait_for_tiles(const unsigned *counter, unsigned count) {
    if (threadIdx.x == 0) {
        while (*(const volatile unsigned *)counter < count) {
        }
        __threadfence();
    }
    __syncthreads();
}

static __device__ __forceinline__ void complete_tile(unsigned *counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
    }
}

/* A tile: units from `unit` on, sequences from `sequence` on. Block b has the tiles b, b + blocks,
 * ... */
struct tile_place {
    int units; /* number of the tile of units */
    long long unit, sequence;
    unsigned *counter;
};
static __device__ __forceinline__ tile_place tile_place_of(const gd_cuda_recurrent &p, int tile,
                                                           int units, int batch) {
    tile_place at;
    const int b = tile / p.unit_tiles;
    at.units = tile - b * p.unit_tiles;
    at.unit = (long long)at.units * units;
    at.sequence = (long long)b * batch;
    at.counter = p.counters + 32 * b;
    return at;
}

/* --- forward ---------------------------------------------------------------------------------- */

template <typename T>
static __device__ __forceinline__ typename wide_type<T>::type optional_element(const void *p,
                                                                              long long i) {
    return p ? widen(((const T *)p)[i]) : 0;
}

/* Columns of packed weights for each unit. For a gru: reset, update, the input's part of the new
 * gate, and the state's part of it. */
static __device__ __forceinline__ int columns_per_unit(const gd_cuda_recurrent &p) {
    return p.cell == GD_CUDA_CELL_LSTM || p.cell == GD_CUDA_CELL_GRU ? 4 : 1;
}

/* Column g * units + u of the packed weights has the weights of gate g of unit u. */
template <typename T, typename W>
static __device__ void pack_forward(const gd_cuda_recurrent &p, const tile_place &at, int units,
                                    W *packed) {
    const long long depth = p.inputs + p.hidden;
    for (long long i = threadIdx.x; i < depth * forward_tile::columns; i += THREADS) {
        const int column = (int)(i % forward_tile::columns);
        const long long k = i / forward_tile::columns, unit = at.unit + column % units;
        const bool input = k < p.inputs, gru = p.cell == GD_CUDA_CELL_GRU;
        int gate = column / units;
        bool absent = unit >= p.hidden;
        if (gru && gate == 2) absent = absent || !input;
        if (gru && gate == 3) {
            absent = absent || input;
            gate = 2;
        }
        const long long row = gate * p.hidden + unit;
        packed[i] = absent  ? 0
                    : input ? widen(((const T *)p.w_ih)[row * p.inputs + k])
                            : widen(((const T *)p.w_hh)[row * p.hidden + k - p.inputs]);
    }
}

/* The sum of both biases of a gate; those of a gru's new gate are separate. */
template <typename T>
static __device__ __forceinline__ typename wide_type<T>::type bias_of(const gd_cuda_recurrent &p,
                                                                     int gate, long long unit) {
    if (p.cell == GD_CUDA_CELL_GRU && gate >= 2)
        return gate == 2 ? optional_element<T>(p.b_ih, 2 * p.hidden + unit)
                         : optional_element<T>(p.b_hh, 2 * p.hidden + unit);
    const long long row = gate * p.hidden + unit;
    return optional_element<T>(p.b_ih, row) + optional_element<T>(p.b_hh, row);
}

/* Computes unit `u` of sequence n in step t from the sums of its gates. */
template <typename T, typename W>
static __device__ __forceinline__ void forward_unit(const gd_cuda_recurrent &p, const W *sums,
                                                    long long t, long long n, long long u,
                                                    const W *before, W *after, bool last) {
    const long long cell = n * p.hidden + u, at = t * p.batch * p.hidden + cell;
    const long long first = (t * p.batch + n) * 4 * p.hidden + u;
    const bool active = !p.lengths || t < p.lengths[n];
    const W h_before = __ldcg(before + u * p.padded + n);
    W *gates = (W *)p.gates, *state = (W *)p.state;
    W h = h_before, c = 0, saved[4] = {0, 0, 0, 0};
    if (p.cell == GD_CUDA_CELL_LSTM) {
        c = state[cell];
        if (active) {
            saved[0] = sigmoid_of(sums[0]);
            saved[1] = sigmoid_of(sums[1]);
            saved[2] = tanh_of(sums[2]);
            saved[3] = sigmoid_of(sums[3]);
            c = saved[1] * c + saved[0] * saved[2];
            h = saved[3] * tanh_of(c);
        }
    } else if (active && p.cell == GD_CUDA_CELL_GRU) {
        saved[0] = sigmoid_of(sums[0]);
        saved[1] = sigmoid_of(sums[1]);
        saved[3] = sums[3];
        saved[2] = tanh_of(sums[2] + saved[0] * sums[3]);
        h = saved[2] + saved[1] * (h_before - saved[2]);
    } else if (active) {
        h = p.cell == GD_CUDA_CELL_TANH ? tanh_of(sums[0]) : sums[0] < 0 ? 0 : sums[0];
    }
    after[u * p.padded + n] = h;
    narrow(active ? h : 0, (T *)p.y + at);
    if (p.cell == GD_CUDA_CELL_LSTM) {
        state[cell] = c;
        if (p.cells) ((W *)p.cells)[at] = active ? c : 0;
    }
    if (gates && columns_per_unit(p) == 4)
        for (int g = 0; g < 4; g++) gates[first + g * p.hidden] = saved[g];
    else if (gates) gates[at] = active ? h : 0;
    if (!last) return;
    if (p.h) narrow(h, (T *)p.h + cell);
    if (p.c && p.cell == GD_CUDA_CELL_LSTM) narrow(c, (T *)p.c + cell);
}

template <typename T>
static __device__ void run_forward(const gd_cuda_recurrent &p) {
    typedef typename wide_type<T>::type W;
    typedef forward_tile S;
    const int per_unit = columns_per_unit(p), units = S::columns / per_unit;
    const int tiles = p.unit_tiles * p.batch_tiles;
    const long long depth = p.inputs + p.hidden;
    const tile_thread own = tile_thread_of<S>();
    W *partials = (W *)shared_memory, *shared_weights = partials + S::slices * S::sums;
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const tile_place at = tile_place_of(p, tile, units, S::batch);
        W *packed =
            p.packed ? (W *)p.packed + tile * depth * S::columns : shared_weights;
        pack_forward<T, W>(p, at, units, packed);
        for (int i = (int)threadIdx.x; i < units * S::batch; i += THREADS) {
            const long long u = at.unit + i % units, n = at.sequence + i / units;
            if (u >= p.hidden || n >= p.batch) continue;
            ((W *)p.exchange)[u * p.padded + n] = optional_element<T>(p.h0, n * p.hidden + u);
            if (p.cell == GD_CUDA_CELL_LSTM)
                ((W *)p.state)[n * p.hidden + u] = optional_element<T>(p.c0, n * p.hidden + u);
        }
        complete_tile(at.counter);
    }
    for (long long s = 0; s < p.steps; s++) {
        const long long t = p.reverse ? p.steps - 1 - s : s, size = p.hidden * p.padded;
        const W *before = (const W *)p.exchange + (s & 1) * size;
        W *after = (W *)p.exchange + (~s & 1) * size;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const tile_place at = tile_place_of(p, tile, units, S::batch);
            const W *packed = p.packed ? (const W *)p.packed + tile * depth * S::columns
                                       : shared_weights;
            W sums[8][4] = {{0}};
            multiply_input<S, T, W>(sums, packed,
                                    (const T *)p.x + (t * p.batch + at.sequence) * p.inputs,
                                    p.inputs, p.batch - at.sequence, own);
            wait_for_tiles(at.counter, (unsigned)((s + 1) * p.unit_tiles));
            multiply_exchange<S, W>(sums, packed + p.inputs * S::columns, before + at.sequence,
                                    p.hidden, p.padded, own);
            store_partials<S, W>(sums, partials, own);
            __syncthreads();
            for (int i = (int)threadIdx.x; i < units * S::batch; i += THREADS) {
                const int unit = i % units, sequence = i / units;
                const long long u = at.unit + unit, n = at.sequence + sequence;
                W gates[4] = {0, 0, 0, 0};
                if (u >= p.hidden || n >= p.batch) continue;
                for (int g = 0; g < per_unit; g++)
                    gates[g] = sum_partials<S, W>(partials, g * units + unit, sequence) +
                               bias_of<T>(p, g, u);
                forward_unit<T, W>(p, gates, t, n, u, before, after, s + 1 == p.steps);
            }
            complete_tile(at.counter);
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

/* Whether step t is the first of sequence n in the order of the steps. */
static __device__ __forceinline__ bool begins_at(const gd_cuda_recurrent &p, long long t,
                                                 long long n) {
    const long long length = p.lengths && p.lengths[n] < p.steps ? p.lengths[n] : p.steps;
    return p.reverse ? t + 1 == length : t == 0;
}

/* The gradients of the gates of one unit. dh is the gradient of the state after step t. */
template <typename T, typename W>
static __device__ __forceinline__ void backward_unit(const gd_cuda_recurrent &p, W dh, long long t,
                                                     long long n, long long u, W *after) {
    const long long cell = n * p.hidden + u, plane = p.batch * p.hidden, at = t * plane + cell;
    const long long before = at + (p.reverse ? plane : -plane);
    const bool active = !p.lengths || t < p.lengths[n], begins = begins_at(p, t, n);
    const W *saved = (const W *)p.saved + (t * p.batch + n) * 4 * p.hidden + u;
    W *state = (W *)p.state, g[4] = {0, 0, 0, 0}, carry = dh;
    if (active) {
        const W d = dh + widen(((const T *)p.gy)[at]);
        carry = 0;
        if (p.cell == GD_CUDA_CELL_LSTM) {
            const W i = saved[0], f = saved[p.hidden], c = saved[2 * p.hidden],
                    o = saved[3 * p.hidden], tanh_c = tanh_of(((const W *)p.saved_c)[at]);
            const W c_before = begins ? optional_element<T>(p.c0, cell)
                                      : ((const W *)p.saved_c)[before];
            const W dc = state[cell] + d * o * (1 - tanh_c * tanh_c);
            g[0] = dc * c * sigmoid_slope(i);
            g[1] = dc * c_before * sigmoid_slope(f);
            g[2] = dc * i * (1 - c * c);
            g[3] = d * tanh_c * sigmoid_slope(o);
            state[cell] = dc * f;
        } else if (p.cell == GD_CUDA_CELL_GRU) {
            const W r = saved[0], z = saved[p.hidden], c = saved[2 * p.hidden],
                    part = saved[3 * p.hidden];
            const W h_before = begins ? optional_element<T>(p.h0, cell)
                                      : widen(((const T *)p.saved_y)[before]);
            g[2] = d * (1 - z) * (1 - c * c);
            g[0] = g[2] * part * sigmoid_slope(r);
            g[1] = d * (h_before - c) * sigmoid_slope(z);
            g[3] = g[2] * r;
            carry = d * z;
        } else {
            const W y = p.wide_y ? ((const W *)p.saved_y)[at] : widen(((const T *)p.saved_y)[at]);
            g[0] = p.cell == GD_CUDA_CELL_TANH ? d * (1 - y * y) : y > 0 ? d : 0;
        }
    }
    ((W *)p.carry)[cell] = carry;
    /* a gru's w_hh multiplies g[3] instead of g[2] */
    const bool gru = p.cell == GD_CUDA_CELL_GRU;
    const int blocks = gru ? 3 : p.parts;
    T *to = (T *)p.gradients + (t * p.batch + n) * p.parts * p.hidden + u;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (k < blocks) after[(k * p.hidden + u) * p.padded + n] = gru && k == 2 ? g[3] : g[k];
        if (k < p.parts) narrow(g[k], to + k * p.hidden);
    }
}

template <typename T>
static __device__ void run_backward(const gd_cuda_recurrent &p) {
    typedef typename wide_type<T>::type W;
    typedef backward_tile S;
    const int tiles = p.unit_tiles * p.batch_tiles;
    const tile_thread own = tile_thread_of<S>();
    W *partials = (W *)shared_memory, *shared_weights = partials + S::slices * S::sums;
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const tile_place at = tile_place_of(p, tile, S::columns, S::batch);
        pack_backward<T, W>(p, at,
                            p.packed ? (W *)p.packed + tile * p.depth * S::columns
                                     : shared_weights);
    }
    __syncthreads();
    for (long long s = 0; s <= p.steps; s++) { /* the last one computes gh0 */
        const long long t = p.reverse ? s : p.steps - 1 - s, size = p.depth * p.padded;
        const W *before = (const W *)p.exchange + (s & 1) * size;
        W *after = (W *)p.exchange + (~s & 1) * size;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const tile_place at = tile_place_of(p, tile, S::columns, S::batch);
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
            for (int i = (int)threadIdx.x; i < S::columns * S::batch; i += THREADS) {
                const int unit = i % S::columns, sequence = i / S::columns;
                const long long u = at.unit + unit, n = at.sequence + sequence,
                                cell = n * p.hidden + u;
                if (u >= p.hidden || n >= p.batch) continue;
                W dh;
                if (s == 0) {
                    dh = optional_element<T>(p.gh, cell);
                    ((W *)p.state)[cell] = p.cell == GD_CUDA_CELL_LSTM
                                               ? optional_element<T>(p.gc, cell)
                                               : 0;
                } else {
                    dh = ((const W *)p.carry)[cell] + sum_partials<S, W>(partials, unit, sequence);
                }
                if (s < p.steps) backward_unit<T, W>(p, dh, t, n, u, after);
                else {
                    if (p.gh0) narrow(dh, (T *)p.gh0 + cell);
                    if (p.gc0 && p.cell == GD_CUDA_CELL_LSTM)
                        narrow(((const W *)p.state)[cell], (T *)p.gc0 + cell);
                }
            }
            complete_tile(at.counter);
        }
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

#define RECURRENT_KERNELS(dtype, T)                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)             \
        gd_recurrent_##dtype(const __grid_constant__ gd_cuda_recurrent p) { \
        RETURN_IF_FAILED(p.call);                                        \
        run_forward<T>(p);                                               \
    }                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)             \
        gd_recurrent_grad_##dtype(const __grid_constant__ gd_cuda_recurrent p) { \
        RETURN_IF_FAILED(p.call);                                        \
        run_backward<T>(p);                                              \
    }

RECURRENT_KERNELS(f64, double)
RECURRENT_KERNELS(f32, float)
RECURRENT_KERNELS(f16, f16_element)
RECURRENT_KERNELS(bf16, bf16_element)
