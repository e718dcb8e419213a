/* test_metrics.c - metrics: values, weights, resets, jits, state, messages. */
#include <math.h>

#include "clean_test.h"
#include "draw.h"
#include "gradus/gradus.h"
#include "temp.h"

#define FLOATS(dims, ...) gd_from_array(dims, GD_F32, (float[]){__VA_ARGS__})
#define INTS(dims, ...)   gd_from_array(dims, GD_I64, (int64_t[]){__VA_ARGS__})

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * (1 + fabs(b)); }

#define CHECK_NUMBER(metric, expected)                                                             \
    do {                                                                                           \
        const double number_ = gd_metric_number(metric);                                           \
        CHECK_SAYING(near(number_, expected), "%.15g, not %.15g: %s", number_, (double)(expected), \
                     gd_error_message());                                                          \
    } while (0)

/* --- accuracy --------------------------------------------------------------------------------- */

static gd_tensor *logits_3x3(void) {
    return FLOATS(gd_dims(3, 3), 1, 2, 0, /* class 1 */ 5, 5,
                  1 /* class 0: ties go to the lowest class */, 0, -1, 3);
}

CLEAN_TEST(accuracy_is_the_share_of_correct_samples) {
    GD_SCOPE;
    gd_metric *m = gd_metric_accuracy();
    CHECK(isnan(gd_metric_number(m)));
    gd_metric_update(m, logits_3x3(), INTS(gd_dims(3), 1, 0, 0));
    CHECK_NUMBER(m, 2.0 / 3);
    gd_metric_update(m, logits_3x3(), INTS(gd_dims(3), 1, 1, 2));
    CHECK_NUMBER(m, 4.0 / 6);
    gd_metric_reset(m);
    CHECK(isnan(gd_metric_number(m)));
    CHECK(strcmp(gd_metric_name(m), "accuracy") == 0);
    CHECK(gd_tensor_rank(gd_metric_value(m)) == 0 && gd_tensor_dtype(gd_metric_value(m)) == GD_F64);
}

typedef struct jitted_metric {
    gd_metric *metric;
    bool reset;
} jitted_metric;

static gd_tensors measure_batch(gd_tensors in, void *user) {
    const jitted_metric *j = user;
    if (j->reset) gd_metric_reset(j->metric);
    gd_metric_update(j->metric, in.at[0], in.at[1]);
    return gd_listed(gd_metric_value(j->metric));
}

CLEAN_TEST(a_jit_adds_to_the_same_sums_as_eager_updates) {
    GD_SCOPE;
    jitted_metric j = {gd_metric_accuracy(), false};
    gd_jit *jit = gd_jit_new(measure_batch, &j);
    gd_tensor *x = logits_3x3(), *t = INTS(gd_dims(3), 1, 0, 0);
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 2.0 / 3));
    CHECK_NUMBER(j.metric, 2.0 / 3);
    gd_metric_update(j.metric, x, INTS(gd_dims(3), 1, 0, 2));
    CHECK_NUMBER(j.metric, 5.0 / 6);
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 7.0 / 9));
    gd_metric_reset(j.metric);
    CHECK(isnan(gd_metric_number(j.metric)));
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 2.0 / 3));
    CHECK_NUMBER(j.metric, 2.0 / 3);
    CHECK(gd_jit_traces(jit) == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_jit_that_resets_starts_each_call_at_zero) {
    GD_SCOPE;
    for (int before = 0; before < 2; before++) { /* with and without earlier sums */
        jitted_metric j = {gd_metric_accuracy(), true};
        gd_tensor *x = logits_3x3(), *t = INTS(gd_dims(3), 1, 0, 0);
        if (before) gd_metric_update(j.metric, x, INTS(gd_dims(3), 1, 0, 2));
        gd_jit *jit = gd_jit_new(measure_batch, &j);
        for (int i = 0; i < 3; i++) {
            gd_tensor *target = i == 1 ? INTS(gd_dims(3), 1, 0, 2) : t;
            const double right = i == 1 ? 1 : 2.0 / 3;
            CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, target)).at[0]), right));
            CHECK_NUMBER(j.metric, right);
        }
        CHECK(gd_jit_traces(jit) == 1);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- values of scikit-learn and PyTorch (golden/metrics_make.py) ------------------------------ */

