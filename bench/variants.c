/* variants.c - the kernels of an op for the same calls, in turn: whether each is worth having. Those of
 * CUDA run if there is such a device. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"

typedef struct variant_case {
    const char *device, *op, *arguments;
} variant_case;

static const variant_case cases[] = {
    {"cpu", "conv2d", "8,64,56,56 64,64,3,3 none padding=1"},
    {"cpu", "conv2d", "8,256,14,14 256,256,3,3 none padding=1"},
    {"cpu", "conv2d", "1,64,28,28 64,64,3,3 none padding=1"},
    {"cpu", "conv2d", "8,512,7,7 512,512,3,3 none padding=1"},
    {"cpu", "conv2d", "8,96,56,56 96,1,3,3 none padding=1 groups=96"},
    {"cpu", "conv2d", "8,128,28,28 128,4,3,3 none padding=1 groups=32"},
    {"cpu", "conv1d", "8,96,256 96,1,3 none padding=1 groups=96"},
    {"cpu", "conv_grad_input",
     "8,64,56,56 64,64,3,3 dims=56,56 stride=1,1 padding=1,1 dilation=1,1 groups=1"},
    {"cpu", "conv_grad_input",
     "8,96,56,56 96,1,3,3 dims=56,56 stride=1,1 padding=1,1 dilation=1,1 groups=96"},
    {"cpu", "conv_grad_weight",
     "8,64,56,56 8,64,56,56 dims=3,3 stride=1,1 padding=1,1 dilation=1,1 groups=1"},
    {"cpu", "conv_grad_weight",
     "8,96,56,56 8,96,56,56 dims=3,3 stride=1,1 padding=1,1 dilation=1,1 groups=96"},
    {"cpu", "scatter", "4096,256t axis=0 i64<4096:512,256 512,256"},
    {"cpu", "scatter_add", "4096,256t axis=0 i64<4096:512,256 512,256"},
    {"cpu", "scatter_mul", "4096,256t axis=0 i64<4096:512,256 512,256"},
    {"cpu", "scatter_extreme",
     "4096,256t axis=0 largest=true include_self=true i64<4096:512,256 512,256"},
    {"cpu", "index_add", "4096,256t axis=0 i64<4096:512 512,256"},
    {"cuda", "sum", "4096,4096 axis=1"},
    {"cuda", "sum", "4096,4096 axis=0"},
    {"cuda", "sum", "16777216"},
    {"cuda", "conv2d", "32,64,56,56 64,64,3,3 none padding=1"},
    {"cuda", "conv2d", "32,256,14,14 256,256,3,3 none padding=1"},
    {"cuda", "conv2d", "32,96,56,56 96,1,3,3 none padding=1 groups=96"},
    {"cuda", "conv2d", "bf16:32,64,56,56 bf16:64,64,3,3 none padding=1"},
    {"cuda", "conv_grad_input",
     "32,64,56,56 64,64,3,3 dims=56,56 stride=1,1 padding=1,1 dilation=1,1 groups=1"},
    {"cuda", "conv_grad_input",
     "32,96,56,56 96,1,3,3 dims=56,56 stride=1,1 padding=1,1 dilation=1,1 groups=96"},
    {"cuda", "conv_grad_weight",
     "32,64,56,56 32,64,56,56 dims=3,3 stride=1,1 padding=1,1 dilation=1,1 groups=1"},
    {"cuda", "conv_grad_weight",
     "32,96,56,56 32,96,56,56 dims=3,3 stride=1,1 padding=1,1 dilation=1,1 groups=96"},
    {"cuda", "conv_grad_input",
     "bf16:32,64,56,56 bf16:64,64,3,3 dims=56,56 stride=1,1 padding=1,1 dilation=1,1 groups=1"},
    {"cuda", "conv_grad_weight",
     "bf16:32,64,56,56 bf16:32,64,56,56 dims=3,3 stride=1,1 padding=1,1 dilation=1,1 groups=1"},
    {"cuda", "conv_grad_input",
     "32,256,14,14 256,256,3,3 dims=28,28 stride=2,2 padding=1,1 dilation=1,1 groups=1"},
    {"cuda", "conv_transpose2d", "32,256,7,7 256,256,3,3 none"},
    {"cuda", "matmul", "128,784 784,512"},
    {"cuda", "matmul", "1024,1024 1024,1024"},
    {"cuda", "matmul", "bf16:2048,2048 bf16:2048,2048"},
    {"cuda", "linear", "128,784 512,784 512"},
    {"cuda", "attention_forward",
     "bf16:8,12,1024,64 bf16:8,12,1024,64 bf16:8,12,1024,64 none none causal=true grouped=false"},
    {"cuda", "attention_grad",
     "bf16:8,12,1024,64 bf16:8,12,1024,64 bf16:8,12,1024,64 bf16:8,12,1024,64 8,12,1024 "
     "bf16:8,12,1024,64 none none causal=true grouped=false"},
    {"cuda", "batch_norm", "bf16:32,64,56,56 64 64 64 64 training=true"},
};

enum { NAME_BYTES = 64 };

/* A call by one of its op's kernels. Calls of a device that queues are grouped. */
typedef struct variant {
    bench_call *call;
    gd_device *device;
    const char *kernel;
    int calls;
} variant;

