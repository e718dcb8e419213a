/* module.h - networks as trees of modules, the PyTorch way.
 *
 *     gd_module *net = gd_nn_sequential(gd_nn_linear(1000, 100), gd_nn_relu(), gd_nn_linear(100,
 *     10)); gd_tensor *y = gd_module_forward(net, x);
 *
 * A module holds named parameters, buffers and child modules, and has a forward function. layers.h
 * has the built-in layers. A user-defined module is a struct, a forward function, and the children
 * in the struct:
 *
 *     typedef struct { gd_module *fc1, *fc2; } two_layer;
 *
 *     static gd_tensors forward(gd_tensors in, void *self) {
 *         two_layer *m = self;
 *         return gd_listed(gd_module_forward(m->fc2, gd_relu(gd_module_forward(m->fc1,
 *         in.at[0]))));
 *     }
 *
 *     gd_module *net = gd_module_new(forward, sizeof(two_layer));
 *     two_layer *m = gd_module_self(net);
 *     GD_CHILD(net, m->fc1, gd_nn_linear(1000, 100));       // named "fc1"
 *     GD_CHILD(net, m->fc2, gd_nn_linear(100, 10));
 *
 * Names of parameters are paths, as in PyTorch: "fc1.weight", "layer1.0.conv1.weight".
 *
 * A parameter is an eager leaf (gd_requires_grad) that its module holds. Its handle never changes:
 * loading copies into its memory, and gd_module_to gives the same handle other memory. Eager code,
 * jits and graphs use the same parameters; a plan reads their current values in each run.
 *
 * A constructor that fails returns NULL and records the failure, and every function here accepts
 * NULL: check a net once, after it is built. Messages name a layer by its path: "layer1.0.conv1
 * (conv2d): ...".
 *
 * Modules belong to the current scope, like tensors; a parent holds its children. A module is built
 * and changed by one thread at a time. Several threads may call it while nothing changes it.
 */
#ifndef GRADUS_MODULE_H
#define GRADUS_MODULE_H

/* As in tensor.h: gcc ignores the diagnostic pragmas of options.h if layers with options are
 * arguments of gd_nn_sequential in GD_CHILD. */
#pragma GCC system_header

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- calling ---------------------------------------------------------------------------------- */

/* The first output for these inputs: gd_module_forward(net, a, b). NULL is an absent input. The
 * call opens a scope and keeps only its outputs. */
#define gd_module_forward(module, ...) gd_module_forward_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API gd_tensor *gd_module_forward_at(const char *site, gd_module *module, gd_tensors inputs);
/* All outputs. */
#define gd_module_call(...) gd_module_call_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_module_call_at(const char *site, gd_module *module, gd_tensors inputs);

/* Infers unknown sizes (gd_nn_linear(GD_ANY, 10)) from the shapes of these inputs and creates the
 * parameters, without computing outputs. The first call of a module does this, too. */
#define gd_module_build(module, ...) gd_module_build_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API gd_status gd_module_build_at(const char *site, gd_module *module, gd_tensors inputs);

/* --- user-defined modules --------------------------------------------------------------------- */

/* The forward function: returns the outputs for the inputs `in` with gd_listed(...). `self` is the
 * struct of the module. If the call has fewer inputs than the function reads, the next
 * GD_FAILED_COUNT are error tensors, whose use fails with a message that names the module. */
typedef gd_tensors (*gd_forward)(gd_tensors in, void *self);

typedef struct gd_module_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *
        type GD_DEFAULT_(nullptr); /* for summaries and messages: "two_layer"; NULL: "module" */
    void (*destroy)(void *self)
        GD_DEFAULT_(nullptr); /* frees other memory of the struct, not children */
    /* Completes the struct of a clone; gd_module_clone needs it for a module with .destroy. `to` is
     * a copy of the bytes of `from` in which the fields of GD_CHILD and the like have the cloned
     * objects; `copy` is the clone, with all its parts. The function replaces what the copy must
     * not share: memory, references. If it returns a failure (gd_raise), the clone fails, and
     * .destroy is not called for `to`. */
    gd_status (*clone)(gd_module *copy, void *to, const void *from) GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_module_options;
