/* loss_class.cu - cross-entropy and negative log likelihood of class numbers, and their gradients.
 *
 * The scores are read once in each direction. A loss has a term and a weight for each position;
 * one block adds them in a fixed order.
 */
#include "ops/loss/cuda/loss_class_args.h"

#include "ops/softmax/cuda/softmax_online.cuh"
#include "backend/cuda/previous_kernel.cuh"
#include "gradus/backend.h"

typedef gd_cuda_class_loss parameters;

/* --- targets ---------------------------------------------------------------------------------- */

/* The class of a position; -1: ignored, or a bad one, which is reported. */
static __device__ __forceinline__ long long check_class(const parameters &p, long long position,
                                                        long long c) {
    if (c == p.ignore) return -1;
    if (c >= 0 && c < p.classes) return c;
    report_problem(p.call, GD_DATA_CLASS, position, c, p.classes, p.ignore, 0);
    return -1;
}

static __device__ __forceinline__ long long class_of(const parameters &p, long long position) {
    return check_class(p, position, load_integer(p.target_dtype, p.target, position));
}

extern "C" __global__ void gd_check_targets(const __grid_constant__ gd_cuda_class_loss p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.outer * p.inner)) class_of(p, i);
}

template <typename T>
static __device__ __forceinline__ typename wide_type<T>::type weight_of(const parameters &p,
                                                                        long long c) {
    return p.weight ? widen(((const T *)p.weight)[c]) : (typename wide_type<T>::type)1;
}

/* --- reductions ------------------------------------------------------------------------------- */

/* Stores the loss from the sums of terms and weights. */
static __device__ __forceinline__ void store_loss(const parameters &p, double sum, double total) {
    if (!p.each) store_real(p.y_dtype, p.y, 0, p.mean ? sum / total : sum);
    if (p.total) *p.total = total;
}

/* A position's term and weight: for the second kernel, or added to this thread's sums. */
static __device__ __forceinline__ void put_term(const parameters &p, long long position,
                                                double term, double weight, double *sum,
                                                double *total) {
    if (p.each) store_real(p.y_dtype, p.y, position, term);
    if (p.terms) {
        p.terms[2 * position] = term;
        p.terms[2 * position + 1] = weight;
    }
    *sum += term;
    *total += weight;
}

extern "C" __global__ void __launch_bounds__(GD_CUDA_TOTAL_THREADS)
    gd_loss_total(const __grid_constant__ gd_cuda_class_loss p) {
    RETURN_IF_FAILED(p.call);
    __shared__ double shared[32];
    double sum = 0, total = 0;
#pragma unroll 4
    for (long long i = threadIdx.x; i < p.outer * p.inner; i += blockDim.x) {
        sum += p.terms[2 * i];
        total += p.terms[2 * i + 1];
    }
    sum = sum_of_block(sum, shared, (int)blockDim.x);
    total = sum_of_block(total, shared, (int)blockDim.x);
    if (threadIdx.x == 0) store_loss(p, sum, total);
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

/* What the loss of a position needs to know of its scores. */
template <typename W> struct score_sums {
    online_sum<W, false> exps;
    W weighted, weights; /* sums of weight * x and of the weights, for label smoothing */
    __device__ __forceinline__ void start() {
        exps.start();
        weighted = weights = 0;
    }
    template <typename T, int COUNT>
    __device__ __forceinline__ void add(const parameters &p, long long c, const W *x) {
        exps.template add<COUNT>(x);
        if (p.smoothing > 0) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const W weight = weight_of<T>(p, c + i);
                weighted += weight * x[i];
                weights += weight;
            }
        }
    }
};

