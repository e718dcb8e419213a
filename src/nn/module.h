/* module.h - the inside of a module: a node of the tree. */
#ifndef GRADUS_NN_MODULE_H
#define GRADUS_NN_MODULE_H

#include "core/error.h"
#include "core/tensor.h"
#include "gradus/module.h"
#include "ops/maker.h"

typedef enum gd_entry_kind { GD_A_PARAMETER, GD_A_BUFFER, GD_A_CHILD } gd_entry_kind;

/* Something that a module holds, under a name without dots. */
typedef struct gd_entry {
    gd_entry_kind kind;
    const char *name;  /* interned */
    gd_object *object; /* a tensor or a module, held; NULL: one that there is not (a bias) */
    ptrdiff_t field;   /* where the module's struct points to it, from its start; -1: nowhere */
} gd_entry;

/* A net's row (net.c), a hook (module_call.c). */
typedef struct gd_net_row gd_net_row;
typedef struct gd_hooked {
    gd_module_hook fn;
    void *user;
    int64_t number;
    bool before, builds_ops;
} gd_hooked;

typedef struct gd_layer_rules gd_layer_rules;

/* How a module computes, and what it is called. Layers have a record (layer.h), modules of the program a
 * function and a struct, containers a function of the library. */
struct gd_module {
    gd_object object;
    const char *type; /* interned */

    /* a layer */
    const gd_maker *maker;
    void *options;   /* its own copy */
    const gd_op *op; /* that it calls; NULL: none */
    void *op_options;
    bool built; /* its parameters are there */

    /* a user-defined module, or a container */
    gd_forward forward;
    void *self;
    size_t self_size;
    void (*destroy)(void *self);
    /* a container: like forward, and how a clone gets what is its own */
    gd_tensors (*contained)(gd_module *module, gd_tensors in);
    gd_net_row *rows; /* of a gd_nn_net */
    int n_rows, rows_room;
    const char *inputs, *outputs; /* of a gd_nn_net */
    gd_object *
        source; /* what it computes, where that does not change and clones share it: a graph; held */

    gd_entry *entries; /* in the order in which they were added */
    int count, room;
    gd_hooked *hooks;
    int n_hooks, hooks_room;
    int64_t hook_number;

    int training;      /* 1 or 0; traces record it */
    bool frozen;       /* parameters that are made later require no gradient */
    int revision;      /* changes with entries and hooks, which traces depend on, too */
    gd_dtype dtype;    /* of float parameters that are made later; GD_DTYPE_NONE: theirs */
    gd_device *device; /* of parameters that are made later; NULL: the default device */
    gd_object
        *attached; /* what gd_compile has made of it (train/training.h), held; a clone has none */
};

/* An empty module in the current scope; NULL with a failure when there is no memory. `type` is interned. */
gd_module *gd_module_bare(const char *type);

/* Functions without a record of the failure, for library code. */
gd_status gd_module_put(gd_module *module, gd_entry_kind kind, const char *name, void *object,
                        void *field);
gd_entry *gd_module_entry(const gd_module *module, const char *name);

/* Whether `module` is, or is below, `inside`. `depth` is 0. */
bool gd_module_contains(const gd_module *inside, const gd_module *module, int depth);

extern const struct gd_state_rules gd_module_state;

/* A tensor becomes a parameter: a float leaf that requires a gradient. */
gd_status gd_module_put_parameter(gd_module *module, const char *name, gd_tensor *tensor,
                                  void *field);

/* --- calls ------------------------------------------------------------------------------------ */

/* A call that is running, for paths in messages and for gd_module_is_training(NULL). */
typedef struct gd_module_frame {
    gd_module *module;
    struct gd_module_frame *before;
} gd_module_frame;

/* The path of the innermost call from the outermost one, with the type: "layer1.0 (conv2d)". */
char *gd_module_call_path(char *text, size_t size);

/* The same from the call around it, "conv1 (conv2d)". Within a call. */
char *gd_module_call_name(char *text, size_t size);

/* Outputs, in a list of the current scope. */
gd_tensors gd_module_run(gd_module *module, gd_tensors inputs);

/* --- walking ---------------------------------------------------------------------------------- */

enum { GD_MAX_PATH = 512, GD_MAX_DEPTH = 64 };

/* A walk over everything below a module, parents first, in order. Shared modules and tensors come once
 * (`again` is false), or for each of their names. */
typedef struct gd_walk {
    gd_status (*module)(struct gd_walk *walk, gd_module *module); /* NULL: not called */
    gd_status (*tensor)(struct gd_walk *walk, gd_module *holder,
                        gd_entry *e); /* not for absent ones */
    bool again;
    void *user;
    char path[GD_MAX_PATH]; /* of what is visited */
    gd_module *holder;
    void *seen; /* its own */
    int depth;
} gd_walk;
gd_status gd_module_walk(gd_module *module, gd_walk *walk);

/* Whether a name fits a pattern in which * stands for any text. NULL fits all. */
bool gd_name_matches(const char *name, const char *pattern);

#endif
