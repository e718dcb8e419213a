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

/* Properties of the program that do not depend on the schedule. */
typedef struct gd_remat_model {
    gd_program *p;
    const gd_remat *given;
    int *producer;  /* per root: the step that writes it first; -1: none */
    int *writers;   /* per root: how many steps write it */
    bool *risks;    /* per step: it may fail */
    bool *can;      /* per step: it can be repeated */
    bool *heavy;    /* per step: it is expensive, such as a matrix product */
    double *cost;   /* per step: an estimate of its time */
    bool *assigned; /* per root: it is committed to a variable at the end */
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

/* Whether the step updates the root, a copy of a variable: each repetition needs a new copy. */
bool gd_remat_is_written(const gd_remat_model *m, const gd_pstep *s, int root);
size_t gd_remat_bytes(const gd_remat_model *m, int root);

/* Computes the lifetimes of a schedule; false: no memory. The caller frees `lives`. */
bool gd_remat_lives(const gd_remat_model *m, const gd_remat_schedule *s, gd_lives *result);

/* Changes the program to follow the schedule. `steps` is a new array. */
gd_status gd_remat_apply(const gd_remat_model *m, const gd_remat_schedule *s);

#endif
