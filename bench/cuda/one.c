/* one.c - single measurements of bench_device on a device:
 *
 *     --one add       a one-element eager add, and beside it a bare launch of an empty kernel
 *     --one gelu      gelu(x * 2 + 1) * x over 2^26 floats as eager ops and as a plan, and the
 *                     bandwidth of a copy of as many bytes
 *     --one softmax   a softmax written by hand as a plan over 16384 rows of 1024 floats, the op
 *                     softmax, and a copy of as many bytes
 *     --one rms       the same for an RMS norm with a weight
 *     --one start     the time until the first step of an MLP is done, since the program started
 *     --one bare      the time until a context exists and the libraries that a step of the MLP loads
 *                     are loaded
 *
 * Each prints one line of numbers with their names.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_bench.h"
#include "gradus/gradus.h"

enum { ROUNDS = 21 };

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median_of(double *values) {
    qsort(values, ROUNDS, sizeof *values, compare_doubles);
    return values[ROUNDS / 2];
}

/* --- bare launches ---------------------------------------------------------------------------- */

/* The part of the driver that a launch needs. Types are those of cuda.h. */
typedef struct driver {
    void *library, *function, *stream, *context;
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra);
    int (*synchronize)(void *stream);
} driver;

static const char empty_kernel[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                   ".visible .entry empty() { ret; }\n";

/* Creates the primary context. */
static bool open_driver(driver *d) {
    int device;
    d->library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!d->library) return false;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(d->library, "cuInit");
    int (*get)(int *, int) = (int (*)(int *, int))dlsym(d->library, "cuDeviceGet");
    int (*retain)(void **, int) =
        (int (*)(void **, int))dlsym(d->library, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(d->library, "cuCtxSetCurrent");
    return init && get && retain && set && init(0) == 0 && get(&device, 0) == 0 &&
           retain(&d->context, device) == 0 && set(d->context) == 0;
}

static bool load_empty_kernel(driver *d) {
    void *module;
    int (*load)(void **, const void *) =
        (int (*)(void **, const void *))dlsym(d->library, "cuModuleLoadData");
    int (*get)(void **, void *, const char *) =
        (int (*)(void **, void *, const char *))dlsym(d->library, "cuModuleGetFunction");
    int (*stream)(void **, unsigned) =
        (int (*)(void **, unsigned))dlsym(d->library, "cuStreamCreate");
    d->launch = (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void *, void **, void **))dlsym(d->library, "cuLaunchKernel");
    d->synchronize = (int (*)(void *))dlsym(d->library, "cuStreamSynchronize");
    return load && get && stream && d->launch && d->synchronize &&
           load(&module, empty_kernel) == 0 && get(&d->function, module, "empty") == 0 &&
           stream(&d->stream, 1) == 0;
}

static double launch_time(driver *d, int count) {
    d->synchronize(d->stream);
    const double begin = device_bench_now();
    for (int i = 0; i < count; i++) d->launch(d->function, 1, 1, 1, 32, 1, 1, 0, d->stream, 0, 0);
    const double queued = device_bench_now();
    d->synchronize(d->stream);
    return (queued - begin) / count;
}

/* --- a one-element add ------------------------------------------------------------------------ */

/* The time that the calling thread needs for one add. */
static double add_time(gd_device *device, gd_tensor *x, int count) {
    gd_synchronize(device);
    const double begin = device_bench_now();
    for (int i = 0; i < count; i++) {
        GD_SCOPE;
        gd_add(x, x);
    }
    const double queued = device_bench_now();
    gd_synchronize(device);
    return (queued - begin) / count;
}

/* Fewer calls than the queue of the driver holds (1024 launches). */
enum { ADDS = 500 };

