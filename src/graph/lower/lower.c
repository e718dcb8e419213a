/* lower.c - from the nodes that the fetches need to a program.
 *
 * First the nodes are gathered. If some size is not known in the graph, they are noted once more
 * (replayed) with the sizes of the feeds, in no graph; gradients that were deferred are worked out
 * then, and scans are unrolled. Last, each node becomes a step: its shape rule says which outputs are views.
 */
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/map.h"
#include "graph/lower/program.h"
#include "graph/build/subgraph.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "ops/call.h"

/* --- gathering -------------------------------------------------------------------------------- */

typedef struct entry {
    gd_node *node;
    int feed;            /* the first feed that gives its value, or one of its values; -1: none */
    int *values;         /* of its outputs in the program */
    gd_tensor **symbols; /* of its outputs in the replay */
    uint64_t began;      /* in the replay: nodes from this order on are its own, or come later */
} entry;

/* What a node has made of a variable or of a tensor outside. */
typedef struct version {
    int of, value; /* both are values; `of` as it was before the run */
    uint64_t order;
} version;

typedef struct lowering {
    gd_program *p;
    gd_tensors feeds, fed; /* the symbols, and the values they get */
    entry *entries;        /* in the order of the nodes */
    int count, capacity;
    version *versions; /* in the order in which they were written */
    int n_versions, versions_room;
    int64_t left; /* how many nodes loops may still be unrolled to */
    gd_running running;
} lowering;

/* Longer ones are run step by step. */
enum { MOST_UNROLLED = 3000 };

static int feed_of(const lowering *l, const gd_node *node) {
    for (int64_t i = 0; i < l->feeds.count; i++)
        if (l->feeds.at[i]->node == node) return (int)i;
    return -1;
}

static gd_status gather_node(lowering *l, gd_map *seen, gd_node *node) {
    if (gd_map_find(seen, node) >= 0) return GD_OK;
    if (!gd_map_put(seen, node, 0) || !gd_grow(l->entries, l->count, l->capacity))
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    l->entries[l->count++] = (entry){.node = node, .feed = feed_of(l, node)};
    return GD_OK;
}

static int by_order(const void *a, const void *b) {
    uint64_t x = ((const entry *)a)->node->order, y = ((const entry *)b)->node->order;
    return x < y ? -1 : x > y;
}

/* All nodes that the roots need, feeds being where the search ends. */
static gd_status gather(lowering *l, gd_node *const *roots, int64_t n_roots) {
    gd_map seen = {NULL, 0, 0};
    gd_status status = GD_OK;
    for (int64_t i = 0; i < n_roots && status == GD_OK; i++)
        status = gather_node(l, &seen, roots[i]);
    for (int at = 0; at < l->count && status == GD_OK; at++) { /* grows while we go */
        const gd_node *node = l->entries[at].node;
        if (l->entries[at].feed >= 0) continue;
        for (int i = 0; i < node->n_in && status == GD_OK; i++)
            if (node->slots[i].symbol) status = gather_node(l, &seen, node->slots[i].node);
        for (int i = 0; node->origin && i < node->origin->n_after && status == GD_OK; i++)
            status = gather_node(l, &seen, node->origin->after[i]);
    }
    gd_map_free(&seen);
    if (l->count) qsort(l->entries, (size_t)l->count, sizeof *l->entries, by_order);
    return status;
}

static entry *find(lowering *l, const gd_node *node) {
    int low = 0, high = l->count - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (l->entries[middle].node == node) return &l->entries[middle];
        if (l->entries[middle].node->order < node->order) low = middle + 1;
        else high = middle - 1;
    }
    return NULL;
}

static const char *name_of(const gd_node *node) {
    return node->origin ? node->origin->name : node->op ? node->op->name : "a symbol";
}

/* Of a node that is fed, nobody may need a result that is not. */
static gd_status check_fed(lowering *l, const gd_node *node, int index) {
    const entry *e = find(l, node);
    if (!e || e->feed < 0) return GD_OK;
    for (int64_t i = e->feed; i < l->feeds.count; i++)
        if (l->feeds.at[i]->node == node && l->feeds.at[i]->node_index == index) return GD_OK;
    return gd_fail(GD_E_ARGUMENT,
                   "'%s' has several results; number %d is needed, and only others were fed: feed "
                   "them all, or none",
                   name_of(node), index);
}

