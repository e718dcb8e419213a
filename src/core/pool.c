/* pool.c - the one thread pool: who runs which piece of a parallel loop.
 *
 * One call at a time has the pool, by a try-lock: whoever does not get it does its own work. The
 * caller publishes the loop, opens a gate and takes pieces like everybody else. A worker counts
 * itself in at the gate before it looks at the loop, and out when no piece is left. When the caller
 * finds no piece either, it shuts the gate and waits for those inside.
 * So a worker that is slow to wake (its core belongs to another process) is not waited for: it
 * finds the gate shut, and the caller has done its share.
 *
 * Each thread has a share of the pieces, the same in every loop of as many: one that trains the
 * same weights step after step finds them in its core's own cache. Whoever has done its share takes
 * from the end of another's.
 *
 * Workers wait by spinning briefly, because the next loop of a network often comes within
 * microseconds, and then sleep, because a spinning thread steals the core from whoever has work.
 *
 * A worker that wakes up on the processor of the caller, or of an earlier worker, steps aside: it
 * would take turns with it while another processor idles. Schedulers do that to threads that sleep
 * often, as these do, and virtual machines' more than others.
 *
 * All state is static and atomic, and the child of a fork() resets it: nothing to unlock there,
 * whatever the parent's other threads were doing.
 */
#define _GNU_SOURCE 1
#include "core/pool.h"

#include "core/error.h"
#include "core/thread.h"
#include "gradus/threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_THREADS = 256, /* the caller included */
    CACHE_LINE = 64,

    /* How long a waiting thread spins before it sleeps. Waking a sleeper takes 15 to 50 us
     * (measured), so a worker that spins as long before it sleeps loses at most as much as it can
     * win. The caller waits for a running piece only; when that is long, the worker has probably
     * lost its core to another thread, and may have the caller's: the caller yields it. Only when
     * that lasts does it sleep, since a thread that is woken is often moved to its waker's core. */
    WORKER_SPIN_NS = 50000,
    CALLER_SPIN_NS = 10000,
    CALLER_YIELD_NS = 2000000,

    /* How often a worker may ask to be moved. */
    ASIDE_NS = 5000000,

    /* At exit, how long to wait for another thread's loop before leaving the workers be. */
    EXIT_WAIT_MS = 1000,
};

/* The gate: bit 31 open, bit 30 the caller sleeps until the last worker leaves, below the number
 * of workers inside. */
static const uint32_t GATE_OPEN = 1u << 31, GATE_WAITED = 1u << 30;

static struct {
    /* What a worker reads to start: one cache line. `calls` changes with every loop and is what
     * workers spin and sleep on; the loop itself may be read inside the gate only. */
    _Alignas(CACHE_LINE) _Atomic uint32_t calls;
    _Atomic uint32_t gate;
    int threads_now; /* who have a share of it */
    void (*body)(void *arg, int64_t i);
    void *arg;

    /* What is left of each thread's share: its first piece, and above in the word its end. */
    struct {
        _Alignas(CACHE_LINE) _Atomic uint64_t left;
    } share[MAX_THREADS];

    _Alignas(CACHE_LINE) _Atomic int sleepers; /* workers in, or on their way into, the futex */
    _Atomic int keep;                          /* workers with an index from here on shall end */

    _Atomic int processor[MAX_THREADS]; /* where the caller, and behind it the workers, were last */

    /* Below, what only the owner of the lock touches. */
    _Alignas(CACHE_LINE) _Atomic bool locked;
    int workers;  /* running now */
    int made_for; /* the setting that `workers` was made for; more may have been impossible */
    pthread_t threads[MAX_THREADS - 1];
} pool;

static _Atomic int setting;    /* threads to use; 0 before the first question */
static _Atomic bool shut_down; /* the program or the library is being left */
static _Atomic int forks;      /* how many fork()s lie between the first process and this one */

/* True on workers, and on the thread that has the pool: their loops run inline. */
static _Thread_local bool in_loop;

/* True on threads that leave the pool to others. */
static _Thread_local bool stays_out;
void gd_pool_stay_out(void) { stays_out = true; }

