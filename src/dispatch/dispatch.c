/* dispatch.c - the dispatcher: every op call is checked, inferred, run (or traced) and recorded
 * here. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "core/number.h"
#include "core/random.h"
#include "dispatch/autocast.h"
#include "dispatch/call.h"
#include "dispatch/infer_call.h"
#include "dispatch/launch.h"
#include "dispatch/macs.h"
#include "dispatch/op.h"
#include "dispatch/probe.h"
#include "dispatch/profile.h"

gd_recorder gd_record_hooks;

enum { FEW = 8, MANY = 64 }; /* sizes of arrays on the stack; larger ones are allocated */

/* --- failures --------------------------------------------------------------------------------- */

gd_status gd_op_fail(gd_status status, const char *format, ...) {
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gd_fail(status, "%s", text);
}

/* The name of input i; all entries of a variadic input have the same. */
static const char *input_name(const gd_op *op, int i) {
    const int last = op->n_inputs - 1;
    return last < 0 ? "extra" : op->inputs[i < last ? i : last].name;
}

/* Whether output i is hidden; all entries of a variadic output are alike. */
static bool is_hidden(const gd_op *op, int i) {
    return op->outputs[i < op->n_outputs ? i : op->n_outputs - 1].hidden;
}

void gd_describe_call(const gd_op *op, int n_in, gd_describe_input_fn describe, const void *call,
                      char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s(", op->name);
    for (int i = 0; i < n_in && used < size - 1; i++) {
        char input[160];
        describe(call, i, input, sizeof input);
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", i ? ", " : "",
                                 input_name(op, i), input);
    }
    snprintf(text + (used < size - 2 ? used : size - 2), 2, ")");
}

static void describe_input(const void *call, int i, char *text, size_t size) {
    const gd_tensor *t = ((const gd_invocation *)call)->in[i];
    if (!t) snprintf(text, size, "absent");
    else if (gd_is_freed(t)) snprintf(text, size, "freed");
    else gd_describe(t, text, size);
}

/* Makes the message "matmul(a f32[2,3], b f32[4,5]): what went wrong (train.c:42)". Internal ops
 * in a body are not named, because the program has not called them: the caller of the body adds
 * its name. */
static void add_call_to_message(const gd_invocation *call) {
    if (gd_this_thread.bodies > 0 && (call->op->flags & GD_OP_INTERNAL)) return;
    char text[640];
    gd_describe_call(call->op, call->n_in, describe_input, call, text, sizeof text);
    gd_error_prefix("%s: ", text);
    gd_error_location(call->site);
}

/* Records the failure of a call. All its results are error tensors; a list is dropped. */
GD_COLD static gd_status fail_call(gd_invocation *call, gd_status status) {
    add_call_to_message(call);
    gd_error_record(status);
    if (call->is_list) {
        call->out = NULL;
        call->n_out = 0;
    }
    for (int i = 0; i < call->n_out; i++) call->out[i] = &gd_error_tensor;
    return status;
}

/* --- checks ----------------------------------------------------------------------------------- */

gd_status gd_check_inputs(const gd_op *op, gd_tensor *const *in, int n_in) {
    bool variadic = op->n_inputs > 0 && op->inputs[op->n_inputs - 1].variadic;
    int least = op->n_required;
    if (n_in == GD_BAD_LIST)
        return gd_fail(GD_E_ARGUMENT,
                       "the list of tensors is NULL, of negative length or longer than %d",
                       GD_MAX_VARIADIC);
    if (n_in < least || (n_in > op->n_inputs && !variadic))
        return gd_fail(GD_E_ARGUMENT, "takes %d to %d tensors, not %d", least, op->n_inputs, n_in);
    if (variadic && n_in < op->n_inputs && !op->inputs[op->n_inputs - 1].optional &&
        !(op->flags & GD_OP_CALLS))
        return gd_fail(GD_E_ARGUMENT, "the list '%s' is empty", op->inputs[op->n_inputs - 1].name);
    for (int i = 0; i < n_in; i++) {
        const gd_op_param *param = &op->inputs[i < op->n_inputs ? i : op->n_inputs - 1];
        const gd_tensor *t = in[i];
        if (!t) {
            if (!param->optional || param->variadic)
                return gd_fail(GD_E_ARGUMENT, "'%s' is NULL", param->name);
        } else if (t->kind == GD_META) {
            return gd_fail(GD_E_STATE,
                           "'%s' was not saved for the gradient; only its shape is known",
                           param->name);
        }
    }
    return GD_OK;
}

