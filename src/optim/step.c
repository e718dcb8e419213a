/* step.c - one step of an optimizer: eager, in a trace, and in a graph (gd_minimize). */
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "gradus/ops.h"
#include "gradus/session.h"
#include "dispatch/autocast.h"
#include "dispatch/call.h"
#include "nn/module.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"

/* --- calls for update rules ------------------------------------------------------------------- */

const void *gd_update_options(const gd_update *u) { return u->part->options; }
gd_tensor *gd_update_lr(const gd_update *u) { return u->lr; }
gd_tensor *gd_update_count(const gd_update *u) { return u->count; }

static gd_status run_each(gd_update *u, const gd_op *op, const void *options, gd_tensors scalars) {
    gd_optim_part *part = u->part;
    const int slots = u->group->needs.count, width = slots + 2;
    if (!op) return gd_fail(GD_E_ARGUMENT, "gd_update_each: there is no such op");
    if (scalars.count > GD_EACH_INPUTS - 1)
        return gd_fail(GD_E_ARGUMENT, "gd_update_each: %lld scalars", (long long)scalars.count);
    if (op->n_inputs != width + (int)scalars.count || !op->ir || op->n_mutated != 1 + slots)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_update_each: %s does not fit: %s needs an elementwise op that writes %d "
                       "inputs and has %d in all: the parameter, its slots, the gradient, the "
                       "scalars",
                       op->name, u->optimizer->factory->record.name, 1 + slots,
                       width + (int)scalars.count);
    for (int e = 0; e < u->n_entries; e++) {
        const int i = u->entries[e];
        gd_tensor **in = part->work + e * width;
        in[0] = part->parameters[i];
        memcpy(in + 1, part->slots + i * slots, (size_t)slots * sizeof *in);
        in[width - 1] = part->gradients[i];
    }
    if (u->called) return gd_fail(GD_E_STATE, "gd_update_each: an update calls it once");
    u->called = true;
    if (!part->views)
        part->views = gd_malloc(gd_each_views(part->count, width, 1 + slots) * sizeof *part->views);
    if (!part->views) return gd_no_memory(NULL, "for a step");
    gd_tensor *all[GD_EACH_INPUTS];
    const void *attrs = options ? options : op->defaults;
    for (int64_t i = 0; i < scalars.count; i++) all[i] = scalars.at[i];
    if (u->skip) {
        all[scalars.count++] = u->skip;
        if (!(op = gd_op_unless(op))) return GD_E_MEMORY;
    }
    const gd_each each = {.op = op,
                          .views = part->views,
                          .attrs = attrs,
                          .in = part->work,
                          .count = u->n_entries,
                          .scalars = all,
                          .n_scalars = (int)scalars.count,
                          .which = u->n_entries < part->count ? u->entries : NULL};
    GD_TRY(gd_dispatch_each(&each, NULL, u->done + u->n_done));
    u->n_done += u->n_entries;
    return GD_OK;
}

void gd_update_each(gd_update *u, const char *op, const void *options, gd_tensors scalars) {
    for (int64_t i = 0; i < scalars.count && u->status == GD_OK; i++)
        if (!scalars.at[i] || scalars.at[i]->kind == GD_FAILED) u->status = gd_failure();
    if (u->status == GD_OK) u->status = run_each(u, gd_op_find(op), options, scalars);
}

/* --- the step of a part ----------------------------------------------------------------------- */

/* 1 for parameters that have a gradient, 0 for others. */
static gd_tensor *gradient_mask(const gd_update *u) {
    GD_EAGER;
    const gd_optim_part *part = u->part;
    double *mask = gd_calloc((size_t)part->count, sizeof *mask);
    if (!mask) return gd_tensor_fail(gd_no_memory(NULL, "for a step"));
    for (int e = 0; e < u->n_entries; e++) mask[u->entries[e]] = 1;
    gd_tensor *t = gd_from_array(gd_dims(part->count), GD_F64, mask);
    gd_free(mask);
    return t;
}

static gd_status count_step(gd_update *u) {
    gd_tensor *steps = u->part->steps,
              *more = u->n_entries == u->part->count ? gd_scalar_of(1, GD_F64) : gradient_mask(u);
    if (u->skip) more = gd_where(gd_cast(u->skip, GD_BOOL), gd_scalar_of(0, GD_F64), more);
    u->count = gd_assign(steps, gd_add(steps, more));
    if (u->count->kind == GD_FAILED) return gd_failure();
    u->done[u->n_done++] = u->count;
    return GD_OK;
}

static gd_status step_part(gd_update *u) {
    const gd_optimizer_rules *rules = u->optimizer->factory->rules;
    u->n_entries = 0;
    for (int i = 0; i < u->part->count; i++)
        if (u->part->gradients[i]) u->entries[u->n_entries++] = i;
    if (u->n_entries == 0) return GD_OK;
    const double factor = u->part->factors.lr;
    u->lr = factor == 1 ? u->group->lr : gd_mul(u->group->lr, gd_scalar_of(factor, GD_F64));
    u->count = NULL;
    u->called = false;
    if (u->group->needs.counts) GD_TRY(count_step(u));
    rules->update(u);
    return u->status;
}

