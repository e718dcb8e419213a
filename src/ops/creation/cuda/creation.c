/* creation.c - constants and ranges. */
#include "ops/creation/cuda/creation.h"

#include <string.h>

#include "core/half.h"
#include "core/integer.h"
#include "gradus/ops.h"
#include "ops/creation/cuda/creation_args.h"

static gd_cuda_kernel fill_views = GD_CUDA_KERNEL("creation/creation", "gd_fill_views");
static gd_cuda_kernel fill_bytes = GD_CUDA_KERNEL("creation/creation", "gd_fill_bytes");
static gd_cuda_kernel fill_arange = GD_CUDA_KERNEL("creation/creation", "gd_fill_arange");

/* The bits of an element with this value. */
static unsigned long long number_bits(gd_dtype dtype, gd_number value) {
    const float narrow = (float)value.value;
    unsigned long long bits = 0;
    switch (dtype) {
    case GD_F64: memcpy(&bits, &value.value, sizeof value.value); break;
    case GD_F32: memcpy(&bits, &narrow, sizeof narrow); break;
    case GD_F16: bits = gd_f32_to_f16(narrow); break;
    case GD_BF16: bits = gd_f32_to_bf16(narrow); break;
    case GD_BOOL: bits = value.value != 0; break;
    default: bits = (unsigned long long)gd_number_i64(value); break; /* the low bytes are stored */
    }
    return bits;
}

gd_status gd_cuda_queue_fill(const gd_kernel_call *call, const gd_view *to,
                             unsigned long long bits) {
    const gd_cuda_call c = gd_cuda_call_of(call);
    if (!gd_cuda_is_contiguous(to)) {
        const gd_cuda_fill p = {c, gd_cuda_view_of(to), bits};
        return gd_cuda_launch_each(call->device, &fill_views, p.to.count, &p);
    }
    const size_t size = gd_cuda_element_size(to->dtype);
    gd_cuda_fill_bytes p = {c, to->data, gd_cuda_count(to) * (long long)size, bits};
    if (size < 8) p.pattern &= (1ull << 8 * size) - 1;
    for (size_t have = size; have < 8; have *= 2) p.pattern |= p.pattern << 8 * have;
    return gd_cuda_launch_each(call->device, &fill_bytes, (p.bytes + 15) / 16, &p);
}

static gd_status run_full(gd_kernel_call *call) {
    const gd_full_options *o = call->attrs;
    const gd_view *y = &call->out[0];
    return gd_cuda_queue_fill(call, y, number_bits(y->dtype, o->value));
}

static gd_status run_arange(gd_kernel_call *call) {
    const gd_arange_options *o = call->attrs;
    const gd_view *y = &call->out[0];
    const gd_cuda_arange p = {.call = gd_cuda_call_of(call),
                              .to = gd_cuda_view_of(y),
                              .is_real = gd_cuda_is_float(y->dtype),
                              .start = o->start.value,
                              .step = o->step.value,
                              .first = gd_number_i64(o->start),
                              .stride = gd_number_i64(o->step)};
    return gd_cuda_launch_each(call->device, &fill_arange, p.to.count, &p);
}

/*kernel full.elements, arange.elements  checked  run run_OP
 * A thread writes each element.
 */

#include "ops/creation/cuda/creation.gen.h"
