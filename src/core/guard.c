/* guard.c - shared mutexes, queues of sleeping threads, and the handlers of fork(). */
#include "core/guard.h"

#include <stdatomic.h>
#include <time.h>

#include "core/rwlock.h"

enum { GUARDS = 16 };

/* Each in a cache line of its own. */
static struct {
    _Alignas(64) pthread_mutex_t mutex;
} guards[GUARDS] = {[0 ... GUARDS - 1] = {PTHREAD_MUTEX_INITIALIZER}};

/* Protects `objects`. It is locked before guards. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static gd_forked *objects;

void gd_guard_lock(gd_guard guard) { pthread_mutex_lock(&guards[guard].mutex); }
void gd_guard_unlock(gd_guard guard) { pthread_mutex_unlock(&guards[guard].mutex); }

/* --- sleeping --------------------------------------------------------------------------------- */

void gd_sleepers_init(gd_sleepers *s) { *s = (gd_sleepers){NULL, &s->first}; }

void gd_sleep(gd_sleepers *s, gd_guard guard, gd_sleeper *self) {
    self->next = NULL;
    self->thread = pthread_self();
    self->awake = false;
    pthread_cond_init(&self->cond, NULL);
    *s->last = self;
    s->last = &self->next;
    while (!self->awake) pthread_cond_wait(&self->cond, &guards[guard].mutex);
    pthread_cond_destroy(&self->cond);
}

void gd_wake_first(gd_sleepers *s) {
    gd_sleeper *first = s->first;
    s->first = first->next;
    if (!s->first) s->last = &s->first;
    first->awake = true;
    pthread_cond_signal(&first->cond);
}

void gd_work_init(gd_work *w) {
    w->depth = 0;
    gd_sleepers_init(&w->sleepers);
}

bool gd_work_waited(gd_work *w, gd_guard guard) {
    if (w->depth == 0 || pthread_equal(w->owner, pthread_self())) return false;
    gd_sleep(&w->sleepers, guard, &(gd_sleeper){.next = NULL});
    return true;
}

void gd_work_begin(gd_work *w) {
    w->owner = pthread_self();
    w->depth++;
}

void gd_work_end(gd_work *w) {
    if (--w->depth > 0) return;
    while (w->sleepers.first) gd_wake_first(&w->sleepers);
}

bool gd_work_in_child(gd_work *w) {
    gd_sleepers_init(&w->sleepers);
    if (w->depth == 0 || pthread_equal(w->owner, pthread_self())) return false;
    w->depth = 0;
    return true;
}

/* --- fork ------------------------------------------------------------------------------------- */

/* How long a fork waits for runs that write, so that the child finds variables completely
 * written. */
enum { MAX_WAIT_MS = 2000 };

static bool any_writes(void) {
    bool any = false;
    pthread_mutex_lock(&registry);
    for (const gd_forked *f = objects; f && !any; f = f->next)
        any = f->lock && gd_rwlock_is_written(f->lock);
    pthread_mutex_unlock(&registry);
    return any;
}

static void before_fork(void) {
    gd_rwlocks_hold_writers(true);
    for (int ms = 0; ms < MAX_WAIT_MS && any_writes(); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_mutex_lock(&registry);
    for (int i = 0; i < GUARDS; i++) pthread_mutex_lock(&guards[i].mutex);
}

static void unlock_guards(void) {
    for (int i = GUARDS; i-- > 0;) pthread_mutex_unlock(&guards[i].mutex);
}

static void in_parent(void) {
    gd_rwlocks_hold_writers(false);
    unlock_guards();
    for (const gd_forked *f = objects; f; f = f->next)
        if (f->lock) gd_rwlock_wake(f->lock);
    pthread_mutex_unlock(&registry);
}

static void in_child(void) {
    gd_rwlocks_in_child();
    for (gd_forked *f = objects; f; f = f->next) f->in_child(f);
    unlock_guards();
    pthread_mutex_unlock(&registry);
}

/* Before a fork, handlers run in the reverse order of their registration. These are registered
 * late, not in a constructor, so that a fork takes these locks before the locks that code takes
 * while it holds one of them. */
static void register_fork_handlers(void) { pthread_atfork(before_fork, in_parent, in_child); }

gd_guard gd_guard_new(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Atomic unsigned next;
    pthread_once(&once, register_fork_handlers);
    return (gd_guard)(atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % GUARDS);
}

void gd_forked_add(gd_forked *f) {
    pthread_mutex_lock(&registry);
    f->next = objects;
    f->link = &objects;
    if (objects) objects->link = &f->next;
    objects = f;
    pthread_mutex_unlock(&registry);
}

void gd_forked_remove(gd_forked *f) {
    pthread_mutex_lock(&registry);
    *f->link = f->next;
    if (f->next) f->next->link = f->link;
    pthread_mutex_unlock(&registry);
}