/* One step with the gradients of the parts. */
gd_status gd_optimizer_advance(gd_optimizer *o, gd_tensor *skip, gd_tensor **done, int *n_done) {
    gd_update u = {.optimizer = o, .skip = skip, .done = done, .n_done = *n_done};
    u.entries = gd_malloc((size_t)o->n_parameters * sizeof *u.entries);
    if (!u.entries) return gd_no_memory(NULL, "for a step");
    gd_status status = GD_OK;
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts && status == GD_OK; k++) {
            u.group = &o->groups[g];
            u.part = &o->groups[g].parts[k];
            gd_device *before = gd_this_thread.device; /* constants go to the parameters' device */
            gd_this_thread.device = u.part->parameters[0]->device;
            status = step_part(&u);
            gd_this_thread.device = before;
        }
    *n_done = u.n_done;
    gd_free(u.entries);
    return status;
}

static int part_count(const gd_optimizer *o) {
    int n = 0;
    for (int g = 0; g < o->n_groups; g++) n += o->groups[g].n_parts;
    return n;
}

/* Room for parameters, counts, and the symbols of a schedule and of a loss scale. */
gd_tensor **gd_optimizer_room(const gd_optimizer *o) {
    gd_tensor **done =
        gd_calloc((size_t)(o->n_parameters + part_count(o) + o->n_groups + 1 + GD_LOSS_SCALE_STATE),
                  sizeof *done);
    if (!done) gd_no_memory(NULL, "for a step");
    return done;
}

/* --- eager, and in a trace -------------------------------------------------------------------- */

/* The gradient of each parameter; NULL: it has none, or is frozen. */
static gd_status find_gradients(const gd_optim_part *part) {
    for (int i = 0; i < part->count; i++) {
        gd_tensor *p = part->parameters[i], *g = NULL;
        if (!p->requires_grad)
            GD_TRY(gd_graph_record_capture(gd_graph_building(), p)); /* unfrozen: traces again */
        else g = gd_tensor_grad(p);
        if (g && g->kind == GD_FAILED) return gd_failure();
        part->gradients[i] = g;
    }
    return GD_OK;
}

gd_status gd_optimizer_find_gradients(const gd_optimizer *o) {
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            GD_TRY(find_gradients(&o->groups[g].parts[k]));
    return GD_OK;
}

/* Fails while the module of an optimizer has no parameters: a step would train nothing. */
static gd_status check_collected(const gd_optimizer *o, const char *what) {
    char text[300];
    if (o->n_parameters > 0) return GD_OK;
    const bool unbuilt =
        o->of && o->of->module && gd_module_unbuilt(o->of->module, NULL, text, sizeof text) > 0;
    if (!unbuilt)
        return gd_fail(GD_E_STATE, "%s: the module of the optimizer has no parameters", what);
    return gd_fail(GD_E_STATE,
                   "%s: the module of the optimizer has no parameters yet: the sizes of %s are "
                   "GD_ANY; call the module on a batch first",
                   what, text);
}

gd_status gd_optimizer_check_step(gd_optimizer *o, const char *what) {
    if (!o) return gd_fail(GD_E_ARGUMENT, "%s: the optimizer is NULL", what);
    if (o->in_graph)
        return gd_fail(GD_E_STATE, "%s: its parameters are variables of a graph; use gd_minimize",
                       what);
    if (gd_this_thread.tracer && !gd_grads_are_traced())
        return gd_fail(GD_E_STATE,
                       "%s: a graph is being built; use gd_minimize in it, or trace the step with "
                       "gd_jit",
                       what);
    GD_TRY(gd_optimizer_arrange(o));
    GD_TRY(check_collected(o, what));
    return gd_trace_record_value(&o->object, &o->revision);
}

static gd_status take_step(gd_optimizer *o) {
    GD_TRY(gd_optimizer_check_step(o, "gd_optimizer_step"));
    gd_tensor **done = gd_optimizer_room(o);
    if (!done) return GD_E_MEMORY;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin(), n_done = 0;
    gd_status status = gd_optimizer_find_gradients(o);
    if (status == GD_OK) status = gd_optimizer_make_state(o);
    gd_transaction updates; /* changes all parameters or, after a failure, none */
    gd_transaction_begin(&updates);
    if (status == GD_OK) status = gd_optimizer_advance(o, NULL, done, &n_done);
    status = gd_transaction_end(&updates, status);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    gd_free(done);
    return gd_attempt_end(&attempt, status);
}

gd_status gd_optimizer_step_at(const char *site, gd_optimizer *o) {
    GD_LIVE_AT(site, o);
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    GD_NO_AUTOCAST;
    return gd_report(site, take_step(o));
}

/* --- in a graph ------------------------------------------------------------------------------- */

