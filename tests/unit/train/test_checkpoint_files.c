/* test_checkpoint_files.c - a folder of checkpoints: which one is restored, which ones are kept. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "fault_walk.h"
#include "files.h"
#include "format/file.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "train/checkpoint_files.h"
#include "train/fit.h"

static const char *folder;

static void begin_test(void) {
    folder = temp_new_folder("checkpoints");
    capture_log(GD_LOG_DEBUG);
}

static const char *in_folder(const char *name) { return temp_path("checkpoints/%s", name); }

static void save_file(const char *name, double value) {
    GD_SCOPE;
    CHECK(gd_save_state_with(in_folder(name), gd_parts(gd_part("w", gd_full(gd_dims(4), value))),
                             .checksum = true) == GD_OK);
}

static void save_step(int64_t step) {
    char *path = gd_checkpoint_path(folder, step);
    save_file(strrchr(path, '/') + 1, (double)step);
    gd_free(path);
}

static bool is_there(const char *name) { return file_exists(in_folder(name)); }

/* Restores the folder and returns the step; -1: no checkpoint, -2: failure. */
static int64_t restore_step(void) {
    GD_SCOPE;
    gd_tensor *w = gd_zeros(gd_dims(4));
    gd_restored r;
    const gd_state_part part = {"w", w};
    const gd_status status = gd_checkpoint_restore(folder, (gd_state_parts){&part, 1}, &r);
    const double value = gd_item(gd_max(w));
    CHECK(!gd_failed());
    if (status != GD_OK || !r.found) {
        CHECK(value == 0); /* unchanged */
        return status == GD_OK ? -1 : -2;
    }
    CHECK(value == (double)r.step && strstr(r.path, folder));
    return r.step;
}

/* --- resuming --------------------------------------------------------------------------------- */

CLEAN_TEST(the_newest_checkpoint_is_restored_and_logged) {
    begin_test();
    CHECK(restore_step() == -1);
    save_step(9);
    save_step(12);
    save_step(134217728);
    save_file("best.safetensors", 5);
    save_file("step-3.safetensors", 5); /* not the name of a checkpoint */
    CHECK(restore_step() == 134217728);
    CHECK_SAYING(captured.infos == 1 && captured.warnings == 0 &&
                     strstr(captured.text, "resumed from step 134217728: ") &&
                     strstr(captured.text, "step-134217728.safetensors"),
                 "%s", captured.text);
    end_log_capture();
}

CLEAN_TEST(a_missing_folder_has_no_checkpoint) {
    begin_test();
    folder_remove(folder);
    CHECK(restore_step() == -1 && captured.infos + captured.warnings == 0);
    file_write_text(folder, "");
    CHECK(restore_step() == -2); /* the path is a file */
    end_log_capture();
}

static void flip_bit(const char *path) {
    const int fd = open(path, O_RDWR);
    char c;
    CHECK(pread(fd, &c, 1, lseek(fd, -3, SEEK_END)) == 1);
    c ^= 4;
    CHECK(pwrite(fd, &c, 1, lseek(fd, -3, SEEK_END)) == 1);
    close(fd);
}
static void cut_file(const char *path) { CHECK(truncate(path, 200) == 0); }
static void clear_file(const char *path) { CHECK(truncate(path, 0) == 0); }
static void replace_by_folder(const char *path) {
    unlink(path);
    mkdir(path, 0777);
}
static void save_without_checksum(const char *path) {
    GD_SCOPE;
    CHECK(gd_save_state(path, gd_part("w", gd_full(gd_dims(4), 9))) == GD_OK);
}

