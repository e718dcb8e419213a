/* ir.c - building, differentiating and evaluating the scalar IR. */
#include "codegen/ir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/float_to_int.h"

/* --- building --------------------------------------------------------------------------------- */

static int fail_build(gd_ir_builder *b, const char *what) {
    if (!b->error[0]) snprintf(b->error, sizeof b->error, "%s", what);
    return -1;
}

static bool same_bits(double a, double b) { /* -0 differs from 0, and NaN equals NaN */
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The index of an equal node, or else of a new one. */
static int intern_node(gd_ir_builder *b, gd_ir_node node) {
    for (int i = 0; i < b->count; i++) {
        const gd_ir_node *old = &b->nodes[i];
        if (old->code == node.code && memcmp(old->arg, node.arg, sizeof node.arg) == 0 &&
            same_bits(old->value, node.value))
            return i;
    }
    if (b->count == GD_IR_MAX_NODES) return fail_build(b, "the expression is too long");
    b->nodes[b->count] = node;
    return b->count++;
}

int gd_ir_const(gd_ir_builder *b, double value) {
    return intern_node(b, (gd_ir_node){.code = GD_IR_CONST, .value = value});
}
int gd_ir_var(gd_ir_builder *b, int number) {
    return intern_node(b, (gd_ir_node){.code = GD_IR_VAR, .arg = {(int16_t)number}});
}
int gd_ir_param(gd_ir_builder *b, int number) {
    return intern_node(b, (gd_ir_node){.code = GD_IR_PARAM, .arg = {(int16_t)number}});
}

static bool is_const(const gd_ir_builder *b, int node, double value) {
    return b->nodes[node].code == GD_IR_CONST && b->nodes[node].value == value;
}

/* The result of an operation with a neutral operand, or -1 if there is none. x * 0 becomes 0,
 * although x may be infinite: zeros in the IR come from derivatives, not from data. */
static int simplify_prim(gd_ir_builder *b, const char *name, int x, int y, int z) {
    if (strcmp(name, "mul") == 0) {
        if (is_const(b, x, 0) || is_const(b, y, 0)) return gd_ir_const(b, 0);
        if (is_const(b, x, 1)) return y;
        if (is_const(b, y, 1)) return x;
        if (is_const(b, x, -1)) return gd_ir_apply(b, "neg", y, -1, -1);
        if (is_const(b, y, -1)) return gd_ir_apply(b, "neg", x, -1, -1);
    } else if (strcmp(name, "add") == 0) {
        if (is_const(b, x, 0)) return y;
        if (is_const(b, y, 0)) return x;
    } else if (strcmp(name, "sub") == 0) {
        if (is_const(b, y, 0)) return x;
        if (is_const(b, x, 0)) return gd_ir_apply(b, "neg", y, -1, -1);
    } else if (strcmp(name, "div") == 0) {
        if (is_const(b, y, 1)) return x;
        if (is_const(b, x, 0)) return x;
    } else if (strcmp(name, "where") == 0 && y == z) {
        return y;
    }
    return -1;
}

static int apply_prim(gd_ir_builder *b, int prim, const int *args) {
    const gd_prim *p = &gd_prims[prim];
    gd_ir_node node = {.code = (int16_t)(GD_IR_PRIM + prim), .arg = {-1, -1, -1}};
    bool constant = p->real != NULL;
    double values[3] = {0, 0, 0};
    for (int i = 0; i < p->arity; i++) {
        if (args[i] < 0) return fail_build(b, "an operand is missing");
        node.arg[i] = (int16_t)args[i];
        if (b->nodes[args[i]].code == GD_IR_CONST) values[i] = b->nodes[args[i]].value;
        else constant = false;
    }
    if (constant) return gd_ir_const(b, p->real(values[0], values[1], values[2]));
    int simple = simplify_prim(b, p->name, args[0], args[1], args[2]);
    return simple >= 0 ? simple : intern_node(b, node);
}

int gd_ir_apply(gd_ir_builder *b, const char *name, int x, int y, int z) {
    int prim = gd_prim_find(name, strlen(name));
    if (prim < 0) return fail_build(b, "no such primitive");
    return apply_prim(b, prim, (int[3]){x, y, z});
}

/* --- composing -------------------------------------------------------------------------------- */

int gd_ir_inline(gd_ir_builder *b, const gd_ir *ir, int output, const int *vars,
                 const int *params) {
    int map[GD_IR_MAX_NODES];
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        if (n->code == GD_IR_CONST) map[i] = gd_ir_const(b, n->value);
        else if (n->code == GD_IR_VAR) map[i] = vars[n->arg[0]];
        else if (n->code == GD_IR_PARAM)
            map[i] = params ? params[n->arg[0]] : gd_ir_param(b, n->arg[0]);
        else {
            int args[3] = {-1, -1, -1};
            for (int k = 0; k < 3; k++)
                if (n->arg[k] >= 0) args[k] = map[n->arg[k]];
            map[i] = apply_prim(b, n->code - GD_IR_PRIM, args);
        }
        if (map[i] < 0) return -1;
    }
    return map[ir->output[output]];
}

