/* test_lmdb.c - LMDB databases (format/lmdb.h). */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "child.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "draw.h"
#include "fault_walk.h"
#include "files.h"
#include "format/bytes.h"
#include "format/lmdb.h"
#include "fuzz/damage.h"
#include "temp.h"

static bool is_built(void) { return gd_lmdb_is_built(); }

/* Whether the latest failure is of this kind and says this. */
static bool failed_saying(gd_status status, gd_status wanted, const char *text) {
    const bool is = status == wanted && strstr(gd_latest_failure(), text);
    if (!is) fprintf(stderr, "status %d: %s\n", (int)status, gd_latest_failure());
    return is;
}

/* Record i has a value of `size(i)` bytes that follow from i. */
static size_t small_size(int64_t i) { return (size_t)(i * 7 % 50); }
static size_t mixed_size(int64_t i) { return i % 10 == 3 ? 9000 : (size_t)(i * 37 % 700); }

static void fill_value(char *value, int64_t i, size_t bytes) {
    for (size_t k = 0; k < bytes; k++) value[k] = (char)(i * 31 + (int64_t)k * 7);
}

static gd_status put_record(gd_lmdb_writer *w, int64_t i, size_t bytes) {
    char key[40], value[10000];
    snprintf(key, sizeof key, "%08lld", (long long)i);
    fill_value(value, i, bytes);
    return gd_lmdb_put(w, key, strlen(key), value, bytes);
}

static const char *write_database(const char *name, int64_t count, size_t (*size)(int64_t)) {
    gd_lmdb_writer *w;
    const char *folder = temp_new_folder(name);
    CHECK(gd_lmdb_create(&w, folder) == GD_OK);
    for (int64_t i = 0; i < count; i++) CHECK(put_record(w, i, size(i)) == GD_OK);
    CHECK(gd_lmdb_finish(w) == GD_OK);
    return folder;
}

static bool is_record(const gd_lmdb_record *r, int64_t i, size_t bytes) {
    char key[40], value[10000];
    snprintf(key, sizeof key, "%08lld", (long long)i);
    fill_value(value, i, bytes);
    return r->key_bytes == strlen(key) && memcmp(r->key, key, r->key_bytes) == 0 &&
           r->value_bytes == bytes && memcmp(r->value, value, bytes) == 0;
}

CLEAN_TEST(records_are_read_by_their_position_in_any_order) {
    if (!is_built()) SKIP("built without liblmdb");
    enum { COUNT = 3500 };
    gd_lmdb *db;
    gd_lmdb_record r[70];
    const char *folder = write_database("any_order", COUNT, mixed_size);
    draws draw = {5};
    for (int from_start = 0; from_start < 2; from_start++) {
        CHECK(gd_lmdb_open(&db, folder) == GD_OK);
        CHECK(gd_lmdb_count(db) == COUNT && strcmp(gd_lmdb_folder(db), folder) == 0);
        for (int64_t i = 0; from_start && i < COUNT; i += 70) {
            CHECK(gd_lmdb_read(db, i, 70, r) == GD_OK);
            for (int64_t k = 0; k < 70; k++) CHECK(is_record(&r[k], i + k, mixed_size(i + k)));
        }
        for (int n = 0; n < 2000; n++) {
            const int64_t i = draw_below(&draw, COUNT), more = draw_below(&draw, 4);
            const int64_t k = i + more < COUNT ? more : 0;
            CHECK(gd_lmdb_read(db, i, k + 1, r) == GD_OK &&
                  is_record(&r[k], i + k, mixed_size(i + k)));
        }
        CHECK(gd_lmdb_read(db, COUNT, 0, r) == GD_OK);
        CHECK(failed_saying(gd_lmdb_read(db, COUNT - 1, 2, r), GD_E_INDEX, "number 3500 does not"));
        CHECK(gd_lmdb_read(db, -1, 1, r) == GD_E_INDEX);
        gd_lmdb_close(db);
    }
}

