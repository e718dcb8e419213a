/* codegen_api.h - functions that print and compile kernels, for backends, which do not link Gradus.
 *
 * A backend gets a pointer to gd_codegen. It prints the source of a call, or of a plan's request,
 * in gd_dialect_scalar or in its own dialect with the same skeletons. It compiles prelude and
 * source, and launches the kernel with the arguments of each call. All functions except `compile`
 * are pure; `compile` may be called from any thread.
 */
#ifndef GRADUS_OPS_CODEGEN_API_H
#define GRADUS_OPS_CODEGEN_API_H

#include "codegen/native.h"
#include "ops/scalar_call.h"

typedef struct gd_codegen_api {
    const gd_dialect *scalar;
    const char *scalar_prelude; /* source text, zero-terminated */

    /* dialect.h */
    bool (*print_kernel)(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                         const char *name);
    void (*print_statements)(FILE *out, const gd_dialect *dialect, const gd_ir *ir,
                             const char *type);
    uint64_t (*source_hash)(const gd_kernel_source *source);

    /* scalar_call.h */
    bool (*source_of_request)(const gd_fusion_request *request, gd_kernel_source *source);
    bool (*source_of_call)(const gd_kernel_call *call, gd_kernel_source *source);
    void (*args_of_call)(const gd_kernel_call *call, gd_scalar_args *args);
    size_t (*kept_bytes)(const gd_kernel_call *call, const gd_scalar_args *args, int64_t kept_rows);

    /* native.h: the system's C compiler, with the library's cache of compiled kernels */
    bool (*is_compiler_ready)(void);
    void (*compile)(const gd_kernel_source *sources, int n, const gd_native_target *target,
                    gd_compiled_fn *fns);
} gd_codegen_api;

extern const gd_codegen_api gd_codegen;

#endif
