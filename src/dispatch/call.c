/* call.c - calls of ops by name, calls into existing tensors, and copies between tensors. */
#include "dispatch/call.h"

#include <string.h>

#include "codegen/record.h"
#include "core/freed.h"
#include "core/alloc.h"
#include "core/random.h"
#include "dispatch/call_infer.h"
#include "dispatch/launch.h"

int gd_join_inputs(gd_tensor **in, int fixed, gd_tensors list) {
    if (list.count < 0 || list.count > GD_MAX_VARIADIC || (list.count > 0 && !list.at))
        return GD_BAD_LIST;
    for (int64_t i = 0; i < list.count; i++) in[fixed + i] = list.at[i];
    return fixed + (int)list.count;
}

/* Appends NULL for optional inputs that were left out at the end. */
static gd_tensors pad_inputs(const gd_op *op, gd_tensors inputs, gd_tensor *padded[GD_RECORD_MAX]) {
    bool variadic = op->n_inputs > 0 && op->inputs[op->n_inputs - 1].variadic;
    if (inputs.count < 0 || inputs.count > INT32_MAX || (inputs.count > 0 && !inputs.at))
        return (gd_tensors){NULL, GD_BAD_LIST};
    if (variadic || inputs.count < op->n_required || inputs.count >= op->n_inputs) return inputs;
    for (int i = 0; i < op->n_inputs; i++) padded[i] = i < inputs.count ? inputs.at[i] : NULL;
    return (gd_tensors){padded, op->n_inputs};
}

gd_tensors gd_call_with(const gd_op *op, const char *site, gd_tensors inputs, const void *data) {
    gd_tensor *padded[GD_RECORD_MAX];
    inputs = pad_inputs(op, inputs, padded);
    if (op->n_outputs > 0 && op->outputs[op->n_outputs - 1].variadic)
        return gd_dispatch_list(op, site, inputs.at, (int)inputs.count, data);
    int visible = 0;
    for (int i = 0; i < op->n_outputs; i++) visible += !op->outputs[i].hidden;
    gd_tensor **out = gd_list_new(op->n_outputs);
    if (!out) {
        gd_report(site, GD_E_MEMORY);
        return gd_list_of_errors(visible);
    }
    if (gd_dispatch(op, site, inputs.at, (int)inputs.count, data, out, op->n_outputs) != GD_OK) {
        if (gd_this_thread.depth == 0) gd_release_list((gd_tensors){out, 0}); /* no scope owns it */
        return gd_list_of_errors(visible);
    }
    for (int i = 0, k = 0; i < op->n_outputs; i++)
        if (!op->outputs[i].hidden) out[k++] = out[i];
    return (gd_tensors){out, visible};
}

static gd_tensors call_op(const gd_op *op, const char *site, gd_tensors inputs,
                          const gd_attrs *attrs) {
    gd_status status =
        op ? gd_attrs_check_given(op, attrs) : gd_fail(GD_E_ARGUMENT, "gd_op_call: op is NULL");
    if (status != GD_OK) {
        gd_report(site, status);
        return gd_list_of_errors(0);
    }
    if (!attrs || op->n_attrs == 0)
        return gd_call_with(op, site, inputs, op->n_attrs ? op->defaults : NULL);
    /* normalize a copy, so that the program can change and reuse its gd_attrs */
    char few[512];
    char *data = op->attrs_size <= sizeof few ? few : gd_malloc(op->attrs_size);
    if (!data) {
        gd_report(site, gd_fail(GD_E_MEMORY, "no memory for the options of %s", op->name));
        return gd_list_of_errors(0);
    }
    memcpy(data, gd_attrs_data(attrs), op->attrs_size);
    gd_attrs_normalize(op, data);
    gd_tensors result = gd_call_with(op, site, inputs, data);
    if (data != few) gd_free(data);
    return result;
}

gd_tensors gd_op_call_at(const char *site, const gd_op *op, gd_tensors inputs,
                         const gd_attrs *attrs) {
    GD_LIVE_AT(site, attrs);
    return call_op(op, site, inputs, attrs);
}

gd_tensor *gd_call_at(const char *site, const char *name, gd_tensors inputs, const char *options) {
    const gd_op *op = gd_op_find(name);
    if (!op)
        return (gd_report(site, gd_fail(GD_E_ARGUMENT, "there is no op '%s'", name ? name : "")),
                &gd_error_tensor);
    gd_scope *scope = gd_scope_open();
    gd_attrs *attrs = gd_attrs_new(op);
    gd_status status = attrs ? gd_attrs_put_options(attrs, options) : GD_E_MEMORY;
    gd_tensor *y = &gd_error_tensor;
    if (status != GD_OK) {
        gd_report(site, status);
    } else {
        y = call_op(op, site, inputs, attrs).at[0];
    }
    if (y->kind != GD_FAILED) gd_scope_keep(&y->object);
    gd_scope_close(&scope);
    return y;
}

