/* norm_batch.cu - batch norm and its gradient: one pass that sums, one that applies.
 *
 * A pass is a job with the code for vectors of N elements:
 *
 *     INPUTS, UNROLL   the tensors that it reads, and the vectors of each that it loads at once
 *     begin(channel)   loads the factors of the channels: P = N of them with channels last, or 1
 *     compute(in, out) for one vector of each input; stores `out` if WRITES
 *
 * Sums are added in f32 by each thread (f64 for f64) and in f64 between threads, in an order that
 * depends on the shape alone.
 */
#include "ops/norm/cuda/norm_batch_args.h"
#include "backend/cuda/pack.cuh"

enum { THREADS = GD_CUDA_NORM_THREADS, RELU = 1, ADD = 2, SUM = 4, AGAIN = 8 };

typedef gd_cuda_batch_norm parameters;

static __device__ __forceinline__ double channel_number(const gd_cuda_channel_vector &v,
                                                        long long channel, double otherwise) {
    return v.data ? load_real(v.dtype, v.data, channel) : otherwise;
}

template <typename W, int P>
static __device__ __forceinline__ void load_factors(const parameters &p, int factor,
                                                    long long channel, W *to) {
#pragma unroll
    for (int i = 0; i < P; i++) to[i] = ((const W *)p.table)[factor * p.c + channel + i];
}

/* relu(x): NaN stays NaN. */
template <typename W> static __device__ __forceinline__ W relu_of(W x) { return x <= 0 ? (W)0 : x; }

/* Whether y = relu(v), rounded to T, is 0: where v is at most half the smallest number of T. */
template <typename W> static __device__ __forceinline__ bool is_masked(W v, W) { return v <= 0; }
static __device__ __forceinline__ bool is_masked(float v, f16_element) { return v <= 0x1p-25f; }
static __device__ __forceinline__ bool is_masked(float v, bf16_element) { return v <= 0x1p-134f; }

/* Vectors of 8 bytes, for passes that need too many registers with the factors of 8 channels. */
template <typename T> struct half_vector {
    struct alignas(8) {
        unsigned low, high;
    } bits;
    __device__ __forceinline__ void load(const T *p) { bits = *(const decltype(bits) *)p; }
    __device__ __forceinline__ void widen_to(float *to) const {
        to[0] = widen_bits(T{}, bits.low & 0xffffu), to[1] = widen_bits(T{}, bits.low >> 16);
        to[2] = widen_bits(T{}, bits.high & 0xffffu), to[3] = widen_bits(T{}, bits.high >> 16);
    }
    static __device__ __forceinline__ void store(T *p, const float *x) {
        *(decltype(bits) *)p = {narrow_two(T{}, x[0], x[1]), narrow_two(T{}, x[2], x[3])};
    }
};
template <> struct raw_vector<f16_element, 4> : half_vector<f16_element> {};
template <> struct raw_vector<bf16_element, 4> : half_vector<bf16_element> {};

/* --- jobs ------------------------------------------------------------------------------------- */

/* Sums of x - shift and its square. The shift, the channel's first element, keeps the squares small
 * if the mean is large. */
template <typename T, int N, bool LAST, int FLAGS> struct statistics_job {
    typedef T element;
    typedef typename wide_type<T>::type W;
    enum { INPUTS = 1, UNROLL = 4, WRITES = 0, P = LAST ? N : 1 };
    W shift[P], sum[N], dot[N];
    const T *in[1];
    T *out;
    __device__ __forceinline__ void begin(const parameters &p, long long channel) {
        in[0] = (const T *)p.x;
#pragma unroll
        for (int i = 0; i < P; i++) shift[i] = widen(in[0][LAST ? channel + i : channel * p.s]);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = dot[i] = 0;
    }
    __device__ __forceinline__ void compute(const W (*x)[N], W *) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const W d = x[0][i] - shift[P == 1 ? 0 : i];
            sum[i] += d;
            dot[i] = multiply_add(d, d, dot[i]);
        }
    }
};

