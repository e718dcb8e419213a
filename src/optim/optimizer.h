/* optimizer.h - the struct of an optimizer, and functions on optimizers for library code.
 *
 * An optimizer has groups, each with its own options and learning rate. The parameters of a
 * group that have the same factors are a part: one call updates them all. Optimizers are records
 * (dispatch/factory.h); the rules of one are functions of its file, named after it: adam_check,
 * adam_slots, adam_update.
 */
#ifndef GRADUS_OPTIM_OPTIMIZER_H
#define GRADUS_OPTIM_OPTIMIZER_H

#include "core/map.h"
#include "core/object.h"
#include "gradus/optim.h"
#include "graph/build/graph.h"
#include "dispatch/factory.h"

typedef struct gd_optim_part {
    gd_factors factors;
    void *options; /* the group's options, with the weight decay multiplied by the factor */
    int count;
    gd_tensor **parameters; /* retained, as are the tensors below */
    gd_tensor **slots;      /* (count, needs.count); NULL until the first step of a parameter */
    gd_tensor *steps;       /* f64[count]: step counts; NULL before the first step or if unused */
    struct gd_view *views;  /* workspace of a call (gd_each_views); NULL until the first */
    gd_tensor **gradients, **work; /* during a step: (count), (count, 2 + slots) */
} gd_optim_part;

typedef struct gd_moves gd_moves;

typedef struct gd_optim_group {
    void *options;
    double lr_value; /* initial */
    gd_slot_needs needs;
    gd_tensor *lr;   /* f64 of rank 0; NULL until it is used */
    gd_tensor *base; /* the base rate of a schedule: f64 of rank 0; NULL until it is used */
    gd_optim_part *parts;
    int n_parts;
    gd_moves *moves; /* of parameters between parts, not made yet (factors.c); NULL: none */
} gd_optim_group;

struct gd_optimizer {
    gd_object object;
    const gd_factory *factory;
    bool in_graph; /* its parameters are variables, and so is its state */
    gd_optim_group *groups;
    int n_groups, groups_room;
    int n_parameters; /* in all groups */
    gd_map group_of;  /* the group of each parameter, or of its node if it is a variable */

    /* of a module (of_module.c): the first group has the module's parameters */
    struct gd_module_link *of; /* retained; NULL: the groups are lists */
    unsigned seen;             /* gd_module_changes when they were collected */

    int revision; /* changes with parameters of the module and options; traces of steps depend on it */
};

struct gd_update {
    const gd_optimizer *optimizer;
    const gd_optim_group *group;
    gd_optim_part *part;
    gd_tensor *lr, *count;
    gd_tensor *skip; /* f64 of rank 0: if it is not 0, the step is skipped; NULL: never */
    int *entries;    /* indices in the part of the parameters that have a gradient */
    int n_entries;
    gd_tensor **done; /* symbols that a graph must fetch */
    int n_done;
    bool called;
    gd_status status;
};

/* Called by the generated constructors. */
gd_optimizer *gd_optimizer_make(const char *site, const gd_factory *factory, gd_tensors parameters,
                                const void *options);

/* An optimizer of a module; called by the generated constructors gd_optim_NAME_of. */
gd_optimizer *gd_optimizer_make_of(const char *site, const gd_factory *factory, gd_module *module,
                                   const void *options);

/* Takes in the parameters of the optimizer's module that were built since the last call, and drops
 * those that the module does not have any more. The order is always that of the module. Does
 * nothing for an optimizer of a list. */
gd_status gd_optimizer_collect(gd_optimizer *o);

/* gd_optimizer_collect, and moves parameters whose factors were set to their parts (factors.c).
 * Called before state is made, saved or loaded, and wherever the order of the parts matters. */
gd_status gd_optimizer_arrange(gd_optimizer *o);
gd_status gd_optimizer_move(gd_optimizer *o); /* only the second */
void gd_optim_group_forget_moves(gd_optim_group *g);

/* Whether it has parameters, and all of them are frozen. */
bool gd_optimizer_is_frozen(const gd_optimizer *o);

/* Fails unless all parameters of the optimizer are parameters of the net. */
gd_status gd_optimizer_check_within(gd_optimizer *o, gd_module *net);

/* Fails unless there is such a group. */
gd_status gd_optimizer_check_group(const gd_optimizer *o, int group, const char *what);

/* Changes the learning rate of a group, also in a trace. */
gd_status gd_optimizer_change_lr(gd_optimizer *o, int group, double lr);

/* The device of the first parameter of a group; without parameters that on which its module will
 * create them. */
gd_device *gd_optimizer_device(const gd_optimizer *o, int group);

