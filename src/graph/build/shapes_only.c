/* shapes_only.c - blocks in which ops infer shapes and compute nothing; see shapes_only.h. */
#include "graph/build/shapes_only.h"

#include "dispatch/op.h"

_Thread_local bool gd_is_shapes_only;

void gd_shapes_only_begin(gd_shapes_only *b) {
    gd_thread *thread = &gd_this_thread;
    *b = (gd_shapes_only){.tracer = thread->tracer,
                          .replay_rng = thread->replay_rng,
                          .macs = thread->macs,
                          .before = gd_is_shapes_only};
    b->scope = gd_scope_open();
    thread->tracer = &gd_no_graph;
    thread->replay_rng = &b->counter;
    thread->macs = &b->sum;
    gd_is_shapes_only = true;
}

void gd_shapes_only_end(gd_shapes_only *b) {
    gd_thread *thread = &gd_this_thread;
    thread->tracer = b->tracer;
    thread->replay_rng = b->replay_rng;
    thread->macs = b->macs;
    gd_is_shapes_only = b->before;
    gd_scope_close(&b->scope);
}

double gd_shapes_only_macs(void) { return gd_is_shapes_only ? *gd_this_thread.macs : 0; }
