/* test_fuse.c - chains of elementwise ops become one kernel, which computes the same results. */
#include "backend/test/device.h"
#include "codegen/native.h"
#include "test.h"
#include "backend/cpu/isa.h"
#include "draw.h"
#include "fuse_ways.h"
#include "graph/lower/program.h"

/* --- which ops are fused ---------------------------------------------------------------------- */

static results chain_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){{gd_mul(gd_gelu(gd_add(gd_mul(x[0], gd_scalar(2)), gd_scalar(1))), x[0])}, 1};
}

TEST(a_chain_becomes_one_step) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(5, 7));
    planned plain = plan(chain_body, NULL, &x, 1, 0), fused = plan(chain_body, NULL, &x, 1, 2);
    char *before = text_of(&plain), *after = text_of(&fused);
    CHECK_SAYING(count(before, " = ") == 4 && count(before, "fused") == 0, "%s", before);
    CHECK_SAYING(count(after, " = ") == 1 &&
                     strstr(after, "fused{mul, add, gelu, mul}(%0 (feed 0) f32[5,7]"),
                 "%s", after);
    free(before);
    free(after);
    check_all_ways("chain", chain_body, NULL, &x, 1, 0);
}

/* A value that is fetched, or that a later step reads, is also a result of the kernel. */
static results branches_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *e = gd_exp(x[0]), *t = gd_tanh(e);
    return (results){{gd_add(t, e), t, gd_sum(gd_cumsum(e, 0)), gd_reshape(t, gd_dims(35))}, 4};
}

TEST(a_value_that_later_steps_read_is_stored) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(5, 7));
    planned fused = plan(branches_body, NULL, &x, 1, 2);
    char *after = text_of(&fused);
    CHECK_SAYING(count(after, "fused{exp, tanh, add}") == 1 && count(after, "tanh(") == 0, "%s",
                 after);
    free(after);
    check_all_ways("branches", branches_body, NULL, &x, 1, 0);
}

/* A softmax lies between exp(x) and the final sum: they cannot be one step. */
static results detour_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *e = gd_neg(gd_exp(x[0]));
    gd_tensor *around = gd_softmax(e, .axis = -1);
    gd_tensor *other = gd_square(gd_sqrt(gd_abs(x[1])));
    return (results){{gd_mul(gd_add(gd_add(e, around), other), gd_tanh(e)), gd_add(other, e)}, 2};
}

TEST(a_group_does_not_depend_on_itself) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(6, 9)), gd_randn(gd_dims(6, 9))};
    planned fused = plan(detour_body, NULL, x, 2, 2);
    char *after = text_of(&fused);
    CHECK_SAYING(count(after, "softmax(") == 1 && count(after, "fused{") == 2, "%s", after);
    free(after);
    check_all_ways("detour", detour_body, NULL, x, 2, 0);
}

/* More steps, results and operands than one kernel can have. */
static results long_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *y = x[0];
    for (int i = 0; i < 300; i++) y = i % 3 ? gd_add(y, x[i % 5]) : gd_tanh(y);
    return (results){{y}, 1};
}
static results many_results_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    results r = {.count = 12};
    for (int i = 0; i < 12; i++) r.at[i] = gd_mul(i ? r.at[i - 1] : x[0], gd_sin(x[i % 5]));
    return r;
}
static results many_operands_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *y = x[0];
    for (int i = 1; i < 22; i++) y = gd_add(y, gd_square(x[i]));
    return (results){{y}, 1};
}

TEST(a_chain_too_long_for_one_kernel_becomes_several) {
    GD_SCOPE;
    gd_tensor *x[22];
    for (int i = 0; i < 22; i++) x[i] = gd_randn(gd_dims(3, 11));
    planned fused = plan(long_body, NULL, x, 5, 2);
    char *after = text_of(&fused);
    CHECK_SAYING(count(after, "fused{") >= 3 && count(after, " = ") < 10 && strstr(after, "more}"),
                 "%s", after);
    free(after);
    check_all_ways("a long chain", long_body, NULL, x, 5, 0);
    check_all_ways("many results", many_results_body, NULL, x, 5, 0);
    check_all_ways("many operands", many_operands_body, NULL, x, 22, 0);
}

/* --- shapes, scalars, types ------------------------------------------------------------------- */

