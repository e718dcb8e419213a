/* rows.cuh - kernels that make several passes over each row of their operands.
 *
 * The printer (codegen/dialect_cuda_rows.c) writes a row program as a struct P with the members
 *
 *     typedef ... type;         the compute type: s_f32 or s_f64
 *     TENSORS, RESULTS, COLUMNS, PARAMS, KEPT, PASSES    counts, as in codegen/row_program.h
 *     OUTPUTS                   the most outputs of a pass
 *     HAS_VALUES                some results have one value for each row
 *     THREADS                   of a row, a power of two: lanes of a warp, or an entire block
 *     BLOCK                     threads of a block
 *     SIZE                      elements of a vector; it divides the length of a row
 *     VECTORS                   of each thread, kept in registers; 0: passes read rows again
 *     UNROLL                    vectors that are loaded at once if VECTORS is 0
 *     WAYS                      accumulators of each reduction, a power of two
 *     dtype(k), layout(k)       of operand k, the tensors before the results
 *     use(pass, j), number(pass, j)    of output j of a pass; use > ROW_STORE: there is none
 *     loads(pass), reads(pass)  bit t: the pass loads tensor t; its expression reads variable t
 *     redone(pass)              bit q: the pass computes again what pass q has kept
 *     P(words, row)             reads the parameters and the columns
 *     once(constant<PASS>), each(constant<PASS>, v, o)   the expressions of a pass
 *     set(number, x)            sets a row value; value(result), is_value(result)
 *
 * and a kernel that calls run_rows with it. Thread i of a row has the vectors i, i + THREADS, ...
 * in every layout, so the order of a sum depends on the shape alone. Sums of floats are computed in
 * f64. A pass has no branches: lanes behind the end of a row compute, too, and their results are
 * dropped. This file is part of the text that precedes kernels compiled at run time.
 */
#ifndef GRADUS_BACKEND_CUDA_ROWS_CUH
#define GRADUS_BACKEND_CUDA_ROWS_CUH

#include "backend/cuda/row_vectors.cuh"
#include "backend/cuda/rows_args.h"

enum { ROW_SUM, ROW_MAX, ROW_MIN, ROW_KEEP, ROW_STORE };    /* gd_row_use */
enum { ROW_VECTORS, ROW_SHARED, ROW_ELEMENTS, ROW_SCALAR }; /* gd_cuda_row_layout */

/* --- reductions ------------------------------------------------------------------------------- */

/* NaN propagates, and -0 is smaller than 0. */
E_FN float row_max(float a, float b) {
#ifdef __CUDA_ARCH__
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
#else
    return s_max_f32(a, b);
#endif
}
E_FN float row_min(float a, float b) {
#ifdef __CUDA_ARCH__
    float x;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
#else
    return s_min_f32(a, b);
#endif
}
E_FN double row_max(double a, double b) { return s_max_f64(a, b); }
E_FN double row_min(double a, double b) { return s_min_f64(a, b); }

template <int USE, typename A> E_FN A row_fold(A a, A b) {
    if constexpr (USE == ROW_SUM) return a + b;
    else if constexpr (USE == ROW_MAX) return row_max(a, b);
    else return row_min(a, b);
}
/* The result for no elements. */
template <int USE, typename A> E_FN A row_start() {
    const A infinity = (A)__int_as_float(0x7f800000);
    return USE == ROW_SUM ? (A)0 : USE == ROW_MAX ? -infinity : infinity;
}

/* The vector's elements as one, in a tree. */
template <int USE, int N, typename A> E_FN A fold_vector(A *x) {
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
        for (int e = 0; e < half; e++) x[e] = row_fold<USE>(x[e], x[e + half]);
    return x[0];
}

/* The accumulator of an output: sums in f64, the others in the compute type. */
template <class T, int USE> struct accumulator_type { typedef T type; };
template <class T> struct accumulator_type<T, ROW_SUM> { typedef double type; };

