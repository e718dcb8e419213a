/* dispatch.c - the dispatcher: the path of a call, from the op's typed function to the tape.
 *
 * The functions are in the order in which a call runs them. The steps themselves have files of their
 * own (dispatch.h).
 */
#include "dispatch/dispatch.h"

#include "core/alloc.h"
#include "core/freed.h"
#include "core/random.h"
#include "dispatch/attrs.h"
#include "dispatch/autocast.h"
#include "dispatch/call_infer.h"
#include "dispatch/macs.h"

/* A program without autograd needs no tape for moves. */
gd_recorder gd_record_hooks = {.move = gd_tensor_copy_on};
char gd_no_graph;

static gd_status dispatch(gd_invocation *call);
static gd_status dispatch_checked(gd_invocation *call);
static gd_status dispatch_replaced(gd_invocation *call, gd_dtype dtype, gd_device *device);
static gd_status dispatch_on(gd_invocation *call, gd_device *device);
static gd_status infer_and_run(gd_invocation *call, gd_device *device);
static gd_status run_or_trace(gd_invocation *call, const gd_meta *metas, gd_device *device);

/* --- the beginning of a call ------------------------------------------------------------------ */

/* The source location of a call. Calls in bodies, gradient rules and optimizers have the
 * location of the program's call that runs them. */
static const char *call_site(const char *site) { return site ? site : gd_this_thread.site; }

/* Records op and location in the results, for messages about a use after free. A tensor that is
 * written in place keeps those of its creation. */
static gd_status record_origin(const gd_invocation *call, gd_status status) {
    if (status != GD_OK || !gd_keeps_freed(&gd_this_thread) || call->op->base) return status;
    for (int i = 0; i < call->n_out; i++) {
        if (!call->out[i]) continue;
        call->out[i]->made_op = call->op->name;
        call->out[i]->made_site = call->site;
    }
    return status;
}

gd_tensor *gd_dispatch_one(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                           const void *attrs) {
    gd_tensor *out[GD_MAX_OUTPUTS];
    gd_invocation call = {.op = op,
                          .site = call_site(site),
                          .in = in,
                          .n_in = n_in,
                          .attrs = attrs,
                          .out = out,
                          .n_out = op->n_outputs};
    record_origin(&call, dispatch(&call));
    return out[0];
}

gd_status gd_dispatch(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                      const void *attrs, gd_tensor **out, int n_out) {
    gd_invocation call = {.op = op,
                          .site = call_site(site),
                          .in = in,
                          .n_in = n_in,
                          .attrs = attrs,
                          .out = out,
                          .n_out = n_out};
    return record_origin(&call, dispatch(&call));
}

/* The number of outputs of an op that returns a list, for a call that failed: its first required
 * option is the number (chunk) or has an entry for each (split). 0: unknown. */
static int64_t requested_outputs(const gd_op *op, const void *attrs) {
    const gd_op_attr *first = op->n_attrs > 0 ? &op->attrs[0] : NULL;
    if (!attrs || !first || !first->required) return 0;
    const void *field = (const char *)attrs + first->offset;
    if (first->type == GD_ATTR_SHAPE) return ((const gd_shape *)field)->rank;
    return first->type == GD_ATTR_INT ? *(const int64_t *)field : 0;
}

gd_tensors gd_dispatch_list(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                            const void *attrs) {
    gd_invocation call = {
        .op = op, .site = call_site(site), .in = in, .n_in = n_in, .attrs = attrs, .is_list = true};
    return record_origin(&call, dispatch(&call)) == GD_OK
               ? (gd_tensors){call.out, call.n_out}
               : gd_list_of_errors(requested_outputs(op, attrs));
}

gd_status gd_dispatch_again(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                            const void *attrs, gd_rng rng, gd_tensor **out, int n_out) {
    gd_invocation call = {.op = op,
                          .site = site,
                          .in = in,
                          .n_in = n_in,
                          .attrs = attrs,
                          .out = out,
                          .n_out = n_out,
                          .rng = rng,
                          .rng_given = true,
                          .want_hidden = true};
    call.is_list = op->n_outputs > 0 && op->outputs[op->n_outputs - 1].variadic;
    if (!call.is_list) return dispatch(&call);
    call.out = NULL;
    call.n_out = 0;
    gd_status status = dispatch(&call);
    for (int i = 0; i < n_out; i++) out[i] = i < call.n_out ? call.out[i] : &gd_error_tensor;
    return status;
}

