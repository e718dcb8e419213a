/* conv_kernels.c - registers the convolution kernels and maps their operands to gd_conv_call.
 *
 * The choice of an algorithm depends on shapes and dtypes alone. Convolution, transposed
 * convolution and their gradients are three directions of one form (ops/conv/conv_problem.h), so
 * one set of functions serves them all.
 */
#include "ops/conv/cpu/conv_algorithms.h"

#include <stdio.h>

#include "ops/matmul/cpu/gemm.h"
#include "core/tensor.h"
#include "dispatch/op.h"

static gd_conv_call conv_call_of(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_view *r = &k->out[0];
    const gd_view *x = direction == GD_CONV_TO_INPUT ? r : &k->in[0],
                  *w = direction == GD_CONV_TO_WEIGHT ? r : &k->in[1];
    const gd_view *y = direction == GD_CONV_TO_OUTPUT  ? r
                       : direction == GD_CONV_TO_INPUT ? &k->in[0]
                                                       : &k->in[1];
    return (gd_conv_call){.c = gd_conv_of(k, x, w, y),
                          .dtype = r->dtype == GD_F64 ? GD_F64 : GD_F32,
                          .x = x->data,
                          .w = w->data,
                          .y = y->data,
                          .bias = k->n_in > 2 ? k->in[2].data : NULL,
                          .workspace = k->workspace,
                          .workspace_bytes = k->workspace_bytes};
}

/* A forward call whose epilogue applies relu. */
static gd_conv_call conv_relu_call_of(const gd_kernel_call *k) {
    gd_conv_call call = conv_call_of(k, GD_CONV_TO_OUTPUT);
    call.relu = true;
    return call;
}

/* --- implicit GEMM ---------------------------------------------------------------------------- */

/* The GEMM's scratch memory for blocks of any size. */
static size_t gemm_scratch(const gd_kernel_call *k) {
    return gd_gemm_max_scratch(GD_GEMM_ANY, GD_GEMM_ANY, GD_GEMM_ANY, k->in[0].dtype);
}

/*kernel conv{1,2,3}d.gemm, conv_forward.gemm  rank 10  wide  run gemm_output
 *        dtypes f16 bf16 f32 f64  workspace gemm_output_bytes  scratch gemm_scratch
 * A product of matrices whose second one is gathered block by block from the images.
 */
/*kernel conv_relu.gemm  rank 10  wide  run gemm_relu  dtypes f16 bf16 f32 f64
 *        workspace gemm_output_bytes  scratch gemm_scratch
 * conv_forward.gemm with relu in the epilogue.
 */
static size_t gemm_output_bytes(const gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_OUTPUT);
    return gd_conv_gemm_output_bytes(&call.c, call.dtype);
}
static gd_status gemm_output(gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_OUTPUT);
    return gd_conv_gemm_output(&call);
}
static gd_status gemm_relu(gd_kernel_call *k) {
    const gd_conv_call call = conv_relu_call_of(k);
    return gd_conv_gemm_output(&call);
}

/*kernel conv_transpose{1,2,3}d.gemm, conv_grad_input.gemm  rank 10  wide  run gemm_input
 *        dtypes f16 bf16 f32 f64  match gemm_input_matches  workspace gemm_input_bytes
 *        scratch gemm_scratch
 * The gradient of x as convolutions by the flipped kernel, one for each phase of the stride.
 */
static bool gemm_input_matches(const gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_INPUT);
    return gd_conv_gemm_input_matches(&call.c);
}
static size_t gemm_input_bytes(const gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_INPUT);
    return gd_conv_gemm_input_bytes(&call.c, call.dtype);
}
static gd_status gemm_input(gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_INPUT);
    return gd_conv_gemm_input(&call);
}

/*kernel conv_grad_weight.gemm  rank 10  wide  run gemm_weight  dtypes f16 bf16 f32 f64
 *        workspace gemm_weight_bytes  scratch gemm_scratch
 * A product of matrices whose sums run over the positions of y.
 */
