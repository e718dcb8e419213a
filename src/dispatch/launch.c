/* launch.c - launches kernels: staging copies, workspace, and the call itself. See launch.h. */
#include "dispatch/launch.h"

#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "dispatch/call.h"
#include "dispatch/profile.h"

/* --- staging ---------------------------------------------------------------------------------- */

gd_dtype gd_staged_dtype(gd_dtype dtype, unsigned flags) {
    if (flags & GD_KERNEL_DOUBLE) return gd_dtype_is_float(dtype) ? GD_F64 : GD_I64;
    if ((flags & GD_KERNEL_WIDE) && (dtype == GD_F16 || dtype == GD_BF16)) return GD_F32;
    return dtype;
}

/* The inputs that an op mutates come last among its outputs. */
static bool is_mutated(const gd_op *op, int output, int n_out) {
    return output >= n_out - op->n_mutated;
}

bool gd_output_needs_check(const gd_kernel_call *call, int i) {
    return !call->device->api->host_reads && !(call->kernel->flags & GD_KERNEL_CHECKED) &&
           (call->overwrites || call->each || is_mutated(call->op, i, call->n_out));
}

bool gd_output_is_read(const gd_op *op, int i, int n_out) { return is_mutated(op, i, n_out); }

gd_status gd_copy_view(gd_device *device, const gd_view *to, const gd_view *from) {
    if (device->api->host_reads) {
        gd_copy_elements(to, from);
        return GD_OK;
    }
    gd_view out = *to;
    gd_kernel_call call;
    gd_kernel_call_set(&call, NULL, from, 1, &out, 1);
    gd_launch launch;
    GD_TRY(gd_launch_begin(&launch, gd_op_find("clone"), &call, device));
    const unsigned flags = call.kernel->flags;
    gd_status status =
        !(flags & GD_KERNEL_STAGED) && (flags & GD_KERNEL_CHECKED)
            ? gd_launch_run(&launch)
            : gd_fail(GD_E_UNSUPPORTED, "%s has no checked copy kernel for %s to %s", device->name,
                      gd_dtype_name(from->dtype), gd_dtype_name(to->dtype));
    gd_launch_end(&launch);
    return status;
}

/* Whether the kernel can take operand i (inputs first) as it is. */
static inline bool operand_is_ready(const gd_kernel_call *call, int i) {
    const unsigned flags = call->kernel->flags & GD_KERNEL_STAGED;
    const gd_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (flags && !gd_view_is_simple(v, flags)) return false;
    return i < call->n_in || !v->data || !gd_output_needs_check(call, i - call->n_in);
}

static inline bool operands_are_ready(const gd_kernel_call *call) {
    const unsigned flags = call->kernel->flags;
    if (!(flags & GD_KERNEL_STAGED) &&
        ((flags & GD_KERNEL_CHECKED) || call->device->api->host_reads))
        return true;
    for (int i = 0; i < call->n_in + call->n_out; i++)
        if (!operand_is_ready(call, i)) return false;
    return true;
}

/* Turns the view into a row-major one of the staged dtype, in a new buffer. */
static gd_status stage_operand(gd_device *device, gd_view *v, unsigned flags, size_t *bytes) {
    v->dtype = gd_staged_dtype(v->dtype, flags);
    gd_row_major(v->rank, v->dims, v->strides);
    *bytes = (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype);
    if (*bytes == 0) *bytes = 1; /* 0 means "not staged", so an empty tensor needs a buffer, too */
    gd_status status = gd_device_alloc(device, *bytes, &v->data);
    if (status != GD_OK) *bytes = 0;
    return status;
}

static gd_status stage_operands(gd_launch *l) {
    const gd_kernel_call *call = l->call;
    const int n = call->n_in + call->n_out;
    l->views = gd_malloc((size_t)n * (sizeof *l->views + sizeof *l->bytes));
    if (!l->views) return gd_fail(GD_E_MEMORY, "no memory to stage %d tensors", n);
    l->bytes = (size_t *)(l->views + n);
    if (call->n_in) memcpy(l->views, call->in, (size_t)call->n_in * sizeof *l->views);
    if (call->n_out)
        memcpy(l->views + call->n_in, call->out, (size_t)call->n_out * sizeof *l->views);
    memset(l->bytes, 0, (size_t)n * sizeof *l->bytes);
    gd_status status = GD_OK;
    for (int i = 0; i < n && status == GD_OK; i++)
        if (!operand_is_ready(call, i))
            status = stage_operand(call->device, &l->views[i],
                                   call->kernel->flags & GD_KERNEL_STAGED, &l->bytes[i]);
    return status;
}

