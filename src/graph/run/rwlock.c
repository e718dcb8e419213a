/* rwlock.c - see turn.h. */
#include "graph/run/rwlock.h"

#include <stdatomic.h>

static _Thread_local gd_rwlock_hold *holds; /* of this thread, the latest first */
static _Atomic int held;                    /* forks that are on their way */

void gd_rwlock_init(gd_rwlock *turn) {
    *turn = (gd_rwlock){.guard = gd_guard_new()};
    gd_sleepers_init(&turn->queue);
}

static bool can_go(const gd_rwlock *turn, bool writes, bool bound) {
    if (turn->written) return false;
    return !writes || (turn->readers == 0 && (bound || atomic_load(&held) == 0));
}

static void give(gd_rwlock *turn, bool writes, pthread_t thread) {
    turn->written = writes;
    turn->writer = thread;
    turn->readers += !writes;
}

/* Wakes those at the head of the queue who can go now. */
static void go_on(gd_rwlock *turn) {
    for (gd_sleeper *s; (s = turn->queue.first) && can_go(turn, s->writes, s->bound);) {
        give(turn, s->writes, s->thread);
        gd_wake_first(&turn->queue);
    }
}

/* A run inside of a run of the same thread: the one around it would wait for it for ever. */
static gd_status check_inside(const gd_rwlock *turn, bool writes, bool *inside) {
    for (const gd_rwlock_hold *h = holds; h; h = h->before) {
        if (h->turn != turn) continue;
        *inside = true;
        if (writes || h->writes)
            return gd_fail(
                GD_E_STATE,
                "called from a function that a run of the same session or jit calls, where "
                "one of the two writes variables; call it after that run");
    }
    return GD_OK;
}

gd_status gd_rwlock_take(gd_rwlock *turn, bool writes, gd_rwlock_hold *hold) {
    bool inside = false;
    GD_TRY(check_inside(turn, writes, &inside));
    gd_guard_lock(turn->guard);
    const bool torn = turn->torn, bound = holds != NULL;
    if (!torn && (inside || (!turn->queue.first && can_go(turn, writes, bound))))
        give(turn, writes, pthread_self());
    else if (!torn)
        gd_sleep(&turn->queue, turn->guard, &(gd_sleeper){.writes = writes, .bound = bound});
    gd_guard_unlock(turn->guard);
    if (torn)
        return gd_fail(
            GD_E_STATE,
            "the process was forked while another thread was in a run that writes; what it wrote "
            "may be half done in this child: fork between such runs, or make a new session or "
            "jit here");
    *hold = (gd_rwlock_hold){holds, turn, writes};
    holds = hold;
    return GD_OK;
}

void gd_rwlock_release(gd_rwlock_hold *hold) {
    gd_rwlock *turn = hold->turn;
    holds = hold->before;
    gd_guard_lock(turn->guard);
    if (hold->writes) turn->written = false;
    else turn->readers--;
    go_on(turn);
    gd_guard_unlock(turn->guard);
}

/* --- forks ------------------------------------------------------------------------------------ */

void gd_turns_hold_writers(bool hold) { atomic_fetch_add(&held, hold ? 1 : -1); }

bool gd_rwlock_is_written(gd_rwlock *turn) {
    gd_guard_lock(turn->guard);
    const bool written = turn->written && !pthread_equal(turn->writer, pthread_self());
    gd_guard_unlock(turn->guard);
    return written;
}

void gd_rwlock_go_on(gd_rwlock *turn) {
    gd_guard_lock(turn->guard);
    go_on(turn);
    gd_guard_unlock(turn->guard);
}

void gd_turns_in_child(void) { atomic_store(&held, 0); }

void gd_rwlock_in_child(gd_rwlock *turn) {
    const bool written = turn->written;
    turn->readers = 0;
    turn->written = false;
    gd_sleepers_init(&turn->queue);
    for (const gd_rwlock_hold *h = holds; h; h = h->before)
        if (h->turn == turn) give(turn, h->writes, pthread_self());
    turn->torn |= written && !turn->written;
}