/* Whether input i is a scalar on the CPU, which a call on any device can read. */
static bool is_host_scalar(const gd_invocation *call, int i) {
    const gd_tensor *t = call->in[i];
    const gd_op *op = call->op;
    return t->rank == 0 && t->device == gd_cpu() && t->kind == GD_VALUE &&
           !(i < op->n_inputs && op->inputs[i].mutated) && !(i == 0 && op->flags & GD_OP_INPLACE);
}

/* Finds the device of the call. Scalars on the CPU can be combined with tensors of any device;
 * *scalars: there are some, and they must be uploaded. */
static gd_status find_device(const gd_invocation *call, gd_device **device, bool *scalars) {
    *device = NULL;
    *scalars = false;
    for (int i = 0; i < call->n_in; i++) {
        const gd_tensor *t = call->in[i];
        if (!t || t->device == *device) continue;
        if (*device && is_host_scalar(call, i)) *scalars = true;
        else if (!*device) *device = t->device;
        else {
            /* a second device is allowed if all inputs so far were scalars on the CPU */
            for (int k = 0; k < i; k++) {
                const gd_tensor *u = call->in[k];
                if (u && !is_host_scalar(call, k))
                    return gd_fail(GD_E_DEVICE,
                                   "'%s' is on %s and '%s' is on %s; move one with gd_to_device",
                                   input_name(call->op, k), u->device->name,
                                   input_name(call->op, i), t->device->name);
            }
            *scalars = true;
            *device = t->device;
        }
    }
    if (!*device) *device = gd_default_device();
    return GD_OK;
}

bool gd_grad_wanted(const gd_op *op, gd_tensor *const *in, int n_in) {
    if (gd_this_thread.no_grad > 0 || (op->flags & GD_OP_NO_GRAD)) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->requires_grad) return true;
    return false;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Moves the results of a body out of its scope. Fails if one is missing. */
static gd_status keep_outputs(gd_invocation *call) {
    const gd_op *op = call->op;
    for (int i = 0; i < call->n_out; i++) {
        const gd_tensor *y = call->out[i];
        if (y && y->kind == GD_FAILED) return gd_failure();
        /* a body need not compute hidden outputs */
        if (!y && !is_hidden(op, i))
            return gd_failed() ? gd_failure()
                               : gd_fail(GD_E_STATE, "its body has not set result %d", i);
    }
    if (gd_failed()) return gd_failure();
    for (int i = 0; i < call->n_out;
         i++) /* a result that is an input: the caller gets a reference */
        for (int k = 0; k < call->n_in && call->out[i]; k++)
            if (call->out[i] == call->in[k]) {
                gd_object_retain(&call->out[i]->object);
                GD_TRY(gd_scope_take(&call->out[i]->object));
                break;
            }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i]) gd_scope_keep(&call->out[i]->object);
    return GD_OK;
}

/* Runs the body of the op in its own scope. Tensors that the body creates (a range, a constant)
 * are on the device of the call. A failure inside is reported as a failure of the op. */
