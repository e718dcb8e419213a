/* conv_gemm.h - what the three directions of implicit GEMM convolution share.
 *
 *     y = w * columns        grad w = grad y * columns^T        columns: conv_im2col.h
 *
 * conv_gemm.c computes y, conv_gemm_input.c the gradient of x, conv_gemm_weight.c that of w.
 */
#ifndef GRADUS_OPS_CONV_CPU_CONV_GEMM_H
#define GRADUS_OPS_CONV_CPU_CONV_GEMM_H

#include "ops/conv/cpu/conv_algorithms.h"
#include "ops/conv/cpu/conv_im2col.h"
#include "ops/matmul/cpu/gemm.h"
#include "ops/matmul/cpu/gemm_block.h"

enum {
    GD_CONV_GEMM_ROWS = 512,   /* output channels of a task, at most */
    GD_CONV_ENOUGH_TASKS = 16, /* for the threads */
};

/* The number of tasks that a convolution should be divided into at least, from its multiply-adds;
 * at most GD_CONV_ENOUGH_TASKS. */
int64_t gd_conv_gemm_min_tasks(const gd_conv *c);

static inline size_t gd_conv_dtype_size(gd_dtype dtype) { return dtype == GD_F64 ? 8 : 4; }

static inline char *gd_conv_element(const void *data, gd_dtype dtype, int64_t index) {
    return (char *)(uintptr_t)data + index * (int64_t)gd_conv_dtype_size(dtype);
}

static inline gd_status gd_conv_gemm_block(const gd_gemm *g) {
    return g->c.dtype == GD_F64 ? GD_ISA_CALL(gd_gemm_block_f64)(g)
                                : GD_ISA_CALL(gd_gemm_block_f32)(g);
}

/* The output tensor: window i along an axis is written to position first + i * step of `size`. */
typedef struct gd_conv_target {
    void *data;
    int64_t size[GD_CONV_AXES], first[GD_CONV_AXES], step[GD_CONV_AXES];
} gd_conv_target;

/* The plan of y = w * columns. Tasks: (tile of columns, group, block of output channels). */
typedef struct gd_conv_output_plan {
    gd_conv c;
    gd_dtype dtype;
    const void *x, *w, *bias;
    bool relu;
    gd_conv_target y;
    bool direct; /* the GEMM writes to y; else to the slot, which is scattered to y */
    int64_t columns, tiles, tile; /* all columns, tiles of columns, columns in a tile */
    int64_t channel_blocks;
    int64_t tasks;
    size_t slot; /* bytes */
} gd_conv_output_plan;

gd_conv_output_plan gd_conv_plan_output(const gd_conv *c, gd_dtype dtype, bool direct);

/* Task i of a gd_conv_output_plan, for gd_conv_run_tasks. */
gd_status gd_conv_output_task(void *plan, int64_t i, char *memory);

/* Whether the convolution is one matrix product per image and group: a 1x1 kernel without stride
 * and padding, and enough positions in an image to fill panels. */
bool gd_conv_is_matmul(const gd_conv *c);

/* Computes such a convolution to y, or to x if `to_x`. */
gd_status gd_conv_run_matmul(const gd_conv_call *call, bool to_x);

#endif
