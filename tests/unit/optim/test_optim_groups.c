/* test_optim_groups.c - groups, factors, options by name, clipping, and user-defined optimizers. */
#include <math.h>

#include "backend/test/device.h"
#include "clean_test.h"
#include "compare.h"
#include "draw.h"
#include "gradus/gradus.h"
#include "dispatch/factory.h"
#include "optim/optimizer.h"

static gd_tensor *leaf(double value) { return gd_requires_grad(gd_full(gd_dims(3), value)); }
static void set_grad(gd_tensor *w, double value) { gd_set_grad(w, gd_full(gd_dims(3), value)); }
static double first_element(gd_tensor *w) {
    GD_SCOPE;
    GD_NO_GRAD;
    return gd_item(gd_select(w, 0, 0));
}

CLEAN_TEST(groups_have_their_own_options) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *b = leaf(1), *c = leaf(1);
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a), .lr = 0.5);
    CHECK(gd_optimizer_add(sgd, gd_list(b), .lr = 0.25, .weight_decay = 2) == GD_OK);
    CHECK(gd_optimizer_add_text(sgd, gd_list(c), "maximize=true") == GD_OK &&
          gd_optimizer_group_count(sgd) == 3);
    set_grad(a, 1), set_grad(b, 1), set_grad(c, 1);
    CHECK(gd_optimizer_step(sgd) == GD_OK);
    CHECK(first_element(a) == 0.5 && first_element(b) == 0.25 && first_element(c) == 1.5);
    gd_optimizer_set_lr(sgd, 1, .group = 1);
    CHECK(gd_item(gd_optimizer_lr(sgd)) == 0.5 && gd_item(gd_optimizer_lr(sgd, .group = 1)) == 1);
    CHECK(gd_tensor_dtype(gd_optimizer_lr(sgd)) == GD_F64);
    gd_optimizer_lr(sgd, .group = 3);
    CHECK(gd_failed() && says("no group 3; the optimizer has 3"));
}

static void check_fails(gd_status got, gd_status status, const char *part) {
    CHECK_SAYING(got == status && gd_error_status() == status && says(part), "%s",
                 gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(options_and_parameters_of_groups_can_be_read) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *b = leaf(1), *c = leaf(1);
    gd_optimizer *adam = gd_optim_adam(gd_list(a, b), .beta1 = 0.5);
    gd_optimizer_add(adam, gd_list(c), .weight_decay = 2);
    const gd_tensors first = gd_optimizer_parameters(adam),
                     second = gd_optimizer_parameters(adam, .group = 1);
    CHECK(first.count == 2 && first.at[0] == a && first.at[1] == b);
    CHECK(second.count == 1 && second.at[0] == c);
    CHECK(strcmp(gd_optimizer_type(adam), "adam") == 0 &&
          strcmp(gd_schedule_type(gd_lr_cosine(adam, 5)), "cosine") == 0);
    CHECK(strcmp(gd_optimizer_option_name(adam, 0), "lr") == 0 &&
          !gd_optimizer_option_name(adam, 99));
    CHECK(gd_optimizer_option(adam, "beta1", 1) == 0.5 &&
          gd_optimizer_option(adam, "weight_decay", 0) == 0 &&
          gd_optimizer_option(adam, "weight_decay", 1) == 2);
    CHECK(isnan(gd_optimizer_option(adam, "momentum", 0)) &&
          isnan(gd_optimizer_option(adam, "lr", 2)));
    CHECK(strcmp(gd_optimizer_slot_name(adam, 0, 0), "exp_avg") == 0 &&
          strcmp(gd_optimizer_slot_name(adam, 0, 2), "step") == 0 &&
          !gd_optimizer_slot_name(adam, 0, 3));
    gd_optimizer_parameters(adam, .group = 2);
    CHECK(gd_failed() && says("no group 2"));
    gd_clear_error();
}

static gd_tensors step_of(gd_tensors in, void *user) {
    gd_optimizer *o = user;
    set_grad(gd_optimizer_parameters(o).at[0], 1);
    gd_optimizer_step(o);
    return in;
}

CLEAN_TEST(options_can_change_between_steps) {
    GD_SCOPE;
    gd_tensor *a = leaf(1);
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a), .lr = 0.5);
    CHECK(gd_optimizer_set_options(sgd, "momentum=0.5") == GD_OK);
    gd_jit *jit = gd_jit_new(step_of, sgd);
    gd_jit_call(jit, gd_list(gd_scalar(0)));
    CHECK(!gd_failed() && first_element(a) == 0.5);
    CHECK(gd_optimizer_set_options(sgd, "momentum=0") == GD_E_STATE);
    CHECK(says("cannot change after the first step"));
    gd_clear_error();
    CHECK(gd_optimizer_set_options(sgd, "momentum=0.25 lr=1") == GD_OK);
    gd_jit_call(jit, gd_list(gd_scalar(0)));
    CHECK(!gd_failed() && first_element(a) == 0.5 - 1.25 && gd_jit_traces(jit) == 2);
    CHECK(gd_optimizer_set_options(sgd, "lr=-1") == GD_E_ARGUMENT && says("[0, inf)"));
    gd_clear_error();
    CHECK(gd_item(gd_optimizer_lr(sgd)) == 1 && gd_optimizer_option(sgd, "momentum", 0) == 0.25);
}

