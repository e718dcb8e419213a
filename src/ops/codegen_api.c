/* codegen_api.c - the table of functions that codegen_api.h declares. */
#include "ops/codegen_api.h"

const gd_codegen_api gd_codegen = {
    .scalar = &gd_dialect_scalar,
    .scalar_prelude = gd_scalar_prelude,
    .print_kernel = gd_print_kernel,
    .print_statements = gd_print_statements,
    .source_hash = gd_kernel_source_hash,
    .source_of_request = gd_scalar_source_of_request,
    .source_of_call = gd_scalar_source_of_call,
    .args_of_call = gd_scalar_args_of_call,
    .kept_bytes = gd_scalar_kept_bytes,
    .is_compiler_ready = gd_native_is_ready,
    .compile = gd_native_kernels,
};
