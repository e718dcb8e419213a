/* test_run_memory.c - from its second run on a plan allocates nothing, and plans report exactly the
 * memory that they use. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "draw.h"
#include "gradus/gradus.h"
#include "graph/plan/memory.h"
#include "dispatch/op.h"
#include "test.h"

/* --- counting allocations --------------------------------------------------------------------- */

static _Atomic long allocations;
static _Atomic int counting;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool can_count = false; /* the malloc of a sanitizer cannot be replaced */
#else
static const bool can_count = true;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
static void count_allocation(void) {
    if (counting) allocations++;
}
void *malloc(size_t n) {
    count_allocation();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    count_allocation();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    count_allocation();
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
    count_allocation();
    return __libc_memalign(alignment, n);
}
int posix_memalign(void **p, size_t alignment, size_t n) {
    count_allocation();
    *p = __libc_memalign(alignment, n);
    return *p ? 0 : 12;
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    count_allocation();
    return real(at, n, protection, flags, file, offset);
}
#endif

/* --- networks --------------------------------------------------------------------------------- */

typedef struct net {
    gd_graph *graph;
    gd_tensor *x, *y, *loss, *train, *xs, *ys;
} net;

static gd_tensor *random_weights(int64_t a, int64_t b) {
    return gd_variable(gd_mul(gd_randn(gd_dims(a, b)), gd_scalar(0.1)));
}

static net dense_net(bool adam) {
    net n = {
        .graph = gd_graph_new(), .xs = gd_randn(gd_dims(32, 50)), .ys = gd_randn(gd_dims(32, 10))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(GD_ANY, 50));
    n.y = gd_placeholder(gd_dims(GD_ANY, 10));
    gd_tensor *w1 = random_weights(50, 40), *b1 = gd_variable(gd_zeros(gd_dims(40))),
              *w2 = random_weights(40, 10);
    gd_tensor *h = gd_dropout(gd_gelu(gd_add(gd_matmul(n.x, w1), b1)), .p = 0.3);
    n.loss = gd_mse_loss(gd_matmul(h, w2), n.y);
    gd_tensors all = gd_graph_variables(n.graph);
    n.train = gd_minimize(adam ? gd_optim_adam(all) : gd_optim_sgd(all, .momentum = 0.9), n.loss);
    return n;
}

static net image_net(void) {
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(4, 3, 12, 12)),
             .ys = gd_randint(gd_dims(4), 0, 10)};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(4, 3, 12, 12));
    n.y = gd_placeholder(gd_dims(4), .dtype = GD_I64);
    gd_tensor *w1 = gd_variable(gd_mul(gd_randn(gd_dims(8, 3, 3, 3)), gd_scalar(0.1))),
              *b1 = gd_variable(gd_zeros(gd_dims(8)));
    gd_tensor *mean = gd_variable(gd_zeros(gd_dims(8)), .trainable = false),
              *var = gd_variable(gd_ones(gd_dims(8)), .trainable = false);
    gd_tensor *h = gd_conv2d(n.x, w1, b1, .padding = 1);
    h = gd_relu(gd_batch_norm(h, NULL, NULL, mean, var, .training = true));
    h = gd_reshape(gd_max_pool2d(h, .kernel = 2), gd_dims(4, -1));
    n.loss = gd_cross_entropy(gd_matmul(h, random_weights(8 * 36, 10)), n.y);
    n.train = gd_minimize(gd_optim_sgd(gd_graph_variables(n.graph), .lr = 0.01), n.loss);
    return n;
}