/* The term of a position, from the sums over its scores and the target's score. */
template <typename T, typename W>
static __device__ __forceinline__ void finish_position(const parameters &p, long long position,
                                                       long long c, const score_sums<W> &s, W score,
                                                       double *sum, double *total) {
    const W all = s.exps.largest == -(W)INFINITY ? (W)NAN : s.exps.sum;
    double term = 0, weight = 0;
    if (c >= 0) {
        const double log_sum = (double)log_of(all);
        weight = (double)weight_of<T>(p, c);
        term = (1 - p.smoothing) * weight * (log_sum - ((double)score - (double)s.exps.largest));
        if (p.smoothing > 0)
            term += p.smoothing / (double)p.classes *
                    ((double)s.weights * (log_sum + (double)s.exps.largest) - (double)s.weighted);
    }
    if (p.shift) ((W *)p.shift)[position] = s.exps.largest;
    if (p.scale) ((W *)p.scale)[position] = 1 / all;
    put_term(p, position, term, weight, sum, total);
}

/* Rows of scores (inner = 1), each read by a block, or by a warp. */
template <typename T, bool BLOCK>
static __device__ void entropy_rows(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const int threads = BLOCK ? (int)blockDim.x : 32, thread = (int)threadIdx.x % threads;
    const long long step = BLOCK ? gridDim.x : (long long)gridDim.x * (blockDim.x / 32);
    double sum = 0, total = 0;
    for (long long row = BLOCK ? blockIdx.x
                               : (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
         row < p.outer; row += step) {
        const T *scores = (const T *)p.x + row * p.classes;
        /* loaded before the scores, so that thread 0 need not wait for it at the end */
        const long long target = load_integer(p.target_dtype, p.target, row);
        score_sums<W> s;
        s.start();
        visit_row<T>(scores, p.classes, thread, threads, [&](long long c, const W *x, auto count) {
            s.template add<T, decltype(count)::value>(p, c, x);
        });
        if (BLOCK) s.exps.join_block((W *)memory, threads);
        else s.exps.join_warp();
        if (p.smoothing > 0) {
            s.weighted = BLOCK ? sum_of_block(s.weighted, (W *)memory, threads)
                               : sum_of_lanes(s.weighted, 32);
            s.weights =
                BLOCK ? sum_of_block(s.weights, (W *)memory, threads) : sum_of_lanes(s.weights, 32);
        }
        if (thread == 0) {
            const long long c = check_class(p, row, target);
            finish_position<T>(p, row, c, s, c < 0 ? (W)0 : widen(scores[c]), &sum, &total);
        }
    }
    if (p.terms) return;
    sum = sum_of_block(sum, (double *)memory, (int)blockDim.x);
    total = sum_of_block(total, (double *)memory, (int)blockDim.x);
    if (threadIdx.x == 0) store_loss(p, sum, total);
}

/* The offset of the first score of a position. */
static __device__ __forceinline__ long long first_score(const parameters &p, long long position) {
    const long long n = position / p.inner;
    return n * p.classes * p.inner + (position - n * p.inner);
}

/* Reads all scores of a position, which are p.inner apart. */
template <typename T, typename W>
static __device__ __forceinline__ void read_scores(const parameters &p, const T *scores,
                                                   score_sums<W> &s) {
    enum { CHUNK = 8 };
    long long at = 0;
    s.start();
    for (; at + CHUNK <= p.classes; at += CHUNK) {
        W x[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) x[i] = widen(scores[(at + i) * p.inner]);
        s.template add<T, CHUNK>(p, at, x);
    }
#pragma unroll 4
    for (; at < p.classes; at++) {
        const W x = widen(scores[at * p.inner]);
        s.template add<T, 1>(p, at, &x);
    }
}

/* Any `inner`: neighbouring threads compute neighbouring positions. */
template <typename T> static __device__ void entropy_lines(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    double sum = 0, total = 0;
    for (EACH(position, p.outer * p.inner)) {
        const T *scores = (const T *)p.x + first_score(p, position);
        score_sums<W> s;
        read_scores(p, scores, s);
        const long long c = class_of(p, position);
        finish_position<T>(p, position, c, s, c < 0 ? (W)0 : widen(scores[c * p.inner]), &sum,
                           &total);
    }
    if (p.terms) return;
    sum = sum_of_block(sum, (double *)memory, (int)blockDim.x);
    total = sum_of_block(total, (double *)memory, (int)blockDim.x);
    if (threadIdx.x == 0) store_loss(p, sum, total);
}

template <typename T> static __device__ void likelihood_terms(const parameters &p, void *memory) {
    double sum = 0, total = 0;
    for (EACH(position, p.outer * p.inner)) {
        const long long n = position / p.inner,
                        first = n * p.classes * p.inner + (position - n * p.inner);
        const long long c = class_of(p, position);
        double term = 0, weight = 0;
        if (c >= 0) {
            weight = (double)weight_of<T>(p, c);
            term = -weight * (double)widen(((const T *)p.x)[first + c * p.inner]);
        }
        put_term(p, position, term, weight, &sum, &total);
    }
    if (p.terms) return;
    sum = sum_of_block(sum, (double *)memory, (int)blockDim.x);
    total = sum_of_block(total, (double *)memory, (int)blockDim.x);
    if (threadIdx.x == 0) store_loss(p, sum, total);
}

#define LOSS_KERNEL(name, threads, blocks, ...)                        \
    extern "C" __global__ void __launch_bounds__(threads, blocks)      \
        gd_##name(const __grid_constant__ gd_cuda_class_loss p) {      \
        RETURN_IF_FAILED(p.call);                                      \
        __shared__ double memory[64]; /* of barriers: __syncthreads */ \
        WITH_FLOAT_TYPE(p.dtype, __VA_ARGS__(p, memory))               \
    }
