/* instance.h - an instance of a plan: the memory and the kernel calls of one run at a time. */
#ifndef GRADUS_GRAPH_INSTANCE_H
#define GRADUS_GRAPH_INSTANCE_H

#include "graph/plan/build.h"

struct gd_instance {
    gd_instance *next; /* in the plan's list of idle instances */
    void *slab;
    void **base; /* the address of each root */
    gd_view *views;
    gd_kernel_call *calls;
    gd_storage **fetched; /* the fetch buffers */

    /* Asynchronous devices (boundary.c). */
    void *boundary;           /* holds feeds, numbers and fetches at fixed addresses */
    gd_boundary_copy *copies; /* arguments of a launch, as are the next */
    gd_boundary_number *numbers;
    void **unaligned;      /* per root: during a run, the copy of a feed that is not aligned */
    gd_capture **captures; /* of the plan's segments */
    bool moved;            /* a root's address has changed since the capture */
    bool warmed;           /* the plan has run once without a capture */
    uint64_t run;          /* the number of the latest run on its device */
};

/* Sets the address of a root. */
void gd_instance_bind(const gd_plan *plan, gd_instance *in, int root, void *base);

/* Runs calls `first` to `end` - 1. */
gd_status gd_instance_run_calls(gd_plan *plan, gd_instance *in, int first, int end, uint64_t run,
                                uint64_t steps);
/* Copies new values to variables at the end of a run. */
gd_status gd_instance_commit(gd_plan *plan, gd_instance *in);

/* --- asynchronous devices (boundary.c) -------------------------------------------------------- */

gd_status gd_boundary_make(gd_plan *plan, gd_instance *in);
void gd_boundary_free(gd_plan *plan, gd_instance *in);
/* Runs the plan; from the second run on with captures. */
gd_status gd_boundary_run(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                          gd_tensor *const *variables, uint64_t run, uint64_t steps);

#endif
