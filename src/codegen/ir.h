/* ir.h - the scalar IR: what one element of an elementwise op computes.
 *
 * An expression such as "gy * (1 - y*y)" becomes a list of nodes in which operands stand before
 * their users. Nodes are shared (the same operation on the same operands is one node), and the IR
 * is closed under differentiation, so gradients of any order are expressions like any other.
 * Everything that runs an elementwise op is made from it: the generated kernels, the tiled
 * evaluator, the reference kernel, and the fused kernels of every device.
 *
 * This file depends on the C library alone: the build's generator links it too.
 */
#ifndef GRADUS_CODEGEN_IR_H
#define GRADUS_CODEGEN_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Node codes below GD_IR_PRIM are leaves; from there on they are indices into the primitives. */
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
    unsigned types;                                /* for which compute types it exists */
    const char *derivative[3];                     /* by each operand, see prims.c; NULL: zero */
    double (*real)(double, double, double);        /* the reference */
    int64_t (*integer)(int64_t, int64_t, int64_t); /* NULL where types has no INT */
    bool is_long; /* its instructions depend on each other: see stages.h */
} gd_prim;

extern const gd_prim gd_prims[];
extern const int gd_prim_count;

/* Its index, or -1. */
int gd_prim_find(const char *name, size_t length);

/* --- building --------------------------------------------------------------------------------- */

/* An IR under construction. */
typedef struct gd_ir_builder {
    gd_ir_node nodes[GD_IR_MAX_NODES];
    int count;
    char error[200]; /* "" while all is well */
} gd_ir_builder;

int gd_ir_const(gd_ir_builder *b, double value);
int gd_ir_var(gd_ir_builder *b, int number);
int gd_ir_param(gd_ir_builder *b, int number);
/* A primitive by name; simplifies constants and neutral operands (x*1, x+0). */
int gd_ir_apply(gd_ir_builder *b, const char *name, int x, int y, int z);

/* A name in an expression, looked up by the parser: returns a node, or -1 if unknown. */
typedef int (*gd_ir_lookup)(gd_ir_builder *b, void *context, const char *name, size_t length);

/* Parses C-like syntax: + - * / unary - !, comparisons, && || ?:, calls, numbers, names. Returns
 * the node, or -1 with b->error set. */
int gd_ir_parse(gd_ir_builder *b, const char *text, gd_ir_lookup lookup, void *context);

/* Copies `ir` into b with its variables and parameters replaced by nodes of b; returns the node of
 * output number `output`. */
int gd_ir_inline(gd_ir_builder *b, const gd_ir *ir, int output, const int *vars, const int *params);

/* Reverse-mode derivative: given the adjoint node of `root`, returns the adjoint of variable
 * `var`: a node, the constant 0 where root does not depend on it. */
int gd_ir_derivative(gd_ir_builder *b, int root, int adjoint, int var);

/* Only what the outputs need, renumbered, into `nodes` (room for GD_IR_MAX_NODES). */
gd_ir gd_ir_finish(const gd_ir_builder *b, const int *outputs, int n_outputs, gd_ir_node *nodes);

/* --- using ------------------------------------------------------------------------------------ */

bool gd_ir_uses_var(const gd_ir *ir, int number);
/* Which of GD_PRIM_FLOAT and GD_PRIM_INT all of the expression exists for. */
unsigned gd_ir_types(const gd_ir *ir);
/* Whether output is just variable `number` (a gradient that passes through), and the constant 0. */
bool gd_ir_is_var(const gd_ir *ir, int number);
bool gd_ir_is_zero(const gd_ir *ir);

/* Assigns each node a slot for its value, for an evaluator that runs node after node; slots are
 * reused once the last reader of a value has run. Returns the number of slots. -1: a variable that
 * is read in place. (A variable among several results has a slot, since another result may
 * overwrite it.) */
int gd_ir_slots(const gd_ir *ir, int16_t *slot);

/* Evaluates one element, in f64 or i64. `out` has n_outputs entries. Returns false where a
 * primitive has no integer form. */
void gd_ir_eval_real(const gd_ir *ir, const double *vars, const double *params, double *out);
/* The same as a kernel that computes in f32: every value is rounded to f32. */
void gd_ir_eval_f32(const gd_ir *ir, const double *vars, const double *params, double *out);
bool gd_ir_eval_integer(const gd_ir *ir, const int64_t *vars, const int64_t *params, int64_t *out);

#endif
