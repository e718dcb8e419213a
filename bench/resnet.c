/* resnet.c - a training step of ResNet-18 with eager ops: time and memory. */
#include <sys/resource.h>

#include "bench.h"
#include "gradus/gradus.h"

enum { BATCH = 8, SIZE = 224, BLOCKS = 8, CLASSES = 1000, STEPS = 3, PARAMETERS = 80 };

/* A convolution without bias, followed by a batch norm. */
typedef struct layer {
    gd_tensor *w, *gamma, *beta, *mean, *var;
    int64_t stride, padding;
} layer;

typedef struct block {
    layer a, b, shortcut; /* shortcut.w == NULL: the identity */
} block;

typedef struct net {
    layer stem;
    block blocks[BLOCKS];
    gd_tensor *w, *b;
    gd_tensor *parameters[PARAMETERS];
    int count;
} net;

static gd_tensor *parameter(net *n, gd_shape dims, double std) {
    return n->parameters[n->count++] = gd_requires_grad(gd_normal(dims, .std = std));
}

static layer make_layer(net *n, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    layer l = {.stride = stride, .padding = kernel / 2};
    l.w = parameter(n, gd_dims(out, in, kernel, kernel), 0.05);
    l.gamma = parameter(n, gd_dims(out), 1);
    l.beta = parameter(n, gd_dims(out), 0.1);
    l.mean = gd_zeros(gd_dims(out));
    l.var = gd_ones(gd_dims(out));
    return l;
}

static void make_net(net *n) {
    int64_t channels = 64;
    n->stem = make_layer(n, 3, channels, 7, 2);
    for (int i = 0; i < BLOCKS; i++) {
        const int64_t out = 64 << (i / 2), stride = i > 1 && i % 2 == 0 ? 2 : 1;
        block *b = &n->blocks[i];
        b->a = make_layer(n, channels, out, 3, stride);
        b->b = make_layer(n, out, out, 3, 1);
        if (stride > 1) b->shortcut = make_layer(n, channels, out, 1, stride);
        channels = out;
    }
    n->w = parameter(n, gd_dims(CLASSES, channels), 0.05);
    n->b = parameter(n, gd_dims(CLASSES), 0.05);
}

static gd_tensor *apply_layer(const layer *l, gd_tensor *x) {
    gd_tensor *y = gd_conv2d(x, l->w, NULL, .stride = {{l->stride, l->stride}},
                             .padding = {{l->padding, l->padding}});
    return gd_batch_norm(y, l->gamma, l->beta, l->mean, l->var, .training = true);
}

static gd_tensor *loss_of(const net *n, gd_tensor *x, gd_tensor *labels) {
    x = gd_max_pool2d(gd_relu(apply_layer(&n->stem, x)), .kernel = {{3, 3}}, .stride = {{2, 2}},
                      .padding = {{1, 1}});
    for (int i = 0; i < BLOCKS; i++) {
        const block *b = &n->blocks[i];
        gd_tensor *y = apply_layer(&b->b, gd_relu(apply_layer(&b->a, x)));
        x = gd_relu(gd_add(y, b->shortcut.w ? apply_layer(&b->shortcut, x) : x));
    }
    x = gd_mean(x, .axis = gd_dims(2, 3));
    return gd_cross_entropy(gd_linear(x, n->w, n->b), labels);
}

static void train_step(const net *n, gd_tensor *x, gd_tensor *labels) {
    GD_SCOPE;
    gd_backward(loss_of(n, x, labels));
    GD_NO_GRAD;
    for (int i = 0; i < n->count; i++) {
        gd_tensor *p = n->parameters[i];
        gd_add_(p, gd_mul(gd_tensor_grad(p), gd_scalar(-0.01)));
        gd_zero_grad(p);
    }
}

static double max_resident_mib(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)r.ru_maxrss / 1024;
}

static void bench_resnet18(void) {
    GD_SCOPE;
    static net n;
    const double before = max_resident_mib();
    make_net(&n);
    gd_tensor *x = gd_randn(gd_dims(BATCH, 3, SIZE, SIZE)),
              *labels = gd_randint(gd_dims(BATCH), 0, CLASSES);
    double best = 1e30;
    for (int i = 0; i < STEPS && !gd_failed(); i++) {
        const double start = bench_now();
        train_step(&n, x, labels);
        const double took = bench_now() - start;
        if (took < best) best = took;
    }
    bench_report("resnet18_step", best / 1e6, 0, "ms",
                 "eager training, batch 8 of 224 x 224, the best of three");
    bench_report("resnet18_resident", max_resident_mib() - before, 0, "MiB",
                 "the same, peak resident memory of the process");
    bench_report("resnet18_in_use", (double)gd_memory_stats(NULL).peak_bytes / (1 << 20), 0, "MiB",
                 "the same, peak memory of tensors");
}

const bench_entry bench_resnet[] = {{"resnet18", bench_resnet18}, {NULL, NULL}};
