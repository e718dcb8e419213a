/* autograd.h - gradients.
 *
 * The tape records every op that runs on a tensor that requires a gradient. gd_backward walks the
 * tape back from a result and adds to the gradient of every leaf; gd_grad returns gradients
 * instead. Gradient rules consist of ordinary ops, so with .create_graph = true gradients can be
 * differentiated again.
 *
 * In-place ops (gd_add_ and the like) are checked: if a value that a gradient needs has been
 * overwritten, gd_backward fails and names the op. While the tape is on, an in-place op fails on a
 * leaf that requires a gradient and on a tensor that shares its memory with a view. Under
 * GD_NO_GRAD both are allowed.
 *
 * Threads: the tape belongs to no thread. Two threads must not walk back through the same ops at
 * the same time.
 */
#ifndef GRADUS_AUTOGRAD_H
#define GRADUS_AUTOGRAD_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/scope.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- leaves ----------------------------------------------------------------------------------- */

/* Marks a float tensor as a leaf that requires a gradient, and returns it. */
#define gd_requires_grad(...) gd_requires_grad_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_requires_grad_at(const char *site, gd_tensor *t);
#define gd_set_requires_grad(...) gd_set_requires_grad_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_set_requires_grad_at(const char *site, gd_tensor *t, bool wanted);
GD_API bool gd_tensor_requires_grad(const gd_tensor *t);
GD_API bool gd_tensor_is_leaf(const gd_tensor *t);

/* The accumulated gradient of a leaf, or NULL. It belongs to the leaf. */
GD_API gd_tensor *gd_tensor_grad(const gd_tensor *t);
/* Drops the gradient of a tensor, or of each tensor of a list: gd_tensor_grad is NULL until the
 * next gd_backward.
 *
 *     gd_zero_grad(w);
 *     gd_zero_grad(gd_list(w, b));
 *     gd_zero_grad(gd_module_parameters(net));
 */
