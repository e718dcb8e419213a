/* main.c - runs the benchmarks, prints a table and writes results.json (one object per line).
 *
 *     bench [--out FILE] [NAME...]        NAME: runs only benchmarks whose names start with it
 *     bench --op NAME SHAPE... OPTION...  times one op: bench --op sum 1024,64 axis=1
 *
 * FILE defaults to results.json in the directory of the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "gradus/gradus.h"
#include "train.h"

static FILE *results;

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { ROUNDS = 41 };

static double median_of(double *values, double *spread) {
    qsort(values, ROUNDS, sizeof *values, compare_doubles);
    if (spread) *spread = values[3 * ROUNDS / 4] - values[ROUNDS / 4];
    return values[ROUNDS / 2];
}

/* The number of calls that take about 5 ms. */
static int64_t calls_per_round(void (*fn)(void *), void *arg) {
    fn(arg);
    for (int64_t n = 1;; n *= 2) {
        double start = bench_now();
        for (int64_t i = 0; i < n; i++) fn(arg);
        double took = bench_now() - start;
        if (took > 2e6) return 1 + (int64_t)((double)n * 5e6 / took);
    }
}

void bench_rest(double ns) {
    struct timespec t = {(time_t)(ns / 1e9), (long)ns % 1000000000};
    nanosleep(&t, NULL);
}

static double time_round(void (*fn)(void *), void *arg, int64_t calls) {
    double start = bench_now();
    for (int64_t i = 0; i < calls; i++) fn(arg);
    return (bench_now() - start) / (double)calls;
}

double bench_time(void (*fn)(void *), void *arg, double *spread) {
    int64_t calls = calls_per_round(fn, arg);
    double values[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) values[i] = time_round(fn, arg, calls);
    return median_of(values, spread);
}

void bench_in_turn(void (*fn)(void *), void *const *args, int n, bench_rival *rivals) {
    static double times[BENCH_RIVALS][ROUNDS];
    int64_t calls[BENCH_RIVALS];
    for (int k = 0; k < n; k++) calls[k] = calls_per_round(fn, args[k]);
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < n; k++) {
            fn(args[k]); /* warms the cache, which holds the previous rival's data */
            times[k][i] = time_round(fn, args[k], calls[k]);
        }
    for (int k = n; k-- > 0;) { /* the first one last, because median_of sorts its times */
        double ratio[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) ratio[i] = times[0][i] / times[k][i];
        rivals[k].speedup = median_of(ratio, NULL);
        rivals[k].ns = median_of(times[k], &rivals[k].spread);
    }
}

bench_pair bench_versus(void (*a)(void *), void (*b)(void *), void *arg, double rest_ns) {
    int64_t calls_a = calls_per_round(a, arg), calls_b = calls_per_round(b, arg);
    double ta[ROUNDS], tb[ROUNDS], ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        if (rest_ns > 0) {
            bench_rest(rest_ns);
            a(arg); /* wakes up the threads */
        }
        ta[i] = time_round(a, arg, calls_a);
        if (rest_ns > 0) {
            bench_rest(rest_ns);
            b(arg);
        }
        tb[i] = time_round(b, arg, calls_b);
        ratio[i] = tb[i] / ta[i];
    }
    bench_pair p;
    p.ratio = median_of(ratio, &p.spread);
    p.a = median_of(ta, NULL);
    p.b = median_of(tb, NULL);
    return p;
}

void bench_report(const char *name, double value, double spread, const char *unit,
                  const char *note) {
    printf("  %-28s %12.4g  (quartiles %8.2g apart)  %-8s %s\n", name, value, spread, unit, note);
    fflush(stdout);
    fprintf(results, "{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"spread\": %.3g}\n",
            name, value, unit, spread);
    fflush(results);
}

static bool is_selected(const char *name, char **wanted, int n) {
    if (n == 0) return true;
    for (int i = 0; i < n; i++)
        if (strncmp(name, wanted[i], strlen(wanted[i])) == 0) return true;
    return false;
}

/* An idle processor takes a while to reach its full clock frequency. */
static void warm_up_processor(void) {
    double until = bench_now() + 2e8;
    while (bench_now() < until) {
    }
}

static int run_in_child(const bench_entry *entry) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        warm_up_processor();
        entry->run();
        if (gd_failed()) {
            printf("  %s failed: %s\n", entry->name, gd_error_message());
            fflush(stdout);
            _exit(1);
        }
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    if (child > 0) waitpid(child, &status, 0);
    if (status != 0) printf("  %s did not finish\n", entry->name);
    return status != 0;
}

int main(int argc, char **argv) {
    if ((argc == 5 || argc == 6) && strcmp(argv[1], "--steps") == 0)
        return train_serve(argv[2], argv[3], atoi(argv[4]), argc == 6 ? argv[5] : NULL);
    if (argc > 2 && strcmp(argv[1], "--op") == 0) return bench_one_op(argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("bench [--out FILE] [NAME ...]\nbench --op OP SHAPE ... [OPTION=VALUE ...]\n"
             "Runs all benchmarks, or those whose names start with NAME; prints a table and writes "
             "FILE,\n"
             "one JSON object per line (default: results.json in the directory of this program).\n"
             "With --op: times one op and its gradients, e.g. bench --op conv2d 8,64,56,56 "
             "64,64,3,3 "
             "padding=1;\n"
             "i64:32,10 is an input of zeros, i64<9:32,10 one of integers below 9, none an absent "
             "one.");
        return 0;
    }
    char out[4096];
    int first = 1, failures = 0;
    const char *slash = strrchr(argv[0], '/');
    snprintf(out, sizeof out, "%.*sresults.json", slash ? (int)(slash + 1 - argv[0]) : 0, argv[0]);
    if (argc > 2 && strcmp(argv[1], "--out") == 0) {
        snprintf(out, sizeof out, "%s", argv[2]);
        first = 3;
    }
    if (!(results = fopen(out, "w"))) {
        perror(out);
        return 1;
    }
    const bench_entry *const lists[] = {
        bench_eager,  bench_memory, bench_math,   bench_product, bench_network,   bench_sequence,
        bench_plan,   bench_fuse,   bench_fusion, bench_resnet,  bench_precision, bench_transforms,
        bench_loader, bench_fit,    bench_scale,  bench_variants};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const bench_entry *e = lists[l]; e->name; e++)
            if (is_selected(e->name, argv + first, argc - first)) failures += run_in_child(e);
    if (fclose(results) != 0) {
        perror(out);
        return 1;
    }
    printf("  written to %s\n", out);
    return failures != 0;
}