static gd_status run_body(gd_invocation *call, gd_device *device) {
    gd_thread *thread = &gd_this_thread;
    gd_device *before = thread->device;
    const char *site = thread->site;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    thread->device = device;
    thread->site = call->site;
    const gd_invocation *outer = thread->body;
    if (!outer) thread->body = call;
    thread->bodies++;
    const int autocast =
        gd_autocast_pause(GD_DTYPE_NONE); /* the inputs of the op are cast already */
    gd_expand expand = {
        call->op, call->attrs, call->n_in, call->n_out, (gd_tensor **)(uintptr_t)call->in,
        call->out};
    for (int i = 0; i < call->n_out; i++) call->out[i] = NULL;
    call->op->expand(&expand);
    gd_autocast_resume(&autocast);
    thread->bodies--;
    thread->body = outer;
    thread->device = before;
    thread->site = site;
    gd_status status = keep_outputs(call);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

gd_status gd_kernel_output(gd_kernel_call *call, int i, int rank, const int64_t *dims) {
    gd_view *view = &call->out[i];
    size_t bytes;
    GD_TRY(gd_dims_bytes(rank, dims, view->dtype, &bytes));
    gd_storage *storage = gd_storage_new(call->device, bytes);
    if (!storage) return gd_this_thread.latest;
    gd_storage_release(call->made[i]);
    call->made[i] = storage;
    view->data = storage->data;
    view->rank = rank;
    for (int k = 0; k < rank; k++) view->dims[k] = dims[k];
    gd_row_major(rank, view->dims, view->strides);
    return GD_OK;
}

/* Creates the outputs and runs the kernel. */
static gd_status run_op(gd_invocation *call, const gd_meta *metas, gd_device *device) {
    const gd_op *op = call->op;
    int n_mutated = op->n_mutated, n_views = call->n_in + call->n_out + n_mutated;
    gd_view few[3 * FEW], *views = few;
    if (n_views > 3 * FEW && !(views = gd_malloc((size_t)n_views * sizeof *views)))
        return gd_fail(GD_E_MEMORY, "no memory for %d tensors", n_views);
    void *made[FEW] = {NULL}; /* storages of a dynamic op's outputs */
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, views + call->n_in,
                       call->n_out + n_mutated);
    k.rng = call->rng;
    k.site = call->site;
    if (op->flags & GD_OP_DYNAMIC) k.made = made;
    gd_status status = GD_OK;
    bool needed = n_mutated > 0 || (op->flags & GD_OP_DYNAMIC);
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i]) gd_view_set(&views[i], call->in[i]);
        else views[i] = (gd_view){.data = NULL};
    }
    for (int i = 0; i < call->n_out && status == GD_OK; i++) {
        const gd_meta *m = &metas[i];
        gd_view *view = &k.out[i];
        if (is_hidden(op, i) && !call->want_hidden) {
            call->out[i] = NULL;
            *view = (gd_view){.dtype = m->dtype, .rank = m->rank};
            memcpy(view->dims, m->dims, sizeof view->dims);
            gd_row_major(m->rank, m->dims, view->strides);
            continue;
        }
        if (op->flags & GD_OP_DYNAMIC) { /* the kernel creates it when its size is known */
            *view = (gd_view){.dtype = m->dtype};
            continue;
        }
        gd_tensor *y =
            m->view_of >= 0
                ? gd_tensor_view(call->in[m->view_of], m->rank, m->dims, m->strides, m->offset)
                : gd_tensor_new(m->device ? m->device : device, m->dtype, m->rank, m->dims);
        if (!y) status = gd_this_thread.latest;
        else {
            call->out[i] = y;
            gd_view_set(view, y);
            if (m->view_of < 0 && y->storage->bytes > 0) needed = true;
        }
    }
    for (int i = 0, n = call->n_out; n_mutated > 0 && i < op->n_inputs && i < call->n_in; i++)
        if (op->inputs[i].mutated) {
            k.out[n++] = views[i];
            if (call->in[i]) atomic_fetch_add(&call->in[i]->storage->version, 1);
        }
    if (op->ir &&
        n_mutated > 0) { /* the outputs of the expression are the inputs that it mutates */
        k.out += call->n_out;
        k.n_out = n_mutated;
    }
    if (status == GD_OK && needed) status = gd_run_kernel(op, &k, device);
    for (int i = 0; i < call->n_out && i < FEW && (op->flags & GD_OP_DYNAMIC); i++) {
        gd_tensor *y = status != GD_OK ? NULL
                                       : gd_tensor_bare(GD_VALUE, device, k.out[i].dtype,
                                                        k.out[i].rank, k.out[i].dims);
        if (y) {
            y->storage = made[i];
            call->out[i] = y;
        } else {
            gd_storage_release(made[i]);
            if (status == GD_OK) status = GD_E_MEMORY;
        }
    }
    if (views != few) gd_free(views);
    return status;
}

