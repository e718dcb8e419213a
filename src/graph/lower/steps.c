/* steps.c - turns nodes into the steps, values and commits of a program. The shape rule of an op
 * tells which outputs are views. */
#include <string.h>

#include "core/grow.h"
#include "graph/lower/lower.h"
#include "gradus/ops.h"
#include "dispatch/call_infer.h"

/* --- values ----------------------------------------------------------------------------------- */

static int add_temporary(gd_program *p, gd_dtype dtype, int rank, const int64_t *dims) {
    gd_pvalue v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    size_t bytes;
    if (gd_dims_bytes(rank, dims, dtype, &bytes) != GD_OK) return -1;
    v.root = gd_program_root(p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes});
    if (v.root < 0) return -1;
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    gd_row_major(rank, dims, v.strides);
    return gd_program_value(p, v);
}

/* Adds a root that is not a temporary, and a value that is all of it. */
static int add_source(gd_program *p, gd_root root, const gd_tensor *like) {
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

/* Whether a value is this view of a captured tensor's storage. */
static bool is_view_of(const gd_program *p, int value, const gd_storage *storage,
                       const gd_tensor *like) {
    const gd_pvalue *v = &p->values[value];
    const gd_root *root = &p->roots[v->root];
    return root->kind == GD_ROOT_CAPTURED && root->storage == storage &&
           v->offset == like->offset && v->dtype == like->dtype && v->rank == like->rank &&
           memcmp(v->dims, like->dims, sizeof(int64_t) * v->rank) == 0 &&
           memcmp(v->strides, like->strides, sizeof(int64_t) * v->rank) == 0;
}

static uint64_t hash_view(const gd_storage *storage, const gd_tensor *like) {
    uint64_t hash = gd_hash_mix((uintptr_t)storage, (uint64_t)like->offset);
    hash = gd_hash_mix(hash, (uint64_t)like->dtype << 8 ^ like->rank);
    for (int i = 0; i < like->rank; i++) {
        hash = gd_hash_mix(hash, (uint64_t)like->dims[i]);
        hash = gd_hash_mix(hash, (uint64_t)like->strides[i]);
    }
    return hash;
}

/* The value of a captured tensor. Equal views of a storage are one value. -1: failed. */
static int add_captured(gd_program *p, const gd_slot *slot) {
    gd_tensor like = {.dtype = slot->dtype, .rank = slot->rank, .offset = slot->offset};
    for (int i = 0; i < slot->rank; i++)
        like.dims[i] = slot->dims[i], like.strides[i] = slot->strides[i];
    gd_storage *storage = slot->storage ? slot->storage : slot->leaf ? slot->leaf->storage : NULL;
    if (!storage) {
        gd_fail(GD_E_STATE, "a captured tensor has no data");
        return -1;
    }
    const uint64_t hash = hash_view(storage, &like);
    int known;
    for (size_t probe = 0; (known = gd_index_set_next(&p->views, hash, &probe)) >= 0;)
        if (is_view_of(p, known, storage, &like)) return known;
    const int n_roots = p->n_roots;
    gd_storage_retain(storage);
    int value = add_source(p,
                           (gd_root){.kind = GD_ROOT_CAPTURED,
                                     .number = p->n_roots,
                                     .storage = storage,
                                     .bytes = storage->bytes},
                           &like);
    if (p->n_roots == n_roots) gd_storage_release(storage); /* else the root owns it */
    if (value >= 0 && !gd_index_set_add(&p->views, hash, value)) {
        gd_no_memory(NULL, "to plan a run");
        return -1;
    }
    return value;
}

static gd_status infer_outputs(gd_lowering *l, const gd_node *node, const int *in, gd_infer *infer,
                               gd_meta *metas) {
    gd_tensor *described =
        gd_malloc((size_t)(node->n_in + 1) * (sizeof *described + sizeof(gd_tensor *)));
    if (!described) return gd_no_memory(NULL, "to plan a run");
    gd_tensor **at = (gd_tensor **)(described + node->n_in + 1);
    for (int i = 0; i < node->n_in; i++) {
        at[i] = NULL;
        if (in[i] < 0) continue;
        gd_program_describe(l->p, in[i], node->slots[i].device, &described[i]);
        at[i] = &described[i];
    }
    *infer = (gd_infer){node->op, node->attrs, at, node->n_in, metas, node->n_out};
    gd_status status = gd_infer_known(infer);
    gd_free(described);
    return status;
}

static int count_mutated(const gd_op *op) {
    int n = 0;
    for (int i = 0; i < op->n_inputs; i++) n += op->inputs[i].mutated;
    return n;
}

/* Adds a step that copies a value. Returns the copy; -1: no memory. */
static int add_copy(gd_program *p, int value, const gd_node *node) {
    const gd_pvalue v = p->values[value];
    int copy = add_temporary(p, (gd_dtype)v.dtype, v.rank, v.dims);
    gd_pstep *s = copy < 0 ? NULL : gd_program_step(p);
    int *ids = s ? gd_program_alloc(p, 2 * sizeof *ids) : NULL;
    if (!ids) return -1;
    ids[0] = value;
    ids[1] = copy;
    *s = (gd_pstep){
        .op = gd_op_find("clone"), .node = node, .n_in = 1, .n_out = 1, .in = ids, .out = ids + 1};
    return copy;
}

/* --- writes ----------------------------------------------------------------------------------- */

static gd_tensor as_tensor(const gd_program *p, int value) {
    const gd_pvalue *v = &p->values[value];
    gd_tensor t = {.dtype = v->dtype,
                   .rank = v->rank,
                   .offset = v->offset,
                   .storage = p->roots[v->root].storage};
    for (int d = 0; d < v->rank; d++) t.dims[d] = v->dims[d], t.strides[d] = v->strides[d];
    return t;
}

/* A view of a tensor whose root was written becomes the same view of the new value. That works if
 * the old and the new value are all of their roots; else it fails. */
static int view_new_value(gd_program *p, const gd_value_version *v, int value) {
    gd_pvalue seen = p->values[value];
    if (!gd_value_fills_root(p, &p->values[v->of]) ||
        !gd_value_fills_root(p, &p->values[v->value]) || p->values[v->of].dtype != seen.dtype) {
        gd_fail(GD_E_UNSUPPORTED,
                "it reads a tensor that shares its memory with one that was written before in the "
                "run; use that one, and make views of it in the graph");
        return -1;
    }
    seen.root = p->values[v->value].root;
    return gd_program_value(p, seen);
}

/* The root that stands for the memory of a value. */
static gd_root *memory_of(const gd_program *p, int value) {
    return &p->roots[p->roots[p->values[value].root].memory];
}

/* The value of a variable or captured tensor as a node sees it; -1: failed. */
static int find_visible_value(gd_lowering *l, int value, uint64_t as_of) {
    gd_program *p = l->p;
    const gd_tensor t = as_tensor(p, value);
    for (int i = memory_of(p, value)->versions - 1; i >= 0; i = l->versions[i].before) {
        const gd_value_version *v = &l->versions[i];
        if (v->order >= as_of) continue;
        if (v->of == value) return v->value;
        const gd_tensor of = as_tensor(p, v->of);
        if (gd_overlap(&t, &of)) return view_new_value(p, v, value);
    }
    return value;
}

/* Records that `of` has the new value `value` for later nodes, and gets it at the end of the
 * run. */
static gd_status record_write(gd_lowering *l, int of, int value, const gd_node *node) {
    gd_program *p = l->p;
    gd_root *memory = memory_of(p, of);
    const gd_tensor t = as_tensor(p, of);
    int commit = p->n_commits; /* a new one, unless `of` has one */
    for (int i = memory->versions - 1; i >= 0 && commit == p->n_commits;
         i = l->versions[i].before) {
        const gd_value_version *v = &l->versions[i];
        const gd_tensor other = as_tensor(p, v->of);
        const char *site = p->commits[v->commit].site;
        if (v->of == of) commit = v->commit;
        else if (gd_overlap(&t, &other))
            return gd_fail(GD_E_UNSUPPORTED,
                           "it writes a tensor that shares its memory with one that was written "
                           "before in the run, at %s",
                           site ? site : "(unknown place)");
    }
    if (!gd_grow(l->versions, l->n_versions, l->versions_room))
        return gd_no_memory(NULL, "to plan a run");
    l->versions[l->n_versions] =
        (gd_value_version){of, value, node->order, commit, memory->versions - 1};
    memory->versions = ++l->n_versions;
    const gd_commit made = {
        .root = p->values[of].root, .to = of, .value = value, .site = node->site};
    if (commit == p->n_commits) return gd_program_commit(p, made);
    p->commits[commit] = made;
    return GD_OK;
}

/* gd_assign adds no step: the variable gets the value at the end, and the result is the value. */
static gd_status lower_assign(gd_lowering *l, gd_lowered_node *e, const int *in) {
    gd_program *p = l->p;
    const gd_pvalue x = p->values[in[0]];
    gd_pvalue v = p->values[in[1]];
    const int lead = x.rank - v.rank;
    gd_pvalue wide = v; /* broadcast by strides of 0 */
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
        int cast = add_temporary(p, (gd_dtype)x.dtype, x.rank, x.dims);
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
    return record_write(l, in[0], value, e->node);
}

static gd_status lower_outputs(gd_lowering *l, gd_lowered_node *e, int *in, int *out,
                               const gd_infer *infer) {
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
            out[k] = add_temporary(p, m->dtype, m->rank, m->dims);
        }
        if (out[k] < 0) return gd_this_thread.latest;
        e->values[k] = out[k];
    }
    return GD_OK;
}

