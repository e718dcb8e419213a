/* test_file.c - promises of format/file.h: a file is replaced completely or not at all. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "core/alloc.h"
#include "core/error.h"
#include "fault_walk.h"
#include "files.h"
#include "format/file.h"
#include "temp.h"
#include "test.h"

static const char *folder, *path;

static gd_status put_text(const char *file, const char *text) {
    gd_file_writer *w;
    gd_status status = gd_file_writer_begin(&w, file);
    if (status != GD_OK) return status;
    status = gd_file_writer_write(w, text, strlen(text));
    if (status == GD_OK) return gd_file_writer_commit(w);
    gd_file_writer_cancel(w);
    return status;
}

TEST(commit_replaces_and_cancel_does_not) {
    CHECK(put_text(path, "old") == GD_OK && file_has_text(path, "old"));
    gd_file_writer *w;
    CHECK(gd_file_writer_begin(&w, path) == GD_OK);
    CHECK(gd_file_writer_write(w, "new", 3) == GD_OK);
    CHECK(file_has_text(path, "old"));
    CHECK(folder_count(folder) == 2);
    gd_file_writer_cancel(w);
    CHECK(file_has_text(path, "old"));
    CHECK(put_text(path, "new") == GD_OK && file_has_text(path, "new"));
    CHECK(put_text(path, "") == GD_OK && file_has_text(path, ""));
    gd_file_writer_cancel(NULL);
    CHECK(folder_count(folder) == 1);
}

TEST(large_and_small_writes_keep_their_order) {
    enum { BIG = 200000 };
    uint8_t *data = malloc(BIG), *expected = malloc(4 * BIG);
    for (int i = 0; i < BIG; i++) data[i] = (uint8_t)(i * 7 + i / 256);
    static const size_t sizes[] = {1, 65535, 65536, 65537, 0, 3, 100000, 2, 65536, 10};
    size_t total = 0;
    gd_file_writer *w;
    CHECK(gd_file_writer_begin(&w, path) == GD_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(gd_file_writer_position(w) == total);
        CHECK(gd_file_writer_write(w, data + i, sizes[i]) == GD_OK);
        memcpy(expected + total, data + i, sizes[i]);
        total += sizes[i];
    }
    CHECK(gd_file_writer_write_at(w, 70000, "patch", 5) == GD_OK);
    memcpy(expected + 70000, "patch", 5);
    CHECK(gd_file_writer_write_at(w, total - 3, "end", 3) == GD_OK);
    memcpy(expected + total - 3, "end", 3);
    CHECK(gd_file_writer_write_at(w, total - 2, "end", 3) == GD_E_ARGUMENT);
    CHECK(gd_file_writer_write_at(w, UINT64_MAX, "end", 3) == GD_E_ARGUMENT);
    CHECK(gd_file_writer_commit(w) == GD_OK);
    char *back;
    size_t bytes;
    CHECK(gd_file_read_all(path, &back, &bytes) == GD_OK);
    CHECK(bytes == total && memcmp(back, expected, total) == 0);
    gd_free(back);
    free(data);
    free(expected);
}

TEST(a_full_disk_keeps_the_old_file) {
    CHECK(put_text(path, "precious") == GD_OK);
    file_size_limit(100000);
    char *data = calloc(1, 300000);
    gd_file_writer *w;
    CHECK(gd_file_writer_begin(&w, path) == GD_OK);
    CHECK(gd_file_writer_write(w, data, 300000) == GD_E_IO);
    CHECK(strstr(gd_latest_failure(), path) != NULL);
    CHECK(gd_file_writer_write(w, "x", 1) == GD_E_IO); /* the writer stays failed */
    CHECK(gd_file_writer_commit(w) == GD_E_IO);
    CHECK(gd_file_writer_begin(&w, path) == GD_OK); /* fails only when the buffer is flushed */
    for (int i = 0; i < 3; i++) CHECK(gd_file_writer_write(w, data, 40000) == GD_OK);
    CHECK(gd_file_writer_commit(w) == GD_E_IO);
    file_size_limit(-1);
    free(data);
    CHECK(file_has_text(path, "precious"));
    CHECK(folder_count(folder) == 1);
}

