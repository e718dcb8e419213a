/* evaluate.c - the interpreter: runs nodes one after the other as eager ops, where no plan can be
 * built, and for tests. Variables are assigned at the end of a run; until then, nodes that read a
 * written variable get its new value from the list of commits. */
#include "graph/run/evaluate.h"

#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/map.h"
#include "graph/control/nodes.h"
#include "gradus/ops.h"
#include "dispatch/autocast.h"
#include "dispatch/call.h"
#include "dispatch/deferred_call.h"

typedef struct {
    gd_node *node;
    gd_tensor **values; /* its outputs; NULL before it has run */
    bool fed;
} node_entry;

/* From node number `order` on, `to` (a variable or a captured tensor) has the value `value`. The
 * last commit to each tensor is copied to it at the end. */
typedef struct {
    gd_tensor *to, *value;
    uint64_t order;
    const char *site;
    int before; /* the previous commit to the same storage; -1: none */
} commit;

typedef struct {
    node_entry *entries;
    int count, capacity;
    gd_map seen;      /* nodes that have an entry, while nodes are collected */
    gd_map fed_nodes; /* the nodes of feeds */
    gd_map outside;   /* the storages of feeds, variables and captured tensors */
    commit *commits;
    int n_commits, commit_capacity;
    gd_map latest; /* the latest commit to each storage */
    gd_tensors feeds, fed;
    gd_running running;
    bool on_tape; /* results keep their history */
    bool as_ops;  /* nodes run in the program's grad mode and autocast setting */
} evaluation;

/* --- collecting nodes ------------------------------------------------------------------------- */

static gd_status add_node_entry(evaluation *r, gd_node *node) {
    if (gd_map_find(&r->seen, node) >= 0) return GD_OK;
    if (!gd_grow(r->entries, r->count, r->capacity) || !gd_map_put(&r->seen, node, r->count))
        return gd_no_memory(NULL, "to run a graph");
    gd_tensor **values = gd_list_new(node->n_out);
    if (!values) return GD_E_MEMORY;
    const bool fed = gd_map_find(&r->fed_nodes, node) >= 0;
    r->entries[r->count++] = (node_entry){.node = node, .values = values, .fed = fed};
    return GD_OK;
}

static int by_order(const void *a, const void *b) {
    uint64_t x = ((const node_entry *)a)->node->order, y = ((const node_entry *)b)->node->order;
    return x < y ? -1 : x > y;
}

/* By binary search, after collect_nodes has sorted the entries. */
static node_entry *find_entry(const evaluation *r, const gd_node *node) {
    int low = 0, high = r->count - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (r->entries[middle].node == node) return &r->entries[middle];
        if (r->entries[middle].node->order < node->order) low = middle + 1;
        else high = middle - 1;
    }
    return NULL;
}

static gd_status give_feeds(evaluation *r) {
    for (int64_t i = 0; i < r->feeds.count; i++) {
        const node_entry *e = find_entry(r, r->feeds.at[i]->node);
        if (e) e->values[r->feeds.at[i]->node_index] = r->fed.at[i];
        if (!gd_map_put(&r->outside, r->fed.at[i]->storage, 0))
            return gd_no_memory(NULL, "to run a graph");
    }
    return GD_OK;
}

static gd_status find_outside_storages(evaluation *r) {
    for (int i = 0; i < r->count; i++)
        for (int k = 0; k < r->entries[i].node->n_in; k++) {
            const gd_storage *storage = r->entries[i].node->slots[k].storage;
            if (storage && !gd_map_put(&r->outside, storage, 0))
                return gd_no_memory(NULL, "to run a graph");
        }
    return GD_OK;
}

