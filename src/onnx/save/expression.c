/* expression.c - saves an elementwise call by the op's expression, one node for each primitive.
 *
 * Order: primitives and ONNX operators; terms; evaluation, first as a dry run to find out whether
 * ONNX has all primitives; the call.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "dispatch/call.h"

/* --- primitives ------------------------------------------------------------------------------- */

/* Primitives that ONNX does not have, expressed in other primitives. */
static const struct {
    const char *prim, *text;
} expansions[] = {
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

/* The variables of an expansion: a, b, c. */
static int find_letter(gd_ir_builder *b, void *context, const char *name, size_t length) {
    (void)context;
    return length == 1 && *name >= 'a' && *name <= 'c' ? gd_ir_var(b, *name - 'a') : -1;
}

/* Whether the ONNX operator of an op takes a dtype, and needs no attributes. */
static bool takes_dtype(const gd_op *op, gd_dtype dtype) {
    gd_onnx_row row;
    for (int at = 0; gd_onnx_next_row(op, &at, &row);) {
        gd_operator_attribute a;
        gd_operator_condition when;
        for (const char *text = row.attributes; gd_operator_next_attribute(&text, &a);)
            if (strcmp(a.fixed, a.their_default) != 0) return false;
        for (const char *text = row.when; gd_operator_next_condition(&text, &when);)
            if (when.kind == GD_OPERATOR_IS_INT
                    ? !gd_dtype_is_int(dtype)
                    : when.kind == GD_OPERATOR_IS_FLOAT && !gd_dtype_is_float(dtype))
                return false;
    }
    return true;
}

/* The ONNX operator for a primitive: that of the op whose expression is just the primitive. */
static const char *operator_of(int prim, gd_dtype dtype) {
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        const gd_ir *ir = op->ir;
        if (!ir || !*gd_op_onnx_name(op) || op->n_attrs || ir->n_outputs != 1) continue;
        const gd_ir_node *root = &ir->nodes[ir->output[0]];
        const int arity = gd_prims[prim].arity;
        bool is_primitive = root->code == GD_IR_PRIM + prim && op->n_inputs == arity;
        for (int k = 0; is_primitive && k < arity; k++) {
            const gd_ir_node *arg = &ir->nodes[root->arg[k]];
            is_primitive = arg->code == GD_IR_VAR && arg->arg[0] == k;
        }
        if (is_primitive && takes_dtype(op, dtype)) return op->onnx.name;
    }
    return NULL;
}

/* --- terms ------------------------------------------------------------------------------------ */

/* The value of a subexpression: its name in the file, and whether it is a bool. */
typedef struct term {
    const char *name;
    bool is_bool;
} term;

typedef struct expression {
    gd_onnx_saver *s;
    const gd_onnx_call *c;
    gd_dtype dtype; /* of terms that are not bool */
} expression;

static const char *cast_term(const expression *x, term t, bool is_bool) {
    return t.is_bool == is_bool
               ? t.name
               : gd_onnx_put_cast(x->s, x->c->label, t.name, is_bool ? GD_BOOL : x->dtype, NULL);
}

/* --- evaluation ------------------------------------------------------------------------------- */

typedef struct evaluation {
    bool dry;          /* adds no nodes, only checks that ONNX has the operators */
    int depth;         /* of expansions */
    const char *final; /* the name of the result; NULL: a new one */
} evaluation;

/* Bit 0: the operands of a primitive are bools in ONNX; bit 1: its result is. */
static unsigned bool_operands(const char *prim) {
    static const char *const compare[] = {"eq", "ne",    "lt",    "le",      "gt",
                                          "ge", "isnan", "isinf", "isfinite"};
    if (strncmp(prim, "logical_", strlen("logical_")) == 0) return 3;
    for (size_t i = 0; i < sizeof compare / sizeof *compare; i++)
        if (strcmp(prim, compare[i]) == 0) return 2;
    return 0;
}

static gd_status evaluate_expression(const expression *x, const gd_ir *ir, const term *vars,
                                     const gd_number *params, term *result, evaluation how);

/* Evaluates a primitive by its expansion. */
static gd_status evaluate_expansion(const expression *x, const char *text, const term *in,
                                    term *out, evaluation how) {
    gd_ir_builder *b = gd_calloc(1, sizeof *b);
    gd_ir_node *nodes = gd_malloc(GD_IR_MAX_NODES * sizeof *nodes);
    gd_status status = b && nodes ? GD_OK : gd_no_memory(NULL, "to save a graph");
    const int root = status == GD_OK ? gd_ir_parse(b, text, find_letter, NULL) : -1;
    if (status == GD_OK && root < 0) status = GD_E_UNSUPPORTED;
    if (status == GD_OK) {
        const gd_ir ir = gd_ir_finish(b, &root, 1, nodes);
        status = evaluate_expression(x, &ir, in, NULL, out,
                                     (evaluation){how.dry, how.depth + 1, how.final});
    }
    gd_free(b);
    gd_free(nodes);
    return status;
}