CLEAN_TEST(factors_can_change_between_calls_of_a_jit) {
    GD_SCOPE;
    gd_tensor *a = leaf(1);
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a), .lr = 0.5); /* without state */
    gd_jit *jit = gd_jit_new(step_of, sgd);
    gd_jit_call(jit, gd_list(gd_scalar(0)));
    CHECK(!gd_failed() && first_element(a) == 0.5);
    CHECK(gd_optimizer_set_factors(sgd, a, .lr = 0) == GD_OK);
    gd_jit_call(jit, gd_list(gd_scalar(0)));
    CHECK(!gd_failed() && first_element(a) == 0.5 && gd_jit_traces(jit) == 2);
    gd_jit_call(jit, gd_list(gd_scalar(0)));
    CHECK(!gd_failed() && gd_jit_traces(jit) == 2);
}

CLEAN_TEST(changed_options_keep_factors) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *b = leaf(1);
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a, b), .lr = 0.5);
    CHECK(gd_optimizer_set_factors(sgd, a, .lr = 2, .weight_decay = 0) == GD_OK);
    CHECK(gd_optimizer_set_options(sgd, "weight_decay=1") == GD_OK);
    CHECK(gd_optimizer_set_factors(sgd, b, .lr = 0.5) == GD_OK);
    CHECK(gd_optimizer_parameters(sgd).count == 2);
    set_grad(a, 0.25), set_grad(b, 1);
    CHECK(gd_optimizer_step(sgd) == GD_OK);
    CHECK(first_element(a) == 1 - 2 * 0.5 * 0.25 && first_element(b) == 1 - 0.5 * 0.5 * 2);
}

CLEAN_TEST(a_program_may_put_the_state_of_an_optimizer_together) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *buffer = gd_full(gd_dims(3), 4), *lr = gd_scalar_of(0.5, GD_F64);
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a), .momentum = 0.5);
    gd_state *state =
        gd_state_of_parts(gd_part("0.momentum_buffer", buffer), gd_part("groups.0.lr", lr));
    CHECK(state && gd_state_count(state) == 2 && gd_state_find(state, "groups.0.lr") == lr);
    CHECK(gd_set_state(sgd, state) == GD_OK);
    set_grad(a, 1);
    CHECK(gd_optimizer_step(sgd) == GD_OK);
    CHECK(first_element(a) == 1 - 0.5 * 3);
}

CLEAN_TEST(invalid_groups_fail) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *b = leaf(1);
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a));
    check_fails(gd_optimizer_add(sgd, gd_list(a)), GD_E_ARGUMENT, "parameter 0 is in group 0");
    check_fails(gd_optimizer_add(sgd, gd_list(b), .beta1 = 0.9), GD_E_ARGUMENT,
                "sgd has no option 'beta1'");
    check_fails(gd_optimizer_add(sgd, gd_list(b), .lr = -1), GD_E_ARGUMENT,
                "gd_optim_sgd: lr is -1; it must be in [0, inf)");
    check_fails(gd_optimizer_add(sgd, gd_list(b), .nesterov = true), GD_E_ARGUMENT,
                "nesterov needs momentum");
    check_fails(gd_optimizer_add_text(sgd, gd_list(b), "rate=1"), GD_E_ARGUMENT,
                "no option 'rate'");
    CHECK(gd_optimizer_group_count(sgd) == 1);
    CHECK(gd_optimizer_add(sgd, gd_list(b)) == GD_OK);
    CHECK(!gd_optimizer_new("sdg", gd_list(a), NULL) && says("there is no optimizer 'sdg'"));
    gd_clear_error();
}