/* The names in a derivative rule: a, b, c are the operands, y the result, g its adjoint. */
typedef struct {
    int operand[3], result, adjoint;
} rule_names;

static int rule_lookup(gd_ir_builder *b, void *context, const char *name, size_t length) {
    const rule_names *names = context;
    (void)b;
    if (length != 1) return -1;
    if (*name == 'y') return names->result;
    if (*name == 'g') return names->adjoint;
    if (*name >= 'a' && *name <= 'c') return names->operand[*name - 'a'];
    return -1;
}

/* x + y; x may be -1, no node yet. */
static int add_adjoint(gd_ir_builder *b, int x, int y) {
    return x < 0 ? y : gd_ir_apply(b, "add", x, y, -1);
}

int gd_ir_derivative(gd_ir_builder *b, int root, int adjoint, int var) {
    static const char *const choice = "where";
    int adjoints[GD_IR_MAX_NODES];
    for (int i = 0; i <= root; i++) adjoints[i] = -1;
    if (root < 0 || adjoint < 0) return -1;
    adjoints[root] = adjoint;
    int found = -1;
    for (int i = root; i >= 0; i--) {
        if (adjoints[i] < 0) continue;
        gd_ir_node n = b->nodes[i]; /* a copy: the array grows below */
        if (n.code == GD_IR_VAR && n.arg[0] == var) found = add_adjoint(b, found, adjoints[i]);
        if (n.code < GD_IR_PRIM) continue;
        const gd_prim *p = &gd_prims[n.code - GD_IR_PRIM];
        if (strcmp(p->name, choice) == 0) {
            /* Chooses between the derivatives of both branches. Multiplying each by an adjoint of 0
             * or 1 would give NaN if the branch that is not taken is infinite. */
            int yes = gd_ir_derivative(b, n.arg[1], adjoints[i], var);
            int no = gd_ir_derivative(b, n.arg[2], adjoints[i], var);
            int part = yes < 0 || no < 0 ? -1 : gd_ir_apply(b, choice, n.arg[0], yes, no);
            if (part < 0) return -1;
            found = add_adjoint(b, found, part);
            continue;
        }
        rule_names names = {{n.arg[0], n.arg[1], n.arg[2]}, i, adjoints[i]};
        for (int k = 0; k < p->arity; k++) {
            const char *rule = p->derivative[k];
            if (!rule) continue;
            int part = gd_ir_parse(b, rule + (*rule == '='), rule_lookup, &names);
            if (part < 0) return -1;
            if (*rule != '=') part = gd_ir_apply(b, "mul", adjoints[i], part, -1);
            int *sum = &adjoints[n.arg[k]];
            *sum = add_adjoint(b, *sum, part);
            if (*sum < 0) return -1;
        }
    }
    return found >= 0 ? found : gd_ir_const(b, 0);
}

gd_ir gd_ir_finish(const gd_ir_builder *b, const int *outputs, int n_outputs, gd_ir_node *nodes) {
    bool needed[GD_IR_MAX_NODES] = {false};
    int map[GD_IR_MAX_NODES];
    gd_ir ir = {.nodes = nodes, .n_outputs = n_outputs};
    for (int i = 0; i < n_outputs; i++) needed[outputs[i]] = true;
    for (int i = b->count; i-- > 0;)
        for (int k = 0; needed[i] && b->nodes[i].code >= GD_IR_PRIM && k < 3; k++)
            if (b->nodes[i].arg[k] >= 0) needed[b->nodes[i].arg[k]] = true;
    for (int i = 0; i < b->count; i++) {
        if (!needed[i]) continue;
        gd_ir_node n = b->nodes[i];
        if (n.code == GD_IR_VAR && n.arg[0] >= ir.n_vars) ir.n_vars = n.arg[0] + 1;
        if (n.code == GD_IR_PARAM && n.arg[0] >= ir.n_params) ir.n_params = n.arg[0] + 1;
        for (int k = 0; n.code >= GD_IR_PRIM && k < 3; k++)
            if (n.arg[k] >= 0) n.arg[k] = (int16_t)map[n.arg[k]];
        map[i] = ir.count;
        nodes[ir.count++] = n;
    }
    for (int i = 0; i < n_outputs; i++) ir.output[i] = (int16_t)map[outputs[i]];
    return ir;
}

