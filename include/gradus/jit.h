/* jit.h - eager functions that run as plans.
 *
 *     static gd_tensors predict(gd_tensors in, void *user) {
 *         net *n = user;
 *         return gd_listed(gd_relu(gd_linear(in.at[0], n->w, n->b)));
 *     }
 *     gd_jit *fast = gd_jit_new(predict, &n);
 *     gd_tensor *y = gd_jit_call(fast, gd_list(x)).at[0];
 *
 * The first call with inputs of new shapes traces the function: it calls the function once with
 * symbols instead of its inputs, and builds a plan from the recorded ops. Later calls run the plan.
 * So the function must do the same thing each time: decisions in C (an if, a loop, a number from a
 * struct) are fixed by the trace. Reading the data of a symbol is an error, which names the line.
 *
 * The trace records the modes of modules (training or evaluation) that the function reads, and the
 * settings of GD_AUTOCAST and gd_allow_tf32: a call under other modes or settings traces again. For
 * other C values that change, pass the value as the key of the call; each key has its own plan:
 *
 *     gd_tensor *y = gd_jit_call(fast, gd_list(x), .key = n.depth).at[0];
 *
 * Several values can be packed into one number: .key = n.kind | n.depth << 1. Pass numbers that
 * change in every call, such as a temperature, as tensors: a plan reads them in each run.
 *
 * C code that works on values runs only once, during the trace. So the following fail in the
 * function: gd_copy_from, gd_seed and gd_rng_set_state; gd_data, gd_copy_to and gd_item of a tensor
 * that the function has written; and returning with a changed requires_grad of a leaf (freezing it
 * for a part of the function is allowed). gd_data and gd_item of other captured tensors read the
 * values at the time of the trace, for all calls; do not write through the pointer.
 *
 * Captured tensors (parameters) are read in each run; the jit holds references to them. In-place
 * writes (gd_sub_, the statistics of gd_batch_norm), also to inputs, take effect at the end of each
 * run. A tensor may be written several times; each read in the function sees the write before it.
 * (Using another view of a tensor that the function has written fails: create views in the
 * function.) Random ops draw new numbers in each call from the generator of random.h, the same
 * numbers as in an eager call; in loops they draw other numbers, which also follow from the seed.
 * (If there is no memory to record the call on the tape, the call fails after its writes.)
 *
 * A training step is written as with eager ops, and becomes one plan:
 *
 *     static gd_tensors step(gd_tensors in, void *user) {
 *         net *n = user;
 *         gd_optimizer_zero_grad(n->optimizer);
 *         gd_tensor *loss = gd_cross_entropy(gd_linear(in.at[0], n->w, n->b), in.at[1]);
 *         gd_backward(loss);
 *         gd_optimizer_step(n->optimizer);
 *         return gd_listed(loss);
 *     }
 *
 * After a call, parameters, optimizer state and gradients of leaves (gd_tensor_grad) are the same
 * as after an eager call. In the function gd_tensor_grad returns a symbol, which may be read and
 * written in place (clipped). A gradient from before the call is added to, unless the function
 * drops it first (gd_optimizer_zero_grad); calls with and without such a gradient have different
 * plans. The learning rate is read in each call; gd_optimizer_set_lr in the function sets it in
 * each call to the value of the trace. A step that calls gd_optimizer_zero_grad last instead of
 * first is fastest, because no gradients are kept. If a call fails, gradients that the function
 * drops first may be gone; nothing else has changed. (Exception: several leaves that share one
 * gradient get copies of it at the end. If there is no memory for a copy, the call fails after the
 * step.) The following fail, with a message that names an alternative:
 *   - leaves as inputs (gd_backward in the function differentiates with respect to captured
 *     tensors), and a backward pass that leaves the function;
 *   - .create_graph of gd_backward (use gd_grad), and gd_backward in branches and loop bodies.
 *
 * The results of a function that calls gd_backward, or reads the gradient of a leaf, have no
 * history. gd_grad and manual updates under GD_NO_GRAD are also possible:
 *
 *     gd_tensors g = gd_grad(gd_list(loss), parameters);
 *     GD_NO_GRAD;
 *     for (int i = 0; i < g.count; i++) gd_sub_(parameters.at[i], gd_mul(g.at[i], lr));
 *
 * Hooks (gd_tensor_hook) on tensors of the function are called while their gradient is traced, and
 * their ops become part of the plan. A hook that calls no ops, or reads or writes values, would
 * have no effect in later calls: gd_backward fails and names it. Hooks in branches and loop bodies
 * fail. Hooks on leaves are called in each backward pass, with values if the pass is outside the
 * function.
 *
 * In a graph, or in the function of another jit, a call adds the ops of its function to that graph.
 *
 * Gradients: if an input or a captured tensor requires a gradient, the tape records the call as one
 * node. Its backward runs another plan, which recomputes intermediate values with the same random
 * numbers and writes nothing. The tensors that it reads must not have changed since the call. With
 * create_graph, for gradients of gradients, the nodes run as eager ops, which the tape records;
 * this is no faster than without a jit. Functions with a gd_while_loop have no gradients of
 * gradients.
 *
 * Threads: several threads may call one jit. While one traces the function, the others wait. Plans
 * run concurrently unless they write; a call waits only for calls that came before it (session.h).
 * Two calls of different plans must not write the same tensor at the same time.
 */
