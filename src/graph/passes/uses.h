/* uses.h - which steps use a value or a root, for passes that would search all steps for them.
 *
 * A pass that replaces a step tells it (gd_uses_add); steps may be removed at any time. Positions
 * of steps must not change.
 */
#ifndef GRADUS_GRAPH_PASSES_USES_H
#define GRADUS_GRAPH_PASSES_USES_H

#include "graph/lower/program.h"

/* An entry of a list of steps. The step may have been removed or replaced since. */
typedef struct gd_use {
    int step;
    int place; /* that of the value among the step's inputs or results */
    int next;  /* the next entry; -1: none */
} gd_use;

typedef struct gd_uses {
    const gd_program *program;
    int *factories;        /* for each value: the steps that have it as a result */
    int *readers;          /* for each root: the steps that read it */
    int *writers;          /* for each root: the steps, other than views, that write it */
    int *values;           /* for each root: one of its values; -1: none */
    int *next_value;       /* for each value: the next value of its root; -1: none */
    int n_listed;          /* values from this one on are in no list yet */
    int n_values, n_roots; /* the lengths of these arrays */
    gd_use *entries;
    int count, room;
    bool incomplete; /* out of memory: searches may find too little */
} gd_uses;

gd_status gd_uses_make(gd_uses *uses, const gd_program *program);
void gd_uses_free(gd_uses *uses);
/* The step at this position was replaced. */
void gd_uses_add(gd_uses *uses, int step);
/* At the end of a pass: GD_E_MEMORY if it was ever incomplete. */
gd_status gd_uses_end(gd_uses *uses);

/* All values of root `from` have become values of root `to`, and have their new root. */
void gd_uses_join_roots(gd_uses *uses, int from, int to);

/* One of the values of a root, as they were made or joined; -1: none. The order means nothing:
 *
 *     for (int v = gd_uses_values(&uses, root); v >= 0; v = uses.next_value[v]) ...
 */
int gd_uses_values(gd_uses *uses, int root);
/* An entry of the steps that read a root; -1: none. The order means nothing:
 *
 *     for (int e = gd_uses_readers(&uses, root); e >= 0; e = uses.entries[e].next)
 *         if (fits(&p->steps[uses.entries[e].step])) ...
 */
static inline int gd_uses_readers(const gd_uses *uses, int root) {
    return root < uses->n_roots ? uses->readers[root] : -1;
}

/* The last step before step `before` that has the value as a result; -1: none. */
int gd_uses_producer(const gd_uses *uses, int value, int before);
/* Whether a step from `first` to `end` - 1, other than `but`, and no view, writes the root; or
 * reads or writes it. */
bool gd_uses_writes(const gd_uses *uses, int root, int first, int end, int but);
bool gd_uses_touches(const gd_uses *uses, int root, int first, int end, int but);

#endif