/* The accumulators of a pass, WAYS for each output: an addition need not wait for the one
 * before. */
template <class P> struct row_totals {
    typedef typename P::type T;
    double sums[P::OUTPUTS][P::WAYS];
    T extremes[P::OUTPUTS][P::WAYS];
    template <int USE> __device__ __forceinline__ auto &at(int j, int way = 0) {
        if constexpr (USE == ROW_SUM) return sums[j][way];
        else return extremes[j][way];
    }
};

/* f(constant<j>(), constant<use>()) for the outputs of a pass that are reduced. */
template <class P, int PASS, class F> E_FN void each_reduction(F &&f) {
    for_each<P::OUTPUTS>([&](auto j) {
        constexpr int USE = P::use(PASS, VALUE(j));
        if constexpr (USE < ROW_KEEP) f(j, constant<USE>());
    });
}

/* The totals of LANES neighbouring threads, in all of them. */
template <class P, int PASS, int LANES> E_FN void fold_lanes(row_totals<P> &total) {
#pragma unroll
    for (int m = LANES / 2; m > 0; m /= 2)
        each_reduction<P, PASS>([&](auto j, auto use) {
            auto &x = total.template at<VALUE(use)>(VALUE(j));
            x = row_fold<VALUE(use)>(x, __shfl_xor_sync(~0u, x, m));
        });
}

/* The same for all threads of a row. */
template <class P, int PASS> E_FN void fold_threads(row_totals<P> &total) {
    each_reduction<P, PASS>([&](auto j, auto use) {
#pragma unroll
        for (int half = P::WAYS / 2; half > 0; half /= 2)
#pragma unroll
            for (int way = 0; way < half; way++) {
                auto &x = total.template at<VALUE(use)>(VALUE(j), way);
                x = row_fold<VALUE(use)>(x, total.template at<VALUE(use)>(VALUE(j), way + half));
            }
    });
    fold_lanes < P, PASS, P::THREADS<32 ? P::THREADS : 32>(total);
    if constexpr (P::THREADS > 32) {
        enum { WARPS = P::THREADS / 32 };
        __shared__ double parts[P::OUTPUTS][WARPS]; /* of this pass alone: one barrier is enough */
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        if (lane == 0)
            each_reduction<P, PASS>([&](auto j, auto use) {
                parts[VALUE(j)][warp] = total.template at<VALUE(use)>(VALUE(j));
            });
        __syncthreads();
        each_reduction<P, PASS>([&](auto j, auto use) {
            auto &x = total.template at<VALUE(use)>(VALUE(j));
            x = (decltype(x + 0))parts[VALUE(j)][lane % WARPS];
        });
        fold_lanes<P, PASS, WARPS>(total);
    }
}

/* --- passes ----------------------------------------------------------------------------------- */

template <class P> struct row_arguments {
    enum { OPERANDS = P::TENSORS + P::RESULTS };
    gd_cuda_row_head head;
    unsigned long long words[OPERANDS * GD_CUDA_ROWS_OPERAND + P::COLUMNS + P::PARAMS];
};

/* *i becomes the quotient; returns the remainder. */
E_FN long long divide_index(long long *i, long long n) {
    const long long quotient =
        ((*i | n) >> 32) == 0 ? (long long)((unsigned)*i / (unsigned)n) : *i / n;
    const long long rest = *i - quotient * n;
    *i = quotient;
    return rest;
}

