/* optimizer.h - the inside of an optimizer.
 *
 * An optimizer has groups, each with options and a learning rate of its own. The parameters of a
 * group that have the same factors are a part: one call updates them all. Optimizers are records
 * (ops/maker.h); the rules of one are functions of its file, named after it: adam_check,
 * adam_slots, adam_update.
 */
#ifndef GRADUS_OPTIM_OPTIMIZER_H
#define GRADUS_OPTIM_OPTIMIZER_H

#include "core/object.h"
#include "gradus/optim.h"
#include "graph/build/graph.h"
#include "ops/maker.h"

typedef struct gd_optim_part {
    gd_factors factors;
    void *options; /* the group's, with the weight decay times the factor */
    int count;
    gd_tensor **parameters; /* held, as are the tensors below */
    gd_tensor *
        *slots;       /* (count, needs.count); those of a parameter are NULL until its first step */
    gd_tensor *steps; /* f64[count]: how many each has taken; NULL until the first, and where nobody
                         counts */
    struct gd_view *views;         /* room for a call, gd_each_views; NULL until the first */
    gd_tensor **gradients, **work; /* during a step: (count), (count, 2 + slots) */
} gd_optim_part;

typedef struct gd_optim_group {
    void *options;
    double lr_value; /* at first */
    gd_slot_needs needs;
    gd_tensor *lr;   /* f64, of rank 0; NULL until somebody asks */
    gd_tensor *base; /* the rate that a schedule starts from, likewise */
    gd_optim_part *parts;
    int n_parts;
} gd_optim_group;

struct gd_optimizer {
    gd_object object;
    const gd_maker *maker;
    bool in_graph; /* its parameters are variables, and so is its state */
    gd_optim_group *groups;
    int n_groups;
    int n_parameters; /* in all groups */
};

struct gd_update {
    const gd_optimizer *optimizer;
    const gd_optim_group *group;
    gd_optim_part *part;
    gd_tensor *lr, *count;
    gd_tensor
        *skip;    /* f64 of rank 0: where it is not 0, the step changes nothing; NULL: it counts */
    int *entries; /* numbers in the part of those parameters that have a gradient */
    int n_entries;
    gd_tensor **done; /* results, for a graph */
    int n_done;
    bool called;
    gd_status status;
};

/* What the generated constructors call. */
gd_optimizer *gd_optimizer_make(const char *site, const gd_maker *maker, gd_tensors parameters,
                                const void *options);

/* The parameters must be leaves, or variables of one graph, that are not in the optimizer yet. */
gd_status gd_optimizer_check_parameters(const gd_optimizer *o, const char *what,
                                        gd_tensors parameters, bool *symbols);

/* Parts of a group: one with all parameters, which nobody owns before. */
gd_status gd_optim_part_make(const gd_optimizer *o, const gd_optim_group *g, gd_factors factors,
                             gd_tensor *const *parameters, int count, gd_optim_part *part);
void gd_optim_part_free(const gd_optim_group *g, gd_optim_part *part);

/* The tensors that are kept between steps (state.c). The state of eager parameters is eager, also
 * while a function is traced or a graph is built. */
gd_status gd_optimizer_make_lr(gd_optimizer *o, int group);
gd_status gd_optimizer_make_base(gd_optimizer *o, int group);
gd_status
gd_optimizer_make_state(gd_optimizer *o); /* for the parameters that have a gradient now */
/* A tensor that lasts, held: a value, or in a graph a variable of this name that begins as it.
 * NULL: failed. */
gd_tensor *gd_optimizer_keep(const gd_optimizer *o, gd_tensor *value, const char *name);
/* The graph of its variables; NULL: it has none, or the graph is gone. */
gd_graph *gd_optimizer_graph(const gd_optimizer *o);

/* The same for one parameter: number `i` of a part of a group. */
gd_status gd_optimizer_make_parameter(gd_optimizer *o, int group, int part, int i);

/* How they are saved and loaded (optim_save.c). */
extern const struct gd_state_rules gd_optimizer_state_rules, gd_schedule_state_rules,
    gd_loss_scale_state_rules;

/* Gradients in place of those of the parts: clipped (clip.c). */
gd_status gd_clip_symbols(gd_optimizer *o, double max_norm, double value);

/* Where the gradient of each parameter stands that has one; `at` has room for n_parameters. */
int gd_optimizer_gradients(const gd_optimizer *o, gd_tensor ***at);
/* The p-norm of all gradients as if they were one vector, f64. */
gd_tensor *gd_gradients_norm(gd_tensor *const *gradients, int n, double p);
/* Each times the factor, in place. The list is put into another order. `views` must live until the
 * kernels have run. */
gd_status gd_gradients_scale(gd_tensor **gradients, int n, gd_tensor *factor,
                             struct gd_view *views);
struct gd_view *gd_gradients_views(int n); /* room for that, to be freed; NULL: failed */
/* The factor as gradients of a dtype are multiplied by it. */
gd_tensor *gd_factor_for(gd_tensor *factor, gd_dtype dtype);

/* A step in parts (step.c). The gradients of all parameters are found first; then, with the state
 * there (gd_optimizer_make_state), gd_optimizer_advance writes. `done` gets what a graph has to fetch;
 * gd_optimizer_room makes it, large enough for a schedule and a loss scale, too. */
gd_status gd_optimizer_check_step(const gd_optimizer *o, const char *what);
gd_status gd_optimizer_find_gradients(const gd_optimizer *o);
gd_status gd_optimizer_advance(gd_optimizer *o, gd_tensor *skip, gd_tensor **done, int *n_done);
gd_tensor **gd_optimizer_room(const gd_optimizer *o);

/* One step of a schedule; `done` gets what has to be fetched. At most 1 + groups. `skip` as in
 * gd_update. */
gd_status gd_schedule_advance(gd_schedule *schedule, gd_tensor *skip, gd_tensor **done,
                              int *n_done);
/* The same in two parts: what it will write, `rates` for each group; and writing it. */
gd_status gd_schedule_next(const gd_schedule *schedule, gd_tensor *skip, gd_tensor **step,
                           gd_tensor **rates);
gd_status gd_schedule_assign(const gd_schedule *schedule, gd_tensor *step, gd_tensor *const *rates,
                             gd_tensor **done, int *n_done);
const gd_optimizer *gd_schedule_optimizer(const gd_schedule *schedule);

#endif
