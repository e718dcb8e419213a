/* test_run_memory.c - the second run of a plan and all later ones allocate nothing, and plans say
 * honestly what they use. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "gradus/gradus.h"
#include "graph/memory.h"
#include "test.h"

/* --- counting ----------------------------------------------------------------------------------- */

static _Atomic long allocations;
static _Atomic int counting;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool can_count = false; /* the sanitizers' own malloc is not to be replaced */
#else
static const bool can_count = true;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static void count(void) {
    if (counting) allocations++;
}
void *malloc(size_t n) {
    count();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    count();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    count();
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
    count();
    return __libc_memalign(alignment, n);
}
int posix_memalign(void **p, size_t alignment, size_t n) {
    count();
    *p = __libc_memalign(alignment, n);
    return *p ? 0 : 12;
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    count();
    return real(at, n, protection, flags, file, offset);
}
#endif

/* --- nets --------------------------------------------------------------------------------------- */

typedef struct net {
    gd_graph *graph;
    gd_tensor *x, *y, *loss, *train, *xs, *ys;
} net;

static gd_tensor *weights(int64_t a, int64_t b) { return gd_variable(gd_mul(gd_randn(gd_dims(a, b)), gd_scalar(0.1))); }

static net dense_net(bool adam) {
    net n = {.graph = gd_graph_new(), .xs = gd_randn(gd_dims(32, 50)), .ys = gd_randn(gd_dims(32, 10))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(GD_ANY, 50));
    n.y = gd_placeholder(gd_dims(GD_ANY, 10));
    gd_tensor *w1 = weights(50, 40), *b1 = gd_variable(gd_zeros(gd_dims(40))), *w2 = weights(40, 10);
    gd_tensor *h = gd_dropout(gd_gelu(gd_add(gd_matmul(n.x, w1), b1)), .p = 0.3);
    n.loss = gd_mse_loss(gd_matmul(h, w2), n.y);
    gd_tensors all = gd_graph_variables(n.graph);
    n.train = gd_minimize(adam ? gd_optim_adam(all) : gd_optim_sgd(all, .momentum = 0.9), n.loss);
    return n;
}

static net image_net(void) {
    net n = {.graph = gd_graph_new(), .xs = gd_randn(gd_dims(4, 3, 12, 12)), .ys = gd_randint(gd_dims(4), 0, 10)};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(4, 3, 12, 12));
    n.y = gd_placeholder(gd_dims(4), .dtype = GD_I64);
    gd_tensor *w1 = gd_variable(gd_mul(gd_randn(gd_dims(8, 3, 3, 3)), gd_scalar(0.1))), *b1 = gd_variable(gd_zeros(gd_dims(8)));
    gd_tensor *mean = gd_variable(gd_zeros(gd_dims(8)), .trainable = false), *var = gd_variable(gd_ones(gd_dims(8)), .trainable = false);
    gd_tensor *h = gd_conv2d(n.x, w1, b1, .padding = 1);
    h = gd_relu(gd_batch_norm(h, NULL, NULL, mean, var, .training = true));
    h = gd_reshape(gd_max_pool2d(h, .kernel = 2), gd_dims(4, -1));
    n.loss = gd_cross_entropy(gd_matmul(h, weights(8 * 36, 10)), n.y);
    n.train = gd_minimize(gd_optim_sgd(gd_graph_variables(n.graph), .lr = 0.01), n.loss);
    return n;
}

/* A long scan with noise in it, and a branch: steps of the plan at level 1 and up. */
static gd_tensors loop_step(gd_tensors in, void *w) {
    gd_tensor *h = gd_tanh(gd_add(gd_matmul(in.at[0], w), in.at[1]));
    return gd_listed(h, gd_dropout(h, .p = 0.1));
}
static gd_tensors loop_half(gd_tensors in, void *w) {
    (void)w;
    return gd_listed(gd_mul(in.at[0], gd_scalar(0.5)));
}
static gd_tensors loop_other(gd_tensors in, void *w) { return gd_listed(gd_matmul(in.at[0], w)); }
static net loop_net(void) {
    net n = {.graph = gd_graph_new(), .xs = gd_randn(gd_dims(300, 4, 8)), .ys = gd_randn(gd_dims(4, 8))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(GD_ANY, 4, 8));
    n.y = gd_placeholder(gd_dims(4, 8));
    gd_tensor *w = weights(8, 8), *v = weights(8, 8);
    gd_scanned s = gd_scan(loop_step, gd_list(gd_zeros(gd_dims(4, 8))), gd_list(n.x), w);
    gd_tensor *mean = gd_mean(s.ys.at[0], .axis = 0);
    n.loss = gd_mse_loss(gd_cond(gd_gt(gd_sum(n.x), gd_scalar(-1e9)), loop_other, loop_half, gd_list(mean), v).at[0], n.y);
    n.train = gd_minimize(gd_optim_sgd(gd_graph_variables(n.graph), .lr = 0.1), n.loss);
    return n;
}

