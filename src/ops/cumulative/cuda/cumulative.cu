/* cumulative.cu - cumulative sums and products, and linear recurrences, along an axis. */
#include "ops/cumulative/cuda/cumulative_args.h"
#include "backend/cuda/walk.cuh"

/* Floats are computed in f64 and integers in u64, which wraps. */
static __device__ __forceinline__ void load_value(const gd_cuda_cumulative &p, long long at,
                                                  double &value) {
    value = load_real(p.x_dtype, p.x, at);
}
static __device__ __forceinline__ void load_value(const gd_cuda_cumulative &p, long long at,
                                                  uint64_t &value) {
    value =
        p.as_bool ? load_real(p.x_dtype, p.x, at) != 0 : (uint64_t)load_integer(p.x_dtype, p.x, at);
}
static __device__ __forceinline__ void store_value(const gd_cuda_cumulative &p, long long at,
                                                   double value) {
    store_real(p.y_dtype, p.y, at, value);
}
static __device__ __forceinline__ void store_value(const gd_cuda_cumulative &p, long long at,
                                                   uint64_t value) {
    store_integer(p.y_dtype, p.y, at, (int64_t)value);
}

/* A line, or a chunk of it: steps `first` to `last` - 1 of the recurrence. */
struct line_chunk {
    walk_offsets at;
    long long first, last;
};

static __device__ __forceinline__ line_chunk chunk_of(const gd_cuda_cumulative &p, long long line,
                                                      long long chunk) {
    const long long first = chunk * p.chunk;
    return {walk_to(p.lines, line), first, first + p.chunk < p.n ? first + p.chunk : p.n};
}

/* The position of step t of the recurrence. */
static __device__ __forceinline__ long long position_of(const gd_cuda_cumulative &p, long long t) {
    return p.reverse ? p.n - 1 - t : t;
}

/* The coefficient and the value of step t. Step 0 of LINEAR has no result before it. */
template <class T>
static __device__ __forceinline__ void load_step(const gd_cuda_cumulative &p, const line_chunk &c,
                                                 long long t, T &scale, T &value) {
    load_value(p, c.at.at[0] + position_of(p, t) * p.x_step, value);
    scale = 1;
    if (p.kind == GD_CUDA_CUMULATIVE_PRODUCT) {
        scale = value;
        value = 0;
    } else if (p.kind == GD_CUDA_CUMULATIVE_LINEAR) {
        const long long from = position_of(p, p.neighbour ? t - 1 : t);
        scale = t > 0 ? (T)load_real(p.a_dtype, p.a, c.at.at[2] + from * p.a_step) : (T)0;
    }
}

/* scale y + offset, without operations that the kind does not need. */
template <class T>
static __device__ __forceinline__ T apply_map(gd_cuda_cumulative_kind kind, T scale, T offset,
                                              T y) {
    if (kind == GD_CUDA_CUMULATIVE_SUM) return y + offset;
    if (kind == GD_CUDA_CUMULATIVE_PRODUCT) return y * scale;
    return scale * y + offset;
}

template <class T> struct chunk_map { T scale, offset; };

template <class T> static __device__ void compute_maps(const gd_cuda_cumulative &p) {
    chunk_map<T> *maps = (chunk_map<T> *)p.maps;
    for (EACH(i, p.lines.count * p.chunks)) {
        const line_chunk c = chunk_of(p, i % p.lines.count, i / p.lines.count);
        chunk_map<T> map = {1, 0};
        for (long long t = c.first; t < c.last; t++) {
            T scale, value;
            load_step(p, c, t, scale, value);
            map.scale *= scale;
            map.offset = apply_map(p.kind, scale, value, map.offset);
        }
        maps[i] = map;
    }
}

static __device__ __forceinline__ bool is_finite(double x) { return fabs(x) <= DBL_MAX; }
static __device__ __forceinline__ bool is_finite(uint64_t) { return true; }

/* The last result of a chunk, computed from `start`, the result before it. After 0 it is the offset
 * of the map. If all numbers are finite, the map gives it. Otherwise it is computed from the
 * elements: the scale may have overflowed where the results do not, and infinity times 0 is NaN. */
template <class T>
static __device__ T finish_chunk(const gd_cuda_cumulative &p, const chunk_map<T> &map,
                                 long long line, long long chunk, T start) {
    if (start == 0) return map.offset;
    const bool finite = is_finite(map.scale) && is_finite(map.offset) && is_finite(start);
    if (finite || p.kind == GD_CUDA_CUMULATIVE_SUM || start != start)
        return apply_map(p.kind, map.scale, map.offset, start);
    const line_chunk c = chunk_of(p, line, chunk);
    for (long long t = c.first; t < c.last; t++) {
        T scale, value;
        load_step(p, c, t, scale, value);
        start = apply_map(p.kind, scale, value, start);
    }
    return start;
}

/* Replaces the offset of each map by the result before the chunk. */
template <class T> static __device__ void compute_starts(const gd_cuda_cumulative &p) {
    for (EACH(line, p.lines.count)) {
        chunk_map<T> *map = (chunk_map<T> *)p.maps + line;
        T start = p.kind == GD_CUDA_CUMULATIVE_PRODUCT;
        for (long long c = 0; c < p.chunks; c++, map += p.lines.count) {
            const chunk_map<T> m = *map;
            map->offset = start;
            start = finish_chunk(p, m, line, c, start);
        }
    }
}

template <class T> static __device__ void compute_lines(const gd_cuda_cumulative &p) {
    const chunk_map<T> *maps = (const chunk_map<T> *)p.maps;
    for (EACH(i, p.lines.count * p.chunks)) {
        const line_chunk c = chunk_of(p, i % p.lines.count, i / p.lines.count);
        T y = p.kind == GD_CUDA_CUMULATIVE_PRODUCT;
        if (p.chunks > 1) y = maps[i].offset;
        for (long long t = c.first; t < c.last; t++) {
            const T before = y;
            T scale, value;
            load_step(p, c, t, scale, value);
            y = apply_map(p.kind, scale, value, y);
            store_value(p, c.at.at[1] + position_of(p, t) * p.y_step, p.exclusive ? before : y);
        }
    }
}

extern "C" __global__ void gd_cumulative_maps(const __grid_constant__ gd_cuda_cumulative p) {
    RETURN_IF_FAILED(p.call);
    if (is_float(p.y_dtype)) compute_maps<double>(p);
    else compute_maps<uint64_t>(p);
}

extern "C" __global__ void gd_cumulative_starts(const __grid_constant__ gd_cuda_cumulative p) {
    RETURN_IF_FAILED(p.call);
    if (is_float(p.y_dtype)) compute_starts<double>(p);
    else compute_starts<uint64_t>(p);
}

extern "C" __global__ void gd_cumulative_lines(const __grid_constant__ gd_cuda_cumulative p) {
    RETURN_IF_FAILED(p.call);
    if (is_float(p.y_dtype)) compute_lines<double>(p);
    else compute_lines<uint64_t>(p);
}
