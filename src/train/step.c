/* step.c - one batch of gd_fit: the function that a jit compiles.
 *
 * It runs forward, loss and backward; after the last batch of a group also clipping and the
 * optimizer's step; then it updates the loss sum and the metrics. Gradients are freed last, so that
 * a plan need not keep them (jit.h).
 *
 * A group is the batches whose gradients are accumulated for one optimizer step (.accumulate). Its
 * size is known when it begins; the last group of an epoch, or before max_steps, may be smaller.
 * Each loss is divided by the size, so that the step follows the mean loss.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/random.h"
#include "gradus/autocast.h"
#include "gradus/autograd.h"
#include "gradus/loss_scale.h"
#include "gradus/ops.h"
#include "train/run.h"

/* --- the traced function ---------------------------------------------------------------------- */

static gd_tensor *scalar_like(const gd_tensor *x, double value) {
    gd_tensor *n = gd_scalar_of(value, (gd_dtype)x->dtype);
    return n->kind == GD_FAILED || n->device == x->device ? n : gd_to_device(n, x->device);
}

/* Calls the program's .step, which also runs backward. Its gradients are divided by the group size
 * later, in scale_grads. */
static gd_status call_step_function(gd_fit_run *r, gd_tensors batch, gd_batch_result *result) {
    char text[128];
    {
        GD_AUTOCAST(r->training->precision);
        *result =
            (gd_batch_result){.loss = r->options->step(r->net, gd_list_for(GD_READER_STEP, batch),
                                                       r->options->step_user)};
    }
    if (gd_failed()) return gd_failure();
    const gd_tensor *loss = result->loss;
    if (!loss || gd_tensor_numel(loss) != 1 || !gd_is_float(loss->dtype))
        return gd_fail(GD_E_ARGUMENT,
                       "gd_fit: the .step function must return the loss, one float; it returned %s",
                       loss ? gd_describe(loss, text, sizeof text) : "NULL");
    return gd_batches_mean_of(result, gd_batch_samples(batch));
}

/* Without a gradient the optimizer would change nothing. */
static gd_status check_backward(const gd_fit_run *r) {
    if (!r->training->optimizer) return GD_OK; /* .step has its own */
    for (int64_t i = 0; i < r->parameters.count; i++)
        if (gd_tensor_grad(r->parameters.at[i])) return GD_OK;
    return gd_failed() ? gd_failure()
                       : gd_fail(GD_E_STATE,
                                 "gd_fit: after the .step function no parameter of the net has a "
                                 "gradient: it must call gd_backward(loss) and keep the gradients "
                                 "for the optimizer of gd_compile; a step that updates the "
                                 "parameters itself needs .optimizer = NULL");
}

