/* compiler.c - see compiler.h. */
#include "backend/cuda/compiler.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/library.h"
#include "dispatch/codegen_api.h"

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
static const char *const library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                            NULL};

static void load_nvrtc(void) {
    void *library = gd_cuda_open_library(library_names);
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

static bool is_nvrtc_loaded(void) {
    pthread_once(&once, load_nvrtc);
    return loaded;
}

/* --- the library's file, which is part of the keys of the cache ------------------------------- */

typedef struct library_file {
    char path[1024];
    struct stat identity;
    bool found;
} library_file;
static library_file file;
static pthread_once_t file_once = PTHREAD_ONCE_INIT;

static void find_in_folder(const char *folder, int length, const char *below) {
    for (const char *const *name = library_names; *name && !file.found && length > 0; name++) {
        const int bytes =
            snprintf(file.path, sizeof file.path, "%.*s%s/%s", length, folder, below, *name);
        file.found = bytes < (int)sizeof file.path && stat(file.path, &file.identity) == 0;
    }
}

static bool find_in_given_folder(const char *folder, size_t length, void *arg) {
    (void)arg;
    find_in_folder(folder, (int)length, "");
    return file.found;
}

static void find_library_file(void) {
    static const char *const usual[] = {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu",
                                        "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"};
    const char *home = secure_getenv("CUDA_HOME"), *folders = secure_getenv("LD_LIBRARY_PATH");
    gd_cuda_host->each_library_folder(find_in_given_folder, NULL);
    if (home) find_in_folder(home, (int)strlen(home), "/lib64");
    while (folders && *folders) {
        const int length = (int)strcspn(folders, ":");
        find_in_folder(folders, length, "");
        folders += length + (folders[length] == ':');
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        find_in_folder(usual[i], (int)strlen(usual[i]), "");
}

bool gd_cuda_has_compiler(void) {
    pthread_once(&file_once, find_library_file);
    return file.found || is_nvrtc_loaded();
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
enum { N_HEADERS = sizeof headers / sizeof *headers, N_OPTIONS = 4, MAX_THREADS = 8 };

/* A text to compile: the code or the reason why there is none. */
typedef struct compile_job {
    const gd_cuda_program *program;
    char architecture[40];
    char key[GD_NATIVE_KEY];
    bool repeats; /* an earlier job of the list has the same text */
    char *code;
    size_t bytes;
    char why[640];
} compile_job;

static void set_options(const compile_job *job, const char *options[N_OPTIONS]) {
    options[0] = job->architecture;
    options[1] = "--std=c++20";
    options[2] = "--fmad=false";
    options[3] =
        "--device-as-default-execution-space"; /* older NVRTC needs it for generic lambdas */
}

static void compute_key(const gd_cuda_state *s, compile_job *job) {
    const gd_codegen_api *api = gd_cuda_host->codegen;
    const char *options[N_OPTIONS];
    gd_native_hash hash;
    snprintf(job->architecture, sizeof job->architecture, "--gpu-architecture=sm_%d",
             s->capability);
    set_options(job, options);
    api->hash_start(&hash);
    pthread_once(&file_once, find_library_file);
    const int64_t identity[3] = {file.identity.st_size, file.identity.st_mtim.tv_sec,
                                 file.identity.st_mtim.tv_nsec};
    if (file.found) {
        api->hash_add(&hash, file.path, strlen(file.path) + 1);
        api->hash_add(&hash, identity, sizeof identity);
    }
    for (int i = 0; i < N_OPTIONS; i++) api->hash_add(&hash, options[i], strlen(options[i]) + 1);
    for (int i = 0; i < N_HEADERS; i++) api->hash_add(&hash, headers[i], strlen(headers[i]) + 1);
    api->hash_add(&hash, job->program->source, strlen(job->program->source) + 1);
    api->hash_text(&hash, job->key);
}

static void copy_log(nvrtc_program program, compile_job *job) {
    size_t bytes = 0;
    nvrtc.nvrtcGetProgramLogSize(program, &bytes);
    char *log = gd_cuda_host->allocate(bytes + 1);
    if (log) {
        log[0] = log[bytes] = 0;
        nvrtc.nvrtcGetProgramLog(program, log);
    }
    snprintf(job->why, sizeof job->why, "%s", log ? log : "no memory");
    gd_cuda_host->release(log);
}

__attribute__((visibility("default"))) _Atomic(int64_t) gradus_cuda_compiles;

static void compile_text(compile_job *job) {
    const char *options[N_OPTIONS];
    nvrtc_program program = NULL;
    set_options(job, options);
    snprintf(job->why, sizeof job->why, "there is no memory");
    if (nvrtc.nvrtcCreateProgram(&program, job->program->source, job->program->name, N_HEADERS,
                                 headers, header_names) != 0)
        return;
    if (nvrtc.nvrtcCompileProgram(program, N_OPTIONS, options) != 0 ||
        nvrtc.nvrtcGetCUBINSize(program, &job->bytes) != 0)
        copy_log(program, job);
    else if ((job->code = gd_cuda_host->allocate(job->bytes)))
        nvrtc.nvrtcGetCUBIN(program, job->code);
    nvrtc.nvrtcDestroyProgram(&program);
    gradus_cuda_compiles++;
    if (job->code) gd_cuda_host->codegen->cache_store(job->key, job->code, job->bytes);
}

/* --- threads ---------------------------------------------------------------------------------- */

typedef struct compile_queue {
    compile_job *jobs;
    int count, next;
} compile_queue;

static void *compile_jobs(void *argument) {
    compile_queue *q = argument;
    for (int i; (i = __atomic_fetch_add(&q->next, 1, __ATOMIC_RELAXED)) < q->count;)
        if (!q->jobs[i].code && !q->jobs[i].repeats) compile_text(&q->jobs[i]);
    return NULL;
}

/* Compiles on other threads, because NVRTC needs more stack than the caller may have. */
static void compile_missing(compile_job *jobs, int n, int missing) {
    enum { STACK = 16 << 20 };
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    compile_queue q = {.jobs = jobs, .count = n};
    pthread_t threads[MAX_THREADS];
    pthread_attr_t attributes;
    int count = 0;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_setstacksize(&attributes, STACK);
        while (count < missing && count < MAX_THREADS && (count == 0 || count < processors) &&
               pthread_create(&threads[count], &attributes, compile_jobs, &q) == 0)
            count++;
        pthread_attr_destroy(&attributes);
    }
    if (count == 0) compile_jobs(&q);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* --- the functions of this process ------------------------------------------------------------ */

typedef struct compiled {
    struct compiled *next;
    const gd_device *device;
    CUfunction function;
    char *source;
} compiled;

enum { BUCKETS = 1024 };
static compiled *buckets[BUCKETS];
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER; /* held while compiling */

static size_t bucket_of(const char *text) { /* FNV-1a */
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (size_t)(hash % BUCKETS);
}

static CUfunction find_compiled(const gd_device *d, const char *source) {
    for (const compiled *c = buckets[bucket_of(source)]; c; c = c->next)
        if (c->device == d && strcmp(c->source, source) == 0) return c->function;
    return NULL;
}

/* Without memory the function works, and is compiled again next time. */
static void add_compiled(const gd_device *d, const gd_cuda_program *p) {
    const size_t bytes = strlen(p->source) + 1;
    compiled *c = gd_cuda_host->allocate(sizeof *c + bytes), **bucket;
    if (!c) return;
    bucket = &buckets[bucket_of(p->source)];
    *c = (compiled){
        .next = *bucket, .device = d, .function = p->function, .source = (char *)(c + 1)};
    memcpy(c->source, p->source, bytes);
    *bucket = c;
}

static CUfunction load_function(const char *code, const char *name) {
    CUmodule module;
    CUfunction function = NULL;
    if (gd_cuda.cuModuleLoadData(&module, code) != CUDA_SUCCESS) return NULL;
    return gd_cuda.cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS ? function : NULL;
}

/* Whether an earlier job of the list compiles the same text. */
static bool is_compiled_before(const compile_job *jobs, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(jobs[k].key, jobs[i].key) == 0) return true;
    return false;
}

/* Takes functions from this process or from the cache on disk. Returns the number of programs that
 * must be compiled. Code that does not load is compiled again. */
static int take_from_caches(gd_device *d, gd_cuda_program *programs, compile_job *jobs, int n) {
    const gd_cuda_state *s = gd_cuda_state_of(d);
    int missing = 0;
    for (int i = 0; i < n; i++) {
        gd_cuda_program *p = &programs[i];
        jobs[i] = (compile_job){.program = p};
        p->function = find_compiled(d, p->source);
        if (p->function) {
            jobs[i].code = p->source; /* any value: there is nothing to do */
            continue;
        }
        compute_key(s, &jobs[i]);
        if ((jobs[i].repeats = is_compiled_before(jobs, i))) {
            missing++;
            continue;
        }
        char *code = gd_cuda_host->codegen->cache_load(jobs[i].key, &jobs[i].bytes);
        if (code && (p->function = load_function(code, p->name))) {
            add_compiled(d, p);
            jobs[i].code = p->source;
        } else missing++;
        gd_cuda_host->release(code);
    }
    return missing;
}

static gd_status load_compiled(gd_device *d, gd_cuda_program *programs, compile_job *jobs, int n) {
    gd_status status = GD_OK;
    for (int i = 0; i < n; i++) {
        gd_cuda_program *p = &programs[i];
        if (p->function) continue;
        const compile_job *job = &jobs[i];
        p->function = find_compiled(d, p->source); /* an equal text of this list */
        if (!p->function && job->code && (p->function = load_function(job->code, p->name)))
            add_compiled(d, p);
        if (!p->function && status == GD_OK)
            status = gd_cuda_host->fail(GD_E_UNSUPPORTED, "kernel %s cannot be compiled: %.600s",
                                        p->name, job->code ? "its code does not load" : job->why);
        gd_cuda_host->release(job->code);
    }
    return status;
}

static gd_status compile_programs(gd_device *d, gd_cuda_program *programs, compile_job *jobs,
                                  int n) {
    const int missing = take_from_caches(d, programs, jobs, n);
    if (missing == 0) return GD_OK;
    if (!is_nvrtc_loaded())
        return gd_cuda_host->fail(
            GD_E_DEVICE, "a kernel must be compiled, and NVRTC (libnvrtc.so) was not found");
    compile_missing(jobs, n, missing);
    return load_compiled(d, programs, jobs, n);
}

gd_status gd_cuda_compile(gd_device *d, gd_cuda_program *programs, int n) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    compile_job *jobs = gd_cuda_host->allocate((size_t)(n + 1) * sizeof *jobs);
    if (!jobs) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to compile %d kernels", n);
    pthread_mutex_lock(&cache_lock);
    status = compile_programs(d, programs, jobs, n);
    pthread_mutex_unlock(&cache_lock);
    gd_cuda_host->release(jobs);
    return status;
}

CUfunction gd_cuda_find_compiled(gd_device *d, const char *source) {
    pthread_mutex_lock(&cache_lock);
    CUfunction function = find_compiled(d, source);
    pthread_mutex_unlock(&cache_lock);
    return function;
}
