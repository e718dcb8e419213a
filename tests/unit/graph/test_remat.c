/* test_remat.c - a memory limit for runs: values are recomputed, and results have the same bits. */
#include "core/alloc.h"
#include "dispatch/op.h"
#include "program.h"

/* --- the pass, checked in the program text ---------------------------------------------------- */

/* Calls the pass as the planner does: it replaces the array of steps. */
static int run_remat(gd_program *p, size_t target) {
    gd_pstep *before = p->steps;
    const gd_remat how = {.target = target};
    gd_rewrite r = {.program = p, .device = gd_cpu(), .remat = &how};
    const gd_status status = gd_pass_run(&r, "remat");
    if (p->steps != before) free(before);
    return status == GD_OK ? r.changes : -1;
}

/* In each of these tests x is [16,16]: 1024 bytes. */

TEST(remat_recomputes_a_value_instead_of_keeping_it) {
    IN_GRAPH(g, 16, 16);
    gd_tensor *a = gd_exp(x), *b = gd_matmul(x, x);
    b = gd_matmul(b, gd_matmul(b, b));
    y = gd_matmul(b, a);
    FETCH(y);
    check_text(p, "%1 f32[16,16] = exp(%0 (feed 0) f32[16,16])\n"
                  "%2 f32[16,16] = matmul(%0 (feed 0) f32[16,16], %0 (feed 0) f32[16,16])\n"
                  "%3 f32[16,16] = matmul(%2, %2)\n"
                  "%4 f32[16,16] = matmul(%2, %3)\n"
                  "%5 f32[16,16] = matmul(%4, %1)\n"
                  "fetch %5\n");
    p->roots[p->values[p->fetches[0]].root].fetched = true;
    CHECK(run_remat(p, 4096) == 0); /* a, b, b b and b (b b) are live at the same time */
    CHECK(run_remat(p, 3072) == 1);
    check_text(p, "%1 f32[16,16] = exp(%0 (feed 0) f32[16,16])\n"
                  "%2 f32[16,16] = matmul(%0 (feed 0) f32[16,16], %0 (feed 0) f32[16,16])\n"
                  "%3 f32[16,16] = matmul(%2, %2)\n"
                  "%4 f32[16,16] = matmul(%2, %3)\n"
                  "%6 f32[16,16] = exp(%0 (feed 0) f32[16,16])\n"
                  "%5 f32[16,16] = matmul(%4, %6)\n"
                  "fetch %5\n");
    gd_program_free(p);
}

/* A value is computed again from the beginning of a net that is thousands of steps deep. */
TEST(remat_repeats_chains_of_any_depth) {
    enum { DEPTH = 5000 };
    IN_GRAPH(g, 16, 16);
    gd_tensor *a = x, *b = gd_matmul(x, x);
    for (int i = 0; i < DEPTH; i++) a = gd_tanh(a);
    b = gd_matmul(b, gd_matmul(b, b));
    y = gd_matmul(b, a);
    FETCH(y);
    p->roots[p->values[p->fetches[0]].root].fetched = true;
    CHECK(run_remat(p, 3072) == DEPTH);
    gd_program_free(p);
}

TEST(remat_recomputes_cheap_ops_before_products) {
    IN_GRAPH(g, 16, 16);
    gd_tensor *a = gd_exp(x), *c = gd_matmul(x, x), *b = gd_matmul(x, gd_exp(gd_neg(x)));
    b = gd_matmul(b, gd_matmul(b, b));
    y = gd_matmul(gd_matmul(b, c), a);
    FETCH(y);
    p->roots[p->values[p->fetches[0]].root].fetched = true;
    CHECK(run_remat(p, 4096) == 1);
    char *text = gd_program_text(p);
    int exps = 0;
    for (const char *t = text; (t = strstr(t, "= exp(%0")); t++) exps++;
    CHECK_SAYING(exps == 2, "%s", text);
    free(text);
    gd_program_free(p);
}

