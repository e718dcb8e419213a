/* test_checkpoint_faults.c - full and failing disks: training continues, the previous checkpoint is
 * kept, and the user is warned. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clean_test.h"
#include "core/alloc.h"
#include "child.h"
#include "files.h"
#include "gradus/gradus.h"
#include "capture.h"
#include "temp.h"
#include "train/checkpoint_files.h"

/* --- failing system calls --------------------------------------------------------------------- */

/* The library calls these definitions of pwrite, fsync, rename, open and unlink. */
static int faults_left, fault_error, calls_until_fault = -1;
static char calls[200]; /* the first letters of the calls so far */

static bool call_fails(char call) {
    const size_t length = strlen(calls);
    if (length + 1 < sizeof calls) calls[length] = call;
    if (calls_until_fault < 0) return false;
    if (calls_until_fault > 0) {
        calls_until_fault--;
        return false;
    }
    if (--faults_left <= 0) calls_until_fault = -1;
    errno = fault_error;
    return true;
}

/* The disk is full if the folder has more files than this, with the one being written; -1: off. */
static int disk_holds = -1;
static const char *folder;
static int fewest; /* files in the folder during writes, with the one being written */

static bool is_full(void) {
    if (disk_holds < 0) return false;
    const int files = folder_count(folder);
    if (files < fewest) fewest = files;
    errno = ENOSPC;
    return files > disk_holds;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    return is_full() || call_fails('w') ? -1 : syscall(SYS_pwrite64, fd, data, bytes, offset);
}
int fsync(int fd) { return call_fails('f') ? -1 : (int)syscall(SYS_fsync, fd); }
int rename(const char *from, const char *to) {
    return call_fails('r') ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (flags & O_CREAT && strstr(path, ".safetensors") && call_fails('o')) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int unlink(const char *path) {
    const size_t length = strlen(calls);
    if (length + 1 < sizeof calls)
        calls[length] = 'u'; /* removes an old checkpoint, and never fails here */
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* --- a run ------------------------------------------------------------------------------------ */

static int count_good_files(void) {
    int64_t *steps;
    int count, good = 0;
    CHECK(gd_checkpoint_steps(folder, &steps, &count) == GD_OK);
    for (int i = 0; i < count; i++) {
        GD_SCOPE;
        char *path = gd_checkpoint_path(folder, steps[i]);
        good += gd_read_state(path) != NULL;
        gd_clear_error();
        gd_free(path);
    }
    gd_free(steps);
    return good;
}

/* Calls start to fail in the second epoch. One batch later a good checkpoint exists, and no partial
 * file. */
typedef struct fault_plan {
    int call, error, count, keep, others, good; /* others: files that are not step checkpoints */
} fault_plan;

static gd_status batch_end(gd_event *event, void *self) {
    fault_plan *p = self;
    if (event->step == 5) {
        memset(calls, 0, sizeof calls);
        fault_error = p->error;
        faults_left = p->count;
        calls_until_fault = p->call;
    }
    if (event->step == 9) {
        p->good = count_good_files();
        CHECK_SAYING(p->good + p->others == folder_count(folder), "%d good checkpoints, %d files",
                     p->good, folder_count(folder));
    }
    return GD_OK;
}

/* Trains four epochs of four batches. Returns the sum of the weights; NaN: failed. */
static double train_with_faults(fault_plan *p, gd_progress progress) {
    GD_SCOPE;
    capture_log(GD_LOG_WARNING);
    gd_seed(1);
    gd_module *net =
        gd_nn_sequential(gd_nn_linear(3, 4), gd_nn_dropout(.p = 0.2), gd_nn_linear(4, 1));
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "mse");
    gd_tensor *x = gd_randn(gd_dims(16, 3)), *y = gd_randn(gd_dims(16, 1));
    gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 4, .batch = 4, .progress = progress,
                           .callbacks = gd_callbacks(gd_checkpoint(folder, .keep = p->keep),
                                                     gd_callback_from(p, .batch_end = batch_end)));
    calls_until_fault = -1;
    CHECK_SAYING(h && gd_history_rows(h) == 4, "%s", gd_error_message());
    end_log_capture();
    return h ? gd_item(gd_sum(gd_module_parameters(net).at[0])) : 0.0 / 0.0;
}

static void fail_each_call_once(int error, int keep, const char *reason) {
    folder = temp_new_folder("checkpoints");
    fault_plan p = {.call = -1, .keep = keep};
    const double expected = train_with_faults(&p, GD_PROGRESS_NONE);
    CHECK(captured.warnings == 0 && p.good == keep);
    int failed = 0;
    for (int call = 0; call < 60 && test_failures < 5; call++) {
        folder_clear(folder);
        p = (fault_plan){.call = call, .error = error, .count = 1, .keep = keep};
        CHECK(train_with_faults(&p, GD_PROGRESS_NONE) == expected);
        CHECK_SAYING(p.good >= 1, "call %d: %d good checkpoints", call, p.good);
        if (captured.warnings == 0) { /* no call is left to fail */
            CHECK(p.good == keep);
            break;
        }
        failed++;
        CHECK_SAYING(strstr(captured.text, "is not saved, and training continues: ") &&
                         strstr(captured.text, folder) && strstr(captured.text, reason),
                     "call %d: %s", call, captured.text);
        /* when the disk works again, the next interval saves */
        CHECK_SAYING(count_good_files() == keep, "call %d: %d good", call, count_good_files());
        CHECK(folder_count(folder) == count_good_files());
    }
    CHECK_SAYING(failed >= 6, "%d calls failed",
                 failed); /* open, write twice, sync, rename, sync */
}

