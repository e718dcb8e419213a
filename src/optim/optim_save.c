/* optim_save.c - saves and loads the state of optimizers, schedules and loss scales (core/state.h).
 *
 *   optimizer   for each parameter its slots, under PyTorch's names, and the number of its steps:
 *               "fc1.weight.exp_avg", "fc1.weight.step"; for each group its learning rate, and the
 *               base rate of a schedule: "groups.0.lr", "groups.0.base_lr". A parameter has the name
 *               that a module of the same save gives it, else its path in the optimizer's module,
 *               else its number
 *   schedule    "step"
 *   loss scale  "scale", "good_steps", "skipped_steps"
 *
 * Options belong to the program and are not saved.
 */
#include <stdio.h>
#include <string.h>

#include "core/grow.h"
#include "core/map.h"
#include "core/state.h"
#include "gradus/ops.h"
#include "nn/module.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"

static gd_status fail_in_graph(const char *what) {
    return gd_fail(
        GD_E_STATE,
        "the state of this %s consists of variables of a graph; save and load the session instead",
        what);
}

/* --- optimizers ------------------------------------------------------------------------------- */

/* The paths that the parameters of an optimizer of a module have in it. */
typedef struct paths {
    gd_map numbers; /* of parameters */
    char **text;
    int count, room;
} paths;

static void free_paths(paths *p) {
    for (int i = 0; i < p->count; i++) gd_free(p->text[i]);
    gd_free(p->text);
    gd_map_free(&p->numbers);
}

static gd_status add_path(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    paths *p = w->user;
    (void)holder;
    if (e->kind != GD_A_PARAMETER) return GD_OK;
    char *text = gd_grow(p->text, p->count, p->room) ? gd_malloc(strlen(w->path) + 1) : NULL;
    if (!text) return gd_no_memory(NULL, "for names of parameters");
    p->text[p->count++] = strcpy(text, w->path);
    return gd_map_put(&p->numbers, e->object, p->count - 1)
               ? GD_OK
               : gd_no_memory(NULL, "for names of parameters");
}

static gd_status read_paths(const gd_optimizer *o, paths *p) {
    *p = (paths){.count = 0};
    if (!o->of || !o->of->module) return GD_OK;
    const gd_status status =
        gd_module_walk(o->of->module, &(gd_tree_walk){.tensor = add_path, .user = p});
    if (status != GD_OK) free_paths(p);
    return status;
}

/* A parameter whose state is saved or loaded. */
typedef struct subject {
    const gd_tensor *parameter;
    const char *path; /* in the module of the optimizer; NULL: it has none */
    int64_t index;
} subject;

static subject subject_of(const paths *p, const gd_tensor *parameter, int64_t index) {
    const int i = gd_map_find(&p->numbers, parameter);
    return (subject){parameter, i >= 0 ? p->text[i] : NULL, index};
}

/* Whether the state of the parameter exists: a step has updated it, or a load has created it. */
static bool has_parameter_state(const gd_optim_group *g, const gd_optim_part *part, int i) {
    return g->needs.count > 0 ? part->slots[i * g->needs.count] != NULL : part->steps != NULL;
}

static gd_status put_tensor(gd_state *state, subject of, const char *suffix, gd_tensor *tensor) {
    const char *name = gd_state_name_for(state, of.parameter, of.path, of.index, suffix);
    if (!name || tensor->kind == GD_FAILED) return gd_failure();
    return gd_state_put_tensor(state, name, tensor);
}

