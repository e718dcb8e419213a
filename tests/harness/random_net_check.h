/* random_net_check.h - runs random training steps (random_net_step.h) eagerly and as plans, on the CPU
 * and on another device, and compares the results.
 *
 * GRADUS_TEST_NETS=FROM,COUNT runs other seeds than the usual ones. A net whose results differ is
 * reduced: layers and options are left out while they still differ. The check prints what is left,
 * and the plan. GRADUS_TEST_NETS=SEED,1,LAYERS,OPTIONS runs the reduced net again; the last two are
 * the bits of what was left out.
 */
#ifndef GRADUS_TESTS_RANDOM_NET_CHECK_H
#define GRADUS_TESTS_RANDOM_NET_CHECK_H

#include <math.h>

#include "compare.h"
#include "random_net_step.h"
#include "test.h"

/* The device that is compared with the CPU; NULL: none. */
static const char *net_device;

enum { STEPS = 3, MOST_RESULTS = STEPS * (MOST_FETCHES + 5) + 2 * MOST_TENSORS };

/* --- results ---------------------------------------------------------------------------------- */

typedef enum result_kind { OUTPUT, CHANGE, BUFFER, GRADIENT } result_kind;

typedef struct net_result {
    result_kind kind;
    int step, number; /* of an output: the call and its number; otherwise the tensor's number */
    double *at, *before;
    int64_t count;
} net_result;

typedef struct net_run {
    net_result results[MOST_RESULTS];
    int count;
    char *plan; /* as text; NULL: none */
    char error[300];
} net_run;

static void free_run(net_run *r) {
    for (int i = 0; i < r->count; i++) {
        free(r->results[i].at);
        free(r->results[i].before);
    }
    free(r->plan);
    *r = (net_run){.count = 0};
}

