/* difference.c - how much the results of two runs of a random net differ. */
#include "difference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double element(const net_result *r, int64_t i) {
    return r->at[i] - (r->before ? r->before[i] : 0);
}

static double largest_of(const net_result *r) {
    double most = 0;
    for (int64_t i = 0; i < r->count; i++)
        if (fabs(element(r, i)) > most) most = fabs(element(r, i));
    return most;
}

static double root_mean_square(const net_result *r) {
    double sum = 0;
    for (int64_t i = 0; i < r->count; i++) sum += element(r, i) * element(r, i);
    return r->count ? sqrt(sum / (double)r->count) : 0;
}

/* Of f32 results the largest difference counts, of halves the root of the mean square. */
static double size_of(const net_result *r, bool halves) {
    return halves ? root_mean_square(r) : largest_of(r);
}

static double distance(const net_result *a, const net_result *b, bool halves) {
    double most = 0, sum = 0;
    for (int64_t i = 0; i < a->count; i++) {
        const double x = element(a, i), y = element(b, i), d = fabs(x - y);
        if (x == y || (isnan(x) && isnan(y))) continue;
        if (!(d <= most)) most = d;
        sum += d * d;
    }
    return halves ? sqrt(sum / (double)(a->count ? a->count : 1)) : most;
}

/* Rounding of the parameters, to which small changes are added. */
static double parameter_rounding(const net_result *r, bool halves) {
    if (r->kind != CHANGE) return 1e-7;
    const net_result before = {.at = r->before, .count = r->count};
    return 1e-6 * (1 + size_of(&before, halves));
}

/* The distance from the result in f32. */
static double noise_of(const net_run *a, const net_run *exact, int i, bool halves) {
    const net_result *r = &a->results[i], *e = i < exact->count ? &exact->results[i] : NULL;
    return e && e->kind == r->kind && e->count == r->count ? distance(r, e, halves) : 0;
}

/* The largest size and noise of results of each kind. */
typedef struct kind_sizes {
    double size[4], noise[4];
} kind_sizes;

static kind_sizes find_sizes(const net_run *a, const net_run *exact, bool halves) {
    kind_sizes k = {.size = {0}};
    for (int i = 0; i < a->count; i++) {
        const net_result *r = &a->results[i];
        k.size[r->kind] = fmax(k.size[r->kind], size_of(r, halves));
        k.noise[r->kind] = fmax(k.noise[r->kind], noise_of(a, exact, i, halves));
    }
    return k;
}

/* The noise of a single result may be small by chance. */
static double allowed_distance(const net_run *a, const net_run *exact, int i, tolerance t,
                               const kind_sizes *k) {
    const net_result *r = &a->results[i];
    const bool sums = r->kind == CHANGE || r->kind == GRADIENT;
    const double noise = noise_of(a, exact, i, t.halves) + (sums ? k->noise[r->kind] / 2 : 0);
    return t.relative * size_of(r, t.halves) + (sums ? t.common * k->size[r->kind] : 0) +
           t.noise * noise + parameter_rounding(r, t.halves);
}

difference compare_runs(const net_run *a, const net_run *b, const net_run *exact, tolerance t) {
    static const char *const names[] = {"output", "change of tensor", "buffer",
                                        "gradient of tensor"};
    difference d = {.worst = 0};
    if (a->error[0] || b->error[0]) {
        const bool allowed = strstr(b->error, "was overwritten by the function itself");
        d.worst = (a->error[0] && b->error[0]) || allowed ? 0 : INFINITY;
        snprintf(d.text, sizeof d.text, "'%.150s', and '%.150s'", a->error, b->error);
        return d;
    }
    const kind_sizes k = find_sizes(a, exact, t.halves);
    for (int i = 0; i < a->count; i++) {
        const net_result *x = &a->results[i], *y = i < b->count ? &b->results[i] : NULL;
        if (!y || x->kind != y->kind || x->count != y->count || !x->at || !y->at) {
            snprintf(d.text, sizeof d.text, "result %d is another", i);
            d.worst = INFINITY;
            return d;
        }
        const double error = distance(x, y, t.halves),
                     allowed = allowed_distance(a, exact, i, t, &k),
                     worst = isnan(error) ? INFINITY : error / allowed;
        if (!(worst > d.worst)) continue;
        d.worst = worst;
        snprintf(d.text, sizeof d.text, "%s %d%s%d: %g of %g, allowed %g", names[x->kind],
                 x->number, x->kind == OUTPUT ? " of call " : " after call ",
                 x->kind == OUTPUT ? x->step : STEPS - 1, error, size_of(x, t.halves), allowed);
    }
    return d;
}