static size_t gemm_weight_bytes(const gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_WEIGHT);
    return gd_conv_gemm_weight_bytes(&call.c, call.dtype);
}
static gd_status gemm_weight(gd_kernel_call *k) {
    const gd_conv_call call = conv_call_of(k, GD_CONV_TO_WEIGHT);
    return gd_conv_gemm_weight(&call);
}

/* --- Winograd's algorithm --------------------------------------------------------------------- */

static bool winograd_matches(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_conv_call call = conv_call_of(k, direction);
    return gd_conv_winograd_matches(&call.c, direction);
}
static size_t winograd_bytes(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_conv_call call = conv_call_of(k, direction);
    return gd_conv_winograd_bytes(&call.c, direction);
}
static gd_status run_winograd(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_conv_call call = conv_call_of(k, direction);
    return gd_conv_winograd(&call, direction);
}
static void describe_winograd(const gd_kernel_call *k, gd_conv_direction direction, char *text,
                              size_t size) {
    const gd_conv_call call = conv_call_of(k, direction);
    const int side = gd_conv_winograd_tile(&call.c, direction);
    snprintf(text, size, "tiles %dx%d", side, side);
}

/*kernel conv2d.winograd, conv_forward.winograd  rank 20  wide  run wino_output  dtypes f16 bf16 f32
 *        match wino_output_matches  workspace wino_output_bytes  scratch gemm_scratch
 *        describe describe_wino_output
 * 3x3 windows with stride 1 and many channels, by Winograd's transforms of tiles.
 */
/*kernel conv_relu.winograd  rank 20  wide  run wino_relu  dtypes f16 bf16 f32
 *        match wino_relu_matches  workspace wino_output_bytes  scratch gemm_scratch
 *        describe describe_wino_output
 * conv_forward.winograd with relu in the last transform.
 */
static bool wino_output_matches(const gd_kernel_call *k) {
    return winograd_matches(k, GD_CONV_TO_OUTPUT);
}
static bool wino_relu_matches(const gd_kernel_call *k) {
    return k->in[1].rank == 4 && wino_output_matches(k);
}
static size_t wino_output_bytes(const gd_kernel_call *k) {
    return winograd_bytes(k, GD_CONV_TO_OUTPUT);
}
static gd_status wino_output(gd_kernel_call *k) { return run_winograd(k, GD_CONV_TO_OUTPUT); }
static void describe_wino_output(const gd_kernel_call *k, char *text, size_t size) {
    describe_winograd(k, GD_CONV_TO_OUTPUT, text, size);
}
static gd_status wino_relu(gd_kernel_call *k) {
    const gd_conv_call call = conv_relu_call_of(k);
    return gd_conv_winograd(&call, GD_CONV_TO_OUTPUT);
}

/*kernel conv_transpose2d.winograd, conv_grad_input.winograd  rank 20  wide  run wino_input
 *        dtypes f16 bf16 f32  match wino_input_matches  workspace wino_input_bytes
 *        scratch gemm_scratch  describe describe_wino_input
 * The gradient of x by Winograd's transforms.
 */
static bool wino_input_matches(const gd_kernel_call *k) {
    return winograd_matches(k, GD_CONV_TO_INPUT);
}
static size_t wino_input_bytes(const gd_kernel_call *k) {
    return winograd_bytes(k, GD_CONV_TO_INPUT);
}
static gd_status wino_input(gd_kernel_call *k) { return run_winograd(k, GD_CONV_TO_INPUT); }
static void describe_wino_input(const gd_kernel_call *k, char *text, size_t size) {
    describe_winograd(k, GD_CONV_TO_INPUT, text, size);
}

/*kernel conv_grad_weight.winograd  rank 20  wide  run wino_weight  dtypes f16 bf16 f32
 *        match wino_weight_matches  workspace wino_weight_bytes  scratch gemm_scratch
 *        describe describe_wino_weight
 * The gradient of the weight by Winograd's transforms.
 */