/* --- properties ------------------------------------------------------------------------------- */

bool gd_ir_uses_var(const gd_ir *ir, int number) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code == GD_IR_VAR && ir->nodes[i].arg[0] == number) return true;
    return false;
}

unsigned gd_ir_types(const gd_ir *ir) {
    unsigned types = GD_PRIM_BOTH;
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        if (n->code >= GD_IR_PRIM) types &= gd_prims[n->code - GD_IR_PRIM].types;
        else if (n->code == GD_IR_CONST && n->value != trunc(n->value)) types &= GD_PRIM_FLOAT;
    }
    return types;
}

bool gd_ir_is_var(const gd_ir *ir, int number) {
    const gd_ir_node *n = &ir->nodes[ir->output[0]];
    return n->code == GD_IR_VAR && n->arg[0] == number;
}

bool gd_ir_is_zero(const gd_ir *ir) {
    const gd_ir_node *n = &ir->nodes[ir->output[0]];
    return n->code == GD_IR_CONST && n->value == 0;
}

int gd_ir_slots(const gd_ir *ir, int16_t *slot) {
    int last[GD_IR_MAX_NODES], unused[GD_IR_MAX_NODES], n_unused = 0, count = 0;
    bool is_output[GD_IR_MAX_NODES] = {false};
    for (int i = 0; i < ir->count; i++) {
        last[i] = i;
        for (int k = 0; ir->nodes[i].code >= GD_IR_PRIM && k < 3; k++)
            if (ir->nodes[i].arg[k] >= 0) last[ir->nodes[i].arg[k]] = i;
    }
    for (int k = 0; k < ir->n_outputs; k++) is_output[ir->output[k]] = true;
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        slot[i] = -1;
        if (n->code == GD_IR_VAR && !(is_output[i] && ir->n_outputs > 1)) continue;
        for (int k = 0; n->code >= GD_IR_PRIM && k < 3; k++) {
            const int from = n->arg[k];
            if (from < 0 || last[from] != i || is_output[from] || ir->nodes[from].code < GD_IR_PRIM)
                continue;
            if ((k > 0 && from == n->arg[0]) || (k > 1 && from == n->arg[1]))
                continue; /* the same operand twice */
            unused[n_unused++] = slot[from];
        }
        slot[i] = (int16_t)(n_unused && n->code >= GD_IR_PRIM ? unused[--n_unused] : count++);
    }
    return count;
}

/* --- evaluating ------------------------------------------------------------------------------- */

/* Evaluates the nodes in f64. With `narrow`, it rounds each value to f32. */
static void eval_nodes(const gd_ir *ir, const double *vars, const double *params, bool narrow,
                       double *out) {
    double v[GD_IR_MAX_NODES];
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        if (n->code == GD_IR_CONST) v[i] = n->value;
        else if (n->code == GD_IR_VAR) v[i] = vars[n->arg[0]];
        else if (n->code == GD_IR_PARAM) v[i] = params[n->arg[0]];
        else {
            const gd_prim *p = &gd_prims[n->code - GD_IR_PRIM];
            v[i] = p->real(v[n->arg[0]], p->arity > 1 ? v[n->arg[1]] : 0,
                           p->arity > 2 ? v[n->arg[2]] : 0);
        }
        if (narrow) v[i] = (float)v[i];
    }
    for (int i = 0; i < ir->n_outputs; i++) out[i] = v[ir->output[i]];
}

void gd_ir_eval_real(const gd_ir *ir, const double *vars, const double *params, double *out) {
    eval_nodes(ir, vars, params, false, out);
}

void gd_ir_eval_f32(const gd_ir *ir, const double *vars, const double *params, double *out) {
    eval_nodes(ir, vars, params, true, out);
}

bool gd_ir_eval_integer(const gd_ir *ir, const int64_t *vars, const int64_t *params, int64_t *out) {
    int64_t v[GD_IR_MAX_NODES];
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        if (n->code == GD_IR_CONST) v[i] = gd_f64_to_i64(n->value);
        else if (n->code == GD_IR_VAR) v[i] = vars[n->arg[0]];
        else if (n->code == GD_IR_PARAM) v[i] = params[n->arg[0]];
        else {
            const gd_prim *p = &gd_prims[n->code - GD_IR_PRIM];
            if (!p->integer) return false;
            v[i] = p->integer(v[n->arg[0]], p->arity > 1 ? v[n->arg[1]] : 0,
                              p->arity > 2 ? v[n->arg[2]] : 0);
        }
    }
    for (int i = 0; i < ir->n_outputs; i++) out[i] = v[ir->output[i]];
    return true;
}