LOSS_KERNEL(cross_entropy_block_rows, GD_CUDA_LOSS_THREADS, 5, entropy_rows<T, true>)
LOSS_KERNEL(cross_entropy_warp_rows, GD_CUDA_TOTAL_THREADS, 1, entropy_rows<T, false>)
LOSS_KERNEL(cross_entropy_lines, GD_CUDA_TOTAL_THREADS, 1, entropy_lines<T>)
LOSS_KERNEL(likelihood_terms, GD_CUDA_TOTAL_THREADS, 1, likelihood_terms<T>)

/* --- gradients -------------------------------------------------------------------------------- */

/* The gradient of a position's term: gy, divided by the total for a mean. */
static __device__ __forceinline__ double gradient_of_term(const parameters &p, long long position) {
    const double g = load_real(p.gy_dtype, p.gy, p.each ? position : 0);
    return p.mean ? g / load_real(p.total_dtype, p.total_of, 0) : g;
}

/* The factors of a position: gx = pull exp(x - shift) - even weight, minus own at its class. */
template <typename W> struct position_factors {
    W shift, pull, own, even;
    long long c;
};
/* g is the gradient of the term; `all` is the sum of all weights. */
template <typename T, typename W>
static __device__ __forceinline__ position_factors<W>
make_factors(const parameters &p, long long c, double g, W shift, W scale, double all) {
    const double own = c < 0 ? 0 : (1 - p.smoothing) * (double)weight_of<T>(p, c);
    const double even = p.smoothing > 0 ? p.smoothing / (double)p.classes : 0;
    position_factors<W> f;
    f.c = c;
    f.shift = shift;
    f.pull = (W)(g * (own + even * all) * (double)scale);
    f.own = (W)(g * own);
    f.even = (W)(g * even);
    return f;
}
template <typename T, typename W>
static __device__ __forceinline__ position_factors<W> factors_of(const parameters &p,
                                                                 long long position, double all) {
    const long long c = class_of(p, position);
    return make_factors<T>(p, c, c < 0 ? 0 : gradient_of_term(p, position),
                           ((const W *)p.shift)[position], ((const W *)p.scale)[position], all);
}
/* `e` is exp(x - shift) of the score x of class c. */
template <typename T, typename W>
static __device__ __forceinline__ W gradient_of_exp(const parameters &p,
                                                    const position_factors<W> &f, long long c,
                                                    W e) {
    if (f.c < 0) return 0;
    W g = f.pull * e;
    if (p.smoothing > 0) g -= f.even * weight_of<T>(p, c);
    return c == f.c ? g - f.own : g;
}
template <typename T, typename W>
static __device__ __forceinline__ W score_gradient(const parameters &p,
                                                   const position_factors<W> &f, long long c, W x) {
    return gradient_of_exp<T>(p, f, c, exp_of(x - f.shift));
}

