/* test_pool.c - the thread pool: every piece runs once, for any caller in any thread.
 *
 * GRADUS_POOL_LIBRARY=LIBRARY also loads LIBRARY (a shared object that exports gd_parallel_for and
 * gd_set_num_threads), uses it and unloads it.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "child.h"
#include "core/pool.h"
#include "gradus/threads.h"
#include "test.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#endif

#ifdef WITH_TSAN
#define SKIP_WITHOUT_CHILD_THREADS \
    SKIP("ThreadSanitizer cannot follow threads of the child of a threaded program")
#else
#define SKIP_WITHOUT_CHILD_THREADS
#endif

/* --- bodies ----------------------------------------------------------------------------------- */

enum { MANY = 1000 };

/* Counts how often each piece ran. Not atomic, so that ThreadSanitizer detects a piece that runs
 * twice at once, or a loop that returns before its pieces are done. */
typedef struct tally {
    int ran[MANY];
} tally;

static void count_piece(void *arg, int64_t i) { ((tally *)arg)->ran[i]++; }

static bool all_ran(const tally *t, int64_t n, int times) {
    for (int64_t i = 0; i < MANY; i++)
        if (t->ran[i] != (i < n ? times : 0)) return false;
    return true;
}

static bool loop_works(int64_t n) {
    tally t = {0};
    gd_parallel_for(n, count_piece, &t);
    return all_ran(&t, n, 1);
}

/* Pieces that wait for each other: they end only if each runs on its own thread. */
typedef struct meeting {
    _Atomic int arrived;
    int expected;
    bool names_ok;
    bool signals_blocked;
    pthread_t caller;
} meeting;

static void wait_for_all(void *arg, int64_t i) {
    meeting *m = arg;
    (void)i;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected) sched_yield();
}

static void check_worker(void *arg, int64_t i) {
    meeting *m = arg;
    wait_for_all(arg, i);
    if (pthread_equal(pthread_self(), m->caller)) return;
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    m->names_ok = strncmp(name, "gradus-", 7) == 0;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    m->signals_blocked = sigismember(&mask, SIGINT) && sigismember(&mask, SIGUSR1) &&
                         sigismember(&mask, SIGALRM) && !sigismember(&mask, SIGSEGV);
}

/* Counts the threads of this process that have the pool's thread name. */
static int count_workers(void) {
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) return -1;
    int count = 0;
    for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL) continue;
        if (fgets(name, sizeof name, f) && strncmp(name, "gradus-", 7) == 0) count++;
        fclose(f);
    }
    closedir(tasks);
    return count;
}

/* A joined thread may be listed for a short time. */
static bool wait_for_workers(int n) {
    for (int tries = 0; tries < 5000; tries++) {
        int now = count_workers();
        if (now == n || now == -1) return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* --- tests ------------------------------------------------------------------------------------ */

TEST(environment_variable_sets_the_number_of_threads) {
    /* main set GRADUS_NUM_THREADS before the first use of the pool */
    CHECK(gd_num_threads() == 3);
    CHECK(count_workers() <= 0); /* no thread exists before the first loop */
}

TEST(every_piece_runs_once) {
    gd_set_num_threads(4);
    for (int64_t n = 0; n <= 40; n++) CHECK(loop_works(n));
    CHECK(loop_works(MANY));
    CHECK(loop_works(-5));
    for (int i = 0; i < 2000; i++) CHECK(loop_works(2 + i % 7));
}

TEST(workers_take_part_have_names_and_block_signals) {
    gd_set_num_threads(2);
    meeting m = {.expected = 2, .caller = pthread_self()};
    gd_parallel_for(2, check_worker, &m);
    CHECK(m.names_ok);
    CHECK(m.signals_blocked);
}

TEST(sleeping_workers_wake_up) {
    gd_set_num_threads(4);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        meeting m = {.expected = 4};
        gd_parallel_for(4, wait_for_all, &m);
        CHECK(m.arrived == 4);
    }
}

static void record_order(void *arg, int64_t i) {
    int64_t *next = arg;
    if (*next == i) (*next)++;
}

TEST(one_thread_runs_pieces_in_order) {
    gd_set_num_threads(1);
    int64_t next = 0;
    gd_parallel_for(100, record_order, &next);
    CHECK(next == 100);
}

static void run_inner_loop(void *arg, int64_t i) {
    tally *inner = arg;
    gd_parallel_for(50, count_piece, &inner[i]);
}

TEST(nested_parallel_loops_run) {
    gd_set_num_threads(3);
    tally *inner = calloc(20, sizeof *inner);
    gd_parallel_for(20, run_inner_loop, inner);
    for (int i = 0; i < 20; i++) CHECK(all_ran(&inner[i], 50, 1));
    free(inner);
}

TEST(settings_are_checked_and_kept) {
    CHECK(gd_set_num_threads(257) == GD_E_ARGUMENT);
    CHECK(gd_set_num_threads(5) == GD_OK);
    CHECK(gd_num_threads() == 5);
    CHECK(gd_set_num_threads(0) == GD_OK);
    CHECK(gd_num_threads() >= 1);
    CHECK(gd_set_num_threads(-1) == GD_OK);
    CHECK(gd_num_threads() >= 1 && gd_num_threads() <= 256);
}

TEST(pool_grows_and_shrinks) {
    static const int sizes[] = {1, 8, 2, 3, 1, 16, 4, 256, 2};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        CHECK(gd_set_num_threads(sizes[k]) == GD_OK);
        CHECK(loop_works(100));
        meeting m = {.expected = sizes[k]};
        gd_parallel_for(sizes[k], wait_for_all, &m); /* ends only if all threads take part */
        CHECK(m.arrived == sizes[k]);
        CHECK(wait_for_workers(sizes[k] - 1));
    }
    gd_set_num_threads(1); /* takes effect at once when the pool is idle */
    CHECK(wait_for_workers(0));
}

