/* recurrent.cuh - the cells of recurrent layers and the order of the blocks, for recurrent.cu and
 * recurrent_resident.cuh. */
#ifndef GRADUS_OPS_RECURRENT_CUDA_RECURRENT_CUH
#define GRADUS_OPS_RECURRENT_CUDA_RECURRENT_CUH

#include "ops/recurrent/cuda/recurrent_args.h"
#include "backend/cuda/typed.cuh"

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char shared_memory[];
#else
#define shared_memory emulated_shared
#endif

static __device__ __forceinline__ void store_narrow(double x, double *y) { *y = x; }
static __device__ __forceinline__ void store_narrow(float x, float *y) { *y = x; }
static __device__ __forceinline__ void store_narrow(float x, f16_element *y) {
    y->bits = gd_f32_to_f16(x);
}
static __device__ __forceinline__ void store_narrow(float x, bf16_element *y) {
    y->bits = gd_f32_to_bf16(x);
}

template <typename T>
static __device__ __forceinline__ typename wide_type<T>::type optional_element(const void *p,
                                                                               long long i) {
    return p ? widen(((const T *)p)[i]) : 0;
}

/* --- order of the blocks ---------------------------------------------------------------------- */

/* A write that other blocks see after all writes of the block before it, and a read of it. */
#ifdef __CUDACC__
static __device__ __forceinline__ void add_release(unsigned *counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
static __device__ __forceinline__ unsigned load_acquire(const unsigned *counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}
static __device__ __forceinline__ void wait_a_moment() {}
#else
static inline void wait_a_moment() { emulated_wait(); }
EMULATED_ATOMIC void add_release(unsigned *counter) {
    emulated_fence();
    emulated_atomic(counter);
    ++*counter;
}
EMULATED_ATOMIC unsigned load_acquire(const unsigned *counter) {
    emulated_atomic(counter);
    emulated_fence();
    return *counter;
}
#endif

/* Waits until `count` tiles are complete. */
static __device__ __forceinline__ void wait_for_tiles(const unsigned *counter, unsigned count) {
    if (threadIdx.x == 0)
        while (load_acquire(counter) < count) wait_a_moment();
    __syncthreads();
}

static __device__ __forceinline__ void complete_tile(unsigned *counter) {
    __syncthreads();
    if (threadIdx.x == 0) add_release(counter);
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

/* The activations are in the chain of operations from one step to the next. Those of f32 have no
 * branches, so that those of all gates overlap; they err by at most 2 units in the last place. */

/* 1 / x for a normal x whose inverse is normal. */
static __device__ __forceinline__ float inverse_of(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return fmaf(fmaf(-x, y, 1.0f), y, y);
#else
    return 1 / x;
#endif
}
static __device__ __forceinline__ float sigmoid_of(float x) {
    return inverse_of(1 + expf(x < -80 ? 80 : -x)); /* below, the result is about 0 */
}
static __device__ __forceinline__ float tanh_of(float x) {
    const float a = fabsf(x), z = x * x, e = expf(-2 * a);
    /* (tanh(x) - x) / x^3, with a relative error of 3e-9 in the sum x + x^3 q */
    float q = fmaf(-0.0058951564f, z, 0.02079597f);
    q = fmaf(q, z, -0.05378383f);
    q = fmaf(q, z, 0.13331924f);
    q = fmaf(q, z, -0.333333f);
    const float small = fmaf(q, x * z, x),
                large = copysignf(fmaf(-2 * e, inverse_of(1 + e), 1.0f), x);
    return a < 0.6f ? small : large;
}
static __device__ __forceinline__ double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static __device__ __forceinline__ double tanh_of(double x) { return tanh(x); }
template <typename W> static __device__ __forceinline__ W sigmoid_slope(W y) { return y * (1 - y); }

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

/* A unit of one sequence: where it is, its state, and the result of a step. */
template <typename W> struct unit_step {
    long long n, u;
    bool present, active;
    W bias[4];
    W sums[4]; /* the input's part of the sums of the next step */
    W h, c;
    W gates[4]; /* after the activations */
};

/* The unit of thread number i of a tile. */
template <typename W>
static __device__ __forceinline__ void place_unit(const gd_cuda_recurrent &p, const tile_place &at,
                                                  int units, int batch, int i, unit_step<W> &r) {
    r.n = at.sequence + i / units;
    r.u = at.unit + i % units;
    r.present = i < units * batch && r.u < p.hidden && r.n < p.batch;
}

/* The input's parts of the sums of a unit, if a product has computed them. */
template <typename W>
static __device__ __forceinline__ void load_sums(const gd_cuda_recurrent &p, long long t,
                                                 unit_step<W> &r) {
    if (!p.input_sums || !r.present) return;
    const W *from = (const W *)p.input_sums + (t * p.batch + r.n) * p.depth + r.u;
#pragma unroll
    for (int g = 0; g < 4; g++) /* a gru has three: the fourth sum is the state's part */
        if (g * p.hidden < p.depth) r.sums[g] = from[g * p.hidden];
}

/* Biases, and the state before the first step. A unit that is present for other sequences has its
 * biases for those of the batch's padding, too: sequences follow one another in a thread. */
template <typename T, typename W>
static __device__ __forceinline__ void load_unit(const gd_cuda_recurrent &p, unit_step<W> &r) {
#pragma unroll
    for (int g = 0; g < 4; g++) {
        r.sums[g] = 0;
        r.bias[g] = r.u < p.hidden && g < columns_per_unit(p) ? bias_of<T>(p, g, r.u) : (W)0;
    }
    r.h = r.present ? optional_element<T>(p.h0, r.n * p.hidden + r.u) : (W)0;
    r.c = r.present && p.cell == GD_CUDA_CELL_LSTM ? optional_element<T>(p.c0, r.n * p.hidden + r.u)
                                                   : (W)0;
}

/* The state between steps, if a block has several tiles. */
template <typename W>
static __device__ __forceinline__ void restore_state(const gd_cuda_recurrent &p, unit_step<W> &r) {
    if (!r.present) return;
    r.h = ((const W *)p.carry)[r.n * p.hidden + r.u];
    r.c = ((const W *)p.state)[r.n * p.hidden + r.u];
}
template <typename W>
static __device__ __forceinline__ void keep_state(const gd_cuda_recurrent &p,
                                                  const unit_step<W> &r) {
    if (!r.present) return;
    ((W *)p.carry)[r.n * p.hidden + r.u] = r.h;
    ((W *)p.state)[r.n * p.hidden + r.u] = r.c;
}

/* Computes a step, if it is not after the end of the sequence, from the sums of the gates. */
template <typename W>
static __device__ __forceinline__ void compute_unit(const gd_cuda_recurrent &p, const W *sums,
                                                    bool active, unit_step<W> &r) {
    r.active = active;
    r.gates[0] = r.gates[1] = r.gates[2] = r.gates[3] = 0;
    if (!active) return;
    if (p.cell == GD_CUDA_CELL_LSTM) {
        r.gates[0] = sigmoid_of(sums[0]);
        r.gates[1] = sigmoid_of(sums[1]);
        r.gates[2] = tanh_of(sums[2]);
        r.gates[3] = sigmoid_of(sums[3]);
        r.c = r.gates[1] * r.c + r.gates[0] * r.gates[2];
        r.h = r.gates[3] * tanh_of(r.c);
    } else if (p.cell == GD_CUDA_CELL_GRU) {
        r.gates[0] = sigmoid_of(sums[0]);
        r.gates[1] = sigmoid_of(sums[1]);
        r.gates[3] = sums[3];
        r.gates[2] = tanh_of(sums[2] + r.gates[0] * sums[3]);
        r.h = r.gates[2] + r.gates[1] * (r.h - r.gates[2]);
    } else {
        r.h = p.cell == GD_CUDA_CELL_TANH ? tanh_of(sums[0]) : sums[0] < 0 ? 0 : sums[0];
    }
}

/* The steps of sequence n: `lengths` has any numbers. */
static __device__ __forceinline__ long long length_of(const gd_cuda_recurrent &p, long long n) {
    return p.lengths ? max(0ll, min(p.steps, p.lengths[n])) : p.steps;
}

/* Whether step t of sequence n is not after its end. */
static __device__ __forceinline__ bool is_active(const gd_cuda_recurrent &p, long long t,
                                                 long long n) {
    return t < length_of(p, n);
}

/* Writes the outputs of a step; other blocks do not read them. */
template <typename T, typename W>
static __device__ __forceinline__ void store_unit(const gd_cuda_recurrent &p, long long t,
                                                  const unit_step<W> &r, bool last) {
    const long long cell = r.n * p.hidden + r.u, at = t * p.batch * p.hidden + cell;
    const long long first = (t * p.batch + r.n) * 4 * p.hidden + r.u;
    W *gates = (W *)p.gates;
    if (!r.present) return;
    store_narrow(r.active ? r.h : 0, (T *)p.y + at);
    if (p.cells) ((W *)p.cells)[at] = r.active ? r.c : 0;
    if (gates && columns_per_unit(p) == 4)
        for (int g = 0; g < 4; g++) gates[first + g * p.hidden] = r.gates[g];
    else if (gates) gates[at] = r.active ? r.h : 0;
    if (last && p.h) store_narrow(r.h, (T *)p.h + cell);
    if (last && p.c && p.cell == GD_CUDA_CELL_LSTM) store_narrow(r.c, (T *)p.c + cell);
}

/* Whether step t is the first of sequence n in the order of the steps. */
static __device__ __forceinline__ bool begins_at(const gd_cuda_recurrent &p, long long t,
                                                 long long n) {
    return p.reverse ? t + 1 == length_of(p, n) : t == 0;
}

/* What the gradient of a step of one unit reads, and the gradients that go on to the step before. */
template <typename W> struct unit_gradient {
    long long n, u;
    bool present, active;
    W gy, gates[4];
    W result; /* y of an rnn, c after the step of an lstm */
    W before; /* h before the step of a gru, c before the step of an lstm */
    W dc;     /* gradient of c */
    W carry;  /* gradient of h, without that through the gates */
    W g[4];   /* gradients of the gates */
};

template <typename T, typename W>
static __device__ __forceinline__ void load_step(const gd_cuda_recurrent &p, long long t,
                                                 unit_gradient<W> &r) {
    if (!r.present) return;
    const long long cell = r.n * p.hidden + r.u, plane = p.batch * p.hidden, at = t * plane + cell;
    const long long before = at + (p.reverse ? plane : -plane);
    r.active = is_active(p, t, r.n);
    if (!r.active) return;
    const bool begins = begins_at(p, t, r.n);
    r.gy = widen(((const T *)p.gy)[at]);
    if (p.parts == 4) {
        const W *saved = (const W *)p.saved + (t * p.batch + r.n) * 4 * p.hidden + r.u;
#pragma unroll
        for (int g = 0; g < 4; g++) r.gates[g] = saved[g * p.hidden];
    }
    if (p.cell == GD_CUDA_CELL_LSTM) {
        r.result = ((const W *)p.saved_c)[at];
        r.before = begins ? optional_element<T>(p.c0, cell) : ((const W *)p.saved_c)[before];
    } else if (p.cell == GD_CUDA_CELL_GRU) {
        r.before = begins ? optional_element<T>(p.h0, cell) : widen(((const T *)p.saved_y)[before]);
    } else {
        r.result = p.wide_y ? ((const W *)p.saved_y)[at] : widen(((const T *)p.saved_y)[at]);
    }
}

/* Computes the gradients of the gates. dh is the gradient of the state after the step. */
template <typename W>
static __device__ __forceinline__ void compute_gradient(const gd_cuda_recurrent &p, W dh,
                                                        unit_gradient<W> &r) {
    r.g[0] = r.g[1] = r.g[2] = r.g[3] = 0;
    r.carry = dh;
    if (!r.active) return;
    const W d = dh + r.gy;
    r.carry = 0;
    if (p.cell == GD_CUDA_CELL_LSTM) {
        const W i = r.gates[0], f = r.gates[1], c = r.gates[2], o = r.gates[3],
                tanh_c = tanh_of(r.result);
        const W dc = r.dc + d * o * (1 - tanh_c * tanh_c);
        r.g[0] = dc * c * sigmoid_slope(i);
        r.g[1] = dc * r.before * sigmoid_slope(f);
        r.g[2] = dc * i * (1 - c * c);
        r.g[3] = d * tanh_c * sigmoid_slope(o);
        r.dc = dc * f;
    } else if (p.cell == GD_CUDA_CELL_GRU) {
        const W reset = r.gates[0], z = r.gates[1], c = r.gates[2];
        r.g[2] = d * (1 - z) * (1 - c * c);
        r.g[0] = r.g[2] * r.gates[3] * sigmoid_slope(reset);
        r.g[1] = d * (r.before - c) * sigmoid_slope(z);
        r.g[3] = r.g[2] * reset;
        r.carry = d * z;
    } else {
        const W y = r.result;
        r.g[0] = p.cell == GD_CUDA_CELL_TANH ? d * (1 - y * y) : y > 0 ? d : 0;
    }
}

template <typename T, typename W>
static __device__ __forceinline__ void store_gradients(const gd_cuda_recurrent &p, long long t,
                                                       const unit_gradient<W> &r) {
    if (!r.present) return;
    T *to = (T *)p.gradients + (t * p.batch + r.n) * p.parts * p.hidden + r.u;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < p.parts) store_narrow(r.g[k], to + k * p.hidden);
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

/* The gradients of the states after the last step: gh, which is the carry, and gc. */
template <typename T, typename W>
static __device__ __forceinline__ void load_gradients(const gd_cuda_recurrent &p,
                                                      unit_gradient<W> &r) {
    const long long cell = r.n * p.hidden + r.u;
    r.active = false;
    r.carry = r.present ? optional_element<T>(p.gh, cell) : (W)0;
    r.dc = r.present && p.cell == GD_CUDA_CELL_LSTM ? optional_element<T>(p.gc, cell) : (W)0;
}
/* Those between steps, if a block has several tiles. */
template <typename W>
static __device__ __forceinline__ void restore_gradients(const gd_cuda_recurrent &p,
                                                         unit_gradient<W> &r) {
    if (!r.present) return;
    r.carry = ((const W *)p.carry)[r.n * p.hidden + r.u];
    r.dc = ((const W *)p.state)[r.n * p.hidden + r.u];
}
template <typename W>
static __device__ __forceinline__ void keep_gradients(const gd_cuda_recurrent &p,
                                                      const unit_gradient<W> &r) {
    if (!r.present) return;
    ((W *)p.carry)[r.n * p.hidden + r.u] = r.carry;
    ((W *)p.state)[r.n * p.hidden + r.u] = r.dc;
}

/* dh is the gradient of h0. */
template <typename T, typename W>
static __device__ __forceinline__ void store_last_gradient(const gd_cuda_recurrent &p, W dh,
                                                           const unit_gradient<W> &r) {
    const long long cell = r.n * p.hidden + r.u;
    if (!r.present) return;
    if (p.gh0) store_narrow(dh, (T *)p.gh0 + cell);
    if (p.gc0 && p.cell == GD_CUDA_CELL_LSTM) store_narrow(r.dc, (T *)p.gc0 + cell);
}

/* The kernel gd_recurrent_NAME, whose blocks of THREADS threads call a function. */
#define RECURRENT_KERNEL(name, ...)                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)               \
        gd_recurrent_##name(const __grid_constant__ gd_cuda_recurrent p) { \
        RETURN_IF_FAILED(p.call);                                          \
        __VA_ARGS__(p);                                                    \
    }

#endif