/* The gradients of the loss with respect to all parameters that are not frozen. */
static gd_status find_symbols(gd_optimizer *o, gd_tensor *loss, gd_tensor **list) {
    int n = 0;
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++) {
                gd_tensor *p = o->groups[g].parts[k].parameters[i];
                if (!p->requires_grad) GD_TRY(gd_graph_record_capture(gd_graph_building(), p));
                else list[n++] = p;
            }
    if (n == 0) return gd_fail(GD_E_STATE, "gd_minimize: all parameters are frozen");
    const gd_tensors gradients =
        gd_grad(gd_list(loss), ((gd_tensors){list, n}), .allow_unused = true);
    if (gd_failed() || gradients.count != n) return gd_failure();
    n = 0;
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++)
                o->groups[g].parts[k].gradients[i] =
                    o->groups[g].parts[k].parameters[i]->requires_grad ? gradients.at[n++] : NULL;
    return GD_OK;
}

static gd_status minimize_loss(gd_optimizer *o, gd_tensor *loss, const gd_minimize_options *options,
                               gd_tensor **done, int *n_done) {
    gd_loss_scale *scale = options->loss_scale;
    gd_verdict verdict = {.skip = NULL};
    if (scale) GD_TRY(gd_loss_scale_begin(scale, o, &loss));
    GD_TRY(find_symbols(o, loss, done));
    int before = gd_no_grad_begin();
    gd_status status = scale ? gd_loss_scale_symbols(scale, o, &verdict) : GD_OK;
    if (status == GD_OK)
        status = gd_clip_symbols(o, options->clip_norm, options->clip_eps, options->clip_value);
    if (status == GD_OK) status = gd_optimizer_make_state(o);
    if (status == GD_OK) status = gd_optimizer_advance(o, verdict.skip, done, n_done);
    if (status == GD_OK && options->schedule)
        status = gd_schedule_advance(options->schedule, verdict.skip, done, n_done);
    if (status == GD_OK && verdict.skip)
        status = gd_loss_scale_assign(scale, &verdict, done, n_done);
    gd_grad_mode_end(&before);
    return status;
}

/* gd_group of any number of symbols. */
static gd_tensor *group_symbols(gd_tensor **done, int n) {
    while (n > GD_MAX_VARIADIC) {
        int groups = 0;
        for (int from = 0; from < n; from += GD_MAX_VARIADIC) {
            const int count = n - from < GD_MAX_VARIADIC ? n - from : GD_MAX_VARIADIC;
            gd_tensor *some = gd_group(((gd_tensors){done + from, count}));
            if (some->kind == GD_FAILED) return some;
            done[groups++] = some;
        }
        n = groups;
    }
    return gd_group(((gd_tensors){done, n}));
}

static const char *check_minimize(const gd_optimizer *o, const gd_tensor *loss,
                                  const gd_minimize_options *options) {
    if (!o) return "the optimizer is NULL";
    if (!loss || loss->kind != GD_SYMBOL)
        return "the loss is not a symbol; use gd_backward and gd_optimizer_step";
    if (gd_numel(loss->rank, loss->dims) != 1) return "the loss has more than one element";
    if (o->in_graph && !gd_optimizer_graph(o)) return "the graph of its parameters was freed";
    if (!o->in_graph && !(loss->node->origin && loss->node->origin->graph))
        return "the graph of the loss was freed";
    if (!(options->clip_norm >= 0)) return "clip_norm must be in [0, inf]";
    if (!(options->clip_eps >= 0)) return "clip_eps must be in [0, inf]";
    if (!(options->clip_value >= 0)) return "clip_value must be in [0, inf]";
    if (options->schedule && gd_schedule_optimizer(options->schedule) != o)
        return "the schedule belongs to another optimizer";
    return NULL;
}

gd_tensor *gd_minimize_at(const char *site, gd_optimizer *o, gd_tensor *loss,
                          const gd_minimize_options *options) {
    GD_LIVE_AT(site, o);
    options = options ? options : GD_MINIMIZE_OPTIONS_();
    if (loss && loss->kind == GD_FAILED) return loss;
    GD_CALLED_FROM(site); /* also for the nodes that it adds */
    GD_NO_AUTOCAST;
    const char *wrong = check_minimize(o, loss, options);
    if (wrong) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_minimize: %s", wrong));
    gd_status ready = gd_optimizer_arrange(o);
    if (ready == GD_OK) ready = check_collected(o, "gd_minimize");
    if (ready != GD_OK) return gd_tensor_fail(ready);
    gd_tensor **done = gd_optimizer_room(o);
    if (!done) return gd_tensor_fail(GD_E_MEMORY);
    gd_block block =
        gd_graph_begin(o->in_graph ? gd_optimizer_graph(o) : loss->node->origin->graph);
    gd_scope *scope = gd_scope_open();
    int n_done = 0;
    gd_status status = minimize_loss(o, loss, options, done, &n_done);
    gd_tensor *train = status == GD_OK ? group_symbols(done, n_done) : gd_tensor_fail(status);
    if (train->kind != GD_FAILED) gd_keep(train);
    gd_scope_close(&scope);
    gd_graph_end(&block);
    gd_free(done);
    return train;
}