CLEAN_TEST(a_file_is_read_by_several_databases_at_once) {
    if (!is_built()) SKIP("built without liblmdb");
    const char *folder = write_database("shared", 100, small_size);
    gd_lmdb *a, *b;
    gd_lmdb_record r;
    CHECK(gd_lmdb_open(&a, folder) == GD_OK && gd_lmdb_open(&b, folder) == GD_OK);
    CHECK(gd_lmdb_read(a, 50, 1, &r) == GD_OK && is_record(&r, 50, small_size(50)));
    gd_lmdb_close(a);
    CHECK(gd_lmdb_read(b, 51, 1, &r) == GD_OK && is_record(&r, 51, small_size(51)));
    CHECK(gd_lmdb_open(&a, folder) == GD_OK);
    gd_lmdb_close(b);
    CHECK(gd_lmdb_read(a, 52, 1, &r) == GD_OK && is_record(&r, 52, small_size(52)));
    gd_lmdb_close(a);
}

static int read_in_child(void *user) {
    gd_lmdb *db = user;
    gd_lmdb_record r;
    const bool right = gd_lmdb_read(db, 40, 1, &r) == GD_OK && is_record(&r, 40, small_size(40));
    gd_lmdb_close(db);
    return right ? 0 : 1;
}

CLEAN_TEST(the_child_of_a_fork_reads_the_database_too) {
    if (!is_built()) SKIP("built without liblmdb");
    gd_lmdb *db;
    gd_lmdb_record r;
    CHECK(gd_lmdb_open(&db, write_database("forked", 100, small_size)) == GD_OK);
    CHECK(gd_lmdb_read(db, 39, 1, &r) == GD_OK);
    CHECK(child_run(read_in_child, db) == 0);
    CHECK(gd_lmdb_read(db, 40, 1, &r) == GD_OK && is_record(&r, 40, small_size(40)));
    gd_lmdb_close(db);
}

CLEAN_TEST(an_empty_database_has_no_records) {
    if (!is_built()) SKIP("built without liblmdb");
    gd_lmdb *db;
    const char *folder = write_database("empty", 0, small_size);
    CHECK(gd_lmdb_open(&db, folder) == GD_OK && gd_lmdb_count(db) == 0);
    gd_lmdb_close(db);
}

/* --- mistakes --------------------------------------------------------------------------------- */

CLEAN_TEST(mistakes_name_the_folder) {
    gd_lmdb *db;
    gd_lmdb_writer *w;
    if (!is_built()) {
        CHECK(failed_saying(gd_lmdb_open(&db, "x"), GD_E_UNSUPPORTED, "install liblmdb-dev"));
        SKIP("built without liblmdb");
    }
    CHECK(failed_saying(gd_lmdb_open(&db, "nowhere"), GD_E_IO, "nowhere: is no LMDB"));
    const char *folder = write_database("there", 1, small_size);
    CHECK(failed_saying(gd_lmdb_create(&w, folder), GD_E_IO, "has a database already"));
    CHECK(failed_saying(gd_lmdb_create(&w, "no/folder"), GD_E_IO, "no/folder: cannot be created"));
    CHECK(gd_lmdb_create(&w, temp_new_folder("keys")) == GD_OK);
    char key[600];
    memset(key, 'k', sizeof key);
    CHECK(failed_saying(gd_lmdb_put(w, key, 600, "", 0), GD_E_ARGUMENT, "LMDB takes 1 to 511"));
    CHECK(gd_lmdb_put(w, key, 0, "", 0) == GD_E_ARGUMENT);
    CHECK(gd_lmdb_put(w, "a", 1, "1", 1) == GD_OK && gd_lmdb_put(w, "a", 1, "2", 1) == GD_OK);
    CHECK(failed_saying(gd_lmdb_finish(w), GD_E_ARGUMENT, "a key is written twice"));
    const char *text = temp_new_folder("text");
    temp_write_text("text/data.mdb", "this is no database");
    CHECK(gd_lmdb_is_folder(text));
    CHECK(failed_saying(gd_lmdb_open(&db, text), GD_E_FORMAT, "is it cut off?"));
}

static int open_as_nobody(void *user) {
    gd_lmdb *db;
    gd_lmdb_record r;
    if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
    const bool right = gd_lmdb_open(&db, user) == GD_OK && gd_lmdb_read(db, 5, 1, &r) == GD_OK &&
                       is_record(&r, 5, small_size(5));
    if (!right) fprintf(stderr, "%s\n", gd_latest_failure());
    gd_lmdb_close(right ? db : NULL);
    return right ? 0 : 1;
}

