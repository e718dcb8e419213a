/* module.c - a library that does not link Gradus. It prints a kernel in its own dialect, compiles
 * and loads it. Like GPU kernels, its kernels take the arguments by value and the index from a
 * variable that the launch sets. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/codegen_api.h"

typedef void (*launched_fn)(gd_scalar_args args);

static const char index_source[] = "static int64_t thread_index;\n"
                                   "void set_thread_index(int64_t i) { thread_index = i; }\n";
static const char kernel_head[] = "void %s(const gd_scalar_args args) {\n"
                                  "    const gd_scalar_args *a = &args;\n"
                                  "    const int64_t i = thread_index;\n"
                                  "    if (i >= a->count) return;\n";

/* Compiles a source and opens the library; NULL: failed. */
static void *compile_source(const gd_codegen_api *api, const gd_kernel_source *source,
                            const char *folder) {
    char path[512], object[512], command[1200];
    gd_dialect dialect = *api->scalar;
    dialect.name = "launched";
    dialect.head = kernel_head;
    snprintf(path, sizeof path, "%s/module.c", folder);
    snprintf(object, sizeof object, "%s/module.so", folder);
    FILE *out = fopen(path, "w");
    if (!out) return NULL;
    fputs(api->scalar_prelude, out);
    fputs(index_source, out);
    const bool printed = api->print_kernel(out, &dialect, source, "kernel");
    if (fclose(out) != 0 || !printed) return NULL;
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -Wall -Wno-unused-variable -Werror -ffp-contract=off -shared -fPIC "
             "-o '%s' '%s' -lm",
             object, path);
    return system(command) == 0 ? dlopen(object, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* Runs a call with the number of elements rounded up to 64, as a GPU launches full blocks. */
__attribute__((visibility("default"))) bool
module_run_call(const gd_codegen_api *api, const gd_kernel_call *call, const char *folder);
bool module_run_call(const gd_codegen_api *api, const gd_kernel_call *call, const char *folder) {
    gd_kernel_source source;
    gd_scalar_args args;
    if (!api->source_of_call(call, &source)) return false;
    void *library = compile_source(api, &source, folder);
    void *kernel = library ? dlsym(library, "kernel") : NULL,
         *setter = library ? dlsym(library, "set_thread_index") : NULL;
    if (!kernel || !setter) return false;
    launched_fn launch;
    void (*set_index)(int64_t);
    memcpy(&launch, &kernel, sizeof launch);
    memcpy(&set_index, &setter, sizeof set_index);
    api->args_of_call(call, &args);
    for (int64_t i = 0; i < (args.count + 63) / 64 * 64; i++) {
        set_index(i);
        launch(args);
    }
    return dlclose(library) == 0;
}
