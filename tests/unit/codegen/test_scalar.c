/* test_scalar.c - kernels of the scalar dialect: printed, compiled, and called once for each
 * element, output of a reduction, or row. tests/ops/scalar.c does the same for the cases of every
 * op. */
#include <dlfcn.h>
#include <math.h>

#include "graph/passes/fuse.h"
#include "test.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/tensor.h"
#include "fuse_ways.h"
#include "dispatch/codegen_api.h"
#include "scalar_kernels.h"

static const char *const types[] = {"f32", "f64", "i32", "i64"};
static const gd_dtype type_dtypes[] = {GD_F32, GD_F64, GD_I32, GD_I64};
static const size_t type_sizes[] = {4, 8, 4, 8};

/* Plans run in the evaluator, so that the CPU's own kernels need no compiler. */
static int compile_collected(void) {
    unsetenv("GRADUS_NATIVE");
    const int n = scalar_compile();
    setenv("GRADUS_NATIVE", "0", 1);
    return n;
}

static void compile_sources(const gd_kernel_source *sources, int n, gd_compiled_fn *fns) {
    unsetenv("GRADUS_NATIVE");
    gd_native_kernels(sources, n, scalar_target(), fns);
    setenv("GRADUS_NATIVE", "0", 1);
}

/* --- printed text ----------------------------------------------------------------------------- */

TEST(the_prelude_includes_only_standard_c_headers) {
    CHECK(gd_scalar_prelude[gd_scalar_prelude_bytes] == 0);
    CHECK(strlen(gd_scalar_prelude) == gd_scalar_prelude_bytes);
    CHECK(strstr(gd_scalar_prelude, "#include <math.h>") != NULL);
    CHECK(strstr(gd_scalar_prelude, "#include \"") == NULL);
}

static int count_printed(const gd_op *op, gd_dtype dtype) {
    gd_dtype in[GD_SOURCE_INPUTS], out[GD_SOURCE_OUTPUTS];
    gd_kernel_source source;
    char *text = NULL;
    size_t bytes = 0;
    for (int i = 0; i < GD_SOURCE_INPUTS; i++) in[i] = dtype;
    for (int i = 0; i < GD_SOURCE_OUTPUTS; i++) out[i] = dtype;
    CHECK_SAYING(gd_scalar_source(op, in, op->n_inputs, out, op->ir->n_outputs, &source), "%s",
                 op->name);
    FILE *file = open_memstream(&text, &bytes);
    CHECK(gd_print_kernel(file, &gd_dialect_scalar, &source, "kernel"));
    fclose(file);
    int stores = 0;
    for (const char *at = text; (at = strstr(at, "        s_store_")); at++) stores++;
    CHECK_SAYING(stores == op->ir->n_outputs && strncmp(text, "void kernel(int64_t i,", 22) == 0,
                 "%s: %s", op->name, text);
    free(text);
    return 1;
}

TEST(every_elementwise_op_and_gradient_is_printed) {
    int printed = 0;
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        if (!op->ir) continue;
        const bool floats = gd_ir_types(op->ir) & GD_PRIM_FLOAT;
        printed += count_printed(op, floats ? GD_F32 : GD_I32);
        for (int k = 0; k < op->n_inputs && floats && !op->n_mutated; k++) {
            const struct gd_derived *d = gd_op_derived(op, k);
            if (d && d->op) printed += count_printed(d->op, GD_F16);
        }
    }
    CHECK_SAYING(printed > 150, "%d", printed);
}

/* --- primitives ------------------------------------------------------------------------------- */

typedef struct expression {
    gd_ir ir;
    gd_ir_node nodes[GD_IR_MAX_NODES];
} expression;

static void make_primitive(int prim, expression *e) {
    gd_ir_builder b = {.count = 0};
    int args[3] = {-1, -1, -1};
    for (int i = 0; i < gd_prims[prim].arity; i++) args[i] = gd_ir_var(&b, i);
    int node = gd_ir_apply(&b, gd_prims[prim].name, args[0], args[1], args[2]);
    e->ir = gd_ir_finish(&b, &node, 1, e->nodes);
}

static const double reals[] = {0.0, -0.0,     1,    -1,    0.5,  -0.5,      1.5,      2.5,     2,
                               -3,  7,        0.1,  -0.7,  1e-3, -20,       33.25,    100,     NAN,
                               89,  INFINITY, 1e10, -1e10, 3e-5, -INFINITY, 0x1p-140, 123456.7};
