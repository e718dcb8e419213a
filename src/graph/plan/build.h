/* build.h - the inside of a plan. */
#ifndef GRADUS_GRAPH_PLAN_BUILD_H
#define GRADUS_GRAPH_PLAN_BUILD_H

#include "graph/run/guard.h"
#include "graph/run/plan.h"

/* Where a view's data is: so many bytes into a root. */
typedef struct gd_binding {
    int root;
    size_t offset;
} gd_binding;

/* One kernel call: its views are `first`, inputs before outputs. */
typedef struct gd_pcall {
    const gd_pstep *step;
    const gd_kernel *kernel;
    int first, n_in, n_out;
    int workspace; /* a view, or -1 */
    size_t workspace_bytes;
    size_t scratch;                    /* of each thread, at most */
    int first_copy, n_before, n_after; /* copies that give the kernel the simple case it asks for */
    struct gd_prepared *prepared;      /* held */
} gd_pcall;

typedef struct gd_pcopy {
    int to, from; /* views */
} gd_pcopy;

typedef struct gd_place {
    bool in_slab;
    size_t offset;
} gd_place;

/* Calls that are queued, or captured, together; between segments the host runs a branch or a loop. */
typedef struct gd_segment {
    int first, end; /* calls */
    bool on_host;   /* a call of a control-flow op */
} gd_segment;

struct gd_plan {
    gd_program *program;
    gd_device *device;
    gd_view *views; /* data is filled in by each instance */
    gd_binding *bindings;
    int n_views, views_room;
    gd_pcall *calls;
    int n_calls, calls_room;
    gd_pcopy *copies;
    int n_copies, copies_room;
    int first_commit_copy, n_commit_copies;
    gd_place *places;           /* of each root */
    int *first_view, *views_of; /* the views of root r: views_of[first_view[r]] ... */
    int *buffers;               /* roots that are fetched */
    int n_buffers;
    size_t slab, live;
    int recomputed; /* steps that are there a second time */

    /* Asynchronous devices (run/boundary.c): offsets of roots in the boundary block, or
     * GD_NO_SLOT. */
    size_t *slots, noise_slot, boundary;
    int n_number_words; /* numbers that the host passes to a run */
    gd_segment *segments;
    int n_segments;
    gd_guard guard; /* of `idle` */
    gd_instance *idle;
};

#define GD_NO_SLOT SIZE_MAX

/* A captured tensor of a few bytes in host memory that a plan of another device reads: its value at
 * the time of each run counts. */
static inline bool gd_root_is_number(const gd_plan *plan, int root) {
    const gd_root *r = &plan->program->roots[root];
    return r->kind == GD_ROOT_CAPTURED && r->storage->device != plan->device &&
           r->storage->device->api->host_reads;
}

#endif