/* A long scan with random numbers, and a branch: steps of the plan at level 1 and higher. */
static gd_tensors loop_step(gd_tensors in, void *w) {
    gd_tensor *h = gd_tanh(gd_add(gd_matmul(in.at[0], w), in.at[1]));
    return gd_listed(h, gd_dropout(h, .p = 0.1));
}
static gd_tensors loop_tanh(gd_tensors in, void *w) {
    (void)w;
    return gd_listed(gd_mul(in.at[0], gd_scalar(0.5)));
}
static gd_tensors loop_other(gd_tensors in, void *w) { return gd_listed(gd_matmul(in.at[0], w)); }
static net loop_net(void) {
    net n = {
        .graph = gd_graph_new(), .xs = gd_randn(gd_dims(300, 4, 8)), .ys = gd_randn(gd_dims(4, 8))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(GD_ANY, 4, 8));
    n.y = gd_placeholder(gd_dims(4, 8));
    gd_tensor *w = random_weights(8, 8), *v = random_weights(8, 8);
    gd_scanned s = gd_scan(loop_step, gd_list(gd_zeros(gd_dims(4, 8))), gd_list(n.x), w);
    gd_tensor *mean = gd_mean(s.ys.at[0], .axis = 0);
    n.loss = gd_mse_loss(
        gd_cond(gd_gt(gd_sum(n.x), gd_scalar(-1e9)), loop_other, loop_tanh, gd_list(mean), v).at[0],
        n.y);
    n.train = gd_minimize(gd_optim_sgd(gd_graph_variables(n.graph), .lr = 0.1), n.loss);
    return n;
}

static net sequence_net(void) {
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(12, 4, 6)),
             .ys = gd_randn(gd_dims(12, 4, 10))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(12, 4, 6));
    n.y = gd_placeholder(gd_dims(12, 4, 10));
    gd_tensor *w1 = random_weights(40, 6), *w2 = random_weights(40, 10),
              *b1 = gd_variable(gd_zeros(gd_dims(40))), *b2 = gd_variable(gd_zeros(gd_dims(40)));
    gd_tensor *y = gd_lstm(n.x, NULL, NULL, NULL, gd_list(w1, w2, b1, b2)).y;
    n.loss = gd_mse_loss(gd_layer_norm(y, gd_variable(gd_ones(gd_dims(10))), NULL), n.y);
    n.train = gd_minimize(gd_optim_adam(gd_graph_variables(n.graph), .lr = 0.01), n.loss);
    return n;
}

/* Tens of megabytes: a few layers with many rows, and convolutions. */
static net wide_net(void) {
    enum { ROWS = 6000, WIDTH = 256, LAYERS = 8 };
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(ROWS, WIDTH)),
             .ys = gd_randn(gd_dims(ROWS, WIDTH))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(ROWS, WIDTH));
    n.y = gd_placeholder(gd_dims(ROWS, WIDTH));
    gd_tensor *h = n.x;
    for (int i = 0; i < LAYERS; i++)
        h = gd_tanh(
            gd_linear(h, random_weights(WIDTH, WIDTH), gd_variable(gd_zeros(gd_dims(WIDTH)))));
    n.loss = gd_mse_loss(h, n.y);
    n.train = gd_minimize(gd_optim_adam(gd_graph_variables(n.graph), .lr = 0.001), n.loss);
    return n;
}

/* Several lines that are too long to be sorted on the stack. */
static net sorting_net(void) {
    enum { ROWS = 80, WIDTH = 400 };
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(ROWS, 50)),
             .ys = gd_randn(gd_dims(ROWS, WIDTH))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(ROWS, 50));
    n.y = gd_placeholder(gd_dims(ROWS, WIDTH));
    gd_tensor *h = gd_matmul(n.x, random_weights(50, WIDTH)),
              *least = gd_topk(h, 300, .largest = false).values;
    gd_tensor *sum = gd_add(gd_sort(h).values, gd_gather(h, 1, gd_argsort(n.y)));
    n.loss = gd_add(gd_mse_loss(sum, n.y), gd_mean(gd_mul(least, least)));
    n.train = gd_minimize(gd_optim_sgd(gd_graph_variables(n.graph), .lr = 0.01), n.loss);
    return n;
}

