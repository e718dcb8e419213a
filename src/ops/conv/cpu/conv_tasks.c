/* conv_tasks.c - what the convolution algorithms share: running tasks with workspace slots, and
 * flipped kernels. */
#include <stdatomic.h>

#include "ops/conv/cpu/conv_algorithms.h"
#include "core/pool.h"
#include "gradus/threads.h"

/* --- slots ------------------------------------------------------------------------------------ */

size_t gd_conv_slots_bytes(size_t shared, size_t slot, int64_t tasks) {
    return gd_round_to_cache_line(shared) +
           gd_round_to_cache_line(slot) * (size_t)gd_min64(gd_num_threads(), tasks > 0 ? tasks : 1);
}

typedef struct {
    gd_status (*body)(void *arg, int64_t task, char *memory);
    void *arg;
    char *memory; /* the slots */
    size_t slot;
    int64_t tasks;
    _Atomic int64_t next;
    _Atomic gd_status status;
} slot_job;

/* Runs tasks with the memory of slot i until none is left. */
static void run_tasks_in_slot(void *arg, int64_t i) {
    slot_job *s = arg;
    for (;;) {
        const int64_t task = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (task >= s->tasks) return;
        const gd_status status = s->body(s->arg, task, s->memory + (size_t)i * s->slot);
        if (status != GD_OK) atomic_store(&s->status, status);
    }
}

gd_status gd_conv_run_tasks(const gd_conv_call *call, size_t shared, size_t slot, int64_t tasks,
                            gd_status (*body)(void *arg, int64_t task, char *memory), void *arg) {
    shared = gd_round_to_cache_line(shared);
    slot = gd_round_to_cache_line(slot);
    slot_job s = {.body = body, .arg = arg, .slot = slot, .tasks = tasks};
    int64_t count = tasks;
    if (slot > 0) {
        s.memory = (char *)call->workspace + shared;
        count = gd_min64((int64_t)((call->workspace_bytes - shared) / slot), tasks);
    }
    gd_parallel_for(count, run_tasks_in_slot, &s);
    return atomic_load(&s.status);
}

/* --- flipped kernels -------------------------------------------------------------------------- */

gd_conv gd_conv_flipped(const gd_conv *c) {
    gd_conv t = *c;
    t.ci = c->co;
    t.co = c->ci;
    for (int a = 0; a < GD_CONV_AXES; a++) {
        t.in[a] = c->out[a];
        t.out[a] = c->in[a];
        t.before[a] = c->dilation[a] * (c->kernel[a] - 1) - c->before[a];
    }
    return t;
}
