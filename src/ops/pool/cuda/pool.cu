/* pool.cu - max and average pooling, and their gradients.
 *
 * Gradients are computed in gather form: each element of x adds the windows that contain it, in
 * the order of the windows, so the sums have a fixed order.
 */
#include "ops/pool/cuda/pool_args.h"
#include "backend/cuda/typed.cuh"
#include "gradus/backend.h"

template <typename T, int V> struct alignas(V * sizeof(T)) vector_of { T at[V]; };

static __device__ __forceinline__ void narrow(double x, double *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, float *y) { *y = x; }
static __device__ __forceinline__ void narrow(float x, f16_element *y) {
    y->bits = gd_f32_to_f16(x);
}
static __device__ __forceinline__ void narrow(float x, bf16_element *y) {
    y->bits = gd_f32_to_bf16(x);
}

/* --- positions -------------------------------------------------------------------------------- */

/* A thread's element (or its first channel) and the coordinates of its window. */
struct pool_position {
    int n, c;
    int at[GD_CUDA_POOL_AXES];
};

static __device__ __forceinline__ pool_position position_of(const gd_cuda_pool &p, int vector,
                                                            int number) {
    pool_position at;
    if (p.channels_last) at.c = split_off(p.by_channels, &number) * vector;
    for (int a = GD_CUDA_POOL_AXES - 1; a > 0; a--) at.at[a] = split_off(p.by_size[a], &number);
    at.at[0] = p.by_size[0].by == 1 ? 0 : split_off(p.by_size[0], &number);
    if (!p.channels_last) at.c = split_off(p.by_channels, &number) * vector;
    at.n = number;
    return at;
}

static __device__ __forceinline__ int plane_offset(const gd_cuda_planes &t, int n, int c) {
    return n * t.strides[0] + c * t.strides[1];
}
static __device__ __forceinline__ int offset_of(const gd_cuda_planes &t, const pool_position &at) {
    return plane_offset(t, at.n, at.c) + at.at[0] * t.strides[2] + at.at[1] * t.strides[3] +
           at.at[2] * t.strides[4];
}

/* The elements first, first + step, ... of x along an axis (ops/pool/pool.h). */
struct pool_window {
    int first, count, size;
};
static __device__ __forceinline__ pool_window window_at(const gd_cuda_pool &p, int a, int o) {
    const int in = p.in[a];
    pool_window w;
    if (in == 1 && p.out[a] == 1 && p.kernel[a] == 1) {
        w.first = 0;
        w.count = w.size = 1;
        return w;
    }
    if (p.adaptive) {
        w.first = (int)((long long)o * in / p.out[a]);
        w.count = w.size = (int)(((o + 1ll) * in - 1) / p.out[a]) + 1 - w.first;
        return w;
    }
    const int step = p.dilation[a], kernel = p.kernel[a];
    const int begin = o * p.stride[a] - p.padding[a], reach = in - begin;
    const int skip = begin >= 0 ? 0 : step == 1 ? -begin : (-begin + step - 1) / step;
    const int taps = reach <= 0 ? 0 : step == 1 ? reach : (reach - 1) / step + 1;
    const int end = taps < kernel ? taps : kernel;
    w.first = begin + skip * step;
    w.count = end > skip ? end - skip : 0;
    w.size = !p.count_padding                     ? w.count
             : begin + kernel < in + p.padding[a] ? kernel
                                                  : in + p.padding[a] - begin;
    return w;
}

/* The windows that may contain element i: first .. last. A dilated window may skip it. */
struct pool_range {
    int first, last;
};
static __device__ __forceinline__ pool_range windows_of(const gd_cuda_pool &p, int a, int i) {
    const int out = p.out[a], in = p.in[a];
    pool_range r;
    if (in == 1 && out == 1) {
        r.first = r.last = 0;
        return r;
    }
    if (p.adaptive) {
        r.first = (int)((long long)i * out / in);
        r.last = (int)(((i + 1ll) * out - 1) / in);
    } else {
        const int stride = p.stride[a], end = i + p.padding[a],
                  begin = end - (p.kernel[a] - 1) * p.dilation[a];
        r.first = begin <= 0 ? 0 : divide_by(p.by_stride[a], begin + stride - 1);
        r.last = divide_by(p.by_stride[a], end);
    }
    if (r.last > out - 1) r.last = out - 1;
    return r;
}

/* --- maxima ----------------------------------------------------------------------------------- */

