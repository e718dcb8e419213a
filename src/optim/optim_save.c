/* optim_save.c - saves and loads the state of optimizers, schedules and loss scales (core/state.h).
 *
 *   optimizer   for each parameter its slots, under PyTorch's names, and the number of its steps:
 *               "fc1.weight.exp_avg", "fc1.weight.step"; for each group its learning rate, and the
 *               base rate of a schedule: "groups.0.lr", "groups.0.base_lr"
 *   schedule    "step"
 *   loss scale  "scale", "good_steps", "skipped_steps"
 *
 * Options belong to the program and are not saved.
 */
#include <stdio.h>

#include "core/state.h"
#include "gradus/ops.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"

static gd_status fail_in_graph(const char *what) {
    return gd_fail(
        GD_E_STATE,
        "the state of this %s consists of variables of a graph; save and load the session instead",
        what);
}

/* --- optimizers ------------------------------------------------------------------------------- */

/* Whether the state of the parameter exists: a step has updated it, or a load has created it. */
static bool has_parameter_state(const gd_optim_group *g, const gd_optim_part *part, int i) {
    return g->needs.count > 0 ? part->slots[i * g->needs.count] != NULL : part->steps != NULL;
}

static gd_status put_tensor(gd_state *state, const gd_tensor *p, int64_t index, const char *suffix,
                            gd_tensor *tensor) {
    const char *name = gd_state_name_for(state, p, index, suffix);
    if (!name || tensor->kind == GD_FAILED) return gd_failure();
    return gd_state_put_tensor(state, name, tensor);
}

static gd_status save_parameter(gd_state *state, const gd_optim_group *g, const gd_optim_part *part,
                                int i, int64_t index) {
    const gd_tensor *p = part->parameters[i];
    if (!has_parameter_state(g, part, i)) return GD_OK;
    for (int k = 0; k < g->needs.count; k++)
        GD_TRY(put_tensor(state, p, index, g->needs.slot[k].name,
                          part->slots[i * g->needs.count + k]));
    return part->steps ? put_tensor(state, p, index, "step", gd_select(part->steps, 0, i)) : GD_OK;
}

static gd_status save_rates(gd_state *state, gd_optimizer *o, int group) {
    char name[40];
    GD_TRY(gd_optimizer_make_lr(o, group));
    snprintf(name, sizeof name, "groups.%d.lr", group);
    GD_TRY(gd_state_put_tensor(state, name, o->groups[group].lr));
    if (!o->groups[group].base) return GD_OK;
    snprintf(name, sizeof name, "groups.%d.base_lr", group);
    return gd_state_put_tensor(state, name, o->groups[group].base);
}

static gd_status save_optimizer(gd_object *object, gd_state *state) {
    gd_optimizer *o = (gd_optimizer *)object;
    if (o->in_graph) return fail_in_graph("optimizer");
    GD_EAGER;
    GD_NO_GRAD;
    GD_SCOPE;
    int64_t index = 0;
    for (int n = 0; n < o->n_groups; n++) {
        const gd_optim_group *g = &o->groups[n];
        GD_TRY(save_rates(state, o, n));
        for (int k = 0; k < g->n_parts; k++)
            for (int i = 0; i < g->parts[k].count; i++)
                GD_TRY(save_parameter(state, g, &g->parts[k], i, index++));
    }
    return GD_OK;
}

/* Whether the file has state of the parameter. */
static gd_status find_state(gd_loading *in, const gd_optim_group *g, const gd_tensor *p,
                            int64_t index, bool *found) {
    const char *suffix = g->needs.count > 0 ? g->needs.slot[0].name : "step";
    const char *name = gd_loading_name_for(in, p, index, suffix);
    if (!name) return gd_failure();
    *found = gd_loading_has(in, name);
    return GD_OK;
}

static gd_status take_tensor(gd_loading *in, const gd_tensor *p, int64_t index, const char *suffix,
                             gd_tensor *tensor) {
    const char *name = gd_loading_name_for(in, p, index, suffix);
    if (!name || tensor->kind == GD_FAILED) return gd_failure();
    return gd_loading_tensor(in, name, tensor);
}

