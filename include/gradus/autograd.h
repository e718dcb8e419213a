/* autograd.h - gradients.
 *
 * While an op runs on a tensor that requires a gradient, the tape remembers how the result came to
 * be. gd_backward walks back from a result and adds to the gradient of every leaf; gd_grad returns
 * gradients instead of adding them. Gradient rules are made of ordinary ops, so with
 * .create_graph = true gradients can be differentiated again.
 *
 * In-place ops (gd_add_ and the like) are checked: a value that the gradient needs and that was
 * overwritten since is an error at backward, which names the op. While the tape is on, an in-place
 * op is refused on a leaf that requires a gradient and on a tensor that shares its memory with a
 * view; under GD_NO_GRAD both work.
 *
 * Threads: the tape belongs to no thread; one graph must not be walked by two threads at once.
 */
#ifndef GRADUS_AUTOGRAD_H
#define GRADUS_AUTOGRAD_H

#include "gradus/options.h"
#include "gradus/scope.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- leaves ----------------------------------------------------------------------------------- */

/* Marks a float tensor as a leaf whose gradient is wanted, and returns it. */
#define gd_requires_grad(...) gd_requires_grad_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_requires_grad_at(const char *site, gd_tensor *t);
#define gd_set_requires_grad(...) gd_set_requires_grad_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_set_requires_grad_at(const char *site, gd_tensor *t, bool wanted);
GD_API bool gd_tensor_requires_grad(const gd_tensor *t);
GD_API bool gd_tensor_is_leaf(const gd_tensor *t);

/* The accumulated gradient of a leaf, or NULL. It belongs to the leaf. */
GD_API gd_tensor *gd_tensor_grad(const gd_tensor *t);
/* Forgets it, so that the next backward starts from nothing. */
GD_API void gd_zero_grad(gd_tensor *t);
/* Replaces it (NULL: forgets it). */
#define gd_set_grad(...) gd_set_grad_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_set_grad_at(const char *site, gd_tensor *t, gd_tensor *grad);

/* The same value, cut off from its history. Shares memory. In a graph: gd_stop_gradient. */
#define gd_detach(...) gd_detach_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_detach_at(const char *site, gd_tensor *t);

/* --- switching the tape off ------------------------------------------------------------------- */

/* For the rest of the block, ops are not remembered: GD_NO_GRAD; In a graph, no gradient goes back
 * through what the block notes. */
#define GD_NO_GRAD                                                                       \
    __attribute__((cleanup(gd_grad_mode_end), unused)) int GD_SCOPE_NAME_(__COUNTER__) = \
        gd_no_grad_begin()
GD_API int gd_no_grad_begin(void);
GD_API int gd_enable_grad_begin(void);
GD_API void gd_grad_mode_end(int *before);
GD_API bool gd_grad_enabled(void);

/* --- walking back ----------------------------------------------------------------------------- */

typedef struct gd_backward_options {
    /* of the result; needed unless it has one element. Default: 1 */
    gd_tensor *gradient GD_DEFAULT_(nullptr);
    /* keep what was saved, to walk again. Implied by create_graph */
    bool retain_graph GD_DEFAULT_(false);
    /* remember the walk itself, for gradients of gradients */
    bool create_graph GD_DEFAULT_(false);
} gd_backward_options;

/* Adds the gradient of `result` to every leaf that it depends on. A walk that fails on its way (no
 * memory) has added it to those leaves whose gradient was complete by then, and not to the others:
 * before the next try, gd_zero_grad them all. */
