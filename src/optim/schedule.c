/* schedule.c - learning-rate schedules: creation, steps, warm-up. */
#include "optim/schedule.h"

#include <stdio.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "gradus/ops.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"

static const gd_schedule_rules *rules_of(const gd_schedule *s) { return s->factory->rules; }

static void destroy_schedule(gd_object *object) {
    gd_schedule *s = (gd_schedule *)object;
    gd_release(s->step);
    gd_release(s->optimizer);
    gd_free(s->options);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class schedule_class = {
    .name = "schedule", .destroy = destroy_schedule, .state = &gd_schedule_state_rules};
GD_KNOWN_CLASS(schedule_class)

const char *gd_schedule_type(const gd_schedule *s) {
    GD_LIVE(s);
    return s ? s->factory->record.name : "";
}

const gd_optimizer *gd_schedule_optimizer(const gd_schedule *s) { return s->optimizer; }

/* --- rates ------------------------------------------------------------------------------------ */

static gd_tensor *f64_scalar(double value) { return gd_scalar_of(value, GD_F64); }

static double option_value(const gd_schedule *s, const char *name, double by_default) {
    const gd_op_attr *attr = NULL;
    return gd_factory_option(s->factory, s->options, name, &attr)
               ? gd_attr_number(attr, s->options).value
               : by_default;
}

/* The rate after `step` steps without the warm-up. */
static gd_tensor *rate_at(const gd_schedule *s, gd_tensor *step, gd_tensor *base) {
    if (s->last > 0) step = gd_minimum(step, f64_scalar(s->last));
    return rules_of(s)->rate(s->options, step, base);
}

void gd_schedule_stay(gd_schedule *s, int64_t last) { s->last = (double)last; }

bool gd_schedule_has_ended(const gd_schedule *s) {
    return s->last > 0 && gd_item(s->step) >= s->last + option_value(s, "warmup", 0);
}

double gd_schedule_passed(const gd_schedule *s, bool *stays) {
    const double steps = option_value(s, "steps", 0), warmup = option_value(s, "warmup", 0);
    if (s->last > 0 || steps <= 0) return 0;
    GD_SCOPE;
    const double step = gd_item(s->step) - warmup;
    if (step < steps) return 0;
    gd_tensor *one = f64_scalar(1);
    const double now = gd_item(rate_at(s, f64_scalar(step), one)),
                 next = gd_item(rate_at(s, f64_scalar(step + 1), one));
    *stays = now == next;
    return *stays && now == 1 ? 0 : steps;
}

/* The rate of a group after `step` steps. */
static gd_tensor *group_rate(const gd_schedule *s, gd_tensor *step, gd_tensor *base) {
    const double warmup = option_value(s, "warmup", 0), start = option_value(s, "warmup_start", 0);
    if (warmup == 0) return rate_at(s, step, base);
    gd_tensor *n = f64_scalar(warmup), *after = gd_maximum(gd_sub(step, n), f64_scalar(0)),
              *share = gd_add(f64_scalar(start), gd_mul(f64_scalar(1 - start), gd_div(step, n)));
    return gd_where(gd_lt(step, n), gd_mul(base, share), rate_at(s, after, base));
}

/* The rates of all groups after `step` steps. */
static gd_status compute_rates(const gd_schedule *s, gd_tensor *step, gd_tensor **rates) {
    for (int g = 0; g < s->optimizer->n_groups; g++) {
        GD_TRY(gd_optimizer_make_lr(s->optimizer, g));
        GD_TRY(gd_optimizer_make_base(s->optimizer, g)); /* for a group that was added later */
        gd_tensor *base = s->optimizer->groups[g].base, *own = step;
        if (step->device != base->device) own = gd_to_device(step, base->device);
        rates[g] = group_rate(s, own, base);
        if (rates[g]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

gd_status gd_schedule_assign(const gd_schedule *s, gd_tensor *step, gd_tensor *const *rates,
                             gd_tensor **done, int *n_done) {
    const int first = *n_done;
    done[(*n_done)++] = gd_assign(s->step, step);
    for (int g = 0; g < s->optimizer->n_groups; g++)
        done[(*n_done)++] = gd_assign(s->optimizer->groups[g].lr, rates[g]);
    for (int i = first; i < *n_done; i++)
        if (done[i]->kind == GD_FAILED) return gd_failure();
    return GD_OK;
}

/* The old value if the step is skipped, otherwise the next one. */
static gd_tensor *select_unless(gd_tensor *skip, gd_tensor *old, gd_tensor *next) {
    if (skip && skip->device != old->device) skip = gd_to_device(skip, old->device);
    return skip ? gd_where(gd_cast(skip, GD_BOOL), old, next) : next;
}

gd_status gd_schedule_next(const gd_schedule *s, gd_tensor *skip, gd_tensor **step,
                           gd_tensor **rates) {
    *step = gd_add(s->step, f64_scalar(1));
    if ((*step)->kind == GD_FAILED) return gd_failure();
    GD_TRY(compute_rates(s, *step, rates));
    *step = select_unless(skip, s->step, *step);
    for (int g = 0; g < s->optimizer->n_groups && skip; g++)
        if ((rates[g] = select_unless(skip, s->optimizer->groups[g].lr, rates[g]))->kind ==
            GD_FAILED)
            return gd_failure();
    return (*step)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* Only the assigns are in the transaction: a rate may have to be copied to another device, so it is
 * computed before. */
gd_status gd_schedule_advance(gd_schedule *s, gd_tensor *skip, gd_tensor **done, int *n_done) {
    gd_tensor **rates = gd_calloc((size_t)s->optimizer->n_groups + 1, sizeof *rates), *step = NULL;
    if (!rates) return gd_no_memory(NULL, "for a step");
    gd_status status = gd_schedule_next(s, skip, &step, rates);
    gd_transaction updates; /* changes all or, after a failure, none */
    gd_transaction_begin(&updates);
    if (status == GD_OK) status = gd_schedule_assign(s, step, rates, done, n_done);
    status = gd_transaction_end(&updates, status);
    gd_free(rates);
    return status;
}

/* --- creation --------------------------------------------------------------------------------- */

/* Sets the rate of step 0. In a graph it is the initial value of the variable. */
static gd_status start_group(const gd_schedule *s, int group) {
    gd_optim_group *g = &s->optimizer->groups[group];
    if (s->optimizer->in_graph && g->lr)
        return gd_fail(GD_E_STATE, "the optimizer's learning rate is in the graph already; create "
                                   "the schedule before gd_minimize");
    GD_TRY(gd_optimizer_make_base(s->optimizer, group));
    GD_EAGER;
    const double base = s->optimizer->in_graph ? g->lr_value : gd_item(g->base);
    const double first = gd_item(group_rate(s, f64_scalar(0), f64_scalar(base)));
    if (gd_failed()) return gd_failure();
    g->lr_value = first;
    return g->lr ? gd_copy_tensor(g->lr, f64_scalar(first)) : GD_OK;
}

static gd_status start_groups(gd_schedule *s) {
    char name[80];
    GD_NO_GRAD;
    snprintf(name, sizeof name, "%.60s/step", s->factory->record.name);
    gd_tensor *zero; /* on the device of the parameters, as the rates */
    {
        GD_EAGER;
        zero = gd_to_device(f64_scalar(0), gd_optimizer_device(s->optimizer, 0));
    }
    if (!(s->step = gd_optimizer_state_tensor(s->optimizer, zero, name))) return gd_failure();
    for (int g = 0; g < s->optimizer->n_groups; g++) GD_TRY(start_group(s, g));
    return GD_OK;
}

static gd_status check_options(const gd_schedule *s) {
    GD_TRY(gd_check_ranges(s->factory, s->options, "gd_lr_"));
    return rules_of(s)->check ? rules_of(s)->check(s->options) : GD_OK;
}

/* Owns `options`, also after a failure. */
static gd_status make_schedule(const gd_factory *factory, gd_optimizer *optimizer, void *options,
                               gd_schedule **made) {
    gd_schedule *s = optimizer && gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *s) : NULL;
    *made = NULL;
    if (!s) {
        gd_free(options);
        return optimizer ? gd_no_memory(NULL, "for a schedule")
                         : gd_fail(GD_E_ARGUMENT, "gd_lr_%s: the optimizer is NULL",
                                   factory->record.name);
    }
    gd_object_init(&s->object, &schedule_class);
    gd_object_count(1);
    s->factory = factory;
    s->options = options;
    s->optimizer = gd_retain(optimizer);
    gd_status status = check_options(s);
    if (status == GD_OK) {
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        gd_scope *scope = gd_scope_open();
        status = start_groups(s);
        gd_scope_close(&scope);
        status = gd_attempt_end(&attempt, status);
        if (status != GD_OK) gd_error_prefix("gd_lr_%s: ", factory->record.name);
    }
    if (status != GD_OK) gd_object_release(&s->object);
    else gd_scope_adopt(&s->object);
    *made = status == GD_OK ? s : NULL;
    return status;
}

gd_schedule *gd_schedule_make(const char *site, const gd_factory *factory, gd_optimizer *optimizer,
                              const void *options) {
    if (gd_is_freed_object(optimizer)) {
        char name[80];
        snprintf(name, sizeof name, "gd_lr_%s", factory->record.name);
        gd_report_freed(site, optimizer, name);
        return NULL;
    }
    GD_CALLED_FROM(site);
    void *own;
    gd_schedule *s = NULL;
    gd_status status = gd_factory_take_options(factory, options, &own);
    if (status == GD_OK) status = make_schedule(factory, optimizer, own, &s);
    gd_report(site, status);
    return s;
}

gd_schedule *gd_schedule_new_at(const char *site, const char *name, gd_optimizer *optimizer,
                                const char *options) {
    GD_LIVE_AT(site, optimizer);
    GD_CALLED_FROM(site);
    const gd_factory *factory;
    void *own;
    gd_schedule *s = NULL;
    gd_status status = gd_factory_read("schedule", name, options, &factory, &own);
    if (status == GD_OK) status = make_schedule(factory, optimizer, own, &s);
    gd_report(site, status);
    return s;
}

/* --- a step ----------------------------------------------------------------------------------- */

static gd_status take_step(gd_schedule *s) {
    if (!s) return gd_fail(GD_E_ARGUMENT, "gd_schedule_step: the schedule is NULL");
    if (s->optimizer->in_graph || (gd_this_thread.tracer && !gd_grads_are_traced()))
        return gd_fail(GD_E_STATE, "gd_schedule_step: in a graph it is part of "
                                   "gd_minimize(optimizer, loss, .schedule = it)");
    gd_tensor **done = gd_calloc((size_t)s->optimizer->n_groups + 1, sizeof *done);
    if (!done) return gd_no_memory(NULL, "for a step");
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin(), n_done = 0;
    const gd_status status = gd_schedule_advance(s, NULL, done, &n_done);
    gd_grad_mode_end(&grad);
    gd_scope_close(&scope);
    gd_free(done);
    return gd_attempt_end(&attempt, status);
}

gd_status gd_schedule_step_at(const char *site, gd_schedule *s) {
    GD_LIVE_AT(site, s);
    if (gd_failed()) return gd_error_status();
    GD_CALLED_FROM(site);
    return gd_report(site, take_step(s));
}

/* --- user-defined schedules ------------------------------------------------------------------- */

gd_status gd_schedule_define_at(const char *site, const char *record, gd_schedule_rules rules) {
    GD_CALLED_FROM(site);
    const gd_status status = rules.rate
                                 ? gd_factory_define("schedule", record, &rules, sizeof rules)
                                 : gd_fail(GD_E_ARGUMENT, "it has no rule for rates");
    if (status != GD_OK) gd_error_prefix("gd_schedule_define: ");
    return gd_report(site, status);
}