enum { N = 300, C = 7, T = 9, BATCHES = 3 };

static void draw_numbers(draws *d, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)((double)draw_below(d, 64) / 16 - 2);
}

static void draw_integers(draws *d, int64_t *to, int below, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = draw_below(d, below);
}

/* Outputs, targets and weights of all samples. */
typedef struct metric_data {
    gd_tensor *output, *target, *weight;
} metric_data;

static gd_tensor *draw_weights(draws *d) {
    float weights[N];
    for (int i = 0; i < N; i++) weights[i] = (float)((double)draw_below(d, 9) / 4);
    return gd_from_array(gd_dims(N), GD_F32, weights);
}

static metric_data draw_classes(uint64_t seed, bool weighted, bool missing) {
    static float scores[N * C];
    static int64_t target[N];
    draws stream = {seed};
    metric_data d = {NULL, NULL, NULL};
    draw_numbers(&stream, scores, N * C);
    draw_integers(&stream, target, C, N);
    for (int i = 0; i < N && missing; i++) {
        scores[i * C + 5] = scores[i * C + 3] = -9;
        if (target[i] == 5) target[i] = 4;
    }
    if (!missing) {
        gd_tensor *weight = draw_weights(&stream);
        if (weighted) d.weight = weight;
        for (int i = 0; i < 20; i++) target[draw_below(&stream, N)] = -100;
    }
    d.output = gd_from_array(gd_dims(N, C), GD_F32, scores);
    d.target = gd_from_array(gd_dims(N), GD_I64, target);
    return d;
}

static metric_data draw_data(const char *name) {
    static float output[N * T * C], other[N * 3];
    static int64_t target[N * T];
    draws stream = {4};
    const bool weighted = strstr(name, "weighted") != NULL;
    metric_data d = {NULL, NULL, NULL};
    if (strcmp(name, "many") == 0) return draw_classes(1, false, false);
    if (strcmp(name, "weighted") == 0) return draw_classes(2, true, false);
    if (strcmp(name, "missing") == 0) return draw_classes(3, false, true);
    if (strcmp(name, "sequence") == 0) {
        draw_numbers(&stream, output, N * T * C);
        draw_integers(&stream, target, C, N * T);
        d.output = gd_from_array(gd_dims(N, T, C), GD_F32, output);
        d.target = gd_from_array(gd_dims(N, T), GD_I64, target);
    } else if (strncmp(name, "binary", 6) == 0) {
        stream.state = 5;
        draw_numbers(&stream, output, N);
        draw_integers(&stream, target, 2, N);
        d.output = gd_from_array(gd_dims(N, 1), GD_F32, output);
        d.target = gd_from_array(gd_dims(N), GD_I64, target);
        if (weighted) d.weight = draw_weights(&stream);
    } else {
        stream.state = 6;
        draw_numbers(&stream, output, N * 3);
        draw_numbers(&stream, other, N * 3);
        d.output = gd_from_array(gd_dims(N, 3), GD_F32, output);
        d.target = gd_from_array(gd_dims(N, 3), GD_F32, other);
        if (weighted) d.weight = draw_weights(&stream);
    }
    return d;
}

static gd_tensors update_batch(gd_tensors in, void *user) {
    gd_metric_update(user, in.at[0], in.at[1], .weight = in.count > 2 ? in.at[2] : NULL);
    return (gd_tensors){NULL, 0};
}

static void update_batches(gd_metric *m, metric_data d, bool jitted_too) {
    GD_SCOPE;
    gd_jit *jit = jitted_too ? gd_jit_new(update_batch, m) : NULL;
    for (int i = 0; i < BATCHES; i++) {
        GD_SCOPE;
        const int64_t n = N / BATCHES, at = i * n;
        gd_tensor *part[3] = {gd_narrow(d.output, 0, at, n), gd_narrow(d.target, 0, at, n), NULL};
        if (d.weight) part[2] = gd_narrow(d.weight, 0, at, n);
        gd_tensors list = {part, d.weight ? 3 : 2};
        if (jit) gd_jit_call(jit, list);
        else update_batch(list, m);
    }
}

