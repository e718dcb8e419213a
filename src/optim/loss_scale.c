/* loss_scale.c - loss scaling (gradus/loss_scale.h).
 *
 * One number decides whether a step is skipped: the largest absolute value of all gradients, which
 * is infinite or NaN if any element is. Everything else is computed from it by ordinary ops, so it
 * works in plans, too: the updates have an operand `skip` (gd_op_unless), and the same condition
 * selects the new scale.
 */
#include "optim/loss_scale.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/state.h"
#include "gradus/ops.h"
#include "gradus/schedule.h"
#include "dispatch/autocast.h"
#include "dispatch/call.h"

const char *const gd_loss_scale_names[GD_LOSS_SCALE_STATE] = {"scale", "good_steps",
                                                              "skipped_steps"};

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_loss_scale(gd_object *object) {
    gd_loss_scale *s = (gd_loss_scale *)object;
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++) gd_release(s->state[i]);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class loss_scale_class = {
    .name = "loss_scale", .destroy = destroy_loss_scale, .state = &gd_loss_scale_state_rules};
GD_KNOWN_CLASS(loss_scale_class)

static gd_status check_options(const gd_loss_scale_options *o) {
    const char *range = !(o->start > 0 && o->start <= FLT_MAX)      ? "start must be in (0, 3.4e38]"
                        : !(o->growth >= 1 && o->growth < INFINITY) ? "growth must be in [1, inf)"
                        : !(o->backoff > 0 && o->backoff <= 1)      ? "backoff must be in (0, 1]"
                        : o->interval < 1                           ? "interval must be at least 1"
                                                                    : NULL;
    if (!range) return GD_OK;
    return gd_fail(GD_E_ARGUMENT,
                   "gd_loss_scale_new: %s (start %g, growth %g, backoff %g, interval %lld)", range,
                   o->start, o->growth, o->backoff, (long long)o->interval);
}

static gd_status make_state(gd_loss_scale *s) {
    GD_EAGER;
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++) {
        gd_tensor *t = i == GD_LOSS_SCALE_SCALE
                           ? gd_full(gd_dims(), s->options.start, .dtype = GD_F32)
                           : gd_full(gd_dims(), 0.0, .dtype = GD_F64);
        if (t->kind == GD_FAILED) return gd_failure();
        s->state[i] = gd_retain(t);
    }
    return GD_OK;
}

static gd_status make_loss_scale(const gd_loss_scale_options *options, gd_loss_scale **made) {
    GD_TRY(check_options(options));
    gd_loss_scale *s = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *s) : NULL;
    if (!s) return gd_no_memory(NULL, "for a loss scale");
    gd_object_init(&s->object, &loss_scale_class);
    gd_object_count(1);
    s->options = *options;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = make_state(s);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status != GD_OK) {
        gd_object_release(&s->object);
        return status;
    }
    gd_scope_adopt(&s->object);
    *made = s;
    return GD_OK;
}

gd_loss_scale *gd_loss_scale_new_at(const char *site, const gd_loss_scale_options *options) {
    options = options ? options : GD_LOSS_SCALE_OPTIONS_();
    GD_CALLED_FROM(site);
    gd_loss_scale *s = NULL;
    gd_report(site, make_loss_scale(options, &s));
    return s;
}

static gd_tensor *state_of(const char *site, const gd_loss_scale *s, int which, const char *what) {
    GD_CALLED_FROM(site);
    if (!s) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "%s: the loss scale is NULL", what));
    gd_tensor *t = gd_retain(s->state[which]);
    const gd_status status = gd_scope_take(&t->object);
    return status == GD_OK ? t : gd_tensor_fail(status);
}

gd_tensor *gd_loss_scale_value_at(const char *site, gd_loss_scale *s) {
    GD_LIVE_AT(site, s);
    return state_of(site, s, GD_LOSS_SCALE_SCALE, "gd_loss_scale_value");
}

