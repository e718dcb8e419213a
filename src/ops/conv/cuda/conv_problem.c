/* conv_problem.c - see conv.h. The problem of a call, and the product of matrices that it is. */
#include <stdlib.h>
#include <string.h>

#include "ops/conv/cuda/conv.h"
#include "gradus/ops.h"

enum { AXES = GD_CONV_AXES };

/* --- problems --------------------------------------------------------------------------------- */

gd_conv_direction gd_cuda_conv_direction_of(const gd_op *op) {
    const char *name = gd_cuda_host->op_name(op);
    if (strncmp(name, "conv_grad_weight", 16) == 0) return GD_CONV_TO_WEIGHT;
    return strcmp(name, "conv_grad_input") == 0 || strncmp(name, "conv_transpose", 14) == 0
               ? GD_CONV_TO_INPUT
               : GD_CONV_TO_OUTPUT;
}

/* A view as an operand. `without_batch`: its first dim is missing. */
static gd_cuda_conv_operand operand_of(const gd_view *v, bool without_batch, int axes) {
    gd_cuda_conv_operand o = {.data = v->data, .dims = {1, 1, 1, 1, 1}};
    for (int d = 0; d < v->rank; d++) {
        const int leading = v->rank - axes, /* dims before the spatial axes */
            to = d < leading ? d + without_batch : 2 + AXES - v->rank + d;
        o.dims[to] = v->dims[d];
        o.strides[to] = v->strides[d];
    }
    return o;
}

gd_cuda_conv_problem gd_cuda_conv_problem_of(const gd_kernel_call *call) {
    gd_cuda_conv_problem p = {.direction = gd_cuda_conv_direction_of(call->op),
                              .dtype = call->out[0].dtype};
    const gd_view *result = &call->out[0];
    const gd_view *x = p.direction == GD_CONV_TO_INPUT ? result : &call->in[0],
                  *w = p.direction == GD_CONV_TO_WEIGHT ? result : &call->in[1],
                  *y = p.direction == GD_CONV_TO_OUTPUT  ? result
                       : p.direction == GD_CONV_TO_INPUT ? &call->in[0]
                                                         : &call->in[1];
    p.axes = w->rank - 2;
    p.x = operand_of(x, x->rank == p.axes + 1, p.axes);
    p.w = operand_of(w, false, p.axes);
    p.y = operand_of(y, y->rank == p.axes + 1, p.axes);
    const gd_op_attr *option;
    gd_conv_options o = gd_conv_default_options();
    for (int i = 0; (option = gd_cuda_host->op_attr_at(call->op, i)); i++)
        gd_conv_read_option(option, call->attrs, p.axes, &o);
    const gd_conv c = gd_conv_with(&o, x, w, y);
    p.groups = c.groups;
    p.ci = c.ci;
    p.co = c.co;
    for (int a = 0; a < AXES; a++) {
        p.stride[a] = c.stride[a];
        p.dilation[a] = c.dilation[a];
        p.before[a] = c.before[a];
    }
    if (call->n_in > 2 && call->in[2].data) p.bias = &call->in[2];
    p.relu = strcmp(gd_cuda_host->op_name(call->op), "conv_relu") == 0;
    return p;
}

/* --- the product ------------------------------------------------------------------------------ */

/* The index over images or channels and the positions of an operand, or its taps. */
static gd_cuda_conv_index index_of(const gd_cuda_conv_operand *o) {
    gd_cuda_conv_index index = {.step = {1, 1, 1}};
    for (int a = 0; a < AXES; a++) index.size[a] = o->dims[2 + a];
    return index;
}

static void copy_axes(long long *to, const int64_t *from) {
    for (int a = 0; a < AXES; a++) to[a] = from[a];
}

static void set_gathered(gd_cuda_conv *p, const gd_cuda_conv_operand *o, int64_t group_channels) {
    p->b = o->data;
    p->b_group = group_channels * o->strides[1];
    copy_axes(p->b_axis, o->strides + 2);
    for (int a = 0; a < AXES; a++) p->b_size[a] = o->dims[2 + a], p->divisor[a] = 1;
}

/* y: the columns are the positions of y, the sums run over channels of x and taps. */
static void set_output_product(const gd_cuda_conv_problem *q, gd_cuda_conv *p) {
    p->column = index_of(&q->y);
    p->column.stride = q->x.strides[0];
    p->depth = index_of(&q->w);
    p->depth.stride = q->x.strides[1];
    for (int a = 0; a < AXES; a++) {
        p->column.step[a] = q->stride[a];
        p->column.first[a] = -q->before[a];
        p->depth.step[a] = q->dilation[a];
    }
    p->a = q->w.data;
    p->a_group = q->co * q->w.strides[0];
    p->a_row = q->w.strides[0];
    p->a_major = q->w.strides[1];
    copy_axes(p->a_axis, q->w.strides + 2);
    set_gathered(p, &q->x, q->ci);
    p->out = q->y.data;
    p->out_group = q->co * q->y.strides[1];
    p->out_row = q->y.strides[1];
    p->out_major = q->y.strides[0];
    copy_axes(p->out_axis, q->y.strides + 2);
}

