/* test_state_crash.c - a state on disk is the old one or the new one, never a mixture: a process
 * killed while it saves, several processes that save at once, and a full disk leave files that can
 * be loaded.
 *
 * This process only forks: its children save and load.
 */
#define _GNU_SOURCE 1
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "child.h"
#include "draw.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static const char *folder, *path;
static bool sharded;

static void begin_test(bool with_shards) {
    sharded = with_shards;
    folder = temp_new_folder("states");
    path = temp_path("states/net.safetensors%s", with_shards ? ".index.json" : "");
}

/* Saves three tensors of `value`; in three shards if it is 1, 2 or even, else in two. */
static gd_status save_state(double value) {
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

/* Returns the value of all elements; -1: loading failed, -2: a mixture. */
static int load_state(void) {
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

static int save_value(void *value) { return save_state(*(double *)value); }
static int save_forever(void *user) {
    (void)user;
    for (int v = 1;; v = v % 90 + 1)
        if (save_state(v) != GD_OK) return 1;
}
static int load_value(void *user) {
    (void)user;
    return load_state() + 2;
}
static int save_in_child(double value) { return child_run(save_value, &value); }
static int load_in_child(void) { return child_run(load_value, NULL) - 2; }

static void check_no_garbage(void) {
    CHECK(save_in_child(9) == GD_OK && load_in_child() == 9);
    CHECK_SAYING(folder_count(folder) == (sharded ? 3 : 1), "%d files", folder_count(folder));
    folder_clear(folder);
    CHECK(rmdir(folder) == 0);
}

/* --- killed at every system call -------------------------------------------------------------- */

static void kill_at_every_call(bool with_shards) {
    begin_test(with_shards);
    child_end end = {.traced = true, .killed = true};
    int old = 0, new = 0;
    for (int k = 0; end.killed && end.traced; k++) {
        CHECK(save_in_child(1) == GD_OK);
        end = child_kill_at((kill_plan){.stop = k}, save_value, &(double){2});
        CHECK(end.killed || !end.traced || end.status == GD_OK);
        const int value = load_in_child();
        CHECK_SAYING(value == 1 || value == 2, "killed at stop %d: %d", k, value);
        CHECK(end.killed || !end.traced || value == 2);
        old += value == 1;
        new += value == 2;
        if (test_failures > 10) break;
    }
    if (!end.traced) SKIP("processes cannot be traced here");
    CHECK_SAYING(old > 10 && new > 3, "%d times the old state, %d times the new one", old, new);
    check_no_garbage();
}

TEST(a_save_killed_at_any_system_call_leaves_the_old_or_the_new_state) {
    kill_at_every_call(false);
}
TEST(a_sharded_save_killed_at_any_system_call_leaves_the_old_or_the_new_shards) {
    kill_at_every_call(true);
}

TEST(killed_sharded_saves_leave_no_garbage) {
    begin_test(true);
    draws d = {12345};
    CHECK(save_in_child(1) == GD_OK);
    for (int i = 0; i < 40 && test_failures < 5; i++) {
        const long long moment = 500000 + draw_below(&d, 12000000); /* ns */
        CHECK(child_signal_after(moment, SIGKILL, save_forever, NULL) == -1);
        const int value = load_in_child();
        CHECK_SAYING(value > 0, "after kill %d: %d", i, value);
        /* on a busy machine several saves in a row are killed before they can clean up */
        CHECK_SAYING(folder_count(folder) <= 60, "%d files accumulate", folder_count(folder));
    }
    check_no_garbage();
}

/* --- several processes ------------------------------------------------------------------------ */

static int save_fifteen(void *number) {
    for (int v = 1; v <= 15; v++)
        if (save_state(v % 90 + 1 + *(int *)number) != GD_OK) {
            fprintf(stderr, "%s\n", gd_error_message());
            return 1;
        }
    return 0;
}

static void save_concurrently(bool with_shards) {
    begin_test(with_shards);
    CHECK(save_in_child(1) == GD_OK);
    pid_t children[4];
    for (int i = 0; i < 4; i++) children[i] = child_start(save_fifteen, &i);
    for (int i = 0; i < 30; i++) { /* reads at the same time */
        const int value = load_in_child();
        CHECK_SAYING(value > 0, "%d", value);
    }
    for (int i = 0; i < 4; i++) CHECK(child_wait(children[i]) == 0);
    check_no_garbage();
}

TEST(several_processes_that_save_to_one_path_leave_one_state) { save_concurrently(false); }
TEST(several_processes_that_save_shards_to_one_path_leave_one_set) { save_concurrently(true); }

/* --- a full disk ------------------------------------------------------------------------------ */

/* A limit on the file size simulates a full disk. */
static int save_with_limit(void *limit) {
    const struct rlimit small = {*(rlim_t *)limit, *(rlim_t *)limit};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    return save_state(2) == GD_E_IO ? 1 : 0;
}

static void fill_disk(bool with_shards) {
    begin_test(with_shards);
    CHECK(save_in_child(1) == GD_OK);
    int failed = 0;
    for (rlim_t limit = 0; limit < 40000; limit += limit < 2000 ? 400 : 5000) {
        const int full = child_run(save_with_limit, &limit), value = load_in_child();
        CHECK_SAYING(value == (full == 1 ? 1 : 2), "limit %ld: %d", (long)limit, value);
        CHECK_SAYING(folder_count(folder) == (sharded ? 4 : 1), "limit %ld: %d files", (long)limit,
                     folder_count(folder));
        failed += full == 1;
        if (full != 1) CHECK(save_in_child(1) == GD_OK);
    }
    CHECK_SAYING(failed > 5, "%d saves failed", failed);
    check_no_garbage();
}

TEST(a_full_disk_leaves_the_old_state) { fill_disk(false); }
TEST(a_full_disk_leaves_the_old_shards) { fill_disk(true); }

TEST_MAIN