static gd_status save_parameter(gd_state *state, const gd_optim_group *g, const gd_optim_part *part,
                                int i, subject of) {
    if (!has_parameter_state(g, part, i)) return GD_OK;
    for (int k = 0; k < g->needs.count; k++)
        GD_TRY(put_tensor(state, of, g->needs.slot[k].name, part->slots[i * g->needs.count + k]));
    return part->steps ? put_tensor(state, of, "step", gd_select(part->steps, 0, i)) : GD_OK;
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

static gd_status save_groups(gd_state *state, gd_optimizer *o, const paths *p) {
    int64_t index = 0;
    for (int n = 0; n < o->n_groups; n++) {
        const gd_optim_group *g = &o->groups[n];
        GD_TRY(save_rates(state, o, n));
        for (int k = 0; k < g->n_parts; k++)
            for (int i = 0; i < g->parts[k].count; i++, index++)
                GD_TRY(save_parameter(state, g, &g->parts[k], i,
                                      subject_of(p, g->parts[k].parameters[i], index)));
    }
    return GD_OK;
}

static gd_status save_optimizer(gd_object *object, gd_state *state) {
    gd_optimizer *o = (gd_optimizer *)object;
    if (o->in_graph) return fail_in_graph("optimizer");
    GD_EAGER;
    GD_NO_GRAD;
    GD_SCOPE;
    paths p;
    GD_TRY(gd_optimizer_arrange(o));
    GD_TRY(read_paths(o, &p));
    const gd_status status = save_groups(state, o, &p);
    free_paths(&p);
    return status;
}

/* Whether the file has state of the parameter. */
static gd_status find_state(gd_loading *in, const gd_optim_group *g, subject of, bool *found) {
    const char *suffix = g->needs.count > 0 ? g->needs.slot[0].name : "step";
    const char *name = gd_loading_name_for(in, of.parameter, of.path, of.index, suffix);
    if (!name) return gd_failure();
    *found = gd_loading_has(in, name);
    return GD_OK;
}

static gd_status take_tensor(gd_loading *in, subject of, const char *suffix, gd_tensor *tensor) {
    const char *name = gd_loading_name_for(in, of.parameter, of.path, of.index, suffix);
    if (!name || tensor->kind == GD_FAILED) return gd_failure();
    return gd_loading_tensor(in, name, tensor);
}

/* Creates the state of a parameter if it has had no step. If the load fails, the new state has its
 * initial values, so nothing has changed. */
static gd_status load_parameter(gd_loading *in, gd_optimizer *o, int group, int number, int i,
                                subject of) {
    gd_optim_group *g = &o->groups[group];
    gd_optim_part *part = &g->parts[number];
    bool found = has_parameter_state(g, part, i);
    if (g->needs.count == 0 && !g->needs.counts) return GD_OK;
    if (!found) GD_TRY(find_state(in, g, of, &found));
    if (!found) return GD_OK;
    GD_TRY(gd_optimizer_make_parameter(o, group, number, i));
    for (int k = 0; k < g->needs.count; k++)
        GD_TRY(take_tensor(in, of, g->needs.slot[k].name, part->slots[i * g->needs.count + k]));
    return part->steps ? take_tensor(in, of, "step", gd_select(part->steps, 0, i)) : GD_OK;
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

static gd_status load_groups(gd_loading *in, gd_optimizer *o, const paths *p) {
    int64_t index = 0;
    for (int n = 0; n < o->n_groups; n++) {
        GD_TRY(load_rates(in, o, n));
        for (int k = 0; k < o->groups[n].n_parts; k++)
            for (int i = 0; i < o->groups[n].parts[k].count; i++, index++)
                GD_TRY(load_parameter(in, o, n, k, i,
                                      subject_of(p, o->groups[n].parts[k].parameters[i], index)));
    }
    return GD_OK;
}

/* State of parameters that do not exist yet would be lost. */
static gd_status check_built(const gd_optimizer *o) {
    char text[300];
    if (!o->of || !o->of->module || gd_module_unbuilt(o->of->module, NULL, text, sizeof text) == 0)
        return GD_OK;
    return gd_fail(GD_E_STATE,
                   "the sizes of %s are GD_ANY and not inferred yet; call gd_module_build or the "
                   "module of the optimizer first",
                   text);
}

static gd_status load_optimizer(gd_object *object, gd_loading *in) {
    gd_optimizer *o = (gd_optimizer *)object;
    if (o->in_graph) return fail_in_graph("optimizer");
    GD_EAGER;
    GD_NO_GRAD;
    GD_SCOPE;
    paths p;
    GD_TRY(check_built(o));
    GD_TRY(gd_optimizer_arrange(o));
    GD_TRY(read_paths(o, &p));
    const gd_status status = load_groups(in, o, &p);
    free_paths(&p);
    return status;
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
