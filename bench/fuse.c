/* fuse.c - the speedup of fusion: chains of elementwise ops as one kernel, compared with one kernel
 * for each op. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core/pool.h"
#include "gradus/gradus.h"

/* A graph with one input and one result, as a fused and an unfused plan. */
typedef struct {
    gd_tensor *x, *y, *other; /* symbols; other: the op that y is compared with */
    gd_tensor *value;
    gd_session *fused, *unfused;
    float *copy;
} chain;

static void run_fused(void *arg) {
    GD_SCOPE;
    chain *c = arg;
    gd_session_run(c->fused, gd_feed(c->x, c->value), gd_list(c->y));
}

static void run_unfused(void *arg) {
    GD_SCOPE;
    chain *c = arg;
    gd_session_run(c->unfused, gd_feed(c->x, c->value), gd_list(c->y));
}

static void run_gelu(void *arg) {
    GD_SCOPE;
    chain *c = arg;
    gd_session_run(c->unfused, gd_feed(c->x, c->value), gd_list(c->other));
}

static void heavy_chain(void) {
    GD_SCOPE;
    enum { COUNT = 1 << 20 };
    chain c = {.value = gd_randn(gd_dims(COUNT))};
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(COUNT));
        c.other = gd_gelu(c.x);
        c.y = gd_mul(gd_gelu(gd_add(gd_mul(c.x, gd_scalar(2)), gd_scalar(1))), c.x);
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_fused, run_unfused, &c, 0);
    bench_report("chain_fused_speedup", p.ratio, p.spread, "times",
                 "gelu(x*2+1)*x over 2^20 floats: unfused / fused");
    p = bench_versus(run_gelu, run_fused, &c, 0);
    bench_report("chain_fused_vs_gelu", p.ratio, p.spread, "times",
                 "the same, fused / a single gelu: target at most 1.2");
}

enum { MANY = 1 << 24, TASK_ELEMENTS = 1 << 16 };

static void copy_task(void *arg, int64_t task) {
    chain *c = arg;
    memcpy(c->copy + task * TASK_ELEMENTS, (const float *)gd_data(c->value) + task * TASK_ELEMENTS,
           TASK_ELEMENTS * sizeof(float));
}

static void run_copy(void *arg) { gd_parallel_for(MANY / TASK_ELEMENTS, copy_task, arg); }

static void cheap_chain(void) {
    GD_SCOPE;
    chain c = {.value = gd_randn(gd_dims(MANY)), .copy = malloc(MANY * sizeof(float))};
    if (!c.copy) return;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(MANY));
        c.y = c.x;
        for (int i = 0; i < 4; i++)
            c.y = gd_add(gd_mul(c.y, gd_scalar(1.01 + i)), gd_scalar(0.5 - i));
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_copy, run_fused, &c, 0);
    bench_report("cheap_chain_vs_copy", p.ratio, p.spread, "times",
                 "8 sums and products over 2^24 floats / a copy: target at most 1.3");
    p = bench_versus(run_fused, run_unfused, &c, 0);
    bench_report("cheap_chain_speedup", p.ratio, p.spread, "times", "the same: unfused / fused");
    free(c.copy);
}

/* mean(square(a - b)): the squares are never materialized. */
static void fused_reduction(void) {
    GD_SCOPE;
    enum { COUNT = 1 << 22 };
    chain c = {.value = gd_randn(gd_dims(COUNT))};
    gd_graph *graph = gd_graph_new();
    gd_tensor *other = gd_randn(gd_dims(COUNT));
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(COUNT));
        c.y = gd_mean(gd_square(gd_sub(c.x, other)));
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_fused, run_unfused, &c, 0);
    bench_report("mean_square_speedup", p.ratio, p.spread, "times",
                 "mean(square(a-b)) over 2^22 floats: unfused / fused");
}

/* --- reductions of rows ----------------------------------------------------------------------- */

static gd_tensor *rms_norm_chain(gd_tensor *x, gd_tensor *scale) {
    gd_tensor *mean = gd_mean(gd_square(x), .axis = -1, .keepdim = true);
    return gd_mul(gd_mul(x, gd_rsqrt(gd_add(mean, gd_scalar(1e-6)))), scale);
}

static gd_tensor *softmax_by_hand(gd_tensor *x) {
    gd_tensor *e = gd_exp(gd_sub(x, gd_max(x, .axis = -1, .keepdim = true)));
    return gd_div(e, gd_sum(e, .axis = -1, .keepdim = true));
}

static void run_other(void *arg) { /* the op that computes the same */
    GD_SCOPE;
    chain *c = arg;
    gd_session_run(c->fused, gd_feed(c->x, c->value), gd_list(c->other));
}

