/* test_writes.c - tensors and variables that are written several times in one call or run: each
 * read sees the previous write, as in eager code.
 */
#include <math.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

/* --- jits ------------------------------------------------------------------------------------- */

enum { TENSORS = 6 };
typedef struct model {
    gd_tensor *t[TENSORS]; /* f64 (3); the first two are leaves that require a gradient */
    gd_optimizer *optimizer;
    int kind;
} model;

static model make_model(int kind) {
    model m = {.kind = kind};
    gd_seed(11);
    for (int i = 0; i < TENSORS; i++) {
        m.t[i] = gd_add(gd_mul(gd_randn(gd_dims(3), .dtype = GD_F64), gd_scalar_of(0.3, GD_F64)),
                        gd_scalar_of(1, GD_F64));
        if (i < 2) gd_requires_grad(m.t[i]);
    }
    const gd_tensors leaves = {m.t, 2};
    m.optimizer = kind % 3 == 0   ? gd_optim_sgd(leaves, .lr = 0.1)
                  : kind % 3 == 1 ? gd_optim_sgd(leaves, .lr = 0.1, .momentum = 0.9)
                                  : gd_optim_adam(leaves, .lr = 0.1);
    return m;
}

static gd_tensor *apply_norm(const model *m, gd_tensor *x) {
    return gd_batch_norm(x, m->t[0], m->t[1], m->t[2], m->t[3], .training = true);
}

/* Batch norm three times, as in a GAN step; its statistics are read in between. */
static gd_tensors norm_three_times(gd_tensors in, void *user) {
    model *m = user;
    GD_NO_GRAD;
    gd_tensor *a = apply_norm(m, in.at[0]), *b = apply_norm(m, gd_exp(a)),
              *between = gd_mul(m->t[2], m->t[3]);
    gd_tensor *c = apply_norm(m, gd_add(b, between));
    return gd_listed(a, b, between, c, gd_add(m->t[2], m->t[3]));
}

/* Two steps of one optimizer, with new gradients for each or with the same. */
static gd_tensors two_steps(gd_tensors in, void *user) {
    model *m = user;
    gd_tensor *loss = NULL;
    for (int i = 0; i < 2; i++) {
        gd_optimizer_zero_grad(m->optimizer);
        loss = gd_sum(gd_square(gd_sub(gd_mul(m->t[0], in.at[0]), gd_exp(m->t[1]))));
        gd_backward(loss);
        gd_optimizer_step(m->optimizer);
    }
    gd_optimizer_step(m->optimizer);
    return gd_listed(loss, gd_detach(gd_mul(m->t[0], m->t[1])));
}

/* Writes of all kinds to one tensor: in place, by an assign and by ops that update it. */
static gd_tensors write_in_all_ways(gd_tensors in, void *user) {
    model *m = user;
    gd_tensor *x = gd_sum(in.at[0], .axis = gd_dims(0)), *t = m->t[2],
              *lr = gd_scalar_of(0.1, GD_F64);
    GD_NO_GRAD;
    gd_mul_(t, gd_cos(x));
    apply_norm(m, in.at[0]);
    gd_tensor *first = gd_exp(t);
    gd_assign(t, gd_add(t, gd_scalar_of(0.5, GD_F64)));
    gd_sgd_step(t, x, lr);
    gd_momentum_step(m->t[4], t, gd_sin(x), lr, gd_scalar(1)); /* t is its running sum */
    gd_tensor *second = gd_add(t, m->t[4]);
    gd_sub_(t, first);
    gd_assign(m->t[3], t);
    apply_norm(m, in.at[0]);
    return gd_listed(first, second, gd_tanh(t));
}

static void check_function(gd_body fn, const char *name) {
    for (int kind = 0; kind < 3; kind++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            model a = make_model(kind), b = make_model(kind);
            gd_jit *jit = gd_jit_new(fn, &a, .level = level);
            for (int call = 0; call < 4; call++) {
                gd_tensor *x = gd_randn(gd_dims(4 + call % 2, 3), .dtype = GD_F64);
                gd_tensors fast = gd_jit_call(jit, gd_list(x)), slow = fn(gd_list(x), &b);
                CHECK_SAYING(!gd_failed(), "%s: %s", name, gd_error_message());
                if (gd_failed()) return;
                double most = 0;
                for (int i = 0; i < slow.count; i++)
                    most = fmax(most, tensors_distance(fast.at[i], slow.at[i]));
                for (int i = 0; i < TENSORS; i++)
                    most = fmax(most, tensors_distance(a.t[i], b.t[i]));
                CHECK_SAYING(most <= (level == 0 ? 0 : 1e-12),
                             "%s, kind %d, level %d, call %d: %g apart", name, kind, level, call,
                             most);
            }
            CHECK(gd_jit_traces(jit) == 2);
        }
}