static gd_status copy_staged_in(const gd_launch *l) {
    const gd_kernel_call *call = l->call;
    for (int i = 0; i < call->n_in; i++)
        if (l->bytes[i]) GD_TRY(gd_copy_view(call->device, &l->views[i], &call->in[i]));
    for (int i = 0; i < call->n_out; i++)
        if (l->bytes[call->n_in + i] && gd_output_is_read(call->op, i, call->n_out))
            GD_TRY(gd_copy_view(call->device, &l->views[call->n_in + i], &call->out[i]));
    return GD_OK;
}

static gd_status copy_staged_out(const gd_launch *l) {
    const gd_kernel_call *call = l->call;
    for (int i = 0; i < call->n_out; i++)
        if (l->bytes[call->n_in + i])
            GD_TRY(gd_copy_view(call->device, &call->out[i], &l->views[call->n_in + i]));
    return GD_OK;
}

/* --- the kernel ------------------------------------------------------------------------------- */

static inline void choose_kernel(const gd_op *op, gd_kernel_call *call, gd_device *device) {
    call->op = op;
    call->device = device;
    call->workspace = NULL;
    call->workspace_bytes = 0;
    call->kernel = gd_kernel_select(op, call, device->api->kind);
}

static gd_status fail_without_kernel(const gd_kernel_call *call, const gd_device *device) {
    const gd_view *v = call->n_in > 0 ? &call->in[0] : call->n_out > 0 ? &call->out[0] : NULL;
    return gd_fail(GD_E_UNSUPPORTED, "no kernel on %s for %s", device->name,
                   v ? gd_dtype_name(v->dtype) : "this call");
}

static inline gd_status get_workspace(gd_kernel_call *call) {
    if (call->kernel->workspace) call->workspace_bytes = call->kernel->workspace(call);
    if (!call->workspace_bytes) return GD_OK;
    gd_status status = gd_device_alloc(call->device, call->workspace_bytes, &call->workspace);
    if (status != GD_OK) call->workspace_bytes = 0;
    return status;
}

static inline void free_workspace(gd_kernel_call *call) {
    if (call->workspace_bytes) gd_device_free(call->device, call->workspace, call->workspace_bytes);
    call->workspace_bytes = 0;
}

gd_status gd_kernel_queue(gd_kernel_call *call) {
    gd_device *device = call->device;
    /* Not under the device's lock: kernels of branches and loops run plans, and the host's kernels run
     * functions of the program. */
    if (device->api->host_reads || call->kernel == &gd_host_kernel ||
        (call->op->flags & GD_OP_OPAQUE))
        return call->kernel->run(call);
    const gd_thread *thread = &gd_this_thread;
    const gd_op *op = thread->body ? thread->body->op : call->op;
    GD_TRY(gd_device_begin_call(device, op->name, call->site ? call->site : thread->site));
    return gd_device_end_call(device, call->kernel->run(call));
}

/* --- launches --------------------------------------------------------------------------------- */

/* The call with its staged operands, as the kernel gets it. */
static gd_kernel_call staged_call(const gd_launch *l) {
    gd_kernel_call staged = *l->call;
    staged.in = l->views;
    staged.out = l->views + staged.n_in;
    return staged;
}

/* Prepares the kernel and allocates its workspace. `call` has the staged operands. */
static inline gd_status prepare_call(gd_launch *l, gd_kernel_call *call) {
    if (call->kernel->prepare) GD_TRY(gd_prepared_get(call, &l->prepared));
    return get_workspace(call);
}

static gd_status prepare_staged_call(gd_launch *l) {
    GD_TRY(stage_operands(l));
    gd_kernel_call staged = staged_call(l);
    gd_status status = prepare_call(l, &staged);
    l->call->prepared = staged.prepared;
    l->call->workspace = staged.workspace;
    l->call->workspace_bytes = staged.workspace_bytes;
    return status;
}

static inline void record_if_fallible(gd_kernel_call *call) {
    if (!call->device->api->host_reads && gd_op_is_fallible(call->op, call->in, call->n_in))
        gd_call_record(call);
}