static void row_reduction(bool softmax, int64_t rows, int64_t n, const char *name,
                          const char *note) {
    GD_SCOPE;
    chain c = {.value = gd_randn(gd_dims(rows, n))};
    gd_graph *graph = gd_graph_new();
    gd_tensor *scale = gd_randn(gd_dims(n));
    char row[80], text[160];
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(rows, n));
        c.y = softmax ? softmax_by_hand(c.x) : rms_norm_chain(c.x, scale);
        c.other = softmax ? gd_softmax(c.x, .axis = -1) : gd_rms_norm(c.x, scale);
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_fused, run_unfused, &c, 0);
    snprintf(row, sizeof row, "%s_speedup", name);
    snprintf(text, sizeof text, "%s: unfused / fused", note);
    bench_report(row, p.ratio, p.spread, "times", text);
    p = bench_versus(run_other, run_fused, &c, 0);
    snprintf(row, sizeof row, "%s_vs_op", name);
    bench_report(row, p.ratio, p.spread, "times",
                 "the same, fused / the op that computes the same");
}

static void rms_chain(void) {
    row_reduction(false, 2048, 1024, "rms_chain", "rms norm by hand, 2048 rows of 1024");
}
static void softmax_chain(void) {
    row_reduction(true, 2048, 1024, "softmax_chain", "softmax by hand, 2048 rows of 1024");
    row_reduction(true, 32768, 10, "softmax_short", "softmax by hand, 32768 rows of 10");
}

/* --- layouts ---------------------------------------------------------------------------------- */

/* An elementwise op on a transposed operand, read by a matrix product: level 0 reads it with a
 * large stride. */
static void transposed_chain(void) {
    GD_SCOPE;
    enum { ROWS = 2048, COLUMNS = 1024 };
    chain c = {.value = gd_randn(gd_dims(ROWS, COLUMNS))};
    gd_graph *graph = gd_graph_new();
    gd_tensor *w = gd_randn(gd_dims(ROWS, 8));
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(ROWS, COLUMNS));
        c.y = gd_matmul(gd_sigmoid(gd_transpose(c.x, 0, 1)), w);
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_fused, run_unfused, &c, 0);
    bench_report("transposed_sigmoid_speedup", p.ratio, p.spread, "times",
                 "sigmoid(x^T) w, x (2048,1024): strided / in the memory order of x");
}

/* The heads of a product are concatenated: (8,16,256,64) becomes (8,256,1024). */
static void heads_permuted(void) {
    GD_SCOPE;
    chain c = {.value = gd_randn(gd_dims(8, 16, 256, 64))};
    gd_graph *graph = gd_graph_new();
    gd_tensor *w = gd_randn(gd_dims(64, 64));
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(8, 16, 256, 64));
        gd_tensor *y = gd_permute(gd_matmul(c.x, w), gd_dims(0, 2, 1, 3));
        c.y = gd_sum(gd_reshape(y, gd_dims(8, 256, 1024)), .axis = 1);
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_fused, run_unfused, &c, 0);
    bench_report("heads_together_speedup", p.ratio, p.spread, "times",
                 "a product by heads, concatenated and summed: copied / written in place");
}

/* Convolution, batch norm and relu in inference, as in the first stage of a ResNet. */
static void conv_norm_relu(void) {
    GD_SCOPE;
    enum { BATCH = 4, CHANNELS = 64, SIZE = 56 };
    chain c = {.value = gd_randn(gd_dims(BATCH, CHANNELS, SIZE, SIZE))};
    gd_graph *graph = gd_graph_new();
    gd_tensor *w = gd_randn(gd_dims(CHANNELS, CHANNELS, 3, 3)),
              *gamma = gd_randn(gd_dims(CHANNELS)), *beta = gd_randn(gd_dims(CHANNELS));
    gd_tensor *mean = gd_zeros(gd_dims(CHANNELS)), *var = gd_ones(gd_dims(CHANNELS));
    {
        GD_GRAPH(graph);
        c.x = gd_placeholder(gd_dims(BATCH, CHANNELS, SIZE, SIZE));
        c.y = gd_relu(gd_batch_norm(gd_conv2d(c.x, w, NULL, .padding = 1), gamma, beta, mean, var));
    }
    c.fused = gd_session_new(graph);
    c.unfused = gd_session_new(graph, .level = 0);
    bench_pair p = bench_versus(run_fused, run_unfused, &c, 0);
    bench_report("conv_norm_relu_speedup", p.ratio, p.spread, "times",
                 "convolution, batch norm, relu, (4,64,56,56), inference: three steps / one");
}

const bench_entry bench_fuse[] = {{"chain_fused", heavy_chain},
                                  {"cheap_chain", cheap_chain},
                                  {"mean_square", fused_reduction},
                                  {"rms_chain", rms_chain},
                                  {"softmax_chain", softmax_chain},
                                  {"transposed", transposed_chain},
                                  {"heads", heads_permuted},
                                  {"conv_norm_relu", conv_norm_relu},
                                  {NULL, NULL}};
