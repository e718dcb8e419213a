/* checkpoint.c - gd_checkpoint: a stretch of the tape that remembers its inputs alone.
 *
 * Forward runs without the tape; one node stands for the whole stretch. Backward runs the function
 * again with the tape on and the random numbers of the first time, and walks back through that.
 * Besides the inputs the function may use tensors that it has from elsewhere (a layer's weights):
 * in gd_backward their gradients are added to those leaves here, since the node does not list them.
 * To be walked at all when no input requires grad, the node has one more input: an empty leaf.
 */
#include <string.h>

#include "autograd/node.h"
#include "core/alloc.h"
#include "core/random.h"
#include "gradus/ops.h"

typedef struct {
    gd_fn fn;
    void *user;
    gd_rng rng; /* as it was before the first run */
} stretch;

/* --- the leaves that the function has from elsewhere ------------------------------------------- */

typedef struct {
    const void **seen; /* open addressing */
    size_t size, count;
    gd_node **todo;
    size_t n_todo, todo_capacity;
    gd_tensor **leaves;
    size_t n_leaves, leaf_capacity;
} search;

static bool see(search *s, const void *key) { /* false: no memory */
    if (2 * (s->count + 1) > s->size) {
        size_t size = s->size ? 2 * s->size : 64;
        const void **seen = gd_calloc(size, sizeof *seen);
        if (!seen) return false;
        for (size_t i = 0; i < s->size; i++) {
            if (!s->seen[i]) continue;
            size_t at = ((uintptr_t)s->seen[i] >> 4) * 0x9E3779B97F4A7C15u;
            while (seen[at & (size - 1)]) at++;
            seen[at & (size - 1)] = s->seen[i];
        }
        gd_free(s->seen);
        s->seen = seen;
        s->size = size;
    }
    size_t at = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u;
    while (s->seen[at & (s->size - 1)]) at++;
    s->seen[at & (s->size - 1)] = key;
    s->count++;
    return true;
}

