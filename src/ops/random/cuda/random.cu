/* random.cu - random numbers, with the same bits as on the CPU (ops/random/random_dist.h).
 *
 * A thread computes a block of four random words, and the two or four elements that use them.
 */
#include "backend/cuda/element.cuh"
#include "ops/random/cuda/random_args.h"
#include "ops/random/cuda/random_dist.cuh"
#include "gradus/backend.h"

static __device__ __forceinline__ gd_rng load_rng(const gd_cuda_rng &r) {
    if (r.key) return gd_rng{r.key[0], r.key[r.key_stride]};
    if (!r.rng_offset) return gd_rng{r.seed, r.call};
    return gd_rng{r.seed ^ r.rng_offset[0], r.call + r.rng_offset[1]};
}

/* Contiguous views have rank 1, which needs no division. */
static __device__ __forceinline__ long long element_offset(const gd_cuda_view &v, long long i) {
    return v.rank == 1 ? i * v.strides[0] : offset_of(v, i);
}

static __device__ __forceinline__ uint64_t join_words(const uint32_t *words) {
    return (uint64_t)words[0] << 32 | words[1];
}

/* EACH_WORDS(p, per_block, body) runs the body for each element i of y with the words of its block;
 * k is its number in the block, which has `per_block` elements. */
#define EACH_WORDS(p, per_block, ...)                                \
    const gd_rng rng = load_rng((p).rng);                            \
    for (EACH(block, ((p).y.count + (per_block)-1) / (per_block))) { \
        uint32_t words[4];                                           \
        gd_philox(rng, (uint64_t)block, words);                      \
        _Pragma("unroll") for (int k = 0; k < (per_block); k++) {    \
            const long long i = (per_block)*block + k;               \
            if (i < (p).y.count) {                                   \
                __VA_ARGS__                                          \
            }                                                        \
        }                                                            \
    }

/* --- keys ------------------------------------------------------------------------------------- */

extern "C" __global__ void gd_draw_key(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    const gd_rng rng = load_rng(p.rng);
    for (EACH(i, 2))
        ((int64_t *)p.y.data)[i * p.y.strides[0]] = (int64_t)(i == 0 ? rng.seed : rng.call);
}

extern "C" __global__ void gd_draw_words(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    EACH_WORDS(p, 4, ((int64_t *)p.y.data)[element_offset(p.y, i)] = words[k];)
}

extern "C" __global__ void gd_draw_mask(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    EACH_WORDS(p, 4, ((uint8_t *)p.y.data)[element_offset(p.y, i)] = words[k] < p.limit;)
}

/* --- distributions ---------------------------------------------------------------------------- */

/* mean + std * z. Also the normals of a key, with mean 0 and std 1. */
extern "C" __global__ void gd_draw_normal(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    if (p.y.dtype == GD_F64) {
        EACH_WORDS(p, 2, {
            double z[2];
            gd_normals_f64(words, &z[0], &z[1]);
            ((double *)p.y.data)[element_offset(p.y, i)] = p.mean + p.std * z[k];
        })
        return;
    }
    const float mean = (float)p.mean, std = (float)p.std;
    EACH_WORDS(p, 4, {
        float z[2];
        gd_normals_f32(words[k & 2], words[(k & 2) + 1], &z[0], &z[1]);
        store_real(p.y.dtype, p.y.data, element_offset(p.y, i), mean + std * z[k & 1]);
    })
}

extern "C" __global__ void gd_draw_uniform(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    const gd_uniform_params u = {p.low, p.range, p.below, p.shift, p.unit};
    if (p.y.dtype == GD_F64) {
        EACH_WORDS(p, 2,
                   ((double *)p.y.data)[element_offset(p.y, i)] =
                       gd_uniform_f64(&u, words[2 * k], words[2 * k + 1]);)
        return;
    }
    EACH_WORDS(
        p, 4,
        store_real(p.y.dtype, p.y.data, element_offset(p.y, i), gd_uniform_f32(&u, words[k]));)
}

extern "C" __global__ void gd_draw_integers(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    EACH_WORDS(p, 2, {
        const uint64_t below = gd_below(join_words(&words[2 * k]), p.span);
        store_integer(p.y.dtype, p.y.data, element_offset(p.y, i), (int64_t)(p.first + below));
    })
}