/* A learning rate of 0.5 with factor 2 equals 1; a weight decay with factor 0 is none. */
CLEAN_TEST(group_factors_multiply_learning_rate_and_weight_decay) {
    for (int late = 0; late < 2; late++) {
        GD_SCOPE;
        gd_tensor *w[3] = {leaf(1), leaf(1), leaf(1)};
        gd_optimizer *sgd = gd_optim_sgd(((gd_tensors){w, 3}), .lr = 0.25, .weight_decay = 1);
        CHECK(gd_optimizer_set_factors(sgd, w[1], .lr = 2, .weight_decay = 0) == GD_OK);
        CHECK(gd_optimizer_set_factors(sgd, w[2], .lr = 2, .weight_decay = 0) == GD_OK);
        CHECK(gd_optimizer_set_factors(sgd, w[2]) == GD_OK &&
              gd_optimizer_set_factors(sgd, w[2], .lr = 3) == GD_OK);
        for (int i = 0; i < 3; i++) set_grad(w[i], 1);
        CHECK(gd_optimizer_step(sgd) == GD_OK);
        CHECK_SAYING(first_element(w[0]) == 0.5 && first_element(w[1]) == 0.5 &&
                         first_element(w[2]) == -0.5,
                     "%g %g %g", first_element(w[0]), first_element(w[1]), first_element(w[2]));
    }
    GD_SCOPE;
    gd_tensor *w = leaf(1);
    gd_optimizer *adam = gd_optim_adam(gd_list(w));
    check_fails(gd_optimizer_set_factors(adam, w, .lr = -1), GD_E_ARGUMENT,
                "lr is -1; it must be in [0, inf)");
    check_fails(gd_optimizer_set_factors(adam, w, .weight_decay = NAN), GD_E_ARGUMENT,
                "weight_decay is");
    check_fails(gd_optimizer_set_factors(adam, leaf(1)), GD_E_ARGUMENT,
                "not a parameter of the optimizer");
    set_grad(w, 1);
    gd_optimizer_step(adam);
    check_fails(gd_optimizer_set_factors(adam, w, .lr = 2), GD_E_STATE, "before the first step");
}

/* The parts of a group, as lists of the numbers of parameters. */
enum { PARAMETERS = 9, FACTORS = 4 };
typedef struct expected_parts {
    int factor[PARAMETERS], count[PARAMETERS], at[PARAMETERS][PARAMETERS], n;
} expected_parts;

/* Moves a parameter to the end of the part with the factor. A part without parameters goes. */
static void move_expected(expected_parts *e, int parameter, int factor) {
    int to = 0;
    for (int k = 0; k < e->n; k++)
        for (int i = 0; i < e->count[k]; i++) {
            if (e->at[k][i] != parameter) continue;
            if (e->factor[k] == factor) return;
            e->count[k]--;
            memmove(&e->at[k][i], &e->at[k][i + 1], sizeof(int) * (size_t)(e->count[k] - i));
            i = e->count[k];
            if (e->count[k] > 0) continue;
            e->n--;
            for (int l = k; l < e->n; l++) {
                e->factor[l] = e->factor[l + 1], e->count[l] = e->count[l + 1];
                memcpy(e->at[l], e->at[l + 1], sizeof e->at[l]);
            }
            k = e->n;
        }
    while (to < e->n && e->factor[to] != factor) to++;
    if (to == e->n) e->factor[e->n] = factor, e->count[e->n++] = 0;
    e->at[to][e->count[to]++] = parameter;
}

static void check_parts(const gd_optimizer *o, const expected_parts *e, gd_tensor *const *w) {
    const gd_optim_group *g = &o->groups[0];
    CHECK(g->n_parts == e->n);
    for (int k = 0; k < e->n && k < g->n_parts; k++) {
        CHECK(g->parts[k].count == e->count[k] && g->parts[k].factors.lr == 1 + e->factor[k]);
        for (int i = 0; i < e->count[k] && i < g->parts[k].count; i++)
            CHECK(g->parts[k].parameters[i] == w[e->at[k][i]]);
    }
}

