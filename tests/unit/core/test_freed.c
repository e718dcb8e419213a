/* test_freed.c - a tensor that is used after its scope has ended. Runs twice: by default, where
 * only results of traced functions are checked, and with GRADUS_DEBUG=handles, which checks all
 * uses. */
#include <stdlib.h>
#include <string.h>

#include "core/freed.h"
#include "gradus/gradus.h"
#include "clean_test.h"

#define MUST_BE_CHECKED() \
    if (!gd_handles_checked) SKIP("needs GRADUS_DEBUG=handles")

#define CHECK_SAYS(...)                                                                     \
    do {                                                                                    \
        const char *const parts[] = {__VA_ARGS__};                                          \
        for (size_t i_ = 0; i_ < sizeof parts / sizeof *parts; i_++)                        \
            CHECK_SAYING(says(parts[i_]), "no '%s' in: %s", parts[i_], gd_error_message()); \
        gd_clear_error();                                                                   \
    } while (0)

/* --- checked mode ----------------------------------------------------------------------------- */

static gd_tensor *make_freed_tensor(void) {
    GD_SCOPE;
    return gd_relu(gd_ones(gd_dims(3)));
}

TEST(a_tensor_of_an_ended_scope_names_its_op_its_line_and_the_scope) {
    MUST_BE_CHECKED();
    GD_SCOPE;
    gd_tensor *y = make_freed_tensor();
    gd_tensor *other = gd_full(gd_dims(5), 7); /* would reuse its memory in default mode */
    CHECK(y != other && gd_tensor_is_error(gd_add(y, y)) && gd_error_status() == GD_E_STATE);
    CHECK_SAYS("add(a freed", "use after free", "'a' is the result of relu (",
               "test_freed.c:", "scope of ");
    CHECK(gd_item(y) != gd_item(y));
    CHECK_SAYS("gd_item: use after free", "relu");
    float out[3];
    CHECK(gd_copy_to(y, out, sizeof out) == GD_E_STATE);
    CHECK_SAYS("gd_copy_to: use after free", "relu");
    CHECK(gd_tensor_rank(y) == 0 && gd_failed());
    CHECK_SAYS("use after free");
    char text[400];
    gd_to_text(y, text, sizeof text);
    CHECK(strstr(text, "use after free") && strstr(text, "relu"));
    CHECK_SAYS("use after free");
    CHECK(gd_backward(y) != GD_OK);
    CHECK_SAYS("freed", "relu");
}

TEST(tensors_without_an_op_name_the_call_that_created_them) {
    MUST_BE_CHECKED();
    gd_tensor *t;
    {
        GD_SCOPE;
        t = gd_from_array(gd_dims(1), GD_F32, (const float[]){1});
    }
    gd_item(t);
    CHECK_SAYS("a tensor (", "test_freed.c:", "scope of ");
}

TEST(releasing_twice_is_an_error) {
    MUST_BE_CHECKED();
    gd_tensor *t = gd_ones(gd_dims(3));
    gd_release(t);
    CHECK(!gd_failed());
    gd_release(t);
    CHECK_SAYS("gd_release: use after free", "last reference was released");
    CHECK(gd_retain(t) == t);
    CHECK_SAYS("gd_retain");
    CHECK(gd_keep(t) == t);
    CHECK_SAYS("gd_keep");
}

TEST(releasing_a_tensor_of_a_scope_is_an_error) {
    MUST_BE_CHECKED();
    {
        GD_SCOPE;
        gd_release(gd_ones(gd_dims(3)));
        CHECK(!gd_failed());
    }
    CHECK_SAYS("a scope ends that held the result of ones (", "gd_retain", "test_freed.c:");
}

TEST(a_list_of_an_ended_scope_holds_freed_tensors) {
    MUST_BE_CHECKED();
    GD_SCOPE;
    gd_tensors list;
    gd_tensor *kept;
    {
        GD_SCOPE;
        list = gd_listed(gd_ones(gd_dims(1)), kept = gd_keep(gd_ones(gd_dims(2))));
    }
    CHECK(gd_tensor_is_error(gd_cat(list)));
    CHECK_SAYS("use after free", "list of tensors");
    CHECK(gd_tensor_dim(kept, 0) == 2 && !gd_failed());
}

TEST(handles_are_not_reused) {
    MUST_BE_CHECKED();
    gd_tensor *seen[100];
    for (int i = 0; i < 100; i++) {
        GD_SCOPE;
        seen[i] = gd_ones(gd_dims(1));
        for (int k = 0; k < i; k++) CHECK(seen[k] != seen[i]);
    }
}

/* --- results of traced functions, which are always checked ------------------------------------ */

static gd_tensors return_stack_list(gd_tensors in, void *user) {
    (void)user;
    return gd_list(gd_neg(in.at[0])); /* not gd_listed */
}
static gd_tensors return_freed_tensors(gd_tensors in, void *user) {
    (void)user;
    GD_SCOPE;
    return gd_listed(gd_neg(in.at[0])); /* no gd_keep_list */
}
static gd_tensors return_freed_list(gd_tensors in, void *user) {
    (void)user;
    GD_SCOPE;
    return gd_listed(gd_keep(gd_neg(in.at[0]))); /* keeps the tensor, and not the list */
}
static gd_tensors return_freed_tensor(gd_tensors in, void *user) {
    gd_tensor *y;
    (void)user;
    {
        GD_SCOPE;
        y = gd_neg(in.at[0]);
    }
    gd_exp(in.at[0]); /* may reuse its memory */
    return gd_listed(y);
}
static gd_tensors return_kept(gd_tensors in, void *user) {
    (void)user;
    GD_SCOPE;
    return gd_keep_list(gd_listed(gd_neg(in.at[0])));
}
static gd_tensors always_true(gd_tensors in, void *user) {
    (void)in, (void)user;
    return gd_listed(gd_scalar(1));
}

TEST(a_jit_fails_if_its_function_returns_freed_tensors) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2));
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(return_stack_list, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("gd_jit_call", "ended with it", "gd_listed");
    CHECK(
        gd_tensor_is_error(gd_jit_call(gd_jit_new(return_freed_tensors, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("gd_jit_call", "result 0 of the function", "freed at the end of the scope of ",
               "test_freed.c:", "gd_keep_list");
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(return_freed_list, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("list of tensors", "gd_keep_list");
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(return_freed_tensor, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("result of neg (", "scope of ");
    gd_tensors y = gd_jit_call(gd_jit_new(return_kept, NULL), gd_list(x));
    CHECK(y.count == 1 && !gd_failed() && ((float *)gd_data(y.at[0]))[0] == -1);
}

TEST(branches_and_loops_fail_if_a_body_returns_freed_tensors) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2)), *yes = gd_scalar(1);
    gd_cond(yes, return_stack_list, return_stack_list, gd_list(x), NULL);
    CHECK_SAYS("ended with it", "gd_listed");
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *p = gd_placeholder(gd_dims(2)), *choice = gd_placeholder(gd_dims());
    gd_cond(choice, return_freed_tensors, return_kept, gd_list(p), NULL);
    CHECK_SAYS("result 0 of the function", "gd_keep_list");
    gd_while_loop(always_true, return_stack_list, gd_list(p), NULL, .max_steps = 2);
    CHECK_SAYS("ended with it");
}

TEST(tensors_kept_for_a_trace_are_freed_with_it) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2));
    gd_jit *jit = gd_jit_new(return_kept, NULL);
    gd_jit_call(jit, gd_list(x));
    CHECK(gd_this_thread.keeping_freed == 0 && gd_this_thread.freed == NULL);
}

TEST_MAIN