/* Reports a probability that is not in [0, 1], for calls that write y in place. */
extern "C" __global__ void gd_draw_check(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.x.count)) {
        const double chance = load_real(p.x.dtype, p.x.data, element_offset(p.x, i));
        if (!(chance >= 0 && chance <= 1))
            report_problem(p.call, GD_DATA_PROBABILITY, i, 0, 0, 0, chance);
    }
}

extern "C" __global__ void gd_draw_bernoulli(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    EACH_WORDS(p, 4, {
        const double chance = load_real(p.x.dtype, p.x.data, element_offset(p.x, i));
        if (chance >= 0 && chance <= 1)
            store_integer(p.y.dtype, p.y.data, element_offset(p.y, i), gd_chance(chance, words[k]));
        else report_problem(p.call, GD_DATA_PROBABILITY, i, 0, 0, 0, chance);
    })
}

extern "C" __global__ void gd_draw_dropout(const __grid_constant__ gd_cuda_draw p) {
    RETURN_IF_FAILED(p.call);
    EACH_WORDS(p, 4, {
        const bool keep = words[k] < p.limit;
        const double x = load_real(p.x.dtype, p.x.data, element_offset(p.x, i));
        const long long at = element_offset(p.y, i);
        if (p.y.dtype == GD_F64) ((double *)p.y.data)[at] = x * (keep ? p.scale : 0);
        else store_real(p.y.dtype, p.y.data, at, (float)x * (keep ? (float)p.scale : 0));
        if (p.mask.data) ((uint8_t *)p.mask.data)[element_offset(p.mask, i)] = keep;
    })
}

/* --- multinomial ------------------------------------------------------------------------------ */

static __device__ __forceinline__ double weight_at(const gd_cuda_multinomial &p, long long row,
                                                   long long c) {
    return load_real(p.weights.dtype, p.weights.data,
                     row * p.weights.strides[0] + c * p.weights.strides[1]);
}

/* 53 random bits in [0, 1). */
static __device__ __forceinline__ double unit_at(gd_rng rng, long long number) {
    const uint64_t bits = gd_long_at(rng, (uint64_t)number);
    return gd_unit_f64((uint32_t)(bits >> 32), (uint32_t)bits);
}

static __device__ __forceinline__ void report_weights(const gd_cuda_multinomial &p,
                                                      long long element, long long positive,
                                                      long long draws, double real) {
    report_problem(p.call, GD_DATA_WEIGHTS, element, positive, draws, 0, real);
}

/* Checks the weights and computes their cumulative sums. A block takes a row. One thread adds, in
 * the order of the CPU, so that the sums have the same bits; the others load and store. Without
 * replacement the sums are not stored. */
extern "C" __global__ void __launch_bounds__(GD_CUDA_ROW_THREADS)
    gd_multinomial_sums(const __grid_constant__ gd_cuda_multinomial p) {
    __shared__ double tile[GD_CUDA_ROW_THREADS];
    __shared__ long long positive; /* weights above 0 */
    __shared__ double sum;
    if (__syncthreads_or(p.call.word->number != 0)) return;
    for (long long row = blockIdx.x; row < p.rows; row += gridDim.x) {
        int bad = 0;
        if (threadIdx.x == 0) positive = 0, sum = 0;
        for (long long start = 0; start < p.classes; start += GD_CUDA_ROW_THREADS) {
            const long long c = start + threadIdx.x;
            const double weight = c < p.classes ? weight_at(p, row, c) : 0;
            if (!(weight >= 0) || isinf(weight)) {
                bad = 1;
                report_weights(p, row * p.classes + c, -1, 0, weight);
            }
            tile[threadIdx.x] = weight;
            __syncthreads();
            if (threadIdx.x == 0)
                for (int k = 0; k < GD_CUDA_ROW_THREADS && start + k < p.classes; k++) {
                    positive += tile[k] > 0;
                    tile[k] = sum += tile[k];
                }
            __syncthreads();
            if (c < p.classes && p.replacement) p.sums[row * p.classes + c] = tile[threadIdx.x];
        }
        if (__syncthreads_or(bad)) return;
        if (threadIdx.x == 0) {
            if (!(sum > 0) || isinf(sum)) report_weights(p, row * p.classes, 0, 0, sum);
            else if (!p.replacement && positive < p.draws)
                report_weights(p, row * p.classes, positive, p.draws, 0);
        }
    }
}

