/* rows.cuh - kernels that make several passes over each row of their operands.
 *
 * The printer (codegen/dialect_cuda_rows.c) writes a row program as a struct P with the members
 *
 *     typedef ... type;         the compute type: s_f32 or s_f64
 *     TENSORS, RESULTS, COLUMNS, PARAMS, KEPT, PASSES    counts, as in codegen/row_program.h
 *     OUTPUTS                   the most outputs of a pass
 *     THREADS                   of a row, a power of two: lanes of a warp, or an entire block
 *     BLOCK                     threads of a block
 *     SIZE                      elements of a vector; it divides the length of a row
 *     VECTORS                   of each thread, kept in registers; 0: passes read rows again
 *     UNROLL                    vectors that are loaded at once if VECTORS is 0
 *     dtype(k), layout(k)       of operand k, the tensors before the results
 *     use(pass, j), number(pass, j)    of output j of a pass; use > ROW_STORE: there is none
 *     loads(pass), reads(pass)  bit t: the pass loads tensor t; its expression reads variable t
 *     redone(pass)              bit q: the pass computes again what pass q has kept
 *     P(words, row), once(pass), each(pass, v, o), set(number, x), is_value(result), value(result)
 *
 * and a kernel that calls run_rows with it. Thread i of a row has the vectors i, i + THREADS, ... in
 * every layout, so the order of a sum depends on the shape alone. Sums of floats are computed in f64.
 * A pass has no branches: lanes behind the end of a row compute, too, and their results are dropped.
 */
#ifndef GRADUS_CUDA_ROWS_CUH
#define GRADUS_CUDA_ROWS_CUH

#include "backend/cuda/kernels/expression.cuh"
#include "backend/cuda/kernels/rows.h"

enum { ROW_SUM, ROW_MAX, ROW_MIN, ROW_KEEP, ROW_STORE }; /* gd_row_use */
enum { ROW_VECTORS, ROW_ELEMENTS, ROW_NUMBER };          /* gd_cuda_row_layout */

template <int I>
struct pass_number {
    enum { value = I };
};

/* --- vectors ---------------------------------------------------------------------------------- */

/* The elements of a vector as they lie in memory. */
struct row_bits {
    unsigned w[4];
};

E_FN row_bits load_row_bits(int bytes, const char *from) {
    row_bits r = {};
    if (bytes == 16) {
        const uint4 x = *(const uint4 *)from;
        r.w[0] = x.x, r.w[1] = x.y, r.w[2] = x.z, r.w[3] = x.w;
    } else if (bytes == 8) {
        const uint2 x = *(const uint2 *)from;
        r.w[0] = x.x, r.w[1] = x.y;
    } else if (bytes == 4) r.w[0] = *(const unsigned *)from;
    else if (bytes == 2) r.w[0] = *(const uint16_t *)from;
    else r.w[0] = *(const uint8_t *)from;
    return r;
}
E_FN void store_row_bits(int bytes, char *to, const row_bits &r) {
    if (bytes == 16) *(uint4 *)to = uint4{r.w[0], r.w[1], r.w[2], r.w[3]};
    else if (bytes == 8) *(uint2 *)to = uint2{r.w[0], r.w[1]};
    else if (bytes == 4) *(unsigned *)to = r.w[0];
    else if (bytes == 2) *(uint16_t *)to = (uint16_t)r.w[0];
    else *(uint8_t *)to = (uint8_t)r.w[0];
}

/* Element e of a vector, in its low bits, and the vector with that element; its bits were 0. */
E_FN row_bits element_bits(int size, const row_bits &r, int e) {
    row_bits x = {};
    if (size == 8) x.w[0] = r.w[2 * e & 3], x.w[1] = r.w[2 * e + 1 & 3];
    else if (size == 4) x.w[0] = r.w[e & 3];
    else if (size == 2) x.w[0] = r.w[e / 2 & 3] >> 16 * (e % 2) & 0xffffu;
    else x.w[0] = r.w[e / 4 & 3] >> 8 * (e % 4) & 0xffu;
    return x;
}
E_FN void put_element_bits(int size, row_bits &r, int e, const row_bits &x) {
    if (size == 8) r.w[2 * e & 3] = x.w[0], r.w[2 * e + 1 & 3] = x.w[1];
    else if (size == 4) r.w[e & 3] = x.w[0];
    else if (size == 2) r.w[e / 2 & 3] |= x.w[0] << 16 * (e % 2);
    else r.w[e / 4 & 3] |= x.w[0] << 8 * (e % 4);
}

