/* options.c - reads and changes what an optimizer has: options and parameters of its groups. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/tensor_list.h"
#include "dispatch/attrs.h"
#include "dispatch/call.h"
#include "optim/optimizer.h"

/* --- reading ---------------------------------------------------------------------------------- */

gd_tensors gd_optimizer_parameters_at(const char *site, gd_optimizer *o,
                                      const gd_group_number *number) {
    GD_LIVE_AT(site, o);
    number = number ? number : GD_GROUP_NUMBER_();
    GD_CALLED_FROM(site);
    gd_status status = gd_optimizer_check_group(o, number->group, "gd_optimizer_parameters");
    if (status == GD_OK) status = gd_optimizer_arrange(o);
    const gd_optim_group *g = status == GD_OK ? &o->groups[number->group] : NULL;
    gd_tensor **all = g ? gd_calloc((size_t)o->n_parameters + 1, sizeof *all) : NULL;
    if (g && !all) status = gd_no_memory(NULL, "for a list of parameters");
    int64_t n = 0;
    for (int k = 0; all && k < g->n_parts; k++)
        for (int i = 0; i < g->parts[k].count; i++) all[n++] = g->parts[k].parameters[i];
    for (int64_t i = 0; i < n && status == GD_OK; i++) { /* as a parameter of a module's list */
        gd_retain(all[i]);
        status = gd_scope_take(&all[i]->object);
    }
    gd_tensors list = {NULL, 0};
    if (status == GD_OK) list = gd_list_copy((gd_tensors){all, n});
    else gd_report(site, status);
    gd_free(all);
    return status == GD_OK ? list : gd_list_of_errors(0);
}

const char *gd_optimizer_type(const gd_optimizer *o) {
    GD_LIVE(o);
    return o ? o->factory->record.name : "";
}

const char *gd_optimizer_option_name(const gd_optimizer *o, int index) {
    GD_LIVE(o);
    return o && index >= 0 && index < o->factory->record.n_attrs
               ? o->factory->record.attrs[index].name
               : NULL;
}

double gd_optimizer_option(const gd_optimizer *o, const char *name, int group) {
    GD_LIVE(o);
    const gd_op_attr *attr = NULL;
    if (!o || !name || group < 0 || group >= o->n_groups ||
        !gd_factory_option(o->factory, o->groups[group].options, name, &attr))
        return (double)NAN;
    return gd_attr_number(attr, o->groups[group].options).value;
}

const char *gd_optimizer_slot_name(const gd_optimizer *o, int group, int index) {
    GD_LIVE(o);
    if (!o || group < 0 || group >= o->n_groups || index < 0) return NULL;
    const gd_slot_needs *needs = &o->groups[group].needs;
    if (index < needs->count) return needs->slot[index].name;
    return index == needs->count && needs->counts ? "step" : NULL;
}

/* --- changing --------------------------------------------------------------------------------- */

static bool same_slots(const gd_slot_needs *a, const gd_slot_needs *b) {
    bool same = a->count == b->count && a->counts == b->counts;
    for (int i = 0; i < a->count && same; i++)
        same =
            strcmp(a->slot[i].name, b->slot[i].name) == 0 && a->slot[i].start == b->slot[i].start;
    return same;
}

static bool has_state(const gd_optim_group *g) {
    for (int k = 0; k < g->n_parts; k++) {
        if (g->parts[k].steps) return true;
        for (int i = 0; i < g->parts[k].count * g->needs.count; i++)
            if (g->parts[k].slots[i]) return true;
    }
    return false;
}

