/* crash.c - see crash.h. */
#include "crash.h"

#include <signal.h>
#include <unistd.h>

#include "child.h"
#include "draw.h"
#include "files.h"
#include "gradus/status.h"
#include "test.h"

/* --- children --------------------------------------------------------------------------------- */

typedef struct job {
    const crash_rules *rules;
    int value;  /* to save */
    int saves;  /* how many */
    long limit; /* on the size of files */
} job;

static int save_child(void *user) {
    const job *j = user;
    return j->rules->save(j->value);
}

static int save_forever(void *user) {
    const job *j = user;
    for (int v = 1;; v = v % 90 + 1)
        if (j->rules->save(v) != GD_OK) return 1;
}

static int save_several(void *user) {
    const job *j = user;
    for (int v = 1; v <= j->saves; v++)
        if (j->rules->save(v % 90 + 1 + j->value) != GD_OK) {
            fprintf(stderr, "%s\n", gd_error_message());
            return 1;
        }
    return 0;
}

static int save_with_limit(void *user) {
    const job *j = user;
    file_size_limit(j->limit);
    return j->rules->save(j->value) == GD_E_IO ? 1 : 0;
}

static int load_child(void *user) { return ((const job *)user)->rules->load() + 2; }

static void save(const crash_rules *r, int value) {
    CHECK(child_run(save_child, &(job){.rules = r, .value = value}) == GD_OK);
}
static int load(const crash_rules *r) { return child_run(load_child, &(job){.rules = r}) - 2; }

/* A later save removes what killed ones left. */
static void check_no_garbage(const crash_rules *r) {
    for (int value = 9; value >= 8; value--) {
        save(r, value);
        CHECK(load(r) == value);
        CHECK_SAYING(folder_count(r->folder) == r->count(value), "%d files",
                     folder_count(r->folder));
    }
    folder_clear(r->folder);
    CHECK(rmdir(r->folder) == 0);
}

/* --- the checks ------------------------------------------------------------------------------- */

void crash_at_every_call(const crash_rules *r, int old, int new) {
    child_end end = {.traced = true, .killed = true};
    int found[3] = {0}; /* how often each value */
    for (int k = 0; end.killed && end.traced && test_failures <= 10; k++) {
        save(r, 1);
        end = child_kill_at((kill_plan){.stop = k}, save_child, &(job){.rules = r, .value = 2});
        CHECK(end.killed || !end.traced || end.status == GD_OK);
        const int value = load(r);
        CHECK_SAYING(value == 1 || value == 2, "killed at stop %d: %d", k, value);
        CHECK(end.killed || !end.traced || value == 2);
        if (value == 1 || value == 2) found[value]++;
    }
    if (!end.traced) SKIP("processes cannot be traced here");
    CHECK_SAYING(found[1] > old && found[2] > new, "%d times the old files, %d times the new ones",
                 found[1], found[2]);
    check_no_garbage(r);
}

void crash_at_any_time(const crash_rules *r, int kills, int most) {
    draws d = {12345};
    save(r, 1);
    for (int i = 0; i < kills && test_failures < 5; i++) {
        const long long moment = 500000 + draw_below(&d, 12000000); /* ns */
        CHECK(child_signal_after(moment, SIGKILL, save_forever, &(job){.rules = r}) == -1);
        const int value = load(r);
        CHECK_SAYING(value > 0, "after kill %d: %d", i, value);
        CHECK_SAYING(folder_count(r->folder) <= most, "%d files accumulate",
                     folder_count(r->folder));
    }
    check_no_garbage(r);
}

void crash_save_at_once(const crash_rules *r, int saves) {
    enum { PROCESSES = 4, LOADS = 30 };
    pid_t children[PROCESSES];
    save(r, 1);
    for (int i = 0; i < PROCESSES; i++)
        children[i] = child_start(save_several, &(job){.rules = r, .value = i, .saves = saves});
    for (int i = 0; i < LOADS; i++) {
        const int value = load(r);
        CHECK_SAYING(value > 0, "%d", value);
    }
    for (int i = 0; i < PROCESSES; i++) CHECK(child_wait(children[i]) == 0);
    check_no_garbage(r);
}

void crash_fill_disk(const crash_rules *r) {
    int failed = 0;
    save(r, 1);
    for (long limit = 0; limit < r->bytes; limit += limit < 2000 ? 200 : 5000) {
        job j = {.rules = r, .value = 2, .limit = limit};
        const bool full = child_run(save_with_limit, &j) == 1;
        const int value = load(r);
        CHECK_SAYING(value == (full ? 1 : 2), "limit %ld: %d", limit, value);
        CHECK_SAYING(folder_count(r->folder) == r->count(value), "limit %ld: %d files", limit,
                     folder_count(r->folder));
        failed += full;
        if (!full) save(r, 1);
    }
    CHECK_SAYING(failed > 5, "%d saves failed", failed);
    check_no_garbage(r);
}