CLEAN_TEST(a_folder_that_cannot_be_written_is_read) {
    if (!is_built()) SKIP("built without liblmdb");
    if (geteuid() != 0) SKIP("needs root to become another user");
    const char *folder = write_database("foreign", 10, small_size);
    CHECK(chmod(temp_folder(), 0755) == 0 && chmod(folder, 0755) == 0);
    for (int with_lock = 0; with_lock < 2; with_lock++) {
        CHECK(child_run(open_as_nobody, (void *)folder) == 0);
        unlink(temp_path("foreign/lock.mdb"));
    }
}

/* --- failures while it is written ------------------------------------------------------------- */

static int write_and_die(void *user) {
    gd_lmdb_writer *w;
    if (gd_lmdb_create(&w, user) != GD_OK) return 1;
    for (int64_t i = 0; i < 2500; i++)
        if (put_record(w, i, small_size(i)) != GD_OK) return 1;
    if (gd_lmdb_committed(w) != 2000) return 2;
    raise(SIGKILL);
    return 3;
}

CLEAN_TEST(a_killed_writer_loses_only_what_is_not_committed) {
    if (!is_built()) SKIP("built without liblmdb");
    gd_lmdb *db;
    gd_lmdb_record r;
    const char *folder = temp_new_folder("killed");
    CHECK(child_run(write_and_die, (void *)folder) != 0);
    CHECK(gd_lmdb_open(&db, folder) == GD_OK && gd_lmdb_count(db) == 2000);
    CHECK(gd_lmdb_read(db, 1999, 1, &r) == GD_OK && is_record(&r, 1999, small_size(1999)));
    gd_lmdb_close(db);
}

static int write_twice(void *user) {
    gd_lmdb_writer *w;
    gd_status status = gd_lmdb_create(&w, user);
    for (int64_t i = 0; i < 1010 && status == GD_OK; i++) status = put_record(w, i, small_size(i));
    return status == GD_OK && gd_lmdb_finish(w) == GD_OK ? 0 : 1;
}

CLEAN_TEST(a_writer_killed_at_any_write_leaves_whole_transactions) {
    static const long calls[] = {SYS_pwrite64, SYS_pwritev, SYS_write, SYS_fdatasync, SYS_fsync};
    if (!is_built()) SKIP("built without liblmdb");
    int left[3] = {0}; /* databases with 0, 1000 and 1010 records */
    for (int stop = 1;; stop++) {
        gd_lmdb *db;
        const char *folder = temp_new_folder("stopped");
        const kill_plan plan = {.stop = stop, .calls = calls, .n_calls = 5};
        const child_end end = child_kill_at(plan, write_twice, (void *)folder);
        if (!end.traced) SKIP("this machine allows no ptrace");
        /* before its first pages are written there is no database */
        if (gd_lmdb_open(&db, folder) != GD_OK) {
            CHECK_SAYING(left[0] + left[1] + left[2] == 0, "%s", gd_latest_failure());
        } else {
            gd_lmdb_record r;
            const int64_t count = gd_lmdb_count(db);
            CHECK_SAYING(count == 0 || count == 1000 || count == 1010, "%lld", (long long)count);
            for (int64_t i = 0; i < count; i++)
                CHECK(gd_lmdb_read(db, i, 1, &r) == GD_OK && is_record(&r, i, small_size(i)));
            left[count == 1010 ? 2 : count == 1000]++;
            gd_lmdb_close(db);
        }
        if (end.killed) continue;
        CHECK(end.status == 0);
        break;
    }
    CHECK_SAYING(left[0] > 1 && left[1] > 1 && left[2] > 0, "%d, %d, %d", left[0], left[1],
                 left[2]);
}

static int write_to_a_full_disk(void *user) {
    gd_lmdb_writer *w;
    gd_status status = gd_lmdb_create(&w, user);
    signal(SIGXFSZ, SIG_IGN);
    for (int64_t i = 0; i < 20000 && status == GD_OK; i++) {
        if (i == 3500) /* from now on the file cannot grow by much */
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){400000, 400000});
        status = put_record(w, i, 100);
    }
    const int64_t committed = gd_lmdb_committed(w);
    const bool failed = status == GD_E_IO && strstr(gd_latest_failure(), "cannot be written");
    gd_lmdb_cancel(w);
    return failed && committed == 3000 ? 0 : 1;
}

