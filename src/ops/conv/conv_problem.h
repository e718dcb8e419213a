/* conv_problem.h - the problem of a convolution, read from a call. These functions call none of the
 * library, so that backends that do not link it read the problem in the same way.
 *
 * Every convolution has three spatial axes here (depth, height, width); if an op has fewer, the
 * first ones have size 1. All ops are based on one bilinear form: for image n, group g, output
 * position p,
 *
 *     y[n, g co + o, p] = sum over c and taps k of  x[n, g ci + c, p stride - before + k dilation]
 *                                                   w[g co + o, c, k]
 *
 * where x is 0 outside of its bounds. Convolution computes y from x and w. Its gradients compute x
 * from y and w (as transposed convolution does), and w from x and y.
 */
#ifndef GRADUS_OPS_CONV_CONV_PROBLEM_H
#define GRADUS_OPS_CONV_CONV_PROBLEM_H

#include <string.h>

#include "gradus/extend.h"
#include "gradus/ops.h"

enum { GD_CONV_AXES = 3 };

/* The tensor that a call computes. */
typedef enum { GD_CONV_TO_OUTPUT, GD_CONV_TO_INPUT, GD_CONV_TO_WEIGHT } gd_conv_direction;

typedef struct gd_conv {
    int64_t batch, groups;
    int64_t ci, co; /* channels of x and of y in one group */
    int64_t in[GD_CONV_AXES], out[GD_CONV_AXES], kernel[GD_CONV_AXES]; /* sizes of x, y and w */
    int64_t stride[GD_CONV_AXES], dilation[GD_CONV_AXES];
    int64_t before[GD_CONV_AXES]; /* zeros before the first element of x */
} gd_conv;

/* The options of any op in conv.c, by axis. */
typedef struct gd_conv_options {
    int64_t stride[GD_CONV_AXES], padding[GD_CONV_AXES], dilation[GD_CONV_AXES],
        output_padding[GD_CONV_AXES];
    int64_t
        dims[GD_CONV_AXES]; /* spatial sizes of the result; only internal ops have this option */
    int64_t groups;
    gd_word pad_mode;
} gd_conv_options;

/* Those of an op that has none of them. */
static inline gd_conv_options gd_conv_default_options(void) {
    return (gd_conv_options){
        .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .dims = {1, 1, 1}, .pad_mode = GD_EXPLICIT};
}

/* Where the numbers of list option `name` belong; NULL: it is none. First letters are compared first,
 * because kernels read their problem several times in each call. */
static inline int64_t *gd_conv_list_of(gd_conv_options *o, const char *name) {
    switch (name[0]) {
    case 's': return strcmp(name, "stride") == 0 ? o->stride : NULL;
    case 'p': return strcmp(name, "padding") == 0 ? o->padding : NULL;
    case 'd':
        return strcmp(name, "dilation") == 0 ? o->dilation
               : strcmp(name, "dims") == 0   ? o->dims
                                             : NULL;
    case 'o': return strcmp(name, "output_padding") == 0 ? o->output_padding : NULL;
    default: return NULL;
    }
}

/* Reads an option that is no list. */
static inline void gd_conv_read_scalar(const gd_op_attr *a, const void *attrs, gd_conv_options *o) {
    const void *field = (const char *)attrs + a->offset;
    if (strcmp(a->name, "groups") == 0) o->groups = *(const int64_t *)field;
    else if (strcmp(a->name, "pad_mode") == 0) o->pad_mode = *(const gd_word *)field;
}

/* Reads an option of a call with n spatial axes, which infer has checked. */
static inline void gd_conv_read_option(const gd_op_attr *a, const void *attrs, int n,
                                       gd_conv_options *o) {
    int64_t *list = gd_conv_list_of(o, a->name);
    if (!list) {
        gd_conv_read_scalar(a, attrs, o);
        return;
    }
    const int64_t *from = (const int64_t *)(const void *)((const char *)attrs + a->offset);
    for (int i = 0; i < n; i++) list[GD_CONV_AXES - n + i] = from[i]; /* lists begin with these */
}

/* The padding before the first element. If the total is odd, the end gets one more, as in
 * PyTorch. */
static inline int64_t gd_conv_zeros_before(const gd_conv_options *o, int axis, int64_t kernel) {
    return o->pad_mode == GD_SAME ? o->dilation[axis] * (kernel - 1) / 2 : o->padding[axis];
}

/* The problem: sizes from the three tensors of a call, the rest from its options. */
static inline gd_conv gd_conv_with(const gd_conv_options *o, const gd_view *x, const gd_view *w,
                                   const gd_view *y) {
    const int n = w->rank - 2, channels = x->rank - n - 1;
    gd_conv c = {.batch = channels == 1 ? x->dims[0] : 1,
                 .groups = o->groups,
                 .ci = w->dims[1],
                 .co = w->dims[0] / o->groups};
    for (int a = 0; a < GD_CONV_AXES; a++) {
        const int d = a - (GD_CONV_AXES - n); /* the op's own axis; negative if it has none */
        c.in[a] = d < 0 ? 1 : x->dims[channels + 1 + d];
        c.out[a] = d < 0 ? 1 : y->dims[channels + 1 + d];
        c.kernel[a] = d < 0 ? 1 : w->dims[2 + d];
        c.stride[a] = o->stride[a];
        c.dilation[a] = o->dilation[a];
        c.before[a] = gd_conv_zeros_before(o, a, c.kernel[a]);
        /* kernels test for 1: steps between the windows or taps do not matter if there is only
         * one */
        if (c.out[a] == 1) c.stride[a] = 1;
        if (c.kernel[a] == 1) c.dilation[a] = 1;
    }
    return c;
}

#endif
