/* build.h - the internals of a plan, shared by the files that build and run it. */
#ifndef GRADUS_GRAPH_PLAN_BUILD_H
#define GRADUS_GRAPH_PLAN_BUILD_H

#include "core/guard.h"
#include "core/map.h"
#include "graph/plan/plan.h"

/* Where a view's data is: at an offset in a root. */
typedef struct gd_binding {
    int root;
    size_t offset; /* bytes */
} gd_binding;

/* One kernel call. Its views start at `first`, inputs before outputs. */
typedef struct gd_pcall {
    const gd_pstep *step;
    const gd_kernel *kernel;
    int first, n_in, n_out;
    bool contiguous; /* operands are staged to be row-major: no kernel supports their strides */
    int workspace;   /* a view, or -1 */
    size_t workspace_bytes;
    size_t scratch;                    /* bytes of a thread's buffers, at most */
    int first_copy, n_before, n_after; /* staging copies before and after the call */
    struct gd_prepared *prepared;      /* retained */
} gd_pcall;

typedef struct gd_pcopy {
    int to, from; /* views */
} gd_pcopy;

typedef struct gd_slab_place {
    bool in_slab;
    size_t offset;
} gd_slab_place;

/* Calls that are queued, or captured, together; between segments the host runs a branch or a
 * loop. */
typedef struct gd_segment {
    int first, end; /* calls */
    bool on_host;   /* a call of a control-flow op */
} gd_segment;

struct gd_plan {
    gd_program *program;
    gd_device *device;
    bool tf32;      /* gd_kernel_call.tf32 of all calls */
    bool on_host;   /* the device runs kernels in the calling thread (device->api->host_reads) */
    gd_view *views; /* data is filled in by each instance */
    gd_binding *bindings;
    int n_views, views_room;
    gd_pcall *calls;
    int n_calls, calls_room;
    gd_plan **inner; /* the plans of branches and loop bodies */
    int n_inner, inner_room;
    gd_pcopy *copies;
    int n_copies, copies_room;
    int first_commit_copy, n_commit_copies;
    gd_slab_place *places;      /* per root */
    int *first_view, *views_of; /* the views of root r are views_of[first_view[r]], ..., before
                                 * views_of[first_view[r + 1]] */
    int *buffers;               /* roots that are fetched */
    int n_buffers;
    int *fetch_buffers; /* the buffer of each fetch */
    gd_map overwritten; /* the storages that runs write before all feeds are read */
    size_t slab, live;  /* bytes of the slab, and the most that are live at a time */
    int recomputed;     /* number of steps that run a second time */

    /* Asynchronous devices (run/boundary.c). */
    bool *in_place;    /* per root: a feed or a fetch that runs use where it is */
    int *fed_in_place; /* the roots of these feeds */
    int n_fed_in_place;
    bool captured;          /* runs are captured: fetches are copied */
    size_t *slots;          /* per root: its offset in the boundary block, or GD_NO_SLOT */
    size_t rng_offset_slot; /* the offset of the run's random numbers, or GD_NO_SLOT */
    size_t boundary;        /* bytes of the boundary block */
    int n_scalar_words;     /* 8-byte words of captured scalars that the host passes to a run */
    gd_segment *segments;
    int n_segments;

    /* Instances that no run uses (run/instance.h). */
    gd_guard guard; /* protects `idle` */
    struct gd_instance *idle;
    void (*free_idle)(gd_plan *plan); /* frees them; run/ sets it, which defines instances */
};

#define GD_NO_SLOT SIZE_MAX

/* Whether the root is a captured scalar in host memory that a plan on another device reads. Each
 * run passes its current value. */
static inline bool gd_root_is_scalar(const gd_plan *plan, int root) {
    const gd_root *r = &plan->program->roots[root];
    return r->kind == GD_ROOT_CAPTURED && r->storage->device != plan->device &&
           r->storage->device->api->host_reads;
}

/* Offsets in a slab are sums of sizes, so that sizes are multiples of the device's alignment. */
static inline size_t gd_plan_align(const gd_device *device, size_t bytes) {
    const size_t alignment = device->api->alignment;
    return (bytes + alignment - 1) / alignment * alignment;
}

/* --- building (calls.c, liveness.c, limit.c) -------------------------------------------------- */

/* Adds the view of a value of the program; -1 is an absent operand. */
gd_status gd_plan_add_value_view(gd_plan *plan, int value, int *view);
gd_status gd_plan_add_copy(gd_plan *plan, int to, int from); /* views */
/* Adds the kernel call of a step, with its staging copies and its workspace. */
gd_status gd_plan_add_call(gd_plan *plan, const gd_pstep *step);
/* Decides where all roots lie. */
gd_status gd_plan_assign_memory(gd_plan *plan);
/* Adds all calls and assigns memory, at most `limit` bytes; 0: no limit. */
gd_status gd_plan_build_within(gd_plan *plan, size_t limit);

#endif