/* The order of the parameters decides about the names of their state. */
CLEAN_TEST(parameters_move_to_the_end_of_the_part_with_their_factors) {
    draws d = {6};
    for (int round = 0; round < 300; round++) {
        GD_SCOPE;
        gd_tensor *w[PARAMETERS];
        expected_parts e = {.count = {PARAMETERS}, .n = 1};
        for (int i = 0; i < PARAMETERS; i++) w[i] = leaf(1), e.at[0][i] = i;
        gd_optimizer *o = gd_optim_sgd(((gd_tensors){w, PARAMETERS}));
        for (int moves = draw_below(&d, 40); moves > 0; moves--) {
            const int i = draw_below(&d, PARAMETERS), factor = draw_below(&d, FACTORS);
            CHECK(gd_optimizer_set_factors(o, w[i], .lr = 1 + factor) == GD_OK);
            move_expected(&e, i, factor);
            if (draw_below(&d, 8) == 0) CHECK(gd_optimizer_arrange(o) == GD_OK);
        }
        CHECK(gd_optimizer_arrange(o) == GD_OK);
        check_parts(o, &e, w);
    }
}

/* --- every option of the records -------------------------------------------------------------- */

typedef gd_status options_fn(const char *name, const char *options);

static gd_status try_optimizer(const char *name, const char *options) {
    GD_SCOPE;
    gd_optimizer_new(name, gd_list(leaf(1)), options);
    return gd_error_status();
}

/* Required options come first. */
static const char *required_of(const gd_op *record, const char *but, char *text) {
    *text = 0;
    for (int i = 0; i < record->n_attrs; i++)
        if (record->attrs[i].required && strcmp(record->attrs[i].name, but) != 0)
            sprintf(text + strlen(text), "%s=%s ", record->attrs[i].name,
                    record->attrs[i].type == GD_ATTR_FLOAT ? "0.5" : "10");
    return text;
}

static gd_status try_schedule(const char *name, const char *options) {
    GD_SCOPE;
    gd_schedule_new(name, gd_optim_sgd(gd_list(leaf(1))), options);
    return gd_error_status();
}

static void check_invalid_value(const gd_factory *m, const gd_op_attr *a, const char *value,
                                options_fn *attempt, const char *prefix) {
    char options[200], expected[100], more[100];
    required_of(&m->record, a->name, more);
    snprintf(options, sizeof options, "%s%s=%s", more, a->name, value);
    snprintf(expected, sizeof expected, "%s%s: %s ", prefix, m->record.name, a->name);
    CHECK_SAYING(attempt(m->record.name, options) == GD_E_ARGUMENT && says(expected) &&
                     says("it must be"),
                 "%s of %s: '%s'", options, m->record.name, gd_error_message());
    gd_clear_error();
}

/* An option with an invalid value gives a message that names the record and the option; the
 * defaults are valid. */
static void check_options(const char *kind, const char *prefix, options_fn *attempt) {
    char text[100];
    const gd_factory *m;
    int options = 0;
    for (int i = 0; (m = gd_factory_at(kind, i)); i++) {
        CHECK_SAYING(attempt(m->record.name, required_of(&m->record, "", text)) == GD_OK, "%s",
                     gd_error_message());
        gd_clear_error();
        for (int k = 0; k < m->record.n_attrs; k++) {
            const gd_op_attr *a = &m->record.attrs[k];
            if (a->type == GD_ATTR_SHAPE || a->type == GD_ATTR_BOOL || a->type == GD_ATTR_WORD)
                continue;
            CHECK_SAYING(a->required || strncmp(a->doc, "in ", 3) == 0, "%s of %s has no range",
                         a->name, m->record.name);
            const bool signs =
                strncmp(a->doc, "in (-inf", 8) == 0 ||
                (strcmp(m->record.name, "sigmoid") == 0 && a->type == GD_ATTR_FLOAT &&
                 a->required); /* gamma: the rate rises or falls */
            if (!signs) check_invalid_value(m, a, "-1", attempt, prefix);
            if (a->type == GD_ATTR_FLOAT)
                check_invalid_value(m, a, "nan", attempt, prefix),
                    check_invalid_value(m, a, "inf", attempt, prefix);
            options++;
        }
    }
    CHECK(options > 20);
}