static bool are_all_views(const gd_infer *infer, int n) {
    for (int k = 0; k < n; k++)
        if (infer->out[k].view_of < 0) return false;
    return n > 0;
}

static gd_status retain_node(gd_program *p, gd_node *node) {
    if (!gd_grow(p->held, p->n_held, p->held_room)) return gd_no_memory(NULL, "to plan a run");
    gd_node_retain(node);
    p->held[p->n_held++] = node;
    return GD_OK;
}

/* Replaces an input that the op writes by a copy, which becomes the variable's value at the end. */
static gd_status write_to_copy(gd_lowering *l, const gd_node *node, int of, int *in, int *out) {
    *out = -1;
    if (*in < 0) return GD_OK; /* an optional input that is absent */
    const int copy = add_copy(l->p, *in, node);
    if (copy < 0) return GD_E_MEMORY;
    *in = *out = copy;
    return record_write(l, of, copy, node);
}

/* The value of an input; a variable or captured tensor as it was before the run. -1: failed. */
static int value_before_run(gd_lowering *l, const gd_slot *slot) {
    return slot->symbol ? gd_lowering_find(l, slot->node)->values[slot->index]
                        : add_captured(l->p, slot);
}

static int input_value(gd_lowering *l, const gd_node *node, int i) {
    const gd_slot *slot = &node->slots[i];
    const int value = value_before_run(l, slot);
    const bool assigned = i == 0 && (node->op->flags & GD_OP_ASSIGNS);
    if (value < 0 || assigned || (slot->symbol && !gd_node_is_variable(slot->node))) return value;
    return find_visible_value(l, value, node->as_of);
}

