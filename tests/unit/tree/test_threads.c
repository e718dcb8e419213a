/* test_threads.c - several threads use the library at once, and fork() while they do. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "child.h"
#include "gradus/gradus.h"

#include "test.h"

enum { THREADS = 4 };

/* Weights and data that all threads read. */
typedef struct {
    gd_tensor *x, *w, *target;
} shared;

static shared make_shared(void) {
    return (shared){gd_normal(gd_dims(16, 24)), gd_normal(gd_dims(8, 24)),
                    gd_zeros(gd_dims(16), .dtype = GD_I64)};
}

/* One training step on a copy of the shared weights. */
static bool train_step(const shared *s, float *loss) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_clone(s->w));
    gd_tensor *h = gd_layer_norm(gd_gelu(gd_linear(s->x, w, NULL)), NULL, NULL);
    gd_tensor *y =
        gd_cross_entropy(gd_add(h, gd_tanh(gd_einsum("nc,nc->nc", gd_list(h, h)))), s->target);
    if (gd_backward(y) != GD_OK) return false;
    GD_NO_GRAD;
    /* takes the lock of the generator */
    gd_tensor *noise = gd_dropout(gd_normal(gd_dims(8, 24)), .training = true);
    gd_sub_(w, gd_mul(gd_tensor_grad(w), gd_scalar(0.1)));
    gd_tensor *kept = gd_call("sum", gd_list(gd_mul(noise, w)), "axis=1 keepdim=true");
    *loss = (float)gd_item(y);
    return !gd_failed() && gd_tensor_numel(kept) == 8;
}

typedef struct {
    const shared *s;
    float loss;
    int steps;
    _Atomic bool *stop; /* NULL: ends after `steps` */
    bool failed;
} job;

static void *train_repeatedly(void *arg) {
    job *j = arg;
    for (int i = 0; (j->stop ? !atomic_load(j->stop) : i < j->steps) && !j->failed; i++) {
        float loss;
        if (!train_step(j->s, &loss)) j->failed = true;
        /* the same bits, whichever thread has the pool */
        if (i > 0 && loss != j->loss) j->failed = true;
        j->loss = loss;
    }
    return NULL;
}

TEST(threads_that_train_concurrently_get_the_same_bits) {
    GD_SCOPE;
    shared s = make_shared();
    pthread_t threads[THREADS];
    job jobs[THREADS];
    int64_t objects = gd_live_objects();
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.s = &s, .steps = 20};
        pthread_create(&threads[i], NULL, train_repeatedly, &jobs[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK(!jobs[i].failed && jobs[i].loss == jobs[0].loss);
    CHECK(gd_live_objects() == objects);
}

/* Calls the functions that any thread may call at any time. */
static void *change_settings(void *arg) {
    job *j = arg;
    for (int i = 0; i < j->steps; i++) {
        char record[128], text[256];
        gd_memory_trim(NULL);
        gd_memory_reset_peak(NULL);
        if (gd_memory_stats(NULL).live_bytes < 0) j->failed = true;
        gd_set_num_threads(1 + i % 3);
        gd_rng_set_state(gd_rng_state());
        gd_set_log(NULL, NULL);
        if (!gd_op_find("conv2d") || !gd_op_at(gd_op_count() - 1)) j->failed = true;
        gd_op_kernels(gd_op_find("matmul"), "cpu", text, sizeof text);
        snprintf(record, sizeof record,
                 "meddled%d(x) -> y  elementwise float\nTwice x.\n  y = 2*x\n", i);
        if (gd_op_define(record, NULL) != GD_OK) j->failed = true;
        if (i % 4 == 0) gd_profiler_start();
        if (i % 4 == 2) gd_profiler_stop();
    }
    gd_profiler_stop();
    gd_profiler_clear();
    return NULL;
}

TEST(settings_may_change_while_other_threads_compute) {
    GD_SCOPE;
    shared s = make_shared();
    pthread_t threads[THREADS + 1];
    job jobs[THREADS + 1];
    for (int i = 0; i <= THREADS; i++) {
        jobs[i] = (job){.s = &s, .steps = 12};
        pthread_create(&threads[i], NULL, i < THREADS ? train_repeatedly : change_settings,
                       &jobs[i]);
    }
    for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i <= THREADS; i++) CHECK(!jobs[i].failed);
    for (int i = 0; i < THREADS; i++) CHECK(jobs[i].loss == jobs[0].loss);
    gd_set_num_threads(0);
}

/* Creates handles that another thread releases, with views, gradients and the tape. */
static void *create_and_hand_over(void *arg) {
    gd_tensor *_Atomic *slot = arg;
    for (int i = 0; i < 200; i++) {
        gd_tensor *x = gd_requires_grad(gd_full(gd_dims(40), i)), *y = gd_square(x), *z = gd_sum(y);
        gd_release(y);
        gd_release(x); /* the tape has its own reference */
        gd_release(atomic_exchange(slot, z));
    }
    return NULL;
}

TEST(a_result_may_be_released_by_another_thread) {
    int64_t objects = gd_live_objects(), bytes = gd_memory_stats(NULL).live_bytes;
    gd_tensor *_Atomic slot = NULL;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, create_and_hand_over, &slot);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    gd_release(atomic_load(&slot));
    CHECK(gd_live_objects() == objects && gd_memory_stats(NULL).live_bytes == bytes);
}

TEST(a_forked_child_can_compute_while_other_threads_were_computing) {
#ifdef GD_SANITIZED /* the allocator of AddressSanitizer has locks that a fork does not wait for;
                     * ThreadSanitizer cannot follow threads created in the child of a threaded
                     * program */
    SKIP("the sanitizers' own threads and locks do not survive a fork");
#else
    GD_SCOPE;
    shared s = make_shared();
    pthread_t threads[2];
    job jobs[2];
    _Atomic bool stop = false;
    float expected;
    CHECK(train_step(&s, &expected));
    for (int i = 0; i < 2; i++) {
        jobs[i] = (job){.s = &s, .stop = &stop};
        pthread_create(&threads[i], NULL, train_repeatedly, &jobs[i]);
    }
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) {
            float loss = 0;
            bool fine = train_step(&s, &loss) && loss == expected;
            gd_seed(1);
            fine = fine && gd_op_find("tanh") &&
                   gd_op_define("child(x) -> y  elementwise\nx.\n  y = x\n", NULL) == GD_OK;
            _exit(fine ? 0 : 1);
        }
        CHECK(child_wait(child) == 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(!jobs[0].failed && !jobs[1].failed);
#endif
}

TEST_MAIN