CLEAN_TEST(a_full_disk_loses_only_what_is_not_committed) {
    if (!is_built()) SKIP("built without liblmdb");
    gd_lmdb *db;
    const char *folder = temp_new_folder("full");
    CHECK(child_run(write_to_a_full_disk, (void *)folder) == 0);
    CHECK(gd_lmdb_open(&db, folder) == GD_OK && gd_lmdb_count(db) == 3000);
    gd_lmdb_close(db);
}

TEST(without_memory_reading_and_writing_fail) {
    if (!is_built()) SKIP("built without liblmdb");
    const char *folder = write_database("memory", 100, small_size);
    for (fault_walk w = {.what = "reading an LMDB"}; fault_next(&w);) {
        gd_lmdb *db;
        gd_lmdb_record r;
        fault_begin(&w);
        gd_status status = gd_lmdb_open(&db, folder);
        if (status == GD_OK) status = gd_lmdb_read(db, 99, 1, &r);
        fault_end(&w);
        gd_lmdb_close(db);
        CHECK_FAULT(&w, status);
    }
    for (fault_walk w = {.what = "writing an LMDB"}; fault_next(&w);) {
        gd_lmdb_writer *writer;
        const char *to = temp_new_folder("written");
        fault_begin(&w);
        gd_status status = gd_lmdb_create(&writer, to);
        if (status == GD_OK) {
            status = put_record(writer, 1, 9000);
            if (status == GD_OK) status = gd_lmdb_finish(writer);
            else gd_lmdb_cancel(writer);
        }
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
}

/* --- damaged files ---------------------------------------------------------------------------- */

/* Writes these bytes as a database and reads all records, if it opens. Returns how many were
 * read. */
static int64_t read_all(const void *data, size_t bytes) {
    gd_lmdb *db;
    gd_lmdb_record r;
    volatile char sum = 0;
    int64_t read = 0;
    const char *folder = temp_path("damaged");
    mkdir(folder, 0755);
    file_write(temp_path("damaged/data.mdb"), data, bytes);
    if (gd_lmdb_open(&db, folder) != GD_OK) return -1;
    for (; read < gd_lmdb_count(db) && gd_lmdb_read(db, read, 1, &r) == GD_OK; read++) {
        for (size_t k = 0; k < r.key_bytes; k++) sum = (char)(sum + r.key[k]);
        for (size_t k = 0; k < r.value_bytes; k++) sum = (char)(sum + r.value[k]);
    }
    gd_lmdb_close(db);
    return read;
}

CLEAN_TEST(a_truncated_file_fails) {
    if (!is_built()) SKIP("built without liblmdb");
    size_t bytes;
    write_database("cut", 60, mixed_size);
    char *data = file_read(temp_path("cut/data.mdb"), &bytes);
    CHECK(read_all(data, bytes) == 60);
    for (size_t n = 0; n + 4096 <= bytes; n += 1024) CHECK(read_all(data, n) == -1);
    free(data);
}

CLEAN_TEST(damaged_files_fail_or_are_read_without_a_crash) {
    if (!is_built()) SKIP("built without liblmdb");
    size_t bytes;
    int opened = 0;
    write_database("damage", 200, mixed_size);
    uint8_t *data = (uint8_t *)file_read(temp_path("damage/data.mdb"), &bytes);
    draws draw = {7};
    for (int round = 0; round < 800; round++) {
        uint8_t kept[8];
        size_t at[8];
        const int n = 1 + (int)draw_below(&draw, 8);
        for (int k = 0; k < n; k++) { /* mostly in the heads of pages, and in their tables */
            const size_t page = draw_below(&draw, (int)(bytes / 4096)) * 4096u;
            at[k] = page + (size_t)draw_below(&draw, draw_below(&draw, 3) ? 160 : 4096);
            kept[k] = data[at[k]];
            data[at[k]] = draw_below(&draw, 2) ? (uint8_t)draw_below(&draw, 256)
                                               : data[at[k]] ^ (uint8_t)(1 << draw_below(&draw, 8));
        }
        opened += read_all(data, bytes) >= 0;
        for (int k = n; k-- > 0;) data[at[k]] = kept[k];
    }
    CHECK(opened > 30 && opened < 770);
    CHECK(read_all(data, bytes) == 200);
    free(data);
}

TEST_MAIN