CLEAN_TEST(running_statistics_are_updated_by_each_write) {
    check_function(norm_three_times, "thrice");
}
CLEAN_TEST(an_optimizer_takes_several_steps_in_one_call) { check_function(two_steps, "two steps"); }
CLEAN_TEST(several_writes_of_all_kinds_work) { check_function(write_in_all_ways, "mixed"); }

/* The gradient of a value computed before a write uses the value before the write. (Eager code
 * fails here: the value is overwritten.) */
static gd_tensors write_before_backward(gd_tensors in, void *user) {
    model *m = user;
    gd_tensor *loss = gd_sum(gd_mul(gd_square(m->t[0]), gd_mul(m->t[4], in.at[0])));
    {
        GD_NO_GRAD;
        gd_mul_(m->t[0], gd_scalar_of(100, GD_F64));
        gd_add_(m->t[4], gd_scalar_of(100, GD_F64));
        gd_sgd_step(m->t[4], in.at[0], gd_scalar_of(1, GD_F64));
    }
    return gd_listed(gd_grad(gd_list(loss), gd_list(m->t[0])).at[0]);
}

CLEAN_TEST(gradients_use_the_value_that_was_read) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        model m = make_model(0);
        gd_tensor *x = gd_randn(gd_dims(3), .dtype = GD_F64);
        gd_tensor *two = gd_scalar_of(2, GD_F64);
        gd_tensor *expected = gd_mul(gd_mul(gd_clone(gd_detach(m.t[0])), two), gd_mul(m.t[4], x));
        gd_tensor *got = NULL;
        GD_NO_GRAD;
        got = gd_jit_call(gd_jit_new(write_before_backward, &m, .level = level), gd_list(x)).at[0];
        CHECK_SAYING(!gd_failed() && tensors_distance(got, expected) < 1e-12, "level %d: %s", level,
                     gd_error_message());
    }
}

/* Called with the tape on: batch norm twice, its gradient and its statistics. */
static gd_tensors norm_twice(gd_tensors in, void *user) {
    return gd_listed(apply_norm(user, gd_sin(apply_norm(user, in.at[0]))));
}

CLEAN_TEST(recorded_calls_perform_each_write_once) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        model a = make_model(0), b = make_model(0);
        gd_jit *jit = gd_jit_new(norm_twice, &a, .level = level);
        for (int call = 0; call < 3; call++) {
            gd_tensor *x = gd_randn(gd_dims(5, 3), .dtype = GD_F64);
            gd_backward(gd_sum(gd_exp(gd_jit_call(jit, gd_list(x)).at[0])));
            gd_backward(gd_sum(gd_exp(norm_twice(gd_list(x), &b).at[0])));
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            if (gd_failed()) return;
            for (int i = 0; i < 4; i++) CHECK(tensors_distance(a.t[i], b.t[i]) <= 1e-12);
            for (int i = 0; i < 2; i++)
                CHECK(tensors_distance(gd_tensor_grad(a.t[i]), gd_tensor_grad(b.t[i])) <= 1e-9);
        }
    }
}

/* A branch and a loop read earlier writes. */
static gd_tensors add_mean(gd_tensors in, void *user) {
    return gd_listed(gd_add(in.at[0], ((model *)user)->t[2]));
}
static gd_tensors sub_mean(gd_tensors in, void *user) {
    return gd_listed(gd_sub(in.at[0], ((model *)user)->t[2]));
}
static gd_tensors is_near(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(gd_sum(in.at[0]), gd_scalar_of(50, GD_F64)));
}

static gd_tensors read_in_bodies(gd_tensors in, void *user) {
    model *m = user;
    GD_NO_GRAD;
    gd_tensor *x = gd_sum(gd_square(apply_norm(m, in.at[0])), .axis = gd_dims(0));
    gd_tensor *y =
        gd_cond(gd_gt(gd_sum(x), gd_scalar_of(0, GD_F64)), add_mean, sub_mean, gd_list(x), m).at[0];
    apply_norm(m, in.at[0]);
    return gd_listed(y, gd_while_loop(is_near, add_mean, gd_list(y), m, .max_steps = 7).at[0]);
}

CLEAN_TEST(loop_bodies_read_earlier_writes) { check_function(read_in_bodies, "bodies"); }

static gd_tensors write_and_read_view(gd_tensors in, void *user) {
    gd_tensor **pair = user;
    gd_add_(pair[0], in.at[0]);
    return gd_listed(gd_mul(pair[1], in.at[0]));
}