static gd_status check_all_fed(lowering *l, gd_tensors fetches) {
    for (int64_t i = 0; i < fetches.count; i++)
        GD_TRY(check_fed(l, fetches.at[i]->node, fetches.at[i]->node_index));
    for (int k = 0; k < l->count; k++) {
        const gd_node *node = l->entries[k].node;
        for (int i = 0; i < node->n_in && l->entries[k].feed < 0; i++)
            if (node->slots[i].symbol)
                GD_TRY(check_fed(l, node->slots[i].node, node->slots[i].index));
    }
    return GD_OK;
}

static bool is_variable(const gd_node *node) {
    return node->origin && node->origin->kind == GD_FROM_VARIABLE;
}

/* --- replaying -------------------------------------------------------------------------------- */

static bool has_unknown(const lowering *l) {
    for (int i = 0; i < l->count; i++) {
        const gd_node *node = l->entries[i].node;
        if (node->op && (node->op->flags & GD_OP_OPAQUE)) return true;
        for (int k = node->n_in; k < node->n_in + node->n_out; k++)
            for (int d = 0; d < node->slots[k].rank; d++)
                if (node->slots[k].dims[d] == GD_UNKNOWN) return true;
    }
    return false;
}

static unsigned traits_of(const lowering *l) {
    unsigned traits = 0;
    for (int i = 0; i < l->count; i++)
        if (l->entries[i].feed < 0) traits |= gd_node_traits(l->entries[i].node);
    return traits;
}

/* Whether no plan can be made: there is a way that only values tell, and no step goes it. */
static bool is_dynamic(unsigned traits, bool loops) {
    if (!loops || (traits & GD_HAS_SIZES)) return traits & GD_NEEDS_VALUES;
    return (traits & GD_HAS_WHILE) &&
           (traits & GD_HAS_GRADIENTS); /* which would need every step's values */
}

/* The node of a gradient reads what the node has read that it belongs to: in the replay, too. */
static uint64_t replayed_as_of(const lowering *l, const entry *e) {
    if (e->node->as_of >= e->node->order) return 0;
    int at = (int)(e - l->entries);
    const uint64_t *began = &e->began;
    for (; at >= 0 && l->entries[at].node->order >= e->node->as_of; at--)
        if (l->entries[at].feed < 0) began = &l->entries[at].began;
    return *began;
}

static gd_status replay_node(lowering *l, entry *e) {
    gd_node *node = e->node;
    e->began = gd_node_next_order();
    e->symbols = gd_program_alloc(l->p, (size_t)node->n_out * sizeof *e->symbols + 1);
    if (!e->symbols) return GD_E_MEMORY;
    for (int64_t i = e->feed; i >= 0 && i < l->feeds.count; i++) {
        const gd_tensor *value = l->fed.at[i];
        if (l->feeds.at[i]->node == node)
            e->symbols[l->feeds.at[i]->node_index] = gd_symbol(
                gd_shape_of(value->rank, value->dims), (gd_dtype)value->dtype, value->device);
    }
    if (e->feed >= 0) return GD_OK;
    if (!node->op) {
        if (!is_variable(node))
            return gd_fail(GD_E_ARGUMENT, "'%s' is needed and was not fed", name_of(node));
        e->symbols[0] = gd_slot_get(&node->slots[0], node, "a graph");
        return e->symbols[0] ? GD_OK : GD_E_MEMORY;
    }
    gd_tensor **in = gd_program_alloc(l->p, (size_t)(node->n_in + 1) * sizeof *in);
    if (!in) return GD_E_MEMORY;
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        if (!slot->present) continue;
        in[i] = slot->symbol ? find(l, slot->node)->symbols[slot->index] : gd_slot_as_it_is(slot);
        if (!in[i]) return GD_E_MEMORY;
    }
    l->running.left = gd_node_subgraph(node, 0) ? &l->left : NULL;
    gd_as_of = replayed_as_of(l, e);
    gd_status status = gd_node_run(node, in, e->symbols, &l->running);
    gd_as_of = 0;
    return status;
}

