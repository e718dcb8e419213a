/* space_to_depth.c - see space_to_depth.h. */
#include "ops/conv/cuda/space_to_depth.h"

#include "ops/conv/cuda/space_to_depth_args.h"

enum { Y = 1, X = 2, MAX_CHANNELS = 4, CHANNEL_STEP = 8 };

bool gd_cuda_blocks_pay(const gd_cuda_conv_problem *q) {
    return gd_cuda_element_size(q->dtype) == 2 && q->direction != GD_CONV_TO_INPUT &&
           q->axes == 2 && q->groups == 1 && q->ci <= MAX_CHANNELS && q->stride[Y] == 2 &&
           q->stride[X] == 2 && q->dilation[Y] == 1 && q->dilation[X] == 1 &&
           q->w.dims[2 + Y] > 2 && q->w.dims[2 + X] > 2;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The padding before x in pixels, rounded up to blocks. */
static int64_t padding_shift(const gd_cuda_conv_problem *q, int axis) {
    return divide_up(q->before[axis], q->stride[axis]) * q->stride[axis];
}

/* Windows begin at multiples of the stride minus the padding. So that they begin at a block, taps
 * are shifted by the missing part of a block. */
static int64_t tap_shift(const gd_cuda_conv_problem *q, int axis) {
    return padding_shift(q, axis) - q->before[axis];
}

static void set_channels_last(gd_cuda_conv_operand *o) {
    o->strides[1] = 1;
    o->strides[2 + X] = o->dims[1];
    o->strides[2 + Y] = o->strides[2 + X] * o->dims[2 + X];
    o->strides[2] = o->strides[0] = o->strides[2 + Y] * o->dims[2 + Y];
}

gd_cuda_conv_problem gd_cuda_blocks_of(const gd_cuda_conv_problem *q) {
    gd_cuda_conv_problem p = *q;
    p.ci = divide_up(q->ci * q->stride[Y] * q->stride[X], CHANNEL_STEP) * CHANNEL_STEP;
    p.x.dims[1] = p.w.dims[1] = p.ci;
    p.x.data = p.w.data = NULL;
    for (int a = Y; a <= X; a++) {
        p.w.dims[2 + a] = divide_up(q->w.dims[2 + a] + tap_shift(q, a), q->stride[a]);
        p.x.dims[2 + a] = q->y.dims[2 + a] + p.w.dims[2 + a] - 1; /* with the padding */
        p.before[a] = 0;
        p.stride[a] = 1;
    }
    set_channels_last(&p.x);
    set_channels_last(&p.w);
    return p;
}

static gd_cuda_kernel to_depth = GD_CUDA_KERNEL("conv/space_to_depth", "gd_space_to_depth"),
                      to_space = GD_CUDA_KERNEL("conv/space_to_depth", "gd_depth_to_space");

static gd_cuda_space_to_depth arguments_of(const gd_kernel_call *call,
                                           const gd_cuda_conv_operand *plane,
                                           const gd_cuda_conv_operand *blocks, int64_t block) {
    return (gd_cuda_space_to_depth){.call = gd_cuda_call_of(call),
                                    .plane = plane->data,
                                    .blocks = blocks->data,
                                    .n = plane->dims[0],
                                    .n_stride = plane->strides[0],
                                    .channel_stride = plane->strides[1],
                                    .y_stride = plane->strides[2 + Y],
                                    .x_stride = plane->strides[2 + X],
                                    .channels = (int)plane->dims[1],
                                    .height = (int)plane->dims[2 + Y],
                                    .width = (int)plane->dims[2 + X],
                                    .block = (int)block,
                                    .blocks_y = (int)blocks->dims[2 + Y],
                                    .blocks_x = (int)blocks->dims[2 + X],
                                    .depth = (int)blocks->dims[1]};
}

static gd_status queue_blocks(const gd_kernel_call *call, const gd_cuda_space_to_depth *p) {
    return gd_cuda_launch_each(call->device, &to_depth,
                               p->n * p->blocks_y * p->blocks_x * (p->depth / 8), p);
}

gd_status gd_cuda_queue_x_blocks(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                                 const gd_cuda_conv_operand *blocks) {
    gd_cuda_space_to_depth p = arguments_of(call, &q->x, blocks, q->stride[Y]);
    p.shift_y = (int)padding_shift(q, Y);
    p.shift_x = (int)padding_shift(q, X);
    return queue_blocks(call, &p);
}

gd_status gd_cuda_queue_w_blocks(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                                 const gd_cuda_conv_operand *blocks, bool back) {
    gd_cuda_space_to_depth p = arguments_of(call, &q->w, blocks, q->stride[Y]);
    p.shift_y = (int)tap_shift(q, Y);
    p.shift_x = (int)tap_shift(q, X);
    return back ? gd_cuda_launch_each(call->device, &to_space,
                                      p.n * p.channels * p.height * p.width, &p)
                : queue_blocks(call, &p);
}
