/* row_program.c - splits an expression with reductions over rows into passes. */
#include "codegen/row_program.h"

#include <string.h>

#include "codegen/record.h"

/* Costs are counted in additions and multiplications. */
enum {
    KEEP_COST = 8,      /* a value of at least this cost is kept between passes, not recomputed */
    FUNCTION_COST = 10, /* of exp and similar primitives */
    LIGHT_COST = 8,     /* a pass of at most this cost has WAYS independent accumulators */
    WAYS = 4,
};

bool gd_row_reduces(gd_row_use use) { return use <= GD_ROW_MIN; }

static int cost_of(const gd_ir_node *n) {
    if (n->code < GD_IR_PRIM) return 0;
    const gd_prim *p = &gd_prims[n->code - GD_IR_PRIM];
    return (p->types == GD_PRIM_FLOAT && p->arity < 3) || p->is_long ? FUNCTION_COST : 1;
}

/* The state of the split: the request, and properties of each of its nodes. */
typedef struct pass_planner {
    const gd_row_program_request *r;
    gd_row_program *rows;
    bool each[GD_IR_MAX_NODES]; /* its value differs from element to element */
    int ready[GD_IR_MAX_NODES]; /* the first pass in which it can be computed */
    int cost[GD_IR_MAX_NODES];  /* including its operands */
    int first[GD_IR_MAX_NODES]; /* the pass that computes it first; -1: none yet */
    int kept[GD_IR_MAX_NODES];  /* the kept row that holds it; -1: none */
    int value[GD_IR_MAX_NODES]; /* the row value that holds it; -1: none */
    bool used[GD_IR_MAX_NODES]; /* visited by walk_pass */
} pass_planner;

static const gd_ir_node *request_node(const pass_planner *p, int i) { return &p->r->b->nodes[i]; }

/* Whether the node is a column or the result of a reduction. */
static bool is_given(const pass_planner *p, int i) {
    return request_node(p, i)->code == GD_IR_PARAM && request_node(p, i)->arg[0] >= p->r->n_params;
}

static void analyze_nodes(pass_planner *p) {
    const gd_row_program_request *r = p->r;
    for (int i = 0; i < r->b->count; i++) {
        const gd_ir_node *n = request_node(p, i);
        p->first[i] = p->kept[i] = p->value[i] = -1;
        p->each[i] = n->code == GD_IR_VAR;
        p->cost[i] = cost_of(n);
        if (is_given(p, i)) {
            const int value = n->arg[0] - r->n_params, reduction = value - r->n_columns;
            p->value[i] = value;
            if (reduction >= 0) p->ready[i] = p->ready[r->reduced[reduction]] + 1;
        }
        for (int k = 0; n->code >= GD_IR_PRIM && k < 3; k++) {
            const int from = n->arg[k];
            if (from < 0) continue;
            p->each[i] |= p->each[from];
            if (p->ready[from] > p->ready[i]) p->ready[i] = p->ready[from];
            if (p->each[from]) p->cost[i] += p->cost[from];
        }
        if (p->cost[i] > 1000) p->cost[i] = 1000;
    }
}

/* Assigns a row value to a node that is computed once for each row. */
static bool assign_value(pass_planner *p, int i) {
    if (p->value[i] >= 0) return true;
    if (p->rows->n_values == GD_ROW_VALUES) return false;
    p->value[i] = p->rows->n_values++;
    return true;
}

/* Visits the nodes that a pass computes for node i, and decides which are kept from earlier
 * passes. */
static bool walk_node(pass_planner *p, int i, int pass) {
    const gd_ir_node *n = request_node(p, i);
    if (p->used[i]) return true;
    p->used[i] = true;
    if (n->code < GD_IR_PRIM) return true;
    if (!p->each[i]) return assign_value(p, i);
    const bool before = p->first[i] >= 0 && p->first[i] < pass;
    if (before && p->kept[i] < 0 && p->cost[i] >= KEEP_COST && p->rows->n_kept < GD_ROW_KEPT)
        p->kept[i] = p->rows->n_kept++;
    if (before && p->kept[i] >= 0) return true;
    if (!before) p->first[i] = pass;
    for (int k = 0; k < 3; k++)
        if (n->arg[k] >= 0 && !walk_node(p, n->arg[k], pass)) return false;
    return true;
}

/* Visits all nodes that a pass needs. Results are stored in the last pass, so that they may alias
 * operands. */