static int measure_add(gd_device *device) {
    GD_NO_GRAD;
    gd_tensor *x = gd_to_device(gd_ones(gd_dims(1)), device);
    double adds[ROUNDS], launches[ROUNDS], differences[ROUNDS];
    driver d = {.library = NULL};
    const bool bare = open_driver(&d) && load_empty_kernel(&d);
    for (int i = -3; i < ROUNDS; i++) {
        const double add = add_time(device, x, ADDS), launch = bare ? launch_time(&d, ADDS) : NAN;
        if (i < 0) continue;
        adds[i] = add, launches[i] = launch, differences[i] = add - launch;
    }
    printf("add_us %.3f launch_us %.3f difference_us %.3f\n", median_of(adds) / 1e3,
           median_of(launches) / 1e3, median_of(differences) / 1e3);
    return gd_failed();
}

/* --- gelu(x * 2 + 1) * x ---------------------------------------------------------------------- */

static gd_tensors gelu_body(gd_tensors in, void *user) {
    gd_tensor *x = in.at[0];
    (void)user;
    gd_tensor *y = gd_add(gd_mul(x, gd_scalar(2)), gd_scalar(1));
    return gd_listed(gd_mul(gd_gelu(y), x));
}

/* A function that is measured as a plan, and beside it another one that runs eagerly. */
typedef struct pair_of_ways {
    gd_tensors (*plan)(gd_tensors in, void *user), (*eager)(gd_tensors in, void *user);
    const char *eager_name;
} pair_of_ways;

/* The time of a call: 0 a copy of in.at[0], 1 eager, 2 the plan. */
static double way_time(gd_device *device, const pair_of_ways *ways, gd_jit *jit, gd_tensors in,
                       int which) {
    enum { CALLS = 20 };
    gd_synchronize(device);
    const double begin = device_bench_now();
    for (int i = 0; i < CALLS; i++) {
        GD_SCOPE;
        if (which == 0) gd_clone(in.at[0]);
        else if (which == 1) ways->eager(in, NULL);
        else gd_jit_call(jit, in);
    }
    gd_synchronize(device);
    return (device_bench_now() - begin) / CALLS;
}

static int measure_ways(gd_device *device, const pair_of_ways *ways, gd_tensors in) {
    GD_NO_GRAD;
    gd_jit *jit = gd_jit_new(ways->plan, NULL);
    double times[3][ROUNDS];
    for (int i = -2; i < ROUNDS && !gd_failed(); i++)
        for (int which = 0; which < 3; which++) {
            const double t = way_time(device, ways, jit, in, which);
            if (i >= 0) times[which][i] = t;
        }
    if (gd_failed()) return 1;
    const double copy = median_of(times[0]), eager = median_of(times[1]),
                 plan = median_of(times[2]), bytes = 8.0 * (double)gd_tensor_numel(in.at[0]);
    printf("copy_ms %.4f copy_GBps %.0f %s_ms %.4f plan_ms %.4f plan_share_of_copy %.3f\n",
           copy / 1e6, bytes / copy, ways->eager_name, eager / 1e6, plan / 1e6, copy / plan);
    return 0;
}

static int measure_gelu(gd_device *device, int64_t count) {
    const pair_of_ways ways = {gelu_body, gelu_body, "eager"};
    return measure_ways(device, &ways, gd_list(gd_to_device(gd_randn(gd_dims(count)), device)));
}

/* --- rows ------------------------------------------------------------------------------------- */

static gd_tensors softmax_by_hand(gd_tensors in, void *user) {
    gd_tensor *x = in.at[0];
    (void)user;
    gd_tensor *e = gd_exp(gd_sub(x, gd_max(x, .axis = -1, .keepdim = true)));
    return gd_listed(gd_div(e, gd_sum(e, .axis = -1, .keepdim = true)));
}
static gd_tensors softmax_op(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_softmax(in.at[0]));
}
static gd_tensors rms_by_hand(gd_tensors in, void *user) {
    gd_tensor *x = in.at[0];
    (void)user;
    gd_tensor *mean = gd_mean(gd_square(x), .axis = -1, .keepdim = true);
    return gd_listed(gd_mul(gd_mul(x, gd_rsqrt(gd_add(mean, gd_scalar(1e-6)))), in.at[1]));
}
static gd_tensors rms_op(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_rms_norm(in.at[0], in.at[1], .eps = 1e-6));
}