/* Views of recomputed values are recreated, and random ops repeat their numbers. */
TEST(remat_recomputes_views_and_random_ops) {
    IN_GRAPH(g, 16, 16);
    gd_tensor *a = gd_permute(gd_dropout(x, .p = 0.5), gd_dims(1, 0)), *b = gd_matmul(x, a);
    b = gd_matmul(b, gd_matmul(b, b));
    y = gd_matmul(b, a);
    FETCH(y);
    p->roots[p->values[p->fetches[0]].root].fetched = true;
    CHECK(run_remat(p, 3072) == 1);
    const gd_node *noise[2] = {NULL, NULL};
    for (int i = 0, n = 0; i < p->n_steps; i++)
        if (strcmp(p->steps[i].op->name, "dropout_train") == 0 && n < 2)
            noise[n++] = p->steps[i].node;
    char *text = gd_program_text(p);
    CHECK_SAYING(noise[0] && noise[0] == noise[1], "%s", text);
    int views = 0;
    for (const char *t = text; (t = strstr(t, "= permute(")); t++) views++;
    CHECK_SAYING(views == 2, "%s", text);
    free(text);
    gd_program_free(p);
}

/* --- deep networks ---------------------------------------------------------------------------- */

enum { LAYERS = 32, WIDTH = 32, BATCH = 256, IMAGE_LAYERS = 12 };

typedef struct net {
    gd_graph *graph;
    gd_tensor *x, *y, *loss, *train, *xs, *ys;
    gd_tensor *statistics[2 * IMAGE_LAYERS]; /* variables that are not trained */
    int n_statistics;
} net;

static gd_tensor *random_weights(gd_shape dims, double scale) {
    return gd_variable(gd_mul(gd_randn(dims), gd_scalar(scale)));
}

static void finish_net(net *n, gd_tensor *out, bool adam) {
    n->loss = gd_mse_loss(out, n->y);
    gd_tensors all = gd_graph_variables(n->graph);
    n->train =
        gd_minimize(adam ? gd_optim_adam(all, .lr = 0.01) : gd_optim_sgd(all, .lr = 0.01), n->loss);
}

static net dense_net(bool adam) {
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(BATCH, WIDTH)),
             .ys = gd_randn(gd_dims(BATCH, WIDTH))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(GD_ANY, WIDTH));
    n.y = gd_placeholder(gd_dims(GD_ANY, WIDTH));
    gd_tensor *h = n.x;
    for (int i = 0; i < LAYERS; i++) {
        gd_tensor *w = random_weights(gd_dims(WIDTH, WIDTH), 0.2),
                  *b = gd_variable(gd_zeros(gd_dims(WIDTH)));
        h = gd_tanh(gd_linear(h, w, b));
        if (i % 8 == 3) h = gd_dropout(h, .p = 0.1);
    }
    finish_net(&n, h, adam);
    return n;
}

/* Blocks of convolution, batch norm with running statistics, relu, and a residual connection. */
static net image_net(bool adam) {
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(4, 8, 12, 12)),
             .ys = gd_randn(gd_dims(4, 8, 12, 12))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(4, 8, 12, 12));
    n.y = gd_placeholder(gd_dims(4, 8, 12, 12));
    gd_tensor *h = n.x;
    for (int i = 0; i < IMAGE_LAYERS; i++) {
        gd_tensor *mean = gd_variable(gd_zeros(gd_dims(8)), .trainable = false),
                  *var = gd_variable(gd_ones(gd_dims(8)), .trainable = false);
        gd_tensor *t = gd_conv2d(h, random_weights(gd_dims(8, 8, 3, 3), 0.1), NULL, .padding = 1);
        t = gd_batch_norm(t, gd_variable(gd_ones(gd_dims(8))), gd_variable(gd_zeros(gd_dims(8))),
                          mean, var, .training = true);
        h = gd_add(h, gd_relu(t));
        n.statistics[n.n_statistics++] = mean;
        n.statistics[n.n_statistics++] = var;
    }
    finish_net(&n, h, adam);
    return n;
}

/* Trains for some steps and returns all variables and the memory of the plan. */
static gd_plan_memory train_net(net n, int level, int64_t limit, int steps, char **state,
                                size_t *bytes) {
    gd_plan_memory m = {0};
    gd_seed(7);
    gd_session *s = gd_session_new(n.graph, .level = level, .memory_limit = limit);
    for (int i = 0; i < steps; i++) {
        GD_SCOPE;
        gd_session_run(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train));
    }
    CHECK_SAYING(!gd_failed(), "limit %lld: %s", (long long)limit, gd_error_message());
    CHECK(gd_session_plan(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train), &m) == GD_OK);
    *bytes = 0;
    *state = NULL;
    gd_tensors all = gd_graph_variables(n.graph);
    for (int64_t i = 0; i < all.count + n.n_statistics; i++) {
        gd_tensor *v = i < all.count ? all.at[i] : n.statistics[i - all.count];
        const size_t more = (size_t)gd_tensor_numel(v) * 4;
        *state = realloc(*state, *bytes + more);
        CHECK(gd_copy_to(gd_session_get(s, v), *state + *bytes, more) == GD_OK);
        *bytes += more;
    }
    return m;
}

