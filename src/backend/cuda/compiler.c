/* compiler.c - see compiler.h. */
#include "backend/cuda/compiler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/library.h"

/* --- NVRTC ------------------------------------------------------------------------------------ */

/* Its functions, as nvrtc.h declares them; the header is not needed to build. */
typedef struct nvrtc_program_s *nvrtc_program;
typedef struct nvrtc_functions {
    int (*nvrtcCreateProgram)(nvrtc_program *program, const char *source, const char *name,
                              int n_headers, const char *const *headers, const char *const *names);
    int (*nvrtcCompileProgram)(nvrtc_program program, int n_options, const char *const *options);
    int (*nvrtcGetCUBINSize)(nvrtc_program program, size_t *bytes);
    int (*nvrtcGetCUBIN)(nvrtc_program program, char *code);
    int (*nvrtcGetProgramLogSize)(nvrtc_program program, size_t *bytes);
    int (*nvrtcGetProgramLog)(nvrtc_program program, char *log);
    int (*nvrtcDestroyProgram)(nvrtc_program *program);
} nvrtc_functions;

static nvrtc_functions nvrtc;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
    void *library = gd_cuda_open_library(names);
    if (!library) return;
    loaded = true;
#define LOAD(name)                                 \
    *(void **)&nvrtc.name = dlsym(library, #name); \
    if (!nvrtc.name) loaded = false;
    LOAD(nvrtcCreateProgram)
    LOAD(nvrtcCompileProgram)
    LOAD(nvrtcGetCUBINSize)
    LOAD(nvrtcGetCUBIN)
    LOAD(nvrtcGetProgramLogSize)
    LOAD(nvrtcGetProgramLog)
    LOAD(nvrtcDestroyProgram)
#undef LOAD
}

bool gd_cuda_has_compiler(void) {
    pthread_once(&once, load_nvrtc);
    return loaded;
}

/* --- compiling -------------------------------------------------------------------------------- */

/* The headers of C that the library's own include. NVRTC has the functions but no headers. */
static const char *const header_names[] = {"math.h", "stdint.h", "stdbool.h", "stddef.h",
                                           "string.h"};
static const char *const headers[] = {
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n",
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\n"
    "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef unsigned uint32_t;\n"
    "typedef long long int64_t;\ntypedef unsigned long long uint64_t;\n"
    "typedef unsigned long long uintptr_t;\n"
    "#define INT32_MAX 2147483647\n#define INT32_MIN (-INT32_MAX - 1)\n"
    "#define INT64_MAX 9223372036854775807ll\n#define INT64_MIN (-INT64_MAX - 1)\n"
    "#define UINT32_MAX 4294967295u\n",
    "", "", ""};
enum { N_HEADERS = sizeof headers / sizeof *headers };

static void fail_with_log(nvrtc_program program, const char *name) {
    size_t bytes = 0;
    nvrtc.nvrtcGetProgramLogSize(program, &bytes);
    char *log = gd_cuda_host->allocate(bytes + 1);
    if (log) {
        log[0] = log[bytes] = 0;
        nvrtc.nvrtcGetProgramLog(program, log);
    }
    gd_cuda_host->fail(GD_E_UNSUPPORTED, "kernel %s cannot be compiled: %.600s", name,
                       log ? log : "");
    gd_cuda_host->release(log);
}

/* The machine code of a source text, to be released by the caller; NULL: it failed. */
static char *compile_text(const gd_cuda_state *s, const char *source, const char *name) {
    char architecture[40];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d", s->capability);
    const char *const options[] = {architecture, "--std=c++20", "--fmad=false"};
    nvrtc_program program = NULL;
    char *code = NULL;
    size_t bytes = 0;
    if (nvrtc.nvrtcCreateProgram(&program, source, name, N_HEADERS, headers, header_names) != 0) {
        gd_cuda_host->fail(GD_E_MEMORY, "NVRTC cannot create a program");
        return NULL;
    }
    if (nvrtc.nvrtcCompileProgram(program, 3, options) != 0 ||
        nvrtc.nvrtcGetCUBINSize(program, &bytes) != 0)
        fail_with_log(program, name);
    else if (!(code = gd_cuda_host->allocate(bytes)))
        gd_cuda_host->fail(GD_E_MEMORY, "no memory for the code of a kernel");
    else nvrtc.nvrtcGetCUBIN(program, code);
    nvrtc.nvrtcDestroyProgram(&program);
    return code;
}

static CUfunction load_code(gd_device *d, const char *code, const char *name) {
    CUmodule module;
    CUfunction function = NULL;
    if (GD_CUDA_CALL(d, cuModuleLoadData(&module, code)) != GD_OK) return NULL;
    if (GD_CUDA_CALL(d, cuModuleGetFunction(&function, module, name)) != GD_OK) return NULL;
    return function;
}

/* --- the cache -------------------------------------------------------------------------------- */

typedef struct compiled {
    struct compiled *next;
    const gd_device *device;
    CUfunction function;
    char *source;
} compiled;

enum { BUCKETS = 1024 };
static compiled *buckets[BUCKETS];
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t bucket_of(const char *text) { /* FNV-1a */
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (size_t)(hash % BUCKETS);
}

/* The lock is held, so that a kernel is compiled once. */
static CUfunction find_or_compile(gd_device *d, const char *source, const char *name) {
    compiled **bucket = &buckets[bucket_of(source)];
    for (const compiled *c = *bucket; c; c = c->next)
        if (c->device == d && strcmp(c->source, source) == 0) return c->function;
    char *code = compile_text(gd_cuda_state_of(d), source, name);
    CUfunction function = code ? load_code(d, code, name) : NULL;
    gd_cuda_host->release(code);
    if (!function) return NULL;
    const size_t bytes = strlen(source) + 1;
    compiled *c = gd_cuda_host->allocate(sizeof *c + bytes);
    if (!c) return function; /* it works, and is compiled again next time */
    *c = (compiled){.next = *bucket, .device = d, .function = function, .source = (char *)(c + 1)};
    memcpy(c->source, source, bytes);
    *bucket = c;
    return function;
}

CUfunction gd_cuda_compile(gd_device *d, const char *source, const char *name) {
    if (!gd_cuda_has_compiler()) {
        gd_cuda_host->fail(GD_E_DEVICE,
                           "a kernel must be compiled, and NVRTC (libnvrtc.so) was not found");
        return NULL;
    }
    if (gd_cuda_enter_context(d) != GD_OK) return NULL;
    pthread_mutex_lock(&cache_lock);
    CUfunction function = find_or_compile(d, source, name);
    pthread_mutex_unlock(&cache_lock);
    return function;
}
