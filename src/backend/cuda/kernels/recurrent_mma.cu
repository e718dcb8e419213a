/* recurrent_mma.cu - recurrent layers in f16 and bf16 on tensor cores (see recurrent.cu).
 *
 * The operands of products are rounded to 16 bits; sums, states and gates stay in f32.
 */
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/recurrent.cuh"

enum {
    THREADS = GD_CUDA_MMA_THREADS,
    WARPS = THREADS / 32,
    ROWS = GD_CUDA_MMA_FORWARD_ROWS,
    BATCH = GD_CUDA_MMA_FORWARD_BATCH,
    UNITS = GD_CUDA_MMA_BACKWARD_UNITS,
    SEQUENCES = GD_CUDA_MMA_BACKWARD_BATCH,
    PAD = GD_CUDA_MMA_PAD,
    PARTIAL_PAD = GD_CUDA_RECURRENT_PAD,
};

static __device__ __forceinline__ int round_up(long long n, int to) {
    return (int)((n + to - 1) / to * to);
}

/* Copies `rows` rows of `columns` elements, a multiple of 8, that another block may have written. */
template <typename T>
static __device__ __forceinline__ void stage_exchange(T *to, int stride, const T *from, int rows,
                                                      int columns) {
    const int units = columns / 8;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < rows * units; i += THREADS) {
        const int row = i / units, column = (i - row * units) * 8;
        *(uint4 *)(to + row * stride + column) =
            __ldcg((const uint4 *)(from + (long long)row * columns + column));
    }
}

