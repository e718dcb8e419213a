/* transforms_value.c - transforms that change values and no shapes. */
#include "core/tensor.h"
#include "data/transform.h"
#include "gradus/ops.h"
#include "gradus/transforms.h"

/*transform scale
 * Floats: x * factor + offset. The defaults bring bytes to [0, 1].
 *   factor float = 0.00392156862745098   1 / 255
 *   offset float = 0
 *   field int = 0                        in [0, inf): the tensor of the sample
 */
static gd_tensor *scale_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_scale_options *o = options;
    (void)random;
    gd_tensor *y = gd_is_float(x->dtype) ? x : gd_cast(x, GD_F32);
    y = gd_mul(y, gd_scalar(o->factor));
    return o->offset == 0 ? y : gd_add(y, gd_scalar(o->offset));
}

#include "transforms_value.gen.h"
