/* module.h - networks as trees of modules, the PyTorch way.
 *
 *     gd_module *net = gd_nn_sequential(gd_nn_linear(1000, 100), gd_nn_relu(), gd_nn_linear(100, 10));
 *     gd_tensor *y = gd_module_forward(net, x);
 *
 * A module holds named parameters, buffers and child modules, and has a function that makes outputs of inputs.
 * layers.h has the ready ones. One of your own is a struct, a function, and the children of the struct:
 *
 *     typedef struct { gd_module *fc1, *fc2; } two_layer;
 *
 *     static gd_tensors forward(gd_tensors in, void *self) {
 *         two_layer *m = self;
 *         return gd_listed(gd_module_forward(m->fc2, gd_relu(gd_module_forward(m->fc1, in.at[0]))));
 *     }
 *
 *     gd_module *net = gd_module_new(forward, sizeof(two_layer));
 *     two_layer *m = gd_module_self(net);
 *     GD_CHILD(net, m->fc1, gd_nn_linear(1000, 100));       // named "fc1"
 *     GD_CHILD(net, m->fc2, gd_nn_linear(100, 10));
 *
 * Names of parameters are paths, as in PyTorch: "fc1.weight", "layer1.0.conv1.weight".
 *
 * A parameter is an eager leaf (gd_requires_grad) that its module holds. Its handle never changes: loading copies
 * into its memory, and gd_module_to gives the same handle other memory. Eager code, jits and graphs use the
 * same parameters; a plan reads them as they are when it runs.
 *
 * A constructor that fails returns NULL and records the failure, and every function here takes NULL: a net is
 * checked once, after it is built. A message names the layer by its path: "layer1.0.conv1 (conv2d): ...".
 *
 * Modules belong to the current scope, like tensors; a parent holds its children. A module is built and
 * changed by one thread at a time. Several threads may call it when nothing changes it.
 */
#ifndef GRADUS_MODULE_H
#define GRADUS_MODULE_H

/* As in tensor.h: gcc forgets the pragmas of options.h where layers with options stand among the arguments of
 * gd_nn_sequential in GD_CHILD. */
#pragma GCC system_header

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- calling ---------------------------------------------------------------------------------- */

/* The first output for these inputs, gd_module_forward(net, a, b); NULL is an absent input. The call has a
 * scope of its own and keeps its outputs alone. */
#define gd_module_forward(module, ...) gd_module_forward_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API gd_tensor *gd_module_forward_at(const char *site, gd_module *module, gd_tensors inputs);
/* All outputs. */
#define gd_module_call(...) gd_module_call_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_module_call_at(const char *site, gd_module *module, gd_tensors inputs);

/* Finds the sizes that were left out (gd_nn_linear(GD_ANY, 10)) from inputs like these, and makes the
 * parameters, without computing anything. The first call of a module does it as well. */
#define gd_module_build(module, ...) gd_module_build_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API gd_status gd_module_build_at(const char *site, gd_module *module, gd_tensors inputs);

/* --- user-defined modules --------------------------------------------------------------------- */

/* The outputs for the inputs `in`, with the struct of the module. Return gd_listed(...). */
typedef gd_tensors (*gd_forward)(gd_tensors in, void *self);

typedef struct gd_module_options {
    const char *
        type GD_DEFAULT_(nullptr); /* for summaries and messages: "two_layer"; NULL: "module" */
    void (*destroy)(void *self)
        GD_DEFAULT_(nullptr); /* frees what else the struct holds; not children */
} gd_module_options;