static void check_limits(const char *name, net (*make)(bool), bool adam, const int *percents) {
    const int steps = gd_reference_only() ? 2 : 5; /* reference kernels are slow */
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        gd_seed(1);
        net n = make(adam);
        char *expected, *got;
        size_t bytes, got_bytes;
        const gd_plan_memory unlimited = train_net(n, level, 0, steps, &expected, &bytes);
        CHECK(unlimited.recomputed_steps == 0);
        for (const int *percent = percents; *percent; percent++) {
            const int64_t limit = unlimited.peak_bytes * *percent / 100;
            const gd_plan_memory m = train_net(n, level, limit, steps, &got, &got_bytes);
            CHECK_SAYING(m.peak_bytes <= limit && m.recomputed_steps > 0,
                         "%s, level %d: %lld bytes of %lld at %d %%, %d steps twice", name, level,
                         (long long)m.peak_bytes, (long long)unlimited.peak_bytes, *percent,
                         m.recomputed_steps);
            CHECK_SAYING(got_bytes == bytes && memcmp(got, expected, bytes) == 0,
                         "%s, level %d: other bits at %d %%", name, level, *percent);
            free(got);
        }
        free(expected);
    }
}

TEST(a_deep_net_trains_in_less_memory_with_the_same_bits) {
    check_limits("32 layers, sgd", dense_net, false, (const int[]){90, 60, 40, 35, 0});
    check_limits("32 layers, adam", dense_net, true, (const int[]){40, 0});
}

TEST(a_convolution_net_trains_in_less_memory_with_the_same_bits) {
    gd_set_num_threads(2); /* each thread has its own workspace for convolutions */
    check_limits("12 blocks", image_net, true, (const int[]){80, 60, 50, 0});
}

/* With about sqrt(layers) segments of that length, twice the square root of the layers is enough.
 * Reference kernels also have f64 copies of their operands. */
TEST(the_minimum_memory_grows_with_the_square_root_of_the_layers) {
    GD_SCOPE;
    net n = dense_net(false);
    const gd_tensors feed = gd_feed(n.x, n.xs, n.y, n.ys), fetch = gd_list(n.loss, n.train);
    gd_plan_memory m;
    const int64_t limit = (gd_reference_only() ? 16 : 11) * BATCH * WIDTH * 4;
    gd_session *s = gd_session_new(n.graph, .memory_limit = limit);
    CHECK_SAYING(gd_session_plan(s, feed, fetch, &m) == GD_OK && m.peak_bytes <= limit, "%s",
                 gd_error_message());
    CHECK(m.recomputed_steps > 0 && m.recomputed_steps < 4 * LAYERS);
}

/* The sums of all gradients are live at the end. None is read before, and each is computed from the
 * same chain, which is repeated once for all of them. */
TEST(values_that_are_only_read_at_the_end_are_recomputed_together) {
    enum { DEEP = 120 };
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *sum, *v[2 * DEEP];
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2, 4));
        gd_tensor *h = x;
        for (int i = 0; i < DEEP; i++) {
            v[2 * i] = random_weights(gd_dims(4, 4), 0.5);
            v[2 * i + 1] = random_weights(gd_dims(4), 0.5);
            h = gd_relu(gd_linear(h, v[2 * i], v[2 * i + 1]));
        }
        gd_tensors g = gd_gradients(gd_list(gd_mean(h)), gd_list_of(v, 2 * DEEP));
        sum = gd_sum(g.at[0]);
        for (int64_t i = 1; i < g.count; i++) sum = gd_add(sum, gd_sum(g.at[i]));
    }
    const gd_tensors feed = gd_feed(x, gd_randn(gd_dims(2, 4))), fetch = gd_list(sum);
    gd_plan_memory m;
    CHECK(gd_session_plan(gd_session_new(graph), feed, fetch, &m) == GD_OK);
    const int64_t limit = m.peak_bytes / 10 * 9;
    gd_session *s = gd_session_new(graph, .memory_limit = limit);
    CHECK_SAYING(gd_session_plan(s, feed, fetch, &m) == GD_OK && m.peak_bytes <= limit, "%s",
                 gd_error_message());
    CHECK_SAYING(m.recomputed_steps > 0 && m.recomputed_steps <= 4 * DEEP, "%d",
                 m.recomputed_steps);
}

