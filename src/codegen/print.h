/* print.h - the scalar IR as source code, in the language of a dialect.
 *
 * One printer serves the kernels that the build compiles, those that are compiled while a program
 * runs (native.h), and, with dialects of their own, other devices. Like ir.h it depends on the C
 * library alone.
 */
#ifndef GRADUS_CODEGEN_PRINT_H
#define GRADUS_CODEGEN_PRINT_H

#include <stdio.h>

#include "codegen/ir.h"

/* How a language says what a kernel is made of. `type` is the type computed in: "f32", "f64", "i32"
 * or "i64". */
typedef struct gd_dialect {
    const char *name;
    const char *declare;   /* of a new value: "v%s ", type */
    const char *primitive; /* the function: "v_%s_%s", primitive and type */
    const char *constant;  /* a number: "v_splat_%s(%s)", type and the number as written in C */
    /* A whole kernel around the statements: its head, the loop, loads and stores. */
    void (*kernel)(FILE *out, const struct gd_dialect *dialect, const gd_ir *ir, const char *type,
                   const char *name);
} gd_dialect;

/* C with the vectors of backend/cpu/vmath.h; the kernel is a gd_ew_fn. */
extern const gd_dialect gd_dialect_c;

/* The statements that compute one value of each output: variables are read as v0, v1, ...,
 * parameters as p0, ...; output k is assigned to ok. */
void gd_print_statements(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type);

/* A function `name`, from its return type to its closing brace. */
void gd_print_kernel(FILE *out, const gd_dialect *dialect, const gd_ir *ir, const char *type,
                     const char *name);

#endif