GD_API void gd_zero_grad(gd_tensor *t);
GD_API void gd_zero_grad_list(gd_tensors list);
#ifdef __cplusplus
} /* gd_list(...) converts to gd_tensors */
inline void gd_zero_grad(gd_tensors list) { gd_zero_grad_list(list); }
extern "C" {
#else
#define gd_zero_grad(...) \
    _Generic((__VA_ARGS__), gd_tensors : gd_zero_grad_list, default : gd_zero_grad)(__VA_ARGS__)
#endif
/* Replaces the gradient (NULL: drops it). */
#define gd_set_grad(...) gd_set_grad_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_set_grad_at(const char *site, gd_tensor *t, gd_tensor *grad);

/* The same value without its history; it shares memory. In a graph: gd_stop_gradient. */
#define gd_detach(...) gd_detach_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_detach_at(const char *site, gd_tensor *t);

/* --- switching the tape off ------------------------------------------------------------------- */

/* For the rest of the block the tape records no ops: GD_NO_GRAD; In a graph, gradients do not flow
 * through nodes that are built in the block. */
#define GD_NO_GRAD                                                                       \
    __attribute__((cleanup(gd_grad_mode_end), unused)) int GD_SCOPE_NAME_(__COUNTER__) = \
        gd_no_grad_begin()
GD_API int gd_no_grad_begin(void);
GD_API int gd_enable_grad_begin(void);
GD_API void gd_grad_mode_end(int *before);
GD_API bool gd_grad_enabled(void);

/* --- walking back ----------------------------------------------------------------------------- */

typedef struct gd_backward_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* the gradient of the result; required unless it has one element. Default: 1 */
    gd_tensor *gradient GD_DEFAULT_(nullptr);
    /* keep the saved tensors, so that another backward is possible. Implied by create_graph */
    bool retain_graph GD_DEFAULT_(false);
    /* record the gradient computation on the tape, for gradients of gradients */
    bool create_graph GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_backward_options;
#define GD_BACKWARD_OPTIONS_(...) GD_OPTIONS_(gd_backward_options, (.gradient = NULL), __VA_ARGS__)

/* Adds the gradient of `result` to every leaf that it depends on. If it fails in the middle (out of
 * memory), leaves whose gradient was already complete have received it and the others have not:
 * call gd_zero_grad for all of them before the next try. */
#define gd_backward(result, ...) \
    GD_WITH_OPTIONS_(gd_backward_at(GD_HERE, result, GD_BACKWARD_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_backward_at(const char *site, gd_tensor *result,
                                const gd_backward_options *options);

typedef struct gd_grad_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* of the outputs, in order; a NULL entry and an empty list mean ones */
    gd_tensors gradients GD_DEFAULT_({});
    bool retain_graph GD_DEFAULT_(false), create_graph GD_DEFAULT_(false);
    /* return NULL for an input that the outputs do not depend on, instead of failing */
    bool allow_unused GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_grad_options;
#define GD_GRAD_OPTIONS_(...) GD_OPTIONS_(gd_grad_options, (.retain_graph = false), __VA_ARGS__)

/* The gradients of the sum of `outputs` with respect to each of `inputs` (leaves or not), in order.
 * The gradients of leaves (gd_tensor_grad) do not change. */
#define gd_grad(outputs, inputs, ...) \
    GD_WITH_OPTIONS_(gd_grad_at(GD_HERE, outputs, inputs, GD_GRAD_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensors gd_grad_at(const char *site, gd_tensors outputs, gd_tensors inputs,
                             const gd_grad_options *options);

/* Adds a hook: every backward through `t` calls it with the complete gradient of `t`. The hook
 * returns a gradient to use instead, or NULL to leave it unchanged. */
typedef gd_tensor *(*gd_hook_fn)(gd_tensor *gradient, void *user);
typedef struct gd_tensor_hook_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    void (*release)(void *user) GD_DEFAULT_(nullptr); /* called when the hook is freed */
} GD_GIVEN_BY_NAME_ gd_tensor_hook_options;
#define GD_TENSOR_HOOK_OPTIONS_(...) \
    GD_OPTIONS_(gd_tensor_hook_options, (.release = NULL), __VA_ARGS__)
#define gd_tensor_hook(t, fn, user, ...) \
    GD_WITH_OPTIONS_(gd_tensor_hook_at(GD_HERE, t, fn, user, GD_TENSOR_HOOK_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_tensor_hook_at(const char *site, gd_tensor *t, gd_hook_fn fn, void *user,
                                   const gd_tensor_hook_options *options);
/* Removes the hook with this function and `user`; a hook may remove itself. Does nothing if there is
 * none. Its struct is freed with the next gd_tensor_hook, or with the tensor. */
GD_API void gd_tensor_unhook(gd_tensor *t, gd_hook_fn fn, void *user);

/* --- user-defined functions ------------------------------------------------------------------- */

/* The arguments and results of forward, backward and infer. */
typedef struct gd_context {
    int n_in, n_out;
    gd_tensor *const *x;  /* forward: the inputs. backward: only their shapes; use gd_saved */
    gd_tensor **y;        /* forward sets these */
    gd_tensor *const *gy; /* backward: gradients of the outputs */
    const bool *needs;    /* backward: which inputs require a gradient */
    gd_tensor **gx;       /* backward sets these; NULL means zero */
    void *user;           /* the argument of gd_apply */
    void *state;          /* internal */
} gd_context;

typedef struct gd_function {
    const char *name;
    int n_out; /* 0 means 1 */
    void (*forward)(gd_context *context);
    void (*backward)(gd_context *context); /* of ops alone it can be differentiated again */
    void (*infer)(gd_context *context);    /* shapes for graphs, see below; may be NULL */
    bool backward_of_ops; /* for graphs: backward only calls ops and reads no data */
    /* Called with `user` once the tape does not need it any more, which may be at the end of
     * gd_apply, also if it fails, or on another thread. NULL: the program keeps `user`. A graph keeps its `user` as
     * long as the process, and does not call it. */
    void (*release)(void *user);
} gd_function;

/* Calls forward with the tape off and records backward on the tape. Returns the outputs. The struct
 * must stay valid, and `user` as long as the results live.
 *
 * In a graph, or in the function of a gd_jit, the call becomes one node. A run calls forward and
 * backward with values when it reaches the node. Both may compute in C on gd_data; inputs are
 * row-major. Concurrent runs call them from several threads. forward is called once in each run
 * that needs it, and once more if the gradient of a jit call recomputes its forward part. The
 * struct and `user` must stay valid as long as the graph or the jit.
 *
 * A graph needs the shapes of the results before it runs. So forward is also called while the graph
 * is built, and when it is planned for new sizes, with dummy inputs: floats are 1, integers 0,
 * unknown sizes 2 and 3. The shapes of its results, and the number and shapes of the tensors that
 * it saves, may depend only on the shapes of its inputs. A function that must not be called like
 * this (it counts its calls, writes to `user`, or fails for such values) provides infer, which is
 * called instead. The inputs of infer have no data. It sets context->y and calls gd_save like
 * forward, with gd_shaped tensors, inputs or results.
 *
 * If backward only calls ops, .backward_of_ops = true makes a graph record these ops, once, when
 * the gradient is built, instead of calling backward in each run. The gradient then has gradients,
 * too. Graphs with user-defined functions cannot be saved as ONNX. */
#define gd_apply(...) gd_apply_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_apply_at(const char *site, const gd_function *function, gd_tensors inputs,
                              void *user);

/* In forward: saves a tensor for backward. In backward: the i-th saved tensor. */
GD_API void gd_save(gd_context *context, gd_tensor *t);
GD_API gd_tensor *gd_saved(gd_context *context, int i);

/* In infer: a tensor of this shape and dtype, without data. */
GD_API gd_tensor *gd_shaped(gd_shape dims, gd_dtype dtype);

/* --- transforms ------------------------------------------------------------------------------- */

/* A function of tensors with one output, for the calls below. */
typedef gd_tensor *(*gd_fn)(gd_tensors inputs, void *user);

/* Calls fn and saves only its inputs. backward calls fn again, with the same random numbers, to
 * recompute its intermediate values: less memory for a second forward (PyTorch's checkpoint).
 * Captured tensors of fn, such as the weights of a layer, get gradients as well; they must not
 * change before backward. */
typedef struct gd_recompute_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* Called with `user` once the tape does not need it any more, perhaps at the end of the call. */
    void (*release)(void *user) GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_recompute_options;
#define GD_RECOMPUTE_OPTIONS_(...) GD_OPTIONS_(gd_recompute_options, (.release = NULL), __VA_ARGS__)
#define gd_recompute(fn, inputs, user, ...) \
    GD_WITH_OPTIONS_(gd_recompute_at(GD_HERE, fn, inputs, user, GD_RECOMPUTE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_recompute_at(const char *site, gd_fn fn, gd_tensors inputs, void *user,
                                  const gd_recompute_options *options);

/* The Jacobian-vector product J v: the derivative of fn at the inputs in direction of the tangents.
 * */
#define gd_jvp(...) gd_jvp_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_jvp_at(const char *site, gd_fn fn, gd_tensors inputs, gd_tensors tangents,
                            void *user);

/* The Jacobian of fn with respect to input number `input`. Its shape is the output's shape followed
 * by the input's. */
#define gd_jacobian(...) gd_jacobian_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_jacobian_at(const char *site, gd_fn fn, gd_tensors inputs, int input,
                                 void *user);

/* Hessian-vector products of a function with one output element; one result for each input. */
#define gd_hvp(...) gd_hvp_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_hvp_at(const char *site, gd_fn fn, gd_tensors inputs, gd_tensors vectors,
                            void *user);

typedef struct gd_gradcheck_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    double step GD_DEFAULT_(1e-6), tolerance_relative GD_DEFAULT_(1e-4),
        tolerance_absolute GD_DEFAULT_(1e-6);
    bool second_order GD_DEFAULT_(false); /* also check the gradient of the gradient */
    /* how many elements of each input are perturbed, spread evenly; 0: all */
    int64_t elements GD_DEFAULT_(0);
    bool twice GD_DEFAULT_(false); /* internal: inside the second-order check */
} GD_GIVEN_BY_NAME_ gd_gradcheck_options;
#define GD_GRADCHECK_OPTIONS_(...)                                                      \
    GD_OPTIONS_(gd_gradcheck_options,                                                   \
                (.step = 1e-6, .tolerance_relative = 1e-4, .tolerance_absolute = 1e-6), \
                __VA_ARGS__)

/* Compares gradients with finite differences in f64, for the inputs that require a gradient. The
 * message of a failure names the input, the element and both numbers. */
#define gd_gradcheck(fn, inputs, user, ...) \
    GD_WITH_OPTIONS_(gd_gradcheck_at(GD_HERE, fn, inputs, user, GD_GRADCHECK_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_gradcheck_at(const char *site, gd_fn fn, gd_tensors inputs, void *user,
                                 const gd_gradcheck_options *options);

#ifdef __cplusplus
}
#endif
#endif