static net wide_image_net(void) {
    enum { IMAGES = 8, CHANNELS = 32, SIZE = 48, LAYERS = 6 };
    net n = {.graph = gd_graph_new(),
             .xs = gd_randn(gd_dims(IMAGES, CHANNELS, SIZE, SIZE)),
             .ys = gd_randn(gd_dims(IMAGES, CHANNELS, SIZE, SIZE))};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(IMAGES, CHANNELS, SIZE, SIZE));
    n.y = gd_placeholder(gd_dims(IMAGES, CHANNELS, SIZE, SIZE));
    gd_tensor *h = n.x;
    for (int i = 0; i < LAYERS; i++) {
        gd_tensor *w =
            gd_variable(gd_mul(gd_randn(gd_dims(CHANNELS, CHANNELS, 3, 3)), gd_scalar(0.05)));
        h = gd_relu(gd_batch_norm(gd_conv2d(h, w, NULL, .padding = 1), NULL, NULL, NULL, NULL,
                                  .training = true));
    }
    n.loss = gd_mse_loss(h, n.y);
    n.train = gd_minimize(gd_optim_sgd(gd_graph_variables(n.graph), .lr = 0.01), n.loss);
    return n;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* A worker thread allocates its workspace (at most GEMM_SCRATCHES blocks) when it first has work,
 * which may be in a later run on a busy machine. So the count is strict on one thread, from the
 * second run on; a worker may allocate that many blocks once. */
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
        counting = i >= warm; /* counts the end of the scope, too */
    }
    counting = 0;
    CHECK_SAYING(last < first, "%s does not learn: %g to %g", name, first, last);
    CHECK_SAYING(!can_count || allocations <= GEMM_SCRATCHES * (threads - 1),
                 "%s, level %d, %d threads: %ld allocations in 20 runs", name, level, threads,
                 (long)allocations);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, gd_feed(n.x, n.xs, n.y, n.ys), gd_list(n.loss, n.train), &m) == GD_OK);
    CHECK_SAYING(m.peak_bytes <= m.live_bytes + m.live_bytes / 20,
                 "%s: a block of %lld bytes for %lld", name, (long long)m.peak_bytes,
                 (long long)m.live_bytes);
}

TEST(later_runs_allocate_nothing) {
    for (int level = 0; level <= 2; level++)
        for (int threads = 1; threads <= 2; threads++) {
            GD_SCOPE;
            check_net("dense, momentum", dense_net(false), level, threads);
            check_net("dense, adam", dense_net(true), level, threads);
            check_net("images", image_net(), level, threads);
            check_net("sequences", sequence_net(), level, threads);
            check_net("sorts", sorting_net(), level, threads);
            if (level > 0) check_net("loops", loop_net(), level, threads);
        }
}

static int64_t device_bytes(const gd_plan_memory *m) {
    return m->peak_bytes + m->variable_bytes + m->fetch_bytes + m->constant_bytes;
}

/* The device's count equals the plan's, to the byte, in the first run and in later runs. */
static void check_counters(const char *name, net n, int level) {
    GD_SCOPE;
    const gd_tensors feed = gd_feed(n.x, n.xs, n.y, n.ys), fetch = gd_list(n.loss, n.train);
    const int64_t before = gd_memory_stats(NULL).live_bytes;
    gd_session *s = gd_session_new(n.graph, .level = level);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, feed, fetch, &m) == GD_OK && !m.at_least);
    gd_session_run(s, feed, fetch);
    const int64_t first = gd_memory_stats(NULL).live_bytes - before;
    CHECK_SAYING(first == device_bytes(&m),
                 "%s, level %d: %lld bytes for a plan of %lld + %lld + %lld + %lld", name, level,
                 (long long)first, (long long)m.peak_bytes, (long long)m.variable_bytes,
                 (long long)m.fetch_bytes, (long long)m.constant_bytes);
    GD_SCOPE;
    gd_memory_reset_peak(NULL);
    gd_session_run(s, feed, gd_list(n.loss, n.train)); /* its fetches are held: new buffers */
    const int64_t peak = gd_memory_stats(NULL).peak_bytes - before;
    CHECK_SAYING(peak == device_bytes(&m) + m.fetch_bytes,
                 "%s, level %d: %lld bytes in the second run", name, level, (long long)peak);
    CHECK_SAYING(!gd_failed(), "%s: %s", name, gd_error_message());
}

TEST(the_memory_of_a_plan_equals_the_count_of_the_device) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        check_counters("dense, momentum", dense_net(false), level);
        check_counters("dense, adam", dense_net(true), level);
        check_counters("images", image_net(), level);
        check_counters("sequences", sequence_net(), level);
    }
}