/* Fails with GD_E_UNSUPPORTED if ONNX cannot express it; otherwise only if memory runs out. */
static gd_status evaluate_prim(const expression *x, int prim, const term *in, term *out,
                               evaluation how) {
    const gd_prim *p = &gd_prims[prim];
    const char *op_type = operator_of(prim, x->dtype), *names[3] = {NULL, NULL, NULL};
    const unsigned bools = bool_operands(p->name);
    if (!op_type) {
        for (size_t i = 0; i < sizeof expansions / sizeof *expansions && how.depth < 4; i++)
            if (strcmp(expansions[i].prim, p->name) == 0)
                return evaluate_expansion(x, expansions[i].text, in, out, how);
        return GD_E_UNSUPPORTED;
    }
    *out = (term){"", (bools & 2) != 0};
    if (how.dry) return GD_OK;
    for (int k = 0; k < p->arity; k++) {
        const bool takes_bool = (bools & 1) || (k == 0 && strcmp(p->name, "where") == 0);
        if (!(names[k] = cast_term(x, in[k], takes_bool))) return GD_E_MEMORY;
    }
    out->name = gd_onnx_put_node(x->s, x->c->label, op_type, p->arity, names, how.final, NULL);
    return out->name ? GD_OK : GD_E_MEMORY;
}

static gd_status evaluate_expression(const expression *x, const gd_ir *ir, const term *vars,
                                     const gd_number *params, term *result, evaluation how) {
    term *terms = gd_calloc((size_t)ir->count + 1, sizeof *terms);
    gd_status status = terms ? GD_OK : gd_no_memory(NULL, "to save a graph");
    for (int i = 0; i < ir->count && status == GD_OK; i++) {
        const gd_ir_node *node = &ir->nodes[i];
        if (node->code == GD_IR_VAR) {
            terms[i] = vars[node->arg[0]];
        } else if (node->code == GD_IR_CONST || node->code == GD_IR_PARAM) {
            const gd_number value =
                node->code == GD_IR_CONST ? gd_number_of(node->value) : params[node->arg[0]];
            terms[i].name = how.dry ? "" : gd_onnx_add_number(x->s, x->c->label, x->dtype, value);
            if (!terms[i].name) status = GD_E_MEMORY;
        } else {
            term in[3] = {{NULL, false}, {NULL, false}, {NULL, false}};
            for (int k = 0; k < gd_prims[node->code - GD_IR_PRIM].arity; k++)
                in[k] = terms[node->arg[k]];
            status = evaluate_prim(
                x, node->code - GD_IR_PRIM, in, &terms[i],
                (evaluation){how.dry, how.depth, i == ir->output[0] ? how.final : NULL});
        }
    }
    if (status == GD_OK) *result = terms[ir->output[0]];
    gd_free(terms);
    return status;
}

/* --- the call --------------------------------------------------------------------------------- */

/* The dtype in which the nodes compute. */
static gd_dtype compute_dtype(const gd_onnx_call *c) {
    if (!(c->op->flags & GD_OP_PREDICATE)) return (gd_dtype)c->out[0].dtype;
    const gd_dtype dtype = gd_onnx_promoted_dtype(c);
    return dtype == GD_BOOL ? GD_I32 : dtype;
}

enum { MAX_TERMS = 24 };

/* Kernels compute u8 and i8 as i32. In 8 bits the result is the same if all numbers of the
 * expression fit into 8 bits. x < -1 in u8 does not. */
static bool needs_i32(const gd_ir *ir, const gd_number *params, gd_dtype dtype) {
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
    term vars[MAX_TERMS] = {{NULL, false}}, result;
    gd_number params[MAX_TERMS] = {{0, 0}};
    if (x.dtype == GD_BOOL || ir->n_outputs != 1 || c->n_out != 1 || c->n_in > MAX_TERMS ||
        c->op->n_attrs > MAX_TERMS)
        return GD_OK;
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i].present || c->op->inputs[i].mutated) return GD_OK;
    for (int i = 0; i < c->op->n_attrs; i++) params[i] = gd_attr_number(&c->op->attrs[i], c->attrs);
    if (needs_i32(ir, params, x.dtype)) x.dtype = GD_I32;
    for (int i = 0; i < c->n_in; i++) vars[i] = (term){c->in_names[i], c->in[i].dtype == GD_BOOL};
    const gd_status status =
        evaluate_expression(&x, ir, vars, params, &result, (evaluation){.dry = true});
    if (status != GD_OK) return status == GD_E_UNSUPPORTED ? GD_OK : status;
    for (int i = 0; i < c->n_in; i++)
        if (!vars[i].is_bool && (gd_dtype)c->in[i].dtype != x.dtype &&
            !(vars[i].name = gd_onnx_put_cast(s, c->label, vars[i].name, x.dtype, NULL)))
            return GD_E_MEMORY;
    const gd_dtype out = (gd_dtype)c->out[0].dtype;
    const bool fits = result.is_bool ? out == GD_BOOL : out == x.dtype;
    GD_TRY(evaluate_expression(&x, ir, vars, params, &result,
                               (evaluation){.final = fits ? c->out_names[0] : NULL}));
    *done = true;
    if (!fits)
        return gd_onnx_put_cast(s, c->label, result.name, out, c->out_names[0]) ? GD_OK
                                                                                : GD_E_MEMORY;
    if (result.name != c->out_names[0])
        gd_onnx_put_unary(s, "Identity", result.name, c->out_names[0]);
    return GD_OK;
}