static bool walk_pass(pass_planner *p, int pass) {
    const gd_row_program_request *r = p->r;
    memset(p->used, 0, sizeof p->used);
    for (int k = 0; k < r->n_reductions; k++)
        if (p->ready[r->reduced[k]] == pass && !walk_node(p, r->reduced[k], pass)) return false;
    for (int k = 0; k < r->n_results; k++) {
        if (r->is_row[k]) {
            if (!assign_value(p, r->result[k])) return false;
        } else if (pass == p->rows->n_passes - 1 && !walk_node(p, r->result[k], pass)) return false;
    }
    return true;
}

/* --- the expressions of the passes ------------------------------------------------------------ */

/* Copies node i into the expression of a pass; -1: too long. For `once`, row values of this pass
 * are computed, and those that are ready earlier are read. */
static int copy_node(const pass_planner *p, gd_ir_builder *b, int *map, int i, int pass,
                     bool once) {
    const gd_ir_node *n = request_node(p, i);
    if (map[i] >= 0) return map[i];
    if (n->code == GD_IR_CONST) return map[i] = gd_ir_const(b, n->value);
    if (n->code == GD_IR_VAR) return map[i] = gd_ir_var(b, n->arg[0]);
    if (p->value[i] >= 0 && (!once || is_given(p, i) || p->ready[i] < pass))
        return map[i] = gd_ir_param(b, p->r->n_params + p->value[i]);
    if (n->code == GD_IR_PARAM) return map[i] = gd_ir_param(b, n->arg[0]);
    if (p->kept[i] >= 0 && p->first[i] < pass)
        return map[i] = gd_ir_var(b, p->r->n_tensors + p->kept[i]);
    int args[3] = {-1, -1, -1};
    for (int k = 0; k < 3; k++)
        if (n->arg[k] >= 0 && (args[k] = copy_node(p, b, map, n->arg[k], pass, once)) < 0)
            return -1;
    return map[i] = gd_ir_apply(b, gd_prims[n->code - GD_IR_PRIM].name, args[0], args[1], args[2]);
}

static bool finish_ir(pass_planner *p, const gd_ir_builder *b, const int *outputs, int n,
                      gd_ir *ir) {
    gd_row_program *rows = p->rows;
    if (b->error[0] || rows->n_nodes + b->count > GD_ROW_NODES) return false;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    *ir = gd_ir_finish(b, outputs, n, nodes);
    memcpy(rows->nodes + rows->n_nodes, nodes, (size_t)ir->count * sizeof *nodes);
    ir->nodes = rows->nodes + rows->n_nodes;
    ir->n_vars = p->r->n_tensors + rows->n_kept;
    ir->n_params = p->r->n_params + rows->n_values;
    rows->n_nodes += ir->count;
    return true;
}

static void clear_map(int *map) {
    for (int i = 0; i < GD_IR_MAX_NODES; i++) map[i] = -1;
}

/* Builds pass->once, the row values that are computed before the pass. */
static bool build_once(pass_planner *p, int pass) {
    gd_row_pass *to = &p->rows->pass[pass];
    gd_ir_builder b = {.count = 0};
    int map[GD_IR_MAX_NODES], outputs[GD_IR_MAX_OUTPUTS], n = 0;
    clear_map(map);
    for (int i = 0; i < p->r->b->count; i++) {
        if (p->value[i] < 0 || is_given(p, i) || p->each[i] || p->ready[i] != pass) continue;
        if (n == GD_IR_MAX_OUTPUTS) return false;
        to->once_to[n] = p->value[i];
        if ((outputs[n++] = copy_node(p, &b, map, i, pass, true)) < 0) return false;
    }
    return finish_ir(p, &b, outputs, n, &to->once);
}

static bool add_output(gd_row_pass *to, int *outputs, int *n, int node, gd_row_use use,
                       int number) {
    if (*n == GD_IR_MAX_OUTPUTS || node < 0) return false;
    to->use[*n] = use;
    to->number[*n] = number;
    outputs[(*n)++] = node;
    return true;
}

/* Builds pass->each, the expression of each element. */
static bool build_each(pass_planner *p, int pass) {
    const gd_row_program_request *r = p->r;
    gd_row_pass *to = &p->rows->pass[pass];
    gd_ir_builder b = {.count = 0};
    int map[GD_IR_MAX_NODES], outputs[GD_IR_MAX_OUTPUTS], n = 0, cost = 0;
    clear_map(map);
    for (int k = 0; k < r->n_reductions; k++)
        if (p->ready[r->reduced[k]] == pass &&
            !add_output(to, outputs, &n, copy_node(p, &b, map, r->reduced[k], pass, false),
                        r->fold[k], r->n_columns + k))
            return false;
    for (int i = 0; i < r->b->count; i++)
        if (p->kept[i] >= 0 && p->first[i] == pass &&
            !add_output(to, outputs, &n, copy_node(p, &b, map, i, pass, false), GD_ROW_KEEP,
                        p->kept[i]))
            return false;
    for (int k = 0; k < r->n_results; k++)
        if (!r->is_row[k] && pass == p->rows->n_passes - 1 &&
            !add_output(to, outputs, &n, copy_node(p, &b, map, r->result[k], pass, false),
                        GD_ROW_STORE, k))
            return false;
    if (!finish_ir(p, &b, outputs, n, &to->each)) return false;
    for (int i = 0; i < to->each.count; i++) cost += cost_of(&to->each.nodes[i]);
    to->ways = cost > LIGHT_COST ? 1 : WAYS;
    return true;
}

