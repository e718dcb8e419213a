/* body.c - saves a call by its body, the op expressed in other ops.
 *
 * The body is traced with symbols in place of the inputs, and its nodes are saved as calls. A body
 * may compute with sizes. If some sizes are unknown, it is traced several times with different
 * sizes: if all traces have the same nodes with the same options, the body does not depend on them.
 * Order: tracing; comparing two traces; saving.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "graph/build/options.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "dispatch/call.h"

/* --- tracing ---------------------------------------------------------------------------------- */

typedef struct body {
    gd_tensor **x, **y; /* y NULL: a hidden output that the body does not compute */
    gd_node **nodes;    /* in order, with the placeholders of x */
    int count, room;
    const char ***names; /* of the nodes' outputs */
    uint64_t *used;      /* for each node: bit k if output k is read */
} body;

static void body_free(body *b) {
    for (int i = 0; b->names && i < b->count; i++) gd_free(b->names[i]);
    gd_free(b->names);
    gd_free(b->used);
    gd_free(b->nodes);
    gd_free(b->x);
}

static int find_node(const body *b, const gd_node *node) {
    for (int i = 0; i < b->count; i++)
        if (b->nodes[i] == node) return i;
    return -1;
}

static gd_status add_node(body *b, gd_node *node) {
    if (find_node(b, node) >= 0) return GD_OK;
    if (b->count == b->room) {
        const int room = b->room ? 2 * b->room : 32;
        gd_node **grown = gd_realloc(b->nodes, (size_t)room * sizeof *grown);
        if (!grown) return gd_no_memory(NULL, "to save a graph");
        b->nodes = grown;
        b->room = room;
    }
    b->nodes[b->count++] = node;
    return GD_OK;
}

static int compare_order(const void *a, const void *b) {
    const uint64_t x = (*(gd_node *const *)a)->order, y = (*(gd_node *const *)b)->order;
    return x < y ? -1 : x > y;
}

/* Traces the body with `size` for each unknown size. *ok: the op has a body for these inputs. Fails
 * only if memory runs out. */
static gd_status trace_body(const gd_onnx_call *c, void (*expand)(gd_expansion *), int64_t size,
                            body *b, bool *ok) {
    b->x = gd_calloc((size_t)(c->n_in + c->n_out) + 1, sizeof *b->x);
    if (!b->x) return gd_no_memory(NULL, "to save a graph");
    b->y = b->x + c->n_in;
    *ok = true;
    gd_status status = GD_OK;
    void *before = gd_this_thread.tracer;
    gd_this_thread.tracer = &gd_no_graph;
    for (int i = 0; i < c->n_in && status == GD_OK; i++) {
        if (!c->in[i].present) continue;
        int64_t dims[GD_MAX_RANK];
        for (int d = 0; d < c->in[i].rank; d++)
            dims[d] = c->in[i].dims[d] == GD_UNKNOWN ? size : c->in[i].dims[d];
        b->x[i] =
            gd_symbol(gd_shape_of(c->in[i].rank, dims), (gd_dtype)c->in[i].dtype, c->in[i].device);
        if (b->x[i]->kind != GD_SYMBOL) status = gd_failure();
    }
    gd_expansion e = {c->op, c->attrs, c->n_in, c->n_out, b->x, b->y};
    if (status == GD_OK) {
        gd_attempt attempt; /* a failure means that there is no body */
        gd_rng rng = {0};   /* random ops must not advance the program's generator */
        gd_attempt_begin(&attempt);
        gd_this_thread.replay_rng = &rng;
        expand(&e);
        gd_this_thread.replay_rng = NULL;
        status = gd_attempt_end(&attempt, GD_OK);
        *ok = status == GD_OK;
        if (status != GD_E_MEMORY) status = GD_OK;
    }
    for (int k = 0; k < c->n_out && *ok && status == GD_OK; k++) {
        if (b->y[k] && b->y[k]->kind != GD_SYMBOL && b->y[k]->kind != GD_VALUE) *ok = false;
        if (!b->y[k] && ((c->used >> k & 1) || k == 0)) *ok = false;
    }
    for (int k = 0; k < c->n_out && *ok && status == GD_OK; k++)
        if (b->y[k] && b->y[k]->kind == GD_SYMBOL) status = add_node(b, b->y[k]->node);
    for (int at = 0; at < b->count && status == GD_OK; at++) /* the list grows meanwhile */
        for (int i = 0; i < b->nodes[at]->n_in && status == GD_OK; i++)
            if (b->nodes[at]->slots[i].symbol) status = add_node(b, b->nodes[at]->slots[i].node);
    if (b->count) qsort(b->nodes, (size_t)b->count, sizeof *b->nodes, compare_order);
    gd_this_thread.tracer = before;
    return status;
}

