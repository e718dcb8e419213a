/* fusion.c - level 2 compared with level 0 on every kind of program that plans fuse.
 *
 * Fusion must never be slower. Each pattern is run at several sizes, with compiled kernels and
 * without; the worst ratio is reported, with the pattern in its note. BENCH_DETAILS=1 prints all of
 * them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gradus/gradus.h"

/* --- patterns: from x (rows, columns), z of the same shape and v (columns) -------------------- */

typedef struct operands {
    gd_tensor *x, *z, *v;
    int axis; /* the reduced axis */
} operands;

static gd_tensors cheap(operands o) {
    return gd_listed(gd_relu(gd_add(gd_mul(o.x, gd_scalar(2)), o.z)));
}
static gd_tensors heavy(operands o) { return gd_listed(gd_mul(gd_gelu(gd_add(o.x, o.z)), o.x)); }
static gd_tensors two_heavy(operands o) { return gd_listed(gd_tanh(gd_gelu(o.x))); }
static gd_tensors bias(operands o) { return gd_listed(gd_relu(gd_add(gd_mul(o.x, o.v), o.v))); }
static gd_tensors choice(operands o) {
    gd_tensor *up = gd_gt(o.x, gd_scalar(0));
    return gd_listed(gd_where(up, o.x, gd_mul(o.x, gd_scalar(0.1))));
}
static gd_tensors both_kept(operands o) {
    gd_tensor *a = gd_exp(o.x);
    return gd_listed(a, gd_mul(a, o.z));
}
static gd_tensors bf16_chain(operands o) {
    gd_tensor *h = gd_cast(o.x, GD_BF16);
    return gd_listed(gd_add(gd_mul(h, h), h));
}
static gd_tensors over_transpose(operands o) {
    gd_tensor *t = gd_transpose(gd_mul(o.x, gd_scalar(2)), 0, 1);
    return gd_listed(gd_relu(gd_add(t, gd_scalar(1))));
}

static gd_tensors sum_cheap(operands o) {
    gd_tensor *y = gd_sum(gd_square(gd_sub(o.x, o.z)), .axis = o.axis);
    return gd_listed(y);
}
static gd_tensors sum_heavy(operands o) {
    gd_tensor *y = gd_sum(gd_gelu(o.x), .axis = o.axis);
    return gd_listed(y);
}
static gd_tensors max_cheap(operands o) {
    gd_tensor *y = gd_max(gd_mul(o.x, o.z), .axis = o.axis);
    return gd_listed(y);
}
static gd_tensors sum_kept(operands o) { /* a bias gradient */
    gd_tensor *g = gd_mul(o.x, gd_cast(gd_gt(o.z, gd_scalar(0)), GD_F32));
    gd_tensor *s = gd_sum(g, .axis = o.axis);
    return gd_listed(g, s);
}
static gd_tensors sum_heavy_kept(operands o) {
    gd_tensor *g = gd_gelu(o.x);
    gd_tensor *s = gd_sum(g, .axis = o.axis);
    return gd_listed(g, s);
}
static gd_tensors mean_kept(operands o) {
    gd_tensor *g = gd_add(o.x, o.z);
    gd_tensor *s = gd_mean(g, .axis = o.axis);
    return gd_listed(g, s);
}
static gd_tensors another_kept(operands o) { /* a loss, and its gradient */
    gd_tensor *d = gd_sub(o.x, o.z);
    gd_tensor *s = gd_sum(gd_square(d), .axis = o.axis);
    return gd_listed(gd_mul(d, gd_scalar(2)), s);
}
static gd_tensors another_heavy_kept(operands o) {
    gd_tensor *e = gd_exp(o.x);
    gd_tensor *s = gd_sum(gd_mul(e, o.z), .axis = o.axis);
    return gd_listed(gd_add(e, o.v), s);
}
static gd_tensors sum_all(operands o) { return gd_listed(gd_sum(gd_gelu(o.x))); }
static gd_tensors mean_all(operands o) { return gd_listed(gd_mean(gd_square(gd_sub(o.x, o.z)))); }
static gd_tensors sum_all_kept(operands o) {
    gd_tensor *g = gd_mul(o.x, o.z);
    gd_tensor *s = gd_sum(g);
    return gd_listed(g, s);
}

