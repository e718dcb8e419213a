/* fit_things.h - data, nets and callbacks for the tests of training. */
#ifndef GRADUS_TESTS_UNIT_TRAIN_FIT_THINGS_H
#define GRADUS_TESTS_UNIT_TRAIN_FIT_THINGS_H

#include <math.h>

#include "gradus/gradus.h"

enum { SAMPLES = 60, FEATURES = 5, CLASSES = 3 };
#define QUIET .progress = GD_PROGRESS_NONE

/* Linearly separable classes with noise: x (SAMPLES, FEATURES), y (SAMPLES). */
static inline void make_data(gd_tensor **x, gd_tensor **y) {
    float features[SAMPLES * FEATURES];
    int64_t classes[SAMPLES];
    gd_random r = gd_random_of(7, 0);
    for (int i = 0; i < SAMPLES; i++) {
        classes[i] = gd_random_below(&r, CLASSES);
        for (int k = 0; k < FEATURES; k++)
            features[i * FEATURES + k] = (float)(gd_random_normal(&r) + (k == classes[i] ? 2 : 0));
    }
    *x = gd_from_array(gd_dims(SAMPLES, FEATURES), GD_F32, features);
    *y = gd_from_array(gd_dims(SAMPLES), GD_I64, classes);
}

static inline gd_module *make_net(void) {
    gd_seed(3);
    return gd_nn_sequential(gd_nn_linear(FEATURES, 8), gd_nn_relu(), gd_nn_linear(8, CLASSES));
}

static inline gd_module *make_dropout_net(void) {
    gd_seed(3);
    return gd_nn_sequential(gd_nn_linear(FEATURES, 8), gd_nn_batch_norm1d(8), gd_nn_relu(),
                            gd_nn_dropout(.p = 0.2), gd_nn_linear(8, CLASSES));
}

/* The largest |a - b| over all parameters and buffers. */
static inline double largest_difference(gd_module *a, gd_module *b) {
    GD_SCOPE;
    double most = 0;
    for (int kind = 0; kind < 2; kind++) {
        gd_tensors p = kind ? gd_module_buffers(a) : gd_module_parameters(a);
        gd_tensors q = kind ? gd_module_buffers(b) : gd_module_parameters(b);
        if (p.count != q.count) return INFINITY;
        for (int64_t i = 0; i < p.count; i++) {
            gd_tensor *d = gd_max(gd_abs(
                gd_sub(gd_cast(gd_detach(p.at[i]), GD_F64), gd_cast(gd_detach(q.at[i]), GD_F64))));
            const double v = gd_item(d);
            if (!(v <= most)) most = v;
        }
    }
    return most;
}

static inline gd_tensor *half_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    return gd_mul(gd_cross_entropy(outputs.at[0], targets.at[0]), gd_scalar(0.5));
}

static inline gd_status count_batch(gd_event *event, void *self) {
    (void)event;
    ++*(int *)self;
    return GD_OK;
}

#endif
