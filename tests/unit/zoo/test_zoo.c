/* test_zoo.c - the ready-made networks. */
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

static void check_net(gd_module *net, gd_tensor *x, int64_t parameters, int64_t classes) {
    CHECK(net != NULL);
    CHECK_SAYING(gd_module_parameter_count(net) == parameters, "%lld",
                 (long long)gd_module_parameter_count(net));
    gd_tensor *y = gd_module_forward(net, x);
    CHECK(gd_tensor_rank(y) == 2 && gd_tensor_dim(y, 1) == classes);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(image_networks_have_the_published_parameter_counts) {
    GD_SCOPE;
    check_net(gd_zoo_lenet(), gd_randn(gd_dims(2, 1, 28, 28)), 61706, 10);
    check_net(gd_zoo_resnet18(), gd_randn(gd_dims(2, 3, 64, 64)), 11689512, 1000);
    check_net(gd_zoo_resnet20(), gd_randn(gd_dims(2, 3, 32, 32)), 272474, 10);
    check_net(gd_net_new("resnet18", "classes=7"), gd_randn(gd_dims(2, 3, 32, 32)),
              11689512 - 993 * 513, 7);
}

/* --- networks whose graph depends on tokens --------------------------------------------------- */

static gd_tensor *token_tensor(int64_t n, const int64_t *tokens) {
    return gd_from_array(gd_dims(n), GD_I64, tokens);
}
#define TOKENS(...) \
    token_tensor(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

CLEAN_TEST(a_tree_net_evaluates_the_tree) {
    GD_SCOPE;
    gd_module *net = gd_zoo_tree_net(.leaves = 4, .operators = 2, .width = 3, .outputs = 5);
    gd_tensor *table = gd_module_tensor(net, "table");
    gd_module *plus = gd_module_find(net, "cells.0"), *times = gd_module_find(net, "cells.1");
    gd_tensor *a = gd_narrow(table, 0, 2, 1), *b = gd_narrow(table, 0, 0, 1),
              *c = gd_narrow(table, 0, 3, 1);
    gd_tensor *by_hand = gd_module_forward(
        gd_module_find(net, "head"), gd_module_forward(plus, a, gd_module_forward(times, b, c)));
    gd_tensor *y = gd_module_forward(net, TOKENS(2, 0, 3, 5, 4)); /* 2 + 0 * 3 */
    CHECK(gd_tensor_dim(y, 0) == 1 && gd_tensor_dim(y, 1) == 5);
    CHECK(tensors_distance(y, by_hand) == 0);
    /* 0 * 3 + 2: the order of the operands matters */
    gd_tensor *other = gd_module_forward(net, TOKENS(0, 3, 5, 2, 4));
    CHECK(tensors_distance(y, other) > 0);
    CHECK(gd_item(gd_max(gd_abs(
              gd_sub(y, gd_module_forward(gd_module_clone(net), TOKENS(2, 0, 3, 5, 4)))))) == 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_modular_net_runs_programs) {
    GD_SCOPE;
    gd_module *net = gd_zoo_modular_net(.channels = 3, .size = 5, .width = 4, .unary = 2,
                                        .binary = 1, .classes = 6, .projection = 4, .hidden = 8);
    gd_tensor *x = gd_randn(gd_dims(2, 3, 5, 5)),
              *scene = gd_module_forward(gd_module_find(net, "stem"), x);
    gd_tensor *two = gd_module_forward(gd_module_find(net, "unary.1"), scene);
    gd_tensor *both = gd_module_forward(gd_module_find(net, "binary.0"), scene, two);
    gd_tensor *by_hand = gd_module_forward(gd_module_find(net, "classifier"), both);
    gd_tensor *y = gd_module_forward(net, TOKENS(0, 0, 2, 3), x);
    CHECK(gd_tensor_dim(y, 0) == 2 && gd_tensor_dim(y, 1) == 6);
    CHECK(tensors_distance(y, by_hand) == 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Checks that the call fails with these words. */
static void check_fails(gd_module *net, gd_tensor *tokens, const char *words) {
    CHECK(gd_tensor_is_error(gd_module_forward(net, tokens)));
    CHECK_SAYING(says(words) && says("tree_net: ") && says("test_zoo.c:"), "%s",
                 gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(invalid_tokens_fail_with_the_reason) {
    GD_SCOPE;
    gd_module *net = gd_zoo_tree_net(.leaves = 4, .operators = 2, .width = 3);
    check_fails(net, TOKENS(1, 4),
                "token 1 is the operator 4 on 2 states, but there is 1 before it; tokens are in "
                "postfix order");
    check_fails(net, TOKENS(4), "token 0 is the operator 4 on 2 states, but there are 0 before it");
    check_fails(net, TOKENS(1, 2, 3, 4),
                "2 states are left after the last of 4 tokens; there must be one, the root");
    check_fails(net, TOKENS(1, 6, 4), "token 1 is 6; leaves are 0 to 3, operators 4 to 5");
    check_fails(net, TOKENS(-1), "token 0 is -1; leaves are 0 to 3, operators 4 to 5");
    check_fails(net, gd_zeros(gd_dims(0), .dtype = GD_I64), "0 states are left");
    check_fails(net, gd_zeros(gd_dims(2, 2), .dtype = GD_I64),
                "the tokens are i64 of rank 2; they must be i64 of rank 1");
    check_fails(net, gd_zeros(gd_dims(2)), "the tokens are f32 of rank 1; they must be i64");
    check_fails(net, NULL, "the tokens are NULL");
    gd_module_forward(net, TOKENS(1), TOKENS(1));
    CHECK_SAYING(says("it takes 1 input (tokens), not 2"), "%s", gd_error_message());
}

typedef struct {
    gd_module *net;
    gd_tensor *tokens;
} captured_tokens;

static gd_tensors run_captured(gd_tensors in, void *user) {
    captured_tokens *c = user;
    return gd_listed(gd_module_forward(c->net, in.count ? in.at[0] : c->tokens));
}

CLEAN_TEST(a_jit_reads_captured_tokens_but_not_symbols) {
    GD_SCOPE;
    captured_tokens c = {gd_zoo_tree_net(.leaves = 4, .operators = 2, .width = 3),
                         TOKENS(2, 0, 3, 5, 4)};
    gd_jit *jit = gd_jit_new(run_captured, &c, .level = 0);
    gd_tensor *y = gd_module_forward(c.net, c.tokens);
    CHECK(gd_item(gd_sub(y, gd_jit_call(jit, gd_nothing).at[0])) == 0);
    c.tokens = TOKENS(1, 1, 4); /* another tree: another plan */
    CHECK(gd_item(gd_sub(gd_module_forward(c.net, c.tokens),
                         gd_jit_call(jit, gd_nothing, .key = 1).at[0])) == 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_jit_call(jit, gd_list(c.tokens));
    CHECK_SAYING(says("tree_net: the tokens are a symbol") && says("use a captured tensor") &&
                     says("test_zoo.c:"),
                 "%s", gd_error_message());
}

CLEAN_TEST(a_graph_keeps_the_tree_that_it_was_built_for) {
    GD_SCOPE;
    gd_module *net = gd_zoo_tree_net(.leaves = 4, .operators = 2, .width = 3);
    gd_tensor *tokens = TOKENS(2, 0, 3, 5, 4), *y, *refused;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        y = gd_module_forward(net, tokens);
        gd_tensor *later = gd_placeholder(gd_dims(5), .dtype = GD_I64);
        refused = gd_module_forward(net, later);
    }
    CHECK(gd_tensor_is_error(refused));
    CHECK_SAYING(says("tree_net: the tokens are a symbol"), "%s", gd_error_message());
    gd_clear_error();
    gd_session *session = gd_session_new(graph, .level = 0);
    gd_tensor *run = gd_session_run(session, gd_nothing, gd_list(y)).at[0];
    CHECK(gd_item(gd_sub(gd_module_forward(net, tokens), run)) == 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_summary_shows_the_modules_of_a_tree) {
    GD_SCOPE;
    char *text = gd_module_summary(gd_zoo_tree_net(.leaves = 4, .operators = 2, .width = 3),
                                   TOKENS(2, 0, 3, 5, 4));
    CHECK_SAYING(text && strstr(text, "cells.1") && strstr(text, "head"), "%s",
                 text ? text : gd_error_message());
    free(text);
}

CLEAN_TEST(invalid_options_of_dynamic_networks_fail) {
    GD_SCOPE;
    CHECK(!gd_zoo_tree_net(.leaves = 0) && says("tree_net: leaves is 0; it must be at least 1"));
    gd_clear_error();
    CHECK(!gd_zoo_tree_net(.operators = 1 << 20) &&
          says("operators is 1048576; it must be at most 65536"));
    gd_clear_error();
    CHECK(!gd_net_new("modular_net", "size=1") &&
          says("modular_net: size is 1; it must be at least 2"));
    gd_clear_error();
    CHECK(!gd_zoo_modular_net(.width = INT64_MAX) &&
          says("width is 9223372036854775807; it must be at most"));
    gd_clear_error();
}

TEST_MAIN
