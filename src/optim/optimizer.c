/* optimizer.c - optimizers: their groups, options and learning rates. */
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "core/grow.h"
#include "gradus/ops.h"
#include "dispatch/call.h"
#include "dispatch/intern.h"
#include "nn/module.h"

/* The options of all optimizers: gd_group_options (codegen/opgen/factories.c). */
extern const gd_op_attr *const gd_group_attrs;
extern const int gd_group_attr_count;

static const gd_optimizer_rules *rules_of(const gd_factory *factory) { return factory->rules; }

/* --- the object ------------------------------------------------------------------------------- */

static void free_group(gd_optim_group *g) {
    for (int k = 0; k < g->n_parts; k++) gd_optim_part_free(g, &g->parts[k]);
    gd_optim_group_forget_moves(g);
    gd_release(g->lr);
    gd_release(g->base);
    gd_free(g->parts);
    gd_free(g->options);
}

static void destroy_optimizer(gd_object *object) {
    gd_optimizer *o = (gd_optimizer *)object;
    for (int i = 0; i < o->n_groups; i++) free_group(&o->groups[i]);
    gd_module_link_release(o->of);
    gd_free(o->groups);
    gd_map_free(&o->group_of);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class optimizer_class = {
    .name = "optimizer", .destroy = destroy_optimizer, .state = &gd_optimizer_state_rules};
GD_KNOWN_CLASS(optimizer_class)

static double *lr_option(const gd_factory *factory, void *options) {
    const gd_op_attr *attr = NULL;
    double *lr = gd_factory_option(factory, options, "lr", &attr);
    return lr && attr->type == GD_ATTR_FLOAT ? lr : NULL;
}

static gd_status check_options(const gd_factory *factory, const void *options) {
    const gd_optimizer_rules *rules = rules_of(factory);
    GD_TRY(gd_check_ranges(factory, options, "gd_optim_"));
    return rules->check ? rules->check(options) : GD_OK;
}

/* Adds a group. Takes ownership of `options`, also if it fails. */
static gd_status add_group(gd_optimizer *o, const char *what, gd_tensors parameters,
                           void *options) {
    const gd_optimizer_rules *rules = rules_of(o->factory);
    gd_optim_group g = {.options = options};
    const bool later = o->of && o->n_groups == 0; /* gd_optimizer_collect adds the parameters */
    gd_status status = later ? GD_OK
                             : gd_optimizer_check_parameters(o->n_groups ? o : NULL, what,
                                                             parameters, &o->in_graph);
    if (status == GD_OK && !lr_option(o->factory, options))
        status = gd_fail(GD_E_ARGUMENT, "%s: its record has no option 'lr' of type float", what);
    if (status == GD_OK) status = check_options(o->factory, options);
    if (status == GD_OK && rules->slots) rules->slots(options, &g.needs);
    const bool room = status == GD_OK && gd_grow(o->groups, o->n_groups, o->groups_room);
    g.parts = room ? gd_calloc(1, sizeof *g.parts) : NULL;
    if (status == GD_OK && !g.parts) status = gd_no_memory(NULL, "for an optimizer");
    if (status == GD_OK && !later)
        status = gd_optim_part_make(o, &g, *GD_FACTORS_(), parameters.at, (int)parameters.count,
                                    &g.parts[0]);
    g.n_parts = status == GD_OK && !later;
    if (status == GD_OK) status = gd_optimizer_note_group(o, parameters, o->n_groups);
    if (status != GD_OK) {
        free_group(&g);
        return status;
    }
    g.lr_value = *lr_option(o->factory, options);
    o->groups[o->n_groups++] = g;
    o->n_parameters += (int)parameters.count;
    return GD_OK;
}

/* For a list of parameters, or for a module, which is NULL otherwise. Takes ownership of `options`,
 * also if it fails. */
static gd_status make_optimizer(const gd_factory *factory, gd_tensors parameters, gd_module *module,
                                void *options, gd_optimizer **made) {
    char what[80];
    snprintf(what, sizeof what, "gd_optim_%.60s", factory->record.name);
    gd_optimizer *o = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *o) : NULL;
    if (!o) {
        gd_free(options);
        return gd_no_memory(NULL, "for an optimizer");
    }
    gd_object_init(&o->object, &optimizer_class);
    gd_object_count(1);
    o->factory = factory;
    gd_status status = GD_OK;
    if (module && !(o->of = gd_module_link_to(module))) status = GD_E_MEMORY;
    if (status == GD_OK) status = add_group(o, what, parameters, options);
    else gd_free(options);
    if (status == GD_OK) status = gd_optimizer_collect(o);
    if (status != GD_OK) gd_object_release(&o->object);
    else gd_scope_adopt(&o->object);
    *made = status == GD_OK ? o : NULL;
    return status;
}