/* The first of the largest elements; a NaN replaces all elements before it. */
template <typename W> static __device__ __forceinline__ bool replaces(W value, W best) {
    return value > best || value != value;
}

template <typename W> static __device__ __forceinline__ W smallest_real() { return (W)-INFINITY; }

template <typename T, int V>
static __device__ __forceinline__ void store_results(const gd_cuda_pool &p, const pool_position &at,
                                                     const vector_of<T, V> &y) {
    T *to = (T *)p.y.data + offset_of(p.y, at);
    if (p.scattered) {
#pragma unroll
        for (int v = 0; v < V; v++) to[v * p.y.strides[1]] = y.at[v];
    } else *(vector_of<T, V> *)to = y;
}

template <typename T, int V>
static __device__ __forceinline__ void store_maxima(const gd_cuda_pool &p, const pool_position &at,
                                                    const typename wide_type<T>::type *best,
                                                    const int *index) {
    vector_of<T, V> y;
#pragma unroll
    for (int v = 0; v < V; v++) narrow(best[v], &y.at[v]);
    if (p.y.data) store_results(p, at, y);
    if (!p.indices.data) return;
    const int first = offset_of(p.indices, at), step = p.indices.strides[1];
    if (p.wide_indices) {
#pragma unroll
        for (int v = 0; v < V; v++) ((int64_t *)p.indices.data)[first + v * step] = index[v];
    } else if (V % 4 == 0 && !p.scattered) {
#pragma unroll
        for (int v = 0; v < V; v += 4) {
            uint4 four = {(unsigned)index[v], (unsigned)index[v + 1 < V ? v + 1 : v],
                          (unsigned)index[v + 2 < V ? v + 2 : v],
                          (unsigned)index[v + 3 < V ? v + 3 : v]};
            *(uint4 *)((int32_t *)p.indices.data + first + v) = four;
        }
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            ((int32_t *)p.indices.data)[first + v * step] = (int32_t)index[v];
    }
}

/* Windows of K x K elements without dilation: all loads are issued before the first comparison. */
template <typename T, int V, int K> static __device__ void max_of_square(const gd_cuda_pool &p) {
    typedef typename wide_type<T>::type wide;
    for (EACH(i, p.count)) {
        const pool_position at = position_of(p, V, (int)i);
        const int row = (int)(at.at[1] * p.stride[1] - p.padding[1]),
                  column = (int)(at.at[2] * p.stride[2] - p.padding[2]);
        const int height = (int)p.in[1], width = (int)p.in[2];
        const T *x = (const T *)p.x.data + plane_offset(p.x, at.n, at.c);
        vector_of<T, V> taps[K * K];
#pragma unroll
        for (int k = 0; k < K * K; k++) {
            const int r = row + k / K, c = column + k % K;
            if (r >= 0 && r < height && c >= 0 && c < width)
                taps[k] = *(const vector_of<T, V> *)(x + r * p.x.strides[3] + c * p.x.strides[4]);
        }
        wide best[V];
        int index[V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            best[v] = smallest_real<wide>();
            index[v] = -1;
        }
        bool any = false;
#pragma unroll
        for (int k = 0; k < K * K; k++) {
            const int r = row + k / K, c = column + k % K, number = r * width + c;
            if (r < 0 || r >= height || c < 0 || c >= width) continue;
#pragma unroll
            for (int v = 0; v < V; v++) {
                const wide value = widen(taps[k].at[v]);
                const bool better = !any || replaces(value, best[v]);
                best[v] = better ? value : best[v];
                index[v] = better ? number : index[v];
            }
            any = true;
        }
        int indices[V];
#pragma unroll
        for (int v = 0; v < V; v++) indices[v] = index[v];
        store_maxima<T, V>(p, at, best, indices);
    }
}

/* Joins the maxima of two lanes: the last NaN, or else the first of the largest elements. */
template <typename W>
static __device__ __forceinline__ void join_maxima(W *best, int *index, W other, int other_index) {
    const bool nan = *best != *best, other_nan = other != other;
    const bool take = *index < 0        ? true
                      : other_index < 0 ? false
                      : nan || other_nan
                          ? other_nan && (!nan || other_index > *index)
                          : other > *best || (other == *best && other_index < *index);
    if (take) {
        *best = other;
        *index = other_index;
    }
}

