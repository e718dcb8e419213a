/* test_state_crash.c - a state on disk is the old one or the new one, never a mixture: a process
 * killed while it saves, several processes that save at once, and a full disk leave files that can
 * be loaded.
 */
#include <stdio.h>

#include "crash.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static const char *path;
static bool sharded;

/* Three shards if the value is 1, 2 or even, else two. */
static bool in_three(int value) { return value % 2 == 0 || value < 3; }

/* Saves three tensors of `value`. */
static int save_state(int value) {
    GD_SCOPE;
    gd_tensor *a = gd_full(gd_dims(20, 30), value), *b = gd_full(gd_dims(5000), value),
              *c = gd_full(gd_dims(500), value);
    gd_seed((uint64_t)value);
    const gd_save_state_options options = {.shard_bytes =
                                               sharded ? (in_three(value) ? 4000 : 5000) : 0};
    return gd_save_state_at(
        NULL, path,
        gd_parts(gd_part("a", a), gd_part("c", c), gd_part("b", b), gd_part("rng", gd_generator())),
        &options);
}

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

static int count_files(int value) { return !sharded ? 1 : in_three(value) ? 4 : 3; }

static const crash_rules *rules_of(bool with_shards) {
    static crash_rules rules = {
        .save = save_state, .load = load_state, .count = count_files, .bytes = 40000};
    sharded = with_shards;
    rules.folder = temp_new_folder("states");
    path = temp_path("states/net.safetensors%s", with_shards ? ".index.json" : "");
    return &rules;
}

TEST(a_save_killed_at_any_system_call_leaves_the_old_or_the_new_state) {
    crash_at_every_call(rules_of(false), 10, 3);
}
TEST(a_sharded_save_killed_at_any_system_call_leaves_the_old_or_the_new_shards) {
    crash_at_every_call(rules_of(true), 10, 3);
}

/* On a busy machine several saves in a row are killed before they can clean up. */
TEST(killed_sharded_saves_leave_no_garbage) { crash_at_any_time(rules_of(true), 40, 60); }

TEST(several_processes_that_save_to_one_path_leave_one_state) {
    crash_save_at_once(rules_of(false), 15);
}
TEST(several_processes_that_save_shards_to_one_path_leave_one_set) {
    crash_save_at_once(rules_of(true), 15);
}

TEST(a_full_disk_leaves_the_old_state) { crash_fill_disk(rules_of(false)); }
TEST(a_full_disk_leaves_the_old_shards) { crash_fill_disk(rules_of(true)); }

TEST_MAIN
