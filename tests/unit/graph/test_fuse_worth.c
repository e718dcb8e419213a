/* test_fuse_worth.c - plans fuse only chains that become faster, with a compiler and without. */
#include <sys/stat.h>

#include "temp.h"
#include "backend/cpu/elementwise_job.h"
#include "codegen/native.h"
#include "graph/passes/fuse.h"
#include "test.h"
#include "files.h"
#include "fuse_ways.h"

/* The default settings. */
static void use_default(void) {
    unsetenv("GRADUS_NATIVE");
    gd_ew_set_compiled(true);
    gd_fuse_set_always(false);
    gd_native_forget();
}

static void use_no_compiler(void) {
    use_default();
    setenv("GRADUS_NATIVE", "0", 1);
}

/* The fused steps of a plan, such as "fused{a, b} fused{c, d}". */
static const char *fused_steps(body_fn body, int64_t rows, int64_t columns) {
    GD_SCOPE;
    static char found[512];
    gd_tensor *x[2] = {gd_ones(gd_dims(rows, columns)), gd_ones(gd_dims(rows, columns))};
    planned p = plan(body, NULL, x, 2, 2);
    char *text = text_of(&p);
    CHECK_SAYING(text, "%s", gd_error_message());
    found[0] = 0;
    for (const char *at = text; at && (at = strstr(at, "fused{")); at++) {
        const size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%.*s", used ? " " : "",
                 (int)strcspn(at, "}") + 1, at);
    }
    free(text);
    return found;
}

#define CHECK_FUSED(body, rows, columns, expected)                     \
    do {                                                               \
        const char *found_ = fused_steps(body, rows, columns);         \
        CHECK_SAYING(strcmp(found_, expected) == 0, "\"%s\"", found_); \
    } while (0)

static results heavy(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){{gd_mul(gd_gelu(gd_add(x[0], x[1])), x[0])}, 1};
}
static results truths(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *up = gd_gt(x[0], x[1]), *minus = gd_neg(x[0]);
    return (results){{gd_where(up, x[0], minus)}, 1};
}
static results squares(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){{gd_mean(gd_square(gd_sub(x[0], x[1])))}, 1};
}
static results softmax(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *e = gd_exp(gd_sub(x[0], gd_max(x[0], .axis = -1, .keepdim = true)));
    gd_tensor *y = gd_div(e, gd_sum(e, .axis = -1, .keepdim = true));
    return (results){{y}, 1};
}
static results bias_gradient(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *g = gd_mul(x[0], x[1]), *s = gd_sum(g, .axis = 0);
    return (results){{g, s}, 2};
}
static results short_rows(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *s = gd_sum(gd_square(gd_sub(x[0], x[1])), .axis = 1);
    return (results){{s}, 1};
}

TEST(with_a_compiler_chains_worth_compiling_are_fused) {
    use_default();
    CHECK_FUSED(heavy, 100, 100, "fused{add, gelu, mul}");
    CHECK_FUSED(softmax, 100, 100, "fused{max, sub, exp, sum, div}");
    CHECK_FUSED(squares, 100, 100, "fused{sub, square, mean}");
    CHECK_FUSED(heavy, 5, 100,
                ""); /* too small to compile, and the evaluator is slower than kernels */
    CHECK_FUSED(softmax, 5, 100, "");
}

TEST(without_a_compiler_chains_are_fused_if_the_evaluator_is_faster) {
    use_no_compiler();
    CHECK_FUSED(heavy, 100, 100,
                ""); /* gelu is a dozen primitives in the evaluator, but has its own kernel */
    CHECK_FUSED(softmax, 100, 100, "");
    CHECK_FUSED(softmax, 10, 4096, "fused{max, sub, exp, sum, div}");
    CHECK_FUSED(squares, 100, 100, "fused{sub, square, mean}"); /* saves storing the terms */
    CHECK_FUSED(truths, 100, 100, "fused{gt, neg, where}");     /* saves storing the bools */
    CHECK_FUSED(truths, 2, 3, "fused{gt, neg, where}");
    use_default();
}

TEST(a_cache_folder_that_others_can_read_disables_the_compiler) {
    const char *folder = temp_new_folder("shared-cache");
    char before[4096];
    snprintf(before, sizeof before, "%s", getenv("GRADUS_CACHE"));
    const char *kernels = temp_path("shared-cache/kernels");
    CHECK(mkdir(kernels, 0700) == 0 && chmod(kernels, 0755) == 0);
    setenv("GRADUS_CACHE", folder, 1);
    use_default();
    CHECK_FUSED(heavy, 90, 100, "");
    CHECK_FUSED(squares, 90, 100, "fused{sub, square, mean}");
    setenv("GRADUS_CACHE", before, 1);
    CHECK(folder_count(kernels) == 0);
}

static results rare(gd_tensor *const *x,
                    const void *arg) { /* a chain that no other test compiles */
    (void)arg;
    return (results){{gd_mul(gd_softplus(gd_gelu(x[0])), x[1])}, 1};
}

TEST(a_failing_compiler_disables_fusion) {
    use_default();
    setenv("GRADUS_CC", "/bin/false", 1);
    CHECK_FUSED(rare, 77, 101, "");
    unsetenv("GRADUS_CC");
}

/* The summand is stored anyway: reading it costs less than computing it in the order of the sum. */
TEST(a_sum_of_a_stored_result_stays_a_separate_step) {
    for (int compiled = 0; compiled < 2; compiled++) {
        if (compiled) use_default();
        else use_no_compiler();
        CHECK_FUSED(bias_gradient, 1024, 100, "");
        CHECK_FUSED(short_rows, 1024, 10, compiled ? "fused{sub, square}" : "");
    }
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
