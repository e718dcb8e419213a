/* test_cuda_lists.c - elementwise ops for lists of tensors on CUDA: updates of optimizers and
 * clipped gradients have the bits of the CPU, and take one launch for many parameters. So do copies
 * of statistics and casts of gradients in plans. */
#include <math.h>

#include "compare.h"
#include "cuda_child.h"

/* Sizes around the ends of a vector and of a chunk (backend/cuda/expression_args.h). */
static const int64_t sizes[] = {1, 3, 4, 5, 17, 1024, 4095, 4096, 4097, 9000, 0, 8192};
enum { N_SIZES = sizeof sizes / sizeof *sizes, PARAMETERS = 6 * N_SIZES, STEPS = 3 };

static gd_tensor *make_values(int64_t n, double start, double step, gd_dtype dtype,
                              gd_device *device) {
    float *values = malloc((size_t)(n + 1) * sizeof *values);
    for (int64_t k = 0; k < n; k++) values[k] = (float)sin(start + step * (double)k);
    gd_tensor *t = gd_cast(gd_to_device(gd_from_array(gd_dims(n), GD_F32, values), device), dtype);
    free(values);
    return t;
}

/* The same values at an address that is not aligned for vectors. */
static gd_tensor *make_unaligned(int64_t n, double start, double step, gd_dtype dtype,
                                 gd_device *device) {
    return gd_narrow(make_values(n + 1, start - step, step, dtype, device), 0, 1, n);
}

typedef struct updated {
    gd_tensor *values[PARAMETERS];
    int64_t launches; /* of the last step; -1: unknown */
} updated;

static updated update_parameters(const char *optimizer, gd_dtype dtype, bool clips,
                                 gd_device *device) {
    updated u = {.launches = -1};
    for (int i = 0; i < PARAMETERS; i++) {
        const int64_t n = sizes[i % N_SIZES];
        u.values[i] = gd_requires_grad(make_values(n, i, 0.1, dtype, device));
        gd_set_grad(u.values[i], i % 13 == 5 ? make_unaligned(n, 3.0 * i, 0.7, dtype, device)
                                             : make_values(n, 3.0 * i, 0.7, dtype, device));
    }
    const gd_tensors all = {u.values, PARAMETERS};
    gd_optimizer *o = gd_optimizer_new(optimizer, all, "lr=0.01 weight_decay=0.1");
    for (int step = 0; step < STEPS; step++) {
        if (clips) gd_clip_grad_value(all, 0.4);
        emulated_controls *cuda = emulated_cuda();
        const int64_t before = cuda ? cuda->counts.launches : 0;
        gd_optimizer_step(o);
        if (cuda) u.launches = cuda->counts.launches - before;
    }
    for (int i = 0; i < PARAMETERS; i++)
        u.values[i] = gd_to_device(gd_detach(u.values[i]), gd_device_get("cpu"));
    return u;
}

static int64_t count_differences(const updated *a, const updated *b, gd_dtype dtype) {
    int64_t n = 0;
    for (int i = 0; i < PARAMETERS; i++)
        n += memcmp(gd_data(a->values[i]), gd_data(b->values[i]),
                    (size_t)sizes[i % N_SIZES] * gd_dtype_size(dtype)) != 0;
    return n;
}

TEST(updates_of_lists_have_the_bits_of_the_cpu) {
    static const char *const optimizers[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
    static const gd_dtype dtypes[] = {GD_F32, GD_BF16, GD_F16, GD_F64};
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (int o = 0; o < 5 && device; o++)
        for (int d = 0; d < 4; d++) {
            GD_SCOPE;
            const updated here =
                update_parameters(optimizers[o], dtypes[d], d % 2, gd_device_get("cpu"));
            const updated there = update_parameters(optimizers[o], dtypes[d], d % 2, device);
            if (gd_failed()) {
                CHECK_SAYING(false, "%s", gd_error_message());
                gd_clear_error();
                continue;
            }
            /* a GPU's square root and division have the same bits, too */
            const int64_t different = count_differences(&here, &there, dtypes[d]);
            CHECK_SAYING(different == 0, "%s %s: %d parameters differ", optimizers[o],
                         gd_dtype_name(dtypes[d]), (int)different);
            if (there.launches < 0 || dtypes[d] == GD_F64) continue;
            CHECK_SAYING(there.launches < PARAMETERS / 2, "%s %s: %d launches for %d parameters",
                         optimizers[o], gd_dtype_name(dtypes[d]), (int)there.launches, PARAMETERS);
        }
}

/* --- statistics of batch norms ---------------------------------------------------------------- */

enum { NORMS = 5, CLASSES = 4 };

/* A graph with batch norms, whose running statistics are variables, and a loss that fails for a
 * class out of range. */
typedef struct norm_net {
    gd_graph *graph;
    gd_tensor *x, *target, *loss, *mean[NORMS], *var[NORMS];
} norm_net;

static norm_net make_norm_net(void) {
    norm_net n = {.graph = gd_graph_new()};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(6, CLASSES));
    n.target = gd_placeholder(gd_dims(6), .dtype = GD_I64);
    gd_tensor *h = n.x;
    for (int i = 0; i < NORMS; i++) {
        n.mean[i] = gd_variable(gd_full(gd_dims(CLASSES), 0));
        n.var[i] = gd_variable(gd_full(gd_dims(CLASSES), 1));
        h = gd_batch_norm(gd_sin(h), NULL, NULL, n.mean[i], n.var[i], .training = true);
    }
    n.loss = gd_cross_entropy(h, n.target);
    return n;
}

