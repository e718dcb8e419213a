/* test_rwlock.c - the lock of a session is fair: readers and writers acquire it in order of
 * arrival. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "core/error.h"
#include "core/rwlock.h"
#include "clean_test.h"
#include "gradus/gradus.h"

/* --- rwlock ----------------------------------------------------------------------------------- */

enum { USERS = 8 };
typedef struct lock_user {
    gd_rwlock *rwlock;
    bool writes;
    _Atomic bool holds;    /* holds the lock until it is released */
    _Atomic int *acquired; /* counts the threads that have acquired the lock */
    int number;            /* the position of this thread among them */
    pthread_t thread;
} lock_user;

static void *use_lock(void *arg) {
    lock_user *v = arg;
    gd_rwlock_hold hold;
    if (gd_rwlock_take(v->rwlock, v->writes, &hold) != GD_OK) return NULL;
    v->number = atomic_fetch_add(v->acquired, 1);
    while (atomic_load(&v->holds)) sched_yield();
    gd_rwlock_release(&hold);
    return NULL;
}

static int count_waiting(gd_rwlock *rwlock) {
    int n = 0;
    gd_guard_lock(rwlock->guard);
    for (const gd_sleeper *s = rwlock->queue.first; s; s = s->next) n++;
    gd_guard_unlock(rwlock->guard);
    return n;
}

/* Starts the threads one after the other, each when all earlier threads hold the lock or wait for
 * it. */
static void start_users(lock_user *v, int count, int at_once) {
    for (int i = 0; i < count; i++) {
        pthread_create(&v[i].thread, NULL, use_lock, &v[i]);
        while (atomic_load(v[i].acquired) + count_waiting(v[i].rwlock) < i + 1) sched_yield();
    }
    CHECK_SAYING(atomic_load(v->acquired) == at_once, "%d acquired the lock at once, not %d",
                 atomic_load(v->acquired), at_once);
    for (int i = 0; i < count; i++) atomic_store(&v[i].holds, false);
    for (int i = 0; i < count; i++) pthread_join(v[i].thread, NULL);
}

TEST(the_lock_is_granted_in_order_of_arrival) {
    /* readers, a writer, readers, two writers, a reader: readers between writers run
     * concurrently */
    static const bool writes[USERS] = {false, false, true, false, false, true, true, false};
    static const int round[USERS] = {0, 0, 1, 2, 2, 3, 4, 5};
    gd_rwlock rwlock;
    gd_rwlock_init(&rwlock);
    _Atomic int acquired = 0;
    lock_user v[USERS];
    for (int i = 0; i < USERS; i++)
        v[i] = (lock_user){
            .rwlock = &rwlock, .writes = writes[i], .holds = true, .acquired = &acquired};
    start_users(v, USERS, 2);
    for (int i = 0; i < USERS; i++)
        for (int k = 0; k < i; k++)
            CHECK_SAYING(round[k] == round[i] || v[k].number < v[i].number,
                         "%d arrived before %d, but acquired the lock after it", k, i);
    CHECK(rwlock.readers == 0 && !rwlock.written && !rwlock.queue.first);
}

TEST(readers_wait_behind_a_writer) {
    gd_rwlock rwlock;
    gd_rwlock_init(&rwlock);
    _Atomic int acquired = 0;
    lock_user v[4];
    for (int i = 0; i < 4; i++)
        v[i] =
            (lock_user){.rwlock = &rwlock, .writes = i == 0, .holds = true, .acquired = &acquired};
    start_users(v, 4, 1);
}

TEST(a_thread_may_only_nest_read_locks) {
    gd_rwlock rwlock;
    gd_rwlock_init(&rwlock);
    _Atomic int acquired = 0;
    gd_rwlock_hold outer, inner;
    lock_user writer = {.rwlock = &rwlock, .writes = true, .acquired = &acquired};
    CHECK(gd_rwlock_take(&rwlock, false, &outer) == GD_OK);
    pthread_create(&writer.thread, NULL, use_lock, &writer);
    while (count_waiting(&rwlock) == 0) sched_yield();
    CHECK(gd_rwlock_take(&rwlock, false, &inner) == GD_OK); /* although a writer waits */
    gd_rwlock_release(&inner);
    CHECK(gd_rwlock_take(&rwlock, true, &inner) == GD_E_STATE &&
          strstr(gd_latest_failure(), "after that run"));
    gd_rwlock_release(&outer);
    pthread_join(writer.thread, NULL);
    CHECK(gd_rwlock_take(&rwlock, true, &outer) == GD_OK);
    CHECK(gd_rwlock_take(&rwlock, false, &inner) == GD_E_STATE);
    gd_rwlock_release(&outer);
    gd_clear_error();
}

/* --- sessions --------------------------------------------------------------------------------- */

/* Many threads that never pause compete with one. The lock does not schedule processor time, so the
 * single thread need not get as many runs as each of the others; but a starved thread would get one
 * run in a hundred thousand. */
enum { CROWD = 8, RUNS = 50, MAX_RUNS = RUNS * 10000 };
typedef struct competition {
    gd_session *session;
    gd_tensor *x, *y, *train;
    _Atomic bool over;
    _Atomic long crowd;
} competition;

static void run_competitor(competition *p, bool writes) {
    GD_SCOPE;
    if (writes) gd_session_run(p->session, gd_feed(), gd_list(p->train));
    else gd_session_run(p->session, gd_feed(p->x, gd_ones(gd_dims(1, 256))), gd_list(p->y));
}

static void *keep_reading(void *arg) {
    competition *p = arg;
    for (; !atomic_load(&p->over); atomic_fetch_add(&p->crowd, 1)) run_competitor(p, false);
    return NULL;
}

static void *keep_writing(void *arg) {
    competition *p = arg;
    for (; !atomic_load(&p->over); atomic_fetch_add(&p->crowd, 1)) run_competitor(p, true);
    return NULL;
}

static void check_competition(bool crowd_writes) {
    GD_SCOPE;
    competition p = {.over = false};
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        p.x = gd_placeholder(gd_dims(GD_ANY, 256));
        gd_tensor *w = gd_variable(gd_zeros(gd_dims(512, 256)));
        p.y = gd_linear(p.x, w, NULL);
        p.train = gd_assign(w, gd_add(w, gd_scalar(1)));
    }
    p.session = gd_session_new(graph);
    run_competitor(&p, true);
    run_competitor(&p, false);
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++)
        pthread_create(&threads[i], NULL, crowd_writes ? keep_writing : keep_reading, &p);
    while (atomic_load(&p.crowd) < CROWD) sched_yield();
    const long before = atomic_load(&p.crowd);
    int runs = 0;
    while (runs < RUNS && atomic_load(&p.crowd) - before < MAX_RUNS)
        run_competitor(&p, !crowd_writes), runs++;
    const long beside = atomic_load(&p.crowd) - before;
    atomic_store(&p.over, true);
    for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
    CHECK_SAYING(runs == RUNS && !gd_failed(), "%d runs, and %ld of the others; %s", runs, beside,
                 gd_error_message());
}

CLEAN_TEST(a_writer_is_not_starved_by_readers) { check_competition(false); }
CLEAN_TEST(a_reader_is_not_starved_by_writers) { check_competition(true); }

TEST_MAIN