/* --- tests -------------------------------------------------------------------------------------- */

/* A worker thread gets its working memory (GEMM_SCRATCHES blocks at most) when it first has something
 * to do, which may be in a later run if the machine is busy. So what is strict is the count on one
 * thread, from the second run on; with a worker it may allocate so many blocks, once. */
enum { GEMM_SCRATCHES = 2 };
static void check_net(const char *name, net n, int level, int threads) {
    gd_set_num_threads(threads);
    gd_session *s = gd_session_new(n.graph, .level = level);
    double first = 0, last = 0;
    const int warm = threads > 1 ? 30 : 1;
    allocations = 0;
    for (int i = 0; i < warm + 20; i++) {
        GD_SCOPE;
        counting = i >= warm;
        gd_tensors r = gd_session_run(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train));
        counting = 0;
        CHECK_SAYING(!gd_failed(), "%s: %s", name, gd_error_message());
        if (gd_failed()) return;
        last = gd_item(r.at[0]);
        if (i == 0) first = last;
        counting = i >= warm; /* the scope is left with it on */
    }
    counting = 0;
    CHECK_SAYING(last < first, "%s does not learn: %g to %g", name, first, last);
    CHECK_SAYING(!can_count || allocations <= GEMM_SCRATCHES * (threads - 1), "%s, level %d, %d threads: %ld allocations in 20 runs", name, level, threads,
                 (long)allocations);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train), &m) == GD_OK);
    CHECK_SAYING(m.peak_bytes <= m.live_bytes + m.live_bytes / 20, "%s: a block of %lld bytes for %lld", name, (long long)m.peak_bytes,
                 (long long)m.live_bytes);
}

TEST(later_runs_allocate_nothing) {
    for (int level = 0; level <= 2; level++)
        for (int threads = 1; threads <= 2; threads++) {
            GD_SCOPE;
            check_net("dense, momentum", dense_net(false), level, threads);
            check_net("dense, adam", dense_net(true), level, threads);
            check_net("images", image_net(), level, threads);
            if (level > 0) check_net("loops", loop_net(), level, threads);
        }
}

/* What a process holds grows by what the plan says, and what else is listed. */
TEST(a_plan_is_what_the_device_counts) {
    GD_SCOPE;
    net n = dense_net(false);
    gd_session *s = gd_session_new(n.graph, .level = 0);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train), &m) == GD_OK);
    int64_t before = gd_memory_stats(NULL).live_bytes;
    gd_session_run(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train));
    int64_t after = gd_memory_stats(NULL).live_bytes;
    /* initial values were computed by plans of their own, which the session keeps */
    CHECK_SAYING(after - before >= m.peak_bytes + m.variable_bytes + m.fetch_bytes, "%lld bytes for a plan of %lld + %lld + %lld",
                 (long long)(after - before), (long long)m.peak_bytes, (long long)m.variable_bytes, (long long)m.fetch_bytes);
}

/* --- placing ------------------------------------------------------------------------------------ */

TEST(things_that_live_at_the_same_time_do_not_overlap) {
    unsigned seed = 12345;
    size_t worst = 0;
    for (int round = 0; round < 200; round++) {
        enum { MOST = 60 };
        gd_span spans[MOST];
        const int n = 1 + (int)(seed >> 8) % MOST;
        for (int i = 0; i < n; i++) {
            seed = seed * 1103515245u + 12345u;
            const int begin = (int)(seed >> 16) % 50;
            seed = seed * 1103515245u + 12345u;
            spans[i] = (gd_span){.bytes = (seed >> 16) % 5000, .begin = begin, .end = begin + (int)(seed >> 8) % 20};
        }
        size_t slab, live;
        CHECK(gd_place_spans(spans, n, &slab, &live) == GD_OK && slab >= live);
        for (int i = 0; i < n; i++) {
            CHECK(spans[i].offset % GD_SLAB_ALIGNMENT == 0 && spans[i].offset + spans[i].bytes <= slab);
            for (int k = 0; k < i; k++) {
                const bool together = spans[i].begin <= spans[k].end && spans[k].begin <= spans[i].end;
                const bool apart = spans[i].offset + spans[i].bytes <= spans[k].offset || spans[k].offset + spans[k].bytes <= spans[i].offset;
                CHECK(!together || apart);
            }
        }
        if (live > 0 && slab * 100 / live > worst) worst = slab * 100 / live;
    }
    CHECK_SAYING(worst <= 120, "the worst slab has %zu %% of what is alive", worst);
}

TEST_MAIN
