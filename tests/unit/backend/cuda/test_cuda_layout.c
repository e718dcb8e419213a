/* test_cuda_layout.c - plans on CUDA store images with channels last around 16-bit convolutions,
 * convert nothing in between, and give the results of the CPU. */
#include <math.h>

#include "compare.h"
#include "cuda_child.h"

static const char last[] = "{0,2,3,1}";

static int count_text(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

/* The result of a session on the device, and its plan's text. free() the text. */
typedef struct planned_run {
    gd_tensors results;
    char *text;
    int64_t nodes; /* of the captured graph; -1: unknown */
} planned_run;

static planned_run run_graph(gd_graph *g, gd_device *device, gd_tensors feeds, gd_tensors fetches) {
    planned_run run = {.nodes = -1};
    gd_session *session = gd_session_new(g, .device = device);
    run.text = gd_session_plan_text(session, feeds, fetches);
    emulated_controls *cuda = emulated_cuda();
    const int64_t before = cuda ? cuda->counts.captured : 0;
    for (int i = 0; i < 3; i++) run.results = gd_session_run(session, feeds, fetches);
    if (cuda) run.nodes = cuda->counts.captured - before;
    return run;
}

/* --- a residual net --------------------------------------------------------------------------- */

enum { BATCH = 2, CHANNELS = 16, SIDE = 13, CLASSES = 5, WEIGHTS = 3, NORMS = 3 };

/* The parameters of the net, in host memory. */
typedef struct net_values {
    gd_tensor *x, *target, *w[WEIGHTS], *scale[NORMS], *shift[NORMS], *linear;
} net_values;

static net_values make_values(void) {
    gd_seed(11);
    net_values v = {.x = gd_randn(gd_dims(BATCH, 3, SIDE, SIDE)),
                    .target = gd_randn(gd_dims(BATCH, CLASSES)),
                    .linear = gd_randn(gd_dims(CLASSES, CHANNELS))};
    v.w[0] = gd_mul(gd_randn(gd_dims(CHANNELS, 3, 3, 3)), gd_scalar(0.2));
    v.w[1] = gd_mul(gd_randn(gd_dims(CHANNELS, CHANNELS, 3, 3)), gd_scalar(0.1));
    v.w[2] = gd_mul(gd_randn(gd_dims(CHANNELS, CHANNELS, 1, 1)), gd_scalar(0.3));
    for (int i = 0; i < NORMS; i++) {
        v.scale[i] = gd_add(gd_mul(gd_randn(gd_dims(CHANNELS)), gd_scalar(0.1)), gd_scalar(1));
        v.shift[i] = gd_mul(gd_randn(gd_dims(CHANNELS)), gd_scalar(0.1));
    }
    return v;
}

/* Adds a step of training with bf16 images to a graph: the loss, and the gradients of the weights. */
static gd_tensors build_net(const net_values *v, gd_tensor *x, gd_tensor *target) {
    gd_tensor *w[WEIGHTS], *scale[NORMS], *shift[NORMS];
    for (int i = 0; i < WEIGHTS; i++) w[i] = gd_variable(v->w[i]);
    for (int i = 0; i < NORMS; i++) {
        scale[i] = gd_variable(v->scale[i]);
        shift[i] = gd_variable(v->shift[i]);
    }
    gd_tensor *cast[WEIGHTS], *h = gd_cast(x, GD_BF16);
    for (int i = 0; i < WEIGHTS; i++) cast[i] = gd_cast(w[i], GD_BF16);
    h = gd_conv2d(h, cast[0], NULL, .padding = 1);
    h = gd_relu(gd_batch_norm(h, scale[0], shift[0], NULL, NULL, .training = true));
    h = gd_max_pool2d(h, .kernel = 3, .stride = 2, .padding = 1);
    gd_tensor *z = gd_conv2d(h, cast[1], NULL, .padding = 1);
    z = gd_relu(gd_batch_norm(z, scale[1], shift[1], NULL, NULL, .training = true));
    z = gd_conv2d(z, cast[2], NULL);
    z = gd_batch_norm(z, scale[2], shift[2], NULL, NULL, .training = true);
    h = gd_relu(gd_add(z, h));
    h = gd_avg_pool2d(h, .kernel = 2);
    h = gd_mean(gd_cast(h, GD_F32), .axis = gd_dims(2, 3));
    gd_tensor *loss = gd_mse_loss(gd_linear(h, gd_variable(v->linear), NULL), target);
    const gd_tensors g =
        gd_gradients(gd_list(loss), gd_list(w[0], w[1], w[2], scale[0], shift[1], scale[2]));
    return gd_listed(loss, g.at[0], g.at[1], g.at[2], g.at[3], g.at[4], g.at[5]);
}

static planned_run run_net(const net_values *v, gd_device *device) {
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *target;
    gd_tensors fetches;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(BATCH, 3, SIDE, SIDE));
        target = gd_placeholder(gd_dims(BATCH, CLASSES));
        fetches = build_net(v, x, target);
    }
    return run_graph(
        g, device, gd_feed(x, gd_to_device(v->x, device), target, gd_to_device(v->target, device)),
        fetches);
}

