/* scale.c - how the cost of everything grows with the size of a net.
 *
 * Each program of scale_parts.c runs at n, 4n and 16n. A part of four times the size should take
 * four times as long; the target is at most 4.5. Small parts are noisy: the better of several runs
 * counts. `bench scale` takes a minute.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "gradus/gradus.h"
#include "scale_parts.h"

enum { SIZES = 3, PARTS = 16, MAX_TRIES = 3 };

/* The times of the parts of a program, in the order in which they ran. */
static struct {
    const char *part[PARTS];
    double ns[PARTS][SIZES];
    int count, size, at;
} times;

static double began;

/* The time of the processor, in which other programs do not count. */
static double processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void scale_begin(void) { began = processor_time(); }

void scale_end(const char *part) {
    const double ns = processor_time() - began;
    const int i = times.at++;
    if (i >= PARTS) return;
    times.part[i] = part;
    if (i >= times.count) times.count = i + 1;
    double *best = &times.ns[i][times.size];
    if (*best == 0 || ns < *best) *best = ns;
}

static void run_sizes(const scale_program *p) {
    memset(&times, 0, sizeof times);
    gd_set_num_threads(1);
    for (int size = 0, n = p->n; size < SIZES; size++, n *= 4)
        for (int i = 0; i < MAX_TRIES - size; i++) {
            GD_SCOPE;
            times.size = size;
            times.at = 0;
            p->run(n);
        }
}

static void report(const scale_program *p, int i) {
    char name[80], note[160];
    const double *t = times.ns[i];
    const double first = t[1] / t[0], second = t[2] / t[1];
    snprintf(name, sizeof name, "scale_%s: %s", p->name, times.part[i]);
    snprintf(note, sizeof note, "n = %d: %.3g, %.3g, %.3g ms; grows %.1f and %.1f times", p->n,
             t[0] / 1e6, t[1] / 1e6, t[2] / 1e6, first, second);
    bench_report(name, second, 0, "times", note);
}

static void bench_growth(void) {
    for (const scale_program *p = scale_programs; p->name; p++) {
        run_sizes(p);
        for (int i = 0; i < times.count; i++) report(p, i);
    }
}

const bench_entry bench_scale[] = {{"scale", bench_growth}, {NULL, NULL}};