gd_optimizer *gd_optimizer_make(const char *site, const gd_factory *factory, gd_tensors parameters,
                                const void *options) {
    void *own;
    gd_optimizer *o = NULL;
    gd_status status = gd_factory_take_options(factory, options, &own);
    if (status == GD_OK) status = make_optimizer(factory, parameters, NULL, own, &o);
    gd_report(site, status);
    return o;
}

static gd_status check_module(const gd_module *module, const char *name) {
    if (module) return GD_OK;
    return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "%s: the module is NULL", name);
}

gd_optimizer *gd_optimizer_make_of(const char *site, const gd_factory *factory, gd_module *module,
                                   const void *options) {
    void *own;
    gd_optimizer *o = NULL;
    char name[80];
    snprintf(name, sizeof name, "gd_optim_%.60s_of", factory->record.name);
    if (gd_handles_checked && gd_report_freed(site, module, name)) module = NULL;
    gd_status status = check_module(module, name);
    if (status == GD_OK) status = gd_factory_take_options(factory, options, &own);
    if (status == GD_OK) status = make_optimizer(factory, (gd_tensors){NULL, 0}, module, own, &o);
    gd_report(site, status);
    return o;
}

gd_optimizer *gd_optimizer_new_of_at(const char *site, const char *name, gd_module *module,
                                     const char *options) {
    GD_LIVE_AT(site, module);
    GD_CALLED_FROM(site);
    const gd_factory *factory;
    void *own;
    gd_optimizer *o = NULL;
    gd_status status = check_module(module, "gd_optimizer_new_of");
    if (status == GD_OK) status = gd_factory_read("optimizer", name, options, &factory, &own);
    if (status == GD_OK) status = make_optimizer(factory, (gd_tensors){NULL, 0}, module, own, &o);
    gd_report(site, status);
    return o;
}

gd_optimizer *gd_optimizer_new_at(const char *site, const char *name, gd_tensors parameters,
                                  const char *options) {
    GD_CALLED_FROM(site);
    const gd_factory *factory;
    void *own;
    gd_optimizer *o = NULL;
    gd_status status = gd_factory_read("optimizer", name, options, &factory, &own);
    if (status == GD_OK) status = make_optimizer(factory, parameters, NULL, own, &o);
    gd_report(site, status);
    return o;
}

/* --- groups ----------------------------------------------------------------------------------- */

/* Overrides an option of the group by a given one. */
static gd_status override_option(const gd_factory *factory, const gd_op_attr *a, const void *given,
                                 void *options) {
    const void *from = (const char *)given + a->offset;
    const bool is_float = a->type == GD_ATTR_FLOAT;
    if (is_float ? isnan(*(const double *)from) : *(const int64_t *)from == GD_UNSET) return GD_OK;
    const gd_op_attr *attr = NULL;
    void *to = gd_factory_option(factory, options, a->name, &attr);
    if (!to)
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_add: %s has no option '%s'",
                       factory->record.name, a->name);
    if (attr->type == GD_ATTR_FLOAT && is_float) *(double *)to = *(const double *)from;
    else if (attr->type == GD_ATTR_BOOL && !is_float) *(bool *)to = *(const int64_t *)from != 0;
    else
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_add: '%s' of %s is of another type", a->name,
                       factory->record.name);
    return GD_OK;
}

static gd_status add_options_group(gd_optimizer *o, gd_tensors parameters,
                                   const gd_group_options *given) {
    if (!o) return gd_fail(GD_E_ARGUMENT, "gd_optimizer_add: the optimizer is NULL");
    GD_TRY(gd_optimizer_collect(o));
    void *options = NULL;
    GD_TRY(gd_factory_take_options(o->factory, o->groups[0].options, &options));
    gd_status status = GD_OK;
    for (int i = 0; i < gd_group_attr_count && status == GD_OK; i++)
        status = override_option(o->factory, &gd_group_attrs[i], given, options);
    if (status != GD_OK) {
        gd_free(options);
        return status;
    }
    return add_group(o, "gd_optimizer_add", parameters, options);
}

gd_status gd_optimizer_add_at(const char *site, gd_optimizer *o, gd_tensors parameters,
                              const gd_group_options *options) {
    GD_LIVE_AT(site, o);
    GD_CALLED_FROM(site);
    const gd_group_options none = gd_group_defaults();
    return gd_report(site, add_options_group(o, parameters, options ? options : &none));
}

static gd_status add_text_group(gd_optimizer *o, gd_tensors parameters, const char *text) {
    if (!o) return gd_fail(GD_E_ARGUMENT, "gd_optimizer_add_text: the optimizer is NULL");
    GD_TRY(gd_optimizer_collect(o));
    const gd_op *record = &o->factory->record;
    void *options = NULL;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_attrs *attrs = gd_attrs_new(record);
    if (attrs)
        memcpy((void *)(uintptr_t)gd_attrs_data(attrs), o->groups[0].options, record->attrs_size);
    gd_status status = attrs ? gd_attrs_parse(attrs, text) : gd_failure();
    if (status == GD_OK)
        status = gd_factory_take_options(o->factory, gd_attrs_data(attrs), &options);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    return status == GD_OK ? add_group(o, "gd_optimizer_add_text", parameters, options) : status;
}

