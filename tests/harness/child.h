/* child.h - starts child processes, and kills them at chosen system calls.
 *
 * A test that checks the files of a killed process should call the library only in children: one
 * child writes, another reads. Each child then starts with an uninitialized library.
 */
#ifndef GRADUS_TESTS_HARNESS_CHILD_H
#define GRADUS_TESTS_HARNESS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* The main function of a child. It returns the exit status, 0 to 255, or calls exec. */
typedef int (*child_main)(void *user);

/* Starts a child. Not for tests that fork while other threads run: the child uses stdio, whose
 * locks those threads may hold. Such a test calls fork itself. */
pid_t child_start(child_main child, void *user);
/* Waits for a child (-1: any) and returns its exit status; -1: a signal ended it, or no such child
 * exists. */
int child_wait(pid_t id);
/* Starts a child and waits for it. */
int child_run(child_main child, void *user);

/* Starts a child, sends it a signal after this time, waits for it and returns its exit status. */
int child_signal_after(long long nanoseconds, int signal, child_main child, void *user);

/* --- kills at system calls -------------------------------------------------------------------- */

typedef struct kill_plan {
    /* Number of the stop at which the child gets SIGKILL. Stop 0 is before `child` starts. */
    int stop;
    /* System calls that count: each has two stops, at entry and at exit. NULL: all calls. */
    const long *calls;
    int n_calls;
} kill_plan;

typedef struct child_end {
    bool traced; /* false: this machine does not allow ptrace, and the child did not run */
    bool killed; /* false: the child ended before the stop */
    int status;  /* exit status of a child that was not killed; -1: another signal ended it */
    long call;   /* the number of the system call at which it was killed */
    bool before; /* at the entry of that call, not at its exit */
} child_end;

/* Traces only the thread that runs `child`; other threads of that process are killed with it. */
child_end child_kill_at(kill_plan plan, child_main child, void *user);

#endif