/* Notes all nodes once more with known sizes; gathers what the same fetches need there. */
static gd_status replay(lowering *l, gd_tensors fetches, lowering *after) {
    void *before = gd_this_thread.tracer;
    gd_this_thread.tracer = &gd_no_graph;
    gd_this_thread.settled++;
    int grad = gd_enable_grad_begin();
    gd_status status = GD_OK;
    for (int i = 0; i < 2 * l->count && status == GD_OK;
         i++) /* feeds first: those of a subgraph were made last */
        if ((l->entries[i % l->count].feed >= 0) == (i < l->count))
            status = replay_node(l, &l->entries[i % l->count]);
    /* a gradient may turn out to be a value: the same for all inputs of these shapes */
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) {
        gd_tensor **t = &find(l, fetches.at[i]->node)->symbols[fetches.at[i]->node_index];
        if ((*t)->kind == GD_VALUE) *t = gd_clone(*t);
        if ((*t)->kind != GD_SYMBOL) status = gd_failure();
    }
    gd_grad_mode_end(&grad);
    gd_this_thread.settled--;
    gd_this_thread.tracer = before;
    if (status != GD_OK) return status;

    /* what the fetches, and whatever had to run before something, have become */
    int64_t n = 0, most = fetches.count + l->count;
    gd_node **roots = gd_program_alloc(l->p, (size_t)(most + 1) * sizeof *roots);
    gd_tensor **symbols =
        gd_program_alloc(l->p, (size_t)(fetches.count + l->feeds.count + 1) * sizeof *symbols);
    if (!roots || !symbols) return GD_E_MEMORY;
    for (int64_t i = 0; i < fetches.count; i++) {
        symbols[i] = find(l, fetches.at[i]->node)->symbols[fetches.at[i]->node_index];
        roots[n++] = symbols[i]->node;
    }
    for (int i = 0; i < l->count; i++) {
        const gd_origin *o = l->entries[i].node->origin;
        for (int k = 0; o && k < o->n_after && n < most; k++) {
            gd_tensor *t = find(l, o->after[k])->symbols[0];
            if (t && t->kind == GD_SYMBOL) roots[n++] = t->node;
        }
    }
    gd_tensor **feeds = symbols + fetches.count;
    int n_feeds = 0;
    gd_tensor **fed = gd_program_alloc(l->p, (size_t)(l->feeds.count + 1) * sizeof *fed);
    if (!fed) return GD_E_MEMORY;
    for (int64_t i = 0; i < l->feeds.count; i++) {
        entry *e = find(l, l->feeds.at[i]->node);
        /* the number of a feed is its place in the caller's list: those that are not needed keep theirs */
        feeds[n_feeds] = e ? e->symbols[l->feeds.at[i]->node_index] : l->feeds.at[i];
        fed[n_feeds++] = l->fed.at[i];
    }
    *after = (lowering){.p = l->p, .feeds = {feeds, n_feeds}, .fed = {fed, n_feeds}};
    GD_TRY(gather(after, roots, n));
    for (int64_t i = 0; i < fetches.count; i++) l->p->fetches[i] = -1;
    /* the new fetches, for lower_all */
    l->p->fetches = gd_program_alloc(l->p, (size_t)(fetches.count + 1) * sizeof(int));
    return l->p->fetches ? GD_OK : GD_E_MEMORY;
}

/* --- steps ------------------------------------------------------------------------------------ */

static int temporary(gd_program *p, gd_dtype dtype, int rank, const int64_t *dims) {
    gd_pvalue v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    size_t bytes;
    if (gd_dims_bytes(rank, dims, dtype, &bytes) != GD_OK) return -1;
    v.root = gd_program_root(p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes});
    if (v.root < 0) return -1;
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    gd_row_major(rank, dims, v.strides);
    return gd_program_value(p, v);
}

