/* control.h - branches and loops, for values and for symbols of graphs.
 *
 *     static gd_tensor *step(gd_tensors in, void *user) {            // y_t = (y_{t-1} + x_t) * w
 *         return gd_mul(gd_add(in.at[0], in.at[1]), user);
 *     }
 *     gd_tensor *y = gd_foldl(step, y0, gd_list(x), w);
 *
 * With values, the data decide how often the functions are called, and the tape records their ops.
 * With symbols, or inside GD_GRAPH, each function is called once, with symbols. Its ops become a
 * subgraph, and the call adds one node that holds it. Gradients of any order flow through both
 * forms and through nested calls.
 *
 * A function may use captured tensors: weights, variables, symbols of the enclosing graph.
 * Gradients flow to them. In a graph a function cannot create or assign variables: return the new
 * value and assign it outside. Random ops draw new numbers in each step and in each run.
 *
 * If a call fails, the lists that it returns hold error tensors.
 */
#ifndef GRADUS_CONTROL_H
#define GRADUS_CONTROL_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include <stdint.h>

#include "gradus/autograd.h"
#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of tensors. It ends with `return gd_listed(a, b);`, or, if it opens a scope, with
 * `return gd_keep_list(gd_listed(a, b));`. Its temporaries are freed after each call. */
typedef gd_tensors (*gd_body)(gd_tensors inputs, void *user);

/* yes(inputs) if the predicate, a tensor with one element, is not 0, otherwise no(inputs). Only
 * that function runs. Both return the same number of tensors with the same shapes and dtypes. */
#define gd_cond(predicate, yes, no, inputs, user) \
    gd_cond_at(GD_HERE, predicate, yes, no, inputs, user)
GD_API gd_tensors gd_cond_at(const char *site, gd_tensor *predicate, gd_body yes, gd_body no,
                             gd_tensors inputs, void *user);

typedef struct gd_while_loop_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t max_steps GD_DEFAULT_(INT64_MAX); /* the loop ends after this many steps */
} GD_GIVEN_BY_NAME_ gd_while_loop_options;
#define GD_WHILE_LOOP_OPTIONS_(...) \
    GD_OPTIONS_(gd_while_loop_options, (.max_steps = INT64_MAX), __VA_ARGS__)

/* Repeats state = body(state) while condition(state), a tensor with one element, is true. Returns
 * the last state. The state keeps its shapes and dtypes. */
#define gd_while_loop(condition, body, state, user, ...)                     \
    GD_WITH_OPTIONS_(gd_while_loop_at(GD_HERE, condition, body, state, user, \
                                      GD_WHILE_LOOP_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensors gd_while_loop_at(const char *site, gd_body condition, gd_body body,
                                   gd_tensors state, void *user,
                                   const gd_while_loop_options *options);

typedef struct gd_scan_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool reverse GD_DEFAULT_(false); /* from the last position to the first */
} GD_GIVEN_BY_NAME_ gd_scan_options;
#define GD_SCAN_OPTIONS_(...) GD_OPTIONS_(gd_scan_options, (.reverse = false), __VA_ARGS__)

typedef struct gd_scanned {
    gd_tensors state; /* after the last step */
    gd_tensors ys;    /* the other results of the steps, stacked along axis 0 */
} gd_scanned;

/* Loops along axis 0 of all `xs`: body(state..., x_t...) returns the next state and any number of
 * other results y_t. The state and the y_t keep their shapes and dtypes. */
#define gd_scan(body, state, xs, user, ...) \
    GD_WITH_OPTIONS_(gd_scan_at(GD_HERE, body, state, xs, user, GD_SCAN_OPTIONS_(__VA_ARGS__)))
GD_API gd_scanned gd_scan_at(const char *site, gd_body body, gd_tensors state, gd_tensors xs,
                             void *user, const gd_scan_options *options);

/* A scan with one state tensor, which returns the last state: y = step(y, x_t...). */
#define gd_foldl(step, initial, xs, user) gd_foldl_at(GD_HERE, step, initial, xs, user)
GD_API gd_tensor *gd_foldl_at(const char *site, gd_fn step, gd_tensor *initial, gd_tensors xs,
                              void *user);

#ifdef __cplusplus
}
#endif
#endif