/* One line of the file: "DATA METRIC OPTION... VALUE". */
static bool line_agrees(char *line, bool jitted_too) {
    GD_SCOPE;
    char *name = strchr(line, ' '), *value = strrchr(line, ' '), options[200] = "";
    *name++ = 0;
    *value++ = 0;
    char *rest = strchr(name, ' ');
    if (rest) *rest++ = 0;
    char *at = rest ? strstr(rest, "at=") : NULL;
    int row = 0, column = 0;
    if (at) {
        sscanf(at, "at=%d,%d", &row, &column);
        snprintf(options, sizeof options, "%s", strchr(at, ' ') ? strchr(at, ' ') : "");
    } else if (rest) {
        snprintf(options, sizeof options, "%s", rest);
    }
    gd_metric *m = gd_metric_new(name, options);
    update_batches(m, draw_data(line), jitted_too);
    gd_tensor *got = gd_metric_value(m);
    if (at) got = gd_select(gd_select(got, 0, row), 0, column);
    const double is = gd_item(got), should = strtod(value, NULL);
    /* scores of the data are far enough apart for the bins of auc */
    const bool good = !gd_failed() && fabs(is - should) <= 1e-12 * (1 + fabs(should));
    if (!good)
        fprintf(stderr, "%s %s %s: %.17g, not %s %s\n", line, name, options, is, value,
                gd_error_message());
    return good;
}

static void compare_lines(bool jitted_too) {
    FILE *file = fopen(GRADUS_GOLDEN "/metrics.txt", "r");
    char line[300];
    int count = 0;
    CHECK(file);
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        CHECK(line_agrees(line, jitted_too));
        gd_clear_error();
        count++;
    }
    CHECK(count > 80);
    if (file) fclose(file);
}

CLEAN_TEST(values_agree_with_scikit_learn) { compare_lines(false); }
CLEAN_TEST(values_of_a_jit_agree_with_scikit_learn) { compare_lines(true); }

/* --- forms of outputs and targets ------------------------------------------------------------- */

#define CHECK_ONE(made, output, target, expected) \
    do {                                          \
        gd_metric *made_ = made;                  \
        gd_metric_update(made_, output, target);  \
        CHECK_NUMBER(made_, expected);            \
    } while (0)

