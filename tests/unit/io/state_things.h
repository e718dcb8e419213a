/* state_things.h - objects with state for tests of saving and loading: a net with parameters, small
 * values and an inner net, and an optimizer with a moment for each parameter of a net. */
#ifndef GRADUS_TESTS_UNIT_IO_STATE_THINGS_H
#define GRADUS_TESTS_UNIT_IO_STATE_THINGS_H

#include "clean_test.h"
#include "core/state.h"
#include "gradus/gradus.h"

typedef struct net {
    gd_object object;
    int count;
    const char *names[24];
    gd_tensor *tensors[24];
    double number;
    int64_t integer;
    uint64_t natural;
    char *text;
    bool has_values;
    struct net *inner;
} net;

typedef struct moments {
    gd_object object;
    net *of;
    gd_tensor *moment[24]; /* NULL until the first step or load */
    int64_t steps;
} moments;

/* Not owned by a scope: release it with end_net(). */
net *new_net(void);
void end_net(net *n);
void add(net *n, const char *name, gd_tensor *t);
/* fc1.weight (3,2), fc1.bias (3), fc2.weight (2,3), all elements are `value`. */
net *small_net(double value);
/* Returns whether all elements of all tensors are `value`. */
bool all_are(const net *n, double value);
/* With value 0 it has no moments. */
moments *new_moments(net *of, double value);
void end_moments(moments *m);

#endif