static gd_tensors softmax(operands o) {
    gd_tensor *e = gd_exp(gd_sub(o.x, gd_max(o.x, .axis = -1, .keepdim = true)));
    gd_tensor *y = gd_div(e, gd_sum(e, .axis = -1, .keepdim = true));
    return gd_listed(y);
}
static gd_tensors softmax_grad(operands o) {
    gd_tensor *s = gd_sum(gd_mul(o.x, o.z), .axis = -1, .keepdim = true);
    return gd_listed(gd_mul(o.x, gd_sub(o.z, s)));
}
static gd_tensors layer_norm(operands o) {
    gd_tensor *c = gd_sub(o.x, gd_mean(o.x, .axis = -1, .keepdim = true));
    gd_tensor *var = gd_mean(gd_square(c), .axis = -1, .keepdim = true);
    return gd_listed(gd_add(gd_mul(gd_mul(c, gd_rsqrt(gd_add(var, gd_scalar(1e-5)))), o.v), o.v));
}
static gd_tensors rms_norm(operands o) {
    gd_tensor *mean = gd_mean(gd_square(o.x), .axis = -1, .keepdim = true);
    return gd_listed(gd_mul(gd_mul(o.x, gd_rsqrt(gd_add(mean, gd_scalar(1e-6)))), o.v));
}
static gd_tensors centered(operands o) {
    gd_tensor *y = gd_sub(o.x, gd_mean(o.x, .axis = -1, .keepdim = true));
    return gd_listed(y);
}
/* A second derivative, for which there is no precompiled kernel. */
static gd_tensors second_order(operands o) {
    gd_tensor *sum = gd_sum(gd_tanh(o.x));
    gd_tensor *once = gd_sum(gd_grad(gd_list(sum), gd_list(o.x), .create_graph = true).at[0]);
    return gd_grad(gd_list(once), gd_list(o.x));
}

typedef struct pattern {
    const char *name;
    gd_tensors (*build)(operands o);
    int axis;
} pattern;