/* A value that fills a root which is not of this run. */
static int source(gd_program *p, gd_root root, const gd_tensor *like) {
    gd_pvalue v = {.dtype = like->dtype,
                   .rank = like->rank,
                   .offset = root.kind == GD_ROOT_CAPTURED ? like->offset : 0};
    for (int i = 0; i < like->rank; i++) v.dims[i] = like->dims[i];
    if (root.kind == GD_ROOT_CAPTURED)
        for (int i = 0; i < like->rank; i++) v.strides[i] = like->strides[i];
    else gd_row_major(like->rank, like->dims, v.strides);
    v.root = gd_program_root(p, root);
    return v.root < 0 ? -1 : gd_program_value(p, v);
}

/* Whether a value is this view of a storage outside. */
static bool is_view(const gd_program *p, int value, const gd_storage *storage,
                    const gd_tensor *like) {
    const gd_pvalue *v = &p->values[value];
    const gd_root *root = &p->roots[v->root];
    return root->kind == GD_ROOT_CAPTURED && root->storage == storage &&
           v->offset == like->offset && v->dtype == like->dtype && v->rank == like->rank &&
           memcmp(v->dims, like->dims, sizeof(int64_t) * v->rank) == 0 &&
           memcmp(v->strides, like->strides, sizeof(int64_t) * v->rank) == 0;
}

/* A number that views of a storage share only if they are the same, or by chance. */
static const void *view_key(const gd_storage *storage, const gd_tensor *like) {
    uint64_t hash = (uint64_t)(uintptr_t)storage ^ (uint64_t)like->offset << 32 ^
                    (uint64_t)like->dtype << 8 ^ like->rank;
    for (int i = 0; i < like->rank; i++) {
        hash = (hash ^ (uint64_t)like->dims[i]) * 0x9E3779B97F4A7C15u;
        hash = (hash ^ hash >> 29 ^ (uint64_t)like->strides[i]) * 0x9E3779B97F4A7C15u;
    }
    return (const void *)(uintptr_t)(hash | 1);
}

static int outside(gd_program *p, const gd_slot *slot) {
    gd_tensor like = {.dtype = slot->dtype, .rank = slot->rank, .offset = slot->offset};
    for (int i = 0; i < slot->rank; i++)
        like.dims[i] = slot->dims[i], like.strides[i] = slot->strides[i];
    gd_storage *storage = slot->storage ? slot->storage : slot->leaf ? slot->leaf->storage : NULL;
    if (!storage) {
        gd_fail(GD_E_STATE, "a tensor outside the graph has no data");
        return -1;
    }
    /* the same view of the same storage is one value */
    const void *key = view_key(storage, &like);
    const int known = gd_map_find(&p->views, key);
    if (known >= 0 && is_view(p, known, storage, &like)) return known;
    for (int i = 0; i < p->n_values && known >= 0; i++)
        if (is_view(p, i, storage, &like)) return i;
    const int n_roots = p->n_roots;
    gd_storage_retain(storage);
    int value = source(p,
                       (gd_root){.kind = GD_ROOT_CAPTURED,
                                 .number = p->n_roots,
                                 .storage = storage,
                                 .bytes = storage->bytes},
                       &like);
    if (p->n_roots == n_roots)
        gd_storage_release(storage); /* else the root holds it, with a value or without */
    if (value >= 0 && known < 0 && !gd_map_put(&p->views, key, value)) {
        gd_fail(GD_E_MEMORY, "no memory to plan a run");
        return -1;
    }
    return value;
}

static gd_status run_rule(lowering *l, const gd_node *node, const int *in, gd_infer *infer,
                          gd_meta *metas) {
    gd_tensor *described =
        gd_malloc((size_t)(node->n_in + 1) * (sizeof *described + sizeof(gd_tensor *)));
    if (!described) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    gd_tensor **at = (gd_tensor **)(described + node->n_in + 1);
    for (int i = 0; i < node->n_in; i++) {
        at[i] = NULL;
        if (in[i] < 0) continue;
        gd_program_describe(l->p, in[i], node->slots[i].device, &described[i]);
        at[i] = &described[i];
    }
    *infer = (gd_infer){node->op, node->attrs, at, node->n_in, metas, node->n_out};
    for (int i = 0; i < node->n_out; i++) gd_meta_clear(&metas[i], at, node->n_in);
    gd_status status = node->op->infer(infer);
    gd_free(described);
    return status;
}