/* The sum of all weights, which label smoothing needs. All threads of the block get it. */
template <typename T>
static __device__ __forceinline__ double sum_of_weights(const parameters &p, double *shared) {
    if (!p.weight || p.smoothing <= 0) return (double)p.classes;
    double sum = 0;
    for (long long c = threadIdx.x; c < p.classes; c += blockDim.x)
        sum += (double)weight_of<T>(p, c);
    return sum_of_block(sum, shared, (int)blockDim.x);
}

/* Rows of scores, each by a block. x and gx have the same address modulo 16, so that vectors of
 * one are vectors of the other. */
template <typename T> static __device__ void entropy_grad_rows(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const double all = sum_of_weights<T>(p, (double *)memory);
    for (long long row = blockIdx.x; row < p.outer; row += gridDim.x) {
        const position_factors<W> f = factors_of<T, W>(p, row, all);
        T *to = (T *)p.gx + row * p.classes;
        visit_row<T>((const T *)p.x + row * p.classes, p.classes, (int)threadIdx.x, (int)blockDim.x,
                     [&](long long c, const W *x, auto count) {
                         enum { COUNT = decltype(count)::value };
                         W g[COUNT];
#pragma unroll
                         for (int i = 0; i < COUNT; i++)
                             g[i] = score_gradient<T>(p, f, c + i, x[i]);
                         raw_vector<T, COUNT>::store(to + c, g);
                     });
    }
}

template <typename T>
static __device__ void entropy_grad_elements(const parameters &p, void *memory) {
    typedef typename wide_type<T>::type W;
    const double all = sum_of_weights<T>(p, (double *)memory);
    for (EACH(i, p.outer * p.classes * p.inner)) {
        const long long line = i / p.inner, n = line / p.classes, c = line - n * p.classes;
        const long long position = n * p.inner + (i - line * p.inner);
        const position_factors<W> f = factors_of<T, W>(p, position, all);
        narrow(((T *)p.gx)[i], score_gradient<T>(p, f, c, widen(((const T *)p.x)[i])));
    }
}

template <typename T> static __device__ void likelihood_grad_elements(const parameters &p, void *) {
    typedef typename wide_type<T>::type W;
    for (EACH(i, p.outer * p.classes * p.inner)) {
        const long long line = i / p.inner, n = line / p.classes, c = line - n * p.classes;
        const long long position = n * p.inner + (i - line * p.inner);
        const bool named = class_of(p, position) == c;
        narrow(((T *)p.gx)[i], named
                                   ? (W)(-gradient_of_term(p, position) *
                                         (p.weight ? load_real(p.weight_dtype, p.weight, c) : 1.0))
                                   : (W)0);
    }
}

/* One block computes the loss, then its gradient from the statistics and the total that it has
 * stored. */
template <typename T> static __device__ void entropy_with_grad(const parameters &p, void *memory) {
    if (p.lines) entropy_lines<T>(p, memory);
    else entropy_rows<T, false>(p, memory);
    __syncthreads();
    entropy_grad_elements<T>(p, memory);
}

/* The sums of two values over the block, in all threads, with one barrier. `shared` has 64
 * elements. */
static __device__ __forceinline__ void sum_pairs_of_block(double &a, double &b, double *shared) {
#pragma unroll
    for (int m = 16; m > 0; m /= 2) {
        a += __shfl_xor_sync(~0u, a, m);
        b += __shfl_xor_sync(~0u, b, m);
    }
    if (blockDim.x == 32) return;
    const int warp = (int)threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) shared[2 * warp] = a, shared[2 * warp + 1] = b;
    __syncthreads();
    a = b = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++) a += shared[2 * i], b += shared[2 * i + 1];
}