/* Any windows. LANES threads, adjacent in a warp, share the elements of each. */
template <typename T, int V, int LANES>
static __device__ void max_of_windows(const gd_cuda_pool &p) {
    typedef typename wide_type<T>::type wide;
    const int lane = LANES > 1 ? (int)(threadIdx.x % LANES) : 0;
    for (EACH(i, (long long)p.count * LANES)) {
        const pool_position at = position_of(p, V, (int)(i / LANES));
        const pool_window d = window_at(p, 0, at.at[0]), h = window_at(p, 1, at.at[1]),
                          w = window_at(p, 2, at.at[2]);
        const T *x = (const T *)p.x.data + plane_offset(p.x, at.n, at.c);
        wide best[V];
        int index[V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            best[v] = smallest_real<wide>();
            index[v] = -1;
        }
        int z = 0, r = 0, c = lane; /* tap (z, r, c) of the window */
        const bool empty = d.count == 0 || h.count == 0 || w.count == 0;
        if (LANES > 1 && !empty) {
            r = c / w.count, c -= r * w.count;
            z = r / h.count, r -= z * h.count;
        }
        while (!empty && z < d.count) {
            const int row = h.first + r * p.dilation[1], column = w.first + c * p.dilation[2],
                      depth = d.first + z * p.dilation[0],
                      number = (depth * p.in[1] + row) * p.in[2] + column;
            const vector_of<T, V> values =
                *(const vector_of<T, V> *)(x + depth * p.x.strides[2] + row * p.x.strides[3] +
                                           column * p.x.strides[4]);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const wide value = widen(values.at[v]);
                const bool better = index[v] < 0 || replaces(value, best[v]);
                best[v] = better ? value : best[v];
                index[v] = better ? number : index[v];
            }
            c += LANES;
            if (LANES == 1) {
                if (c >= w.count) c = 0, r++;
            } else
                while (c >= w.count) c -= w.count, r++;
            while (r >= h.count) r -= h.count, z++;
        }
        if (LANES > 1) {
#pragma unroll
            for (int v = 0; v < V; v++)
                for (int step = LANES / 2; step > 0; step /= 2)
                    join_maxima(&best[v], &index[v], __shfl_down_sync(~0u, best[v], step),
                                __shfl_down_sync(~0u, index[v], step));
        }
        if (lane == 0) store_maxima<T, V>(p, at, best, index);
    }
}

/* --- averages --------------------------------------------------------------------------------- */

template <typename T, int V, int LANES>
static __device__ void average_of_windows(const gd_cuda_pool &p) {
    typedef typename wide_type<T>::type wide;
    const int lane = LANES > 1 ? (int)(threadIdx.x % LANES) : 0;
    for (EACH(i, (long long)p.count * LANES)) {
        const pool_position at = position_of(p, V, (int)(i / LANES));
        const pool_window d = window_at(p, 0, at.at[0]), h = window_at(p, 1, at.at[1]),
                          w = window_at(p, 2, at.at[2]);
        const T *x = (const T *)p.x.data + plane_offset(p.x, at.n, at.c) +
                     d.first * p.x.strides[2] + h.first * p.x.strides[3] + w.first * p.x.strides[4];
        double sums[V] = {0};
        int z = 0, r = 0, c = lane;
        const bool empty = d.count == 0 || h.count == 0 || w.count == 0;
        if (LANES > 1 && !empty) {
            r = c / w.count, c -= r * w.count;
            z = r / h.count, r -= z * h.count;
        }
        for (; !empty && z < d.count; z++, r = 0)
            for (; r < h.count;) { /* a row of the window: short sums in the compute type */
                const T *row = x + z * p.x.strides[2] + r * p.x.strides[3];
                wide part[V] = {0};
                for (int k = 0; c < w.count && k < 32; c += LANES, k++) {
                    const vector_of<T, V> values =
                        *(const vector_of<T, V> *)(row + c * p.x.strides[4]);
#pragma unroll
                    for (int v = 0; v < V; v++) part[v] += widen(values.at[v]);
                }
#pragma unroll
                for (int v = 0; v < V; v++) sums[v] += part[v];
                while (c >= w.count && r < h.count) c -= w.count, r++;
            }
        if (LANES > 1) {
#pragma unroll
            for (int v = 0; v < V; v++)
                for (int step = LANES / 2; step > 0; step /= 2)
                    sums[v] += __shfl_down_sync(~0u, sums[v], step);
        }
        if (lane > 0) continue;
        const double divisor = p.divisor ? (double)p.divisor : ((double)d.size * h.size * w.size);
        vector_of<T, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) narrow(empty ? 0 : (wide)(sums[v] / divisor), &y.at[v]);
        store_results(p, at, y);
    }
}