static bool was_seen(const search *s, const void *key) {
    if (s->size == 0) return false;
    for (size_t at = ((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u; s->seen[at & (s->size - 1)]; at++)
        if (s->seen[at & (s->size - 1)] == key) return true;
    return false;
}

static bool push(void *list, size_t *count, size_t *capacity, void *item) {
    void ***at = list;
    if (*count == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 32;
        void **grown = gd_realloc(*at, more * sizeof *grown);
        if (!grown) return false;
        *at = grown;
        *capacity = more;
    }
    (*at)[(*count)++] = item;
    return true;
}

static bool is_input(const gd_slot *slot, gd_tensor *const *x, int n) {
    for (int i = 0; i < n; i++)
        if (x[i] && (slot->node ? x[i]->node == slot->node && x[i]->node_index == slot->index : x[i] == slot->leaf))
            return true;
    return false;
}

/* Every leaf that y depends on otherwise than through x. */
static gd_status find_leaves(search *s, const gd_tensor *y, gd_tensor *const *x, int n) {
    bool fine = true;
    if (y->node) fine = see(s, y->node) && push(&s->todo, &s->n_todo, &s->todo_capacity, y->node);
    while (fine && s->n_todo > 0) {
        gd_node *node = s->todo[--s->n_todo];
        for (int i = 0; i < node->n_in && fine; i++) {
            gd_slot *slot = &node->slots[i];
            void *key = slot->node ? (void *)slot->node : slot->leaf;
            if (!key || is_input(slot, x, n) || was_seen(s, key)) continue;
            fine = see(s, key);
            if (fine && slot->node) fine = push(&s->todo, &s->n_todo, &s->todo_capacity, slot->node);
            else if (fine) fine = push(&s->leaves, &s->n_leaves, &s->leaf_capacity, slot->leaf);
        }
    }
    return fine ? GD_OK : gd_fail(GD_E_MEMORY, "gd_checkpoint: no memory to find the leaves");
}

static void search_free(search *s) {
    gd_free(s->seen);
    gd_free(s->todo);
    gd_free(s->leaves);
}

/* --- backward ---------------------------------------------------------------------------------- */

static gd_status add_to_leaf(gd_tensor *leaf, gd_tensor *g, bool graph) {
    if (!g) return GD_OK;
    if (g->kind == GD_FAILED) return gd_failure();
    gd_tensor *sum = leaf->grad ? gd_add(leaf->grad, g) : graph ? g : gd_clone(g);
    return sum->kind == GD_FAILED ? gd_failure() : gd_set_grad(leaf, sum);
}

/* Gradients of y by the needed inputs and, when leaves are to be added to, by those. */
static gd_status walk_stretch(gd_context *c, gd_tensor *y, gd_tensor **x, int n, bool to_leaves, bool graph) {
    search s = {.count = 0};
    gd_status status = to_leaves ? find_leaves(&s, y, x, n) : GD_OK;
    gd_tensor **by = gd_malloc(((size_t)n + s.n_leaves + 1) * sizeof *by);
    if (!by && status == GD_OK) status = gd_fail(GD_E_MEMORY, "gd_checkpoint: no memory for a list");
    int64_t count = 0;
    for (int i = 0; i < n && status == GD_OK; i++)
        if (c->needs[i]) by[count++] = x[i];
    for (size_t i = 0; i < s.n_leaves && status == GD_OK; i++) by[count++] = s.leaves[i];
    if (status == GD_OK && count > 0) {
        gd_tensors g = gd_grad(gd_list(y), ((gd_tensors){by, count}), .gradients = gd_list(c->gy[0]),
                               .create_graph = graph, .retain_graph = true, .allow_unused = true);
        int64_t at = 0;
        if (g.count != count) status = gd_failure();
        for (int i = 0; i < n && status == GD_OK; i++)
            if (c->needs[i]) c->gx[i] = g.at[at++];
        for (size_t i = 0; i < s.n_leaves && status == GD_OK; i++)
            status = add_to_leaf(s.leaves[i], g.at[at++], graph);
    }
    gd_free(by);
    search_free(&s);
    return status;
}

static gd_status run_again(gd_context *c) {
    const stretch *s = c->user;
    int n = c->n_in - 1; /* the last one is the empty leaf: needed in gd_backward, not in gd_grad */
    bool graph = gd_grad_enabled(), any = false;
    for (int i = 0; i < c->n_in; i++) any |= c->needs[i];
    if (!any) return GD_OK;
    gd_tensor **x = gd_list_new(n);
    if (!x) return GD_E_MEMORY;
    for (int i = 0; i < n; i++) {
        if (!c->x[i]) continue;
        x[i] = gd_saved(c, i);
        if (x[i]->kind == GD_FAILED) return gd_failure();
    }
    gd_rng now = gd_rng_state();
    gd_rng_set_state(s->rng);
    int before = gd_enable_grad_begin();
    gd_tensor *y = s->fn((gd_tensors){x, n}, s->user);
    gd_grad_mode_end(&before);
    gd_rng_set_state(now);
    if (!y || y->kind == GD_FAILED)
        return y ? gd_failure() : gd_fail(GD_E_STATE, "gd_checkpoint: the function returned NULL");
    if (y->rank != c->gy[0]->rank || memcmp(y->dims, c->gy[0]->dims, sizeof(int64_t) * y->rank) != 0)
        return gd_fail(GD_E_STATE, "gd_checkpoint: the function's result had another shape the second time");
    if (!y->requires_grad) return GD_OK; /* nothing to give a gradient to */
    return walk_stretch(c, y, x, n, c->needs[n], graph);
}

static void checkpoint_backward(gd_context *c) {
    gd_status status = run_again(c);
    if (status == GD_OK) return;
    for (int i = 0; i < c->n_in; i++)
        if (c->needs[i]) c->gx[i] = gd_tensor_fail(status);
}

static const gd_function checkpoint_function = {.name = "checkpoint", .backward = checkpoint_backward};

/* --- forward ----------------------------------------------------------------------------------- */

/* Whether t was made in the innermost scope, so that its handle is ours to give a history. */
static bool made_here(const gd_tensor *t) {
    const gd_thread *thread = &gd_this_thread;
    if (thread->unrecorded > 0 || thread->depth == 0) return false;
    for (size_t i = thread->object_count; i-- > thread->starts[thread->depth - 1];)
        if (thread->objects[i] == &t->object) return true;
    return false;
}

static gd_status record(const stretch *s, gd_tensors inputs, gd_tensor *y) {
    int n = (int)inputs.count;
    int64_t nothing = 0;
    gd_tensor *empty = gd_tensor_new(gd_cpu(), GD_F32, 1, &nothing);
    gd_node *node = empty ? gd_node_new(NULL, NULL, n + 1, 1, n) : NULL;
    stretch *kept = node ? gd_malloc(sizeof *kept) : NULL;
    if (!kept) {
        if (node) gd_node_release(node);
        return gd_fail(GD_E_MEMORY, "gd_checkpoint: no memory to record it");
    }
    *kept = *s;
    empty->requires_grad = true;
    node->function = &checkpoint_function;
    node->user = kept;
    node->user_free = gd_free;
    for (int i = 0; i < n; i++) {
        gd_slot_set(&node->slots[i], inputs.at[i], false);
        gd_slot_set(&node->slots[n + 2 + i], inputs.at[i], true);
    }
    gd_slot_set(&node->slots[n], empty, false);
    gd_slot *out = &node->slots[n + 1];
    gd_slot_set(out, y, false);
    out->index = 0;
    out->requires_grad = true;
    gd_node_attach(node, y, 0);
    gd_node_release(node);
    return GD_OK;
}

static gd_status checkpoint(const stretch *s, gd_tensors inputs, gd_tensor **result) {
    for (int64_t i = 0; i < inputs.count; i++)
        if (inputs.at[i] && inputs.at[i]->kind == GD_FAILED) return gd_failure();
    int before = gd_no_grad_begin();
    gd_tensor *y = s->fn(inputs, s->user);
    gd_grad_mode_end(&before);
    if (!y) return gd_fail(GD_E_ARGUMENT, "gd_checkpoint: the function returned NULL");
    if (y->kind == GD_FAILED) return gd_failure();
    if (!made_here(y) || y->node || y->requires_grad) { /* handed through: a handle of its own */
        y = gd_tensor_alias(y);
        if (!y) return GD_E_MEMORY;
    }
    *result = y;
    return gd_dtype_is_float((gd_dtype)y->dtype) ? record(s, inputs, y) : GD_OK;
}

gd_tensor *gd_checkpoint(gd_fn fn, gd_tensors inputs, void *user) {
    if (!fn || inputs.count < 0 || (inputs.count > 0 && !inputs.at))
        return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_checkpoint: the function or the list of inputs is NULL"));
    bool symbols = gd_this_thread.tracer != NULL;
    for (int64_t i = 0; i < inputs.count; i++) symbols |= gd_tensor_is_symbol(inputs.at[i]);
    /* without a tape there is nothing to save; a graph decides by itself what to keep */
    if (symbols || !gd_grad_enabled()) return fn(inputs, user);
    gd_scope *scope = gd_scope_open();
    stretch s = {fn, user, gd_rng_state()};
    gd_tensor *y = NULL;
    gd_status status = checkpoint(&s, inputs, &y);
    if (status == GD_OK) gd_keep(y);
    gd_scope_close(&scope);
    return status == GD_OK ? y : gd_tensor_fail(status);
}
