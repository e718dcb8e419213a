/* ir.h - the scalar IR: the expression of one element of an elementwise op.
 *
 * An expression such as "gy * (1 - y*y)" becomes a list of nodes in which operands come before
 * their users. Equal nodes are shared: the same operation on the same operands is one node. The IR
 * is closed under differentiation, so gradients of any order are ordinary expressions. Everything
 * that runs an elementwise op is derived from the IR: the generated kernels, the tiled evaluator,
 * the reference kernel, and the fused kernels of all devices.
 *
 * This file depends on the C library alone, because the build's generator links it, too.
 */
#ifndef GRADUS_CODEGEN_IR_H
#define GRADUS_CODEGEN_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Node codes below GD_IR_PRIM are leaves; code GD_IR_PRIM + k is primitive k. */
enum { GD_IR_CONST, GD_IR_VAR, GD_IR_PARAM, GD_IR_PRIM };

typedef struct gd_ir_node {
    int16_t code;
    int16_t arg[3]; /* operands: earlier nodes. VAR and PARAM: arg[0] is its number */
    double value;   /* CONST */
} gd_ir_node;

enum { GD_IR_MAX_NODES = 256, GD_IR_MAX_OUTPUTS = 16 };

typedef struct gd_ir {
    int count, n_vars, n_params, n_outputs;
    int16_t output[GD_IR_MAX_OUTPUTS];
    const gd_ir_node *nodes;
} gd_ir;

/* --- primitives ------------------------------------------------------------------------------- */

enum { GD_PRIM_FLOAT = 1, GD_PRIM_INT = 2, GD_PRIM_BOTH = 3 };

typedef struct gd_prim {
    const char *name;
    int arity;
    unsigned types;                                /* the compute types that it exists for */
    const char *derivative[3];                     /* by each operand, see prims.c; NULL: zero */
    double (*real)(double, double, double);        /* the reference implementation */
    int64_t (*integer)(int64_t, int64_t, int64_t); /* NULL if types lacks GD_PRIM_INT */
    bool is_long; /* many instructions that depend on each other: see stages.h */
} gd_prim;

extern const gd_prim gd_prims[];
extern const int gd_prim_count;

/* The index of the primitive with this name, or -1. */
int gd_prim_find(const char *name, size_t length);

/* --- building --------------------------------------------------------------------------------- */

/* An IR under construction. */
typedef struct gd_ir_builder {
    gd_ir_node nodes[GD_IR_MAX_NODES];
    int count;
    char error[200]; /* the first error; "": none */
} gd_ir_builder;

int gd_ir_const(gd_ir_builder *b, double value);
int gd_ir_var(gd_ir_builder *b, int number);
int gd_ir_param(gd_ir_builder *b, int number);
/* Applies a primitive by name; folds constants and simplifies neutral operands (x*1, x+0). */
int gd_ir_apply(gd_ir_builder *b, const char *name, int x, int y, int z);

/* Looks up a name in an expression for the parser: returns a node, or -1 if it is unknown. */
typedef int (*gd_ir_lookup)(gd_ir_builder *b, void *context, const char *name, size_t length);

/* Parses C-like syntax: + - * / unary - !, comparisons, && || ?:, calls, numbers, names. Returns
 * the node, or -1 with b->error set. */
int gd_ir_parse(gd_ir_builder *b, const char *text, gd_ir_lookup lookup, void *context);

/* Copies `ir` into b with its variables and parameters replaced by nodes of b; returns the node of
 * output number `output`. */
int gd_ir_inline(gd_ir_builder *b, const gd_ir *ir, int output, const int *vars, const int *params);

/* Reverse-mode derivative: given the adjoint of `root`, returns the adjoint of variable `var` as a
 * node: the constant 0 if root does not depend on it, -1 on an error. */
int gd_ir_derivative(gd_ir_builder *b, int root, int adjoint, int var);

/* Copies the nodes that the outputs need to `nodes` (room for GD_IR_MAX_NODES), renumbered. */
gd_ir gd_ir_finish(const gd_ir_builder *b, const int *outputs, int n_outputs, gd_ir_node *nodes);

/* --- using ------------------------------------------------------------------------------------ */

bool gd_ir_uses_var(const gd_ir *ir, int number);
/* The compute types (GD_PRIM_FLOAT, GD_PRIM_INT) that all primitives of the expression exist
 * for. */
unsigned gd_ir_types(const gd_ir *ir);
/* Whether the output is variable `number` (a gradient that passes through), or the constant 0. */
bool gd_ir_is_var(const gd_ir *ir, int number);
bool gd_ir_is_zero(const gd_ir *ir);

/* Assigns each node a slot for its value, for an evaluator that runs node after node. A slot is
 * reused after the last reader of its value. Returns the number of slots. Slot -1: a variable that
 * is read in place. (A variable that is one of several results has a slot, because writing another
 * result may overwrite it.) */
int gd_ir_slots(const gd_ir *ir, int16_t *slot);

/* Evaluates one element in f64. `out` has n_outputs entries. */
void gd_ir_eval_real(const gd_ir *ir, const double *vars, const double *params, double *out);
/* The same, but every value is rounded to f32, as in a kernel that computes in f32. */
void gd_ir_eval_f32(const gd_ir *ir, const double *vars, const double *params, double *out);
/* The same in i64. False: a primitive has no integer form. */
bool gd_ir_eval_integer(const gd_ir *ir, const int64_t *vars, const int64_t *params, int64_t *out);

#endif