static results broadcast_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *a = gd_add(gd_mul(x[0], x[1]), x[2]); /* (7,33), (33), (7,1) */
    gd_tensor *b = gd_where(gd_gt(a, x[3]), gd_exp(gd_neg(a)), gd_permute(x[4], gd_dims(1, 0)));
    gd_tensor *small =
        gd_mul(gd_tanh(x[1]), x[3]); /* a group of another shape that this one reads */
    return (results){{gd_sub(gd_mul(b, small), gd_full(gd_dims(7, 33), 0.25)),
                      gd_logical_and(gd_gt(a, x[3]), gd_lt(b, a))},
                     2};
}

TEST(operands_broadcast_and_scalars_are_read_once) {
    GD_SCOPE;
    for (int wide = 0; wide < 2; wide++) {
        const gd_dtype dtype = wide ? GD_F64 : GD_F32;
        gd_tensor *x[5] = {noise(gd_dims(7, 33), dtype), noise(gd_dims(33), dtype),
                           noise(gd_dims(7, 1), dtype), noise(gd_dims(), dtype),
                           noise(gd_dims(33, 7), dtype)};
        planned p = plan(broadcast_body, NULL, x, 5, 2);
        char *text = text_of(&p);
        CHECK_SAYING(strstr(text, "gt, ") && !strstr(text, " gt(") && !strstr(text, "where("), "%s",
                     text);
        free(text);
        check_all_ways("broadcast", broadcast_body, NULL, x, 5, 0);
    }
}

/* f16 and bf16 are rounded when the kernel stores them, not at every step. */
static results half_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *y = gd_tanh(gd_add(gd_mul(x[0], x[0]), x[1]));
    return (results){{y, gd_cast(gd_cast(gd_mul(x[2], gd_scalar(3)), GD_BF16), GD_F32)}, 2};
}

TEST(f16_and_bf16_are_computed_as_f32) {
    GD_SCOPE;
    gd_tensor *x[3] = {noise(gd_dims(9, 5), GD_BF16), noise(gd_dims(9, 5), GD_BF16),
                       gd_randn(gd_dims(9, 5))};
    check_all_ways("bf16", half_body, NULL, x, 3, 0.01);
    GD_SCOPE;
    planned p = plan(half_body, NULL, x, 3, 2);
    /* an explicit cast does round */
    CHECK(same_numbers(run(&p).at[1], half_body(x, NULL).at[1], 0));
}

static results integer_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *y = gd_bitwise_xor(gd_add(gd_mul(x[0], x[1]), x[0]), x[1]);
    return (results){{gd_maximum(gd_neg(y), x[2]), gd_eq(y, x[0]), gd_sub(x[2], y)}, 3};
}

TEST(fused_integers_wrap_like_eager_ones) {
    GD_SCOPE;
    static const gd_dtype dtypes[] = {GD_I64, GD_I32, GD_I8, GD_U8};
    for (int i = 0; i < 4; i++) {
        gd_tensor *x[3];
        for (int k = 0; k < 3; k++)
            x[k] = gd_cast(gd_mul(gd_randn(k == 2 ? gd_dims() : gd_dims(40)), gd_scalar(40)),
                           dtypes[i]);
        check_all_ways(gd_dtype_name(dtypes[i]), integer_body, NULL, x, 3, 0);
    }
    /* integers that f64 cannot represent */
    gd_tensor *large[3] = {
        gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){INT64_MAX, 9007199254740993})),
        gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){1, 3})),
        gd_from_array(gd_dims(), GD_I64, ((int64_t[]){9007199254740993}))};
    check_all_ways("large", integer_body, NULL, large, 3, 0);
}

/* 0 times infinity or NaN is NaN, even if the 0 is a constant. */
static results zero_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){
        {gd_add(gd_mul(gd_log(x[0]), gd_full(gd_dims(4), 0)), gd_full(gd_dims(), -0.0))}, 1};
}

TEST(constant_zeros_are_not_folded_away) {
    GD_SCOPE;
    gd_tensor *x = gd_from_array(gd_dims(4), GD_F32, ((float[]){0, -1, 1, INFINITY}));
    check_all_ways("zeros", zero_body, NULL, &x, 1, 0);
}

/* --- every op, in random chains --------------------------------------------------------------- */