/* Copies rows of x (rows, inputs); columns from `inputs` on, and missing rows, become 0. */
template <typename T>
static __device__ __forceinline__ void stage_input(T *to, int stride, const T *from, long long rows,
                                                   int inputs, int columns) {
    if (inputs % 8 == 0 && (uintptr_t)from % 16 == 0) {
        const int units = columns / 8;
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < BATCH * units; i += THREADS) {
            const int row = i / units, column = (i - row * units) * 8;
            uint4 v = {0, 0, 0, 0};
            if (row < rows && column < inputs)
                v = *(const uint4 *)(from + (long long)row * inputs + column);
            *(uint4 *)(to + row * stride + column) = v;
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < BATCH * columns; i += THREADS) {
        const int row = i / columns, column = i - row * columns;
        T v;
        narrow(0, &v);
        if (row < rows && column < inputs) v = from[(long long)row * inputs + column];
        to[row * stride + column] = v;
    }
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Row g * units + u has the weights of sum g of unit u: first those of x, from column `inputs` on
 * those of h. */
template <typename T>
static __device__ void pack_rows(const gd_cuda_recurrent &p, const tile_place &at, int units,
                                 int inputs, int hidden, T *packed) {
    const int lane = (int)threadIdx.x % 32;
    T zero;
    narrow(0, &zero);
    for (int row = (int)threadIdx.x / 32; row < ROWS; row += WARPS)
        for (int input = 0; input < 2; input++) {
            const T *from = forward_weights<T>(p, row / units, at.unit + row % units, input);
            T *to = packed + row * (inputs + hidden + PAD) + (input ? 0 : inputs);
            const int columns = input ? inputs : hidden;
            const long long present = from ? (input ? p.inputs : p.hidden) : 0;
            for (int k = lane; k < columns; k += 32) to[k] = k < present ? from[k] : zero;
        }
}

/* sums (64, 16) += weights (64, depth) times the transpose of operand (16, depth). The warps take
 * turns in the depth. */
template <typename T>
static __device__ __forceinline__ void multiply_rows(float (&sums)[4][2][4], const T *weights,
                                                     int stride, const T *operand, int depth) {
    for (int k = (int)threadIdx.x / 32 * 16; k < depth; k += WARPS * 16) {
        uint32_t b[4];
        load_right_transposed(b, operand, depth + PAD, 0, k);
#pragma unroll
        for (int m = 0; m < 4; m++) {
            uint32_t a[4];
            load_left(a, weights, stride, m * 16, k);
            multiply_fragments<T>(sums[m][0], a, b[0], b[1]);
            multiply_fragments<T>(sums[m][1], a, b[2], b[3]);
        }
    }
}

enum { PARTIAL_ROW = BATCH + PARTIAL_PAD };

static __device__ __forceinline__ float sum_rows(const float *partials, int row, int sequence) {
    const float *part = partials + row * PARTIAL_ROW + sequence;
    float parts[2] = {0, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++) parts[w % 2] += part[w * ROWS * PARTIAL_ROW];
    return parts[0] + parts[1];
}

template <typename T>
static __device__ void run_forward(const gd_cuda_recurrent &p) {
    const int per_unit = columns_per_unit(p), units = ROWS / per_unit;
    const int tiles = p.unit_tiles * p.batch_tiles;
    const int inputs = p.input_sums ? 0 : round_up(p.inputs, 16), hidden = round_up(p.hidden, 16),
              stride = inputs + hidden + PAD;
    enum { PARTIAL = PARTIAL_ROW };
    float *partials = (float *)shared_memory;
    T *weights = (T *)(partials + WARPS * ROWS * PARTIAL), *x = weights + ROWS * stride,
      *h = x + BATCH * (inputs + PAD);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int threads = units * BATCH;
    const bool single = tiles <= (int)gridDim.x; /* a block has one tile */
    enum { MOST = ROWS * BATCH / THREADS };      /* units of a thread: one, or four of an rnn */
    unit_step<float> units_of_thread[MOST];
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const tile_place at = tile_place_of(p, tile, units, BATCH);
        pack_rows(p, at, units, inputs, hidden, weights);
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            unit_step<float> &r = units_of_thread[k];
            if (k * THREADS >= threads) continue;
            place_unit(p, at, units, BATCH, (int)threadIdx.x + k * THREADS, r);
            load_unit<T>(p, r);
            load_sums(p, p.reverse ? p.steps - 1 : 0, r);
            if (r.present) narrow(r.h, (T *)p.exchange + r.n * hidden + r.u);
            if (!single) keep_state(p, r);
        }
        complete_tile(at.counter);
    }
    for (long long s = 0; s < p.steps; s++) {
        const long long t = p.reverse ? p.steps - 1 - s : s, size = p.padded * hidden;
        const bool last = s + 1 == p.steps;
        const T *before = (const T *)p.exchange + (s & 1) * size;
        T *after = (T *)p.exchange + (~s & 1) * size;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const tile_place at = tile_place_of(p, tile, units, BATCH);
            float sums[4][2][4] = {{{0}}};
            if (!single) { /* the weights of another tile are there */
                __syncthreads();
                pack_rows(p, at, units, inputs, hidden, weights);
#pragma unroll
                for (int k = 0; k < MOST; k++) {
                    unit_step<float> &r = units_of_thread[k];
                    if (k * THREADS >= threads) continue;
                    place_unit(p, at, units, BATCH, (int)threadIdx.x + k * THREADS, r);
                    load_unit<T>(p, r);
                    restore_state(p, r);
                    load_sums(p, t, r);
                }
            }
            if (inputs > 0) {
                stage_input(x, inputs + PAD,
                            (const T *)p.x + (t * p.batch + at.sequence) * p.inputs,
                            p.batch - at.sequence, (int)p.inputs, inputs);
                __syncthreads();
                multiply_rows(sums, weights, stride, x, inputs);
            }
            wait_for_tiles(at.counter, (unsigned)((s + 1) * p.unit_tiles));
            stage_exchange(h, hidden + PAD, before + at.sequence * hidden, BATCH, hidden);
            __syncthreads();
            multiply_rows(sums, weights + inputs, stride, h, hidden);
            float *own = partials + (warp * ROWS + lane / 4) * PARTIAL + lane % 4 * 2;
#pragma unroll
            for (int m = 0; m < 4; m++)
#pragma unroll
                for (int n = 0; n < 2; n++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float2 v = {sums[m][n][2 * half], sums[m][n][2 * half + 1]};
                        *(float2 *)(own + (m * 16 + half * 8) * PARTIAL + n * 8) = v;
                    }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < MOST; k++) {
                unit_step<float> &r = units_of_thread[k];
                const int i = (int)threadIdx.x + k * THREADS;
                if (k * THREADS >= threads || !r.present) continue;
                float gates[4] = {0, 0, 0, 0};
#pragma unroll
                for (int g = 0; g < 4; g++)
                    if (g < per_unit)
                        gates[g] = sum_rows(partials, g * units + i % units, i / units) +
                                   (r.sums[g] + r.bias[g]);
                compute_unit(p, gates, t, r);
                narrow(r.h, after + r.n * hidden + r.u);
            }
            complete_tile(at.counter);
#pragma unroll
            for (int k = 0; k < MOST; k++) {
                unit_step<float> &r = units_of_thread[k];
                if (k * THREADS >= threads) continue;
                if (single && !last) load_sums(p, p.reverse ? t - 1 : t + 1, r);
                if (!single) keep_state(p, r);
                store_unit<T>(p, t, r, last);
            }
        }
    }
}

/* --- backward --------------------------------------------------------------------------------- */

/* w_hh (depth, H): columns of the tile's units, and rows of 0 up to `rows`. */
template <typename T>
static __device__ void pack_units(const gd_cuda_recurrent &p, const tile_place &at, int rows,
                                  T *packed) {
    for (int i = (int)threadIdx.x; i < rows * UNITS; i += THREADS) {
        const int k = i / UNITS, unit = i % UNITS;
        T v;
        narrow(0, &v);
        if (k < p.depth && at.unit + unit < p.hidden)
            v = ((const T *)p.w_hh)[k * p.hidden + at.unit + unit];
        packed[k * (UNITS + PAD) + unit] = v;
    }
}

