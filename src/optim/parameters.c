/* parameters.c - the parameters of an optimizer: checks, parts of groups. */
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

const void *gd_optimizer_key(const gd_tensor *parameter) {
    return parameter->kind == GD_SYMBOL ? (const void *)parameter->node : parameter;
}

gd_status gd_optimizer_note_group(gd_optimizer *o, gd_tensors parameters, int group) {
    int64_t i = 0;
    while (i < parameters.count &&
           gd_map_put(&o->group_of, gd_optimizer_key(parameters.at[i]), group))
        i++;
    if (i == parameters.count) return GD_OK;
    while (i-- > 0) gd_map_entry_of(&o->group_of, gd_optimizer_key(parameters.at[i]))->value = -1;
    return gd_no_memory(NULL, "for an optimizer");
}

void gd_optimizer_change_group(gd_optimizer *o, const gd_tensor *parameter, int group) {
    gd_map_entry_of(&o->group_of, gd_optimizer_key(parameter))->value = group;
}

static gd_status check_new(const gd_optimizer *o, const gd_tensor *p, const char *what, int64_t i,
                           gd_map *seen) {
    const int first = gd_map_find(seen, gd_optimizer_key(p)),
              group = o ? gd_map_find(&o->group_of, gd_optimizer_key(p)) : -1;
    if (first >= 0)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: parameter %lld is the same tensor as parameter %d and would be changed "
                       "twice in a step; list it once",
                       what, (long long)i, first);
    if (group >= 0)
        return gd_fail(GD_E_ARGUMENT, "%s: parameter %lld is in group %d of the optimizer already",
                       what, (long long)i, group);
    return gd_map_put(seen, gd_optimizer_key(p), (int)i) ? GD_OK
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