/* --- in place --------------------------------------------------------------------------------- */

static bool same_memory(const gd_tensor *a, const gd_tensor *b) {
    return a->offset == b->offset && a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
           memcmp(a->strides, b->strides, sizeof(int64_t) * a->rank) == 0;
}

static gd_status check_inplace(const gd_invocation *call, const gd_meta *m, bool grad) {
    gd_tensor *x = call->in[0];
    char text[160];
    if (x->rank != m->rank || memcmp(x->dims, m->dims, sizeof(int64_t) * x->rank) != 0)
        return gd_fail(GD_E_SHAPE, "the result has shape %s and cannot be written into '%s'",
                       gd_shape_text(m->rank, m->dims, text, sizeof text),
                       call->op->inputs[0].name);
    bool dtype_fits = m->dtype == x->dtype || gd_dtype_is_float((gd_dtype)x->dtype) ||
                      (!gd_dtype_is_float(m->dtype) && x->dtype != GD_BOOL);
    if (!dtype_fits)
        return gd_fail(GD_E_DTYPE, "the result is %s and cannot be written into '%s'",
                       gd_dtype_name(m->dtype), call->op->inputs[0].name);
    for (int i = 0; i < x->rank; i++)
        if (x->strides[i] == 0 && x->dims[i] > 1)
            return gd_fail(GD_E_ARGUMENT,
                           "'%s' is expanded: several of its elements share memory; clone it first",
                           call->op->inputs[0].name);
    if (!grad) return GD_OK;
    if (x->requires_grad && !x->node)
        return gd_fail(GD_E_STATE, "'%s' is a leaf that requires grad; write it under GD_NO_GRAD",
                       call->op->inputs[0].name);
    if (x->is_view || x->storage->taped_view)
        return gd_fail(GD_E_STATE,
                       "'%s' shares its memory with another tensor, and the tape is on; "
                       "use the op that returns a new tensor, or GD_NO_GRAD",
                       call->op->inputs[0].name);
    return GD_OK;
}

/* Runs the kernel of the base op with the first input as output. */
static gd_status run_inplace(gd_invocation *call, gd_device *device) {
    gd_tensor *x = call->in[0];
    gd_view views[FEW + 1];
    gd_status status = GD_OK;
    gd_scope *scope = gd_scope_open(); /* frees the copies */
    for (int i = 0; i < call->n_in && status == GD_OK; i++) {
        gd_tensor *t = call->in[i];
        if (!t) {
            views[i] = (gd_view){.data = NULL};
            continue;
        }
        if (i > 0 && t->storage == x->storage &&
            !same_memory(t, x)) { /* it may overlap: copy it first */
            gd_tensor *copy = gd_tensor_new(t->device, (gd_dtype)t->dtype, t->rank, t->dims);
            if (!copy) status = gd_this_thread.latest;
            else {
                status = gd_copy_tensor(copy, t);
                t = copy;
            }
        }
        gd_view_set(&views[i], t);
    }
    gd_view_set(&views[call->n_in], x);
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, &views[call->n_in], 1);
    k.rng = call->rng;
    k.site = call->site;
    k.overwrites = true;
    if (status == GD_OK && gd_numel(x->rank, x->dims) > 0)
        status = gd_run_kernel(call->op->base, &k, device);
    if (status == GD_OK) atomic_fetch_add(&x->storage->version, 1);
    gd_scope_close(&scope);
    call->out[0] = x;
    return status;
}