/* A module with a struct of `size` bytes, zeros at first. `forward` NULL: it only holds others. */
#define gd_module_new(forward, size, ...)               \
    GD_WITH_OPTIONS_(                                   \
        gd_module_new_at(GD_HERE, forward, size,        \
                         GD_OPTIONS_(gd_module_options, \
                                     (.type = NULL, .destroy = NULL) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_module *gd_module_new_at(const char *site, gd_forward forward, size_t size,
                                   const gd_module_options *options);
/* Its struct; NULL for a layer. For NULL, a module that could not be made, it is scratch memory of 2 KiB, so that
 * GD_CHILD may write to it all the same. */
GD_API void *gd_module_self(gd_module *module);

/* Adds a child, a parameter or a buffer, and puts it into a field of the module's struct, which names it. A
 * clone's struct has its own. They are held until the module goes. */
#define GD_CHILD(module, field, child) \
    ((field) = (child), gd_module_add_at(GD_HERE, module, #field, field, &(field)))
#define GD_PARAMETER(module, field, tensor) \
    ((field) = (tensor), gd_module_add_parameter_at(GD_HERE, module, #field, field, &(field)))
#define GD_BUFFER(module, field, tensor) \
    ((field) = (tensor), gd_module_add_buffer_at(GD_HERE, module, #field, field, &(field)))

/* The same by name, for a struct that has no field for it. A name has no dot. `field` is NULL, or the
 * address of the pointer in the module's struct. */
#define gd_module_add(module, name, child) gd_module_add_at(GD_HERE, module, name, child, NULL)
#define gd_module_add_parameter(module, name, tensor) \
    gd_module_add_parameter_at(GD_HERE, module, name, tensor, NULL)
#define gd_module_add_buffer(module, name, tensor) \
    gd_module_add_buffer_at(GD_HERE, module, name, tensor, NULL)
GD_API gd_status gd_module_add_at(const char *site, gd_module *module, const char *name,
                                  gd_module *child, void *field);
/* A parameter is a float leaf: the tensor itself, which requires a gradient from now on. It may be NULL, for
 * one that there is not (a bias). */
GD_API gd_status gd_module_add_parameter_at(const char *site, gd_module *module, const char *name,
                                            gd_tensor *tensor, void *field);
/* A buffer is saved with the module and moves with it, but is not trained (running statistics). */
GD_API gd_status gd_module_add_buffer_at(const char *site, gd_module *module, const char *name,
                                         gd_tensor *tensor, void *field);

/* Another child in place of the one at a path, "fc" or "layer4.1.conv2": fine-tuning's new head. */
#define gd_module_replace(...) gd_module_replace_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_replace_at(const char *site, gd_module *module, const char *path,
                                      gd_module *child);

/* --- containers ------------------------------------------------------------------------------- */

/* Modules one after the other, named "0", "1" ... */
#define gd_nn_sequential(...) gd_nn_sequential_at(GD_HERE, GD_MODULES_(__VA_ARGS__))
/* Modules that a program calls itself. gd_module_at(list, i) is one of them. */
#define gd_nn_list(...) gd_nn_list_at(GD_HERE, GD_MODULES_(__VA_ARGS__))
/* inside(x) + shortcut(x), and x itself where the shortcut is NULL. Named "inside" and "shortcut". */
#define gd_nn_residual(inside, shortcut) gd_nn_residual_at(GD_HERE, inside, shortcut)
/* Adds one more at the end of a sequential or a list. */
#define gd_module_append(...) gd_module_append_at(GD_HERE, __VA_ARGS__)

typedef struct gd_modules {
    gd_module *const *at;
    int64_t count;
} gd_modules;
#ifdef __cplusplus
#define GD_MODULES_(...) gd_modules_({__VA_ARGS__})
#else
#define GD_MODULES_(...)                                                               \
    ((gd_modules){(gd_module *[]){NULL __VA_OPT__(, ) __VA_ARGS__} + 1,                \
                  (int64_t)(sizeof((gd_module *[]){NULL __VA_OPT__(, ) __VA_ARGS__}) / \
                            sizeof(gd_module *)) -                                     \
                      1})
#endif
GD_API gd_module *gd_nn_sequential_at(const char *site, gd_modules modules);
GD_API gd_module *gd_nn_list_at(const char *site, gd_modules modules);
GD_API gd_module *gd_nn_residual_at(const char *site, gd_module *inside, gd_module *shortcut);
GD_API gd_status gd_module_append_at(const char *site, gd_module *module, gd_module *child);

/* A net of named layers, each of which reads and gives named tensors: Keras's functional models and Caffe's
 * nets.
 *
 *     gd_module *net = gd_nn_net("image", "scores");
 *     gd_net_add(net, "conv1", gd_nn_conv2d(1, 16, 5), "image", "h");
 *     gd_net_add(net, "pool1", gd_nn_max_pool2d(2), "h", "h");          // a name may be given again
 *     ...
 *
 * `reads`, `gives`, and the inputs and outputs of the net are names with spaces between; "-" is an absent
 * input. A layer that is added twice is shared. */
#define gd_nn_net(inputs, outputs) gd_nn_net_at(GD_HERE, inputs, outputs)
GD_API gd_module *gd_nn_net_at(const char *site, const char *inputs, const char *outputs);
#define gd_net_add(...) gd_net_add_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_net_add_at(const char *site, gd_module *net, const char *name, gd_module *layer,
                               const char *reads, const char *gives);

/* --- by name from text ------------------------------------------------------------------------ */

/* A layer by the name of its record, with options as text: gd_layer_new("conv2d", "in_channels=1
 * out_channels=16 kernel=5 padding=2"). An op that is no layer can be one, too: gd_nn_op (layers.h). */
#define gd_layer_new(name, options) gd_layer_new_at(GD_HERE, name, options)
GD_API gd_module *gd_layer_new_at(const char *site, const char *name, const char *options);

/* A network of the zoo (zoo.h) in the same way: gd_net_new("resnet18", "classes=10"). */
#define gd_net_new(name, options) gd_net_new_at(GD_HERE, name, options)
GD_API gd_module *gd_net_new_at(const char *site, const char *name, const char *options);

/* Defines a layer. The record has the form of the library's (CONTRIBUTING.md):
 *
 *     gd_layer_define("scale(x, features:int) -> y\n"
 *                     "Multiplies each feature by a weight.\n"
 *                     "  start float = 1   what the weights are at first\n",
 *                     (gd_layer_functions){.build = scale_build, .forward = scale_forward});
 *     gd_module *m = gd_layer_new("scale", "features=10");
 */
typedef struct gd_layer_functions {
    gd_status (*build)(gd_module *module); /* adds the parameters; NULL: there are none */
    gd_tensors (*forward)(gd_module *module, gd_tensors in); /* NULL: its op is called */
} gd_layer_functions;
#define gd_layer_define(...) gd_layer_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_layer_define_at(const char *site, const char *record,
                                    gd_layer_functions functions);

/* Options of a layer that was made from a record, for the two functions above. 0, NULL and an empty list
 * where there is none of that name. */
GD_API int64_t gd_layer_int(gd_module *module, const char *name);
GD_API double gd_layer_float(gd_module *module, const char *name);
GD_API const char *gd_layer_string(gd_module *module, const char *name);
GD_API gd_shape gd_layer_dims(gd_module *module, const char *name);
/* A parameter or buffer that it holds itself; NULL: none of that name. */
GD_API gd_tensor *gd_layer_tensor(gd_module *module, const char *name);

/* --- the tree --------------------------------------------------------------------------------- */

typedef struct gd_parameters_options {
    const char *match
        GD_DEFAULT_(nullptr); /* names that fit a pattern, "*.weight"; * stands for any text */
    bool trainable GD_DEFAULT_(false); /* those that are not frozen alone */
} gd_parameters_options;

/* All parameters, each once, in the order in which they were added. The list belongs to the scope. */
#define gd_module_parameters(module, ...)                                                    \
    GD_WITH_OPTIONS_(gd_module_parameters_at(GD_HERE, module,                                \
                                             GD_OPTIONS_(gd_parameters_options,              \
                                                         (.match = NULL, .trainable = false) \
                                                             __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_tensors gd_module_parameters_at(const char *site, gd_module *module,
                                          const gd_parameters_options *options);
#define gd_module_buffers(...) gd_module_buffers_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_module_buffers_at(const char *site, gd_module *module);

/* By path: a parameter or buffer, the gradient of a parameter (NULL: it has none), a module (the path ""
 * is the module itself). NULL, and a recorded failure that lists names like it, where there is none. */
#define gd_module_tensor(...) gd_module_tensor_at(GD_HERE, __VA_ARGS__)
#define gd_module_grad(...)   gd_module_grad_at(GD_HERE, __VA_ARGS__)
#define gd_module_find(...)   gd_module_find_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_module_tensor_at(const char *site, gd_module *module, const char *path);
GD_API gd_tensor *gd_module_grad_at(const char *site, gd_module *module, const char *path);
GD_API gd_module *gd_module_find_at(const char *site, gd_module *module, const char *path);
/* Children: number `index`, from 0; NULL where there are fewer. */
GD_API int gd_module_count(const gd_module *module);
GD_API gd_module *gd_module_at(gd_module *module, int index);
/* The name of a parameter or buffer in the tree, into `text`; NULL where it is not in it. */
GD_API const char *gd_module_name_of(gd_module *module, const gd_tensor *tensor, char *text,
                                     size_t size);
/* "conv2d", or the type that gd_module_new was given. */
GD_API const char *gd_module_type(const gd_module *module);

/* Calls a function for the module and all below it, each once, parents first, with their paths. */
typedef void (*gd_module_fn)(gd_module *module, const char *path, void *user);
#define gd_module_apply(...) gd_module_apply_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_apply_at(const char *site, gd_module *module, gd_module_fn fn,
                                    void *user);

/* --- modes, freezing, moving, copying --------------------------------------------------------- */

/* The mode of the module and all below it: what dropout and batch norms do. Modules begin in train mode. A jit
 * makes a plan for each mode by itself; a graph keeps the mode that it was built in. */
GD_API void gd_module_train(gd_module *module);
GD_API void gd_module_eval(gd_module *module);
/* In a function that is traced, its plan holds for this answer. NULL: the module whose function is running. */
GD_API bool gd_module_is_training(gd_module *module);

/* Frozen parameters require no gradient, and optimizers skip them. */
#define gd_module_freeze(...)   gd_module_freeze_at(GD_HERE, __VA_ARGS__)
#define gd_module_unfreeze(...) gd_module_unfreeze_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_freeze_at(const char *site, gd_module *module);
GD_API gd_status gd_module_unfreeze_at(const char *site, gd_module *module);

/* Forgets the gradients of all parameters. */
GD_API void gd_module_zero_grad(gd_module *module);

/* Moves parameters and buffers to a device ("cuda:0"; NULL: they stay) and floats among them to a dtype
 * (GD_DTYPE_NONE: they stay). Handles stay the same, gradients are forgotten, and plans are made anew. An
 * optimizer is made after the move. If it fails, nothing has moved. */
#define gd_module_to(...) gd_module_to_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_to_at(const char *site, gd_module *module, const char *device,
                                 gd_dtype dtype);

/* A module of its own with the same values. Children that are shared in it are shared in the copy. Hooks are
 * not copied. */
#define gd_module_clone(...) gd_module_clone_at(GD_HERE, __VA_ARGS__)
GD_API gd_module *gd_module_clone_at(const char *site, gd_module *module);

/* Starts the parameters whose names fit a pattern anew: gd_module_init(net, "*.weight", "truncated_normal
 * std=0.02"). The text is the name of an initializer (inits.h) and its options. */
#define gd_module_init(...) gd_module_init_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_init_at(const char *site, gd_module *module, const char *match,
                                   const char *initializer);

/* --- hooks ------------------------------------------------------------------------------------ */

/* A function that is called before or after a module's own. It gets inputs and outputs (none yet, before), and
 * returns what is to be used in their place, or an empty list to leave them alone. */
typedef gd_tensors (*gd_module_hook)(gd_module *module, gd_tensors inputs, gd_tensors outputs,
                                     void *user);

typedef struct gd_hook_options {
    bool before GD_DEFAULT_(false);
    bool builds_ops GD_DEFAULT_(
        false); /* it does nothing but build ops, and may be traced; a jit and a graph refuse others */
} gd_hook_options;

/* Adds a hook; its number, for gd_module_unhook. */
#define gd_module_on_forward(module, hook, user, ...)                                           \
    GD_WITH_OPTIONS_(gd_module_on_forward_at(GD_HERE, module, hook, user,                       \
                                             GD_OPTIONS_(gd_hook_options,                       \
                                                         (.before = false, .builds_ops = false) \
                                                             __VA_OPT__(, ) __VA_ARGS__)))
GD_API int64_t gd_module_on_forward_at(const char *site, gd_module *module, gd_module_hook hook,
                                       void *user, const gd_hook_options *options);
GD_API void gd_module_unhook(gd_module *module, int64_t number);

/* --- looking at it ---------------------------------------------------------------------------- */

/* A table of layers, the shapes of their outputs, their parameters and multiply-adds, as Keras's,
 * for inputs like these (of floats the shapes alone are used). free() the text; NULL after a
 * failure. */
#define gd_module_summary(module, ...) gd_module_summary_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API char *gd_module_summary_at(const char *site, gd_module *module, gd_tensors inputs);
/* Prints it. */
#define gd_module_print(module, ...) gd_module_print_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API gd_status gd_module_print_at(const char *site, gd_module *module, gd_tensors inputs);
/* Numbers in all parameters, each counted once. */
GD_API int64_t gd_module_parameter_count(gd_module *module);

#ifdef __cplusplus
}
#include <initializer_list>
inline gd_modules gd_modules_(std::initializer_list<gd_module *> list) {
    return {list.begin(), static_cast<int64_t>(list.size())};
}
#endif
#endif