/* The same for a block with a thread for each position, which stores no statistics. A thread has all
 * scores of its position in registers, so that they are loaded together and once. */
template <typename T>
static __device__ void entropy_of_threads(const parameters &p, double *memory) {
    typedef typename wide_type<T>::type W;
    enum { MAX_CLASSES = GD_CUDA_LINE_CLASSES };
    const int classes = (int)p.classes;
    const long long position = threadIdx.x,
                    first = p.inner == 1 ? position * classes : first_score(p, position);
    const bool inside = position < p.outer * p.inner, failed = p.call.word->number != 0;
    W x[MAX_CLASSES]; /* scores, then exponentials */
#pragma unroll
    for (int k = 0; k < MAX_CLASSES; k++)
        x[k] = inside && k < classes ? widen(((const T *)p.x)[first + k * p.inner]) : -(W)INFINITY;
    const double gy = inside ? load_real(p.gy_dtype, p.gy, p.each ? position : 0) : 0;
    long long c = inside ? load_integer(p.target_dtype, p.target, position) : -1;
    if (failed) return;
    const double all_weights = sum_of_weights<T>(p, memory + 64);
    score_sums<W> s;
    s.start();
    double sum = 0, total = 0;
    if (inside) {
#pragma unroll
        for (int k = 0; k < MAX_CLASSES; k++) s.exps.largest = larger_of(s.exps.largest, x[k]);
        W score = 0;
        c = check_class(p, position, c);
#pragma unroll
        for (int k = 0; k < MAX_CLASSES; k++) {
            if (k >= classes) break;
            if (k == c) score = x[k];
            if (p.smoothing > 0) {
                const W weight = weight_of<T>(p, k);
                s.weighted += weight * x[k];
                s.weights += weight;
            }
            x[k] = exp_below<false>(x[k], s.exps.largest);
            s.exps.sum += x[k];
        }
        finish_position<T>(p, position, c, s, score, &sum, &total);
    }
    sum_pairs_of_block(sum, total, memory);
    if (!inside) return;
    const W scale = 1 / (s.exps.largest == -(W)INFINITY ? (W)NAN : s.exps.sum);
    const position_factors<W> f = make_factors<T>(p, c,
                                                  c < 0    ? 0
                                                  : p.mean ? gy / total
                                                           : gy,
                                                  s.exps.largest, scale, all_weights);
#pragma unroll
    for (int k = 0; k < MAX_CLASSES; k++)
        if (k < classes)
            narrow(((T *)p.gx)[first + k * p.inner], gradient_of_exp<T>(p, f, k, x[k]));
    if (threadIdx.x == 0) store_loss(p, sum, total);
}

extern "C" __global__ void __launch_bounds__(GD_CUDA_TOTAL_THREADS, 1)
    gd_cross_entropy_with_grad(const __grid_constant__ gd_cuda_class_loss p) {
    wait_for_previous_kernel();
    RETURN_IF_FAILED(p.call);
    __shared__ double memory[64];
    WITH_FLOAT_TYPE(p.dtype, entropy_with_grad<T>(p, memory))
}
extern "C" __global__ void __launch_bounds__(GD_CUDA_LINE_THREADS, 1)
    gd_cross_entropy_of_threads(const __grid_constant__ gd_cuda_class_loss p) {
    wait_for_previous_kernel();
    __shared__ double memory[128];
    WITH_FLOAT_TYPE(p.dtype, entropy_of_threads<T>(p, memory))
}
LOSS_KERNEL(cross_entropy_grad_rows, GD_CUDA_LOSS_THREADS, 5, entropy_grad_rows<T>)
LOSS_KERNEL(cross_entropy_grad_elements, 256, 4, entropy_grad_elements<T>)
LOSS_KERNEL(likelihood_grad_elements, 256, 4, likelihood_grad_elements<T>)
