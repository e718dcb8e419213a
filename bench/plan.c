/* plan.c - graphs: what a run costs, and training steps as eager ops and as plans. */
#include <stdio.h>

#include "bench.h"
#include "gradus/gradus.h"

/* --- the cost of a run -------------------------------------------------------------------------- */

static gd_session *session;
static gd_tensors feeds, fetches;

static void run_session(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_session_run(session, feeds, fetches);
}

enum { NODES = 100 };

static void run_cost(void) {
    GD_SCOPE;
    gd_set_num_threads(1);
    gd_graph *graph = gd_graph_new();
    gd_tensor *constant, *chain;
    {
        GD_GRAPH(graph);
        constant = gd_full(gd_dims(1), 3);
        chain = gd_variable(gd_full(gd_dims(1), 1));
        for (int i = 0; i < NODES; i++) chain = i % 2 ? gd_add(chain, chain) : gd_sin(chain);
    }
    feeds = gd_nothing;
    gd_tensor *one[1];
    fetches = (gd_tensors){one, 1};
    double spread, empty;
    session = gd_session_new(graph, .level = 0);
    one[0] = constant;
    empty = bench_time(run_session, NULL, &spread);
    bench_report("run_empty_ns", empty, spread, "ns", "a run that fetches one constant; target 1000");
    one[0] = chain;
    double ns = bench_time(run_session, NULL, &spread);
    bench_report("run_node_ns", (ns - empty) / NODES, spread / NODES, "ns", "a node of one element, unfused; target 100");
}

/* --- training steps ----------------------------------------------------------------------------- */

typedef struct net {
    int layers;
    int64_t batch, size[5]; /* inputs, ..., outputs */
    bool classes;           /* cross entropy of class numbers; else the mean of squares */
    gd_tensor *x, *y;       /* data */
    gd_tensor *w[4], *b[4]; /* parameters, of both forms */
} net;

static gd_tensor *forward(const net *n, gd_tensor *x) {
    for (int i = 0; i < n->layers; i++) {
        x = gd_linear(x, n->w[i], n->b[i]);
        if (i < n->layers - 1) x = gd_relu(x);
    }
    return x;
}

static gd_tensor *loss_of(const net *n, gd_tensor *x, gd_tensor *y) {
    return n->classes ? gd_cross_entropy(forward(n, x), y) : gd_mse_loss(forward(n, x), y);
}

static gd_optimizer *optimizer;

static void eager_step(void *arg) {
    net *n = arg;
    GD_SCOPE;
    gd_optimizer_zero_grad(optimizer);
    gd_backward(loss_of(n, n->x, n->y));
    gd_optimizer_step(optimizer);
}

/* Parameters as tensors, or as variables of the graph that is being built. */
static gd_tensors make_parameters(net *n, gd_tensor **all, bool variables) {
    int count = 0;
    for (int i = 0; i < n->layers; i++) {
        gd_tensor *w = gd_mul(gd_randn(gd_dims(n->size[i + 1], n->size[i])), gd_scalar(0.05));
        gd_tensor *b = gd_zeros(gd_dims(n->size[i + 1]));
        all[count++] = n->w[i] = variables ? gd_variable(w) : gd_requires_grad(w);
        all[count++] = n->b[i] = variables ? gd_variable(b) : gd_requires_grad(b);
    }
    return (gd_tensors){all, count};
}

static void measure(const char *name, net *n, int threads) {
    GD_SCOPE;
    gd_set_num_threads(threads);
    n->x = gd_randn(gd_dims(n->batch, n->size[0]));
    n->y = n->classes ? gd_randint(gd_dims(n->batch), 0, n->size[n->layers]) : gd_randn(gd_dims(n->batch, n->size[n->layers]));
    gd_tensor *all[8], *given[4];
    char row[64];
    double spread;
    optimizer = gd_optim_sgd(make_parameters(n, all, false), .lr = 1e-3);
    double eager = bench_time(eager_step, n, &spread);
    snprintf(row, sizeof row, "%s_eager_ms%s", name, threads > 1 ? "_2t" : "");
    bench_report(row, eager / 1e6, spread / 1e6, "ms", "a training step with eager ops");
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *y, *loss, *train;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(n->batch, n->size[0]));
            y = gd_placeholder(gd_tensor_shape(n->y), .dtype = gd_tensor_dtype(n->y));
            gd_optimizer *o = gd_optim_sgd(make_parameters(n, all, true), .lr = 1e-3);
            loss = loss_of(n, x, y);
            train = gd_minimize(o, loss);
        }
        session = gd_session_new(graph, .level = level);
        given[0] = x, given[1] = n->x, given[2] = y, given[3] = n->y;
        gd_tensor *wanted[2] = {loss, train};
        feeds = (gd_tensors){given, 4};
        fetches = (gd_tensors){wanted, 2};
        double ns = bench_time(run_session, NULL, &spread);
        char note[64];
        snprintf(note, sizeof note, "%.2f times the eager step", eager / ns);
        snprintf(row, sizeof row, "%s_%s_ms%s", name, level ? "fused" : "plan", threads > 1 ? "_2t" : "");
        bench_report(row, ns / 1e6, spread / 1e6, "ms", note);
    }
}

static void training(void) {
    for (int threads = 1; threads <= 2; threads++) {
        net two_layer = {.layers = 2, .batch = 64, .size = {1000, 100, 10}};
        net mlp = {.layers = 3, .batch = 128, .size = {784, 512, 512, 10}, .classes = true};
        measure("two_layer", &two_layer, threads);
        measure("mlp", &mlp, threads);
    }
}

const bench_entry bench_plan[] = {{"run", run_cost}, {"train", training}, {NULL, NULL}};
