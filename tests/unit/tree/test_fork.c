/* test_fork.c - the child of a fork may use sessions and jits that other threads use at that
 * time. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "core/error.h"
#include "core/rwlock.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#endif
/* A fork does not wait for the locks of AddressSanitizer's allocator: the child hangs in malloc if
 * another thread was in it. */
#if defined(__SANITIZE_ADDRESS__)
#define SKIP_WITH_BUSY_ALLOCATOR \
    SKIP("AddressSanitizer's allocator does not survive a fork while others use it")
#else
#define SKIP_WITH_BUSY_ALLOCATOR
#endif

enum { FORKS = 40, HANGS = 30 }; /* HANGS: seconds after which an alarm ends a hung child */

/* Whether `works` returns true in a child. */
static bool succeeds_in_child(bool (*works)(void *), void *arg) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(HANGS);
        _exit(works(arg) ? 0 : 1);
    }
    return child_wait(child) == 0;
}

/* --- a session that is read, and one that is written ------------------------------------------ */

typedef struct model {
    gd_session *session;
    gd_jit *jit;
    gd_tensor *x, *y, *a, *b, *train;
    _Atomic bool over;
    _Atomic int runs;
} model;

static gd_tensors exponential(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_exp(in.at[0]));
}

/* Each step writes a and b, which are equal between steps. */
static void make_model(model *m) {
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        m->x = gd_placeholder(gd_dims(4));
        m->a = gd_variable(gd_zeros(gd_dims(3000)));
        m->b = gd_variable(gd_zeros(gd_dims(3000)));
        m->y = gd_exp(m->x);
        gd_tensor *more = gd_scalar(1);
        m->train = gd_group(
            gd_list(gd_assign(m->a, gd_add(m->a, more)), gd_assign(m->b, gd_add(m->b, more))));
    }
    m->session = gd_session_new(graph);
    m->jit = gd_jit_new(exponential, NULL);
}

static bool read_session(void *arg) {
    model *m = arg;
    GD_SCOPE;
    gd_tensor *y =
        gd_session_run(m->session, gd_feed(m->x, gd_zeros(gd_dims(4))), gd_list(m->y)).at[0];
    return !gd_failed() && gd_item(gd_max(y)) == 1;
}

static bool write_session(void *arg) {
    model *m = arg;
    GD_SCOPE;
    gd_session_run(m->session, gd_feed(), gd_list(m->train));
    gd_tensor *a = gd_session_get(m->session, m->a), *b = gd_session_get(m->session, m->b);
    return !gd_failed() && gd_item(gd_max(a)) == gd_item(gd_min(b)) &&
           gd_item(gd_min(a)) == gd_item(gd_max(b));
}

static bool call_jit(void *arg) {
    model *m = arg;
    GD_SCOPE;
    gd_tensor *y = gd_jit_call(m->jit, gd_list(gd_zeros(gd_dims(4)))).at[0];
    return !gd_failed() && gd_item(gd_max(y)) == 1;
}

static bool run_all_kinds(void *arg) {
    return read_session(arg) && write_session(arg) && call_jit(arg);
}

static void *read_in_loop(void *arg) {
    model *m = arg;
    while (!atomic_load(&m->over)) atomic_fetch_add(&m->runs, read_session(m));
    return NULL;
}

static void *write_in_loop(void *arg) {
    model *m = arg;
    while (!atomic_load(&m->over)) {
        GD_SCOPE;
        gd_session_run(m->session, gd_feed(), gd_list(m->train));
        atomic_fetch_add(&m->runs, 1);
    }
    return NULL;
}

static void *call_in_loop(void *arg) {
    model *m = arg;
    while (!atomic_load(&m->over)) atomic_fetch_add(&m->runs, call_jit(m));
    return NULL;
}

