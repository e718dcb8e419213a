/* pool.c - the thread pool: distributes the tasks of a parallel loop over the threads.
 *
 * One loop at a time uses the pool. A caller that does not get its lock at once runs its loop
 * inline. The owner publishes the loop, opens a gate and runs tasks like every other thread. A
 * worker enters the gate (increments its count) before it reads the loop, and leaves it when no
 * task is left. When the caller finds no more tasks, it closes the gate and waits for the workers
 * inside. A worker that is slow to wake up (because its core runs another process) is not waited
 * for: it finds the gate closed, and the others have run its tasks.
 *
 * Each thread has a range of tasks, the same in every loop of n tasks, so a thread that updates the
 * same weights in every training step finds them in its core's cache. A thread that has finished
 * its range steals tasks from the end of other ranges.
 *
 * Waiting workers spin briefly, because the next loop of a network often follows within
 * microseconds, and then sleep, because a spinning thread may take a core away from one that has
 * work.
 *
 * A worker that wakes up on the processor of the caller, or of an earlier worker, moves to another
 * one: the two would share a processor while another is idle. Schedulers, in particular in virtual
 * machines, do that to threads that sleep often.
 *
 * All state is static and atomic, and the child of a fork() resets it: nothing has to be unlocked
 * there, whatever the parent's other threads were doing.
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

    /* How long a waiting thread spins before it sleeps. Waking a sleeping thread takes 15 to 50 us
     * (measured), so a worker that spins that long loses at most as much time as it can save. The
     * caller only waits for running tasks; if that takes long, the worker has probably been
     * preempted, possibly by the caller, so the caller yields its core. It sleeps only after that,
     * because a thread that is woken is often moved to the core of its waker. */
    WORKER_SPIN_NS = 50000,
    CALLER_SPIN_NS = 10000,
    CALLER_YIELD_NS = 2000000,

    /* The shortest time between two moves of a worker. */
    MOVE_INTERVAL_NS = 5000000,

    /* At exit, how long to wait for another thread's loop before the workers are left running. */
    EXIT_WAIT_MS = 1000,
};

/* The gate: bit 31: open; bit 30: the caller sleeps until the last worker leaves; below: the number
 * of workers inside. */
static const uint32_t GATE_OPEN = 1u << 31, GATE_WAITED = 1u << 30;

static struct {
    /* What a worker reads to start, in one cache line. `calls` changes with every loop; workers
     * spin and sleep on it. The loop itself may only be read inside the gate. */
    _Alignas(CACHE_LINE) _Atomic uint32_t calls;
    _Atomic uint32_t gate;
    int threads_now; /* threads that have a range of the loop */
    void (*body)(void *arg, int64_t i);
    void *arg;

    /* The remaining range of each thread: its first task in the low 32 bits, its end in the high
     * ones. */
    struct {
        _Alignas(CACHE_LINE) _Atomic uint64_t remaining;
    } range[MAX_THREADS];

    _Alignas(CACHE_LINE) _Atomic int sleepers; /* workers in the futex, or about to enter it */
    _Atomic int keep;                          /* workers with this index and above shall exit */

    _Atomic int processor[MAX_THREADS]; /* the last processors of the caller and of the workers */

    /* The rest is only accessed by the owner of the lock. */
    _Alignas(CACHE_LINE) _Atomic bool locked;
    int workers;  /* running now */
    int made_for; /* the setting when `workers` were created, which may be fewer */
    pthread_t threads[MAX_THREADS - 1];
} pool;

static _Atomic int thread_setting; /* number of threads; 0: not initialized */
static _Atomic bool shut_down;     /* the program exits, or the library is unloaded */
static _Atomic int forks;          /* the number of fork()s since the first process */

/* True on workers and on the owner of the pool: their loops run inline. */
static _Thread_local bool in_loop;

/* True on threads that do not use the pool (gd_pool_stay_out). */
static _Thread_local bool runs_inline;
void gd_pool_stay_out(void) { runs_inline = true; }

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

/* Spins while *word is `value`, for at most limit_ns; true if it still is. The limit is a time
 * because a pause instruction takes 5 to 140 cycles, depending on the processor. */
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

/* The same, but yields the core to other threads. */
static bool yield_while(_Atomic uint32_t *word, uint32_t value, int64_t limit_ns) {
    for (const int64_t deadline = now_ns() + limit_ns; now_ns() < deadline; sched_yield())
        if (atomic_load_explicit(word, memory_order_acquire) != value) return false;
    return true;
}

/* Waits in a worker for a call other than `seen`. The worker increments `sleepers` before the
 * kernel compares `calls`, and the caller changes `calls` before it reads `sleepers`, so no wake-up
 * is lost. */