/* sums (32 units, 8 sequences) += weights (depth, 32) transposed times operand (8, depth)
 * transposed. */
template <typename T>
static __device__ __forceinline__ void multiply_units(float (&sums)[2][4], const T *weights,
                                                      const T *operand, int depth) {
    const int lane = (int)threadIdx.x % 32;
    for (int k = (int)threadIdx.x / 32 * 32; k < depth; k += WARPS * 32) {
        uint32_t b[4];
        load_matrices(b, operand + lane % 8 * (depth + PAD) + k + lane / 8 * 8);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int m = 0; m < 2; m++) {
                uint32_t a[4];
                load_transposed_matrices(
                    a, weights + (k + half * 16 + lane / 16 * 8 + lane % 8) * (UNITS + PAD) +
                           m * 16 + lane / 8 % 2 * 8);
                multiply_fragments<T>(sums[m], a, b[2 * half], b[2 * half + 1]);
            }
    }
}

static __device__ __forceinline__ void place_gradient(const gd_cuda_recurrent &p,
                                                      const tile_place &at,
                                                      unit_gradient<float> &r) {
    const int i = (int)threadIdx.x;
    r.n = at.sequence + i / UNITS;
    r.u = at.unit + i % UNITS;
    r.present = i < UNITS * SEQUENCES && r.u < p.hidden && r.n < p.batch;
}

template <typename T>
static __device__ void run_backward(const gd_cuda_recurrent &p) {
    const int tiles = p.unit_tiles * p.batch_tiles, depth = round_up(p.depth, 32);
    enum { PARTIAL = SEQUENCES + PARTIAL_PAD };
    float *partials = (float *)shared_memory;
    T *weights = (T *)(partials + WARPS * UNITS * PARTIAL),
      *operand = weights + depth * (UNITS + PAD);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, i = (int)threadIdx.x;
    const bool single = tiles <= (int)gridDim.x; /* a block has one tile */
    unit_gradient<float> r;
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const tile_place at = tile_place_of(p, tile, UNITS, SEQUENCES);
        if (single) pack_units(p, at, depth, weights);
        place_gradient(p, at, r);
        load_gradients<T>(p, r);
        if (!single) keep_gradients(p, r);
    }
    for (long long s = 0; s <= p.steps; s++) { /* the last one computes gh0 */
        const long long t = p.reverse ? s : p.steps - 1 - s, size = p.padded * depth;
        const T *before = (const T *)p.exchange + (s & 1) * size;
        T *after = (T *)p.exchange + (~s & 1) * size;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const tile_place at = tile_place_of(p, tile, UNITS, SEQUENCES);
            if (!single) { /* the weights of another tile are there */
                __syncthreads();
                pack_units(p, at, depth, weights);
                place_gradient(p, at, r);
                restore_gradients(p, r);
            }
            if (s < p.steps) load_step<T>(p, t, r);
            if (s > 0) {
                float sums[2][4] = {{0}};
                wait_for_tiles(at.counter, (unsigned)(s * p.unit_tiles));
                stage_exchange(operand, depth + PAD, before + at.sequence * depth, SEQUENCES,
                               depth);
                __syncthreads();
                multiply_units(sums, weights, operand, depth);
                float *own = partials + (warp * UNITS + lane / 4) * PARTIAL + lane % 4 * 2;
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float2 v = {sums[m][2 * half], sums[m][2 * half + 1]};
                        *(float2 *)(own + (m * 16 + half * 8) * PARTIAL) = v;
                    }
            }
            __syncthreads();
            if (r.present) {
                float dh = r.carry;
                if (s > 0) {
                    const float *part = partials + i % UNITS * PARTIAL + i / UNITS;
                    float sum = 0;
#pragma unroll
                    for (int w = 0; w < WARPS; w++) sum += part[w * UNITS * PARTIAL];
                    dh += sum;
                }
                if (s == p.steps) store_last_gradient<T>(p, dh, r);
                else {
                    compute_gradient(p, dh, r);
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        if (k < weight_blocks(p))
                            narrow(block_gradient(p, r.g, k),
                                   after + r.n * depth + k * p.hidden + r.u);
                }
            }
            complete_tile(at.counter);
            if (!single) keep_gradients(p, r);
            if (s < p.steps) store_gradients<T>(p, t, r);
        }
    }
}

#define RECURRENT_KERNELS(dtype, T)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                            \
        gd_recurrent_mma_##dtype(const __grid_constant__ gd_cuda_recurrent p) {         \
        RETURN_IF_FAILED(p.call);                                                       \
        run_forward<T>(p);                                                              \
    }                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                            \
        gd_recurrent_grad_mma_##dtype(const __grid_constant__ gd_cuda_recurrent p) {    \
        RETURN_IF_FAILED(p.call);                                                       \
        run_backward<T>(p);                                                             \
    }

RECURRENT_KERNELS(f16, f16_element)
RECURRENT_KERNELS(bf16, bf16_element)
