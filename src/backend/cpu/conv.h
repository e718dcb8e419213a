/* conv.h - the fast convolutions, as conv_kernels.c offers them and as they help each other.
 *
 * Each has three directions (ops/convolution.h): to y, to x and to w. They take row-major f32 or
 * f64 and work in the workspace they asked for. Work is cut into pieces by shapes alone; which
 * thread computes a piece, and in which part of the workspace, changes nothing.
 */
#ifndef GRADUS_CPU_CONV_H
#define GRADUS_CPU_CONV_H

#include "ops/convolution.h"

/* One call. The result is the tensor that is made; bias is added to the result's channels. */
typedef struct gd_conv_call {
    gd_conv c;
    gd_dtype dtype; /* GD_F32 or GD_F64 */
    void *x, *w, *y;
    const void *bias; /* or NULL */
    bool relu;        /* to y: what is below 0 is 0 */
    void *workspace;
    size_t workspace_bytes;
} gd_conv_call;

/* --- by matrix products: conv_gemm.c ---------------------------------------------------------- */

size_t gd_conv_gemm_output_bytes(const gd_conv *c, gd_dtype dtype);
size_t gd_conv_gemm_input_bytes(const gd_conv *c, gd_dtype dtype);
size_t gd_conv_gemm_weight_bytes(const gd_conv *c, gd_dtype dtype);
bool gd_conv_gemm_input_fits(const gd_conv *c); /* false for strides that are not of this world */
gd_status gd_conv_gemm_output(const gd_conv_call *call);
gd_status gd_conv_gemm_input(const gd_conv_call *call);
gd_status gd_conv_gemm_weight(const gd_conv_call *call);

/* --- with fewer multiplications: conv_winograd.c ---------------------------------------------- */

/* Whether it can do the convolution (3x3, stride 1, no dilation, one group) and should be faster. */
bool gd_conv_winograd_pays(const gd_conv *c, gd_conv_direction to);
size_t gd_conv_winograd_bytes(const gd_conv *c, gd_conv_direction to);
gd_status gd_conv_winograd(const gd_conv_call *call, gd_conv_direction to);

/* --- directly, for groups of few channels: conv_direct.c -------------------------------------- */

/* Whether it can do the convolution (two axes, several groups of few channels) and should be faster. */
bool gd_conv_direct_pays(const gd_conv *c, gd_conv_direction to);
size_t gd_conv_direct_bytes(const gd_conv *c, gd_conv_direction to);
gd_status gd_conv_direct(const gd_conv_call *call, gd_conv_direction to);

/* --- slots: workspace for as many pieces as are computed at once ------------------------------ */

/* Bytes for `shared` memory and slots of `slot` bytes, when there are so many pieces. */
size_t gd_conv_slots_bytes(size_t shared, size_t slot, int64_t pieces);

/* Calls body(arg, piece, slot memory) for every piece; the slots follow `shared` bytes of the
 * call's workspace. A failure of any piece is returned. */
gd_status gd_conv_run_pieces(const gd_conv_call *call, size_t shared, size_t slot, int64_t pieces,
                             gd_status (*body)(void *arg, int64_t piece, char *memory), void *arg);

/* For stride 1, making x from y is making y from x with a turned kernel: the form of that. */
gd_conv gd_conv_turned(const gd_conv *c);

static inline bool gd_conv_has_stride_1(const gd_conv *c) {
    return c->stride[0] == 1 && c->stride[1] == 1 && c->stride[2] == 1;
}

/* --- small arithmetic ------------------------------------------------------------------------- */

static inline int64_t gd_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t gd_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline size_t gd_whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Where part number i of n begins, when `size` is cut evenly. */
static inline int64_t gd_cut(int64_t size, int64_t i, int64_t n) { return size * i / n; }

#endif
