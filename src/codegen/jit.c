/* jit.c - from an expression to a function: print, compile, load. */
#include "codegen/jit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/record.h"
#include "core/alloc.h"
#include "core/error.h"

extern char **environ;

/* As the library's own kernels are compiled, so that the bits are the same. */
static const char *const common_flags[] = {
    "-std=gnu11",        "-O2", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math"};
enum { N_COMMON = sizeof common_flags / sizeof common_flags[0], MAX_FLAGS = 16 };

/* --- the compiler ------------------------------------------------------------------------------
 */

static bool is_program(const char *path, struct stat *s) {
    return stat(path, s) == 0 && S_ISREG(s->st_mode) && access(path, X_OK) == 0;
}

/* Its path, looked for as the shell would. */
static bool find_compiler(char *path, size_t size, struct stat *s) {
    const char *name = secure_getenv("GRADUS_CC"), *list = secure_getenv("PATH");
    if (!name || !*name) name = "cc";
    if (strchr(name, '/'))
        return (size_t)snprintf(path, size, "%s", name) < size && is_program(path, s);
    if (!list) list = "/usr/bin:/bin";
    for (const char *at = list; at;) {
        const char *end = strchr(at, ':');
        const int length = (int)(end ? end - at : (long)strlen(at));
        if (length > 0 && (size_t)snprintf(path, size, "%.*s/%s", length, at, name) < size &&
            is_program(path, s))
            return true;
        at = end ? end + 1 : NULL;
    }
    return false;
}

/* Runs it and waits. Its messages go nowhere: what it cannot compile is known by what is missing.
 */
static bool run_compiler(char *const *argv) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    pid_t child = -1;
    if (posix_spawn_file_actions_init(&files) != 0) return false;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return false;
    }
    sigemptyset(&none);
    sigfillset(&usual);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int failed = 0;
    for (int fd = 0; fd < 3; fd++)
        failed |=
            posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
    if (!failed) failed = posix_spawn(&child, argv[0], &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (failed) return false;
    int status = 0;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    /* a program that ignores SIGCHLD has no status to read: the file will tell */
    return got < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- one kernel --------------------------------------------------------------------------------
 */

typedef struct making {
    const gd_jit_target *target;
    char *kernel; /* the text that follows the prelude; free() */
    size_t kernel_bytes;
    char compiler[GD_JIT_PATH], directory[GD_JIT_PATH], file[GD_JIT_PATH + 64], key[GD_JIT_KEY];
} making;

static bool print_source(making *m, const gd_jit_source *s) {
    FILE *out = open_memstream(&m->kernel, &m->kernel_bytes);
    if (!out) return false;
    if (s->rows)
        gd_print_rows(out, s->rows, s->type, "gd_jit_kernel");
    else
        gd_print_kernel(out, m->target->dialect, s->ir, s->type, "gd_jit_kernel");
    return fclose(out) == 0;
}

/* All that the compiled file depends on. */
static void find_key(making *m, const struct stat *compiler) {
    gd_jit_hash h;
    gd_jit_hash_start(&h);
    gd_jit_hash_add(&h, m->target->prelude, m->target->prelude_bytes);
    gd_jit_hash_add(&h, m->kernel, m->kernel_bytes);
    gd_jit_hash_add(&h, m->target->name, strlen(m->target->name) + 1);
    for (int i = 0; i < N_COMMON; i++)
        gd_jit_hash_add(&h, common_flags[i], strlen(common_flags[i]) + 1);
    for (int i = 0; m->target->flags[i]; i++)
        gd_jit_hash_add(&h, m->target->flags[i], strlen(m->target->flags[i]) + 1);
    gd_jit_hash_add(&h, m->compiler, strlen(m->compiler) + 1);
    const int64_t identity[4] = {compiler->st_size, compiler->st_mtim.tv_sec,
                                 compiler->st_mtim.tv_nsec, (int64_t)compiler->st_ino};
    gd_jit_hash_add(&h, identity, sizeof identity);
    gd_jit_hash_text(&h, m->key);
    snprintf(m->file, sizeof m->file, "%s/%s.so", m->directory, m->key);
}

/* The function in a file of the cache; NULL where the file is missing, broken or another's. */
static gd_compiled_fn load(const making *m) {
    if (!gd_jit_is_sealed(m->file)) return NULL;
    void *library = dlopen(m->file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NULL;
    const char *key = dlsym(library, "gd_jit_key");
    void *found = key && strcmp(key, m->key) == 0 ? dlsym(library, "gd_jit_kernel") : NULL;
    gd_compiled_fn fn = NULL;
    if (found)
        memcpy(&fn, &found, sizeof fn); /* a data pointer that is one to a function */
    else
        dlclose(library);
    return fn;
}

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

static bool write_source(const making *m, int fd) {
    char line[128];
    const int length = snprintf(line, sizeof line, "\nconst char gd_jit_key[] = \"%s\";\n", m->key);
    return write_all(fd, m->target->prelude, m->target->prelude_bytes) &&
           write_all(fd, line, (size_t)length) && write_all(fd, m->kernel, m->kernel_bytes);
}

static bool compile_file(making *m, char *source, char *object) {
    char *argv[N_COMMON + MAX_FLAGS + 8];
    int n = 0;
    argv[n++] = m->compiler;
    for (int i = 0; i < N_COMMON; i++) argv[n++] = (char *)(uintptr_t)common_flags[i];
    for (int i = 0; m->target->flags[i] && i < MAX_FLAGS; i++)
        argv[n++] = (char *)(uintptr_t)m->target->flags[i];
    argv[n++] = "-o";
    argv[n++] = object;
    argv[n++] = source;
    argv[n++] = "-lm";
    argv[n] = NULL;
    return run_compiler(argv) && gd_jit_seal(object);
}

/* Compiles into a file of its own, which then takes its name: nobody sees half of it. */
static bool build(making *m) {
    char source[GD_JIT_PATH + 64], object[GD_JIT_PATH + 64];
    snprintf(source, sizeof source, "%s/new-XXXXXX.c", m->directory);
    const int fd = mkostemps(source, 2, O_CLOEXEC);
    if (fd < 0) return false;
    const bool written = write_source(m, fd);
    bool done = close(fd) == 0 && written;
    snprintf(object, sizeof object, "%.*s.so", (int)strlen(source) - 2, source);
    done = done && compile_file(m, source, object) && rename(object, m->file) == 0;
    unlink(source);
    if (!done) unlink(object);
    return done;
}

static gd_compiled_fn make(const gd_jit_source *source, const gd_jit_target *target, bool *compiled,
                           const char **why) {
    const char *on = secure_getenv("GRADUS_JIT");
    making *m = NULL;
    gd_compiled_fn fn = NULL;
    struct stat compiler;
    *why = "GRADUS_JIT is 0";
    if (on && strcmp(on, "0") == 0) return NULL;
    *why = "there is no memory";
    if (!(m = gd_calloc(1, sizeof *m))) return NULL;
    m->target = target;
    if (!gd_jit_directory(m->directory, sizeof m->directory, why)) goto out;
    *why = "there is no compiler";
    if (!find_compiler(m->compiler, sizeof m->compiler, &compiler)) goto out;
    *why = "there is no memory";
    if (!print_source(m, source)) goto out;
    find_key(m, &compiler);
    if ((fn = load(m))) goto out;
    *why = "the compiler failed";
    if (!build(m)) goto out;
    *why = "the compiled file cannot be loaded";
    fn = load(m);
    *compiled = fn != NULL;
out:
    free(m->kernel);
    gd_free(m);
    return fn;
}

/* --- all kernels of the process ----------------------------------------------------------------
 */

typedef struct entry {
    struct entry *next;
    uint64_t hash; /* of the expression */
    char type[4];
    const gd_jit_target *target;
    gd_compiled_fn fn;
    bool ready;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER;
static entry *entries, *forgotten;
static gd_jit_counts counts;

gd_compiled_fn gd_jit_kernel(const gd_jit_source *source, const gd_jit_target *target) {
    const uint64_t hash = source->rows ? gd_rows_hash(source->rows) : gd_ir_hash(source->ir);
    const char *type = source->type;
    pthread_mutex_lock(&lock);
    entry *e = entries;
    while (e && !(e->hash == hash && e->target == target && strcmp(e->type, type) == 0))
        e = e->next;
    if (e) {
        while (!e->ready) pthread_cond_wait(&made, &lock);
        gd_compiled_fn fn = e->fn;
        pthread_mutex_unlock(&lock);
        return fn;
    }
    e = gd_calloc(1, sizeof *e);
    if (e) {
        *e = (entry){.next = entries, .hash = hash, .target = target};
        snprintf(e->type, sizeof e->type, "%s", type);
        entries = e;
    }
    pthread_mutex_unlock(&lock);
    if (!e) return NULL;
    bool compiled = false;
    const char *why = "";
    gd_compiled_fn fn = make(source, target, &compiled, &why);
    if (!fn)
        gd_notice(GD_LOG_DEBUG, "no compiled kernel for an expression of %d nodes: %s",
                  source->rows ? source->rows->n_nodes : source->ir->count, why);
    pthread_mutex_lock(&lock);
    e->fn = fn;
    e->ready = true;
    *(compiled ? &counts.compiled : fn ? &counts.loaded : &counts.failed) += 1;
    pthread_cond_broadcast(&made);
    pthread_mutex_unlock(&lock);
    return fn;
}

gd_jit_counts gd_jit_count(void) {
    pthread_mutex_lock(&lock);
    const gd_jit_counts now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}

void gd_jit_forget(void) {
    pthread_mutex_lock(&lock);
    while (entries) { /* those that others wait for stay in memory */
        entry *e = entries;
        entries = e->next;
        e->next = forgotten;
        forgotten = e;
    }
    pthread_mutex_unlock(&lock);
}

/* The functions stay until the process ends; this frees the notes about them. */
__attribute__((destructor)) static void free_entries(void) {
    gd_jit_forget();
    while (forgotten) {
        entry *e = forgotten;
        forgotten = e->next;
        gd_free(e);
    }
}