/* A child that starts to write and is killed. */
static int write_and_wait_for_kill(void *user) {
    gd_file_writer *w;
    (void)user;
    if (gd_file_writer_begin(&w, path) != GD_OK) return 1;
    gd_file_writer_write(w, "half", 4);
    return raise(SIGKILL);
}

TEST(files_of_dead_writers_are_removed_and_those_of_live_ones_kept) {
    CHECK(put_text(path, "old") == GD_OK);
    for (int i = 0; i < 3; i++) CHECK(child_run(write_and_wait_for_kill, NULL) == -1);
    CHECK(folder_count(folder) == 2); /* each writer removes the file of the previous one */
    gd_file_writer *a, *b;
    CHECK(gd_file_writer_begin(&a, path) == GD_OK);
    CHECK(gd_file_writer_begin(&b, path) == GD_OK);
    CHECK(child_run(write_and_wait_for_kill, NULL) == -1);
    CHECK(folder_count(folder) == 4); /* the target, two of live writers and one of a dead writer */
    CHECK(gd_file_writer_write(a, "a", 1) == GD_OK && gd_file_writer_write(b, "b", 1) == GD_OK);
    CHECK(gd_file_writer_commit(a) == GD_OK && file_has_text(path, "a"));
    CHECK(gd_file_writer_commit(b) == GD_OK && file_has_text(path, "b"));
    CHECK(put_text(path, "new") == GD_OK && file_has_text(path, "new"));
    CHECK(folder_count(folder) == 1);
}

/* More writers of one file than there are numbered names. */
TEST(many_writers_of_one_file_do_not_conflict) {
    enum { MANY = 40 };
    gd_file_writer *w[MANY];
    CHECK(put_text(path, "old") == GD_OK);
    for (int i = 0; i < MANY; i++) CHECK(gd_file_writer_begin(&w[i], path) == GD_OK);
    CHECK(folder_count(folder) == MANY + 1);
    for (int i = 0; i < MANY; i++) {
        char text[20];
        snprintf(text, sizeof text, "%d", i);
        CHECK(gd_file_writer_write(w[i], text, strlen(text)) == GD_OK);
        CHECK(gd_file_writer_commit(w[i]) == GD_OK && file_has_text(path, text));
    }
    CHECK(folder_count(folder) == 1);
}

static bool is_kept(void *user, const char *name) { return strstr(name, user) != NULL; }

TEST(a_second_file_is_owned_until_the_first_is_committed) {
    const char *stem = temp_path("file.data-"), *name = temp_path("file.data-0123456789abcdef");
    gd_file_writer *w;
    CHECK(put_text(path, "old") == GD_OK && chmod(path, 0600) == 0);
    CHECK(gd_file_writer_begin_beside(&w, path, ".data") == GD_OK);
    CHECK(gd_file_writer_write(w, "data", 4) == GD_OK && !file_exists(name));
    CHECK(gd_file_writer_place(w, name) == GD_OK && file_has_text(name, "data"));
    struct stat info;
    CHECK(stat(name, &info) == 0 && (info.st_mode & 0777) == 0600);
    gd_file_sweep_folder(stem, NULL);
    CHECK(file_has_text(name, "data"));
    CHECK(gd_file_writer_commit(w) == GD_OK && file_has_text(name, "data"));
    gd_file_sweep_folder(stem, &(gd_file_keep){is_kept, "0123456789abcdef"});
    CHECK(file_has_text(name, "data"));
    CHECK(put_text(stem, "another name") == GD_OK);
    gd_file_sweep_folder(stem, NULL);
    CHECK(!file_exists(name) && file_has_text(stem, "another name"));
    unlink(stem);
    CHECK(gd_file_writer_begin_beside(&w, path, ".data") == GD_OK);
    gd_file_writer_cancel(w);
    CHECK(folder_count(folder) == 1 && chmod(path, 0644) == 0);
}

