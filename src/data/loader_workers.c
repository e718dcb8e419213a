/* loader_workers.c - threads that prefetch batches.
 *
 * A worker takes the number of the next batch, prepares this batch and stores it in its slot of a
 * ring buffer. gd_loader_next takes batches out in order. The ring has workers * prefetch slots: no
 * batch is begun before its slot is free.
 *
 * One lock serves all loaders. It is held to move a batch, never while one is prepared. A fork()
 * waits for it, so the rings are consistent in the child. The child has no workers: it frees the
 * prepared batches and starts new workers.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/loader.h"

/* Seconds that exit() waits for workers that run functions of the program. */
enum { EXIT_WAIT_S = 1 };

typedef struct slot {
    bool ready;
    gd_prepared_batch prepared;
} slot;

struct gd_workers {
    const gd_loader *loader;
    _Atomic bool stop;
    int64_t next;  /* the batch that a worker takes next */
    int64_t end;   /* the number of batches of the epoch */
    int64_t given; /* the batch that gd_loader_next takes next */
    slot *slots;   /* batch b is in slots[b % room] */
    int64_t room;
    pthread_cond_t work,
        ready;   /* signal that there is a batch to prepare; that batch `given` is ready */
    int process; /* `forks` when it was created */
    int running; /* threads that have not ended */
    gd_workers *following; /* the next in the list of live workers */
    int count;
    pthread_t threads[];
};

static pthread_mutex_t workers_lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(workers_lock)

static gd_workers *live_workers;
static pthread_cond_t worker_ended = PTHREAD_COND_INITIALIZER;
static bool shut_down;    /* the process exits, or the library is unloaded */
static _Atomic int forks; /* how many forks led to this process */
static _Thread_local bool is_worker;

/* --- workers ---------------------------------------------------------------------------------- */

static bool may_take_batch(const gd_workers *w) {
    return w->next < w->end && w->next < w->given + w->room;
}

static void *run_worker(void *arg) {
    gd_workers *w = arg;
    gd_prepared_batch prepared;
    is_worker = true;
    gd_pool_stay_out();
    pthread_setname_np(pthread_self(), "gradus-loader");
    pthread_mutex_lock(&workers_lock);
    for (;;) {
        while (!w->stop && !may_take_batch(w)) pthread_cond_wait(&w->work, &workers_lock);
        if (w->stop) break;
        const int64_t number = w->next++;
        pthread_mutex_unlock(&workers_lock);
        gd_loader_prepare(w->loader, number, &w->stop, &prepared);
        /* A function of the program may have forked. In the child this thread is not a worker. */
        if (atomic_load(&forks) != w->process) return NULL;
        pthread_mutex_lock(&workers_lock);
        slot *s = &w->slots[number % w->room];
        s->prepared = prepared;
        s->ready = true;
        if (number == w->given) pthread_cond_signal(&w->ready);
    }
    w->running--;
    pthread_cond_broadcast(&worker_ended);
    pthread_mutex_unlock(&workers_lock);
    return NULL;
}

/* No more threads than there are batches in an epoch. */
static gd_workers *make_workers(const gd_loader *l) {
    const int64_t batches = l->batches > 0 ? l->batches : 1;
    const int count = l->options.workers < batches ? l->options.workers : (int)batches;
    const int64_t most = (int64_t)l->options.workers * l->options.prefetch;
    gd_workers *w = gd_calloc(1, sizeof *w + (size_t)count * sizeof *w->threads);
    if (!w) return NULL;
    w->room = most < batches ? most : batches;
    w->slots = gd_calloc((size_t)w->room, sizeof *w->slots);
    if (!w->slots) {
        gd_free(w);
        return NULL;
    }
    w->loader = l;
    w->process = atomic_load(&forks);
    w->count = count;
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->ready, NULL);
    return w;
}

