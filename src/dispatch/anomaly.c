/* anomaly.c - anomaly mode: checks the results of each kernel for NaN. See gradus/profiler.h. */
#include <inttypes.h>
#include <math.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/tensor.h"
#include "gradus/profiler.h"
#include "dispatch/op.h"
#include "dispatch/profile.h"

/* The index of the first NaN in row-major order, or -1. The host can read the view. */
static int64_t first_nan(const gd_view *v) {
    if (!v->data || !gd_dtype_is_float(v->dtype)) return -1;
    int64_t count = gd_numel(v->rank, v->dims);
    size_t size = gd_dtype_size(v->dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0, rest = i;
        for (int k = v->rank; k-- > 0; rest /= v->dims[k]) at += rest % v->dims[k] * v->strides[k];
        if (isnan(gd_load_f64(v->dtype, (const char *)v->data + at * (int64_t)size))) return i;
    }
    return -1;
}

/* The same for any device. Other devices' views are downloaded if they are row-major,
 * else skipped. */
static int64_t first_nan_on(gd_device *device, const gd_view *v) {
    if (device->api->host_reads) return first_nan(v);
    if (!v->data || !gd_dtype_is_float(v->dtype) || !gd_is_row_major(v->rank, v->dims, v->strides))
        return -1;
    const size_t bytes = (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype);
    if (bytes == 0) return -1;
    gd_view host = *v;
    host.data = gd_malloc(bytes);
    int64_t at = -1;
    if (host.data && gd_device_download(device, host.data, v->data, bytes) == GD_OK)
        at = first_nan(&host);
    gd_free(host.data);
    return at;
}

gd_status gd_check_for_nan(const gd_kernel_call *call) {
    for (int i = 0; i < call->n_out; i++) {
        int64_t at = first_nan_on(call->device, &call->out[i]);
        if (at < 0) continue;
        const char *origin = "its inputs have none";
        for (int k = 0; k < call->n_in; k++)
            if (first_nan_on(call->device, &call->in[k]) >= 0) origin = "an input has one already";
        return gd_fail(GD_E_STATE,
                       "anomaly: the result of %s has a NaN, first at element %" PRId64 "; %s",
                       call->op->name, at, origin);
    }
    return GD_OK;
}

void gd_set_anomaly_mode(bool on) {
    if (on) atomic_fetch_or(&gd_watch, GD_WATCH_NAN);
    else atomic_fetch_and(&gd_watch, ~(unsigned)GD_WATCH_NAN);
}

bool gd_anomaly_mode(void) { return atomic_load(&gd_watch) & GD_WATCH_NAN; }