/* The running statistics after three runs, then one that fails. */
static void run_norm_net(gd_device *device, gd_tensor **statistics, char **text) {
    norm_net n = make_norm_net();
    gd_session *session = gd_session_new(n.graph, .device = device);
    gd_seed(7);
    gd_tensor *x = gd_to_device(gd_randn(gd_dims(6, CLASSES)), device),
              *good = gd_to_device(gd_from_array(gd_dims(6), GD_I64, (int64_t[]){0, 1, 2, 3, 0, 1}),
                                   device),
              *bad = gd_to_device(gd_from_array(gd_dims(6), GD_I64, (int64_t[]){0, 1, 9, 3, 0, 1}),
                                  device);
    *text = gd_session_plan_text(session, gd_feed(n.x, x, n.target, good), gd_list(n.loss));
    for (int i = 0; i < 3; i++)
        gd_session_run(session, gd_feed(n.x, x, n.target, good), gd_list(n.loss));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_item(gd_session_run(session, gd_feed(n.x, x, n.target, bad), gd_list(n.loss)).at[0]);
    gd_synchronize(device);
    CHECK(gd_failed());
    gd_clear_error();
    for (int i = 0; i < NORMS; i++) {
        statistics[2 * i] = gd_to_device(gd_session_get(session, n.mean[i]), gd_device_get("cpu"));
        statistics[2 * i + 1] =
            gd_to_device(gd_session_get(session, n.var[i]), gd_device_get("cpu"));
    }
}

TEST(statistics_are_copied_together_and_unchanged_by_runs_that_fail) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_tensor *here[2 * NORMS], *there[2 * NORMS];
    char *text, *list;
    run_norm_net(gd_device_get("cpu"), here, &text);
    run_norm_net(cuda_open_device(), there, &list);
    CHECK_SAYING(list && strstr(list, " = clone[10]("), "%s", list);
    for (int i = 0; i < 2 * NORMS; i++) {
        const double distance = tensors_relative_distance(there[i], here[i]);
        CHECK_SAYING(distance < 1e-4, "%d: %g", i, distance);
    }
    free(text);
    free(list);
}

/* --- weights of convolutions ------------------------------------------------------------------ */

enum { LAYERS = 4 };

typedef struct conv_net {
    gd_tensor *w[LAYERS];
    gd_optimizer *optimizer;
} conv_net;

static gd_tensors train_convolutions(gd_tensors in, void *user) {
    conv_net *n = user;
    gd_tensor *h = gd_cast(in.at[0], GD_BF16);
    for (int i = 0; i < LAYERS; i++)
        h = gd_relu(gd_conv2d(h, gd_cast(n->w[i], GD_BF16), NULL, .padding = 1));
    gd_tensor *loss = gd_mean(gd_square(gd_cast(h, GD_F32)));
    gd_backward(loss);
    gd_optimizer_step(n->optimizer);
    gd_optimizer_zero_grad(n->optimizer);
    return gd_listed(loss);
}

/* The changes of the weights in three steps. They have 9 taps and more channels than a tile, fewer,
 * or as many as no vector has. */