CLEAN_TEST(invalid_options_are_named) {
    check_options("optimizer", "gd_optim_", try_optimizer);
    check_options("schedule", "gd_lr_", try_schedule);
    GD_SCOPE;
    CHECK(!gd_optim_adam(gd_list(leaf(1)), .beta1 = 1.5) &&
          says("gd_optim_adam: beta1 is 1.5; it must be in [0, 1)"));
    gd_clear_error();
    CHECK(!gd_optim_sgd(gd_list(leaf(1)), .nesterov = true, .momentum = 0.9, .dampening = 0.5) &&
          says("nesterov"));
    gd_clear_error();
    gd_optimizer *sgd = gd_optim_sgd(gd_list(leaf(1)));
    CHECK(!gd_lr_multistep(sgd, gd_dims(3, -1)) && says("gd_lr_multistep: milestones"));
    gd_clear_error();
    CHECK(!gd_lr_one_cycle(sgd, 3) && says("gd_lr_one_cycle: steps is 3"));
    gd_clear_error();
    CHECK(!gd_lr_cosine(NULL, 3) && says("the optimizer is NULL"));
    gd_clear_error();
    CHECK(!gd_schedule_new("cosine", sgd, NULL) && says("steps"));
}

CLEAN_TEST(all_optimizers_and_schedules_can_be_created_by_name) {
    int n = 0, schedules = 0;
    while (gd_record_at("optimizer", n)) n++;
    while (gd_record_at("schedule", schedules)) schedules++;
    CHECK(n >= 5 && schedules >= 8 && !gd_record_at("optimizer", -1) &&
          !gd_record_at("schedule", -1));
}

/* --- clipping --------------------------------------------------------------------------------- */

CLEAN_TEST(gradients_are_clipped_by_norm) {
    for (int type = 0; type < 3; type++) {
        GD_SCOPE;
        gd_tensor *a = leaf(1), *b = leaf(1), *c = leaf(1);
        gd_tensor *h = gd_requires_grad(gd_full(gd_dims(2), 1, .dtype = GD_F64));
        set_grad(a, 3), set_grad(b, -4);
        gd_set_grad(h, gd_full(gd_dims(2), 5, .dtype = GD_F64));
        const double p = (double[]){2, 1, INFINITY}[type],
                     total = (double[]){sqrt(125), 31, 5}[type];
        gd_tensor *norm = gd_clip_grad_norm(gd_list(a, b, c, h), 2, .norm_type = p);
        CHECK_SAYING(fabs(gd_item(norm) - total) < 1e-6 && gd_tensor_dtype(norm) == GD_F64,
                     "%g: %s", gd_item(norm), gd_error_message());
        const double factor = 2 / (total + 1e-6);
        CHECK(fabs(first_element(gd_tensor_grad(a)) - 3 * factor) < 1e-6 &&
              fabs(first_element(gd_tensor_grad(b)) + 4 * factor) < 1e-6);
        CHECK(fabs(first_element(gd_tensor_grad(h)) - 5 * factor) < 1e-6 && !gd_tensor_grad(c));
        /* the norms are small enough */
        gd_clip_grad_norm(gd_list(a, b, c, h), 100, .norm_type = p);
        CHECK(fabs(first_element(gd_tensor_grad(a)) - 3 * factor) < 1e-6);
    }
}

CLEAN_TEST(gradients_are_clipped_by_value) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *b = leaf(1), *c = leaf(1);
    set_grad(a, 3), set_grad(b, -4);
    CHECK(gd_clip_grad_value(gd_list(a, b, c), 3.5) == GD_OK);
    CHECK(first_element(gd_tensor_grad(a)) == 3 && first_element(gd_tensor_grad(b)) == -3.5 &&
          !gd_tensor_grad(c));
}

