/* conv_algorithms.h - the three convolution algorithms of the CPU backend, and what they share.
 *
 * Each has three directions (ops/conv/conv_problem.h): forward (to y), gradient of the input (to x)
 * and gradient of the weight (to w). They take contiguous f32 or f64 tensors and a caller-provided
 * workspace. Work is partitioned into tasks by shapes alone, so the thread that computes a task,
 * and the workspace slot it uses, change no result.
 */
#ifndef GRADUS_OPS_CONV_CPU_CONV_ALGORITHMS_H
#define GRADUS_OPS_CONV_CPU_CONV_ALGORITHMS_H

#include "ops/conv/conv.h"

/* One call. The direction decides which of x, w and y is the result; the bias is added to the
 * channels of the result. */
typedef struct gd_conv_call {
    gd_conv c;
    gd_dtype dtype; /* GD_F32 or GD_F64 */
    void *x, *w, *y;
    const void *bias; /* or NULL */
    bool relu;        /* forward only: y = max(y, 0) */
    void *workspace;
    size_t workspace_bytes;
} gd_conv_call;

/* --- implicit GEMM: conv_gemm*.c -------------------------------------------------------------- */

size_t gd_conv_gemm_output_bytes(const gd_conv *c, gd_dtype dtype);
size_t gd_conv_gemm_input_bytes(const gd_conv *c, gd_dtype dtype);
size_t gd_conv_gemm_weight_bytes(const gd_conv *c, gd_dtype dtype);
bool gd_conv_gemm_input_matches(const gd_conv *c); /* false for huge strides */
gd_status gd_conv_gemm_output(const gd_conv_call *call);
gd_status gd_conv_gemm_input(const gd_conv_call *call);
gd_status gd_conv_gemm_weight(const gd_conv_call *call);

/* --- Winograd F(2x2, 3x3) and F(4x4, 3x3): conv_winograd.c ------------------------------------ */

/* Whether it supports the convolution (3x3, stride 1, no dilation, one group) and is estimated to
 * be faster than the others. */
bool gd_conv_winograd_matches(const gd_conv *c, gd_conv_direction direction);
/* The side of the tiles of its result: 4 or 2. 0: another algorithm is estimated to be faster. */
int gd_conv_winograd_tile(const gd_conv *c, gd_conv_direction direction);
size_t gd_conv_winograd_bytes(const gd_conv *c, gd_conv_direction direction);
gd_status gd_conv_winograd(const gd_conv_call *call, gd_conv_direction direction);

/* --- direct convolution for groups of few channels: conv_direct.c ----------------------------- */

/* Whether it supports the convolution (two axes, several groups of few channels) and is estimated
 * to be faster than the others. */
bool gd_conv_direct_matches(const gd_conv *c, gd_conv_direction direction);
size_t gd_conv_direct_bytes(const gd_conv *c, gd_conv_direction direction);
gd_status gd_conv_direct(const gd_conv_call *call, gd_conv_direction direction);

/* --- tasks and their workspace: conv_tasks.c -------------------------------------------------- */

/* The workspace for `shared` bytes and one slot of `slot` bytes for each of the tasks that run
 * concurrently. */
size_t gd_conv_slots_bytes(size_t shared, size_t slot, int64_t tasks);

/* Calls body(arg, task, slot memory) for every task in parallel. The slots follow `shared` bytes in
 * the call's workspace. Returns the failure of a task, if any. */
gd_status gd_conv_run_tasks(const gd_conv_call *call, size_t shared, size_t slot, int64_t tasks,
                            gd_status (*body)(void *arg, int64_t task, char *memory), void *arg);

/* With stride 1, the gradient of x is a convolution of the gradient of y by the flipped kernel
 * (rotated by 180 degrees). Returns the form of that convolution. */
gd_conv gd_conv_flipped(const gd_conv *c);

static inline bool gd_conv_has_stride_1(const gd_conv *c) {
    return c->stride[0] == 1 && c->stride[1] == 1 && c->stride[2] == 1;
}

/* --- small arithmetic ------------------------------------------------------------------------- */

static inline int64_t gd_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t gd_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline size_t gd_round_to_cache_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* The start of part i when `size` is divided evenly into n parts. */
static inline int64_t gd_split_point(int64_t size, int64_t i, int64_t n) { return size * i / n; }

#endif