CLEAN_TEST(a_damaged_checkpoint_is_skipped_and_logged_with_the_reason) {
    static const struct {
        void (*damage)(const char *path);
        const char *reason;
    } ways[] = {{flip_bit, "is damaged: its checksum is"},
                {cut_file, "truncated?"},
                {clear_file, "is an empty file (0 bytes)"},
                {replace_by_folder, "is a folder, not a regular file"},
                {save_without_checksum, "has no checksum"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        begin_test();
        save_step(3);
        save_step(6);
        save_step(9);
        ways[i].damage(in_folder("step-00000009.safetensors"));
        CHECK(restore_step() == 6);
        CHECK_SAYING(captured.warnings == 1 && strstr(captured.text, "step-00000009.safetensors") &&
                         strstr(captured.text, ways[i].reason) &&
                         strstr(captured.text, "resumed from step 6"),
                     "%s: %s", ways[i].reason, captured.text);
        ways[i].damage(in_folder("step-00000006.safetensors"));
        CHECK(restore_step() == 3 && captured.warnings == 3);
        ways[i].damage(in_folder("step-00000003.safetensors"));
        CHECK(restore_step() == -2);
        CHECK_SAYING(strstr(gd_latest_failure(),
                            "cannot resume: all 3 checkpoints are damaged; the newest: ") &&
                         strstr(gd_latest_failure(), "step-00000009.safetensors") &&
                         strstr(gd_latest_failure(), ways[i].reason),
                     "%s", gd_latest_failure());
        end_log_capture();
    }
}

CLEAN_TEST(a_checkpoint_of_another_net_is_a_failure) {
    GD_SCOPE;
    begin_test();
    save_step(3);
    save_step(6);
    gd_tensor *other = gd_zeros(gd_dims(5)), *w = gd_zeros(gd_dims(4));
    gd_restored r;
    const gd_state_part shape = {"w", other}, name = {"v", w};
    CHECK(gd_checkpoint_restore(folder, (gd_state_parts){&shape, 1}, &r) != GD_OK && !r.found);
    CHECK_SAYING(strstr(gd_latest_failure(), "step-00000006.safetensors") &&
                     strstr(gd_latest_failure(), "f32[4], f32[5] here"),
                 "%s", gd_latest_failure());
    CHECK(gd_checkpoint_restore(folder, (gd_state_parts){&name, 1}, &r) != GD_OK && !r.found);
    CHECK(captured.warnings == 0 && captured.infos == 0);
    end_log_capture();
}

CLEAN_TEST(a_failed_allocation_is_a_status_and_skips_no_checkpoint) {
    GD_SCOPE;
    begin_test();
    save_step(3);
    save_step(6);
    gd_tensor *w = gd_zeros(gd_dims(4));
    const gd_state_part part = {"w", w};
    gd_restored r;
    fault_walk faults = {.what = "restoring"};
    while (fault_next(&faults)) {
        fault_begin(&faults);
        const gd_status status = gd_checkpoint_restore(folder, (gd_state_parts){&part, 1}, &r);
        fault_end(&faults);
        CHECK(!gd_failed());
        CHECK_FAULT(&faults, status);
        CHECK_ROUND(&faults, r.found == (status == GD_OK) && captured.warnings == 0);
    }
    CHECK(faults.failures > 5 && r.step == 6);
    end_log_capture();
}

/* --- which ones are kept ---------------------------------------------------------------------- */

TEST(the_newest_checkpoints_up_to_a_step_are_kept) {
    begin_test();
    for (int64_t s = 1; s <= 7; s++) save_step(s);
    save_file("best.safetensors", 1);
    save_file("step-00000001.safetensors.old", 1);
    gd_checkpoint_prune(folder, 6, 0);
    CHECK(folder_count(folder) == 9);
    gd_checkpoint_prune(folder, 6, 3);
    CHECK(folder_count(folder) == 6 && is_there("step-00000007.safetensors"));
    gd_checkpoint_remove_later(folder, 5, 6);
    CHECK(folder_count(folder) == 5 && is_there("step-00000006.safetensors") &&
          is_there("step-00000005.safetensors") && is_there("step-00000004.safetensors"));
    gd_checkpoint_prune(folder, 6, 1);
    CHECK(folder_count(folder) == 3 && is_there("step-00000006.safetensors"));
    end_log_capture();
}

TEST(files_of_killed_writers_are_removed_and_those_of_live_ones_kept) {
    static const char *const left[] = {"step-00000004.safetensors.tmp-1",
                                       "step-123456789.safetensors.tmp-77-1",
                                       "best.safetensors.tmp-2"};
    static const char *const others[] = {"step-00000004.safetensors", "step-4.safetensors.tmp-1",
                                         "notes.tmp-1"};
    gd_file_writer *writer;
    begin_test();
    for (int i = 0; i < 3; i++) save_file(left[i], 1), save_file(others[i], 1);
    CHECK(gd_file_writer_begin(&writer, in_folder("step-00000008.safetensors")) == GD_OK);
    gd_checkpoint_sweep(folder);
    for (int i = 0; i < 3; i++) CHECK(!is_there(left[i]) && is_there(others[i]));
    CHECK(is_there("step-00000008.safetensors.tmp-1"));
    gd_file_writer_cancel(writer);
    end_log_capture();
}

TEST(checkpoints_of_an_earlier_run_are_set_aside_once) {
    int moved;
    char name[32];
    begin_test();
    for (int round = 1; round <= 2; round++) {
        for (int s = 1; s <= round + 1; s++) save_step(10 * round + s);
        if (round == 1) save_file("best.safetensors", 1);
        CHECK_SAYING(gd_checkpoint_set_aside(folder, true, &moved, name) == GD_OK, "%s",
                     gd_latest_failure());
        CHECK(moved == round + 1 && folder_count(folder) == 1 && strcmp(name, "previous") == 0);
        CHECK_SAYING(folder_count(in_folder("previous")) == 3, "%d",
                     folder_count(in_folder("previous")));
    }
    CHECK(is_there("previous/step-00000023.safetensors") && !is_there("previous/best.safetensors"));
    end_log_capture();
}

TEST(parent_folders_are_created) {
    begin_test();
    CHECK(gd_checkpoint_make_folder(in_folder("a//b/c/")) == GD_OK && is_there("a/b/c"));
    CHECK(gd_checkpoint_make_folder(in_folder("a/b/c")) == GD_OK);
    CHECK(gd_checkpoint_make_folder("") == GD_OK && gd_checkpoint_make_folder(".") == GD_OK);
    save_file("file", 1);
    CHECK(gd_checkpoint_make_folder(in_folder("file")) == GD_E_IO);
    CHECK_SAYING(strstr(gd_latest_failure(), "/file: cannot create the folder: "), "%s",
                 gd_latest_failure());
    CHECK(gd_checkpoint_make_folder(in_folder("file/x")) == GD_E_IO);
    end_log_capture();
}

TEST_MAIN
