/* launch.h - one kernel call: choosing the kernel, staging its operands, running it.
 *
 * The dispatcher and plans launch all their kernels here. Where a kernel requires contiguous
 * operands or wide types, the device's own copy kernel stages them; this works the same on every
 * kind of device.
 */
#ifndef GRADUS_DISPATCH_LAUNCH_H
#define GRADUS_DISPATCH_LAUNCH_H

#include "dispatch/op.h"
#include "dispatch/profile.h"

/* --- staging ---------------------------------------------------------------------------------- */

/* The dtype in which a kernel with these flags gets an operand. */
gd_dtype gd_staged_dtype(gd_dtype dtype, unsigned flags);

/* Whether a kernel with these flags takes an operand as it is. */
static inline bool gd_view_is_simple(const gd_view *v, unsigned flags);

/* Whether only a kernel that checks the error word may write output i of a call. The output is
 * staged for other kernels. */
bool gd_output_needs_check(const gd_kernel_call *call, int i);

/* Whether a staged output must first get the values of the tensor that it stands for. An op reads
 * the inputs that it mutates through its outputs. */
bool gd_output_is_read(const gd_op *op, int i, int n_out);

/* Copies the elements of a view to another of the same dims; on an asynchronous device by its
 * checked copy kernel. */
gd_status gd_copy_view(gd_device *device, const gd_view *to, const gd_view *from);

/* --- prepared kernels (prepared.c) ------------------------------------------------------------ */

typedef struct gd_prepared gd_prepared;

/* Gives a reference to what the kernel's `prepare` returned for this problem (options, shapes,
 * strides, dtypes): from the device's cache, or by calling `prepare`. Sets call->prepared and
 * call->workspace_bytes. GD_E_UNSUPPORTED: the kernel declines, now or in an earlier call. If it
 * gave a reason, that is the thread's latest failure. */
gd_status gd_prepared_get(gd_kernel_call *call, gd_prepared **prepared);
void gd_prepared_release(gd_prepared *prepared); /* NULL is fine */
void *gd_prepared_value(const gd_prepared *prepared);

/* --- calls that may fail (fallible.c) --------------------------------------------------------- */

/* Whether a kernel of the op may find something wrong with the values of its inputs. */
bool gd_op_is_fallible(const gd_op *op, const gd_view *in, int n_in);

/* Gives a call on an asynchronous device its number, and remembers its op, shapes and source line
 * for the error message. */
void gd_call_record(gd_kernel_call *call);
/* The same for a call of a plan, until gd_call_forget. Its error message begins with `name`. */
gd_status gd_call_enroll_step(gd_kernel_call *call, const char *name, const char *site);
void gd_call_forget(gd_device *device, uint64_t number);

/* --- launching -------------------------------------------------------------------------------- */

typedef struct gd_launch {
    gd_kernel_call *call;
    gd_view *views; /* the kernel's operands, inputs first; NULL: nothing is staged */
    size_t *bytes;  /* size of each staging buffer in `views`; 0: the operand itself, not staged */
    gd_prepared *prepared;
} gd_launch;

/* Chooses the kernel and allocates all memory that the call needs. */
gd_status gd_launch_begin(gd_launch *launch, const gd_op *op, gd_kernel_call *call,
                          gd_device *device);
gd_status gd_launch_run(gd_launch *launch);
void gd_launch_end(gd_launch *launch);

/* Runs the kernel of a call whose operands are ready, on any device. */
gd_status gd_kernel_queue(gd_kernel_call *call);

/* A complete launch: begin, run and end. gd_run_kernel_indirect is its slow path. */
static inline gd_status gd_run_kernel(const gd_op *op, gd_kernel_call *call, gd_device *device);
gd_status gd_run_kernel_indirect(const gd_op *op, gd_kernel_call *call, gd_device *device);

/* --- host kernels for other devices (fallback.c) ---------------------------------------------- */

/* Runs a call of another device with the CPU's kernel. Allowed for ops that call a function of the
 * program, and for all ops after gd_set_host_fallback. */
bool gd_fallback_allowed(const gd_op *op);
gd_status gd_run_fallback(const gd_op *op, gd_kernel_call *call, gd_device *device);
/* The same as a kernel, for plans. It waits, so it cannot be captured. */
extern const gd_kernel gd_host_kernel;

static inline bool gd_view_is_simple(const gd_view *v, unsigned flags) {
    return !v->data || (gd_staged_dtype(v->dtype, flags) == v->dtype &&
                        gd_is_row_major(v->rank, v->dims, v->strides));
}

/* The direct path: most CPU calls need no staging and no workspace, so the kernel is called at
 * once. */
static inline gd_status gd_run_kernel(const gd_op *op, gd_kernel_call *call, gd_device *device) {
    if (!device->api->host_reads || gd_this_thread.transaction)
        return gd_run_kernel_indirect(op, call, device);
    call->op = op;
    call->device = device;
    call->kernel = gd_kernel_select(op, call, device->api->kind);
    call->workspace = NULL;
    call->workspace_bytes = 0;
    if (!call->kernel || (call->kernel->flags & GD_KERNEL_STAGED) || call->kernel->prepare ||
        (call->kernel->workspace && call->kernel->workspace(call) > 0))
        return gd_run_kernel_indirect(op, call, device);
    const gd_profile_mark mark = gd_profile_start(device);
    const gd_status status = call->kernel->run(call);
    return mark.started ? gd_profile_end(call, mark, status) : status;
}

#endif