/* An element as a value of the compute type, and a value as an element. */
template <typename T>
E_FN T widen_bits(int dtype, const row_bits &x) {
    const unsigned low = x.w[0];
    if (dtype == E_F32) return from_float<T>(float_of_bits(low));
    if (dtype == E_F16) return from_float<T>(float_of_f16(low));
    if (dtype == E_BF16) return from_float<T>(float_of_bits(low << 16));
    if (dtype == E_BOOL) return (T)(low != 0);
    if (dtype == E_U8) return (T)low;
    if (dtype == E_I8) return (T)(int8_t)low;
    if (dtype == E_I32) return (T)(int32_t)low;
    const long long wide = (long long)((unsigned long long)x.w[1] << 32 | low);
    return dtype == E_I64 ? (T)wide : (T)__longlong_as_double(wide);
}
/* Results are floats or truth values. */
template <typename T>
E_FN row_bits narrow_bits(int dtype, T x) {
    row_bits r = {};
    if (dtype == E_F64) {
        const unsigned long long wide = (unsigned long long)__double_as_longlong((double)x);
        r.w[0] = (unsigned)wide, r.w[1] = (unsigned)(wide >> 32);
    } else if (dtype == E_F32) r.w[0] = bits_of_float((float)x);
    else if (dtype == E_F16) r.w[0] = f16_pair((float)x, 0);
    else if (dtype == E_BF16) r.w[0] = bf16_pair((float)x, 0);
    else r.w[0] = x != 0;
    return r;
}
template <typename T, int N>
E_FN row_bits narrow_vector(int dtype, const T *x) {
    row_bits r = {};
    if (N > 1 && dtype_bytes(dtype) == 2) {
#pragma unroll
        for (int e = 0; e + 1 < N; e += 2)
            r.w[e / 2 & 3] = dtype == E_F16 ? f16_pair((float)x[e], (float)x[e + 1])
                                            : bf16_pair((float)x[e], (float)x[e + 1]);
        return r;
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        put_element_bits(dtype_bytes(dtype), r, e, narrow_bits<T>(dtype, x[e]));
    return r;
}

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

template <typename T>
E_FN T row_fold(int use, T a, T b) {
    return use == ROW_SUM ? a + b : use == ROW_MAX ? row_max(a, b) : row_min(a, b);
}
/* The result for no elements. */
template <typename T>
E_FN T row_start(int use) {
    const T infinity = (T)__int_as_float(0x7f800000);
    return use == ROW_SUM ? (T)0 : use == ROW_MAX ? -infinity : infinity;
}

/* The vector's elements as one, in a tree. */
template <typename T, int N>
E_FN T fold_vector(int use, T *x) {
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
        for (int e = 0; e < half; e++) x[e] = row_fold(use, x[e], x[e + half]);
    return x[0];
}

/* The outputs of a pass that are reduced: sums in f64, the others in the compute type. */
template <class P>
struct row_totals {
    typedef typename P::type T;
    double sums[P::OUTPUTS];
    T extremes[P::OUTPUTS];
};

/* The result over the threads `step`, 2 step, 4 step, ... below `threads` apart, in all of them. */
template <class P, int PASS>
E_FN void fold_lanes(row_totals<P> &total, int threads) {
#pragma unroll
    for (int m = threads / 2; m > 0; m /= 2)
#pragma unroll
        for (int j = 0; j < P::OUTPUTS; j++) {
            const int use = P::use(PASS, j);
            if (use == ROW_SUM) total.sums[j] += __shfl_xor_sync(~0u, total.sums[j], m);
            else if (use < ROW_KEEP)
                total.extremes[j] = row_fold(use, total.extremes[j],
                                             __shfl_xor_sync(~0u, total.extremes[j], m));
        }
}

/* The same over all threads of a row. */
template <class P, int PASS>
E_FN void fold_threads(row_totals<P> &total) {
    typedef typename P::type T;
    fold_lanes<P, PASS>(total, P::THREADS < 32 ? (int)P::THREADS : 32);
    if constexpr (P::THREADS > 32) {
        enum { WARPS = P::THREADS / 32 };
        __shared__ double parts[P::OUTPUTS][WARPS]; /* of this pass alone: one barrier is enough */
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
        for (int j = 0; j < P::OUTPUTS; j++)
            if (lane == 0 && P::use(PASS, j) < ROW_KEEP)
                parts[j][warp] =
                    P::use(PASS, j) == ROW_SUM ? total.sums[j] : (double)total.extremes[j];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < P::OUTPUTS; j++)
            if (P::use(PASS, j) == ROW_SUM) total.sums[j] = parts[j][lane % WARPS];
            else if (P::use(PASS, j) < ROW_KEEP) total.extremes[j] = (T)parts[j][lane % WARPS];
        fold_lanes<P, PASS>(total, WARPS);
    }
}

