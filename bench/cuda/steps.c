/* steps.c - training steps of one network on a device, driven over a pipe by
 * bench/versus_pytorch_cuda.py, which also has the list of networks.
 *
 *     bench_device --device cuda --net resnet50 --options classes=1000 --optimizer "sgd lr=0.01"
 *                  --file FILE [--mode plan|eager] [--autocast bf16] [--tf32] [--loss mse] [--nhwc]
 *                  [--text]
 *
 * FILE has the weights ("net.NAME") and a batch (x and y). --net is a record of the zoo, or layers
 * with options, separated by semicolons: "flatten; linear in_features=784 out_features=10".
 *
 * --text prints the plan of a step, and runs nothing. Otherwise the first line of output has the loss
 * and the norm of all gradients for the weights of FILE, then the losses of the first three steps.
 * Then each line of input is a command:
 *
 *     round MS     runs steps for about MS milliseconds without and then with the clock; prints
 *                  nanoseconds per step
 *     queue N      prints the nanoseconds that the calling thread needs to queue one of N steps
 *     launches     prints the number of kernels that one step launches; an eager call of a library
 *                  counts as one; -1 on a device that does not count
 *     peak         prints the peak of the bytes in use by tensors
 *     profile      prints a table of one step by op and kernel, then an empty line
 *     checksum N   runs N steps; prints a checksum of all weights
 *
 * `bench_device --one add|gelu|start|bare` is in one.c.
 */
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device_bench.h"
#include "format/xxh64.h"
#include "gradus/gradus.h"

typedef struct settings {
    const char *device, *net, *options, *optimizer, *file, *mode, *loss, *one;
    gd_dtype autocast;
    bool tf32, nhwc, text;
} settings;

typedef struct step_state {
    const settings *settings;
    gd_device *device;
    gd_module *net;
    gd_optimizer *optimizer;
    gd_tensor *x, *y; /* a batch: images or tokens, and class indices or numbers */
    gd_jit *jit;      /* NULL: eager */
} step_state;

double device_bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* --- the network ------------------------------------------------------------------------------ */

/* "conv2d in_channels=1; relu" as a sequence of layers. */
static gd_module *make_layers(const char *text) {
    gd_module *net = gd_nn_sequential();
    char *copy = strdup(text), *rest = copy;
    for (char *layer; copy && (layer = strtok_r(rest, ";", &rest));) {
        layer += strspn(layer, " ");
        char *options = layer + strcspn(layer, " ");
        if (*options) *options++ = 0;
        gd_module_append(net, gd_layer_new(layer, options));
    }
    free(copy);
    return net;
}

static gd_optimizer *make_optimizer(const char *text, gd_tensors parameters) {
    char name[32];
    const size_t length = strcspn(text, " ");
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    return gd_optimizer_new(name, parameters, text + length);
}

/* Images as (N, H, W, C) in memory. */
static gd_tensor *channels_last(gd_tensor *x) {
    return gd_permute(gd_contiguous(gd_permute(x, gd_dims(0, 2, 3, 1))), gd_dims(0, 3, 1, 2));
}

static gd_tensor *loss_of_batch(step_state *s, gd_tensor *x, gd_tensor *y) {
    GD_AUTOCAST(s->settings->autocast);
    gd_tensor *out = gd_module_forward(s->net, x);
    if (strcmp(s->settings->loss, "mse") == 0) return gd_mse_loss(out, y);
    return gd_cross_entropy(gd_reshape(out, gd_dims(-1, gd_tensor_dim(out, -1))),
                            gd_reshape(y, gd_dims(-1)));
}

