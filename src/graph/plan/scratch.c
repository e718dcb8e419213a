/* scratch.c - memory of a plan outside its slab: constants, and the buffers of kernels' threads. */
#include "graph/plan/build.h"
#include "gradus/threads.h"

size_t gd_plan_constant_bytes(const gd_plan *plan) {
    const gd_program *p = plan->program;
    size_t bytes = 0;
    for (int r = 0; r < p->n_roots; r++) {
        bool counted = !p->roots[r].constant;
        for (int k = 0; k < r && !counted; k++)
            counted = p->roots[k].constant && p->roots[k].storage == p->roots[r].storage;
        if (!counted) bytes += p->roots[r].storage->bytes;
    }
    for (int i = 0; i < plan->n_inner; i++) bytes += gd_plan_constant_bytes(plan->inner[i]);
    return bytes;
}

/* The most bytes that a kernel of the plan uses in each thread. */
static size_t max_scratch(const gd_plan *plan) {
    size_t most = 0;
    for (int i = 0; i < plan->n_calls; i++)
        if (plan->calls[i].scratch > most) most = plan->calls[i].scratch;
    for (int i = 0; i < plan->n_inner; i++) {
        const size_t inner = max_scratch(plan->inner[i]);
        if (inner > most) most = inner;
    }
    return most;
}

size_t gd_plan_scratch(const gd_plan *plan) { return (size_t)gd_num_threads() * max_scratch(plan); }