static gd_status collect_nodes(evaluation *r, gd_tensors fetches) {
    for (int64_t i = 0; i < r->feeds.count; i++)
        if (!gd_map_put(&r->fed_nodes, r->feeds.at[i]->node, 0))
            return gd_no_memory(NULL, "to run a graph");
    for (int64_t i = 0; i < fetches.count; i++) {
        if (!gd_tensor_is_symbol(fetches.at[i]))
            return gd_fail(GD_E_ARGUMENT, "fetch %lld is not a symbol", (long long)i);
        GD_TRY(add_node_entry(r, fetches.at[i]->node));
    }
    for (int at = 0; at < r->count; at++) { /* the list grows meanwhile */
        const gd_node *node = r->entries[at].node;
        if (r->entries[at].fed) continue;
        for (int i = 0; i < node->n_in; i++)
            if (node->slots[i].symbol) GD_TRY(add_node_entry(r, node->slots[i].node));
        for (int i = 0; node->origin && i < node->origin->n_after; i++)
            GD_TRY(add_node_entry(r, node->origin->after[i]));
    }
    if (r->count) qsort(r->entries, (size_t)r->count, sizeof *r->entries, by_order);
    GD_TRY(give_feeds(r));
    return find_outside_storages(r);
}

/* --- assigns ---------------------------------------------------------------------------------- */

static gd_status add_commit(evaluation *r, gd_tensor *to, gd_tensor *value, const gd_node *node) {
    const int before = gd_map_find(&r->latest, to->storage);
    for (int i = before; i >= 0; i = r->commits[i].before)
        if (gd_overlap(r->commits[i].to, to) && !gd_same_view(r->commits[i].to, to))
            return gd_fail(GD_E_UNSUPPORTED,
                           "it writes a tensor that shares its memory with one that was written "
                           "before in the run, at %s",
                           r->commits[i].site ? r->commits[i].site : "(unknown place)");
    if (!gd_grow(r->commits, r->n_commits, r->commit_capacity) ||
        !gd_map_put(&r->latest, to->storage, r->n_commits))
        return gd_no_memory(NULL, "to run a graph");
    r->commits[r->n_commits++] = (commit){to, value, node->order, node->site, before};
    return GD_OK;
}

/* Replaces a variable or captured tensor by the value that the node sees. */
static gd_status find_visible_value(const evaluation *r, const gd_node *node, gd_tensor **t) {
    for (int i = gd_map_find(&r->latest, (*t)->storage); i >= 0; i = r->commits[i].before) {
        const commit *c = &r->commits[i];
        if (c->order >= node->as_of) continue;
        if (gd_same_view(c->to, *t)) return *t = c->value, GD_OK;
        if (gd_overlap(c->to, *t))
            return gd_fail(
                GD_E_UNSUPPORTED,
                "it reads a tensor that shares its memory with one that was written before in the "
                "run; use that one, and make views of it in the graph");
    }
    return GD_OK;
}

static bool is_last_commit(const evaluation *r, int at) {
    const gd_tensor *to = r->commits[at].to;
    for (int i = gd_map_find(&r->latest, to->storage); i > at; i = r->commits[i].before)
        if (gd_same_view(r->commits[i].to, to)) return false;
    return true;
}

/* Whether it is the storage of a feed, a variable or a captured tensor. Results that are views of
 * such a storage are copied. */
static bool is_outside_storage(const evaluation *r, const gd_storage *storage) {
    return gd_map_find(&r->outside, storage) >= 0;
}

/* gd_assign: the result is the new value; the variable gets it at the end. */
static gd_status run_assign(evaluation *r, node_entry *e, gd_tensor *const *in) {
    gd_tensor *y = gd_expand(in[1], gd_shape_of(in[0]->rank, in[0]->dims));
    if (y->kind != GD_FAILED && y->dtype != in[0]->dtype) y = gd_cast(y, (gd_dtype)in[0]->dtype);
    if (y->kind == GD_FAILED) return gd_failure();
    e->values[0] = y;
    if (is_outside_storage(r, y->storage))
        y = gd_clone(gd_detach(y)); /* two variables may be swapped */
    return y->kind == GD_FAILED ? gd_failure() : add_commit(r, in[0], y, e->node);
}

/* Replaces each input that the op writes by a copy, which becomes the variable's value at the
 * end. */
static gd_status copy_written(evaluation *r, const gd_node *node, gd_tensor **in) {
    for (int i = 0; i < node->op->n_inputs && i < node->n_in; i++) {
        if (!node->op->inputs[i].mutated || !in[i]) continue;
        gd_tensor *to = in[i], *now = to;
        GD_TRY(find_visible_value(r, node, &now));
        gd_tensor *copy = gd_clone(gd_detach(now));
        if (copy->kind == GD_FAILED) return gd_failure();
        GD_TRY(add_commit(r, to, copy, node));
        in[i] = copy;
    }
    return GD_OK;
}