gd_tensor *gd_loss_scale_skipped_at(const char *site, gd_loss_scale *s) {
    GD_LIVE_AT(site, s);
    return state_of(site, s, GD_LOSS_SCALE_SKIPPED, "gd_loss_scale_skipped");
}

/* --- eager tensors or variables --------------------------------------------------------------- */

/* Moves the state to the device of the parameters. The handles stay, since traces hold them. */
static gd_status move_state(gd_loss_scale *s, gd_device *device, const char *what) {
    if (s->home == GD_LOSS_SCALE_GRAPH)
        return gd_fail(GD_E_STATE,
                       "%s: the loss scale belongs to the variables of a graph; it is part of "
                       "gd_minimize(optimizer, loss, .loss_scale = it)",
                       what);
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++) {
        if (s->state[i]->device == device) continue;
        GD_EAGER;
        GD_NO_GRAD;
        gd_tensor *moved = gd_to_device(s->state[i], device);
        if (moved->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_tensor_become(s->state[i], moved));
    }
    s->home = GD_LOSS_SCALE_EAGER;
    return GD_OK;
}

/* Makes the state variables of the optimizer's graph: "loss_scale/scale". */
static gd_status make_variables(gd_loss_scale *s, const gd_optimizer *o) {
    if (s->home == GD_LOSS_SCALE_EAGER)
        return gd_fail(GD_E_STATE, "the loss scale has been used with parameters that are not "
                                   "variables of this graph; create one for this optimizer");
    if (s->home == GD_LOSS_SCALE_GRAPH) {
        const gd_node *node = s->state[0]->node;
        if (node->origin && node->origin->graph == gd_optimizer_graph(o)) return GD_OK;
        return gd_fail(GD_E_STATE, "the loss scale belongs to another graph");
    }
    gd_tensor *variables[GD_LOSS_SCALE_STATE];
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++) {
        char name[64];
        snprintf(name, sizeof name, "loss_scale/%s", gd_loss_scale_names[i]);
        variables[i] = gd_optimizer_state_tensor(o, s->state[i], name);
        if (variables[i]) continue;
        while (i-- > 0) gd_release(variables[i]);
        return gd_failure();
    }
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++) {
        gd_release(s->state[i]);
        s->state[i] = variables[i];
    }
    s->home = GD_LOSS_SCALE_GRAPH;
    return GD_OK;
}

/* --- the loss --------------------------------------------------------------------------------- */

/* At least in f32: an f16 loss would overflow. */
static gd_tensor *scale_loss(const gd_loss_scale *s, gd_tensor *loss) {
    if (loss->dtype == GD_F16 || loss->dtype == GD_BF16) loss = gd_cast(loss, GD_F32);
    return gd_mul(loss, s->state[GD_LOSS_SCALE_SCALE]);
}

