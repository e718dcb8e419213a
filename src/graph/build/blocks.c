/* blocks.c - the blocks in which graphs are built (GD_GRAPH, GD_AFTER, GD_NAME_SCOPE, GD_DEVICE),
 * and those in which ops run eagerly while a graph is being built (GD_EAGER). */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "graph/build/graph.h"

_Thread_local gd_building gd_this_building;

gd_block gd_graph_begin(gd_graph *graph) {
    GD_LIVE(graph);
    gd_thread *thread = &gd_this_thread;
    gd_block block = {thread->tracer};
    if (graph) thread->tracer = graph;
    return block;
}

void gd_graph_end(gd_block *block) { gd_this_thread.tracer = block->before; }

gd_tracing gd_tracing_off(void) {
    gd_thread *thread = &gd_this_thread;
    const gd_tracing before = {thread->tracer, thread->autocast};
    thread->tracer = NULL;
    thread->autocast = GD_DTYPE_NONE;
    return before;
}

void gd_tracing_on(gd_tracing before) {
    gd_this_thread.tracer = before.tracer;
    gd_this_thread.autocast = before.autocast;
}

gd_eager gd_eager_begin(void) {
    gd_eager before = {gd_tracing_off(), gd_this_thread.replay_rng};
    gd_this_thread.replay_rng = NULL; /* a trace numbers its random ops from 0 */
    return before;
}

void gd_eager_end(gd_eager *before) {
    gd_tracing_on(before->tracing);
    gd_this_thread.replay_rng = before->replay_rng;
}

/* The list of nodes before a GD_AFTER block, which the end of the block restores. */
typedef struct after_list {
    gd_node **after;
    int n_after;
} after_list;

gd_block gd_after_begin(gd_tensors symbols) {
    gd_building *b = &gd_this_building;
    after_list *before = gd_malloc(sizeof *before);
    gd_node **all = gd_malloc((size_t)(b->n_after + symbols.count + 1) * sizeof *all);
    if (!before || !all) {
        gd_free(before);
        gd_free(all);
        gd_error_record(gd_no_memory(NULL, "for GD_AFTER"));
        return (gd_block){NULL};
    }
    *before = (after_list){b->after, b->n_after};
    int n = 0;
    for (int i = 0; i < b->n_after; i++) all[n++] = b->after[i];
    for (int64_t i = 0; i < symbols.count; i++) {
        const gd_tensor *t = symbols.at[i];
        if (t && t->kind == GD_SYMBOL) all[n++] = t->node;
        else if (!t || t->kind != GD_FAILED)
            gd_error_record(
                gd_fail(GD_E_ARGUMENT, "GD_AFTER: item %lld is not a symbol", (long long)i));
    }
    for (int i = before->n_after; i < n; i++) gd_node_retain(all[i]);
    b->after = all;
    b->n_after = n;
    return (gd_block){before};
}

void gd_after_end(gd_block *block) {
    gd_building *b = &gd_this_building;
    after_list *before = block->before;
    if (!before) return;
    for (int i = before->n_after; i < b->n_after; i++) gd_node_release(b->after[i]);
    gd_free(b->after);
    b->after = before->after;
    b->n_after = before->n_after;
    gd_free(before);
}

gd_block gd_name_scope_begin(const char *name) {
    gd_building *b = &gd_this_building;
    gd_block block = {b->prefix};
    const char *outer = b->prefix ? b->prefix : "";
    size_t size = strlen(outer) + strlen(name ? name : "") + 2;
    char *prefix = gd_malloc(size);
    if (prefix) snprintf(prefix, size, "%s%s/", outer, name ? name : "");
    else gd_error_record(gd_no_memory(NULL, "for a name scope"));
    b->prefix = prefix ? prefix : b->prefix;
    return block;
}

void gd_name_scope_end(gd_block *block) {
    gd_building *b = &gd_this_building;
    if (b->prefix != block->before) gd_free(b->prefix);
    b->prefix = block->before;
}

gd_block gd_device_begin(gd_device *device) {
    gd_block block = {gd_this_thread.device};
    if (device) gd_this_thread.device = device;
    return block;
}

void gd_device_end(gd_block *block) { gd_this_thread.device = block->before; }
