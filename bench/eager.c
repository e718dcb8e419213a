/* eager.c - the overhead of an eager call, and the bandwidth of simple ops compared with memcpy. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gradus/gradus.h"

/* --- one-element ops -------------------------------------------------------------------------- */

static gd_tensor *a, *b;

static void add_once(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_add(a, b);
}

static void eager_add(void) {
    GD_SCOPE;
    gd_set_num_threads(1);
    a = gd_scalar(1);
    b = gd_scalar(2);
    double spread, ns = bench_time(add_once, NULL, &spread);
    bench_report("eager_add_ns", ns, spread, "ns", "one element; target 200");
    gd_requires_grad(a);
    ns = bench_time(add_once, NULL, &spread);
    bench_report("eager_add_grad_ns", ns, spread, "ns", "the same on the tape; target 400");
}

const bench_entry bench_eager[] = {{"eager", eager_add}, {NULL, NULL}};

/* --- large arrays ----------------------------------------------------------------------------- */

enum { MIB = 1 << 20, LARGE = 64 * MIB };

typedef struct {
    gd_tensor *x, *y, *out;
    char *from, *to;
} arrays;

/* memcpy on two threads that already run: the upper bound of the bandwidth. */
typedef struct {
    char *to, *from;
    size_t bytes;
    pthread_barrier_t *start, *end;
    bool stop;
} copy_half;
static copy_half second;
static pthread_barrier_t start_barrier, end_barrier;

static void *copy_second_half(void *arg) {
    copy_half *h = arg;
    while (true) {
        pthread_barrier_wait(h->start);
        if (h->stop) return NULL;
        memcpy(h->to, h->from, h->bytes);
        pthread_barrier_wait(h->end);
    }
}

static void copy_with_two_threads(void *arg) {
    arrays *v = arg;
    second.to = v->to + LARGE / 2;
    second.from = v->from + LARGE / 2;
    second.bytes = LARGE / 2;
    pthread_barrier_wait(&start_barrier);
    memcpy(v->to, v->from, LARGE / 2);
    pthread_barrier_wait(&end_barrier);
}

static void add_large(void *arg) {
    arrays *v = arg;
    gd_op_run_into(gd_op_find("add"), gd_list(v->x, v->y), NULL, gd_list(v->out));
}

static void sum_large(void *arg) {
    arrays *v = arg;
    GD_SCOPE;
    gd_sum(v->x);
}

static void memory_bound(void) {
    GD_SCOPE;
    gd_set_num_threads(2);
    int64_t n = LARGE / 4;
    arrays v = {.x = gd_full(gd_dims(n), 1.5),
                .y = gd_full(gd_dims(n), 2.5),
                .out = gd_full(gd_dims(n), 0)};
    v.from = malloc(LARGE);
    v.to = malloc(LARGE);
    if (!v.from || !v.to) return;
    memset(v.from, 1, LARGE);
    memset(v.to, 2, LARGE);
    pthread_barrier_init(&start_barrier, NULL, 2);
    pthread_barrier_init(&end_barrier, NULL, 2);
    second.start = &start_barrier;
    second.end = &end_barrier;
    pthread_t thread;
    if (pthread_create(&thread, NULL, copy_second_half, &second) != 0) return;
    /* in bytes per second: add accesses 3 arrays, a copy 2, a sum 1 */
    bench_pair p = bench_versus(add_large, copy_with_two_threads, &v, 0);
    bench_report("add_vs_copy", p.ratio * 3 / 2, p.spread * 3 / 2, "ratio",
                 "64 MiB arrays, 2 threads; target 0.8");
    p = bench_versus(sum_large, copy_with_two_threads, &v, 0);
    bench_report("sum_vs_copy", p.ratio / 2, p.spread / 2, "ratio",
                 "64 MiB, 2 threads; target 0.8");
    second.stop = true;
    pthread_barrier_wait(&start_barrier);
    pthread_join(thread, NULL);
    free(v.from);
    free(v.to);
}

const bench_entry bench_memory[] = {{"memory", memory_bound}, {NULL, NULL}};
