/* codegen_api.h - functions that print and compile kernels, for backends, which do not link Gradus.
 *
 * A backend gets a pointer to gd_codegen. It prints the source of a call, or of a plan's request,
 * in gd_dialect_scalar or in its own dialect with the same skeletons. It compiles prelude and
 * source, and launches the kernel with the arguments of each call. The functions may be called from
 * any thread; those of the cache and `compile` read and write files, the others are pure.
 */
#ifndef GRADUS_DISPATCH_CODEGEN_API_H
#define GRADUS_DISPATCH_CODEGEN_API_H

#include "codegen/dialect_cuda.h"
#include "codegen/native.h"
#include "dispatch/scalar_call.h"

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

    bool (*expression_of_op)(const gd_op *op, gd_op_expression *expression);
    gd_dtype (*compute_dtype)(const gd_kernel_call *call);
    int (*skipped_outputs)(const gd_kernel_call *call);
    void (*params_of_call)(const gd_kernel_call *call, gd_dtype type, gd_param *params);
    int (*dims_of_call)(const gd_kernel_call *call, const int64_t **dims);

    /* dialect_cuda.h */
    const gd_dialect *cuda;
    void (*print_cuda_expression)(FILE *out, const gd_kernel_source *source, const char *name,
                                  bool any_dtypes);
    void (*print_cuda_kernel)(FILE *out, gd_cuda_variant variant, const char *expression,
                              const char *name);
    int (*cuda_unroll)(const gd_ir *ir);
    void (*divide_cuda_rows)(const gd_kernel_source *source, int64_t rows, int64_t length,
                             gd_cuda_row_kernel *kernel);
    void (*print_cuda_rows)(FILE *out, const gd_kernel_source *source,
                            const gd_cuda_row_kernel *kernel, const char *name);

    /* native.h: the cache on disk, for code that a backend has compiled */
    void (*hash_start)(gd_native_hash *hash);
    void (*hash_add)(gd_native_hash *hash, const void *bytes, size_t count);
    void (*hash_text)(const gd_native_hash *hash, char text[GD_NATIVE_KEY]);
    void *(*cache_load)(const char *key, size_t *bytes); /* gd_host.release frees the result */
    bool (*cache_store)(const char *key, const void *code, size_t bytes);

    /* native.h: the system's C compiler, with the library's cache of compiled kernels */
    bool (*is_compiler_ready)(void);
    void (*compile)(const gd_kernel_source *sources, int n, const gd_native_target *target,
                    gd_compiled_fn *fns);
} gd_codegen_api;

extern const gd_codegen_api gd_codegen;

#endif