/* Begins the launch of a call with the kernel that is chosen. */
static inline gd_status begin_kernel(gd_launch *l, gd_kernel_call *call) {
    *l = (gd_launch){.call = call};
    gd_status status = operands_are_ready(call) ? prepare_call(l, call) : prepare_staged_call(l);
    if (status != GD_OK) gd_launch_end(l);
    else record_if_fallible(call);
    return status;
}

/* Begins the launch of a call whose kernel declines, with the next one that does not. Other kernels
 * need other copies, so that the operands are staged anew. Sets call->kernel to NULL if there is
 * none. */
static gd_status begin_next_kernel(gd_launch *l, gd_kernel_call *call) {
    gd_status status = GD_E_UNSUPPORTED;
    while (status == GD_E_UNSUPPORTED && call->kernel->prepare) {
        call->kernel = gd_kernel_select_next(call->op, call, call->device->api->kind);
        if (!call->kernel) break;
        status = begin_kernel(l, call);
    }
    if (call->kernel || gd_this_thread.latest == GD_E_UNSUPPORTED) return status;
    return fail_without_kernel(call, call->device);
}

static inline gd_status begin_launch(gd_launch *l, gd_kernel_call *call) {
    const gd_status status = begin_kernel(l, call);
    return status == GD_E_UNSUPPORTED && call->kernel->prepare ? begin_next_kernel(l, call)
                                                               : status;
}

gd_status gd_launch_begin(gd_launch *l, const gd_op *op, gd_kernel_call *call, gd_device *device) {
    choose_kernel(op, call, device);
    return call->kernel ? begin_launch(l, call) : fail_without_kernel(call, device);
}

/* Runs a call that has no staged operands. */
static inline gd_status run_call(gd_kernel_call *call) {
    const gd_profile_mark mark = gd_profile_start(call->device);
    const gd_status status = gd_kernel_queue(call);
    return mark.started ? gd_profile_end(call, mark, status) : status;
}

gd_status gd_launch_run(gd_launch *l) {
    gd_kernel_call *call = l->call;
    if (!l->views) return run_call(call);
    GD_TRY(copy_staged_in(l));
    gd_kernel_call staged = staged_call(l);
    const gd_profile_mark mark = gd_profile_start(call->device);
    gd_status status = gd_kernel_queue(&staged);
    if (mark.started) status = gd_profile_end(&staged, mark, status);
    if (status != GD_OK) return status;
    if (!(call->op->flags & GD_OP_DYNAMIC)) return copy_staged_out(l);
    /* a dynamic op allocates its outputs itself */
    memcpy(call->out, staged.out, (size_t)call->n_out * sizeof *call->out);
    return GD_OK;
}

void gd_launch_end(gd_launch *l) {
    gd_kernel_call *call = l->call;
    for (int i = 0; l->views && i < call->n_in + call->n_out; i++)
        if (l->bytes[i]) gd_device_free(call->device, l->views[i].data, l->bytes[i]);
    gd_free(l->views);
    l->views = NULL;
    free_workspace(call);
    gd_prepared_release(l->prepared);
    l->prepared = NULL;
}

static bool may_fall_back(const gd_op *op, const gd_device *device) {
    return !device->api->host_reads && gd_fallback_allowed(op);
}

gd_status gd_run_kernel_indirect(const gd_op *op, gd_kernel_call *call, gd_device *device) {
    if (gd_this_thread.transaction) return gd_transaction_add(op, call, device);
    choose_kernel(op, call, device);
    if (!call->kernel)
        return may_fall_back(op, device) ? gd_run_fallback(op, call, device)
                                         : fail_without_kernel(call, device);
    /* the direct path: the call needs no memory */
    if (!call->kernel->prepare && !call->kernel->workspace && operands_are_ready(call)) {
        record_if_fallible(call);
        return run_call(call);
    }
    gd_launch l;
    gd_status status = begin_launch(&l, call);
    if (status != GD_OK)
        return !call->kernel && may_fall_back(op, device) ? gd_run_fallback(op, call, device)
                                                          : status;
    status = gd_launch_run(&l);
    gd_launch_end(&l);
    return status;
}

__attribute__((constructor)) static void set_copy_hook(void) { gd_copy_view_hook = gd_copy_view; }