static const int64_t integers[] = {0,  1,  -1, 2,  -2,  3,         -7,        10,  31,
                                   32, 33, 63, 64, 100, INT32_MAX, INT32_MIN, 255, -128};
enum { N_REALS = sizeof reals / sizeof *reals, N_INTEGERS = sizeof integers / sizeof *integers };

static void set_element(int t, void *at, int number) {
    if (t < 2) gd_store_f64(type_dtypes[t], at, reals[number]);
    else gd_store_i64(type_dtypes[t], at, integers[number]);
}

/* Checks one call whose operands have the indices a, b and c in the lists. */
static void check_primitive(const gd_prim *p, int t, gd_scalar_fn fn, const int *numbers) {
    char in[3][8], out[8];
    double x[3];
    int64_t n[3];
    gd_scalar_args args = {.count = 1, .inner_count = 1, .contiguous = ~0u};
    for (int i = 0; i < 3; i++) {
        set_element(t, in[i], numbers[i]);
        x[i] = gd_load_f64(type_dtypes[t], in[i]);
        n[i] = gd_load_i64(type_dtypes[t], in[i]);
        if (i < p->arity) args.operand[i].data = in[i];
    }
    args.operand[p->arity].data = out;
    fn(0, &args);
    bool right;
    char expected[8];
    if (t < 2) {
        gd_store_f64(type_dtypes[t], expected, p->real(x[0], x[1], x[2]));
        const double y = gd_load_f64(type_dtypes[t], out),
                     z = gd_load_f64(type_dtypes[t], expected),
                     close = t == 0 ? 4e-7 * fabs(z) + 0x1p-148 : 4e-16 * fabs(z);
        right = (isnan(y) && isnan(z)) || (y == z && signbit(y) == signbit(z)) ||
                (isfinite(z) && fabs(y - z) <= close);
    } else {
        gd_store_i64(type_dtypes[t], expected, p->integer(n[0], n[1], n[2]));
        right = memcmp(out, expected, type_sizes[t]) == 0;
    }
    CHECK_SAYING(right, "%s %s of %g, %g, %g is %.9g, expected %.9g", p->name, types[t], x[0], x[1],
                 x[2], gd_load_f64(type_dtypes[t], out), gd_load_f64(type_dtypes[t], expected));
}

TEST(every_primitive_agrees_with_the_table) {
    enum { MAX_KERNELS = 512 };
    expression *e = calloc(MAX_KERNELS, sizeof *e);
    gd_kernel_source *sources = calloc(MAX_KERNELS, sizeof *sources);
    gd_compiled_fn *fns = calloc(MAX_KERNELS, sizeof *fns);
    int prims[MAX_KERNELS], of_type[MAX_KERNELS], n = 0;
    for (int i = 0; i < gd_prim_count; i++)
        for (int t = 0; t < 4; t++) {
            if (!(gd_prims[i].types & (t < 2 ? GD_PRIM_FLOAT : GD_PRIM_INT))) continue;
            prims[n] = i;
            of_type[n] = t;
            make_primitive(i, &e[n]);
            sources[n] = (gd_kernel_source){.ir = &e[n].ir, .type = types[t]};
            n++;
        }
    compile_sources(sources, n, fns);
    for (int k = 0; k < n; k++) {
        const gd_prim *p = &gd_prims[prims[k]];
        const int count = of_type[k] < 2 ? N_REALS : N_INTEGERS;
        CHECK_SAYING(fns[k] != NULL, "%s %s", p->name, types[of_type[k]]);
        for (int a = 0; a < count && fns[k]; a++)
            for (int b = 0; b < (p->arity > 1 ? count : 1); b++)
                check_primitive(p, of_type[k], (gd_scalar_fn)(void *)fns[k],
                                (const int[]){a, b, (a * 7 + b) % count});
    }
    free(e);
    free(sources);
    free(fns);
}

/* --- dtypes ----------------------------------------------------------------------------------- */

static const gd_dtype dtypes[] = {GD_BOOL, GD_U8,   GD_I8,  GD_I32, GD_I64,
                                  GD_F16,  GD_BF16, GD_F32, GD_F64};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* Reads one number and writes it in every dtype. */