/* Starts as many of the threads as the system allows. */
static void start_workers(gd_workers *w) {
    const int wanted = w->count;
    pthread_mutex_lock(&workers_lock);
    w->count = 0;
    while (!shut_down && w->count < wanted && gd_thread_start(&w->threads[w->count], run_worker, w))
        w->count++;
    w->running = w->count;
    w->following = live_workers;
    live_workers = w;
    pthread_mutex_unlock(&workers_lock);
    if (w->count < wanted)
        gd_notice(GD_LOG_WARNING,
                  "the system cannot create more threads: %d workers prepare batches instead of %d",
                  w->count, wanted);
}

gd_status gd_workers_begin(gd_loader *l) {
    if (l->workers && l->workers->process != atomic_load(&forks)) gd_workers_end(l);
    if (!l->workers) {
        gd_workers *w = l->workers = make_workers(l);
        if (!w) return gd_no_memory(NULL, "for the workers of a loader");
        start_workers(w);
        if (w->count == 0) {
            gd_workers_end(l);
            return GD_OK;
        }
    }
    gd_workers *w = l->workers;
    pthread_mutex_lock(&workers_lock);
    w->next = w->given = l->at.batch;
    w->end = l->batches;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&workers_lock);
    return GD_OK;
}

/* Waits with the lock. A thread that is cancelled ends after the wait: in it, it would keep the
 * lock, and all loaders would wait for it. */
static void wait_for(pthread_cond_t *condition) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_cond_wait(condition, &workers_lock);
    pthread_setcancelstate(state, NULL);
}

bool gd_workers_take(gd_workers *w, gd_prepared_batch *prepared) {
    if (w->process != atomic_load(&forks)) return false;
    pthread_mutex_lock(&workers_lock);
    slot *s = &w->slots[w->given % w->room];
    while (!s->ready && !w->stop) wait_for(&w->ready);
    const bool there = s->ready;
    if (there) {
        *prepared = s->prepared;
        s->ready = false;
        w->given++;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&workers_lock);
    return there;
}

static void unlink_live(gd_workers *w) {
    gd_workers **link = &live_workers;
    while (*link && *link != w) link = &(*link)->following;
    if (*link) *link = w->following;
}

void gd_workers_end(gd_loader *l) {
    gd_workers *w = l->workers;
    if (!w) return;
    l->workers = NULL;
    pthread_mutex_lock(&workers_lock);
    unlink_live(w);
    w->stop = true;
    const bool own = w->process == atomic_load(&forks);
    if (own) pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&workers_lock);
    if (own) {
        for (int i = 0; i < w->count; i++) pthread_join(w->threads[i], NULL);
        /* Not in a forked child: it would wait for threads that do not exist there. */
        pthread_cond_destroy(&w->work);
        pthread_cond_destroy(&w->ready);
    }
    for (int64_t i = 0; i < w->room; i++)
        if (w->slots[i].ready) gd_loader_drop(l, &w->slots[i].prepared);
    gd_free(w->slots);
    gd_free(w);
}

/* --- fork, exit, dlclose ---------------------------------------------------------------------- */

static void after_fork_in_child(void) { atomic_fetch_add(&forks, 1); }

__attribute__((constructor)) static void workers_at_fork(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* Ends the workers of loaders that were not released, before their code is unmapped or the data
 * that they read is freed. */
__attribute__((destructor)) static void workers_at_exit(void) {
    struct timespec limit;
    if (is_worker) return; /* a function of the program called exit() */
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += EXIT_WAIT_S;
    pthread_mutex_lock(&workers_lock);
    shut_down = true;
    for (gd_workers *w = live_workers; w; w = w->following) {
        if (w->process != atomic_load(&forks)) continue;
        w->stop = true;
        pthread_cond_broadcast(&w->work);
        int waited = 0;
        while (w->running > 0 && waited == 0)
            waited = pthread_cond_timedwait(&worker_ended, &workers_lock, &limit);
        if (w->running > 0) continue;
        for (int i = 0; i < w->count; i++) pthread_join(w->threads[i], NULL);
        w->count = 0;
    }
    pthread_mutex_unlock(&workers_lock);
}
