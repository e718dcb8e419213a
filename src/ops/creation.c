/* creation.c - tensors from nothing: constants and sequences. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "ops/infer.h"

/*op full(dims:int[], value:float) -> y  nograd
 * A tensor filled with one value, on the default device.
 *   dtype dtype = f32
 *   onnx ConstantOfShape
 */
static gd_status full_infer(gd_infer *i) {
    const gd_full_options *o = i->attrs;
    size_t bytes;
    GD_TRY(gd_shape_bytes(o->dims, o->dtype, &bytes));
    i->out[0].dtype = o->dtype;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof i->out[0].dims);
    return GD_OK;
}
static gd_status full_raw(gd_kernel_call *k) {
    const gd_full_options *o = k->attrs;
    gd_view *y = &k->out[0];
    char element[8];
    gd_store_f64(y->dtype, element, o->value);
    gd_view one = *y; /* the same element everywhere: a view with no steps */
    one.data = element;
    memset(one.strides, 0, sizeof one.strides);
    gd_copy_elements(y, &one);
    return GD_OK;
}

#include "creation.gen.h"
