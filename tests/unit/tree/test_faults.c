/* test_faults.c - a training step in which one allocation fails.
 *
 * The walk makes allocation n of a step fail, for n = 0, 1, 2, ... until the step completes. Each
 * time the status is GD_E_MEMORY (or the step did without that memory), no parameter is partly
 * written, nothing leaks, and the next step gives the usual result.
 */
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"

#include "test.h"

enum { MAX_STATE = 12, MAX_BYTES = 4096 };

/* The state of a model: parameters first, then running statistics. */
typedef struct {
    const char *name;
    void (*make)(gd_tensor **state, gd_tensor **x, gd_tensor **target);
    gd_tensor *(*loss)(gd_tensor *const *state, gd_tensor *x, gd_tensor *target);
    int n_parameters, n_state;
} model;

typedef struct {
    char bytes[MAX_STATE][MAX_BYTES];
} snapshot;

static gd_tensor *weights(gd_shape dims) {
    return gd_requires_grad(gd_uniform(dims, .low = -0.5, .high = 0.5));
}

static void save_state(const model *m, gd_tensor *const *state, snapshot *s) {
    for (int i = 0; i < m->n_state; i++) {
        CHECK(tensor_bytes(state[i]) <= MAX_BYTES);
        CHECK(gd_copy_to(state[i], s->bytes[i], tensor_bytes(state[i])) == GD_OK);
    }
}

static void restore_state(const model *m, gd_tensor *const *state, const snapshot *s) {
    for (int i = 0; i < m->n_state; i++)
        CHECK(gd_copy_from(state[i], s->bytes[i], tensor_bytes(state[i])) == GD_OK);
}

static bool has_bytes(const gd_tensor *t, const char *bytes) {
    char now[MAX_BYTES];
    return gd_copy_to(t, now, tensor_bytes(t)) == GD_OK && memcmp(now, bytes, tensor_bytes(t)) == 0;
}

/* Sets `backward_done` when the backward pass has completed. */
static gd_status train_step(const model *m, gd_tensor *const *state, gd_tensor *x,
                            gd_tensor *target, bool *backward_done) {
    GD_SCOPE;
    *backward_done = false;
    gd_status status = gd_backward(m->loss(state, x, target));
    if (status != GD_OK) return status;
    *backward_done = true;
    GD_NO_GRAD;
    for (int i = 0; i < m->n_parameters; i++)
        gd_sub_(state[i], gd_mul(gd_tensor_grad(state[i]), gd_scalar(0.1)));
    return gd_error_status();
}

static void clear_gradients(const model *m, gd_tensor *const *state) {
    for (int i = 0; i < m->n_parameters; i++) gd_zero_grad(state[i]);
    gd_clear_error();
}

/* One step in which an allocation fails, then one without a fault. */
static void run_round(fault_walk *w, const model *m, gd_tensor *const *state, gd_tensor *x,
                      gd_tensor *target, const snapshot *before, const snapshot *after) {
    bool backward_done;
    gd_seed(3);
    fault_begin(w);
    gd_status status = train_step(m, state, x, target, &backward_done);
    fault_end(w);
    for (int i = 0; i < m->n_state; i++) {
        const bool as_before = has_bytes(state[i], before->bytes[i]),
                   as_after = has_bytes(state[i], after->bytes[i]);
        CHECK_ROUND(w, as_before || as_after);
        CHECK_ROUND(w, status != GD_OK || as_after);
        /* no parameter changes without a gradient */
        CHECK_ROUND(w, backward_done || i >= m->n_parameters || as_before);
    }
    CHECK_FAULT(w, status);
    clear_gradients(m, state);
    CHECK_ROUND(w, fault_is_clean(w));
    restore_state(m, state, before);
    gd_seed(3);
    status = train_step(m, state, x, target, &backward_done);
    CHECK_SAYING(status == GD_OK, "%s, the step after: %s", m->name, gd_error_message());
    for (int i = 0; i < m->n_state; i++) CHECK_ROUND(w, has_bytes(state[i], after->bytes[i]));
    clear_gradients(m, state);
    restore_state(m, state, before);
}