/* --- one call --------------------------------------------------------------------------------- */

char gd_no_graph;

static bool is_symbolic(const gd_invocation *call) {
    if (call->plain) return false;
    if (gd_this_thread.tracer) return true;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->kind == GD_SYMBOL) return true;
    return false;
}

/* The random numbers of a call: the next ones, or, in a body that is replayed, those that were
 * recorded with the call. */
static gd_rng next_rng(void) {
    gd_rng *given = gd_this_thread.noise;
    if (!given) return gd_rng_take();
    gd_rng rng = *given;
    given->call++;
    return rng;
}

/* Runs the call, or appends it to a graph, and records it. */
static gd_status run_or_trace(gd_invocation *call, const gd_meta *metas, gd_device *device) {
    const gd_op *op = call->op;
    const bool grad = gd_grad_wanted(op, call->in, call->n_in);
    if ((op->flags & GD_OP_RANDOM) && !call->rng_given) call->rng = next_rng();
    if (is_symbolic(call)) {
        if (!gd_record_hooks.trace)
            return gd_fail(GD_E_UNSUPPORTED, "there are no graphs in this build");
        if (gd_this_thread.macs) GD_TRY(gd_count_macs(call, metas));
        return gd_record_hooks.trace(call, metas);
    }
    call->want_hidden |= grad;
    if (op->base) {
        GD_TRY(check_inplace(call, &metas[0], grad));
        GD_TRY(run_inplace(call, device));
    } else {
        GD_TRY(run_op(call, metas, device));
    }
    return grad ? gd_record_hooks.tape(call) : GD_OK;
}

/* Sets the views of a call's outputs from their shapes. They do not exist yet: the views have a dummy
 * address. */
static void set_output_views(const gd_invocation *call, const gd_infer *infer, gd_view *views) {
    static _Alignas(256) char dummy;
    const gd_op *op = call->op;
    const bool want_hidden = call->want_hidden || gd_grad_wanted(op, call->in, call->n_in);
    for (int i = 0; i < infer->n_out; i++) {
        const gd_meta *m = &infer->out[i];
        const bool hidden = is_hidden(op, i);
        views[i] = (gd_view){
            .data = hidden && !want_hidden ? NULL : &dummy, .dtype = m->dtype, .rank = m->rank};
        memcpy(views[i].dims, m->dims, sizeof(int64_t) * (size_t)m->rank);
        if (m->view_of < 0) gd_row_major(m->rank, m->dims, views[i].strides);
        else memcpy(views[i].strides, m->strides, sizeof(int64_t) * (size_t)m->rank);
    }
}

static void set_input_views(const gd_invocation *call, gd_view *views) {
    static _Alignas(256) char dummy;
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i]) gd_view_set(&views[i], call->in[i]);
        else views[i] = (gd_view){.data = NULL};
        if (call->in[i] && !views[i].data) views[i].data = &dummy; /* a symbol */
    }
}

/* Whether a kernel of the device matches the call. */
static bool call_has_kernel(const gd_invocation *call, const gd_infer *infer, gd_device *device) {
    const gd_op *op = call->op;
    gd_view few[3 * FEW], *views = few;
    const int n = call->n_in + infer->n_out + op->n_mutated;
    if (n > 3 * FEW && !(views = gd_malloc((size_t)n * sizeof *views)))
        return true; /* the call reports the failure */
    gd_view *outputs = views + call->n_in;
    set_input_views(call, views);
    set_output_views(call, infer, outputs);
    for (int i = 0, k = infer->n_out; i < op->n_inputs && i < call->n_in; i++)
        if (op->inputs[i].mutated) outputs[k++] = views[i];
    gd_kernel_call k;
    gd_kernel_call_set(&k, call->attrs, views, call->n_in, outputs, infer->n_out + op->n_mutated);
    k.op = op;
    k.device = device;
    const bool found = gd_kernel_select(op, &k, device->api->kind) || gd_fallback_allowed(op);
    if (views != few) gd_free(views);
    return found;
}

