/* jit.h - an eager function as a plan.
 *
 *     static gd_tensors predict(gd_tensors in, void *user) {
 *         net *n = user;
 *         return gd_listed(gd_relu(gd_linear(in.at[0], n->w, n->b)));
 *     }
 *     gd_jit *fast = gd_jit_new(predict, &n);
 *     gd_tensor *y = gd_jit_call(fast, gd_list(x)).at[0];
 *
 * The first call with inputs of new shapes calls the function once with symbols in place of its
 * inputs, and makes a plan of what it does; later calls only run the plan. So the function must do
 * the same thing each time: what it decides in C (an if, a loop, a number from a struct) is decided
 * when it is traced. Asking a symbol for its data is an error that names the line.
 *
 * The modes of modules (training or evaluation) are recorded when the function reads them: called
 * in another mode, the jit makes another plan. So it does under another setting of GD_AUTOCAST. For other C values that change, the function needs a
 * plan for each of them. Pass the value as the key of the call:
 *
 *     gd_tensor *y = gd_jit_call(fast, gd_list(x), .key = n.depth).at[0];
 *
 * One number stands for several values: .key = n.kind | n.depth << 1. Numbers that change in
 * every call, such as a temperature, are better tensors: a plan reads them when it runs.
 *
 * What C code does to values, it does once, when the function is traced. So these are refused in
 * it: gd_copy_from, gd_seed and gd_rng_set_state; gd_data, gd_copy_to and gd_item of a tensor that
 * the function has written; and to leave requires_grad of a leaf changed (to freeze it for a part
 * of the function is fine). gd_data and gd_item of another tensor outside give what is there when
 * the function is traced, for all calls; what is written through the pointer is seen by no one, and
 * must not be.
 *
 * Tensors that the function uses without their being inputs (parameters) are read as they are when
 * the plan runs; the jit keeps them. What it writes in place (gd_sub_, the statistics of
 * gd_batch_norm), inputs included, is written at the end of each run. A tensor may be written
 * several times; each read in the function sees the write before it. (Another view of a tensor that
 * the function has written is refused: make views in the function.) Random ops draw new numbers in
 * each call, from the generator of random.h, as the function itself would (in loops: others, which
 * follow from the seed, too). (A call that finds no memory to note itself on the tape has run by
 * then: what it writes is written.)
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
 * Afterwards parameters, the state of the optimizer and the gradients of leaves (gd_tensor_grad)
 * are what eager code would have left. In the function gd_tensor_grad gives a symbol, which may be
 * read and written in place (clipped); a gradient from before the call that the function does not
 * forget is added to; whether there was one makes a plan of its own. The learning rate is read at
 * each call; gd_optimizer_set_lr in the function sets it at each call to what it was when traced. A
 * step whose last line is gd_optimizer_zero_grad, in place of its first, need not keep gradients:
 * that is the fastest. If a call fails, gradients that the function forgets first may be gone, and
 * nothing else has changed (but where several leaves have the same gradient, copies of it are made
 * last: if there is no memory for one, the step has been done). Refused, with a message that says
 * what fits:
 *   - leaves as inputs (to gd_backward the function's leaves are the tensors that it has from
 * elsewhere), and walking on to what was computed outside of the function;
 *   - .create_graph of gd_backward (gd_grad has it), and gd_backward in branches and bodies of
 * loops. The results of a function that has walked back, or has looked at a leaf's gradient, have
 * no history. gd_grad, and updates by hand under GD_NO_GRAD, do as well:
 *
 *     gd_tensors g = gd_grad(gd_list(loss), parameters);
 *     GD_NO_GRAD;
 *     for (int i = 0; i < g.count; i++) gd_sub_(parameters.at[i], gd_mul(g.at[i], lr));
 *
 * Hooks (gd_tensor_hook) on tensors of the function are called when their gradient is traced: the
 * ops that they call are part of it. A hook that calls no ops, or reads or writes values, would run
 * once and not in later calls: the walk back fails, and names it. Hooks in branches and bodies of
 * loops are refused. Hooks on leaves are called in each walk, with values where the walk is outside
 * of the function.
 *
 * Called in a graph, or by the function of another jit, it adds what its function does to that
 * graph.
 *
 * Gradients: where an input or a tensor that the function uses requires one, the whole call is one
 * node of the tape. Walking back runs a plan of its own, which computes what it needs once more,
 * with the same noise, and writes nothing; tensors that it needs must be what they were before the
 * call. With create_graph, for gradients of gradients, the same nodes run one after the other as
 * eager ops instead, which the tape remembers: right, but no faster than without a jit. Functions
 * with a gd_while_loop have no such gradients; the failure says so.
 *
 * Threads: several may call one jit. While the function is traced for one, the others wait; plans
 * run side by side unless they write, and each waits only for those that came before it
 * (session.h). Two calls of different plans must not write the same tensor at once.
 */
#ifndef GRADUS_JIT_H
#define GRADUS_JIT_H

#include "gradus/control.h"
#include "gradus/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_jit gd_jit;

typedef struct gd_jit_options {
    int level GD_DEFAULT_(2); /* as of sessions */
    int plans GD_DEFAULT_(
        32); /* how many are kept, one for each kind of inputs; the one not used for longest goes first */
} gd_jit_options;

/* A function (see gd_body in control.h) to be called as a plan, in the current scope. `user` must stay
 * valid. */
#define gd_jit_new(fn, user, ...)   \
    GD_WITH_OPTIONS_(gd_jit_new_at( \
        GD_HERE, fn, user,          \
        GD_OPTIONS_(gd_jit_options, (.level = 2, .plans = 32) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_jit *gd_jit_new_at(const char *site, gd_body fn, void *user,
                             const gd_jit_options *options);

typedef struct gd_jit_call_options {
    int64_t key GD_DEFAULT_(0); /* calls with another key have a plan of their own */
} gd_jit_call_options;

/* Calls it. The results are new tensors, as many as the function returns: none is fine, if it is called
 * for what it writes. On failure the list holds error tensors. */
#define gd_jit_call(jit, inputs, ...)        \
    GD_WITH_OPTIONS_(                        \
        gd_jit_call_at(GD_HERE, jit, inputs, \
                       GD_OPTIONS_(gd_jit_call_options, (.key = 0) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_tensors gd_jit_call_at(const char *site, gd_jit *jit, gd_tensors inputs,
                                 const gd_jit_call_options *options);

/* How many times the function has been traced so far. */
GD_API int gd_jit_traces(const gd_jit *jit);

#ifdef __cplusplus
}
#endif
#endif