#ifndef GRADUS_JIT_H
#define GRADUS_JIT_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/control.h"
#include "gradus/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_jit gd_jit;

typedef struct gd_jit_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int level GD_DEFAULT_(2); /* of optimization, as in session.h */
    /* how many plans are kept, each for one set of shapes; the least recently used is freed first
     * */
    int plans GD_DEFAULT_(32);
} GD_GIVEN_BY_NAME_ gd_jit_options;
#define GD_JIT_OPTIONS_(...) GD_OPTIONS_(gd_jit_options, (.level = 2, .plans = 32), __VA_ARGS__)

/* A jit of a function (gd_body in control.h), in the current scope. `user` must stay valid. */
#define gd_jit_new(fn, user, ...) \
    GD_WITH_OPTIONS_(gd_jit_new_at(GD_HERE, fn, user, GD_JIT_OPTIONS_(__VA_ARGS__)))
GD_API gd_jit *gd_jit_new_at(const char *site, gd_body fn, void *user,
                             const gd_jit_options *options);

typedef struct gd_jit_call_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t key GD_DEFAULT_(0); /* calls with different keys have different plans */
    /* Receives the number of the trace whose plan the call has used, for programs that keep
     * something about each trace: which results the function has returned. While the function is
     * traced, gd_jit_traces is the number of the new trace. -1: the call was in a graph. */
    int64_t *trace GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_jit_call_options;
#define GD_JIT_CALL_OPTIONS_(...) \
    GD_OPTIONS_(gd_jit_call_options, (.key = 0, .trace = NULL), __VA_ARGS__)

/* Calls the function. The results are new tensors; a function that only writes may return none. On
 * failure the list holds error tensors. */
#define gd_jit_call(jit, inputs, ...) \
    GD_WITH_OPTIONS_(gd_jit_call_at(GD_HERE, jit, inputs, GD_JIT_CALL_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensors gd_jit_call_at(const char *site, gd_jit *jit, gd_tensors inputs,
                                 const gd_jit_call_options *options);

/* Builds the plan of a call with these inputs now and reports its memory; `memory` may be NULL. The
 * function is traced if it was not, and does not run. */
#define gd_jit_plan(jit, inputs, memory, ...) \
    GD_WITH_OPTIONS_(                         \
        gd_jit_plan_at(GD_HERE, jit, inputs, memory, GD_JIT_CALL_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_jit_plan_at(const char *site, gd_jit *jit, gd_tensors inputs,
                                gd_plan_memory *memory, const gd_jit_call_options *options);

/* The same plan as text, one line for each step; free() it. NULL: a failure. */
#define gd_jit_plan_text(jit, inputs, ...) \
    GD_WITH_OPTIONS_(gd_jit_plan_text_at(GD_HERE, jit, inputs, GD_JIT_CALL_OPTIONS_(__VA_ARGS__)))
GD_API char *gd_jit_plan_text_at(const char *site, gd_jit *jit, gd_tensors inputs,
                                 const gd_jit_call_options *options);

/* How many times the function has been traced so far. */
GD_API int gd_jit_traces(const gd_jit *jit);

/* Whether the jit still has the plans of this trace. */
GD_API bool gd_jit_keeps(const gd_jit *jit, int64_t trace);

/* Why a call with these inputs would trace the function: how it differs from the trace that was used
 * last, or from the last one with this key and these inputs. A sentence such as "input 0 is f32[3,4],
 * it was f32[2,4]" or "a module is in evaluation mode"; free() it. NULL: it would not trace, or
 * nothing was traced so far. Call it before the call, or in the function. */
#define gd_jit_difference(jit, inputs, ...) \
    GD_WITH_OPTIONS_(gd_jit_difference_at(jit, inputs, GD_JIT_CALL_OPTIONS_(__VA_ARGS__)))
GD_API char *gd_jit_difference_at(gd_jit *jit, gd_tensors inputs,
                                  const gd_jit_call_options *options);

#ifdef __cplusplus
}
#endif
#endif