static __device__ __forceinline__ void store_class(const gd_cuda_multinomial &p, long long row,
                                                   long long draw, long long c) {
    store_integer(p.y.dtype, p.y.data, row * p.y.strides[0] + draw * p.y.strides[1], c);
}

/* With replacement: the first class whose cumulative sum is above a random part of the sum. */
extern "C" __global__ void gd_multinomial_draw(const __grid_constant__ gd_cuda_multinomial p) {
    RETURN_IF_FAILED(p.call);
    const gd_rng rng = load_rng(p.rng);
    for (EACH(i, p.rows * p.draws)) {
        const long long row = i / p.draws;
        const double *sums = p.sums + row * p.classes;
        const double limit = unit_at(rng, i) * sums[p.classes - 1];
        long long low = 0, high = p.classes - 1;
        while (low < high) {
            const long long middle = low + (high - low) / 2;
            if (sums[middle] > limit) high = middle;
            else low = middle + 1;
        }
        store_class(p, row, i - row * p.draws, low);
    }
}

/* Without replacement: each class arrives after an exponentially distributed time; those that
 * arrive first are drawn, in this order. */
extern "C" __global__ void gd_multinomial_arrivals(const __grid_constant__ gd_cuda_multinomial p) {
    RETURN_IF_FAILED(p.call);
    const gd_rng rng = load_rng(p.rng);
    for (EACH(i, p.rows * p.classes)) {
        const long long row = i / p.classes;
        const double weight = weight_at(p, row, i - row * p.classes);
        p.arrivals[i] =
            weight > 0 ? -gd_log_unit_f64(unit_at(rng, i) + 0x1p-54) / weight : (double)NAN;
    }
}

/* Whether class c, which arrives at `time`, is before the other. */
static __device__ __forceinline__ bool arrives_before(double time, long long c, double other_time,
                                                      long long other) {
    return time < other_time || (time == other_time && c < other);
}

/* Few draws: a block takes a row and finds one class after the other. */
extern "C" __global__ void __launch_bounds__(GD_CUDA_ROW_THREADS)
    gd_multinomial_select(const __grid_constant__ gd_cuda_multinomial p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double times[GD_CUDA_ROW_THREADS];
    __shared__ long long classes[GD_CUDA_ROW_THREADS];
    for (long long row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const double *arrivals = p.arrivals + row * p.classes;
        double last_time = -1; /* of the class drawn before */
        long long last = -1;
        for (long long draw = 0; draw < p.draws; draw++) {
            double time = 0; /* of `first`, the first class after `last`; -1: none */
            long long first = -1;
            for (long long c = threadIdx.x; c < p.classes; c += GD_CUDA_ROW_THREADS)
                if (arrives_before(last_time, last, arrivals[c], c) &&
                    (first < 0 || arrives_before(arrivals[c], c, time, first)))
                    time = arrivals[c], first = c;
            times[threadIdx.x] = time;
            classes[threadIdx.x] = first;
            for (int half = GD_CUDA_ROW_THREADS / 2; half > 0; half /= 2) {
                __syncthreads();
                const int other = (int)threadIdx.x + half;
                if ((int)threadIdx.x < half && classes[other] >= 0 &&
                    (classes[threadIdx.x] < 0 ||
                     arrives_before(times[other], classes[other], times[threadIdx.x],
                                    classes[threadIdx.x]))) {
                    times[threadIdx.x] = times[other];
                    classes[threadIdx.x] = classes[other];
                }
            }
            __syncthreads();
            last_time = times[0];
            last = classes[0];
            __syncthreads();
            if (threadIdx.x == 0) store_class(p, row, draw, last);
        }
    }
}

/* Many draws: a thread counts the classes that arrive before its own. */
extern "C" __global__ void gd_multinomial_rank(const __grid_constant__ gd_cuda_multinomial p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.rows * p.classes)) {
        const long long row = i / p.classes, c = i - row * p.classes;
        const double *arrivals = p.arrivals + row * p.classes, time = arrivals[c];
        long long rank = 0;
        if (time != time) continue;
        for (long long k = 0; k < p.classes; k++) rank += arrives_before(arrivals[k], k, time, c);
        if (rank < p.draws) store_class(p, row, rank, c);
    }
}
