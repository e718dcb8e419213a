/* index.cu - gather and scatter, range checks, and ops whose results have a size that depends on
 * the data. */
#include "ops/index/cuda/index_args.h"
#include "backend/cuda/walk.cuh"
#include "gradus/backend.h"

/* --- gather ----------------------------------------------------------------------------------- */

extern "C" __global__ void gd_gather_elements(const __grid_constant__ gd_cuda_gather p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.walk.count)) {
        const walk_offsets o = walk_to(p.walk, i);
        const int64_t index = load_integer(p.index_dtype, p.index, o.at[0]);
        if (index < 0 || index >= p.size)
            report_problem(p.call, GD_DATA_AXIS_INDEX, i, index, p.size, p.axis, 0);
        else if (p.y) copy_element(p.bytes, p.y, o.at[1], p.x, o.at[2] + index * p.x_step);
    }
}

/* --- scatter ---------------------------------------------------------------------------------- */

/* NaN wins. */
static __device__ double combine_reals(gd_cuda_scatter_mode mode, double old, double value) {
    switch (mode) {
    case GD_CUDA_SCATTER_ADD: return old + value;
    case GD_CUDA_SCATTER_MULTIPLY: return old * value;
    case GD_CUDA_SCATTER_LARGEST: return old > value || isnan(old) ? old : value;
    case GD_CUDA_SCATTER_SMALLEST: return old < value || isnan(old) ? old : value;
    default: return value;
    }
}

/* Sums and products wrap. */
static __device__ int64_t combine_integers(gd_cuda_scatter_mode mode, int64_t old, int64_t value) {
    switch (mode) {
    case GD_CUDA_SCATTER_ADD: return (int64_t)((uint64_t)old + (uint64_t)value);
    case GD_CUDA_SCATTER_MULTIPLY: return (int64_t)((uint64_t)old * (uint64_t)value);
    case GD_CUDA_SCATTER_LARGEST: return old > value ? old : value;
    case GD_CUDA_SCATTER_SMALLEST: return old < value ? old : value;
    default: return value;
    }
}

/* f32 is computed in f64: one rounding of an exact sum or product gives the bits of f32. */
static __device__ void combine_element(const gd_cuda_scatter &p, long long to, long long from) {
    if (p.mode == GD_CUDA_SCATTER_SET) copy_element(p.bytes, p.y, to, p.src, from);
    else if (is_float(p.y_dtype))
        store_real(p.y_dtype, p.y, to,
                   combine_reals(p.mode, load_real(p.y_dtype, p.y, to),
                                 load_real(p.src_dtype, p.src, from)));
    else
        store_integer(p.y_dtype, p.y, to,
                      combine_integers(p.mode, load_integer(p.y_dtype, p.y, to),
                                       load_integer(p.src_dtype, p.src, from)));
}

static __device__ void store_identity(const gd_cuda_scatter &p, long long to) {
    if (is_float(p.y_dtype)) store_real(p.y_dtype, p.y, to, p.real_identity);
    else store_integer(p.y_dtype, p.y, to, p.integer_identity);
}

enum { TARGETS = 8 }; /* indices that are loaded together, to overlap their latencies */

/* The targets of entries t .. t+TARGETS-1 of a line; -1 for those that another part writes and for
 * bad indices, which part 0 reports. `first` is the number of the line's entry 0 in the index. */
static __device__ __forceinline__ void load_targets(const gd_cuda_scatter &p, long long index_at,
                                                    long long first, int part, long long t,
                                                    long long *targets) {
#pragma unroll
    for (int k = 0; k < TARGETS; k++)
        targets[k] = t + k < p.length
                         ? load_integer(p.index_dtype, p.index, index_at + (t + k) * p.index_step)
                         : 0;
#pragma unroll
    for (int k = 0; k < TARGETS; k++) {
        const long long target = targets[k];
        const bool bad = target < 0 || target >= p.size;
        if (bad && part == 0 && t + k < p.length)
            report_problem(p.call, GD_DATA_AXIS_INDEX, first + (t + k) * p.inner, target, p.size,
                           p.axis, 0);
        if (bad || t + k >= p.length || (target & (p.parts - 1)) != part) targets[k] = -1;
    }
}