static int n_mutated(const gd_op *op) {
    int n = 0;
    for (int i = 0; i < op->n_inputs; i++) n += op->inputs[i].mutated;
    return n;
}

/* A copy of a value, to be written to. */
static int copy_of(gd_program *p, int value, const gd_node *node) {
    const gd_pvalue v = p->values[value];
    int copy = temporary(p, (gd_dtype)v.dtype, v.rank, v.dims);
    gd_pstep *s = copy < 0 ? NULL : gd_program_step(p);
    int *ids = s ? gd_program_alloc(p, 2 * sizeof *ids) : NULL;
    if (!ids) return -1;
    ids[0] = value;
    ids[1] = copy;
    *s = (gd_pstep){
        .op = gd_op_find("clone"), .node = node, .n_in = 1, .n_out = 1, .in = ids, .out = ids + 1};
    return copy;
}

/* --- what is written -------------------------------------------------------------------------- */

static gd_tensor tensor_of(const gd_program *p, int value) {
    const gd_pvalue *v = &p->values[value];
    gd_tensor t = {.dtype = v->dtype,
                   .rank = v->rank,
                   .offset = v->offset,
                   .storage = p->roots[v->root].storage};
    for (int d = 0; d < v->rank; d++) t.dims[d] = v->dims[d], t.strides[d] = v->strides[d];
    return t;
}

static bool fills(const gd_program *p, int value) {
    const gd_pvalue *v = &p->values[value];
    return v->offset == 0 && gd_is_row_major(v->rank, v->dims, v->strides) &&
           (size_t)gd_numel(v->rank, v->dims) * gd_dtype_bytes(v->dtype) == p->roots[v->root].bytes;
}

/* Another view of memory that was written: it looks in the same way into the new value, if that is
 * all of the memory. */
static int look_into(gd_program *p, const version *v, int value) {
    gd_pvalue seen = p->values[value];
    if (!fills(p, v->of) || !fills(p, v->value) || p->values[v->of].dtype != seen.dtype) {
        gd_fail(GD_E_UNSUPPORTED, "it reads a tensor that shares its memory with one that was "
                                  "written before in the run; use that one, and make "
                                  "views of it in the graph");
        return -1;
    }
    seen.root = p->values[v->value].root;
    return gd_program_value(p, seen);
}

/* The value of a variable, or of a tensor outside, as a node sees it. -1: noted. */
static int as_seen(lowering *l, int value, uint64_t as_of) {
    gd_program *p = l->p;
    const gd_tensor t = tensor_of(p, value);
    for (int i = l->n_versions; i-- > 0;) {
        const version *v = &l->versions[i];
        if (v->order >= as_of) continue;
        if (v->of == value) return v->value;
        const gd_tensor of = tensor_of(p, v->of);
        if (gd_overlap(&t, &of)) return look_into(p, v, value);
    }
    return value;
}

/* `of` is `value` from here on, and at the end. */
static gd_status write(lowering *l, int of, int value, const gd_node *node) {
    gd_program *p = l->p;
    if (!gd_grow(l->versions, l->n_versions, l->versions_room))
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    l->versions[l->n_versions++] = (version){of, value, node->order};
    const gd_tensor t = tensor_of(p, of);
    for (int i = 0; i < p->n_commits; i++) {
        const gd_tensor other = tensor_of(p, p->commits[i].to);
        if (p->commits[i].to == of) {
            p->commits[i].value = value;
            p->commits[i].site = node->site;
            return GD_OK;
        }
        if (gd_overlap(&t, &other))
            return gd_fail(GD_E_UNSUPPORTED,
                           "it writes a tensor that shares its memory with one that was written "
                           "before in the run, at %s",
                           p->commits[i].site ? p->commits[i].site : "(unknown place)");
    }
    return gd_program_commit(
        p, (gd_commit){.root = p->values[of].root, .to = of, .value = value, .site = node->site});
}

