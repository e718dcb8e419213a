/* test_random_dtypes.c - random graphs of all dtypes, with views of views, empty tensors and
 * in-place ops: plans give the results of eager code, and fused kernels give the same bits
 * interpreted and compiled.
 *
 * Values are (rows, columns) of any dtype. Levels 0 and 1 have the bits of eager code. Level 2
 * rounds half precision floats in other places, so a comparison or a cast to integers may give
 * another result. Therefore only graphs of integers, and graphs of wide floats without such
 * decisions, are compared.
 */
#include "test.h"
#include "fuse_ways_knobs.h"
#include "random_dtypes.h"

static results run_plan(uint64_t seed, enum kind kind, gd_tensor *const *x, int level) {
    gd_graph *graph = gd_graph_new();
    gd_tensor *in[INPUTS], *feeds[2 * INPUTS];
    results r;
    {
        GD_GRAPH(graph);
        for (int i = 0; i < INPUTS; i++) {
            in[i] = gd_placeholder(gd_tensor_shape(x[i]), .dtype = gd_tensor_dtype(x[i]));
            feeds[2 * i] = in[i];
            feeds[2 * i + 1] = x[i];
        }
        r = dtype_graph(seed, kind, in);
    }
    gd_session *session = gd_session_new(graph, .level = level);
    gd_tensors got = {NULL, 0};
    for (int i = 0; i < 2 && !gd_failed(); i++)
        got = gd_session_run(session, ((gd_tensors){feeds, 2 * INPUTS}),
                             ((gd_tensors){r.at, r.count}));
    for (int i = 0; i < r.count && i < got.count; i++) r.at[i] = gd_clone(got.at[i]);
    return r;
}

static void check_graph(uint64_t seed) {
    gd_tensor *x[INPUTS];
    const enum kind kind = dtype_inputs(seed, x);
    const results expected = dtype_graph(seed, kind, x);
    for (int level = 0; level <= (kind == ALL_DTYPES ? 1 : 2) && !gd_failed(); level++) {
        const results got = run_plan(seed, kind, x, level);
        if (!gd_failed())
            check_same(seed, level_name(level), &expected, &got,
                       level == 2 && kind == FLOATS ? 1e-3 : 0);
    }
}

TEST(random_plans_of_all_dtypes_agree_with_eager_code) { for_each_seed(90, check_graph); }

static void check_kernels(uint64_t seed) {
    gd_tensor *x[INPUTS];
    const enum kind kind = dtype_inputs(seed, x);
    use_evaluator();
    const results expected = run_plan(seed, kind, x, 2);
    use_compiler();
    const results got = run_plan(seed, kind, x, 2);
    use_evaluator();
    if (!gd_failed()) check_same(seed, "compiled, not by the evaluator", &expected, &got, 0);
}

TEST(random_plans_give_the_same_bits_interpreted_and_compiled) { for_each_seed(3, check_kernels); }

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
