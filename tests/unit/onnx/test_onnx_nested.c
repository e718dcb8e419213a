/* test_onnx_nested.c - nested branches and loops: saving and loading work on a small stack. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compare.h"
#include "onnx_files.h"
#include "temp.h"

/* Frames are larger without optimization and with a sanitizer. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
enum { SMALL_STACK = 64 << 10, SMALL_FRAMES = 1 };
#else
enum { SMALL_STACK = 64 << 10, SMALL_FRAMES = 0 };
#endif

typedef enum kind { CONDS, LOOPS, SCANS } kind;

/* y = x + depth, computed by nested functions. */
typedef struct level {
    kind kind;
    int left;
} level;

static gd_tensors nested_op(gd_tensor *x, level l);

static gd_tensors nested_body(gd_tensors in, void *user) {
    const level *l = user;
    gd_tensor *x = gd_add(in.at[l->kind == LOOPS], gd_scalar(1));
    gd_tensors y = l->left ? nested_op(x, (level){l->kind, l->left - 1}) : gd_listed(x);
    if (gd_failed()) return gd_list_of_errors(l->kind == LOOPS ? 2 : 1);
    if (l->kind == CONDS || l->kind == SCANS) return gd_listed(y.at[0]);
    return gd_listed(gd_add(in.at[0], gd_scalar_of(1, GD_I64)), y.at[0]);
}
static gd_tensors identity_body(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_clone(in.at[0]));
}
static gd_tensors is_first_step(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(in.at[0], gd_scalar_of(1, GD_I64)));
}

static gd_tensors nested_op(gd_tensor *x, level l) {
    if (l.kind == CONDS)
        return gd_cond(gd_gt(gd_sum(x), gd_scalar(-1)), nested_body, identity_body, gd_list(x), &l);
    if (l.kind == SCANS)
        return gd_scan(nested_body, gd_list(x), gd_list(gd_ones(gd_dims(1, 1))), &l).state;
    gd_tensor *zero = gd_cast(gd_mul(gd_sum(x), gd_scalar(0)), GD_I64); /* known only at run time */
    gd_tensors y = gd_while_loop(is_first_step, nested_body, gd_list(zero, x), &l);
    return (gd_tensors){y.at + 1, y.count - 1};
}

static gd_status save_nested(kind of, int depth, const char *path) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2), .name = "x");
        y = gd_clone(nested_op(x, (level){of, depth - 1}).at[0]);
    }
    gd_session *session = gd_session_new(g);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    return gd_onnx_save(path, session, gd_list(x), gd_list(gd_named(y, "y")));
}

/* --- a thread with a small stack -------------------------------------------------------------- */

typedef struct job {
    kind kind;
    int depth;
    const char *path;
    gd_status saved, loaded;
} job;

static void *save_and_load(void *user) {
    job *j = user;
    j->saved = save_nested(j->kind, j->depth, j->path);
    gd_clear_error();
    if (j->saved != GD_OK) return NULL;
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(j->path);
    j->loaded = gd_error_status();
    if (!g) fprintf(stderr, "%.300s\n", gd_error_message());
    gd_clear_error();
    return NULL;
}

/* Runs the job on a stack that ends at a guard page. */
static void run_on_small_stack(job *j) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory =
        mmap(NULL, SMALL_STACK + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) abort();
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, memory + page, SMALL_STACK) != 0) abort();
    if (pthread_create(&thread, &attributes, save_and_load, j) != 0) abort();
    pthread_join(thread, NULL);
    munmap(memory, SMALL_STACK + page);
}

static void check_nesting(kind of, int most) {
    job j = {.kind = of, .depth = most, .path = temp_path("nested.onnx")};
    if (SMALL_FRAMES) run_on_small_stack(&j);
    else save_and_load(&j);
    CHECK_SAYING(j.saved == GD_OK && j.loaded == GD_OK, "%d levels: saved %s, loaded %s", most,
                 gd_status_name(j.saved), gd_status_name(j.loaded));
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(j.path);
    gd_tensor *x = gd_zeros(gd_dims(2));
    CHECK_SAYING(g && tensors_same_bits(run_one(g, "x", x, "y"), gd_full(gd_dims(2), most)), "%s",
                 gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(branches_in_branches_are_saved_and_loaded_on_a_small_stack) { check_nesting(CONDS, 20); }
CLEAN_TEST(loops_in_loops_are_saved_and_loaded_on_a_small_stack) { check_nesting(LOOPS, 20); }
CLEAN_TEST(scans_in_scans_are_saved_and_loaded_on_a_small_stack) { check_nesting(SCANS, 20); }

CLEAN_TEST(nesting_beyond_the_limit_of_loading_is_not_saved) {
    for (kind k = CONDS; k <= SCANS; k++) {
        GD_SCOPE;
        CHECK(save_nested(k, 21, temp_path("deep.onnx")) == GD_E_UNSUPPORTED);
        CHECK_SAYING(says("nested more than 20 levels deep"), "%s", gd_error_message());
        gd_clear_error();
    }
}

TEST_MAIN
