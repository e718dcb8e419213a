/* sort.cu - merge sorts along an axis. */
#include "ops/sort/cuda/sort_args.h"
#include "backend/cuda/walk.cuh"

static __device__ __forceinline__ uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* A key whose unsigned order is that of the elements. -0 equals 0, and NaN is larger than all
 * numbers. */
static __device__ __forceinline__ uint64_t key_of(const gd_cuda_sort &p, long long at) {
    const uint64_t sign = 1ull << 63;
    uint64_t key;
    if (is_float(p.dtype)) {
        const double x = load_real(p.dtype, p.x, at);
        const uint64_t bits = bits_of(x == 0 ? 0 : x);
        key = isnan(x) ? ~0ull : bits & sign ? ~bits : bits | sign;
    } else key = (uint64_t)load_integer(p.dtype, p.x, at) ^ sign;
    return p.descending ? ~key : key;
}

/* Sorts runs of GD_CUDA_SORTED_RUN elements: each element counts those of its run that come before
 * it. */
extern "C" __global__ void gd_sort_runs(const __grid_constant__ gd_cuda_sort p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.lines.count * p.n)) {
        const long long line = i / p.n, t = i - line * p.n, at = walk_to(p.lines, line).at[0];
        const long long first = t - t % GD_CUDA_SORTED_RUN;
        const uint64_t key = key_of(p, at + t * p.x_step);
        long long before = 0;
        for (long long u = first; u < first + GD_CUDA_SORTED_RUN && u < p.n; u++) {
            const uint64_t other = key_of(p, at + u * p.x_step);
            before += other < key || (other == key && u < t);
        }
        p.to[line * p.n + first + before] = {key, t};
    }
}

/* The number of keys in a sorted run that are smaller than `key`, or, with `equal`, not larger. */
static __device__ __forceinline__ long long count_before(const gd_cuda_sort_entry *run, long long n,
                                                         uint64_t key, bool equal) {
    long long low = 0, high = n;
    while (low < high) {
        const long long middle = (low + high) / 2;
        const uint64_t other = run[middle].key;
        if (other < key || (equal && other == key)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Merges pairs of runs of p.width elements. An element moves behind the elements of the other run
 * that come before it; equal elements of the left run come first. */
extern "C" __global__ void gd_merge_runs(const __grid_constant__ gd_cuda_sort p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.lines.count * p.n)) {
        const long long line = i / p.n, t = i - line * p.n, run = t / p.width;
        const bool is_right = run & 1;
        const long long pair = (is_right ? run - 1 : run) * p.width; /* where the pair begins */
        const long long other = is_right ? pair : pair + p.width;
        const long long rest = p.n - other, length = rest < p.width ? rest : p.width;
        const gd_cuda_sort_entry entry = p.from[i];
        const long long before =
            length > 0 ? count_before(p.from + line * p.n + other, length, entry.key, is_right) : 0;
        p.to[line * p.n + pair + (t - run * p.width) + before] = entry;
    }
}

extern "C" __global__ void gd_sort_results(const __grid_constant__ gd_cuda_sort p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.lines.count * p.n)) {
        const long long line = i / p.n, t = i - line * p.n, index = p.from[i].index;
        const walk_offsets o = walk_to(p.lines, line);
        if (p.values)
            copy_element(p.bytes, p.values, o.at[1] + t * p.values_step, p.x,
                         o.at[0] + index * p.x_step);
        if (p.indices) p.indices[o.at[2] + t * p.indices_step] = index;
    }
}