static gd_status scale_grads(gd_fit_run *r, double factor) {
    if (factor == 1) return GD_OK;
    GD_NO_GRAD;
    for (int64_t i = 0; i < r->parameters.count; i++) {
        gd_tensor *g = gd_tensor_grad(r->parameters.at[i]);
        if (g && gd_mul_(g, scalar_like(g, factor))->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

static gd_status forward_backward(gd_fit_run *r, gd_tensors batch, gd_batch_result *result) {
    GD_TRY(gd_batches_forward(&r->train, batch, result));
    if (!result->loss)
        return gd_fail(GD_E_STATE,
                       "gd_fit: the net was compiled without a loss; pass gd_compile a .loss or a "
                       ".loss_function, or gd_fit a .step");
    gd_tensor *loss = result->loss;
    if (r->group_size > 1) loss = gd_mul(loss, scalar_like(loss, 1 / (double)r->group_size));
    return gd_backward(gd_loss_scale_apply(r->training->scale, loss));
}

/* After the last batch of a group: clipping and the optimizer's step. */
static gd_status apply_grads(gd_fit_run *r) {
    const gd_training *t = r->training;
    if (!t->optimizer) return GD_OK;
    if (t->clip_norm > 0 || t->clip_value > 0)
        GD_TRY(gd_loss_scale_unscale(t->scale, t->optimizer));
    if (t->clip_norm > 0 &&
        gd_clip_grad_norm(r->parameters, t->clip_norm, .eps = t->clip_eps)->kind == GD_FAILED)
        return gd_failure();
    if (t->clip_value > 0) GD_TRY(gd_clip_grad_value(r->parameters, t->clip_value));
    return gd_loss_scale_step(t->scale, t->optimizer, .schedule = t->schedule);
}

static void free_grads(gd_fit_run *r) {
    if (!r->training->optimizer) return; /* the program's .step frees them itself */
    gd_optimizer_zero_grad(r->training->optimizer);
    for (int64_t i = 0; i < r->parameters.count; i++) gd_zero_grad(r->parameters.at[i]);
}

static gd_status train_batch(gd_fit_run *r, gd_tensors batch) {
    gd_batch_result result;
    const bool steps = r->group_done + 1 == r->group_size;
    if (r->options->step) {
        GD_TRY(call_step_function(r, batch, &result));
        GD_TRY(check_backward(r));
    } else {
        GD_TRY(forward_backward(r, batch, &result));
    }
    if (r->check_finite) GD_TRY(gd_run_check(r, &result));
    if (steps && r->options->step) GD_TRY(scale_grads(r, 1 / (double)r->group_size));
    if (steps) GD_TRY(apply_grads(r));
    GD_TRY(gd_batches_add(&r->train, &result));
    if (steps) free_grads(r);
    return GD_OK;
}

gd_status gd_run_forward_backward(gd_fit_run *r, gd_tensors batch, double *loss) {
    gd_batch_result result;
    if (r->options->step) GD_TRY(call_step_function(r, batch, &result));
    else GD_TRY(forward_backward(r, batch, &result));
    *loss = gd_item(result.loss);
    return gd_failed() ? gd_failure() : GD_OK;
}

gd_tensors gd_run_traced(gd_tensors batch, void *user) {
    const gd_status status = train_batch(user, batch);
    if (status != GD_OK) gd_report(NULL, status);
    return (gd_tensors){NULL, 0};
}

/* --- undoing an eager step -------------------------------------------------------------------- */

void gd_undo_free(gd_undo *u) {
    for (int i = 0; i < u->count; i++) {
        gd_release(u->tensors[i]);
        gd_release(u->copies[i]);
    }
    for (int i = 0; i < u->n_grads; i++) gd_release(u->grads[i]);
    gd_free(u->tensors);
    gd_free(u->copies);
    gd_free(u->grads);
    *u = (gd_undo){.count = 0};
}

static gd_status copy_tensors(gd_undo *u, gd_tensors list) {
    for (int64_t i = 0; i < list.count; i++) {
        gd_tensor *copy = gd_clone(gd_detach(list.at[i]));
        if (copy->kind == GD_FAILED) return gd_failure();
        u->copies[u->count] = gd_retain(copy);
        u->tensors[u->count++] = gd_retain(list.at[i]);
    }
    return GD_OK;
}

static gd_status copy_grads(gd_undo *u, gd_tensors parameters) {
    for (int64_t i = 0; i < parameters.count; i++) {
        gd_tensor *g = gd_tensor_grad(parameters.at[i]), *copy = g ? gd_clone(g) : NULL;
        if (copy && copy->kind == GD_FAILED) return gd_failure();
        u->grads[u->n_grads++] = gd_retain(copy);
    }
    return GD_OK;
}

static gd_status fill_undo(gd_fit_run *r, gd_undo *u) {
    GD_NO_GRAD;
    const bool all = r->options->step && !r->training->optimizer; /* .step changes parameters */
    gd_tensors buffers = gd_module_buffers_so_far(r->net);
    const size_t most = (size_t)(buffers.count + r->parameters.count) + 1;
    if (gd_failed()) return gd_failure();
    u->tensors = gd_calloc(most, sizeof *u->tensors);
    u->copies = gd_calloc(most, sizeof *u->copies);
    u->grads = gd_calloc(most, sizeof *u->grads);
    if (!u->tensors || !u->copies || !u->grads)
        return gd_no_memory(NULL, "to save the state of the net");
    GD_TRY(copy_tensors(u, buffers));
    if (all) GD_TRY(copy_tensors(u, r->parameters));
    return copy_grads(u, r->parameters);
}

gd_status gd_run_save(void *user) {
    gd_fit_run *r = user;
    gd_undo_free(&r->undo);
    r->undo.rng = gd_rng_state();
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    const gd_status status = fill_undo(r, &r->undo);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

/* Needs no memory on the CPU, so it cannot fail there. */
void gd_run_restore(void *user) {
    gd_fit_run *r = user;
    gd_undo *u = &r->undo;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    GD_NO_GRAD;
    for (int i = 0; i < u->count; i++) gd_assign(u->tensors[i], u->copies[i]);
    for (int i = 0; i < u->n_grads; i++) gd_set_grad(r->parameters.at[i], u->grads[i]);
    gd_scope_close(&scope);
    gd_attempt_end(&attempt, GD_OK);
    gd_rng_restore(u->rng);
}

/* --- one batch of the run --------------------------------------------------------------------- */

/* The number of batches of the group that begins now. */
static int64_t next_group_size(const gd_fit_run *r) {
    int64_t size = r->training->accumulate;
    const int64_t batches = gd_run_epoch_batches(r), most = r->options->max_steps;
    if (batches > r->batch && batches - r->batch < size) size = batches - r->batch;
    if (most > 0 && most - r->step < size) size = most - r->step;
    return size > 0 ? size : 1;
}

gd_status gd_run_step(gd_fit_run *r, gd_tensors batch) {
    if (r->group_done == 0) r->group_size = next_group_size(r);
    const bool steps = r->group_done + 1 == r->group_size;
    const gd_rng before = gd_rng_state();
    const gd_batch_call call = {.fn = gd_run_traced,
                                .user = r,
                                .key = r->group_size << 2 | (int64_t)steps << 1 |
                                       (int64_t)r->check_finite,
                                .save = gd_run_save,
                                .restore = gd_run_restore};
    const gd_status status = gd_batches_call(&r->train, &call, batch, NULL);
    if (r->undo.count || r->undo.n_grads) gd_undo_free(&r->undo);
    if (status != GD_OK) {
        gd_rng_restore(before);
        return r->check_finite ? gd_run_explain(r, batch, status) : status;
    }
    r->group_done = steps ? 0 : r->group_done + 1;
    return GD_OK;
}

gd_status gd_run_finish_group(gd_fit_run *r) {
    if (r->group_done == 0) return GD_OK;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    /* losses were divided by the expected size of the group */
    const double factor = r->options->step ? 1 / (double)r->group_done
                                           : (double)r->group_size / (double)r->group_done;
    gd_status status = scale_grads(r, factor);
    if (status == GD_OK) status = apply_grads(r);
    if (status == GD_OK) free_grads(r);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    r->group_done = 0;
    return status;
}