static void *host_thread(void *arg) {
    int id = (int)(intptr_t)arg;
    for (int i = 0; i < 300; i++) {
        CHECK(loop_works(1 + (i * 7 + id) % 60));
        if (i % 50 == id) gd_set_num_threads(1 + (i + id) % 5);
    }
    return NULL;
}

TEST(several_threads_may_run_loops_and_change_settings_at_once) {
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        int rc = pthread_create(&threads[i], NULL, host_thread, (void *)(intptr_t)i);
        CHECK(rc == 0);
    }
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
}

TEST(failed_thread_creation_leaves_fewer_workers) {
    /* Stacks that cannot be allocated: every pthread_create from here on fails. */
    gd_set_num_threads(1);
    pthread_attr_t normal, huge;
    pthread_getattr_default_np(&normal);
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 48);
    CHECK(pthread_setattr_default_np(&huge) == 0);
    gd_set_num_threads(4);
    CHECK(loop_works(100));
    CHECK(loop_works(100));
    CHECK(wait_for_workers(0));
    CHECK(pthread_setattr_default_np(&normal) == 0);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&normal);
    gd_set_num_threads(3);
    meeting m = {.expected = 3};
    gd_parallel_for(3, wait_for_all, &m);
    CHECK(m.arrived == 3);
}

/* In the child: loops work, with new workers. */
static int child_works(void) {
    for (int i = 0; i < 20; i++)
        if (!loop_works(64)) return 1;
    meeting m = {.expected = 3};
    gd_set_num_threads(3);
    gd_parallel_for(3, wait_for_all, &m);
    if (m.arrived != 3) return 2;
    gd_set_num_threads(2);
    return loop_works(MANY) ? 0 : 3;
}

TEST(child_of_fork_creates_its_own_workers) {
    SKIP_WITHOUT_CHILD_THREADS;
    gd_set_num_threads(4);
    CHECK(loop_works(100));
    pid_t pid = fork();
    if (pid == 0) {
        if (count_workers() > 0) _exit(10);
        int failed = child_works();
        /* the child's child works, too, and leaves by exit() with its destructors */
        pid_t grandchild = fork();
        if (grandchild == 0) exit(child_works());
        if (child_wait(grandchild) != 0) failed = 11;
        exit(failed);
    }
    CHECK(child_wait(pid) == 0);
    CHECK(loop_works(100)); /* the parent's pool is unaffected */
}

static _Atomic bool stop_looping;

static void *loop_until_stopped(void *arg) {
    (void)arg;
    while (!stop_looping) CHECK(loop_works(50));
    return NULL;
}

