/* child.h - child processes of tests, and children that are killed while they write.
 *
 * A test that forks to see what a killed process leaves behind should itself only fork: children
 * write, children read. Each child then starts with the library in the state before its first call.
 */
#ifndef GRADUS_TESTS_CHILD_H
#define GRADUS_TESTS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* The main function of a child. It returns the exit status, 0 to 255, or executes a program. */
typedef int (*child_main)(void *user);

/* Starts a child. A test in which other threads run while it forks calls fork itself: the child
 * here uses stdio, whose locks they may hold. */
pid_t child_start(child_main child, void *user);
/* Waits for a child (-1: any) and returns its exit status; -1: a signal ended it, or there is
 * none. */
int child_wait(pid_t id);
/* Starts a child and waits for it. */
int child_run(child_main child, void *user);

/* Starts a child, sends a signal after this time, and waits for it. */
int child_signal_after(long long nanoseconds, int signal, child_main child, void *user);

/* --- killed at system calls ------------------------------------------------------------------- */

typedef struct kill_plan {
    int stop; /* SIGKILL at this stop; stop 0 is before the child begins */
    const long
        *calls; /* each of these calls has two stops, its begin and its end; NULL: all calls */
    int n_calls;
} kill_plan;

typedef struct child_end {
    bool traced; /* false: processes cannot be traced here, and the child did not run */
    bool killed; /* false: it ended before the stop */
    int status;  /* its exit status then; -1: another signal ended it */
    long call;   /* the number of the system call at which it was killed */
    bool before; /* at the begin of that call, not at its end */
} child_end;

/* Traces only the thread that runs `child`; other threads of that process are killed with it. */
child_end child_kill_at(kill_plan plan, child_main child, void *user);

#endif
