/* conv_pieces.c - what the fast convolutions share: pieces of work and turned kernels. */
#include <stdatomic.h>

#include "backend/cpu/conv.h"
#include "core/pool.h"
#include "gradus/threads.h"

/* --- slots ------------------------------------------------------------------------------------ */

size_t gd_conv_slots_bytes(size_t shared, size_t slot, int64_t pieces) {
    return gd_whole_lines(shared) +
           gd_whole_lines(slot) * (size_t)gd_least(gd_num_threads(), pieces > 0 ? pieces : 1);
}

typedef struct {
    gd_status (*body)(void *arg, int64_t piece, char *memory);
    void *arg;
    char *memory; /* the slots */
    size_t slot;
    int64_t pieces;
    _Atomic int64_t next;
    _Atomic gd_status status;
} slots;

/* Whoever has a slot takes pieces until none is left. */
static void use_slot(void *arg, int64_t i) {
    slots *s = arg;
    for (;;) {
        const int64_t piece = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (piece >= s->pieces) return;
        const gd_status status = s->body(s->arg, piece, s->memory + (size_t)i * s->slot);
        if (status != GD_OK) atomic_store(&s->status, status);
    }
}

gd_status gd_conv_run_pieces(const gd_conv_call *call, size_t shared, size_t slot, int64_t pieces,
                             gd_status (*body)(void *arg, int64_t piece, char *memory), void *arg) {
    shared = gd_whole_lines(shared);
    slot = gd_whole_lines(slot);
    slots s = {.body = body, .arg = arg, .slot = slot, .pieces = pieces};
    int64_t count = pieces;
    if (slot > 0) {
        s.memory = (char *)call->workspace + shared;
        count = gd_least((int64_t)((call->workspace_bytes - shared) / slot), pieces);
    }
    gd_parallel_for(count, use_slot, &s);
    return atomic_load(&s.status);
}

/* --- turned kernels --------------------------------------------------------------------------- */

gd_conv gd_conv_turned(const gd_conv *c) {
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
