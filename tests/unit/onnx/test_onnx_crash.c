/* test_onnx_crash.c - a model and its external data are consistent at any moment: a process killed
 * while it saves, or a full disk, leaves the complete old model or the complete new one.
 *
 * This process only forks: its children save and load.
 */
#define _GNU_SOURCE 1
#include <signal.h>
#include <sys/resource.h>

#include "child.h"
#include "draw.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static const char *folder, *path;

static void begin_test(void) {
    folder = temp_new_folder("models");
    path = temp_path("models/net.onnx");
}

/* y = x * w + mean(large), all weights are `value`. w is in the model file, `large` in the external
 * data. */
static gd_status save_model(double value, bool external) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(4), .name = "x");
        gd_tensor *w = gd_variable(gd_full(gd_dims(4), value), .name = "w");
        gd_tensor *large = gd_variable(gd_full(gd_dims(3000, 4), value), .name = "large");
        y = gd_named(gd_add(gd_mul(x, w), gd_mean(large, .axis = 0)), "y");
    }
    gd_session *s = gd_session_new(g);
    return gd_onnx_save(path, s, gd_list(x), gd_list(y),
                        .external_above = external ? 1000 : 1 << 26);
}

/* Returns the value of all weights; -1: loading failed, -2: the weights differ. */
static double load_model(void) {
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(path);
    if (!g) {
        fprintf(stderr, "%s\n", gd_error_message());
        return -1;
    }
    gd_session *s = gd_session_new(g);
    gd_tensors r = gd_session_run(s, gd_feed(gd_graph_find(g, "x"), gd_ones(gd_dims(4))),
                                  gd_list(gd_graph_find(g, "y"), gd_graph_find(g, "w")));
    if (gd_failed()) return -1;
    const double y = gd_item(gd_min(r.at[0])), w = gd_item(gd_min(r.at[1]));
    return y == 2 * w ? w : -2;
}

typedef struct saving {
    double value;
    bool external;
} saving;
static int save_child(void *user) {
    const saving *s = user;
    return save_model(s->value, s->external);
}
static int save_forever(void *user) {
    (void)user;
    for (int v = 1;; v = v % 90 + 1)
        if (save_model(v, v % 3 != 0) != GD_OK) return 1;
}
static int load_child(void *user) {
    (void)user;
    return (int)load_model() + 2;
}
static int save_in_child(double value, bool external) {
    return child_run(save_child, &(saving){value, external});
}
static int load_in_child(void) { return child_run(load_child, NULL) - 2; }

/* The last save leaves only the model and its data, or only the model. */
static void check_no_garbage(bool external) {
    CHECK(save_in_child(external ? 9 : 8, external) == GD_OK &&
          load_in_child() == (external ? 9 : 8));
    CHECK_SAYING(folder_count(folder) == (external ? 2 : 1), "%d files", folder_count(folder));
}

/* --- killed at every system call -------------------------------------------------------------- */

/* There are two stops for each system call: at its entry and at its exit. */
static void kill_at_every_call(bool external) {
    begin_test();
    child_end end = {.traced = true, .killed = true};
    int old = 0, new = 0;
    for (int k = 0; end.killed && end.traced; k++) {
        CHECK(save_in_child(1, true) == GD_OK);
        end = child_kill_at((kill_plan){.stop = k}, save_child, &(saving){2, external});
        CHECK(end.killed || !end.traced || end.status == GD_OK);
        const int value = load_in_child();
        CHECK_SAYING(value == 1 || value == 2, "killed at stop %d: %d", k, value);
        CHECK(end.killed || !end.traced || value == 2);
        old += value == 1;
        new += value == 2;
        if (test_failures > 10) break;
    }
    if (!end.traced) SKIP("processes cannot be traced here");
    CHECK_SAYING(old > 10 && new > 10, "%d times the old model, %d times the new one", old, new);
    check_no_garbage(external);
}

TEST(a_save_killed_at_any_system_call_leaves_one_complete_model) { kill_at_every_call(true); }
TEST(a_killed_save_without_external_data_keeps_or_replaces_a_model_with_external_data) {
    kill_at_every_call(false);
}

/* --- killed at a random time ------------------------------------------------------------------ */

TEST(processes_killed_while_saving_leave_consistent_models_and_no_garbage) {
    begin_test();
    draws d = {12345};
    CHECK(save_in_child(1, true) == GD_OK);
    for (int i = 0; i < 80 && test_failures < 5; i++) {
        const long long moment = 500000 + draw_below(&d, 12000000); /* ns */
        CHECK(child_signal_after(moment, SIGKILL, save_forever, NULL) == -1);
        const int value = load_in_child();
        CHECK_SAYING(value > 0, "after kill %d: %d", i, value);
        CHECK_SAYING(folder_count(folder) <= 6, "%d files accumulate", folder_count(folder));
    }
    check_no_garbage(false);
}

/* --- several processes ------------------------------------------------------------------------ */

static int save_forty(void *number) {
    for (int v = 1; v <= 40; v++)
        if (save_model(v % 90 + 1 + *(int *)number, true) != GD_OK) {
            fprintf(stderr, "%s\n", gd_error_message());
            return 1;
        }
    return 0;
}

TEST(several_processes_that_save_to_one_path_do_not_mix_their_files) {
    begin_test();
    CHECK(save_in_child(1, true) == GD_OK);
    pid_t children[4];
    for (int i = 0; i < 4; i++) children[i] = child_start(save_forty, &i);
    for (int i = 0; i < 30; i++) { /* reads at the same time */
        const int value = load_in_child();
        CHECK_SAYING(value > 0, "%d", value);
    }
    for (int i = 0; i < 4; i++) CHECK(child_wait(children[i]) == 0);
    check_no_garbage(true);
}

/* --- a full disk ------------------------------------------------------------------------------ */

/* A limit on the file size simulates a full disk. */
static int save_with_limit(void *limit) {
    const struct rlimit small = {*(rlim_t *)limit, *(rlim_t *)limit};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    return save_model(2, true) == GD_E_IO ? 1 : 0;
}

TEST(a_full_disk_leaves_the_old_model_and_its_data) {
    begin_test();
    CHECK(save_in_child(1, true) == GD_OK);
    int failed = 0;
    for (rlim_t limit = 0; limit < 60000; limit += limit < 2000 ? 200 : 10000) {
        const int full = child_run(save_with_limit, &limit), value = load_in_child();
        CHECK_SAYING(value == (full == 1 ? 1 : 2), "limit %ld: %d", (long)limit, value);
        CHECK_SAYING(folder_count(folder) == 2, "%d files: the model and its data",
                     folder_count(folder));
        failed += full == 1;
        if (full != 1) CHECK(save_in_child(1, true) == GD_OK);
    }
    CHECK_SAYING(failed > 5, "%d saves failed", failed);
}

TEST_MAIN
