/* train.c - training steps of small networks (train.h). */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gradus/gradus.h"
#include "zoo.h"

enum { MAX_LAYERS = 4, MAX_TRAINS = 32 /* per process */ };

typedef struct shape {
    const char *name;
    int layers;
    int64_t batch, size[MAX_LAYERS + 1]; /* inputs, ..., outputs */
    bool classes; /* cross-entropy with class indices; else mean squared error */
} shape;

static const shape shapes[] = {
    {.name = "two_layer", .layers = 2, .batch = 64, .size = {1000, 100, 10}},
    {.name = "mlp", .layers = 3, .batch = 128, .size = {784, 512, 512, 10}, .classes = true},
};

struct train {
    const shape *shape;
    gd_tensor *x, *y;                         /* data */
    gd_tensor *w[MAX_LAYERS], *b[MAX_LAYERS]; /* parameters: tensors or variables */
    gd_tensor *parameters[2 * MAX_LAYERS];
    gd_module *net; /* NULL: bare ops */
    gd_optimizer *optimizer;
    gd_session *session; /* NULL: eager or traced */
    gd_jit *jit;         /* NULL: not traced */
    bool zero_grad_last;
    gd_tensor *feeds[4], *fetches[2];
};

static gd_tensor *loss_of(const train *t, gd_tensor *x, gd_tensor *y) {
    if (t->net) x = gd_module_forward(t->net, x);
    for (int i = 0; !t->net && i < t->shape->layers; i++) {
        x = gd_linear(x, t->w[i], t->b[i]);
        if (i < t->shape->layers - 1) x = gd_relu(x);
    }
    return t->shape->classes ? gd_cross_entropy(x, y) : gd_mse_loss(x, y);
}

/* Parameters as tensors, or as variables of the graph that is being built. */
static void make_parameters(train *t, bool variables) {
    const int64_t *size = t->shape->size;
    int count = 0;
    for (int i = 0; i < t->shape->layers; i++) {
        gd_tensor *w = gd_mul(gd_randn(gd_dims(size[i + 1], size[i])), gd_scalar(0.05));
        gd_tensor *b = gd_zeros(gd_dims(size[i + 1]));
        t->parameters[count++] = t->w[i] = variables ? gd_variable(w) : gd_requires_grad(w);
        t->parameters[count++] = t->b[i] = variables ? gd_variable(b) : gd_requires_grad(b);
    }
    t->optimizer = gd_optim_sgd(((gd_tensors){t->parameters, count}), .lr = 1e-3);
}

static void make_net(train *t) {
    const shape *s = t->shape;
    t->net = gd_nn_sequential();
    for (int i = 0; i < s->layers; i++) {
        if (i > 0) gd_module_append(t->net, gd_nn_relu());
        gd_module_append(t->net, gd_nn_linear(s->size[i], s->size[i + 1]));
    }
    t->optimizer = gd_optim_sgd(gd_module_parameters(t->net), .lr = 1e-3);
}

static void make_session(train *t, int level) {
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        gd_tensor *x = gd_placeholder(gd_tensor_shape(t->x));
        gd_tensor *y = gd_placeholder(gd_tensor_shape(t->y), .dtype = gd_tensor_dtype(t->y));
        make_parameters(t, true);
        t->fetches[0] = loss_of(t, x, y);
        t->fetches[1] = gd_minimize(t->optimizer, t->fetches[0]);
        t->feeds[0] = x, t->feeds[1] = t->x, t->feeds[2] = y, t->feeds[3] = t->y;
    }
    t->session = gd_session_new(graph, .level = level);
}

/* An ordinary eager step. Gradients that are zeroed at the end, not at the start, need not be kept
 * by a plan. */
static gd_tensors eager_step(gd_tensors in, void *user) {
    train *t = user;
    if (!t->zero_grad_last) gd_optimizer_zero_grad(t->optimizer);
    gd_tensor *loss = loss_of(t, in.at[0], in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    if (t->zero_grad_last) gd_optimizer_zero_grad(t->optimizer);
    return gd_listed(loss);
}

train *train_new(const char *net, const char *mode) {
    static train trains[MAX_TRAINS];
    static int made;
    const shape *s = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, net) == 0) s = &shapes[i];
    if (!s || made == MAX_TRAINS) return NULL;
    train *t = &trains[made++];
    const int64_t outputs = s->size[s->layers];
    *t = (train){.shape = s, .x = gd_randn(gd_dims(s->batch, s->size[0]))};
    t->y = s->classes ? gd_randint(gd_dims(s->batch), 0, outputs)
                      : gd_randn(gd_dims(s->batch, outputs));
    const bool modules = strncmp(mode, "module_", 7) == 0;
    if (modules) mode += 7;
    const bool jit = strncmp(mode, "jit", 3) == 0;
    t->zero_grad_last = strcmp(mode, "jit_forgets") == 0;
    if (jit) t->jit = gd_jit_new(eager_step, t);
    if (modules) make_net(t);
    else if (jit || strcmp(mode, "eager") == 0) make_parameters(t, false);
    else make_session(t, strcmp(mode, "plan") == 0 ? 0 : 2);
    return gd_failed() ? NULL : t;
}

void train_step(void *arg) {
    train *t = arg;
    GD_SCOPE;
    if (t->session) {
        gd_session_run(t->session, ((gd_tensors){t->feeds, 4}), ((gd_tensors){t->fetches, 2}));
        return;
    }
    const gd_tensors in = gd_list(t->x, t->y);
    if (t->jit) gd_jit_call(t->jit, in);
    else eager_step(in, t);
}

/* For each line of input, runs as many steps as take about 100 ms, and prints the nanoseconds per
 * step. */
static int serve_steps(void (*step)(void *), void *arg) {
    char line[16];
    const double start = bench_now();
    int warm = 0;
    while (warm < 20 && bench_now() - start < 2e9) step(arg), warm++;
    double each = (bench_now() - start) / warm;
    while (fgets(line, sizeof line, stdin)) {
        const int steps = 1 + (int)(100e6 / each);
        for (int i = 0; i < steps; i++) step(arg); /* warms up the processor and the threads */
        const double begin = bench_now();
        for (int i = 0; i < steps; i++) step(arg);
        each = (bench_now() - begin) / steps;
        printf("%.1f\n", each);
        fflush(stdout);
    }
    return gd_failed();
}

int train_serve(const char *net, const char *mode, int threads, const char *file) {
    GD_SCOPE;
    gd_set_num_threads(threads);
    train *t = zoo_has(net) ? NULL : train_new(net, mode);
    zoo_train *z = zoo_has(net) && file ? zoo_new(net, mode, file) : NULL;
    if (!t && !z) {
        fprintf(stderr, "%s\n",
                gd_failed() ? gd_error_message() : "unknown net or mode, or its file is missing");
        return 1;
    }
    if (t) return serve_steps(train_step, t);
    for (int i = 0; i < 3; i++) printf("%.9g%s", zoo_loss(z), i < 2 ? " " : "\n");
    fflush(stdout);
    return serve_steps(zoo_step, z);
}