CLEAN_TEST(clipping_reports_misuse) {
    GD_SCOPE;
    gd_tensor *a = leaf(1);
    CHECK(gd_item(gd_clip_grad_norm(gd_list(a), 1)) == 0); /* there are no gradients */
    set_grad(a, INFINITY);
    CHECK(isinf(gd_item(gd_clip_grad_norm(gd_list(a), 1))));
    set_grad(a, INFINITY);
    CHECK(gd_tensor_is_error(gd_clip_grad_norm(gd_list(a), 1, .error_if_nonfinite = true)) &&
          says("not finite"));
    gd_clear_error();
    CHECK(isinf(first_element(gd_tensor_grad(a)))); /* unchanged */
    CHECK(gd_tensor_is_error(gd_clip_grad_norm(gd_list(a), NAN)) && says("max_norm"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_clip_grad_norm(gd_list(a), 1, .norm_type = 0)) &&
          says("norm_type is 0"));
    gd_clear_error();
    CHECK(gd_clip_grad_value(gd_list(a, NULL), 1) == GD_E_ARGUMENT && says("parameter 1 is NULL"));
}

/* Two leaves with the same gradient tensor: it is scaled twice, as when clipped one by one. */
CLEAN_TEST(a_gradient_shared_by_two_leaves_is_updated_in_order) {
    GD_SCOPE;
    gd_tensor *a = leaf(1), *b = leaf(1), *g = gd_full(gd_dims(3), 2);
    gd_set_grad(a, g), gd_set_grad(b, g);
    gd_clip_grad_norm(gd_list(a, b), 1, .norm_type = INFINITY);
    CHECK_SAYING(fabs(first_element(g) - 0.5) < 1e-5, "%g", first_element(g));
}

/* --- lists ------------------------------------------------------------------------------------ */

enum { MANY = 40 };

/* Tensors of many sizes, dtypes and layouts, in one optimizer or one optimizer each, on one thread
 * or several, give the same bits. */
static void make_many(gd_tensor **w) {
    gd_seed(3);
    for (int i = 0; i < MANY; i++) {
        const gd_dtype dtype = i % 11 == 5 ? GD_F64 : i % 13 == 7 ? GD_BF16 : GD_F32;
        gd_tensor *t = gd_cast(gd_randn(gd_dims(1 + i % 5, i == 20   ? 30000
                                                           : i == 30 ? 0
                                                                     : 1 + 7 * i)),
                               dtype);
        if (i % 9 == 4) t = gd_transpose(t, 0, 1);
        w[i] = gd_requires_grad(gd_detach(t));
        gd_tensor *g = gd_cast(gd_randn(gd_tensor_shape(t)), dtype);
        if (i % 17 == 3) g = gd_transpose(gd_clone(gd_transpose(g, 0, 1)), 0, 1);
        if (i != 12) gd_set_grad(w[i], g); /* leaf 12 has no gradient */
    }
}

CLEAN_TEST(updating_a_list_equals_updating_one_by_one) {
    for (int threads = 1; threads <= 3; threads += 2)
        for (const char *const *name =
                 (const char *const[]){"sgd", "adam", "rmsprop", "adagrad", NULL};
             *name; name++) {
            GD_SCOPE;
            gd_set_num_threads(threads);
            gd_tensor *a[MANY], *b[MANY];
            make_many(a), make_many(b);
            gd_optimizer *all = gd_optimizer_new(*name, ((gd_tensors){a, MANY}), "lr=0.1"),
                         *each[MANY];
            for (int i = 0; i < MANY; i++)
                each[i] = gd_optimizer_new(*name, gd_list(b[i]), "lr=0.1");
            for (int step = 0; step < 3; step++) {
                gd_optimizer_step(all);
                for (int i = 0; i < MANY; i++) gd_optimizer_step(each[i]);
            }
            GD_NO_GRAD;
            for (int i = 0; i < MANY; i++)
                CHECK_SAYING(gd_tensor_numel(a[i]) == 0 || tensors_distance(a[i], b[i]) == 0,
                             "%s, tensor %d: %s", *name, i, gd_error_message());
        }
    gd_set_num_threads(0);
}

/* A device without a kernel for lists, whose memory the host cannot read, gives the same
 * updates. */
