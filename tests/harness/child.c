/* child.c - see child.h. */
#define _GNU_SOURCE 1
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- children --------------------------------------------------------------------------------- */

int child_wait(pid_t id) {
    int state = 0;
    while (waitpid(id, &state, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static pid_t start_child(child_main child, void *user, bool traced) {
    fflush(NULL);
    const pid_t id = fork();
    if (id < 0) perror("fork"), abort();
    if (id > 0) return id;
    if (traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    if (traced) raise(SIGSTOP);
    const int status = child(user);
    fflush(NULL);
    _exit(status);
}

pid_t child_start(child_main child, void *user) { return start_child(child, user, false); }

int child_run(child_main child, void *user) { return child_wait(child_start(child, user)); }

int child_signal_after(long long nanoseconds, int signal, child_main child, void *user) {
    const pid_t id = child_start(child, user);
    nanosleep(&(struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000}, NULL);
    kill(id, signal);
    return child_wait(id);
}

/* --- system calls ----------------------------------------------------------------------------- */

/* As in <linux/ptrace.h>, which cannot be included together with <sys/ptrace.h>. */
enum { GET_SYSCALL_INFO = 0x420e, INFO_ENTRY = 1 };
typedef struct call_info {
    uint8_t op, flags[3];
    uint32_t arch;
    uint64_t instruction, stack;
    uint64_t number; /* of the system call, at its entry */
    uint64_t rest[8];
} call_info;

static bool is_planned_call(const kill_plan *plan, long call) {
    for (int i = 0; i < plan->n_calls; i++)
        if (plan->calls[i] == call) return true;
    return plan->calls == NULL;
}

/* Runs the child to the entry or the exit of its next system call. False: the child has ended. */
static bool run_to_next_stop(pid_t child, int *state, child_end *end) {
    for (int signal = 0;; signal = WSTOPSIG(*state) == SIGTRAP ? 0 : WSTOPSIG(*state)) {
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)(intptr_t)signal);
        if (waitpid(child, state, 0) < 0 || !WIFSTOPPED(*state)) return false;
        if (WSTOPSIG(*state) == (SIGTRAP | 0x80))
            break; /* a system call; other stops are signals, which the loop delivers */
    }
    call_info info;
    memset(&info, 0, sizeof info);
    end->before =
        ptrace((enum __ptrace_request)GET_SYSCALL_INFO, child, (void *)sizeof info, &info) > 0 &&
        info.op == INFO_ENTRY;
    if (end->before) end->call = (long)info.number;
    return true;
}

child_end child_kill_at(kill_plan plan, child_main child, void *user) {
    child_end end = {.traced = true, .call = -1};
    int state = 0;
    const pid_t id = start_child(child, user, true);
    waitpid(id, &state, 0);
    end.traced = WIFSTOPPED(state);
    if (!end.traced) return end;
    ptrace(PTRACE_SETOPTIONS, id, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    bool runs = true;
    for (int i = 0; i < plan.stop && runs;) {
        runs = run_to_next_stop(id, &state, &end);
        i += runs && is_planned_call(&plan, end.call);
    }
    end.killed = runs;
    if (runs) {
        kill(id, SIGKILL);
        waitpid(id, &state, 0);
    }
    end.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    return end;
}