/* Parts for the same parameters with other options. Their state is moved if it stays the same. */
static gd_status make_parts(const gd_optimizer *o, const gd_optim_group *from, gd_optim_group *to,
                            bool keep) {
    to->parts = gd_calloc((size_t)from->n_parts + 1, sizeof *to->parts);
    to->n_parts = 0;
    if (!to->parts) return gd_no_memory(NULL, "for an optimizer");
    for (int k = 0; k < from->n_parts; k++) {
        const gd_optim_part *old = &from->parts[k];
        GD_TRY(gd_optim_part_make(o, to, old->factors, old->parameters, old->count, &to->parts[k]));
        to->n_parts++;
    }
    for (int k = 0; keep && k < from->n_parts; k++) {
        gd_optim_part *old = &from->parts[k], *new = &to->parts[k];
        for (int i = 0; i < old->count * from->needs.count; i++) {
            new->slots[i] = old->slots[i];
            old->slots[i] = NULL;
        }
        new->steps = old->steps;
        old->steps = NULL;
    }
    return GD_OK;
}

static void free_parts(const gd_optim_group *g, gd_optim_part *parts, int count) {
    for (int k = 0; k < count; k++) gd_optim_part_free(g, &parts[k]);
    gd_free(parts);
}

/* The group's options with those of the text. */
static gd_status read_options(const gd_optimizer *o, const gd_optim_group *g, const char *text,
                              void **options) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_attrs *attrs = gd_attrs_new(&o->factory->record);
    if (attrs)
        memcpy((void *)(uintptr_t)gd_attrs_data(attrs), g->options, o->factory->record.attrs_size);
    gd_status status = attrs ? gd_attrs_parse(attrs, text) : gd_failure();
    if (status == GD_OK)
        status = gd_factory_take_options(o->factory, gd_attrs_data(attrs), options);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

static gd_status check_new_options(const gd_optimizer *o, const void *options) {
    const gd_optimizer_rules *rules = o->factory->rules;
    GD_TRY(gd_check_ranges(o->factory, options, "gd_optim_"));
    return rules->check ? rules->check(options) : GD_OK;
}

/* Takes ownership of the options of `new`, also if it fails. */
static gd_status replace_group(gd_optimizer *o, int group, gd_optim_group *new) {
    gd_optim_group *g = &o->groups[group];
    const gd_optimizer_rules *rules = o->factory->rules;
    gd_status status = check_new_options(o, new->options);
    if (status == GD_OK && rules->slots) rules->slots(new->options, &new->needs);
    const bool same = same_slots(&g->needs, &new->needs);
    if (status == GD_OK && !same && has_state(g))
        status =
            gd_fail(GD_E_STATE, "gd_optimizer_set_options: this option decides what is kept for "
                                "each parameter, so it cannot change after the first step");
    const double lr = *(double *)gd_factory_option(o->factory, new->options, "lr", NULL),
                 before = *(double *)gd_factory_option(o->factory, g->options, "lr", NULL);
    if (status == GD_OK && lr != before) status = gd_optimizer_change_lr(o, group, lr);
    if (status == GD_OK) status = make_parts(o, g, new, same);
    if (status != GD_OK) {
        if (new->parts) free_parts(new, new->parts, new->n_parts);
        gd_free(new->options);
        return status;
    }
    free_parts(g, g->parts, g->n_parts);
    gd_free(g->options);
    g->parts = new->parts;
    g->options = new->options;
    g->needs = new->needs;
    o->revision++;
    return GD_OK;
}

static gd_status set_options(gd_optimizer *o, int group, const char *text) {
    GD_TRY(gd_optimizer_check_group(o, group, "gd_optimizer_set_options"));
    if (o->in_graph)
        return gd_fail(GD_E_STATE, "gd_optimizer_set_options: its parameters are variables of a "
                                   "graph, which has the options already");
    GD_TRY(gd_optimizer_arrange(o));
    gd_optim_group new = {.options = NULL};
    GD_TRY(read_options(o, &o->groups[group], text, &new.options));
    return replace_group(o, group, &new);
}

gd_status gd_optimizer_set_options_at(const char *site, gd_optimizer *o, const char *options,
                                      const gd_group_number *number) {
    GD_LIVE_AT(site, o);
    number = number ? number : GD_GROUP_NUMBER_();
    GD_CALLED_FROM(site);
    return gd_report(site, set_options(o, number->group, options));
}