CLEAN_TEST(parameters_on_another_device_are_updated) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    for (int method = 0; method < 2; method++) {
        gd_tensor *a[3], *b[3];
        for (int i = 0; i < 3; i++) {
            a[i] = leaf(1);
            b[i] = gd_requires_grad(gd_to_device(gd_ones(gd_dims(3)), device));
            set_grad(a[i], 0.5 + i);
            gd_set_grad(b[i], gd_to_device(gd_full(gd_dims(3), 0.5 + i), device));
        }
        gd_optimizer *host_optimizer =
                         gd_optimizer_new(method ? "adamw" : "sgd", ((gd_tensors){a, 3}), NULL),
                     *device_optimizer =
                         gd_optimizer_new(method ? "adamw" : "sgd", ((gd_tensors){b, 3}), NULL);
        gd_schedule *s = gd_lr_exponential(host_optimizer, 0.5),
                    *t = gd_lr_exponential(device_optimizer, 0.5);
        for (int step = 0; step < 3; step++) {
            if (step == 1) gd_set_requires_grad(a[1], false), gd_set_requires_grad(b[1], false);
            gd_clip_grad_norm(((gd_tensors){a, 3}), 1), gd_clip_grad_norm(((gd_tensors){b, 3}), 1);
            gd_optimizer_step(host_optimizer), gd_optimizer_step(device_optimizer);
            gd_schedule_step(s), gd_schedule_step(t);
        }
        for (int i = 0; i < 3; i++) {
            GD_NO_GRAD;
            gd_tensor *back = gd_to_device(b[i], gd_device_get("cpu"));
            CHECK_SAYING(!gd_failed() && fabs(first_element(back) - first_element(a[i])) < 1e-6 &&
                             first_element(back) < 1,
                         "%d: %.9g %.9g %s", method, first_element(back), first_element(a[i]),
                         gd_error_message());
        }
    }
}

/* --- user-defined optimizers ------------------------------------------------------------------ */

typedef struct signs_options {
    double lr, shrink;
} signs_options;

static void signs_update(gd_update *u) {
    const signs_options *o = gd_update_options(u);
    gd_update_each(u, "sign_step", NULL,
                   gd_list(gd_mul(gd_update_lr(u), gd_scalar_of(o->shrink, GD_F64))));
}

static gd_tensor *halving_rate(const void *options, gd_tensor *step, gd_tensor *base) {
    (void)options;
    return gd_mul(base, gd_pow(gd_scalar_of(0.5, GD_F64), step));
}

TEST(a_program_can_define_optimizers_and_schedules) {
    GD_SCOPE;
    CHECK(gd_op_define(
              "sign_step(p!, g, lr) -> p  elementwise nograd\nOne step.\n  p = p - lr * sign(g)\n",
              NULL) == GD_OK);
    CHECK(gd_optimizer_define("signs\nSign descent.\n  lr float = 0.5   in [0, inf): rate\n  "
                              "shrink float = 1   in (0, 1]\n",
                              (gd_optimizer_rules){.update = signs_update}) == GD_OK);
    CHECK(gd_schedule_define("halving\nHalf of it.\n", (gd_schedule_rules){.rate = halving_rate}) ==
          GD_OK);
    gd_tensor *a = leaf(1), *b = leaf(1);
    gd_optimizer *o = gd_optimizer_new("signs", gd_list(a, b), "shrink=0.5");
    gd_schedule *s = gd_schedule_new("halving", o, NULL);
    CHECK_SAYING(o && s, "%s", gd_error_message());
    if (!o || !s) return;
    for (int i = 0; i < 2; i++) {
        set_grad(a, 3), set_grad(b, -3);
        gd_optimizer_step(o);
        gd_schedule_step(s);
    }
    CHECK_SAYING(first_element(a) == 1 - 0.375 && first_element(b) == 1 + 0.375, "%g %g %s",
                 first_element(a), first_element(b), gd_error_message());
    CHECK(!gd_optimizer_new("signs", gd_list(a), "shrink=2") &&
          says("gd_optim_signs: shrink is 2; it must be in (0, 1]"));
    gd_clear_error();
    CHECK(gd_optimizer_define("norate\nNo rate.\n", (gd_optimizer_rules){.update = signs_update}) ==
          GD_OK);
    CHECK(!gd_optimizer_new("norate", gd_list(a), NULL) && says("'lr'"));
    gd_clear_error();
}

TEST_MAIN
