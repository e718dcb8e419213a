/* dialect.h - the languages in which kernels are printed.
 *
 * The printer (print.c) writes the statements of an expression, one for each primitive. A dialect
 * defines what differs between languages: how values are declared, how constants and primitives are
 * written, and the skeletons, which print a function around the statements. A device names its
 * dialect in its fusion rules (fusion_rules.h).
 *
 *   gd_dialect_vector   C with the vectors of the CPU backend; a call computes many elements
 *   gd_dialect_scalar   C without vectors; a call computes one element
 *   gd_dialect_cuda     CUDA C++ (dialect_cuda.h)
 *
 * Like ir.h it depends on the C library alone, because the build's generator links it. Backends,
 * which do not link Gradus, call it through function pointers. There is no global state.
 */
#ifndef GRADUS_CODEGEN_DIALECT_H
#define GRADUS_CODEGEN_DIALECT_H

#include <stdio.h>

#include "codegen/facts.h"
#include "codegen/ir.h"
#include "codegen/row_program.h"

/* Operands of one kernel. Inputs are in the order of the op: tensors, scalars, columns. */
enum { GD_SOURCE_INPUTS = 56, GD_SOURCE_OUTPUTS = GD_IR_MAX_OUTPUTS };

/* One kernel: its computation, and the dtypes of its operands in memory. */
typedef struct gd_kernel_source {
    const char *type;           /* the compute type: "f32", "f64", "i32" or "i64" */
    const gd_ir *ir;            /* the expression of an element; NULL: `rows` is set */
    const gd_row_program *rows; /* passes over rows; NULL: `ir` is set */
    /* How the last output of `ir` is reduced; the other outputs are stored. GD_REDUCES_NOTHING: all
     * outputs are stored. */
    gd_op_reduces reduces;
    /* Parameters 0 .. n_scalars-1 are tensors of one element, which the kernel reads itself. */
    int n_scalars;
    /* "f32", "f16", "bool", ...: dtypes of the inputs (tensors, scalars, columns) and outputs.
     * NULL: the compute type. Dialects whose kernels see only the compute type ignore them. */
    const char *in[GD_SOURCE_INPUTS], *out[GD_SOURCE_OUTPUTS];
} gd_kernel_source;

typedef struct gd_dialect gd_dialect;

/* Prints a function `name`, from its return type to its closing brace. */
typedef void (*gd_skeleton)(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                            const char *name);

struct gd_dialect {
    const char *name;
    /* printf formats: */
    const char *declare;     /* the beginning of a declaration, from the type: "v%s " */
    const char *primitive;   /* a function's name, from primitive and type: "v_%s_%s" */
    const char *constant;    /* a constant, from the type and a C literal: "v_splat_%s(%s)" */
    const char *nan[2];      /* texts for f32 and f64 */
    const char *infinity[2]; /* texts for f32 and f64 */
    /* The beginning of a kernel for the scalar skeletons, a format with its name: return type,
     * arguments and opening brace. It defines `i`, the index of the element, output or row, and
     * `a`, the arguments (scalar_args.h). NULL: the dialect has other skeletons. */
    const char *head;
    /* Skeletons; NULL if the dialect does not have it. */
    gd_skeleton loop;      /* an elementwise kernel: `ir` */
    gd_skeleton reduction; /* the same with the last output reduced: `ir` and `reduces` */
    gd_skeleton rows;      /* passes over rows: `rows` */
};

/* C with the vectors of backend/cpu/vmath.h. A loop is a gd_ew_fn (backend/cpu/elementwise.h), rows
 * are a gd_row_fn (backend/cpu/rows.h). It has no reduction skeleton: the CPU's reduction engine
 * reduces the results of a loop. */
extern const gd_dialect gd_dialect_vector;

/* C in which a call computes one element, one output of a reduction, or one row. Kernels are
 * gd_scalar_fn (scalar_args.h) and follow the text of gd_scalar_prelude (native.h). */
extern const gd_dialect gd_dialect_scalar;

/* The skeletons of gd_dialect_scalar, for similar dialects with another `head` and their own names
 * of types and primitives. */
void gd_scalar_loop(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                    const char *name);
void gd_scalar_reduction(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                         const char *name);
void gd_scalar_rows(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                    const char *name);

/* --- printing (print.c) ----------------------------------------------------------------------- */

/* Prints the kernel of a source with the skeleton for it. False: the dialect has none. */
bool gd_print_kernel(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                     const char *name);

/* For skeletons: prints the statements of an expression. They read variables as v0, v1, ... and
 * parameters as p0, ...; node n becomes tn, and output k is assigned to ok. */
void gd_print_statements(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type);
/* Parts of it: the statement of one primitive, and the assignments of the outputs. */
void gd_print_statement(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type,
                        int node);
void gd_print_outputs(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type);

/* "float", "double", "int32_t", "int64_t". */
const char *gd_c_type(const char *type);

/* A hash of everything that the printed text depends on, except the dialect. */
uint64_t gd_kernel_source_hash(const gd_kernel_source *source);

#endif