template <typename T, int V> static __device__ void average_gradient(const gd_cuda_pool &p) {
    typedef typename wide_type<T>::type wide;
    for (EACH(i, p.count)) {
        const pool_position at = position_of(p, V, (int)i);
        const pool_range d = windows_of(p, 0, at.at[0]), h = windows_of(p, 1, at.at[1]),
                         w = windows_of(p, 2, at.at[2]);
        const T *y = (const T *)p.y.data + plane_offset(p.y, at.n, at.c);
        wide sums[V] = {0};
        for (int z = d.first; z <= d.last; z++)
            for (int r = h.first; r <= h.last; r++) {
                const T *row = y + z * p.y.strides[2] + r * p.y.strides[3];
                const int rows = p.divisor ? 1 : window_at(p, 0, z).size * window_at(p, 1, r).size;
                for (int c = w.first; c <= w.last; c++) {
                    const wide divisor =
                        (wide)(p.divisor ? p.divisor : rows * window_at(p, 2, c).size);
                    const vector_of<T, V> values =
                        *(const vector_of<T, V> *)(row + c * p.y.strides[4]);
#pragma unroll
                    for (int v = 0; v < V; v++) sums[v] += widen(values.at[v]) / divisor;
                }
            }
        vector_of<T, V> x;
#pragma unroll
        for (int v = 0; v < V; v++) narrow(sums[v], &x.at[v]);
        *(vector_of<T, V> *)((T *)p.x.data + offset_of(p.x, at)) = x;
    }
}

/* --- gradients of maxima ---------------------------------------------------------------------- */

/* An index that does not fit into 32 bits is a bad one, as this is. */
static __device__ __forceinline__ int narrow_index(long long index) {
    return index < INT32_MIN || index > INT32_MAX ? INT32_MIN : (int)index;
}

template <int V>
static __device__ __forceinline__ void load_indices(const gd_cuda_pool &p, int first, int *index) {
    if (p.wide_indices) {
#pragma unroll
        for (int v = 0; v < V; v++)
            index[v] = narrow_index(((const long long *)p.indices.data)[first + v]);
    } else if (V % 4 == 0) {
#pragma unroll
        for (int v = 0; v < V; v += 4) {
            const uint4 four = *(const uint4 *)((const int32_t *)p.indices.data + first + v);
            index[v] = (int32_t)four.x;
            index[v + 1 < V ? v + 1 : v] = (int32_t)four.y;
            index[v + 2 < V ? v + 2 : v] = (int32_t)four.z;
            index[v + 3 < V ? v + 3 : v] = (int32_t)four.w;
        }
    } else {
#pragma unroll
        for (int v = 0; v < V; v++) index[v] = ((const int32_t *)p.indices.data)[first + v];
    }
}

/* Reports the index of channel v of a window. */
static __device__ __forceinline__ void report_index(const gd_cuda_pool &p, int vector,
                                                    const pool_position &at, int v) {
    const int channels = p.channels * vector;
    const long long element =
        ((((long long)at.n * channels + at.c + v) * p.out[0] + at.at[0]) * p.out[1] + at.at[1]) *
            p.out[2] +
        at.at[2];
    const long long index = load_integer(p.wide_indices ? GD_I64 : GD_I32, p.indices.data,
                                         offset_of(p.indices, at) + v * p.indices.strides[1]);
    report_problem(p.call, GD_DATA_PLANE_INDEX, element, index, p.in[0] * p.in[1] * p.in[2], 0, 0);
}