gd_status gd_optimizer_add_text_at(const char *site, gd_optimizer *o, gd_tensors parameters,
                                   const char *options) {
    GD_LIVE_AT(site, o);
    GD_CALLED_FROM(site);
    return gd_report(site, add_text_group(o, parameters, options));
}

int gd_optimizer_group_count(const gd_optimizer *o) {
    GD_LIVE(o);
    return o ? o->n_groups : 0;
}

void gd_optimizer_zero_grad(gd_optimizer *o) {
    GD_LIVE(o);
    if (o && gd_optimizer_collect(o) != GD_OK) gd_report(NULL, gd_failure());
    for (int g = 0; o && !o->in_graph && g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++)
                gd_zero_grad(o->groups[g].parts[k].parameters[i]);
}

bool gd_optimizer_is_frozen(const gd_optimizer *o) {
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++)
                if (o->groups[g].parts[k].parameters[i]->requires_grad) return false;
    return o->n_parameters > 0;
}

/* --- learning rates --------------------------------------------------------------------------- */

gd_status gd_optimizer_check_group(const gd_optimizer *o, int group, const char *what) {
    if (!o) return gd_fail(GD_E_ARGUMENT, "%s: the optimizer is NULL", what);
    if (group < 0 || group >= o->n_groups)
        return gd_fail(GD_E_INDEX, "%s: there is no group %d; the optimizer has %d", what, group,
                       o->n_groups);
    return GD_OK;
}

gd_tensor *gd_optimizer_lr_at(const char *site, gd_optimizer *o, const gd_group_number *number) {
    GD_LIVE_AT(site, o);
    number = number ? number : GD_GROUP_NUMBER_();
    GD_CALLED_FROM(site);
    gd_status status = gd_optimizer_check_group(o, number->group, "gd_optimizer_lr");
    if (status == GD_OK) status = gd_optimizer_make_lr(o, number->group);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_tensor *lr = o->groups[number->group].lr;
    gd_retain(lr);
    status = gd_scope_take(&lr->object);
    return status == GD_OK ? lr : gd_tensor_fail(status);
}

/* In a function that is being traced: records an assign, which sets the rate in each call. */
static gd_status trace_lr(gd_optimizer *o, int group, double lr) {
    GD_TRY(gd_optimizer_make_lr(o, group));
    GD_NO_GRAD;
    return gd_assign(o->groups[group].lr, gd_scalar_of(lr, GD_F64))->kind == GD_FAILED
               ? gd_failure()
               : GD_OK;
}

static gd_status set_lr_now(gd_optim_group *g, double lr) {
    if (g->lr) {
        GD_EAGER;
        GD_TRY(gd_copy_tensor(g->lr, gd_scalar_of(lr, GD_F64)));
    }
    g->lr_value = lr;
    return GD_OK;
}

gd_status gd_optimizer_change_lr(gd_optimizer *o, int group, double lr) {
    GD_TRY(gd_optimizer_check_group(o, group, "gd_optimizer_set_lr"));
    gd_optim_group *g = &o->groups[group];
    if (!(lr >= 0 && lr < INFINITY))
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_lr: lr is %g; it must be in [0, inf)", lr);
    if (o->in_graph && g->lr)
        return gd_fail(
            GD_E_STATE,
            "gd_optimizer_set_lr: in a graph the learning rate is a variable; use gd_session_set");
    gd_scope *scope = gd_scope_open();
    gd_status status =
        !o->in_graph && gd_grads_are_traced() ? trace_lr(o, group, lr) : set_lr_now(g, lr);
    gd_scope_close(&scope);
    return status;
}

gd_status gd_optimizer_set_lr_at(const char *site, gd_optimizer *o, double lr,
                                 const gd_group_number *number) {
    GD_LIVE_AT(site, o);
    number = number ? number : GD_GROUP_NUMBER_();
    GD_CALLED_FROM(site);
    return gd_report(site, gd_optimizer_change_lr(o, number->group, lr));
}

/* --- user-defined optimizers ------------------------------------------------------------------ */

gd_status gd_optimizer_define_at(const char *site, const char *record, gd_optimizer_rules rules) {
    GD_CALLED_FROM(site);
    const gd_status status = rules.update
                                 ? gd_factory_define("optimizer", record, &rules, sizeof rules)
                                 : gd_fail(GD_E_ARGUMENT, "it has no rule for updates");
    if (status != GD_OK) gd_error_prefix("gd_optimizer_define: ");
    return gd_report(site, status);
}
