/* test_trace_values.c - C values, such as modes, that a traced function reads. */
#include "clean_test.h"
#include "core/alloc.h"
#include "core/object.h"
#include "gradus/gradus.h"
#include "graph/build/graph.h"

/* An object with a mode, as a module has one. */
typedef struct moded_object {
    gd_object object;
    int mode;
} moded_object;

static int destroyed;
static void moded_object_destroy(gd_object *object) {
    destroyed++;
    gd_free(object);
}
static const gd_class moded_object_class = {.name = "thing", .destroy = moded_object_destroy};

static moded_object *moded_object_new(int mode) {
    moded_object *t = gd_calloc(1, sizeof *t);
    gd_object_init(&t->object, &moded_object_class);
    t->mode = mode;
    return t;
}

static int mode_of(moded_object *t) {
    CHECK(gd_trace_record_value(&t->object, &t->mode) == GD_OK);
    return t->mode;
}

/* x * mode */
static gd_tensors scale_by_mode(gd_tensors in, void *user) {
    return gd_listed(gd_mul(in.at[0], gd_scalar(mode_of(user))));
}

static double call_jit(gd_jit *jit, double x) {
    return gd_item(gd_jit_call(jit, gd_list(gd_scalar(x))).at[0]);
}

CLEAN_TEST(a_jit_keeps_a_plan_for_each_value) {
    moded_object *t = moded_object_new(2);
    {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(scale_by_mode, t);
        CHECK(call_jit(jit, 3) == 6 && gd_jit_traces(jit) == 1);
        t->mode = 5;
        CHECK(call_jit(jit, 3) == 15 && gd_jit_traces(jit) == 2);
        t->mode = 2;
        CHECK(call_jit(jit, 4) == 8 && call_jit(jit, 5) == 10 && gd_jit_traces(jit) == 2);
        t->mode = 5;
        CHECK(call_jit(jit, 4) == 20 && gd_jit_traces(jit) == 2);
    }
    gd_object_release(&t->object);
}

CLEAN_TEST(a_trace_holds_a_reference_to_the_owner_of_a_value) {
    moded_object *t = moded_object_new(2);
    destroyed = 0;
    {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(scale_by_mode, t);
        CHECK(call_jit(jit, 3) == 6);
        gd_object_release(&t->object);
        CHECK(destroyed == 0 && call_jit(jit, 3) == 6);
    }
    CHECK(destroyed == 1);
}

CLEAN_TEST(a_value_that_was_not_read_does_not_retrace) {
    moded_object *t = moded_object_new(2), *other = moded_object_new(1);
    {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(scale_by_mode, t);
        CHECK(call_jit(jit, 3) == 6);
        mode_of(other); /* outside the traced function */
        other->mode = 7;
        CHECK(call_jit(jit, 3) == 6 && gd_jit_traces(jit) == 1);
    }
    gd_object_release(&t->object);
    gd_object_release(&other->object);
}

static gd_tensors call_inner_jit(gd_tensors in, void *user) { return gd_jit_call(user, in); }

CLEAN_TEST(an_inner_jit_propagates_its_values_to_the_outer_one) {
    moded_object *t = moded_object_new(2);
    {
        GD_SCOPE;
        gd_jit *inner = gd_jit_new(scale_by_mode, t), *outer = gd_jit_new(call_inner_jit, inner);
        CHECK(call_jit(outer, 3) == 6);
        t->mode = 4;
        CHECK(call_jit(outer, 3) == 12 && call_jit(inner, 3) == 12);
        t->mode = 2;
        CHECK(call_jit(outer, 3) == 6 && gd_jit_traces(outer) == 2 && gd_jit_traces(inner) == 1);
    }
    gd_object_release(&t->object);
}

static gd_tensors scale_in_branches(gd_tensors in, void *user) {
    return gd_cond(gd_gt(gd_sum(in.at[0]), gd_scalar(0)), scale_by_mode, scale_by_mode, in, user);
}

/* Sums the rows of x, each multiplied by the mode. */
static gd_tensors add_row(gd_tensors in, void *user) {
    gd_tensor *sum = gd_add(in.at[0], gd_mul(in.at[1], gd_scalar(mode_of(user))));
    return gd_listed(sum, sum);
}
static gd_tensors scale_in_loop(gd_tensors in, void *user) {
    return gd_scan(add_row, gd_list(gd_scalar(0)), in, user).state;
}

CLEAN_TEST(values_are_recorded_in_branches_and_loop_bodies) {
    moded_object *t = moded_object_new(2);
    {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(scale_in_branches, t), *loop = gd_jit_new(scale_in_loop, t);
        gd_tensor *x = gd_ones(gd_dims(3));
        CHECK(call_jit(jit, 3) == 6 && gd_item(gd_jit_call(loop, gd_list(x)).at[0]) == 6);
        t->mode = 4;
        CHECK(call_jit(jit, 3) == 12 && gd_item(gd_jit_call(loop, gd_list(x)).at[0]) == 12);
        t->mode = 2;
        CHECK(call_jit(jit, 3) == 6 && gd_item(gd_jit_call(loop, gd_list(x)).at[0]) == 6);
        CHECK(gd_jit_traces(jit) == 2 && gd_jit_traces(loop) == 2);
    }
    gd_object_release(&t->object);
}

CLEAN_TEST(a_graph_stays_in_the_mode_in_which_it_was_built) {
    moded_object *t = moded_object_new(2);
    {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *y;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims());
            y = scale_by_mode(gd_list(x), t).at[0];
        }
        CHECK(graph->n_values == 0);
        t->mode = 9;
        gd_session *s = gd_session_new(graph);
        CHECK(gd_item(gd_session_run(s, gd_feed(x, gd_scalar(3)), gd_list(y)).at[0]) == 6);
    }
    gd_object_release(&t->object);
}

/* Another mode in a part of the function, as for an evaluation in the middle of a step. */
static gd_tensors change_and_restore_mode(gd_tensors in, void *user) {
    moded_object *t = user;
    const int before = mode_of(t);
    t->mode = 10;
    gd_tensor *y = gd_mul(in.at[0], gd_scalar(mode_of(t)));
    t->mode = before;
    return gd_listed(gd_add(y, gd_scalar(mode_of(t))));
}
static gd_tensors change_mode(gd_tensors in, void *user) {
    moded_object *t = user;
    mode_of(t);
    t->mode = 10;
    return gd_listed(gd_mul(in.at[0], gd_scalar(mode_of(t))));
}

CLEAN_TEST(a_function_may_change_a_value_temporarily) {
    moded_object *t = moded_object_new(2);
    {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(change_and_restore_mode, t), *wrong = gd_jit_new(change_mode, t);
        CHECK(call_jit(jit, 3) == 32 && call_jit(jit, 3) == 32 && gd_jit_traces(jit) == 1);
        t->mode = 3;
        CHECK(call_jit(jit, 3) == 33 && gd_jit_traces(jit) == 2);
        gd_jit_call(wrong, gd_list(gd_scalar(1)));
        CHECK_SAYING(gd_failed() && says("the mode of a thing") && says("test_trace_values.c"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
    gd_object_release(&t->object);
}

TEST_MAIN