static void check_conversion(int from, int t, gd_scalar_fn fn, double number) {
    char in[8], value[8], out[N_DTYPES][8], expected[8];
    gd_scalar_args args = {.count = 1, .inner_count = 1, .contiguous = ~0u};
    gd_store_f64(dtypes[from], in, number);
    gd_convert(type_dtypes[t], value, dtypes[from], in, 1);
    args.operand[0].data = in;
    for (int i = 0; i < N_DTYPES; i++) args.operand[1 + i].data = out[i];
    fn(0, &args);
    for (int i = 0; i < N_DTYPES; i++) {
        gd_convert(dtypes[i], expected, type_dtypes[t], value, 1);
        const double y = gd_load_f64(dtypes[i], out[i]), z = gd_load_f64(dtypes[i], expected);
        CHECK_SAYING(memcmp(out[i], expected, gd_dtype_size(dtypes[i])) == 0 || (y != y && z != z),
                     "%g from %s by %s to %s is %g, expected %g", number,
                     gd_dtype_name(dtypes[from]), types[t], gd_dtype_name(dtypes[i]), y, z);
    }
}

TEST(elements_of_every_dtype_are_converted_as_copies_do) {
    expression e = {.ir = {.count = 0}};
    gd_ir_builder b = {.count = 0};
    gd_kernel_source sources[N_DTYPES * 4];
    gd_compiled_fn fns[N_DTYPES * 4];
    int outputs[N_DTYPES];
    for (int i = 0; i < N_DTYPES; i++) outputs[i] = gd_ir_var(&b, 0);
    e.ir = gd_ir_finish(&b, outputs, N_DTYPES, e.nodes);
    memset(sources, 0, sizeof sources);
    for (int k = 0; k < N_DTYPES * 4; k++) {
        sources[k] = (gd_kernel_source){.ir = &e.ir, .type = types[k % 4]};
        sources[k].in[0] = gd_dtype_name(dtypes[k / 4]);
        for (int i = 0; i < N_DTYPES; i++) sources[k].out[i] = gd_dtype_name(dtypes[i]);
    }
    compile_sources(sources, N_DTYPES * 4, fns);
    static const double more[] = {65504,   65520,  70000, -70000,  3e38,           -3e38,
                                  5e9,     -5e9,   300,   -300,    2147483648.0,   9.3e18,
                                  -9.3e18, 6.1e-8, 1e-40, 5.97e-8, 0.333333333333, 1e300};
    for (int k = 0; k < N_DTYPES * 4; k++) {
        CHECK_SAYING(fns[k] != NULL, "%s to %s", sources[k].in[0], sources[k].type);
        for (int i = 0; i < N_REALS && fns[k]; i++)
            check_conversion(k / 4, k % 4, (gd_scalar_fn)(void *)fns[k], reals[i]);
        for (size_t i = 0; i < sizeof more / sizeof *more && fns[k]; i++)
            check_conversion(k / 4, k % 4, (gd_scalar_fn)(void *)fns[k], more[i]);
    }
}

/* --- fused ops -------------------------------------------------------------------------------- */

static results one_result(gd_tensor *y) { return (results){{y}, 1}; }
static results two_results(gd_tensor *y, gd_tensor *z) { return (results){{y, z}, 2}; }

static gd_tensor *row_mean(gd_tensor *x) { return gd_mean(x, .axis = -1, .keepdim = true); }

static results chain_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *h = gd_mul(gd_add(x[0], x[1]), gd_scalar(0.5));
    gd_tensor *e = gd_exp(h),
              *positive = gd_gt(h, gd_scalar(0)); /* the order of the nodes matters */
    gd_tensor *chosen = gd_where(positive, h, e);
    return two_results(gd_tanh(h), chosen);
}

static results softmax_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *e = gd_exp(gd_sub(x[0], gd_max(x[0], .axis = -1, .keepdim = true)));
    return one_result(gd_div(e, gd_sum(e, .axis = -1, .keepdim = true)));
}

static results layer_norm_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *d = gd_sub(x[0], row_mean(x[0]));
    gd_tensor *y = gd_div(d, gd_sqrt(gd_add(row_mean(gd_square(d)), gd_scalar(1e-5))));
    return one_result(gd_add(gd_mul(y, x[1]), x[1]));
}

