/* instance.h - an instance of a plan: the memory and the kernel calls of one run at a time. */
#ifndef GRADUS_GRAPH_RUN_INSTANCE_H
#define GRADUS_GRAPH_RUN_INSTANCE_H

#include "graph/plan/build.h"
#include "graph/run/plan_run.h"

/* The captures of the plan's segments for some addresses of the feeds that runs use in place. */
typedef struct gd_capture_set {
    gd_capture **captures;
    void **feeds;
    int64_t latest_run; /* the last run that used it; 0: it is empty */
} gd_capture_set;
enum { GD_CAPTURE_SETS = 4 };

struct gd_instance {
    gd_instance *next; /* in the plan's list of idle instances */
    void *slab;
    void **base; /* the address of each root */
    gd_view *views;
    gd_kernel_call *calls;
    gd_storage **fetched; /* the fetch buffers */

    /* Asynchronous devices (boundary.c). */
    void *boundary;           /* holds feeds, scalars and fetches at fixed addresses */
    gd_boundary_copy *copies; /* arguments of a launch, as are the next */
    gd_boundary_scalar *scalars;
    void **feed_copies; /* per root: a copy of a feed that is otherwise used in place; NULL: none */
    bool copies_feeds;  /* all of these are copied */
    gd_capture_set sets[GD_CAPTURE_SETS], *set; /* all, and that of this run */
    int64_t n_runs, latest_miss; /* latest_miss: the last run whose captures replaced others */
    int misses;
    bool moved;   /* a variable's address has changed since the captures */
    bool warmed;  /* the plan has run once without a capture */
    uint64_t run; /* the number of the latest run on its device */
};

/* Sets the address of a root. */
void gd_instance_bind(const gd_plan *plan, gd_instance *in, int root, void *base);

/* Runs calls `first` to `end` - 1. */
gd_status gd_instance_run_calls(gd_plan *plan, gd_instance *in, int first, int end, uint64_t run,
                                uint64_t steps);
/* Copies new values to variables at the end of a run. */
gd_status gd_instance_commit(gd_plan *plan, gd_instance *in);

/* --- asynchronous devices (boundary.c, feeds.c) ----------------------------------------------- */

void *gd_feed_address(const gd_root *root, gd_tensors feeds);
/* Binds the feeds that the plan uses in place. */
gd_status gd_feeds_bind(const gd_plan *plan, gd_instance *in, gd_tensors feeds);
void gd_feeds_free_copies(const gd_plan *plan, gd_instance *in);

void gd_capture_drop(gd_device *device, gd_capture **capture);
gd_status gd_captures_make(const gd_plan *plan, gd_instance *in);
void gd_captures_free(const gd_plan *plan, gd_instance *in);
void gd_captures_drop_all(const gd_plan *plan, gd_instance *in);
/* Sets in->set to the captures for the addresses of bound feeds, which may be empty. */
gd_status gd_captures_choose(const gd_plan *plan, gd_instance *in, gd_tensors feeds);

gd_status gd_boundary_make(gd_plan *plan, gd_instance *in);
void gd_boundary_free(gd_plan *plan, gd_instance *in);
/* Runs the plan; from the second run on with captures. */
gd_status gd_boundary_run(gd_plan *plan, gd_instance *in, gd_tensors feeds,
                          gd_tensor *const *variables, uint64_t run, uint64_t steps);

#endif