static void run_variant(void *arg) {
    const variant *v = arg;
    gd_set_kernel(v->call->op, v->kernel);
    for (int i = 0; i < v->calls; i++) {
        GD_SCOPE;
        GD_NO_GRAD;
        bench_run_call(v->call);
    }
    if (v->calls > 1) gd_synchronize(v->device);
}

/* Whether the call runs by this kernel, and not by another one because it does not match. */
static bool runs_by(variant *v, char *text, size_t size) {
    gd_profile_row row;
    bool found = false;
    gd_profiler_start();
    run_variant(v);
    gd_synchronize(v->device);
    gd_profiler_stop();
    const size_t length = strlen(v->kernel);
    for (int64_t i = 0; gd_profiler_row(i, &row); i++)
        if (strcmp(row.op, v->call->op) == 0 && strncmp(row.kernel, v->kernel, length) == 0 &&
            (row.kernel[length] == 0 || row.kernel[length] == ':')) {
            found = true;
            snprintf(text, size, "%s", row.kernel);
        }
    gd_profiler_clear();
    return found;
}

static bool read_arguments(bench_call *c, const char *arguments, gd_device *device) {
    char text[256];
    snprintf(text, sizeof text, "%s", arguments);
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " "))
        if (!bench_add_argument(c, at)) return false;
    for (int i = 0; i < c->n_inputs; i++)
        if (c->inputs[i]) c->inputs[i] = gd_to_device(c->inputs[i], device);
    return true;
}

static void time_case(const variant_case *c, gd_device *device) {
    GD_SCOPE;
    bench_call call = {.op = c->op};
    variant variants[BENCH_RIVALS];
    char texts[BENCH_RIVALS][160];
    void *args[BENCH_RIVALS];
    bench_rival rivals[BENCH_RIVALS];
    const gd_kernel *k;
    int n = 0;
    if (!read_arguments(&call, c->arguments, device)) return;
    for (int i = 0; (k = gd_op_kernel_at(gd_op_find(c->op), c->device, i)); i++) {
        if (k->rank == 0 || n == BENCH_RIVALS) continue; /* the reference kernel */
        variants[n] = (variant){&call, device, k->variant, strcmp(c->device, "cpu") == 0 ? 1 : 32};
        args[n] = &variants[n];
        n += runs_by(&variants[n], texts[n], sizeof texts[n]);
    }
    if (n == 0 || gd_failed()) return;
    bench_in_turn(run_variant, args, n, rivals);
    printf("%s: %s %s\n", c->device, c->op, c->arguments);
    for (int i = 0; i < n; i++) {
        char name[NAME_BYTES], note[240];
        snprintf(name, sizeof name, "%s_%s", c->op, variants[i].kernel);
        snprintf(note, sizeof note, "%.2f x the speed of the next  %.159s",
                 i + 1 < n ? rivals[i].speedup / rivals[i + 1].speedup : 1.0, texts[i]);
        bench_report(name, rivals[i].ns / variants[i].calls / 1e3,
                     rivals[i].spread / variants[i].calls / 1e3, "us", note);
    }
}

static void time_variants(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gd_device *device = gd_device_get(cases[i].device);
        if (device) time_case(&cases[i], device);
        else gd_clear_error();
    }
    gd_set_kernel(NULL, NULL);
}

const bench_entry bench_variants[] = {{"variants", time_variants}, {NULL, NULL}};