/* (x - mean) scale + bias, with ADD plus z, and with RELU its ReLU. */
template <typename T, int N, bool LAST, int FLAGS> struct apply_job {
    typedef T element;
    typedef typename wide_type<T>::type W;
    enum { INPUTS = FLAGS & ADD ? 2 : 1, UNROLL = 2, WRITES = 1, P = LAST ? N : 1 };
    W mean[P], scale[P], bias[P];
    const T *in[2];
    T *out;
    __device__ __forceinline__ void begin(const parameters &p, long long channel) {
        in[0] = (const T *)p.x;
        in[1] = (const T *)p.z;
        out = (T *)p.y;
        load_factors<W, P>(p, 0, channel, mean);
        load_factors<W, P>(p, 1, channel, scale);
        load_factors<W, P>(p, 2, channel, bias);
    }
    __device__ __forceinline__ void compute(const W (*x)[N], W *y) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int k = P == 1 ? 0 : i;
            W v = multiply_add(x[0][i] - mean[k], scale[k], bias[k]);
            if (FLAGS & ADD) v += x[INPUTS - 1][i];
            y[i] = FLAGS & RELU ? relu_of(v) : v;
        }
    }
};

/* Sums of gy and gy (x - mean). With RELU, gy counts only where the result of ReLU is above 0; with
 * ADD these gy are stored. With SUM, gy2 is added to gy. With AGAIN, as with RELU, but the result is
 * computed again from x. */
template <typename T, int N, bool LAST, int FLAGS> struct grad_sums_job {
    typedef T element;
    typedef typename wide_type<T>::type W;
    enum { INPUTS = FLAGS & SUM ? 4 : FLAGS & RELU ? 3 : 2 };
    enum { UNROLL = FLAGS & AGAIN ? 2 : FLAGS ? 1 : 2 };
    enum { P = LAST ? N : 1, WRITES = (FLAGS & ADD) / ADD };
    W mean[P], scale[P], bias[P], sum[N], dot[N];
    const T *in[4];
    T *out;
    __device__ __forceinline__ void begin(const parameters &p, long long channel) {
        in[0] = (const T *)p.gy;
        in[1] = (const T *)p.x;
        in[2] = (const T *)p.relu;
        in[3] = (const T *)p.gy2;
        out = (T *)p.gz;
#pragma unroll
        for (int i = 0; i < P; i++) mean[i] = (W)channel_number(p.mean, channel + i, 0);
        if (FLAGS & AGAIN) {
#pragma unroll
            for (int i = 0; i < P; i++) {
                scale[i] = (W)(channel_number(p.rstd, channel + i, 1) *
                               channel_number(p.weight, channel + i, 1));
                bias[i] = (W)channel_number(p.bias, channel + i, 0);
            }
        }
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = dot[i] = 0;
    }
    __device__ __forceinline__ void compute(const W (*x)[N], W *gz) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const W gy = FLAGS & SUM ? x[0][i] + x[INPUTS - 1][i] : x[0][i];
            const int k = P == 1 ? 0 : i;
            const W d = x[1][i] - mean[k];
            bool masked = FLAGS & RELU && x[FLAGS & RELU ? 2 : 0][i] <= 0;
            if (FLAGS & AGAIN) masked = is_masked(multiply_add(d, scale[k], bias[k]), T{});
            const W g = masked ? (W)0 : gy;
            sum[i] += g;
            dot[i] = multiply_add(g, d, dot[i]);
            if (WRITES) gz[i] = g;
        }
    }
};

/* scale ((gy - mean of gy) - (x - mean) slope). */
template <typename T, int N, bool LAST, int FLAGS> struct grad_apply_job {
    typedef T element;
    typedef typename wide_type<T>::type W;
    enum { INPUTS = FLAGS & RELU ? 3 : 2, WRITES = 1, P = LAST ? N : 1 };
    enum { UNROLL = FLAGS & AGAIN ? 2 : FLAGS ? 1 : 2 };
    W mean[P], scale[P], mean_gy[P], slope[P], bias[P];
    const T *in[3];
    T *out;
    __device__ __forceinline__ void begin(const parameters &p, long long channel) {
        in[0] = (const T *)p.gy;
        in[1] = (const T *)p.x;
        in[2] = (const T *)p.relu;
        out = (T *)p.y;
        load_factors<W, P>(p, 0, channel, mean);
        load_factors<W, P>(p, 1, channel, scale);
        load_factors<W, P>(p, 2, channel, mean_gy);
        load_factors<W, P>(p, 3, channel, slope);
        if (FLAGS & AGAIN) load_factors<W, P>(p, 4, channel, bias);
    }
    __device__ __forceinline__ void compute(const W (*x)[N], W *gx) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int k = P == 1 ? 0 : i;
            const W d = x[1][i] - mean[k];
            bool masked = FLAGS & RELU && x[INPUTS - 1][i] <= 0;
            if (FLAGS & AGAIN) masked = is_masked(multiply_add(d, scale[k], bias[k]), T{});
            const W g = masked ? (W)0 : x[0][i];
            gx[i] = scale[k] * ((g - mean_gy[k]) - d * slope[k]);
        }
    }
};