static void check_results(const planned_run *here, const planned_run *there) {
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    for (int64_t i = 0; i < there->results.count && !gd_failed(); i++) {
        const double distance = tensors_relative_distance(
            gd_to_device(there->results.at[i], gd_device_get("cpu")), here->results.at[i]);
        CHECK_SAYING(distance < 4e-2, "result %d: %g", (int)i, distance);
    }
}

/* Whether every result of the op with images has channels last. */
static bool all_last(const char *text, const char *op) {
    char name[64];
    snprintf(name, sizeof name, " = %s(", op);
    const char *at = strstr(text, name);
    bool all = at != NULL;
    for (; at && all; at = strstr(at + 1, name)) {
        const char *line = at;
        while (line > text && line[-1] != '\n') line--;
        const char *first = strstr(line, last);
        all = first && first < at;
    }
    return all;
}

TEST(a_residual_net_has_channels_last_and_the_results_of_the_cpu) {
    static const char *const ops[] = {"conv2d",          "conv_grad_input",     "max_pool2d",
                                      "batch_norm_relu", "batch_norm_add_relu", "avg_pool2d",
                                      "avg_pool_grad",   "pool_scatter"};
    NEEDS_KERNEL("conv2d", "cudnn");
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    const net_values v = make_values();
    const planned_run here = run_net(&v, gd_device_get("cpu")), there = run_net(&v, device);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    if (gd_failed()) return;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        CHECK_SAYING(all_last(there.text, ops[i]), "%s: %s", ops[i], there.text);
    CHECK_SAYING(!strstr(there.text, "= clone(") && !strstr(there.text, "= contiguous("), "%s",
                 there.text);
    CHECK_SAYING(!strstr(here.text, last), "%s", here.text);
    check_results(&here, &there);
    free(here.text);
    free(there.text);
}

/* The kernels that run where cuDNN has no engine take both layouts, too. */
TEST(convolutions_without_an_engine_have_the_results_of_the_cpu) {
    NEEDS_EMULATOR;
    NEEDS_KERNEL("conv2d", "cudnn");
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    emulated_cuda()->no_algorithm = 1;
    const net_values v = make_values();
    const planned_run here = run_net(&v, gd_device_get("cpu")), there = run_net(&v, device);
    CHECK_SAYING(there.text && strstr(there.text, last), "%s", there.text);
    check_results(&here, &there);
    free(here.text);
    free(there.text);
}

/* Images with three axes, whose gradients go through both convolutions. */
static planned_run run_volumes(gd_device *device) {
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y, *loss, *w[2];
    gd_tensors gradients;
    gd_seed(9);
    gd_tensor *value = gd_cast(gd_randn(gd_dims(2, 8, 5, 6, 7)), GD_BF16);
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2, 8, 5, 6, 7), .dtype = GD_BF16);
        for (int i = 0; i < 2; i++)
            w[i] = gd_variable(
                gd_cast(gd_mul(gd_randn(gd_dims(8, 8, 3, 3, 3)), gd_scalar(0.1)), GD_BF16));
        y = gd_conv3d(x, w[0], NULL, .padding = 1);
        y = gd_relu(gd_batch_norm(y, NULL, NULL, NULL, NULL, .training = true));
        y = gd_conv3d(gd_max_pool3d(y, .kernel = 2), w[1], NULL, .padding = 1);
        loss = gd_mean(gd_square(gd_cast(y, GD_F32)));
        gradients = gd_gradients(gd_list(loss), gd_list(w[0], w[1]));
    }
    return run_graph(g, device, gd_feed(x, gd_to_device(value, device)),
                     gd_list(loss, gradients.at[0], gradients.at[1]));
}

TEST(volumes_have_channels_last_and_the_results_of_the_cpu) {
    NEEDS_KERNEL("conv2d", "cudnn");
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    const planned_run here = run_volumes(gd_device_get("cpu")),
                      there = run_volumes(cuda_open_device());
    CHECK_SAYING(there.text && count_text(there.text, "{0,2,3,4,1}") >= 6, "%s", there.text);
    check_results(&here, &there);
    free(here.text);
    free(there.text);
}

/* --- conversions ------------------------------------------------------------------------------ */

