/* instance.h - what one run of a plan has for itself: memory, and kernel calls with addresses. */
#ifndef GRADUS_GRAPH_INSTANCE_H
#define GRADUS_GRAPH_INSTANCE_H

#include "graph/plan/build.h"

struct gd_instance {
    gd_instance *next; /* of those that no run has */
    void *slab;
    void **base; /* the address of each root */
    gd_view *views;
    gd_kernel_call *calls;
    gd_storage **fetched; /* for each fetch buffer */

    /* Asynchronous devices (boundary.c). */
    void *boundary;           /* feeds, numbers and fetches at addresses that never change */
    gd_boundary_copy *copies; /* room for those of one boundary */
    gd_boundary_number *numbers;
    gd_capture **captures; /* of the plan's segments */
    bool moved;            /* a root has another address than at the capture */
    bool warmed;           /* the plan has run once without a capture */
    uint64_t run;          /* the number of the latest run on its device */
};

/* Where root r lies from now on. */
void gd_instance_bind(const gd_plan *plan, gd_instance *in, int root, void *base);

/* Calls `first` to `end` - 1 of a run, one after the other. */
gd_status gd_instance_run_calls(gd_plan *plan, gd_instance *in, int first, int end, uint64_t run,
                                uint64_t steps);
/* The copies to variables at the end of a run. */
gd_status gd_instance_commit(gd_plan *plan, gd_instance *in);

/* --- asynchronous devices (boundary.c) -------------------------------------------------------- */

gd_status gd_boundary_make(gd_plan *plan, gd_instance *in);
void gd_boundary_free(gd_plan *plan, gd_instance *in);
/* One run, captured from the second on. */
gd_status gd_boundary_run(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                          gd_tensor *const *variables, uint64_t run, uint64_t steps);

#endif
