/* check.c - compares random nets in all modes, and reduces those whose results differ. */
#include "check.h"

#include <math.h>

#include "difference.h"
#include "test.h"

/* Pairs of modes whose results agree: with the same bits, rounded differently by plans, or rounded
 * differently by kernels of two devices, too. */
typedef struct mode_pair {
    int a, b, exact;
    enum { SAME_BITS, OF_PLANS, OF_DEVICES } agrees;
} mode_pair;

static const mode_pair pairs[] = {
    {CPU_EAGER, CPU_PLAN, CPU_EXACT, OF_PLANS},
    {CPU_EAGER, DEVICE_EAGER, CPU_EXACT, OF_DEVICES},
    {DEVICE_EAGER, DEVICE_LEVEL_0, CPU_EXACT, SAME_BITS},
    {DEVICE_LEVEL_0, DEVICE_LEVEL_2, CPU_EXACT, OF_PLANS},
    {DEVICE_LEVEL_0, DEVICE_TAPED, CPU_EXACT, OF_PLANS},
    {SESSION_LEVEL_0, SESSION_LIMITED, SESSION_EXACT, OF_PLANS},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* One net in three also runs in sessions, and another one with the tape. */
static bool has_mode(uint64_t seed, int mode) {
    if (net_modes[mode].elsewhere && !net_device) return false;
    return net_modes[mode].session ? seed % 3 == 0 : !net_modes[mode].taped || seed % 3 == 1;
}

/* In halves, a few elements are on the other side of a kink. A graph has the ops of a layer that the
 * tape computes again, and may add the gradients of a value in another order. */
static tolerance tolerance_of(const mode_pair *p, const net *n) {
    if (p->agrees == SAME_BITS && !n->recomputes) return (tolerance){1e-7, 1e-9, 0, false};
    if (!n->autocast) return (tolerance){5e-5, 2e-6, 0, false};
    if (n->has_kinks) return (tolerance){0.1, 0.04, 4, true};
    if (n->autocast == GD_BF16 || p->agrees == OF_DEVICES) return (tolerance){0.02, 0.01, 4, true};
    return (tolerance){3e-3, 1e-3, 4, true};
}

/* Runs the net in two modes. */
static difference compare_modes(const net *n, const mode_pair *p, char **plan) {
    static net_run a, b, exact;
    run_net(n, p->a, &a);
    run_net(n, p->b, &b);
    run_net(n, p->exact, &exact);
    const difference d = compare_runs(&a, &b, &exact, tolerance_of(p, n));
    if (plan) *plan = b.plan, b.plan = NULL;
    free_run(&a);
    free_run(&b);
    free_run(&exact);
    return d;
}

static net *draw_net(uint64_t seed, unsigned layers_off, unsigned without) {
    static net n;
    static const gd_dtype dtypes[] = {GD_DTYPE_NONE, GD_DTYPE_NONE, GD_F16, GD_BF16};
    n = (net){.seed = seed,
              .layers_off = layers_off,
              .without = without,
              .autocast = dtypes[draw_at(seed, 55) % 4]};
    gd_set_default_device(gd_device_get("cpu"));
    build_net(&n);
    return &n;
}

static bool still_differs(uint64_t seed, unsigned layers_off, unsigned without,
                          const mode_pair *p) {
    GD_SCOPE;
    const net *n = draw_net(seed, layers_off, without);
    const bool differs = !gd_failed() && compare_modes(n, p, NULL).worst > 1;
    gd_clear_error();
    return differs;
}

/* Leaves out layers and options while the results still differ, and prints what is left. */
static void report(uint64_t seed, unsigned layers_off, unsigned without, const mode_pair *p,
                   const difference *first) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < MAX_LAYERS + NET_OPTIONS; i++) {
            const unsigned l = i < MAX_LAYERS ? layers_off | 1u << i : layers_off,
                           w = i < MAX_LAYERS ? without : without | 1u << (i - MAX_LAYERS);
            if ((l == layers_off && w == without) || !still_differs(seed, l, w, p)) continue;
            layers_off = l, without = w, changed = true;
        }
    }
    GD_SCOPE;
    const net *n = draw_net(seed, layers_off, without);
    char *plan = NULL;
    const difference d = compare_modes(n, p, &plan);
    CHECK_SAYING(false, "seed %llu: %s and %s: %s; reduced to %llu,1,%u,%u: %s\n%s%s",
                 (unsigned long long)seed, net_modes[p->a].name, net_modes[p->b].name, first->text,
                 (unsigned long long)seed, layers_off, without, d.text, n->text, plan ? plan : "");
    free(plan);
}

static void check_seed(uint64_t seed, unsigned layers_off, unsigned without) {
    static net_run runs[MODES];
    difference found[PAIRS] = {0};
    {
        GD_SCOPE;
        const net *n = draw_net(seed, layers_off, without);
        printf("seed %llu\n%s", (unsigned long long)seed, n->text);
        fflush(stdout);
        CHECK_SAYING(!gd_failed(), "seed %llu: %s\n%s", (unsigned long long)seed,
                     gd_error_message(), n->text);
        if (gd_failed()) {
            gd_clear_error();
            return;
        }
        for (int i = 0; i < MODES; i++)
            if (has_mode(seed, i)) run_net(n, i, &runs[i]);
        for (int i = 0; i < MODES; i++)
            if (runs[i].error[0]) printf("error %s: %s\n", net_modes[i].name, runs[i].error);
        for (int i = 0; i < PAIRS; i++) {
            if (!has_mode(seed, pairs[i].b)) continue;
            found[i] = compare_runs(&runs[pairs[i].a], &runs[pairs[i].b], &runs[pairs[i].exact],
                                    tolerance_of(&pairs[i], n));
            printf("%d: %.3f %s\n", i, found[i].worst, found[i].text);
        }
        for (int i = 0; i < MODES; i++) free_run(&runs[i]);
    }
    for (int i = 0; i < PAIRS; i++)
        if (found[i].worst > 1) report(seed, layers_off, without, &pairs[i], &found[i]);
}

void check_seeds(long from, long count) {
    const char *set = getenv("GRADUS_TEST_NETS");
    unsigned layers_off = 0, without = 0;
    if (set) sscanf(set, "%ld,%ld,%u,%u", &from, &count, &layers_off, &without);
    for (long i = 0; i < count; i++) check_seed((uint64_t)(from + i), layers_off, without);
}