TEST(a_limit_that_cannot_be_met_fails_before_anything_runs) {
    GD_SCOPE;
    net n = dense_net(false);
    const gd_tensors feed = gd_feed(n.x, n.xs, n.y, n.ys);
    const char *limit = gd_reference_only() ? "40000" : "20000";
    gd_session *s = gd_session_new(n.graph, .memory_limit = atoi(limit));
    gd_tensor *w = gd_graph_variables(n.graph).at[0];
    float before[WIDTH * WIDTH], after[WIDTH * WIDTH];
    CHECK(gd_copy_to(gd_session_get(s, w), before, sizeof before) == GD_OK);
    gd_session_run(s, feed, gd_list(n.loss, n.train));
    CHECK(gd_error_status() == GD_E_MEMORY);
    const char *message = gd_error_message();
    CHECK_SAYING(strstr(message, limit) && strstr(message, "memory limit") &&
                     strstr(message, "smaller batches"),
                 "%s", message);
    gd_clear_error();
    CHECK(gd_copy_to(gd_session_get(s, w), after, sizeof after) == GD_OK &&
          memcmp(before, after, sizeof before) == 0);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, feed, gd_list(n.loss, n.train), &m) == GD_E_MEMORY);
    gd_clear_error();
    gd_tensor *few = gd_randn(gd_dims(2, WIDTH)); /* a smaller batch fits */
    gd_session_run(s, gd_feed(n.x, few, n.y, few), gd_list(n.loss, n.train));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_session_new(n.graph, .memory_limit = -1) == NULL &&
          gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
}

/* --- updates ---------------------------------------------------------------------------------- */

/* The position of the first step with this op, starting at `from`. */
static int position_of(const gd_program *p, const char *op, int from) {
    for (int i = from; i < p->n_steps; i++)
        if (!p->steps[i].removed && strcmp(p->steps[i].op->name, op) == 0) return i;
    return -1;
}

TEST(variables_are_updated_as_soon_as_their_gradient_is_computed) {
    IN_GRAPH(g, 16, 16);
    gd_tensor *w1 = gd_variable(gd_ones(gd_dims(16, 16))),
              *w2 = gd_variable(gd_ones(gd_dims(16, 16)));
    y = gd_minimize(gd_optim_sgd(gd_list(w1, w2)),
                    gd_sum(gd_matmul(gd_tanh(gd_matmul(x, w1)), w2)));
    FETCH(y);
    CHECK(run_pass(p, "early_updates") > 0);
    const int first = position_of(p, "sgd_step", 0), gradient = position_of(p, "tanh.gx", 0),
              second = position_of(p, "sgd_step", first + 1);
    char *text = gd_program_text(p);
    CHECK_SAYING(first >= 0 && first < gradient && gradient < second, "%s", text);
    free(text);
    gd_program_free(p);
}

/* A step that may fail is between the gradients and the updates: the updates stay after it. */
TEST(no_update_moves_before_a_node_that_may_fail) {
    for (int risky = 0; risky < 2; risky++) {
        IN_GRAPH(g, 16, 16);
        gd_tensor *w1 = gd_variable(gd_ones(gd_dims(16, 16))),
                  *w2 = gd_variable(gd_ones(gd_dims(16, 16)));
        gd_tensor *loss = gd_sum(gd_matmul(gd_tanh(gd_matmul(x, w1)), w2));
        gd_tensors by = gd_gradients(gd_list(loss), gd_list(w1, w2));
        gd_tensor *rows =
            risky ? gd_index_select(x, 0, gd_full(gd_dims(3), 2, .dtype = GD_I64)) : gd_softmax(x);
        gd_tensor *lr = gd_scalar(0.1);
        y = gd_group(gd_list(gd_sgd_step(w1, by.at[0], lr), gd_sgd_step(w2, by.at[1], lr)));
        FETCH(gd_sum(rows), y);
        CHECK(run_pass(p, "early_updates") >= !risky);
        const int failing = position_of(p, risky ? "index_select" : "softmax", 0),
                  update = position_of(p, "sgd_step", 0);
        char *text = gd_program_text(p);
        CHECK_SAYING(failing >= 0 && update >= 0 && (update > failing) == risky, "%s", text);
        free(text);
        gd_program_free(p);
    }
}