/* gd_assign: no step; the variable gets the value at the end, and the result is the value. */
static gd_status lower_assign(lowering *l, entry *e, const int *in) {
    gd_program *p = l->p;
    const gd_pvalue x = p->values[in[0]];
    gd_pvalue v = p->values[in[1]];
    const int lead = x.rank - v.rank;
    gd_pvalue wide = v; /* broadcast: steps of 0 */
    wide.rank = x.rank;
    for (int d = 0; d < x.rank; d++) {
        const bool repeats = d < lead || v.dims[d - lead] != x.dims[d];
        wide.dims[d] = x.dims[d];
        wide.strides[d] = repeats ? 0 : v.strides[d - lead];
    }
    int value = gd_program_value(p, wide);
    if (value < 0) return GD_E_MEMORY;
    if (v.dtype != x.dtype) {
        gd_pstep *s = gd_program_step(p);
        int *ids = gd_program_alloc(p, 2 * sizeof *ids);
        gd_cast_options *o = gd_program_alloc(p, sizeof *o);
        int cast = temporary(p, (gd_dtype)x.dtype, x.rank, x.dims);
        if (!s || !ids || !o || cast < 0) return GD_E_MEMORY;
        o->dtype = (gd_dtype)x.dtype;
        ids[0] = value;
        ids[1] = cast;
        *s = (gd_pstep){.op = gd_op_find("cast"),
                        .attrs = o,
                        .node = e->node,
                        .n_in = 1,
                        .n_out = 1,
                        .in = ids,
                        .out = ids + 1};
        value = cast;
    }
    e->values[0] = value;
    return write(l, in[0], value, e->node);
}

static gd_status lower_outputs(lowering *l, entry *e, int *in, int *out, const gd_infer *infer) {
    gd_program *p = l->p;
    const gd_node *node = e->node;
    for (int k = 0; k < node->n_out; k++) {
        const gd_meta *m = &infer->out[k];
        if (m->view_of >= 0) {
            gd_pvalue v = {.root = p->values[in[m->view_of]].root,
                           .dtype = (uint8_t)m->dtype,
                           .rank = (uint8_t)m->rank,
                           .offset = m->offset};
            for (int d = 0; d < m->rank; d++) v.dims[d] = m->dims[d], v.strides[d] = m->strides[d];
            out[k] = gd_program_value(p, v);
        } else {
            out[k] = temporary(p, m->dtype, m->rank, m->dims);
        }
        if (out[k] < 0) return gd_this_thread.latest;
        e->values[k] = out[k];
    }
    return GD_OK;
}

static bool all_views(const gd_infer *infer, int n) {
    for (int k = 0; k < n; k++)
        if (infer->out[k].view_of < 0) return false;
    return n > 0;
}

static gd_status hold(gd_program *p, gd_node *node) {
    if (!gd_grow(p->held, p->n_held, p->held_room))
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    gd_node_retain(node);
    p->held[p->n_held++] = node;
    return GD_OK;
}

/* An input that the op writes is a copy of it, which becomes the variable's value at the end. */
static gd_status write_to_copy(lowering *l, const gd_node *node, int of, int *in, int *out) {
    *out = -1;
    if (*in < 0) return GD_OK; /* absent */
    const int copy = copy_of(l->p, *in, node);
    if (copy < 0) return GD_E_MEMORY;
    *in = *out = copy;
    return write(l, of, copy, node);
}

/* The value of an input; of a variable or a tensor outside, as it was before the run. -1: noted. */
static int before_run(lowering *l, const gd_slot *slot) {
    return slot->symbol ? find(l, slot->node)->values[slot->index] : outside(l->p, slot);
}

static int input_value(lowering *l, const gd_node *node, int i) {
    const gd_slot *slot = &node->slots[i];
    const int value = before_run(l, slot);
    const bool assigned = i == 0 && (node->op->flags & GD_OP_ASSIGNS);
    if (value < 0 || assigned || (slot->symbol && !is_variable(slot->node))) return value;
    return as_seen(l, value, node->as_of);
}

