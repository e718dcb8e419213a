/* pad.h - maps indices of a padded tensor to indices of x; all pad kernels share it. */
#ifndef GRADUS_OPS_PAD_PAD_H
#define GRADUS_OPS_PAD_PAD_H

#include "gradus/ops.h"
#include "dispatch/op.h"

/* One axis of pad. */
typedef struct gd_pad_axis {
    int64_t n, out;             /* sizes of x and of the result */
    int64_t left;               /* padding before the first element; negative: elements cut off */
    int64_t front, first, kept; /* x[first .. first + kept) is copied to y[front .. front + kept) */
} gd_pad_axis;

/* The axes of a tensor of these dims. `padding` is in PyTorch's order: (left, right) of the last
 * axis, then of the axis before it, and so on. */
static inline void gd_pad_axes(int rank, const int64_t *dims, const gd_shape *padding,
                               gd_pad_axis *axes) {
    for (int d = 0; d < rank; d++) {
        int k = 2 * (rank - 1 - d);
        int64_t left = k < padding->rank ? padding->at[k] : 0,
                right = k < padding->rank ? padding->at[k + 1] : 0;
        gd_pad_axis *a = &axes[d];
        a->n = dims[d];
        a->left = left;
        a->out = dims[d] + left + right;
        a->front = left > 0 ? left : 0;
        a->first = left < 0 ? -left : 0;
        a->kept = dims[d] - a->first - (right < 0 ? -right : 0);
        if (a->kept > 0) continue;
        /* The padding cuts all of x off. Modes other than constant still show its edge
         * or mirror. */
        a->kept = 0;
        if (a->first > dims[d]) a->first = dims[d];
        if (a->front > a->out) a->front = a->out > 0 ? a->out : 0;
    }
}

/* The index in x of element i of the result; -1: element i is the constant. */
static inline int64_t gd_pad_source(const gd_pad_axis *a, gd_word mode, int64_t i) {
    int64_t j = i - a->left;
    if (mode == GD_REFLECT) return j < 0 ? -j : j >= a->n ? 2 * (a->n - 1) - j : j;
    if (mode == GD_REPLICATE) return j < 0 ? 0 : j >= a->n ? a->n - 1 : j;
    if (mode == GD_CIRCULAR) { /* repeats the elements that are kept */
        j = (i - a->front) % a->kept;
        return a->first + (j < 0 ? j + a->kept : j);
    }
    return j >= 0 && j < a->n ? j : -1;
}

#endif