/* Records name the ops that may fail for other reasons than indices. */
TEST(a_variable_is_unchanged_when_a_kernel_fails_on_its_data) {
    enum { BERNOULLI, MULTINOMIAL, MASKED, OPS };
    for (int op = 0; op < OPS; op++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            gd_graph *g = gd_graph_new();
            gd_tensor *x, *w, *w2, *train, *y;
            {
                GD_GRAPH(g);
                x = gd_placeholder(gd_dims(4, 16));
                w = gd_variable(gd_ones(gd_dims(16, 16)));
                w2 = gd_variable(gd_ones(gd_dims(16, 16)));
                train = gd_minimize(gd_optim_sgd(gd_list(w, w2), .lr = 0.1),
                                    gd_sum(gd_matmul(gd_tanh(gd_matmul(x, w)), w2)));
                if (op == BERNOULLI) y = gd_bernoulli(x);
                else if (op == MULTINOMIAL) y = gd_multinomial(x, 3);
                else y = gd_masked_scatter(x, gd_gt(x, gd_scalar(-2)), gd_zeros(gd_dims(63)));
            }
            gd_session *s = gd_session_new(g, .level = level);
            float before[16 * 16], after[2][16 * 16];
            CHECK(gd_copy_to(gd_session_get(s, w), before, sizeof before) == GD_OK);
            gd_session_run(s, gd_feed(x, gd_full(gd_dims(4, 16), -1)), gd_list(train, y));
            CHECK(gd_error_status() == (op == MASKED ? GD_E_SHAPE : GD_E_ARGUMENT));
            gd_clear_error();
            CHECK(gd_copy_to(gd_session_get(s, w), after[0], sizeof after[0]) == GD_OK);
            CHECK(gd_copy_to(gd_session_get(s, w2), after[1], sizeof after[1]) == GD_OK);
            for (int i = 0; i < 2; i++)
                CHECK_SAYING(memcmp(before, after[i], sizeof before) == 0, "op %d, level %d", op,
                             level);
        }
}

/* A small language model that predicts the next token from one token. */
enum { TOKENS = 12, WORDS = 50, WIDE = 32 };
typedef struct model {
    gd_graph *graph;
    gd_tensor *x, *target, *table, *w, *loss, *train;
} model;

static model language_model(void) {
    model m = {.graph = gd_graph_new()};
    GD_GRAPH(m.graph);
    m.x = gd_placeholder(gd_dims(3, TOKENS / 3), .dtype = GD_I64);
    m.target = gd_placeholder(gd_dims(3, TOKENS / 3), .dtype = GD_I64);
    m.table = gd_variable(gd_randn(gd_dims(WORDS, WIDE)));
    m.w = gd_variable(gd_randn(gd_dims(WORDS, WIDE)));
    gd_tensor *logits = gd_linear(gd_tanh(gd_embedding(m.x, m.table)), m.w, NULL);
    m.loss =
        gd_cross_entropy(gd_reshape(logits, gd_dims(-1, WORDS)), gd_reshape(m.target, gd_dims(-1)));
    m.train = gd_minimize(gd_optim_sgd(gd_list(m.table, m.w), .lr = 0.5), m.loss);
    return m;
}

static gd_tensor *make_tokens(int64_t last) {
    int64_t t[TOKENS];
    for (int i = 0; i < TOKENS; i++) t[i] = 7 * i % WORDS;
    t[TOKENS - 1] = last;
    return gd_from_array(gd_dims(3, TOKENS / 3), GD_I64, t);
}

/* Indices checked in the forward pass need no check in the backward pass: gradients of an embedding
 * and of a classification loss do not delay updates. */
