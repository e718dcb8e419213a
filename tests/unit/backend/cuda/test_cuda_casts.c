/* test_cuda_casts.c - casts of autocast in plans on CUDA: norms, losses and updates absorb those
 * beside them (graph/passes/absorb_casts.c), and one call converts all parameters
 * (graph/passes/list_copies.c). */
#include <math.h>

#include "cuda_child.h"

enum { TOKENS = 6, WIDTH = 16, INNER = 32, CLASSES = 1500 };

/* x + mlp(layer_norm(x)), a second norm, and the loss of class scores, as a part of GPT-2. */
static gd_tensor *block_loss(gd_tensor *x, gd_tensor *target, gd_tensor *const *w) {
    gd_tensor *h = gd_layer_norm(x, w[0], w[1]);
    h = gd_linear(gd_gelu(gd_linear(h, w[2], w[3])), w[4], w[5]);
    h = gd_layer_norm(gd_add(x, h), w[6], w[7]);
    gd_tensor *scores = gd_matmul(h, gd_transpose(w[8], 0, 1));
    return gd_cross_entropy(gd_reshape(scores, gd_dims(-1, CLASSES)), target);
}

static const int64_t sizes[][2] = {{WIDTH}, {WIDTH},        {INNER, WIDTH},
                                   {INNER}, {WIDTH, INNER}, {WIDTH},
                                   {WIDTH}, {WIDTH},        {CLASSES, WIDTH}};
enum { N = sizeof sizes / sizeof *sizes };

static void make_parameters(gd_device *device, gd_tensor **w) {
    gd_seed(5);
    for (int i = 0; i < N; i++) {
        const gd_shape shape =
            sizes[i][1] ? gd_dims(sizes[i][0], sizes[i][1]) : gd_dims(sizes[i][0]);
        w[i] = gd_to_device(gd_mul(gd_randn(shape), gd_scalar(0.3)), device);
    }
}

static int count_text(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static void check_block(gd_dtype dtype) {
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_set_default_device(device);
    gd_tensor *w[N], *x, *target, *loss, *gx;
    make_parameters(device, w);
    gd_tensor *values = gd_randn(gd_dims(2, TOKENS, WIDTH)),
              *classes = gd_randint(gd_dims(2 * TOKENS), 0, CLASSES);
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        GD_AUTOCAST(dtype);
        x = gd_placeholder(gd_dims(2, TOKENS, WIDTH));
        target = gd_placeholder(gd_dims(2 * TOKENS), .dtype = GD_I64);
        loss = block_loss(x, target, w);
        gx = gd_grad(gd_list(loss), gd_list(x)).at[0];
    }
    double losses[2];
    gd_tensor *slopes[2];
    for (int i = 0; i < 2; i++) {
        gd_session *s = gd_session_new(graph, .level = 2 * i);
        char *text =
            gd_session_plan_text(s, gd_feed(x, values, target, classes), gd_list(loss, gx));
        const int casts = count_text(text, " = cast("), lists = count_text(text, " = cast[");
        /* the gradient of the residual is read in both dtypes */
        CHECK_SAYING(i ? casts == 1 && lists == 1 : casts > 5, "level %d: %s", 2 * i, text);
        free(text);
        gd_tensors r = gd_session_run(s, gd_feed(x, values, target, classes), gd_list(loss, gx));
        losses[i] = gd_item(r.at[0]);
        slopes[i] = r.at[1];
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK_SAYING(fabs(losses[1] - losses[0]) < 1e-4, "%g and %g", losses[0], losses[1]);
    const double worst = gd_item(gd_max(gd_abs(gd_sub(slopes[0], slopes[1])))),
                 largest = gd_item(gd_max(gd_abs(slopes[0])));
    CHECK_SAYING(worst < 0.02 * largest, "%g of %g", worst, largest);
    gd_set_default_device(NULL);
}

TEST(norms_and_losses_absorb_casts) {
    IN_CHILD(EMULATED, "");
    check_block(GD_BF16);
    check_block(GD_F16);
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct training {
    gd_tensor *w[N];
    gd_optimizer *adam;
} training;

static gd_tensors train_step(gd_tensors in, void *user) {
    training *t = user;
    gd_tensor *loss;
    {
        GD_AUTOCAST(GD_BF16);
        loss = block_loss(in.at[0], in.at[1], t->w);
    }
    gd_optimizer_zero_grad(t->adam);
    gd_backward(loss);
    gd_optimizer_step(t->adam);
    return gd_listed(loss);
}

/* The losses of some steps. The last call gives the number of kernels of a step, if it is counted. */
static void train_block(bool jit, double *losses, int steps) {
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    training t;
    make_parameters(device, t.w);
    for (int i = 0; i < N; i++) gd_requires_grad(t.w[i]);
    t.adam = gd_optim_adam(((gd_tensors){t.w, N}), .lr = 0.01);
    gd_tensor *x = gd_to_device(gd_randn(gd_dims(2, TOKENS, WIDTH)), device),
              *y = gd_to_device(gd_randint(gd_dims(2 * TOKENS), 0, CLASSES), device);
    gd_jit *fast = jit ? gd_jit_new(train_step, &t) : NULL;
    for (int i = 0; i < steps; i++) {
        GD_SCOPE;
        losses[i] = gd_item(
            (fast ? gd_jit_call(fast, gd_list(x, y)) : train_step(gd_list(x, y), &t)).at[0]);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST(plans_without_casts_train_as_eager_steps) {
    IN_CHILD(EMULATED, "");
    enum { STEPS = 6 };
    double eager[STEPS], plan[STEPS];
    train_block(false, eager, STEPS);
    train_block(true, plan, STEPS);
    for (int i = 0; i < STEPS; i++)
        CHECK_SAYING(fabs(eager[i] - plan[i]) < 0.02 * eager[0], "step %d: %g and %g", i, eager[i],
                     plan[i]);
    CHECK(plan[STEPS - 1] < plan[0]);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
