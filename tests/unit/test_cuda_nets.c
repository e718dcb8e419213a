/* test_cuda_nets.c - random training steps give the same results eagerly on the CPU, eagerly on
 * CUDA, and as plans of both.
 *
 * GRADUS_TEST_NETS=FROM,COUNT build/tests/test_cuda_nets runs other seeds than the usual ones. A net
 * whose results differ is reduced: layers and options are left out while they still differ. The
 * test prints what is left, and the plan.
 */
#include <math.h>

#include "compare.h"
#include "cuda_child.h"
#include "random_net_step.h"

enum { STEPS = 3, MOST_RESULTS = STEPS * (MOST_FETCHES + 3) + 2 * MOST_TENSORS };

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
    bool cuda;
    int level; /* of a jit; -1: eager */
} run_mode;

enum { CPU_EAGER, CPU_PLAN, CUDA_EAGER, CUDA_LEVEL_0, CUDA_LEVEL_2, MODES };

static const run_mode modes[MODES] = {{"eagerly on the CPU", false, -1},
                                      {"as a plan of the CPU", false, 2},
                                      {"eagerly on CUDA", true, -1},
                                      {"as a plan of level 0 on CUDA", true, 0},
                                      {"as a plan of level 2 on CUDA", true, 2}};

static gd_tensors inputs_on(const net *n, int step, gd_device *device) {
    const gd_tensors here = make_inputs(n, step);
    gd_tensor *there[MOST_TENSORS];
    for (int i = 0; i < here.count; i++) there[i] = gd_to_device(here.at[i], device);
    return gd_list_copy((gd_tensors){there, here.count});
}

static void take_steps(net *n, gd_device *device, int level, net_run *r) {
    gd_jit *jit = level >= 0 ? gd_jit_new(net_step, n, .level = level) : NULL;
    for (int step = 0; step < STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_set_default_device(gd_device_get("cpu"));
        const gd_tensors in = inputs_on(n, step, device);
        gd_set_default_device(device);
        gd_seed(n->seed + (uint64_t)step);
        const gd_tensors out = jit ? gd_jit_call(jit, in) : net_step(in, n);
        for (int i = 0; i < out.count && !gd_failed(); i++)
            add_result(r, OUTPUT, step, i, out.at[i], NULL);
        if (jit && step == 0 && !gd_failed()) r->plan = gd_jit_plan_text(jit, in);
    }
}

static void run_net(const net *built, int mode, net_run *r) {
    GD_SCOPE;
    gd_device *device = gd_device_get(modes[mode].cuda ? "cuda" : "cpu");
    r->count = 0;
    r->error[0] = 0;
    gd_set_default_device(device);
    net n = copy_net(built, device);
    make_optimizer(&n);
    take_steps(&n, device, modes[mode].level, r);
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
    double error, scale, worst; /* worst: error / allowed */
    int result;
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
    bool halves;
} tolerance;

/* The result that differs most, in units of what is allowed. */
static difference compare_runs(const net_run *a, const net_run *b, const tolerance *t) {
    difference d = {.result = -1};
    double largest[4] = {0};
    if (a->error[0] || b->error[0]) {
        const bool same = strcmp(a->error, b->error) == 0;
        d.worst = same ? 0 : INFINITY;
        snprintf(d.text, sizeof d.text, "'%.150s', and '%.150s'", a->error, b->error);
        return d;
    }
    for (int i = 0; i < a->count; i++) {
        const double size = size_of(&a->results[i], t->halves);
        if (size > largest[a->results[i].kind]) largest[a->results[i].kind] = size;
    }
    for (int i = 0; i < a->count && i < b->count; i++) {
        const net_result *x = &a->results[i], *y = &b->results[i];
        if (x->kind != y->kind || x->count != y->count || !x->at || !y->at) {
            d.worst = INFINITY;
            snprintf(d.text, sizeof d.text, "result %d is another", i);
            return d;
        }
        const double size = size_of(x, t->halves), error = distance(x, y, t->halves),
                     common = x->kind == CHANGE || x->kind == GRADIENT ? largest[x->kind] : 0,
                     steps =
                         x->kind == CHANGE
                             ? 1e-6 *
                                   (1 + size_of(&(net_result){.at = x->before, .count = x->count},
                                                t->halves))
                             : 1e-7,
                     allowed = t->relative * size + t->common * common + steps;
        const double worst = isnan(error) ? INFINITY : error / allowed;
        if (!(worst > d.worst)) continue;
        d = (difference){error, size, worst, i, ""};
        static const char *const names[] = {"output", "change of tensor", "buffer",
                                            "gradient of tensor"};
        snprintf(d.text, sizeof d.text, "%s %d%s%d: %g of %g, allowed %g", names[x->kind],
                 x->number, x->kind == OUTPUT ? " of call " : " after call ",
                 x->kind == OUTPUT ? x->step : STEPS - 1, error, size, allowed);
    }
    return d;
}