TEST(checked_indices_do_not_delay_updates) {
    GD_SCOPE;
    model m = language_model();
    gd_program *p = program_of(gd_list(m.x, m.target), gd_list(make_tokens(0), make_tokens(1)),
                               gd_list(m.loss, m.train));
    CHECK(run_pass(p, "early_updates") > 0);
    const int update = position_of(p, "sgd_step", 0), gradient = position_of(p, "index_add", 0);
    char *text = gd_program_text(p);
    CHECK_SAYING(update > position_of(p, "index_cross_entropy_grad", 0) && update < gradient, "%s",
                 text);
    free(text);
    bool *risks = gd_program_risks(p);
    CHECK(risks[position_of(p, "embedding", 0)] && risks[position_of(p, "index_cross_entropy", 0)]);
    CHECK(!risks[position_of(p, "index_cross_entropy_grad", 0)] && !risks[gradient]);
    gd_free(risks);
    gd_program_free(p);
    gd_plan_memory memory;
    gd_session *s = gd_session_new(m.graph);
    CHECK(gd_session_plan(s, gd_feed(m.x, make_tokens(0), m.target, make_tokens(1)),
                          gd_list(m.loss, m.train), &memory) == GD_OK);
    /* gradients of the table and of w, which are not live at the same time, and some rows */
    CHECK_SAYING(gd_reference_only() || memory.peak_bytes < 2 * WORDS * WIDE * 4, "%lld bytes",
                 (long long)memory.peak_bytes);
}

/* The indices from max pooling are always valid, so its gradient cannot fail. */
TEST(computed_indices_do_not_delay_updates) {
    IN_GRAPH(g, 6, 64);
    gd_tensor *w1 = gd_variable(gd_randn(gd_dims(4, 3, 3, 3))),
              *w2 = gd_variable(gd_randn(gd_dims(5, 64)));
    gd_tensor *pooled = gd_max_pool2d(
        gd_tanh(gd_conv2d(gd_reshape(x, gd_dims(2, 3, 8, 8)), w1, NULL, .padding = {{1, 1}})),
        .kernel = {{2, 2}});
    y = gd_minimize(gd_optim_sgd(gd_list(w1, w2)),
                    gd_sum(gd_linear(gd_flatten(pooled, .start_axis = 1), w2, NULL)));
    FETCH(y);
    CHECK(run_pass(p, "early_updates") > 0);
    const int update = position_of(p, "sgd_step", 0), gradient = position_of(p, "pool_scatter", 0);
    bool *risks = gd_program_risks(p);
    char *text = gd_program_text(p);
    CHECK_SAYING(gradient >= 0 && update >= 0 && update < gradient && !risks[gradient], "%s", text);
    free(text);
    gd_free(risks);
    gd_program_free(p);
}

/* The record declares the range of the indices: below the size of the sorted axis. */
TEST(only_unmodified_computed_indices_are_safe) {
    enum { SAFE, SMALLER, CHANGED, WAYS };
    for (int mode = 0; mode < WAYS; mode++) {
        IN_GRAPH(g, 4, 6);
        gd_tensor *at = gd_sort(x).indices;
        if (mode == CHANGED) at = gd_add(at, gd_full(gd_dims(4, 6), 1, .dtype = GD_I64));
        y = gd_sum(gd_gather(mode == SMALLER ? gd_narrow(x, 1, 0, 5) : x, 1, at));
        FETCH(y);
        bool *risks = gd_program_risks(p);
        CHECK(risks[position_of(p, "gather", 0)] == (mode != SAFE) &&
              !risks[position_of(p, "sort", 0)]);
        gd_free(risks);
        gd_program_free(p);
    }
}

TEST(a_language_model_is_unchanged_after_an_index_out_of_range) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        model m = language_model();
        gd_session *s = gd_session_new(m.graph, .level = level);
        float before[2][WORDS * WIDE], after[2][WORDS * WIDE];
        for (int run = 0; run < 3; run++) { /* an invalid token, an invalid class, neither */
            CHECK(gd_copy_to(gd_session_get(s, m.table), before[0], sizeof before[0]) == GD_OK);
            CHECK(gd_copy_to(gd_session_get(s, m.w), before[1], sizeof before[1]) == GD_OK);
            gd_session_run(s,
                           gd_feed(m.x, make_tokens(run == 0 ? WORDS : 0), m.target,
                                   make_tokens(run == 1 ? WORDS : 1)),
                           gd_list(m.loss, m.train));
            CHECK(gd_error_status() == (run < 2 ? GD_E_INDEX : GD_OK));
            gd_clear_error();
            CHECK(gd_copy_to(gd_session_get(s, m.table), after[0], sizeof after[0]) == GD_OK);
            CHECK(gd_copy_to(gd_session_get(s, m.w), after[1], sizeof after[1]) == GD_OK);
            for (int i = 0; i < 2; i++)
                CHECK((memcmp(before[i], after[i], sizeof before[i]) == 0) == (run < 2));
        }
    }
}