/* --- passes over the rows --------------------------------------------------------------------- */

/* `count` vectors, at most U, `stride` elements apart: all are loaded before the first one is used.
 * FULL: count is U. */
template <class J, int N, int U, bool FULL>
static __device__ __forceinline__ void visit_some(J &job, long long offset, long long stride,
                                                  long long count) {
    typedef typename J::element T;
    typedef typename J::W W;
    raw_vector<T, N> raw[U][J::INPUTS];
#pragma unroll
    for (int u = 0; u < U; u++)
        if (FULL || u < count) {
#pragma unroll
            for (int k = 0; k < J::INPUTS; k++) raw[u][k].load(job.in[k] + offset + u * stride);
        }
#pragma unroll
    for (int u = 0; u < U; u++)
        if (FULL || u < count) {
            W in[J::INPUTS][N], out[N];
#pragma unroll
            for (int k = 0; k < J::INPUTS; k++) raw[u][k].widen_to(in[k]);
            job.compute(in, out);
            if (J::WRITES) raw_vector<T, N>::store(job.out + offset + u * stride, out);
        }
}

/* `count` vectors, `stride` elements apart. */
template <class J, int N>
static __device__ __forceinline__ void visit_vectors(J &job, long long offset, long long count,
                                                     long long stride) {
    long long i = 0;
    for (; i + J::UNROLL <= count; i += J::UNROLL, offset += J::UNROLL * stride)
        visit_some<J, N, J::UNROLL, true>(job, offset, stride, J::UNROLL);
    if (i < count) visit_some<J, N, J::UNROLL, false>(job, offset, stride, count - i);
}

/* A thread's position: columns tx of row ty; `depth` rows; its part of the rows of a tile. */
struct thread_position {
    int tx, ty, depth;
    long long tile, part;
    __device__ __forceinline__ explicit thread_position(const parameters &p) {
        tx = (int)threadIdx.x % p.columns;
        ty = (int)threadIdx.x / p.columns;
        depth = THREADS / p.columns;
        tile = blockIdx.x % p.tiles;
        part = blockIdx.x / p.tiles;
    }
};

template <class J, int N, bool LAST>
static __device__ __forceinline__ void visit_rows(const parameters &p, J &job) {
    const thread_position t(p);
    const long long step = p.parts * t.depth, first = t.part * t.depth + t.ty;
    const long long vector = LAST ? t.tile * p.columns + t.tx : 0;
    const bool reads = t.ty < t.depth && (!LAST || vector * N < p.c) && p.rows > 0;
    if (!reads) return;
    job.begin(p, LAST ? vector * N : t.tile);
    if (LAST) {
        if (first < p.rows)
            visit_vectors<J, N>(job, first * p.c + vector * N, (p.rows - first + step - 1) / step,
                                step * p.c);
        return;
    }
    const long long vectors = p.s / N;
    for (long long row = first; row < p.rows; row += step) {
        const long long n = p.pieces == 1 ? row : row / p.pieces, piece = row - n * p.pieces;
        const long long begin = piece * p.piece + t.tx,
                        end = (piece + 1) * p.piece < vectors ? (piece + 1) * p.piece : vectors;
        if (begin < end)
            visit_vectors<J, N>(job, (n * p.c + t.tile) * p.s + begin * N,
                                (end - begin + p.columns - 1) / p.columns,
                                (long long)p.columns * N);
    }
}