static bool is_eligible(const gd_op *op) {
    const unsigned no = GD_OP_INPLACE | GD_OP_RANDOM | GD_OP_INTEGRAL | GD_OP_USER;
    if (!(gd_op_flags(op) & GD_OP_ELEMENTWISE) || (gd_op_flags(op) & no)) return false;
    for (int i = 0; i < gd_op_attr_count(op); i++)
        if (gd_op_attr_at(op, i)->required && gd_op_attr_at(op, i)->type != GD_ATTR_FLOAT &&
            gd_op_attr_at(op, i)->type != GD_ATTR_NUMBER)
            return false;
    for (int i = 0; i < gd_op_input_count(op); i++)
        if (gd_op_input(op, i)->mutated || gd_op_input(op, i)->variadic) return false;
    return gd_op_input_count(op) > 0;
}

typedef struct random_chain {
    uint64_t seed;
    int first, length; /* the chain calls these eligible ops of the table */
} random_chain;

static const gd_op *eligible_op(int number) {
    for (int i = 0; i < gd_op_count(); i++)
        if (is_eligible(gd_op_at(i)) && number-- == 0) return gd_op_at(i);
    return NULL;
}

/* Each op reads the result of the previous op, and random earlier results. */
static results random_body(gd_tensor *const *x, const void *arg) {
    const random_chain *c = arg;
    draws stream = {c->seed};
    gd_tensor *pool[MAX_VALUES] = {x[0], x[1], x[2], x[3]};
    int n = 4;
    for (int i = 0; i < c->length; i++) {
        const gd_op *op = eligible_op(c->first + i);
        if (!op) break;
        gd_tensor *in[8];
        const int n_in = gd_op_input_count(op), chosen = draw_below(&stream, n_in);
        for (int k = 0; k < n_in; k++) in[k] = pool[k == chosen ? n - 1 : draw_below(&stream, n)];
        for (int k = 0; k < n_in; k++) { /* convert to a dtype that the op takes */
            if (strcmp(gd_op_input(op, k)->name, "mask") == 0) in[k] = gd_gt(in[k], x[3]);
            else if (gd_op_flags(op) & GD_OP_INTERNAL)
                in[k] = gd_cast(in[k], gd_tensor_dtype(x[0]));
        }
        gd_attrs *attrs = gd_attrs_new(op);
        for (int k = 0; k < gd_op_attr_count(op); k++)
            if (gd_op_attr_at(op, k)->required)
                gd_attrs_set_float(attrs, gd_op_attr_at(op, k)->name, 1.5);
        gd_tensors y = gd_op_call(op, ((gd_tensors){in, n_in}), attrs);
        if (y.count == 0) break;
        pool[n++] = y.at[0]; /* as a float below if bool: not every op takes a bool */
        if (gd_tensor_dtype(y.at[0]) == GD_BOOL && i + 1 < c->length)
            pool[n - 1] = gd_cast(y.at[0], gd_tensor_dtype(x[0]));
    }
    return (results){{pool[n - 1]}, 1};
}

TEST(random_chains_of_every_op_agree_with_eager) {
    GD_SCOPE;
    int ops = 0;
    while (eligible_op(ops)) ops++;
    gd_seed(7);
    for (int wide = 0; wide < 2; wide++) {
        const gd_dtype dtype = wide ? GD_F64 : GD_F32;
        gd_tensor *x[4] = {noise(gd_dims(5, 23), dtype), noise(gd_dims(23), dtype),
                           noise(gd_dims(5, 23), dtype), noise(gd_dims(), dtype)};
        for (int first = 0; first < ops; first += 6) {
            char what[80];
            const random_chain c = {(uint64_t)(first * 7919 + wide), first, 6};
            snprintf(what, sizeof what, "chain from %s, %s", gd_op_name(eligible_op(first)),
                     gd_dtype_name(dtype));
            check_all_ways(what, random_body, &c, x, 4, 0);
        }
    }
    CHECK_SAYING(ops > 80, "%d ops", ops);
    CHECK(gd_native_count().compiled + gd_native_count().loaded > 20);
}

