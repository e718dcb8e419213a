/* remat.h - internals of rematerialization: schedules in which steps may occur more than once.
 *
 * A schedule is a list of step numbers. A repeated step computes its results again, and later
 * readers read the new results; so the schedule alone determines the lifetimes.
 */
#ifndef GRADUS_GRAPH_PASSES_REMAT_H
#define GRADUS_GRAPH_PASSES_REMAT_H

#include "graph/passes/passes.h"

typedef struct gd_remat_schedule {
    int *steps;
    int count, room;
} gd_remat_schedule;

/* Where in gd_remat_model.operands the temporaries begin that a step reads, where those that it
 * writes, and where they end. A view step has none. */
typedef struct gd_remat_step {
    int in, out, end;
} gd_remat_step;

typedef struct gd_remat_operand {
    int root;
    bool updated; /* the step changes it, a copy of a variable: a repetition needs a new copy */
} gd_remat_operand;

/* Properties of the program that do not depend on the schedule. The search reads them hundreds of
 * times, so they are smaller than the program's own arrays. */
typedef struct gd_remat_model {
    gd_program *p;
    const gd_remat *given;
    gd_remat_step *steps;
    gd_remat_operand *operands; /* of all steps */
    size_t *bytes;              /* per root: in the slab */
    bool *fetched;              /* per root */
    bool *in_place;             /* per step: results may share the memory of operands */
    int *producer;              /* per root: the step that writes it first; -1: none */
    int *writers;               /* per root: how many steps write it */
    bool *risks;                /* per step: it may fail */
    bool *can;                  /* per step: it can be repeated */
    bool *heavy;                /* per step: it is expensive, such as a matrix product */
    double *cost;               /* per step: an estimate of its time */
    bool *assigned;             /* per root: it is committed to a variable at the end */
} gd_remat_model;

/* The lifetime of one result of one occurrence of a step. */
typedef struct gd_life {
    int root, begin, end; /* positions in the schedule, both included */
    int before, after;    /* the last use up to the peak, the first after it; -1: none */
    bool counted;         /* it is in the slab */
} gd_life;

typedef struct gd_lives {
    gd_life *lives;
    int count;
    size_t peak; /* bytes */
    int at;      /* the position of the peak */
    double cost; /* of all repeated steps */
} gd_lives;

gd_status gd_remat_begin(gd_remat_model *m, gd_program *p, const gd_remat *given);
void gd_remat_end(gd_remat_model *m);

/* Computes the lifetimes of a schedule; false: no memory. The caller frees `lives`. */
bool gd_remat_lives(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *result);

/* The same without `lives`. */
bool gd_remat_peak(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *result);

/* Changes the program to follow the schedule. `steps` is a new array. */
gd_status gd_remat_apply(const gd_remat_model *m, const gd_remat_schedule *s);

#endif