/* Whether the call stays one node of a graph, also if its op has a body: bodies compute with sizes, so
 * they cannot run while a size is unknown. */
static bool stays_one_node(const gd_invocation *call) {
    return is_symbolic(call) &&
           ((call->op->flags & GD_OP_OPAQUE) || gd_has_unknown(call->in, call->n_in));
}

/* Whether the results are inferred before the call. An op without an infer rule runs as its body,
 * whose ops infer them; only a node or a list needs them before. */
static bool is_inferred(const gd_invocation *call) {
    return call->op->infer || call->is_list || stays_one_node(call);
}

/* Whether the call runs as its body: the op has no kernel that matches. A call that has both runs its
 * kernel, also if a gradient is required, so that results do not depend on that. */
static bool runs_as_body(const gd_invocation *call, const gd_infer *infer, gd_device *device) {
    const gd_op *op = call->op;
    const char *kind = device->api->kind;
    if (!op->expand || stays_one_node(call)) return false;
    if (!op->infer || !gd_kernel_exists(op, kind)) return true;
    if (op->flags & GD_OP_VIEW) { /* a view needs no kernel, but a call that has to copy does */
        const bool copies = !call->is_list && infer->n_out == 1 && infer->out[0].view_of < 0;
        return copies && strcmp(gd_op_runs_as(op, kind), "view") == 0;
    }
    return gd_kernels_are_partial(op, kind) && !call_has_kernel(call, infer, device);
}

/* Makes the list of results, as long as the infer rule says. */
static gd_status make_list(gd_invocation *call, int count) {
    call->out = gd_list_new(count);
    if (!call->out) return GD_E_MEMORY;
    call->n_out = count;
    return GD_OK;
}

/* Infers the results of a call, then runs or traces it. The thread has a scope. */
static gd_status infer_and_run(gd_invocation *call, gd_device *device) {
    gd_meta few[GD_MAX_OUTPUTS];
    gd_infer infer = {call->op, call->attrs, call->in, call->n_in, few, call->n_out};
    gd_status status = is_inferred(call) ? gd_infer_call(call, &infer) : GD_OK;
    if (status == GD_OK && call->is_list) status = make_list(call, infer.n_out);
    if (status == GD_OK)
        status = runs_as_body(call, &infer, device) ? run_body(call, device)
                                                    : run_or_trace(call, infer.out, device);
    if (infer.out != few) gd_free(infer.out);
    return status;
}

/* Moves the results of a call to the enclosing scope. If there is none, they belong to the caller;
 * hidden ones would belong to nobody and stay in the scope. */
static void keep_results(gd_invocation *call) {
    if (call->is_list) {
        gd_keep_list((gd_tensors){call->out, call->n_out});
        return;
    }
    const gd_op *op = call->op;
    const bool enclosed = gd_this_thread.depth > 1;
    for (int i = 0; i < call->n_out; i++) {
        if (!enclosed && is_hidden(op, i)) call->out[i] = NULL;
        if (call->out[i]) gd_scope_keep(&call->out[i]->object);
    }
}

/* Makes a call whose inputs have been checked. A thread without a scope gets one for the time of the
 * call, which frees temporaries. */
static gd_status dispatch_on(gd_invocation *call, gd_device *device) {
    gd_scope *scope = gd_this_thread.depth > 0 ? NULL : gd_scope_open();
    gd_status status = infer_and_run(call, device);
    if (scope) {
        if (status == GD_OK) keep_results(call);
        gd_scope_close(&scope);
    }
    return status == GD_OK ? GD_OK : fail_call(call, status);
}

/* The fast path: all inputs of the op are present and are values on one device, and nothing is
 * traced. One loop finds this out, and the call skips the general checks, which would slow small
 * ops down. */
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
        if (!t || t->kind != GD_VALUE || t->device != first->device) return false;
    }
    return true;
}

