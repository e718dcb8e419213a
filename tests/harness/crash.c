/* crash.c - see crash.h. */
#define _GNU_SOURCE 1
#include "crash.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- folders ---------------------------------------------------------------------------------- */

void crash_folder(char *folder, size_t size, const char *stem) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, size, "%s/gradus-%s-XXXXXX", base && *base ? base : "/tmp", stem);
    if (!mkdtemp(folder)) abort();
}

static int walk(const char *folder, bool removes) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char name[4096];
        if (e->d_name[0] == '.') continue;
        count++;
        if (!removes) continue;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (unlink(name) != 0 && (errno == EISDIR || errno == EPERM)) {
            walk(name, true);
            rmdir(name);
        }
    }
    if (d) closedir(d);
    return count;
}

int crash_count_files(const char *folder) { return walk(folder, false); }
void crash_empty_folder(const char *folder) { walk(folder, true); }
void crash_remove_folder(const char *folder) {
    walk(folder, true);
    rmdir(folder);
}

/* --- children --------------------------------------------------------------------------------- */

static int wait_for(pid_t child) {
    int state = 0;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static pid_t start(crash_child child, void *user, bool traced) {
    fflush(NULL);
    const pid_t id = fork();
    if (id < 0) abort();
    if (id > 0) return id;
    if (traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    if (traced) raise(SIGSTOP);
    const int status = child(user);
    fflush(NULL);
    _exit(status);
}

int crash_apart(crash_child child, void *user) { return wait_for(start(child, user, false)); }

int crash_after(long long nanoseconds, int signal, crash_child child, void *user) {
    const pid_t id = start(child, user, false);
    nanosleep(&(struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000}, NULL);
    kill(id, signal);
    return wait_for(id);
}

/* --- system calls ----------------------------------------------------------------------------- */

/* As <linux/ptrace.h> has it, which cannot be included beside <sys/ptrace.h>. */
enum { GET_SYSCALL_INFO = 0x420e, INFO_ENTRY = 1 };
typedef struct call_info {
    uint8_t op, flags[3];
    uint32_t arch;
    uint64_t instruction, stack;
    uint64_t number; /* at the beginning of a call */
    uint64_t rest[8];
} call_info;

static bool is_among(const crash_plan *plan, long call) {
    for (int i = 0; i < plan->n_calls; i++)
        if (plan->calls[i] == call) return true;
    return plan->calls == NULL;
}

/* Lets the child run to the beginning or the end of its next system call. False: it has ended. */
static bool next_stop(pid_t child, int *state, crash_end *end) {
    for (int signal = 0;; signal = WSTOPSIG(*state) == SIGTRAP ? 0 : WSTOPSIG(*state)) {
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)(intptr_t)signal);
        if (waitpid(child, state, 0) < 0 || !WIFSTOPPED(*state)) return false;
        if (WSTOPSIG(*state) == (SIGTRAP | 0x80))
            break; /* others are signals, which it is to get */
    }
    call_info info;
    memset(&info, 0, sizeof info);
    end->before =
        ptrace((enum __ptrace_request)GET_SYSCALL_INFO, child, (void *)sizeof info, &info) > 0 &&
        info.op == INFO_ENTRY;
    if (end->before) end->call = (long)info.number;
    return true;
}

crash_end crash_at(crash_plan plan, crash_child child, void *user) {
    crash_end end = {.traced = true, .call = -1};
    int state = 0;
    const pid_t id = start(child, user, true);
    waitpid(id, &state, 0);
    end.traced = WIFSTOPPED(state);
    if (!end.traced) return end;
    ptrace(PTRACE_SETOPTIONS, id, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    bool runs = true;
    for (int i = 0; i < plan.stop && runs;) {
        runs = next_stop(id, &state, &end);
        i += runs && is_among(&plan, end.call);
    }
    end.killed = runs;
    if (runs) {
        kill(id, SIGKILL);
        waitpid(id, &state, 0);
    }
    end.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    return end;
}
