/* test_kill.c - a training run that is killed many times ends with the same bits as one that is
 * never killed.
 *
 * `test_kill --train FOLDER RESULT PAGE` is the run (killed_run.h). The tests start it, kill it,
 * and start it again until it completes. With GRADUS_TEST_FULL=1 they kill it at every system call
 * that writes, and more often at random.
 */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "draw.h"
#include "files.h"
#include "killed_run.h"
#include "mix.h"
#include "temp.h"
#include "test.h"

/* Folder and result of the killed runs, and of the complete run, which is never killed. */
static const char *folder, *result, *complete_folder, *expected;
static const char *page_path;
static killed_page *page;
static double complete_seconds; /* duration of the complete run */
static int64_t complete_steps;
static draws stream = {20240501};

/* Steps of two checkpoints in different epochs. NEW is in the middle of an epoch and of an
 * accumulation. */
enum { OLD = 15, NEW = 55 };

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- the run, in a child process -------------------------------------------------------------- */

typedef struct run {
    const char *folder, *result;
} run;

static int start_run(void *user) {
    const run *r = user;
    execl("/proc/self/exe", "test_kill", "--train", r->folder, r->result, page_path, (char *)NULL);
    return 127;
}

/* Whether the files RESULT (or RESULT.txt) of both runs are equal. */
static bool same_results(const char *suffix) {
    char path[500];
    size_t sizes[2] = {0, 0};
    snprintf(path, sizeof path, "%s%s", expected, suffix);
    char *a = file_read(path, &sizes[0]);
    snprintf(path, sizeof path, "%s%s", result, suffix);
    char *b = file_read(path, &sizes[1]);
    const bool same = a && b && sizes[0] == sizes[1] && memcmp(a, b, sizes[0]) == 0;
    free(a);
    free(b);
    return same;
}

static bool copy_file(const char *from, const char *to, const char *name) {
    char path[500];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", from, name);
    char *data = file_read(path, &bytes);
    snprintf(path, sizeof path, "%s/%s", to, name);
    if (data) file_write(path, data, bytes);
    free(data);
    return data != NULL;
}

/* Copies a checkpoint and the best one from a folder to another. */
static bool copy_step(const char *from, const char *to, int step) {
    char name[40];
    snprintf(name, sizeof name, "step-%08d.safetensors", step);
    return copy_file(from, to, name) & copy_file(from, to, "best.safetensors");
}

/* Prepares a killed run; the first call also executes the complete run, twice. */
static bool begin_run(void) {
    if (!page) {
        folder = temp_path("run");
        result = temp_path("result.safetensors");
        complete_folder = temp_path("complete");
        expected = temp_path("expected.safetensors");
        page_path = temp_path("page");
        page = killed_page_open(page_path);
        if (!page) abort();
        CHECK(child_run(start_run, &(run){complete_folder, expected}) == 0);
        complete_steps = page->step;
        CHECK_SAYING(page->resumed == -1 && page->warnings == 0 && complete_steps > 30,
                     "%" PRId64 " steps, %s", complete_steps, page->warning);
        /* the first run may compile kernels, which later ones find in the cache */
        const double from = seconds_now();
        CHECK(child_run(start_run, &(run){folder, result}) == 0);
        complete_seconds = seconds_now() - from;
        CHECK(same_results("") && same_results(".txt"));
    }
    folder_remove(folder);
    page->step = page->warnings = page->die_at = 0;
    page->resumed = page->stopped = -1;
    return test_failures == 0;
}

static void check_result(const char *how) {
    CHECK_SAYING(same_results(""), "%s: the weights differ", how);
    CHECK_SAYING(same_results(".txt"), "%s: the history differs", how);
    CHECK_SAYING(page->step == complete_steps, "%s: %" PRId64 " steps", how, page->step);
    CHECK_SAYING(folder_count(folder) <= 4, "%s: %d files in the folder", how,
                 folder_count(folder));
}

/* --- chains of killed processes --------------------------------------------------------------- */

/* Runs one process of a chain and ends it; true: it was killed. */
typedef bool (*end_process_fn)(int number, int *status);

typedef struct chain {
    int64_t reached; /* the last step of the processes so far */
    int64_t resumed; /* the step of the latest resume */
    int kills, runs; /* killed processes, completed runs */
    int most_lost;   /* the most steps that a kill has lost */
} chain;