static void check_forks(void *(*busy)(void *)) {
    GD_SCOPE;
    model m = {.over = false};
    make_model(&m);
    run_all_kinds(&m);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, busy, &m);
    for (int i = 0; i < FORKS; i++) {
        const int runs = atomic_load(&m.runs);
        const bool works = succeeds_in_child(run_all_kinds, &m);
        CHECK_SAYING(works, "fork %d", i);
        if (!works) break;
        while (atomic_load(&m.runs) == runs) sched_yield(); /* the parent's threads continue */
    }
    atomic_store(&m.over, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(run_all_kinds(&m) && !gd_failed());
}

TEST(a_session_that_others_read_works_in_the_child) {
    SKIP_WITH_BUSY_ALLOCATOR;
    check_forks(read_in_loop);
}
TEST(a_session_that_others_write_is_consistent_in_the_child) {
    SKIP_WITH_BUSY_ALLOCATOR;
    check_forks(write_in_loop);
}
TEST(a_jit_that_others_call_works_in_the_child) {
    SKIP_WITH_BUSY_ALLOCATOR;
    check_forks(call_in_loop);
}

/* Every call traces and plans, since each shape is new. */
static void *plan_in_loop(void *arg) {
    model *m = arg;
    for (int64_t n = 1; !atomic_load(&m->over); n++) {
        GD_SCOPE;
        gd_jit_call(m->jit, gd_list(gd_zeros(gd_dims(n % 1000 + 1))));
        atomic_fetch_add(&m->runs, 1);
    }
    return NULL;
}

TEST(a_jit_that_others_trace_works_in_the_child) {
    SKIP_WITH_BUSY_ALLOCATOR;
    check_forks(plan_in_loop);
}

/* --- forks during a long operation ------------------------------------------------------------ */

static _Atomic int stage; /* 1: the other thread is inside the operation; 2: it may continue */
static bool is_child;

static void wait_in_the_middle(void) {
    if (is_child) return;
    atomic_store(&stage, 1);
    while (atomic_load(&stage) == 1) usleep(1000);
}

static gd_tensors slow_to_trace(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_exp(in.at[0]);
    wait_in_the_middle();
    return gd_listed(y);
}

static void *call_once(void *arg) { return call_jit(arg) ? arg : NULL; }

static bool call_in_child(void *arg) {
    is_child = true;
    return call_jit(arg);
}

TEST(a_function_being_traced_is_traced_again_in_the_child) {
    GD_SCOPE;
    pthread_t thread;
    model m = {.jit = gd_jit_new(slow_to_trace, NULL)};
    void *done;
    atomic_store(&stage, 0);
    pthread_create(&thread, NULL, call_once, &m);
    while (atomic_load(&stage) != 1) sched_yield();
    CHECK(succeeds_in_child(call_in_child, &m));
    atomic_store(&stage, 2);
    pthread_join(thread, &done);
    CHECK(done != NULL);
    CHECK(call_jit(&m) && gd_jit_traces(m.jit) == 1);
}

/* The backward pass waits in a hook. */
typedef struct layer {
    gd_jit *jit;
    gd_tensor *w;
} layer;

static gd_tensor *slow_hook(gd_tensor *gradient, void *user) {
    (void)user;
    wait_in_the_middle();
    return gd_neg(gradient);
}

static gd_tensors with_hook(gd_tensors in, void *user) {
    layer *l = user;
    gd_tensor *y = gd_mul(in.at[0], l->w);
    gd_tensor_hook(y, slow_hook, NULL);
    return gd_listed(gd_sum(gd_exp(y)));
}

static bool walk_back(void *arg) {
    layer *l = arg;
    GD_SCOPE;
    gd_tensor *w = l->w, *loss = gd_jit_call(l->jit, gd_list(gd_zeros(gd_dims(2)))).at[0];
    return gd_grad(gd_list(loss), gd_list(w)).count == 1 && !gd_failed();
}

static void *walk_once(void *arg) { return walk_back(arg) ? arg : NULL; }

static bool walk_in_child(void *arg) {
    is_child = true;
    return walk_back(arg);
}