/* Computing initial values needs memory once: the device does not keep it. */
TEST(memory_of_initial_values_is_freed) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *w;
    {
        GD_GRAPH(g);
        w = gd_variable(gd_sum(
            gd_matmul(gd_randn(gd_dims(1000, 1000)), gd_randn(gd_dims(1000, 100))), .axis = 0));
    }
    gd_memory_trim(NULL);
    gd_session *s = gd_session_new(g);
    gd_session_run(s, gd_feed(w, gd_ones(gd_dims(100))), gd_list(w));
    gd_session_get(s, w);
    CHECK_SAYING(!gd_failed() && gd_memory_stats(NULL).cached_bytes < 100000, "%lld bytes are kept",
                 (long long)gd_memory_stats(NULL).cached_bytes);
}

/* Returns the bytes of anonymous resident memory, or 0 if the system does not report it. */
static int64_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long long kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Anonymous: %lld kB", &kb) == 1) break;
    if (f) fclose(f);
    return kb * 1024;
}

/* The process grows by the memory that the plan lists. The plan itself and the overhead of the
 * system's allocator must fit into 5 %. */
static void check_growth(const char *name, net (*make)(void), int level, int threads) {
    GD_SCOPE;
    gd_set_num_threads(threads);
    net n = make();
    const gd_tensors feed = gd_feed(n.x, n.xs, n.y, n.ys), fetch = gd_list(n.loss, n.train);
    gd_memory_trim(NULL);
    malloc_trim(0); /* memory freed by earlier nets would be reused */
    const int64_t before = resident_bytes();
    gd_session *s = gd_session_new(n.graph, .level = level);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, feed, fetch, &m) == GD_OK);
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        gd_session_run(s, feed, fetch);
    }
    CHECK_SAYING(!gd_failed(), "%s: %s", name, gd_error_message());
    const int64_t growth = resident_bytes() - before, least = device_bytes(&m),
                  most = least + m.scratch_bytes;
    if (before > 0)
        CHECK_SAYING(growth <= most + most / 20 && growth >= least - least / 20,
                     "%s, level %d, %d threads: grows by %lld, listed are %lld to %lld", name,
                     level, threads, (long long)growth, (long long)least, (long long)most);
    CHECK(m.peak_bytes > 20 << 20 && m.scratch_bytes < m.peak_bytes / 2);
}

TEST(a_process_grows_by_the_memory_that_the_plan_lists) {
    if (!can_count) return; /* sanitizers need more memory for each byte */
    if (gd_reference_only()) SKIP("reference kernels take minutes for nets of this size");
    for (int level = 0; level <= 2; level += 2)
        for (int threads = 1; threads <= 2; threads++) {
            check_growth("wide layers", wide_net, level, threads);
            check_growth("wide images", wide_image_net, level, threads);
        }
}

/* --- placement -------------------------------------------------------------------------------- */

TEST(values_that_are_live_at_the_same_time_do_not_overlap) {
    draws d = {12345};
    size_t worst = 0;
    for (int round = 0; round < 200; round++) {
        enum { MAX_SPANS = 60 };
        gd_span spans[MAX_SPANS];
        const int n = 1 + draw_below(&d, MAX_SPANS);
        for (int i = 0; i < n; i++) {
            const int begin = draw_below(&d, 50);
            spans[i] = (gd_span){.bytes = (size_t)draw_below(&d, 5000),
                                 .begin = begin,
                                 .end = begin + draw_below(&d, 20)};
        }
        size_t slab, live;
        CHECK(gd_place_spans(spans, n, &slab, &live) == GD_OK && slab >= live);
        for (int i = 0; i < n; i++) {
            CHECK(spans[i].offset % GD_SLAB_ALIGNMENT == 0 &&
                  spans[i].offset + spans[i].bytes <= slab);
            for (int k = 0; k < i; k++) {
                const bool together =
                    spans[i].begin <= spans[k].end && spans[k].begin <= spans[i].end;
                const bool apart = spans[i].offset + spans[i].bytes <= spans[k].offset ||
                                   spans[k].offset + spans[k].bytes <= spans[i].offset;
                CHECK(!together || apart);
            }
        }
        if (live > 0 && slab * 100 / live > worst) worst = slab * 100 / live;
    }
    CHECK_SAYING(worst <= 120, "the worst slab has %zu %% of the live bytes", worst);
}

TEST_MAIN