/* Gradients are freed at the end, not at the start, so that a plan need not keep them. */
static gd_tensors train_batch(gd_tensors in, void *user) {
    step_state *s = user;
    gd_tensor *loss = loss_of_batch(s, in.at[0], in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(s->optimizer);
    gd_optimizer_zero_grad(s->optimizer);
    return gd_listed(loss);
}

static bool make_state(step_state *s, const settings *o) {
    gd_state *state = gd_read_state(o->file);
    *s = (step_state){.settings = o, .device = gd_device_get(o->device)};
    if (!s->device) return false;
    s->x = gd_to_device(gd_state_find(state, "x"), s->device);
    s->y = gd_to_device(gd_state_find(state, "y"), s->device);
    if (o->nhwc) s->x = channels_last(s->x);
    s->net = strchr(o->net, ';') ? make_layers(o->net) : gd_net_new(o->net, o->options);
    gd_module_build(s->net, gd_state_find(state, "x"));
    gd_load_state(o->file, gd_part("net", s->net));
    gd_module_to(s->net, o->device, GD_DTYPE_NONE);
    s->optimizer = make_optimizer(o->optimizer, gd_module_parameters(s->net));
    if (o->text || strcmp(o->mode, "plan") == 0) s->jit = gd_jit_new(train_batch, s);
    return !gd_failed();
}

static gd_tensor *run_step(step_state *s) {
    const gd_tensors in = gd_list(s->x, s->y);
    return (s->jit ? gd_jit_call(s->jit, in) : train_batch(in, s)).at[0];
}

/* --- commands --------------------------------------------------------------------------------- */

static void print_first_steps(step_state *s) {
    {
        GD_SCOPE;
        gd_tensor *loss = loss_of_batch(s, s->x, s->y);
        gd_backward(loss);
        const gd_tensors p = gd_module_parameters(s->net);
        double squares = 0;
        for (int64_t i = 0; i < p.count; i++) {
            GD_SCOPE;
            GD_NO_GRAD;
            gd_tensor *g = gd_tensor_grad(p.at[i]);
            if (g) squares += gd_item(gd_sum(gd_square(gd_cast(g, GD_F64))));
        }
        printf("%.9g %.9g", gd_item(loss), sqrt(squares));
        gd_optimizer_zero_grad(s->optimizer);
    }
    gd_memory_reset_peak(s->device); /* the peak is that of steps in the chosen mode */
    for (int i = 0; i < 3 && !gd_failed(); i++) {
        GD_SCOPE;
        printf(" %.9g", gd_item(run_step(s)));
    }
    if (!gd_failed()) printf("\n");
}

/* Returns the time when all steps are queued. */
static double queue_steps(step_state *s, int64_t steps) {
    for (int64_t i = 0; i < steps; i++) {
        GD_SCOPE;
        run_step(s);
    }
    return device_bench_now();
}

static double run_steps(step_state *s, int64_t steps) {
    gd_synchronize(s->device);
    const double begin = device_bench_now();
    queue_steps(s, steps);
    gd_synchronize(s->device);
    return (device_bench_now() - begin) / (double)steps;
}

static void time_round(step_state *s, double ms) {
    const double each = run_steps(s, 1), first = run_steps(s, 1 + (int64_t)(2e6 / each)),
                 second = run_steps(s, 1 + (int64_t)(ms * 1e6 / first));
    printf("%.1f\n", run_steps(s, 1 + (int64_t)(ms * 1e6 / second)));
}

/* N steps must fit into the queue of the driver (1024 launches), or the thread waits for the device. */
static void print_queue_time(step_state *s, int64_t steps) {
    gd_synchronize(s->device);
    const double begin = device_bench_now(), queued = queue_steps(s, steps);
    printf("%.1f\n", (queued - begin) / (double)steps);
    gd_synchronize(s->device);
}

static void print_profile(step_state *s) {
    run_steps(s, 1);
    gd_profiler_start();
    run_steps(s, 1);
    gd_profiler_stop();
    gd_profiler_table(stdout);
    printf("\n");
    gd_profiler_clear();
}

/* Calls of libraries in one eager step; the backend counts its own launches. */
static int64_t count_library_calls(step_state *s) {
    static const char *const libraries[] = {"cublaslt", "cudnn"};
    int64_t calls = 0;
    gd_profile_row row;
    gd_profiler_start();
    run_steps(s, 1);
    gd_profiler_stop();
    for (int64_t i = 0; gd_profiler_row(i, &row); i++)
        for (int k = 0; k < 2; k++)
            if (strstr(row.kernel, libraries[k])) calls += row.calls;
    gd_profiler_clear();
    return calls;
}

/* Opens the CUDA backend if the library has loaded it, from whatever folder. */
static int find_backend(struct dl_phdr_info *loaded, size_t size, void *backend) {
    (void)size;
    const char *name = strrchr(loaded->dlpi_name, '/');
    if (!name || strcmp(name + 1, "libgradus_cuda.so") != 0) return 0;
    *(void **)backend = dlopen(loaded->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    return 1;
}

/* A launch of a plan counts all nodes of its graph, also those of libraries. */
static void print_launches(step_state *s) {
    void *backend = NULL;
    dl_iterate_phdr(find_backend, &backend);
    _Atomic(int64_t) *(*count)(void) =
        backend ? (_Atomic(int64_t) *(*)(void))dlsym(backend, "gradus_cuda_count_launches") : NULL;
    if (!count) {
        printf("-1\n");
        return;
    }
    const int64_t libraries = s->jit ? 0 : count_library_calls(s), before = *count();
    run_steps(s, 1);
    printf("%lld\n", (long long)(*count() - before + libraries));
}

static int print_plan(step_state *s) {
    gd_plan_memory memory = {.peak_bytes = 0};
    char *text = gd_jit_plan_text(s->jit, gd_list(s->x, s->y));
    gd_jit_plan(s->jit, gd_list(s->x, s->y), &memory);
    if (text)
        printf("%smemory: %lld MiB, and %lld MiB before the step\n", text,
               (long long)memory.peak_bytes >> 20,
               (long long)gd_memory_stats(s->device).live_bytes >> 20);
    free(text);
    return gd_failed();
}

static void print_checksum(step_state *s, int64_t steps) {
    GD_SCOPE;
    gd_xxh64 hash = gd_xxh64_begin();
    run_steps(s, steps);
    gd_state *state = gd_state_of(s->net);
    for (int64_t i = 0; i < gd_state_count(state); i++) {
        gd_tensor *t = gd_state_tensor_at(state, i);
        const size_t bytes = (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
        void *values = malloc(bytes + 1);
        if (values) gd_copy_to(t, values, bytes);
        if (values) gd_xxh64_add(&hash, values, bytes);
        free(values);
    }
    printf("%016llx\n", (unsigned long long)gd_xxh64_value(&hash));
}

static int serve_commands(step_state *s) {
    char line[64];
    while (!gd_failed() && fgets(line, sizeof line, stdin)) {
        const double number = strtod(line + strcspn(line, " \n"), NULL);
        if (strncmp(line, "round", 5) == 0) time_round(s, number);
        else if (strncmp(line, "queue", 5) == 0) print_queue_time(s, (int64_t)number);
        else if (strncmp(line, "launches", 8) == 0) print_launches(s);
        else if (strncmp(line, "profile", 7) == 0) print_profile(s);
        else if (strncmp(line, "peak", 4) == 0)
            printf("%lld\n", (long long)gd_memory_stats(s->device).peak_bytes);
        else if (strncmp(line, "checksum", 8) == 0) print_checksum(s, (int64_t)number);
        else printf("unknown command\n");
        fflush(stdout);
    }
    return gd_failed();
}

/* --- the program ------------------------------------------------------------------------------ */

static bool read_options(int argc, char **argv, settings *o) {
    const struct {
        const char *name, **value;
    } texts[] = {{"--device", &o->device},       {"--net", &o->net},   {"--options", &o->options},
                 {"--optimizer", &o->optimizer}, {"--file", &o->file}, {"--mode", &o->mode},
                 {"--loss", &o->loss},           {"--one", &o->one}};
    for (int i = 1; i < argc; i++) {
        bool known = true;
        if (strcmp(argv[i], "--tf32") == 0) o->tf32 = true;
        else if (strcmp(argv[i], "--nhwc") == 0) o->nhwc = true;
        else if (strcmp(argv[i], "--text") == 0) o->text = true;
        else if (strcmp(argv[i], "--autocast") == 0 && i + 1 < argc)
            o->autocast = strcmp(argv[++i], "bf16") == 0 ? GD_BF16 : GD_F16;
        else {
            known = false;
            for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
                if (strcmp(argv[i], texts[k].name) == 0 && i + 1 < argc) {
                    *texts[k].value = argv[++i];
                    known = true;
                    break;
                }
        }
        if (!known) {
            fprintf(stderr, "unknown option %s, or its value is missing\n", argv[i]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    const double began = device_bench_now();
    settings o = {.device = "cuda",
                  .options = "",
                  .optimizer = "sgd lr=0.001",
                  .mode = "plan",
                  .loss = "cross_entropy",
                  .autocast = GD_DTYPE_NONE};
    if (!read_options(argc, argv, &o)) return 2;
    GD_SCOPE;
    int failed = 1;
    if (o.one) {
        failed = device_bench_one(o.one, o.device, began);
    } else if (!o.net || !o.file) {
        fprintf(stderr, "usage: bench_device --device DEVICE --net NET --file FILE ...\n");
        return 2;
    } else {
        gd_allow_tf32(o.tf32);
        step_state s;
        if (make_state(&s, &o) && o.text) {
            failed = print_plan(&s);
        } else if (!gd_failed()) {
            print_first_steps(&s);
            fflush(stdout);
            failed = serve_commands(&s); /* ends at once after a failure */
        }
    }
    if (gd_failed()) fprintf(stderr, "bench_device: %s\n", gd_error_message());
    return failed;
}