static void train_conv_net(gd_device *device, gd_tensor **changes) {
    static const int64_t channels[LAYERS + 1] = {8, 12, 300, 9, 16};
    conv_net n;
    gd_tensor *before[LAYERS];
    gd_seed(3);
    for (int i = 0; i < LAYERS; i++) {
        gd_tensor *w = gd_mul(gd_randn(gd_dims(channels[i + 1], channels[i], 3, 3)),
                              gd_scalar(1 / sqrt(9.0 * (double)channels[i])));
        before[i] = gd_clone(w);
        n.w[i] = gd_requires_grad(gd_to_device(w, device));
    }
    const gd_tensors all = {n.w, LAYERS};
    n.optimizer = gd_optimizer_new("sgd", all, "lr=0.5 momentum=0.9");
    gd_tensor *x = gd_to_device(gd_randn(gd_dims(2, channels[0], 5, 4)), device);
    gd_jit *jit = gd_jit_new(train_convolutions, &n);
    for (int i = 0; i < 3; i++) gd_jit_call(jit, gd_list(x));
    for (int i = 0; i < LAYERS; i++)
        changes[i] = gd_sub(gd_to_device(gd_detach(n.w[i]), gd_device_get("cpu")), before[i]);
}

TEST(gradients_with_channels_last_update_weights_as_on_the_cpu) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_tensor *here[LAYERS], *there[LAYERS];
    train_conv_net(gd_device_get("cpu"), here);
    train_conv_net(cuda_open_device(), there);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    for (int i = 0; i < LAYERS && !gd_failed(); i++) {
        const double distance = tensors_relative_distance(there[i], here[i]);
        CHECK_SAYING(distance < 5e-2, "%d: %g", i, distance);
    }
}

/* --- memory that entries share ---------------------------------------------------------------- */

/* Entries of a list step run at the same time: an entry must not be computed in memory that another
 * one reads. */
typedef struct exchange {
    gd_tensor *a, *b;
    gd_optimizer *optimizer;
} exchange;

/* The gradients are two parts of one sum, and a cat of its parts. */
static gd_tensors train_parts(gd_tensors in, void *user) {
    exchange *e = user;
    gd_tensor *s = gd_sum(in.at[0], .axis = 0), *one = gd_scalar(1);
    gd_tensor *joined = gd_cat(gd_list(gd_narrow(s, 0, 0, 32), gd_narrow(s, 0, 48, 16)));
    gd_backward(gd_add(e->a, one), .gradient = gd_narrow(s, 0, 0, 48));
    gd_backward(gd_add(e->b, one), .gradient = joined);
    gd_optimizer_step(e->optimizer);
    gd_optimizer_zero_grad(e->optimizer);
    return gd_listed(gd_sum(s));
}

/* Each parameter is the gradient of the other one. */
static gd_tensors train_crosswise(gd_tensors in, void *user) {
    exchange *e = user;
    gd_tensor *one = gd_scalar(1), *a = gd_detach(e->a), *b = gd_detach(e->b);
    gd_backward(gd_add(e->a, one), .gradient = b);
    gd_backward(gd_add(e->b, one), .gradient = a);
    gd_optimizer_step(e->optimizer);
    gd_optimizer_zero_grad(e->optimizer);
    return gd_listed(gd_sum(in.at[0]));
}

static void check_exchange(gd_body train, int level) {
    GD_SCOPE;
    gd_tensor *results[2][2];
    for (int k = 0; k < 2; k++) {
        gd_seed(8);
        exchange e = {gd_requires_grad(gd_randn(gd_dims(48))),
                      gd_requires_grad(gd_randn(gd_dims(48))), NULL};
        gd_tensor *x = gd_randn(gd_dims(5, 64));
        e.optimizer = gd_optim_sgd(gd_list(e.a, e.b), .lr = 0.1);
        gd_jit *jit = k ? gd_jit_new(train, &e, .level = level) : NULL;
        for (int i = 0; i < 3; i++)
            if (k) gd_jit_call(jit, gd_list(x));
            else train(gd_list(x), &e);
        results[k][0] = gd_to_device(gd_detach(e.a), gd_device_get("cpu"));
        results[k][1] = gd_to_device(gd_detach(e.b), gd_device_get("cpu"));
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    for (int i = 0; i < 2 && !gd_failed(); i++) {
        const double distance = tensors_relative_distance(results[1][i], results[0][i]);
        CHECK_SAYING(distance < 1e-6, "level %d, parameter %d: %g", level, i, distance);
    }
}

TEST(entries_of_a_list_do_not_overwrite_each_other) {
    IN_CHILD(EMULATED, "");
    gd_set_default_device(cuda_open_device());
    for (int level = 0; level <= 2; level++) {
        check_exchange(train_parts, level);
        check_exchange(train_crosswise, level);
    }
    gd_set_default_device(NULL);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