/* After a process has ended: it resumed at most one checkpoint interval before the last kill. */
static void check_resumed(chain *c, const char *how) {
    const int64_t from = page->resumed;
    CHECK_SAYING(page->warnings == 0, "%s: %s", how, page->warning);
    page->warnings = 0;
    if (from >= 0) {
        CHECK_SAYING(from <= c->reached && from >= c->reached - KILLED_EVERY_STEPS &&
                         from >= c->resumed,
                     "%s: resumed from %" PRId64 ", killed at %" PRId64, how, from, c->reached);
        if ((int)(c->reached - from) > c->most_lost) c->most_lost = (int)(c->reached - from);
        c->resumed = from;
    } else if (page->step != c->reached) { /* it has trained from the start */
        CHECK_SAYING(c->reached <= KILLED_EVERY_STEPS && c->resumed == 0,
                     "%s: started from step 0, killed at %" PRId64, how, c->reached);
    }
    c->reached = page->step;
    page->resumed = -1;
}

static void kill_repeatedly(int kills, end_process_fn end, const char *how) {
    if (!begin_run()) return;
    chain c = {0};
    while (c.kills < kills && test_failures < 5) {
        int status = 0;
        const bool killed = end(c.kills, &status);
        c.kills += killed;
        check_resumed(&c, how);
        if (killed) continue;
        CHECK_SAYING(status == 0, "%s: the run failed after %d kills", how, c.kills);
        check_result(how);
        c.runs++;
        c = (chain){.kills = c.kills, .runs = c.runs, .most_lost = c.most_lost};
        folder_remove(folder);
        page->step = 0;
    }
    CHECK(child_run(start_run, &(run){folder, result}) == 0);
    check_resumed(&c, how);
    check_result(how);
    printf("%s: %d kills, %d complete runs, at most %d steps lost\n", how, c.kills, c.runs + 1,
           c.most_lost);
}

static int kills_of(int few, int many) { return getenv("GRADUS_TEST_FULL") ? many : few; }

/* --- ways to end a process -------------------------------------------------------------------- */

static bool kill_at_any_time(int number, int *status) {
    (void)number;
    const long long longest = (long long)(1.1e9 * complete_seconds);
    *status = child_signal_after(draw_between(&stream, 0, longest), SIGKILL, start_run,
                                 &(run){folder, result});
    return *status == -1;
}

TEST(a_run_that_is_killed_at_any_time_ends_with_the_same_bits) {
    kill_repeatedly(kills_of(6, 200), kill_at_any_time, "kill -9 at any time");
}

static const long writing_calls[] = {
    SYS_write,     SYS_pwrite64, SYS_fsync,
#ifdef SYS_rename
    SYS_rename,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
    SYS_renameat2,
#ifdef SYS_unlink
    SYS_unlink,
#endif
    SYS_unlinkat,
#ifdef SYS_mkdir
    SYS_mkdir,
#endif
    SYS_mkdirat,
};
enum { CALLS = sizeof writing_calls / sizeof *writing_calls };

/* The calls at which processes are killed. With the net on a device the folder of compiled kernels
 * is created many times, so mkdir and mkdirat, which come last in the list, are left out. */
static int count_calls(void) {
    int count = CALLS;
    while (getenv("GRADUS_KILL_DEVICE") && writing_calls[count - 1] != SYS_unlinkat) count--;
    return count;
}
static bool cannot_trace;
static int kills_at_call[2][1000]; /* kills at each call: at its entry, at its exit */

/* Kills the n-th process of a chain at its stop n + 1. A checkpoint has 12 to 14 stops. */
static bool kill_at_calls(int number, int *status) {
    const kill_plan plan = {.stop = number + 1, .calls = writing_calls, .n_calls = count_calls()};
    const child_end end = child_kill_at(plan, start_run, &(run){folder, result});
    *status = end.status;
    cannot_trace |= !end.traced;
    if (end.killed && end.call >= 0 && end.call < 1000) kills_at_call[!end.before][end.call]++;
    return end.killed || cannot_trace;
}

/* For each stop of the run: kills it there, then completes it. */
static void kill_at_every_call(void) {
    int status = 0, stop = 0;
    for (; begin_run() && kill_at_calls(stop, &status) && !cannot_trace; stop++) {
        chain c = {0};
        check_resumed(&c, "at each call");
        CHECK(child_run(start_run, &(run){folder, result}) == 0);
        check_resumed(&c, "at each call");
        check_result("at each call");
    }
    CHECK(status == 0);
    printf("kill -9 at each of %d stops\n", stop);
}