#define GD_MODULE_OPTIONS_(...) \
    GD_OPTIONS_(gd_module_options, (.type = NULL, .destroy = NULL, .clone = NULL), __VA_ARGS__)

/* A module with a struct of `size` zero bytes. `forward` NULL: it is only a container. */
#define gd_module_new(forward, size, ...) \
    GD_WITH_OPTIONS_(gd_module_new_at(GD_HERE, forward, size, GD_MODULE_OPTIONS_(__VA_ARGS__)))
GD_API gd_module *gd_module_new_at(const char *site, gd_forward forward, size_t size,
                                   const gd_module_options *options);
/* The struct of the module; NULL for a layer. For a NULL module (its creation has failed) it
 * returns 2 KiB of scratch memory, so that GD_CHILD can still write to it. */
GD_API void *gd_module_self(gd_module *module);

/* Gives a layer or a container a forward function of the program, with a struct, as gd_module_new
 * does; its parts stay. The function may call gd_module_base_forward for the outputs that the
 * module would have without it. `options` may name another type. */
#define gd_module_override(module, forward, size, ...) \
    GD_WITH_OPTIONS_(                                  \
        gd_module_override_at(GD_HERE, module, forward, size, GD_MODULE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_module_override_at(const char *site, gd_module *module, gd_forward forward,
                                       size_t size, const gd_module_options *options);
#define gd_module_base_forward(module, inputs) gd_module_base_forward_at(GD_HERE, module, inputs)
GD_API gd_tensors gd_module_base_forward_at(const char *site, gd_module *module, gd_tensors inputs);

/* Stores a child, a parameter or a buffer in a field of the module's struct and adds it to the
 * module under the name of the field. The module holds it until it is freed. The struct of a clone
 * has the cloned objects. */
#define GD_CHILD(module, field, child) \
    ((field) = (child), gd_module_add_at(GD_HERE, module, #field, field, &(field)))
#define GD_PARAMETER(module, field, tensor) \
    ((field) = (tensor), gd_module_add_parameter_at(GD_HERE, module, #field, field, &(field)))
#define GD_BUFFER(module, field, tensor) \
    ((field) = (tensor), gd_module_add_buffer_at(GD_HERE, module, #field, field, &(field)))

/* The same with a name, for a struct without such a field. A name has no dot. `field` is NULL, or
 * the address of the pointer in the module's struct. */
#define gd_module_add(module, name, child) gd_module_add_at(GD_HERE, module, name, child, NULL)
#define gd_module_add_parameter(module, name, tensor) \
    gd_module_add_parameter_at(GD_HERE, module, name, tensor, NULL)
#define gd_module_add_buffer(module, name, tensor) \
    gd_module_add_buffer_at(GD_HERE, module, name, tensor, NULL)
GD_API gd_status gd_module_add_at(const char *site, gd_module *module, const char *name,
                                  gd_module *child, void *field);
/* The tensor becomes a float leaf that requires a gradient. NULL is an absent parameter (a bias).
 * */
GD_API gd_status gd_module_add_parameter_at(const char *site, gd_module *module, const char *name,
                                            gd_tensor *tensor, void *field);
/* A buffer is saved with the module and moves with it, but is not trained (running statistics). */
GD_API gd_status gd_module_add_buffer_at(const char *site, gd_module *module, const char *name,
                                         gd_tensor *tensor, void *field);

/* Replaces the child at a path, "fc" or "layer4.1.conv2", for example by a new head for
 * fine-tuning. */
#define gd_module_replace(...) gd_module_replace_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_replace_at(const char *site, gd_module *module, const char *path,
                                      gd_module *child);

/* Removes a child, a parameter or a buffer of the module itself. */
#define gd_module_remove(module, name) gd_module_remove_at(GD_HERE, module, name)
GD_API gd_status gd_module_remove_at(const char *site, gd_module *module, const char *name);
/* Puts another tensor in the place of a parameter or a buffer of the module itself. Optimizers and
 * plans of the old one do not follow. */
#define gd_module_set_tensor(module, name, tensor) \
    gd_module_set_tensor_at(GD_HERE, module, name, tensor)
GD_API gd_status gd_module_set_tensor_at(const char *site, gd_module *module, const char *name,
                                         gd_tensor *tensor);

/* --- containers ------------------------------------------------------------------------------- */

/* Modules one after the other, named "0", "1" ... */
#define gd_nn_sequential(...) gd_nn_sequential_at(GD_HERE, GD_MODULES_(__VA_ARGS__))
/* A list of modules that the program calls one by one: gd_module_at(list, i). */
#define gd_nn_list(...) gd_nn_list_at(GD_HERE, GD_MODULES_(__VA_ARGS__))
/* inside(x) + shortcut(x), or inside(x) + x if the shortcut is NULL. The children are named
 * "inside" and "shortcut". */
#define gd_nn_residual(inside, shortcut) gd_nn_residual_at(GD_HERE, inside, shortcut)
/* Appends a module to a sequential or a list. */
#define gd_module_append(...) gd_module_append_at(GD_HERE, __VA_ARGS__)

typedef struct gd_modules {
    gd_module *const *at;
    int64_t count;
} gd_modules;
#ifdef __cplusplus
#define GD_MODULES_(...) gd_modules_({__VA_ARGS__})
#else
#define GD_MODULES_(...)                                                                        \
    ((gd_modules){(gd_module *[]){NULL, __VA_ARGS__} + 1,                                       \
                  (int64_t)(sizeof((gd_module *[]){NULL, __VA_ARGS__}) / sizeof(gd_module *)) - \
                      1})
#endif
GD_API gd_module *gd_nn_sequential_at(const char *site, gd_modules modules);
GD_API gd_module *gd_nn_list_at(const char *site, gd_modules modules);
GD_API gd_module *gd_nn_residual_at(const char *site, gd_module *inside, gd_module *shortcut);
GD_API gd_status gd_module_append_at(const char *site, gd_module *module, gd_module *child);

/* A net of named layers that read and write named tensors, like Keras's functional models and
 * Caffe's nets.
 *
 *     gd_module *net = gd_nn_net("image", "scores");
 *     gd_net_add(net, "conv1", gd_nn_conv2d(1, 16, 5), "image", "h");
 *     gd_net_add(net, "pool1", gd_nn_max_pool2d(2), "h", "h");         // names may be reused
 *     ...
 *
 * `reads`, `gives` (the names of the layer's inputs and outputs), and the inputs and outputs of the
 * net are names separated by spaces; "-" is an absent input, and "\ " a space in a name. The name of
 * a layer may have dots, slashes and spaces. A layer that is added twice is shared. */
#define gd_nn_net(inputs, outputs) gd_nn_net_at(GD_HERE, inputs, outputs)
GD_API gd_module *gd_nn_net_at(const char *site, const char *inputs, const char *outputs);
#define gd_net_add(...) gd_net_add_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_net_add_at(const char *site, gd_module *net, const char *name, gd_module *layer,
                               const char *reads, const char *gives);

/* --- by name from text ------------------------------------------------------------------------ */

/* A layer by the name of its record, with options as text: gd_layer_new("conv2d", "in_channels=1
 * out_channels=16 kernel=5 padding=2"). gd_nn_op (layers.h) makes a layer of any op. */
#define gd_layer_new(name, options) gd_layer_new_at(GD_HERE, name, options)
GD_API gd_module *gd_layer_new_at(const char *site, const char *name, const char *options);

/* A network of the zoo (zoo.h) in the same way: gd_net_new("resnet18", "classes=10"). */
#define gd_net_new(name, options) gd_net_new_at(GD_HERE, name, options)
GD_API gd_module *gd_net_new_at(const char *site, const char *name, const char *options);

/* Defines a layer. CONTRIBUTING.md has the form of the record:
 *
 *     gd_layer_define("scale(x, features:int) -> y\n"
 *                     "Multiplies each feature by a weight.\n"
 *                     "  start float = 1   initial value of the weights\n",
 *                     (gd_layer_functions){.build = scale_build, .forward = scale_forward});
 *     gd_module *m = gd_layer_new("scale", "features=10");
 */
typedef struct gd_layer_functions {
    gd_status (*build)(gd_module *module);                   /* adds the parameters; NULL: none */
    gd_tensors (*forward)(gd_module *module, gd_tensors in); /* NULL: calls the layer's op */
} gd_layer_functions;
#define gd_layer_define(...) gd_layer_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_layer_define_at(const char *site, const char *record,
                                    gd_layer_functions functions);

/* Options of a layer that was created from a record, for the two functions above. 0, NULL or an
 * empty list if there is no option of that name. */
GD_API int64_t gd_layer_int(gd_module *module, const char *name);
GD_API double gd_layer_float(gd_module *module, const char *name);
GD_API const char *gd_layer_string(gd_module *module, const char *name);
GD_API gd_shape gd_layer_dims(gd_module *module, const char *name);
/* A parameter or buffer of the layer itself; NULL if there is none of that name. */
GD_API gd_tensor *gd_layer_tensor(gd_module *module, const char *name);

/* --- the tree --------------------------------------------------------------------------------- */

typedef struct gd_parameters_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *
        match GD_DEFAULT_(nullptr); /* only names that match a pattern, "*.weight"; * is any text */
    bool trainable GD_DEFAULT_(false); /* only parameters that are not frozen */
} GD_GIVEN_BY_NAME_ gd_parameters_options;
#define GD_PARAMETERS_OPTIONS_(...) \
    GD_OPTIONS_(gd_parameters_options, (.match = NULL, .trainable = false), __VA_ARGS__)

/* All parameters, each once, in the order of their addition. The list belongs to the scope,
 * or to the caller if there is none, with a reference to each tensor.
 *
 * A layer whose sizes are GD_ANY has no parameters before its first call. While there is such a
 * layer, the call fails and names it: an optimizer of a list without its parameters would never
 * train them. Call the net on a batch first (or gd_module_build), give the sizes, or use an
 * optimizer of the module (gd_optim_adam_of(net), optim.h), which takes in what is built later. */
#define gd_module_parameters(module, ...) \
    GD_WITH_OPTIONS_(gd_module_parameters_at(GD_HERE, module, GD_PARAMETERS_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensors gd_module_parameters_at(const char *site, gd_module *module,
                                          const gd_parameters_options *options);
/* All buffers in the same way; only layers that will have some must be built. */
#define gd_module_buffers(...) gd_module_buffers_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_module_buffers_at(const char *site, gd_module *module);

/* Lookups by path: a parameter or buffer, the gradient of a parameter (NULL: it has none), a module
 * (the path "" is the module itself). If there is no such path, they return NULL and record a
 * failure that lists similar names. */
#define gd_module_tensor(...) gd_module_tensor_at(GD_HERE, __VA_ARGS__)
#define gd_module_grad(...)   gd_module_grad_at(GD_HERE, __VA_ARGS__)
#define gd_module_find(...)   gd_module_find_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_module_tensor_at(const char *site, gd_module *module, const char *path);
GD_API gd_tensor *gd_module_grad_at(const char *site, gd_module *module, const char *path);
GD_API gd_module *gd_module_find_at(const char *site, gd_module *module, const char *path);
/* The number of children, and child number `index`, from 0. If there is no such child, gd_module_at
 * returns NULL and records a failure. */
GD_API int gd_module_count(const gd_module *module);
#define gd_module_at(module, index) gd_module_at_at(GD_HERE, module, index)
GD_API gd_module *gd_module_at_at(const char *site, gd_module *module, int index);
/* Part number `index` of the module itself, from 0, in the order of addition. Returns false beyond
 * the last. The object belongs to the module. */
typedef enum gd_part_kind { GD_PART_PARAMETER, GD_PART_BUFFER, GD_PART_CHILD } gd_part_kind;
typedef struct gd_module_part {
    gd_part_kind kind;
    const char *name;
    void *object; /* a gd_tensor, or the gd_module of a child; NULL: absent (a bias) */
} gd_module_part;
GD_API bool gd_module_part_at(const gd_module *module, int index, gd_module_part *part);
/* The part of the module itself with this name. Returns false if there is none. */
GD_API bool gd_module_part_named(const gd_module *module, const char *name, gd_module_part *part);
/* Writes the name of a parameter or buffer in the tree to `text`; NULL if it is not in the tree. */
GD_API const char *gd_module_name_of(gd_module *module, const gd_tensor *tensor, char *text,
                                     size_t size);
/* "conv2d", or the .type of gd_module_new. */
GD_API const char *gd_module_type(const gd_module *module);
/* A number that changes when any module of the process gets or loses a part: who has read a tree need
 * not read it again while the number is the same. */
GD_API unsigned gd_module_changes(void);
/* The options of a layer of this name: const gd_nn_linear_options *o = gd_layer_options(layer, "linear").
 * They belong to the layer, and have sizes that its first call has inferred. NULL: it is another module. */
GD_API const void *gd_layer_options(const gd_module *layer, const char *name);
/* Changes an option of a layer that is a real number: p of a dropout, momentum or eps of a norm. Others
 * are fixed, because parameters depend on them. Jits trace again. */
#define gd_layer_set_number(layer, option, value) \
    gd_layer_set_number_at(GD_HERE, layer, option, value)
GD_API gd_status gd_layer_set_number_at(const char *site, gd_module *layer, const char *option,
                                        double value);

/* Calls a function for the module and all its descendants, each once, parents first, with their
 * paths. */
typedef void (*gd_module_fn)(gd_module *module, const char *path, void *user);
#define gd_module_apply(...) gd_module_apply_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_apply_at(const char *site, gd_module *module, gd_module_fn fn,
                                    void *user);

/* --- modes, freezing, moving, copying --------------------------------------------------------- */

/* Set the mode of the module and its descendants, which dropout and batch norms read. Modules start
 * in train mode. A jit builds a plan for each mode; a graph keeps the mode in which it was built.
 * */
GD_API void gd_module_train(gd_module *module);
GD_API void gd_module_eval(gd_module *module);
/* The mode of this module alone. */
GD_API void gd_module_set_training(gd_module *module, bool training);
/* Whether the module is in train mode. A trace records the result: the plan is used only in this
 * mode. NULL: the module whose function is running. */
GD_API bool gd_module_is_training(gd_module *module);

/* Frozen parameters require no gradient, and optimizers skip them. */
#define gd_module_freeze(...)   gd_module_freeze_at(GD_HERE, __VA_ARGS__)
#define gd_module_unfreeze(...) gd_module_unfreeze_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_freeze_at(const char *site, gd_module *module);
GD_API gd_status gd_module_unfreeze_at(const char *site, gd_module *module);

/* Drops the gradients of all parameters. */
GD_API void gd_module_zero_grad(gd_module *module);

/* Moves parameters and buffers to a device ("cuda:0"; NULL: unchanged) and converts floats among
 * them to a dtype (GD_DTYPE_NONE: unchanged). Handles stay the same, gradients are dropped, and
 * plans are rebuilt. Create the optimizer after the move. If the call fails, nothing has moved. */
#define gd_module_to(...) gd_module_to_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_to_at(const char *site, gd_module *module, const char *device,
                                 gd_dtype dtype);

/* A copy of the module with the same values. Shared children are shared in the copy, too. Hooks are
 * not copied. The structs of user-defined modules are copied byte by byte; a struct that owns more
 * has a .clone (gd_module_new). */
#define gd_module_clone(...) gd_module_clone_at(GD_HERE, __VA_ARGS__)
GD_API gd_module *gd_module_clone_at(const char *site, gd_module *module);

/* Initializes the parameters whose names match a pattern: gd_module_init(net, "*.weight",
 * "truncated_normal std=0.02"). The text is the name of an initializer (inits.h) and its options.
 * While a layer that may have such parameters has none yet (GD_ANY), the call fails and names it. */
#define gd_module_init(...) gd_module_init_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_module_init_at(const char *site, gd_module *module, const char *match,
                                   const char *initializer);

/* --- hooks ------------------------------------------------------------------------------------ */

/* A function that is called before or after a module's forward function. A hook before forward
 * receives no outputs and may return other inputs; one after forward may return other outputs. An
 * empty list changes nothing. */
typedef gd_tensors (*gd_module_hook)(gd_module *module, gd_tensors inputs, gd_tensors outputs,
                                     void *user);

typedef struct gd_hook_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool before GD_DEFAULT_(false);
    /* The hook only calls ops, so it may be traced. In a jit and a graph other hooks fail. */
    bool builds_ops GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_hook_options;
#define GD_HOOK_OPTIONS_(...) \
    GD_OPTIONS_(gd_hook_options, (.before = false, .builds_ops = false), __VA_ARGS__)

/* Adds a hook and returns its number, for gd_module_unhook. */
#define gd_module_on_forward(module, hook, user, ...) \
    GD_WITH_OPTIONS_(                                 \
        gd_module_on_forward_at(GD_HERE, module, hook, user, GD_HOOK_OPTIONS_(__VA_ARGS__)))
GD_API int64_t gd_module_on_forward_at(const char *site, gd_module *module, gd_module_hook hook,
                                       void *user, const gd_hook_options *options);
GD_API void gd_module_unhook(gd_module *module, int64_t number);

/* --- summaries -------------------------------------------------------------------------------- */

/* A table of layers with output shapes, parameters and multiply-adds, like Keras's summary, for
 * inputs like these (only the shapes of float inputs are used). free() the text; NULL after a
 * failure. */
#define gd_module_summary(module, ...) gd_module_summary_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API char *gd_module_summary_at(const char *site, gd_module *module, gd_tensors inputs);
/* Prints the summary. */
#define gd_module_print(module, ...) gd_module_print_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API gd_status gd_module_print_at(const char *site, gd_module *module, gd_tensors inputs);
/* Draws the layers of a module, as they compute for inputs like these (only the shapes of float inputs are
 * used): an SVG image, or for a path that ends in .dot a text for Graphviz. A layer is a box with its name,
 * its options and the shape of its output, from top to bottom; what only one layer reads (an activation, a
 * norm) is in the box of that layer. A file of this name is replaced.
 *
 *     gd_module_draw(net, "net.svg", gd_list(image));
 */
typedef struct gd_module_draw_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool left_to_right GD_DEFAULT_(false);
    const char *title GD_DEFAULT_(nullptr); /* NULL: the type of the module */
} GD_GIVEN_BY_NAME_ gd_module_draw_options;
#define GD_MODULE_DRAW_OPTIONS_(...) \
    GD_OPTIONS_(gd_module_draw_options, (.left_to_right = false, .title = NULL), __VA_ARGS__)
#define gd_module_draw(module, path, inputs, ...) \
    GD_WITH_OPTIONS_(                             \
        gd_module_draw_at(GD_HERE, module, path, inputs, GD_MODULE_DRAW_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_module_draw_at(const char *site, gd_module *module, const char *path,
                                   gd_tensors inputs, const gd_module_draw_options *options);

/* The multiply-adds of a forward call with inputs like these, without computing it; NAN: they depend on
 * values, or the call fails. */
#define gd_module_macs(module, ...) gd_module_macs_at(GD_HERE, module, gd_list(__VA_ARGS__))
GD_API double gd_module_macs_at(const char *site, gd_module *module, gd_tensors inputs);
/* The number of elements of all parameters, each parameter counted once. Layers whose sizes are
 * GD_ANY count from their first call on. */
GD_API int64_t gd_module_parameter_count(gd_module *module);

#ifdef __cplusplus
}
#include <initializer_list>
inline gd_modules gd_modules_(std::initializer_list<gd_module *> list) {
    return {list.begin(), static_cast<int64_t>(list.size())};
}
#endif
#endif