/* Copies all commits to their tensors, or none. */
static gd_status do_commits(const evaluation *r) {
    gd_status status = GD_OK;
    gd_transaction copies;
    gd_transaction_begin(&copies);
    for (int i = 0; i < r->n_commits && status == GD_OK; i++)
        if (is_last_commit(r, i)) status = gd_copy_tensor(r->commits[i].to, r->commits[i].value);
    GD_TRY(gd_transaction_end(&copies, status));
    for (int i = 0; i < r->n_commits; i++) atomic_fetch_add(&r->commits[i].to->storage->version, 1);
    return GD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

static gd_status run_node_with(evaluation *r, node_entry *e, gd_tensor **in) {
    gd_node *node = e->node;
    if (r->as_ops)
        return gd_node_run(node, in, e->values, &r->running); /* ops write their inputs directly */
    if (node->op->flags & GD_OP_ASSIGNS) return run_assign(r, e, in);
    GD_TRY(copy_written(r, node, in));
    return gd_node_run(node, in, e->values, &r->running);
}

static gd_status run_node(evaluation *r, node_entry *e) {
    gd_node *node = e->node;
    if (e->fed) return GD_OK;
    if (!node->op)
        return gd_fail(GD_E_ARGUMENT, "'%s' is needed and was not fed",
                       node->origin ? node->origin->name : "a symbol");
    gd_tensor **in = gd_calloc((size_t)node->n_in + 1, sizeof *in);
    if (!in) return gd_no_memory(NULL, "to run a graph");
    gd_status status = GD_OK;
    for (int i = 0; i < node->n_in && status == GD_OK; i++) {
        const gd_slot *slot = &node->slots[i];
        if (!slot->present) continue;
        in[i] =
            slot->symbol ? find_entry(r, slot->node)->values[slot->index] : gd_slot_current(slot);
        if (!in[i]) status = gd_failure();
        const bool written =
            i < node->op->n_inputs && node->op->inputs[i].mutated; /* copy_written handles it */
        const bool outside =
            !slot->symbol || (slot->node->origin && slot->node->origin->kind == GD_FROM_VARIABLE);
        if (status == GD_OK && outside && !written) status = find_visible_value(r, node, &in[i]);
    }
    if (status == GD_OK) status = run_node_with(r, e, in);
    gd_free(in);
    return status;
}

static gd_status evaluate(evaluation *r, gd_tensors fetches) {
    GD_TRY(collect_nodes(r, fetches));
    for (int i = 0; i < r->count && !r->running.tape; i++)
        r->running.tape = gd_node_traits(r->entries[i].node) & GD_HAS_GRADIENTS;
    for (int i = 0; i < r->count && r->running.tape && !r->on_tape; i++) {
        node_entry *e = &r->entries[i];
        for (int k = 0; k < e->node->n_out && e->fed; k++) {
            if (!e->values[k]) continue;
            e->values[k] = gd_on_tape(e->values[k]);
            if (e->values[k]->kind == GD_FAILED) return gd_failure();
        }
    }
    if (r->on_tape && r->running.tape)
        return gd_fail(GD_E_UNSUPPORTED,
                       "gradients through a loop of unknown length have no gradient in a graph");
    gd_status status = GD_OK;
    int before = 0, autocast = gd_this_thread.autocast;
    if (!r->as_ops) {
        before = r->running.tape || r->on_tape ? gd_enable_grad_begin() : gd_no_grad_begin();
        gd_autocast_pause(GD_DTYPE_NONE); /* the trace has added the casts already */
    }
    for (int i = 0; i < r->count && status == GD_OK; i++) status = run_node(r, &r->entries[i]);
    if (!r->as_ops) gd_grad_mode_end(&before);
    gd_autocast_resume(&autocast);
    return status;
}

static gd_status take_results(const evaluation *r, gd_tensors fetches, gd_tensor **results) {
    for (int64_t i = 0; i < fetches.count; i++) {
        gd_tensor *y =
            gd_detach(find_entry(r, fetches.at[i]->node)->values[fetches.at[i]->node_index]);
        if (y->kind != GD_FAILED && is_outside_storage(r, y->storage)) y = gd_clone(y);
        if (y->kind == GD_FAILED) return gd_failure();
        results[i] = gd_retain(y);
    }
    return GD_OK;
}

static void free_evaluation(evaluation *r) {
    gd_free(r->entries);
    gd_free(r->commits);
    gd_map_free(&r->seen);
    gd_map_free(&r->fed_nodes);
    gd_map_free(&r->outside);
    gd_map_free(&r->latest);
}

gd_tensors gd_evaluate_run(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                           gd_rng rng_offset, bool assigns) {
    gd_tensor **results = gd_list_new(fetches.count);
    if (!results) {
        gd_error_record(GD_E_MEMORY);
        return gd_list_of_errors(fetches.count);
    }
    gd_status status = gd_scope_reserve((size_t)fetches.count);
    gd_scope *scope = gd_scope_open();
    evaluation r = {.feeds = feeds,
                    .fed = values,
                    .running = {.run = rng_offset.call, .steps = rng_offset.seed}};
    if (status == GD_OK) status = evaluate(&r, fetches);
    if (status == GD_OK) status = take_results(&r, fetches, results);
    if (status == GD_OK && assigns) status = do_commits(&r);
    free_evaluation(&r);
    gd_scope_close(&scope);
    for (int64_t i = 0; i < fetches.count; i++) {
        if (status == GD_OK) {
            gd_scope_adopt(&results[i]->object);
            continue;
        }
        gd_release(results[i]);
        results[i] = &gd_error_tensor;
    }
    if (status != GD_OK) gd_error_record(status);
    return (gd_tensors){results, fetches.count};
}

static gd_status evaluate_and_keep(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                                   gd_rng rng_offset, bool as_ops, gd_tensor **results) {
    evaluation r = {.feeds = feeds,
                    .fed = values,
                    .running = {.run = rng_offset.call, .steps = rng_offset.seed},
                    .on_tape = true,
                    .as_ops = as_ops};
    gd_status status = evaluate(&r, fetches);
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++)
        results[i] = find_entry(&r, fetches.at[i]->node)->values[fetches.at[i]->node_index];
    free_evaluation(&r);
    return status;
}

