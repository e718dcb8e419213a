/* test_zoo_golden.c - networks of the zoo compared with PyTorch: golden/zoo, written by
 * golden/zoo_make.py. */
#include "clean_test.h"
#include "compare.h"
#include "dispatch/factory.h"
#include "zoo_rule.h"

enum {
    PROJECTIONS = 3,
    /* norm, projections, effect of an error in the parameter on the loss */
    SUMMARY = 2 + PROJECTIONS
};

static bool is_full_test(void) {
    const char *text = getenv("GRADUS_TEST_FULL");
    return text && strcmp(text, "1") == 0;
}

static gd_state *read_golden(const rule_net *of) {
    char path[512];
    snprintf(path, sizeof path, GRADUS_GOLDEN "/zoo/%s.safetensors", of->name);
    gd_state *golden = gd_read_state(path);
    CHECK_SAYING(golden, "%s: %s", of->name, gd_error_message());
    return golden;
}

static gd_tensor *golden_tensor(const gd_state *golden, const char *kind, const char *name) {
    char text[300];
    snprintf(text, sizeof text, "%s.%s", kind, name);
    return gd_state_find(golden, text);
}

CLEAN_TEST(every_network_of_the_zoo_is_compared) {
    const gd_factory *factory;
    for (int i = 0; (factory = gd_factory_at("net", i)); i++) {
        bool found = false;
        for (int n = 0; n < rule_net_count; n++)
            found |= strcmp(rule_nets[n].name, factory->record.name) == 0;
        CHECK_SAYING(found, "%s is not in zoo_rule.h", factory->record.name);
    }
}

/* --- names and shapes ------------------------------------------------------------------------- */

static bool same_dims(const gd_tensor *t, gd_tensor *dims) {
    if (!dims || gd_tensor_rank(t) != gd_tensor_numel(dims)) return false;
    for (int i = 0; i < gd_tensor_rank(t); i++)
        if (gd_tensor_dim(t, i) != ((const int64_t *)gd_data(dims))[i]) return false;
    return true;
}

CLEAN_TEST(names_and_shapes_equal_those_of_the_references) {
    for (int n = 0; n < rule_net_count; n++) {
        GD_SCOPE;
        const rule_net *of = &rule_nets[n];
        gd_state *golden = read_golden(of), *state = gd_state_of(rule_make(of, GD_F32).module);
        int64_t expected = 0;
        for (int64_t i = 0; i < gd_state_count(golden); i++)
            expected += strncmp(gd_state_name(golden, i), "shape.", 6) == 0;
        CHECK_SAYING(gd_state_count(state) == expected, "%s has %lld tensors, not %lld", of->name,
                     (long long)gd_state_count(state), (long long)expected);
        for (int64_t i = 0; i < gd_state_count(state); i++)
            CHECK_SAYING(same_dims(gd_state_tensor_at(state, i),
                                   golden_tensor(golden, "shape", gd_state_name(state, i))),
                         "%s: %s", of->name, gd_state_name(state, i));
    }
}

/* --- outputs and gradients -------------------------------------------------------------------- */

typedef struct case_distances {
    double eval, train, loss;
} case_distances; /* distances from the golden file */

/* Computes outputs in both modes; *loss is that of train mode. */
static case_distances run_case(const rule_case *c, const gd_state *golden, gd_tensor **loss) {
    case_distances s;
    gd_module_eval(c->module);
    s.eval = tensors_relative_distance(rule_output(c, c->x), gd_state_find(golden, "eval.output"));
    gd_module_train(c->module);
    gd_tensor *y = rule_output(c, c->x);
    *loss = rule_loss(c, y);
    s.train = tensors_relative_distance(y, gd_state_find(golden, "train.output"));
    s.loss = tensors_relative_distance(*loss, gd_state_find(golden, "train.loss"));
    return s;
}

static bool distances_agree(case_distances s, double tolerance) {
    return s.eval <= tolerance && s.train <= tolerance && s.loss <= tolerance;
}