/* The values of each row are results, too. */
static results norm_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *s = gd_sqrt(gd_sum(gd_mul(x[0], x[0]), .axis = -1));
    return two_results(gd_div(x[0], gd_unsqueeze(s, -1)), s);
}

/* Two rows are kept between passes. */
static results kept_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *e = gd_exp(x[0]), *c = gd_cosh(x[0]);
    gd_tensor *p = gd_div(e, gd_sum(e, .axis = -1, .keepdim = true));
    return one_result(gd_sub(p, gd_div(c, gd_max(c, .axis = -1, .keepdim = true))));
}

/* A captured column: one value for each row. */
static results column_body(gd_tensor *const *x, const void *arg) {
    (void)arg;
    gd_tensor *d = gd_mul(gd_sub(x[0], row_mean(x[0])), x[2]);
    return one_result(gd_div(d, gd_max(gd_abs(d), .axis = -1, .keepdim = true)));
}

static results reduce_by(gd_tensor *x, int how, const gd_shape *axis) {
    switch (how) {
    case 0: return one_result(gd_sum(x, .axis = *axis));
    case 1: return one_result(gd_mean(x, .axis = *axis, .keepdim = true));
    case 2: return one_result(gd_max(x, .axis = *axis));
    default: return one_result(gd_min(x, .axis = *axis, .keepdim = true));
    }
}

typedef struct reduction {
    int how;
    gd_shape axis;
} reduction;

static results reduction_body(gd_tensor *const *x, const void *arg) {
    const reduction *r = arg;
    gd_tensor *h = gd_square(gd_sub(gd_sin(x[0]), x[1]));
    return reduce_by(h, r->how, &r->axis);
}

static results stored_reduction_body(gd_tensor *const *x, const void *arg) {
    const reduction *r = arg;
    gd_tensor *h = gd_mul(gd_exp(x[0]), x[1]);
    results y = reduce_by(h, r->how, &r->axis);
    y.at[y.count++] = h;
    return y;
}

typedef struct scalar_case {
    const char *name;
    body_fn body;
    reduction arg;
} scalar_case;

static double tolerance_of(gd_dtype dtype) {
    return dtype == GD_F64 ? 1e-12 : dtype == GD_F32 ? 2e-5 : dtype == GD_F16 ? 4e-3 : 3e-2;
}

/* Runs a body as a plan while its kernels are collected, or with the compiled kernels. */
static void run_plan(const scalar_case *c, gd_dtype dtype, bool transposed, bool compare) {
    GD_SCOPE;
    gd_seed(17);
    gd_tensor *x[3] = {noise(gd_dims(6, 5, 9), dtype), noise(gd_dims(9), dtype),
                       noise(gd_dims(6, 5, 1), dtype)};
    if (transposed) x[0] = gd_transpose(noise(gd_dims(9, 5, 6), dtype), 0, 2);
    const results eager = c->body(x, &c->arg);
    planned p = plan(c->body, &c->arg, x, 3, 2);
    const gd_tensors got = run(&p);
    CHECK_SAYING(!gd_failed(), "%s: %s", c->name, gd_error_message());
    for (int i = 0; i < got.count && compare && !gd_failed(); i++)
        CHECK_SAYING(same_numbers(got.at[i], eager.at[i], tolerance_of(dtype)), "%s, %s, result %d",
                     c->name, gd_dtype_name(dtype), i);
    gd_clear_error();
}

static void run_cases(const scalar_case *cases, int n) {
    static const gd_dtype floats[] = {GD_F32, GD_F64, GD_F16, GD_BF16};
    scalar_begin(1);
    for (int compare = 0; compare < 2; compare++) {
        for (int i = 0; i < n; i++)
            for (int d = 0; d < 4; d++)
                for (int transposed = 0; transposed < 2; transposed++)
                    run_plan(&cases[i], floats[d], transposed, compare);
        if (!compare) CHECK(compile_collected() > 0);
    }
}

