/* control.h - branches and loops that work with values and in graphs alike.
 *
 *     static gd_tensor *step(gd_tensors in, void *user) {            // y_t = (y_{t-1} + x_t) * w
 *         return gd_mul(gd_add(in.at[0], in.at[1]), user);
 *     }
 *     gd_tensor *y = gd_foldl(step, y0, gd_list(x), w);
 *
 * With values this is plain C: the functions are called as often as the data say, and the tape
 * remembers what they do. With symbols, or inside of GD_GRAPH, each function is called once, with
 * symbols, and what it does becomes a graph of its own; the call adds one node that holds it. Gradients
 * go through either way, nested calls included, and of any order.
 *
 * A function may use tensors from outside beside its inputs: weights, variables, symbols of the graph
 * around it. Gradients reach them. In a graph it cannot make or assign variables: let it give the new
 * value back, and assign that outside. Random ops give new numbers in each step and in each run.
 *
 * On failure the lists that are returned hold error tensors.
 */
#ifndef GRADUS_CONTROL_H
#define GRADUS_CONTROL_H

#include <stdint.h>

#include "gradus/autograd.h"
#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of tensors. It ends with `return gd_listed(a, b);`. What it makes is freed after each
 * call of it; one with a scope of its own says gd_keep_list(gd_listed(a, b)). */
typedef gd_tensors (*gd_body)(gd_tensors inputs, void *user);

/* What `yes` gives for the inputs where the predicate, one element, is true (not 0), else what `no`
 * gives. Only that one runs. Both give as many tensors, of the same shapes and dtypes. */
#define gd_cond(predicate, yes, no, inputs, user) \
    gd_cond_at(GD_HERE, predicate, yes, no, inputs, user)
GD_API gd_tensors gd_cond_at(const char *site, gd_tensor *predicate, gd_body yes, gd_body no,
                             gd_tensors inputs, void *user);

typedef struct gd_while_loop_options {
    int64_t max_steps GD_DEFAULT_(INT64_MAX); /* it ends after so many in any case */
} gd_while_loop_options;

/* Replaces the state by what `body` gives for it as long as `condition`, which gives one element, is
 * true of it. The state keeps its shapes and dtypes. */
#define gd_while_loop(condition, body, state, user, ...) \
    GD_WITH_OPTIONS_(gd_while_loop_at(                   \
        GD_HERE, condition, body, state, user,           \
        GD_OPTIONS_(gd_while_loop_options, (.max_steps = INT64_MAX) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_tensors gd_while_loop_at(const char *site, gd_body condition, gd_body body,
                                   gd_tensors state, void *user,
                                   const gd_while_loop_options *options);

typedef struct gd_scan_options {
    bool reverse GD_DEFAULT_(false); /* from the last position to the first */
} gd_scan_options;

typedef struct gd_scanned {
    gd_tensors state; /* after the last step */
    gd_tensors ys;    /* what the steps gave beside it, side by side along axis 0 */
} gd_scanned;

/* Goes along axis 0 of all `xs`: body(state..., x_t...) gives the next state and any number of
 * further results y_t. The state keeps its shapes and dtypes, and the y_t are alike. */
#define gd_scan(body, state, xs, user, ...)        \
    GD_WITH_OPTIONS_(                              \
        gd_scan_at(GD_HERE, body, state, xs, user, \
                   GD_OPTIONS_(gd_scan_options, (.reverse = false) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_scanned gd_scan_at(const char *site, gd_body body, gd_tensors state, gd_tensors xs,
                             void *user, const gd_scan_options *options);

/* The scan of one tensor of which only the end matters: step(y, x_t...) gives the next y. */
#define gd_foldl(step, initial, xs, user) gd_foldl_at(GD_HERE, step, initial, xs, user)
GD_API gd_tensor *gd_foldl_at(const char *site, gd_fn step, gd_tensor *initial, gd_tensors xs,
                              void *user);

#ifdef __cplusplus
}
#endif
#endif