static void check_outputs(gd_dtype dtype, double tolerance) {
    for (int n = 0; n < rule_net_count; n++) {
        GD_SCOPE;
        gd_tensor *loss;
        const rule_case c = rule_make(&rule_nets[n], dtype);
        const case_distances s = run_case(&c, read_golden(c.of), &loss);
        CHECK_SAYING(distances_agree(s, tolerance), "%s: eval %.2g, train %.2g, loss %.2g",
                     c.of->name, s.eval, s.train, s.loss);
        if (getenv("GRADUS_TEST_SHOW"))
            printf("%s: eval %.2g, train %.2g, loss %.2g\n", c.of->name, s.eval, s.train, s.loss);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
}
CLEAN_TEST(outputs_in_f32_agree_with_pytorch) { check_outputs(GD_F32, 2e-4); }
CLEAN_TEST(outputs_in_f64_agree_with_pytorch) { check_outputs(GD_F64, 1e-9); }

/* The norm of a gradient and the other numbers of the golden files; p is its parameter. A NULL
 * gradient counts as zeros. */
static void summarize_gradient(const char *net, const char *name, gd_tensor *p, gd_tensor *grad,
                               double out[SUMMARY]) {
    const int64_t n = gd_tensor_numel(p);
    memset(out, 0, SUMMARY * sizeof *out);
    if (!grad) return;
    const double *g = gd_data(gd_contiguous(grad)), *w = gd_data(p);
    for (int k = 0; k < PROJECTIONS; k++) {
        char more[20];
        snprintf(more, sizeof more, ":projection%d", k);
        const uint64_t seed = rule_seed(net, name, more);
        for (int64_t i = 0; i < n; i++) out[1 + k] += g[i] * rule_signed(seed, i);
    }
    const uint64_t seed = rule_seed(net, name, ":noise");
    for (int64_t i = 0; i < n; i++) {
        out[0] += g[i] * g[i];
        out[SUMMARY - 1] += g[i] * 0.01 * w[i] * rule_signed(seed, i);
    }
    out[0] = sqrt(out[0]);
}

/* Tolerances are relative to the largest possible value: norms for projections (by weights below
 * 1). */
static bool summaries_agree(const double *a, const double *e, int64_t n, double tolerance) {
    const double room = tolerance * e[0] * sqrt((double)n);
    bool good = fabs(a[0] - e[0]) <= tolerance * e[0];
    for (int k = 1; k < SUMMARY; k++) good &= fabs(a[k] - e[k]) <= room;
    return good;
}

static void check_gradients(const rule_net *of) {
    GD_SCOPE;
    GD_NO_GRAD;
    char name[300];
    const rule_case c = rule_make(of, GD_F64);
    const gd_state *golden = read_golden(of);
    {
        int enabled __attribute__((cleanup(gd_grad_mode_end), unused)) = gd_enable_grad_begin();
        gd_backward(rule_loss(&c, rule_output(&c, c.x)));
    }
    const gd_tensors all = gd_module_parameters(c.module);
    for (int64_t i = 0; i < all.count; i++) {
        GD_SCOPE;
        gd_tensor *p = all.at[i],
                  *e = golden_tensor(golden, "grad",
                                     gd_module_name_of(c.module, p, name, sizeof name));
        double a[SUMMARY];
        CHECK_SAYING(e, "%s: %s", of->name, name);
        summarize_gradient(of->name, name, p, gd_tensor_grad(p), a);
        CHECK_SAYING(e && summaries_agree(a, gd_data(e), gd_tensor_numel(p), 1e-9),
                     "%s: %s: norm %.15g, not %.15g", of->name, name, a[0],
                     e ? ((double *)gd_data(e))[0] : NAN);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}
CLEAN_TEST(gradients_in_f64_agree_with_pytorch) {
    for (int n = 0; n < rule_net_count; n++) check_gradients(&rule_nets[n]);
}

/* --- sensitivity of the golden files ---------------------------------------------------------- */

/* To first order, an error of 1 % in a parameter changes the loss by the number stored with its
 * gradient. */
CLEAN_TEST(every_parameter_has_a_gradient_large_enough_for_the_comparison) {
    for (int n = 0; n < rule_net_count; n++) {
        GD_SCOPE;
        gd_state *golden = read_golden(&rule_nets[n]);
        const double loss = gd_item(gd_state_find(golden, "train.loss"));
        for (int64_t i = 0; i < gd_state_count(golden); i++) {
            const char *name = gd_state_name(golden, i);
            if (strncmp(name, "grad.", 5) != 0) continue;
            const double *e = gd_data(gd_state_tensor_at(golden, i));
            CHECK_SAYING(fabs(e[SUMMARY - 1]) > 10 * 1e-9 * loss,
                         "%s: noise in %s changes the loss by %.2g", rule_nets[n].name, name + 5,
                         e[SUMMARY - 1]);
        }
    }
}

/* p * (1 + 1 % noise). */
static gd_tensor *with_noise(const char *net, const char *name, gd_tensor *p) {
    gd_tensor *y = gd_clone(p);
    double *at = gd_data(y);
    const uint64_t seed = rule_seed(net, name, ":noise");
    for (int64_t i = 0; i < gd_tensor_numel(y); i++) at[i] += 0.01 * at[i] * rule_signed(seed, i);
    return y;
}

/* Adds noise to the tensors of the state, one at a time: the comparison above must fail. For a
 * large network only a few are tried. Buffers are included, because eval mode reads them. */
static void check_sensitivity(const rule_net *of) {
    GD_SCOPE;
    GD_NO_GRAD;
    const rule_case c = rule_make(of, GD_F64);
    gd_state *golden = read_golden(of), *state = gd_state_of(c.module);
    const int64_t count = gd_state_count(state), stride = is_full_test() ? 1
                                                          : of->large    ? 25
                                                          : count > 40   ? 7
                                                                         : 1;
    for (int64_t i = stride / 2; i < count; i += stride) {
        GD_SCOPE;
        const char *name = gd_state_name(state, i);
        gd_tensor *p = gd_state_tensor_at(state, i), *loss;
        if (!gd_dtype_is_float(gd_tensor_dtype(p))) continue;
        gd_assign(p, with_noise(of->name, name, p));
        const case_distances s = run_case(&c, golden, &loss);
        CHECK_SAYING(!distances_agree(s, 1e-9),
                     "%s: 1 %% noise in %s is not detected: %.2g %.2g %.2g", of->name, name, s.eval,
                     s.train, s.loss);
        rule_fill(c.module, of->name); /* restores running statistics, too */
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}
CLEAN_TEST(an_error_of_one_percent_in_a_parameter_is_detected) {
    for (int n = 0; n < rule_net_count; n++) check_sensitivity(&rule_nets[n]);
}

TEST_MAIN