template <typename T, int V> static __device__ void max_gradient(const gd_cuda_pool &p) {
    typedef typename wide_type<T>::type wide;
    const int plane = p.in[0] * p.in[1] * p.in[2];
    for (EACH(i, p.count)) {
        const pool_position at = position_of(p, V, (int)i);
        const pool_range d = windows_of(p, 0, at.at[0]), h = windows_of(p, 1, at.at[1]),
                         w = windows_of(p, 2, at.at[2]);
        const int own = (at.at[0] * p.in[1] + at.at[1]) * p.in[2] + at.at[2];
        const T *y = (const T *)p.y.data + plane_offset(p.y, at.n, at.c);
        const int chosen = plane_offset(p.indices, at.n, at.c);
        wide sums[V] = {0};
        for (int z = d.first; z <= d.last; z++)
            for (int r = h.first; r <= h.last; r++)
                for (int c = w.first; c <= w.last; c++) {
                    int index[V];
                    load_indices<V>(p,
                                    chosen + z * p.indices.strides[2] + r * p.indices.strides[3] +
                                        c * p.indices.strides[4],
                                    index);
                    const vector_of<T, V> values =
                        *(const vector_of<T, V> *)(y + z * p.y.strides[2] + r * p.y.strides[3] +
                                                   c * p.y.strides[4]);
#pragma unroll
                    for (int v = 0; v < V; v++) {
                        if (index[v] == own) sums[v] += widen(values.at[v]);
                        if (index[v] < -1 || index[v] >= plane) {
                            const pool_position window = {at.n, at.c, {z, r, c}};
                            report_index(p, V, window, v);
                        }
                    }
                }
        if (!p.x.data) continue;
        if (p.mask.data) {
            const vector_of<T, V> mask =
                *(const vector_of<T, V> *)((const T *)p.mask.data + offset_of(p.mask, at));
#pragma unroll
            for (int v = 0; v < V; v++)
                if (widen(mask.at[v]) <= 0) sums[v] = 0;
        }
        vector_of<T, V> x;
#pragma unroll
        for (int v = 0; v < V; v++) narrow(sums[v], &x.at[v]);
        *(vector_of<T, V> *)((T *)p.x.data + offset_of(p.x, at)) = x;
    }
}

/* Windows of at most 3 x 3 elements with stride 2: a thread computes 2 x 2 elements of x, which have
 * at most 2 x 2 windows together. All windows, and the mask, are loaded before the first comparison. */
template <typename T, int V> static __device__ void max_gradient_of_blocks(const gd_cuda_pool &p) {
    typedef typename wide_type<T>::type wide;
    enum { SIDE = 2, WINDOWS = SIDE * SIDE };
    const int height = p.in[1], width = p.in[2], plane = height * width;
    for (EACH(i, p.count)) {
        pool_position at = position_of(p, V, (int)i);
        const int row = SIDE * at.at[1], column = SIDE * at.at[2];
        const int top = windows_of(p, 1, row).first, left = windows_of(p, 2, column).first,
                  bottom = windows_of(p, 1, row + 1 < height ? row + 1 : row).last,
                  right = windows_of(p, 2, column + 1 < width ? column + 1 : column).last;
        const T *y = (const T *)p.y.data + plane_offset(p.y, at.n, at.c);
        const int chosen = plane_offset(p.indices, at.n, at.c);
        int index[WINDOWS][V];
        vector_of<T, V> values[WINDOWS];
#pragma unroll
        for (int k = 0; k < WINDOWS; k++) {
            const int r = top + k / SIDE, c = left + k % SIDE;
#pragma unroll
            for (int v = 0; v < V; v++) index[k][v] = -1;
            if (r > bottom || c > right) continue;
            load_indices<V>(p, chosen + r * p.indices.strides[3] + c * p.indices.strides[4],
                            index[k]);
            values[k] = *(const vector_of<T, V> *)(y + r * p.y.strides[3] + c * p.y.strides[4]);
        }
        vector_of<T, V> mask[WINDOWS];
        if (p.mask.data) {
            const T *from = (const T *)p.mask.data + plane_offset(p.mask, at.n, at.c);
#pragma unroll
            for (int e = 0; e < WINDOWS; e++) {
                const int r = row + e / SIDE, c = column + e % SIDE;
                if (r < height && c < width)
                    mask[e] = *(const vector_of<T, V> *)(from + r * p.mask.strides[3] +
                                                         c * p.mask.strides[4]);
            }
        }
#pragma unroll
        for (int e = 0; e < WINDOWS; e++) {
            const int r = row + e / SIDE, c = column + e % SIDE, own = r * width + c;
            wide sums[V] = {0};
#pragma unroll
            for (int k = 0; k < WINDOWS; k++)
#pragma unroll
                for (int v = 0; v < V; v++) {
                    if (index[k][v] == own) sums[v] += widen(values[k].at[v]);
                    if (e == 0 && (index[k][v] < -1 || index[k][v] >= plane)) {
                        const pool_position window = {
                            at.n, at.c, {0, top + k / SIDE, left + k % SIDE}};
                        report_index(p, V, window, v);
                    }
                }
            if (!p.x.data || r >= height || c >= width) continue;
            vector_of<T, V> x;
#pragma unroll
            for (int v = 0; v < V; v++)
                narrow(p.mask.data && widen(mask[e].at[v]) <= 0 ? (wide)0 : sums[v], &x.at[v]);
            at.at[1] = r;
            at.at[2] = c;
            *(vector_of<T, V> *)((T *)p.x.data + offset_of(p.x, at)) = x;
        }
    }
}