#define gd_backward(result, ...)     \
    GD_WITH_OPTIONS_(gd_backward_at( \
        GD_HERE, result,             \
        GD_OPTIONS_(gd_backward_options, (.gradient = NULL) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_backward_at(const char *site, gd_tensor *result,
                                const gd_backward_options *options);

typedef struct gd_grad_options {
    gd_tensors
        gradients GD_DEFAULT_({}); /* of the outputs, in order; NULL entries and count 0: ones */
    bool retain_graph GD_DEFAULT_(false), create_graph GD_DEFAULT_(false);
    /* an input that the outputs do not depend on gives NULL, not an error */
    bool allow_unused GD_DEFAULT_(false);
} gd_grad_options;

/* The gradients of the sum of `outputs` by each of `inputs` (leaves or not), in order. No leaf's
 * own gradient is touched. */
#define gd_grad(outputs, inputs, ...) \
    GD_WITH_OPTIONS_(gd_grad_at(      \
        GD_HERE, outputs, inputs,     \
        GD_OPTIONS_(gd_grad_options, (.retain_graph = false) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_tensors gd_grad_at(const char *site, gd_tensors outputs, gd_tensors inputs,
                             const gd_grad_options *options);

/* Called with the gradient of `t` when it is complete, in every walk through it. Returns another
 * gradient to go on with, or NULL to leave it. */
typedef gd_tensor *(*gd_hook_fn)(gd_tensor *gradient, void *user);
#define gd_tensor_hook(...) gd_tensor_hook_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_tensor_hook_at(const char *site, gd_tensor *t, gd_hook_fn fn, void *user);

/* --- functions of your own -------------------------------------------------------------------- */

/* What the two halves of a function see. */
typedef struct gd_context {
    int n_in, n_out;
    gd_tensor *const *x;  /* forward: the inputs. backward: only their shapes; use gd_saved */
    gd_tensor **y;        /* forward: to be filled */
    gd_tensor *const *gy; /* backward: gradients of the outputs */
    const bool *needs;    /* backward: which inputs want a gradient */
    gd_tensor **gx;       /* backward: to be filled; NULL means zero */
    void *user;           /* as given to gd_apply */
    void *state;          /* the library's own */
} gd_context;

typedef struct gd_function {
    const char *name;
    int n_out; /* 0 counts as 1 */
    void (*forward)(gd_context *context);
    void (*backward)(gd_context *context); /* made of ordinary ops it can be differentiated again */
    void (*infer)(gd_context *context);    /* for graphs, or NULL: shapes alone, see below */
    bool backward_of_ops; /* for graphs: backward is made of ops, and reads no data itself */
} gd_function;

/* Calls forward without the tape, and remembers backward. The function struct must stay valid;
 * `user` too, as long as the result is alive. Returns the outputs.
 *
 * In a graph, or in the function of a gd_jit, it is one node. forward is called with values
 * whenever a run comes to the node (by one thread, or by several at once where runs go side by
 * side; once for each run that needs it, and once more where the gradient of a jit's call computes
 * its forward part again), and so is backward: both may compute in C, on gd_data. Inputs are
 * row-major there. The function and `user` must stay valid as long as the graph or the jit.
 *
 * A graph must know the shapes of the results before it runs. So forward is also called when the
 * graph is built, and when it is planned for new sizes, with made-up inputs: floats are 1, integers
 * 0, sizes that are not known 2 and 3. What it saves and how many, and the shapes, must follow from
 * the shapes of its inputs. A function that should not be called so (it counts its calls, writes
 * `user`, or fails for such values) has an infer, which is called instead: its inputs have no data,
 * and it sets context->y, and calls gd_save as forward does, with gd_shaped tensors, inputs or
 * results.
 *
 * Where backward is made of ops alone, .backward_of_ops = true has a graph take those ops instead
 * of a call, once, when the gradient is built: the gradient then has gradients itself. Graphs with
 * such nodes cannot be saved as ONNX. */
#define gd_apply(...) gd_apply_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_apply_at(const char *site, const gd_function *function, gd_tensors inputs,
                              void *user);

/* In forward: keeps a tensor for backward. In backward: the i-th that was kept. */
GD_API void gd_save(gd_context *context, gd_tensor *t);
GD_API gd_tensor *gd_saved(gd_context *context, int i);

/* In infer: a tensor of this shape and dtype, without data. */
GD_API gd_tensor *gd_shaped(gd_shape dims, gd_dtype dtype);

/* --- transforms ------------------------------------------------------------------------------- */

/* A function of tensors, for the calls below: one output, from inputs and whatever `user` has. */
typedef gd_tensor *(*gd_fn)(gd_tensors inputs, void *user);

/* Runs fn, keeping only its inputs; runs it again in backward, with the same random numbers, to get
 * at what it had inside. Saves memory, costs a second forward. Tensors that fn has from elsewhere (a
 * layer's weights) get their gradients too; they must still have their values then. */
#define gd_recompute(...) gd_recompute_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_recompute_at(const char *site, gd_fn fn, gd_tensors inputs, void *user);

/* The derivative of fn at the inputs in the direction of the tangents: J v. */
#define gd_jvp(...) gd_jvp_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_jvp_at(const char *site, gd_fn fn, gd_tensors inputs, gd_tensors tangents,
                            void *user);

/* The whole Jacobian of fn by input number `input`: shape of the output, then of the input. */
#define gd_jacobian(...) gd_jacobian_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_jacobian_at(const char *site, gd_fn fn, gd_tensors inputs, int input,
                                 void *user);

/* Hessian times vectors of a function with one output element; one result for each input. */
#define gd_hvp(...) gd_hvp_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_hvp_at(const char *site, gd_fn fn, gd_tensors inputs, gd_tensors vectors,
                            void *user);

typedef struct gd_gradcheck_options {
    double step GD_DEFAULT_(1e-6), tolerance_relative GD_DEFAULT_(1e-4),
        tolerance_absolute GD_DEFAULT_(1e-6);
    bool second_order GD_DEFAULT_(false); /* check the gradient's own gradient too */
    int64_t elements GD_DEFAULT_(
        0); /* of each input at most so many are moved, spread over it; 0: all of them */
    bool twice GD_DEFAULT_(false); /* the library's own: inside the second-order check */
} gd_gradcheck_options;

/* Compares gradients with finite differences, in f64, at the inputs that require a gradient.
 * GD_OK, or a failure whose message names the input and element and both numbers. */
#define gd_gradcheck(fn, inputs, user, ...)                                                \
    GD_WITH_OPTIONS_(gd_gradcheck_at(                                                      \
        GD_HERE, fn, inputs, user,                                                         \
        GD_OPTIONS_(gd_gradcheck_options,                                                  \
                    (.step = 1e-6, .tolerance_relative = 1e-4, .tolerance_absolute = 1e-6) \
                        __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_gradcheck_at(const char *site, gd_fn fn, gd_tensors inputs, void *user,
                                 const gd_gradcheck_options *options);

#ifdef __cplusplus
}
#endif
#endif
