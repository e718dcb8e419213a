/* conv_image.c - the gradient of x of f32 convolutions of small images (conv_image.cu). */
#include "ops/conv/cuda/conv_image_args.h"

#include "ops/conv/cuda/conv.h"

enum {
    ROWS = GD_CUDA_CONV_IMAGE_ROWS,
    COLUMNS = GD_CUDA_CONV_IMAGE_COLUMNS,
    DEPTH = GD_CUDA_CONV_IMAGE_DEPTH,
    THREADS = GD_CUDA_CONV_IMAGE_THREADS,
};

static gd_cuda_kernel gradient = GD_CUDA_KERNEL_SHARED(
    "conv/conv_image", "gd_convolve_image_gradient", 4 * DEPTH * (ROWS + COLUMNS));

static int64_t count_positions(const gd_cuda_conv_operand *o) { return o->dims[3] * o->dims[4]; }

/* Whether the positions of a channel are contiguous. */
static bool has_dense_planes(const gd_cuda_conv_operand *o) {
    return (o->dims[4] == 1 || o->strides[4] == 1) &&
           (o->dims[3] == 1 || o->strides[3] == o->dims[4]);
}

/*kernel conv_transpose{1,2,3}d.image, conv_grad_input.image  rank 14  dtypes f32  checked
 *        run run_image  match match_image
 * The gradient of x where y has 32 to 64 positions: products of w and y first, then the sums of
 * taps.
 */

/* The implicit product also computes the products of taps outside of y, which this one saves. */
static bool is_faster(const gd_cuda_conv_problem *q) {
    const int64_t positions = count_positions(&q->y), taps = count_positions(&q->w), most_sum = 512,
                  implicit = count_positions(&q->x) / (q->stride[1] * q->stride[2]);
    if (q->groups != 1) return false;
    if (q->x.dims[2] != 1 || q->w.dims[2] != 1 || q->y.dims[2] != 1 || q->before[0] != 0)
        return false;
    if (positions > COLUMNS || taps > ROWS || q->co > most_sum || q->co == 0) return false;
    if (implicit * 10 < positions * 13 || positions * 2 < COLUMNS) return false;
    return q->x.dims[0] * q->ci > 0 && has_dense_planes(&q->y) && has_dense_planes(&q->w) &&
           (q->ci == 1 || q->w.strides[1] == taps);
}

static bool match_image(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    return is_faster(&q) && gd_cuda_conv_is_common(&q);
}

static gd_status run_image(gd_kernel_call *call) {
    const gd_cuda_conv_problem problem = gd_cuda_conv_problem_of(call), *q = &problem;
    const int taps = (int)count_positions(&q->w), most = ROWS / taps;
    gd_cuda_conv_image p = {
        .call = gd_cuda_call_of(call),
        .y = q->y.data,
        .y_image = (int)q->y.strides[0],
        .y_channel = (int)q->y.strides[1],
        .w = q->w.data,
        .w_row = (int)q->w.strides[0],
        .x = q->x.data,
        .x_strides = {(int)q->x.strides[0], (int)q->x.strides[1], (int)q->x.strides[3],
                      (int)q->x.strides[4]},
        .bias = q->bias ? q->bias->data : NULL,
        .bias_stride = q->bias ? q->bias->strides[0] : 0,
        .channels = (int)q->ci,
        .y_channels = (int)q->co,
        .blocks_each = (int)((q->ci + most - 1) / most),
        .by_width = gd_cuda_divisor_of(q->x.dims[4]),
        .by_height = gd_cuda_divisor_of(q->x.dims[3]),
    };
    p.block_channels = (p.channels + p.blocks_each - 1) / p.blocks_each;
    for (int a = 0; a < 2; a++) {
        p.taps[a] = (int)q->w.dims[3 + a];
        p.y_size[a] = (int)q->y.dims[3 + a];
        p.x_size[a] = (int)q->x.dims[3 + a];
        p.stride[a] = (int)q->stride[1 + a];
        p.dilation[a] = (int)q->dilation[1 + a];
        p.before[a] = (int)q->before[1 + a];
    }
    p.aligned = gd_cuda_is_aligned(p.y) && p.y_image % 4 == 0 && p.y_channel % 4 == 0 &&
                count_positions(&q->y) % 4 == 0;
    return gd_cuda_launch(call->device, &gradient, q->x.dims[0] * p.blocks_each, THREADS, &p);
}

#include "ops/conv/cuda/conv_image.gen.h"