gd_status gd_copy_tensor(gd_tensor *dst, gd_tensor *src) {
    if (src->device != dst->device) {
        gd_scope *scope = gd_scope_open();
        gd_tensor *moved = gd_record_hooks.move(src, dst->device);
        gd_status status = moved->kind == GD_FAILED ? gd_failure() : gd_copy_tensor(dst, moved);
        gd_scope_close(&scope);
        return status;
    }
    gd_view in = gd_view_of(src), out = gd_view_of(dst);
    gd_kernel_call call = {.in = &in, .n_in = 1, .out = &out, .n_out = 1};
    if (gd_numel(dst->rank, dst->dims) == 0) return GD_OK;
    call.overwrites = true;
    return gd_run_kernel(gd_op_find("clone"), &call, dst->device);
}

/* Checks that the op can write its results into existing tensors, and that the tensors are
 * suitable. */
static gd_status check_run_into(const gd_op *op, gd_tensors inputs, const void *attrs,
                                gd_tensors outputs, int max_inputs) {
    bool supported = op->infer && op->n_outputs > 0 && !op->outputs[op->n_outputs - 1].variadic &&
                     !op->base && !(op->flags & (GD_OP_DYNAMIC | GD_OP_INPLACE));
    for (int i = 0; i < op->n_inputs; i++) supported &= !op->inputs[i].mutated;
    if (inputs.count > 0) /* kernels of random ops read no key */
        supported &= !gd_draws_from_key(op, inputs.at, (int)inputs.count);
    if (!supported || inputs.count > max_inputs || outputs.count != op->n_outputs || !outputs.at)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_op_run_into: %s cannot write its results into %lld given tensors",
                       op->name, (long long)outputs.count);
    GD_TRY(gd_attrs_check(op, attrs));
    GD_TRY(gd_check_inputs(op, inputs.at, (int)inputs.count));
    for (int64_t i = 0; i < outputs.count; i++) {
        const gd_tensor *y = outputs.at[i];
        if (!y || y->kind != GD_VALUE)
            return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: output %d has no data", (int)i);
        if (!gd_is_row_major(y->rank, y->dims, y->strides))
            return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: output %d is not contiguous", (int)i);
        GD_TRY(gd_check_writable(y, NULL));
    }
    for (int64_t i = 0; i < inputs.count + outputs.count; i++) {
        const gd_tensor *t = i < inputs.count ? inputs.at[i] : outputs.at[i - inputs.count];
        if (t && t->kind != GD_VALUE)
            return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: input %d has no data", (int)i);
        if (t && t->device != outputs.at[0]->device)
            return gd_fail(GD_E_DEVICE, "gd_op_run_into: tensors are on %s and on %s",
                           t->device->name, outputs.at[0]->device->name);
    }
    return GD_OK;
}

static gd_status run_into(const gd_op *op, gd_tensors inputs, const gd_attrs *attrs,
                          gd_tensors outputs) {
    if (!op) return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: op is NULL");
    GD_TRY(gd_attrs_check_given(op, attrs));
    gd_tensor *padded[GD_RECORD_MAX];
    inputs = pad_inputs(op, inputs, padded);
    enum { MAX_INPUTS = 16 };
    gd_view views[MAX_INPUTS + GD_MAX_OUTPUTS];
    gd_meta metas[GD_MAX_OUTPUTS];
    const void *data = attrs ? gd_attrs_data(attrs) : op->defaults;
    GD_TRY(check_run_into(op, inputs, data, outputs, MAX_INPUTS));
    gd_infer infer = {op, data, inputs.at, (int)inputs.count, metas, op->n_outputs};
    GD_TRY(gd_infer_known(&infer));
    for (int64_t i = 0; i < inputs.count; i++)
        views[i] = inputs.at[i] ? gd_view_of(inputs.at[i]) : (gd_view){.data = NULL};
    for (int i = 0; i < op->n_outputs; i++) {
        gd_view *v = &views[inputs.count + i];
        char a[160], b[160];
        *v = gd_view_of(outputs.at[i]);
        if (v->dtype != metas[i].dtype || v->rank != metas[i].rank ||
            memcmp(v->dims, metas[i].dims, sizeof(int64_t) * (size_t)v->rank) != 0)
            return gd_fail(GD_E_SHAPE, "gd_op_run_into: output %d of %s is %s%s, not %s", i,
                           op->name, gd_dtype_name(metas[i].dtype),
                           gd_shape_text(metas[i].rank, metas[i].dims, a, sizeof a),
                           gd_describe(outputs.at[i], b, sizeof b));
    }
    for (int i = 0; i < op->n_outputs; i++) atomic_fetch_add(&outputs.at[i]->storage->version, 1);
    gd_kernel_call call;
    gd_kernel_call_set(&call, data, views, (int)inputs.count, views + inputs.count, op->n_outputs);
    call.overwrites = true;
    if (op->flags & GD_OP_RANDOM) call.rng = gd_rng_take();
    return gd_run_kernel(op, &call, outputs.at[0]->device);
}

gd_status gd_op_run_into_at(const char *site, const gd_op *op, gd_tensors inputs,
                            const gd_attrs *attrs, gd_tensors outputs) {
    return gd_report(site, run_into(op, inputs, attrs, outputs));
}