/* --- waiting ---------------------------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spins while *word is `value`, for limit_ns at most; true when it still is. The limit is a time
 * because a pause takes from 5 to 140 cycles, depending on the processor. */
static bool spin_while(_Atomic uint32_t *word, uint32_t value, int64_t limit_ns) {
    int64_t deadline = 0;
    for (int i = 1;; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return false;
        cpu_pause();
        if (i % 16 == 0) {
            int64_t now = now_ns();
            if (deadline == 0) deadline = now + limit_ns;
            if (now >= deadline) return true;
        }
    }
}

/* The same, leaving the core to others meanwhile. */
static bool yield_while(_Atomic uint32_t *word, uint32_t value, int64_t limit_ns) {
    for (const int64_t deadline = now_ns() + limit_ns; now_ns() < deadline; sched_yield())
        if (atomic_load_explicit(word, memory_order_acquire) != value) return false;
    return true;
}

/* A worker's wait for a call other than `seen`. The sleeper counts itself before the kernel looks
 * at `calls`, the caller changes `calls` before it looks at the count: one of them notices. */
static uint32_t wait_for_call(uint32_t seen) {
    while (spin_while(&pool.calls, seen, WORKER_SPIN_NS)) {
        atomic_fetch_add(&pool.sleepers, 1);
        futex_wait(&pool.calls, seen);
        atomic_fetch_sub(&pool.sleepers, 1);
    }
    return atomic_load(&pool.calls);
}

/* --- processors ------------------------------------------------------------------------------- */

static void note_processor(int slot) {
    atomic_store_explicit(&pool.processor[slot], sched_getcpu(), memory_order_relaxed);
}

static int processor_of(int slot) {
    return atomic_load_explicit(&pool.processor[slot], memory_order_relaxed);
}

/* Where a worker may run. */
typedef struct place {
    int slot;          /* its number among the threads: 0 is the caller */
    cpu_set_t allowed; /* what it was born with */
    int64_t moved;     /* when it last stepped aside */
} place;

/* Keeps this thread off the processors that the threads before it were on, unless that leaves none.
 * Left free to, the scheduler would wake it on the caller's again the next time. */
static void step_aside(const place *p) {
    cpu_set_t free = p->allowed;
    for (int i = 0; i < p->slot; i++)
        if (processor_of(i) >= 0 && processor_of(i) < CPU_SETSIZE)
            CPU_CLR((size_t)processor_of(i), &free);
    if (CPU_COUNT(&free) == 0) free = p->allowed;
    sched_setaffinity(0, sizeof free, &free);
}

/* What a worker does when it has been called. */
static void find_place(place *p) {
    const int here = sched_getcpu();
    for (int i = 0; i < p->slot; i++)
        if (processor_of(i) == here) {
            const int64_t now = now_ns();
            if (now - p->moved < ASIDE_NS) break;
            step_aside(p);
            p->moved = now;
            break;
        }
    note_processor(p->slot);
}

/* --- pieces ----------------------------------------------------------------------------------- */

static void run_inline(int64_t n, void (*body)(void *, int64_t), void *arg) {
    for (int64_t i = 0; i < n; i++) body(arg, i);
}

static uint64_t pieces_between(int64_t begin, int64_t end) {
    return (uint64_t)end << 32 | (uint64_t)begin;
}

/* Takes the first piece of a share, or its last; -1 when it is empty. */
static int64_t take_piece(_Atomic uint64_t *share, bool first) {
    uint64_t left = atomic_load_explicit(share, memory_order_relaxed);
    for (;;) {
        const int64_t begin = (int64_t)(left & UINT32_MAX), end = (int64_t)(left >> 32);
        if (begin >= end) return -1;
        const uint64_t rest =
            first ? pieces_between(begin + 1, end) : pieces_between(begin, end - 1);
        if (atomic_compare_exchange_weak_explicit(share, &left, rest, memory_order_relaxed,
                                                  memory_order_relaxed))
            return first ? begin : end - 1;
    }
}

