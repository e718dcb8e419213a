/* creation.cu - constants and ranges. */
#include "backend/cuda/element.cuh"
#include "ops/creation/cuda/creation_args.h"

extern "C" __global__ void gd_fill_views(const __grid_constant__ gd_cuda_fill p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.to.count)) {
        const long long at = offset_of(p.to, i);
        switch (p.to.dtype) {
        case GD_F64:
        case GD_I64: ((uint64_t *)p.to.data)[at] = p.bits; break;
        case GD_F32:
        case GD_I32: ((uint32_t *)p.to.data)[at] = (uint32_t)p.bits; break;
        case GD_F16:
        case GD_BF16: ((uint16_t *)p.to.data)[at] = (uint16_t)p.bits; break;
        default: ((uint8_t *)p.to.data)[at] = (uint8_t)p.bits; break;
        }
    }
}

/* 16 bytes at a time if the address allows it. The address is a multiple of the element size, so
 * the pattern always begins with the first byte of an element. */
extern "C" __global__ void gd_fill_bytes(const __grid_constant__ gd_cuda_fill_bytes p) {
    RETURN_IF_FAILED(p.call);
    const bool aligned = ((uintptr_t)p.to & 15) == 0;
    const long long units = aligned ? p.bytes / 16 : 0;
    const ulonglong2 unit = {p.pattern, p.pattern};
    for (EACH(i, units)) ((ulonglong2 *)p.to)[i] = unit;
    for (EACH(i, p.bytes - 16 * units))
        ((uint8_t *)p.to)[16 * units + i] = (uint8_t)(p.pattern >> 8 * (i & 7));
}

extern "C" __global__ void gd_fill_arange(const __grid_constant__ gd_cuda_arange p) {
    RETURN_IF_FAILED(p.call);
    for (EACH(i, p.to.count)) {
        const long long at = i * p.to.strides[0];
        if (p.is_real) store_real(p.to.dtype, p.to.data, at, p.start + p.step * (double)i);
        else
            store_integer(p.to.dtype, p.to.data, at,
                          (int64_t)((uint64_t)p.first + (uint64_t)i * (uint64_t)p.stride));
    }
}