static int measure_rows(gd_device *device, const pair_of_ways *ways, int64_t rows, int64_t n) {
    gd_tensor *x = gd_to_device(gd_randn(gd_dims(rows, n)), device),
              *weight = gd_to_device(gd_randn(gd_dims(n)), device);
    return measure_ways(device, ways, gd_list(x, weight));
}

/* --- start ------------------------------------------------------------------------------------ */

typedef struct mlp {
    gd_module *net;
    gd_optimizer *optimizer;
} mlp;

static gd_tensors mlp_step(gd_tensors in, void *user) {
    mlp *m = user;
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(m->net, in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(m->optimizer);
    gd_optimizer_zero_grad(m->optimizer);
    return gd_listed(loss);
}

/* Two steps: the first one runs the plan uncaptured, the second one captures it. */
static int measure_start(gd_device *device, const char *name, double began) {
    const double opened = device_bench_now();
    mlp m = {gd_net_new("mlp", "outputs=10 hidden=512,512"), NULL};
    gd_tensor *x = gd_randn(gd_dims(128, 784)), *y = gd_randint(gd_dims(128), 0, 10);
    gd_module_build(m.net, x);
    gd_module_to(m.net, name, GD_DTYPE_NONE);
    m.optimizer = gd_optim_sgd(gd_module_parameters(m.net), .lr = 1e-3);
    gd_jit *jit = gd_jit_new(mlp_step, &m);
    x = gd_to_device(x, device), y = gd_to_device(y, device);
    const double ready = device_bench_now();
    gd_item(gd_jit_call(jit, gd_list(x, y)).at[0]);
    const double first = device_bench_now();
    gd_item(gd_jit_call(jit, gd_list(x, y)).at[0]);
    const double second = device_bench_now();
    printf("device_ms %.1f net_ms %.1f first_step_ms %.1f second_step_ms %.1f total_ms %.1f\n",
           (opened - began) / 1e6, (ready - opened) / 1e6, (first - ready) / 1e6,
           (second - first) / 1e6, (second - began) / 1e6);
    return gd_failed();
}

static bool load_library(const char *name) {
    char path[512];
    const char *home = getenv("CUDA_HOME");
    if (home && snprintf(path, sizeof path, "%s/lib64/%s", home, name) > 0 &&
        dlopen(path, RTLD_NOW))
        return true;
    if (dlopen(name, RTLD_NOW)) return true;
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
    return dlopen(path, RTLD_NOW) != NULL;
}

/* The same libraries as a step of the MLP: cuBLASLt, with a handle, and NVRTC. */
static int measure_bare(double began) {
    driver d = {.library = NULL};
    if (!open_driver(&d)) {
        fprintf(stderr, "there is no CUDA device\n");
        return 1;
    }
    const double context = device_bench_now();
    const bool products = load_library("libcublasLt.so.13"), nvrtc = load_library("libnvrtc.so.13");
    printf("context_ms %.1f libraries_ms %.1f total_ms %.1f%s%s\n", (context - began) / 1e6,
           (device_bench_now() - context) / 1e6, (device_bench_now() - began) / 1e6,
           products ? "" : " (no cuBLASLt)", nvrtc ? "" : " (no NVRTC)");
    return 0;
}

int device_bench_one(const char *name, const char *device_name, double began) {
    if (strcmp(name, "bare") == 0) return measure_bare(began);
    gd_device *device = gd_device_get(device_name);
    if (!device) return 1;
    if (strcmp(name, "add") == 0) return measure_add(device);
    if (strcmp(name, "gelu") == 0) return measure_gelu(device, 1 << 26);
    const pair_of_ways softmax = {softmax_by_hand, softmax_op, "op"},
                       rms = {rms_by_hand, rms_op, "op"};
    if (strcmp(name, "softmax") == 0) return measure_rows(device, &softmax, 16384, 1024);
    if (strcmp(name, "rms") == 0) return measure_rows(device, &rms, 16384, 1024);
    if (strcmp(name, "start") == 0) return measure_start(device, device_name, began);
    fprintf(stderr, "--one is %s; it must be add, gelu, softmax, rms, start or bare\n", name);
    return 2;
}