/* --- passes ----------------------------------------------------------------------------------- */

template <class P>
struct row_arguments {
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
template <class P>
struct row_part {
    typedef typename P::type T;
    enum {
        N = P::SIZE,
        IN_REGISTERS = P::VECTORS > 0,
        COUNT = IN_REGISTERS ? (int)P::VECTORS : (int)P::UNROLL, /* vectors at once */
        VARIABLES = P::TENSORS + P::KEPT,
        OPERANDS = P::TENSORS + P::RESULTS,
    };
    const row_arguments<P> &a;
    P program; /* with the parameters and the row values */
    long long row, vectors;
    long long base[OPERANDS]; /* the offset of the row */
    int thread;
    bool exists; /* the row does; the last block may have fewer rows */
    row_bits held[P::TENSORS ? P::TENSORS : 1][COUNT];
    T kept[P::KEPT ? P::KEPT : 1][COUNT][N];

    __device__ __forceinline__ row_part(const row_arguments<P> &arguments, long long number)
        : a(arguments), program(a.words + OPERANDS * GD_CUDA_ROWS_OPERAND,
                                number < a.head.rows ? number : a.head.rows - 1),
          row(number < a.head.rows ? number : a.head.rows - 1), vectors(a.head.length / N),
          thread((int)threadIdx.x % P::THREADS), exists(number < a.head.rows) {
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
    __device__ __forceinline__ char *address(int k, long long offset) const {
        return (char *)address_of(a.words[k * GD_CUDA_ROWS_OPERAND]) +
               offset * dtype_bytes(P::dtype(k));
    }
    /* The address of element j of the row. */
    __device__ __forceinline__ char *element(int k, long long j) const {
        long long at = base[k];
#pragma unroll 1
        for (int d = a.head.inner_rank; d-- > 0;) {
            const int dim = a.head.rank + d;
            at += (d > 0 ? divide_index(&j, a.head.dims[dim]) : j) * stride(k, dim);
        }
        return address(k, at);
    }

    __device__ __forceinline__ row_bits load(int t, long long v) const {
        const int size = dtype_bytes(P::dtype(t));
        if (P::layout(t) == ROW_VECTORS) return load_row_bits(N * size, address(t, base[t] + v * N));
        row_bits r = {}, one = {};
        if (P::layout(t) == ROW_NUMBER) one = load_row_bits(size, address(t, base[t]));
#pragma unroll
        for (int e = 0; e < N; e++)
            put_element_bits(size, r, e,
                             P::layout(t) == ROW_NUMBER
                                 ? one
                                 : load_row_bits(size, element(t, v * N + e)));
        return r;
    }
    __device__ __forceinline__ void store(int result, long long v, const T *x) const {
        const int k = P::TENSORS + result, size = dtype_bytes(P::dtype(k));
        const row_bits r = narrow_vector<T, N>(P::dtype(k), x);
        if (P::layout(k) == ROW_VECTORS) {
            store_row_bits(N * size, address(k, base[k] + v * N), r);
            return;
        }
#pragma unroll
        for (int e = 0; e < N; e++)
            store_row_bits(size, element(k, v * N + e), element_bits(size, r, e));
    }

    /* Whether the thread's vector number k from `first` on is in the row. In registers, only the
     * last one may be behind its end. */
    __device__ __forceinline__ bool is_inside(long long first, int k) const {
        if (IN_REGISTERS && k < COUNT - 1) return true;
        return first + thread + k * P::THREADS < vectors;
    }

    /* Computes the kept values of the passes from Q on that a pass needs. */
    template <int PASS, int Q>
    __device__ __forceinline__ void redo_passes(T *x) const {
        if constexpr (Q < PASS) {
            if (P::redone(PASS) >> Q & 1) {
                T o[P::OUTPUTS];
                program.each(pass_number<Q>(), x, o);
#pragma unroll
                for (int j = 0; j < P::OUTPUTS; j++)
                    if (P::use(Q, j) == ROW_KEEP) x[P::TENSORS + P::number(Q, j)] = o[j];
            }
            redo_passes<PASS, Q + 1>(x);
        }
    }

    /* The expression of a pass for vector k: o[j] has the elements of output j. */
    template <int PASS>
    __device__ __forceinline__ void compute(int k, T (*o)[N]) const {
        T x[N][VARIABLES ? VARIABLES : 1];
#pragma unroll
        for (int t = 0; t < P::TENSORS; t++)
            if (P::reads(PASS) >> t & 1) {
                const int size = dtype_bytes(P::dtype(t));
#pragma unroll
                for (int e = 0; e < N; e++)
                    x[e][t] = widen_bits<T>(P::dtype(t), element_bits(size, held[t][k], e));
            }
#pragma unroll
        for (int e = 0; e < N; e++) {
            T one[P::OUTPUTS];
            if (IN_REGISTERS) {
#pragma unroll
                for (int i = 0; i < P::KEPT; i++)
                    if (P::reads(PASS) >> (P::TENSORS + i) & 1)
                        x[e][P::TENSORS + i] = kept[i][k][e];
            } else redo_passes<PASS, 0>(x[e]);
            program.each(pass_number<PASS>(), x[e], one);
#pragma unroll
            for (int j = 0; j < P::OUTPUTS; j++)
                if (P::use(PASS, j) <= ROW_STORE) o[j][e] = one[j];
        }
    }

    template <int PASS>
    __device__ __forceinline__ void use_output(int j, int k, long long first, T *x,
                                               row_totals<P> &total) {
        const int use = P::use(PASS, j);
        const bool inside = is_inside(first, k);
        if (use == ROW_KEEP) {
            if (IN_REGISTERS)
#pragma unroll
                for (int e = 0; e < N; e++) kept[P::number(PASS, j)][k][e] = x[e];
        } else if (use == ROW_STORE) {
            if (inside && exists)
                store(P::number(PASS, j), first + thread + k * P::THREADS, x);
        } else if (use == ROW_SUM) {
            double wide[N];
#pragma unroll
            for (int e = 0; e < N; e++) wide[e] = (double)x[e];
            const double sum = fold_vector<double, N>(ROW_SUM, wide);
            total.sums[j] += inside ? sum : 0;
        } else {
            const T most = fold_vector<T, N>(use, x);
            total.extremes[j] =
                row_fold(use, total.extremes[j], inside ? most : row_start<T>(use));
        }
    }

    /* COUNT vectors of the thread, from vector `first` of the row on. Loads precede their use, so
     * that they are in flight together. */
    template <int PASS>
    __device__ __forceinline__ void visit(long long first, row_totals<P> &total) {
#pragma unroll
        for (int k = 0; k < COUNT; k++)
#pragma unroll
            for (int t = 0; t < P::TENSORS; t++)
                if (P::loads(PASS) >> t & 1)
                    held[t][k] = is_inside(first, k) ? load(t, first + thread + k * P::THREADS)
                                                     : row_bits{};
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            T o[P::OUTPUTS][N];
            compute<PASS>(k, o);
#pragma unroll
            for (int j = 0; j < P::OUTPUTS; j++)
                if (P::use(PASS, j) <= ROW_STORE) use_output<PASS>(j, k, first, o[j], total);
        }
    }

