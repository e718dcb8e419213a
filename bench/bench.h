/* bench.h - what a benchmark is made of.
 *
 * Each benchmark runs in a process of its own: a crash or a change of state harms no other. It
 * reports named values; timings are medians over many rounds after a warm-up, with the quartiles.
 */
#ifndef GRADUS_BENCH_H
#define GRADUS_BENCH_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds now. */
double bench_now(void);

/* The median time of one call of fn(arg) in nanoseconds. `spread` (may be NULL) gets the distance of
 * the quartiles. Calls are grouped so that a round is long enough to time. */
double bench_time(void (*fn)(void *arg), void *arg, double *spread);

/* Two rivals in turn, so that both see the same machine: medians of each, and of the ratio b / a.
 * Where both have threads of their own, `rest_ns` lets those of one fall asleep before the other
 * begins; 0 for none. */
typedef struct bench_pair {
    double a, b, ratio, spread;
} bench_pair;
bench_pair bench_versus(void (*a)(void *arg), void (*b)(void *arg), void *arg, double rest_ns);
void bench_rest(double ns);

/* Several rivals in turn: fn(args[k]) for each. Of each the median time and the distance of the
 * quartiles, and the median of how many times as fast as the first it was in the same round. */
enum { BENCH_RIVALS = 8 };
typedef struct bench_rival {
    double ns, spread, speedup;
} bench_rival;
void bench_in_turn(void (*fn)(void *arg), void *const *args, int n, bench_rival *rivals);

/* Reports a value. Names are stable: other programs read them. */
void bench_report(const char *name, double value, double spread, const char *unit,
                  const char *note);

/* All benchmarks; a file of them defines one such list. */
typedef struct bench_entry {
    const char *name;
    void (*run)(void);
} bench_entry;
extern const bench_entry bench_eager[], bench_memory[], bench_math[], bench_product[],
    bench_network[], bench_sequence[], bench_plan[], bench_fuse[], bench_fusion[], bench_resnet[],
    bench_precision[], bench_transforms[], bench_loader[], bench_fit[];

#endif
