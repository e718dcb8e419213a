/* fuse.h - the inside of the fusion pass: which steps go together, and what becomes of them. */
#ifndef GRADUS_GRAPH_FUSE_H
#define GRADUS_GRAPH_FUSE_H

#include "graph/program.h"
#include "ops/fused.h"

/* Limits of one kernel; with them the evaluator's tiles fit on the stack. */
enum { GD_FUSED_MEMBERS = 64, GD_FUSED_NODES = 96 };

typedef enum gd_fuse_kind {
    GD_FUSE_NOT,       /* stays as it is */
    GD_FUSE_EACH,      /* elementwise */
    GD_FUSE_REDUCTION, /* takes in the last result of a group */
} gd_fuse_kind;

/* What the pass knows of a step. */
typedef struct gd_fuse_step {
    gd_fuse_kind kind;
    gd_dtype type; /* EACH: computed in; NONE: a truth of truths, in any type */
    int group;     /* its number; of one that stands alone, its own */
    int next;      /* member of the group; -1: the last */
    int first_user, n_users, first_need, n_needs; /* in `users` and `needs` */
} gd_fuse_step;

/* Groups have the number of one of their members. */
typedef struct gd_fuse {
    gd_program *p;
    gd_fuse_step *steps;
    int *users, *needs; /* steps that come after a step, before it */
    int *made_by;       /* of each value: the step whose output it is; -1: none */
    int *writer;        /* of each root: the step that writes it (the last one); -1: none */
    bool *kept;         /* of each root: fetched, or committed */
    int *seen, stamp;   /* marks of a search */
    int *stack;
} gd_fuse;

gd_status gd_fuse_begin(gd_fuse *f, gd_program *p);
void gd_fuse_end(gd_fuse *f);

/* Puts steps into groups; returns how many are to become a fused step. */
int gd_fuse_group(gd_fuse *f);
/* Whether the step gives its number to a group that is to become a fused step. */
bool gd_fuse_is_group(const gd_fuse *f, int step);

bool gd_fuse_same_dims(const gd_pvalue *a, const gd_pvalue *b);
/* A constant that a value is filled with: a step that writes one number everywhere. */
bool gd_fuse_constant(const gd_fuse *f, int value, double *number);
/* A value of one element that is read once for all. */
bool gd_fuse_is_scalar(const gd_fuse *f, int value, gd_dtype type, int64_t elements);
/* Whether anything outside the step's group reads a value. */
bool gd_fuse_is_wanted(const gd_fuse *f, int value);

#endif