gd_status gd_evaluate_on_tape(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                              gd_rng rng_offset, gd_tensor **results) {
    return evaluate_and_keep(fetches, feeds, values, rng_offset, false, results);
}

gd_status gd_evaluate_as_ops(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                             gd_rng rng_offset, gd_tensor **results) {
    return evaluate_and_keep(fetches, feeds, values, rng_offset, true, results);
}

gd_tensors gd_evaluate_nodes(gd_tensors fetches, gd_tensors feeds, gd_tensors values) {
    return gd_evaluate_run(fetches, feeds, values, (gd_rng){0, 0}, true);
}

/* --- integers that are computed from sizes (dispatch/deferred_call.h) ------------------------------ */

static gd_status read_numbers(gd_tensor *t, gd_numbers *n) {
    const int64_t count = gd_numel(t->rank, t->dims);
    if (gd_dtype_is_float((gd_dtype)t->dtype) || t->rank > 1 || count > GD_DEFERRED_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%lld numbers of dtype %s in %d dimensions are not a list of integers",
                       (long long)count, gd_dtype_name((gd_dtype)t->dtype), t->rank);
    n->count = (int)count;
    return count ? gd_copy_out(gd_cast(t, GD_I64), n->at, (size_t)count * sizeof *n->at) : GD_OK;
}

static gd_status deferred_numbers(gd_tensor *t, gd_numbers *n) {
    gd_scope *scope = gd_scope_open();
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *value = t;
    if (t->kind == GD_SYMBOL) {
        gd_tensors got =
            gd_evaluate_nodes(gd_list(t), (gd_tensors){NULL, 0}, (gd_tensors){NULL, 0});
        value = got.at[0];
    }
    const gd_status status = value->kind == GD_VALUE ? read_numbers(value, n) : gd_failure();
    gd_tracing_on(tracing);
    gd_scope_close(&scope);
    return status;
}

static void __attribute__((constructor)) set_deferred_hook(void) {
    gd_deferred_numbers = deferred_numbers;
}