/* A check is reused only for the same indices and a size that is not smaller. */
TEST(new_indices_and_new_sizes_are_checked_again) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *i, *j, *x, *y[8];
    {
        GD_GRAPH(g);
        i = gd_placeholder(gd_dims(4), .dtype = GD_I64);
        j = gd_placeholder(gd_dims(4), .dtype = GD_I64);
        x = gd_placeholder(gd_dims(9, 5));
        y[0] = gd_index_select(x, -1, i);
        y[1] = gd_index_select(x, 0, i);                      /* the limit is 9, not 5: checked */
        y[2] = gd_embedding(gd_reshape(i, gd_dims(2, 2)), x); /* the same indices: checked */
        y[3] = gd_one_hot(i, 4, .dtype = GD_F32);             /* the limit is 4: not checked */
        y[4] = gd_index_select(x, 0, j);                      /* other indices */
        y[5] = gd_index_select(x, 0, gd_flip(i, gd_dims(0))); /* a copy: its values are unknown */
        y[6] = gd_index_select(x, 1, gd_narrow(j, 0, 1, 2));  /* a part of j, for an axis of 5 */
        y[7] = gd_nll_loss(x, gd_narrow(gd_cat(gd_list(i, i, j), .axis = 0), 0, 0, 9));
    }
    static const char *const ops[] = {"index_select",    "index_select", "embedding",
                                      "one_hot_classes", "index_select", "index_select",
                                      "index_select",    "nll_loss"};
    static const bool risky[] = {true, false, false, true, true, true, true, true};
    const int64_t four[4] = {0, 1, 2, 3};
    gd_tensor *n = gd_from_array(gd_dims(4), GD_I64, four);
    gd_program *p = program_of(gd_list(i, j, x), gd_list(n, n, gd_full(gd_dims(9, 5), 1)),
                               gd_list(y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7]));
    bool *risks = gd_program_risks(p);
    for (int k = 0, at = -1; k < 8; k++) {
        at = position_of(p, ops[k], at + 1);
        CHECK_SAYING(at >= 0 && risks[at] == risky[k], "step %d", k);
    }
    gd_free(risks);
    gd_program_free(p);
}

/* Gradients of an embedding come last and may find an index out of range: then no variable may have
 * changed. */
TEST(no_variable_is_updated_before_a_node_that_may_fail) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *i, *j, *table, *w, *loss, *step;
    {
        GD_GRAPH(g);
        i = gd_placeholder(gd_dims(4), .dtype = GD_I64);
        j = gd_placeholder(gd_dims(4), .dtype = GD_I64);
        table = gd_variable(gd_ones(gd_dims(10, 16)));
        w = gd_variable(gd_ones(gd_dims(16, 16)));
        gd_tensor *product = gd_matmul(gd_embedding(i, table), w);
        loss = gd_sum(gd_square(product));
        gd_tensor *trained = gd_minimize(gd_optim_adam(gd_list(table, w)), loss);
        GD_AFTER(gd_list(trained));
        step = gd_sum(gd_embedding(j, table)); /* recorded last */
    }
    const int64_t good[] = {1, 2, 3, 4}, bad[] = {1, 2, 3, 77};
    for (int level = 0; level <= 2; level++) {
        gd_session *s = gd_session_new(g, .level = level);
        gd_session_run(s,
                       gd_feed(i, gd_from_array(gd_dims(4), GD_I64, good), j,
                               gd_from_array(gd_dims(4), GD_I64, bad)),
                       gd_list(loss, step));
        CHECK(gd_error_status() == GD_E_INDEX);
        gd_clear_error();
        gd_tensor *now = gd_session_get(s, w);
        for (int k = 0; k < 256; k++) CHECK(((const float *)gd_data(now))[k] == 1);
        gd_session_run(s,
                       gd_feed(i, gd_from_array(gd_dims(4), GD_I64, good), j,
                               gd_from_array(gd_dims(4), GD_I64, good)),
                       gd_list(loss, step));
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(((const float *)gd_data(gd_session_get(s, w)))[0] < 1);
    }
}

TEST_MAIN