static void add_result(net_run *r, result_kind kind, int step, int number, gd_tensor *t,
                       gd_tensor *before) {
    if (r->count == MOST_RESULTS) return;
    net_result *at = &r->results[r->count++];
    *at = (net_result){kind,
                       step,
                       number,
                       tensor_numbers(t),
                       before ? tensor_numbers(before) : NULL,
                       gd_tensor_numel(t)};
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct run_mode {
    const char *name;
    bool elsewhere; /* on net_device; otherwise on the CPU */
    int level;      /* of a plan; -1: eager */
    bool exact;     /* without autocast */
    bool session;   /* a graph; otherwise a jit */
    bool taped;     /* the jit computes the loss, and the tape its gradients */
    bool limited;   /* of the session's memory */
} run_mode;

enum {
    CPU_EXACT, /* its distance from the others measures how much a net amplifies rounding */
    CPU_EAGER,
    CPU_PLAN,
    DEVICE_EAGER,
    DEVICE_LEVEL_0,
    DEVICE_LEVEL_2,
    DEVICE_TAPED,
    SESSION_EXACT,
    SESSION_LEVEL_0,
    SESSION_LIMITED,
    MODES
};

static const run_mode modes[MODES] = {
    [CPU_EXACT] = {"eagerly in f32", .level = -1, .exact = true},
    [CPU_EAGER] = {"eagerly on the CPU", .level = -1},
    [CPU_PLAN] = {"as a plan of the CPU", .level = 2},
    [DEVICE_EAGER] = {"eagerly on the device", true, .level = -1},
    [DEVICE_LEVEL_0] = {"as a plan of level 0 on the device", true, .level = 0},
    [DEVICE_LEVEL_2] = {"as a plan of level 2 on the device", true, .level = 2},
    [DEVICE_TAPED] = {"as a plan that the tape records", true, .level = 2, .taped = true},
    [SESSION_EXACT] = {"in a session in f32", .session = true, .exact = true},
    [SESSION_LEVEL_0] = {"in a session of level 0", true, .session = true},
    [SESSION_LIMITED] = {"in a session with little memory", true, 2, .session = true,
                         .limited = true},
};

static gd_tensors inputs_on(const net *n, int step, gd_device *device) {
    const gd_tensors here = make_inputs(n, step);
    gd_tensor *there[MOST_TENSORS];
    for (int i = 0; i < here.count; i++) there[i] = gd_to_device(here.at[i], device);
    return gd_list_copy((gd_tensors){there, here.count});
}

static void take_steps(net *n, gd_device *device, const run_mode *mode, net_run *r) {
    const gd_body body = mode->taped ? net_values : net_step;
    gd_jit *jit = mode->level >= 0 ? gd_jit_new(body, n, .level = mode->level) : NULL;
    for (int step = 0; step < STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_set_default_device(gd_device_get("cpu"));
        const gd_tensors in = inputs_on(n, step, device);
        gd_set_default_device(device);
        gd_seed(n->seed + (uint64_t)step);
        const gd_tensors out = jit && !mode->taped ? gd_jit_call(jit, in) : step_with(n, in, jit);
        for (int i = 0; i < out.count && !gd_failed(); i++)
            add_result(r, OUTPUT, step, i, out.at[i], NULL);
        if (jit && step == 0 && !gd_failed()) r->plan = gd_jit_plan_text(jit, in);
    }
}

/* The step as a graph. Returns the number of fetches: the loss, values of layers, the update. */
static int build_graph(net *n, gd_tensors inputs, gd_tensor **places, gd_tensor **fetches) {
    const step_options o = draw_step(n);
    for (int i = 0; i < inputs.count; i++)
        places[i] =
            gd_placeholder(gd_tensor_shape(inputs.at[i]), .dtype = gd_tensor_dtype(inputs.at[i]));
    fetches[0] = net_loss(n, (gd_tensors){places, inputs.count}, 0);
    for (int i = 0; i < n->n_fetches; i++) fetches[1 + i] = n->fetches[i];
    fetches[1 + n->n_fetches] =
        gd_minimize(n->optimizer, fetches[0], .clip_norm = o.clips_norm ? 0.5 : 0,
                    .clip_value = o.clips_value ? CLIP_VALUE(n) : 0, .loss_scale = n->loss_scale);
    return 2 + n->n_fetches;
}

/* A session with as much of the memory of a plan without a limit as it needs at least. */
static gd_session *limit_session(gd_graph *graph, gd_device *device, gd_tensors feeds,
                                 gd_tensors fetches) {
    static const double parts[] = {0.5, 0.7, 0.85, 1.5};
    gd_session *s = gd_session_new(graph, .device = device);
    gd_plan_memory memory = {0};
    gd_session_plan(s, feeds, fetches, &memory);
    for (int i = 0; i < 4 && !gd_failed(); i++) {
        const int64_t limit = (int64_t)(parts[i] * (double)memory.peak_bytes) + 1;
        s = gd_session_new(graph, .device = device, .memory_limit = limit);
        if (gd_session_plan(s, feeds, fetches, NULL) == GD_OK || i == 3) break;
        gd_clear_error();
    }
    return s;
}

static void run_session(net *n, gd_device *device, const run_mode *mode, net_run *r) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *places[MOST_TENSORS], *fetches[MOST_FETCHES + 2], *feeds[2 * MOST_TENSORS];
    gd_session *session = NULL;
    const gd_tensors first = make_inputs(n, 0);
    int count;
    gd_set_default_device(device);
    {
        GD_GRAPH(graph);
        count = build_graph(n, first, places, fetches);
    }
    for (int step = 0; step < STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_set_default_device(gd_device_get("cpu"));
        const gd_tensors in = inputs_on(n, step, device);
        gd_set_default_device(device);
        gd_seed(n->seed);
        for (int i = 0; i < in.count; i++) feeds[2 * i] = places[i], feeds[2 * i + 1] = in.at[i];
        const gd_tensors fed = {feeds, 2 * in.count}, fetched = {fetches, count};
        if (!session)
            session = gd_retain(
                mode->limited ? limit_session(graph, device, fed, fetched)
                              : gd_session_new(graph, .device = device, .level = mode->level));
        if (step == 0 && !gd_failed()) r->plan = gd_session_plan_text(session, fed, fetched);
        const gd_tensors out = gd_session_run(session, fed, fetched);
        for (int i = 0; i < count - 1 && !gd_failed(); i++)
            add_result(r, OUTPUT, step, i, out.at[i], NULL);
    }
    gd_release(session);
}