static gd_status lower_op(lowering *l, entry *e) {
    gd_program *p = l->p;
    gd_node *node = e->node;
    const gd_op *op = node->op;
    const int mutated = n_mutated(op);
    int *in = gd_program_alloc(p, (size_t)(node->n_in + node->n_out + mutated + 1) * sizeof *in),
        *out = in + node->n_in;
    gd_meta *metas = gd_malloc((size_t)(node->n_out + 1) * sizeof *metas);
    if (!in || !metas) {
        gd_free(metas);
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    }
    gd_status status = hold(p, node);
    for (int i = 0; i < node->n_in && status == GD_OK; i++) {
        const gd_slot *slot = &node->slots[i];
        in[i] = slot->present ? input_value(l, node, i) : -1;
        if (slot->present && in[i] < 0)
            status = gd_this_thread.latest != GD_OK ? gd_this_thread.latest : GD_E_STATE;
    }
    if (status == GD_OK && (op->flags & GD_OP_ASSIGNS)) {
        gd_free(metas);
        return lower_assign(l, e, in);
    }
    gd_infer infer = {.out = metas};
    int n_out = node->n_out;
    for (int i = 0; i < op->n_inputs && i < node->n_in && status == GD_OK; i++)
        if (op->inputs[i].mutated) {
            const int of =
                in[i] < 0 ? -1 : before_run(l, &node->slots[i]); /* has been made before */
            status = write_to_copy(l, node, of, &in[i], &out[n_out++]);
        }
    if (status == GD_OK) status = run_rule(l, node, in, &infer, metas);
    if (status == GD_OK)
        status = lower_outputs(l, e, in, out, &infer); /* may look into what is written */
    gd_pstep *s = status == GD_OK ? gd_program_step(p) : NULL;
    if (s)
        *s = (gd_pstep){.op = op,
                        .attrs = node->attrs,
                        .node = node,
                        .n_in = node->n_in,
                        .n_out = n_out,
                        .in = in,
                        .out = out,
                        .view = mutated == 0 && all_views(&infer, node->n_out)};
    else if (status == GD_OK) status = GD_E_MEMORY;
    if (infer.out != metas) gd_free(infer.out);
    gd_free(metas);
    return status;
}

static gd_status lower_node(lowering *l, entry *e) {
    gd_node *node = e->node;
    e->values = gd_program_alloc(l->p, (size_t)(node->n_out + 1) * sizeof *e->values);
    if (!e->values) return GD_E_MEMORY;
    for (int i = e->feed; i >= 0 && i < l->feeds.count; i++) {
        const gd_tensor *value = l->fed.at[i];
        size_t bytes;
        if (l->feeds.at[i]->node != node) continue;
        GD_TRY(gd_dims_bytes(value->rank, value->dims, (gd_dtype)value->dtype, &bytes));
        int v = source(l->p, (gd_root){.kind = GD_ROOT_FEED, .number = i, .bytes = bytes}, value);
        if (v < 0) return GD_E_MEMORY;
        e->values[l->feeds.at[i]->node_index] = v;
    }
    if (e->feed >= 0) return GD_OK;
    if (node->op) return lower_op(l, e);
    if (!is_variable(node))
        return gd_fail(GD_E_ARGUMENT, "'%s' is needed and was not fed", name_of(node));
    gd_tensor like = {.dtype = node->slots[0].dtype, .rank = node->slots[0].rank};
    memcpy(like.dims, node->slots[0].dims, sizeof(int64_t) * like.rank);
    size_t bytes;
    GD_TRY(gd_dims_bytes(like.rank, like.dims, (gd_dtype)like.dtype, &bytes));
    e->values[0] = source(
        l->p, (gd_root){.kind = GD_ROOT_VARIABLE, .number = node->origin->variable, .bytes = bytes},
        &like);
    return e->values[0] < 0 ? GD_E_MEMORY : GD_OK;
}