static const pattern patterns[] = {
    {"cheap chain", cheap, 0},
    {"heavy chain", heavy, 0},
    {"two heavy ops", two_heavy, 0},
    {"chain with a bias", bias, 0},
    {"chain with a choice", choice, 0},
    {"chain, both results kept", both_kept, 0},
    {"chain in bf16", bf16_chain, 0},
    {"chain over a transpose", over_transpose, 0},
    {"sum over axis 0 of a cheap chain", sum_cheap, 0},
    {"sum over axis 1 of a cheap chain", sum_cheap, 1},
    {"sum over axis 0 of gelu", sum_heavy, 0},
    {"sum over axis 1 of gelu", sum_heavy, 1},
    {"max over axis 0", max_cheap, 0},
    {"max over axis 1", max_cheap, 1},
    {"sum over axis 0 of a chain, chain kept", sum_kept, 0},
    {"sum over axis 1 of a chain, chain kept", sum_kept, 1},
    {"sum over axis 0 of gelu, gelu kept", sum_heavy_kept, 0},
    {"sum over axis 1 of gelu, gelu kept", sum_heavy_kept, 1},
    {"mean over axis 0 of a sum, sum kept", mean_kept, 0},
    {"mean over axis 1 of a sum, sum kept", mean_kept, 1},
    {"sum over axis 0, another result kept", another_kept, 0},
    {"sum over axis 1, another result kept", another_kept, 1},
    {"sum over axis 0, exp kept", another_heavy_kept, 0},
    {"sum over axis 1, exp kept", another_heavy_kept, 1},
    {"sum of gelu", sum_all, 0},
    {"mean of squares", mean_all, 0},
    {"sum of a product, product kept", sum_all_kept, 0},
    {"softmax", softmax, 0},
    {"gradient of softmax", softmax_grad, 0},
    {"layer norm", layer_norm, 0},
    {"rms norm", rms_norm, 0},
    {"x - mean", centered, 0},
    {"second derivative", second_order, 0},
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static const int64_t sizes[][2] = {{2, 4},     {16, 32},   {128, 64},    {256, 256},
                                   {8192, 10}, {64, 4096}, {1024, 1024}, {4096, 512}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* --- measuring -------------------------------------------------------------------------------- */

typedef struct measurement {
    gd_tensor *px, *pz, *pv;
    gd_tensor *x, *z, *v;
    gd_tensors y;
} measurement;

static void run_once(measurement *r, gd_session *s) {
    GD_SCOPE;
    gd_session_run(s, gd_feed(r->px, r->x, r->pz, r->z, r->pv, r->v), r->y);
}

static double time_calls(measurement *r, gd_session *s, int64_t calls) {
    const double start = bench_now();
    for (int64_t i = 0; i < calls; i++) run_once(r, s);
    return (bench_now() - start) / (double)calls;
}

/* Sessions of both levels. The placement of their memory makes a difference, so there are several
 * pairs, with either level first. */
enum { PAIRS = 4 };
typedef struct pair {
    gd_session *fused, *unfused;
} pair;

static void open_pair(gd_graph *graph, pair *p, bool fused_first) {
    if (fused_first) p->fused = gd_session_new(graph);
    p->unfused = gd_session_new(graph, .level = 0);
    if (!fused_first) p->fused = gd_session_new(graph);
}

/* The time of level 0 divided by that of level 2, each the minimum over many alternating rounds,
 * because noise only adds time. If level 2 seems to be slower, there are more rounds. */
static double speedup_of(measurement *r, const pair *pairs, double *fused) {
    enum { ROUNDS = 3 * PAIRS, TRIES = 8 };
    int64_t calls = 1;
    for (int i = 0; i < PAIRS; i++) {
        run_once(r, i % 2 ? pairs[i].unfused : pairs[i].fused);
        run_once(r, i % 2 ? pairs[i].fused : pairs[i].unfused);
    }
    while (time_calls(r, pairs[0].unfused, calls) * (double)calls < 5e5)
        calls *= 2; /* a round takes half a millisecond */
    double unfused = 1e30;
    *fused = 1e30;
    for (int i = 0; i < ROUNDS || (i < ROUNDS * TRIES && unfused < *fused); i++) {
        const double a = time_calls(r, pairs[i % PAIRS].fused, calls),
                     b = time_calls(r, pairs[i % PAIRS].unfused, calls);
        if (a < *fused) *fused = a;
        if (b < unfused) unfused = b;
    }
    return unfused / *fused;
}

/* Equal plans need no measurement. */
static bool is_same_plan(measurement *r, const pair *p) {
    const gd_tensors feeds = gd_feed(r->px, r->x, r->pz, r->z, r->pv, r->v);
    char *a = gd_session_plan_text(p->fused, feeds, r->y),
         *b = gd_session_plan_text(p->unfused, feeds, r->y);
    const bool same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

static double measure(const pattern *p, int64_t rows, int64_t columns, double *ns) {
    GD_SCOPE;
    measurement r = {.x = gd_randn(gd_dims(rows, columns)),
                     .z = gd_randn(gd_dims(rows, columns)),
                     .v = gd_randn(gd_dims(columns))};
    pair pairs[PAIRS];
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        r.px = gd_placeholder(gd_dims(rows, columns));
        r.pz = gd_placeholder(gd_dims(rows, columns));
        r.pv = gd_placeholder(gd_dims(columns));
        r.y = p->build((operands){r.px, r.pz, r.pv, p->axis});
    }
    for (int i = 0; i < PAIRS; i++) open_pair(graph, &pairs[i], i % 2 == 0);
    *ns = 0;
    return is_same_plan(&r, &pairs[0]) ? 1 : speedup_of(&r, pairs, ns);
}

static void measure_all(const char *report, const char *how) {
    double worst = 1e30;
    char where[128] = "", note[256];
    for (int i = 0; i < PATTERNS; i++)
        for (int s = 0; s < SIZES && !gd_failed(); s++) {
            double ns;
            const double ratio = measure(&patterns[i], sizes[s][0], sizes[s][1], &ns);
            if (getenv("BENCH_DETAILS"))
                printf("    %6.3f  %10.1f us  %s (%d, %d)\n", ratio, ns / 1e3, patterns[i].name,
                       (int)sizes[s][0], (int)sizes[s][1]);
            if (ratio >= worst) continue;
            worst = ratio;
            snprintf(where, sizeof where, "%s (%d, %d)", patterns[i].name, (int)sizes[s][0],
                     (int)sizes[s][1]);
        }
    snprintf(note, sizeof note, "level 0 / level 2 %s, the worst: %s; target at least 1", how,
             where);
    bench_report(report, worst, 0, "times", note);
}

static void bench_compiled(void) { measure_all("fusion_worst", "with compiled kernels"); }

static void bench_evaluated(void) {
    setenv("GRADUS_NATIVE", "0", 1); /* this process runs no other benchmark */
    measure_all("fusion_worst_no_compiler", "without a compiler");
}

const bench_entry bench_fusion[] = {
    {"fusion_worst", bench_compiled}, {"fusion_worst_no_compiler", bench_evaluated}, {NULL, NULL}};
