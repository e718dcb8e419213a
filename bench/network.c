/* network.c - convolution, softmax and layer norm on one thread. */
#include "bench.h"
#include "gradus/gradus.h"

static gd_tensor *x, *w, *b;

static void run_conv(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_conv2d(x, w, NULL, .padding = 1);
}

static void run_softmax(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_softmax(x);
}

static void run_layer_norm(void *unused) {
    (void)unused;
    GD_SCOPE;
    gd_layer_norm(x, w, b);
}

/* A block of ResNet: 64 channels of 56 x 56. Counts the multiply-adds of a direct convolution,
 * whatever the kernel computes instead. */
static void bench_conv_3x3(void) {
    GD_SCOPE;
    gd_set_num_threads(1);
    x = gd_normal(gd_dims(8, 64, 56, 56));
    w = gd_normal(gd_dims(64, 64, 3, 3));
    double spread, ns = bench_time(run_conv, NULL, &spread),
                   flops = 2.0 * 8 * 64 * 56 * 56 * 64 * 9;
    bench_report("conv_3x3_gflops", flops / ns, flops / ns * spread / ns, "GFLOP/s",
                 "8 x 64 x 56 x 56, 64 filters");
}

/* Counts each byte once when it is read and once when it is written. */
static void bench_rows(void) {
    GD_SCOPE;
    gd_set_num_threads(1);
    x = gd_normal(gd_dims(512, 1024));
    w = gd_full(gd_dims(1024), 1);
    b = gd_full(gd_dims(1024), 0);
    double spread, bytes = 2.0 * 512 * 1024 * 4, ns = bench_time(run_softmax, NULL, &spread);
    bench_report("softmax_gbps", bytes / ns, bytes / ns * spread / ns, "GB/s", "512 rows of 1024");
    ns = bench_time(run_layer_norm, NULL, &spread);
    bench_report("layer_norm_gbps", bytes / ns, bytes / ns * spread / ns, "GB/s",
                 "512 rows of 1024");
}

const bench_entry bench_network[] = {{"conv", bench_conv_3x3}, {"rows", bench_rows}, {NULL, NULL}};