CLEAN_TEST(reading_another_view_of_written_memory_fails_if_it_overlaps) {
    GD_SCOPE;
    gd_tensor *all = gd_zeros(gd_dims(2, 3)), *x = gd_ones(gd_dims(3));
    gd_tensor *overlapping[] = {gd_select(all, 0, 0), gd_slice(all, .axis = 1, .stop = 1)},
              *apart[] = {gd_select(all, 0, 0), gd_select(all, 0, 1)};
    gd_jit_call(gd_jit_new(write_and_read_view, overlapping), gd_list(x));
    CHECK_SAYING(gd_error_status() == GD_E_UNSUPPORTED && says("shares its memory"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_jit_call(gd_jit_new(write_and_read_view, apart), gd_list(x));
    CHECK_SAYING(!gd_failed() && gd_item(gd_sum(all)) == 3, "%s", gd_error_message());
}

/* --- graphs ----------------------------------------------------------------------------------- */

/* Reads between the writes of a variable; with `loop` the run has no plan. */
CLEAN_TEST(reads_in_a_graph_see_earlier_writes) {
    for (int mode = 0; mode < 3; mode++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            gd_graph *graph = gd_graph_new();
            gd_tensor *v, *x, *before, *between, *after, *one, *two, *view;
            {
                GD_GRAPH(graph);
                x = gd_placeholder(gd_dims(mode == 1 ? GD_ANY : 3));
                v = gd_variable(gd_full(gd_dims(3), 1));
                view = gd_reshape(v, gd_dims(3, 1)); /* a view of the value at this point */
                gd_tensor *add =
                    mode == 2 ? gd_sum(gd_masked_select(x, gd_gt(x, gd_scalar(0)))) : gd_sum(x);
                before = gd_mul(v, gd_scalar(1));
                one = gd_assign(v, gd_add(v, add));
                between = gd_mul(v, gd_scalar(1));
                two = gd_assign(v, gd_mul(v, gd_scalar(10)));
                after = gd_mul(v, gd_scalar(1));
            }
            gd_session *s = gd_session_new(graph, .level = level);
            gd_tensor *given = gd_ones(gd_dims(3));
            gd_tensors r = gd_session_run(s, gd_feed(x, given),
                                          gd_list(after, one, between, two, before, view));
            const double expected[] = {40, 4, 4, 40, 1, 1};
            CHECK_SAYING(!gd_failed(), "mode %d: %s", mode, gd_error_message());
            if (gd_failed()) return;
            for (int i = 0; i < 6; i++)
                CHECK_SAYING(gd_item(gd_max(r.at[i])) == expected[i],
                             "mode %d, level %d, fetch %d: %g", mode, level, i,
                             gd_item(gd_max(r.at[i])));
            CHECK(gd_item(gd_max(gd_session_get(s, v))) == 40);
            /* a run performs only what its fetches need: no write, one write, both */
            CHECK(gd_item(gd_max(gd_session_run(s, gd_feed(x, given), gd_list(after)).at[0])) ==
                  40);
            r = gd_session_run(s, gd_feed(x, given), gd_list(after, one));
            CHECK(gd_item(gd_max(r.at[0])) == 43 && gd_item(gd_max(gd_session_get(s, v))) == 43);
        }
}

/* The fed tensor is written by the run that assigns its old value to another one. */
CLEAN_TEST(a_feed_has_its_value_of_the_start_of_the_run) {
    for (int level = 0; level <= 2; level++) {
        GD_SCOPE;
        gd_tensor *fed = gd_full(gd_dims(9), 1), *copy = gd_zeros(gd_dims(9)), *x, *add, *set;
        gd_graph *graph = gd_graph_new();
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(9));
            add = gd_assign(fed, gd_add(fed, gd_scalar(10)));
            set = gd_assign(copy, x);
        }
        gd_session *s = gd_session_new(graph, .level = level);
        for (int i = 0; i < 3; i++) {
            gd_session_run(s, gd_feed(x, fed), gd_list(add, set));
            CHECK_SAYING(gd_item(gd_max(copy)) == 1 + 10 * i && gd_item(gd_max(fed)) == 11 + 10 * i,
                         "level %d, run %d: %g", level, i, gd_item(gd_max(copy)));
        }
        CHECK(!gd_failed());
    }
}

static gd_tensors multiply_captured(gd_tensors in, void *outside) {
    return gd_listed(gd_mul(in.at[0], outside));
}
static gd_tensors multiply_captured_in_branch(gd_tensors in, void *outside) {
    return gd_cond(gd_gt(in.at[0], gd_scalar(0)), multiply_captured, multiply_captured, in,
                   outside);
}