static void walk_model(const model *m) {
    GD_SCOPE;
    gd_tensor *state[MAX_STATE], *x, *target;
    static snapshot before, after;
    bool backward_done;
    gd_set_num_threads(1); /* so that allocation n is the same in each round */
    gd_seed(5);
    m->make(state, &x, &target);
    save_state(m, state, &before);
    gd_seed(3);
    CHECK_SAYING(train_step(m, state, x, target, &backward_done) == GD_OK, "%s: %s", m->name,
                 gd_error_message());
    save_state(m, state, &after);
    for (int i = 0; i < m->n_state; i++)
        CHECK(memcmp(before.bytes[i], after.bytes[i], tensor_bytes(state[i])) != 0);
    clear_gradients(m, state);
    restore_state(m, state, &before);
    fault_walk one = {.what = m->name};
    while (fault_next(&one)) run_round(&one, m, state, x, target, &before, &after);
    CHECK_SAYING(one.rounds > 20, "%s: %lld rounds", m->name, (long long)one.rounds);
    fault_walk all = {.what = m->name, .lasting = true, .stride = one.rounds / 30 + 1};
    while (fault_next(&all)) run_round(&all, m, state, x, target, &before, &after);
    gd_set_num_threads(0);
}

/* --- two layers ------------------------------------------------------------------------------- */

static void make_layers(gd_tensor **state, gd_tensor **x, gd_tensor **target) {
    static const int64_t classes[] = {0, 2, 1, 0, 2, 2};
    *x = gd_normal(gd_dims(6, 5));
    *target = gd_from_array(gd_dims(6), GD_I64, classes);
    state[0] = weights(gd_dims(8, 5));
    state[1] = weights(gd_dims(8));
    state[2] = weights(gd_dims(3, 8));
    state[3] = weights(gd_dims(3));
}

static gd_tensor *layers_loss(gd_tensor *const *s, gd_tensor *x, gd_tensor *target) {
    return gd_cross_entropy(gd_linear(gd_relu(gd_linear(x, s[0], s[1])), s[2], s[3]), target);
}

TEST(two_layers_survive_any_failed_allocation) {
    walk_model(&(model){"two layers", make_layers, layers_loss, 4, 4});
}

/* --- images ----------------------------------------------------------------------------------- */

static void make_images(gd_tensor **state, gd_tensor **x, gd_tensor **target) {
    static const int64_t classes[] = {1, 0, 2};
    *x = gd_normal(gd_dims(3, 2, 6, 6));
    *target = gd_from_array(gd_dims(3), GD_I64, classes);
    state[0] = weights(gd_dims(4, 2, 3, 3));
    state[1] = weights(gd_dims(4)); /* weight of the norm; a bias before a norm has no effect */
    state[2] = weights(gd_dims(4));
    state[3] = weights(gd_dims(3, 36));
    state[4] = weights(gd_dims(3));
    state[5] = gd_zeros(gd_dims(4)); /* running mean and variance */
    state[6] = gd_ones(gd_dims(4));
}

static gd_tensor *images_loss(gd_tensor *const *s, gd_tensor *x, gd_tensor *target) {
    gd_tensor *h = gd_conv2d(x, s[0], NULL, .padding = 1);
    h = gd_relu(gd_batch_norm(h, s[1], s[2], s[5], s[6], .training = true));
    h = gd_dropout(gd_max_pool2d(h, .kernel = 2), .p = 0.3, .training = true);
    return gd_cross_entropy(gd_linear(gd_flatten(h, .start_axis = 1), s[3], s[4]), target,
                            .label_smoothing = 0.1);
}

TEST(convolution_norm_and_dropout_survive_any_failed_allocation) {
    walk_model(&(model){"images", make_images, images_loss, 5, 7});
}

/* --- sequences -------------------------------------------------------------------------------- */

static void make_sequences(gd_tensor **state, gd_tensor **x, gd_tensor **target) {
    *x = gd_normal(gd_dims(4, 2, 3)); /* steps, batch, features */
    *target = gd_normal(gd_dims(4, 2, 5));
    state[0] = weights(gd_dims(20, 3));
    state[1] = weights(gd_dims(20, 5));
    state[2] = weights(gd_dims(20));
    state[3] = weights(gd_dims(20));
    state[4] = weights(gd_dims(5));
    state[5] = weights(gd_dims(5));
}

static gd_tensor *sequences_loss(gd_tensor *const *s, gd_tensor *x, gd_tensor *target) {
    gd_tensor *y = gd_lstm(x, NULL, NULL, NULL, gd_list(s[0], s[1], s[2], s[3])).y;
    return gd_mse_loss(gd_layer_norm(y, s[4], s[5]), target);
}

TEST(a_recurrent_net_survives_any_failed_allocation) {
    walk_model(&(model){"sequences", make_sequences, sequences_loss, 6, 6});
}

TEST_MAIN