/* The identity of a parameter; all handles of a variable share its node. */
const void *gd_optimizer_key(const gd_tensor *parameter);

/* Fails unless the parameters are leaves, or variables of one graph, and not in the optimizer yet.
 * */
gd_status gd_optimizer_check_parameters(const gd_optimizer *o, const char *what,
                                        gd_tensors parameters, bool *symbols);

/* Notes the group of these new parameters, or nothing if out of memory. */
gd_status gd_optimizer_note_group(gd_optimizer *o, gd_tensors parameters, int group);

/* Changes the group of a parameter that was noted before; -1: it is in none. */
void gd_optimizer_change_group(gd_optimizer *o, const gd_tensor *parameter, int group);

/* Creates a part with these parameters of a group. */
gd_status gd_optim_part_make(const gd_optimizer *o, const gd_optim_group *g, gd_factors factors,
                             gd_tensor *const *parameters, int count, gd_optim_part *part);
void gd_optim_part_free(const gd_optim_group *g, gd_optim_part *part);

/* Create state tensors that do not exist yet (optim_state.c). The state of eager parameters is
 * eager, also while a function is traced or a graph is built. gd_optimizer_make_state creates the
 * state of the parameters that have a gradient now. */
gd_status gd_optimizer_make_lr(gd_optimizer *o, int group);
gd_status gd_optimizer_make_base(gd_optimizer *o, int group);
gd_status gd_optimizer_make_state(gd_optimizer *o);
/* A retained state tensor: the value itself, or in a graph a variable with this initial value. NULL
 * if it fails. */
gd_tensor *gd_optimizer_state_tensor(const gd_optimizer *o, gd_tensor *value, const char *name);
/* The graph of its variables; NULL: it has none, or the graph is freed. */
gd_graph *gd_optimizer_graph(const gd_optimizer *o);

/* Creates the state of one parameter: number `i` of a part of a group. */
gd_status gd_optimizer_make_parameter(gd_optimizer *o, int group, int part, int i);

/* Saving and loading (optim_save.c). */
extern const struct gd_state_rules gd_optimizer_state_rules, gd_schedule_state_rules,
    gd_loss_scale_state_rules;

/* Clips the gradients of the parts (clip.c). */
gd_status gd_clip_symbols(gd_optimizer *o, double max_norm, double eps, double value);

/* The addresses of all gradients in the parts; `at` has room for n_parameters. */
int gd_optimizer_gradients(const gd_optimizer *o, gd_tensor ***at);
/* The p-norm of all gradients as if they were one vector, f64. */
gd_tensor *gd_gradients_norm(gd_tensor *const *gradients, int n, double p);
/* Multiplies each gradient by the factor in place, and reorders the list. `views` must live until
 * the kernels have run. */
gd_status gd_gradients_scale(gd_tensor **gradients, int n, gd_tensor *factor,
                             struct gd_view *views);
struct gd_view *gd_gradients_views(int n); /* the caller frees it; NULL if out of memory */
/* The factor, cast for gradients of a dtype: f64 for f64, otherwise f32. */
gd_tensor *gd_factor_for(gd_tensor *factor, gd_dtype dtype);

/* The phases of a step (step.c): gd_optimizer_check_step, gd_optimizer_find_gradients, gd_optimizer_make_state, and
 * gd_optimizer_advance, which writes. `done` receives the symbols that a graph must fetch.
 * gd_optimizer_room allocates it, also for the symbols of a schedule and a loss scale. */
gd_status gd_optimizer_check_step(gd_optimizer *o, const char *what);
gd_status gd_optimizer_find_gradients(const gd_optimizer *o);
gd_status gd_optimizer_advance(gd_optimizer *o, gd_tensor *skip, gd_tensor **done, int *n_done);
gd_tensor **gd_optimizer_room(const gd_optimizer *o);

/* One step of a schedule; `done` receives the symbols to fetch, at most 1 + groups. `skip` as in
 * gd_update. */
gd_status gd_schedule_advance(gd_schedule *schedule, gd_tensor *skip, gd_tensor **done,
                              int *n_done);
/* The same in two phases: gd_schedule_next computes the new step and the rates of all groups,
 * gd_schedule_assign writes them. */
gd_status gd_schedule_next(const gd_schedule *schedule, gd_tensor *skip, gd_tensor **step,
                           gd_tensor **rates);
gd_status gd_schedule_assign(const gd_schedule *schedule, gd_tensor *step, gd_tensor *const *rates,
                             gd_tensor **done, int *n_done);
const gd_optimizer *gd_schedule_optimizer(const gd_schedule *schedule);

#endif
