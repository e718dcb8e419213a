/* test_traced_places.c - messages of ops in traced functions that library code, such as a module,
 * calls. */
#include "clean_test.h"
#include "gradus/gradus.h"
#include "graph/build/graph.h"

/* A public function of the library: ops inside it report the source line of its call. */
#define layer(x, w) layer_at(GD_HERE, x, w)
static gd_tensor *layer_at(const char *site, gd_tensor *x, gd_tensor *w) {
    GD_CALLED_FROM(site);
    return gd_matmul_at(NULL, x, w);
}
#define custom(x) custom_at(GD_HERE, x)
static void custom_forward(gd_context *c) { c->y[0] = gd_mul_at(NULL, c->x[0], c->x[0]); }
static void custom_backward(gd_context *c) { c->gx[0] = gd_matmul_at(NULL, c->gy[0], c->gy[0]); }
static const gd_function custom_function = {
    .name = "custom", .forward = custom_forward, .backward = custom_backward};
static gd_tensor *custom_at(const char *site, gd_tensor *x) {
    GD_CALLED_FROM(site);
    return gd_apply_at(NULL, &custom_function, gd_list(x), NULL).at[0];
}

static int count_places(int line) {
    char place[64];
    snprintf(place, sizeof place, "test_traced_places.c:%d", line);
    int n = 0;
    for (const char *at = gd_error_message(); (at = strstr(at, place)); at++) n++;
    return n;
}

enum { WRONG_LINE = __LINE__ + 2 };
static gd_tensors wrong_layer(gd_tensors in, void *user) {
    return gd_listed(layer(in.at[0], user));
}
static gd_tensors wrong_layer_in_branch(gd_tensors in, void *user) {
    return gd_cond(gd_gt(gd_sum(in.at[0]), gd_scalar(0)), wrong_layer, wrong_layer, in, user);
}
static gd_tensors wrong_layer_in_inner_jit(gd_tensors in, void *user) {
    return gd_jit_call_at(NULL, gd_jit_new(wrong_layer, user), in,
                          &(gd_jit_call_options){.key = 0});
}

CLEAN_TEST(a_failing_op_in_library_code_names_the_program_line_once) {
    const gd_body functions[] = {wrong_layer, wrong_layer_in_branch, wrong_layer_in_inner_jit};
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_ones(gd_dims(2, 3)), *w = gd_ones(gd_dims(4, 5));
        gd_jit_call(gd_jit_new(functions[i], w), gd_list(x));
        CHECK_SAYING(gd_failed() && count_places(WRONG_LINE) == 1 &&
                         says("matmul(a f32[2,3], b f32[4,5])"),
                     "%d: %s", i, gd_error_message());
        gd_clear_error();
        gd_graph *graph = gd_graph_new();
        GD_GRAPH(graph);
        functions[i](gd_list(gd_placeholder(gd_dims(2, 3))), w);
        CHECK_SAYING(gd_failed() && count_places(WRONG_LINE) == 1, "%d: %s", i, gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(the_gradient_of_a_user_defined_function_names_its_call) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(2, 3))), *y = custom(x);
    const int line = __LINE__ - 1;
    gd_backward(gd_sum(y));
    CHECK_SAYING(gd_failed() && count_places(line) >= 1 && !says("unknown place"), "%s",
                 gd_error_message());
    gd_clear_error();
}

TEST_MAIN