static bool wino_weight_matches(const gd_kernel_call *k) {
    return winograd_matches(k, GD_CONV_TO_WEIGHT);
}
static size_t wino_weight_bytes(const gd_kernel_call *k) {
    return winograd_bytes(k, GD_CONV_TO_WEIGHT);
}
static gd_status wino_weight(gd_kernel_call *k) { return run_winograd(k, GD_CONV_TO_WEIGHT); }
static void describe_wino_weight(const gd_kernel_call *k, char *text, size_t size) {
    describe_winograd(k, GD_CONV_TO_WEIGHT, text, size);
}

/* --- direct convolution ----------------------------------------------------------------------- */

static bool direct_matches(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_conv_call call = conv_call_of(k, direction);
    return gd_conv_direct_matches(&call.c, direction);
}
static size_t direct_bytes(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_conv_call call = conv_call_of(k, direction);
    return gd_conv_direct_bytes(&call.c, direction);
}
static gd_status run_direct(const gd_kernel_call *k, gd_conv_direction direction) {
    const gd_conv_call call = conv_call_of(k, direction);
    return gd_conv_direct(&call, direction);
}

/*kernel conv{1,2}d.direct, conv_forward.direct  rank 30  wide  run direct_output
 *        dtypes f16 bf16 f32  match direct_output_matches  workspace direct_output_bytes
 * Few channels in a group, as in depthwise convolutions: vectors of neighbouring outputs.
 */
/*kernel conv_relu.direct  rank 30  wide  run direct_relu  dtypes f16 bf16 f32
 *        match direct_relu_matches  workspace direct_output_bytes
 * conv_forward.direct with relu.
 */
static bool direct_output_matches(const gd_kernel_call *k) {
    return direct_matches(k, GD_CONV_TO_OUTPUT);
}
static bool direct_relu_matches(const gd_kernel_call *k) {
    return k->in[1].rank < 5 && direct_output_matches(k);
}
static size_t direct_output_bytes(const gd_kernel_call *k) {
    return direct_bytes(k, GD_CONV_TO_OUTPUT);
}
static gd_status direct_output(gd_kernel_call *k) { return run_direct(k, GD_CONV_TO_OUTPUT); }
static gd_status direct_relu(gd_kernel_call *k) {
    const gd_conv_call call = conv_relu_call_of(k);
    return gd_conv_direct(&call, GD_CONV_TO_OUTPUT);
}

/*kernel conv_transpose{1,2}d.direct, conv_grad_input.direct  rank 30  wide  run direct_input
 *        dtypes f16 bf16 f32  match direct_input_matches  workspace direct_input_bytes
 * The gradient of x for few channels in a group.
 */
static bool direct_input_matches(const gd_kernel_call *k) {
    return direct_matches(k, GD_CONV_TO_INPUT);
}
static size_t direct_input_bytes(const gd_kernel_call *k) {
    return direct_bytes(k, GD_CONV_TO_INPUT);
}
static gd_status direct_input(gd_kernel_call *k) { return run_direct(k, GD_CONV_TO_INPUT); }

/*kernel conv_grad_weight.direct  rank 30  wide  run direct_weight  dtypes f16 bf16 f32
 *        match direct_weight_matches  workspace direct_weight_bytes
 * The gradient of the weight for few channels in a group.
 */
static bool direct_weight_matches(const gd_kernel_call *k) {
    return direct_matches(k, GD_CONV_TO_WEIGHT);
}
static size_t direct_weight_bytes(const gd_kernel_call *k) {
    return direct_bytes(k, GD_CONV_TO_WEIGHT);
}
static gd_status direct_weight(gd_kernel_call *k) { return run_direct(k, GD_CONV_TO_WEIGHT); }

#include "ops/conv/cpu/conv_kernels.gen.h"