/* Adds the sums of a block's threads, `which` of the two, and stores them as its part. */
template <int N, bool LAST, typename W>
static __device__ __forceinline__ void store_sums(const parameters &p, int which, const W *sums,
                                                  W *shared) {
    const thread_position t(p);
    double *partials = p.partials + (t.part * 2 + which) * p.c;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++) shared[threadIdx.x * N + i] = sums[i];
    __syncthreads();
    if (LAST) { /* [ty][channel]: one thread for each channel */
        const int width = p.columns * N;
        for (int j = threadIdx.x; j < width; j += THREADS) {
            double sum = 0;
#pragma unroll 8
            for (int y = 0; y < t.depth; y++) sum += (double)shared[y * width + j];
            if (t.tile * width + j < p.c) partials[t.tile * width + j] = sum;
        }
        return;
    }
    double sum = 0; /* a warp adds all of them */
    if (threadIdx.x < 32) {
        for (int j = threadIdx.x; j < THREADS * N; j += 32) sum += (double)shared[j];
        sum = sum_of_lanes(sum, 32);
    }
    if (threadIdx.x == 0) partials[t.tile] = sum;
}

template <template <typename, int, bool, int> class JOB, int FLAGS, bool SUMS, typename T, int N,
          bool LAST>
static __device__ __forceinline__ void run_job(const parameters &p, void *memory) {
    typedef JOB<T, N, LAST, FLAGS> J;
    J job;
    if constexpr (SUMS) {
        typename J::W *shared = (typename J::W *)memory; /* N for each thread */
        for (int i = 0; i < N; i++) job.sum[i] = job.dot[i] = 0;
        visit_rows<J, N, LAST>(p, job);
        store_sums<N, LAST>(p, 0, job.sum, shared);
        store_sums<N, LAST>(p, 1, job.dot, shared);
    } else visit_rows<J, N, LAST>(p, job);
}

template <template <typename, int, bool, int> class JOB, int FLAGS, bool SUMS, typename T>
static __device__ __forceinline__ void run_layout(const parameters &p, void *memory) {
    enum {
        N = sizeof(T) == 8                    ? 1
            : FLAGS & AGAIN && sizeof(T) == 2 ? pack_size<T>::value / 2
                                              : pack_size<T>::value
    };
    if (p.channels_last) {
        if (p.vector) run_job<JOB, FLAGS, SUMS, T, N, true>(p, memory);
        else run_job<JOB, FLAGS, SUMS, T, 1, true>(p, memory);
    } else {
        if (p.vector) run_job<JOB, FLAGS, SUMS, T, N, false>(p, memory);
        else run_job<JOB, FLAGS, SUMS, T, 1, false>(p, memory);
    }
}

#define PASS(name, job, flags, sums)                                                    \
    extern "C" __global__ void __launch_bounds__(512, 2)                                \
        gd_batch_norm_##name(const __grid_constant__ gd_cuda_batch_norm p) {            \
        RETURN_IF_FAILED(p.call);                                                       \
        __shared__ uint4 memory[sums ? 2 * THREADS : 1]; /* 8 floats for each thread */ \
        WITH_FLOAT_TYPE(p.dtype, run_layout<job, flags, sums, T>(p, memory))            \
    }

PASS(statistics, statistics_job, 0, true)
PASS(apply, apply_job, 0, false)
PASS(apply_relu, apply_job, RELU, false)
PASS(apply_add, apply_job, ADD, false)
PASS(apply_add_relu, apply_job, RELU | ADD, false)
PASS(grad_sums, grad_sums_job, 0, true)
PASS(grad_sums_relu, grad_sums_job, RELU, true)
PASS(grad_sums_add_relu, grad_sums_job, RELU | ADD, true)
PASS(grad_sums_add_relu_sum, grad_sums_job, RELU | ADD | SUM, true)
PASS(grad_apply, grad_apply_job, 0, false)
PASS(grad_apply_relu, grad_apply_job, RELU, false)
PASS(grad_sums_again, grad_sums_job, AGAIN, true)
PASS(grad_apply_again, grad_apply_job, AGAIN, false)

/* --- between the passes ----------------------------------------------------------------------- */

/* Adds the partial sums of a channel; lane 0 of the channel gets them. */
static __device__ __forceinline__ void add_partials(const parameters &p, long long channel,
                                                    int lane, double *sum, double *dot) {
    __shared__ double shared[2][GD_CUDA_FINISH_LANES][GD_CUDA_FINISH_CHANNELS];
    const int c = threadIdx.x % GD_CUDA_FINISH_CHANNELS;
    double a = 0, b = 0;
    if (channel < p.c) {
        const double *from = p.partials + channel;
#pragma unroll 8
        for (int k = lane; k < (int)p.parts; k += GD_CUDA_FINISH_LANES) {
            a += from[2 * k * p.c];
            b += from[(2 * k + 1) * p.c];
        }
    }
    shared[0][lane][c] = a;
    shared[1][lane][c] = b;
    __syncthreads();
    *sum = *dot = 0;
    if (lane == 0)
        for (int k = 0; k < GD_CUDA_FINISH_LANES; k++)
            *sum += shared[0][k][c], *dot += shared[1][k][c];
}

