/* optim_state.c - creates the tensors that an optimizer keeps between steps.
 *
 * Rates and step counts are f64 for parameters of any dtype. If the parameters are variables of a
 * graph, the state consists of variables, too, with the names "w1/exp_avg", "adam/lr",
 * "adam/group1/lr", "adam/step".
 */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "optim/optimizer.h"

enum { MAX_NAME = 256 };

gd_graph *gd_optimizer_graph(const gd_optimizer *o) {
    if (!o->in_graph) return NULL;
    const gd_tensor *p = o->groups[0].parts[0].parameters[0];
    return p->kind == GD_SYMBOL && p->node->origin ? p->node->origin->graph : NULL;
}

/* Adds a variable of this name, with a number if the name is used. */
static gd_tensor *add_variable(const gd_optimizer *o, gd_tensor *value, const char *name) {
    gd_graph *graph = gd_optimizer_graph(o);
    char own[MAX_NAME + 16];
    snprintf(own, sizeof own, "%.*s", MAX_NAME, name);
    for (int n = 2; graph && gd_name_map_find(&graph->names, own); n++)
        snprintf(own, sizeof own, "%.*s_%d", MAX_NAME, name, n);
    const gd_building outside = gd_this_building; /* without a name prefix and GD_AFTER */
    gd_this_building = (gd_building){.n_after = 0};
    gd_block block = gd_graph_begin(graph);
    gd_tensor *v = gd_variable(value, .name = own, .trainable = false);
    gd_graph_end(&block);
    gd_this_building = outside;
    return v;
}

gd_tensor *gd_optimizer_state_tensor(const gd_optimizer *o, gd_tensor *value, const char *name) {
    if (value->kind == GD_FAILED) return NULL;
    gd_tensor *t = o->in_graph ? add_variable(o, value, name) : value;
    return t->kind == GD_FAILED ? NULL : gd_retain(t);
}

/* An eager tensor filled with a number, on a device, also while a graph is built. */
static gd_tensor *filled_tensor(gd_device *on, gd_shape shape, gd_dtype dtype, double value) {
    GD_EAGER;
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = on;
    gd_tensor *t = gd_full(shape, value, .dtype = dtype);
    gd_this_thread.device = device;
    return t;
}

/* "adam/lr", "adam/group1/lr" */
static const char *state_name(const gd_optimizer *o, int group, const char *what, char *text) {
    if (group) snprintf(text, MAX_NAME, "%s/group%d/%s", o->factory->record.name, group, what);
    else snprintf(text, MAX_NAME, "%s/%s", o->factory->record.name, what);
    return text;
}

static gd_status make_rate(gd_optimizer *o, int group, const char *what, gd_tensor **rate) {
    char name[MAX_NAME];
    const gd_optim_group *g = &o->groups[group];
    if (*rate) return GD_OK;
    gd_scope *scope = gd_scope_open();
    gd_tensor *value = filled_tensor(gd_optimizer_device(o, group), gd_dims(), GD_F64, g->lr_value);
    *rate = gd_optimizer_state_tensor(o, value, state_name(o, group, what, name));
    gd_scope_close(&scope);
    return *rate ? GD_OK : gd_failure();
}

gd_status gd_optimizer_make_lr(gd_optimizer *o, int group) {
    return make_rate(o, group, "lr", &o->groups[group].lr);
}
gd_status gd_optimizer_make_base(gd_optimizer *o, int group) {
    return make_rate(o, group, "base_lr", &o->groups[group].base);
}

static gd_status make_steps(gd_optimizer *o, int group, int number) {
    char name[MAX_NAME], step[32] = "step";
    gd_optim_part *part = &o->groups[group].parts[number];
    if (part->steps) return GD_OK;
    if (number) snprintf(step, sizeof step, "part%d/step", number);
    gd_scope *scope = gd_scope_open();
    part->steps = gd_optimizer_state_tensor(
        o, filled_tensor(part->parameters[0]->device, gd_dims(part->count), GD_F64, 0),
        state_name(o, group, step, name));
    gd_scope_close(&scope);
    return part->steps ? GD_OK : gd_failure();
}

/* Creates all slots of a parameter or, after a failure, none. */
static gd_status make_slots(const gd_optimizer *o, const gd_optim_group *g, gd_optim_part *part,
                            int i) {
    const gd_tensor *p = part->parameters[i];
    gd_tensor **slots = part->slots + i * g->needs.count, *made[GD_MAX_SLOTS];
    int k = 0;
    if (g->needs.count == 0 || slots[0]) return GD_OK;
    gd_scope *scope = gd_scope_open();
    for (; k < g->needs.count; k++) {
        char name[MAX_NAME];
        if (o->in_graph)
            snprintf(name, sizeof name, "%.200s/%.50s", p->node->origin->name,
                     g->needs.slot[k].name);
        gd_tensor *value = filled_tensor(p->device, gd_shape_of(p->rank, p->dims),
                                         (gd_dtype)p->dtype, g->needs.slot[k].start);
        if (!(made[k] = gd_optimizer_state_tensor(o, value, name))) break;
    }
    gd_scope_close(&scope);
    if (k == g->needs.count) {
        memcpy(slots, made, (size_t)k * sizeof *slots);
        return GD_OK;
    }
    while (k > 0) gd_release(made[--k]);
    return gd_failure();
}

gd_status gd_optimizer_make_parameter(gd_optimizer *o, int group, int part, int i) {
    const gd_optim_group *g = &o->groups[group];
    if (g->needs.counts) GD_TRY(make_steps(o, group, part));
    return make_slots(o, g, &g->parts[part], i);
}

gd_status gd_optimizer_make_state(gd_optimizer *o) {
    for (int n = 0; n < o->n_groups; n++) {
        const gd_optim_group *g = &o->groups[n];
        GD_TRY(gd_optimizer_make_lr(o, n));
        for (int k = 0; k < g->n_parts; k++)
            for (int i = 0; i < g->parts[k].count; i++)
                if (g->parts[k].gradients[i]) GD_TRY(gd_optimizer_make_parameter(o, n, k, i));
    }
    return GD_OK;
}