/* The elements of x at the indices. */
template <typename T, int V> static __device__ void gather_maxima(const gd_cuda_pool &p) {
    const int plane = p.in[0] * p.in[1] * p.in[2];
    for (EACH(i, p.count)) {
        const pool_position at = position_of(p, V, (int)i);
        const T *x = (const T *)p.x.data + plane_offset(p.x, at.n, at.c);
        int index[V];
        vector_of<T, V> y;
        load_indices<V>(p, offset_of(p.indices, at), index);
#pragma unroll
        for (int v = 0; v < V; v++) {
            int row = index[v];
            narrow(0, &y.at[v]);
            if (row < -1 || row >= plane) report_index(p, V, at, v);
            else if (row >= 0) {
                const int column = row % p.in[2], r = row / p.in[2] % p.in[1];
                row /= p.in[2] * p.in[1];
                y.at[v] = x[v * p.x.strides[1] + row * p.x.strides[2] + r * p.x.strides[3] +
                            column * p.x.strides[4]];
            }
        }
        if (p.y.data) *(vector_of<T, V> *)((T *)p.y.data + offset_of(p.y, at)) = y;
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* gd_NAME_DTYPE works on single elements, gd_NAME_DTYPE_channels on 16 bytes of channels. */
#define POOL_KERNEL(name, ...)                              \
    extern "C" __global__ void __launch_bounds__(256)       \
        gd_##name(const __grid_constant__ gd_cuda_pool p) { \
        RETURN_IF_FAILED(p.call);                           \
        __VA_ARGS__(p);                                     \
    }
#define POOL_KERNELS(dtype, T, V)                                                                \
    POOL_KERNEL(max_pool_##dtype, max_of_windows<T, 1, 1>)                                       \
    POOL_KERNEL(max_pool_##dtype##_channels, max_of_windows<T, V, 1>)                            \
    POOL_KERNEL(max_pool_##dtype##_lanes, max_of_windows<T, 1, GD_CUDA_POOL_LANES>)              \
    POOL_KERNEL(max_pool_##dtype##_2, max_of_square<T, 1, 2>)                                    \
    POOL_KERNEL(max_pool_##dtype##_2_channels, max_of_square<T, V, 2>)                           \
    POOL_KERNEL(max_pool_##dtype##_3, max_of_square<T, 1, 3>)                                    \
    POOL_KERNEL(max_pool_##dtype##_3_channels, max_of_square<T, V, 3>)                           \
    POOL_KERNEL(avg_pool_##dtype, average_of_windows<T, 1, 1>)                                   \
    POOL_KERNEL(avg_pool_##dtype##_channels, average_of_windows<T, V, 1>)                        \
    POOL_KERNEL(avg_pool_##dtype##_lanes, average_of_windows<T, 1, GD_CUDA_POOL_LANES>)          \
    POOL_KERNEL(avg_pool_##dtype##_channels_lanes, average_of_windows<T, V, GD_CUDA_POOL_LANES>) \
    POOL_KERNEL(avg_pool_grad_##dtype, average_gradient<T, 1>)                                   \
    POOL_KERNEL(avg_pool_grad_##dtype##_channels, average_gradient<T, V>)                        \
    POOL_KERNEL(max_pool_grad_##dtype, max_gradient<T, 1>)                                       \
    POOL_KERNEL(max_pool_grad_##dtype##_channels, max_gradient<T, V>)                            \
    POOL_KERNEL(max_pool_grad_##dtype##_blocks, max_gradient_of_blocks<T, 1>)                    \
    POOL_KERNEL(max_pool_grad_##dtype##_blocks_channels, max_gradient_of_blocks<T, V>)           \
    POOL_KERNEL(pool_gather_##dtype, gather_maxima<T, 1>)

POOL_KERNELS(f64, double, 2)
POOL_KERNELS(f32, float, 4)
POOL_KERNELS(f16, f16_element, 8)
POOL_KERNELS(bf16, bf16_element, 8)