static __device__ __forceinline__ void set_factor(const parameters &p, int factor,
                                                  long long channel, double x) {
    if (p.dtype == GD_F64) ((double *)p.table)[factor * p.c + channel] = x;
    else ((float *)p.table)[factor * p.c + channel] = (float)x;
}

static __device__ __forceinline__ void store_channel(const gd_cuda_channel_vector &v,
                                                     long long channel, double x) {
    if (v.data) store_real(v.dtype, v.data, channel, x);
}

static __device__ __forceinline__ void
update_running(const gd_cuda_channel_vector &v, long long channel, double momentum, double latest) {
    if (!v.data) return;
    const double old = load_real(v.dtype, v.data, channel);
    store_real(v.dtype, v.data, channel, old + momentum * (latest - old));
}

/* Statistics from the sums, or from the running statistics; then the table of apply. */
extern "C" __global__ void gd_batch_norm_finish(const __grid_constant__ gd_cuda_batch_norm p) {
    RETURN_IF_FAILED(p.call);
    const int lane = threadIdx.x / GD_CUDA_FINISH_CHANNELS;
    const long long channel =
        (long long)blockIdx.x * GD_CUDA_FINISH_CHANNELS + threadIdx.x % GD_CUDA_FINISH_CHANNELS;
    double mean = 0, variance = 0, sum, dot;
    if (p.training) add_partials(p, channel, lane, &sum, &dot);
    if (lane != 0 || channel >= p.c) return;
    if (!p.training) {
        mean = load_real(p.running_mean.dtype, p.running_mean.data, channel);
        variance = load_real(p.running_var.dtype, p.running_var.data, channel);
    } else if (p.rows > 0) {
        const double count = (double)(p.n * p.s), d = sum / count;
        mean = d + load_real(p.dtype, p.x, p.channels_last ? channel : channel * p.s);
        variance = dot / count - d * d;
        if (variance < 0) variance = 0;
        update_running(p.running_mean, channel, p.momentum, mean);
        update_running(p.running_var, channel, p.momentum, variance * count / (count - 1));
    }
    /* the gradient computes the same factors from the stored statistics */
    double rstd = 1 / sqrt(variance + p.eps);
    if (p.dtype != GD_F64) rstd = (double)(float)rstd;
    store_channel(p.mean, channel, mean);
    store_channel(p.rstd, channel, rstd);
    set_factor(p, 0, channel, mean);
    set_factor(p, 1, channel, rstd * channel_number(p.weight, channel, 1));
    set_factor(p, 2, channel, channel_number(p.bias, channel, 0));
}

/* Gradients of weight and bias, and the table of the second pass. */
extern "C" __global__ void gd_batch_norm_grad_finish(const __grid_constant__ gd_cuda_batch_norm p) {
    RETURN_IF_FAILED(p.call);
    const int lane = threadIdx.x / GD_CUDA_FINISH_CHANNELS;
    const long long channel =
        (long long)blockIdx.x * GD_CUDA_FINISH_CHANNELS + threadIdx.x % GD_CUDA_FINISH_CHANNELS;
    double sum, dot;
    add_partials(p, channel, lane, &sum, &dot);
    if (lane != 0 || channel >= p.c) return;
    const double count = (double)(p.n * p.s), rstd = channel_number(p.rstd, channel, 1);
    store_channel(p.gbias, channel, sum);
    store_channel(p.gweight, channel, dot * rstd);
    set_factor(p, 0, channel, channel_number(p.mean, channel, 0));
    set_factor(p, 1, channel, rstd * channel_number(p.weight, channel, 1));
    set_factor(p, 2, channel, p.training ? sum / count : 0);
    set_factor(p, 3, channel, p.training ? rstd * rstd * dot / count : 0);
    set_factor(p, 4, channel, channel_number(p.bias, channel, 0));
}
