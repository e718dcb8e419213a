/* view_element.h - elements of a strided view by their row-major index, for reference kernels. */
#ifndef GRADUS_DISPATCH_VIEW_ELEMENT_H
#define GRADUS_DISPATCH_VIEW_ELEMENT_H

#include "core/copy.h"
#include "dispatch/op.h"

/* The address of element i in row-major order. */
static inline char *gd_view_element(const gd_view *v, int64_t i) {
    int64_t offset = 0;
    for (int k = v->rank; k-- > 0;) {
        offset += i % v->dims[k] * v->strides[k];
        i /= v->dims[k];
    }
    return (char *)v->data + offset * (int64_t)gd_dtype_size(v->dtype);
}

static inline int64_t gd_view_count(const gd_view *v) { return gd_numel(v->rank, v->dims); }

#endif