/* Each instruction set has its own evaluator and its own compiled kernels. */
TEST(all_instruction_sets_agree_with_eager) {
    GD_SCOPE;
    const gd_isa before = gd_cpu_isa();
    gd_tensor *x = gd_randn(gd_dims(5, 7));
    for (int isa = 0; isa < GD_ISA_COUNT; isa++)
        if (gd_cpu_set_isa((gd_isa)isa) == (gd_isa)isa)
            check_all_ways(gd_isa_name((gd_isa)isa), chain_body, NULL, &x, 1, 0);
    gd_cpu_set_isa(before);
}

/* --- gradients and training ------------------------------------------------------------------- */

static results gradient_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *w = x[0]->requires_grad ? x[0] : gd_requires_grad(gd_clone(x[0]));
    gd_tensor *y =
        gd_mul(gd_sigmoid(gd_add(gd_mul(w, x[1]), gd_sin(w))), gd_exp(gd_neg(gd_square(w))));
    gd_tensor *g = gd_grad(gd_list(gd_sum(y)), gd_list(w), .create_graph = true).at[0];
    gd_tensor *h = gd_grad(gd_list(gd_sum(gd_mul(g, g))), gd_list(w)).at[0];
    return (results){{y, g, h}, 3};
}

TEST(gradients_and_their_gradients_are_fused_too) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(6, 5)), gd_randn(gd_dims(5))};
    check_all_ways("gradients", gradient_body, NULL, x, 2, 1e-5);
}

typedef struct net {
    gd_graph *graph;
    gd_tensor *x, *w, *b, *m, *loss, *train;
} net;

static net make_net(void) {
    net n = {.graph = gd_graph_new()};
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(16, 30));
    n.w = gd_variable(gd_mul(gd_randn(gd_dims(30, 12)), gd_scalar(0.2)));
    n.b = gd_variable(gd_zeros(gd_dims(12)));
    n.m = gd_variable(gd_zeros(gd_dims(30, 12)));
    gd_tensor *y = gd_tanh(gd_add(gd_matmul(n.x, n.w), n.b));
    n.loss = gd_mean(gd_square(gd_sub(y, gd_scalar(0.3))));
    gd_tensors g = gd_gradients(gd_list(n.loss), gd_list(n.w, n.b));
    gd_tensor *m = gd_assign(n.m, gd_add(gd_mul(n.m, gd_scalar(0.9)), g.at[0]));
    n.train = gd_group(gd_list(m, gd_assign(n.w, gd_sub(n.w, gd_mul(m, gd_scalar(0.1)))),
                               gd_assign(n.b, gd_sub(n.b, gd_mul(g.at[1], gd_scalar(0.1))))));
    return n;
}

TEST(variables_are_updated_in_place) {
    GD_SCOPE;
    gd_tensor *w[2], *b[2], *x = gd_randn(gd_dims(16, 30));
    for (int level = 0; level < 3; level += 2) {
        gd_seed(3);
        net n = make_net();
        gd_session *s = gd_session_new(n.graph, .level = level);
        for (int i = 0; i < 20; i++) gd_session_run(s, gd_feed(n.x, x), gd_list(n.train, n.loss));
        w[level / 2] = gd_session_get(s, n.w);
        b[level / 2] = gd_session_get(s, n.b);
        char *text = gd_session_plan_text(s, gd_feed(n.x, x), gd_list(n.train, n.loss));
        if (level)
            CHECK_SAYING(strstr(text, "fused{mul, add, mul, sub}") && strstr(text, ", mean}"), "%s",
                         text);
        free(text);
    }
    CHECK_SAYING(!gd_failed() && same_numbers(w[0], w[1], 1e-4) && same_numbers(b[0], b[1], 1e-4),
                 "%s", gd_error_message());
}

/* --- reductions ------------------------------------------------------------------------------- */

typedef struct reduced {
    const char *op, *options;
} reduced;

static results reduce_body(gd_tensor *const *x, const void *arg) {
    const reduced *r = arg;
    gd_tensor *d = gd_sub(x[0], x[1]);
    gd_tensor *y = gd_call(r->op, gd_list(gd_mul(gd_square(d), x[2])), r->options);
    return (results){{y, gd_exp(d)},
                     2}; /* two ops read d, and the kernel stores exp(d) beside the reduction */
}

