/* test_state_crash.c - a state on the disk is the old one or the new one, never a mixture: a
 * process that is killed while it saves, several that save at once, and a full disk leave files
 * that can be loaded.
 *
 * This process only forks: children save, children load.
 */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gradus/gradus.h"
#include "test.h"

static char folder[300], path[400];
static bool sharded;

static void begin(bool with_shards) {
    sharded = with_shards;
    snprintf(folder, sizeof folder, "%s/gradus-state-crash-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/net.safetensors%s", folder, with_shards ? ".index.json" : "");
}

static int files(bool removed) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char name[800];
        if (e->d_name[0] == '.') continue;
        count++;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (removed) unlink(name);
    }
    if (d) closedir(d);
    return count;
}

/* Three tensors of `value`; in three shards if it is 1, 2 or even, else in two. */
static gd_status save(double value) {
    GD_SCOPE;
    gd_tensor *a = gd_full(gd_dims(20, 30), value), *b = gd_full(gd_dims(5000), value),
              *c = gd_full(gd_dims(500), value);
    gd_seed((uint64_t)value);
    const gd_save_state_options options = {
        .shard_bytes = sharded ? ((int)value % 2 == 0 || value < 3 ? 4000 : 5000) : 0};
    return gd_save_state_at(
        NULL, path,
        gd_parts(gd_part("a", a), gd_part("c", c), gd_part("b", b), gd_part("rng", gd_generator())),
        &options);
}

/* The value of everything; -1: it cannot be loaded, -2: a mixture. */
static int load(void) {
    GD_SCOPE;
    gd_tensor *a = gd_zeros(gd_dims(20, 30)), *b = gd_zeros(gd_dims(5000)),
              *c = gd_zeros(gd_dims(500));
    if (gd_load_state(path, gd_part("a", a), gd_part("b", b), gd_part("c", c),
                      gd_part("rng", gd_generator())) != GD_OK) {
        fprintf(stderr, "%s\n", gd_error_message());
        return -1;
    }
    const double value = gd_item(gd_min(a));
    const bool same = value == gd_item(gd_max(a)) && value == gd_item(gd_min(b)) &&
                      value == gd_item(gd_max(b)) && value == gd_item(gd_min(c)) &&
                      value == (double)gd_rng_state().seed;
    return same ? (int)value : -2;
}

static int apart(int (*function)(void)) {
    int state = 0;
    const pid_t child = fork();
    if (child == 0) _exit(function() + 2);
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) - 2 : -100;
}
static int save_1(void) { return save(1); }
static int save_9(void) { return save(9); }

static void leaves_no_garbage(void) {
    CHECK(apart(save_9) == GD_OK && apart(load) == 9);
    CHECK_SAYING(files(false) == (sharded ? 3 : 1), "%d files", files(false));
    files(true);
    CHECK(rmdir(folder) == 0);
}

/* --- killed at every system call ---------------------------------------------------------------
 */

/* Saves 2 and is killed before stop `count`; true: it was done before. */
static bool save_and_die(int count, bool *traced) {
    int state;
    const pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
        raise(SIGSTOP);
        _exit(save(2) == GD_OK ? 0 : 1);
    }
    waitpid(child, &state, 0);
    *traced = WIFSTOPPED(state);
    for (int i = 0; i < count && WIFSTOPPED(state); i++) {
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        waitpid(child, &state, 0);
    }
    if (WIFSTOPPED(state)) {
        kill(child, SIGKILL);
        waitpid(child, &state, 0);
        return false;
    }
    CHECK(!*traced || (WIFEXITED(state) && WEXITSTATUS(state) == 0));
    return true;
}