static gd_status lower_op(gd_lowering *l, gd_lowered_node *e) {
    gd_program *p = l->p;
    gd_node *node = e->node;
    const gd_op *op = node->op;
    const int mutated = count_mutated(op);
    int *in = gd_program_alloc(p, (size_t)(node->n_in + node->n_out + mutated + 1) * sizeof *in),
        *out = in + node->n_in;
    gd_meta *metas = gd_malloc((size_t)(node->n_out + 1) * sizeof *metas);
    if (!in || !metas) {
        gd_free(metas);
        return gd_no_memory(NULL, "to plan a run");
    }
    gd_status status = retain_node(p, node);
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
                in[i] < 0 ? -1 : value_before_run(l, &node->slots[i]); /* it exists by now */
            status = write_to_copy(l, node, of, &in[i], &out[n_out++]);
        }
    if (status == GD_OK) status = infer_outputs(l, node, in, &infer, metas);
    if (status == GD_OK)
        status =
            lower_outputs(l, e, in, out, &infer); /* last: outputs may be views of written inputs */
    gd_pstep *s = status == GD_OK ? gd_program_step(p) : NULL;
    if (s)
        *s = (gd_pstep){.op = op,
                        .attrs = node->attrs,
                        .node = node,
                        .n_in = node->n_in,
                        .n_out = n_out,
                        .in = in,
                        .out = out,
                        .view = mutated == 0 && are_all_views(&infer, node->n_out)};
    else if (status == GD_OK) status = GD_E_MEMORY;
    if (infer.out != metas) gd_free(infer.out);
    gd_free(metas);
    return status;
}

