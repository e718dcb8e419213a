/* loader.c - the data loader: how busy it keeps a training loop, and the overhead per sample.
 *
 * bench/loader_peer.py measures the same with PyTorch's DataLoader and prints the ratios.
 */
#include <stdio.h>
#include <time.h>

#include "bench.h"
#include "data/permute.h"
#include "gradus/gradus.h"

static void sleep_ns(double ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1e9), .tv_nsec = (long)ns % 1000000000};
    nanosleep(&t, NULL);
}

/* --- a slow dataset --------------------------------------------------------------------------- */

enum { SLOW_BATCH = 8, SLOW_BATCHES = 150, SLOW_WORKERS = 4, SAMPLE_NS = 5000000 };

static int64_t slow_count(void *self) {
    (void)self;
    return SLOW_BATCH * SLOW_BATCHES;
}
static gd_tensors slow_get(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    sleep_ns(SAMPLE_NS);
    return gd_listed(gd_ones(gd_dims(3, 32, 32)), gd_scalar_of((double)(index % 10), GD_I64));
}

/* A step takes a third of the time that one worker needs for a batch, so three workers are just
 * enough. The first batch of the epoch, which cannot be prefetched, is included. */
static void bench_busy(void) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_from(NULL, .count = slow_count, .get = slow_get);
    gd_loader *l = gd_loader_new(d, .batch = SLOW_BATCH, .shuffle = true, .workers = SLOW_WORKERS);
    double stepping = 0, since_first = 0;
    const double begin = bench_now();
    for (gd_tensors batch; gd_loader_next(l, &batch);) {
        const double now = bench_now();
        if (since_first == 0) since_first = now;
        sleep_ns(SLOW_BATCH * (double)SAMPLE_NS / 3);
        stepping += bench_now() - now;
    }
    const double end = bench_now();
    bench_report(
        "loader_busy", 100 * stepping / (end - begin), 0, "%",
        "4 workers, samples of 5 ms, steps of a third of a batch: time in steps; target over 95");
    bench_report("loader_busy_after_first", 100 * stepping / (end - since_first), 0, "%",
                 "the same from the first batch on");
}

/* --- overhead --------------------------------------------------------------------------------- */

enum { ROWS = 51200, WIDTH = 32, BATCH = 64 };

static gd_tensors identity_map(gd_tensors sample, gd_random *random, void *user) {
    (void)random, (void)user;
    return sample;
}

static void read_epoch(void *loader) {
    for (gd_tensors batch; gd_loader_next((gd_loader *)loader, &batch);) {
    }
}

static void bench_overhead(void) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(ROWS, WIDTH)), *y = gd_zeros(gd_dims(ROWS), .dtype = GD_I64);
    gd_dataset *rows = gd_dataset_tensors(x, y), *single = gd_dataset_map(rows, identity_map, NULL);
    const struct {
        const char *name, *note;
        gd_loader *loader;
    } ways[] = {
        {"loader_rows", "a sample of gd_dataset_tensors, in order, batches of 64 rows of 32 floats",
         gd_loader_new(rows, .batch = BATCH)},
        {"loader_rows_shuffled", "the same, shuffled",
         gd_loader_new(rows, .batch = BATCH, .shuffle = true)},
        {"loader_samples", "the same, sample by sample, through a function of the program",
         gd_loader_new(single, .batch = BATCH, .shuffle = true)},
        {"loader_samples_workers", "the same with 2 workers",
         gd_loader_new(single, .batch = BATCH, .shuffle = true, .workers = 2)},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double spread;
        const double ns = bench_time(read_epoch, ways[i].loader, &spread);
        bench_report(ways[i].name, ns / ROWS, spread / ROWS, "ns", ways[i].note);
    }
}

static int64_t order_count;
static volatile int64_t order_sum;
static void read_order(void *arg) {
    (void)arg;
    const gd_rng key = gd_draw_key(GD_DRAW_ORDER, 1, 1);
    for (int64_t i = 0; i < 1000; i++) order_sum += gd_shuffled(key, i, order_count);
}

static void bench_order(void) {
    static const int64_t counts[] = {1000, 60000, 10000000};
    for (int i = 0; i < 3; i++) {
        char name[60], note[80];
        double spread;
        order_count = counts[i];
        const double ns = bench_time(read_order, NULL, &spread);
        snprintf(name, sizeof name, "loader_order_%lld", (long long)counts[i]);
        snprintf(note, sizeof note, "one position of a shuffled order of %lld samples",
                 (long long)counts[i]);
        bench_report(name, ns / 1000, spread / 1000, "ns", note);
    }
}

const bench_entry bench_loader[] = {{"loader_busy", bench_busy},
                                    {"loader_overhead", bench_overhead},
                                    {"loader_order", bench_order},
                                    {0}};