    template <int PASS>
    __device__ __forceinline__ void run_passes() {
        if constexpr (PASS < P::PASSES) {
            row_totals<P> total;
            program.once(pass_number<PASS>());
#pragma unroll
            for (int j = 0; j < P::OUTPUTS; j++) {
                total.sums[j] = 0;
                total.extremes[j] = row_start<T>(P::use(PASS, j));
            }
            if (IN_REGISTERS) visit<PASS>(0, total);
            else
#pragma unroll 1
                for (long long first = 0; first < vectors; first += COUNT * P::THREADS)
                    visit<PASS>(first, total);
            if (P::use(PASS, 0) < ROW_KEEP) /* reductions come first */
                fold_threads<P, PASS>(total);
#pragma unroll
            for (int j = 0; j < P::OUTPUTS; j++)
                if (P::use(PASS, j) < ROW_KEEP)
                    program.set(P::number(PASS, j), P::use(PASS, j) == ROW_SUM
                                                        ? (T)total.sums[j]
                                                        : total.extremes[j]);
            run_passes<PASS + 1>();
        }
    }

    /* The results with one number for each row. They may overwrite operands, so all threads have
     * read theirs. */
    __device__ __forceinline__ void store_values() const {
        if (P::THREADS > 32) __syncthreads();
        else __syncwarp();
        if (thread != 0 || !exists) return;
#pragma unroll
        for (int r = 0; r < P::RESULTS; r++)
            if (P::is_value(r)) {
                const int dtype = P::dtype(P::TENSORS + r);
                store_row_bits(dtype_bytes(dtype), address(P::TENSORS + r, row),
                               narrow_bits<T>(dtype, program.value(r)));
            }
    }
};

template <class P>
E_FN void run_rows(const row_arguments<P> &a) {
    if (a.head.word->number) return;
    enum { ROWS = P::BLOCK / P::THREADS };
    row_part<P> part(a, (long long)blockIdx.x * ROWS + threadIdx.x / P::THREADS);
    part.template run_passes<0>();
    if (P::HAS_VALUES) part.store_values();
}

#endif