static gd_status lower_all(lowering *l, gd_tensors fetches) {
    gd_program *p = l->p;
    for (int i = 0; i < 2 * l->count; i++) { /* feeds first: those of a subgraph were made last */
        entry *e = &l->entries[i % l->count];
        if ((e->feed >= 0) != (i < l->count)) continue;
        gd_status status = lower_node(l, e);
        if (status == GD_OK) continue;
        const gd_node *node = e->node;
        gd_error_prefix("%s: ", name_of(node));
        if (node->site) gd_error_suffix(" (%s)", node->site);
        return status;
    }
    for (int64_t i = 0; i < fetches.count; i++)
        p->fetches[i] = find(l, fetches.at[i]->node)->values[fetches.at[i]->node_index];
    p->n_fetches = (int)fetches.count;
    return GD_OK;
}

/* What cannot be planned is run node by node, which then also says what is wrong with it. */
static gd_status or_dynamic(lowering *l, unsigned traits, gd_status status) {
    const unsigned control = GD_HAS_BRANCH | GD_HAS_WHILE | GD_HAS_SCAN;
    if (status == GD_OK || status == GD_E_MEMORY || (l->left >= 0 && !(traits & control)))
        return status;
    l->p->dynamic = true;
    gd_this_thread.latest = GD_OK;
    gd_this_thread.latest_text[0] = 0;
    return GD_OK;
}

static gd_status make_program(gd_tensors fetches, gd_tensors feeds, gd_tensors values, bool loops,
                              gd_program **program) {
    gd_program *p = gd_calloc(1, sizeof *p);
    if (!p) return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    lowering l = {.p = p, .feeds = feeds, .fed = values, .left = MOST_UNROLLED}, again = {.p = p};
    gd_scope *scope = gd_scope_open();
    gd_node **roots = gd_program_alloc(p, (size_t)(fetches.count + 1) * sizeof *roots);
    p->fetches = gd_program_alloc(p, (size_t)(fetches.count + 1) * sizeof(int));
    gd_status status = roots && p->fetches ? GD_OK : GD_E_MEMORY;
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) roots[i] = fetches.at[i]->node;
    if (status == GD_OK) status = gather(&l, roots, fetches.count);
    if (status == GD_OK) status = check_all_fed(&l, fetches);
    const unsigned traits = traits_of(&l);
    l.running = (gd_running){.keep = loops, .stacked = loops && (traits & GD_HAS_GRADIENTS)};
    if (status == GD_OK && is_dynamic(traits, loops)) p->dynamic = true;
    else if (status == GD_OK && has_unknown(&l)) {
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        status = gd_attempt_end(&attempt, replay(&l, fetches, &again));
        status = or_dynamic(&l, traits, status);
        /* a body, which waited for the sizes, may hold ops whose results' sizes depend on data */
        if (status == GD_OK && !p->dynamic && is_dynamic(traits_of(&again), loops))
            p->dynamic = true;
        gd_tensor **symbols =
            status == GD_OK ? gd_program_alloc(p, (size_t)(fetches.count + 1) * sizeof *symbols)
                            : NULL;
        if (status == GD_OK && !symbols) status = GD_E_MEMORY;
        for (int64_t i = 0; i < fetches.count && status == GD_OK && !p->dynamic; i++)
            symbols[i] = find(&l, fetches.at[i]->node)->symbols[fetches.at[i]->node_index];
        if (status == GD_OK && !p->dynamic)
            status = lower_all(&again, (gd_tensors){symbols, fetches.count});
    } else if (status == GD_OK) {
        status = lower_all(&l, fetches);
    }
    gd_free(l.entries);
    gd_free(l.versions);
    gd_free(again.entries);
    gd_free(again.versions);
    gd_scope_close(&scope);
    if (status != GD_OK) {
        gd_program_free(p);
        p = NULL;
    }
    *program = p;
    return status;
}

gd_status gd_program_make(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                          gd_program **program) {
    return make_program(fetches, feeds, values, false, program);
}

gd_status gd_program_make_loops(gd_tensors fetches, gd_tensors feeds, gd_tensors values,
                                gd_program **program) {
    return make_program(fetches, feeds, values, true, program);
}