/* Creates the state of a parameter if it has had no step. If the load fails, the new state has its
 * initial values, so nothing has changed. */
static gd_status load_parameter(gd_loading *in, gd_optimizer *o, int group, int number, int i,
                                int64_t index) {
    gd_optim_group *g = &o->groups[group];
    gd_optim_part *part = &g->parts[number];
    const gd_tensor *p = part->parameters[i];
    bool found = has_parameter_state(g, part, i);
    if (g->needs.count == 0 && !g->needs.counts) return GD_OK;
    if (!found) GD_TRY(find_state(in, g, p, index, &found));
    if (!found) return GD_OK;
    GD_TRY(gd_optimizer_make_parameter(o, group, number, i));
    for (int k = 0; k < g->needs.count; k++)
        GD_TRY(
            take_tensor(in, p, index, g->needs.slot[k].name, part->slots[i * g->needs.count + k]));
    return part->steps ? take_tensor(in, p, index, "step", gd_select(part->steps, 0, i)) : GD_OK;
}

static gd_status load_rates(gd_loading *in, gd_optimizer *o, int group) {
    char name[40];
    GD_TRY(gd_optimizer_make_lr(o, group));
    snprintf(name, sizeof name, "groups.%d.lr", group);
    GD_TRY(gd_loading_tensor(in, name, o->groups[group].lr));
    snprintf(name, sizeof name, "groups.%d.base_lr", group);
    if (!o->groups[group].base && !gd_loading_has(in, name)) return GD_OK;
    GD_TRY(gd_optimizer_make_base(o, group));
    return gd_loading_tensor(in, name, o->groups[group].base);
}

static gd_status load_optimizer(gd_object *object, gd_loading *in) {
    gd_optimizer *o = (gd_optimizer *)object;
    if (o->in_graph) return fail_in_graph("optimizer");
    GD_EAGER;
    GD_NO_GRAD;
    GD_SCOPE;
    int64_t index = 0;
    for (int n = 0; n < o->n_groups; n++) {
        GD_TRY(load_rates(in, o, n));
        for (int k = 0; k < o->groups[n].n_parts; k++)
            for (int i = 0; i < o->groups[n].parts[k].count; i++)
                GD_TRY(load_parameter(in, o, n, k, i, index++));
    }
    return GD_OK;
}

const gd_state_rules gd_optimizer_state_rules = {save_optimizer, load_optimizer};

/* --- schedules -------------------------------------------------------------------------------- */

static gd_status save_schedule(gd_object *object, gd_state *state) {
    gd_schedule *s = (gd_schedule *)object;
    return s->optimizer->in_graph ? fail_in_graph("schedule")
                                  : gd_state_put_tensor(state, "step", s->step);
}

static gd_status load_schedule(gd_object *object, gd_loading *in) {
    gd_schedule *s = (gd_schedule *)object;
    return s->optimizer->in_graph ? fail_in_graph("schedule")
                                  : gd_loading_tensor(in, "step", s->step);
}

const gd_state_rules gd_schedule_state_rules = {save_schedule, load_schedule};

/* --- loss scales ------------------------------------------------------------------------------ */

static gd_status give_loss_scale(gd_object *object, gd_state *state) {
    const gd_loss_scale *s = (gd_loss_scale *)object;
    if (s->home == GD_LOSS_SCALE_GRAPH) return fail_in_graph("loss scale");
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++)
        GD_TRY(gd_state_put_tensor(state, gd_loss_scale_names[i], s->state[i]));
    return GD_OK;
}

static gd_status take_loss_scale(gd_object *object, gd_loading *in) {
    const gd_loss_scale *s = (gd_loss_scale *)object;
    if (s->home == GD_LOSS_SCALE_GRAPH) return fail_in_graph("loss scale");
    for (int i = 0; i < GD_LOSS_SCALE_STATE; i++)
        GD_TRY(gd_loading_tensor(in, gd_loss_scale_names[i], s->state[i]));
    return GD_OK;
}

const gd_state_rules gd_loss_scale_state_rules = {give_loss_scale, take_loss_scale};
