/* bench.h - the interface of benchmarks.
 *
 * Each benchmark runs in a separate process, so that a crash or a change of state does not affect
 * the others. It reports named values; times are medians over many rounds after a warm-up, with the
 * distance of the quartiles.
 */
#ifndef GRADUS_BENCH_BENCH_H
#define GRADUS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gradus/tensor.h"

/* The current time in nanoseconds. */
double bench_now(void);

/* The median time of one call of fn(arg) in nanoseconds. `spread` (may be NULL) gets the distance
 * of the quartiles. Calls are grouped so that a round is long enough to time. */
double bench_time(void (*fn)(void *arg), void *arg, double *spread);

/* Runs two functions in turn, so that both see the same state of the machine: the median time of
 * each, and the median of the ratio b / a. If both have their own threads, `rest_ns` lets those of
 * one fall asleep before the other starts; 0: no pause. */
typedef struct bench_pair {
    double a, b, ratio, spread;
} bench_pair;
bench_pair bench_versus(void (*a)(void *arg), void (*b)(void *arg), void *arg, double rest_ns);
void bench_rest(double ns);

/* Runs fn(args[k]) for several rivals in turn. For each: the median time, the distance of the
 * quartiles, and the median speedup over the first one in the same round. */
enum { BENCH_RIVALS = 8 };
typedef struct bench_rival {
    double ns, spread, speedup;
} bench_rival;
void bench_in_turn(void (*fn)(void *arg), void *const *args, int n, bench_rival *rivals);

/* Reports a value. Names are stable: other programs read them. */
void bench_report(const char *name, double value, double spread, const char *unit,
                  const char *note);

/* Times one op: its name, then shapes and options. Returns the exit status. */
int bench_one_op(int argc, char **argv);

/* A call of an op by its name. */
enum { BENCH_TENSORS = 16 };
typedef struct bench_call {
    const char *op;
    gd_tensor *inputs[BENCH_TENSORS], *by[BENCH_TENSORS]; /* by: the float inputs */
    int n_inputs, n_by;
    char options[512];
    gd_tensor *gradient; /* of the result */
} bench_call;

/* Adds an input, "1024,64", or an option, "axis=1". False: the text is neither. */
bool bench_add_argument(bench_call *c, const char *text);
gd_tensor *bench_run_call(const bench_call *c);

/* All benchmarks; each file defines one such list. */
typedef struct bench_entry {
    const char *name;
    void (*run)(void);
} bench_entry;
extern const bench_entry bench_eager[], bench_memory[], bench_math[], bench_product[],
    bench_network[], bench_sequence[], bench_plan[], bench_fuse[], bench_fusion[], bench_resnet[],
    bench_precision[], bench_transforms[], bench_loader[], bench_fit[], bench_scale[],
    bench_variants[];

#endif
