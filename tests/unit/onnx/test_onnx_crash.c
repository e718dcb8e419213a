/* test_onnx_crash.c - a model and its external data are consistent at any moment: a process killed
 * while it saves, or a full disk, leaves the complete old model or the complete new one.
 */
#include <stdio.h>

#include "crash.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static const char *path;
static bool mixed; /* only models of odd values have external data; otherwise all have it */

static bool is_external(int value) { return !mixed || value % 2 == 1; }

/* y = x * w + mean(large), all weights are `value`. w is in the model file, `large` in the external
 * data. */
static int save_model(int value) {
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
                        .external_above = is_external(value) ? 1000 : 1 << 26);
}

static int load_model(void) {
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
    return y == 2 * w ? (int)w : -2;
}

/* The model, and its data if they are external. */
static int count_files(int value) { return is_external(value) ? 2 : 1; }

static const crash_rules *rules_of(bool with_both_forms) {
    static crash_rules rules = {
        .save = save_model, .load = load_model, .count = count_files, .bytes = 60000};
    mixed = with_both_forms;
    rules.folder = temp_new_folder("models");
    path = temp_path("models/net.onnx");
    return &rules;
}

TEST(a_save_killed_at_any_system_call_leaves_one_complete_model) {
    crash_at_every_call(rules_of(false), 10, 10);
}
TEST(a_killed_save_without_external_data_keeps_or_replaces_a_model_with_external_data) {
    crash_at_every_call(rules_of(true), 10, 10);
}
TEST(processes_killed_while_saving_leave_consistent_models_and_no_garbage) {
    crash_at_any_time(rules_of(true), 80, 6);
}
TEST(several_processes_that_save_to_one_path_do_not_mix_their_files) {
    crash_save_at_once(rules_of(false), 40);
}
TEST(a_full_disk_leaves_the_old_model_and_its_data) { crash_fill_disk(rules_of(false)); }

TEST_MAIN