/* --- checks, casts and uploads ---------------------------------------------------------------- */

/* Whether all inputs of the op that are not optional are present, all that are present are values on
 * one device, and nothing is traced. One loop finds this out, and the call skips the general checks,
 * which would slow small ops down. */
static bool is_plain(const gd_invocation *call) {
    const gd_thread *thread = &gd_this_thread;
    if (thread->tracer || thread->attempts > 0 || call->n_in != call->op->n_inputs ||
        call->n_in < 1)
        return false;
    const gd_tensor *first = call->in[0];
    if (call->op->inputs[call->n_in - 1].variadic || !first || first->kind != GD_VALUE)
        return false;
    for (int i = 1; i < call->n_in; i++) {
        const gd_tensor *t = call->in[i];
        if (!t && call->op->inputs[i].optional) continue;
        if (!t || t->kind != GD_VALUE || t->device != first->device) return false;
    }
    return true;
}

static gd_status dispatch(gd_invocation *call) {
    const gd_thread *thread = &gd_this_thread;
    if (call->n_in < 0 || (call->n_in > 0 && !call->in)) call->n_in = GD_BAD_LIST;
    if (__builtin_expect(thread->autocast != GD_DTYPE_NONE, 0)) {
        const gd_dtype target = gd_autocast_target(call, (gd_dtype)thread->autocast);
        if (target != GD_DTYPE_NONE) return dispatch_replaced(call, target, NULL);
    }
    call->plain = is_plain(call);
    if (!call->plain) return dispatch_checked(call);
    gd_status status = gd_attrs_check(call->op, call->attrs);
    return status == GD_OK ? dispatch_on(call, call->in[0]->device) : gd_call_fail(call, status);
}

/* A call that is not plain. A random op whose only input is its key has no input without one, which
 * saves the loops over inputs. */
static gd_status dispatch_checked(gd_invocation *call) {
    if (call->n_in == 1 && !call->in[0] && (call->op->flags & GD_OP_RANDOM) &&
        call->op->n_required == 0)
        call->n_in = 0;
    if (gd_call_is_skipped(call)) {
        for (int i = 0; i < call->n_out; i++) call->out[i] = &gd_error_tensor;
        return gd_this_thread.recorded;
    }
    gd_device *device;
    bool scalars; /* on the CPU, for a call on another device */
    gd_status status = gd_call_check(call, &device, &scalars);
    if (status != GD_OK) return gd_call_fail(call, status);
    /* a graph reads scalars of the host in each run, so they are not uploaded now */
    return scalars && !gd_call_is_symbolic(call) ? dispatch_replaced(call, GD_DTYPE_NONE, device)
                                                 : dispatch_on(call, device);
}

/* Moves the results of a call to the enclosing scope. If there is none, they belong to the caller;
 * hidden ones would belong to nobody and stay in the scope. */
static void keep_results(gd_invocation *call) {
    if (call->is_list) {
        gd_keep_list((gd_tensors){call->out, call->n_out});
        return;
    }
    const bool enclosed = gd_this_thread.depth > 1;
    for (int i = 0; i < call->n_out; i++) {
        if (!enclosed && gd_output_is_hidden(call->op, i)) call->out[i] = NULL;
        if (call->out[i]) gd_scope_keep(&call->out[i]->object);
    }
}

enum { FEW_INPUTS = 64 }; /* on the stack; more are allocated */

/* Makes the call with other inputs: cast to a dtype, or, without one, with scalars uploaded to the
 * device. They are freed afterwards, unless the tape or a graph holds them. */