CLEAN_TEST(a_branch_sees_earlier_writes_to_a_captured_tensor) {
    GD_SCOPE;
    gd_tensor *outside = gd_scalar(1), *other = gd_scalar(7), *x, *before, *write, *after;
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims());
        gd_tensor *choice = gd_gt(x, gd_scalar(0));
        before = gd_cond(choice, multiply_captured, multiply_captured, gd_list(x), outside).at[0];
        write = gd_assign(outside, gd_scalar(5));
        after = gd_cond(choice, multiply_captured_in_branch, multiply_captured, gd_list(x), outside)
                    .at[0];
        after = gd_add(
            after, gd_cond(choice, multiply_captured, multiply_captured, gd_list(x), other).at[0]);
    }
    for (int level = 0; level <= 2; level++) {
        const float one = 1;
        CHECK(gd_copy_from(outside, &one, sizeof one) == GD_OK);
        gd_session *session = gd_session_new(graph, .level = level);
        gd_tensors r =
            gd_session_run(session, gd_feed(x, gd_scalar(3)), gd_list(before, after, write));
        CHECK_SAYING(gd_item(r.at[0]) == 3 && gd_item(r.at[1]) == 15 + 21 && gd_item(outside) == 5,
                     "level %d: %g, %g, %g: %s", level, gd_item(r.at[0]), gd_item(r.at[1]),
                     gd_item(outside), gd_error_message());
    }
}

CLEAN_TEST(gradients_in_a_graph_use_the_value_that_was_read) {
    for (int any = 0; any < 2; any++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            gd_graph *graph = gd_graph_new();
            gd_tensor *v, *x, *loss, *update, *g;
            {
                GD_GRAPH(graph);
                x = gd_placeholder(gd_dims(any ? GD_ANY : 2));
                v = gd_variable(gd_full(gd_dims(2), 3));
                loss = gd_sum(gd_mul(gd_square(v), x));
                update = gd_assign(v, gd_full(gd_dims(2), 100));
                g = gd_gradients(gd_list(loss), gd_list(v)).at[0];
            }
            gd_session *s = gd_session_new(graph, .level = level);
            gd_tensors r =
                gd_session_run(s, gd_feed(x, gd_ones(gd_dims(2))), gd_list(update, g, loss));
            CHECK_SAYING(!gd_failed() && gd_item(gd_max(r.at[1])) == 6 && gd_item(r.at[2]) == 18,
                         "%g %s", gd_item(gd_max(r.at[1])), gd_error_message());
        }
}

/* Three batch norms and two steps in one run of a graph, compared with eager code. */
CLEAN_TEST(a_graph_updates_as_often_as_eager_code) {
    for (int kind = 0; kind < 3; kind++)
        for (int level = 0; level <= 2; level++) {
            GD_SCOPE;
            model m = make_model(kind), n = make_model(kind);
            gd_graph *graph = gd_graph_new();
            gd_tensor *x, *y, *done;
            {
                GD_GRAPH(graph);
                x = gd_placeholder(gd_dims(GD_ANY, 3), .dtype = GD_F64);
                for (int i = 0; i < TENSORS; i++) m.t[i] = gd_variable(m.t[i], .trainable = i < 2);
                const gd_tensors leaves = {m.t, 2};
                gd_optimizer *o = kind == 0   ? gd_optim_sgd(leaves, .lr = 0.1)
                                  : kind == 1 ? gd_optim_sgd(leaves, .lr = 0.1, .momentum = 0.9)
                                              : gd_optim_adam(leaves, .lr = 0.1);
                gd_tensor *h = apply_norm(&m, gd_sin(apply_norm(&m, x)));
                gd_tensor *one = gd_minimize(o, gd_sum(gd_square(h)));
                y = gd_sum(gd_exp(apply_norm(&m, x)));
                done = gd_group(gd_list(one, gd_minimize(o, y)));
            }
            gd_session *s = gd_session_new(graph, .level = level);
            for (int run = 0; run < 3; run++) {
                gd_tensor *given = gd_randn(gd_dims(4, 3), .dtype = GD_F64);
                gd_tensors r = gd_session_run(s, gd_feed(x, given), gd_list(y, done));
                gd_optimizer_zero_grad(n.optimizer);
                gd_backward(gd_sum(gd_square(apply_norm(&n, gd_sin(apply_norm(&n, given))))));
                gd_optimizer_step(n.optimizer);
                gd_optimizer_zero_grad(n.optimizer);
                gd_tensor *expected = gd_sum(gd_exp(apply_norm(&n, given)));
                gd_backward(expected);
                gd_optimizer_step(n.optimizer);
                CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
                if (gd_failed()) return;
                double most = tensors_distance(r.at[0], expected);
                for (int i = 0; i < 4; i++)
                    most = fmax(most, tensors_distance(gd_session_get(s, m.t[i]), n.t[i]));
                CHECK_SAYING(most <= (level == 0 ? 0 : 1e-10),
                             "kind %d, level %d, run %d: %g apart", kind, level, run, most);
            }
        }
}

TEST_MAIN