TEST(fork_during_a_loop_of_another_thread_works) {
    SKIP_WITHOUT_CHILD_THREADS;
    gd_set_num_threads(4);
    stop_looping = false;
    pthread_t other;
    CHECK(pthread_create(&other, NULL, loop_until_stopped, NULL) == 0);
    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(child_works());
        CHECK(child_wait(pid) == 0);
    }
    stop_looping = true;
    pthread_join(other, NULL);
}

typedef struct fork_in_piece {
    pid_t parent;
    _Atomic int good_children;
} fork_in_piece;

static void fork_in_piece_body(void *arg, int64_t i) {
    fork_in_piece *f = arg;
    if (i % 8 != 0) return;
    pid_t pid = fork();
    /* the loop runs inline, and must not wait for other threads */
    if (pid == 0) _exit(loop_works(20) ? 0 : 1);
    if (child_wait(pid) == 0) f->good_children++;
}

TEST(fork_inside_a_piece_works) {
    gd_set_num_threads(3);
    fork_in_piece f = {.parent = getpid()};
    gd_parallel_for(32, fork_in_piece_body, &f);
    CHECK(f.good_children == 4);
    CHECK(loop_works(100));
}

/* The child returns from the piece that forked it: its loop ends instead of waiting for workers
 * that do not exist. A child of a worker ends with its thread. */
static void fork_and_return(void *arg, int64_t i) {
    (void)arg;
    if (i == 3) (void)!fork();
}

TEST(a_forked_child_may_return_from_a_piece) {
    SKIP_WITHOUT_CHILD_THREADS;
    gd_set_num_threads(3);
    fork_in_piece f = {.parent = getpid()};
    gd_parallel_for(32, fork_and_return, &f);
    if (getpid() != f.parent) _exit(child_works());
    CHECK(child_wait(-1) == 0);
}

static void exit_in_piece(void *arg, int64_t i) {
    (void)arg;
    if (i == 5) exit(7);
    usleep(100);
}

static void loop_in_atexit(void) {
    if (!loop_works(100)) _exit(1);
}

/* exit() at any moment neither hangs nor crashes. */
TEST(exit_may_be_called_anywhere) {
    SKIP_WITHOUT_CHILD_THREADS;
    pid_t pid = fork();
    if (pid == 0) {
        gd_set_num_threads(3);
        gd_parallel_for(10, exit_in_piece, NULL);
        _exit(1);
    }
    CHECK(child_wait(pid) == 7);

    pid = fork();
    if (pid == 0) { /* while another thread loops */
        gd_set_num_threads(3);
        pthread_t other;
        stop_looping = false;
        if (pthread_create(&other, NULL, loop_until_stopped, NULL) != 0) _exit(1);
        pthread_detach(other);
        usleep(1000);
        atexit(loop_in_atexit);
        exit(0);
    }
    CHECK(child_wait(pid) == 0);
}

TEST(the_library_may_be_unloaded) {
    const char *library = getenv("GRADUS_POOL_LIBRARY");
    if (!library) SKIP("GRADUS_POOL_LIBRARY names no library to load");
    gd_set_num_threads(1); /* only the workers of the loaded library count */
    for (int i = 0; i < 20; i++) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(handle != NULL);
        if (handle == NULL) return;
        void (*loop)(int64_t, void (*)(void *, int64_t), void *) =
            (void (*)(int64_t, void (*)(void *, int64_t), void *))dlsym(handle, "gd_parallel_for");
        gd_status (*set)(int) = (gd_status(*)(int))dlsym(handle, "gd_set_num_threads");
        CHECK(loop != NULL && set != NULL);
        if (loop != NULL && set != NULL) {
            set(4);
            tally t = {0};
            loop(MANY, count_piece, &t);
            CHECK(all_ran(&t, MANY, 1));
        }
        if (i % 2) usleep(1000); /* workers sleep, or still spin */
        dlclose(handle);
        pid_t pid = fork(); /* the fork handler is gone with the library */
        if (pid == 0) _exit(0);
        CHECK(child_wait(pid) == 0);
    }
    CHECK(wait_for_workers(0));
}

int main(int argc, char **argv) {
    setenv("GRADUS_NUM_THREADS", "3", 1);
    const int status = test_run_all(argc, argv);
    gd_set_num_threads(4); /* exits with running workers */
    return status || !loop_works(100);
}
