/* parameters.c - the parameters of an optimizer: checks, parts of groups, factors. */
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/map.h"
#include "optim/optimizer.h"

/* --- checks ----------------------------------------------------------------------------------- */

/* A parameter must not be the result of an op: only leaves get gradients. */
static gd_status fail_result(const gd_tensor *p, const char *what, int64_t i) {
    const gd_node *node = p->node;
    const char *op = node->op ? node->op->name : "apply";
    const char *leaf = p->kind == GD_SYMBOL ? "gd_variable" : "gd_requires_grad";
    return gd_fail(
        GD_E_STATE,
        "%s: parameter %lld is the result of %s%s%s%s, not a %s, and would never change; "
        "write %s(gd_%s(...)) instead of gd_%s(%s(...))",
        what, (long long)i, op, node->site ? " (" : "", node->site ? node->site : "",
        node->site ? ")" : "", p->kind == GD_SYMBOL ? "variable" : "leaf", leaf, op, op, leaf);
}

static gd_status check_parameter(const gd_tensor *p, const char *what, int64_t i) {
    char text[160];
    if (p && p->kind == GD_FAILED && gd_failed()) return gd_failure();
    if (p) GD_TRY(gd_check_freed(p, what));
    if (!p || p->kind == GD_FAILED || p->kind == GD_META)
        return gd_fail(GD_E_ARGUMENT, "%s: parameter %lld is %s", what, (long long)i,
                       p ? "an error" : "NULL");
    const gd_origin_kind from =
        p->kind == GD_SYMBOL && p->node->origin ? p->node->origin->kind : GD_FROM_OP;
    if (p->kind == GD_SYMBOL && from == GD_FROM_PLACEHOLDER)
        return gd_fail(
            GD_E_STATE,
            "%s: parameter %lld is the placeholder '%s', which is fed; use a gd_variable", what,
            (long long)i, p->node->origin->name);
    if (p->kind == GD_SYMBOL ? from != GD_FROM_VARIABLE : p->node != NULL)
        return fail_result(p, what, i);
    if (!gd_dtype_is_float((gd_dtype)p->dtype))
        return gd_fail(GD_E_DTYPE, "%s: parameter %lld is %s; parameters are floats", what,
                       (long long)i, gd_describe(p, text, sizeof text));
    return GD_OK;
}

/* The identity of a parameter; all handles of a variable share its node. */
static const void *identity_key(const gd_tensor *p) {
    return p->kind == GD_SYMBOL ? (const void *)p->node : p;
}

gd_status gd_optimizer_note_group(gd_optimizer *o, gd_tensors parameters, int group) {
    int64_t i = 0;
    while (i < parameters.count && gd_map_put(&o->group_of, identity_key(parameters.at[i]), group))
        i++;
    if (i == parameters.count) return GD_OK;
    while (i-- > 0) gd_map_entry_of(&o->group_of, identity_key(parameters.at[i]))->value = -1;
    return gd_no_memory(NULL, "for an optimizer");
}

void gd_optimizer_change_group(gd_optimizer *o, const gd_tensor *parameter, int group) {
    gd_map_entry_of(&o->group_of, identity_key(parameter))->value = group;
}

static gd_status check_new(const gd_optimizer *o, const gd_tensor *p, const char *what, int64_t i,
                           gd_map *seen) {
    const int first = gd_map_find(seen, identity_key(p)),
              group = o ? gd_map_find(&o->group_of, identity_key(p)) : -1;
    if (first >= 0)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: parameter %lld is the same tensor as parameter %d and would be changed "
                       "twice in a step; list it once",
                       what, (long long)i, first);
    if (group >= 0)
        return gd_fail(GD_E_ARGUMENT, "%s: parameter %lld is in group %d of the optimizer already",
                       what, (long long)i, group);
    return gd_map_put(seen, identity_key(p), (int)i) ? GD_OK
                                                     : gd_no_memory(NULL, "for an optimizer");
}

gd_status gd_optimizer_check_parameters(const gd_optimizer *o, const char *what,
                                        gd_tensors parameters, bool *symbols) {
    if (parameters.count < 1 || !parameters.at)
        return gd_fail(GD_E_ARGUMENT, "%s: there are no parameters: the list is empty", what);
    gd_map seen = {NULL, 0, 0};
    gd_status status = GD_OK;
    if (o) *symbols = o->in_graph;
    for (int64_t i = 0; i < parameters.count && status == GD_OK; i++) {
        const gd_tensor *p = parameters.at[i];
        status = check_parameter(p, what, i);
        if (status == GD_OK && (o || i > 0) && (p->kind == GD_SYMBOL) != *symbols)
            status =
                gd_fail(GD_E_ARGUMENT, "%s: parameters are tensors or variables, not both", what);
        if (status == GD_OK) *symbols = p->kind == GD_SYMBOL;
        if (status == GD_OK) status = check_new(o, p, what, i, &seen);
    }
    gd_map_free(&seen);
    return status;
}

/* --- parts ------------------------------------------------------------------------------------ */

void gd_optim_part_free(const gd_optim_group *g, gd_optim_part *part) {
    for (int i = 0; part->parameters && i < part->count; i++) gd_release(part->parameters[i]);
    for (int i = 0; part->slots && i < part->count * g->needs.count; i++)
        gd_release(part->slots[i]);
    gd_release(part->steps);
    gd_free(part->parameters);
    gd_free(part->views);
    gd_free(part->options);
    *part = (gd_optim_part){.count = 0};
}

