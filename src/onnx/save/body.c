/* body.c - ops without an ONNX operator: said by their body, or by their expression. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "graph/lower/program.h"
#include "graph/build/trace.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "ops/call.h"

static gd_status no_memory(void) { return gd_fail(GD_E_MEMORY, "no memory to save a graph"); }

/* --- bodies: noted with symbols in place of the inputs ---------------------------------------- */

typedef struct body {
    gd_tensor **x, **y; /* y NULL: hidden, and the body does not give it */
    gd_node **nodes;    /* in the order they were made; those of x too */
    int count, room;
    const char ***names; /* of the nodes' outputs */
    uint64_t *used;
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
        if (!grown) return no_memory();
        b->nodes = grown;
        b->room = room;
    }
    b->nodes[b->count++] = node;
    return GD_OK;
}

static int by_order(const void *a, const void *b) {
    const uint64_t x = (*(gd_node *const *)a)->order, y = (*(gd_node *const *)b)->order;
    return x < y ? -1 : x > y;
}

/* Traces the body with `size` for each size that is not known. *ok: it could be; the status is that
 * of the memory for it. */
static gd_status note_body(const gd_onnx_call *c, void (*expand)(gd_expand *), int64_t size,
                           body *b, bool *ok) {
    b->x = gd_calloc((size_t)(c->n_in + c->n_out) + 1, sizeof *b->x);
    if (!b->x) return no_memory();
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
    gd_expand e = {c->op, c->attrs, c->n_in, c->n_out, b->x, b->y};
    if (status == GD_OK) {
        gd_attempt attempt; /* a body that fails is none */
        gd_rng noise = {0}; /* random ops in it take no number of the program's */
        gd_attempt_begin(&attempt);
        gd_this_thread.noise = &noise;
        expand(&e);
        gd_this_thread.noise = NULL;
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
    for (int at = 0; at < b->count && status == GD_OK; at++) /* grows while we go */
        for (int i = 0; i < b->nodes[at]->n_in && status == GD_OK; i++)
            if (b->nodes[at]->slots[i].symbol) status = add_node(b, b->nodes[at]->slots[i].node);
    if (b->count) qsort(b->nodes, (size_t)b->count, sizeof *b->nodes, by_order);
    gd_this_thread.tracer = before;
    return status;
}

static bool same_options(const gd_node *a, const gd_node *b) {
    for (int i = 0; i < a->op->n_attrs; i++) {
        const gd_op_attr *option = &a->op->attrs[i];
        const char *p = (const char *)a->attrs + option->offset,
                   *q = (const char *)b->attrs + option->offset;
        int64_t x[GD_MAX_RANK], y[GD_MAX_RANK];
        switch (option->type) {
        case GD_ATTR_FLOAT:
        case GD_ATTR_NUMBER:
            if (!gd_same_option(option, p, q)) return false;
            break;
        case GD_ATTR_BOOL:
            if (*(const bool *)p != *(const bool *)q) return false;
            break;
        case GD_ATTR_WORD:
            if (*(const gd_word *)p != *(const gd_word *)q) return false;
            break;
        case GD_ATTR_DTYPE:
            if (*(const gd_dtype *)p != *(const gd_dtype *)q) return false;
            break;
        case GD_ATTR_STRING:
            if (*(const char *const *)p != *(const char *const *)q) return false;
            break;
        default: {
            const int n = gd_onnx_numbers(option, a->attrs, x),
                      m = gd_onnx_numbers(option, b->attrs, y);
            if (n != m || (n > 0 && memcmp(x, y, sizeof *x * (size_t)n) != 0)) return false;
        }
        }
    }
    return true;
}

/* The same data in both; a number may have been worked out from a size. */
static gd_status same_value(const gd_slot *a, const gd_slot *b, bool *same) {
    *same = false;
    if (a->rank != b->rank || a->dtype != b->dtype ||
        memcmp(a->dims, b->dims, sizeof *a->dims * a->rank) != 0)
        return GD_OK;
    gd_tensor *x = gd_onnx_captured(a), *y = gd_onnx_captured(b);
    if (!x || !y) return gd_failure();
    if (!gd_data(x) || !gd_data(y)) return GD_OK;
    x = gd_contiguous(x);
    y = gd_contiguous(y);
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

/* A body may compute with sizes. If some are not known, it is traced twice, with different ones:
 * where both are the same nodes with the same options, it does not depend on them. Sizes that
 * differ between the two are marked as not known. */
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

static bool has_unknown(const gd_onnx_call *c) {
    for (int i = 0; i < c->n_in; i++)
        for (int d = 0; c->in[i].present && d < c->in[i].rank; d++)
            if (c->in[i].dims[d] == GD_UNKNOWN) return true;
    return false;
}

static gd_status identity(gd_onnx_saver *s, const char *from, const char *to) {
    gd_onnx_put_simple(s, "Identity", from, to);
    return GD_OK;
}

/* The names of values: those of the call for what goes in and comes out, new ones between. */
static gd_status name_values(gd_onnx_saver *s, const gd_onnx_call *c, body *b) {
    b->names = gd_calloc((size_t)b->count + 1, sizeof *b->names);
    b->used = gd_calloc((size_t)b->count + 1, sizeof *b->used);
    if (!b->names || !b->used) return no_memory();
    for (int i = 0; i < b->count; i++) {
        b->names[i] = gd_calloc((size_t)b->nodes[i]->n_out + 1, sizeof **b->names);
        if (!b->names[i]) return no_memory();
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

static gd_status save_body(gd_onnx_saver *s, const gd_onnx_call *c, body *b, int depth) {
    GD_TRY(name_values(s, c, b));
    for (int i = 0; i < b->count; i++) {
        if (!b->nodes[i]->op) continue;
        const char **in = gd_calloc((size_t)b->nodes[i]->n_in + 1, sizeof *in);
        if (!in) return no_memory();
        gd_status status = save_body_node(s, c, b, i, in, depth);
        gd_free(in);
        GD_TRY(status);
    }
    for (int k = 0; k < c->n_out; k++) { /* what is an input, a value, or comes out twice */
        if (!b->y[k]) continue;
        if (b->y[k]->kind == GD_VALUE) {
            GD_TRY(gd_onnx_add_tensor(s, c->out_names[k], b->y[k]));
            continue;
        }
        const char *name = b->names[find_node(b, b->y[k]->node)][b->y[k]->node_index];
        if (name != c->out_names[k]) GD_TRY(identity(s, name, c->out_names[k]));
    }
    return GD_OK;
}

/* A body that is the op itself once more would never end. */
static bool is_itself(const gd_onnx_call *c, const body *b) {
    for (int i = 0; i < b->count; i++)
        if (b->nodes[i]->op == c->op && b->count == c->n_in + 1 &&
            same_options(b->nodes[i], &(gd_node){.op = c->op, .attrs = (void *)c->attrs}))
            return true;
    return false;
}

gd_status gd_onnx_expand(gd_onnx_saver *s, const gd_onnx_call *c, void (*expand)(gd_expand *),
                         int depth, bool *done) {
    body first = {0}, second = {0}, odd = {0};
    bool ok = false, traced = false;
    gd_status status = note_body(c, expand, 840, &first, &ok);
    if (status == GD_OK && ok && has_unknown(c)) {
        status = note_body(c, expand, 1680, &second, &ok);
        if (status == GD_OK && ok) status = same_bodies(&first, &second, c->n_out, &ok);
        /* the first two are multiples of small numbers: a body that rounds a quotient of its sizes
         * differs at a size that is none, and one that needs a multiple has no trace there */
        if (status == GD_OK && ok) status = note_body(c, expand, 1681, &odd, &traced);
        if (status == GD_OK && traced) status = same_bodies(&first, &odd, c->n_out, &ok);
    }
    if (status == GD_OK && ok && !is_itself(c, &first)) {
        status = save_body(s, c, &first, depth);
        *done = true;
    }
    body_free(&first);
    body_free(&second);
    body_free(&odd);
    return status;
}

/* --- expressions ------------------------------------------------------------------------------ */

/* Primitives that ONNX does not have, in others. */
static const struct {
    const char *prim, *text;
} others[] = {
    {"fma", "a * b + c"},
    {"rsqrt", "1 / sqrt(a)"},
    {"exp2", "exp(a * 0.693147180559945309417232121458)"},
    {"expm1", "exp(a) - 1"},
    {"log2", "log(a) * 1.44269504088896340735992468100"},
    {"log10", "log(a) * 0.434294481903251827651128918917"},
    {"log1p", "log(1 + a)"},
    {"erfc", "1 - erf(a)"},
    {"trunc", "sign(a) * floor(abs(a))"},
    {"copysign", "b < 0 ? -abs(a) : abs(a)"},
    {"ne", "!(a == b)"},
    {"isfinite", "!(isnan(a) || isinf(a))"},
};

static int letter(gd_ir_builder *b, void *context, const char *name, size_t length) {
    (void)context;
    return length == 1 && *name >= 'a' && *name <= 'c' ? gd_ir_var(b, *name - 'a') : -1;
}

/* Whether ONNX's operator for an op takes elements of a dtype. */
static bool takes(const gd_op *op, gd_dtype dtype) {
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        gd_onnx_condition when;
        if (!row->op || strcmp(row->op, op->name) != 0) continue;
        for (const char *text = row->when; gd_onnx_next_condition(&text, &when);)
            if (when.kind == GD_ONNX_IS_INT
                    ? !gd_dtype_is_int(dtype)
                    : when.kind == GD_ONNX_IS_FLOAT && !gd_dtype_is_float(dtype))
                return false;
    }
    return true;
}

/* The ONNX operator that is this primitive: that of the op whose expression is the primitive alone.
 */
static const char *operator_of(int prim, gd_dtype dtype) {
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        const gd_ir *ir = op->ir;
        if (!ir || !op->onnx || !*op->onnx || op->n_attrs || op->base || ir->n_outputs != 1)
            continue;
        const gd_ir_node *root = &ir->nodes[ir->output[0]];
        const int arity = gd_prims[prim].arity;
        bool plain = root->code == GD_IR_PRIM + prim && op->n_inputs == arity;
        for (int k = 0; plain && k < arity; k++) {
            const gd_ir_node *arg = &ir->nodes[root->arg[k]];
            plain = arg->code == GD_IR_VAR && arg->arg[0] == k;
        }
        if (plain && takes(op, dtype)) return op->onnx;
    }
    return NULL;
}

/* A value on the way: its name, and whether it is a bool. */
typedef struct term {
    const char *name;
    bool truth;
} term;

typedef struct expression {
    gd_onnx_saver *s;
    const gd_onnx_call *c;
    gd_dtype dtype; /* of all that is no bool */
} expression;

static const char *emit(const expression *x, const char *op_type, int n, const char *const *in,
                        const char *result) {
    if (!result) result = gd_onnx_unique_name(x->s, x->c->label, "/term");
    if (!result) return NULL;
    gd_pb *node = gd_onnx_add_node(x->s, op_type, "", result);
    for (int i = 0; i < n; i++) gd_pb_put_string(node, "input", in[i]);
    gd_pb_put_string(node, "output", result);
    return result;
}

static const char *cast(const expression *x, const char *name, gd_dtype to, const char *result) {
    if (!result) result = gd_onnx_unique_name(x->s, x->c->label, "/cast");
    if (!result) return NULL;
    gd_pb *node = gd_onnx_add_node(x->s, "Cast", "", result);
    gd_pb_put_string(node, "input", name);
    gd_pb_put_string(node, "output", result);
    gd_onnx_put_int(node, "to", gd_onnx_type_of(to));
    return result;
}

static const char *as(const expression *x, term t, bool truth) {
    return t.truth == truth ? t.name : cast(x, t.name, truth ? GD_BOOL : x->dtype, NULL);
}

static const char *constant(const expression *x, gd_number value) {
    char bytes[8];
    if (x->dtype == GD_I64) gd_store_i64(x->dtype, bytes, gd_number_i64(value));
    else gd_store_f64(x->dtype, bytes, value.value);
    return gd_onnx_add_constant(x->s, x->c->label, x->dtype, 0, NULL, bytes);
}

/* How an expression is gone through. */
typedef struct way {
    bool dry; /* only whether it can be said */
    int depth;
    const char *final; /* the name of the result; NULL: a new one */
} way;

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Whether a primitive takes and gives bools in ONNX: takes (bit 0), gives (bit 1). */
static unsigned truth_of(const char *prim) {
    static const char *const compare[] = {"eq", "ne",    "lt",    "le",      "gt",
                                          "ge", "isnan", "isinf", "isfinite"};
    if (starts(prim, "logical_")) return 3;
    for (size_t i = 0; i < sizeof compare / sizeof *compare; i++)
        if (strcmp(prim, compare[i]) == 0) return 2;
    return 0;
}

static gd_status evaluate(const expression *x, const gd_ir *ir, const term *vars,
                          const gd_number *params, term *result, way how);

/* A primitive in others. */
static gd_status evaluate_other(const expression *x, const char *text, const term *in, term *out,
                                way how) {
    gd_ir_builder *b = gd_calloc(1, sizeof *b);
    gd_ir_node *nodes = gd_malloc(GD_IR_MAX_NODES * sizeof *nodes);
    gd_status status = b && nodes ? GD_OK : no_memory();
    const int root = status == GD_OK ? gd_ir_parse(b, text, letter, NULL) : -1;
    if (status == GD_OK && root < 0) status = GD_E_UNSUPPORTED;
    if (status == GD_OK) {
        const gd_ir ir = gd_ir_finish(b, &root, 1, nodes);
        status = evaluate(x, &ir, in, NULL, out, (way){how.dry, how.depth + 1, how.final});
    }
    gd_free(b);
    gd_free(nodes);
    return status;
}

/* GD_E_UNSUPPORTED: ONNX cannot say it. Every other failure is one of memory. */
static gd_status evaluate_prim(const expression *x, int prim, const term *in, term *out, way how) {
    const gd_prim *p = &gd_prims[prim];
    const char *op_type = operator_of(prim, x->dtype), *names[3] = {NULL, NULL, NULL};
    const unsigned truth = truth_of(p->name);
    if (!op_type) {
        for (size_t i = 0; i < sizeof others / sizeof *others && how.depth < 4; i++)
            if (strcmp(others[i].prim, p->name) == 0)
                return evaluate_other(x, others[i].text, in, out, how);
        return GD_E_UNSUPPORTED;
    }
    *out = (term){"", (truth & 2) != 0};
    if (how.dry) return GD_OK;
    for (int k = 0; k < p->arity; k++) {
        const bool wants = (truth & 1) || (k == 0 && strcmp(p->name, "where") == 0);
        if (!(names[k] = as(x, in[k], wants))) return GD_E_MEMORY;
    }
    return (out->name = emit(x, op_type, p->arity, names, how.final)) ? GD_OK : GD_E_MEMORY;
}

static gd_status evaluate(const expression *x, const gd_ir *ir, const term *vars,
                          const gd_number *params, term *result, way how) {
    term *terms = gd_calloc((size_t)ir->count + 1, sizeof *terms);
    gd_status status = terms ? GD_OK : no_memory();
    for (int i = 0; i < ir->count && status == GD_OK; i++) {
        const gd_ir_node *node = &ir->nodes[i];
        if (node->code == GD_IR_VAR) {
            terms[i] = vars[node->arg[0]];
        } else if (node->code == GD_IR_CONST || node->code == GD_IR_PARAM) {
            const gd_number value =
                node->code == GD_IR_CONST ? gd_number_of(node->value) : params[node->arg[0]];
            terms[i] = (term){how.dry ? "" : constant(x, value), false};
            if (!terms[i].name) status = GD_E_MEMORY;
        } else {
            term in[3] = {{NULL, false}, {NULL, false}, {NULL, false}};
            for (int k = 0; k < gd_prims[node->code - GD_IR_PRIM].arity; k++)
                in[k] = terms[node->arg[k]];
            status =
                evaluate_prim(x, node->code - GD_IR_PRIM, in, &terms[i],
                              (way){how.dry, how.depth, i == ir->output[0] ? how.final : NULL});
        }
    }
    if (status == GD_OK) *result = terms[ir->output[0]];
    gd_free(terms);
    return status;
}

/* The dtype that a kernel computes in, as far as the file can tell. */
static gd_dtype compute_dtype(const gd_onnx_call *c) {
    gd_tensor tensors[8], *at[8];
    int n = 0;
    if (!(c->op->flags & GD_OP_TRUTH)) return (gd_dtype)c->out[0].dtype;
    for (; n < c->n_in && n < 8; n++) {
        tensors[n] = (gd_tensor){.kind = GD_META, .dtype = c->in[n].dtype, .rank = c->in[n].rank};
        at[n] = &tensors[n];
    }
    const gd_dtype dtype = gd_result_dtype(at, n);
    return dtype == GD_BOOL ? GD_I32 : dtype;
}

enum { MOST_TERMS = 24 };

/* Kernels compute bytes as i32. Where all numbers of the expression are bytes, too, that is no other
 * result; x < -1 would be another one of u8. */
static bool is_wider(const gd_ir *ir, const gd_number *params, gd_dtype dtype) {
    const double least = dtype == GD_U8 ? 0 : INT8_MIN,
                 most = dtype == GD_U8 ? UINT8_MAX : INT8_MAX;
    if (dtype != GD_U8 && dtype != GD_I8) return false;
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        if (n->code != GD_IR_CONST && n->code != GD_IR_PARAM) continue;
        const double value = n->code == GD_IR_CONST ? n->value : params[n->arg[0]].value;
        if (!(value >= least && value <= most)) return true;
    }
    return false;
}

gd_status gd_onnx_save_expression(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_ir *ir = c->op->ir;
    expression x = {s, c, compute_dtype(c)};
    term vars[MOST_TERMS] = {{NULL, false}}, result;
    gd_number params[MOST_TERMS] = {{0, 0}};
    if (x.dtype == GD_BOOL || ir->n_outputs != 1 || c->n_out != 1 || c->n_in > MOST_TERMS ||
        c->op->n_attrs > MOST_TERMS)
        return GD_OK;
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i].present || c->op->inputs[i].mutated) return GD_OK;
    for (int i = 0; i < c->op->n_attrs; i++) params[i] = gd_attr_number(&c->op->attrs[i], c->attrs);
    if (is_wider(ir, params, x.dtype)) x.dtype = GD_I32;
    for (int i = 0; i < c->n_in; i++) vars[i] = (term){c->in_names[i], c->in[i].dtype == GD_BOOL};
    const gd_status status = evaluate(&x, ir, vars, params, &result, (way){.dry = true});
    if (status != GD_OK) return status == GD_E_UNSUPPORTED ? GD_OK : status;
    for (int i = 0; i < c->n_in; i++)
        if (!vars[i].truth && (gd_dtype)c->in[i].dtype != x.dtype &&
            !(vars[i].name = cast(&x, vars[i].name, x.dtype, NULL)))
            return GD_E_MEMORY;
    const gd_dtype out = (gd_dtype)c->out[0].dtype;
    const bool fits = result.truth ? out == GD_BOOL : out == x.dtype;
    GD_TRY(evaluate(&x, ir, vars, params, &result, (way){.final = fits ? c->out_names[0] : NULL}));
    *done = true;
    if (!fits) return cast(&x, result.name, out, c->out_names[0]) ? GD_OK : GD_E_MEMORY;
    return result.name == c->out_names[0] ? GD_OK : identity(s, result.name, c->out_names[0]);
}