/* Convolutions one after the other: the first one converts the feed, the last one its result. */
static planned_run run_chain(gd_device *device, gd_dtype dtype, int length) {
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(g);
        x = y = gd_placeholder(gd_dims(2, 8, 6, 6), .dtype = dtype);
        for (int i = 0; i < length; i++) {
            gd_tensor *w = gd_zeros(gd_dims(8, 8, 1, 1), .dtype = dtype);
            y = gd_conv2d(y, gd_variable(w), NULL);
        }
    }
    gd_tensor *value = gd_to_device(gd_cast(gd_randn(gd_dims(2, 8, 6, 6)), dtype), device);
    return run_graph(g, device, gd_feed(x, value), gd_list(y));
}

TEST(a_chain_of_convolutions_converts_at_its_ends_only) {
    NEEDS_KERNEL("conv2d", "cudnn");
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    const planned_run three = run_chain(device, GD_BF16, 3), five = run_chain(device, GD_BF16, 5),
                      wide = run_chain(device, GD_F32, 3);
    CHECK_SAYING(!gd_failed() && count_text(three.text, last) == 2, "%s %s", three.text,
                 gd_error_message());
    CHECK_SAYING(five.nodes == -1 || five.nodes - three.nodes == 2, "%d and %d nodes",
                 (int)three.nodes, (int)five.nodes);
    CHECK_SAYING(!strstr(wide.text, last), "%s", wide.text); /* own kernels, channels first */
    free(three.text);
    free(five.text);
    free(wide.text);
}

/* --- steps that keep the layout --------------------------------------------------------------- */

typedef gd_tensor *(*reader)(gd_tensor *y);

static gd_tensor *read_flat(gd_tensor *y) { return gd_reshape(y, gd_dims(2, -1)); }
static gd_tensor *read_cumulative(gd_tensor *y) { return gd_cumsum(y, 3); }
static gd_tensor *read_part(gd_tensor *y) { return gd_exp(gd_narrow(y, 1, 2, 3)); }
static gd_tensor *read_permuted(gd_tensor *y) { return gd_exp(gd_permute(y, gd_dims(0, 2, 3, 1))); }
static gd_tensor *read_softmax(gd_tensor *y) { return gd_softmax(y, .axis = 1); }
static gd_tensor *read_sum(gd_tensor *y) { return gd_sum(y, .axis = gd_dims(0, 3)); }
static gd_tensor *read_joined(gd_tensor *y) { return gd_cat(gd_list(y, gd_exp(y)), .axis = 1); }

/* Whatever reads the result of a convolution, its values are those of the CPU. The result has
 * channels last if the reader's kernel takes that. */
TEST(all_readers_see_the_values_of_the_cpu) {
    static const struct {
        const char *name;
        reader read;
        bool takes_last;
    } readers[] = {{"reshape", read_flat, false},    {"cumsum", read_cumulative, false},
                   {"narrow", read_part, false},     {"permute", read_permuted, true},
                   {"softmax", read_softmax, false}, {"sum", read_sum, true},
                   {"cat", read_joined, true}};
    NEEDS_KERNEL("conv2d", "cudnn");
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (size_t i = 0; i < sizeof readers / sizeof *readers && device; i++) {
        GD_SCOPE;
        gd_seed(5);
        gd_tensor *x = gd_cast(gd_randn(gd_dims(2, 8, 5, 6)), GD_BF16),
                  *w = gd_cast(gd_mul(gd_randn(gd_dims(8, 8, 3, 3)), gd_scalar(0.1)), GD_BF16);
        gd_tensor *results[2];
        for (int k = 0; k < 2; k++) {
            gd_device *on = k ? device : gd_device_get("cpu");
            gd_graph *g = gd_graph_new();
            gd_tensor *in, *y;
            {
                GD_GRAPH(g);
                in = gd_placeholder(gd_dims(2, 8, 5, 6), .dtype = GD_BF16);
                y = gd_mul(gd_relu(gd_conv2d(in, gd_variable(w), NULL, .padding = 1)),
                           gd_scalar(2));
                y = gd_cast(readers[i].read(y), GD_F32);
            }
            planned_run run = run_graph(g, on, gd_feed(in, gd_to_device(x, on)), gd_list(y));
            if (k)
                CHECK_SAYING(!strstr(run.text, last) == !readers[i].takes_last, "%s: %s",
                             readers[i].name, run.text);
            results[k] = gd_to_device(run.results.at[0], gd_device_get("cpu"));
            free(run.text);
        }
        const double distance = tensors_relative_distance(results[1], results[0]);
        CHECK_SAYING(!gd_failed() && distance < 2e-2, "%s: %g %s", readers[i].name, distance,
                     gd_error_message());
        gd_clear_error();
    }
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