/* --- comparing two traces --------------------------------------------------------------------- */

static bool same_options(const gd_node *a, const gd_node *b) {
    for (int i = 0; i < a->op->n_attrs; i++) {
        const gd_op_attr *option = &a->op->attrs[i];
        if (!gd_same_option(option, (const char *)a->attrs + option->offset,
                            (const char *)b->attrs + option->offset))
            return false;
    }
    return true;
}

/* Whether two captured tensors have the same data. Those computed from a size differ. */
static gd_status same_value(const gd_slot *a, const gd_slot *b, bool *same) {
    *same = false;
    if (a->rank != b->rank || a->dtype != b->dtype ||
        memcmp(a->dims, b->dims, sizeof *a->dims * a->rank) != 0)
        return GD_OK;
    gd_tensor *x = gd_onnx_captured_tensor(a), *y = gd_onnx_captured_tensor(b);
    if (!x || !y) return gd_failure();
    x = gd_contiguous(gd_to_device(x, gd_device_get("cpu")));
    y = gd_contiguous(gd_to_device(y, gd_device_get("cpu")));
    if (x->kind != GD_VALUE || y->kind != GD_VALUE) return gd_failure();
    const size_t bytes = (size_t)gd_numel(x->rank, x->dims) * gd_dtype_bytes(x->dtype);
    *same = bytes == 0 || memcmp(gd_data(x), gd_data(y), bytes) == 0;
    return GD_OK;
}

static gd_status same_nodes(const body *a, const body *b, int i, bool *same) {
    const gd_node *x = a->nodes[i], *y = b->nodes[i];
    *same = x->op == y->op && x->n_in == y->n_in && x->n_out == y->n_out &&
            (!x->op || same_options(x, y));
    for (int k = 0; *same && k < x->n_in; k++) {
        const gd_slot *p = &x->slots[k], *q = &y->slots[k];
        *same = p->present == q->present && p->symbol == q->symbol;
        if (!*same || !p->present) continue;
        if (!p->symbol) GD_TRY(same_value(p, q, same));
        else *same = p->index == q->index && find_node(a, p->node) == find_node(b, q->node);
    }
    return GD_OK;
}

static bool same_results(const body *a, const body *b, int n_out) {
    for (int k = 0; k < n_out; k++) {
        const gd_tensor *p = a->y[k], *q = b->y[k];
        if (!p != !q || (p && (p->kind != q->kind || p->kind != GD_SYMBOL))) return false;
        if (p && (p->node_index != q->node_index || find_node(a, p->node) != find_node(b, q->node)))
            return false;
    }
    return true;
}