static gd_status lower_node(gd_lowering *l, gd_lowered_node *e) {
    gd_node *node = e->node;
    e->values = gd_program_alloc(l->p, (size_t)(node->n_out + 1) * sizeof *e->values);
    if (!e->values) return GD_E_MEMORY;
    for (int i = e->feed; i >= 0; i = l->next_feed[i]) {
        const gd_tensor *value = l->fed.at[i];
        size_t bytes;
        GD_TRY(gd_dims_bytes(value->rank, value->dims, (gd_dtype)value->dtype, &bytes));
        int v =
            add_source(l->p, (gd_root){.kind = GD_ROOT_FEED, .number = i, .bytes = bytes}, value);
        if (v < 0) return GD_E_MEMORY;
        e->values[l->feeds.at[i]->node_index] = v;
    }
    if (e->feed >= 0) return GD_OK;
    if (node->op) return lower_op(l, e);
    if (!gd_node_is_variable(node))
        return gd_fail(GD_E_ARGUMENT, "'%s' is needed and was not fed", gd_node_name(node));
    gd_tensor like = {.dtype = node->slots[0].dtype, .rank = node->slots[0].rank};
    memcpy(like.dims, node->slots[0].dims, sizeof(int64_t) * like.rank);
    size_t bytes;
    GD_TRY(gd_dims_bytes(like.rank, like.dims, (gd_dtype)like.dtype, &bytes));
    e->values[0] = add_source(
        l->p, (gd_root){.kind = GD_ROOT_VARIABLE, .number = node->origin->variable, .bytes = bytes},
        &like);
    return e->values[0] < 0 ? GD_E_MEMORY : GD_OK;
}

gd_status gd_lowering_add_steps(gd_lowering *l, gd_tensors fetches) {
    gd_program *p = l->p;
    /* feeds first: those of a subgraph have later numbers than the nodes that read them */
    for (int i = 0; i < 2 * l->count; i++) {
        gd_lowered_node *e = &l->entries[i % l->count];
        if ((e->feed >= 0) != (i < l->count)) continue;
        gd_status status = lower_node(l, e);
        if (status == GD_OK) continue;
        const gd_node *node = e->node;
        gd_error_prefix("%s: ", gd_node_name(node));
        if (node->site) gd_error_suffix(" (%s)", node->site);
        return status;
    }
    for (int64_t i = 0; i < fetches.count; i++)
        p->fetches[i] = gd_lowering_find(l, fetches.at[i]->node)->values[fetches.at[i]->node_index];
    p->n_fetches = (int)fetches.count;
    return GD_OK;
}
