/* fuse.h - internals of the fusion pass, which puts steps into groups and turns each group into one
 * step. */
#ifndef GRADUS_GRAPH_PASSES_FUSE_H
#define GRADUS_GRAPH_PASSES_FUSE_H

#include "codegen/fusion_rules.h"
#include "graph/passes/passes.h"
#include "dispatch/fused.h"

typedef enum gd_fuse_kind {
    GD_FUSE_NOT,       /* stays as it is */
    GD_FUSE_EACH,      /* elementwise */
    GD_FUSE_REDUCTION, /* reduces the last result of a group, or rows in a group of rows */
} gd_fuse_kind;

/* Properties of a step. */
typedef struct gd_fuse_step {
    gd_fuse_kind kind;
    gd_dtype type; /* EACH: the type it computes in; NONE: a bool of bools, in any type */
    int group;     /* the number of its group; of a single step, its own number */
    int next;      /* the next member of the group; -1: the last */
    int row_axes;  /* REDUCTION in a group of rows: how many last axes are a row; else 0 */
    int first_user, n_users, first_need, n_needs; /* in `users` and `needs` */
} gd_fuse_step;

/* The state of a step before it was changed. */
typedef struct gd_fuse_undo {
    int step;
    gd_fuse_step was;
} gd_fuse_undo;

/* The number of a group is that of one of its members. */
typedef struct gd_fuse {
    gd_program *p;
    gd_device *device;
    const gd_fusion_rules *rules; /* the device's */
    gd_fuse_step *steps;
    int *users, *needs; /* the steps that depend on a step, and those that it depends on */
    int *producer;      /* per value: the step whose output it is; -1: none */
    int *writer;        /* per root: the last step that writes it; -1: none */
    int *first_reader;  /* per root: in `readers`, where the next root's begin, too */
    int *readers;       /* steps that read a root or a view of it, and are no views */
    bool *kept;         /* per root: it is fetched or committed */
    int *seen, stamp;   /* marks of a search */
    int *stack;
    int *reach; /* see gd_fuse_forms_cycle */
    int gate, *leads,
        n_leads;        /* a step, and marks of the steps that it depends on (fuse_group.c) */
    int64_t visited;    /* users in searches since it was chosen */
    gd_fuse_undo *undo; /* steps changed since the last gd_fuse_save, each once */
    int n_undo, *changed, saves; /* changed: per step, the save since which it is in `undo` */
    int compiler; /* whether kernels can be compiled: 1 yes, -1 no, 0 not checked yet */
} gd_fuse;

gd_status gd_fuse_begin(gd_fuse *f, gd_program *p, gd_device *device);
void gd_fuse_end(gd_fuse *f);

/* Puts steps into groups; returns how many groups become fused steps. */
int gd_fuse_group(gd_fuse *f);
/* Whether the step's number is that of a group that becomes a fused step. */
bool gd_fuse_is_group(const gd_fuse *f, int step);

/* The axes that a reduction reduces, a bit for each. */
gd_status gd_fuse_axes(const gd_program *p, const gd_pstep *s, uint32_t *axes);

/* Whether a value is filled with one constant. */
bool gd_fuse_constant(const gd_fuse *f, int value, double *number);
/* Whether the value is one element, which the kernel can read once as a parameter. */
bool gd_fuse_is_scalar(const gd_fuse *f, int value, gd_dtype type, int64_t elements);
/* Whether anything outside the step's group reads a value. */
bool gd_fuse_is_wanted(const gd_fuse *f, int value);

/* --- groups (fuse_group.c) -------------------------------------------------------------------- */

/* The type that a group computes in; NONE: bools alone. */
gd_dtype gd_fuse_type(const gd_fuse *f, int group);
/* Whether a member may read another member's value before it is rounded to its dtype. */
bool gd_fuse_can_pass(const gd_fuse *f, int value, gd_dtype type);
/* Whether both fit into one kernel that runs over `count` elements. */
bool gd_fuse_fits(const gd_fuse *f, int a, int b, gd_dtype type, int64_t count);
/* Whether a step outside the groups depends on a member, and a member on it: one step of both
 * groups would form a cycle with it. */
bool gd_fuse_forms_cycle(gd_fuse *f, int a, int b);
void gd_fuse_unite(gd_fuse *f, int a, int b);

/* Splits a group into single steps. */
void gd_fuse_dissolve(gd_fuse *f, int group);

/* gd_fuse_restore undoes the changes since the last gd_fuse_save. */
void gd_fuse_save(gd_fuse *f);
void gd_fuse_restore(gd_fuse *f);
/* Call before changing a step's group, next or row_axes. */
void gd_fuse_change(gd_fuse *f, int step);

/* --- costs of groups (fuse_worth.c) ----------------------------------------------------------- */

/* Whether a fused step is faster than the steps of the group one after the other. */
bool gd_fuse_is_worth(gd_fuse *f, int group);
/* The same where the group has no compiled kernel. */
bool gd_fuse_is_worth_evaluating(gd_fuse *f, int group);
/* For tests: fuse everything that can be fused, even where it is slower. */
void gd_fuse_set_always(bool on);
bool gd_fuse_always(void);

/* --- groups of rows (fuse_rows.c) ------------------------------------------------------------- */

/* The elementwise members of such a group run over all elements of a shape, or have one value for
 * each row: the reductions, and what is computed from those. */

typedef struct gd_row_shape {
    const gd_pvalue *shape; /* of all elements; its last `axes` axes are a row */
    int axes;
    int64_t rows, n; /* how many rows, and elements of one */
} gd_row_shape;

/* Builds such groups. */
void gd_fuse_rows(gd_fuse *f);
/* Whether a group is a group of rows; `shape` is theirs. */
bool gd_fuse_row_shape(const gd_fuse *f, int group, gd_row_shape *shape);
/* Whether the value, broadcast to the shape, has one value for each row, contiguous in its
 * root. */
bool gd_fuse_is_row_value(const gd_pvalue *v, const gd_row_shape *shape);
/* Whether the value is contiguous and has one element for each row. */
bool gd_fuse_is_column(const gd_pvalue *v, const gd_row_shape *shape);

/* --- a group that becomes a step (passes/fuse.c) ---------------------------------------------- */

typedef struct gd_fusing {
    gd_fuse *f;
    int members[GD_FUSED_OPS], n_members; /* in the order of the program */
    int reduction;                        /* a step, or -1 */
    bool by_rows;                         /* a group of rows: reductions are among its members */
    gd_row_shape row_shape;
    int tensors[GD_FUSED_TENSORS], scalars[GD_FUSED_PARAMS], columns[GD_ROW_COLUMNS], n_columns;
    int outputs[GD_FUSED_OUTPUTS], n_outputs;  /* values */
    int made[GD_FUSED_OPS][GD_IR_MAX_OUTPUTS]; /* IR nodes of the members' outputs */
    gd_fused_options options;
    gd_fusion model;
    gd_row_program rows;
    gd_ir_builder b;
    gd_ir_node nodes[GD_IR_MAX_NODES];
} gd_fusing;

/* Constants with the same bits are one parameter; they are numbered after the scalars. */
int gd_fusing_constant(gd_fusing *g, double number);
/* The IR node of a value that member i reads. */
int gd_fusing_node(gd_fusing *g, int i, int value);
/* Stores the IR nodes of an elementwise member's outputs in g->made. */
void gd_fusing_member(gd_fusing *g, int i);

/* Composes the row program of a group of rows (fuse_rows_step.c). False: it is too long. */
bool gd_fusing_rows(gd_fusing *g);

#endif