/* A thread's part of a row. */
template <class P> struct row_part {
    typedef typename P::type T;
    enum {
        N = P::SIZE,
        IN_REGISTERS = P::VECTORS > 0,
        COUNT = IN_REGISTERS ? (int)P::VECTORS : (int)P::UNROLL, /* vectors at once */
        OPERANDS = P::TENSORS + P::RESULTS,
        VARIABLES = P::TENSORS + P::KEPT ? P::TENSORS + P::KEPT : 1,
        MAX_BYTES = 16,
    };
    template <int K> using vector = row_bits<N * dtype_bytes(P::dtype(K))>; /* of operand K */

    const row_arguments<P> &a;
    P program;                  /* with the parameters and the row values */
    long long row, row_vectors; /* the row's number and its vectors */
    long long base[OPERANDS];   /* the offset of the row */
    int thread;
    bool exists; /* whether the row does: see run_rows */
    row_bits<MAX_BYTES> held[P::TENSORS ? P::TENSORS : 1][COUNT];
    T kept[P::KEPT ? P::KEPT : 1][COUNT][N];

    __device__ __forceinline__ row_part(const row_arguments<P> &arguments, long long number,
                                        bool found)
        : a(arguments), program(a.words + OPERANDS * GD_CUDA_ROWS_OPERAND, number), row(number),
          row_vectors(a.head.length / N), thread((int)threadIdx.x % P::THREADS), exists(found) {
#pragma unroll
        for (int k = 0; k < OPERANDS; k++) base[k] = 0;
        long long i = row;
#pragma unroll 1
        for (int d = a.head.rank; d-- > 0;) {
            const long long index = d > 0 ? divide_index(&i, a.head.dims[d]) : i;
#pragma unroll
            for (int k = 0; k < OPERANDS; k++) base[k] += index * stride(k, d);
        }
    }
    __device__ __forceinline__ long long stride(int k, int d) const {
        return (long long)a.words[k * GD_CUDA_ROWS_OPERAND + 1 + d];
    }
    template <int K> __device__ __forceinline__ char *address(long long offset) const {
        return (char *)address_of(a.words[K * GD_CUDA_ROWS_OPERAND]) +
               offset * dtype_bytes(P::dtype(K));
    }
    /* The address of element j of the row. */
    template <int K> __device__ __forceinline__ char *element(long long j) const {
        long long at = base[K];
#pragma unroll 1
        for (int d = a.head.inner_rank; d-- > 0;) {
            const int dim = a.head.rank + d;
            at += (d > 0 ? divide_index(&j, a.head.dims[dim]) : j) * stride(K, dim);
        }
        return address<K>(at);
    }

    /* The address of a contiguous operand's vector: that of the thread's first one, and a distance
     * that is a constant in registers. */
    template <int K> __device__ __forceinline__ char *vector_address(long long vectors) const {
        constexpr int BYTES = N * dtype_bytes(P::dtype(K));
        return address<K>(base[K] + (long long)thread * N) + vectors * BYTES;
    }

    /* Loads and stores the vector that is `vectors` vectors after the thread's first one. */
    template <int K> __device__ __forceinline__ vector<K> load(long long vectors) const {
        constexpr int SIZE = dtype_bytes(P::dtype(K)), LAYOUT = P::layout(K);
        if constexpr (LAYOUT == ROW_VECTORS || LAYOUT == ROW_SHARED)
            return load_bits<N * SIZE, LAYOUT == ROW_SHARED>(vector_address<K>(vectors));
        else {
            vector<K> r = {};
            row_bits<SIZE> one = {};
            if constexpr (LAYOUT == ROW_SCALAR) one = load_bits<SIZE, false>(address<K>(base[K]));
#pragma unroll
            for (int e = 0; e < N; e++) {
                if constexpr (LAYOUT == ROW_ELEMENTS)
                    one = load_bits<SIZE, false>(element<K>((thread + vectors) * N + e));
                put_element<SIZE>(r, e, one);
            }
            return r;
        }
    }
    template <int RESULT>
    __device__ __forceinline__ void store(long long vectors, const T *x) const {
        constexpr int K = P::TENSORS + RESULT, SIZE = dtype_bytes(P::dtype(K));
        const vector<K> r = narrow_vector<T, P::dtype(K), N>(x);
        if constexpr (P::layout(K) == ROW_VECTORS) store_bits(vector_address<K>(vectors), r);
        else {
#pragma unroll
            for (int e = 0; e < N; e++)
                store_bits(element<K>((thread + vectors) * N + e), element_of<SIZE>(r, e));
        }
    }

    /* Whether the row has the thread's vector number k from vector `first` of the row on. In
     * registers, only the last one may be behind the end of the row. */
    __device__ __forceinline__ bool is_inside(long long first, int k) const {
        return (IN_REGISTERS && k < COUNT - 1) || first + k * P::THREADS + thread < row_vectors;
    }

    /* Loads vector k of the tensors that all rows share, or of the others. */
    template <int PASS, bool SHARED>
    __device__ __forceinline__ void load_tensors(long long first, int k) {
        for_each<P::TENSORS>([&](auto t) {
            constexpr int K = VALUE(t);
            if constexpr ((P::loads(PASS) >> K & 1) && (P::layout(K) == ROW_SHARED) == SHARED) {
                vector<K> r = {};
                if (is_inside(first, k) && exists) r = load<K>(first + k * P::THREADS);
#pragma unroll
                for (int i = 0; i < (int)(sizeof r / 4); i++) held[K][k].w[i] = r.w[i];
            }
        });
    }

    /* Computes the kept values of the passes from Q on that a pass needs. */
    template <int PASS, int Q> __device__ __forceinline__ void redo_passes(T *x) const {
        if constexpr (Q < PASS) {
            if constexpr (P::redone(PASS) >> Q & 1) {
                T o[P::OUTPUTS];
                program.each(constant<Q>(), x, o);
                for_each<P::OUTPUTS>([&](auto j) {
                    if constexpr (P::use(Q, VALUE(j)) == ROW_KEEP)
                        x[P::TENSORS + P::number(Q, VALUE(j))] = o[VALUE(j)];
                });
            }
            redo_passes<PASS, Q + 1>(x);
        }
    }

    /* The expression of a pass for vector k: o[j] has the elements of output j. */
    template <int PASS> __device__ __forceinline__ void compute(int k, T (*o)[N]) const {
#pragma unroll
        for (int e = 0; e < N; e++) {
            T x[VARIABLES], one[P::OUTPUTS];
            for_each<P::TENSORS>([&](auto t) {
                constexpr int DTYPE = P::dtype(VALUE(t));
                if constexpr (P::reads(PASS) >> VALUE(t) & 1)
                    x[VALUE(t)] = widen_element<T, DTYPE>(
                        element_of<dtype_bytes(DTYPE)>(held[VALUE(t)][k], e));
            });
            if constexpr (IN_REGISTERS) {
                for_each<P::KEPT>([&](auto i) {
                    if constexpr (P::reads(PASS) >> (P::TENSORS + VALUE(i)) & 1)
                        x[P::TENSORS + VALUE(i)] = kept[VALUE(i)][k][e];
                });
            } else redo_passes<PASS, 0>(x);
            program.each(constant<PASS>(), x, one);
#pragma unroll
            for (int j = 0; j < P::OUTPUTS; j++) o[j][e] = one[j];
        }
    }

    /* Adds a vector's elements to the total of output J. */
    template <int J, int USE>
    __device__ __forceinline__ void add_vector(int k, const T *x, bool inside,
                                               row_totals<P> &total) {
        typedef typename accumulator_type<T, USE>::type A;
        A wide[N];
#pragma unroll
        for (int e = 0; e < N; e++) wide[e] = (A)x[e];
        const A all = fold_vector<USE, N>(wide);
        A &to = total.template at<USE>(J, k % P::WAYS);
        to = row_fold<USE>(to, inside ? all : row_start<USE, A>());
    }

    /* Uses the outputs of a pass for vector k. */
    template <int PASS>
    __device__ __forceinline__ void use_outputs(long long first, int k, const T (*o)[N],
                                                row_totals<P> &total) {
        for_each<P::OUTPUTS>([&](auto j) {
            constexpr int USE = P::use(PASS, VALUE(j)), NUMBER = P::number(PASS, VALUE(j));
            const T *x = o[VALUE(j)];
            if constexpr (USE < ROW_KEEP)
                add_vector<VALUE(j), USE>(k, x, is_inside(first, k), total);
            else if constexpr (USE == ROW_STORE) {
                if (is_inside(first, k) && exists) store<NUMBER>(first + k * P::THREADS, x);
            } else if constexpr (USE == ROW_KEEP && IN_REGISTERS) {
#pragma unroll
                for (int e = 0; e < N; e++) kept[NUMBER][k][e] = x[e];
            }
        });
    }

    /* COUNT vectors of the thread, from vector `first` of the row on. Loads precede their use, so
     * that they are in flight together. Shared tensors are in the cache. */
    template <int PASS>
    __device__ __forceinline__ void visit(long long first, row_totals<P> &total) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) load_tensors<PASS, false>(first, k);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            T o[P::OUTPUTS][N];
            load_tensors<PASS, true>(first, k);
            compute<PASS>(k, o);
            use_outputs<PASS>(first, k, o, total);
        }
    }

    /* The passes from PASS on. The last one stores results, unless a kernel has failed. */
    template <int PASS> __device__ __forceinline__ void run_passes(bool failed) {
        if constexpr (PASS < P::PASSES) {
            row_totals<P> total;
            if (PASS == P::PASSES - 1 && failed) return;
            program.once(constant<PASS>());
            each_reduction<P, PASS>([&](auto j, auto use) {
                typedef typename accumulator_type<T, VALUE(use)>::type A;
#pragma unroll
                for (int way = 0; way < P::WAYS; way++)
                    total.template at<VALUE(use)>(VALUE(j), way) = row_start<VALUE(use), A>();
            });
            if constexpr (IN_REGISTERS) visit<PASS>(0, total);
            else {
#pragma unroll 1
                for (long long first = 0; first < row_vectors; first += COUNT * P::THREADS)
                    visit<PASS>(first, total);
            }
            if constexpr (P::use(PASS, 0) < ROW_KEEP) /* reductions come first */
                fold_threads<P, PASS>(total);
            each_reduction<P, PASS>([&](auto j, auto use) {
                program.set(P::number(PASS, VALUE(j)), (T)total.template at<VALUE(use)>(VALUE(j)));
            });
            run_passes<PASS + 1>(failed);
        }
    }

    /* The results with one value for each row. They may overwrite operands, so all threads have
     * read theirs. */
    __device__ __forceinline__ void store_values() const {
        if (P::THREADS > 32) __syncthreads();
        else __syncwarp();
        if (thread != 0 || !exists) return;
        for_each<P::RESULTS>([&](auto r) {
            constexpr int K = P::TENSORS + VALUE(r);
            if constexpr (P::is_value(VALUE(r)))
                store_bits(address<K>(row),
                           narrow_element<T, P::dtype(K)>(program.value(VALUE(r))));
        });
    }
};

/* Whether the error word is set. It is read here, and not where the result is used, so that nothing
 * waits for it. */
E_FN bool has_failed(const gd_cuda_word *word) {
    unsigned long long number = word->number;
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(number));
#endif
    return number != 0;
}

/* The last block may have fewer rows. A warp without a row has nothing to do. If several rows share
 * a warp, all its lanes take part in shuffles, so those without a row compute with zeros. They have the
 * number of the last row, which they neither read nor store: its own lanes may be storing it. */
template <class P> E_FN void run_rows(const row_arguments<P> &a) {
    const bool failed = has_failed(a.head.word);
    enum { ROWS = P::BLOCK / P::THREADS };
    const long long row = (long long)blockIdx.x * ROWS + threadIdx.x / P::THREADS;
    const bool exists = row < a.head.rows;
    if (P::THREADS >= 32 && !exists) return;
    row_part<P> part(a, exists ? row : a.head.rows - 1, P::THREADS >= 32 || exists);
    part.template run_passes<0>(failed);
    if (P::HAS_VALUES && !failed) part.store_values();
}

#undef VALUE

#endif
