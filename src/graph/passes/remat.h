/* remat.h - the inside of passes/remat.c: orders in which steps may come more than once.
 *
 * A schedule is a list of steps' numbers. A step that comes again computes its results once more,
 * and whoever reads them behind it reads the new ones; so the list alone says what is alive when.
 */
#ifndef GRADUS_GRAPH_REMAT_H
#define GRADUS_GRAPH_REMAT_H

#include "graph/lower/program.h"

typedef struct gd_schedule {
    int *steps;
    int count, room;
} gd_schedule;

/* What is known of the program, whatever the schedule. */
typedef struct gd_remat_model {
    gd_program *p;
    const gd_remat *given;
    int *maker;     /* of each root: the step that writes it first; -1: none */
    int *writers;   /* of each root: how many steps write it */
    bool *risks;    /* of each step: it may fail */
    bool *can;      /* of each step: it may come again */
    bool *heavy;    /* of each step: it is a product, or so: cheap steps are rather repeated */
    double *cost;   /* of each step: roughly the time it takes */
    bool *assigned; /* of each root: a variable gets it at the end */
} gd_remat_model;

/* One result of one occurrence of a step. */
typedef struct gd_life {
    int root, begin, end; /* positions in the schedule, both included */
    int before, after;    /* of its uses: the last up to the peak, the first behind it; -1: none */
    bool counted;         /* it is in the slab */
} gd_life;

typedef struct gd_lives {
    gd_life *lives;
    int count;
    size_t peak; /* bytes */
    int at;      /* where */
    double cost; /* of all repeated steps */
} gd_lives;

gd_status gd_remat_begin(gd_remat_model *m, gd_program *p, const gd_remat *given);
void gd_remat_end(gd_remat_model *m);

/* A copy of a variable that the step then writes: each time it comes, it needs one of its own. */
bool gd_remat_is_written(const gd_remat_model *m, const gd_pstep *s, int root);
size_t gd_remat_bytes(const gd_remat_model *m, int root);

/* What is alive when; false, noted: no memory. Free `lives`. */
bool gd_remat_lives(const gd_remat_model *m, const gd_schedule *s, gd_lives *result);

/* Makes the program do what the schedule says. The steps are a new array. */
gd_status gd_remat_apply(const gd_remat_model *m, const gd_schedule *s);

#endif