/* --- checking --------------------------------------------------------------------------------- */

/* Pairs of modes whose results agree. Under autocast the devices round differently. */
typedef struct mode_pair {
    int a, b;
    tolerance wide, f16, bf16; /* relative 0: not compared */
} mode_pair;

static const mode_pair pairs[] = {
    {CPU_EAGER, CPU_PLAN, {2e-5, 1e-6, false}, {5e-3, 2e-3, true}, {0.12, 0.04, true}},
    {CPU_EAGER, CUDA_EAGER, {2e-5, 1e-6, false}, {5e-3, 2e-3, true}, {0.12, 0.04, true}},
    {CUDA_EAGER, CUDA_LEVEL_0, {1e-7, 1e-9, false}, {1e-7, 1e-9, false}, {1e-7, 1e-9, false}},
    {CUDA_LEVEL_0, CUDA_LEVEL_2, {2e-5, 1e-6, false}, {5e-3, 2e-3, true}, {0.12, 0.04, true}},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static const tolerance *tolerance_of(const mode_pair *p, gd_dtype autocast) {
    return autocast == GD_F16 ? &p->f16 : autocast == GD_BF16 ? &p->bf16 : &p->wide;
}

/* Runs the net in two modes. */
static difference compare_modes(const net *n, const mode_pair *p, char **plan) {
    static net_run a, b;
    run_net(n, p->a, &a);
    run_net(n, p->b, &b);
    const difference d = compare_runs(&a, &b, tolerance_of(p, n->autocast));
    if (plan) *plan = b.plan, b.plan = NULL;
    free_run(&a);
    free_run(&b);
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
static void report(uint64_t seed, const mode_pair *p, const difference *first) {
    unsigned layers_off = 0, without = 0;
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
    CHECK_SAYING(false, "seed %llu: %s and %s: %s; reduced: %s\n%s%s", (unsigned long long)seed,
                 modes[p->a].name, modes[p->b].name, first->text, d.text, n->text,
                 plan ? plan : "");
    free(plan);
}

static void check_seed(uint64_t seed) {
    static net_run runs[MODES];
    difference found[PAIRS] = {0};
    {
        GD_SCOPE;
        const net *n = draw_net(seed, 0, 0);
        printf("seed %llu\n%s", (unsigned long long)seed, n->text);
        fflush(stdout);
        CHECK_SAYING(!gd_failed(), "seed %llu: %s\n%s", (unsigned long long)seed,
                     gd_error_message(), n->text);
        if (gd_failed()) {
            gd_clear_error();
            return;
        }
        for (int i = 0; i < MODES; i++) run_net(n, i, &runs[i]);
        if (runs[0].error[0]) printf("error: %s\n", runs[0].error);
        for (int i = 0; i < PAIRS; i++) {
            found[i] = compare_runs(&runs[pairs[i].a], &runs[pairs[i].b],
                                    tolerance_of(&pairs[i], n->autocast));
            printf("%d: %.3f %s\n", i, found[i].worst, found[i].text);
        }
        for (int i = 0; i < MODES; i++) free_run(&runs[i]);
    }
    for (int i = 0; i < PAIRS; i++)
        if (found[i].worst > 1) report(seed, &pairs[i], &found[i]);
}

/* Seeds that the short form runs. */
enum { FROM = 1, COUNT = 12 };

TEST(random_steps_agree_on_all_devices) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    const char *set = getenv("GRADUS_TEST_NETS");
    long from = FROM, count = COUNT;
    if (set && sscanf(set, "%ld,%ld", &from, &count) < 1) from = FROM;
    for (long i = 0; i < count; i++) check_seed((uint64_t)(from + i));
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
