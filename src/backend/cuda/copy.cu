/* copy.cu - copies between views, with conversion. */
#include "backend/cuda/copy_args.h"
#include "backend/cuda/element.cuh"

extern "C" __global__ void gd_copy_views(const __grid_constant__ gd_cuda_copy p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.to.count)) {
        const long long from =
            p.reshapes ? offset_of(p.from, i) : offset_of(p.from, p.to.rank, p.to.dims, i);
        convert_element(p.to.dtype, p.to.data, offset_of(p.to, i), p.from.dtype, p.from.data, from);
    }
}

/* 16 bytes at a time if both addresses allow it. */
extern "C" __global__ void gd_copy_bytes(const __grid_constant__ gd_cuda_copy_bytes p) {
    RETURN_IF_FAILED(p.call);
    const bool aligned = (((uintptr_t)p.to | (uintptr_t)p.from) & 15) == 0;
    const long long units = aligned ? p.bytes / 16 : 0;
    for (EACH(i, units)) ((uint4 *)p.to)[i] = ((const uint4 *)p.from)[i];
    for (EACH(i, p.bytes - 16 * units))
        ((char *)p.to)[16 * units + i] = ((const char *)p.from)[16 * units + i];
}