CLEAN_TEST(training_survives_each_call_failing_once_with_a_full_disk) {
    fail_each_call_once(ENOSPC, 2, "No space left on device");
}
CLEAN_TEST(training_survives_each_call_failing_once_with_an_io_error) {
    fail_each_call_once(EIO, 1, "Input/output error");
}

CLEAN_TEST(training_survives_a_disk_that_stays_full) {
    folder = temp_new_folder("checkpoints");
    fault_plan p = {.call = 0, .error = ENOSPC, .count = 1000000, .keep = 2};
    train_with_faults(&p, GD_PROGRESS_NONE);
    CHECK_SAYING(captured.warnings == 4, "%d warnings",
                 captured.warnings); /* for three epochs, and at the end */
    CHECK(count_good_files() == 1 && folder_count(folder) == 1);
}

CLEAN_TEST(a_checkpoint_is_synced_before_it_is_renamed_and_older_ones_are_removed) {
    folder = temp_new_folder("checkpoints");
    fault_plan p = {.call = -1, .keep = 1};
    train_with_faults(&p, GD_PROGRESS_NONE);
    CHECK_SAYING(strncmp(calls, "owwfrfuowwfrfu", 14) == 0, "%s", calls);
}

/* The learning rate is highest after the second epoch, when saving fails. The best file is then
 * that of the third. */
CLEAN_TEST(a_best_value_whose_checkpoint_failed_does_not_count) {
    GD_SCOPE;
    folder = temp_new_folder("checkpoints");
    fault_plan p = {.call = 0, .error = ENOSPC, .count = 2, .others = 1};
    capture_log(GD_LOG_WARNING);
    gd_module *net = gd_nn_linear(3, 1);
    gd_compile(net, .optimizer = "adam lr=0.01", .schedule = "cosine steps=30 warmup=6",
               .loss = "mse");
    gd_tensor *x = gd_randn(gd_dims(16, 3)), *y = gd_randn(gd_dims(16, 1));
    gd_history *h =
        gd_fit(net, gd_list(x, y), .epochs = 4, .batch = 4, .progress = GD_PROGRESS_NONE,
               .callbacks = gd_callbacks(gd_checkpoint(folder, .best = "lr", .mode = GD_MAX),
                                         gd_callback_from(&p, .batch_end = batch_end)));
    CHECK_SAYING(h && captured.warnings == 2, "%d %s", captured.warnings, gd_error_message());
    const double lr[] = {gd_history_value(h, "lr", 0), gd_history_value(h, "lr", 1),
                         gd_history_value(h, "lr", 2)};
    CHECK_SAYING(lr[0] < lr[2] && lr[2] < lr[1], "%g %g %g", lr[0], lr[1], lr[2]);
    gd_state *s = gd_read_state(temp_path("checkpoints/best.safetensors"));
    const char *best = s ? gd_state_value(s, "callback.checkpoint.best") : NULL;
    CHECK_SAYING(best && strtod(best, NULL) == lr[2], "%s", best ? best : gd_error_message());
    end_log_capture();
}

/* Leaves four checkpoints; then a run that keeps two is resumed on a disk for `holds` files. */
static gd_history *resume_on_full_disk(int holds) {
    gd_history *h = NULL;
    folder = temp_new_folder("checkpoints");
    disk_holds = -1;
    capture_log(GD_LOG_WARNING);
    for (int epochs = 4; epochs <= 6; epochs += 2) {
        gd_seed(1);
        gd_module *net = gd_nn_linear(3, 1);
        gd_compile(net, .optimizer = "adam lr=0.01", .loss = "mse");
        gd_tensor *x = gd_ones(gd_dims(16, 3)), *y = gd_ones(gd_dims(16, 1));
        h = gd_fit(net, gd_list(x, y), .epochs = epochs, .batch = 4, .resume = folder,
                   .progress = GD_PROGRESS_NONE,
                   .callbacks = gd_callbacks(gd_checkpoint(folder, .keep = epochs == 4 ? 0 : 2)));
        if (epochs == 6) break;
        CHECK(folder_count(folder) == 4);
        disk_holds = holds;
        fewest = 100;
    }
    disk_holds = -1;
    end_log_capture();
    return h;
}