static uint32_t wait_for_call(uint32_t seen) {
    while (spin_while(&pool.calls, seen, WORKER_SPIN_NS)) {
        atomic_fetch_add(&pool.sleepers, 1);
        futex_wait(&pool.calls, seen);
        atomic_fetch_sub(&pool.sleepers, 1);
    }
    return atomic_load(&pool.calls);
}

/* --- processors ------------------------------------------------------------------------------- */

static void record_processor(int slot) {
    atomic_store_explicit(&pool.processor[slot], sched_getcpu(), memory_order_relaxed);
}

static int last_processor(int slot) {
    return atomic_load_explicit(&pool.processor[slot], memory_order_relaxed);
}

/* The processor affinity of a worker. */
typedef struct worker_affinity {
    int slot;          /* its index among the threads: 0 is the caller */
    cpu_set_t allowed; /* its initial affinity mask */
    int64_t moved;     /* when it was last moved */
} worker_affinity;

/* Excludes the processors of the threads before this one from its affinity mask, unless none would
 * be left. Without that, the scheduler would wake it on the caller's processor again. */
static void move_to_free_processor(const worker_affinity *p) {
    cpu_set_t free = p->allowed;
    for (int i = 0; i < p->slot; i++)
        if (last_processor(i) >= 0 && last_processor(i) < CPU_SETSIZE)
            CPU_CLR((size_t)last_processor(i), &free);
    if (CPU_COUNT(&free) == 0) free = p->allowed;
    sched_setaffinity(0, sizeof free, &free);
}

/* Moves a worker that was woken on the processor of the caller or of an earlier worker. */
static void avoid_busy_processors(worker_affinity *p) {
    const int here = sched_getcpu();
    for (int i = 0; i < p->slot; i++)
        if (last_processor(i) == here) {
            const int64_t now = now_ns();
            if (now - p->moved < MOVE_INTERVAL_NS) break;
            move_to_free_processor(p);
            p->moved = now;
            break;
        }
    record_processor(p->slot);
}

/* --- tasks ------------------------------------------------------------------------------------ */

static void run_inline(int64_t n, void (*body)(void *, int64_t), void *arg) {
    for (int64_t i = 0; i < n; i++) body(arg, i);
}

static uint64_t pack_range(int64_t begin, int64_t end) {
    return (uint64_t)end << 32 | (uint64_t)begin;
}

/* Takes the first task of a range, or its last; -1 if it is empty. */
static int64_t take_task(_Atomic uint64_t *range, bool first) {
    uint64_t remaining = atomic_load_explicit(range, memory_order_relaxed);
    for (;;) {
        const int64_t begin = (int64_t)(remaining & UINT32_MAX), end = (int64_t)(remaining >> 32);
        if (begin >= end) return -1;
        const uint64_t shorter = first ? pack_range(begin + 1, end) : pack_range(begin, end - 1);
        if (atomic_compare_exchange_weak_explicit(range, &remaining, shorter, memory_order_relaxed,
                                                  memory_order_relaxed))
            return first ? begin : end - 1;
    }
}