/* Fails because input i is an error tensor whose failure was cleared, or a freed tensor. */
static gd_status fail_input(const gd_invocation *call, int i) {
    const char *name = input_name(call->op, i);
    char text[600];
    if (gd_is_freed(call->in[i]))
        return gd_fail(GD_E_STATE, "use after free: '%s' is %s", name,
                       gd_freed_text(call->in[i], text, sizeof text));
    return gd_fail(GD_E_STATE, "'%s' is the result of a call that failed", name);
}

static gd_status dispatch(gd_invocation *call);

/* Fills `in` with the inputs, where scalars on the CPU are uploaded to the device. */
static gd_status upload_scalars(const gd_invocation *call, gd_device *device, gd_tensor **in) {
    for (int i = 0; i < call->n_in; i++) {
        in[i] = call->in[i];
        if (!in[i] || in[i]->device == device) continue;
        in[i] = gd_to_device(in[i], device);
        if (in[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

/* Makes the call with other inputs: cast to a dtype, or, without one, with scalars uploaded to the
 * device. They are freed afterwards, unless the tape or a graph holds them. */
static gd_status dispatch_replaced(gd_invocation *call, gd_dtype dtype, gd_device *device) {
    gd_tensor *few[MANY], *const *given = call->in;
    gd_tensor **in = call->n_in <= MANY ? few : gd_malloc((size_t)call->n_in * sizeof *in);
    if (!in) return fail_call(call, gd_fail(GD_E_MEMORY, "no memory for %d tensors", call->n_in));
    GD_NO_AUTOCAST;
    gd_scope *scope = gd_scope_open();
    gd_status status = dtype != GD_DTYPE_NONE ? gd_autocast_inputs(call, dtype, in)
                                              : upload_scalars(call, device, in);
    if (status == GD_OK) {
        call->in = in;
        status = dispatch(call);
    } else {
        fail_call(call, status);
    }
    if (status == GD_OK) keep_results(call);
    gd_scope_close(&scope);
    call->in = given;
    if (in != few) gd_free(in);
    return status;
}

/* A call that is not plain. */
static gd_status dispatch_checked(gd_invocation *call) {
    const gd_thread *thread = &gd_this_thread;
    /* after a failure, the other calls of a body or gradient rule do nothing */
    bool run = thread->attempts == 0 || thread->recorded == GD_OK;
    int bad = -1; /* an input that is an error tensor */
    for (int i = 0; i < call->n_in && bad < 0; i++)
        if (call->in[i] && call->in[i]->kind == GD_FAILED) bad = i;
    if (bad >= 0 && thread->recorded == GD_OK) return fail_call(call, fail_input(call, bad));
    if (!run || bad >= 0) {
        for (int k = 0; k < call->n_out; k++) call->out[k] = &gd_error_tensor;
        return thread->recorded;
    }
    gd_status status = gd_check_inputs(call->op, call->in, call->n_in);
    gd_device *device = NULL;
    bool scalars = false;
    if (status == GD_OK) status = gd_attrs_check(call->op, call->attrs);
    if (status == GD_OK) status = find_device(call, &device, &scalars);
    if (status != GD_OK) return fail_call(call, status);
    /* a graph reads scalars of the host in each run, so they are not uploaded now */
    return scalars && !is_symbolic(call) ? dispatch_replaced(call, GD_DTYPE_NONE, device)
                                         : dispatch_on(call, device);
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
    return status == GD_OK ? dispatch_on(call, call->in[0]->device) : fail_call(call, status);
}

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

gd_tensor *gd_dispatch_one(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                           const void *attrs) {
    gd_tensor *out[FEW];
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
    if (record_origin(&call, dispatch(&call)) == GD_OK) return (gd_tensors){call.out, call.n_out};
    return gd_list_of_errors(requested_outputs(op, attrs));
}