TEST(a_gradient_being_computed_is_computed_again_in_the_child) {
    GD_SCOPE;
    pthread_t thread;
    layer l = {.w = gd_requires_grad(gd_ones(gd_dims(2)))};
    void *done;
    l.jit = gd_jit_new(with_hook, &l);
    atomic_store(&stage, 0);
    pthread_create(&thread, NULL, walk_once, &l);
    while (atomic_load(&stage) != 1) sched_yield();
    CHECK(succeeds_in_child(walk_in_child, &l));
    atomic_store(&stage, 2);
    pthread_join(thread, &done);
    CHECK(done != NULL && walk_back(&l));
}

/* --- forks during a write --------------------------------------------------------------------- */

typedef struct locked_state {
    gd_rwlock turn;
    gd_forked forked;
} locked_state;

static void repair_lock_in_child(gd_forked *f) { gd_rwlock_in_child(f->lock); }

static void *write_long(void *arg) {
    locked_state *l = arg;
    gd_rwlock_hold hold;
    if (gd_rwlock_take(&l->turn, true, &hold) != GD_OK) return NULL;
    wait_in_the_middle();
    gd_rwlock_release(&hold);
    return arg;
}

static bool read_fails(void *arg) {
    gd_rwlock_hold hold;
    return gd_rwlock_take(&((locked_state *)arg)->turn, false, &hold) == GD_E_STATE &&
           strstr(gd_latest_failure(), "was forked while") != NULL;
}

TEST(a_child_gets_an_error_for_half_written_state) {
    pthread_t thread;
    locked_state l;
    gd_rwlock_init(&l.turn);
    l.forked = (gd_forked){.in_child = repair_lock_in_child, .lock = &l.turn};
    gd_forked_add(&l.forked);
    atomic_store(&stage, 0);
    pthread_create(&thread, NULL, write_long, &l);
    while (atomic_load(&stage) != 1) sched_yield();
    CHECK(succeeds_in_child(read_fails, &l));
    atomic_store(&stage, 2);
    pthread_join(thread, NULL);
    gd_rwlock_hold hold;
    CHECK(gd_rwlock_take(&l.turn, true, &hold) == GD_OK);
    gd_rwlock_release(&hold);
    gd_forked_remove(&l.forked);
}

/* A fork while this thread holds the lock of a run: both processes continue to hold it. */
TEST(a_thread_may_fork_while_it_writes) {
    locked_state l;
    gd_rwlock_hold hold, inner;
    gd_rwlock_init(&l.turn);
    l.forked = (gd_forked){.in_child = repair_lock_in_child, .lock = &l.turn};
    gd_forked_add(&l.forked);
    CHECK(gd_rwlock_take(&l.turn, true, &hold) == GD_OK);
    fflush(NULL);
    const pid_t child = fork();
    bool right =
        gd_rwlock_take(&l.turn, false, &inner) == GD_E_STATE; /* a nested read lock fails */
    gd_rwlock_release(&hold);
    right = right && gd_rwlock_take(&l.turn, false, &hold) == GD_OK;
    gd_rwlock_release(&hold);
    if (child == 0) _exit(right ? 0 : 1);
    CHECK(right && child_wait(child) == 0);
    gd_forked_remove(&l.forked);
    gd_clear_error();
}

/* --- kernels and the pool --------------------------------------------------------------------- */

static bool compute_in_child(void *arg) {
    unsetenv("GRADUS_CC");
    return call_jit(arg);
}

static gd_tensors elementwise(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[0];
    return gd_listed(gd_exp(gd_mul(gd_sin(gd_mul(x, gd_scalar(0.7310585))), gd_tanh(x))));
}

static void *call_large(void *arg) {
    model *m = arg;
    GD_SCOPE;
    gd_jit_call(m->jit, gd_list(gd_zeros(gd_dims(1 << 20))));
    return gd_failed() ? NULL : arg;
}

static bool call_large_in_child(void *arg) {
    unsetenv("GRADUS_CC");
    return call_large(arg) != NULL;
}

