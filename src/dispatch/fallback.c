/* fallback.c - runs calls of other devices on the host if the device has no kernel.
 *
 * The fallback is off by default, because each such call waits for the device and copies its
 * operands in both directions. gd_set_host_fallback turns it on. Ops that call functions of the
 * program always run this way. Calls are counted and logged.
 */
#include <stdatomic.h>
#include <string.h>

#include "core/alloc.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"

static _Atomic bool fallback_enabled;
static _Atomic int64_t fallback_count;

void gd_set_host_fallback(bool on) { fallback_enabled = on; }
int64_t gd_host_fallbacks(void) { return fallback_count; }

bool gd_fallback_allowed(const gd_op *op) {
    return (op->flags & GD_OP_CALLS) ||
           (fallback_enabled && (op->reference || gd_kernel_exists(op, "cpu")));
}

/* Creates a row-major copy of a view in host memory. */
static gd_status copy_to_host(gd_device *device, const gd_view *from, gd_view *to) {
    *to = *from;
    if (!from->data) return GD_OK;
    gd_row_major(to->rank, to->dims, to->strides);
    const size_t bytes = (size_t)gd_numel(to->rank, to->dims) * gd_dtype_size(to->dtype);
    gd_view packed = *to; /* the same copy in device memory */
    GD_TRY(gd_device_alloc(gd_cpu(), bytes ? bytes : 1, &to->data));
    if (bytes == 0) return GD_OK;
    gd_status status = gd_device_alloc(device, bytes, &packed.data);
    if (status != GD_OK) return status;
    status = gd_copy_view(device, &packed, from);
    if (status == GD_OK) status = gd_device_download(device, to->data, packed.data, bytes);
    gd_device_free(device, packed.data, bytes);
    return status;
}

static gd_status copy_to_device(gd_device *device, const gd_view *from, const gd_view *to) {
    const size_t bytes = (size_t)gd_numel(to->rank, to->dims) * gd_dtype_size(to->dtype);
    gd_view packed = *from; /* a row-major copy in device memory */
    if (bytes == 0 || !to->data) return GD_OK;
    GD_TRY(gd_device_alloc_for(device, bytes, GD_QUEUE_UPLOAD, &packed.data));
    gd_status status = gd_device_upload_new(device, packed.data, from->data, bytes);
    if (status == GD_OK) status = gd_copy_view(device, to, &packed);
    gd_device_free(device, packed.data, bytes);
    return status;
}

static void free_host_view(const gd_view *v, const gd_view *original) {
    const size_t bytes = (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype);
    if (v->data && v->data != original->data) gd_device_free(gd_cpu(), v->data, bytes ? bytes : 1);
}

/* Copies the outputs that a dynamic op has created on the host to new ones on the device. */
static gd_status copy_dynamic_outputs(gd_kernel_call *call, gd_kernel_call *host) {
    for (int i = 0; i < call->n_out; i++) {
        const gd_view *v = &host->out[i];
        GD_TRY(gd_kernel_output(call, i, v->rank, v->dims));
        GD_TRY(copy_to_device(call->device, v, &call->out[i]));
    }
    return GD_OK;
}

static gd_status run_on_host(const gd_op *op, gd_kernel_call *call, gd_kernel_call *host,
                             gd_view *views) {
    const int n = call->n_in + call->n_out;
    const bool dynamic = op->flags & GD_OP_DYNAMIC;
    for (int i = 0; i < n; i++)
        GD_TRY(copy_to_host(call->device,
                            i < call->n_in ? &call->in[i] : &call->out[i - call->n_in], &views[i]));
    void *made[GD_MAX_OUTPUTS] = {NULL};
    host->in = views;
    host->out = views + call->n_in;
    if (dynamic) host->made = made;
    gd_device *before = gd_this_thread.device; /* a function of the program gets host tensors */
    gd_this_thread.device = gd_cpu();
    gd_status status = gd_run_kernel(op, host, gd_cpu());
    gd_this_thread.device = before;
    if (dynamic) {
        if (status == GD_OK) status = copy_dynamic_outputs(call, host);
        for (int i = 0; i < GD_MAX_OUTPUTS; i++) gd_storage_release(made[i]);
        for (int i = 0; i < call->n_out; i++) host->out[i].data = NULL;
        return status;
    }
    for (int i = 0; i < call->n_out && status == GD_OK; i++)
        status = copy_to_device(call->device, &host->out[i], &call->out[i]);
    return status;
}

gd_status gd_run_fallback(const gd_op *op, gd_kernel_call *call, gd_device *device) {
    const int n = call->n_in + call->n_out;
    call->op = op;
    call->device = device;
    gd_view *views = gd_calloc((size_t)n + 1, sizeof *views);
    if (!views) return gd_fail(GD_E_MEMORY, "no memory for %d tensors", n);
    gd_kernel_call host = *call;
    gd_status status = run_on_host(op, call, &host, views);
    for (int i = 0; i < n; i++)
        free_host_view(&views[i], i < call->n_in ? &call->in[i] : &call->out[i - call->n_in]);
    gd_free(views);
    atomic_fetch_add(&fallback_count, 1);
    gd_notice(GD_LOG_DEBUG, "%s has no kernel on %s and ran on the host", op->name, device->name);
    return status;
}

static gd_status run_host_kernel(gd_kernel_call *call) {
    return gd_run_fallback(call->op, call, call->device);
}

const gd_kernel gd_host_kernel = {
    .op = "any", .variant = "host", .device = "any", .run = run_host_kernel};
