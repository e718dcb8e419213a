/* native_compiler.c - finds and runs the system's compiler. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen/native.h"
#include "core/number.h"

extern char **environ;

enum { DEFAULT_TIMEOUT = 60 /* seconds that a run may take */ };

static bool is_program(const char *path, struct stat *s) {
    return stat(path, s) == 0 && S_ISREG(s->st_mode) && access(path, X_OK) == 0;
}

/* Makes a path absolute, because the compiler runs in another folder. */
static bool make_absolute(char *path, size_t size) {
    char here[4096];
    if (*path == '/') return true;
    const size_t length = strlen(path),
                 before = getcwd(here, sizeof here) ? strlen(here) + 1 : size;
    if (before + length >= size) return false;
    memmove(path + before, path, length + 1);
    memcpy(path, here, before - 1);
    path[before - 1] = '/';
    return true;
}

static const char *compiler_name(void) {
    const char *name = secure_getenv("GRADUS_CC");
    return name && *name ? name : "cc";
}

bool gd_native_find_compiler(char *path, size_t size, struct stat *s) {
    const char *name = compiler_name(), *list = secure_getenv("PATH");
    if (strchr(name, '/'))
        return (size_t)snprintf(path, size, "%s", name) < size && is_program(path, s) &&
               make_absolute(path, size);
    if (!list) list = "/usr/bin:/bin";
    for (const char *at = list; at;) {
        const char *end = strchr(at, ':');
        const int length = (int)(end ? end - at : (long)strlen(at));
        if (length > 0 && (size_t)snprintf(path, size, "%.*s/%s", length, at, name) < size &&
            is_program(path, s))
            return make_absolute(path, size);
        at = end ? end + 1 : NULL;
    }
    return false;
}

void gd_native_no_compiler(char why[GD_NATIVE_WHY]) {
    snprintf(
        why, GD_NATIVE_WHY,
        "there is no compiler \"%.*s\"; install one, or set GRADUS_CC to the path of a C compiler",
        GD_NATIVE_SHOWN, compiler_name());
}

/* Starts the compiler in its own process group, so that its children can be killed with it. Its
 * output is discarded; the exit status and a missing file show a failure. */
static pid_t start_compiler(int folder, char *const *argv) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    pid_t child = -1;
    if (posix_spawn_file_actions_init(&files) != 0) return -1;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return -1;
    }
    sigemptyset(&none);
    sigfillset(&usual);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    int failed = 0;
    for (int fd = 0; fd < 3; fd++)
        failed |=
            posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
    failed |= posix_spawn_file_actions_addfchdir_np(&files, folder);
    if (!failed) failed = posix_spawn(&child, argv[0], &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failed ? -1 : child;
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timeout_seconds(void) {
    const char *text = secure_getenv("GRADUS_CC_TIMEOUT");
    char *end;
    const double seconds = text ? gd_double_parse(text, &end) : 0;
    return text && end != text && seconds > 0 ? seconds : DEFAULT_TIMEOUT;
}

gd_native_run gd_native_run_compiler(int folder, char *const *argv) {
    const pid_t child = start_compiler(folder, argv);
    if (child < 0) return GD_NATIVE_FAILED;
    const double end = seconds_now() + timeout_seconds();
    long pause = 500000; /* nanoseconds; a run takes about a hundred times as long */
    for (;;) {
        int status = 0;
        const pid_t got = waitpid(child, &status, WNOHANG);
        if (got < 0 && errno == EINTR) continue;
        /* no status if the program ignores SIGCHLD: the caller checks the file */
        if (got < 0) return GD_NATIVE_RAN;
        if (got == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? GD_NATIVE_RAN : GD_NATIVE_FAILED;
        if (seconds_now() > end) break;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        if (pause < 10000000) pause *= 2;
    }
    kill(-child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return GD_NATIVE_HUNG;
}
