/* check.cu - checks that all elements are in a range. */
#include "ops/check/cuda/check_args.h"
#include "backend/cuda/walk.cuh"

static __device__ __forceinline__ bool is_in_range(const gd_cuda_check_range &p, long long at) {
    if (is_float(p.dtype)) {
        const double value = load_real(p.dtype, p.x, at);
        return value >= p.low && value <= p.high;
    }
    const long long value = load_integer(p.dtype, p.x, at);
    return (value >= p.integer_low && value <= p.integer_high) || (p.has_but && value == p.but);
}

extern "C" __global__ void gd_check_elements(const __grid_constant__ gd_cuda_check_range p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.walk.count)) {
        const walk_offsets o = walk_to(p.walk, i);
        if (!is_in_range(p, o.at[0])) {
            const bool real = is_float(p.dtype);
            report_problem(p.call, p.problem, i, real ? 0 : load_integer(p.dtype, p.x, o.at[0]),
                           p.values[0], p.values[1], load_real(p.dtype, p.x, o.at[0]));
        } else if (p.y) copy_element(p.bytes, p.y, o.at[1], p.x, o.at[0]);
    }
}
