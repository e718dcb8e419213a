/* dialect.h - the languages in which kernels are printed.
 *
 * The printer (print.c) writes the statements of an expression, one for each primitive. A dialect
 * holds what differs between languages: how a value is declared, how a constant and a primitive are
 * written, and the skeletons, which print a function around the statements. A device names its
 * dialect in its fusion rules (fusion_rules.h).
 *
 *   gd_dialect_vector   C with the vectors of the CPU backend; a call computes many elements
 *   gd_dialect_scalar   plain C; a call computes one element, as a thread of a GPU does
 *
 * Like ir.h this depends on the C library alone: the build's generator links it, and a backend that
 * links nothing of Gradus can reach all of it through function pointers. There is no global state.
 */
#ifndef GRADUS_CODEGEN_DIALECT_H
#define GRADUS_CODEGEN_DIALECT_H

#include <stdio.h>

#include "codegen/facts.h"
#include "codegen/ir.h"
#include "codegen/row_program.h"

/* Operands of one kernel. Inputs are in the order of the op: tensors, scalars, columns. */
enum { GD_SOURCE_INPUTS = 56, GD_SOURCE_OUTPUTS = GD_IR_MAX_OUTPUTS };

/* One kernel: what it computes, and the dtypes of its operands in memory. */
typedef struct gd_kernel_source {
    const char *type;           /* computed in: "f32", "f64", "i32" or "i64" */
    const gd_ir *ir;            /* the expression of an element; NULL: `rows` */
    const gd_row_program *rows; /* passes over rows; NULL: `ir` */
    /* The last output of `ir` is reduced this way and not stored; GD_REDUCES_NOTHING: all outputs
     * are stored. */
    gd_op_reduces reduces;
    /* Parameters 0 .. n_scalars-1 are tensors of one element, which the kernel reads itself. */
    int n_scalars;
    /* "f32", "f16", "bool", ...: dtypes of the inputs (tensors, scalars, columns) and outputs.
     * NULL: the type computed in. Dialects whose kernels see only that type ignore them. */
    const char *in[GD_SOURCE_INPUTS], *out[GD_SOURCE_OUTPUTS];
} gd_kernel_source;

typedef struct gd_dialect gd_dialect;

/* Prints a function `name`, from its return type to its closing brace. */
typedef void (*gd_skeleton)(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                            const char *name);

struct gd_dialect {
    const char *name;
    const char *declare;     /* of a new value, with the type: "v%s " */
    const char *primitive;   /* a function, with primitive and type: "v_%s_%s" */
    const char *constant;    /* with the type and the number as C writes it: "v_splat_%s(%s)" */
    const char *nan[2];      /* of f32 and f64 */
    const char *infinity[2]; /* the same */
    /* The beginning of a kernel of the scalar skeletons, with its name: return type and arguments,
     * the opening brace, and what defines `i`, the index of the element, output or row, and `a`,
     * the arguments (scalar_args.h). NULL: the dialect has other skeletons. */
    const char *head;
    /* Skeletons; NULL where the dialect has none of that kind. */
    gd_skeleton loop;      /* an elementwise kernel: `ir` */
    gd_skeleton reduction; /* the same with the last output reduced: `ir` and `reduces` */
    gd_skeleton rows;      /* passes over rows: `rows` */
};

/* C with the vectors of backend/cpu/vmath.h. A loop is a gd_ew_fn (backend/cpu/elementwise.h), rows
 * are a gd_row_fn (backend/cpu/rows.h). There is no reduction: the CPU's engine reduces what a loop
 * computes. */
extern const gd_dialect gd_dialect_vector;

/* C in which a call computes one element, one output of a reduction, or one row. Kernels are
 * gd_scalar_fn (scalar_args.h) and follow the text of gd_scalar_prelude (native.h). */
extern const gd_dialect gd_dialect_scalar;

/* The skeletons of gd_dialect_scalar, for dialects of the same form: one for CUDA has another
 * `head` and its own names of types and primitives. */
void gd_scalar_loop(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                    const char *name);
void gd_scalar_reduction(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                         const char *name);
void gd_scalar_rows(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                    const char *name);

/* --- printing (print.c) ----------------------------------------------------------------------- */

/* The kernel of a source, by the skeleton that fits it. False where the dialect has none. */
bool gd_print_kernel(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                     const char *name);

/* For skeletons. Statements read variables as v0, v1, ... and parameters as p0, ...; node n becomes
 * tn, output k is assigned to ok. */
void gd_print_statements(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type);
/* The statement of one node, a primitive; the assignments of the outputs. */
void gd_print_statement(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type,
                        int node);
void gd_print_outputs(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type);

/* "float", "double", "int32_t", "int64_t". */
const char *gd_c_type(const char *type);

/* A hash of all that the printed text depends on, but for the dialect. */
uint64_t gd_kernel_source_hash(const gd_kernel_source *source);

#endif