static void run_net(const net *built, int mode, net_run *r) {
    GD_SCOPE;
    const run_mode *m = &modes[mode];
    gd_device *device = gd_device_get(m->elsewhere ? net_device : "cpu");
    r->count = 0;
    r->error[0] = 0;
    gd_set_default_device(device);
    net n = copy_net(built, device);
    n.exact = m->exact;
    n.in_graph = m->session;
    make_optimizer(&n);
    if (m->session) run_session(&n, device, m, r);
    else take_steps(&n, device, m, r);
    for (int i = 0; i < n.n_tensors && !gd_failed(); i++) {
        if (n.roles[i] == NET_PARAMETER || n.roles[i] == NET_FROZEN)
            add_result(r, CHANGE, 0, i, n.tensors[i], built->tensors[i]);
        if (n.roles[i] == NET_BUFFER) add_result(r, BUFFER, 0, i, n.tensors[i], NULL);
    }
    for (int i = 0; i < n.n_tensors && !gd_failed(); i++)
        if (n.roles[i] == NET_PARAMETER && gd_tensor_grad(n.tensors[i]))
            add_result(r, GRADIENT, 0, i, gd_tensor_grad(n.tensors[i]), NULL);
    if (gd_failed()) snprintf(r->error, sizeof r->error, "%s", gd_error_message());
    gd_clear_error();
    gd_set_default_device(NULL);
}

/* --- comparing -------------------------------------------------------------------------------- */

typedef struct difference {
    double worst; /* the distance, divided by the allowed one */
    char text[400];
} difference;

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

typedef struct tolerance {
    double relative; /* to the size of the result */
    double common;   /* to the largest size of results of its kind: sums that cancel */
    double noise;    /* to the distance from the results in f32 */
    bool halves;
} tolerance;

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

/* The result of two runs that differs most, in units of what is allowed. */
static difference compare_runs(const net_run *a, const net_run *b, const net_run *exact,
                               tolerance t) {
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

/* --- checking --------------------------------------------------------------------------------- */

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
    if (modes[mode].elsewhere && !net_device) return false;
    return modes[mode].session ? seed % 3 == 0 : !modes[mode].taped || seed % 3 == 1;
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
        for (int i = 0; i < MOST_LAYERS + NET_OPTIONS; i++) {
            const unsigned l = i < MOST_LAYERS ? layers_off | 1u << i : layers_off,
                           w = i < MOST_LAYERS ? without : without | 1u << (i - MOST_LAYERS);
            if ((l == layers_off && w == without) || !still_differs(seed, l, w, p)) continue;
            layers_off = l, without = w, changed = true;
        }
    }
    GD_SCOPE;
    const net *n = draw_net(seed, layers_off, without);
    char *plan = NULL;
    const difference d = compare_modes(n, p, &plan);
    CHECK_SAYING(false, "seed %llu: %s and %s: %s; reduced to %llu,1,%u,%u: %s\n%s%s",
                 (unsigned long long)seed, modes[p->a].name, modes[p->b].name, first->text,
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
            if (runs[i].error[0]) printf("error %s: %s\n", modes[i].name, runs[i].error);
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

/* Checks `count` seeds from `from` on, or those of GRADUS_TEST_NETS. */
static void check_seeds(long from, long count) {
    const char *set = getenv("GRADUS_TEST_NETS");
    unsigned layers_off = 0, without = 0;
    if (set) sscanf(set, "%ld,%ld,%u,%u", &from, &count, &layers_off, &without);
    for (long i = 0; i < count; i++) check_seed((uint64_t)(from + i), layers_off, without);
}

#endif
