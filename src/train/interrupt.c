/* interrupt.c - counts SIGINT, SIGTERM and calls of gd_fit_interrupt; see interrupt.h.
 *
 * The handler counts signals. A run compares the counts with those at its start, so that an earlier
 * request does not end it, and one request ends all active runs. For a second signal, while the
 * runs end, the handler restores the old handler and raises the signal again. It calls only
 * sigaction and raise, which are async-signal-safe.
 */
#include "train/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "core/fork.h"
#include "gradus/train.h"

static const int caught[] = {SIGINT, SIGTERM};
enum { CAUGHT = 2 };

static _Atomic int requests, signals, last_signal;
static _Atomic int fresh; /* signals since the handlers were installed */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)
static int runs;                        /* runs that catch signals */
static struct sigaction before[CAUGHT]; /* does not change while handlers are installed */
static bool installed[CAUGHT];

static void handle_signal(int signal) {
    if (atomic_fetch_add(&fresh, 1) > 0) {
        for (int i = 0; i < CAUGHT; i++)
            if (caught[i] == signal) sigaction(signal, &before[i], NULL);
        raise(signal); /* blocked until the handler returns */
        return;
    }
    atomic_store(&last_signal, signal);
    atomic_fetch_add(&signals, 1);
}

void gd_fit_interrupt(void) { atomic_fetch_add(&requests, 1); }

/* A signal that is ignored (nohup, a job in the background) stays ignored. */
static void install_handlers(void) {
    atomic_store(&fresh, 0);
    for (int i = 0; i < CAUGHT; i++) {
        struct sigaction own = {.sa_handler = handle_signal, .sa_flags = SA_RESTART};
        sigemptyset(&own.sa_mask);
        installed[i] = sigaction(caught[i], NULL, &before[i]) == 0 &&
                       ((before[i].sa_flags & SA_SIGINFO) || before[i].sa_handler != SIG_IGN) &&
                       sigaction(caught[i], &own, NULL) == 0;
    }
}

/* Keeps a handler that the program has installed meanwhile. */
static void restore_handlers(void) {
    for (int i = 0; i < CAUGHT; i++) {
        struct sigaction now;
        if (!installed[i] || sigaction(caught[i], NULL, &now) != 0) continue;
        if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == handle_signal)
            sigaction(caught[i], &before[i], NULL);
        installed[i] = false;
    }
}

void gd_interrupt_begin(gd_interrupt *i, bool catches) {
    i->catches = catches;
    i->requests = atomic_load(&requests);
    i->signals = atomic_load(&signals);
    if (!catches) return;
    pthread_mutex_lock(&lock);
    if (runs++ == 0) install_handlers();
    pthread_mutex_unlock(&lock);
}

void gd_interrupt_end(gd_interrupt *i) {
    if (!i->catches) return;
    pthread_mutex_lock(&lock);
    if (--runs == 0) restore_handlers();
    pthread_mutex_unlock(&lock);
    i->catches = false;
}

const char *gd_interrupted(const gd_interrupt *i) {
    if (i->catches && atomic_load_explicit(&signals, memory_order_relaxed) != i->signals)
        return atomic_load(&last_signal) == SIGTERM ? "SIGTERM" : "Ctrl-C";
    return atomic_load_explicit(&requests, memory_order_relaxed) != i->requests ? "gd_fit_interrupt"
                                                                                : NULL;
}
