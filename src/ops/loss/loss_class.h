/* loss_class.h - helpers that the kernels of losses over classes share.
 *
 * x is (C), (N,C) or (N,C,d1,...). Its scores belong to `outer` x `inner` positions: N x (d1 *
 * ...). Position p = n * inner + d has the score of class c at x[(n * classes + c) * inner + d].
 */
#ifndef GRADUS_OPS_LOSS_LOSS_CLASS_H
#define GRADUS_OPS_LOSS_LOSS_CLASS_H

#include "core/copy.h"
#include "dispatch/op.h"

typedef struct gd_class_shape {
    int64_t outer, classes, inner;
} gd_class_shape;

static inline gd_class_shape gd_class_shape_of(int rank, const int64_t *dims) {
    int axis = rank > 1;
    gd_class_shape s = {.outer = axis ? dims[0] : 1, .classes = dims[axis], .inner = 1};
    for (int k = axis + 1; k < rank; k++) s.inner *= dims[k];
    return s;
}

/* Optional input i; a view without data if it is absent. */
static inline gd_view gd_optional_view(const gd_kernel_call *k, int i) {
    return i < k->n_in ? k->in[i] : (gd_view){.data = NULL};
}

/* Fails with a message about target number `position`, which names no class. */
gd_status gd_fail_class(const gd_view *target, int64_t position, int64_t classes, int64_t ignore);

#endif