bool gd_row_program_make(const gd_row_program_request *r, gd_row_program *rows) {
    pass_planner p = {.r = r, .rows = rows};
    memset(rows, 0, sizeof *rows);
    rows->n_tensors = r->n_tensors;
    rows->n_params = r->n_params;
    rows->n_columns = r->n_columns;
    rows->n_results = r->n_results;
    rows->n_values = r->n_columns + r->n_reductions;
    analyze_nodes(&p);
    for (int k = 0; k < r->n_reductions; k++)
        if (p.ready[r->reduced[k]] + 2 > rows->n_passes)
            rows->n_passes = p.ready[r->reduced[k]] + 2;
    if (rows->n_passes < 1) rows->n_passes = 1;
    for (int pass = 0; pass < rows->n_passes; pass++)
        if (!walk_pass(&p, pass)) return false;
    for (int k = 0; k < r->n_results; k++)
        rows->value_of[k] = r->is_row[k] ? p.value[r->result[k]] : -1;
    for (int pass = 0; pass < rows->n_passes; pass++)
        if (!build_once(&p, pass) || !build_each(&p, pass)) return false;
    return true;
}

/* --- using ------------------------------------------------------------------------------------ */

void gd_row_program_copy(gd_row_program *to, const gd_row_program *from) {
    *to = *from;
    for (int i = 0; i < to->n_passes; i++) {
        to->pass[i].once.nodes = to->nodes + (from->pass[i].once.nodes - from->nodes);
        to->pass[i].each.nodes = to->nodes + (from->pass[i].each.nodes - from->nodes);
    }
}

static bool same_ir(const gd_ir *a, const gd_ir *b) {
    return a->count == b->count && a->n_outputs == b->n_outputs && a->n_params == b->n_params &&
           a->n_vars == b->n_vars &&
           memcmp(a->output, b->output, sizeof a->output[0] * (size_t)a->n_outputs) == 0;
}

bool gd_row_program_same(const gd_row_program *a, const gd_row_program *b) {
    if (a->n_tensors != b->n_tensors || a->n_params != b->n_params ||
        a->n_columns != b->n_columns || a->n_values != b->n_values || a->n_kept != b->n_kept ||
        a->n_results != b->n_results || a->n_passes != b->n_passes || a->n_nodes != b->n_nodes ||
        memcmp(a->value_of, b->value_of, sizeof a->value_of) != 0 ||
        memcmp(a->nodes, b->nodes, sizeof a->nodes[0] * (size_t)a->n_nodes) != 0)
        return false;
    for (int i = 0; i < a->n_passes; i++) {
        const gd_row_pass *p = &a->pass[i], *q = &b->pass[i];
        if (!same_ir(&p->once, &q->once) || !same_ir(&p->each, &q->each) || p->ways != q->ways ||
            memcmp(p->once_to, q->once_to, sizeof p->once_to) != 0 ||
            memcmp(p->use, q->use, sizeof p->use) != 0 ||
            memcmp(p->number, q->number, sizeof p->number) != 0)
            return false;
    }
    return true;
}

uint64_t gd_row_program_hash(const gd_row_program *rows) {
    uint64_t h = 0x9E3779B97F4A7C15u;
#define MIX(x) h = (h ^ (uint64_t)(x)) * 1099511628211u
    MIX(rows->n_tensors), MIX(rows->n_params), MIX(rows->n_columns), MIX(rows->n_values),
        MIX(rows->n_kept);
    for (int i = 0; i < rows->n_results; i++) MIX(rows->value_of[i] + 1);
    for (int i = 0; i < rows->n_passes; i++) {
        const gd_row_pass *p = &rows->pass[i];
        MIX(gd_ir_hash(&p->once)), MIX(gd_ir_hash(&p->each)), MIX(p->ways);
        for (int k = 0; k < p->once.n_outputs; k++) MIX(p->once_to[k]);
        for (int k = 0; k < p->each.n_outputs; k++) MIX(p->use[k]), MIX(p->number[k]);
    }
#undef MIX
    return h;
}
