/* space_to_depth.cu - copies between a plane and its blocks. See space_to_depth.h. */
#include "ops/conv/cuda/space_to_depth_args.h"

#include "backend/cuda/element.cuh"

/* A thread copies 8 channels of a block, which are 16 bytes. */
extern "C" __global__ void gd_space_to_depth(const __grid_constant__ gd_cuda_space_to_depth p) {
    RETURN_IF_FAILED(p.call);
    const int groups = p.depth / 8;
    const long long count = p.n * p.blocks_y * p.blocks_x * groups;
    for (EACH(e, count)) {
        const int first = (int)(e % groups) * 8;
        const long long at = e / groups;
        const int j = (int)(at % p.blocks_x), i = (int)(at / p.blocks_x % p.blocks_y);
        const uint16_t *plane =
            (const uint16_t *)p.plane + at / p.blocks_x / p.blocks_y * p.n_stride;
        alignas(16) uint16_t values[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int channel = first + k, place = channel / p.channels,
                      c = channel - place * p.channels, dy = place / p.block,
                      dx = place - dy * p.block;
            const int y = i * p.block + dy - p.shift_y, x = j * p.block + dx - p.shift_x;
            const bool inside = dy < p.block && y >= 0 && y < p.height && x >= 0 && x < p.width;
            values[k] = inside ? plane[c * p.channel_stride + y * p.y_stride + x * p.x_stride] : 0;
        }
        ((uint4 *)p.blocks)[e] = *(const uint4 *)values;
    }
}

/* The inverse, for every element of the plane. */
extern "C" __global__ void gd_depth_to_space(const __grid_constant__ gd_cuda_space_to_depth p) {
    RETURN_IF_FAILED(p.call);
    const long long count = p.n * p.channels * p.height * p.width;
    for (EACH(e, count)) {
        const int x = (int)(e % p.width), y = (int)(e / p.width % p.height),
                  c = (int)(e / p.width / p.height % p.channels);
        const long long n = e / p.width / p.height / p.channels;
        const int i = (y + p.shift_y) / p.block, dy = (y + p.shift_y) % p.block,
                  j = (x + p.shift_x) / p.block, dx = (x + p.shift_x) % p.block;
        const long long from = ((n * p.blocks_y + i) * p.blocks_x + j) * p.depth +
                               (dy * p.block + dx) * p.channels + c;
        ((uint16_t *)
             p.plane)[n * p.n_stride + c * p.channel_stride + y * p.y_stride + x * p.x_stride] =
            ((const uint16_t *)p.blocks)[from];
    }
}