static gd_status apply_scale(gd_loss_scale *s, gd_tensor *loss, gd_tensor **result) {
    if (!loss) return gd_fail(GD_E_ARGUMENT, "gd_loss_scale_apply: the loss is NULL");
    if (loss->kind != GD_FAILED && !gd_dtype_is_float((gd_dtype)loss->dtype))
        return gd_fail(GD_E_DTYPE, "gd_loss_scale_apply: the loss is %s; it must be float",
                       gd_dtype_name((gd_dtype)loss->dtype));
    if (!s || loss->kind == GD_FAILED) {
        *result = gd_retain(loss); /* the caller gets its own reference */
        return gd_scope_take(&loss->object);
    }
    GD_TRY(move_state(s, loss->device, "gd_loss_scale_apply"));
    s->unscaled = false;
    *result = scale_loss(s, loss);
    return (*result)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_tensor *gd_loss_scale_apply_at(const char *site, gd_loss_scale *s, gd_tensor *loss) {
    GD_LIVE_AT(site, s);
    if (loss && loss->kind == GD_FAILED) return loss;
    GD_CALLED_FROM(site);
    GD_NO_AUTOCAST;
    gd_scope *scope = gd_scope_open();
    gd_tensor *y = NULL;
    const gd_status status = apply_scale(s, loss, &y);
    if (status == GD_OK) gd_keep(y);
    gd_scope_close(&scope);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

gd_status gd_loss_scale_begin(gd_loss_scale *s, const gd_optimizer *o, gd_tensor **loss) {
    gd_status status =
        o->in_graph ? make_variables(s, o) : move_state(s, (*loss)->device, "gd_minimize");
    if (status == GD_OK) *loss = scale_loss(s, *loss);
    if (status == GD_OK && (*loss)->kind == GD_FAILED) status = gd_failure();
    if (status != GD_OK) gd_error_prefix("gd_minimize: ");
    return status;
}

/* --- the decision about a step ---------------------------------------------------------------- */

static gd_tensor *f64_scalar(double value) { return gd_scalar_of(value, GD_F64); }

/* 1 / scale, f64 */
static gd_tensor *inverse_scale(const gd_loss_scale *s) {
    return gd_div(f64_scalar(1), gd_cast(s->state[GD_LOSS_SCALE_SCALE], GD_F64));
}

/* The next state. `fine` is a bool. */
static gd_status next_state(const gd_loss_scale *s, gd_tensor *fine, gd_verdict *v) {
    const gd_loss_scale_options *o = &s->options;
    gd_tensor *scale = s->state[GD_LOSS_SCALE_SCALE], *zero = f64_scalar(0),
              *good = gd_add(s->state[GD_LOSS_SCALE_GOOD], f64_scalar(1)),
              *grows = gd_ge(good, f64_scalar((double)o->interval)),
              *larger = gd_mul(scale, gd_scalar_of(o->growth, GD_F32)),
              *smaller = gd_mul(scale, gd_scalar_of(o->backoff, GD_F32));
    larger = gd_where(gd_isfinite(larger), larger, scale);
    smaller = gd_maximum(smaller, gd_scalar_of(FLT_MIN, GD_F32)); /* avoids a division by 0 */
    v->next[GD_LOSS_SCALE_SCALE] = gd_where(fine, gd_where(grows, larger, scale), smaller);
    v->next[GD_LOSS_SCALE_GOOD] = gd_where(fine, gd_where(grows, zero, good), zero);
    v->next[GD_LOSS_SCALE_SKIPPED] = gd_add(s->state[GD_LOSS_SCALE_SKIPPED], v->skip);
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++)
        if (v->next[i]->kind == GD_FAILED) return gd_failure();
    return GD_OK;
}

/* Decides about a step. `factor` unscales gradients that are still scaled, or is NULL. Empty
 * gradients are ignored. */
static gd_status judge_gradients(const gd_loss_scale *s, gd_tensor *const *gradients, int n,
                                 gd_tensor *factor, gd_verdict *v) {
    gd_tensor **some = gd_malloc((size_t)n * sizeof *some);
    if (!some) return gd_fail(GD_E_MEMORY, "no memory for %d gradients", n);
    int count = 0;
    for (int i = 0; i < n; i++)
        if (gd_numel(gradients[i]->rank, gradients[i]->dims) != 0) some[count++] = gradients[i];
    gd_tensor *most = count > 0 ? gd_gradients_norm(some, count, INFINITY) : f64_scalar(0);
    gd_free(some);
    if (factor) most = gd_mul(most, factor);
    gd_tensor *fine = gd_isfinite(most);
    v->skip = gd_cast(gd_logical_not(fine), GD_F64);
    if (v->skip->kind == GD_FAILED) return gd_failure();
    return next_state(s, fine, v);
}

gd_status gd_loss_scale_assign(const gd_loss_scale *s, const gd_verdict *v, gd_tensor **done,
                               int *n_done) {
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++) {
        gd_tensor *t = done[(*n_done)++] = gd_assign(s->state[i], v->next[i]);
        if (t->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

/* --- gradients that are symbols of a graph ---------------------------------------------------- */

static gd_status unscale_symbols(const gd_loss_scale *s, gd_tensor ***at, gd_tensor **gradients,
                                 int n, gd_verdict *v) {
    gd_tensor *factor = inverse_scale(s);
    for (int i = 0; i < n; i++) {
        gd_tensor *g = *at[i];
        g = gd_mul(g, gd_factor_for(factor, (gd_dtype)g->dtype));
        if (g->kind == GD_FAILED) return gd_failure();
        *at[i] = gradients[i] = g;
    }
    return judge_gradients(s, gradients, n, NULL, v);
}

gd_status gd_loss_scale_symbols(gd_loss_scale *s, const gd_optimizer *o, gd_verdict *v) {
    gd_tensor ***at = gd_calloc((size_t)o->n_parameters, sizeof *at);
    gd_tensor **gradients = gd_calloc((size_t)o->n_parameters, sizeof *gradients);
    gd_status status = at && gradients ? GD_OK : gd_no_memory(NULL, "for a step");
    const int n = status == GD_OK ? gd_optimizer_gradients(o, at) : 0;
    if (n > 0) status = unscale_symbols(s, at, gradients, n, v);
    gd_free(at);
    gd_free(gradients);
    return status;
}

/* --- gradients of leaves: eager, and in a trace ----------------------------------------------- */

/* Lists the gradients of the optimizer; the caller frees the list. */
static gd_status list_gradients(const gd_optimizer *o, gd_tensor ***list, int *n) {
    GD_TRY(gd_optimizer_find_gradients(o));
    gd_tensor ***at = gd_calloc((size_t)o->n_parameters, sizeof *at);
    *list = gd_calloc((size_t)o->n_parameters, sizeof **list);
    gd_status status = at && *list ? GD_OK : gd_no_memory(NULL, "for a step");
    *n = status == GD_OK ? gd_optimizer_gradients(o, at) : 0;
    for (int i = 0; i < *n; i++) (*list)[i] = *at[i];
    gd_free(at);
    return status;
}

static gd_status unscale_gradients(gd_loss_scale *s, const gd_optimizer *o) {
    gd_tensor **gradients = NULL;
    int n = 0;
    gd_status status = list_gradients(o, &gradients, &n);
    if (status == GD_OK && n > 0)
        status = move_state(s, gradients[0]->device, "gd_loss_scale_unscale");
    gd_view *views = status == GD_OK ? gd_gradients_views(n) : NULL;
    if (status == GD_OK && !views) status = GD_E_MEMORY;
    gd_transaction updates; /* changes all gradients or, after a failure, none */
    gd_transaction_begin(&updates);
    if (status == GD_OK && n > 0)
        status = gd_gradients_scale(gradients, n, inverse_scale(s), views);
    status = gd_transaction_end(&updates, status);
    gd_free(views);
    gd_free(gradients);
    return status;
}

static gd_status unscale_now(gd_loss_scale *s, gd_optimizer *o) {
    GD_TRY(gd_optimizer_check_step(o, "gd_loss_scale_unscale"));
    if (!s) return GD_OK;
    if (s->unscaled)
        return gd_fail(GD_E_STATE,
                       "gd_loss_scale_unscale: the gradients are unscaled already; the next calls "
                       "are gd_loss_scale_step and gd_loss_scale_apply");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = unscale_gradients(s, o);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    s->unscaled = status == GD_OK;
    s->unscaled_in = gd_this_thread.tracer;
    return status;
}

gd_status gd_loss_scale_unscale_at(const char *site, gd_loss_scale *s, gd_optimizer *o) {
    GD_LIVE_AT(site, s);
    GD_LIVE_AT(site, o);
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    GD_NO_AUTOCAST;
    return gd_report(site, unscale_now(s, o));
}

/* --- a step ----------------------------------------------------------------------------------- */

/* The new values of a step, which are computed before the first write. */
typedef struct step_values {
    gd_loss_scale *scale;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
    gd_tensor **gradients;
    int n;
    gd_view *views;
    gd_tensor *factor; /* unscales the gradients; NULL: they are unscaled */
    gd_verdict verdict;
    gd_tensor *step, **rates; /* of the schedule */
    gd_tensor **done;
} step_values;

static gd_status prepare_values(step_values *w) {
    gd_loss_scale *s = w->scale;
    GD_TRY(move_state(s, w->gradients[0]->device, "gd_loss_scale_step"));
    w->factor = s->unscaled ? NULL : inverse_scale(s);
    w->views = gd_gradients_views(w->n);
    w->done = gd_optimizer_room(w->optimizer);
    w->rates = gd_calloc((size_t)w->optimizer->n_groups + 1, sizeof *w->rates);
    if (!w->views || !w->done || !w->rates) return gd_no_memory(NULL, "for a step");
    GD_TRY(judge_gradients(s, w->gradients, w->n, w->factor, &w->verdict));
    GD_TRY(gd_optimizer_make_state(w->optimizer));
    if (!w->schedule) return GD_OK;
    return gd_schedule_next(w->schedule, w->verdict.skip, &w->step, w->rates);
}

static gd_status write_values(const step_values *w) {
    int n_done = 0;
    if (w->factor) GD_TRY(gd_gradients_scale(w->gradients, w->n, w->factor, w->views));
    GD_TRY(gd_optimizer_find_gradients(w->optimizer)); /* in a trace they are new symbols */
    GD_TRY(gd_optimizer_advance(w->optimizer, w->verdict.skip, w->done, &n_done));
    if (w->schedule) GD_TRY(gd_schedule_assign(w->schedule, w->step, w->rates, w->done, &n_done));
    return gd_loss_scale_assign(w->scale, &w->verdict, w->done, &n_done);
}

static gd_status run_step(step_values *w) {
    GD_TRY(prepare_values(w));
    gd_transaction updates; /* changes everything or, after a failure, nothing */
    gd_transaction_begin(&updates);
    return gd_transaction_end(&updates, write_values(w));
}

static gd_status check_step(const gd_loss_scale *s, gd_optimizer *o, const gd_schedule *schedule) {
    GD_TRY(gd_optimizer_check_step(o, "gd_loss_scale_step"));
    if (schedule && gd_schedule_optimizer(schedule) != o)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_loss_scale_step: the schedule belongs to another optimizer");
    if (s && s->unscaled && s->unscaled_in != gd_this_thread.tracer)
        return gd_fail(GD_E_STATE,
                       "gd_loss_scale_step: gd_loss_scale_unscale was called outside of "
                       "the function that is traced; call both in it, or both outside");
    return GD_OK;
}

static gd_status take_step(gd_loss_scale *s, gd_optimizer *o, gd_schedule *schedule) {
    GD_TRY(check_step(s, o, schedule));
    if (!s) {
        GD_TRY(gd_optimizer_step(o));
        return schedule ? gd_schedule_step(schedule) : GD_OK;
    }
    step_values w = {.scale = s, .optimizer = o, .schedule = schedule};
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = list_gradients(o, &w.gradients, &w.n);
    if (status == GD_OK && w.n > 0) status = run_step(&w);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    gd_free(w.gradients);
    gd_free(w.views);
    gd_free(w.done);
    gd_free(w.rates);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) s->unscaled = false;
    /* without gradients there is nothing to skip */
    return status == GD_OK && w.n == 0 && schedule ? gd_schedule_step(schedule) : status;
}

gd_status gd_loss_scale_step_at(const char *site, gd_loss_scale *s, gd_optimizer *o,
                                const gd_loss_scale_step_options *options) {
    GD_LIVE_AT(site, s);
    GD_LIVE_AT(site, o);
    options = options ? options : GD_LOSS_SCALE_STEP_OPTIONS_();
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    GD_NO_AUTOCAST;
    return gd_report(site, take_step(s, o, options->schedule));
}
