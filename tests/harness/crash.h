/* crash.h - processes that are killed while they write, and what they leave behind.
 *
 * The process of the test only forks: children write, children read. So every child begins with the
 * library as it is before its first call.
 */
#ifndef GRADUS_TESTS_CRASH_H
#define GRADUS_TESTS_CRASH_H

#include <stdbool.h>
#include <stddef.h>

/* What a child does; its exit status is what this returns, 0 to 255. It may exec a program. */
typedef int (*crash_child)(void *user);

/* A new folder in TMPDIR, "gradus-STEM-XXXXXX". */
void crash_folder(char *folder, size_t size, const char *stem);
/* How many files there are, names with a dot in front left out. */
int crash_count_files(const char *folder);
/* Removes the files in it, and those in folders in it. */
void crash_empty_folder(const char *folder);
void crash_remove_folder(const char *folder);

/* What a child returns; -1: a signal ended it. */
int crash_apart(crash_child child, void *user);

/* --- killed at system calls ------------------------------------------------------------------- */

typedef struct crash_plan {
    int stop; /* SIGKILL at this stop: 0 is before the child begins */
    const long
        *calls; /* each of these calls has two stops, when it begins and when it ends; NULL: all */
    int n_calls;
} crash_plan;

typedef struct crash_end {
    bool traced; /* false: this system lets nobody trace, and the child was not run */
    bool killed; /* false: it ended before the stop */
    int status;  /* what it returned then; -1: another signal */
    long call;   /* where it was killed: the number of the call, and whether it had begun only */
    bool before;
} crash_end;

/* Traces the thread that runs `child` alone: others of the process are killed with it. */
crash_end crash_at(crash_plan plan, crash_child child, void *user);

/* --- killed at any time ----------------------------------------------------------------------- */

/* Sends a signal after so many nanoseconds. Returns the exit status; -1: a signal ended it. */
int crash_after(long long nanoseconds, int signal, crash_child child, void *user);

#endif