CLEAN_TEST(accuracy_accepts_all_forms_of_targets) {
    GD_SCOPE;
    gd_tensor *x = logits_3x3();
    CHECK_ONE(gd_metric_accuracy(), x, FLOATS(gd_dims(3, 3), 0, 1, 0, 1, 0, 0, 1, 0, 0), 2.0 / 3);
    CHECK_ONE(gd_metric_accuracy(), x, FLOATS(gd_dims(3, 3), .1, .8, .1, .5, .2, .3, .2, .5, .3),
              2.0 / 3);
    CHECK_ONE(gd_metric_accuracy(), x, INTS(gd_dims(3, 1), 1, 0, 0), 2.0 / 3);
    CHECK_ONE(gd_metric_accuracy(), x, gd_cast(INTS(gd_dims(3), 1, 0, 2), GD_U8), 1);
    gd_tensor *binary = FLOATS(gd_dims(4, 1), -3, 0, 0.1, 9),
              *flat = gd_reshape(binary, gd_dims(4));
    gd_tensor *half = FLOATS(gd_dims(4), 0.2, 0.5, 0.6, 0.9);
    CHECK_ONE(gd_metric_accuracy(), binary, INTS(gd_dims(4), 0, 1, 1, 1), 0.75);
    CHECK_ONE(gd_metric_accuracy(), binary, FLOATS(gd_dims(4, 1), 0, 1, 1, 1), 0.75);
    CHECK_ONE(gd_metric_accuracy(), flat, gd_cast(INTS(gd_dims(4), 0, 1, 1, 1), GD_BOOL), 0.75);
    CHECK_ONE(gd_metric_accuracy(), flat, INTS(gd_dims(4, 1), 0, 1, 1, 1), 0.75);
    CHECK_ONE(gd_metric_accuracy(.logits = false), half, INTS(gd_dims(4), 0, 0, 1, 1), 1);
    CHECK_ONE(gd_metric_accuracy(.logits = false, .threshold = 0.7), half,
              INTS(gd_dims(4), 0, 0, 0, 1), 1);
    /* images: (N,C,H,W) and (N,H,W) */
    gd_tensor *image = FLOATS(gd_dims(1, 2, 2, 2), 1, 1, 0, 0, 0, 2, 2, 2);
    CHECK_ONE(gd_metric_accuracy(), image, INTS(gd_dims(1, 2, 2), 0, 1, 0, 1), 0.75);
    CHECK_ONE(gd_metric_accuracy(.ignore_index = 0), image, INTS(gd_dims(1, 2, 2), 0, 1, 0, 1), 1);
    /* the weight of a sample applies to all of its positions */
    gd_metric *m = gd_metric_accuracy();
    gd_metric_update(m, gd_cat(gd_list(image, image)),
                     INTS(gd_dims(2, 2, 2), 0, 1, 0, 1, 1, 1, 1, 1),
                     .weight = FLOATS(gd_dims(2), 1, 3));
    CHECK_NUMBER(m, (3 + 3 * 3.0) / 16);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(outputs_may_have_half_precision) {
    GD_SCOPE;
    gd_tensor *x = gd_cast(logits_3x3(), GD_BF16), *t = INTS(gd_dims(3), 1, 0, 2);
    CHECK_ONE(gd_metric_accuracy(), x, t, 1);
    CHECK_ONE(gd_metric_top_k(.k = 1), x, t, 1);
    gd_metric *m = gd_metric_perplexity(), *exact = gd_metric_perplexity();
    gd_metric_update(m, x, t);
    gd_metric_update(exact, logits_3x3(), t);
    CHECK_NUMBER(m, gd_metric_number(exact));
}

CLEAN_TEST(perplexity_accepts_probabilities_as_targets) {
    GD_SCOPE;
    gd_tensor *x = logits_3x3();
    gd_metric *numbers = gd_metric_perplexity(), *vectors = gd_metric_perplexity();
    gd_metric_update(numbers, x, INTS(gd_dims(3), 1, 0, 2));
    gd_metric_update(vectors, x, FLOATS(gd_dims(3, 3), 0, 1, 0, 1, 0, 0, 0, 0, 1));
    CHECK_NUMBER(vectors, gd_metric_number(numbers));
}

CLEAN_TEST(ties_are_won_by_the_lower_class) {
    GD_SCOPE;
    gd_tensor *equal = gd_zeros(gd_dims(4, 4)), *t = INTS(gd_dims(4), 0, 1, 2, 3);
    CHECK_ONE(gd_metric_accuracy(), equal, t, 0.25);
    CHECK_ONE(gd_metric_top_k(.k = 1), equal, t, 0.25);
    CHECK_ONE(gd_metric_top_k(.k = 3), equal, t, 0.75);
    CHECK_ONE(gd_metric_top_k(.k = 9), equal, t, 1);
    gd_tensor *bad = FLOATS(gd_dims(2, 3), NAN, 1, 2, 1, NAN, 2);
    /* NaN counts as the largest value */
    CHECK_ONE(gd_metric_top_k(.k = 2), bad, INTS(gd_dims(2), 2, 2), 1);
    CHECK_ONE(gd_metric_top_k(.k = 1), bad, INTS(gd_dims(2), 2, 2), 0);
}

CLEAN_TEST(classes_without_samples_count_as_zero) {
    GD_SCOPE;
    gd_tensor *x = FLOATS(gd_dims(2, 1), -1, -1); /* no sample is predicted as class 1 */
    CHECK_ONE(gd_metric_precision(), x, INTS(gd_dims(2), 1, 0), 0);
    CHECK_ONE(gd_metric_recall(), x, INTS(gd_dims(2), 0, 0), 0);
    CHECK_ONE(gd_metric_f1(), x, INTS(gd_dims(2), 0, 0), 0);
    CHECK_ONE(gd_metric_recall(.average = GD_MACRO), x, INTS(gd_dims(2), 0, 0), 1);
    gd_metric *m = gd_metric_recall();
    CHECK(isnan(gd_metric_number(m)));
    gd_metric_update(m, x, INTS(gd_dims(2), 1, 0));
    gd_metric_reset(m);
    CHECK(isnan(gd_metric_number(m)));
    m = gd_metric_precision(.average = GD_BINARY); /* two columns */
    gd_metric_update(m, FLOATS(gd_dims(3, 2), 0, 1, 0, 1, 1, 0), INTS(gd_dims(3), 1, 0, 1));
    CHECK_NUMBER(m, 0.5);
}

/* Scores of positive and negative samples around two centers, mostly where the sigmoid saturates at
 * 0 or 1. */
CLEAN_TEST(auc_distinguishes_very_confident_outputs) {
    GD_SCOPE;
    static float x[2000];
    static int64_t t[2000];
    draws stream = {7};
    for (int i = 0; i < 2000; i++) {
        t[i] = i % 2;
        x[i] = (float)(40 + 3 * (double)t[i] + (double)draw_below(&stream, 1000) / 100);
    }
    int64_t twice = 0; /* correctly ordered pairs, times two */
    for (int i = 1; i < 2000; i += 2)
        for (int k = 0; k < 2000; k += 2) twice += 2 * (x[i] > x[k]) + (x[i] == x[k]);
    const double exact = (double)twice / 2e6;
    gd_metric *m = gd_metric_auc();
    gd_metric_update(m, gd_from_array(gd_dims(2000), GD_F32, x),
                     gd_from_array(gd_dims(2000), GD_I64, t));
    CHECK_SAYING(fabs(gd_metric_number(m) - exact) < 2e-3, "%g, not %g", gd_metric_number(m),
                 exact);
    CHECK(exact > 0.7 && exact < 0.8);
    gd_metric *p = gd_metric_auc(.logits = false), *two = gd_metric_auc();
    gd_tensor *small = FLOATS(gd_dims(4), 0.1, 0.4, 0.35, 0.8),
              *target = INTS(gd_dims(4), 0, 0, 1, 1);
    CHECK_ONE(p, small, target, 0.75);
    CHECK_ONE(two, FLOATS(gd_dims(4, 2), 0, .1, 1, 1.4, 5, 5.35, 2, 2.8), target, 0.75);
    CHECK_ONE(gd_metric_auc(.logits = false), FLOATS(gd_dims(4), 0, 0, 1, 1), target, 1);
    m = gd_metric_auc();
    gd_metric_update(m, small, INTS(gd_dims(4), 1, 1, 1, 1));
    CHECK(isnan(gd_metric_number(m)));
    gd_metric_update(m, FLOATS(gd_dims(2), NAN, 1), INTS(gd_dims(2), 0, 1));
    CHECK(isnan(gd_metric_number(m)));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(regression_metrics_compare_element_by_element) {
    GD_SCOPE;
    gd_tensor *column = FLOATS(gd_dims(3, 1), 1, 2, 3), *row = FLOATS(gd_dims(3), 1, 2, 6);
    CHECK_ONE(gd_metric_mae(), column, row, 1);
    CHECK_ONE(gd_metric_mse(), row, column, 3);
    CHECK_ONE(gd_metric_rmse(), column, row, sqrt(3));
    CHECK_ONE(gd_metric_mae(), column, INTS(gd_dims(3), 1, 2, 6), 1);
    CHECK_ONE(gd_metric_r2(), FLOATS(gd_dims(2), 5, 5), FLOATS(gd_dims(2), 5, 5), 1);
    CHECK_ONE(gd_metric_r2(), FLOATS(gd_dims(2), 5, 6), FLOATS(gd_dims(2), 5, 5), 0);
    gd_metric *m = gd_metric_mse(); /* a sample with weight 0 may hold any value */
    gd_metric_update(m, FLOATS(gd_dims(2), NAN, 3), FLOATS(gd_dims(2), 0, 1),
                     .weight = FLOATS(gd_dims(2), 0, 1));
    CHECK_NUMBER(m, 4);
    CHECK(isnan(gd_metric_number(gd_metric_r2())) && isnan(gd_metric_number(gd_metric_rmse())));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(sums_accumulate_in_f64) {
    GD_SCOPE;
    gd_metric *m = gd_metric_mae();
    gd_tensor *one = gd_ones(gd_dims(1 << 16)), *zero = gd_zeros(gd_dims(1 << 16));
    /* more samples than f32 can count */
    for (int i = 0; i < 300; i++) gd_metric_update(m, one, zero);
    CHECK_NUMBER(m, 1);
}

/* --- labels, records -------------------------------------------------------------------------- */

CLEAN_TEST(labels_contain_the_options) {
    GD_SCOPE;
    CHECK(strcmp(gd_metric_name(gd_metric_top_k()), "top_5") == 0);
    CHECK(strcmp(gd_metric_name(gd_metric_top_k(.k = 12)), "top_12") == 0);
    CHECK(strcmp(gd_metric_name(gd_metric_top_k(.label = "best{k}of{all}")), "best5of{all}") == 0);
    CHECK(strcmp(gd_metric_name(gd_metric_mae(.label = "error")), "error") == 0);
    CHECK(strcmp(gd_metric_name(gd_metric_new("top_k", "k=3")), "top_3") == 0);
    CHECK(strcmp(gd_metric_name(NULL), "") == 0);
    int count = 0;
    while (gd_record_at("metric", count)) count++;
    CHECK(count >= 12 && !gd_record_at("metric", -1));
}

static void count_update(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    const struct { double scale; } *o = gd_metric_options(m);
    (void)target, (void)weight;
    gd_metric_add(m, "sum", gd_mul(gd_sum(output), gd_scalar(o->scale)));
    gd_metric_add(m, "sum", gd_scalar(1)); /* twice in one update */
}
static gd_tensor *count_value(gd_metric *m) { return gd_metric_sum(m, "sum"); }

CLEAN_TEST(a_program_can_define_metrics) {
    GD_SCOPE;
    static bool defined;
    if (!defined)
        CHECK(gd_metric_define("scaled_sum\nThe sum.\n  scale float = 2   in (0, inf)\n",
                               (gd_metric_rules){.update = count_update, .value = count_value}) ==
              GD_OK);
    defined = true;
    gd_metric *m = gd_metric_new("scaled_sum", "scale=3");
    CHECK_NUMBER(m, 0);
    gd_metric_update(m, gd_ones(gd_dims(4)), gd_ones(gd_dims(4)));
    CHECK_NUMBER(m, 13);
    CHECK(!gd_metric_new("scaled_sum", "scale=-1") && says("scale is -1; it must be in (0, inf)"));
    gd_clear_error();
    gd_metric_add(m, "sum", gd_scalar(1));
    CHECK(gd_failed() && says("outside the metric's update"));
    gd_clear_error();
    CHECK_NUMBER(m, 13);
}

/* --- invalid inputs --------------------------------------------------------------------------- */

#define CHECK_FAILS(made, output, target, words)                \
    do {                                                        \
        CHECK(gd_metric_update(made, output, target) != GD_OK); \
        CHECK_SAYING(says(words), "%s", gd_error_message());    \
        gd_clear_error();                                       \
    } while (0)

CLEAN_TEST(messages_state_what_is_expected) {
    GD_SCOPE;
    gd_tensor *x = gd_zeros(gd_dims(4, 5)), *sequence = gd_zeros(gd_dims(2, 3, 5));
    gd_tensor *class = gd_zeros(gd_dims(4), .dtype = GD_I64);
    CHECK_FAILS(gd_metric_accuracy(), x, gd_zeros(gd_dims(3), .dtype = GD_I64),
                "metric accuracy: the output is f32[4,5] and the target i64[3]; class numbers "
                "would be [4]");
    CHECK_FAILS(gd_metric_accuracy(), sequence, gd_zeros(gd_dims(2, 3), .dtype = GD_I64),
                "axis=-1");
    CHECK_FAILS(gd_metric_accuracy(), x, gd_zeros(gd_dims(4)),
                "class numbers are integers; the target is f32");
    CHECK_FAILS(gd_metric_accuracy(), gd_scalar(1), class, "the output is a number");
    CHECK_FAILS(gd_metric_accuracy(.axis = 2), x, class, "axis");
    CHECK_FAILS(gd_metric_accuracy(.axis = 0), x, class, "axis is 0, the axis of the samples");
    CHECK_FAILS(gd_metric_top_k(), gd_zeros(gd_dims(4, 1)), class, "one column");
    CHECK_FAILS(gd_metric_auc(), x, class, "5 classes; auc is for two");
    CHECK_FAILS(gd_metric_f1(.average = GD_BINARY), x, class,
                "average is binary and the output has 5 classes");
    CHECK_FAILS(gd_metric_confusion(), x, gd_full(gd_dims(4), 9, .dtype = GD_I64),
                "metric confusion");
    CHECK_FAILS(gd_metric_mse(), x, class,
                "the output is f32[4,5] and the target i64[4]; they must have the same shape");
    CHECK_FAILS(gd_metric_mse(), x, NULL, "the target is NULL");
    CHECK_FAILS(NULL, x, class, "the metric is NULL");
    gd_metric *m = gd_metric_accuracy();
    CHECK(gd_metric_update(m, x, class, .weight = gd_zeros(gd_dims(5))) == GD_E_SHAPE &&
          says("weight is f32[5]"));
    gd_clear_error();
    CHECK(!gd_metric_top_k(.k = 0) && says("gd_metric_top_k: k is 0; it must be in [1, inf)"));
    gd_clear_error();
    CHECK(!gd_metric_new("acuracy", "") && says("there is no metric 'acuracy'"));
    gd_clear_error();
    gd_metric *matrix = gd_metric_confusion();
    CHECK(isnan(gd_metric_number(matrix)) && !gd_failed());
    gd_metric_update(matrix, x, class);
    CHECK(isnan(gd_metric_number(matrix)) &&
          says("metric confusion: the value is f64[5,5], not a number"));
    gd_clear_error();
    CHECK_FAILS(matrix, gd_zeros(gd_dims(4, 6)), class,
                "the sum 'matrix' has shape [5,5], and the value of this batch [6,6]");
    CHECK(gd_item(gd_select(gd_select(gd_metric_value(matrix), 0, 0), 0, 0)) == 4);
}

CLEAN_TEST(nothing_is_added_while_a_failure_is_recorded) {
    GD_SCOPE;
    gd_metric *m = gd_metric_accuracy();
    gd_metric_update(m, logits_3x3(), INTS(gd_dims(3), 1, 0, 0));
    gd_reshape(gd_ones(gd_dims(3)), gd_dims(7));
    CHECK(gd_metric_update(m, logits_3x3(), INTS(gd_dims(3), 1, 0, 0)) == gd_error_status());
    CHECK(gd_metric_reset(m) == gd_error_status());
    gd_clear_error();
    CHECK_NUMBER(m, 2.0 / 3);
}

/* --- state ------------------------------------------------------------------------------------ */

CLEAN_TEST(sums_are_saved_and_loaded) {
    GD_SCOPE;
    gd_metric *from = gd_metric_f1(), *to = gd_metric_f1(), *empty = gd_metric_f1();
    gd_tensor *x = logits_3x3(), *t = INTS(gd_dims(3), 1, 0, 0);
    gd_metric_update(from, x, t);
    const double before = gd_metric_number(from);
    const char *path = temp_path("metrics.safetensors");
    CHECK(gd_save_state(path, gd_part("f1", from), gd_part("other", empty)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("f1", to)) == GD_OK);
    CHECK_NUMBER(to, before);
    gd_metric_update(to, x, t);
    gd_metric_update(from, x, t);
    CHECK_NUMBER(to, gd_metric_number(from));
    CHECK(gd_load_state(path, gd_part("f1", to)) == GD_OK); /* replaces existing sums */
    CHECK_NUMBER(to, before);
    CHECK(gd_load_state(path, gd_part("other", to)) == GD_OK); /* creates missing sums */
    CHECK(isnan(gd_metric_number(to)));
    gd_metric_update(to, x, t);
    CHECK_NUMBER(to, before);
    gd_metric *other = gd_metric_mse();
    gd_metric_update(other, x, x);
    CHECK(gd_load_state(path, gd_part("f1", other), gd_part("nobody", other)) != GD_OK);
    gd_clear_error();
    CHECK_NUMBER(other, 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_jit_continues_with_loaded_sums) {
    GD_SCOPE;
    jitted_metric j = {gd_metric_accuracy(), false};
    gd_metric *saved = gd_metric_accuracy(), *empty = gd_metric_accuracy();
    gd_tensor *x = logits_3x3(), *t = INTS(gd_dims(3), 1, 0, 0), *all = INTS(gd_dims(3), 1, 0, 2);
    gd_metric_update(saved, x, all);
    gd_jit *jit = gd_jit_new(measure_batch, &j);
    gd_jit_call(jit, gd_list(x, t));
    gd_set_state(j.metric, gd_state_of(saved)); /* the same tensors */
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 5.0 / 6));
    CHECK(gd_jit_traces(jit) == 1);
    gd_set_state(j.metric, gd_state_of(empty)); /* other tensors: the jit is retraced */
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 2.0 / 3));
    CHECK_NUMBER(j.metric, 2.0 / 3);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