TEST(a_run_that_is_killed_before_and_after_writes_and_renames_ends_with_the_same_bits) {
    kill_repeatedly(14, kill_at_calls, "kill -9 at system calls");
    if (getenv("GRADUS_TEST_FULL")) kill_at_every_call();
    if (cannot_trace) SKIP("processes cannot be traced here");
    for (int after = 0; after < 2; after++) {
        int renames = kills_at_call[after][SYS_renameat2];
#ifdef SYS_rename
        renames += kills_at_call[after][SYS_rename];
#endif
#ifdef SYS_renameat
        renames += kills_at_call[after][SYS_renameat];
#endif
        CHECK_SAYING(renames && kills_at_call[after][SYS_pwrite64] &&
                         kills_at_call[after][SYS_fsync],
                     "%d %d %d", renames, kills_at_call[after][SYS_pwrite64],
                     kills_at_call[after][SYS_fsync]);
    }
}

/* After SIGTERM the run stops after its batch and saves a checkpoint. No step is lost. */
static int64_t stopped_at = -1;
static int stops;

static bool stop_by_sigterm(int number, int *status) {
    (void)number;
    page->stopped = -1;
    const long long longest = (long long)(1.1e9 * complete_seconds);
    *status = child_signal_after(draw_between(&stream, 0, longest), SIGTERM, start_run,
                                 &(run){folder, result});
    if (stopped_at >= 0 && page->resumed >= 0) {
        CHECK_SAYING(page->resumed == stopped_at, "resumed from %" PRId64 ", stopped at %" PRId64,
                     page->resumed, stopped_at);
        stopped_at = -1;
    }
    if (page->stopped > 0) stopped_at = page->stopped; /* step 0 has no checkpoint */
    stops += page->stopped >= 0;
    return page->stopped >= 0 || *status == -1; /* -1: before the run installed its handler */
}

TEST(a_run_that_is_stopped_by_sigterm_resumes_where_it_stopped) {
    stopped_at = -1;
    kill_repeatedly(kills_of(6, 40), stop_by_sigterm, "SIGTERM");
    CHECK_SAYING(stops > 0, "no signal arrived during training");
}

/* --- every part of a checkpoint is needed ----------------------------------------------------- */

static int mix_child(void *part) {
    char into[500], from[500];
    snprintf(into, sizeof into, "%s/step-%08d.safetensors", folder, NEW);
    snprintf(from, sizeof from, "%s/step-%08d.safetensors", complete_folder, OLD);
    return mix_part(into, from, part) > 0 ? 0 : 1;
}

/* Kills a run after the checkpoints OLD and NEW and copies both to the folder of the complete
 * run. */
static void save_old_and_new(void) {
    static const int steps[] = {OLD, NEW};
    for (int i = 0; i < 2; i++) {
        page->die_at = steps[i] + 1;
        CHECK(child_run(start_run, &(run){folder, result}) == -1);
        CHECK(copy_step(folder, complete_folder, steps[i]));
    }
    page->die_at = 0;
}

/* Resumes a run from NEW with one part of OLD. */
static void run_mixed(const char *part, int *status) {
    folder_remove(folder);
    mkdir(folder, 0777);
    CHECK(copy_step(complete_folder, folder, NEW));
    if (*part)
        CHECK_SAYING(child_run(mix_child, (void *)part) == 0, "%s is the same in both checkpoints",
                     part);
    *status = child_run(start_run, &(run){folder, result});
    CHECK(page->resumed == NEW);
}

TEST(a_run_that_is_resumed_with_an_older_part_differs) {
    static const char *const parts[] = {"net",
                                        "optimizer",
                                        "schedule",
                                        "generator",
                                        "loader",
                                        "metric.0.accuracy",
                                        "history",
                                        "callback.checkpoint",
                                        "run",
                                        "callback.counter",
                                        "callback.early_stopping",
                                        "net.1.running_mean",
                                        "run.loss_sum",
                                        "run.0.weight.grad"};
    int status;
    if (!begin_run()) return;
    save_old_and_new();
    run_mixed("", &status);
    CHECK(status == 0);
    check_result("resumed with all parts");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        run_mixed(parts[i], &status);
        CHECK_SAYING(status == 0, "%s", parts[i]);
        CHECK_SAYING(!same_results("") || !same_results(".txt"),
                     "an older %s does not change the result", parts[i]);
    }
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--train") == 0) {
        killed_page *own = killed_page_open(argv[4]);
        return own ? killed_run(argv[2], argv[3], own) : 2;
    }
    return test_run_all(argc, argv);
}
