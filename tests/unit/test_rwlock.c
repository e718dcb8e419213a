/* test_rwlock.c - the lock of a session is fair: readers and writers get it in the order of
 * arrival. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "core/error.h"
#include "clean_test.h"
#include "gradus/gradus.h"
#include "graph/run/rwlock.h"

/* --- rwlock ------------------------------------------------------------------------------------ */

enum { MOST = 8 };
typedef struct visitor {
    gd_rwlock *rwlock;
    bool writes;
    _Atomic bool stays; /* until it is released */
    _Atomic int *came;  /* counts the threads that had the lock */
    int number;         /* its place among them */
    pthread_t thread;
} visitor;

static void *visit(void *arg) {
    visitor *v = arg;
    gd_rwlock_hold hold;
    if (gd_rwlock_take(v->rwlock, v->writes, &hold) != GD_OK) return NULL;
    v->number = atomic_fetch_add(v->came, 1);
    while (atomic_load(&v->stays)) sched_yield();
    gd_rwlock_release(&hold);
    return NULL;
}

static int waiting(gd_rwlock *rwlock) {
    int n = 0;
    gd_guard_lock(rwlock->guard);
    for (const gd_sleeper *s = rwlock->queue.first; s; s = s->next) n++;
    gd_guard_unlock(rwlock->guard);
    return n;
}

/* One after the other, each when the threads before it hold the lock or wait for it. */
static void send(visitor *v, int count, int at_once) {
    for (int i = 0; i < count; i++) {
        pthread_create(&v[i].thread, NULL, visit, &v[i]);
        while (atomic_load(v[i].came) + waiting(v[i].rwlock) < i + 1) sched_yield();
    }
    CHECK_SAYING(atomic_load(v->came) == at_once, "%d acquired it at once, not %d",
                 atomic_load(v->came), at_once);
    for (int i = 0; i < count; i++) atomic_store(&v[i].stays, false);
    for (int i = 0; i < count; i++) pthread_join(v[i].thread, NULL);
}

TEST(the_lock_is_granted_in_order_of_arrival) {
    /* readers, a writer, readers, two writers, a reader: what is between writers goes side by side
     */
    static const bool writes[MOST] = {false, false, true, false, false, true, true, false};
    static const int round[MOST] = {0, 0, 1, 2, 2, 3, 4, 5};
    gd_rwlock rwlock;
    gd_rwlock_init(&rwlock);
    _Atomic int came = 0;
    visitor v[MOST];
    for (int i = 0; i < MOST; i++)
        v[i] = (visitor){.rwlock = &rwlock, .writes = writes[i], .stays = true, .came = &came};
    send(v, MOST, 2);
    for (int i = 0; i < MOST; i++)
        for (int k = 0; k < i; k++)
            CHECK_SAYING(round[k] == round[i] || v[k].number < v[i].number,
                         "%d came before %d, and went after it", k, i);
    CHECK(rwlock.readers == 0 && !rwlock.written && !rwlock.queue.first);
}

TEST(readers_wait_behind_a_writer) {
    gd_rwlock rwlock;
    gd_rwlock_init(&rwlock);
    _Atomic int came = 0;
    visitor v[4];
    for (int i = 0; i < 4; i++)
        v[i] = (visitor){.rwlock = &rwlock, .writes = i == 0, .stays = true, .came = &came};
    send(v, 4, 1);
}

TEST(a_thread_may_only_nest_read_locks) {
    gd_rwlock rwlock;
    gd_rwlock_init(&rwlock);
    _Atomic int came = 0;
    gd_rwlock_hold outer, inner;
    visitor writer = {.rwlock = &rwlock, .writes = true, .came = &came};
    CHECK(gd_rwlock_take(&rwlock, false, &outer) == GD_OK);
    pthread_create(&writer.thread, NULL, visit, &writer);
    while (waiting(&rwlock) == 0) sched_yield();
    CHECK(gd_rwlock_take(&rwlock, false, &inner) == GD_OK); /* though a writer waits */
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

/* Many threads that never pause compete with one. The lock does not schedule processor time, so
 * the one need not get as many runs as each of the others; a starved thread would get one run in
 * a hundred thousand. */
enum { CROWD = 8, RUNS = 50, MOST_RUNS = RUNS * 10000 };
typedef struct party {
    gd_session *session;
    gd_tensor *x, *y, *train;
    _Atomic bool over;
    _Atomic long crowd;
} party;

static void run_party(party *p, bool writes) {
    GD_SCOPE;
    if (writes) gd_session_run(p->session, gd_feed(), gd_list(p->train));
    else gd_session_run(p->session, gd_feed(p->x, gd_ones(gd_dims(1, 256))), gd_list(p->y));
}

static void *keep_reading(void *arg) {
    party *p = arg;
    for (; !atomic_load(&p->over); atomic_fetch_add(&p->crowd, 1)) run_party(p, false);
    return NULL;
}

static void *keep_writing(void *arg) {
    party *p = arg;
    for (; !atomic_load(&p->over); atomic_fetch_add(&p->crowd, 1)) run_party(p, true);
    return NULL;
}

static void check_party(bool crowd_writes) {
    GD_SCOPE;
    party p = {.over = false};
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        p.x = gd_placeholder(gd_dims(GD_ANY, 256));
        gd_tensor *w = gd_variable(gd_zeros(gd_dims(512, 256)));
        p.y = gd_linear(p.x, w, NULL);
        p.train = gd_assign(w, gd_add(w, gd_scalar(1)));
    }
    p.session = gd_session_new(graph);
    run_party(&p, true);
    run_party(&p, false);
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++)
        pthread_create(&threads[i], NULL, crowd_writes ? keep_writing : keep_reading, &p);
    while (atomic_load(&p.crowd) < CROWD) sched_yield();
    const long before = atomic_load(&p.crowd);
    int runs = 0;
    while (runs < RUNS && atomic_load(&p.crowd) - before < MOST_RUNS)
        run_party(&p, !crowd_writes), runs++;
    const long beside = atomic_load(&p.crowd) - before;
    atomic_store(&p.over, true);
    for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
    CHECK_SAYING(runs == RUNS && !gd_failed(), "%d runs beside %ld of the others; %s", runs, beside,
                 gd_error_message());
}

CLEAN_TEST(a_writer_is_not_starved_by_readers) { check_party(false); }
CLEAN_TEST(a_reader_is_not_starved_by_writers) { check_party(true); }

TEST_MAIN