static void kill_everywhere(bool with_shards) {
    begin(with_shards);
    bool traced = true, done = false;
    int old = 0, new = 0;
    for (int k = 0; !done && traced; k++) {
        CHECK(apart(save_1) == GD_OK);
        done = save_and_die(k, &traced);
        const int value = apart(load);
        CHECK_SAYING(value == 1 || value == 2, "killed at stop %d: %d", k, value);
        CHECK(!done || value == 2);
        old += value == 1;
        new += value == 2;
        if (test_failures > 10) break;
    }
    if (!traced) {
        files(true);
        rmdir(folder);
        SKIP("processes cannot be traced here");
    }
    CHECK_SAYING(old > 10 && new > 3, "%d times the old state, %d times the new one", old, new);
    leaves_no_garbage();
}

TEST(a_save_that_is_killed_at_any_system_call_leaves_the_old_state_or_the_new_one) {
    kill_everywhere(false);
}
TEST(a_save_of_shards_that_is_killed_at_any_system_call_leaves_the_old_set_or_the_new_one) {
    kill_everywhere(true);
}

TEST(saves_of_shards_that_are_killed_at_any_time_leave_no_garbage) {
    begin(true);
    unsigned seed = 12345;
    CHECK(apart(save_1) == GD_OK);
    for (int i = 0; i < 40 && test_failures < 5; i++) {
        const pid_t child = fork();
        if (child == 0)
            for (int v = 1;; v = v % 90 + 1)
                if (save(v) != GD_OK) _exit(1);
        seed = seed * 1103515245 + 12345;
        nanosleep(&(struct timespec){0, 500000 + (seed >> 8) % 12000000}, NULL);
        kill(child, SIGKILL);
        int state;
        waitpid(child, &state, 0);
        CHECK(WIFSIGNALED(state));
        const int value = apart(load);
        CHECK_SAYING(value > 0, "after kill %d: %d", i, value);
        CHECK_SAYING(files(false) <= 12, "%d files pile up", files(false));
    }
    leaves_no_garbage();
}

/* --- several at once ------------------------------------------------------------------------- */

static void several_at_once(bool with_shards) {
    begin(with_shards);
    CHECK(apart(save_1) == GD_OK);
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        for (int v = 1; v <= 15; v++)
            if (save(v % 90 + 1 + i) != GD_OK) {
                fprintf(stderr, "%s\n", gd_error_message());
                _exit(1);
            }
        _exit(0);
    }
    for (int i = 0; i < 30; i++) { /* a reader beside them */
        const int value = apart(load);
        CHECK_SAYING(value > 0, "%d", value);
    }
    for (int i = 0; i < 4; i++) {
        int state;
        waitpid(children[i], &state, 0);
        CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    leaves_no_garbage();
}

TEST(several_processes_that_save_to_one_path_leave_one_state) { several_at_once(false); }
TEST(several_processes_that_save_shards_to_one_path_leave_one_set) { several_at_once(true); }

/* --- a full disk ----------------------------------------------------------------------------- */

static long limit;

/* A limit on the size of files stands for a full disk. */
static int save_with_limit(void) {
    const struct rlimit small = {(rlim_t)limit, (rlim_t)limit};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    return save(2) == GD_E_IO ? 1 : 0;
}

static void fill_disk(bool with_shards) {
    begin(with_shards);
    CHECK(apart(save_1) == GD_OK);
    int failed = 0;
    for (limit = 0; limit < 40000; limit += limit < 2000 ? 400 : 5000) {
        const int full = apart(save_with_limit), value = apart(load);
        CHECK_SAYING(value == (full == 1 ? 1 : 2), "limit %ld: %d", limit, value);
        CHECK_SAYING(files(false) == (sharded ? 4 : 1), "limit %ld: %d files", limit, files(false));
        failed += full == 1;
        if (full != 1) CHECK(apart(save_1) == GD_OK);
    }
    CHECK_SAYING(failed > 5, "%d saves failed", failed);
    leaves_no_garbage();
}

TEST(a_full_disk_leaves_the_old_state) { fill_disk(false); }
TEST(a_full_disk_leaves_the_old_shards) { fill_disk(true); }

TEST_MAIN