CLEAN_TEST(older_checkpoints_beyond_keep_make_room_on_a_full_disk) {
    GD_SCOPE;
    CHECK_SAYING(resume_on_full_disk(3), "%s", gd_error_message());
    CHECK_SAYING(captured.warnings == 0, "%s", captured.text);
    CHECK_SAYING(fewest == 3, "%d", fewest); /* two good ones at any time, and the next */
    CHECK(count_good_files() == 2 && folder_count(folder) == 2);
    CHECK(file_exists(temp_path("checkpoints/step-00000024.safetensors")));
}

CLEAN_TEST(a_full_disk_never_leaves_fewer_checkpoints_than_are_kept) {
    GD_SCOPE;
    CHECK_SAYING(resume_on_full_disk(2), "%s", gd_error_message());
    CHECK_SAYING(captured.warnings > 0, "%d", captured.warnings);
    CHECK_SAYING(fewest == 3, "%d", fewest);
    CHECK(count_good_files() == 2 && folder_count(folder) == 2);
    CHECK(file_exists(temp_path("checkpoints/step-00000016.safetensors")));
}

/* --- messages --------------------------------------------------------------------------------- */

CLEAN_TEST(the_progress_reports_a_checkpoint_that_was_not_saved) {
    folder = temp_new_folder("checkpoints");
    capture_stderr();
    fault_plan p = {.call = 0, .error = ENOSPC, .count = 1, .keep = 2};
    train_with_faults(&p, GD_PROGRESS_LINES);
    char *seen = end_stderr_capture();
    CHECK_SAYING(strstr(seen, "the checkpoint of step 8 is not saved, and training continues: ") &&
                     strstr(seen, "No space left on device"),
                 "%s", seen);
    free(seen);
}

/* --- full disks ------------------------------------------------------------------------------- */

/* Trains with a limit on file sizes. */
static int train_with_limit(void *limit) {
    fault_plan p = {.call = -1};
    file_size_limit(*(long *)limit);
    train_with_faults(&p, GD_PROGRESS_NONE);
    return test_failures || captured.warnings != 5 || folder_count(folder) != 0;
}

TEST(training_survives_a_limit_on_file_sizes) {
    folder = temp_new_folder("checkpoints");
    long limits[] = {0, 100, 1000};
    for (int i = 0; i < 3; i++) CHECK(child_run(train_with_limit, &limits[i]) == 0);
}

static void write_text(const char *path, const char *words) {
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY);
    if (fd < 0) return;
    (void)!write(fd, words, strlen(words));
    close(fd);
}

enum { NO_NAMESPACE = 50, NO_MOUNT, NOT_FULL };

/* Fills the small file system after the first checkpoint, as another program would. */
static gd_status fill_up(gd_event *event, void *self) {
    (void)self;
    const char *path = temp_path("checkpoints/other");
    char block[4096] = {1};
    if (event->step == 5) {
        const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0600);
        while (write(fd, block, sizeof block) > 0) {
        }
        close(fd);
    }
    if (event->step == 13) unlink(path);
    return GD_OK;
}

static int train_on_tmpfs(void *user) {
    (void)user;
    char line[100];
    const unsigned uid = getuid(), gid = getgid();
    if (uid != 0 || unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return NO_NAMESPACE;
        write_text("/proc/self/setgroups", "deny");
        snprintf(line, sizeof line, "0 %u 1", uid), write_text("/proc/self/uid_map", line);
        snprintf(line, sizeof line, "0 %u 1", gid), write_text("/proc/self/gid_map", line);
    }
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mount("none", folder, "tmpfs", 0, "size=64k") != 0) return NO_MOUNT;
    GD_SCOPE;
    capture_log(GD_LOG_WARNING);
    gd_module *net = gd_nn_sequential(gd_nn_linear(3, 4), gd_nn_linear(4, 1));
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "mse");
    gd_tensor *x = gd_randn(gd_dims(16, 3)), *y = gd_randn(gd_dims(16, 1));
    gd_history *h =
        gd_fit(net, gd_list(x, y), .epochs = 5, .batch = 4, .progress = GD_PROGRESS_NONE,
               .callbacks = gd_callbacks(gd_callback_from(NULL, .batch_end = fill_up),
                                         gd_checkpoint(folder, .keep = 0)));
    CHECK_SAYING(h && gd_history_rows(h) == 5, "%s", gd_error_message());
    CHECK_SAYING(captured.warnings == 2 && strstr(captured.text, "No space left on device"),
                 "%d: %s", captured.warnings, captured.text);
    CHECK_SAYING(count_good_files() == 3 && folder_count(folder) == 3, "%d",
                 count_good_files()); /* epochs 1, 4, 5 */
    return test_failures != 0;
}

TEST(training_survives_a_tmpfs_that_is_full_for_two_epochs) {
    folder = temp_new_folder("checkpoints");
    const int status = child_run(train_on_tmpfs, NULL);
    if (status == NO_NAMESPACE) SKIP("this machine does not allow a new namespace");
    if (status == NO_MOUNT) SKIP("this machine does not allow mounting a tmpfs");
    CHECK_SAYING(status == 0, "%d", status);
}

TEST_MAIN