/* A thread handles the entries of a line in order, so the result does not depend on timing. */
extern "C" __global__ void gd_scatter_lines(const __grid_constant__ gd_cuda_scatter p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.lines.count * p.parts)) {
        const long long line = i % p.lines.count;
        const int part = (int)(i / p.lines.count);
        const walk_offsets o = walk_to(p.lines, line);
        const long long first = line / p.inner * p.length * p.inner + line % p.inner;
        long long targets[TARGETS];
        for (long long t = 0; p.forgets && t < p.length; t += TARGETS) {
            load_targets(p, o.at[0], first, part, t, targets);
#pragma unroll
            for (int k = 0; k < TARGETS; k++)
                if (targets[k] >= 0) store_identity(p, o.at[2] + targets[k] * p.y_step);
        }
        for (long long t = 0; t < p.length; t += TARGETS) {
            load_targets(p, o.at[0], first, part, t, targets);
#pragma unroll
            for (int k = 0; k < TARGETS; k++)
                if (targets[k] >= 0)
                    combine_element(p, o.at[2] + targets[k] * p.y_step,
                                    o.at[1] + (t + k) * p.src_step);
        }
    }
}

/* --- nonzero ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ bool is_nonzero(const gd_cuda_nonzero &p, long long i) {
    return load_real(p.dtype, p.x, walk_to(p.walk, i).at[0]) != 0;
}

static __device__ __forceinline__ long long chunk_end(const gd_cuda_nonzero &p, long long c) {
    return (c + 1) * p.chunk < p.walk.count ? (c + 1) * p.chunk : p.walk.count;
}

/* starts[c] = number of nonzero elements of chunk c. */
extern "C" __global__ void gd_nonzero_counts(const __grid_constant__ gd_cuda_nonzero p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(c, p.chunks)) {
        long long found = 0;
        for (long long i = c * p.chunk; i < chunk_end(p, c); i++) found += is_nonzero(p, i);
        p.starts[c] = found;
    }
}

/* Replaces the counts by the start of each chunk, with one thread. */
extern "C" __global__ void gd_nonzero_starts(const __grid_constant__ gd_cuda_nonzero p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, 1)) {
        long long start = 0;
        for (long long c = 0; c < p.chunks; c++) {
            const long long found = p.starts[c];
            p.starts[c] = start;
            start += found;
        }
        p.starts[p.chunks] = start;
    }
}

extern "C" __global__ void gd_nonzero_positions(const __grid_constant__ gd_cuda_nonzero p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(c, p.chunks)) {
        long long *position = p.y + p.starts[c] * p.rank;
        for (long long i = c * p.chunk; i < chunk_end(p, c); i++) {
            if (!is_nonzero(p, i)) continue;
            long long rest = i;
            for (int d = p.rank - 1; d >= 0; d--) {
                position[d] = rest % p.dims[d];
                rest /= p.dims[d];
            }
            position += p.rank;
        }
    }
}

/* --- one_hot_found ---------------------------------------------------------------------------- */

/* The host sets *largest to 0 before. */
extern "C" __global__ void gd_one_hot_largest(const __grid_constant__ gd_cuda_one_hot p) {
    RETURN_IF_FAILED(p.call);
    long long largest = 0;
    for (EACH(i, p.walk.count)) {
        const long long value = load_integer(p.dtype, p.x, walk_to(p.walk, i).at[0]);
        largest = value > largest ? value : largest;
    }
    if (largest > 0) atomicMax(p.largest, largest);
}

extern "C" __global__ void gd_one_hot_write(const __grid_constant__ gd_cuda_one_hot p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.walk.count * p.classes)) {
        const long long item = i / p.classes, column = i - item * p.classes;
        const long long value = load_integer(p.dtype, p.x, walk_to(p.walk, item).at[0]);
        if (value < 0 && column == 0)
            report_problem(p.call, GD_DATA_INDEX, item, value, p.classes, 0, 0);
        store_integer(p.y_dtype, p.y, i, value == column);
    }
}
