/* native.c - prints, compiles and loads native kernels.
 *
 * Kernels that are requested together are compiled together, because reading the headers takes most
 * of the compiler's time. Each kernel has its own name in the cache, a link to the file that it was
 * compiled into, so that later requests find it in any combination.
 */
#include "codegen/native.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "codegen/record.h"
#include "core/alloc.h"
#include "core/error.h"

/* The flags that the library's own kernels are compiled with, so that results have the same
 * bits. */
static const char *const common_flags[] = {
    "-std=gnu11",        "-O2", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math"};
enum {
    N_COMMON = sizeof common_flags / sizeof common_flags[0],
    MAX_FLAGS = 16,
    MAX_BATCH = 32, /* kernels in one run of the compiler */
};

/* --- all kernels of the process --------------------------------------------------------------- */

typedef struct native_entry {
    struct native_entry *next;
    uint64_t hash; /* of the source */
    const gd_native_target *target;
    gd_compiled_fn fn;
    bool ready; /* fn is set; before, a thread is compiling it */
} native_entry;

static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all variables below */
static pthread_mutex_t loader_lock = PTHREAD_MUTEX_INITIALIZER;  /* held during dlopen */
static pthread_cond_t entry_ready = PTHREAD_COND_INITIALIZER;
static native_entry *entries, *forgotten;
static gd_native_counts counts;
static bool warned;

/* A fork() waits for the loader, but not for the compiler. Kernels that another thread is compiling
 * are not ready in the child, which compiles them again. */
static void before_fork(void) {
    pthread_mutex_lock(&loader_lock);
    pthread_mutex_lock(&entries_lock);
}
static void in_parent(void) {
    pthread_mutex_unlock(&entries_lock);
    pthread_mutex_unlock(&loader_lock);
}
static void in_child(void) {
    for (native_entry **at = &entries; *at;) {
        native_entry *e = *at;
        if (e->ready) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        e->next = forgotten;
        forgotten = e;
    }
    pthread_cond_init(&entry_ready, NULL);
    in_parent();
}
__attribute__((constructor)) static void at_fork(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

/* --- one kernel ------------------------------------------------------------------------------- */

typedef struct native_kernel {
    const gd_kernel_source *source;
    native_entry *entry;
    char *text; /* source text after the prelude; free() */
    size_t bytes;
    char key[GD_NATIVE_KEY];
    gd_compiled_fn fn;
    bool built, compiled; /* the compiler made its file; and it was loaded */
} native_kernel;

/* Why kernels are missing, for the log. */
typedef struct reasons {
    char tools[GD_NATIVE_WHY]; /* they were not compiled */
    char load[GD_NATIVE_WHY];  /* they were compiled, but not loaded */
} reasons;

/* The compiler and the cache of one request. */
typedef struct toolchain {
    const gd_native_target *target;
    struct stat identity; /* of the compiler */
    char compiler[GD_NATIVE_PATH];
    int folder; /* of compiled kernels, open; -1: none */
} toolchain;

static void kernel_name(const native_kernel *k, char name[GD_NATIVE_NAME]) {
    snprintf(name, GD_NATIVE_NAME, "%s.so", k->key);
}

static bool print_text(const toolchain *w, native_kernel *k) {
    FILE *out = open_memstream(&k->text, &k->bytes);
    if (!out) return false;
    const bool printed = gd_print_kernel(out, w->target->dialect, k->source, "GD_NATIVE_KERNEL");
    return fclose(out) == 0 && printed;
}

/* A hash of everything that the compiled function depends on. */
static void compute_key(const toolchain *w, native_kernel *k) {
    gd_native_hash h;
    gd_native_hash_start(&h);
    gd_native_hash_add(&h, w->target->prelude, w->target->prelude_bytes);
    gd_native_hash_add(&h, k->text, k->bytes);
    gd_native_hash_add(&h, w->target->name, strlen(w->target->name) + 1);
    for (int i = 0; i < N_COMMON; i++)
        gd_native_hash_add(&h, common_flags[i], strlen(common_flags[i]) + 1);
    for (int i = 0; w->target->flags[i]; i++)
        gd_native_hash_add(&h, w->target->flags[i], strlen(w->target->flags[i]) + 1);
    gd_native_hash_add(&h, w->compiler, strlen(w->compiler) + 1);
    const int64_t identity[4] = {w->identity.st_size, w->identity.st_mtim.tv_sec,
                                 w->identity.st_mtim.tv_nsec, (int64_t)w->identity.st_ino};
    gd_native_hash_add(&h, identity, sizeof identity);
    gd_native_hash_text(&h, k->key);
}

/* The open files of the process, by the thread that asks: once the main thread has called
 * pthread_exit, there is no /proc/self/fd. */
#define OPEN_FILES "/proc/thread-self/fd"

/* A number at which this copy of the library begins to count its loads. A process can have several
 * copies, and one that was closed and opened again; all their kernels stay loaded. */
static uint64_t first_load(const void *own) {
    struct timespec now;
    gd_native_hash h;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t numbers[3] = {now.tv_sec, now.tv_nsec, (int64_t)(uintptr_t)own};
    gd_native_hash_start(&h);
    gd_native_hash_add(&h, numbers, sizeof numbers);
    return h.a | 1; /* never 0 */
}

/* Loads the library of an open file. dlopen knows a loaded library by the text of its path, and a
 * number of a descriptor is used again: so the text contains the number of the load, whose binary
 * digits are written as "/" and "/.", which lead nowhere else. The lock is held. */
static void *load_library(int fd) {
    static uint64_t loads;
    char path[192] = OPEN_FILES;
    if (!loads) loads = first_load(&loads);
    loads++;
    for (uint64_t digit = 1; digit; digit *= 2) strcat(path, loads & digit ? "/." : "/");
    snprintf(path + strlen(path), 16, "/%d", fd);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Says why an open file was not loaded. dlerror() begins with a path, that of load_library. */
static void describe_failure(int fd, const char *error, char why[GD_NATIVE_WHY]) {
    char link[64], path[GD_NATIVE_SHOWN + 1] = "";
    snprintf(link, sizeof link, OPEN_FILES "/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) snprintf(path, sizeof path, "it");
    const char *colon = error ? strstr(error, ": ") : NULL;
    snprintf(why, GD_NATIVE_WHY,
             "%s cannot be loaded (%.80s); if its file system is mounted with noexec, set "
             "GRADUS_CACHE to a folder elsewhere",
             path,
             colon   ? colon + 2
             : error ? error
                     : "unknown");
}

/* Loads a kernel from the cache. NULL: the file is missing, damaged or of another kernel, which
 * shows in the function's name: it contains the key. `why` says so. */
static gd_compiled_fn load_kernel(const toolchain *w, const native_kernel *k,
                                  char why[GD_NATIVE_WHY]) {
    char file[GD_NATIVE_NAME], name[GD_NATIVE_KEY + 16];
    kernel_name(k, file);
    const int fd = gd_native_open_sealed(w->folder, file);
    snprintf(why, GD_NATIVE_WHY, "%s was removed or damaged before it was loaded", file);
    if (fd < 0) return NULL;
    snprintf(name, sizeof name, "gd_native_%s", k->key);
    pthread_mutex_lock(&loader_lock);
    void *library = load_library(fd);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) describe_failure(fd, dlerror(), why);
    if (library && !found) dlclose(library);
    pthread_mutex_unlock(&loader_lock);
    gd_compiled_fn fn = NULL;
    if (found) {
        memcpy(&fn, &found, sizeof fn); /* C has no cast from void * to a function pointer */
        gd_native_touch(fd);
    }
    close(fd);
    return fn;
}

/* Logs a warning, once in a process. */
static void warn_once(const char *why) {
    pthread_mutex_lock(&entries_lock);
    const bool first = !warned;
    warned = true;
    pthread_mutex_unlock(&entries_lock);
    if (first)
        gd_notice(GD_LOG_WARNING, "plans run without compiled kernels, and some run slower: %s",
                  why);
}

/* --- compiling a batch ------------------------------------------------------------------------ */

static bool write_all(int fd, const char *text, size_t bytes) {
    while (bytes) {
        const ssize_t put = write(fd, text, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        text += put;
        bytes -= (size_t)put;
    }
    return true;
}

static bool write_source(const toolchain *w, native_kernel *const *list, int n, int fd) {
    char line[128];
    bool done = write_all(fd, w->target->prelude, w->target->prelude_bytes);
    for (int i = 0; i < n && done; i++) {
        const int length = snprintf(
            line, sizeof line, "\n#undef GD_NATIVE_KERNEL\n#define GD_NATIVE_KERNEL gd_native_%s\n",
            list[i]->key);
        done = write_all(fd, line, (size_t)length) && write_all(fd, list[i]->text, list[i]->bytes);
    }
    return done;
}

static gd_native_run compile_file(toolchain *w, char *source, char *object) {
    char *argv[N_COMMON + MAX_FLAGS + 8];
    int n = 0;
    argv[n++] = w->compiler;
    for (int i = 0; i < N_COMMON; i++) argv[n++] = (char *)(uintptr_t)common_flags[i];
    for (int i = 0; w->target->flags[i] && i < MAX_FLAGS; i++)
        argv[n++] = (char *)(uintptr_t)w->target->flags[i];
    argv[n++] = "-o";
    argv[n++] = object;
    argv[n++] = source;
    argv[n++] = "-lm";
    argv[n] = NULL;
    const gd_native_run run = gd_native_run_compiler(w->folder, argv);
    return run == GD_NATIVE_RAN && !gd_native_seal(w->folder, object) ? GD_NATIVE_FAILED : run;
}

/* Compiles into a temporary file, which then gets the names of the kernels, so that no reader sees
 * an incomplete file. */
static gd_native_run build_kernels(toolchain *w, native_kernel *const *list, int n) {
    char source[GD_NATIVE_NAME], object[GD_NATIVE_NAME], name[GD_NATIVE_NAME];
    const int fd = gd_native_create(w->folder, ".c", source);
    if (fd < 0) return GD_NATIVE_FAILED;
    const bool written = write_source(w, list, n, fd);
    gd_native_run run = close(fd) == 0 && written ? GD_NATIVE_RAN : GD_NATIVE_FAILED;
    snprintf(object, sizeof object, "%.*s.so", (int)strlen(source) - 2, source);
    if (run == GD_NATIVE_RAN) run = compile_file(w, source, object);
    for (int i = 0; i < n && run == GD_NATIVE_RAN; i++) {
        kernel_name(list[i], name);
        list[i]->built = gd_native_name(w->folder, object, name);
        if (!list[i]->built) run = GD_NATIVE_FAILED;
    }
    unlinkat(w->folder, source, 0);
    unlinkat(w->folder, object, 0);
    pthread_mutex_lock(&entries_lock);
    counts.runs++;
    pthread_mutex_unlock(&entries_lock);
    return run;
}

static void load_compiled(const toolchain *w, native_kernel *const *list, int n, reasons *why) {
    char latest[GD_NATIVE_WHY];
    for (int i = 0; i < n; i++) {
        list[i]->fn = load_kernel(w, list[i], latest);
        list[i]->compiled = list[i]->fn != NULL;
        if (list[i]->fn || !list[i]->built) continue;
        snprintf(why->load, sizeof why->load, "%s", latest);
        warn_once(why->load);
    }
}

/* Compiles the kernels that were not in the cache. If the compiler rejects a batch, each kernel is
 * compiled alone, so that one bad kernel does not affect the others. A compiler that hangs is not
 * started again. */
static void build_missing(toolchain *w, native_kernel *list, int n, reasons *why) {
    native_kernel *missing[MAX_BATCH];
    bool any = false;
    for (int first = 0; first < n;) {
        int count = 0;
        for (; first < n && count < MAX_BATCH; first++)
            if (!list[first].fn) missing[count++] = &list[first];
        if (count == 0) break;
        gd_native_run run = build_kernels(w, missing, count);
        snprintf(why->tools, GD_NATIVE_WHY, "the compiler %.*s %s; GRADUS_CC sets another",
                 GD_NATIVE_SHOWN, w->compiler, run == GD_NATIVE_HUNG ? "took too long" : "failed");
        if (run != GD_NATIVE_RAN) warn_once(why->tools);
        if (run == GD_NATIVE_HUNG) break;
        for (int i = 0; i < count && run == GD_NATIVE_FAILED && count > 1; i++) {
            const gd_native_run alone = build_kernels(w, &missing[i], 1);
            if (alone == GD_NATIVE_HUNG) return;
        }
        load_compiled(w, missing, count, why);
        any = true;
    }
    if (any) gd_native_trim(w->folder);
}

/* Opens the folder of kernels and finds the compiler. */
static bool find_folder_and_compiler(toolchain *w, char why[GD_NATIVE_WHY]) {
    w->folder = gd_native_open_folder(why);
    if (w->folder < 0) return false;
    if (access(OPEN_FILES, X_OK) != 0) {
        snprintf(why, GD_NATIVE_WHY,
                 "there is no " OPEN_FILES ", through which checked files are loaded; mount /proc");
        return false;
    }
    if (gd_native_find_compiler(w->compiler, sizeof w->compiler, &w->identity)) return true;
    gd_native_no_compiler(why);
    return false;
}

/* Finds the cache and the compiler. False: the reason is in `why`. Close w->folder in any case. */
static bool find_tools(toolchain *w, char why[GD_NATIVE_WHY]) {
    w->folder = -1;
    const char *on = secure_getenv("GRADUS_NATIVE");
    snprintf(why, GD_NATIVE_WHY, "GRADUS_NATIVE is 0");
    if (on && strcmp(on, "0") == 0) return false; /* turned off by the user: no warning */
    if (find_folder_and_compiler(w, why)) return true;
    warn_once(why);
    return false;
}

static void close_tools(const toolchain *w) {
    if (w->folder >= 0) close(w->folder);
}

bool gd_native_is_ready(void) {
    char why[GD_NATIVE_WHY];
    toolchain w = {.target = NULL};
    const bool ready = find_tools(&w, why);
    close_tools(&w);
    return ready;
}

static void make_kernels(native_kernel *list, int n, const gd_native_target *target, reasons *why) {
    snprintf(why->tools, sizeof why->tools, "there is no memory");
    toolchain *w = gd_calloc(1, sizeof *w);
    if (!w) return;
    w->target = target;
    bool ready = find_tools(w, why->tools);
    for (int i = 0; i < n && ready; i++) {
        snprintf(why->tools, sizeof why->tools,
                 "there is no memory, or the dialect has no such kernel");
        ready = print_text(w, &list[i]);
        if (!ready) break;
        compute_key(w, &list[i]);
        list[i].fn = load_kernel(w, &list[i], why->load);
    }
    if (ready) build_missing(w, list, n, why);
    for (int i = 0; i < n; i++) free(list[i].text);
    close_tools(w);
    gd_free(w);
}

/* --- requests --------------------------------------------------------------------------------- */

static native_entry *find_entry(uint64_t hash, const gd_native_target *target) {
    native_entry *e = entries;
    while (e && !(e->hash == hash && e->target == target)) e = e->next;
    return e;
}

/* The entry of a source. If it is new, the caller must compile it. NULL: no memory. */
static native_entry *entry_of(const gd_kernel_source *s, const gd_native_target *target,
                              bool *is_new) {
    const uint64_t hash = gd_kernel_source_hash(s);
    native_entry *e = find_entry(hash, target);
    *is_new = !e;
    if (e || !(e = gd_calloc(1, sizeof *e))) return e;
    *e = (native_entry){.next = entries, .hash = hash, .target = target};
    return entries = e;
}

static void publish_kernels(native_kernel *list, int n) {
    pthread_mutex_lock(&entries_lock);
    for (int i = 0; i < n; i++) {
        const native_kernel *k = &list[i];
        k->entry->fn = k->fn;
        k->entry->ready = true;
        *(k->compiled ? &counts.compiled : k->fn ? &counts.loaded : &counts.failed) += 1;
    }
    pthread_cond_broadcast(&entry_ready);
    pthread_mutex_unlock(&entries_lock);
}

void gd_native_kernels(const gd_kernel_source *sources, int n, const gd_native_target *target,
                       gd_compiled_fn *fns) {
    native_kernel *mine = gd_calloc((size_t)n + 1, sizeof *mine);
    native_entry **all = gd_calloc((size_t)n + 1, sizeof *all);
    int count = 0;
    for (int i = 0; i < n; i++) fns[i] = NULL;
    if (mine && all) {
        pthread_mutex_lock(&entries_lock);
        for (int i = 0; i < n; i++) {
            bool is_new;
            all[i] = entry_of(&sources[i], target, &is_new);
            if (all[i] && is_new)
                mine[count++] = (native_kernel){.source = &sources[i], .entry = all[i]};
        }
        pthread_mutex_unlock(&entries_lock);
        reasons why = {.tools = ""};
        if (count) make_kernels(mine, count, target, &why);
        for (int i = 0; i < count; i++)
            if (!mine[i].fn)
                gd_notice(GD_LOG_DEBUG, "no compiled kernel for an expression of %d nodes: %s",
                          mine[i].source->rows ? mine[i].source->rows->n_nodes
                                               : mine[i].source->ir->count,
                          mine[i].built ? why.load : why.tools);
        publish_kernels(mine, count);
        /* wait for kernels of other threads only after this thread has published its own */
        pthread_mutex_lock(&entries_lock);
        for (int i = 0; i < n; i++) {
            while (all[i] && !all[i]->ready) pthread_cond_wait(&entry_ready, &entries_lock);
            if (all[i]) fns[i] = all[i]->fn;
        }
        pthread_mutex_unlock(&entries_lock);
    }
    gd_free(mine);
    gd_free(all);
}

gd_compiled_fn gd_native_kernel(const gd_kernel_source *source, const gd_native_target *target) {
    gd_compiled_fn fn;
    gd_native_kernels(source, 1, target, &fn);
    return fn;
}

gd_native_counts gd_native_count(void) {
    pthread_mutex_lock(&entries_lock);
    const gd_native_counts now = counts;
    pthread_mutex_unlock(&entries_lock);
    return now;
}

void gd_native_forget(void) {
    pthread_mutex_lock(&entries_lock);
    warned = false;
    while (entries) { /* not freed: other threads may wait for them */
        native_entry *e = entries;
        entries = e->next;
        e->next = forgotten;
        forgotten = e;
    }
    pthread_mutex_unlock(&entries_lock);
}

/* The functions stay loaded until the process ends; this frees the entries. */
__attribute__((destructor)) static void free_entries(void) {
    gd_native_forget();
    while (forgotten) {
        native_entry *e = forgotten;
        forgotten = e->next;
        gd_free(e);
    }
}
