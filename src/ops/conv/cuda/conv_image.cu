/* conv_image.cu - the gradient of x of a convolution of small images.
 *
 * The sum over the channels of y comes first: for each channel c of x, tap and position p of y, the
 * product z[(c, tap), p] = sum over o of w[o, c, tap] y[o, p] of two dense matrices. Then each
 * element of x adds the products of its taps. No product with padding is computed, of which there
 * are many if the kernel is large compared to the image.
 */
#include "ops/conv/cuda/conv_image_args.h"

#include "backend/cuda/element.cuh"

enum {
    ROWS = GD_CUDA_CONV_IMAGE_ROWS,
    COLUMNS = GD_CUDA_CONV_IMAGE_COLUMNS,
    DEPTH = GD_CUDA_CONV_IMAGE_DEPTH,
    THREADS = GD_CUDA_CONV_IMAGE_THREADS,
    ROWS_EACH =
        8, /* elements of z of a thread: two times 4 adjacent rows, and 4 adjacent columns */
    COLUMNS_EACH = 4,
    ROW_THREADS = ROWS / ROWS_EACH,
    WARP = 32,
};

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char shared_memory[];
#else
#define shared_memory emulated_shared
#endif

/* Copies w[first .. first + depth - 1] of the block's rows, and y of its image. */
static __device__ __forceinline__ void copy_operands(const gd_cuda_conv_image &p, const float *w,
                                                     const float *y, int depth, int rows,
                                                     int columns, float *left, float *right) {
    const int thread = (int)threadIdx.x;
#pragma unroll 4
    for (int d = thread / WARP; d < depth; d += THREADS / WARP)
#pragma unroll
        for (int i = 0; i < ROWS / WARP; i++) {
            const int row = thread % WARP + i * WARP;
            left[d * ROWS + row] = row < rows ? __ldg(w + (d * p.w_row + row)) : 0.0f;
        }
    if (p.aligned) {
        const int quads = columns / 4;
        for (int i = thread; i < depth * (COLUMNS / 4); i += THREADS) {
            const int d = i / (COLUMNS / 4), quad = i % (COLUMNS / 4);
            float4 four = {0, 0, 0, 0};
            if (quad < quads) four = __ldg((const float4 *)(y + d * p.y_channel) + quad);
            ((float4 *)right)[i] = four;
        }
    } else {
        for (int i = thread; i < depth * COLUMNS; i += THREADS) {
            const int d = i / COLUMNS, column = i % COLUMNS;
            right[i] = column < columns ? __ldg(y + (d * p.y_channel + column)) : 0.0f;
        }
    }
}

static __device__ __forceinline__ void multiply_operands(const float *left, const float *right,
                                                         int depth, float (*sum)[COLUMNS_EACH]) {
#pragma unroll 4
    for (int d = 0; d < depth; d++) {
        const float4 low = *(const float4 *)(left + d * ROWS),
                     high = *(const float4 *)(left + d * ROWS + ROW_THREADS * 4),
                     b = *(const float4 *)(right + d * COLUMNS);
        const float rows[ROWS_EACH] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w},
                    columns[COLUMNS_EACH] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int r = 0; r < ROWS_EACH; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS_EACH; c++) sum[r][c] = fmaf(rows[r], columns[c], sum[r][c]);
    }
}

/* The sum of the products of one element of x. z (taps, positions) is that of its channel. */
static __device__ __forceinline__ float add_taps(const gd_cuda_conv_image &p, const float *z,
                                                 int row, int column) {
    float sum = 0;
    for (int i = 0; i < p.taps[0]; i++) {
        const int above = row + p.before[0] - i * p.dilation[0],
                  y = p.stride[0] == 1 ? above : above / p.stride[0];
        if (above < 0 || y >= p.y_size[0] || y * p.stride[0] != above) continue;
        const float *taps = z + i * p.taps[1] * COLUMNS + y * p.y_size[1];
#pragma unroll 5
        for (int k = 0; k < p.taps[1]; k++) {
            const int left = column + p.before[1] - k * p.dilation[1],
                      x = p.stride[1] == 1 ? left : left / p.stride[1];
            if (left >= 0 && x < p.y_size[1] && x * p.stride[1] == left)
                sum += taps[k * COLUMNS + x];
        }
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gd_convolve_image_gradient(const __grid_constant__ gd_cuda_conv_image p) {
    RETURN_IF_FAILED(p.call);
    const int image = (int)blockIdx.x / p.blocks_each,
              channel = ((int)blockIdx.x - image * p.blocks_each) * p.block_channels,
              channels = min(p.block_channels, p.channels - channel), taps = p.taps[0] * p.taps[1],
              rows = channels * taps, columns = p.y_size[0] * p.y_size[1],
              thread = (int)threadIdx.x;
    const float *w = p.w + channel * taps, *y = p.y + image * p.y_image;
    float *left = (float *)shared_memory, *right = left + DEPTH * ROWS, *z = left;
    /* a warp has 4 x 8 parts of z */
    const int row = (thread / (2 * WARP) * 4 + thread % WARP / 8) * 4,
              column = (thread / WARP % 2 * 8 + thread % 8) * 4;
    float sum[ROWS_EACH][COLUMNS_EACH] = {};
#pragma unroll 1
    for (int first = 0; first < p.y_channels; first += DEPTH) {
        const int depth = min((int)DEPTH, p.y_channels - first);
        if (first > 0) __syncthreads();
        copy_operands(p, w + first * p.w_row, y + first * p.y_channel, depth, rows, columns, left,
                      right);
        __syncthreads();
        multiply_operands(left + row, right + column, depth, sum);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS_EACH; r++) {
        const float4 four = {sum[r][0], sum[r][1], sum[r][2], sum[r][3]};
        *(float4 *)(z + (row + r % 4 + r / 4 * ROW_THREADS * 4) * COLUMNS + column) = four;
    }
    __syncthreads();
    for (int i = thread; i < channels * p.x_size[0] * p.x_size[1]; i += THREADS) {
        int number = i;
        const int at_x = split_off(p.by_width, &number), at_y = split_off(p.by_height, &number);
        float value = add_taps(p, z + number * taps * COLUMNS, at_y, at_x);
        if (p.bias) value += p.bias[(channel + number) * p.bias_stride];
        p.x[image * p.x_strides[0] + (channel + number) * p.x_strides[1] + at_y * p.x_strides[2] +
            at_x * p.x_strides[3]] = value;
    }
}