TEST(a_reduction_absorbs_the_ops_before_it) {
    GD_SCOPE;
    static const char *const ops[] = {"sum", "mean", "max", "min"};
    static const char *const axes[] = {"",         "axis=0",
                                       "axis=1",   "axis=2",
                                       "axis=0,1", "axis=1,2 keepdim=true",
                                       "axis=0,2", "axis=-1 keepdim=true"};
    static const int64_t shapes[][3] = {{3, 5, 7},    {1, 1, 4099}, {70, 3, 2}, {2, 300, 40},
                                        {40, 30, 10}, {3000, 1, 5}, {1, 9, 1}};
    for (int s = 0; s < 7; s++)
        for (int k = 0; k < 8; k++)
            for (int o = 0; o < 4; o++) {
                GD_SCOPE;
                if (s > 1 && o != k % 4) continue;
                const int64_t *d = shapes[s];
                const gd_dtype dtype = k % 3 == 2 ? GD_F64 : GD_F32;
                gd_tensor *x[3] = {noise(gd_dims(d[0], d[1], d[2]), dtype),
                                   noise(gd_dims(d[2]), dtype), noise(gd_dims(d[1], 1), dtype)};
                reduced r = {ops[o], axes[k]};
                char what[80];
                snprintf(what, sizeof what, "%s %s of [%d,%d,%d]", r.op, r.options, (int)d[0],
                         (int)d[1], (int)d[2]);
                check_all_ways(what, reduce_body, &r, x, 3, 1e-5);
                planned p = plan(reduce_body, &r, x, 3, 2);
                char *text = text_of(&p), name[64];
                snprintf(name, sizeof name, "mul, exp, %s}", r.op);
                CHECK_SAYING(strstr(text, name), "%s: %s", what, text);
                free(text);
            }
}

static results short_rows_body(gd_tensor *const *x, const void *arg) {
    return (results){
        {gd_call("sum", gd_list(gd_square(gd_add(x[0], x[1]))), arg), gd_add(gd_tanh(x[0]), x[1])},
        2};
}

/* Short rows are processed as one contiguous run of elements, in which the bias repeats. */
TEST(a_bias_of_short_rows_is_read_at_the_right_offset) {
    GD_SCOPE;
    static const int64_t shapes[][2] = {{2, 3},   {70, 3},   {1000, 10},
                                        {33, 64}, {3000, 7}, {300, 200}};
    static const char *const axes[] = {"", "axis=0", "axis=1"};
    for (int s = 0; s < 6; s++)
        for (int k = 0; k < 3; k++) {
            GD_SCOPE;
            const gd_dtype dtype = k == 2 ? GD_F64 : GD_F32;
            gd_tensor *x[2] = {noise(gd_dims(shapes[s][0], shapes[s][1]), dtype),
                               noise(gd_dims(shapes[s][1]), k == 1 ? GD_BF16 : dtype)};
            check_all_ways(axes[k], short_rows_body, axes[k], x, 2, 1e-5);
        }
}

static results bias_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){{gd_sum(gd_mul(gd_tanh(x[0]), x[1]), .axis = gd_dims(0))}, 1};
}

TEST(reductions_have_the_same_bits_on_any_number_of_threads) {
    GD_SCOPE;
    gd_tensor *x[2] = {gd_randn(gd_dims(900, 130)), gd_randn(gd_dims(900, 130))};
    check_all_ways("bias", bias_body, NULL, x, 2, 1e-5);
    gd_tensor *first = NULL;
    for (int threads = 1; threads < 5; threads++) {
        gd_set_num_threads(threads);
        planned p = plan(bias_body, NULL, x, 2, 2);
        gd_tensor *y = gd_clone(run(&p).at[0]);
        if (!first) first = y;
        CHECK(same_numbers(first, y, 0));
    }
    gd_set_num_threads(2);
}

/* --- user-defined ops ------------------------------------------------------------------------- */

static results own_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    return (results){{gd_softmax(gd_call("bent", gd_list(x[0]), "by=0.5"), .axis = 0)}, 1};
}

TEST(an_op_without_a_kernel_gets_a_generated_one) {
    GD_SCOPE;
    CHECK(gd_op_define("bent(x) -> y  elementwise float\nBent.\n  by float = 1\n  y = x / (1 + "
                       "exp(-by*x)) + abs(x)\n",
                       NULL) == GD_OK);
    gd_tensor *x = gd_randn(gd_dims(13, 3));
    planned p = plan(own_body, NULL, &x, 1, 2);
    char *text = text_of(&p);
    CHECK_SAYING(strstr(text, "fused{bent}"), "%s", text);
    free(text);
    check_all_ways("bent", own_body, NULL, &x, 1, 0);
}