TEST(permissions_and_links_are_preserved) {
    CHECK(put_text(path, "old") == GD_OK);
    CHECK(chmod(path, 0640) == 0);
    CHECK(put_text(path, "new") == GD_OK);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);

    const char *link = temp_path("link");
    CHECK(symlink(path, link) == 0);
    CHECK(put_text(link, "through the link") == GD_OK);
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(file_has_text(path, "through the link"));
    unlink(link);
}

TEST(files_that_cannot_be_opened_are_named) {
    gd_file_reader *r;
    gd_file_writer *w;
    const char *missing = temp_path("no/such");
    CHECK(gd_file_reader_open(&r, missing) == GD_E_IO && r == NULL);
    CHECK(strstr(gd_latest_failure(), missing) != NULL);
    CHECK(gd_file_writer_begin(&w, missing) == GD_E_IO && w == NULL);
    CHECK(strstr(gd_latest_failure(), missing) != NULL);
    CHECK(gd_file_reader_open(&r, folder) == GD_E_IO);
    CHECK(gd_file_writer_begin(&w, folder) == GD_E_IO);
    CHECK(gd_file_writer_begin(&w, "/dev/null") == GD_E_IO); /* must not be replaced by a file */
    CHECK(gd_file_reader_open(&r, "/dev/zero") == GD_E_IO);
}

TEST(reads_are_bounded) {
    CHECK(put_text(path, "0123456789") == GD_OK);
    gd_file_reader *r;
    char buffer[20] = "";
    for (int memory = 0; memory < 2; memory++) {
        if (memory) CHECK(gd_file_reader_open_memory(&r, "m", "0123456789", 10) == GD_OK);
        else CHECK(gd_file_reader_open(&r, path) == GD_OK);
        CHECK(gd_file_reader_size(r) == 10);
        CHECK(strcmp(gd_file_reader_path(r), memory ? "m" : path) == 0);
        CHECK(gd_file_reader_read_at(r, 3, buffer, 4) == GD_OK && memcmp(buffer, "3456", 4) == 0);
        CHECK(gd_file_reader_read_at(r, 10, buffer, 0) == GD_OK);
        CHECK(gd_file_reader_read_at(r, 7, buffer, 4) == GD_E_FORMAT);
        CHECK(gd_file_reader_read_at(r, 11, buffer, 0) == GD_E_FORMAT);
        CHECK(gd_file_reader_read_at(r, UINT64_MAX, buffer, 1) == GD_E_FORMAT);
        CHECK(gd_file_reader_read_at(r, 1, buffer, SIZE_MAX) == GD_E_FORMAT);
        if (!memory) { /* another process truncates it meanwhile */
            CHECK(truncate(path, 5) == 0);
            CHECK(gd_file_reader_read_at(r, 3, buffer, 4) == GD_E_FORMAT);
        }
        gd_file_reader_close(r);
    }
    gd_file_reader_close(NULL);
}

TEST(a_failed_allocation_is_a_status) {
    CHECK(put_text(path, "old") == GD_OK);
    for (fault_walk w = {.what = "writing"}; fault_next(&w);) {
        fault_begin(&w);
        gd_status status = put_text(path, "new");
        fault_end(&w);
        CHECK_FAULT(&w, status);
        /* without memory for the folder's name, the writer only skips syncing the folder */
        CHECK_ROUND(&w, file_has_text(path, status == GD_OK ? "new" : "old"));
    }
    fault_walk w = {.what = "reading"};
    while (fault_next(&w)) {
        char *data;
        size_t bytes;
        fault_begin(&w);
        const gd_status status = gd_file_read_all(path, &data, &bytes);
        fault_end(&w);
        CHECK_ROUND(&w, (status == GD_OK) == (data != NULL));
        CHECK_FAULT(&w, status);
        gd_free(data);
    }
    CHECK(w.failures >= 3);
    CHECK(folder_count(folder) == 1);
}

int main(int argc, char **argv) {
    folder = temp_folder();
    path = temp_path("file");
    return test_run_all(argc, argv);
}