static gd_status dispatch_replaced(gd_invocation *call, gd_dtype dtype, gd_device *device) {
    gd_tensor *few[FEW_INPUTS], *const *given = call->in;
    gd_tensor **in = call->n_in <= FEW_INPUTS ? few : gd_malloc((size_t)call->n_in * sizeof *in);
    if (!in)
        return gd_call_fail(call, gd_fail(GD_E_MEMORY, "no memory for %d tensors", call->n_in));
    GD_NO_AUTOCAST;
    gd_scope *scope = gd_scope_open();
    gd_status status = dtype != GD_DTYPE_NONE ? gd_autocast_inputs(call, dtype, in)
                                              : gd_call_upload_scalars(call, device, in);
    if (status == GD_OK) {
        call->in = in;
        status = dispatch(call);
    } else {
        gd_call_fail(call, status);
    }
    if (status == GD_OK) keep_results(call);
    gd_scope_close(&scope);
    call->in = given;
    if (in != few) gd_free(in);
    return status;
}

/* --- the checked call: infer, then run or trace ----------------------------------------------- */

/* A thread without a scope gets one for the time of the call, which frees temporaries. */
static gd_status dispatch_on(gd_invocation *call, gd_device *device) {
    gd_scope *scope = gd_this_thread.depth > 0 ? NULL : gd_scope_open();
    gd_status status = infer_and_run(call, device);
    if (scope) {
        if (status == GD_OK) keep_results(call);
        gd_scope_close(&scope);
    }
    return status == GD_OK ? GD_OK : gd_call_fail(call, status);
}

/* Whether the results are inferred before the call runs. An op without an infer rule runs as its
 * body, whose ops infer them; only a node or a list needs them before. */
static bool is_inferred(const gd_invocation *call) {
    return call->op->infer || call->is_list || gd_call_stays_node(call);
}

/* Makes the list of results, as long as the infer rule says. */
static gd_status make_list(gd_invocation *call, int count) {
    call->out = gd_list_new(count);
    if (!call->out) return GD_E_MEMORY;
    call->n_out = count;
    return GD_OK;
}

static gd_status infer_and_run(gd_invocation *call, gd_device *device) {
    gd_meta few[GD_MAX_OUTPUTS];
    gd_infer infer = {call->op, call->attrs, call->in, call->n_in, few, call->n_out};
    if (call->op->base || call->op->n_mutated > 0) GD_TRY(gd_call_check_written(call));
    gd_status status = is_inferred(call) ? gd_call_infer(call, &infer) : GD_OK;
    if (status == GD_OK && call->is_list) status = make_list(call, infer.n_out);
    if (status == GD_OK)
        status = call->op->expand && gd_call_runs_as_body(call, &infer, device)
                     ? gd_call_run_body(call, device)
                     : run_or_trace(call, infer.out, device);
    if (infer.out != few) gd_free(infer.out);
    return status;
}

bool gd_grad_wanted(const gd_op *op, gd_tensor *const *in, int n_in) {
    if (gd_this_thread.no_grad > 0 || (op->flags & GD_OP_NO_GRAD)) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->requires_grad) return true;
    return false;
}

/* The random numbers of a call: the next ones, or, in a body that is replayed, those that were
 * recorded with the call. */
static gd_rng next_rng(void) {
    gd_rng *given = gd_this_thread.replay_rng;
    if (!given) return gd_rng_take();
    gd_rng rng = *given;
    given->call++;
    return rng;
}

static gd_status append_node(gd_invocation *call, const gd_meta *metas) {
    if (!gd_record_hooks.trace)
        return gd_fail(GD_E_UNSUPPORTED, "there are no graphs in this build");
    if (gd_this_thread.macs) GD_TRY(gd_count_macs(call, metas));
    return gd_record_hooks.trace(call, metas);
}

/* Appends the call to a graph, or runs its kernel and records it on the tape. */
static gd_status run_or_trace(gd_invocation *call, const gd_meta *metas, gd_device *device) {
    const gd_op *op = call->op;
    if ((op->flags & GD_OP_RANDOM) && !call->rng_given &&
        !gd_draws_from_key(op, call->in, call->n_in))
        call->rng = next_rng();
    if (gd_call_is_symbolic(call)) return append_node(call, metas);
    const bool grad = gd_grad_wanted(op, call->in, call->n_in);
    call->want_hidden |= grad;
    GD_TRY(op->base ? gd_call_run_inplace(call, &metas[0], grad, device)
                    : gd_call_run_kernel(call, metas, device));
    return grad ? gd_record_hooks.tape(call) : GD_OK;
}
