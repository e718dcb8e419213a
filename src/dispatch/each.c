/* each.c - gd_dispatch_each: an elementwise op for each entry of a list (call.h). */
#include <string.h>

#include "core/alloc.h"
#include "core/map.h"
#include "gradus/ops.h"
#include "dispatch/call.h"
#include "dispatch/call_infer.h"
#include "dispatch/launch.h"

/* Inputs of an entry, without the scalars. */
static int inputs_per_entry(const gd_each *e) { return e->op->n_inputs - e->n_scalars; }

static bool is_written(const gd_op *op, int input) {
    return op->base ? input == 0 : op->inputs[input].mutated;
}

/* --- a call for each entry -------------------------------------------------------------------- */

/* Number k for entry i. */
static gd_tensor *entry_scalar(const gd_each *e, int k, int i) {
    gd_tensor *number = e->scalars[k];
    const bool is_list = number->kind != GD_FAILED && number->rank == 1;
    return is_list ? gd_select(number, 0, e->which ? e->which[i] : i) : number;
}

static gd_status call_each_entry(const gd_each *e, const char *site, gd_tensor **out) {
    const int width = inputs_per_entry(e);
    for (int i = 0; i < e->count; i++) {
        gd_tensor *in[GD_EACH_INPUTS];
        memcpy(in, e->in + (size_t)i * (size_t)width, (size_t)width * sizeof *in);
        for (int k = 0; k < e->n_scalars; k++) in[width + k] = entry_scalar(e, k, i);
        gd_tensor *y = gd_dispatch_one(e->op, site, in, e->op->n_inputs, e->attrs);
        if (y->kind == GD_FAILED) return gd_failure();
        if (out) out[i] = y;
    }
    return GD_OK;
}

/* --- one kernel call for all entries ---------------------------------------------------------- */

/* Whether several elements share memory. */
static bool is_expanded(const gd_tensor *t) {
    for (int d = 0; d < t->rank; d++)
        if (t->strides[d] == 0 && t->dims[d] > 1) return true;
    return false;
}

/* Whether one kernel call can do it: nothing is recorded, all tensors are values of the device,
 * and no storage is written twice. */
static bool can_batch(const gd_each *e, const gd_device *device) {
    const int width = inputs_per_entry(e);
    if (gd_this_thread.tracer || gd_this_thread.depth == 0 ||
        gd_grad_wanted(e->op, e->in, e->count * width))
        return false;
    if (!gd_list_kernel_exists(device->api->kind)) return false;
    for (int k = 0; k < e->n_scalars; k++)
        if (e->scalars[k]->kind != GD_VALUE || e->scalars[k]->device != device) return false;
    gd_map seen = {NULL, 0, 0};
    bool ok = true;
    for (int i = 0; i < e->count * width && ok; i++) {
        const gd_tensor *t = e->in[i];
        ok = t && t->kind == GD_VALUE && t->device == device;
        if (!ok || !is_written(e->op, i % width)) continue;
        ok = !is_expanded(t) && !t->storage->read_only && gd_map_find(&seen, t->storage) < 0 &&
             gd_map_put(&seen, t->storage, 0);
    }
    gd_map_free(&seen);
    return ok;
}

/* Runs the op's infer rule for each entry. */
static gd_status check_entries(const gd_each *e) {
    const int width = inputs_per_entry(e);
    const gd_op *base = e->op->base ? e->op->base : e->op;
    gd_tensor scalars[GD_EACH_INPUTS], *in[GD_EACH_INPUTS];
    for (int k = 0; k < e->n_scalars; k++) {
        scalars[k] = (gd_tensor){
            .kind = GD_VALUE, .dtype = e->scalars[k]->dtype, .device = e->scalars[k]->device};
        in[width + k] = &scalars[k];
    }
    for (int i = 0; i < e->count; i++) {
        gd_meta y[GD_MAX_OUTPUTS];
        memcpy(in, e->in + (size_t)i * (size_t)width, (size_t)width * sizeof *in);
        gd_infer infer = {base, e->attrs, in, e->op->n_inputs, y, base->n_outputs};
        GD_TRY(gd_infer_known(&infer));
    }
    return GD_OK;
}

/* The scalars, with the elements of rank-1 ones in the order of the entries. */
static gd_status select_scalars(const gd_each *e, gd_device *device, gd_tensor **scalars) {
    for (int k = 0; k < e->n_scalars; k++) scalars[k] = e->scalars[k];
    bool picks = false;
    for (int k = 0; k < e->n_scalars; k++) picks |= e->which && scalars[k]->rank == 1;
    if (!picks) return GD_OK;
    int64_t *at = gd_malloc((size_t)e->count * sizeof *at);
    if (!at) return gd_fail(GD_E_MEMORY, "no memory for %d scalars", e->count);
    for (int i = 0; i < e->count; i++) at[i] = e->which[i];
    gd_tensor *index = gd_from_array(gd_dims(e->count), GD_I64, at);
    gd_free(at);
    if (device != gd_cpu() && index->kind != GD_FAILED) index = gd_record_hooks.move(index, device);
    for (int k = 0; k < e->n_scalars; k++) {
        if (scalars[k]->rank == 1) scalars[k] = gd_index_select(scalars[k], 0, index);
        if (scalars[k]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

/* One call of the list kernel, or one for each entry if the kernel does not support the op. */
static gd_status call_all_entries(const gd_each *e, const char *site, gd_device *device,
                                  gd_tensor **results) {
    gd_tensor *scalars[GD_EACH_INPUTS];
    GD_TRY(select_scalars(e, device, scalars));
    const gd_op *op = e->op->base ? e->op->base : e->op;
    const int width = inputs_per_entry(e), written = e->op->base ? 1 : op->n_mutated,
              n_in = e->count * width + e->n_scalars;
    gd_view *views = e->views, *out = views + n_in;
    gd_kernel_call k;
    gd_kernel_call_set(&k, e->attrs, views, n_in, out, e->count * written);
    k.each = e->count;
    for (int i = 0; i < e->count * width; i++) {
        gd_view_set(&views[i], e->in[i]);
        if (is_written(e->op, i % width)) *out++ = views[i];
    }
    for (int i = 0; i < e->n_scalars; i++) gd_view_set(&views[e->count * width + i], scalars[i]);
    k.op = op;
    k.device = device;
    if (!gd_kernel_select(op, &k, device->api->kind)) return call_each_entry(e, site, results);
    for (int i = 0; i < e->count * width; i++)
        if (is_written(e->op, i % width)) atomic_fetch_add(&e->in[i]->storage->version, 1);
    for (int i = 0; results && i < e->count; i++) results[i] = e->in[i * width];
    return gd_run_kernel(op, &k, device);
}

gd_status gd_dispatch_each(const gd_each *e, const char *site, gd_tensor **out) {
    if (e->count < 1) return GD_OK;
    gd_device *device = e->in[0] ? e->in[0]->device : NULL;
    if (e->op->n_inputs > GD_EACH_INPUTS)
        return gd_fail(GD_E_UNSUPPORTED, "%s has too many inputs for a list", e->op->name);
    if (e->count == 1 || !device || !can_batch(e, device)) return call_each_entry(e, site, out);
    if (gd_this_thread.attempts > 0 && gd_this_thread.recorded != GD_OK) return gd_failure();
    GD_TRY(gd_attrs_check(e->op, e->attrs));
    if (check_entries(e) != GD_OK)
        return call_each_entry(e, site, out); /* fails again, with a message about the entry */
    return call_all_entries(e, site, device, out);
}