/* The compiler waits until a file exists. */
TEST(a_kernel_being_compiled_is_compiled_again_in_the_child) {
    const char *script = temp_path("cc"), *mark = temp_path("started"), *go = temp_path("go");
    char text[1000];
    snprintf(text, sizeof text,
             "#!/bin/sh\ntouch %s; while [ ! -e %s ]; do sleep 0.05; done; exec cc \"$@\"\n", mark,
             go);
    file_write_text(script, text);
    chmod(script, 0700);
    setenv("GRADUS_CC", script, 1);
    setenv("GRADUS_CACHE", temp_folder(), 1);
    {
        GD_SCOPE;
        model m = {.jit = gd_jit_new(elementwise, NULL)};
        pthread_t thread;
        void *done;
        pthread_create(&thread, NULL, call_large, &m);
        while (!file_exists(mark)) usleep(1000);
        CHECK(succeeds_in_child(call_large_in_child, &m));
        CHECK(succeeds_in_child(compute_in_child, &m));
        file_write_text(go, "");
        pthread_join(thread, &done);
        CHECK(done != NULL);
    }
    unsetenv("GRADUS_CC");
}

static bool multiply(void *arg) {
    model *m = arg;
    GD_SCOPE;
    gd_tensor *y = gd_matmul(gd_ones(gd_dims(200, 200)), gd_ones(gd_dims(200, 200)));
    return !gd_failed() && gd_item(gd_max(y)) == 200 && (!m->jit || call_jit(m));
}

static void *multiply_in_loop(void *arg) {
    model *m = arg;
    while (!atomic_load(&m->over)) atomic_fetch_add(&m->runs, multiply(m));
    return NULL;
}

TEST(a_pool_that_others_use_works_in_the_child) {
    SKIP_WITH_BUSY_ALLOCATOR;
#ifdef WITH_TSAN
    SKIP("ThreadSanitizer does not support threads that a child creates");
#endif
    GD_SCOPE;
    model m = {.over = false};
    pthread_t thread;
    gd_set_num_threads(4);
    pthread_create(&thread, NULL, multiply_in_loop, &m);
    for (int i = 0; i < FORKS; i++) CHECK_SAYING(succeeds_in_child(multiply, &m), "fork %d", i);
    atomic_store(&m.over, true);
    pthread_join(thread, NULL);
    gd_set_num_threads(1);
}

/* --- devices ---------------------------------------------------------------------------------- */

static bool computes_on_test_device(void *arg) {
    (void)arg;
    GD_SCOPE;
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(5)), gd_device_get("test"));
    return gd_item(gd_sum(gd_add(x, x))) == 10 && !gd_failed();
}

static bool inherited_device_fails(void *arg) {
    const bool fails = !computes_on_test_device(arg) &&
                       strstr(gd_error_message(), "test:0 was opened before the fork");
    gd_clear_error();
    return fails && gd_item(gd_sum(gd_ones(gd_dims(5)))) == 5; /* the CPU works */
}

/* Memory that a child frees on a device of its own is used again. */
static bool reuses_memory(void *arg) {
    (void)arg;
    GD_SCOPE;
    gd_device *device = gd_device_get("test");
    gd_set_default_device(device);
    for (int i = 0; i < 10; i++) {
        GD_SCOPE;
        gd_zeros(gd_dims(1 << 20));
    }
    const gd_memory memory = gd_memory_stats(device);
    const bool reused =
        memory.live_bytes == 0 && memory.cached_bytes >= 4 << 20 && memory.cached_bytes < 8 << 20;
    gd_memory_trim(device);
    return reused && gd_memory_stats(device).cached_bytes == 0 && !gd_failed();
}

TEST(a_child_reuses_memory_of_its_device) { CHECK(succeeds_in_child(reuses_memory, NULL)); }

/* This program opens the device nowhere else. */
TEST(a_child_can_open_a_device_that_its_parent_has_not) {
    GD_SCOPE;
    CHECK(succeeds_in_child(computes_on_test_device, NULL));
    CHECK(computes_on_test_device(NULL));
    CHECK(succeeds_in_child(inherited_device_fails, NULL));
}

int main(int argc, char **argv) {
    gd_set_num_threads(1); /* children create no threads */
    return test_run_all(argc, argv);
}