TEST(fused_chains_and_row_kernels_agree_with_eager_code) {
    static const scalar_case cases[] = {
        {"chain", chain_body, {0}},           {"softmax", softmax_body, {0}},
        {"layer_norm", layer_norm_body, {0}}, {"norm", norm_body, {0}},
        {"column", column_body, {0}},         {"kept", kept_body, {0}},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
    CHECK_SAYING(scalar.runs_of_rows >= 5 * 4 * 2, "%d", (int)scalar.runs_of_rows);
    CHECK(scalar.runs > scalar.runs_of_rows);
    scalar_end();
}

TEST(fused_reductions_agree_with_eager_code) {
    scalar_case cases[12] = {{NULL, NULL, {0}}};
    int n = 0;
    for (int how = 0; how < 4; how++) {
        cases[n++] = (scalar_case){"last", reduction_body, {how, gd_dims(2)}};
        cases[n++] = (scalar_case){"first and last", reduction_body, {how, gd_dims(0, 2)}};
        cases[n++] = (scalar_case){"stored", stored_reduction_body, {how, gd_dims(1)}};
    }
    run_cases(cases, n);
    CHECK_SAYING(scalar.runs_of_reductions >= n * 4 * 2, "%d", (int)scalar.runs_of_reductions);
    scalar_end();
}

/* --- a device with this dialect --------------------------------------------------------------- */

static int compile_calls, requests_seen;

static bool always_true(gd_device *device, const gd_op *op) { return device && op; }
static bool compiler_is_there(gd_device *device) { return device != NULL; }
static bool is_worth(gd_device *device, int64_t elements) { return device && elements > 10; }

static bool is_never_worth(gd_device *device, int64_t elements) {
    (void)device, (void)elements;
    return false;
}

static void compile_requests(gd_device *device, const gd_fusion_request *requests, int n) {
    (void)device;
    compile_calls++;
    requests_seen += n;
    scalar.phase = SCALAR_COLLECT;
    for (int i = 0; i < n; i++) {
        gd_kernel_source source;
        CHECK(gd_scalar_source_of_request(&requests[i], &source));
        scalar_collect(&source, gd_kernel_source_hash(&source));
    }
    CHECK(compile_collected() >= 0);
}

static bool request_has_kernel(gd_device *device, const gd_fusion_request *request) {
    gd_kernel_source source;
    (void)device;
    gd_scalar_source_of_request(request, &source);
    const scalar_kernel *k = scalar_find(gd_kernel_source_hash(&source));
    return k && k->fn;
}

/* A body that needs a kernel of each kind. */
static results several_body(gd_tensor *const *x, const void *arg) {
    const reduction all = {0, gd_dims(0, 1)};
    results y = {.count = 0};
    y.at[y.count++] = softmax_body(x, arg).at[0];
    y.at[y.count++] = reduction_body(x, &all).at[0];
    y.at[y.count++] = gd_mul(gd_tanh(gd_cumsum(x[1], 0)), gd_scalar(3));
    return y;
}

/* Fusion rules of a device that only has a compiler for this dialect, applied to the CPU. */
static gd_fusion_rules scalar_rules(void) {
    return (gd_fusion_rules){.dialect = &gd_dialect_scalar,
                             .max_tensors = 4,
                             .max_params = 8,
                             .max_outputs = 2,
                             .max_nodes = 24,
                             .max_ops = 8,
                             .reductions = true,
                             .rows = true,
                             .max_row = 64,
                             .has_own_kernel = always_true,
                             .is_compiler_ready = compiler_is_there,
                             .is_worth_compiling = is_worth,
                             .compile = compile_requests,
                             .has_kernel = request_has_kernel};
}

/* The number of all steps of a plan, and of the fused ones. */
typedef struct step_counts {
    int all, fused;
} step_counts;

static step_counts count_steps(body_fn body, const void *arg, gd_tensor *const *x, int n) {
    planned p = plan(body, arg, x, n, 2);
    char *text = text_of(&p);
    const step_counts found = {count(text, " = "), count(text, "fused{")};
    free(text);
    return found;
}

TEST(plans_compile_their_kernels_at_once_for_the_device) {
    GD_SCOPE;
    const gd_fusion_rules *before = gd_cpu()->api->fusion, rules = scalar_rules();
    gd_tensor *x[2] = {gd_randn(gd_dims(8, 16)), gd_randn(gd_dims(16))};
    const results eager = several_body(x, NULL);
    gd_cpu_set_fusion(&rules);
    gd_fuse_set_always(false);
    scalar_begin(1);
    planned p = plan(several_body, NULL, x, 2, 2);
    const gd_tensors got = run(&p);
    for (int i = 0; i < eager.count && !gd_failed(); i++)
        CHECK(same_numbers(got.at[i], eager.at[i], 2e-5));
    CHECK_SAYING(compile_calls == 1 && requests_seen == 3, "%d %d", compile_calls, requests_seen);
    CHECK_SAYING(scalar.runs_of_rows == 1 && scalar.runs_of_reductions == 1 && scalar.runs == 3,
                 "%d %d %d", (int)scalar.runs_of_rows, (int)scalar.runs_of_reductions,
                 (int)scalar.runs);
    scalar_end();
    gd_cpu_set_fusion(before);
    gd_fuse_set_always(true);
}

TEST(plans_respect_the_fusion_limits_of_the_device) {
    GD_SCOPE;
    const gd_fusion_rules *before = gd_cpu()->api->fusion;
    gd_fusion_rules rules = scalar_rules();
    gd_tensor *x[2] = {gd_randn(gd_dims(8, 16)), gd_randn(gd_dims(16))};
    const reduction sum = {0, gd_dims(1)};
    gd_cpu_set_fusion(&rules);
    gd_fuse_set_always(false);
    scalar_begin(1);
    CHECK(count_steps(softmax_body, NULL, x, 1).all == 1);
    rules.max_row = 15;
    CHECK(count_steps(softmax_body, NULL, x, 1).all > 1);
    rules.max_row = 16;
    CHECK(count_steps(softmax_body, NULL, x, 1).all == 1);
    rules.rows = false;
    CHECK(count_steps(softmax_body, NULL, x, 1).all > 1);
    CHECK(count_steps(reduction_body, &sum, x, 2).all == 1);
    rules.short_row = 16;
    CHECK(count_steps(reduction_body, &sum, x, 2).all == 2);
    rules.short_row = 0;
    rules.reductions = false;
    CHECK(count_steps(reduction_body, &sum, x, 2).all == 2);
    CHECK(count_steps(chain_body, NULL, x, 2).all == 1);
    rules.max_outputs = 1;
    CHECK(count_steps(chain_body, NULL, x, 2).all > 1);
    rules.max_outputs = 2;
    rules.max_ops = 2;
    CHECK(count_steps(chain_body, NULL, x, 2).fused > 1);
    rules.max_ops = 8;
    rules.max_tensors = 1;
    CHECK(count_steps(chain_body, NULL, x, 2).all > 1);
    rules.max_tensors = 4;
    rules.is_worth_compiling = is_never_worth; /* and there is no evaluator */
    CHECK(count_steps(chain_body, NULL, x, 2).fused == 0);
    gd_cpu_set_fusion(NULL);
    CHECK(count_steps(chain_body, NULL, x, 2).fused == 0);
    CHECK(!gd_failed());
    gd_cpu_set_fusion(before);
    gd_fuse_set_always(true);
    scalar_end();
}

/* --- a backend that does not link Gradus ------------------------------------------------------ */

typedef bool (*module_fn)(const gd_codegen_api *api, const gd_kernel_call *call,
                          const char *folder);

static gd_view view_of(gd_tensor *t) {
    gd_view v = {.data = gd_data(t), .dtype = gd_tensor_dtype(t), .rank = t->rank};
    memcpy(v.dims, t->dims, sizeof v.dims);
    memcpy(v.strides, t->strides, sizeof v.strides);
    return v;
}

TEST(a_library_without_gradus_prints_and_launches_kernels) {
    GD_SCOPE;
    char folder[] = "/tmp/gradus-module-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    void *module = dlopen(GRADUS_CODEGEN_MODULE, RTLD_NOW | RTLD_LOCAL);
    CHECK_SAYING(module, "%s", dlerror());
    module_fn run_call = module ? (module_fn)dlsym(module, "module_run_call") : NULL;
    gd_tensor *x = gd_randn(gd_dims(7, 11)), *y = gd_randn(gd_dims(7, 1)),
              *z = gd_zeros(gd_dims(7, 11)), *expected = gd_atan2(x, y);
    gd_view in[2] = {view_of(x), view_of(y)}, out = view_of(z);
    const gd_kernel_call call = {
        .op = gd_op_find("atan2"), .in = in, .out = &out, .n_in = 2, .n_out = 1};
    CHECK(run_call && run_call(&gd_codegen, &call, folder));
    CHECK(same_numbers(z, expected, 1e-6));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

int main(int argc, char **argv) { return run_with_cache(argc, argv); }