/* --- profiler and devices --------------------------------------------------------------------- */

TEST(the_profiler_lists_the_ops_of_a_kernel) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(5, 7));
    planned p = plan(chain_body, NULL, &x, 1, 2);
    gd_profiler_clear();
    gd_profiler_start();
    run(&p);
    gd_profiler_stop();
    gd_profile_row row;
    bool found = false;
    for (int64_t i = 0; gd_profiler_row(i, &row); i++)
        found |= strcmp(row.op, "fused{mul, add, gelu, mul}") == 0;
    CHECK(found);
    gd_profiler_clear();
}

/* The host cannot read the memory of this device: the kernel reads scalars there. */
TEST(fused_steps_run_on_other_devices) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensor *x = gd_randn(gd_dims(40, 7)), *bias = gd_randn(gd_dims(7));
    reduced r = {"mean", "axis=0"};
    results eager = reduce_body((gd_tensor *[]){x, bias, bias}, &r);
    gd_graph *graph = gd_graph_new();
    gd_tensor *symbols[3];
    results y;
    {
        GD_GRAPH(graph);
        GD_DEVICE(device);
        for (int i = 0; i < 3; i++) symbols[i] = gd_placeholder(i ? gd_dims(7) : gd_dims(40, 7));
        y = reduce_body(symbols, &r);
    }
    gd_session *s = gd_session_new(graph, .device = device);
    gd_tensor *there = gd_to_device(bias, device);
    gd_tensors got = gd_session_run(
        s, gd_feed(symbols[0], gd_to_device(x, device), symbols[1], there, symbols[2], there),
        ((gd_tensors){y.at, y.count}));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    for (int i = 0; i < 2 && !gd_failed(); i++)
        CHECK(same_numbers(gd_to_device(got.at[i], gd_device_get("cpu")), eager.at[i], 1e-6));
    gd_clear_error();
}

/* --- limits of integers ----------------------------------------------------------------------- */

/* Missing limits are infinite, and others are outside the range of the integer dtype. */
static results clamp_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *t = gd_mul(x[0], x[0]);
    gd_tensor *low = gd_clamp(t, .min = 2), *high = gd_clamp(t, .max = 3);
    gd_tensor *free = gd_clamp(t, .min = -1e30, .max = 1e30);
    return (results){{low, high, free}, 3};
}

TEST(limits_outside_the_integer_range_change_nothing) {
    GD_SCOPE;
    static const int64_t want[3][5] = {{4, 2, 2, 2, 4}, {3, 1, 0, 1, 3}, {4, 1, 0, 1, 4}};
    const gd_dtype dtypes[] = {GD_I8, GD_I32, GD_I64};
    for (int d = 0; d < 3; d++) {
        gd_tensor *x = gd_arange(-2, 3, .dtype = dtypes[d]);
        const results eager = clamp_body(&x, NULL);
        for (int i = 0; i < 3; i++)
            CHECK(same_numbers(gd_cast(eager.at[i], GD_I64),
                               gd_from_array(gd_dims(5), GD_I64, want[i]), 0));
        check_all_ways(gd_dtype_name(dtypes[d]), clamp_body, NULL, &x, 1, 0);
    }
}

/* All sizes share one op and one kernel. */
TEST(a_kernel_is_compiled_once_for_all_sizes) {
    GD_SCOPE;
    use_compiler();
    gd_native_counts before = gd_native_count();
    for (int n = 1; n < 20; n++) {
        gd_tensor *x = gd_randn(gd_dims(n, 3));
        planned p = plan(half_body, NULL, (gd_tensor *[]){x, x, x}, 3, 2);
        CHECK(same_numbers(run(&p).at[0], half_body((gd_tensor *[]){x, x, x}, NULL).at[0], 0));
    }
    gd_native_counts after = gd_native_count();
    CHECK_SAYING(after.compiled + after.loaded + after.failed - before.compiled - before.loaded -
                         before.failed <=
                     2,
                 "%d", (int)(after.compiled + after.loaded - before.compiled - before.loaded));
    use_evaluator();
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