/* Runs the thread's own range, then steals from the others. */
static void run_tasks(int slot, void (*body)(void *, int64_t), void *arg) {
    const int threads = pool.threads_now;
    for (int k = 0; k < threads; k++) {
        _Atomic uint64_t *range = &pool.range[(slot + k) % threads].remaining;
        for (int64_t i; (i = take_task(range, k == 0)) >= 0;) body(arg, i);
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

/* Closes the gate and waits until all workers have left. */
static void close_gate(void) {
    uint32_t gate = atomic_fetch_and(&pool.gate, ~GATE_OPEN) & ~GATE_OPEN;
    while (gate != 0) {
        if (!spin_while(&pool.gate, gate, CALLER_SPIN_NS) ||
            !yield_while(&pool.gate, gate, CALLER_YIELD_NS)) {
            gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
            continue;
        }
        /* Sleep, which also frees this core for a preempted worker. If the exchange fails, a worker
         * has just left; `gate` is the new count then. */
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
    char name[16]; /* the longest name in Linux */
    snprintf(name, sizeof name, "gradus-%u", (unsigned)(index + 1) % 1000);
    pthread_setname_np(pthread_self(), name);

    in_loop = true;
    worker_affinity here = {.slot = index + 1};
    const bool movable = sched_getaffinity(0, sizeof here.allowed, &here.allowed) == 0;
    uint32_t seen = atomic_load(&pool.calls);
    for (;;) {
        if (index >= atomic_load(&pool.keep)) return NULL;
        if (movable) avoid_busy_processors(&here);
        if (enter_gate()) {
            run_tasks(index + 1, pool.body, pool.arg);
            /* The task forked and returned here in the child: this thread is not a worker of the
             * child's pool and must not leave its gate. */
            if (atomic_load_explicit(&forks, memory_order_relaxed) != process) return NULL;
            leave_gate();
        }
        seen = wait_for_call(seen);
    }
}

/* Ends the workers with index `keep` and above. */
static void end_workers(int keep) {
    if (pool.workers <= keep) return;
    atomic_store(&pool.keep, keep);
    atomic_fetch_add(&pool.calls, 1);
    futex_wake(&pool.calls, INT_MAX);
    for (int i = keep; i < pool.workers; i++) pthread_join(pool.threads[i], NULL);
    pool.workers = keep;
}

/* Creates workers until there are `count`, or until the system cannot create more. */
static void make_workers(int count) {
    atomic_store(&pool.keep, count);
    while (pool.workers < count) {
        void *index = (void *)(intptr_t)pool.workers;
        if (!gd_thread_start(&pool.threads[pool.workers], worker_main, index)) break;
        pool.workers++;
    }
}

/* Creates or ends workers according to the setting. The pool is locked. */
static void resize_pool(int threads) {
    if (pool.made_for == threads) return;
    end_workers(threads - 1);
    make_workers(threads - 1);
    pool.made_for = threads;
    if (pool.workers < threads - 1)
        gd_notice(GD_LOG_WARNING,
                  "the system cannot create more threads: computing with %d instead of %d",
                  pool.workers + 1, threads);
}

static bool try_lock_pool(void) {
    return !atomic_load_explicit(&pool.locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(&pool.locked, true, memory_order_acquire);
}

static void unlock_pool(void) { atomic_store_explicit(&pool.locked, false, memory_order_release); }

/* --- the loop --------------------------------------------------------------------------------- */

/* A range is two 32-bit numbers. */
static const int64_t MAX_TASKS = INT32_MAX;

static void publish_loop(int64_t n, void (*body)(void *, int64_t), void *arg) {
    record_processor(0);
    pool.body = body;
    pool.arg = arg;
    const int threads = pool.threads_now = pool.workers + 1;
    for (int t = 0; t < threads; t++)
        atomic_store_explicit(&pool.range[t].remaining,
                              pack_range(n * t / threads, n * (t + 1) / threads),
                              memory_order_relaxed);
    atomic_store_explicit(&pool.gate, GATE_OPEN, memory_order_release);
    atomic_fetch_add(&pool.calls, 1);

    /* Wake at most as many as there are tasks for, counting the workers that are still spinning. */
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
    int threads = n > 1 && n <= MAX_TASKS && !in_loop && !runs_inline ? gd_num_threads() : 1;
    if (threads == 1 || !try_lock_pool()) {
        run_inline(n, body, arg);
        return;
    }
    if (!atomic_load_explicit(&shut_down, memory_order_relaxed)) resize_pool(threads);
    in_loop = true;
    if (pool.workers == 0) {
        run_inline(n, body, arg);
    } else {
        publish_loop(n, body, arg);
        run_tasks(0, body, arg);
        close_gate();
    }
    in_loop = false;
    unlock_pool();
}

/* --- the setting ------------------------------------------------------------------------------ */

/* The number of processors this thread may run on. */
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
    int threads = atomic_load_explicit(&thread_setting, memory_order_relaxed);
    if (threads != 0) return threads;
    int initial = initial_threads();
    /* If another thread has set a number meanwhile, that one is used. */
    return atomic_compare_exchange_strong(&thread_setting, &threads, initial) ? initial : threads;
}

gd_status gd_set_num_threads(int n) {
    if (n > MAX_THREADS)
        return gd_report(NULL, gd_fail(GD_E_ARGUMENT,
                                       "gd_set_num_threads: %d threads, at most %d can be used", n,
                                       MAX_THREADS));
    int threads = n > 0 ? n : default_threads();
    atomic_store(&thread_setting, threads);
    /* End surplus threads now if possible; otherwise the next loop does it. */
    if (!in_loop && try_lock_pool()) {
        if (pool.workers > threads - 1) resize_pool(threads);
        unlock_pool();
    }
    return GD_OK;
}

/* --- fork, exit, dlclose ---------------------------------------------------------------------- */

/* Only the forking thread exists in the child. If it forked inside of a task, it still owns the
 * pool (or was a worker): then the pool stays locked, and its loops run inline until the task
 * returns. */
static void after_fork_in_child(void) {
    atomic_fetch_add(&forks, 1);
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.keep, 0);
    pool.workers = 0;
    pool.made_for = 0;
    if (!in_loop) unlock_pool();
}

__attribute__((constructor)) static void pool_begin(void) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* Ends the workers before their code is unmapped or the program's last destructors run. Later loops
 * run inline. */
__attribute__((destructor)) static void pool_end(void) {
    atomic_store(&shut_down, true);
    if (in_loop)
        return; /* exit() inside of a task: this thread owns the pool and cannot wait for it */
    for (int waited = 0; !try_lock_pool(); waited++) {
        if (waited == EXIT_WAIT_MS) return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    end_workers(0);
    unlock_pool();
}