/* Whether two traces have the same nodes. Sizes that differ between them become unknown in `a`. */
static gd_status same_bodies(body *a, const body *b, int n_out, bool *same) {
    *same = a->count == b->count && same_results(a, b, n_out);
    for (int i = 0; *same && i < a->count; i++) GD_TRY(same_nodes(a, b, i, same));
    for (int i = 0; *same && i < a->count; i++)
        for (int k = 0; *same && k < a->nodes[i]->n_in + a->nodes[i]->n_out; k++) {
            gd_slot *p = &a->nodes[i]->slots[k];
            const gd_slot *q = &b->nodes[i]->slots[k];
            *same = p->rank == q->rank;
            for (int d = 0; *same && d < p->rank; d++)
                if (p->dims[d] != q->dims[d]) p->dims[d] = GD_UNKNOWN;
        }
    return GD_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

/* Names the values: inputs and outputs have the names of the call, other values get new names. */
static gd_status name_values(gd_onnx_saver *s, const gd_onnx_call *c, body *b) {
    b->names = gd_calloc((size_t)b->count + 1, sizeof *b->names);
    b->used = gd_calloc((size_t)b->count + 1, sizeof *b->used);
    if (!b->names || !b->used) return gd_no_memory(NULL, "to save a graph");
    for (int i = 0; i < b->count; i++) {
        b->names[i] = gd_calloc((size_t)b->nodes[i]->n_out + 1, sizeof **b->names);
        if (!b->names[i]) return gd_no_memory(NULL, "to save a graph");
    }
    for (int i = 0; i < c->n_in; i++) {
        const int at = b->x[i] ? find_node(b, b->x[i]->node) : -1;
        if (at >= 0) b->names[at][0] = c->in_names[i];
    }
    for (int k = 0; k < c->n_out; k++) {
        if (!b->y[k] || b->y[k]->kind != GD_SYMBOL) continue;
        const int at = find_node(b, b->y[k]->node), index = b->y[k]->node_index;
        if (!b->names[at][index]) b->names[at][index] = c->out_names[k];
        b->used[at] |= (uint64_t)1 << (index & 63);
    }
    for (int i = 0; i < b->count; i++) {
        const gd_node *node = b->nodes[i];
        for (int k = 0; k < node->n_in; k++)
            if (node->slots[k].symbol)
                b->used[find_node(b, node->slots[k].node)] |= (uint64_t)1
                                                              << (node->slots[k].index & 63);
        for (int k = 0; k < node->n_out; k++) {
            char suffix[80];
            snprintf(suffix, sizeof suffix, "/%.60s", node->op ? node->op->name : "input");
            if (!b->names[i][k] && !(b->names[i][k] = gd_onnx_unique_name(s, c->label, suffix)))
                return GD_E_MEMORY;
        }
    }
    return GD_OK;
}

static gd_status save_body_node(gd_onnx_saver *s, const gd_onnx_call *c, const body *b, int at,
                                const char **in, int depth) {
    const gd_node *node = b->nodes[at];
    for (int i = 0; i < node->n_in; i++) {
        const gd_slot *slot = &node->slots[i];
        in[i] = NULL;
        if (!slot->present) continue;
        in[i] = slot->symbol ? b->names[find_node(b, slot->node)][slot->index]
                             : gd_onnx_captured_name(s, slot, c->label);
        if (!in[i]) return gd_failure();
    }
    const gd_onnx_call call = {node->op,    node->attrs,    node->slots, node->slots + node->n_in,
                               node->n_in,  node->n_out,    in,          b->names[at],
                               b->used[at], b->names[at][0]};
    return gd_onnx_save_call(s, &call, depth + 1);
}

static gd_status save_nodes(gd_onnx_saver *s, const gd_onnx_call *c, body *b, int depth) {
    GD_TRY(name_values(s, c, b));
    for (int i = 0; i < b->count; i++) {
        if (!b->nodes[i]->op) continue;
        const char **in = gd_calloc((size_t)b->nodes[i]->n_in + 1, sizeof *in);
        if (!in) return gd_no_memory(NULL, "to save a graph");
        gd_status status = save_body_node(s, c, b, i, in, depth);
        gd_free(in);
        GD_TRY(status);
    }
    for (int k = 0; k < c->n_out; k++) { /* outputs that are constants, inputs or duplicates */
        if (!b->y[k]) continue;
        if (b->y[k]->kind == GD_VALUE) {
            GD_TRY(gd_onnx_add_tensor(s, c->out_names[k], b->y[k]));
            continue;
        }
        const char *name = b->names[find_node(b, b->y[k]->node)][b->y[k]->node_index];
        if (name != c->out_names[k]) gd_onnx_put_unary(s, "Identity", name, c->out_names[k]);
    }
    return GD_OK;
}

/* Whether the body is just a call of the same op: saving it would not terminate. */
static bool is_itself(const gd_onnx_call *c, const body *b) {
    for (int i = 0; i < b->count; i++)
        if (b->nodes[i]->op == c->op && b->count == c->n_in + 1 &&
            same_options(b->nodes[i], &(gd_node){.op = c->op, .attrs = (void *)c->attrs}))
            return true;
    return false;
}

gd_status gd_onnx_save_body(gd_onnx_saver *s, const gd_onnx_call *c, void (*expand)(gd_expansion *),
                            int depth, bool *done) {
    body first = {0}, second = {0}, odd = {0};
    bool ok = false, traced = false;
    gd_status status = trace_body(c, expand, 840, &first, &ok);
    if (status == GD_OK && ok && gd_onnx_has_unknown_size(c)) {
        status = trace_body(c, expand, 1680, &second, &ok);
        if (status == GD_OK && ok) status = same_bodies(&first, &second, c->n_out, &ok);
        /* 840 and 1680 are multiples of all small numbers. A body that rounds a quotient of its
         * sizes differs at 1681; a body that needs a multiple has no trace there. */
        if (status == GD_OK && ok) status = trace_body(c, expand, 1681, &odd, &traced);
        if (status == GD_OK && traced) status = same_bodies(&first, &odd, c->n_out, &ok);
    }
    if (status == GD_OK && ok && !is_itself(c, &first)) {
        status = save_nodes(s, c, &first, depth);
        *done = true;
    }
    body_free(&first);
    body_free(&second);
    body_free(&odd);
    return status;
}