gd_status gd_optim_part_make(const gd_optimizer *o, const gd_optim_group *g, gd_factors factors,
                             gd_tensor *const *parameters, int count, gd_optim_part *part) {
    const size_t size = o->factory->record.attrs_size, n = (size_t)count,
                 slots = (size_t)g->needs.count;
    *part = (gd_optim_part){.factors = factors, .options = gd_malloc(size)};
    part->parameters = gd_calloc(n * (2 * slots + 4) + 1,
                                 sizeof *part->parameters); /* one allocation for all lists */
    if (!part->options || !part->parameters) {
        gd_optim_part_free(g, part);
        return gd_no_memory(NULL, "for an optimizer");
    }
    part->slots = part->parameters + n;
    part->gradients = part->slots + n * slots;
    part->work = part->gradients + n;
    memcpy(part->options, g->options, size);
    double *decay = gd_factory_option(o->factory, part->options, "weight_decay", NULL);
    if (decay) *decay *= factors.weight_decay;
    for (int i = 0; i < count; i++) part->parameters[part->count++] = gd_retain(parameters[i]);
    return GD_OK;
}

/* --- factors ---------------------------------------------------------------------------------- */

typedef struct parameter_index {
    gd_optim_group *group;
    int part, index;
} parameter_index;

static bool find_parameter(gd_optimizer *o, const gd_tensor *p, parameter_index *at) {
    for (int g = 0; g < o->n_groups; g++)
        for (int k = 0; k < o->groups[g].n_parts; k++)
            for (int i = 0; i < o->groups[g].parts[k].count; i++)
                if (identity_key(o->groups[g].parts[k].parameters[i]) == identity_key(p)) {
                    *at = (parameter_index){&o->groups[g], k, i};
                    return true;
                }
    return false;
}

static bool has_part_state(const gd_optim_group *g, const gd_optim_part *part) {
    for (int i = 0; i < part->count * g->needs.count; i++)
        if (part->slots[i]) return true;
    return part->steps != NULL;
}

static bool has_equal_factors(gd_factors a, gd_factors b) {
    return a.lr == b.lr && a.weight_decay == b.weight_decay;
}

/* Moves a parameter to the part with these factors. All parts of the group are created again. */
static gd_status move_parameter(const gd_optimizer *o, const parameter_index *at,
                                gd_factors factors) {
    gd_optim_group *g = at->group;
    gd_optim_part *parts = gd_calloc((size_t)g->n_parts + 1, sizeof *parts),
                  *from = &g->parts[at->part];
    gd_tensor **list = gd_calloc((size_t)o->n_parameters + 1, sizeof *list);
    gd_status status = parts && list ? GD_OK : gd_no_memory(NULL, "for an optimizer");
    int n = 0, to = 0;
    while (to < g->n_parts && !has_equal_factors(g->parts[to].factors, factors)) to++;
    for (int k = 0; k <= g->n_parts && status == GD_OK; k++) {
        int count = 0;
        for (int i = 0; k < g->n_parts && i < g->parts[k].count; i++)
            if (k != at->part || i != at->index) list[count++] = g->parts[k].parameters[i];
        if (k == to) list[count++] = from->parameters[at->index];
        if (count == 0) continue;
        status = gd_optim_part_make(o, g, k < g->n_parts ? g->parts[k].factors : factors, list,
                                    count, &parts[n]);
        n += status == GD_OK;
    }
    gd_optim_part *old = status == GD_OK ? g->parts : parts;
    for (int k = 0; old && k < (status == GD_OK ? g->n_parts : n); k++)
        gd_optim_part_free(g, &old[k]);
    gd_free(old);
    gd_free(list);
    if (status != GD_OK) return status;
    g->parts = parts;
    g->n_parts = n;
    return GD_OK;
}

static gd_status set_factors(gd_optimizer *o, const gd_tensor *p, gd_factors factors) {
    parameter_index at;
    if (!o) return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_factors: the optimizer is NULL");
    GD_TRY(gd_optimizer_collect(o));
    if (!p || p->kind == GD_FAILED || !find_parameter(o, p, &at))
        return gd_fail(GD_E_ARGUMENT,
                       "gd_optimizer_set_factors: the tensor is not a parameter of the optimizer");
    if (!(factors.lr >= 0 && factors.weight_decay >= 0))
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_factors: %s is %g; it must be in [0, inf)",
                       factors.lr >= 0 ? "weight_decay" : "lr",
                       factors.lr >= 0 ? factors.weight_decay : factors.lr);
    if (factors.weight_decay != 1 &&
        !gd_factory_option(o->factory, at.group->options, "weight_decay", NULL))
        return gd_fail(GD_E_ARGUMENT, "gd_optimizer_set_factors: %s has no option weight_decay",
                       o->factory->record.name);
    for (int k = 0; k < at.group->n_parts; k++)
        if (has_part_state(at.group, &at.group->parts[k]))
            return gd_fail(GD_E_STATE, "gd_optimizer_set_factors: the optimizer has state already; "
                                       "call it before the first step");
    return has_equal_factors(at.group->parts[at.part].factors, factors)
               ? GD_OK
               : move_parameter(o, &at, factors);
}

gd_status gd_optimizer_set_factors_at(const char *site, gd_optimizer *o, gd_tensor *parameter,
                                      const gd_factors *factors) {
    GD_LIVE_AT(site, o);
    factors = factors ? factors : GD_FACTORS_();
    GD_CALLED_FROM(site);
    return gd_report(site, set_factors(o, parameter, *factors));
}