/* The thread's own share, then what the others have left. */
static void run_pieces(int slot, void (*body)(void *, int64_t), void *arg) {
    const int threads = pool.threads_now;
    for (int k = 0; k < threads; k++) {
        _Atomic uint64_t *share = &pool.share[(slot + k) % threads].left;
        for (int64_t i; (i = take_piece(share, k == 0)) >= 0;) body(arg, i);
    }
}

static bool enter_gate(void) {
    uint32_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);
    while (gate & GATE_OPEN)
        if (atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void leave_gate(void) {
    uint32_t before = atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
    if (before == (GATE_WAITED | 1)) futex_wake(&pool.gate, 1);
}

/* Shuts the gate and waits until all who are inside have left. */
static void close_gate(void) {
    uint32_t gate = atomic_fetch_and(&pool.gate, ~GATE_OPEN) & ~GATE_OPEN;
    while (gate != 0) {
        if (!spin_while(&pool.gate, gate, CALLER_SPIN_NS) ||
            !yield_while(&pool.gate, gate, CALLER_YIELD_NS)) {
            gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
            continue;
        }
        /* Sleep, which also frees this core for a worker that has lost its own. A failed exchange
         * means that somebody left just now, and brings the new count. */
        if (!atomic_compare_exchange_strong(&pool.gate, &gate, gate | GATE_WAITED)) continue;
        for (gate |= GATE_WAITED; gate != GATE_WAITED; gate = atomic_load(&pool.gate))
            futex_wait(&pool.gate, gate);
        atomic_store(&pool.gate, 0);
        return;
    }
}

/* --- workers ---------------------------------------------------------------------------------- */

static void *worker_main(void *index_as_pointer) {
    const int index = (int)(intptr_t)index_as_pointer;
    const int process = atomic_load(&forks);
    char name[16]; /* all that Linux keeps */
    snprintf(name, sizeof name, "gradus-%u", (unsigned)(index + 1) % 1000);
    pthread_setname_np(pthread_self(), name);

    in_loop = true;
    place here = {.slot = index + 1};
    const bool movable = sched_getaffinity(0, sizeof here.allowed, &here.allowed) == 0;
    uint32_t seen = atomic_load(&pool.calls);
    for (;;) {
        if (index >= atomic_load(&pool.keep)) return NULL;
        if (movable) find_place(&here);
        if (enter_gate()) {
            run_pieces(index + 1, pool.body, pool.arg);
            /* A piece that forked and came back here in the child: this is no worker of the
             * child's pool, and must not count itself out of it. */
            if (atomic_load_explicit(&forks, memory_order_relaxed) != process) return NULL;
            leave_gate();
        }
        seen = wait_for_call(seen);
    }
}

/* Ends the workers from index `keep` on. */
static void end_workers(int keep) {
    if (pool.workers <= keep) return;
    atomic_store(&pool.keep, keep);
    atomic_fetch_add(&pool.calls, 1);
    futex_wake(&pool.calls, INT_MAX);
    for (int i = keep; i < pool.workers; i++) pthread_join(pool.threads[i], NULL);
    pool.workers = keep;
}

/* Makes workers until there are `want`, or the system refuses. */
static void make_workers(int want) {
    atomic_store(&pool.keep, want);
    while (pool.workers < want) {
        void *index = (void *)(intptr_t)pool.workers;
        if (!gd_thread_start(&pool.threads[pool.workers], worker_main, index)) break;
        pool.workers++;
    }
}

/* Brings the number of workers in line with the setting. The pool is locked. */
static void resize(int threads) {
    if (pool.made_for == threads) return;
    end_workers(threads - 1);
    make_workers(threads - 1);
    pool.made_for = threads;
    if (pool.workers < threads - 1)
        gd_notice(GD_LOG_WARNING, "the system refused a thread: computing on %d instead of %d",
                  pool.workers + 1, threads);
}

static bool try_lock(void) {
    return !atomic_load_explicit(&pool.locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(&pool.locked, true, memory_order_acquire);
}

static void unlock(void) { atomic_store_explicit(&pool.locked, false, memory_order_release); }

/* --- the loop --------------------------------------------------------------------------------- */

/* A share is two numbers of 32 bits. */
static const int64_t MOST_PIECES = INT32_MAX;

static void publish(int64_t n, void (*body)(void *, int64_t), void *arg) {
    note_processor(0);
    pool.body = body;
    pool.arg = arg;
    const int threads = pool.threads_now = pool.workers + 1;
    for (int t = 0; t < threads; t++)
        atomic_store_explicit(&pool.share[t].left,
                              pieces_between(n * t / threads, n * (t + 1) / threads),
                              memory_order_relaxed);
    atomic_store_explicit(&pool.gate, GATE_OPEN, memory_order_release);
    atomic_fetch_add(&pool.calls, 1);

    /* Wake no more than there are pieces for, counting those who are still spinning. */
    int sleepers = atomic_load(&pool.sleepers);
    if (sleepers == 0) return;
    int64_t wanted = n - 1 - (pool.workers - sleepers);
    if (wanted > 0) futex_wake(&pool.calls, wanted < sleepers ? (int)wanted : sleepers);
}

void gd_parallel_for(int64_t n, void (*body)(void *arg, int64_t i), void *arg) {
    if (n == 1) {
        body(arg, 0);
        return;
    }
    int threads = n > 1 && n <= MOST_PIECES && !in_loop && !stays_out ? gd_num_threads() : 1;
    if (threads == 1 || !try_lock()) {
        run_inline(n, body, arg);
        return;
    }
    if (!atomic_load_explicit(&shut_down, memory_order_relaxed)) resize(threads);
    in_loop = true;
    if (pool.workers == 0) {
        run_inline(n, body, arg);
    } else {
        publish(n, body, arg);
        run_pieces(0, body, arg);
        close_gate();
    }
    in_loop = false;
    unlock();
}

/* --- the setting ------------------------------------------------------------------------------ */

/* The processors this thread may run on. */
static int default_threads(void) {
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                         : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

static int initial_threads(void) {
    const char *text = getenv("GRADUS_NUM_THREADS");
    if (text == NULL || *text == '\0') return default_threads();
    char *end;
    long n = strtol(text, &end, 10);
    if (*end == '\0' && n >= 1 && n <= MAX_THREADS) return (int)n;
    if (*end != '\0' || n != 0)
        gd_notice(GD_LOG_WARNING,
                  "GRADUS_NUM_THREADS is \"%s\", not a number from 0 to %d: ignored", text,
                  MAX_THREADS);
    return default_threads();
}

int gd_num_threads(void) {
    int threads = atomic_load_explicit(&setting, memory_order_relaxed);
    if (threads != 0) return threads;
    int initial = initial_threads();
    /* Another thread may have set a number meanwhile; then that one counts. */
    return atomic_compare_exchange_strong(&setting, &threads, initial) ? initial : threads;
}

gd_status gd_set_num_threads(int n) {
    if (n > MAX_THREADS)
        return gd_report(NULL, gd_fail(GD_E_ARGUMENT,
                                       "gd_set_num_threads: %d threads, at most %d can be used", n,
                                       MAX_THREADS));
    int threads = n > 0 ? n : default_threads();
    atomic_store(&setting, threads);
    /* Give threads back at once where possible; else the next loop does, as it makes new ones. */
    if (!in_loop && try_lock()) {
        if (pool.workers > threads - 1) resize(threads);
        unlock();
    }
    return GD_OK;
}

/* --- fork, exit, dlclose ---------------------------------------------------------------------- */

/* Only the forking thread lives on in the child. If it forked from within a piece it still has
 * the pool (or was a worker): then the lock stays, and what it calls until it returns runs
 * inline. */
static void after_fork_in_child(void) {
    atomic_fetch_add(&forks, 1);
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.keep, 0);
    pool.workers = 0;
    pool.made_for = 0;
    if (!in_loop) unlock();
}

__attribute__((constructor)) static void pool_begin(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* Ends the workers before their code is unmapped or the program's last destructors run. Loops
 * that still come run on their callers. */
__attribute__((destructor)) static void pool_end(void) {
    atomic_store(&shut_down, true);
    if (in_loop) return; /* exit() from within a piece: the pool is ours and cannot be waited for */
    for (int waited = 0; !try_lock(); waited++) {
        if (waited == EXIT_WAIT_MS) return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    end_workers(0);
    unlock();
}
