/* recurrent.cuh - the cells of recurrent layers and the order of the blocks, for recurrent.cu and
 * recurrent_mma.cu. */
#ifndef GRADUS_CUDA_RECURRENT_CUH
#define GRADUS_CUDA_RECURRENT_CUH

#include "backend/cuda/kernels/recurrent.h"
#include "backend/cuda/kernels/typed.cuh"

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char shared_memory[];
#else
#define shared_memory emulated_shared
#endif

static __device__ __forceinline__ void narrow(double x, double *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, float *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, f16_element *y) {
    y->bits = gd_f32_to_f16(x);
}
static __device__ __forceinline__ void narrow(float x, bf16_element *y) {
    y->bits = gd_f32_to_bf16(x);
}

template <typename T>
static __device__ __forceinline__ typename wide_type<T>::type optional_element(const void *p,
                                                                              long long i) {
    return p ? widen(((const T *)p)[i]) : 0;
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

/* --- cells ------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
static __device__ __forceinline__ double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static __device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
static __device__ __forceinline__ double tanh_of(double x) { return tanh(x); }
template <typename W>
static __device__ __forceinline__ W sigmoid_slope(W y) {
    return y * (1 - y);
}

/* Sums for each unit. For a gru: reset, update, the input's part of the new gate, and the state's
 * part of it. */
static __device__ __forceinline__ int columns_per_unit(const gd_cuda_recurrent &p) {
    return p.cell == GD_CUDA_CELL_LSTM || p.cell == GD_CUDA_CELL_GRU ? 4 : 1;
}

/* The weights of sum `number` of a unit for the inputs, or for the states; NULL: all are 0. */
template <typename T>
static __device__ __forceinline__ const T *forward_weights(const gd_cuda_recurrent &p, int number,
                                                           long long unit, bool input) {
    if (unit >= p.hidden) return NULL;
    if (p.cell == GD_CUDA_CELL_GRU && number >= 2) {
        if (input != (number == 2)) return NULL;
        number = 2;
    }
    const long long row = number * p.hidden + unit;
    return input ? (const T *)p.w_ih + row * p.inputs : (const T *)p.w_hh + row * p.hidden;
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

/* A step of one unit of one sequence. */
template <typename W>
struct unit_step {
    long long n, u;
    bool present, active;
    W h, c;
    W gates[4]; /* after the activations */
};

/* The input's part of sum g of a unit, if a product has computed it. */
template <typename W>
static __device__ __forceinline__ W input_sum(const gd_cuda_recurrent &p, int g, long long t,
                                              long long n, long long u) {
    if (!p.input_sums || g * p.hidden >= p.depth) return 0; /* the state's part of a gru */
    return ((const W *)p.input_sums)[(t * p.batch + n) * p.depth + g * p.hidden + u];
}

/* Computes a step from the sums of the gates and the state before. */
template <typename W>
static __device__ __forceinline__ void compute_unit(const gd_cuda_recurrent &p, const W *sums,
                                                    long long t, W h_before, unit_step<W> &r) {
    r.active = !p.lengths || t < p.lengths[r.n];
    r.h = h_before;
    r.c = 0;
    r.gates[0] = r.gates[1] = r.gates[2] = r.gates[3] = 0;
    if (p.cell == GD_CUDA_CELL_LSTM) {
        r.c = ((const W *)p.state)[r.n * p.hidden + r.u];
        if (!r.active) return;
        r.gates[0] = sigmoid_of(sums[0]);
        r.gates[1] = sigmoid_of(sums[1]);
        r.gates[2] = tanh_of(sums[2]);
        r.gates[3] = sigmoid_of(sums[3]);
        r.c = r.gates[1] * r.c + r.gates[0] * r.gates[2];
        r.h = r.gates[3] * tanh_of(r.c);
    } else if (r.active && p.cell == GD_CUDA_CELL_GRU) {
        r.gates[0] = sigmoid_of(sums[0]);
        r.gates[1] = sigmoid_of(sums[1]);
        r.gates[3] = sums[3];
        r.gates[2] = tanh_of(sums[2] + r.gates[0] * sums[3]);
        r.h = r.gates[2] + r.gates[1] * (h_before - r.gates[2]);
    } else if (r.active) {
        r.h = p.cell == GD_CUDA_CELL_TANH ? tanh_of(sums[0]) : sums[0] < 0 ? 0 : sums[0];
    }
}

/* Writes the outputs of a step; other blocks do not read them. */
template <typename T, typename W>
static __device__ __forceinline__ void store_unit(const gd_cuda_recurrent &p, long long t,
                                                  const unit_step<W> &r, bool last) {
    const long long cell = r.n * p.hidden + r.u, at = t * p.batch * p.hidden + cell;
    const long long first = (t * p.batch + r.n) * 4 * p.hidden + r.u;
    W *gates = (W *)p.gates;
    if (!r.present) return;
    narrow(r.active ? r.h : 0, (T *)p.y + at);
    if (p.cell == GD_CUDA_CELL_LSTM) {
        ((W *)p.state)[cell] = r.c;
        if (p.cells) ((W *)p.cells)[at] = r.active ? r.c : 0;
    }
    if (gates && columns_per_unit(p) == 4)
        for (int g = 0; g < 4; g++) gates[first + g * p.hidden] = r.gates[g];
    else if (gates) gates[at] = r.active ? r.h : 0;
    if (last && p.h) narrow(r.h, (T *)p.h + cell);
    if (last && p.c && p.cell == GD_CUDA_CELL_LSTM) narrow(r.c, (T *)p.c + cell);
}

/* Whether step t is the first of sequence n in the order of the steps. */
static __device__ __forceinline__ bool begins_at(const gd_cuda_recurrent &p, long long t,
                                                 long long n) {
    const long long length = p.lengths && p.lengths[n] < p.steps ? p.lengths[n] : p.steps;
    return p.reverse ? t + 1 == length : t == 0;
}

/* Computes the gradients g of the gates of one unit. dh is the gradient of the state after step
 * t. */
template <typename T, typename W>
static __device__ __forceinline__ void backward_unit(const gd_cuda_recurrent &p, W dh, long long t,
                                                     long long n, long long u, W *g) {
    const long long cell = n * p.hidden + u, plane = p.batch * p.hidden, at = t * plane + cell;
    const long long before = at + (p.reverse ? plane : -plane);
    const bool active = !p.lengths || t < p.lengths[n], begins = begins_at(p, t, n);
    const W *saved = (const W *)p.saved + (t * p.batch + n) * 4 * p.hidden + u;
    W *state = (W *)p.state, carry = dh;
    g[0] = g[1] = g[2] = g[3] = 0;
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
}

template <typename T, typename W>
static __device__ __forceinline__ void store_gradients(const gd_cuda_recurrent &p, long long t,
                                                       long long n, long long u, const W *g) {
    T *to = (T *)p.gradients + (t * p.batch + n) * p.parts * p.hidden + u;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < p.parts) narrow(g[k], to + k * p.hidden);
}

/* The blocks of w_hh, and the gradient that multiplies one of them: for a gru's new gate that of the
 * state's part. */
static __device__ __forceinline__ int weight_blocks(const gd_cuda_recurrent &p) {
    return p.cell == GD_CUDA_CELL_GRU ? 3 : p.parts;
}
template <typename W>
static __device__ __forceinline__ W block_gradient(const gd_cuda_recurrent &p, const W *g, int k) {
    return p.cell == GD_CUDA_CELL_GRU && k == 2 ? g[3] : g[k];
}

/* The gradients of the states after the last step: gh and gc. */
template <typename T, typename W>
static __device__ __forceinline__ W first_gradient(const gd_cuda_recurrent &p, long long cell) {
    ((W *)p.state)[cell] =
        p.cell == GD_CUDA_CELL_LSTM ? optional_element<T>(p.gc, cell) : (W)0;
    return optional_element<T>(p.gh, cell);
}
template <typename T, typename W>
static __device__ __forceinline__ void store_last_gradient(const gd_cuda_recurrent &p, W dh,
                                                           long long cell) {
    if (p.gh0) narrow(dh, (T *)p.gh0 + cell);
    if (p.gc0 && p.cell == GD_CUDA_CELL_LSTM)
        narrow(((const W *)p.state)[cell], (T *)p.gc0 + cell);
}

#endif