/* x: the columns are the positions of x, the sums run over channels of y and taps. */
static void set_input_product(const gd_cuda_conv_problem *q, gd_cuda_conv *p) {
    p->column = index_of(&q->x);
    p->column.stride = q->y.strides[0];
    p->depth = index_of(&q->w);
    p->depth.stride = q->y.strides[1];
    set_gathered(p, &q->y, q->co);
    for (int a = 0; a < AXES; a++) {
        p->column.first[a] = q->before[a];
        p->depth.step[a] = -q->dilation[a];
        p->divisor[a] = q->stride[a];
    }
    p->a = q->w.data;
    p->a_group = q->co * q->w.strides[0];
    p->a_row = q->w.strides[1];
    p->a_major = q->w.strides[0];
    copy_axes(p->a_axis, q->w.strides + 2);
    p->out = q->x.data;
    p->out_group = q->ci * q->x.strides[1];
    p->out_row = q->x.strides[1];
    p->out_major = q->x.strides[0];
    copy_axes(p->out_axis, q->x.strides + 2);
}

/* w: the columns are channels of x and taps, the sums run over the positions of y. */
static void set_weight_product(const gd_cuda_conv_problem *q, gd_cuda_conv *p) {
    p->column = index_of(&q->w);
    p->column.stride = q->x.strides[1];
    p->depth = index_of(&q->y);
    p->depth.stride = q->x.strides[0];
    for (int a = 0; a < AXES; a++) {
        p->column.step[a] = q->dilation[a];
        p->depth.step[a] = q->stride[a];
        p->depth.first[a] = -q->before[a];
    }
    p->a = q->y.data;
    p->a_group = q->co * q->y.strides[1];
    p->a_row = q->y.strides[1];
    p->a_major = q->y.strides[0];
    copy_axes(p->a_axis, q->y.strides + 2);
    set_gathered(p, &q->x, q->ci);
    p->out = q->w.data;
    p->out_group = q->co * q->w.strides[0];
    p->out_row = q->w.strides[0];
    p->out_major = q->w.strides[1];
    copy_axes(p->out_axis, q->w.strides + 2);
}

/* Whether the offsets of all elements of an operand fit into 32 bits. */
static bool offsets_fit(const gd_cuda_conv_operand *o) {
    const int64_t limit = INT32_MAX / 2;
    int64_t most = 0;
    for (int d = 0; d < 2 + AXES; d++) {
        const int64_t stride = llabs(o->strides[d]);
        if (o->dims[d] > limit) return false;
        if (o->dims[d] < 2) continue;
        if (stride > limit) return false;
        most += (o->dims[d] - 1) * stride;
        if (most > limit) return false;
    }
    return true;
}

/* Whether all sizes, positions in x and beyond its borders, and offsets fit into 32 bits. */
static bool positions_fit(const gd_cuda_conv_problem *q) {
    const int64_t limit = 1 << 29;
    if (!offsets_fit(&q->x) || !offsets_fit(&q->w) || !offsets_fit(&q->y)) return false;
    for (int a = 0; a < AXES; a++)
        if (q->x.dims[2 + a] > limit || q->y.dims[2 + a] > limit || q->before[a] > limit ||
            q->w.dims[2 + a] > limit || q->stride[a] > limit || q->dilation[a] > limit ||
            q->y.dims[2 + a] * q->stride[a] > limit || q->w.dims[2 + a] * q->dilation[a] > limit)
            return false;
    return true;
}

/* The exponent if n is a power of two, otherwise -1. */
static int exponent_of(long long n) {
    int exponent = 0;
    while (1ll << exponent < n) exponent++;
    return 1ll << exponent == n ? exponent : -1;
}

bool gd_cuda_conv_is_common(const gd_cuda_conv_problem *q) {
    return gd_cuda_is_float(q->dtype) && positions_fit(q);
}

gd_cuda_conv_sizes gd_cuda_conv_sizes_of(const gd_cuda_conv_problem *q) {
    const int64_t taps = gd_cuda_conv_positions(&q->w),
                  x_elements = q->x.dims[0] * gd_cuda_conv_positions(&q->x),
                  y_elements = q->y.dims[0] * gd_cuda_conv_positions(&q->y);
    switch (q->direction) {
    case GD_CONV_TO_INPUT:
        return (gd_cuda_conv_sizes){q->ci, x_elements, q->co * taps,
                                    q->stride[0] > 1 || q->stride[1] > 1 || q->stride[2] > 1};
    case GD_CONV_TO_WEIGHT: return (gd_cuda_conv_sizes){q->co, q->ci * taps, y_elements, false};
    default: return (gd_cuda_conv_sizes){q->co, y_elements, q->ci * taps, false};
    }
}

gd_cuda_conv gd_cuda_conv_product_of(const gd_cuda_conv_problem *q) {
    const gd_cuda_conv_sizes sizes = gd_cuda_conv_sizes_of(q);
    gd_cuda_conv p = {.dtype = (int)q->dtype,
                      .groups = q->groups,
                      .m = sizes.m,
                      .n = sizes.n,
                      .k = sizes.k,
                      .relu = q->relu};
    if (q->bias) {
        p.bias = q->bias->data;
        p.bias_stride = q->bias->strides[0];
    }
    if (q->direction == GD_CONV_TO_OUTPUT) set_output_product(q, &p);
    else if (q->direction == GD_CONV_TO_INPUT) set_input_product(q, &p);
    else set_weight_product(q, &p);
    const int last = p.depth.size[2] > 1 ? 2 : p.depth.size[1] > 1 ? 1 : 0; /* varies fastest */
    const long long step = p.depth.size[last] > 1 ? p.a_axis[last] : p.a_major;
    p.a_by_depth = llabs(step) < llabs(p.a_row);
    p.has_depth_axis = q->axes == AXES;
    for (int a = 0; a < AXES; a++) p.shifts[a] = exponent_of(p.divisor[a]);
    return p;
}
